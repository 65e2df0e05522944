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
//! grows beyond it gets extents, kept behind a lock while filling and sealed when complete, so that reading a stored
//! object takes no lock.
//!
//! Its life: *filling > stored > gone*, or *filling > failed > gone*. The cache unlinks it (`mark_gone`); memory goes
//! with the last reader.
#![allow(unsafe_code)]

use crate::block::Block;
use crate::memory::Space;
use base::{Seconds, Time};
use copal_base as base;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Waker;

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
    /// The response may be stored only by decision of VCL, and was (`obj.uncacheable` is false otherwise).
    pub const UNCACHEABLE: u8 = 16;
    /// The body's total length is known, also while it is filling.
    pub const LENGTH_KNOWN: u8 = 32;

    /// Whether all of `bits` are set.
    pub fn has(self, bits: u8) -> bool {
        self.0 & bits == bits
    }
}

/// What is known of a response besides its bytes.
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

/// Not in any list.
pub(crate) const NO_SLOT: u32 = u32::MAX;

/// A stored response. See the module.
#[derive(Debug)]
pub struct Object {
    key: [u8; 32],
    origin_time: AtomicU64,
    ban: AtomicU64,
    /// Body bytes that are final: the fill mark.
    filled: AtomicU64,
    /// The body's length if known beforehand, else `u64::MAX` until stored.
    length: AtomicU64,
    space: Arc<Space>,
    first: Block,
    rest: OnceLock<Box<Vec<Extent>>>,
    filling: Mutex<Option<Box<Filling>>>,
    ttl: AtomicU32,
    grace: AtomicU32,
    keep: AtomicU32,
    last_use: AtomicU32,
    hits: AtomicU32,
    pub(crate) lru_slot: AtomicU32,
    vxid: u32,
    variant_size: u32,
    body_start: u32,
    status: u16,
    flags: Flags,
    state: AtomicU8,
    gone: AtomicU8,
}

/// A further piece of a body.
#[derive(Debug, Clone)]
pub(crate) struct Extent {
    /// Offset in the body of its first byte.
    pub(crate) offset: u64,
    pub(crate) block: Arc<Block>,
}

/// What only a growing object needs.
#[derive(Debug, Default)]
pub(crate) struct Filling {
    pub(crate) extents: std::collections::VecDeque<Extent>,
    pub(crate) wakers: Vec<Waker>,
    /// Positions of the readers, by ticket; `None` is a free ticket.
    pub(crate) readers: Vec<Option<u64>>,
    /// The fill waits here for readers to move on, if it keeps only a window of the body.
    pub(crate) writer: Option<Waker>,
    /// Set when the object outgrew the store: only a window is kept, nobody new may begin reading.
    pub(crate) windowed: bool,
}

impl Object {
    pub(crate) fn new(
        key: [u8; 32],
        attributes: &Attributes,
        variant: &[u8],
        head: &[u8],
        length: Option<u64>,
        first: Block,
        space: Arc<Space>,
    ) -> Self {
        let body_start = variant.len() + head.len();
        // SAFETY: the block is new, nobody reads it; this is the one writer.
        let room = unsafe { first.room(0) };
        room[..variant.len()].copy_from_slice(variant);
        room[variant.len()..body_start].copy_from_slice(head);
        let known = if length.is_some() { Flags::LENGTH_KNOWN } else { 0 };
        Self {
            key,
            origin_time: AtomicU64::new(attributes.origin_time.to_bits()),
            ban: AtomicU64::new(attributes.ban),
            filled: AtomicU64::new(0),
            length: AtomicU64::new(length.unwrap_or(u64::MAX)),
            space,
            first,
            rest: OnceLock::new(),
            filling: Mutex::new(Some(Box::default())),
            ttl: pack(attributes.ttl),
            grace: pack(attributes.grace),
            keep: pack(attributes.keep),
            last_use: AtomicU32::new(0),
            hits: AtomicU32::new(0),
            lru_slot: AtomicU32::new(NO_SLOT),
            vxid: attributes.vxid,
            variant_size: variant.len() as u32,
            body_start: body_start as u32,
            status: attributes.status,
            flags: Flags(attributes.flags.0 | known),
            state: AtomicU8::new(State::Filling as u8),
            gone: AtomicU8::new(0),
        }
    }

    /// The digest it is stored under.
    pub fn key(&self) -> &[u8; 32] {
        &self.key
    }

    /// HTTP status.
    pub fn status(&self) -> u16 {
        self.status
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
        f64::from_bits(self.origin_time.load(Ordering::Relaxed))
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

    /// Sets new times (a soft purge, a VCL that shortens the life of what it has).
    pub fn set_times(&self, origin_time: Time, ttl: Seconds, grace: Seconds, keep: Seconds) {
        self.origin_time.store(origin_time.to_bits(), Ordering::Relaxed);
        self.ttl.store((ttl as f32).to_bits(), Ordering::Relaxed);
        self.grace.store((grace as f32).to_bits(), Ordering::Relaxed);
        self.keep.store((keep as f32).to_bits(), Ordering::Relaxed);
    }

    /// The moment after which nothing of it is of use.
    pub fn end_of_life(&self) -> Time {
        self.origin_time() + self.ttl().max(0.0) + self.grace() + self.keep()
    }

    /// The newest ban it was tested against.
    pub fn ban(&self) -> u64 {
        self.ban.load(Ordering::Relaxed)
    }

    /// Notes that it survived all bans up to `sequence`.
    pub fn set_ban(&self, sequence: u64) {
        self.ban.fetch_max(sequence, Ordering::Relaxed);
    }

    /// Counted deliveries from cache (`obj.hits`).
    pub fn hits(&self) -> u32 {
        self.hits.load(Ordering::Relaxed)
    }

    /// Counts one delivery from cache and returns the new count.
    pub fn count_hit(&self) -> u32 {
        self.hits.fetch_add(1, Ordering::Relaxed).wrapping_add(1)
    }

    /// The second of the last use, as told to [`Object::note_use`].
    pub fn last_use(&self) -> u32 {
        self.last_use.load(Ordering::Relaxed)
    }

    /// Notes a use at `second`; true if the last noted one is at least `interval` seconds ago, so that the caller tells
    /// the engine only then.
    pub fn note_use(&self, second: u32, interval: u32) -> bool {
        let last = self.last_use.load(Ordering::Relaxed);
        if second.wrapping_sub(last) < interval.max(1) {
            return false;
        }
        self.last_use.store(second, Ordering::Relaxed);
        true
    }

    /// What tells its variant from others under the same key; empty if there is only one.
    pub fn variant(&self) -> &[u8] {
        // SAFETY: variant and head are written in `new`, before anybody else sees the object.
        unsafe { self.first.read(0, self.variant_size as usize) }
    }

    /// The head's bytes as given to the engine.
    pub fn head(&self) -> &[u8] {
        // SAFETY: as for `variant`.
        unsafe { self.first.read(self.variant_size as usize, self.body_start as usize) }
    }

    /// Where it stands.
    pub fn state(&self) -> State {
        match self.state.load(Ordering::Acquire) {
            0 => State::Filling,
            1 => State::Stored,
            _ => State::Failed,
        }
    }

    /// Whether it was taken out of the index.
    #[inline]
    pub fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire) != 0
    }

    /// Ends its life as far as new requests are concerned: it counts no longer as stored, and leaves the eviction order.
    /// True for the first who does. The caller takes it out of the index.
    pub fn unlink(&self) -> bool {
        {
            let filling = self.filling.lock();
            if self.gone.swap(1, Ordering::AcqRel) != 0 {
                return false;
            }
            // Under the lock, so that no extent is added between the sum and the mark.
            self.space.unlinked(self.size_with(filling.as_deref()));
        }
        self.space.leave_order(self);
        true
    }

    /// The body's length: known from the start, or once stored.
    pub fn length(&self) -> Option<u64> {
        let length = self.length.load(Ordering::Acquire);
        (length != u64::MAX).then_some(length)
    }

    /// Body bytes that can be read now.
    #[inline]
    pub fn filled(&self) -> u64 {
        self.filled.load(Ordering::Acquire)
    }

    /// Bytes of payload memory it holds, head included.
    pub fn memory_size(&self) -> u64 {
        self.size_with(self.filling.lock().as_deref())
    }

    fn size_with(&self, filling: Option<&Filling>) -> u64 {
        let sum = |extents: &mut dyn Iterator<Item = &Extent>| extents.map(|extent| extent.block.size()).sum::<usize>();
        let further = self.rest.get().map_or(0, |rest| sum(&mut rest.iter()))
            + filling.map_or(0, |filling| sum(&mut filling.extents.iter()));
        (self.first.size() + further) as u64
    }

    /// How many body bytes the first block can hold.
    pub(crate) fn first_capacity(&self) -> u64 {
        (self.first.size() - self.body_start as usize) as u64
    }

    /// Room in the first block after `filled` body bytes.
    ///
    /// # Safety
    /// The caller is the one writer and `filled` is the current mark.
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn first_room(&self, filled: u64) -> &mut [u8] {
        // SAFETY: passed on to the caller.
        unsafe { self.first.room(self.body_start as usize + filled as usize) }
    }

    /// Body bytes `from..to` of the first block; `to` must not exceed the mark that the caller loaded.
    pub(crate) fn first_bytes(&self, from: u64, to: u64) -> &[u8] {
        debug_assert!(to <= self.filled());
        // SAFETY: callers pass a `to` that they took from `filled()`, an Acquire load.
        unsafe { self.first.read(self.body_start as usize + from as usize, self.body_start as usize + to as usize) }
    }

    pub(crate) fn sealed(&self) -> Option<&Vec<Extent>> {
        self.rest.get().map(|rest| &**rest)
    }

    pub(crate) fn filling(&self) -> parking_lot::MutexGuard<'_, Option<Box<Filling>>> {
        self.filling.lock()
    }

    /// Publishes `bytes` more of the body and wakes readers.
    pub(crate) fn publish(&self, bytes: u64) {
        self.filled.fetch_add(bytes, Ordering::Release);
        let wakers = match self.filling.lock().as_mut() {
            Some(filling) if !filling.wakers.is_empty() => std::mem::take(&mut filling.wakers),
            _ => return,
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Ends the fill: seals the extents, or leaves them to the readers that still hold the object.
    pub(crate) fn finish(&self, state: State) {
        debug_assert_ne!(state, State::Filling);
        let filling = {
            let mut slot = self.filling.lock();
            let mut filling = slot.take();
            if let Some(filling) = filling.as_mut() {
                if !filling.windowed && !filling.extents.is_empty() {
                    let mut extents: Vec<Extent> = std::mem::take(&mut filling.extents).into();
                    extents.shrink_to_fit();
                    let fresh = self.rest.set(Box::new(extents)).is_ok();
                    debug_assert!(fresh, "a body is sealed once");
                } else if filling.windowed {
                    // The tail of a windowed body stays where its readers look for it.
                    let mut kept = Box::<Filling>::default();
                    kept.extents = std::mem::take(&mut filling.extents);
                    kept.readers = std::mem::take(&mut filling.readers);
                    kept.windowed = true;
                    *slot = Some(kept);
                }
            }
            if state == State::Stored {
                self.length.store(self.filled(), Ordering::Release);
            }
            self.state.store(state as u8, Ordering::Release);
            filling
        };
        if let Some(filling) = filling {
            filling.wakers.into_iter().for_each(Waker::wake);
        }
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        self.space.give_back(self.memory_size(), self.is_gone());
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
    /// What the manual states an object costs beside its payload; see `docs/memory.md`.
    #[test]
    fn an_object_stays_small() {
        assert!(std::mem::size_of::<super::Object>() <= 176, "{}", std::mem::size_of::<super::Object>());
    }
}
