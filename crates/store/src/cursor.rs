//! Reading a range of an object, also while it is being filled.

use crate::object::{Extent, Object, State};
use std::io::IoSlice;
use std::task::{Context, Poll};

/// The fill failed, or the bytes are no longer kept: what was delivered is not the whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut;

/// A reader's place in one object. Every call must name the object that the cursor was made for.
#[derive(Debug)]
pub struct Cursor {
    at: u64,
    /// The first byte that is not wanted; `u64::MAX` for all.
    end: u64,
    /// The extent under `at`, while the object is not sealed.
    current: Option<Extent>,
    /// The place in the object's list of readers, while it is filling.
    ticket: Option<usize>,
}

impl Cursor {
    /// A reader of the bytes `from..end`; an `end` of `u64::MAX` is the body's end.
    pub fn new(object: &Object, from: u64, end: u64) -> Self {
        let mut ticket = None;
        if object.state() == State::Filling
            && let Some(filling) = object.filling().as_mut()
        {
            let free = filling.readers.iter().position(Option::is_none);
            let index = free.unwrap_or_else(|| {
                filling.readers.push(None);
                filling.readers.len() - 1
            });
            filling.readers[index] = Some(from);
            ticket = Some(index);
        }
        Self { at: from, end, current: None, ticket }
    }

    /// Where it stands in the body.
    pub fn position(&self) -> u64 {
        self.at
    }

    /// Waits for bytes. `true` if [`Cursor::slices`] has some now, `false` at the end of the range or body.
    ///
    /// # Errors
    /// [`Cut`] if the rest will never come.
    pub fn poll_ready(&mut self, object: &Object, context: &mut Context<'_>) -> Poll<Result<bool, Cut>> {
        loop {
            if self.at >= self.end {
                return Poll::Ready(Ok(false));
            }
            let state = object.state();
            if object.filled() > self.at {
                return Poll::Ready(self.find_extent(object).map(|()| true));
            }
            match state {
                State::Stored => return Poll::Ready(Ok(false)),
                State::Failed => return Poll::Ready(Err(Cut)),
                State::Filling => {}
            }
            let mut slot = object.filling();
            // Looked at again under the lock: the writer publishes before it takes the lock to wake.
            if let Some(filling) = slot.as_mut()
                && object.state() == State::Filling
                && object.filled() <= self.at
            {
                if !filling.wakers.iter().any(|waker| waker.will_wake(context.waker())) {
                    filling.wakers.push(context.waker().clone());
                }
                return Poll::Pending;
            }
        }
    }

    /// Appends what can be read now, at most `max` pieces, in order.
    pub fn slices<'object>(&'object self, object: &'object Object, max: usize, out: &mut Vec<IoSlice<'object>>) {
        let limit = object.filled().min(self.end);
        let mut at = self.at;
        let first = object.first_capacity();
        if at < first.min(limit) {
            let to = first.min(limit);
            out.push(IoSlice::new(object.first_bytes(at, to)));
            at = to;
        }
        match object.sealed() {
            Some(extents) => {
                let index = extents.partition_point(|extent| extent.offset <= at).saturating_sub(1);
                for extent in &extents[index..] {
                    if at >= limit || out.len() >= max {
                        break;
                    }
                    at = push(extent, at, limit, out);
                }
            }
            None => {
                if let Some(extent) = &self.current
                    && extent.offset <= at
                    && at < limit
                {
                    push(extent, at, limit, out);
                }
            }
        }
    }

    /// Moves on by `bytes`.
    pub fn consume(&mut self, object: &Object, bytes: u64) {
        self.at += bytes;
        if self.current.as_ref().is_some_and(|extent| extent.offset + extent.block.size() as u64 <= self.at) {
            self.current = None;
        }
        self.report(object, Some(self.at));
    }

    /// Leaves the object; a writer that waits for this reader goes on.
    pub fn close(&mut self, object: &Object) {
        self.report(object, None);
        self.ticket = None;
    }

    fn report(&self, object: &Object, position: Option<u64>) {
        let Some(ticket) = self.ticket else { return };
        let writer = object.filling().as_mut().and_then(|filling| {
            filling.readers[ticket] = position;
            filling.writer.take()
        });
        if let Some(writer) = writer {
            writer.wake();
        }
    }

    /// Makes sure that `current` covers `at`, where the bytes are in an extent that is not sealed.
    fn find_extent(&mut self, object: &Object) -> Result<(), Cut> {
        if self.at < object.first_capacity() || object.sealed().is_some() || self.current.is_some() {
            return Ok(());
        }
        let slot = object.filling();
        if let Some(filling) = slot.as_ref() {
            let at = self.at;
            self.current = filling
                .extents
                .iter()
                .find(|extent| extent.offset <= at && at < extent.offset + extent.block.size() as u64)
                .cloned();
        }
        drop(slot);
        if self.current.is_some() || object.sealed().is_some() { Ok(()) } else { Err(Cut) }
    }
}

/// Appends the bytes of `extent` from `at` to `limit` and returns where they end.
#[allow(unsafe_code)]
fn push<'object>(extent: &'object Extent, at: u64, limit: u64, out: &mut Vec<IoSlice<'object>>) -> u64 {
    let end = (extent.offset + extent.block.size() as u64).min(limit);
    // SAFETY: `limit` is at most the fill mark, which the caller loaded with Acquire.
    let bytes = unsafe { extent.block.read((at - extent.offset) as usize, (end - extent.offset) as usize) };
    out.push(IoSlice::new(bytes));
    end
}
