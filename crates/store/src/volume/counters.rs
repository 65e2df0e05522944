//! What is counted without a lock.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that only grows.
#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    pub(super) fn add(&self, count: u64) -> u64 {
        self.0.fetch_add(count, Ordering::Relaxed) + count
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// See [`VolumeStatistics`](super::VolumeStatistics) for what they mean.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) regions_evicted: Counter,
    pub(super) evicted: Counter,
    pub(super) reinserted: Counter,
    pub(super) written: Counter,
    pub(super) written_bytes: Counter,
    pub(super) device_written_bytes: Counter,
    pub(super) opened: Counter,
    pub(super) device_read_bytes: Counter,
    pub(super) read_errors: Counter,
    pub(super) damaged: Counter,
    pub(super) journal_syncs: Counter,
    pub(super) journal_pages: Counter,
    pub(super) checkpoints: Counter,
    pub(super) scrubbed: Counter,
}
