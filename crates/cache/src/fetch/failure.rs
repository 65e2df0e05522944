//! Why a fetch got no usable answer.

use crate::trouble::Trouble;
use copal_origin as origin;
use copal_wire as wire;

/// Why a fetch got no usable answer.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The origin, or the way to it.
    Origin(origin::Error, String),
    /// The backend that VCL chose leads to no origin.
    NotABackend,
    /// The client's body broke off. The origin must not take the part that it has for the whole.
    RequestBody,
    /// VCL made a request that cannot be sent.
    Request(wire::Reject),
    /// The body goes on beyond its announced length.
    TooLong,
}

impl Failure {
    /// The failure in the words of `Proxy-Status`.
    pub(super) fn trouble(&self) -> Trouble {
        match self {
            Self::Origin(error, backend) => Trouble::of_origin(error).at(backend),
            Self::NotABackend | Self::Request(_) => Trouble::misconfigured(),
            Self::RequestBody => Trouble::request_cut(),
            Self::TooLong => Trouble::bad_answer(),
        }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Origin(error, backend) => f.write_str(&error.fetch_error(backend)),
            Self::NotABackend => f.write_str("no backend"),
            Self::RequestBody => f.write_str("request body failed"),
            Self::Request(reject) => write!(f, "request cannot be sent: {reject}"),
            Self::TooLong => f.write_str("body longer than announced"),
        }
    }
}
