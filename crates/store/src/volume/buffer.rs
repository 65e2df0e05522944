//! Bytes in memory that begin at a multiple of the page size, as a device opened without the page cache wants them.

use super::page::PAGE;
use std::fmt;
use std::ops::{Deref, DerefMut};

/// Zeroed bytes of fixed size, aligned to a page.
pub(super) struct Buffer {
    /// A page longer than asked for.
    bytes: Vec<u8>,
    start: usize,
    size: usize,
}

impl Buffer {
    pub(super) fn new(size: usize) -> Self {
        let bytes = vec![0; size + PAGE];
        let start = match bytes.as_ptr().align_offset(PAGE) {
            offset if offset < PAGE => offset,
            _ => 0,
        };
        Self { bytes, start, size }
    }

    /// A buffer of that size, made of this one if it is large enough. What is in it is what happened to be there.
    pub(super) fn reuse(mut self, size: usize) -> Self {
        if self.start + size > self.bytes.len() {
            return Self::new(size);
        }
        self.size = size;
        self
    }

    /// Forgets all bytes from `size` on.
    pub(super) fn truncate(&mut self, size: usize) {
        self.size = self.size.min(size);
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.size]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.size]
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} bytes)", self.size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_begin_at_a_page() {
        for size in [0, 1, PAGE, 3 * PAGE + 5] {
            let mut buffer = Buffer::new(size);
            assert_eq!(buffer.len(), size);
            assert_eq!(buffer.as_ptr() as usize % PAGE, 0);
            buffer.fill(7);
            assert!(buffer.iter().all(|byte| *byte == 7));
            for size in [size / 2, size + PAGE * 2] {
                buffer = buffer.reuse(size);
                assert_eq!((buffer.len(), buffer.as_ptr() as usize % PAGE), (size, 0));
            }
        }
    }
}
