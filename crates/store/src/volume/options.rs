//! What can be chosen of a volume, and what it says of itself.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

/// What can be chosen of a volume. Sizes are of use when a device is formatted; later the superblock says them.
#[derive(Debug, Clone)]
pub struct Options {
    /// Bytes of a region: a multiple of 4096 from 64 KiB to 1 GiB. `None`: 64 MiB, or less so that there are at least
    /// 32 of them.
    pub region_size: Option<u32>,
    /// Bytes of the device for which there is one entry, at least 512.
    pub entry_bytes: u32,
    /// Bytes collected before they are written, rounded up to a multiple of 4096.
    pub write_buffer: usize,
    /// Bytes of a body read at once, rounded up to whole blocks.
    pub read_ahead: usize,
    /// Errors of the device on reading after which it has failed.
    pub errors_max: u64,
    /// Rebuild the entries from the records, because journal or checkpoint is lost. Every entry is stale then.
    pub recover: bool,
    /// What a volume formatted now is told from all others by: random.
    pub uuid: [u8; 16],
}

impl Default for Options {
    fn default() -> Self {
        // Each `RandomState` has keys of its own that come from the system.
        let half = || RandomState::new().build_hasher().finish().to_le_bytes();
        let mut uuid = [0; 16];
        uuid[..8].copy_from_slice(&half());
        uuid[8..].copy_from_slice(&half());
        Self {
            region_size: None,
            entry_bytes: 16 << 10,
            write_buffer: 1 << 20,
            read_ahead: 256 << 10,
            errors_max: 100,
            recover: false,
            uuid,
        }
    }
}

/// Whether a volume can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    /// It reads and writes.
    Good,
    /// It reads, and takes no more records: [`Volume::drain`](super::Volume::drain).
    Draining,
    /// It reads what it can, and takes no more writes: the device gave an error on a write, or too many on reads.
    Failed,
}

/// What a volume has done and holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VolumeStatistics {
    /// Bytes of all regions.
    pub bytes_max: u64,
    /// Bytes of records that have an entry.
    pub bytes: u64,
    /// Entries there may be.
    pub entries_max: u64,
    /// Entries there are.
    pub entries: u64,
    /// Bytes of links held in memory.
    pub links_bytes: u64,
    /// Regions.
    pub regions: u64,
    /// Regions with nothing in them.
    pub regions_free: u64,
    /// Regions emptied to make room.
    pub regions_evicted: u64,
    /// Entries dropped because their region was emptied.
    pub evicted: u64,
    /// Records written again because they were hot when their region was emptied.
    pub reinserted: u64,
    /// Records written for the caller.
    pub written: u64,
    /// Bytes of these.
    pub written_bytes: u64,
    /// All bytes written to the device: these, reinserted ones, journal, checkpoints, padding.
    pub device_written_bytes: u64,
    /// Records opened.
    pub opened: u64,
    /// Bytes read from the device since the start, without those of the start.
    pub device_read_bytes: u64,
    /// Errors of the device on reading.
    pub read_errors: u64,
    /// Records that were not as written.
    pub damaged: u64,
    /// Times the journal was made durable.
    pub journal_syncs: u64,
    /// Pages of the journal written.
    pub journal_pages: u64,
    /// Checkpoints written.
    pub checkpoints: u64,
    /// Bans held.
    pub bans: u64,
    /// Records that scrubbing verified.
    pub scrubbed: u64,
}

/// What one step of scrubbing did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ScrubReport {
    /// Records verified.
    pub records: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Records found damaged or unreadable, and dropped.
    pub damaged: u64,
    /// The end was reached; the next step begins anew.
    pub finished: bool,
}
