//! The request that the client sent, as VCL sees it from within an ESI include (`req_top`).

use base::Time;
use copal_base as base;
use copal_wire as wire;
use wire::RequestHead;

/// The request at the top of a tree of includes, as `vcl_recv` left it. All includes below it share one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Top {
    /// Method, URL, version and fields.
    pub(crate) request: RequestHead,
    /// When it had arrived (`req_top.time`).
    pub(crate) arrival: Time,
}
