//! Memory shared with other processes: with `format::local_time` and `process`, the only unsafe code of the crate.
//!
//! A [`Mapping`] is a file mapped whole, shared, from offset 0. Everything outside this module sees it as slices of
//! atomics, as one struct of atomics ([`View`]), or copies bytes in and out. Who may touch what:
//!
//! * Words reached through [`Mapping::words`] and [`View`] are atomics: any thread, any time.
//! * [`Mapping::copy_in`] writes plain bytes. Its caller owns that range: in the log, the range it has reserved. Readers
//!   of a range that is not yet published, or that has been lapped, may see any bytes; they check afterwards and drop
//!   what they copied.
//! * A read-only mapping is only ever loaded from; `copy_in` refuses it.
//!
//! The file is kept as long as the mapping: our own files are allocated whole when made, so that touching them cannot
//! fail; a foreign file that is cut short while mapped kills the reader, as it does Varnish's own tools.

#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::ops::Deref;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// A shared mapping of a whole file.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    length: usize,
    writable: bool,
}

// SAFETY: the mapping is plain memory owned by this value until drop; all shared access is through atomics or, for
// `copy_in` and `copy_out`, through the ownership rule in the module's documentation.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Makes `file` `length` bytes long, with its blocks allocated, and maps it for writing.
    ///
    /// # Errors
    /// What the kernel says: no room, too long.
    pub fn create(file: &File, length: usize) -> io::Result<Mapping> {
        let size = libc::off_t::try_from(length).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: the descriptor is open for the call's duration; the call touches no memory of ours.
        let failed = unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, size) };
        if failed != 0 {
            return Err(io::Error::from_raw_os_error(failed));
        }
        let mapping = Self::map(file, length, libc::PROT_READ | libc::PROT_WRITE)?;
        mapping.populate();
        Ok(mapping)
    }

    /// Has the kernel bring in all pages now, so that the first pass over the log does not stop at each: on a disk's file
    /// system that can take milliseconds. A kernel older than 5.14 does not know how, and brings them in as they are used.
    fn populate(&self) {
        // SAFETY: the range is this mapping; the call changes no byte of it.
        unsafe {
            libc::madvise(self.base.as_ptr().cast(), self.length, libc::MADV_POPULATE_WRITE);
        }
    }

    /// Maps `file` as it is, for reading.
    ///
    /// # Errors
    /// What the kernel says; an empty file cannot be mapped.
    pub fn open(file: &File) -> io::Result<Mapping> {
        let length = usize::try_from(file.metadata()?.len()).map_err(|_| io::ErrorKind::InvalidData)?;
        Self::map(file, length, libc::PROT_READ)
    }

    fn map(file: &File, length: usize, protection: libc::c_int) -> io::Result<Mapping> {
        if length == 0 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "empty file"));
        }
        // SAFETY: a new mapping at an address the kernel picks cannot overlap memory in use.
        let base = unsafe {
            libc::mmap(std::ptr::null_mut(), length, protection, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Mapping { base, length, writable: protection & libc::PROT_WRITE != 0 })
    }

    /// The length in bytes.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Never: an empty file cannot be mapped.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The mapping as 32-bit words; a rest of fewer than four bytes is left off.
    pub fn words(&self) -> &[AtomicU32] {
        // SAFETY: the base is page-aligned, the length within the mapping, and any bytes are a valid word. A read-only
        // mapping is only loaded from (see the module's documentation).
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().cast(), self.length / 4) }
    }

    /// The mapping as 64-bit words.
    pub fn long_words(&self) -> &[AtomicU64] {
        // SAFETY: as `words`.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().cast(), self.length / 8) }
    }

    /// Copies `bytes` to `offset`. The caller owns that range.
    ///
    /// # Panics
    /// If the range is outside the mapping or the mapping is read-only: a fault of the caller.
    #[inline]
    pub fn copy_in(&self, offset: usize, bytes: &[u8]) {
        assert!(self.writable && offset <= self.length && bytes.len() <= self.length - offset);
        // SAFETY: the range is inside a writable mapping (asserted) and the caller owns it; `bytes` is not part of it,
        // as no safe reference to plain bytes of the mapping exists.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.base.as_ptr().add(offset), bytes.len());
        }
    }

    /// Appends `length` bytes from `offset` to `out`. Nothing is appended, and the answer is false, if the range is
    /// outside the mapping.
    pub fn copy_out(&self, offset: usize, length: usize, out: &mut Vec<u8>) -> bool {
        if offset > self.length || length > self.length - offset {
            return false;
        }
        out.reserve(length);
        // SAFETY: source range checked above, destination reserved, and a fresh vector's spare room overlaps nothing.
        // The bytes may change under the copy; the caller checks afterwards whether they were lapped.
        unsafe {
            let end = out.as_mut_ptr().add(out.len());
            std::ptr::copy_nonoverlapping(self.base.as_ptr().add(offset), end, length);
            out.set_len(out.len() + length);
        }
        true
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this mapping was made by `map`, and every reference into it borrows or owns (`View`) this value.
        unsafe {
            libc::munmap(self.base.as_ptr().cast(), self.length);
        }
    }
}

/// A `repr(C)` struct of nothing but 64-bit atomics, for which any bytes are valid.
///
/// Sealed: implemented in this module for the counter structs.
pub trait Plain: Sync + Send + 'static + sealed::Sealed {}

mod sealed {
    pub trait Sealed {}
    impl Sealed for crate::counters::Counters {}
    impl Sealed for crate::sections::Mgt {}
    impl Sealed for crate::sections::Sma {}
    impl Sealed for crate::sections::Vbe {}
    impl Sealed for crate::sections::Lck {}
    impl Sealed for crate::sections::Mempool {}
}

impl<T: sealed::Sealed + Sync + Send + 'static> Plain for T {}

/// A struct of atomics within a mapping, which it keeps alive.
#[derive(Debug)]
pub struct View<T> {
    at: NonNull<T>,
    _mapping: Arc<Mapping>,
}

// SAFETY: the view gives shared access to `T` only, which is `Sync` and `Send` by `Plain`.
unsafe impl<T: Plain> Send for View<T> {}
// SAFETY: as above.
unsafe impl<T: Plain> Sync for View<T> {}

impl<T: Plain> View<T> {
    /// The struct at byte `offset`.
    ///
    /// # Panics
    /// If it does not fit or is not aligned, or the mapping is read-only: a fault of the caller.
    pub fn new(mapping: Arc<Mapping>, offset: usize) -> View<T> {
        assert!(mapping.writable && offset.is_multiple_of(align_of::<T>()));
        assert!(offset <= mapping.length && size_of::<T>() <= mapping.length - offset);
        // SAFETY: the offset is inside the mapping (asserted).
        let at = unsafe { mapping.base.add(offset) }.cast();
        View { at, _mapping: mapping }
    }
}

impl<T: Plain> Deref for View<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: in range and aligned (asserted in `new`), alive while the view holds the mapping, and any bytes are a
        // valid `T` (`Plain`).
        unsafe { self.at.as_ref() }
    }
}
