//! What every storage engine offers to the cache.

use crate::fill::Fill;
use crate::hold::Hold;
use crate::object::{Attributes, Object};
use std::fmt;
use std::sync::Arc;

/// A response about to be stored.
#[derive(Debug)]
pub struct Creation<'request> {
    /// The digest to store it under.
    pub key: [u8; 32],
    /// Its attributes.
    pub attributes: Attributes,
    /// What tells the variant from others; empty if there is only one. At most 65,535 bytes.
    pub variant: &'request [u8],
    /// The head, in whatever form the cache wants it back. At most 16 MiB.
    pub head: &'request [u8],
    /// The body's length, if it is known.
    pub length: Option<u64>,
}

/// There is no room, even after evicting what may be evicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full;

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no room in the store")
    }
}

impl std::error::Error for Full {}

/// Whoever keeps the index: told of each object that was evicted. Called with no lock of the engine held, from within
/// [`Engine::begin`], [`Fill::room`] or [`Fill::append`]; the object is unlinked already.
pub trait Evictions: Send + Sync {
    /// Takes `object` out of the index.
    fn evicted(&self, object: &Arc<Object>);
}

/// What an engine has done and holds, with the meaning of Varnish's `SMA` counters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Requests for memory.
    pub requests: u64,
    /// Requests that found no room.
    pub failures: u64,
    /// Bytes given out since the start.
    pub bytes_total: u64,
    /// Bytes taken back since the start.
    pub bytes_freed: u64,
    /// Objects held, also those that only a reader still holds.
    pub objects: u64,
    /// Bytes held.
    pub bytes: u64,
    /// Bytes of these that count against the size: of objects that are stored or being filled, not of those that were
    /// unlinked and only a reader still holds.
    pub linked: u64,
    /// Bytes left of the size; 0 for an unlimited engine.
    pub space: u64,
    /// Objects evicted to make room.
    pub evicted: u64,
    /// How often eviction passed an object over because it had been or was being used.
    pub moved: u64,
}

/// A place for objects.
pub trait Engine: Send + Sync {
    /// The name given with `-s`.
    fn name(&self) -> &str;

    /// The kind given with `-s` (`malloc`).
    fn kind(&self) -> &'static str;

    /// Begins to store a response, evicting others to make room. [`Evictions::evicted`] is called from here: the caller
    /// holds no lock that this takes.
    ///
    /// # Errors
    /// [`Full`] if what is in use leaves no room, or it could never fit, or variant or head is longer than allowed.
    fn begin(&self, creation: &Creation<'_>) -> Result<Fill, Full>;

    /// Counts `bytes` that only pass: they are held, but do not count against the size.
    fn count(&self, bytes: u64) -> Hold;

    /// Counts `bytes` that are kept beside the objects against the size, evicting to make room.
    ///
    /// # Errors
    /// [`Full`] if there is none.
    fn reserve(&self, bytes: u64) -> Result<Hold, Full>;

    /// Begins a response of which only a window is kept: nobody finds it, and who holds it reads along. It needs no room
    /// and evicts nothing.
    ///
    /// # Errors
    /// [`Full`] if variant or head is longer than allowed.
    fn begin_window(&self, creation: &Creation<'_>) -> Result<Fill, Full>;

    /// How many bytes it may keep; `None` if there is no limit.
    fn size(&self) -> Option<u64>;

    /// What it has done and holds.
    fn statistics(&self) -> Statistics;
}
