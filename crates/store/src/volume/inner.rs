//! What all parts of a volume share, and how changes become durable.
//!
//! Locks, in the order in which they may be taken:
//!
//! ```text
//! log  >  checkpoint  >  journal  >  core
//!   \> tail (a leaf)      bans (by itself)
//! ```
//!
//! `core` and `tail` are held for moments and never while the device is used; the others while it writes.

use super::append::{Log, Tail};
use super::bans::BanLog;
use super::checkpoint::{self, Next, OpenEnd, Summary};
use super::core::{Core, Gone};
use super::counters::Counters;
use super::entry::{Known, Table};
use super::events::Events;
use super::facts::EntryId;
use super::journal::Journal;
use super::options::Health;
use super::page::{self, PAYLOAD};
use super::superblock::Superblock;
use crate::device::Device;
use parking_lot::{Mutex, MutexGuard};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

/// Checkpoints that a full journal is worth. Each frees what lies before the one before it.
const CHECKPOINTS_MAX: usize = 3;

/// See the module.
pub(super) struct Inner {
    pub(super) device: Arc<dyn Device>,
    pub(super) events: Arc<dyn Events>,
    pub(super) superblock: Superblock,
    pub(super) read_ahead: usize,
    pub(super) errors_max: u64,
    pub(super) table: Table,
    pub(super) core: Mutex<Core>,
    pub(super) journal: Mutex<Journal>,
    pub(super) checkpoint: Mutex<Next>,
    pub(super) log: Mutex<Log>,
    pub(super) tail: Mutex<Tail>,
    pub(super) bans: Mutex<BanLog>,
    /// Of each region, as readers ask for it: whether what they read is still what they opened.
    pub(super) generations: Box<[AtomicU32]>,
    /// Readers in each region.
    pub(super) readers: Box<[AtomicU32]>,
    /// The next record in this session.
    pub(super) sequence: AtomicU64,
    pub(super) counters: Counters,
    /// Where scrubbing goes on: region and unit.
    pub(super) scrub_next: Mutex<(u32, u32)>,
    health: AtomicU8,
}

/// What a start found, for an [`Inner`] to be made of.
pub(super) struct Started {
    pub(super) superblock: Superblock,
    pub(super) table: Table,
    pub(super) core: Core,
    pub(super) journal: Journal,
    pub(super) next_checkpoint: Next,
    pub(super) bans: BanLog,
    pub(super) resume: Option<OpenEnd>,
    pub(super) counters: Counters,
}

const GOOD: u8 = 0;
const DRAINING: u8 = 1;
/// Closed in order: as drained, but for good.
const CLOSED: u8 = 2;
const FAILED: u8 = 3;

impl Inner {
    pub(super) fn new(
        device: Arc<dyn Device>,
        events: Arc<dyn Events>,
        options: &super::Options,
        started: Started,
    ) -> Self {
        let superblock = started.superblock;
        let generations =
            started.core.regions.iter().map(|region| AtomicU32::new(region.generation)).collect();
        let readers = started.core.regions.iter().map(|_| AtomicU32::new(0)).collect();
        Self {
            device,
            events,
            superblock,
            read_ahead: options.read_ahead.clamp(1, 16 << 20),
            errors_max: options.errors_max,
            table: started.table,
            core: Mutex::new(started.core),
            journal: Mutex::new(started.journal),
            checkpoint: Mutex::new(started.next_checkpoint),
            log: Mutex::new(Log::new(started.resume)),
            tail: Mutex::new(Tail::new(options.write_buffer)),
            bans: Mutex::new(started.bans),
            generations,
            readers,
            sequence: AtomicU64::new(u64::from(superblock.session & 0xff_ffff) << 40),
            counters: started.counters,
            scrub_next: Mutex::new((0, 0)),
            health: AtomicU8::new(GOOD),
        }
    }

    pub(super) fn health(&self) -> Health {
        match self.health.load(Ordering::SeqCst) {
            GOOD => Health::Good,
            DRAINING | CLOSED => Health::Draining,
            _ => Health::Failed,
        }
    }

    pub(super) fn drain(&self) {
        self.health.fetch_max(DRAINING, Ordering::SeqCst);
    }

    pub(super) fn undrain(&self) {
        let _ = self.health.compare_exchange(DRAINING, GOOD, Ordering::SeqCst, Ordering::SeqCst);
    }

    pub(super) fn close(&self) {
        self.health.fetch_max(CLOSED, Ordering::SeqCst);
    }

    /// Takes no more writes from here on.
    pub(super) fn fail(&self) {
        self.health.store(FAILED, Ordering::SeqCst);
        let mut core = self.core.lock();
        core.journaling = false;
        core.pending = Vec::new();
    }

    pub(super) fn has_failed(&self) -> bool {
        self.health() == Health::Failed
    }

    /// The generation of a region as it is now.
    pub(super) fn generation(&self, region: u32) -> u32 {
        self.generations.get(region as usize).map_or(0, |generation| generation.load(Ordering::SeqCst))
    }

    /// Bytes that may be pending before whoever makes a change must write them.
    fn pending_max(&self) -> usize {
        Journal::pending_pages(&self.superblock) as usize * PAYLOAD
    }

    /// The core, for one change. Writes what is pending before, if it is much. Whoever holds the journal must not call it.
    pub(super) fn change(&self) -> MutexGuard<'_, Core> {
        loop {
            let core = self.core.lock();
            if core.pending.len() <= self.pending_max() {
                return core;
            }
            drop(core);
            // If it cannot be written the volume has failed, and then nothing is pending.
            let _ = self.commit();
        }
    }

    /// Makes all changes up to now durable.
    pub(super) fn commit(&self) -> io::Result<()> {
        let changes = self.core.lock().changes;
        for _ in 0..=CHECKPOINTS_MAX {
            if self.has_failed() {
                return Err(failed());
            }
            let mut journal = self.journal.lock();
            if journal.durable >= changes {
                return Ok(());
            }
            let pages = page::pages(self.core.lock().pending.len());
            // What others add between here and there is at most one change, and the reserve has room for it.
            if journal.has_room(pages) {
                return self.write_journal(&mut journal, |_| ()).map(|_| ());
            }
            drop(journal);
            self.write_checkpoint(None)?;
        }
        self.fail();
        Err(io::Error::new(
            io::ErrorKind::StorageFull,
            "the journal is full and no checkpoint makes room in it",
        ))
    }

    /// Writes what is pending. `at_position` is called with the core as it was when that was taken.
    fn write_journal<T>(&self, journal: &mut Journal, at_position: impl FnOnce(&Core) -> T) -> io::Result<T> {
        let (pending, changes, seen) = {
            let mut core = self.core.lock();
            (std::mem::take(&mut core.pending), core.changes, at_position(&core))
        };
        if self.has_failed() {
            return Err(failed());
        }
        if !pending.is_empty() {
            self.noticing(journal.write(&*self.device, &pending, &self.counters))?;
        }
        journal.durable = changes;
        Ok(seen)
    }

    /// Passes on a result of a write; an error ends all writing.
    pub(super) fn noticing<T>(&self, result: io::Result<T>) -> io::Result<T> {
        if result.is_err() {
            self.fail();
        }
        result
    }

    pub(super) fn is_checkpoint_due(&self) -> bool {
        self.journal.lock().is_checkpoint_due()
    }

    /// Writes a checkpoint. `clean`: nothing is written after it; then where the open region ends, if there is one.
    pub(super) fn write_checkpoint(&self, clean: Option<Option<OpenEnd>>) -> io::Result<()> {
        let mut next = self.checkpoint.lock();
        let (start, regions) = {
            let mut journal = self.journal.lock();
            let regions = self.write_journal(&mut journal, |core| checkpoint::region_table(&core.regions))?;
            (journal.next, regions)
        };
        let writer = checkpoint::Writer::new(&*self.device, &self.counters, &self.superblock, *next);
        self.noticing(writer.regions(&regions))?;
        let (entries, links_bytes) = self.noticing(writer.entries(&self.core, &self.table))?;
        let end = {
            let mut journal = self.journal.lock();
            self.write_journal(&mut journal, |_| ())?;
            journal.next
        };
        self.noticing(self.device.sync())?;
        let summary = Summary {
            number: next.number,
            session: self.superblock.session,
            slot: next.slot,
            journal_start: start,
            journal_end: end,
            links_bytes,
            entries,
            clean: clean.is_some(),
            open: clean.flatten(),
        };
        self.noticing(writer.header(&summary))?;
        self.noticing(self.device.sync())?;
        self.counters.checkpoints.add(1);
        *next = Next { number: next.number + 1, slot: 1 - next.slot };
        let mut journal = self.journal.lock();
        journal.older_start = journal.newest_start;
        journal.newest_start = start;
        journal.wants_checkpoint = false;
        Ok(())
    }

    /// Drops an entry whose record cannot be read, if it still stands for that record.
    pub(super) fn discard(&self, id: EntryId, known: &Known) {
        let gone = self.change().discard(&self.table, id, known);
        if let Some(gone) = gone {
            self.tell_dropped([gone]);
            self.core.lock().give_number_back(id);
        }
    }

    /// Tells whoever keeps the index. Called with no lock but the log's.
    pub(super) fn tell_dropped(&self, gone: impl IntoIterator<Item = Gone>) {
        for (id, facts, links) in gone {
            self.events.dropped(id, &facts, &links);
        }
    }
}

/// The error of a volume that failed before.
pub(super) fn failed() -> io::Error {
    io::Error::other("the device failed before")
}
