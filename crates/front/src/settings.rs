//! What the front can be told, with Varnish's parameter names and defaults. Times in seconds.

use base::Seconds;
use copal_base as base;
use copal_wire as wire;
use wire::h1::Limits;

/// Parameters of client connections.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// How long a kept connection may stand idle.
    pub timeout_idle: Seconds,
    /// How long a request's head may take from its first byte.
    pub timeout_req: Seconds,
    /// How long the client may pause within a request's body.
    pub timeout_body: Seconds,
    /// How long a write may make no progress.
    pub idle_send_timeout: Seconds,
    /// How long one response may take in all.
    pub send_timeout: Seconds,
    /// How long a pipe may be silent both ways.
    pub pipe_timeout: Seconds,
    /// How long the rest of a request is read and thrown away before a connection is closed on it.
    pub linger: Seconds,
    /// Limits of a request's head (`http_req_size`, `http_req_hdr_len`, `http_max_hdr`).
    pub limits: Limits,
    /// Whether an `https://` target is taken apart as an `http://` one is (`feature=+https_scheme`); else it stays whole in
    /// `req.url`, as in Varnish.
    pub https_scheme: bool,
    /// Whether a session that wakes up is to look if it finds room (`debug.reqpool.fail`).
    pub may_find_no_room: bool,
    /// HTTP/2, if it is spoken.
    pub http2: Option<crate::Http2Settings>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            timeout_idle: 5.0,
            timeout_req: 2.0,
            timeout_body: 5.0,
            idle_send_timeout: 60.0,
            send_timeout: 600.0,
            pipe_timeout: 60.0,
            linger: 1.0,
            limits: Limits::default(),
            https_scheme: false,
            may_find_no_room: false,
            http2: None,
        }
    }
}
