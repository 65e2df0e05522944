//! The heart: from a client's request to its response, by way of the cache.
//!
//! [`exchange::Exchange`] takes a request through its steps (`request/`), a fetch through its own (`fetch/`);
//! [`copal_catalog`] finds objects and ends them, [`copal_filter`] changes their bodies. Names no socket: connections to
//! clients are `front`'s, those to origins `origin`'s.

mod assemble;
pub mod body;
mod decision;
pub mod exchange;
pub mod explain;
mod fetch;
mod header;
pub mod host;
mod include;
pub mod known;
pub mod local;
pub mod outages;
mod parts;
mod request;
pub mod session;
pub mod settings;
pub mod shared;
mod sparse;
mod top;
mod trouble;

pub use body::Body;
pub use exchange::{BodyError, Exchange, Outcome, RequestBody};
pub use local::{Local, Reseed};
pub use request::pipe::Pipe;
pub use session::Session;
pub use settings::Settings;
pub use shared::{Shared, Stores, Vcl};
pub use sparse::Ranges;
