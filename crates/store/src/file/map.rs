//! A file mapped into memory, to be read only: what goes into the file is written with `pwrite`, which says when it fails.
//!
//! The mapped bytes are for the kernel: a page that cannot be read (the device fails, somebody cut the file short) is
//! `EFAULT` for a system call, and `SIGBUS`, the end of the process, for whoever looks at it otherwise. Who wants to look
//! reads the file ([`super::arena::Arena::read`]).
#![allow(unsafe_code)]

use super::options::Advice;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;

/// The mapping, until it is dropped.
#[derive(Debug)]
pub(crate) struct Map {
    start: NonNull<u8>,
    size: usize,
}

// SAFETY: the mapping belongs to this value, is never written through, and this value hands out addresses only.
unsafe impl Send for Map {}
// SAFETY: as above.
unsafe impl Sync for Map {}

impl Map {
    /// Maps the first `size` bytes of `file`. They are left out of core dumps.
    ///
    /// # Errors
    /// As `mmap(2)`.
    pub(crate) fn new(file: &File, size: usize, advice: Advice) -> io::Result<Self> {
        let nowhere = std::ptr::null_mut();
        // SAFETY: a new mapping at an address that the kernel picks overlaps no memory in use.
        let start =
            unsafe { libc::mmap(nowhere, size, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let map = Self { start: NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?, size };
        let advice = match advice {
            Advice::Normal => libc::MADV_NORMAL,
            Advice::Random => libc::MADV_RANDOM,
            Advice::Sequential => libc::MADV_SEQUENTIAL,
        };
        // What the kernel makes of it is its own affair: it changes no byte.
        // SAFETY: the range is the mapping just made.
        unsafe {
            libc::madvise(start, size, advice);
            libc::madvise(start, size, libc::MADV_DONTDUMP);
        }
        Ok(map)
    }

    /// Where the byte at `offset` stands.
    ///
    /// # Panics
    /// If it lies outside.
    pub(crate) fn address(&self, offset: u64) -> NonNull<u8> {
        assert!(offset < self.size as u64, "an offset outside of the file");
        // SAFETY: within the mapping by the assertion.
        unsafe { self.start.add(offset as usize) }
    }

    /// The offset of an address that [`Map::address`] gave.
    pub(crate) fn offset(&self, address: NonNull<u8>) -> u64 {
        (address.addr().get() - self.start.addr().get()) as u64
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this size; blocks hold the arena that holds this, so none is left.
        unsafe {
            libc::munmap(self.start.as_ptr().cast(), self.size);
        }
    }
}

/// The size of a page of memory.
pub(crate) fn page_size() -> u64 {
    // SAFETY: no memory is involved.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(size).expect("every system has pages")
}

/// Reserves the file's first `size` bytes on its device.
///
/// # Errors
/// As `fallocate(2)`.
pub(crate) fn reserve(file: &File, size: u64) -> io::Result<()> {
    let size = libc::off_t::try_from(size).map_err(|_| io::ErrorKind::InvalidInput)?;
    loop {
        // SAFETY: no memory is involved.
        if unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, size) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Bytes of the file system that `file` lies on which a process without privileges may still take.
///
/// # Errors
/// As `fstatvfs(3)`.
pub(crate) fn free_space(file: &File) -> io::Result<u64> {
    let mut about = std::mem::MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: `about` has room for what is written there.
    if unsafe { libc::fstatvfs(file.as_raw_fd(), about.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has filled it in.
    let about = unsafe { about.assume_init() };
    // One in memory may be bounded by nothing else.
    let is_unbounded = about.f_blocks == 0;
    Ok(if is_unbounded { u64::MAX } else { about.f_bavail.saturating_mul(about.f_frsize) })
}

/// Takes the file for this process alone; false if another has it.
///
/// # Errors
/// As `flock(2)`, but for that.
pub(crate) fn lock(file: &File) -> io::Result<bool> {
    // SAFETY: no memory is involved.
    if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0 {
        return Ok(true);
    }
    match io::Error::last_os_error() {
        error if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        error => Err(error),
    }
}
