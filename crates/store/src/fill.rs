//! Writing an object's body, by its one writer.
#![allow(unsafe_code)]

use crate::block::Block;
use crate::engine::Full;
use crate::memory::Space;
use crate::object::{Extent, Object, State};
use std::sync::Arc;
use std::task::{Context, Poll};

/// The largest extent.
const EXTENT_MAX: u64 = 1 << 20;

/// How far the writer of a windowed body may be ahead of its slowest reader.
const WINDOW: u64 = 2 << 20;

/// All readers of a windowed body have left: there is nobody to write for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoReaders;

/// The right to write one object's body. Dropping it without [`Fill::commit`] fails the object.
#[derive(Debug)]
pub struct Fill {
    object: Arc<Object>,
    space: Arc<Space>,
    filled: u64,
    tail: Option<Extent>,
    windowed: bool,
    ended: bool,
}

impl Fill {
    pub(crate) fn new(object: Arc<Object>, space: Arc<Space>) -> Self {
        Self { object, space, filled: 0, tail: None, windowed: false, ended: false }
    }

    /// The object being filled.
    pub fn object(&self) -> &Arc<Object> {
        &self.object
    }

    /// Bytes written so far.
    pub fn filled(&self) -> u64 {
        self.filled
    }

    /// Memory to write the next bytes into; it is followed by [`Fill::advance`]. Empty only if the body's announced
    /// length is reached.
    ///
    /// # Errors
    /// [`Full`] if another extent is needed and there is no room: the caller gives up, or goes on with
    /// [`Fill::keep_window`].
    pub fn room(&mut self) -> Result<&mut [u8], Full> {
        if self.left_in_tail() == 0 && self.left_to_come() > 0 {
            self.extend()?;
        }
        Ok(self.tail_room())
    }

    /// Publishes `bytes` that were written into the room.
    ///
    /// # Panics
    /// If that is more than the room.
    pub fn advance(&mut self, bytes: usize) {
        assert!(bytes as u64 <= self.left_in_tail(), "more bytes than the room holds");
        if bytes > 0 {
            self.filled += bytes as u64;
            self.object.publish(bytes as u64);
        }
    }

    /// Copies `bytes` in.
    ///
    /// # Errors
    /// [`Full`] as [`Fill::room`]; what was copied until then stays.
    pub fn append(&mut self, mut bytes: &[u8]) -> Result<(), Full> {
        while !bytes.is_empty() {
            let room = self.room()?;
            let count = room.len().min(bytes.len());
            if count == 0 {
                return Err(Full);
            }
            room[..count].copy_from_slice(&bytes[..count]);
            self.advance(count);
            bytes = &bytes[count..];
        }
        Ok(())
    }

    /// The body is complete.
    pub fn commit(mut self) {
        self.ended = true;
        self.object.finish(State::Stored);
        if !self.windowed {
            self.space.join_order(&self.object);
        }
    }

    /// From now on only a window of the body is kept, between the slowest reader and the writer. The object is unlinked
    /// by this, and takes no new readers.
    pub fn keep_window(&mut self) {
        self.object.unlink();
        self.windowed = true;
        if let Some(filling) = self.object.filling().as_mut() {
            filling.windowed = true;
        }
    }

    /// Whether only a window is kept.
    pub fn is_windowed(&self) -> bool {
        self.windowed
    }

    /// Waits until the window has room. Always ready if the whole body is kept.
    ///
    /// # Errors
    /// [`NoReaders`] when nobody reads it any more.
    pub fn poll_window(&mut self, context: &mut Context<'_>) -> Poll<Result<(), NoReaders>> {
        if !self.windowed {
            return Poll::Ready(Ok(()));
        }
        let mut slot = self.object.filling();
        let filling = slot.as_mut().expect("a windowed object keeps its filling part");
        let Some(slowest) = filling.readers.iter().flatten().copied().min() else {
            return Poll::Ready(Err(NoReaders));
        };
        while let Some(extent) = filling.extents.front() {
            if extent.offset + extent.block.size() as u64 > slowest || filling.extents.len() == 1 {
                break;
            }
            self.space.let_go(extent.block.size() as u64);
            filling.extents.pop_front();
        }
        if self.filled.saturating_sub(slowest) < WINDOW {
            return Poll::Ready(Ok(()));
        }
        filling.writer = Some(context.waker().clone());
        Poll::Pending
    }

    fn left_to_come(&self) -> u64 {
        self.object.length().map_or(u64::MAX, |length| length.saturating_sub(self.filled))
    }

    fn left_in_tail(&self) -> u64 {
        match &self.tail {
            Some(extent) => extent.offset + extent.block.size() as u64 - self.filled,
            None => self.object.first_capacity() - self.filled,
        }
    }

    fn tail_room(&mut self) -> &mut [u8] {
        let filled = self.filled;
        // SAFETY: `self` is the one writer, and `filled` is the mark it published.
        unsafe {
            match &self.tail {
                Some(extent) => extent.block.room((filled - extent.offset) as usize),
                None => self.object.first_room(filled),
            }
        }
    }

    /// Adds an extent: as much as is to come if that is known, else four times what is there.
    fn extend(&mut self) -> Result<(), Full> {
        let guess = if self.object.length().is_some() { self.left_to_come() } else { self.filled * 4 };
        let size = guess.clamp(4 << 10, EXTENT_MAX);
        let size = size.min(self.left_to_come());
        if self.windowed {
            self.space.hold(size);
        } else {
            self.space.reserve(size)?;
        }
        let extent = Extent { offset: self.filled, block: Arc::new(Block::new(size as usize)) };
        let mut slot = self.object.filling();
        let filling = slot.as_mut().expect("an unfinished object has its filling part");
        filling.extents.push_back(extent.clone());
        // Unlinked meanwhile (purged, replaced): it counts as held only.
        if self.object.is_gone() && !self.windowed {
            self.space.unlinked(size);
        }
        drop(slot);
        self.tail = Some(extent);
        Ok(())
    }
}

impl Drop for Fill {
    fn drop(&mut self) {
        if !self.ended {
            self.object.finish(State::Failed);
        }
    }
}
