//! The log of one device: records in regions, entries for them in memory, a journal and checkpoints for a start.
//!
//! Bytes in, bytes out: it knows no objects, no HTTP and no memory engine. The format is told in
//! `docs/storage-format.md`. All calls block the thread that makes them.

mod error;
mod events;
mod facts;
mod options;

pub use error::{BanError, OpenError, ReadError, WriteError};
pub use events::{Events, Fate};
pub use facts::{EntryId, Facts, NewRecord};
pub use options::{Health, Options, ScrubReport, VolumeStatistics};

use crate::device::Device;
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

/// A ban: its number, its time in seconds since 1970, its text.
pub type Ban = (u32, f64, Vec<u8>);

/// The log of one device. This commit has its face only: nothing is stored yet.
pub struct Volume {
    device: Arc<dyn Device>,
    _events: Arc<dyn Events>,
}

impl Volume {
    /// Opens the volume of `device`; formats it if it is new (its first and last 4 KiB are zero).
    ///
    /// # Errors
    /// See [`OpenError`]; nothing was written then, unless it is `Io`.
    pub fn open(
        device: Arc<dyn Device>,
        _options: &Options,
        events: Arc<dyn Events>,
    ) -> Result<Self, OpenError> {
        Ok(Self { device, _events: events })
    }

    /// The size of the largest record in bytes: header, parts and body.
    pub fn record_max(&self) -> u64 {
        self.device.size()
    }

    /// Appends a record. May empty a region.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub fn write(&self, _record: &NewRecord<'_>) -> Result<EntryId, WriteError> {
        Err(WriteError::Full)
    }

    /// Opens a record and verifies all but its body. The first read of the device takes `read_first` bytes.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn open_record(&self, _id: EntryId, _read_first: usize) -> Result<RecordReader, ReadError> {
        Err(ReadError::Gone)
    }

    /// What is known of an entry.
    pub fn facts(&self, _id: EntryId) -> Option<Facts> {
        None
    }

    /// The links of an entry that has any.
    pub fn links(&self, _id: EntryId) -> Option<Box<[u8]>> {
        None
    }

    /// Calls `each` with every entry there is. Entries that come or go meanwhile may or may not be among them.
    pub fn for_each(&self, _each: impl FnMut(EntryId, &Facts, &[u8])) {}

    /// Takes an entry out.
    pub fn remove(&self, _id: EntryId) {}

    /// Gives an entry other times. Of a piece only `keep` is taken.
    pub fn set_times(&self, _id: EntryId, _origin_time: f64, _ttl: f32, _grace: f32, _keep: f32) {}

    /// Notes the newest ban that an entry has been tested against.
    pub fn set_ban(&self, _id: EntryId, _ban: u32) {}

    /// Notes use in memory; a checkpoint makes it durable.
    pub fn note_use(&self, _id: EntryId, _hits: u16, _last_use: u32) {}

    /// Keeps a ban; durable on return.
    ///
    /// # Errors
    /// See [`BanError`].
    pub fn add_ban(&self, _number: u32, _time: f64, _text: &[u8]) -> Result<(), BanError> {
        Err(BanError::Full)
    }

    /// Forgets the bans for whose number `keep` says no. They may be there again after a restart.
    pub fn drop_bans(&self, _keep: &dyn Fn(u32) -> bool) {}

    /// The bans, in the order in which they were added.
    pub fn bans(&self) -> Vec<Ban> {
        Vec::new()
    }

    /// Makes pending changes durable, and writes a checkpoint if one is due. For a thread that calls it regularly.
    ///
    /// # Errors
    /// The device's; the volume has failed then.
    pub fn tick(&self) -> io::Result<()> {
        Ok(())
    }

    /// Makes every removal and every change of times or bans before the call durable.
    ///
    /// # Errors
    /// The device's; the volume has failed then, and nothing is promised.
    pub fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    /// Writes out what records were collected, and makes all durable.
    ///
    /// # Errors
    /// The device's; the volume has failed then.
    pub fn flush_data(&self) -> io::Result<()> {
        Ok(())
    }

    /// Ends in order: everything written out, and a checkpoint, so that the next start has nothing to replay.
    ///
    /// # Errors
    /// The device's.
    pub fn close(&self) -> io::Result<()> {
        Ok(())
    }

    /// Verifies the next records, about `bytes_max` bytes of them, and drops those that are damaged.
    pub fn scrub(&self, _bytes_max: u64) -> ScrubReport {
        ScrubReport::default()
    }

    /// Takes no more records from now on; what is there can be read and removed.
    pub fn drain(&self) {}

    /// Whether it can be used.
    pub fn health(&self) -> Health {
        Health::Good
    }

    /// What it has done and holds.
    pub fn statistics(&self) -> VolumeStatistics {
        VolumeStatistics::default()
    }
}

/// A record being read. All that it gives was verified.
#[derive(Debug)]
pub struct RecordReader {
    key: [u8; 32],
    facts: Facts,
    vxid: u32,
    variant: Box<[u8]>,
    head: Box<[u8]>,
    plan: Option<Box<[u8]>>,
    links: Box<[u8]>,
    body_length: u64,
}

impl RecordReader {
    /// The whole key.
    pub fn key(&self) -> &[u8; 32] {
        &self.key
    }

    /// What the entry said when the record was opened; of a piece, the times that it was written with.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// The transaction that fetched it.
    pub fn vxid(&self) -> u32 {
        self.vxid
    }

    /// What tells the variant from others.
    pub fn variant(&self) -> &[u8] {
        &self.variant
    }

    /// The head.
    pub fn head(&self) -> &[u8] {
        &self.head
    }

    /// The plan of the body.
    pub fn plan(&self) -> Option<&[u8]> {
        self.plan.as_deref()
    }

    /// What ties the entry to others.
    pub fn links(&self) -> &[u8] {
        &self.links
    }

    /// The length of the body.
    pub fn body_length(&self) -> u64 {
        self.body_length
    }

    /// Gives the next bytes of the body: how many, 0 at its end (or for an empty `out`).
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn next(&mut self, _out: &mut [u8]) -> Result<usize, ReadError> {
        Ok(0)
    }
}
