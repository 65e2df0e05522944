//! The journal: a ring of pages, kept twice, and its replay.
//!
//! ```text
//!   older checkpoint's start     newest checkpoint's start      next
//! ────┬──────────────────────────────┬───────────────────────────┬──────────────
//!     │  needed if the newest is bad │  replayed at a start      │ free, except the reserve
//! ```
//!
//! The reserve is for the two flushes that a checkpoint itself makes, and for what was pending more than was counted on
//! at the last one before: so a full ring never waits for itself.

use super::change::{CHANGE_MAX, Change, Decoded};
use super::core::Core;
use super::counters::Counters;
use super::entry::Table;
use super::error::OpenError;
use super::mirror::{LOOK_AHEAD, Mirror};
use super::page::{self, Header, Kind, PAGE, PAYLOAD};
use super::superblock::Superblock;
use crate::device::Device;
use std::io;

/// Pages that a change may be spread over beyond those that were pending.
const CHANGE_PAGES: u64 = CHANGE_MAX as u64 / PAYLOAD as u64 + 2;

/// See the module.
pub(super) struct Journal {
    mirror: Mirror,
    session: u32,
    /// The sequence of the next page.
    pub(super) next: u64,
    /// How many changes are durable, counted as [`Core::changes`] is.
    pub(super) durable: u64,
    pub(super) older_start: u64,
    pub(super) newest_start: u64,
}

impl Journal {
    pub(super) fn new(superblock: &Superblock, next: u64, older_start: u64, newest_start: u64) -> Self {
        let mirror = mirror(superblock);
        Self { mirror, session: superblock.session, next, durable: 0, older_start, newest_start }
    }

    /// Pages that may be pending before whoever makes a change must write them.
    pub(super) fn pending_pages(superblock: &Superblock) -> u64 {
        (u64::from(superblock.journal_pages) / 16).min(64)
    }

    fn reserve(&self) -> u64 {
        3 * (self.pending_pages_max() + CHANGE_PAGES)
    }

    fn pending_pages_max(&self) -> u64 {
        (self.mirror.pages / 16).min(64)
    }

    /// Whether `pages` may be written without the reserve.
    pub(super) fn has_room(&self, pages: u64) -> bool {
        self.next + pages + self.reserve() <= self.older_start + self.mirror.pages
    }

    /// Whether it is time for a checkpoint: before half the ring is full of what a start would replay.
    pub(super) fn is_checkpoint_due(&self) -> bool {
        let half = (self.mirror.pages - self.reserve()) / 2;
        self.next - self.newest_start + self.pending_pages_max() >= half
    }

    /// Writes changes and makes them durable.
    pub(super) fn write(
        &mut self,
        device: &dyn Device,
        changes: &[u8],
        counters: &Counters,
    ) -> io::Result<()> {
        let count = page::pages(changes.len());
        if self.next + count > self.older_start + self.mirror.pages {
            return Err(io::Error::new(io::ErrorKind::StorageFull, "the journal is full"));
        }
        let header = Header {
            kind: Kind::Journal,
            volume: self.mirror.volume,
            series: 0,
            sequence: self.next,
            synced: self.next,
            session: self.session,
            begins: true,
            base: 0,
        };
        let mut bytes = Vec::with_capacity(count as usize * PAGE);
        let next = page::encode_stream(header, changes, &mut bytes);
        let place = self.next % self.mirror.pages;
        let (first, wrapped) = bytes.split_at(bytes.len().min((self.mirror.pages - place) as usize * PAGE));
        for copy in 0..2 {
            self.mirror.write_copy(device, copy, place, first)?;
            if !wrapped.is_empty() {
                self.mirror.write_copy(device, copy, 0, wrapped)?;
            }
        }
        device.sync()?;
        counters.journal_pages.add(count);
        counters.journal_syncs.add(1);
        counters.device_written_bytes.add(2 * bytes.len() as u64);
        self.next = next;
        Ok(())
    }
}

pub(super) fn mirror(superblock: &Superblock) -> Mirror {
    Mirror {
        kind: Kind::Journal,
        volume: superblock.volume(),
        offsets: superblock.journal_offsets(),
        pages: u64::from(superblock.journal_pages),
    }
}

/// What a replay found.
#[derive(Debug, Default)]
pub(super) struct Replayed {
    /// The sequence after the last page.
    pub(super) next: u64,
    /// Pages that are good in one copy only: the bad copy, place and bytes.
    pub(super) repairs: Vec<(usize, u64, Vec<u8>)>,
}

/// Does all changes from the page with sequence `start` on again. `reach` is the sequence up to which there must be
/// pages, `session` that of the checkpoint.
pub(super) fn replay(
    device: &dyn Device,
    core: &mut Core,
    table: &Table,
    (start, reach, session): (u64, u64, u32),
) -> Result<Replayed, OpenError> {
    let damaged = OpenError::Damaged { what: "journal" };
    let mirror = mirror(&core.superblock);
    let mut reader = mirror.reader(device);
    let mut found = Replayed { next: start, repairs: Vec::new() };
    let mut session = session;
    // A change that began on the last page. It has no end where a session ended: then the next page begins anew.
    let mut carried: Vec<u8> = Vec::new();
    while found.next - start < mirror.pages {
        let place = found.next % mirror.pages;
        let wanted = |header: &Header| header.sequence == found.next && header.session >= session;
        let Some(page) = reader.page(place, wanted) else { break };
        session = page.header.session;
        if page.header.begins {
            carried.clear();
        }
        carried.extend_from_slice(&page.payload);
        let mut stream = carried.as_slice();
        loop {
            match Change::decode(&mut stream) {
                Decoded::Change(change) if core.replay(table, &change) => {}
                Decoded::Partial => break,
                Decoded::Change(_) | Decoded::Wrong => return Err(damaged),
            }
        }
        carried = stream.to_vec();
        if let Some(copy) = page.bad_copy {
            let mut bytes = Vec::with_capacity(PAGE);
            page.header.encode(&page.payload, &mut bytes);
            found.repairs.push((copy, place, bytes));
        }
        found.next += 1;
    }
    let is_missing = |reader: &mut super::mirror::Reader<'_>| {
        (found.next + 1..=found.next + LOOK_AHEAD).any(|sequence| {
            let wanted = |header: &Header| header.sequence == sequence && header.synced > found.next;
            reader.page(sequence % mirror.pages, wanted).is_some()
        })
    };
    if found.next < reach || is_missing(&mut reader) {
        return Err(damaged);
    }
    Ok(found)
}

/// A sequence that no page in the ring has, nor a later one than any: to begin anew.
pub(super) fn unused_sequence(device: &dyn Device, superblock: &Superblock) -> u64 {
    let mirror = mirror(superblock);
    let mut reader = mirror.reader(device);
    let highest = (0..mirror.pages)
        .filter_map(|place| reader.page(place, |_| true))
        .map(|page| page.header.sequence)
        .max()
        .unwrap_or(0);
    // Beyond the ring, so that it is also beyond pages that could not be read just now.
    highest + mirror.pages
}
