//! An entry: the 64 bytes that memory has of a record, and the table of all of them.
//!
//! ```text
//! word 0, 1   first half of the key
//! word 2      origin time            \ of a piece: second half of the key
//! word 3      ttl | grace            /
//! word 4      keep | variant
//! word 5      location: region 22 bits, offset 21, size 21
//! word 6      ban | last use
//! word 7      hits 16 | status 16 | flags 8 | state 8 | low half of the generation 16
//! ```
//!
//! The words are those of the checkpoint (`docs/storage-format.md`, section "Entry"). Entries are changed under the lock
//! of [`Core`](super::core::Core) only, except that use is noted without; they are read without any lock: a writer sets
//! [`BUSY`] in word 7, changes the others, and writes word 7 with the next count of changes, so a reader that finds word
//! 7 as it was has read the others as they belong together.

use super::bytes::{Parser, Put};
use super::facts::{EntryId, Facts};
use super::superblock::{ENTRY, Superblock};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// The entry is in use. The states of word 7 begin at bit 40.
const USED: u64 = 1 << 40;
/// It has links.
const LINKS: u64 = 2 << 40;
/// It is being changed.
const BUSY: u64 = 4 << 40;
/// One change more, in the bits that count changes.
const CHANGE: u64 = 8 << 40;
const CHANGES: u64 = 0xf8 << 40;
/// What of word 7 says which record it is, and that the other words are as they were.
const STEADY: u64 = !0xffff;
/// What of word 7 is on the device.
const DURABLE: u64 = !(BUSY | CHANGES);

const REGION_BITS: u32 = 22;
const UNIT_BITS: u32 = 21;

/// Where a record lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Location {
    pub(super) region: u32,
    /// In units, from the start of the region.
    pub(super) offset: u32,
    /// In units.
    pub(super) size: u32,
}

impl Location {
    pub(super) fn pack(self) -> u64 {
        u64::from(self.region)
            | u64::from(self.offset) << REGION_BITS
            | u64::from(self.size) << (REGION_BITS + UNIT_BITS)
    }

    pub(super) fn unpack(word: u64) -> Self {
        let bits = |from: u32, count: u32| ((word >> from) & ((1 << count) - 1)) as u32;
        Self {
            region: bits(0, REGION_BITS),
            offset: bits(REGION_BITS, UNIT_BITS),
            size: bits(REGION_BITS + UNIT_BITS, UNIT_BITS),
        }
    }

    /// Whether a record may lie there.
    pub(super) fn is_possible(self, superblock: &Superblock) -> bool {
        let units = superblock.region_units();
        self.region < superblock.region_count
            && self.offset >= super::FIRST_UNIT
            && self.size > 0
            && u64::from(self.offset) + u64::from(self.size) <= u64::from(units)
    }

    /// Its first byte on the device.
    pub(super) fn start(self, superblock: &Superblock) -> u64 {
        superblock.region_offset(self.region) + u64::from(self.offset) * super::UNIT
    }

    pub(super) fn bytes(self) -> u64 {
        u64::from(self.size) * super::UNIT
    }
}

/// What an entry says, read in one piece.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Known {
    pub(super) facts: Facts,
    pub(super) location: Location,
    /// The low half of it.
    pub(super) generation: u16,
    pub(super) has_links: bool,
}

impl Known {
    fn words(&self) -> [u64; 8] {
        let facts = &self.facts;
        let half = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let key = |at: usize| Parser::new(&facts.key[at..]).u64().unwrap_or(0);
        [
            key(0),
            key(8),
            facts.origin_time.to_bits(),
            half(facts.ttl.to_bits(), facts.grace.to_bits()),
            half(facts.keep.to_bits(), facts.variant),
            self.location.pack(),
            half(facts.ban, facts.last_use),
            u64::from(facts.hits)
                | u64::from(facts.status) << 16
                | u64::from(facts.flags) << 32
                | USED
                | if self.has_links { LINKS } else { 0 }
                | u64::from(self.generation) << 48,
        ]
    }

    /// `None` if the words are of an entry not in use.
    fn of_words(words: &[u64; 8]) -> Option<Self> {
        if words[7] & USED == 0 {
            return None;
        }
        let location = Location::unpack(words[5]);
        let low = |word: u64| word as u32;
        let high = |word: u64| (word >> 32) as u32;
        let mut key = [0; 16];
        key[..8].copy_from_slice(&words[0].to_le_bytes());
        key[8..].copy_from_slice(&words[1].to_le_bytes());
        let facts = Facts {
            key,
            origin_time: f64::from_bits(words[2]),
            ttl: f32::from_bits(low(words[3])),
            grace: f32::from_bits(high(words[3])),
            keep: f32::from_bits(low(words[4])),
            variant: high(words[4]),
            ban: low(words[6]),
            last_use: high(words[6]),
            hits: words[7] as u16,
            status: (words[7] >> 16) as u16,
            flags: (words[7] >> 32) as u8,
            size: location.size,
        };
        let generation = (words[7] >> 48) as u16;
        Some(Self { facts, location, generation, has_links: words[7] & LINKS != 0 })
    }

    /// The 64 bytes of the checkpoint.
    pub(super) fn encode(known: Option<&Self>, out: &mut Vec<u8>) {
        for word in known.map_or([0; 8], Self::words) {
            out.u64(word);
        }
    }

    /// Reads the 64 bytes; `None` if they are of no entry in use.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut parser = Parser::new(bytes);
        let mut words = [0; 8];
        for word in &mut words {
            *word = parser.u64()?;
        }
        words[7] &= DURABLE;
        Self::of_words(&words)
    }
}

/// One entry in memory.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct Entry([AtomicU64; 8]);

const _: () = assert!(size_of::<Entry>() == ENTRY);

impl Entry {
    /// What it says; `None` if it is not in use.
    pub(super) fn load(&self) -> Option<Known> {
        loop {
            let before = self.0[7].load(Ordering::Acquire);
            if before & USED == 0 && before & BUSY == 0 {
                return None;
            }
            let mut words = [0; 8];
            for (word, atomic) in words.iter_mut().zip(&self.0) {
                *word = atomic.load(Ordering::Relaxed);
            }
            fence(Ordering::Acquire);
            let after = self.0[7].load(Ordering::Relaxed);
            if before & BUSY == 0 && (before ^ after) & STEADY == 0 {
                words[7] = after;
                return Known::of_words(&words);
            }
            std::hint::spin_loop();
        }
    }

    /// Says something else. Under the lock of the core.
    pub(super) fn store(&self, known: Option<&Known>) {
        let before = self.0[7].fetch_or(BUSY, Ordering::Relaxed);
        fence(Ordering::Release);
        let words = known.map_or([0; 8], Known::words);
        for (word, atomic) in words.iter().zip(&self.0).take(7) {
            atomic.store(*word, Ordering::Relaxed);
        }
        let changes = before.wrapping_add(CHANGE) & CHANGES;
        self.0[7].store(words[7] | changes, Ordering::Release);
    }

    /// Notes use, if it is in use and nobody is changing it.
    pub(super) fn note_use(&self, hits: u16, last_use: u32) {
        let noted = self.0[7].fetch_update(Ordering::Relaxed, Ordering::Relaxed, |word| {
            (word & (USED | BUSY) == USED).then_some(word & STEADY | u64::from(hits))
        });
        if noted.is_ok() {
            let _ = self.0[6].fetch_update(Ordering::Relaxed, Ordering::Relaxed, |word| {
                Some(word & 0xffff_ffff | u64::from(last_use) << 32)
            });
        }
    }
}

/// Entries that are allocated together.
const CHUNK: usize = 4096;

/// All entries of a volume. Grows with the highest number used.
pub(super) struct Table {
    chunks: Box<[OnceLock<Box<[Entry]>>]>,
    entries_max: u32,
}

impl Table {
    pub(super) fn new(entries_max: u32) -> Self {
        let chunks = (entries_max as usize).div_ceil(CHUNK);
        Self { chunks: (0..chunks).map(|_| OnceLock::new()).collect(), entries_max }
    }

    /// The entry, if its number was ever used.
    pub(super) fn get(&self, id: EntryId) -> Option<&Entry> {
        let chunk = self.chunks.get(id.0 as usize / CHUNK)?.get()?;
        chunk.get(id.0 as usize % CHUNK)
    }

    /// What the entry says, if it is in use.
    pub(super) fn load(&self, id: EntryId) -> Option<Known> {
        self.get(id)?.load()
    }

    /// Has the entry say something else, making room for it. Numbers from `entries_max` on are passed over.
    pub(super) fn store(&self, id: EntryId, known: Option<&Known>) {
        if id.0 >= self.entries_max {
            return;
        }
        if let Some(chunk) = self.chunks.get(id.0 as usize / CHUNK) {
            if known.is_none() && chunk.get().is_none() {
                return;
            }
            let entries = chunk.get_or_init(|| (0..CHUNK).map(|_| Entry::default()).collect());
            if let Some(entry) = entries.get(id.0 as usize % CHUNK) {
                entry.store(known);
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn known() -> Known {
        Known {
            facts: Facts {
                key: *b"0123456789abcdef",
                origin_time: 1.7e9,
                ttl: 120.0,
                grace: 10.0,
                keep: 3600.0,
                ban: 17,
                last_use: 99,
                hits: 65_535,
                status: 404,
                flags: 0x5a,
                variant: 0xdead_beef,
                size: 2_000_000,
            },
            location: Location { region: (1 << 22) - 1, offset: 77, size: 2_000_000 },
            generation: 0xbeef,
            has_links: true,
        }
    }

    #[test]
    fn entries_come_back() {
        let entry = Entry::default();
        assert_eq!(entry.load(), None);
        for has_links in [true, false] {
            let known = Known { has_links, ..known() };
            entry.store(Some(&known));
            assert_eq!(entry.load(), Some(known));
            let mut bytes = Vec::new();
            Known::encode(Some(&known), &mut bytes);
            assert_eq!(bytes.len(), ENTRY);
            assert_eq!(Known::decode(&bytes), Some(known));
        }
        entry.store(None);
        assert_eq!(entry.load(), None);
        assert_eq!(Known::decode(&[0; 64]), None);
        assert_eq!(Known::decode(&[1; 5]), None);
    }

    #[test]
    fn use_is_noted_of_entries_in_use() {
        let entry = Entry::default();
        entry.note_use(3, 4);
        assert_eq!(entry.load(), None);
        entry.store(Some(&known()));
        entry.note_use(3, 4);
        let facts = entry.load().expect("it is in use").facts;
        assert_eq!(facts, Facts { hits: 3, last_use: 4, ..known().facts });
    }

    #[test]
    fn a_reader_sees_one_state_or_the_other() {
        let entry = Entry::default();
        let one = known();
        let mut other = one;
        other.facts.key = [1; 16];
        other.facts.ttl = 1.0;
        other.facts.ban = 1;
        entry.store(Some(&one));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..20_000 {
                    entry.store(Some(&other));
                    entry.store(Some(&one));
                }
            });
            for _ in 0..20_000 {
                let seen = entry.load().expect("it is always in use");
                assert!(seen == one || seen == other, "{seen:?}");
            }
        });
    }

    #[test]
    fn the_table_grows_and_ends() {
        let table = Table::new(5000);
        assert_eq!(table.load(EntryId(4999)), None);
        for id in [0, 4999] {
            table.store(EntryId(id), Some(&known()));
            assert_eq!(table.load(EntryId(id)), Some(known()));
        }
        table.store(EntryId(5000), Some(&known()));
        table.store(EntryId(u32::MAX), Some(&known()));
        assert_eq!((table.load(EntryId(5000)), table.load(EntryId(u32::MAX))), (None, None));
    }
}
