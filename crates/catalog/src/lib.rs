//! Which objects there are, and which of them answers a request.
//!
//! ```text
//! index   key > objects and markers, running fetches, requests that wait for them
//! ban     conditions by which an operator ends objects: tested at lookup, and by the lurker
//! sweep   the walk that takes out what is at the end of its life
//! sparse  objects in segments: which segments belong to which master
//! ```
//! Where an object's bytes lie is the store's business, how a request or a fetch goes on is the cache's: this crate knows
//! neither origins nor connections, and reads no clock.

pub mod ban;
pub mod head;
pub mod index;
pub mod marker;
pub mod reason;
pub mod sparse;
pub mod sweep;
