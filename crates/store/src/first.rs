//! An object's first block: a few facts, variant, head, and as much of the body as was known to come.
//!
//! | offset | bytes | meaning |
//! |---|---|---|
//! | 0 | 4 | room for the body |
//! | 4 | 4 | size of the head |
//! | 8 | 2 | size of the variant |
//! | 10 | 2 | HTTP status |
//! | 12 | | variant, head |
//! | | | body: at once, or from [`LINE_MIN`] bytes on at the next cache line |
//!
//! The facts stand here because an object must fit the allocator's 128 bytes; here they cost no more than their size.
//! Numbers are in the machine's own order: this never leaves memory. All below the body's begin is final before anybody
//! else sees the object; for the body the table of [`crate::block`] holds.
#![allow(unsafe_code)]

use crate::block::{allocate, release};
use crate::pool::{ALIGNMENT, LINE, LINE_MIN};
use std::ptr::NonNull;

/// The longest variant.
pub(crate) const VARIANT_MAX: usize = u16::MAX as usize;

/// The longest head.
pub(crate) const HEAD_MAX: usize = 16 << 20;

#[repr(C)]
struct Facts {
    body_capacity: u32,
    head_size: u32,
    variant_size: u16,
    status: u16,
}

const FACTS_SIZE: usize = 12;
const _: () = assert!(size_of::<Facts>() == FACTS_SIZE && align_of::<Facts>() <= crate::pool::ALIGNMENT);

/// See the module.
#[derive(Debug)]
pub(crate) struct First {
    start: NonNull<u8>,
}

// SAFETY: the memory is owned; facts, variant and head are final, for the body the table of `block` holds.
unsafe impl Send for First {}
// SAFETY: as above.
unsafe impl Sync for First {}

/// The size of a block with room for `body_capacity` bytes of the body, or `None` if variant or head is longer than
/// allowed.
pub(crate) fn size_for(variant: &[u8], head: &[u8], body_capacity: u64) -> Option<u64> {
    let fits = variant.len() <= VARIANT_MAX && head.len() <= HEAD_MAX;
    fits.then_some(
        (FACTS_SIZE + variant.len() + head.len() + padding_max(body_capacity)) as u64 + body_capacity,
    )
}

/// The most bytes that lie between the head and a body of that capacity.
fn padding_max(body_capacity: u64) -> usize {
    if body_capacity >= LINE_MIN as u64 { LINE - ALIGNMENT } else { 0 }
}

impl First {
    /// A block with room for `body_capacity` bytes of the body.
    ///
    /// # Panics
    /// If variant or head is longer than [`size_for`] allows, or the block would be 4 GiB or more.
    pub(crate) fn new(body_capacity: u64, status: u16, variant: &[u8], head: &[u8]) -> Self {
        let size = size_for(variant, head, body_capacity).expect("variant and head were looked at before");
        assert!(size <= u64::from(u32::MAX), "a first block is far smaller than 4 GiB");
        let start = allocate(size as usize);
        let facts = Facts {
            body_capacity: body_capacity as u32,
            head_size: head.len() as u32,
            variant_size: variant.len() as u16,
            status,
        };
        // SAFETY: the block is new and `size` has room for all three; its start is aligned.
        unsafe {
            start.cast::<Facts>().write(facts);
            start.add(FACTS_SIZE).copy_from_nonoverlapping(slice_start(variant), variant.len());
            start.add(FACTS_SIZE + variant.len()).copy_from_nonoverlapping(slice_start(head), head.len());
        }
        Self { start }
    }

    fn facts(&self) -> &Facts {
        // SAFETY: written in `new` and final.
        unsafe { self.start.cast::<Facts>().as_ref() }
    }

    pub(crate) fn size(&self) -> usize {
        let capacity = u64::from(self.facts().body_capacity);
        self.head_end() + padding_max(capacity) + capacity as usize
    }

    fn head_end(&self) -> usize {
        let facts = self.facts();
        FACTS_SIZE + facts.variant_size as usize + facts.head_size as usize
    }

    /// Where in the block the body begins.
    fn body_start(&self) -> usize {
        let end = self.head_end();
        if self.body_capacity() < LINE_MIN as u64 {
            return end;
        }
        let address = self.start.addr().get() + end;
        // Blocks of this size are aligned to at least [`ALIGNMENT`], and to a line where they come from a slab.
        let padding = address.next_multiple_of(LINE) - address;
        end + padding.min(padding_max(self.body_capacity()))
    }

    pub(crate) fn status(&self) -> u16 {
        self.facts().status
    }

    pub(crate) fn variant(&self) -> &[u8] {
        // SAFETY: written in `new` and final.
        unsafe { self.bytes(FACTS_SIZE, FACTS_SIZE + self.facts().variant_size as usize) }
    }

    pub(crate) fn head(&self) -> &[u8] {
        let facts = self.facts();
        // SAFETY: written in `new` and final.
        unsafe { self.bytes(FACTS_SIZE + facts.variant_size as usize, self.head_end()) }
    }

    /// How many body bytes the block has room for.
    pub(crate) fn body_capacity(&self) -> u64 {
        u64::from(self.facts().body_capacity)
    }

    /// The body bytes `from..to`.
    ///
    /// # Panics
    /// If the range does not lie in the block.
    ///
    /// # Safety
    /// `to` is not above the fill mark as the caller loaded it with `Acquire`.
    pub(crate) unsafe fn body(&self, from: u64, to: u64) -> &[u8] {
        assert!(
            from <= to && to <= self.body_capacity(),
            "body range {from}..{to} lies outside the first block"
        );
        let start = self.body_start();
        // SAFETY: in bounds by the assertion; final by the caller's promise.
        unsafe { self.bytes(start + from as usize, start + to as usize) }
    }

    /// The room for body bytes after the first `filled`.
    ///
    /// # Panics
    /// If `filled` is above the capacity.
    ///
    /// # Safety
    /// The caller is the one writer and `filled` is the fill mark.
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn body_room(&self, filled: u64) -> &mut [u8] {
        let left = self.body_capacity().checked_sub(filled).expect("the mark lies in the first block");
        let offset = self.body_start() + filled as usize;
        // SAFETY: in bounds by the lines above; no reader goes above the mark and the caller is the one writer.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr().add(offset), left as usize) }
    }

    /// # Safety
    /// The range lies in the block and is final.
    unsafe fn bytes(&self, from: usize, to: usize) -> &[u8] {
        // SAFETY: passed on to the caller; all memory of a block is initialised.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().add(from), to - from) }
    }
}

fn slice_start(bytes: &[u8]) -> NonNull<u8> {
    NonNull::from(bytes).cast()
}

impl Drop for First {
    fn drop(&mut self) {
        let size = self.size();
        // SAFETY: allocated in `new` with this size, and nobody borrows from a block that is dropped.
        unsafe { release(self.start, size) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_facts_variant_head_and_body_apart() {
        let size = size_for(b"gzip", b"head", 3).unwrap();
        let first = First::new(3, 404, b"gzip", b"head");
        assert_eq!((first.size() as u64, first.status(), first.body_capacity()), (size, 404, 3));
        // SAFETY: this test is the one writer and reads only what it wrote.
        unsafe {
            first.body_room(0).copy_from_slice(b"abc");
            assert_eq!(first.body(1, 3), b"bc");
            assert!(first.body_room(3).is_empty());
        }
        assert_eq!((first.variant(), first.head()), (&b"gzip"[..], &b"head"[..]));
        let bare = First::new(0, 200, b"", b"");
        assert_eq!((bare.variant(), bare.head(), bare.body_capacity()), (&b""[..], &b""[..], 0));
    }

    #[test]
    fn what_is_too_long_is_refused() {
        assert!(size_for(&vec![0; VARIANT_MAX + 1], b"", 0).is_none());
        assert!(size_for(b"", &vec![0; HEAD_MAX + 1], 0).is_none());
        assert_eq!(size_for(&vec![0; VARIANT_MAX], b"head", 0), Some((FACTS_SIZE + VARIANT_MAX + 4) as u64));
    }
}
