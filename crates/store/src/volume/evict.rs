//! Making room: the next region to fill, and what is kept of the one that is emptied.
//!
//! Two regions are free as a rule besides the one that is filled, so that what is kept has somewhere to go, and so that
//! readers of an emptied region have time until it is filled again.

use super::append::Log;
use super::entry::Known;
use super::error::WriteError;
use super::events::Fate;
use super::facts::EntryId;
use super::inner::Inner;
use super::record::RecordHeader;
use std::sync::atomic::Ordering;

/// The part of a region that may be kept when it is emptied.
const KEPT_PART: u32 = 4;
/// Regions that are left free when one is opened.
const SPARE: usize = 2;

impl Inner {
    /// Seals the open region, opens a free one, and empties one if none is left free then. `keeping`: what is hot in that
    /// one is written into the new one.
    pub(super) fn next_region(&self, log: &mut Log, keeping: bool) -> Result<(), WriteError> {
        self.seal(log).map_err(WriteError::Io)?;
        if self.free_regions() == 0 {
            self.evict(log, false)?;
        }
        let free = self.pick_free_region().ok_or(WriteError::Full)?;
        self.open_region(log, free).map_err(WriteError::Io)?;
        if self.free_regions() < SPARE {
            self.evict(log, keeping)?;
        }
        Ok(())
    }

    fn free_regions(&self) -> usize {
        self.core.lock().free_regions.len()
    }

    /// The region that has been free for longest, but rather one that nobody reads from.
    fn pick_free_region(&self) -> Option<u32> {
        let core = self.core.lock();
        let is_unread = |region: &&u32| {
            self.readers.get(**region as usize).is_none_or(|readers| readers.load(Ordering::SeqCst) == 0)
        };
        core.free_regions.iter().find(is_unread).or_else(|| core.free_regions.front()).copied()
    }

    /// Empties a region. Says whether there was one.
    pub(super) fn evict(&self, log: &mut Log, keeping: bool) -> Result<bool, WriteError> {
        let mut victim = self.core.lock().victim(log.open.map(|open| open.region));
        if victim.is_none() && log.open.is_some() {
            self.seal(log).map_err(WriteError::Io)?;
            victim = self.core.lock().victim(None);
        }
        let Some(victim) = victim else { return Ok(false) };
        if keeping {
            self.keep_hot(log, victim)?;
        }
        let gone = self.change().free_region(&self.table, victim);
        self.counters.regions_evicted.add(1);
        self.counters.evicted.add(gone.len() as u64);
        self.tell_dropped(gone);
        Ok(true)
    }

    /// Writes the most used of the records that are to be kept into the open region.
    fn keep_hot(&self, log: &mut Log, region: u32) -> Result<(), WriteError> {
        let entries = self.core.lock().entries_of(&self.table, region);
        let mut hot: Vec<_> = entries
            .into_iter()
            .filter(|(id, known)| self.events.fate(*id, &known.facts) == Fate::Keep)
            .collect();
        hot.sort_by_key(|(_, known)| std::cmp::Reverse((known.facts.hits, known.facts.last_use)));
        let mut room = self.superblock.region_units() / KEPT_PART;
        for (id, known) in hot {
            let size = known.location.size;
            let fits = log.open.is_some_and(|open| open.end + size <= self.superblock.region_units());
            if size <= room && fits {
                room -= size;
                self.reinsert(log, id, &known)?;
            }
        }
        Ok(())
    }

    /// Writes a record again, if it is whole and still wanted.
    fn reinsert(&self, log: &mut Log, id: EntryId, known: &Known) -> Result<(), WriteError> {
        // The entry may have been removed since it was listed.
        let Some(known) = self.table.load(id).filter(|now| now.location == known.location) else {
            return Ok(());
        };
        let Some((mut header, bytes)) = self.read_whole(id, &known) else { return Ok(()) };
        let rest = header.length() as usize;
        header.name = self.place(log, known.location.size)?;
        header.sequence = self.sequence.fetch_add(1, Ordering::Relaxed);
        if !known.facts.is_piece() {
            header.facts = known.facts;
        }
        self.append(&header.encode(self.superblock.volume())).map_err(WriteError::Io)?;
        self.append(&bytes[rest..]).map_err(WriteError::Io)?;
        if self.change().relocate(&self.table, id, &known, header.name) {
            self.counters.reinserted.add(1);
        }
        Ok(())
    }

    /// All bytes of a record, verified; `None` if it is not whole, and its entry is gone then.
    fn read_whole(&self, id: EntryId, known: &Known) -> Option<(RecordHeader, Vec<u8>)> {
        let mut bytes = vec![0; known.location.bytes() as usize];
        let read = self.read_device(known.location.start(&self.superblock), &mut bytes);
        let header = read.ok().and_then(|()| super::reader::verify_whole(&bytes, self.superblock.volume()));
        match header.filter(|header| {
            super::reader::is_record_of(header, known, self.generation(known.location.region))
        }) {
            Some(header) => Some((header, bytes)),
            None => {
                self.counters.damaged.add(1);
                self.discard(id, known);
                None
            }
        }
    }
}
