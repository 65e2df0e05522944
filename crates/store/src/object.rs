//! One stored response.
//!
//! ```text
//!             first block                            further extents
//! +---------+---------------+------------------+   +-----------------+   +--------+
//! | variant | head          | body ...         |   | ... body ...    |   | ...    |
//! +---------+---------------+------------------+   +-----------------+   +--------+
//! 0         variant_size    body_start         size of the block
//! ```
//!
//! A response whose length is known and moderate lies in the first block whole: two allocations an object. A body that
//! grows beyond it, or whose length is not known, gets extents, kept behind a lock while filling and final when complete,
//! so that reading a stored object takes no lock (`body`).
//!
//! An object of the file engine has all of its body in extents (`file`). One that a 304 confirmed has none of its own: it
//! shares those of another (`shared`).
//!
//! Its life: *filling > stored > gone*, or *filling > failed > gone*. The cache unlinks it (`mark_gone`); memory goes
//! with the last reader.

use crate::body::Rest;
use crate::entry::Entry;
use crate::eviction::uses::{self, Uses};
use crate::eviction::{Item, Position};
use crate::first::First;
use crate::memory::Space;
use base::{Seconds, Time};
use copal_base as base;
use parking_lot::Mutex;
use std::cell::UnsafeCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering, fence};

/// Where an object stands in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    /// Head and attributes are final, the body grows.
    Filling = 0,
    /// The body is complete.
    Stored = 1,
    /// The fill ended early: readers are cut off, and nobody else gets it.
    Failed = 2,
}

/// Properties that do not change, as bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(pub u8);

impl Flags {
    /// A marker without a response: requests pass (`hit-for-pass`).
    pub const HIT_FOR_PASS: u8 = 1;
    /// A marker without a response: requests fetch for themselves (`hit-for-miss`).
    pub const HIT_FOR_MISS: u8 = 2;
    /// The stored body is gzip-coded.
    pub const GZIPPED: u8 = 4;
    /// The head has a validator (ETag or Last-Modified), so the object can be revalidated.
    pub const VALIDATOR: u8 = 8;
    /// The head names surrogate keys, under which the index finds the object.
    pub const TAGGED: u8 = 64;
    /// The body is coded otherwise than the origin sent it.
    pub const RECODED: u8 = 16;
    /// The body, once stored, is known to be what its coding says.
    pub const CHECKED: u8 = 32;
    /// A master of an object in segments, or one of the segments: the cache knows which.
    pub const SPARSE: u8 = 128;

    /// Whether all of `bits` are set.
    pub fn has(self, bits: u8) -> bool {
        self.0 & bits == bits
    }
}

/// A response's attributes, besides its bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Attributes {
    /// The moment from which the lifetime counts.
    pub origin_time: Time,
    /// Freshness lifetime.
    pub ttl: Seconds,
    /// How long after that it may be served while a new one is fetched.
    pub grace: Seconds,
    /// How long after that it may be revalidated.
    pub keep: Seconds,
    /// HTTP status.
    pub status: u16,
    /// See [`Flags`].
    pub flags: Flags,
    /// The newest ban it has been tested against.
    pub ban: u64,
    /// The transaction that fetched it.
    pub vxid: u32,
}

/// A mark: taken out of the index.
const GONE: u8 = 1;
/// A mark: a newer object may answer the same requests in its stead.
const SUPERSEDED: u8 = 4;
/// A mark: other objects share its body, or have ([`crate::shared`]).
pub(crate) const LENT: u8 = 2;
/// A mark that never changes: its body lies in a file, as far as it is not in the window of one that outgrew the store.
const IN_FILE: u8 = 8;

/// Not on any device.
const NO_ENTRY: u32 = u32::MAX;

const _: () =
    assert!((GONE | LENT | SUPERSEDED | IN_FILE) & uses::BITS == 0, "marks share a byte with the uses");

/// A stored response. See the module.
///
/// With the two counts of its `Arc` it fills 128 bytes, a size that allocators have; see the test below.
#[derive(Debug)]
pub struct Object {
    key: [u8; 32],
    origin_time: AtomicU64,
    /// Body bytes that are final: the fill mark. Written by the one writer.
    pub(crate) filled: AtomicU64,
    pub(crate) space: Arc<Space>,
    pub(crate) first: First,
    /// See [`crate::body`] for who may touch it.
    pub(crate) rest: UnsafeCell<Option<Box<Rest>>>,
    ttl: AtomicU32,
    grace: AtomicU32,
    keep: AtomicU32,
    last_use: AtomicU32,
    hits: AtomicU32,
    /// The newest ban it was tested against. Bans are numbered from 1; 2^32 of them are more than a list holds in a life.
    ban: AtomicU32,
    /// The entry of its record on a device, or [`NO_ENTRY`]; written under `lock`.
    entry: AtomicU32,
    /// Its position in the eviction order.
    position: Position,
    vxid: u32,
    flags: Flags,
    /// A [`State`], the bit for a window, and that for damage.
    pub(crate) state: AtomicU8,
    /// [`GONE`], [`LENT`], [`SUPERSEDED`], [`IN_FILE`], and the [`uses`] since the eviction order last looked.
    pub(crate) marks: AtomicU8,
    /// Guards `rest`.
    pub(crate) lock: Mutex<()>,
}

impl Object {
    pub(crate) fn new(
        key: [u8; 32],
        attributes: &Attributes,
        length: Option<u64>,
        first: First,
        space: Arc<Space>,
    ) -> Self {
        let rest = Rest { length, ..Rest::default() };
        let marks = if space.file.is_some() { IN_FILE } else { 0 };
        Self {
            key,
            origin_time: AtomicU64::new(attributes.origin_time.to_bits()),
            filled: AtomicU64::new(0),
            space,
            first,
            rest: UnsafeCell::new(Some(Box::new(rest))),
            ttl: pack(attributes.ttl),
            grace: pack(attributes.grace),
            keep: pack(attributes.keep),
            last_use: AtomicU32::new(0),
            hits: AtomicU32::new(0),
            ban: AtomicU32::new(narrow(attributes.ban)),
            entry: AtomicU32::new(NO_ENTRY),
            position: Position::default(),
            vxid: attributes.vxid,
            flags: attributes.flags,
            state: AtomicU8::new(State::Filling as u8),
            marks: AtomicU8::new(marks),
            lock: Mutex::new(()),
        }
    }

    /// The name of the engine that holds it.
    pub fn engine(&self) -> &str {
        &self.space.name
    }

    /// The digest it is stored under.
    #[inline]
    pub fn key(&self) -> &[u8; 32] {
        &self.key
    }

    /// HTTP status.
    pub fn status(&self) -> u16 {
        self.first.status()
    }

    /// Its flags.
    pub fn flags(&self) -> Flags {
        self.flags
    }

    /// The transaction that fetched it.
    pub fn vxid(&self) -> u32 {
        self.vxid
    }

    /// Where its lifetime counts from.
    pub fn origin_time(&self) -> Time {
        f64::from_bits(self.origin_time.load(Ordering::Acquire))
    }

    /// Freshness lifetime in seconds.
    pub fn ttl(&self) -> Seconds {
        unpack(&self.ttl)
    }

    /// Grace in seconds.
    pub fn grace(&self) -> Seconds {
        unpack(&self.grace)
    }

    /// Keep in seconds.
    pub fn keep(&self) -> Seconds {
        unpack(&self.keep)
    }

    /// Sets new times (a soft purge, a 304 that leaves the rest as it is). Whoever sees the new origin time sees the new
    /// spans, too; one who reads meanwhile may see new spans counted from the old origin, but never the old ones from the
    /// new.
    pub fn set_times(&self, origin_time: Time, ttl: Seconds, grace: Seconds, keep: Seconds) {
        self.ttl.store((ttl as f32).to_bits(), Ordering::Relaxed);
        self.grace.store((grace as f32).to_bits(), Ordering::Relaxed);
        self.keep.store((keep as f32).to_bits(), Ordering::Relaxed);
        self.origin_time.store(origin_time.to_bits(), Ordering::Release);
        // Either this sees the entry, or who sets that sees these times.
        fence(Ordering::SeqCst);
        if let (Some(entry), Some(keeper)) = (self.entry(), self.space.keeper()) {
            keeper.set_times(entry, self.key_half(), origin_time, [ttl as f32, grace as f32, keep as f32]);
        }
    }

    /// The first half of its key, which an entry on a device has.
    pub fn key_half(&self) -> &[u8; 16] {
        self.key.first_chunk().expect("a key has 32 bytes")
    }

    /// The entry of its record, if it was written to a device.
    pub fn entry(&self) -> Option<Entry> {
        Entry::from_bits(self.entry.load(Ordering::Acquire))
    }

    /// Its record was written as `entry`. False if it was taken out of the index meanwhile: the record is of no use then.
    pub fn set_entry(&self, entry: Entry) -> bool {
        let _guard = self.lock.lock();
        let lives = !self.is_gone();
        if lives {
            self.entry.store(entry.bits(), Ordering::Release);
            fence(Ordering::SeqCst);
        }
        lives
    }

    /// Forgets its entry and returns it; `None` if that was done before.
    pub fn take_entry(&self) -> Option<Entry> {
        let _guard = self.lock.lock();
        Entry::from_bits(self.entry.swap(NO_ENTRY, Ordering::AcqRel))
    }

    /// The moment after which nothing of it is of use.
    pub fn end_of_life(&self) -> Time {
        self.origin_time() + self.ttl().max(0.0) + self.grace() + self.keep()
    }

    /// The newest ban it was tested against.
    pub fn ban(&self) -> u64 {
        u64::from(self.ban.load(Ordering::Relaxed))
    }

    /// Notes that it survived all bans up to `sequence`, and tells what was noted before.
    pub fn set_ban(&self, sequence: u64) -> u64 {
        let before = self.ban.fetch_max(narrow(sequence), Ordering::Relaxed);
        if let (Some(entry), Some(keeper)) = (self.entry(), self.space.keeper()) {
            keeper.set_ban(entry, self.key_half(), narrow(sequence));
        }
        u64::from(before)
    }

    /// Counted deliveries from cache (`obj.hits`).
    pub fn hits(&self) -> u32 {
        self.hits.load(Ordering::Relaxed)
    }

    /// Sets the count of deliveries and the second of the last use to what a device remembers.
    pub(crate) fn restore_use(&self, hits: u32, last_use: u32) {
        self.hits.store(hits, Ordering::Relaxed);
        self.last_use.store(last_use, Ordering::Relaxed);
    }

    /// Counts one delivery from cache and returns the new count.
    pub fn count_hit(&self) -> u32 {
        self.hits.fetch_add(1, Ordering::Relaxed).wrapping_add(1)
    }

    /// The second of the last use, as told to [`Object::note_use`].
    pub fn last_use(&self) -> u32 {
        self.last_use.load(Ordering::Relaxed)
    }

    /// Notes a use at `second`, unless the last noted one is less than `interval` seconds ago: eviction passes an object
    /// over for it. Writes nothing but the object itself.
    #[inline]
    pub fn note_use(&self, second: u32, interval: u32) {
        let last = self.last_use.load(Ordering::Relaxed);
        if second.wrapping_sub(last) < interval.max(1) {
            return;
        }
        self.last_use.store(second, Ordering::Relaxed);
        self.uses().note();
    }

    /// Notes that a newer object under the same key may answer the same requests.
    pub fn mark_superseded(&self) {
        self.marks.fetch_or(SUPERSEDED, Ordering::Release);
    }

    /// Whether a newer object may answer the same requests: only a look at all variants of the key tells.
    #[inline]
    pub fn may_be_superseded(&self) -> bool {
        self.marks.load(Ordering::Acquire) & SUPERSEDED != 0
    }

    /// Whether its body lies in a file: only a [`crate::Cursor`] can read it.
    #[inline]
    pub fn is_in_file(&self) -> bool {
        self.marks.load(Ordering::Relaxed) & IN_FILE != 0
    }

    /// Marks it as taken out of the index; false if it was before.
    pub(crate) fn mark_gone(&self) -> bool {
        self.marks.fetch_or(GONE, Ordering::AcqRel) & GONE == 0
    }

    /// The key of its variant among others under the same key; empty if there is only one.
    #[inline]
    pub fn variant(&self) -> &[u8] {
        self.first.variant()
    }

    /// The head's bytes as given to the engine.
    #[inline]
    pub fn head(&self) -> &[u8] {
        self.first.head()
    }

    /// Whether it was taken out of the index.
    #[inline]
    pub fn is_gone(&self) -> bool {
        self.marks.load(Ordering::Acquire) & GONE != 0
    }
}

/// A ban's number as an object keeps it.
fn narrow(sequence: u64) -> u32 {
    u32::try_from(sequence).unwrap_or(u32::MAX)
}

impl Item for Object {
    /// Variants under one key count as one name.
    fn digest(&self) -> u64 {
        let [a, b, c, d, e, f, g, h, ..] = self.key;
        u64::from_le_bytes([a, b, c, d, e, f, g, h])
    }

    fn position(&self) -> &Position {
        &self.position
    }

    fn uses(&self) -> Uses<'_> {
        Uses::new(&self.marks)
    }
}

fn pack(seconds: Seconds) -> AtomicU32 {
    AtomicU32::new((seconds as f32).to_bits())
}

fn unpack(bits: &AtomicU32) -> Seconds {
    f64::from(f32::from_bits(bits.load(Ordering::Relaxed)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the manual states an object costs beside its payload; see `docs/memory.md`. `Arc` adds 16.
    #[test]
    fn an_object_stays_small() {
        assert!(size_of::<Object>() <= 112, "{}", size_of::<Object>());
    }

    #[test]
    fn objects_go_between_threads() {
        fn check<T: Send + Sync>() {}
        check::<Object>();
        check::<crate::Fill>();
        check::<crate::Cursor>();
        check::<crate::Memory>();
        check::<crate::File>();
    }
}
