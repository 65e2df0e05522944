//! A piece of memory with one writer and many readers: bytes below the fill mark are final, bytes above belong to the
//! writer alone.
//!
//! Who may touch what, when:
//!
//! | bytes | writer ([`crate::Fill`], unique) | readers |
//! |---|---|---|
//! | below the mark | never again | at any time, after loading the mark with `Acquire` |
//! | at and above the mark | through [`Block::room`] | never |
//!
//! Of a block in a file the kernel alone reads through the map, and nobody writes through it: see [`crate::file`]. Its
//! writer may cut it behind the mark, so its size shrinks while others read.
//!
//! A block may also stand for the body's part in an object's first block ([`Block::of_object`]): all of that is below the
//! mark, and nobody writes it.
//!
//! The mark itself lives with the object (it counts over all its blocks) and is moved with `Release` after the write.
#![allow(unsafe_code)]

use crate::file::arena::Arena;
use crate::object::Object;
use crate::pool;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The largest block that is cut from a slab. None is under a sanitizer: it watches blocks that the allocator gives, not
/// those within them.
const POOLED_MAX: usize = if cfg!(copal_sanitize) { 0 } else { pool::LARGEST };

/// Memory of `size` bytes, initialised, aligned to [`pool::ALIGNMENT`]. What earlier owners wrote may still stand in it.
/// The process ends if the machine has no memory left, as with any allocation.
pub(crate) fn allocate(size: usize) -> NonNull<u8> {
    if size == 0 {
        return NonNull::<u128>::dangling().cast();
    }
    if size <= POOLED_MAX {
        return pool::take(size);
    }
    let layout = layout(size);
    // SAFETY: the layout has a size above zero.
    let start = unsafe { alloc_zeroed(layout) };
    NonNull::new(start).unwrap_or_else(|| handle_alloc_error(layout))
}

/// Frees what [`allocate`] gave.
///
/// # Safety
/// `start` came from [`allocate`] with this `size`, and nobody uses it any more.
pub(crate) unsafe fn release(start: NonNull<u8>, size: usize) {
    match size {
        0 => {}
        // SAFETY: from the pool by the same rule as in `allocate`; the rest is passed on to the caller.
        _ if size <= POOLED_MAX => unsafe { pool::give_back(start, size) },
        // SAFETY: allocated with this layout; the rest is passed on to the caller.
        _ => unsafe { dealloc(start.as_ptr(), layout(size)) },
    }
}

fn layout(size: usize) -> Layout {
    Layout::from_size_align(size, pool::ALIGNMENT).expect("a block is far smaller than the address space")
}

/// A fixed piece of memory, or of a file.
#[derive(Debug)]
pub(crate) struct Block {
    start: NonNull<u8>,
    size: AtomicUsize,
    home: Home,
}

/// Whose a block's bytes are.
#[derive(Debug)]
enum Home {
    /// Its own.
    Memory,
    /// Of a file. `start` is where it is mapped then.
    File(Arc<Arena>),
    /// Of the first block of an object, which keeps them while this block lives.
    Object {
        #[expect(dead_code, reason = "held, not looked at")]
        owner: Arc<Object>,
    },
}

// SAFETY: the memory is owned; the table above says that no byte is written while another thread may read it.
unsafe impl Send for Block {}
// SAFETY: as above: shared access reads only bytes below the mark, which are final.
unsafe impl Sync for Block {}

impl Block {
    /// A block of `size` bytes; see [`allocate`].
    pub(crate) fn new(size: usize) -> Self {
        Self { start: allocate(size), size: AtomicUsize::new(size), home: Home::Memory }
    }

    /// A block of a file, for [`Arena::allocate`].
    pub(crate) fn in_file(file: Arc<Arena>, start: NonNull<u8>, size: usize) -> Self {
        Self { start, size: AtomicUsize::new(size), home: Home::File(file) }
    }

    /// What the first block of `owner`, which is stored, has of its body. Nothing of it can be written.
    pub(crate) fn of_object(owner: &Arc<Object>) -> Self {
        let bytes = owner.first_bytes(0, owner.first_capacity().min(owner.filled()));
        let size = AtomicUsize::new(bytes.len());
        Self { start: NonNull::from(bytes).cast(), size, home: Home::Object { owner: Arc::clone(owner) } }
    }

    /// A block that holds just `bytes`.
    pub(crate) fn holding(bytes: &[u8]) -> Self {
        let block = Self::new(bytes.len());
        // SAFETY: the block is new, nobody reads it; this is the one writer.
        unsafe { block.room(0) }.copy_from_slice(bytes);
        block
    }

    /// How many bytes it has room for.
    pub(crate) fn size(&self) -> usize {
        self.size.load(Ordering::Relaxed)
    }

    /// The file it lies in.
    pub(crate) fn file(&self) -> Option<&Arena> {
        match &self.home {
            Home::File(file) => Some(file),
            Home::Memory | Home::Object { .. } => None,
        }
    }

    /// How many bytes of memory or file it takes.
    pub(crate) fn footprint(&self) -> u64 {
        let size = self.size() as u64;
        self.file().map_or(size, |file| file.rounded(size))
    }

    /// Gives back what of a block in a file lies behind its first `kept` bytes, which are all that was written.
    pub(crate) fn cut(&self, kept: usize) {
        let size = self.size();
        if let Some(file) = self.file()
            && 0 < kept
            && kept < size
        {
            self.size.store(kept, Ordering::Relaxed);
            file.cut(self.start, size, kept);
        }
    }

    /// Reads the bytes from `from` on of a block in a file, which are below the fill mark, until `buffer` is full.
    ///
    /// # Errors
    /// They cannot be read.
    pub(crate) fn copy_to(&self, from: usize, buffer: &mut [u8]) -> io::Result<()> {
        let file = self.file().ok_or(io::ErrorKind::Unsupported)?;
        assert!(from + buffer.len() <= self.size(), "reading behind a block's end");
        file.read(self.start, from, buffer)
    }

    /// Writes to a block in a file. Behind the block's size it may reach to the end of the extent.
    ///
    /// # Errors
    /// They cannot be written.
    pub(crate) fn write(&self, to: usize, bytes: &[u8]) -> io::Result<()> {
        let file = self.file().ok_or(io::ErrorKind::Unsupported)?;
        assert!((to + bytes.len()) as u64 <= self.footprint(), "writing behind an extent's end");
        file.write(self.start, to, bytes)
    }

    /// The bytes `from..to`.
    ///
    /// # Panics
    /// If the range does not lie in the block.
    ///
    /// # Safety
    /// `to` is not above the fill mark as the caller loaded it with `Acquire`.
    pub(crate) unsafe fn read(&self, from: usize, to: usize) -> &[u8] {
        assert!(
            from <= to && to <= self.size(),
            "range {from}..{to} lies outside a block of {}",
            self.size()
        );
        // SAFETY: in bounds by the assertion; final by the caller's promise; all memory of a block is initialised.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().add(from), to - from) }
    }

    /// The bytes from `from` to the end, to write into.
    ///
    /// # Panics
    /// If `from` lies outside the block.
    ///
    /// # Safety
    /// The caller is the one writer, `from` is not below the fill mark, and the block's bytes are its own.
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn room(&self, from: usize) -> &mut [u8] {
        assert!(from <= self.size(), "offset {from} lies outside a block of {}", self.size());
        // SAFETY: in bounds by the assertion; no reader goes above the mark and the caller is the one writer.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr().add(from), self.size() - from) }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        match &self.home {
            Home::File(file) => file.release(self.start, self.size()),
            // SAFETY: allocated in `new` with this size, and nobody borrows from a block that is dropped.
            Home::Memory => unsafe { release(self.start, self.size()) },
            Home::Object { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(size: usize) {
        let block = Block::new(size);
        // SAFETY: this test is the one writer and reads only what it wrote.
        unsafe {
            block.room(2)[..3].copy_from_slice(b"abc");
            block.room(size - 1)[0] = b'z';
            assert_eq!(block.read(2, 5), b"abc");
            assert_eq!(block.read(size - 1, size), b"z");
            assert!(block.room(size).is_empty());
        }
    }

    #[test]
    fn reads_what_was_written() {
        for size in [8, 64, 65, 2_048, 2_049, 16_385, pool::LARGEST, pool::LARGEST + 1, 1 << 20] {
            check(size);
        }
        assert_eq!(Block::new(0).size(), 0);
        assert_eq!(Block::holding(b"abc").size(), 3);
    }
}
