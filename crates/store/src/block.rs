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
//! The mark itself lives with the object (it counts over all its blocks) and is moved with `Release` after the write.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;

/// A fixed piece of zeroed memory.
#[derive(Debug)]
pub(crate) struct Block {
    start: NonNull<u8>,
    size: usize,
}

// SAFETY: the memory is owned; the table above says that no byte is written while another thread may read it.
unsafe impl Send for Block {}
// SAFETY: as above: shared access reads only bytes below the mark, which are final.
unsafe impl Sync for Block {}

impl Block {
    /// A block of `size` bytes. The process ends if the machine has no memory left, as with any allocation.
    pub(crate) fn new(size: usize) -> Self {
        if size == 0 {
            return Self { start: NonNull::dangling(), size };
        }
        let layout = Self::layout(size);
        // SAFETY: the layout has a size above zero.
        let start = unsafe { alloc_zeroed(layout) };
        let Some(start) = NonNull::new(start) else { handle_alloc_error(layout) };
        Self { start, size }
    }

    fn layout(size: usize) -> Layout {
        Layout::array::<u8>(size).expect("a block is far smaller than the address space")
    }

    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// The bytes `from..to`.
    ///
    /// # Panics
    /// If the range does not lie in the block.
    ///
    /// # Safety
    /// `to` is not above the fill mark as the caller loaded it with `Acquire`.
    pub(crate) unsafe fn read(&self, from: usize, to: usize) -> &[u8] {
        assert!(from <= to && to <= self.size, "range {from}..{to} lies outside a block of {}", self.size);
        // SAFETY: in bounds by the assertion; final by the caller's promise; zeroed memory is initialised.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().add(from), to - from) }
    }

    /// The bytes from `from` to the end, to write into.
    ///
    /// # Panics
    /// If `from` lies outside the block.
    ///
    /// # Safety
    /// The caller is the one writer, and `from` is not below the fill mark.
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn room(&self, from: usize) -> &mut [u8] {
        assert!(from <= self.size, "offset {from} lies outside a block of {}", self.size);
        // SAFETY: in bounds by the assertion; no reader goes above the mark and the caller is the one writer.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr().add(from), self.size - from) }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if self.size != 0 {
            // SAFETY: allocated in `new` with this layout, and nobody borrows from a block that is dropped.
            unsafe { dealloc(self.start.as_ptr(), Self::layout(self.size)) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_was_written() {
        let block = Block::new(8);
        // SAFETY: this test is the one writer and reads only what it wrote.
        unsafe {
            block.room(2)[..3].copy_from_slice(b"abc");
            assert_eq!(block.read(2, 5), b"abc");
            assert_eq!(block.read(5, 8), &[0; 3]);
            assert!(block.room(8).is_empty());
        }
        assert_eq!(Block::new(0).size(), 0);
    }
}
