//! The command-line protocol that `varnishadm` speaks: bytes to commands, replies to bytes, and who may say what.
//!
//! [`session::Session`] is one connection without its socket: bytes go in, bytes come out, a [`session::Commands`] does the
//! work. [`table`] is the one list of commands, from which `help` is made. [`client`] is the other end, for `copal adm`.
//! The only input and output here is the client's socket; randomness and secrets are arguments.
//!
//! Source: Varnish 7.1, `varnish-cli(7)`, and what `varnishadm` 7.1 sends and accepts.

pub mod challenge;
pub mod client;
pub mod intake;
pub mod json;
pub mod reply;
pub mod session;
pub mod table;
pub mod words;

pub use reply::{Reply, Status};
pub use session::{Commands, Session};
pub use table::{COMMANDS, Command, Verb};
