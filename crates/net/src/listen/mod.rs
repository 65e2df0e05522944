//! Listening: what `-a` says ([`spec`]), sockets bound to it ([`bind`]), connections taken from them ([`accept`]).

pub mod accept;
pub mod bind;
pub mod spec;

pub use accept::{Acceptor, Statistics};
pub use bind::{BindError, Listener, Listening, Settings, bind};
pub use spec::{Address, Protocol, Spec, SpecError};
