//! Writing an object's body, by its one writer.
#![allow(unsafe_code)]

use crate::block::Block;
use crate::body::{End, Extent, Tail};
use crate::engine::Full;
use crate::file::staging::Staging;
use crate::memory::Space;
use crate::object::Object;
use crate::pool;
use std::sync::Arc;
use std::task::{Context, Poll};

/// The smallest extent, unless less is known to come.
const EXTENT_MIN: u64 = 4 << 10;

/// The largest extent: what slabs give without rounding. A body of 10 MiB is 80 of them.
const EXTENT_MAX: u64 = pool::LARGEST as u64;

/// How far the writer of a windowed body may be ahead of its slowest reader. With the extent under the reader and the one
/// under the writer, such a body holds at most 1.25 MiB besides its first block.
const WINDOW: u64 = 1 << 20;

/// How often the writer of a full window lets other tasks run before it gives up hope of a first reader.
const PATIENCE: u32 = 64;

/// All readers of a windowed body have left: there is nobody to write for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoReaders;

/// The right to write one object's body. Dropping it without [`Fill::commit`] fails the object: readers are cut off. It
/// stays linked then until somebody unlinks it (the cache, which takes it out of its index).
#[derive(Debug)]
pub struct Fill {
    object: Arc<Object>,
    space: Arc<Space>,
    length: Option<u64>,
    filled: u64,
    tail: Option<Extent>,
    windowed: bool,
    ended: bool,
    patience: u32,
    /// Of an object in a file: what is to be written to it.
    staging: Staging,
    /// Bytes were lost on the way to a device or from it: the object can only fail.
    broken: bool,
    /// Bytes that are counted for extents to come.
    ahead: u64,
}

impl Fill {
    pub(crate) fn new(object: Arc<Object>, space: Arc<Space>, length: Option<u64>) -> Self {
        Self {
            object,
            space,
            length,
            filled: 0,
            tail: None,
            windowed: false,
            ended: false,
            patience: PATIENCE,
            staging: Staging::default(),
            broken: false,
            ahead: 0,
        }
    }

    /// Of an object that keeps a window from the start.
    pub(crate) fn windowed(object: Arc<Object>, space: Arc<Space>, length: Option<u64>) -> Self {
        let mut fill = Self::new(object, space, length);
        fill.windowed = true;
        fill
    }

    /// Of an object that shares the whole body of another: nothing is to be written.
    pub(crate) fn shared(object: Arc<Object>, space: Arc<Space>) -> Self {
        let filled = object.filled();
        let mut fill = Self::new(object, space, Some(filled));
        fill.filled = filled;
        fill
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
    /// length is reached. What stands in it is of no meaning.
    ///
    /// # Errors
    /// [`Full`] if another extent is needed and there is no room: the caller gives up, or goes on with
    /// [`Fill::keep_window`]. After an error of the device there is no room even then.
    pub fn room(&mut self) -> Result<&mut [u8], Full> {
        if self.broken {
            return Err(Full);
        }
        if self.left_to_come() == 0 {
            return Ok(&mut []);
        }
        if self.left_in_tail() == 0 {
            self.extend()?;
        }
        Ok(self.tail_room())
    }

    /// Counts all of the announced body now, so that no room is missing once it is shown to readers.
    ///
    /// # Errors
    /// [`Full`] if there is no room for it.
    pub(crate) fn reserve_all(&mut self) -> Result<(), Full> {
        let to_come = self.length.map_or(0, |length| length.saturating_sub(self.object.first_capacity()));
        while self.ahead < to_come {
            let step = (to_come - self.ahead).min(EXTENT_MAX);
            self.space.reserve(step)?;
            self.ahead += step;
        }
        Ok(())
    }

    /// As [`Fill::room`], but waits at the beginning, and where further memory is needed, while the store's devices are
    /// behind with what is to be written to them. How long is the caller's to bound: it may call [`Fill::room`] instead at
    /// any time.
    pub fn poll_room(&mut self, context: &mut Context<'_>) -> Poll<Result<&mut [u8], Full>> {
        // All of a small object may have its memory from the start.
        let grows = (self.filled == 0 || self.left_in_tail() == 0) && self.left_to_come() > 0;
        if grows
            && !self.windowed
            && let Some(keeper) = self.space.keeper()
            && keeper.is_behind(context.waker())
        {
            return Poll::Pending;
        }
        Poll::Ready(self.room())
    }

    /// Publishes `bytes` that were written into the room. If a device cannot take them, readers never see them nor what
    /// follows, there is no room any more, and the object fails.
    ///
    /// # Panics
    /// If that is more than the room.
    pub fn advance(&mut self, bytes: usize) {
        assert!(bytes as u64 <= self.left_in_tail(), "more bytes than the room holds");
        if bytes > 0 && self.write_out(bytes) {
            self.filled += bytes as u64;
            self.object.publish(self.filled);
        }
    }

    /// Copies `bytes` in.
    ///
    /// # Errors
    /// [`Full`] as [`Fill::room`], and if there are more bytes than were announced; what was copied until then stays.
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

    /// Keeps `plan` beside the body: bytes that say how the body is delivered, which the store does not read (an ESI script,
    /// or the layout of an object in segments). It counts as the body does, and is seen once the object is stored.
    ///
    /// # Errors
    /// [`Full`] if there is no room for it.
    pub fn set_plan(&mut self, plan: Box<[u8]>) -> Result<(), Full> {
        let size = plan.len() as u64;
        if self.windowed {
            return Err(Full);
        }
        self.space.reserve(size)?;
        let set = self.object.with_rest(|rest| {
            debug_assert!(rest.plan.is_none(), "a plan is set once");
            rest.plan = Some(plan);
            // As in `extend`.
            if self.object.is_gone() {
                self.space.unlinked(size);
            }
        });
        debug_assert!(set.is_some(), "an unfinished object can take a plan");
        Ok(())
    }

    /// The body is complete. If a length was announced and it is not reached, the object fails instead: what is short is
    /// never stored as if it were whole.
    pub fn commit(mut self) {
        self.ended = true;
        let is_short = self.left_to_come() > 0 && self.length.is_some();
        if is_short || self.is_lost() {
            self.object.finish(self.failure(), Tail::Whole);
            return;
        }
        let tail = if self.windowed { Tail::Whole } else { self.trimmed_tail() };
        self.object.finish(End::Stored, tail);
        if !self.windowed {
            self.space.join_order(&self.object);
        }
    }

    /// The device that the body is read from does not give what was written to it: the object fails, and readers hear why.
    pub fn damage(mut self) {
        self.broken = true;
    }

    /// How it ends, as it fails.
    fn failure(&self) -> End {
        if self.is_lost() { End::Damaged } else { End::Failed }
    }

    /// From now on only a window of the body is kept, between the slowest reader and the writer. The object is unlinked
    /// by this; a reader that comes when the bytes it wants have passed is cut off at once. The writer then waits for the
    /// slowest reader, until it [leaves it behind](Fill::leave_behind).
    pub fn keep_window(&mut self) {
        self.object.begin_window();
        self.windowed = true;
    }

    /// Whether only a window is kept.
    pub fn is_windowed(&self) -> bool {
        self.windowed
    }

    /// Waits until the window has room. Always ready if the whole body is kept.
    ///
    /// A first reader may come as late as when the window is full: other tasks then get a few turns to become one.
    ///
    /// # Errors
    /// [`NoReaders`] when nobody reads it any more.
    pub fn poll_window(&mut self, context: &mut Context<'_>) -> Poll<Result<(), NoReaders>> {
        if !self.windowed {
            return Poll::Ready(Ok(()));
        }
        let filled = self.filled;
        let mut passed = Vec::new();
        let answer = self.object.with_rest(|rest| {
            let slowest = match rest.slowest() {
                Some(slowest) => slowest,
                None if rest.was_read || self.patience == 0 => return Poll::Ready(Err(NoReaders)),
                None if filled >= WINDOW => {
                    self.patience -= 1;
                    context.waker().wake_by_ref();
                    0
                }
                None => 0,
            };
            while rest.extents.len() > 1 && rest.extents.front().is_some_and(|extent| extent.end() <= slowest)
            {
                passed.extend(rest.extents.pop_front());
            }
            if filled.saturating_sub(slowest) < WINDOW {
                return Poll::Ready(Ok(()));
            }
            rest.writer = Some(context.waker().clone());
            Poll::Pending
        });
        self.space.let_go(passed.iter().map(Extent::size).sum());
        answer.unwrap_or(Poll::Ready(Err(NoReaders)))
    }

    /// Of several readers of a window, waits no longer for those that are a whole window behind while another has all that
    /// is there: their cursors answer [`Cut::Gone`](crate::cursor::Cut::Gone) once they come to what has passed. How many these are; 0
    /// if nobody is held up.
    pub fn leave_behind(&mut self) -> usize {
        let filled = self.filled;
        let left = self.object.with_rest(|rest| {
            let waited_for = || rest.readers.iter().flatten().filter(|reader| !reader.left_behind);
            if !waited_for().any(|reader| reader.at >= filled) {
                return 0;
            }
            let behind = rest.readers.iter_mut().flatten().filter(|reader| !reader.left_behind);
            let behind = behind.filter(|reader| filled - reader.at.min(filled) >= WINDOW);
            behind.map(|reader| reader.left_behind = true).count()
        });
        left.unwrap_or(0)
    }

    /// Bytes of the announced length that are missing.
    fn left_to_come(&self) -> u64 {
        self.length.map_or(u64::MAX, |length| length.saturating_sub(self.filled))
    }

    fn left_in_tail(&self) -> u64 {
        match &self.tail {
            Some(extent) => extent.end() - self.filled,
            None => self.object.first_capacity().saturating_sub(self.filled),
        }
    }

    fn tail_room(&mut self) -> &mut [u8] {
        let filled = self.filled;
        if let Some(extent) = &self.tail
            && extent.block.file().is_some()
        {
            return self.staging.room(&extent.block, (filled - extent.offset) as usize);
        }
        // SAFETY: `self` is the one writer, `filled` is the mark it published, and the block is in memory.
        unsafe {
            match &self.tail {
                Some(extent) => extent.block.room((filled - extent.offset) as usize),
                None => self.object.first_room(filled),
            }
        }
    }

    /// Has `bytes` that follow the mark where readers find them; false if they are lost.
    fn write_out(&mut self, bytes: usize) -> bool {
        if let Some(extent) = &self.tail
            && extent.block.file().is_some()
        {
            let at = (self.filled - extent.offset) as usize;
            self.broken = self.broken || self.staging.write(&extent.block, at, bytes).is_err();
        }
        !self.broken
    }

    /// Whether what was written cannot be read again.
    fn is_lost(&self) -> bool {
        self.broken || self.space.file.as_ref().is_some_and(|file| file.is_damaged())
    }

    /// Adds an extent: as much as is to come if that is known, else four times what is there.
    fn extend(&mut self) -> Result<(), Full> {
        let guess = if self.length.is_some() { self.left_to_come() } else { self.filled.saturating_mul(4) };
        let size = guess.clamp(EXTENT_MIN, EXTENT_MAX).min(self.left_to_come());
        let block = if self.windowed {
            self.space.hold(size);
            Block::new(size as usize)
        } else if self.ahead >= size {
            self.ahead -= size;
            Block::new(size as usize)
        } else {
            self.space.allocate(size, self.left_to_come())?
        };
        let extent = Extent { offset: self.filled, block: Arc::new(block) };
        let size = extent.size();
        let added = self.object.with_rest(|rest| {
            rest.extents.push_back(extent.clone());
            // Unlinked meanwhile (purged, replaced): it counts as held only. Asked under the lock, as `unlink` takes the
            // sum of the extents under it.
            if self.object.is_gone() && !self.windowed {
                self.space.unlinked(size);
            }
        });
        debug_assert!(added.is_some(), "an unfinished object can grow");
        self.tail = Some(extent);
        Ok(())
    }

    /// The last extent without its empty part, if that is worth a copy. Readers that hold the old one keep it. In a file
    /// it is cut where it is.
    fn trimmed_tail(&self) -> Tail {
        let Some(extent) = &self.tail else { return Tail::Whole };
        let used = self.filled - extent.offset;
        if extent.block.file().is_some() {
            return Tail::Cut(used as usize);
        }
        if extent.size() - used <= (used / 8).max(64) {
            return Tail::Whole;
        }
        let bytes = self.object.extent_bytes(extent, extent.offset, self.filled);
        Tail::Copied(Extent { offset: extent.offset, block: Arc::new(Block::holding(bytes)) })
    }
}

impl Drop for Fill {
    fn drop(&mut self) {
        self.space.shrunk(self.ahead, false);
        if !self.ended {
            self.object.finish(self.failure(), Tail::Whole);
        }
    }
}
