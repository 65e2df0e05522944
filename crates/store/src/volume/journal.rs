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

use super::COUNTED_MAX;
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
    /// After a start that was not in order only one checkpoint may be whole.
    pub(super) wants_checkpoint: bool,
}

impl Journal {
    pub(super) fn new(superblock: &Superblock, next: u64, older_start: u64, newest_start: u64) -> Self {
        let mirror = mirror(superblock);
        Self {
            mirror,
            session: superblock.session,
            next,
            durable: 0,
            older_start,
            newest_start,
            wants_checkpoint: false,
        }
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

    /// Whether it is time for a checkpoint: before half the ring is full of what a start would replay, and soon after a
    /// start that had something to replay.
    pub(super) fn is_checkpoint_due(&self) -> bool {
        let half = (self.mirror.pages - self.reserve()) / 2;
        self.wants_checkpoint || self.next - self.newest_start + self.pending_pages_max() >= half
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
        .filter_map(|place| reader.page(place, |header| header.sequence < COUNTED_MAX))
        .map(|page| page.header.sequence)
        .max()
        .unwrap_or(0);
    // Beyond the ring, so that it is also beyond pages that could not be read just now.
    highest + mirror.pages
}

#[cfg(test)]
mod tests {
    use super::super::Options;
    use super::super::change::RecordName;
    use super::super::entry::tests::known;
    use super::super::entry::{Known, Location};
    use super::super::facts::EntryId;
    use super::*;
    use crate::device::sim::{Fault, SimDevice};

    /// A device with a journal, and nothing else.
    struct Ring {
        device: SimDevice,
        superblock: Superblock,
        journal: Journal,
    }

    impl Ring {
        fn new() -> Self {
            let options = Options { region_size: Some(64 << 10), ..Options::default() };
            let superblock = Superblock::for_device(2 << 20, &options).expect("it is large enough");
            Self { device: SimDevice::new(2 << 20), superblock, journal: Journal::new(&superblock, 0, 0, 0) }
        }

        /// The next session, after a start that found `next` pages.
        fn session(mut self, next: u64) -> Self {
            self.superblock.session += 1;
            self.journal = Journal::new(&self.superblock, next, 0, 0);
            self
        }

        /// Writes a batch with an entry for each number, one a page.
        fn write(&mut self, numbers: &[u32]) {
            let location = Location { region: 0, offset: 8, size: 1 };
            let mut changes = Vec::new();
            for number in numbers {
                let known = Known { location, generation: 1, ..known() };
                let links = vec![7; PAYLOAD - 77];
                Change::Add { id: EntryId(*number), generation: 1, known, links: &links }
                    .encode(&mut changes);
            }
            self.journal.write(&self.device, &changes, &Counters::default()).expect("nothing is wrong");
        }

        fn place(&self, copy: usize, page: u64) -> u64 {
            self.superblock.journal_offsets()[copy] + page * PAGE as u64
        }

        fn damage(&self, copy: usize, page: u64) {
            self.device.flip(self.place(copy, page) as usize + 200, 1);
        }

        /// Which entries a start finds, and how many pages.
        fn replay(&self, reach: u64) -> Result<(Vec<u32>, Replayed), OpenError> {
            let mut core = Core::new(self.superblock);
            let table = Table::new(self.superblock.entries_max);
            let found = replay(&self.device, &mut core, &table, (0, reach, 0))?;
            let ids = (0..64).filter(|id| table.load(EntryId(*id)).is_some()).collect();
            Ok((ids, found))
        }

        fn check(&self, entries: &[u32], next: u64) {
            let (found, replayed) = self.replay(0).expect("it is whole");
            assert_eq!((found.as_slice(), replayed.next), (entries, next));
        }
    }

    #[test]
    fn what_an_earlier_session_wrote_beyond_the_end_does_not_go_on() {
        let mut ring = Ring::new();
        ring.write(&[1]);
        ring.write(&[2, 3]);
        ring.check(&[1, 2, 3], 3);
        // The first page of the second batch never arrived.
        ring.damage(0, 1);
        ring.damage(1, 1);
        ring.check(&[1], 1);
        let mut ring = ring.session(1);
        ring.write(&[4]);
        ring.check(&[1, 4], 2);
    }

    #[test]
    fn one_copy_is_enough_and_the_other_is_mended() {
        let mut ring = Ring::new();
        ring.write(&[1]);
        ring.write(&[2]);
        ring.damage(0, 0);
        ring.device.inject(Fault::Read(ring.place(1, 1)..ring.place(1, 2)));
        ring.check(&[1, 2], 2);
        let (_, replayed) = ring.replay(2).expect("it is whole");
        let places: Vec<_> = replayed.repairs.iter().map(|(copy, place, _)| (*copy, *place)).collect();
        assert_eq!(places, [(0, 0), (1, 1)]);
        let bytes = &replayed.repairs[0].2;
        let good = ring.place(1, 0) as usize;
        assert_eq!(bytes[..], ring.device.image()[good..good + PAGE]);
    }

    #[test]
    fn what_was_durable_and_is_missing_is_noticed() {
        let mut ring = Ring::new();
        for number in 0..3 {
            ring.write(&[number]);
        }
        for copy in 0..2 {
            ring.damage(copy, 1);
        }
        assert!(matches!(ring.replay(0), Err(OpenError::Damaged { what: "journal" })));
        let mut ring = Ring::new();
        ring.write(&[0]);
        assert!(ring.replay(1).is_ok());
        assert!(matches!(ring.replay(2), Err(OpenError::Damaged { .. })));
    }

    #[test]
    fn the_ring_comes_round_and_is_not_overrun() {
        let mut ring = Ring::new();
        let pages = u64::from(ring.superblock.journal_pages);
        for page in 0..pages {
            ring.write(&[page as u32 % 60]);
        }
        assert!(!ring.journal.has_room(1) && ring.journal.is_checkpoint_due());
        let full = ring.journal.write(&ring.device, &[6; 9], &Counters::default());
        assert_eq!(full.map_err(|error| error.kind()), Err(io::ErrorKind::StorageFull));
        ring.journal.older_start = pages;
        ring.journal.newest_start = pages;
        ring.write(&[60, 61, 62]);
        assert!(ring.journal.has_room(1));
        assert!(unused_sequence(&ring.device, &ring.superblock) >= pages + 3);
    }

    #[test]
    fn a_change_in_a_sound_page_may_still_be_wrong() {
        let mut ring = Ring::new();
        ring.journal.write(&ring.device, &[99; 10], &Counters::default()).expect("nothing is wrong");
        assert!(ring.replay(0).is_err());
        let mut ring = Ring::new();
        let mut changes = Vec::new();
        let record = RecordName { location: known().location, generation: 1 };
        Change::Remove { id: EntryId(u32::MAX), record }.encode(&mut changes);
        Change::Open { region: 1 << 30, generation: 1 }.encode(&mut changes);
        ring.journal.write(&ring.device, &changes, &Counters::default()).expect("nothing is wrong");
        assert!(ring.replay(0).is_err());
    }
}
