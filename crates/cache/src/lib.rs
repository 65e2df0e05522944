//! The heart: from a client's request to its response, by way of the cache.
//!
//! ```text
//! explain            what would become of a request
//! request            the steps of a client's request, from its head to its response
//! exchange           what they share, as data
//! fetch              asking an origin, storing its answer, reading segments that are fetched meanwhile
//! body               what a response's body is made of
//! shared, local ...  what all threads, and what one thread, have in common; small facts
//! ```
//! A module uses those below it. [`copal_catalog`] finds objects and ends them, [`copal_filter`] changes their bodies.
//! Names no socket: connections to clients are `front`'s, those to origins `origin`'s.

pub mod body;
mod decision;
mod demand;
pub mod exchange;
pub mod explain;
mod fetch;
mod handled;
mod header;
mod host;
pub mod known;
pub mod local;
mod message;
pub mod outages;
mod pipe;
mod purge;
mod range_support;
mod repeats;
mod request;
mod request_body;
mod reseed;
pub mod session;
pub mod settings;
pub mod shared;
mod top;
mod trouble;

pub use body::Body;
pub use exchange::Exchange;
pub use local::Local;
pub use pipe::Pipe;
pub use range_support::RangeSupport;
pub use request::Outcome;
pub use request_body::{BodyError, RequestBody};
pub use reseed::Reseed;
pub use session::Session;
pub use settings::Settings;
pub use shared::{Shared, Stores, Vcl};
