//! What the operator may set about origins; all of it while running, for exchanges that begin afterwards.

use base::Seconds;
use copal_base as base;
use copal_net::Endpoint;
use copal_wire::h1::Limits;
use std::collections::HashSet;
use std::sync::Arc;

/// Parameters. Times in seconds; a timeout of 0 or less never passes.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// To connect, all addresses of a backend together (`connect_timeout`).
    pub connect_timeout: Seconds,
    /// From the request sent to the first byte of the answer; also for any one stall in sending
    /// (`first_byte_timeout`).
    pub first_byte_timeout: Seconds,
    /// Between two arrivals of bytes after the first (`between_bytes_timeout`).
    pub between_bytes_timeout: Seconds,
    /// How long an unused connection is kept (`backend_idle_timeout`).
    pub idle_timeout: Seconds,
    /// No new try after a failure on our side, such as no free port (`backend_local_error_holddown`).
    pub local_error_holddown: Seconds,
    /// No new try after a refusal by the other side (`backend_remote_error_holddown`).
    pub remote_error_holddown: Seconds,
    /// From the request sent to the last byte of its answer (`fetch_time_max`); 0 or less is no bound.
    pub fetch_time_max: Seconds,
    /// The longest body of an answer, as it comes, without the framing of chunks (`fetch_bytes_max`); 0 is no bound.
    pub fetch_bytes_max: u64,
    /// Bounds of response heads (`http_resp_size`, `http_resp_hdr_len`, `http_max_hdr`).
    pub limits: Limits,
    /// Which family's addresses are tried first (`prefer_ipv6`).
    pub prefer_ipv6: bool,
    /// Unused connections kept for one address on one thread, at most.
    pub idle_max: usize,
    /// Bytes of a response's body that are read at once, at most; 0 is no bound (`debug.fragfetch`).
    pub piece_max: usize,
    /// Addresses to which no unused connections are kept: those of VCLs that are cold alone.
    pub resting: Arc<HashSet<Endpoint>>,
}

impl Default for Settings {
    /// Varnish 7.1's.
    fn default() -> Self {
        Self {
            connect_timeout: 3.5,
            first_byte_timeout: 60.0,
            between_bytes_timeout: 60.0,
            idle_timeout: 60.0,
            local_error_holddown: 10.0,
            remote_error_holddown: 0.25,
            fetch_time_max: 0.0,
            fetch_bytes_max: 0,
            limits: Limits::default(),
            prefer_ipv6: false,
            idle_max: 256,
            piece_max: 0,
            resting: Arc::default(),
        }
    }
}

/// The three time limits of one exchange, after backend and VCL have had their say. Seconds; 0 or less never passes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timeouts {
    /// `bereq.connect_timeout`.
    pub connect: Seconds,
    /// `bereq.first_byte_timeout`.
    pub first_byte: Seconds,
    /// `bereq.between_bytes_timeout`.
    pub between_bytes: Seconds,
}

impl From<&Settings> for Timeouts {
    fn from(settings: &Settings) -> Self {
        Self {
            connect: settings.connect_timeout,
            first_byte: settings.first_byte_timeout,
            between_bytes: settings.between_bytes_timeout,
        }
    }
}
