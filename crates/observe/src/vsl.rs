//! The log: a ring of records in shared memory, in the layout of Varnish 7.1 (`VSLHEAD1`, 30-bit transaction numbers).
//!
//! | offset | size | meaning |
//! |---|---|---|
//! | 0 | 8 | `VSLHEAD1`, written last |
//! | 8 | 8 | words in a part; the ring has 8 parts |
//! | 16 | 4 | number of the part being written, counting on for ever (mod 2^32) |
//! | 20 | 4 | padding |
//! | 24 | 8 x 8 | for each part the word where its first record begins, or -1 |
//! | 88 | ... | the ring, 32-bit words in the machine's byte order |
//!
//! A record is `tag << 24 | length`, `marker << 30 | number`, then `length` bytes padded to a word; all but binary records
//! count a NUL at their end. A batch is the record `Batch` with length 0, whose second word is the length of the records
//! that follow and belong to it, all of one transaction. The word after the newest record is the end marker; where a record would
//! not fit before the end of the ring stands the wrap marker.
//!
//! Writers: [`Ring::reserve`] moves the write position under a spin lock held for a few stores, the last of them the new
//! end marker. So the first word of a reserved range reads as the end marker until the writer, who has filled the rest by
//! then, replaces it with Release. A reader stops there and resumes in order.
//!
//! A writer that loses its processor while it fills its range leaves its [`Berth`] taken. Others do not enter the part of
//! the ring in which that lies, on their next lap, until it is free: they wait some turns, and then rather lose records.

use crate::mask::{LiveMask, Mask};
use crate::tags::Tag;
use crate::vsm::{Directory, Segment};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Parts of the ring, by which a reader tells whether it was lapped.
pub const PARTS: u32 = 8;
/// Bytes before the ring.
pub const HEAD_BYTES: usize = 88;
/// What the first eight bytes say.
pub const MAGIC: &[u8; 8] = b"VSLHEAD1";
/// The word after the newest record.
pub const END: u32 = 0xfe45_4545;
/// The word where the ring is continued at its beginning.
pub const WRAP: u32 = 0xfe57_5757;
/// The number of the record that opens a batch.
pub const BATCH: u8 = 255;
/// The bits of a transaction's number.
pub const NUMBER_MASK: u32 = (1 << 30) - 1;
/// Set in the second word: of a client's session or request.
pub const CLIENT: u32 = 1 << 30;
/// Set in the second word: of a backend request.
pub const BACKEND: u32 = 1 << 31;
/// The bits of a record's length in its first word.
pub const LENGTH_MASK: u32 = 0xffff;
/// Bytes of a record before its content.
pub const RECORD_HEAD: usize = 8;

/// In 64-bit words.
pub(crate) const PART_WORDS_AT: usize = 1;
/// In 32-bit words.
pub(crate) const PART_AT: usize = 16 / 4;
/// In 64-bit words.
pub(crate) const OFFSETS_AT: usize = 24 / 8;
/// In 32-bit words.
pub(crate) const RING_AT: usize = HEAD_BYTES / 4;
const _: () = assert!(24 + PARTS as usize * 8 == HEAD_BYTES);

/// The least size of the log, which bounds what a batch may have.
pub const SPACE_MIN: usize = 1 << 20;
/// The largest size of the log.
pub const SPACE_MAX: usize = 4 << 30;
/// The most bytes of records in one batch: half a part of the smallest log.
pub const BATCH_BYTES_MAX: usize = SPACE_MIN / PARTS as usize / 2;
/// The longest content of a record, its NUL included.
pub const RECORD_BYTES_MAX: usize = 16_372;
const _: () = assert!(BATCH_BYTES_MAX + RECORD_BYTES_MAX + 64 < SPACE_MIN / PARTS as usize - HEAD_BYTES);

/// How often a writer gives its processor away to one that stands in its way.
const TURNS_MAX: u32 = 1000;

/// Settings of the log; the names are those of the parameters.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// `vsl_space`: bytes of shared memory, from 1 MiB to 4 GiB; what is outside is moved to the nearer bound.
    pub space: usize,
    /// `vsl_reclen`: the longest record in bytes, its NUL included, 16 to 16,372.
    pub record_bytes: usize,
    /// `vsl_buffer`: bytes of a transaction kept before they are written early; at most 64 KiB are used.
    pub buffer_bytes: usize,
    /// `vsl_mask`.
    pub mask: Mask,
    /// `debug=+syncvsl`: each record is written at once.
    pub sync: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            space: 80 << 20,
            record_bytes: 255,
            buffer_bytes: 16 << 10,
            mask: Mask::default(),
            sync: false,
        }
    }
}

/// What is shared by all writers. The lock and what it guards share a cache line; the settings stand on another.
#[derive(Debug)]
pub(crate) struct Ring {
    segment: Segment,
    part_words: u32,
    end: u32,
    pub(crate) mask: LiveMask,
    record_bytes: AtomicUsize,
    buffer_bytes: AtomicUsize,
    sync: AtomicBool,
    berths: Mutex<Vec<Arc<Berth>>>,
    guarded: Guarded,
}

/// Where a writer fills the ring: one more than the word at which its range begins; 0 while it does not.
#[derive(Debug, Default)]
pub(crate) struct Berth(AtomicU32);

/// Only touched under `locked`, but for the counts, which anyone may read.
#[repr(align(64))]
#[derive(Debug, Default)]
struct Guarded {
    locked: AtomicBool,
    at: AtomicU32,
    part: AtomicU32,
    part_end: AtomicU32,
    records: AtomicU64,
    writes: AtomicU64,
    flushes: AtomicU64,
    contended: AtomicU64,
    cycles: AtomicU64,
    lost: AtomicU64,
    /// Records were lost to a writer that stands in the way; it is not waited for again.
    blocked: AtomicBool,
}

/// What the log has counted since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Records.
    pub records: u64,
    /// Batches and single records.
    pub writes: u64,
    /// Batches written early because a buffer was full.
    pub flushes: u64,
    /// Times a writer met another.
    pub contended: u64,
    /// Times the ring began anew.
    pub cycles: u64,
    /// Batches given up because a writer stood still where they were to go while others went round the whole ring.
    pub lost: u64,
}

fn add(counter: &AtomicU64, amount: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
}

/// Words of a content of `bytes` bytes.
#[inline]
pub(crate) const fn words(bytes: usize) -> usize {
    bytes.div_ceil(4)
}

impl Ring {
    pub(crate) fn create(directory: &Arc<Directory>, settings: &Settings) -> io::Result<Ring> {
        let space = settings.space.clamp(SPACE_MIN, SPACE_MAX);
        let part_words = ((space - HEAD_BYTES) / 4 / PARTS as usize) as u32;
        // Varnish begins one lap before zero, and its readers are tried with that.
        let part = 0u32.wrapping_sub(PARTS);
        let segment = directory.add("Log", "Log", space, |mapping| {
            let long = mapping.long_words();
            long[PART_WORDS_AT].store(u64::from(part_words), Ordering::Relaxed);
            for offset in &long[OFFSETS_AT + 1..OFFSETS_AT + PARTS as usize] {
                offset.store(u64::MAX, Ordering::Relaxed);
            }
            mapping.words()[PART_AT].store(part, Ordering::Relaxed);
            mapping.words()[RING_AT].store(END, Ordering::Relaxed);
            long[0].store(u64::from_ne_bytes(*MAGIC), Ordering::Release);
        })?;
        let ring = Ring {
            segment,
            part_words,
            end: part_words * PARTS,
            mask: LiveMask::new(settings.mask),
            record_bytes: AtomicUsize::new(0),
            buffer_bytes: AtomicUsize::new(0),
            sync: AtomicBool::new(settings.sync),
            berths: Mutex::default(),
            guarded: Guarded { part: part.into(), part_end: part_words.into(), ..Guarded::default() },
        };
        ring.set_record_bytes(settings.record_bytes);
        ring.set_buffer_bytes(settings.buffer_bytes);
        Ok(ring)
    }

    pub(crate) fn record_bytes(&self) -> usize {
        self.record_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn set_record_bytes(&self, bytes: usize) {
        self.record_bytes.store(bytes.clamp(16, RECORD_BYTES_MAX), Ordering::Relaxed);
    }

    pub(crate) fn is_sync(&self) -> bool {
        self.sync.load(Ordering::Relaxed)
    }

    pub(crate) fn set_sync(&self, sync: bool) {
        self.sync.store(sync, Ordering::Relaxed);
    }

    pub(crate) fn buffer_bytes(&self) -> usize {
        self.buffer_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn set_buffer_bytes(&self, bytes: usize) {
        // One record of any length must fit.
        let least = RECORD_BYTES_MAX.next_multiple_of(4) + RECORD_HEAD;
        self.buffer_bytes.store(bytes.clamp(least, BATCH_BYTES_MAX), Ordering::Relaxed);
    }

    /// A place to write from. One write at a time goes by it.
    pub(crate) fn berth(&self) -> Arc<Berth> {
        let berth = Arc::default();
        let mut berths = self.berths.lock().unwrap_or_else(PoisonError::into_inner);
        if berths.len() == berths.capacity() {
            berths.retain(|berth| Arc::strong_count(berth) > 1);
        }
        berths.push(Arc::clone(&berth));
        berth
    }

    /// Publishes `count` complete records: `lead`, which is one of another transaction or nothing, and a batch of one
    /// transaction's, if there are any.
    pub(crate) fn publish(&self, berth: &Berth, lead: &[u8], records: &[u8], count: u32, overflow: bool) {
        debug_assert!(records.len().is_multiple_of(4) && records.len() <= BATCH_BYTES_MAX);
        let lead_words = words(lead.len()) as u32;
        let batch_words = if records.is_empty() { 0 } else { 2 + words(records.len()) as u32 };
        let Some(at) = self.reserve(lead_words + batch_words, count, overflow, berth) else { return };
        let mapping = self.segment.mapping();
        let ring = &mapping.words()[RING_AT..];
        let batch = (at + lead_words) as usize;
        let mut first = u32::from(BATCH) << 24;
        if batch_words > 0 {
            mapping.copy_in(HEAD_BYTES + 4 * (batch + 2), records);
            ring[batch + 1].store(records.len() as u32, Ordering::Relaxed);
        }
        if let Some((word, rest)) = lead.split_first_chunk::<4>() {
            if batch_words > 0 {
                ring[batch].store(first, Ordering::Relaxed);
            }
            mapping.copy_in(HEAD_BYTES + 4 * (at as usize + 1), rest);
            first = u32::from_ne_bytes(*word);
        }
        ring[at as usize].store(first, Ordering::Release);
        berth.0.store(0, Ordering::Release);
    }

    /// Takes `length` words at the write position and returns where they begin; `None` if another writer stands in the way.
    fn reserve(&self, length: u32, count: u32, overflow: bool, berth: &Berth) -> Option<u32> {
        let guarded = &self.guarded;
        let mut waited = self.lock();
        let mut turns = 0;
        let at = loop {
            match self.enter(length) {
                Some(at) => break at,
                None if turns < TURNS_MAX && !guarded.blocked.load(Ordering::Relaxed) => {
                    guarded.locked.store(false, Ordering::Release);
                    turns += 1;
                    std::thread::yield_now();
                    waited |= self.lock();
                }
                None => {
                    add(&guarded.lost, 1);
                    guarded.blocked.store(true, Ordering::Relaxed);
                    guarded.locked.store(false, Ordering::Release);
                    return None;
                }
            }
        };
        berth.0.store(at + 1, Ordering::Relaxed);
        add(&guarded.records, u64::from(count));
        add(&guarded.writes, 1);
        if waited {
            add(&guarded.contended, 1);
        }
        if overflow {
            add(&guarded.flushes, 1);
        }
        guarded.locked.store(false, Ordering::Release);
        Some(at)
    }

    /// Moves the write position on by `length` words and returns where it was; `None` if another writer stands in the way.
    /// Under the lock.
    #[inline]
    fn enter(&self, length: u32) -> Option<u32> {
        let guarded = &self.guarded;
        let ring = &self.segment.mapping().words()[RING_AT..];
        let mut at = guarded.at.load(Ordering::Relaxed);
        let mut next = at + length;
        if next >= self.end {
            if self.is_taken(0) {
                return None;
            }
            self.wrap(at);
            (at, next) = (0, length);
        }
        let enters = next >= guarded.part_end.load(Ordering::Relaxed);
        if enters && self.is_taken(next / self.part_words) {
            return None;
        }
        ring[next as usize].store(END, Ordering::Relaxed);
        if enters {
            self.enter_parts(next);
        }
        guarded.at.store(next, Ordering::Relaxed);
        Some(at)
    }

    /// Whether a writer still fills a range that begins in `part`, one lap behind.
    #[cold]
    fn is_taken(&self, part: u32) -> bool {
        let berths = self.berths.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = berths.iter().any(|berth| {
            let at = berth.0.load(Ordering::Acquire);
            at.checked_sub(1).is_some_and(|at| at / self.part_words == part)
        });
        if !taken {
            self.guarded.blocked.store(false, Ordering::Relaxed);
        }
        taken
    }

    /// Whether it had to wait.
    fn lock(&self) -> bool {
        let locked = &self.guarded.locked;
        if !locked.swap(true, Ordering::Acquire) {
            return false;
        }
        let mut turns = 0u32;
        loop {
            while locked.load(Ordering::Relaxed) {
                turns += 1;
                // The holder needs nanoseconds, unless it was taken off its core.
                if turns.is_multiple_of(128) { std::thread::yield_now() } else { std::hint::spin_loop() }
            }
            if !locked.swap(true, Ordering::Acquire) {
                return true;
            }
        }
    }

    /// Ends the lap at word `at`: the new lap's end marker is visible before the word that leads there.
    #[cold]
    fn wrap(&self, at: u32) {
        let mapping = self.segment.mapping();
        let part = self.guarded.part.load(Ordering::Relaxed);
        let part = part.wrapping_add(PARTS - part % PARTS);
        mapping.long_words()[OFFSETS_AT].store(0, Ordering::Relaxed);
        mapping.words()[RING_AT].store(END, Ordering::Relaxed);
        // The part moves on first: a reader that follows the wrap marker takes its part from the head.
        mapping.words()[PART_AT].store(part, Ordering::Release);
        mapping.words()[RING_AT + at as usize].store(WRAP, Ordering::Release);
        self.guarded.at.store(0, Ordering::Relaxed);
        self.guarded.part.store(part, Ordering::Relaxed);
        self.guarded.part_end.store(self.part_words, Ordering::Relaxed);
        add(&self.guarded.cycles, 1);
    }

    /// Enters every part that begins at or before word `next`, where the next record will stand.
    #[cold]
    fn enter_parts(&self, next: u32) {
        let mapping = self.segment.mapping();
        let mut part = self.guarded.part.load(Ordering::Relaxed);
        while next / self.part_words > part % PARTS {
            part = part.wrapping_add(1);
            mapping.long_words()[OFFSETS_AT + (part % PARTS) as usize]
                .store(u64::from(next), Ordering::Relaxed);
        }
        self.guarded.part.store(part, Ordering::Relaxed);
        self.guarded.part_end.store((part % PARTS + 1) * self.part_words, Ordering::Relaxed);
        mapping.words()[PART_AT].store(part, Ordering::Release);
    }

    pub(crate) fn statistics(&self) -> Statistics {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let guarded = &self.guarded;
        Statistics {
            records: read(&guarded.records),
            writes: read(&guarded.writes),
            flushes: read(&guarded.flushes),
            contended: read(&guarded.contended),
            cycles: read(&guarded.cycles),
            lost: read(&guarded.lost),
        }
    }
}

/// The first word of a record.
#[inline]
pub(crate) const fn first_word(tag: Tag, length: usize) -> u32 {
    (tag.number() as u32) << 24 | length as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::{Kind, Records};
    use crate::shm::Worker;

    /// A number of this run alone: one that was killed leaves its files.
    fn unique() -> u64 {
        use std::hash::{BuildHasher as _, RandomState};
        RandomState::new().hash_one(())
    }

    /// A writer that stands still half way is not written over, and holds up nobody for long.
    #[test]
    fn a_writer_that_stands_still_is_waited_for_and_then_costs_records() {
        let path = std::env::temp_dir().join(format!("copal-vsl-{}", unique()));
        std::fs::create_dir(&path).unwrap();
        let settings = Settings { space: SPACE_MIN, ..Settings::default() };
        let worker = Worker::create(&path, &settings, 0.0).unwrap();
        let ring = &worker.log().0;
        let berth = ring.berth();
        let at = ring.reserve(100, 1, false, &berth).unwrap() as usize;
        let mut records = Records::new(worker.log());
        let batches = 2 * SPACE_MIN / 200;
        let mut write = || {
            for _ in 0..batches {
                records.begin(2, Kind::Client);
                records.text(Tag::ReqURL, &[b'x'; 200]);
                records.end();
            }
        };
        write();
        let words = &ring.segment.mapping().words()[RING_AT..];
        assert_eq!(words[at].load(Ordering::Relaxed), END);
        let lost = ring.statistics().lost;
        assert!(lost > 0 && lost < batches as u64);
        // It goes on, and so do the others.
        berth.0.store(0, Ordering::Release);
        write();
        assert_eq!(ring.statistics().lost, lost);
        assert_ne!(words[at].load(Ordering::Relaxed), END);
        let _ = std::fs::remove_dir_all(&path);
    }
}
