//! Where objects are kept: extents of memory or of a file, the budget they count against, and which of them go when it is spent.
//!
//! The interface is about objects, not bytes: [`Engine::begin`] gives a [`Fill`] that appends and then commits or aborts;
//! a [`Cursor`] reads a range of an object, also while it is being filled. Knows no HTTP: a head is a block of bytes.

mod block;
mod body;
pub mod charge;
pub mod cursor;
pub mod device;
pub mod engine;
pub mod entry;
pub mod eviction;
pub mod file;
pub mod fill;
mod first;
mod mapped;
pub mod memory;
pub mod object;
pub mod persistent;
mod pool;
pub mod report;
mod shared;
pub mod volume;

pub use charge::Charge;
pub use cursor::Cursor;
pub use engine::{Creation, Engine, Evictions, Full, Health, Loaded, NotLoaded, Statistics};
pub use entry::Entry;
pub use eviction::Policy;
pub use file::{File, FileOptions};
pub use fill::Fill;
pub use memory::Memory;
pub use object::{Attributes, Flags, Object, State};
pub use persistent::Persistent;
pub use pool::{Pooled, pooled, return_idle};
pub use report::{DeviceReport, Report};
pub use volume::Facts;
