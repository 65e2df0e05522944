//! What an engine says of itself to people: for `storage.list`.

use crate::engine::Health;
use crate::volume::VolumeStatistics;
use std::path::PathBuf;

/// A store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Bytes that it may keep; `None` if there is no limit.
    pub size: Option<u64>,
    /// Bytes that it keeps.
    pub used: u64,
    /// Objects in memory.
    pub objects: u64,
    /// Objects known, in memory or not; `None` for a store that has no others.
    pub entries: Option<u64>,
    /// Whether it can be used.
    pub health: Health,
    /// What it is kept on, in the order of the command line; nothing for memory.
    pub devices: Vec<DeviceReport>,
}

/// A device of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceReport {
    /// Where it is.
    pub path: PathBuf,
    /// Bytes that it may keep.
    pub size: u64,
    /// Bytes that it keeps.
    pub used: u64,
    /// Objects that it keeps.
    pub entries: u64,
    /// Whether it can be used.
    pub health: Health,
    /// Its tier; 0 is the fastest.
    pub tier: usize,
    /// Bytes that wait to be written.
    pub unwritten: u64,
    /// What its log has done.
    pub log: VolumeStatistics,
}

impl Health {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Degraded => "degraded",
            Self::Draining => "draining",
            Self::Drained => "drained",
            Self::Failed => "failed",
        }
    }
}
