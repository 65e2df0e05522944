//! One file's memory: extents of it are given out as blocks, read by the kernel through the map or by us with `pread`, and
//! written with `pwrite`.
//!
//! An error of the device is thus an answer, never a signal. The first one marks the file as damaged: no extent is given
//! out any more, and readers are cut off.

use super::extents::{Counts, Extents};
use super::map::Map;
use super::open::Opened;
use super::options::{Advice, OpenError};
use crate::block::Block;
use parking_lot::Mutex;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// An extent shorter than asked for is given if it has at least so many bytes: else others are evicted for it.
const SHORTEST: u64 = 32 << 10;

/// See the module.
#[derive(Debug)]
pub(crate) struct Arena {
    map: Map,
    file: File,
    path: PathBuf,
    size: u64,
    granularity: u64,
    extents: Mutex<Extents>,
    damaged: AtomicBool,
    pub(crate) requests: AtomicU64,
    pub(crate) failures: AtomicU64,
    bytes_total: AtomicU64,
    bytes_freed: AtomicU64,
}

/// What a file has given out, with the meaning of Varnish's `SMF` counters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FileStatistics {
    /// Requests for an extent.
    pub requests: u64,
    /// Requests that found no room.
    pub failures: u64,
    /// Bytes given out since the start.
    pub bytes_total: u64,
    /// Bytes taken back since the start.
    pub bytes_freed: u64,
    /// Extents given out.
    pub extents: u64,
    /// Bytes given out.
    pub bytes: u64,
    /// Bytes free.
    pub space: u64,
    /// Free extents of fewer than 128 granules.
    pub free_small: u64,
    /// Free extents of more.
    pub free_large: u64,
}

impl Arena {
    /// The whole of a file.
    pub(super) fn new(opened: Opened, advice: Advice) -> Result<Self, OpenError> {
        let Opened { file, path, size, granularity } = opened;
        let mapped = usize::try_from(size)
            .map_err(|_| io::ErrorKind::OutOfMemory.into())
            .and_then(|size| Map::new(&file, size, advice));
        let map = match mapped {
            Ok(map) => map,
            Err(error) => return Err(OpenError::Other("mapping", path, error)),
        };
        Ok(Self {
            map,
            file,
            path,
            size,
            granularity,
            extents: Mutex::new(Extents::new(size / granularity)),
            damaged: AtomicBool::new(false),
            requests: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            bytes_total: AtomicU64::new(0),
            bytes_freed: AtomicU64::new(0),
        })
    }

    /// The file's size.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Where the file is.
    pub(crate) fn path(&self) -> &std::path::Path {
        &self.path
    }

    /// How many bytes of the file `bytes` take.
    pub(crate) fn rounded(&self, bytes: u64) -> u64 {
        bytes.next_multiple_of(self.granularity)
    }

    /// A block of about `wanted` bytes, but of at most `most`; `None` if there is no free extent that would do.
    pub(crate) fn allocate(self: &Arc<Self>, wanted: u64, most: u64) -> Option<Block> {
        if self.is_damaged() {
            return None;
        }
        let wanted = self.rounded(wanted.max(1)) / self.granularity;
        let least = wanted.min((SHORTEST / self.granularity).max(1));
        let (start, length) = self.extents.lock().take(wanted, least)?;
        let (offset, length) = (start * self.granularity, length * self.granularity);
        self.bytes_total.fetch_add(length, Ordering::Relaxed);
        Some(Block::in_file(Arc::clone(self), self.map.address(offset), length.min(most) as usize))
    }

    /// Takes back a block's extent.
    pub(crate) fn release(&self, start: NonNull<u8>, size: usize) {
        let length = self.rounded(size as u64);
        self.bytes_freed.fetch_add(length, Ordering::Relaxed);
        let start = self.map.offset(start) / self.granularity;
        self.extents.lock().give_back(start, length / self.granularity);
    }

    /// Takes back the end of a block's extent: of `size` bytes the first `kept` stay, which are not none.
    pub(crate) fn cut(&self, start: NonNull<u8>, size: usize, kept: usize) {
        let (whole, kept) = (self.rounded(size as u64), self.rounded(kept.max(1) as u64));
        if kept < whole {
            self.bytes_freed.fetch_add(whole - kept, Ordering::Relaxed);
            let from = (self.map.offset(start) + kept) / self.granularity;
            self.extents.lock().cut(from, (whole - kept) / self.granularity);
        }
    }

    /// Reads the bytes at `start + from` into `buffer`, all of it.
    ///
    /// # Errors
    /// They cannot be read. The file is damaged then.
    pub(crate) fn read(&self, start: NonNull<u8>, from: usize, buffer: &mut [u8]) -> io::Result<()> {
        let offset = self.map.offset(start) + from as u64;
        self.file.read_exact_at(buffer, offset).inspect_err(|_| self.damage())
    }

    /// Writes `bytes` to `start + to`.
    ///
    /// # Errors
    /// They cannot be written. The file is damaged then.
    pub(crate) fn write(&self, start: NonNull<u8>, to: usize, bytes: &[u8]) -> io::Result<()> {
        let offset = self.map.offset(start) + to as u64;
        debug_assert!(offset + bytes.len() as u64 <= self.size, "a write beyond the file's end");
        self.file.write_all_at(bytes, offset).inspect_err(|_| self.damage())
    }

    /// From now on nothing is kept here.
    pub(crate) fn damage(&self) {
        self.damaged.store(true, Ordering::Release);
    }

    /// Whether reading or writing it has failed.
    pub(crate) fn is_damaged(&self) -> bool {
        self.damaged.load(Ordering::Acquire)
    }

    /// Bytes given out.
    pub(crate) fn used(&self) -> u64 {
        // In this order: what was given out before a byte came back is then counted.
        let freed = self.bytes_freed.load(Ordering::Acquire);
        self.bytes_total.load(Ordering::Relaxed).saturating_sub(freed)
    }

    pub(crate) fn statistics(&self) -> FileStatistics {
        let Counts { used, given_out, free_small, free_large } = self.extents.lock().counts();
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        FileStatistics {
            requests: load(&self.requests),
            failures: load(&self.failures),
            bytes_total: load(&self.bytes_total),
            bytes_freed: load(&self.bytes_freed),
            extents: given_out,
            bytes: used * self.granularity,
            space: self.size - used * self.granularity,
            free_small,
            free_large,
        }
    }
}
