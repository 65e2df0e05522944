//! The memory that a connection's responses take while they wait for its client.
//!
//! The library bounds it for each stream. A client that opens many streams, offers large windows and reads nothing would
//! hold that much for each, so here the streams of a connection share one bound. A piece of a body counts from its copy
//! until the library drops it: written to the socket, or its stream reset. Streams take turns in the order they came.

use bytes::{Buf, Bytes};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What the pieces of one connection may take.
pub(super) const BYTES: usize = 256 << 10;

/// The most of a body that is copied at once.
const PIECE_MAX: usize = 64 << 10;

/// The least that is worth a turn: a frame, as most clients take them.
const PIECE_MIN: usize = 16 << 10;

/// A connection's room.
#[derive(Debug)]
pub(super) struct Room {
    free: Arc<Semaphore>,
    /// Streams that are answered.
    streams: Cell<usize>,
}

impl Room {
    pub(super) fn new() -> Rc<Self> {
        Rc::new(Self { free: Arc::new(Semaphore::new(BYTES)), streams: Cell::new(0) })
    }

    /// How many streams are answered.
    pub(super) fn streams(&self) -> usize {
        self.streams.get()
    }

    /// The most that a stream may copy at once: more streams take smaller pieces, so that each has its turn soon.
    pub(super) fn piece_max(&self) -> usize {
        (BYTES / self.streams().max(1)).clamp(PIECE_MIN, PIECE_MAX)
    }

    /// Waits until there is room for `bytes`, at most [`Room::piece_max`].
    pub(super) async fn take(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let count = u32::try_from(bytes.min(PIECE_MAX)).ok()?;
        Arc::clone(&self.free).acquire_many_owned(count).await.ok()
    }
}

/// Counts a stream for as long as it is answered.
pub(super) struct Active(Rc<Room>);

impl Active {
    pub(super) fn new(room: &Rc<Room>) -> Self {
        room.streams.set(room.streams() + 1);
        Self(Rc::clone(room))
    }

    /// Its connection's room.
    pub(super) fn room(&self) -> &Room {
        &self.0
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        self.0.streams.set(self.0.streams() - 1);
    }
}

/// Bytes on their way to the client, with the room they take.
#[derive(Debug, Default)]
pub(super) struct Piece {
    bytes: Bytes,
    _taken: Option<OwnedSemaphorePermit>,
}

impl Piece {
    pub(super) fn new(bytes: Bytes, taken: OwnedSemaphorePermit) -> Self {
        Self { bytes, _taken: Some(taken) }
    }
}

impl Buf for Piece {
    fn remaining(&self) -> usize {
        self.bytes.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.bytes.chunk()
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    #[test]
    fn pieces_count_until_they_are_dropped() {
        let mut context = Context::from_waker(Waker::noop());
        let room = Room::new();
        let mut take = |bytes| {
            let mut taking = pin!(room.take(bytes));
            match taking.as_mut().poll(&mut context) {
                Poll::Ready(taken) => taken.map(|taken| Piece::new(Bytes::from(vec![0; bytes]), taken)),
                Poll::Pending => None,
            }
        };
        let mut pieces: Vec<_> = (0..BYTES / PIECE_MAX).map(|_| take(PIECE_MAX).unwrap()).collect();
        assert!(take(1).is_none());
        // Sent in part, it is held whole still.
        pieces[0].advance(PIECE_MAX - 1);
        assert!(take(1).is_none() && pieces[0].remaining() == 1);
        pieces.remove(0);
        assert!(take(PIECE_MAX).is_some());
    }

    #[test]
    fn many_streams_take_small_pieces() {
        let room = Room::new();
        let mut streams = Vec::new();
        for (count, piece) in [(1, PIECE_MAX), (4, PIECE_MAX), (8, PIECE_MAX / 2), (100, PIECE_MIN)] {
            streams.resize_with(count, || Active::new(&room));
            assert_eq!((room.streams(), room.piece_max()), (count, piece));
        }
        drop(streams);
        assert_eq!(room.streams(), 0);
    }
}
