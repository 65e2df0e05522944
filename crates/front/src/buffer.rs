//! Bytes received and not yet used.

use copal_net as net;
use std::io;
use std::task::{Context, Poll};

/// How much room a fresh read buffer has.
const ROOM: usize = 16 << 10;

/// A read buffer: received bytes at `start..end`.
#[derive(Debug, Default)]
pub(crate) struct ReadBuffer {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl ReadBuffer {
    /// The bytes not yet used.
    pub(crate) fn unused(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// The first `count` unused bytes are used.
    pub(crate) fn consume(&mut self, count: usize) {
        self.start += count;
        assert!(self.start <= self.end, "no more is used than was received");
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Reads more behind what is there; 0 at the stream's end. At most `limit` unused bytes are kept.
    pub(crate) fn poll_fill(
        &mut self,
        stream: &net::Stream,
        context: &mut Context<'_>,
        limit: usize,
    ) -> Poll<io::Result<usize>> {
        self.make_room(limit);
        let result = stream.poll_read(context, &mut self.bytes[self.end..]);
        if let Poll::Ready(Ok(count)) = result {
            self.end += count;
        }
        result
    }

    fn make_room(&mut self, limit: usize) {
        if self.end < self.bytes.len() {
            return;
        }
        if self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
            return;
        }
        let grown = (self.bytes.len() * 2).clamp(ROOM, limit.max(ROOM) + 1);
        self.bytes.resize(grown, 0);
    }

    /// Whether the buffer holds memory that an idle connection should not.
    pub(crate) fn is_large(&self) -> bool {
        !self.bytes.is_empty()
    }

    /// Takes the memory of an empty buffer away, for the pool.
    pub(crate) fn take_memory(&mut self) -> Vec<u8> {
        debug_assert!(self.is_empty());
        std::mem::take(&mut self.bytes)
    }

    /// Gives an empty buffer memory from the pool.
    pub(crate) fn give_memory(&mut self, bytes: Vec<u8>) {
        if self.bytes.is_empty() {
            self.bytes = bytes;
        }
    }
}

/// A thread's spare read buffers.
#[derive(Debug, Default)]
pub(crate) struct Pool(std::cell::RefCell<Vec<Vec<u8>>>);

/// Spare buffers that are kept at most.
const SPARES: usize = 64;

impl Pool {
    pub(crate) fn take(&self) -> Vec<u8> {
        self.0.borrow_mut().pop().unwrap_or_else(|| vec![0; ROOM])
    }

    pub(crate) fn give(&self, bytes: Vec<u8>) {
        let mut spares = self.0.borrow_mut();
        if spares.len() < SPARES && bytes.len() == ROOM {
            spares.push(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_move_to_the_front_before_the_buffer_grows() {
        let mut buffer = ReadBuffer::default();
        buffer.give_memory(vec![7; ROOM]);
        buffer.end = ROOM;
        buffer.consume(ROOM - 3);
        buffer.make_room(ROOM * 4);
        assert_eq!((buffer.start, buffer.end, buffer.unused()), (0, 3, &[7; 3][..]));
        assert_eq!(buffer.bytes.len(), ROOM);
        buffer.end = ROOM;
        buffer.make_room(ROOM * 4);
        assert_eq!(buffer.bytes.len(), ROOM * 2);
    }

    #[test]
    fn only_plain_buffers_are_kept() {
        let pool = Pool::default();
        pool.give(vec![0; ROOM * 2]);
        assert!(pool.0.borrow().is_empty());
        pool.give(pool.take());
        assert_eq!(pool.0.borrow().len(), 1);
    }
}
