//! The interface of every storage engine to the cache, and what engines ask of the index.

use crate::charge::Charge;
use crate::entry::Entry;
use crate::file::FileStatistics;
use crate::fill::Fill;
use crate::object::{Attributes, Object};
use crate::report::Report;
use crate::volume::Facts;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::task::Waker;

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

/// Why an entry did not become a resident object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotLoaded {
    /// The record was evicted or removed meanwhile.
    Gone,
    /// What the device gave is not what was written; the entry is ended.
    Damaged,
    /// The device failed to read.
    Unreadable,
    /// Memory has no room for it, even after evicting what may be evicted. The entry stays.
    Full,
}

/// Told how a load went: with the object as soon as its head and its first bytes are verified; the rest may still come, and
/// the object is being filled then. Called on a thread of the engine's.
pub type Loaded = Box<dyn FnOnce(Result<Arc<Object>, NotLoaded>) + Send>;

/// Whoever keeps the index. Called with no lock of the engine held.
pub trait Evictions: Send + Sync {
    /// `object` was evicted from memory, and is unlinked: it is to be taken out of the index. If it has an entry, that stands
    /// for it from now on. Called from within [`Engine::begin`], [`Fill::room`] or [`Fill::append`].
    fn evicted(&self, object: &Arc<Object>);

    /// What the index wants to know of `object` when it finds its entry after a start, without reading its head. It may
    /// change what the object's entry is found by; at most 64 KiB.
    fn links(&self, _object: &Object) -> Vec<u8> {
        Vec::new()
    }

    /// The head of `object` in a form that outlives the process.
    fn pack_head(&self, object: &Object) -> Vec<u8> {
        object.head().to_vec()
    }

    /// What an entry remembers of a variant: 0 if that is empty, and not 0 otherwise.
    fn variant_hash(&self, variant: &[u8]) -> u32 {
        if variant.is_empty() { 0 } else { crc32c::crc32c(variant).max(1) }
    }

    /// A head as the cache wants it, from what [`Evictions::pack_head`] gave; `None` if it is none.
    fn unpack_head(&self, packed: &[u8]) -> Option<Vec<u8>> {
        Some(packed.to_vec())
    }

    /// The record of `object` stands on a device as `entry`: it is that object's from now on ([`Object::set_entry`]), and
    /// what changed of the object while it was written is set anew there. False if the object is not in the index any more:
    /// the record is removed then.
    fn written(&self, _object: &Arc<Object>, _entry: Entry) -> bool {
        false
    }

    /// Whether `object` can be found. One that is complete before it is shown is so a moment later.
    fn is_linked(&self, _object: &Arc<Object>) -> bool {
        true
    }

    /// Whether the object of `entry` is resident and was used since it came.
    fn is_used(&self, _entry: Entry, _facts: &Facts) -> bool {
        false
    }

    /// What `entry` stood for stands on another device as `new`. False if the index does not know `entry` any more.
    fn moved(&self, _entry: Entry, _new: Entry) -> bool {
        false
    }

    /// `entry` has ended: its region was evicted, or its record is damaged.
    fn entry_ended(&self, _entry: Entry, _facts: &Facts, _links: &[u8]) {}
}

/// What changes of an object that has a record.
pub(crate) trait Keeper: Send + Sync {
    /// `object` is complete.
    fn stored(&self, object: &Arc<Object>);

    /// The times of `entry` are these: origin time, and ttl, grace and keep. Nothing is done if its key does not begin with
    /// `key`: its number may have gone to another record.
    fn set_times(&self, entry: Entry, key: &[u8; 16], origin_time: f64, spans: [f32; 3]);

    /// `entry` was tested against all bans up to `ban`. `key` as above.
    fn set_ban(&self, entry: Entry, key: &[u8; 16], ban: u32);

    /// The object of `entry` leaves memory; it was used so.
    fn note_use(&self, entry: Entry, hits: u32, last_use: u32);

    /// Whether so much waits to be written that fills are to wait for it: that memory cannot be evicted yet. `waker` is called
    /// when some of it was written.
    fn is_behind(&self, waker: &Waker) -> bool;
}

/// Whether a store takes objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Health {
    /// It does.
    #[default]
    Good,
    /// Some of its devices are out of use.
    Degraded,
    /// It takes no more objects, as it is being emptied.
    Draining,
    /// It takes no more objects, and has none left.
    Drained,
    /// It takes no more objects and will not recover; what it has may still be read, or is dropped.
    Failed,
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
    /// Of an engine that keeps bodies in a file: what of the file is given out. `space` is that of the file then.
    pub file: Option<FileStatistics>,
}

/// A place for objects.
pub trait Engine: Send + Sync {
    /// The name given with `-s`.
    fn name(&self) -> &str;

    /// The kind given with `-s` (`malloc`, `file`).
    fn kind(&self) -> &'static str;

    /// Begins to store a response, evicting others to make room. [`Evictions::evicted`] is called from here: the caller
    /// holds no lock that this takes.
    ///
    /// # Errors
    /// [`Full`] if what is in use leaves no room, or it could never fit, or variant or head is longer than allowed.
    fn begin(&self, creation: &Creation<'_>) -> Result<Fill, Full>;

    /// Begins an object with the body of `of`, which is not written anew: all that is left to do is [`Fill::commit`]. For a
    /// stored response that gets a new head. The length in `creation` is of no meaning. `None` where that is not possible, or
    /// not worth it: `of` is in another store, has left the index, or its body is small.
    ///
    /// # Errors
    /// As [`Engine::begin`].
    fn begin_sharing(&self, _creation: &Creation<'_>, _of: &Arc<Object>) -> Result<Option<Fill>, Full> {
        Ok(None)
    }

    /// Counts `bytes` that only pass: they are held, but do not count against the size.
    fn count(&self, bytes: u64) -> Charge;

    /// Counts `bytes` that are kept beside the objects against the size, evicting to make room.
    ///
    /// # Errors
    /// [`Full`] if there is none.
    fn reserve(&self, bytes: u64) -> Result<Charge, Full>;

    /// Begins a response of which only a window is kept: nobody finds it, and who holds it reads along. It needs no room
    /// and evicts nothing.
    ///
    /// # Errors
    /// [`Full`] if variant or head is longer than allowed.
    fn begin_window(&self, creation: &Creation<'_>) -> Result<Fill, Full>;

    /// How many bytes it may keep; `None` if there is no limit.
    fn size(&self) -> Option<u64>;

    /// How many objects one request for room may evict (Varnish's parameter `nuke_limit`, default 50).
    fn set_evict_max(&self, count: u64);

    /// What it has done and holds.
    fn statistics(&self) -> Statistics;

    /// Bytes of memory that it holds: all of [`Statistics::bytes`] but what lies in a file.
    fn memory(&self) -> u64;

    /// From now on it holds so many bytes of memory at most, whatever its size; `u64::MAX` is no limit. It evicts to make room
    /// below that, and is full where that does not do. What it holds already stays: see [`Engine::shrink`].
    fn set_memory_max(&self, bytes: u64);

    /// Evicts objects until `bytes` fewer of memory are held, or nothing is left that may go. How many fewer there are.
    fn shrink(&self, bytes: u64) -> u64;

    /// Whether it takes objects.
    fn health(&self) -> Health {
        Health::Good
    }

    /// The numbers of its devices; empty for an engine that lives in memory alone.
    fn devices(&self) -> std::ops::Range<u32> {
        0..0
    }

    /// What is known of `entry`, one of its devices'; `None` if it has ended.
    fn facts(&self, _entry: Entry) -> Option<Facts> {
        None
    }

    /// Calls `each` with every entry, and what [`Evictions::links`] said of it when it was written.
    fn entries(&self, _each: &mut dyn FnMut(Entry, &Facts, &[u8])) {}

    /// Makes `entry` a resident object, off the caller's thread; `loaded` hears of it once.
    fn load(&self, _entry: Entry, loaded: Loaded) {
        loaded(Err(NotLoaded::Gone));
    }

    /// The head of `entry` as [`Evictions::pack_head`] gave it, read on the caller's thread; `None` if it cannot be had.
    fn read_head(&self, _entry: Entry) -> Option<Vec<u8>> {
        None
    }

    /// Ends `entry`: it is purged, banned, replaced or expired. Durable as a purge is.
    fn remove(&self, _entry: Entry) {}

    /// What [`Evictions::links`] said of `entry` when it was written.
    fn links(&self, _entry: Entry) -> Vec<u8> {
        Vec::new()
    }

    /// Sets new times of an entry whose object is not resident: origin time, and ttl, grace and keep.
    fn set_times(&self, _entry: Entry, _key: &[u8; 16], _origin_time: f64, _spans: [f32; 3]) {}

    /// Notes that an entry was tested against all bans up to `ban`.
    fn set_ban(&self, _entry: Entry, _key: &[u8; 16], _ban: u32) {}

    /// Keeps a ban of that number, time and text; durable soon, and before [`Engine::sync`] returns.
    fn add_ban(&self, _number: u64, _time: f64, _text: &[u8]) {}

    /// The bans that it has kept, oldest first.
    fn bans(&self) -> Vec<(u64, f64, Vec<u8>)> {
        Vec::new()
    }

    /// Ends in order: writes what waits to be written. Nothing is stored or loaded after.
    fn close(&self) {}

    /// Takes the device in that place of [`Engine::devices`] out of use, or into use again: it takes no more objects, and
    /// those on it go to others of the store as long as there are such. False if there is no such device.
    fn drain(&self, _place: usize, _on: bool) -> bool {
        false
    }

    /// Waits until all that was removed or changed is durable, and every ban.
    ///
    /// # Errors
    /// What a device said.
    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    /// Does what need not be done at once, as dropping the objects of a damaged device. Called about every second, from a
    /// thread that serves nobody; [`Evictions::evicted`] is called from here.
    fn tend(&self) {}

    /// What it says of itself to people.
    fn report(&self) -> Report {
        let statistics = self.statistics();
        Report {
            size: self.size(),
            used: statistics.linked,
            objects: statistics.objects,
            entries: None,
            health: self.health(),
            devices: Vec::new(),
        }
    }
}
