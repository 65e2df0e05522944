//! Read buffers, pooled by thread.
//!
//! A buffer is taken when bytes have arrived and given back (by dropping it) when all of them are used, so a connection
//! that waits for its next request holds none: ten thousand idle connections need no more buffers than busy ones do.

use crate::stream::Stream;
use std::cell::RefCell;
use std::io;

/// What a fresh buffer holds, bytes: a request head of any usual size.
pub const SIZE: usize = 16 << 10;

/// How many spare buffers a thread keeps.
const SPARE_MAX: usize = 256;

thread_local! {
    static SPARE: RefCell<Vec<Box<[u8]>>> = const { RefCell::new(Vec::new()) };
}

/// Bytes read and not yet used, with room for more behind them.
///
/// ```text
///  0        start         end         len
///  | used   | unread      | room      |
/// ```
#[derive(Debug)]
pub struct Buffer {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Default for Buffer {
    fn default() -> Self {
        Self::new()
    }
}

impl Buffer {
    /// An empty buffer of [`SIZE`] bytes, from this thread's spares if there is one.
    pub fn new() -> Self {
        let spare = SPARE.try_with(|spare| spare.borrow_mut().pop()).ok().flatten();
        let bytes = spare.unwrap_or_else(|| vec![0; SIZE].into_boxed_slice());
        Self { bytes, start: 0, end: 0 }
    }

    /// What was read and not yet used.
    #[inline]
    pub fn unread(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// How many bytes are unread.
    #[inline]
    pub fn len(&self) -> usize {
        self.end - self.start
    }

    /// Whether nothing is unread.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// How many unread bytes it could hold without growing.
    pub fn capacity(&self) -> usize {
        self.bytes.len()
    }

    /// Counts the first `count` unread bytes as used.
    ///
    /// # Panics
    /// If there are fewer.
    #[inline]
    pub fn consume(&mut self, count: usize) {
        assert!(count <= self.len(), "consumed {count} of {} unread bytes", self.len());
        self.start += count;
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Forgets all unread bytes.
    pub fn clear(&mut self) {
        (self.start, self.end) = (0, 0);
    }

    /// The room behind the unread bytes, which are moved to the front if they stand in its way. Empty only if the buffer
    /// is full of unread bytes.
    pub fn room(&mut self) -> &mut [u8] {
        if self.start > 0 && (self.end == self.bytes.len() || self.start > self.bytes.len() / 2) {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        &mut self.bytes[self.end..]
    }

    /// Counts the first `count` bytes of [`Buffer::room`] as read.
    ///
    /// # Panics
    /// If there is less room.
    pub fn filled(&mut self, count: usize) {
        assert!(count <= self.bytes.len() - self.end, "filled past the end of the buffer");
        self.end += count;
    }

    /// Makes room for `capacity` unread bytes in all; the caller bounds it. A grown buffer is not kept as a spare.
    pub fn grow(&mut self, capacity: usize) {
        if capacity > self.bytes.len() {
            let mut bytes = vec![0; capacity].into_boxed_slice();
            bytes[..self.end - self.start].copy_from_slice(&self.bytes[self.start..self.end]);
            (self.start, self.end) = (0, self.end - self.start);
            self.bytes = bytes;
        }
    }

    /// Moves unread bytes into `target`, as many as fit, and says how many.
    pub fn take_into(&mut self, target: &mut [u8]) -> usize {
        let count = self.len().min(target.len());
        target[..count].copy_from_slice(&self.unread()[..count]);
        self.consume(count);
        count
    }

    /// Reads once from `stream` into the room; 0 is the end of the stream.
    ///
    /// # Errors
    /// As [`Stream::read`]; [`io::ErrorKind::StorageFull`] if there is no room.
    pub async fn read_from(&mut self, stream: &mut Stream) -> io::Result<usize> {
        if self.room().is_empty() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let count = stream.read(self.room()).await?;
        self.filled(count);
        Ok(count)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.bytes.len() != SIZE {
            return;
        }
        let bytes = std::mem::take(&mut self.bytes);
        // While the thread ends its spares may be gone already; the buffer is then simply freed.
        let _ = SPARE.try_with(|spare| {
            let mut spare = spare.borrow_mut();
            if spare.len() < SPARE_MAX {
                spare.push(bytes);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(buffer: &mut Buffer, bytes: &[u8]) {
        buffer.room()[..bytes.len()].copy_from_slice(bytes);
        buffer.filled(bytes.len());
    }

    #[test]
    fn unread_bytes_survive_moving_and_growing() {
        let mut buffer = Buffer::new();
        let pattern: Vec<u8> = (0..SIZE).map(|index| index as u8).collect();
        fill(&mut buffer, &pattern);
        assert!(buffer.room().is_empty());
        buffer.consume(SIZE - 10);
        assert_eq!(buffer.room().len(), SIZE - 10);
        assert_eq!(buffer.unread(), &pattern[SIZE - 10..]);
        buffer.grow(3 * SIZE);
        fill(&mut buffer, b"more");
        assert_eq!(&buffer.unread()[10..], b"more");
        let mut target = [0; 12];
        assert_eq!(buffer.take_into(&mut target), 12);
        assert_eq!(buffer.unread(), b"re");
        buffer.consume(2);
        assert!(buffer.is_empty());
    }

    #[test]
    fn spare_buffers_are_used_again_and_come_empty() {
        let mut buffer = Buffer::new();
        fill(&mut buffer, b"secret");
        let address = buffer.bytes.as_ptr();
        drop(buffer);
        let again = Buffer::new();
        assert_eq!(again.bytes.as_ptr(), address);
        assert!(again.unread().is_empty());
    }
}
