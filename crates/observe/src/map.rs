//! Memory shared with other processes: with `format::local_time` and `process`, the only unsafe code of the crate.
//!
//! A [`Mapping`] is a file of ours, mapped whole, shared, from offset 0; a [`Foreign`] is one of another process, which can
//! only be read. Everything outside this module sees the first as slices of atomics, as one struct of atomics ([`View`]),
//! or copies bytes into it; of the second it gets copies. Who may touch what:
//!
//! * Words reached through [`Mapping::words`] and [`View`] are atomics: any thread, any time.
//! * [`Mapping::copy_in`] writes plain bytes. Its caller owns that range: in the log, the range it has reserved. Readers
//!   of a range that is not yet published, or that has been lapped, may see any bytes; they check afterwards and drop
//!   what they copied. Of two writers that come to the same bytes a lap apart the later one has seen that the earlier one
//!   is done (see [`crate::vsl`]).
//! * A foreign mapping is only ever loaded from, by atomic loads: what another process writes meanwhile makes the copy
//!   worthless, and nothing else.
//!
//! The file is kept as long as the mapping: our own files are allocated whole when made, so that touching them cannot
//! fail; a foreign file that is cut short while mapped kills the reader, as it does Varnish's own tools.

#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::ops::{Deref, Range};
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

/// Where a file is mapped; unmapped on drop.
#[derive(Debug)]
struct Area {
    base: NonNull<u8>,
    length: usize,
}

// SAFETY: the mapping is plain memory owned by this value until drop; all shared access is through atomics or, for
// `copy_in`, through the ownership rule in the module's documentation.
unsafe impl Send for Area {}
// SAFETY: as above.
unsafe impl Sync for Area {}

impl Area {
    fn map(file: &File, length: usize, protection: libc::c_int) -> io::Result<Area> {
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
        Ok(Area { base, length })
    }

    /// The area as 32-bit words; a rest of fewer than four bytes is left off.
    fn words(&self) -> &[AtomicU32] {
        // SAFETY: the base is page-aligned, the length within the mapping, and any bytes are a valid word. Loads of this
        // size, relaxed or acquiring, are allowed in memory that cannot be written; others are only made where it can.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().cast(), self.length / 4) }
    }

    /// As 64-bit words.
    fn long_words(&self) -> &[AtomicU64] {
        // SAFETY: as `words`.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().cast(), self.length / 8) }
    }

    fn bytes(&self) -> &[AtomicU8] {
        // SAFETY: as `words`.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().cast(), self.length) }
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: this mapping was made by `map`, and every reference into it borrows or owns (`View`) this value.
        unsafe {
            libc::munmap(self.base.as_ptr().cast(), self.length);
        }
    }
}

/// A file of ours, mapped whole for writing.
#[derive(Debug)]
pub struct Mapping(Area);

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
        let mapping = Mapping(Area::map(file, length, libc::PROT_READ | libc::PROT_WRITE)?);
        mapping.populate();
        Ok(mapping)
    }

    /// Has the kernel bring in all pages now, so that the first pass over the log does not stop at each: on a disk's file
    /// system that can take milliseconds. A kernel older than 5.14 does not know how, and brings them in as they are used.
    fn populate(&self) {
        // SAFETY: the range is this mapping; the call changes no byte of it.
        unsafe {
            libc::madvise(self.0.base.as_ptr().cast(), self.0.length, libc::MADV_POPULATE_WRITE);
        }
    }

    /// The mapping as 32-bit words; a rest of fewer than four bytes is left off.
    pub fn words(&self) -> &[AtomicU32] {
        self.0.words()
    }

    /// The mapping as 64-bit words.
    pub fn long_words(&self) -> &[AtomicU64] {
        self.0.long_words()
    }

    /// Copies `bytes` to `offset`. The caller owns that range.
    ///
    /// # Panics
    /// If the range is outside the mapping: a fault of the caller.
    #[inline]
    pub fn copy_in(&self, offset: usize, bytes: &[u8]) {
        let Area { base, length } = &self.0;
        assert!(offset <= *length && bytes.len() <= *length - offset);
        // SAFETY: the range is inside a writable mapping (asserted) and the caller owns it; `bytes` is not part of it,
        // as no safe reference to plain bytes of the mapping exists.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), base.as_ptr().add(offset), bytes.len());
        }
    }
}

/// A file of another process, mapped whole for reading.
#[derive(Debug)]
pub struct Foreign(Area);

impl Foreign {
    /// Maps `file` as it is.
    ///
    /// # Errors
    /// What the kernel says; an empty file cannot be mapped.
    pub fn open(file: &File) -> io::Result<Foreign> {
        let length = usize::try_from(file.metadata()?.len()).map_err(|_| io::ErrorKind::InvalidData)?;
        Ok(Foreign(Area::map(file, length, libc::PROT_READ)?))
    }

    /// The length in bytes.
    pub fn len(&self) -> usize {
        self.0.length
    }

    /// Never: an empty file cannot be mapped.
    pub fn is_empty(&self) -> bool {
        self.0.length == 0
    }

    /// The 32-bit word of that number, with what was written before it; `None` outside the mapping.
    pub fn word(&self, index: usize) -> Option<u32> {
        Some(self.0.words().get(index)?.load(Ordering::Acquire))
    }

    /// The 64-bit word of that number, as [`Foreign::word`].
    pub fn long_word(&self, index: usize) -> Option<u64> {
        Some(self.0.long_words().get(index)?.load(Ordering::Acquire))
    }

    /// Appends `length` bytes from `offset` to `out`. Nothing is appended, and the answer is false, if the range is
    /// outside the mapping. The bytes may change under the copy; the caller checks afterwards whether they did.
    pub fn copy_out(&self, offset: usize, length: usize, out: &mut Vec<u8>) -> bool {
        if offset > self.len() || length > self.len() - offset {
            return false;
        }
        out.reserve(length);
        let (end, words) = (offset + length, self.0.words());
        // Words where they are whole, and single bytes around them.
        let first = offset.next_multiple_of(4).min(end);
        let last = first + (end - first) / 4 * 4;
        let bytes =
            |range: Range<usize>| self.0.bytes()[range].iter().map(|byte| byte.load(Ordering::Relaxed));
        out.extend(bytes(offset..first));
        for word in &words[first / 4..last / 4] {
            out.extend_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
        }
        out.extend(bytes(last..end));
        true
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
    impl Sealed for crate::sections::Smf {}
    impl Sealed for crate::sections::Dev {}
    impl Sealed for crate::sections::Vbe {}
    impl Sealed for crate::sections::Lck {}
    impl Sealed for crate::sections::Mempool {}
    impl Sealed for crate::sections::Xkey {}
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
    /// If it does not fit or is not aligned: a fault of the caller.
    pub fn new(mapping: Arc<Mapping>, offset: usize) -> View<T> {
        let Area { base, length } = mapping.0;
        assert!(offset.is_multiple_of(align_of::<T>()));
        assert!(offset <= length && size_of::<T>() <= length - offset);
        // SAFETY: the offset is inside the mapping (asserted).
        let at = unsafe { base.add(offset) }.cast();
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vsm::tests::Scratch;

    #[test]
    fn what_is_copied_out_is_what_was_copied_in_at_any_offset() {
        let scratch = Scratch::new();
        let path = scratch.0.join("map");
        let file = File::options().read(true).write(true).create_new(true).open(path).unwrap();
        let content: Vec<u8> = (0..=40).collect();
        let mapping = Mapping::create(&file, content.len()).unwrap();
        mapping.copy_in(0, &content);
        let foreign = Foreign::open(&file).unwrap();
        assert_eq!((foreign.len(), mapping.words().len(), mapping.long_words().len()), (41, 10, 5));
        for offset in 0..=content.len() {
            for length in 0..=content.len() + 1 - offset {
                let mut out = vec![7];
                let fits = foreign.copy_out(offset, length, &mut out);
                assert_eq!(fits, offset + length <= content.len());
                assert_eq!(out[1..], content[offset..offset + if fits { length } else { 0 }]);
            }
        }
        assert!(!foreign.copy_out(usize::MAX, 2, &mut Vec::new()));
        assert_eq!((foreign.word(9), foreign.word(10)), (Some(u32::from_ne_bytes([36, 37, 38, 39])), None));
        assert_eq!((foreign.long_word(5), foreign.long_word(4).is_some()), (None, true));
    }
}
