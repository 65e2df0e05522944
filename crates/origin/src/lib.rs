//! Origin servers: what a VCL `backend` becomes, its health, its connections and what comes over them.
//!
//! ```text
//!  Backend (shared by threads) > connect > Connection (one exchange) > write_head, write_body > read_head > read_body
//!     | probe: health                ^                                                          |
//!                                    '----------------- Pools (one a thread) <--- release ------'
//! ```
//! A body's end is only ever reported when it was really seen: a short or malformed one is an [`Error`]. Bytes beyond a
//! response's end never reach the next one, since such a connection is closed.
//!
//! Directors are not here; they choose among backends and live with the VMODs. The one exception is a [`Group`], whose
//! backends come and go with the addresses of a name.

pub mod backend;
pub mod connection;
mod dial;
mod endpoints;
pub mod error;
pub mod group;
pub mod health;
pub mod maker;
pub mod pool;
pub mod probe;
pub mod settings;
#[cfg(test)]
mod tests;

pub use backend::{Backend, Counters, MakeError, leaf};
pub use connection::{Connection, Next, Sent, Traffic};
pub use dial::{Reuse, Want};
pub use endpoints::ResolveError;
pub use error::{Blame, Error, Retry};
pub use group::Group;
pub use health::Admin;
pub use maker::Maker;
pub use pool::{Pools, Shelves};
pub use settings::{Settings, Timeouts};
