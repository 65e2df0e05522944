//! The part of an object that grows, and how readers and the writer share it.
//!
//! Who may touch [`Rest`], when:
//!
//! | state | window | access |
//! |---|---|---|
//! | filling | any | under `lock` |
//! | stored, failed | no | final: read without the lock, never written again |
//! | stored, failed | yes | under `lock` |
//!
//! The state byte is written under the lock, with `Release`, after the last change. Readers load it with `Acquire`, so
//! whoever sees `stored` sees the final extents. The window bit is set while filling only.
//!
//! No wake-up is lost: a reader looks at mark and state under the lock before it leaves its waker there; the writer moves
//! the mark first and takes the lock to collect wakers after. Whichever holds the lock second sees what the other did.
#![allow(unsafe_code)]

use crate::block::Block;
use crate::cursor::Cut;
use crate::object::{Object, State};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;

/// Set in the state byte beside the state: only a window of the body is kept.
const WINDOW_BIT: u8 = 4;

/// Set in the state byte beside [`State::Failed`]: a device was the cause.
const DAMAGED_BIT: u8 = 8;

/// How a fill ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum End {
    /// The body is complete.
    Stored = State::Stored as u8,
    /// It is not.
    Failed = State::Failed as u8,
    /// It is not, as a device did not keep it.
    Damaged = State::Failed as u8 | DAMAGED_BIT,
}

/// A further piece of a body.
#[derive(Debug, Clone)]
pub(crate) struct Extent {
    /// Offset in the body of its first byte.
    pub(crate) offset: u64,
    pub(crate) block: Arc<Block>,
}

impl Extent {
    /// Offset in the body of the first byte after it.
    pub(crate) fn end(&self) -> u64 {
        self.offset + self.block.size() as u64
    }

    /// How much memory or file it takes.
    pub(crate) fn size(&self) -> u64 {
        self.block.footprint()
    }
}

/// What a complete body does with its last extent.
pub(crate) enum Tail {
    /// It stays as it is.
    Whole,
    /// This takes its place; none if that is empty.
    Copied(Extent),
    /// So many bytes of it stay.
    Cut(usize),
}

/// One reader of a growing object.
#[derive(Debug)]
pub(crate) struct Reader {
    pub(crate) at: u64,
    /// Set while it waits for bytes.
    pub(crate) waker: Option<Waker>,
    /// The writer of a window waits for it no longer: what it wants next may have passed.
    pub(crate) left_behind: bool,
}

/// The extents beyond the first block, and the state that only a growing object needs. See the module for who may touch it.
#[derive(Debug, Default)]
pub(crate) struct Rest {
    pub(crate) extents: VecDeque<Extent>,
    /// By ticket; `None` is a free ticket. Empty once final.
    pub(crate) readers: Vec<Option<Reader>>,
    /// The fill waits here for readers to move on, if it keeps only a window of the body.
    pub(crate) writer: Option<Waker>,
    /// Whether there ever was a reader.
    pub(crate) was_read: bool,
    /// The announced length.
    pub(crate) length: Option<u64>,
    /// The object whose body this one shares; the extents are that one's then, and count there.
    pub(crate) owner: Option<Arc<Object>>,
    /// The plan of the body ([`crate::Fill::set_plan`]).
    pub(crate) plan: Option<Box<[u8]>>,
}

impl Rest {
    pub(crate) fn size(&self) -> u64 {
        let plan = self.plan.as_ref().map_or(0, |plan| plan.len() as u64);
        let extents = self.extents.iter().filter(|_| self.owner.is_none());
        extents.map(Extent::size).sum::<u64>() + plan
    }

    /// Where the slowest reader stands that is waited for; `None` if there is none.
    pub(crate) fn slowest(&self) -> Option<u64> {
        self.readers.iter().flatten().filter(|reader| !reader.left_behind).map(|reader| reader.at).min()
    }

    /// Takes in a reader and returns its ticket.
    pub(crate) fn enter(&mut self, at: u64) -> u32 {
        self.was_read = true;
        let free = self.readers.iter().position(Option::is_none).unwrap_or_else(|| {
            self.readers.push(None);
            self.readers.len() - 1
        });
        self.readers[free] = Some(Reader { at, waker: None, left_behind: false });
        free as u32
    }

    fn take_wakers(&mut self) -> Wakers {
        let mut wakers = Wakers::default();
        self.readers
            .iter_mut()
            .flatten()
            .filter_map(|reader| reader.waker.take())
            .for_each(|waker| wakers.add(waker));
        wakers
    }
}

/// Wakers to be called after the lock is let go; no allocation for one.
#[derive(Default)]
struct Wakers {
    first: Option<Waker>,
    more: Vec<Waker>,
}

impl Wakers {
    fn add(&mut self, waker: Waker) {
        match self.first {
            None => self.first = Some(waker),
            Some(_) => self.more.push(waker),
        }
    }

    fn wake(self) {
        self.first.into_iter().chain(self.more).for_each(Waker::wake);
    }
}

// SAFETY: `rest` is the one part that is not `Sync` by itself; the table in the module tells who touches it when.
unsafe impl Sync for Object {}

impl Object {
    /// Where it stands.
    #[inline]
    pub fn state(&self) -> State {
        match self.state.load(Ordering::Acquire) & !WINDOW_BIT {
            0 => State::Filling,
            1 => State::Stored,
            _ => State::Failed,
        }
    }

    /// Why a body that failed has no end.
    pub(crate) fn cut(&self) -> Cut {
        let is_damaged = self.state.load(Ordering::Acquire) & DAMAGED_BIT != 0;
        if is_damaged { Cut::Damaged } else { Cut::Failed }
    }

    /// Whether only a window of the body is kept, as it outgrew the store.
    pub fn is_windowed(&self) -> bool {
        self.state.load(Ordering::Acquire) & WINDOW_BIT != 0
    }

    /// The body's length: known from the start, or once stored. `None` if the fill failed.
    pub fn length(&self) -> Option<u64> {
        match self.state() {
            State::Stored => Some(self.filled()),
            State::Failed => None,
            // Finished since then: it is as the state says now.
            State::Filling => match self.with_rest(|rest| rest.length) {
                Some(length) if self.state() == State::Filling => length,
                _ => (self.state() == State::Stored).then(|| self.filled()),
            },
        }
    }

    /// Body bytes that can be read now.
    #[inline]
    pub fn filled(&self) -> u64 {
        self.filled.load(Ordering::Acquire)
    }

    /// Bytes of payload memory it holds, head included. A body that it shares is another's.
    pub fn memory_size(&self) -> u64 {
        let _guard = self.lock.lock();
        self.size_locked()
    }

    /// Ends its life in memory as far as new requests are concerned: it counts no longer as stored, and leaves the eviction
    /// order. True for the first who does. The caller takes it out of the index, and ends its entry, if it has one.
    pub fn unlink(&self) -> bool {
        let owner = {
            // Under the lock, so that no extent is added between the sum and the mark.
            let _guard = self.lock.lock();
            if !self.mark_gone() {
                return false;
            }
            if !self.is_lent() {
                self.space.unlinked(self.size_locked());
            }
            // SAFETY: under the lock nobody writes `rest`.
            let rest = unsafe { &*self.rest.get() };
            rest.as_ref().and_then(|rest| rest.owner.clone())
        };
        if let Some(owner) = owner {
            owner.take_back();
        }
        self.space.leave_order(self);
        true
    }

    /// The caller holds the lock, or nobody else has the object.
    pub(crate) fn size_locked(&self) -> u64 {
        // SAFETY: under the lock nobody writes `rest`.
        let rest = unsafe { &*self.rest.get() };
        crate::memory::OBJECT_BYTES + self.first.size() as u64 + rest.as_ref().map_or(0, |rest| rest.size())
    }

    /// Calls `act` with the changing part under the lock, if it still changes.
    pub(crate) fn with_rest<R>(&self, act: impl FnOnce(&mut Rest) -> R) -> Option<R> {
        let _guard = self.lock.lock();
        let state = self.state.load(Ordering::Relaxed);
        if state != State::Filling as u8 && state & WINDOW_BIT == 0 {
            return None;
        }
        // SAFETY: under the lock, and in a state in which nobody looks at it without (the table in the module).
        let rest = unsafe { &mut *self.rest.get() };
        rest.as_deref_mut().map(act)
    }

    /// The object whose body this one shares.
    pub fn body_owner(&self) -> Option<&Arc<Self>> {
        let state = self.state.load(Ordering::Acquire);
        if state == State::Filling as u8 || state & WINDOW_BIT != 0 {
            return None;
        }
        // SAFETY: in this state it is never written again (the table in the module).
        let rest = unsafe { &*self.rest.get() };
        rest.as_deref().and_then(|rest| rest.owner.as_ref())
    }

    /// The extents of a body that is final and whole. `None` also if it has none.
    #[inline]
    pub(crate) fn sealed(&self) -> Option<&VecDeque<Extent>> {
        let state = self.state.load(Ordering::Acquire);
        if state == State::Filling as u8 || state & WINDOW_BIT != 0 {
            return None;
        }
        // SAFETY: in this state it is never written again (the table in the module).
        let rest = unsafe { &*self.rest.get() };
        rest.as_deref().map(|rest| &rest.extents)
    }

    /// The plan of the body ([`crate::Fill::set_plan`]); there once the object is stored.
    #[inline]
    pub fn plan(&self) -> Option<&[u8]> {
        let state = self.state.load(Ordering::Acquire);
        if state == State::Filling as u8 || state & WINDOW_BIT != 0 {
            return None;
        }
        // SAFETY: in this state it is never written again (the table in the module).
        let rest = unsafe { &*self.rest.get() };
        let rest = rest.as_deref()?;
        rest.plan.as_deref().or_else(|| rest.owner.as_ref()?.plan())
    }

    /// How many body bytes the first block can hold.
    pub(crate) fn first_capacity(&self) -> u64 {
        self.first.body_capacity()
    }

    /// Room in the first block after `filled` body bytes.
    ///
    /// # Safety
    /// The caller is the one writer and `filled` is the current mark.
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn first_room(&self, filled: u64) -> &mut [u8] {
        // SAFETY: passed on to the caller.
        unsafe { self.first.body_room(filled) }
    }

    /// Body bytes `from..to` of the first block.
    ///
    /// # Panics
    /// If `to` is above the mark or the block's end.
    pub(crate) fn first_bytes(&self, from: u64, to: u64) -> &[u8] {
        assert!(to <= self.filled(), "reading above the fill mark");
        // SAFETY: by the assertion, an Acquire load.
        unsafe { self.first.body(from, to) }
    }

    /// Bytes `from..to` of the body, which lie in `extent`, one of this object's.
    ///
    /// # Panics
    /// If `to` is above the mark, or the range outside the extent.
    pub(crate) fn extent_bytes<'extent>(&self, extent: &'extent Extent, from: u64, to: u64) -> &'extent [u8] {
        assert!(to <= self.filled() && extent.offset <= from, "reading outside of what is filled");
        // SAFETY: by the assertion, an Acquire load of the mark that counts for this extent.
        unsafe { extent.block.read((from - extent.offset) as usize, (to - extent.offset) as usize) }
    }

    /// Moves the mark to `filled` and wakes the readers that wait. Called by the one writer.
    pub(crate) fn publish(&self, filled: u64) {
        self.filled.store(filled, Ordering::Release);
        if let Some(wakers) = self.with_rest(Rest::take_wakers) {
            wakers.wake();
        }
    }

    /// As [`Object::begin_window`], of an object that never counted as stored. Nobody else has it yet.
    pub(crate) fn begin_apart(&self) {
        self.mark_gone();
        self.state.fetch_or(WINDOW_BIT, Ordering::Release);
    }

    /// From now on only a window of the body is kept. Called by the one writer.
    pub(crate) fn begin_window(&self) {
        self.unlink();
        let _guard = self.lock.lock();
        self.state.fetch_or(WINDOW_BIT, Ordering::Release);
    }

    /// Ends the fill: the extents are final now, of the last one what `tail` says; those of a windowed body
    /// are left to the readers that still hold the object. Returns by how much memory shrank. Called by the one writer.
    pub(crate) fn finish(&self, end: End, tail: Tail) -> u64 {
        let mut shrunk = 0;
        let wakers = {
            let _guard = self.lock.lock();
            // SAFETY: under the lock, in the state `Filling`.
            let slot = unsafe { &mut *self.rest.get() };
            let windowed = self.state.load(Ordering::Relaxed) & WINDOW_BIT != 0;
            let wakers = slot.as_mut().map(|rest| rest.take_wakers());
            if !windowed {
                shrunk = seal(slot, tail);
                // In the same hold of the lock as the change of size: whoever unlinks sees both or neither.
                self.space.shrunk(shrunk, self.is_gone());
            }
            self.state.fetch_or(end as u8, Ordering::Release);
            wakers
        };
        if let Some(wakers) = wakers {
            wakers.wake();
        }
        shrunk
    }
}

/// Leaves only what readers of a complete body need, and returns by how much its memory shrank.
fn seal(slot: &mut Option<Box<Rest>>, tail: Tail) -> u64 {
    let Some(rest) = slot else { return 0 };
    let before = rest.size();
    match tail {
        Tail::Whole => {}
        Tail::Copied(extent) => {
            rest.extents.pop_back();
            if extent.size() > 0 {
                rest.extents.push_back(extent);
            }
        }
        Tail::Cut(0) => _ = rest.extents.pop_back(),
        Tail::Cut(kept) => {
            if let Some(last) = rest.extents.back() {
                last.block.cut(kept);
            }
        }
    }
    let shrunk = before - rest.size();
    let mut extents = std::mem::take(&mut rest.extents);
    extents.shrink_to_fit();
    let (owner, plan) = (rest.owner.take(), rest.plan.take());
    let is_needed = !extents.is_empty() || plan.is_some();
    *slot = is_needed.then(|| Box::new(Rest { extents, owner, plan, ..Rest::default() }));
    shrunk
}

impl Drop for Object {
    fn drop(&mut self) {
        let is_gone = self.is_gone();
        if let Some(owner) = self.rest.get_mut().as_ref().and_then(|rest| rest.owner.as_ref())
            && !is_gone
        {
            owner.take_back();
        }
        self.space.give_back(self.size_locked(), is_gone);
    }
}
