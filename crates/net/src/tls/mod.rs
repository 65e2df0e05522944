//! TLS on a [`Stream`], so that whoever reads and writes one need not know.
//!
//! ```text
//!  Client (an origin's name, trust, session tickets) > handshake(stream) > the same Stream, sealed
//! ```
//! A sealed stream keeps a [`Session`] beside its socket: `read` takes records in and gives plain bytes, `write` comes
//! back when the kernel has the records. A plain stream pays one branch for this.
//!
//! Cryptography is aws-lc-rs below rustls; TLS 1.2 and 1.3. See `docs/decisions/tls.md`.

mod client;
mod fault;
mod session;
mod verify;

#[cfg(test)]
mod tests;

pub use client::{Client, Options};
pub use fault::Fault;
pub(crate) use session::Session;

#[cfg(doc)]
use crate::stream::Stream;
