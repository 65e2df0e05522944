//! What changes under one short lock: entries, regions, links, and the changes that are not yet in the journal.
//!
//! A change is put into `pending` and done in memory under the same hold of the lock. So whatever a checkpoint finds in
//! memory after it has taken the journal's position is either before that position or is replayed.
//!
//! ```text
//! region:   free ──open──> filled (the log appends to one of them) ──free──> free
//! ```

use super::change::{Change, RecordName, Times};
use super::entry::{Known, Location, Table};
use super::facts::{EntryId, Facts};
use super::superblock::Superblock;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU32, Ordering};

/// What is known of a region.
#[derive(Debug, Clone, Default)]
pub(super) struct Region {
    pub(super) generation: u32,
    /// 0 if it is free, else its place in the order of opening.
    pub(super) order: u32,
    /// Units of records that have an entry.
    pub(super) live_units: u64,
    /// Entries that were put into it. Some may have left since.
    pub(super) entries: Vec<EntryId>,
}

/// Memory that links take beside their bytes: the slot in the map and the allocator's share. For the bound only.
const LINKS_OVERHEAD: u64 = 8;

/// See the module.
pub(super) struct Core {
    pub(super) superblock: Superblock,
    pub(super) regions: Vec<Region>,
    /// Regions that are free, those that were freed first in front.
    pub(super) free_regions: VecDeque<u32>,
    order_next: u32,
    /// Numbers below `entries_end` that are not in use, those that have not been for longest in front: whoever still has
    /// a number that was in use a moment ago finds nothing under it, not another record.
    free_entries: VecDeque<EntryId>,
    /// All numbers from here on were never used.
    pub(super) entries_end: u32,
    pub(super) entries: u64,
    pub(super) live_units: u64,
    links: HashMap<EntryId, Box<[u8]>>,
    /// As a checkpoint will have them.
    pub(super) links_bytes: u64,
    /// Changes that are not in the journal yet, encoded.
    pub(super) pending: Vec<u8>,
    /// How many changes there were.
    pub(super) changes: u64,
    /// Whether changes still go to the journal: not once the device has failed.
    pub(super) journaling: bool,
}

/// An entry that went, for whoever must be told.
pub(super) type Gone = (EntryId, Facts, Box<[u8]>);

impl Core {
    pub(super) fn new(superblock: Superblock) -> Self {
        Self {
            superblock,
            regions: vec![Region::default(); superblock.region_count as usize],
            free_regions: VecDeque::new(),
            order_next: 1,
            free_entries: VecDeque::new(),
            entries_end: 0,
            entries: 0,
            live_units: 0,
            links: HashMap::new(),
            links_bytes: 0,
            pending: Vec::new(),
            changes: 0,
            journaling: true,
        }
    }

    /// The links of an entry.
    pub(super) fn links(&self, id: EntryId) -> &[u8] {
        self.links.get(&id).map_or(&[], |links| links)
    }

    fn region(&self, number: u32) -> Option<&Region> {
        self.regions.get(number as usize)
    }

    /// The name of the record that an entry stands for.
    pub(super) fn name(&self, known: &Known) -> RecordName {
        let generation = self.region(known.location.region).map_or(0, |region| region.generation);
        RecordName { location: known.location, generation }
    }

    /// Whether the entry stands for a record in a region that is as it was then.
    fn is_current(&self, known: &Known) -> bool {
        known.location.is_possible(&self.superblock)
            && self
                .region(known.location.region)
                .is_some_and(|region| region.order != 0 && region.generation as u16 == known.generation)
    }

    fn log(&mut self, change: &Change<'_>) {
        self.changes += 1;
        if self.journaling {
            change.encode(&mut self.pending);
        }
    }

    fn put_links(&mut self, id: EntryId, links: &[u8]) {
        if !links.is_empty() {
            self.links_bytes += links.len() as u64 + LINKS_OVERHEAD;
            self.links.insert(id, links.into());
        }
    }

    fn take_links(&mut self, id: EntryId) -> Box<[u8]> {
        let Some(links) = self.links.remove(&id) else { return Box::default() };
        self.links_bytes -= links.len() as u64 + LINKS_OVERHEAD;
        links
    }

    /// Whether links of that length fit.
    pub(super) fn has_room_for_links(&self, length: usize) -> bool {
        length == 0 || self.links_bytes + length as u64 + LINKS_OVERHEAD <= self.superblock.links_bytes_max()
    }

    /// A number for a new entry, if there is one.
    pub(super) fn take_number(&mut self) -> Option<EntryId> {
        self.free_entries.pop_front().or_else(|| {
            let id = EntryId(self.entries_end);
            (self.entries_end < self.superblock.entries_max).then(|| {
                self.entries_end += 1;
                id
            })
        })
    }

    /// Gives back a number that was taken and not used.
    pub(super) fn give_number_back(&mut self, id: EntryId) {
        self.free_entries.push_back(id);
    }

    /// Puts an entry under a number that was taken.
    pub(super) fn add(&mut self, table: &Table, id: EntryId, known: &Known, links: &[u8]) {
        let name = self.name(known);
        self.log(&Change::Add { id, generation: name.generation, known: *known, links });
        table.store(id, Some(known));
        self.put_links(id, links);
        self.account(id, known.location);
        self.entries += 1;
    }

    /// Counts a record to its region.
    fn account(&mut self, id: EntryId, location: Location) {
        self.live_units += u64::from(location.size);
        if let Some(region) = self.regions.get_mut(location.region as usize) {
            region.live_units += u64::from(location.size);
            region.entries.push(id);
        }
    }

    fn account_gone(&mut self, location: Location) {
        self.live_units -= u64::from(location.size);
        if let Some(region) = self.regions.get_mut(location.region as usize) {
            region.live_units -= u64::from(location.size);
        }
    }

    /// Gives an entry that is still at `from` another place. Says whether it was.
    pub(super) fn relocate(&mut self, table: &Table, id: EntryId, from: &Known, to: RecordName) -> bool {
        let Some(known) = table.load(id).filter(|known| is_same_record(known, from)) else { return false };
        self.log(&Change::Move { id, from: self.name(&known), to });
        self.account_gone(known.location);
        self.account(id, to.location);
        table.store(id, Some(&moved(known, to)));
        true
    }

    /// Takes an entry out.
    pub(super) fn remove(&mut self, table: &Table, id: EntryId) {
        if let Some(known) = table.load(id) {
            self.log(&Change::Remove { id, record: self.name(&known) });
            self.unlink(table, id, &known);
            self.free_entries.push_back(id);
        }
    }

    /// Takes an entry out if it still stands for that record. Its number is to be [given
    /// back](Self::give_number_back) when whoever keeps the index has been told.
    pub(super) fn discard(&mut self, table: &Table, id: EntryId, only: &Known) -> Option<Gone> {
        let known = table.load(id).filter(|known| is_same_record(known, only))?;
        self.log(&Change::Remove { id, record: self.name(&known) });
        Some(self.unlink(table, id, &known))
    }

    fn unlink(&mut self, table: &Table, id: EntryId, known: &Known) -> Gone {
        table.store(id, None);
        self.account_gone(known.location);
        self.entries -= 1;
        (id, known.facts, self.take_links(id))
    }

    /// Gives an entry with that key other times; of a piece only `keep` is taken. Says whether there is one.
    pub(super) fn set_times(&mut self, table: &Table, id: EntryId, key: &[u8; 16], times: &Times) -> bool {
        let Some(known) = table.load(id).filter(|known| known.facts.key == *key) else { return false };
        self.log(&Change::Times { id, record: self.name(&known), times: *times });
        table.store(id, Some(&timed(known, times)));
        true
    }

    /// Notes the ban an entry with that key was tested against. Says whether there is one.
    pub(super) fn set_ban(&mut self, table: &Table, id: EntryId, key: &[u8; 16], ban: u32) -> bool {
        let Some(mut known) = table.load(id).filter(|known| known.facts.key == *key) else { return false };
        self.log(&Change::Ban { id, record: self.name(&known), ban });
        known.facts.ban = ban;
        table.store(id, Some(&known));
        true
    }

    /// As [`set_ban`](Self::set_ban), in memory alone.
    pub(super) fn note_ban(&mut self, table: &Table, id: EntryId, key: &[u8; 16], ban: u32) -> bool {
        let Some(mut known) = table.load(id).filter(|known| known.facts.key == *key) else { return false };
        known.facts.ban = ban;
        table.store(id, Some(&known));
        true
    }

    /// Opens a free region; gives its generation. Not to be filled before the change is durable.
    pub(super) fn open_region(&mut self, number: u32, generations: &[AtomicU32]) -> u32 {
        let generation = self.region(number).map_or(0, |region| region.generation).wrapping_add(1);
        self.log(&Change::Open { region: number, generation });
        self.apply_open(number, generation);
        self.free_regions.retain(|free| *free != number);
        if let Some(known) = generations.get(number as usize) {
            known.store(generation, Ordering::SeqCst);
        }
        generation
    }

    /// Goes on with a region that was open when the volume was closed in order.
    pub(super) fn reopen_region(&mut self, number: u32) {
        let generation = self.region(number).map_or(0, |region| region.generation);
        self.log(&Change::Open { region: number, generation });
        self.apply_open(number, generation);
    }

    fn apply_open(&mut self, number: u32, generation: u32) {
        let order = self.order_next;
        if let Some(region) = self.regions.get_mut(number as usize) {
            region.generation = generation;
            region.order = order;
            self.order_next = order.saturating_add(1);
        }
    }

    /// The entries in a region.
    pub(super) fn entries_of(&self, table: &Table, number: u32) -> Vec<(EntryId, Known)> {
        let Some(region) = self.region(number) else { return Vec::new() };
        let mut found: Vec<_> = region
            .entries
            .iter()
            .filter_map(|id| table.load(*id).map(|known| (*id, known)))
            .filter(|(_, known)| known.location.region == number)
            .collect();
        found.sort_unstable_by_key(|(id, known)| (known.location.offset, *id));
        found.dedup_by_key(|(id, _)| *id);
        found
    }

    /// Frees a region and ends the entries in it. No number is taken before whoever keeps the index has been told, since
    /// the caller has the log.
    pub(super) fn free_region(&mut self, table: &Table, number: u32) -> Vec<Gone> {
        let generation = self.region(number).map_or(0, |region| region.generation);
        self.log(&Change::Free { region: number, generation });
        let entries = self.entries_of(table, number);
        let gone = entries.iter().map(|(id, known)| self.unlink(table, *id, known)).collect();
        self.free_entries.extend(entries.iter().map(|(id, _)| id));
        if let Some(region) = self.regions.get_mut(number as usize) {
            region.order = 0;
            region.live_units = 0;
            region.entries = Vec::new();
        }
        self.free_regions.push_back(number);
        gone
    }

    /// The region to empty next, but not `open`: one without records first, else among the quarter of regions that were
    /// opened first the one with the fewest bytes of records.
    pub(super) fn victim(&self, open: Option<u32>) -> Option<u32> {
        let mut filled: Vec<(u32, u32)> = (0..)
            .zip(&self.regions)
            .filter(|(number, region)| region.order != 0 && Some(*number) != open)
            .map(|(number, region)| (region.order, number))
            .collect();
        filled.sort_unstable();
        let live = |number: u32| self.region(number).map_or(0, |region| region.live_units);
        if let Some((_, empty)) = filled.iter().find(|(_, number)| live(*number) == 0) {
            return Some(*empty);
        }
        let oldest = filled.get(..filled.len().div_ceil(4))?;
        oldest.iter().min_by_key(|(order, number)| (live(*number), *order)).map(|(_, number)| *number)
    }

    // --- What a start uses: nothing is logged, and nothing counted before `settle`. ---

    /// Takes over what a checkpoint says of a region.
    pub(super) fn restore_region(&mut self, number: u32, generation: u32, order: u32) {
        if let Some(region) = self.regions.get_mut(number as usize) {
            region.generation = generation;
            region.order = order;
            self.order_next = self.order_next.max(order.saturating_add(1));
        }
    }

    /// Takes over an entry.
    pub(super) fn restore_entry(&mut self, table: &Table, id: EntryId, known: &Known) {
        if id.0 < self.superblock.entries_max {
            self.entries_end = self.entries_end.max(id.0 + 1);
            table.store(id, Some(known));
        }
    }

    /// Takes over the links of an entry.
    pub(super) fn restore_links(&mut self, id: EntryId, links: &[u8]) {
        self.take_links(id);
        self.put_links(id, links);
    }

    /// Does a change again. Says whether it can be one of this volume's.
    pub(super) fn replay(&mut self, table: &Table, change: &Change<'_>) -> bool {
        let count = self.superblock.region_count;
        let entries_max = self.superblock.entries_max;
        // What the entry says, if it still stands for that record.
        let of = |id: &EntryId, record: &RecordName| {
            table.load(*id).filter(|known| {
                known.location == record.location && known.generation == record.generation as u16
            })
        };
        match change {
            Change::Add { id, known, links, .. } => {
                if id.0 >= entries_max || !known.location.is_possible(&self.superblock) {
                    return false;
                }
                self.restore_entry(table, *id, known);
                self.restore_links(*id, links);
            }
            Change::Move { id, from, to } => {
                if !to.location.is_possible(&self.superblock) {
                    return false;
                }
                if let Some(known) = of(id, from) {
                    table.store(*id, Some(&moved(known, *to)));
                }
            }
            Change::Remove { id, record } => {
                if of(id, record).is_some() {
                    table.store(*id, None);
                    self.take_links(*id);
                }
            }
            Change::Times { id, record, times } => {
                if let Some(known) = of(id, record) {
                    table.store(*id, Some(&timed(known, times)));
                }
            }
            Change::Ban { id, record, ban } => {
                if let Some(mut known) = of(id, record) {
                    known.facts.ban = *ban;
                    table.store(*id, Some(&known));
                }
            }
            Change::Open { region, generation } => {
                if *region >= count {
                    return false;
                }
                self.apply_open(*region, *generation);
            }
            Change::Free { region, generation } => {
                if *region >= count {
                    return false;
                }
                if let Some(region) =
                    self.regions.get_mut(*region as usize).filter(|region| region.generation == *generation)
                {
                    region.order = 0;
                }
            }
        }
        true
    }

    /// Counts what was restored and replayed, and drops entries whose region is no longer what it was.
    pub(super) fn settle(&mut self, table: &Table) {
        for id in (0..self.entries_end).map(EntryId) {
            match table.load(id) {
                Some(known) if self.is_current(&known) && known.has_links != self.links(id).is_empty() => {
                    self.account(id, known.location);
                    self.entries += 1;
                }
                Some(_) => {
                    table.store(id, None);
                    self.free_entries.push_back(id);
                }
                None => self.free_entries.push_back(id),
            }
        }
        self.links.retain(|id, _| table.load(*id).is_some());
        self.links_bytes = self.links.values().map(|links| links.len() as u64 + LINKS_OVERHEAD).sum();
        let mut free: Vec<u32> = (0..)
            .zip(&self.regions)
            .filter(|(_, region)| region.order == 0)
            .map(|(number, _)| number)
            .collect();
        free.sort_by_key(|number| self.region(*number).map_or(0, |region| region.generation));
        self.free_regions = free.into();
    }

    /// Checks that all counts are what they count; for tests.
    pub(super) fn check(&self, table: &Table) {
        let mut live = vec![0_u64; self.regions.len()];
        let mut entries = 0;
        for (id, known) in (0..self.entries_end).map(EntryId).filter_map(|id| Some((id, table.load(id)?))) {
            assert!(self.is_current(&known), "{id:?} is in a region that was emptied");
            assert_eq!(known.has_links, !self.links(id).is_empty());
            let region = known.location.region as usize;
            live[region] += u64::from(known.location.size);
            assert!(self.regions[region].entries.contains(&id), "{id:?} is not in the list of its region");
            entries += 1;
        }
        assert_eq!(entries, self.entries);
        assert_eq!(live.iter().sum::<u64>(), self.live_units);
        for (number, (region, live)) in (0..).zip(self.regions.iter().zip(&live)) {
            assert_eq!(region.live_units, *live, "of region {number}");
            assert_eq!(region.order == 0, self.free_regions.contains(&number), "of region {number}");
        }
        let links: u64 = self.links.values().map(|links| links.len() as u64 + LINKS_OVERHEAD).sum();
        assert_eq!(links, self.links_bytes);
        assert!(self.links.keys().all(|id| table.load(*id).is_some()));
    }
}

fn is_same_record(known: &Known, other: &Known) -> bool {
    known.location == other.location && known.generation == other.generation
}

fn moved(mut known: Known, to: RecordName) -> Known {
    known.location = to.location;
    known.facts.size = to.location.size;
    known.generation = to.generation as u16;
    known
}

fn timed(mut known: Known, times: &Times) -> Known {
    known.facts.keep = times.keep;
    if !known.facts.is_piece() {
        known.facts.origin_time = times.origin_time;
        known.facts.ttl = times.ttl;
        known.facts.grace = times.grace;
    }
    known
}
