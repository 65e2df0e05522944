//! HTTP/1 heads: parsing, body framing, persistence, writing.
//!
//! `httparse` finds the pieces fast; what it forgives (leading LF, control bytes it passes) is refused here. Line ends
//! and folded lines that the RFC lets a reader take are taken where they can be read in one way only ([`mend`]).
//! The rule of the whole module: a head that two readers could read in two ways is a [`Reject`], and what is accepted is
//! written again in one form only.
//!
//! Source: RFC 9112.

mod framing;
mod memo;
mod mend;
mod request;
mod response;
mod scan;
mod target;
#[cfg(test)]
mod tests;
mod write;

pub use framing::{
    RequestFraming, ResponseFraming, check_connection, keep_alive, request_framing, response_framing,
    response_framing_by_close,
};
pub use memo::Memo;
pub(crate) use request::check_host;
pub use request::parse_request;
pub use response::parse_response;
pub use target::{TargetForm, absolute_form, target_form};
pub use write::{write_request_head, write_response_head};

/// How large a head may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The whole head with its empty line, in bytes (`http_req_size`).
    pub head_bytes: usize,
    /// One field line without CRLF, in bytes (`http_req_hdr_len`). Range alone may be longer.
    pub line_bytes: usize,
    /// How many fields (`http_max_hdr`).
    pub fields: usize,
}

impl Default for Limits {
    /// Varnish's defaults: 32 KiB, 8 KiB, 64 lines of which the first counts as five.
    fn default() -> Self {
        Self { head_bytes: 32 << 10, line_bytes: 8 << 10, fields: 59 }
    }
}

impl Limits {
    /// Whether a field line of this name and value may be taken. A vector read names hundreds of ranges in one field, which
    /// nobody can spread over several: it is bounded by the head, and by `http_range_max` when it is read.
    #[inline]
    pub(crate) fn allow(&self, name: &[u8], value: &[u8]) -> bool {
        name.len() + value.len() + 2 <= self.line_bytes || name.eq_ignore_ascii_case(b"range")
    }
}

/// How far a parse came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parse {
    /// The head is not complete yet; read more and call again with all of it. Never answered once the head's limit is
    /// reached.
    Partial,
    /// The head is complete and this many bytes long, skipped empty lines included.
    Done(usize),
}
