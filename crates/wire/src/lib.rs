//! HTTP messages, framing, ranges, dates and PROXY headers as bytes, without input or output.
//!
//! Bytes come in as slices and go out into `Vec<u8>`; no socket, no clock, no VCL. What is ambiguous is refused with a
//! named [`Reject`], so that no two readers of what we accept, and later write, can disagree about where a message ends.
//!
//! Begin with [`Fields`] (the fields of one message), then [`h1`] (heads and framing) and [`chunked`] (bodies). [`h2`] makes
//! the same heads of HTTP/2's parts.

pub mod chunked;
pub mod date;
mod fields;
pub mod h1;
pub mod h2;
mod known;
mod message;
pub mod proxy;
pub mod range;
mod reject;
pub mod syntax;

pub use fields::{Field, Fields, KnownSet};
pub use known::Known;
pub use message::{RequestHead, ResponseHead, Version, standard_reason};
pub use reject::Reject;
pub use syntax::{valid_name, valid_value};
