//! The log of one device: records in regions, entries for them in memory, a journal and checkpoints for a start.
//!
//! Bytes in, bytes out: it knows no objects, no HTTP and no memory engine. The format is told in
//! `docs/storage-format.md`. All calls block the thread that makes them.

mod append;
mod bans;
mod buffer;
mod bytes;
mod change;
mod checkpoint;
mod core;
mod counters;
mod entry;
mod error;
mod events;
mod evict;
mod facts;
mod inner;
mod journal;
mod mirror;
mod options;
mod page;
mod reader;
mod record;
mod recover;
mod scrub;
mod start;
mod superblock;

pub use error::{BanError, OpenError, ReadError, WriteError};
pub use events::{Events, Fate};
pub use facts::{EntryId, Facts, NewRecord};
pub use options::{Health, Options, ScrubReport, VolumeStatistics};
pub use reader::RecordReader;

use crate::device::Device;
use change::Times;
use inner::Inner;
use std::io;
use std::sync::Arc;

/// The version of the format.
pub const VERSION: u32 = 1;
/// The longest variant, in bytes.
pub const VARIANT_MAX: usize = 64 << 10;
/// The longest head, in bytes.
pub const HEAD_MAX: usize = 16 << 20;
/// The longest plan, in bytes.
pub const PLAN_MAX: usize = 16 << 20;
/// The longest links of one entry, in bytes.
pub const LINKS_MAX: usize = 16 << 10;
/// The longest ban, in bytes.
pub const BAN_MAX: usize = 64 << 10;

/// What records are aligned to, and what their sizes are counted in, in bytes.
const UNIT: u64 = 512;
/// The unit of a region in which its first record may begin: after the header.
const FIRST_UNIT: u32 = (page::PAGE as u64 / UNIT) as u32;
/// More than any number on a device that came to be by counting.
const COUNTED_MAX: u64 = u64::MAX / 4;
/// The number of no region.
const NO_REGION: u32 = u32::MAX;

/// A ban: its number, its time in seconds since 1970, its text.
pub type Ban = (u32, f64, Vec<u8>);

/// The log of one device. See the module.
pub struct Volume {
    inner: Arc<Inner>,
}

impl Volume {
    /// Opens the volume of `device`; formats it if it is new (its first and last 4 KiB are zero).
    ///
    /// # Errors
    /// See [`OpenError`]. Nothing was written then, unless it is `Io`.
    pub fn open(
        device: Arc<dyn Device>,
        options: &Options,
        events: Arc<dyn Events>,
    ) -> Result<Self, OpenError> {
        let started = start::start(&*device, options)?;
        let inner = Inner::new(device, events, options, started);
        if options.recover {
            for _ in 0..2 {
                inner
                    .write_checkpoint(None)
                    .map_err(|source| OpenError::Io { doing: "writing the list of objects", source })?;
            }
        }
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Whether a volume made with `options` may have `size` bytes.
    ///
    /// # Errors
    /// [`OpenError::TooSmall`], [`OpenError::Option`].
    pub fn check_size(size: u64, options: &Options) -> Result<(), OpenError> {
        superblock::Superblock::for_device(size, options).map(|_| ())
    }

    /// Whether `device` is new, or has a volume, as far as its superblocks say. Reads only, so that what is wrong can be said
    /// before anything depends on it. [`Volume::open`] may find more.
    ///
    /// # Errors
    /// As [`Volume::open`].
    pub fn check_device(device: &dyn Device, options: &Options) -> Result<(), OpenError> {
        start::check(device, options)
    }

    /// The size of the largest record in bytes: header (160 bytes and 4 for 64 KiB of body), parts and body.
    pub fn record_max(&self) -> u64 {
        self.inner.record_max()
    }

    /// Appends a record. May empty a region, and asks and tells [`Events`] then.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub fn write(&self, record: &NewRecord<'_>) -> Result<EntryId, WriteError> {
        self.inner.write(record)
    }

    /// Opens a record and verifies all but its body. The first read of the device takes `read_first` bytes of it.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn open_record(&self, id: EntryId, read_first: usize) -> Result<RecordReader, ReadError> {
        RecordReader::open(&self.inner, id, read_first)
    }

    /// What is known of an entry. Takes no lock.
    pub fn facts(&self, id: EntryId) -> Option<Facts> {
        self.inner.table.load(id).map(|known| known.facts)
    }

    /// The links of an entry that has any.
    pub fn links(&self, id: EntryId) -> Option<Box<[u8]>> {
        self.inner.table.load(id).filter(|known| known.has_links)?;
        Some(self.inner.core.lock().links(id)).filter(|links| !links.is_empty()).map(Into::into)
    }

    /// Calls `each` with every entry there is, with no lock held. Entries that come or go meanwhile may or may not be
    /// among them.
    pub fn for_each(&self, mut each: impl FnMut(EntryId, &Facts, &[u8])) {
        let end = self.inner.core.lock().entries_end;
        for id in (0..end).map(EntryId) {
            let Some(known) = self.inner.table.load(id) else { continue };
            let links = if known.has_links { self.links(id).unwrap_or_default() } else { Box::default() };
            each(id, &known.facts, &links);
        }
    }

    /// The entry with the lowest number from `from` on.
    pub fn next_entry(&self, from: EntryId) -> Option<EntryId> {
        let end = self.inner.core.lock().entries_end;
        (from.0..end).map(EntryId).find(|id| self.inner.table.load(*id).is_some())
    }

    /// Takes an entry out. Durable with the next [`sync`](Self::sync) or [`tick`](Self::tick), as all changes are; when
    /// many of them are pending this waits until they are written.
    pub fn remove(&self, id: EntryId) {
        self.inner.change().remove(&self.inner.table, id);
    }

    /// Gives an entry other times, if its record's key begins with `key`: its number may stand for another record since
    /// the caller learned it. Of a piece only `keep` is taken. Says whether it was done.
    pub fn set_times(
        &self,
        id: EntryId,
        key: &[u8; 16],
        origin_time: f64,
        ttl: f32,
        grace: f32,
        keep: f32,
    ) -> bool {
        let times = Times { origin_time, ttl, grace, keep };
        self.inner.change().set_times(&self.inner.table, id, key, &times)
    }

    /// Notes the newest ban that an entry has been tested against, if its record's key begins with `key`. Says whether it
    /// was done.
    pub fn set_ban(&self, id: EntryId, key: &[u8; 16], ban: u32) -> bool {
        self.inner.change().set_ban(&self.inner.table, id, key, ban)
    }

    /// As [`set_ban`](Self::set_ban), but in memory alone: a checkpoint makes it durable. Never waits for the device.
    pub fn note_ban(&self, id: EntryId, key: &[u8; 16], ban: u32) -> bool {
        self.inner.core.lock().note_ban(&self.inner.table, id, key, ban)
    }

    /// Writes a checkpoint now: what was noted of use and bans is durable on return.
    ///
    /// # Errors
    /// The device's; the volume has failed then.
    pub fn checkpoint(&self) -> io::Result<()> {
        self.inner.write_checkpoint(None)
    }

    /// Notes use in memory; a checkpoint makes it durable. Takes no lock.
    pub fn note_use(&self, id: EntryId, hits: u16, last_use: u32) {
        if let Some(entry) = self.inner.table.get(id) {
            entry.note_use(hits, last_use);
        }
    }

    /// Keeps a ban; durable on return. Numbers are the caller's.
    ///
    /// # Errors
    /// See [`BanError`].
    pub fn add_ban(&self, number: u32, time: f64, text: &[u8]) -> Result<(), BanError> {
        let mut bans = self.inner.bans.lock();
        if self.inner.has_failed() {
            return Err(BanError::Failed);
        }
        let added = bans.add(&*self.inner.device, (number, time, text.to_vec()), &self.inner.counters);
        if matches!(added, Err(BanError::Io(_))) {
            self.inner.fail();
        }
        added
    }

    /// Forgets the bans for whose number `keep` says no. They may be there again after a restart.
    pub fn drop_bans(&self, keep: &dyn Fn(u32) -> bool) {
        self.inner.bans.lock().list.retain(|(number, ..)| keep(*number));
    }

    /// The bans, in the order in which they were added.
    pub fn bans(&self) -> Vec<Ban> {
        self.inner.bans.lock().list.clone()
    }

    /// Makes pending changes durable, and writes a checkpoint if one is due. For a thread that calls it regularly.
    ///
    /// # Errors
    /// The device's; the volume has failed then.
    pub fn tick(&self) -> io::Result<()> {
        self.inner.commit()?;
        if self.inner.is_checkpoint_due() { self.inner.write_checkpoint(None) } else { Ok(()) }
    }

    /// Makes every removal and every change of times or bans before the call durable.
    ///
    /// # Errors
    /// The device's; the volume has failed then, and nothing is promised.
    pub fn sync(&self) -> io::Result<()> {
        self.inner.commit()
    }

    /// Hands what records were collected to the device, so that a kill of the process does not lose them; a power cut still
    /// may. Up to a page of room goes with each call.
    ///
    /// # Errors
    /// The device's; the volume has failed then.
    pub fn write_collected(&self) -> io::Result<()> {
        let mut log = self.inner.log.lock();
        if self.inner.has_failed() {
            return Err(inner::failed());
        }
        self.inner.flush_log(&mut log)
    }

    /// Writes out what records were collected, and makes all durable.
    ///
    /// # Errors
    /// The device's; the volume has failed then.
    pub fn flush_data(&self) -> io::Result<()> {
        let mut log = self.inner.log.lock();
        if self.inner.has_failed() {
            return Err(inner::failed());
        }
        self.inner.flush_log(&mut log)?;
        drop(log);
        self.inner.commit()?;
        self.inner.noticing(self.inner.device.sync())
    }

    /// Ends in order: everything written out, and a checkpoint, so that the next start has nothing to replay. No record
    /// can be written after it.
    ///
    /// # Errors
    /// The device's.
    pub fn close(&self) -> io::Result<()> {
        let mut log = self.inner.log.lock();
        if self.inner.has_failed() {
            return Err(inner::failed());
        }
        self.inner.close();
        self.inner.flush_log(&mut log)?;
        self.inner.write_checkpoint(Some(log.open.or(log.resume)))
    }

    /// Verifies the next records, about `bytes_max` bytes of them, and drops those that are damaged.
    pub fn scrub(&self, bytes_max: u64) -> ScrubReport {
        self.inner.scrub(bytes_max)
    }

    /// Takes no more records from now on; what is there can be read and removed.
    pub fn drain(&self) {
        self.inner.drain();
    }

    /// Takes records again after [`drain`](Self::drain); not once it has failed or was closed.
    pub fn undrain(&self) {
        self.inner.undrain();
    }

    /// Whether it can be used.
    pub fn health(&self) -> Health {
        self.inner.health()
    }

    /// How full it is, in millionths of its regions' bytes. Never waits for the device.
    pub fn fullness(&self) -> u64 {
        let superblock = &self.inner.superblock;
        let most = u64::from(superblock.region_count) * u64::from(superblock.region_size);
        (self.inner.core.lock().live_units * UNIT).saturating_mul(1_000_000) / most.max(1)
    }

    /// What it has done and holds.
    pub fn statistics(&self) -> VolumeStatistics {
        let inner = &self.inner;
        let (superblock, counters) = (&inner.superblock, &inner.counters);
        let bans = inner.bans.lock().list.len() as u64;
        let core = inner.core.lock();
        VolumeStatistics {
            bytes_max: u64::from(superblock.region_count) * u64::from(superblock.region_size),
            bytes: core.live_units * UNIT,
            entries_max: u64::from(superblock.entries_max),
            entries: core.entries,
            links_bytes: core.links_bytes,
            regions: u64::from(superblock.region_count),
            regions_free: core.free_regions.len() as u64,
            regions_evicted: counters.regions_evicted.get(),
            evicted: counters.evicted.get(),
            reinserted: counters.reinserted.get(),
            written: counters.written.get(),
            written_bytes: counters.written_bytes.get(),
            device_written_bytes: counters.device_written_bytes.get(),
            opened: counters.opened.get(),
            device_read_bytes: counters.device_read_bytes.get(),
            read_errors: counters.read_errors.get(),
            damaged: counters.damaged.get(),
            journal_syncs: counters.journal_syncs.get(),
            journal_pages: counters.journal_pages.get(),
            checkpoints: counters.checkpoints.get(),
            bans,
            scrubbed: counters.scrubbed.get(),
        }
    }

    /// Checks what must always hold, and panics if it does not: for tests, while nothing else uses the volume.
    pub fn check(&self) {
        self.inner.core.lock().check(&self.inner.table);
    }
}

impl std::fmt::Debug for Volume {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Volume").field("superblock", &self.inner.superblock).finish_non_exhaustive()
    }
}
