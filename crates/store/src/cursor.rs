//! Reading a range of an object, also while it is being filled.

use crate::body::Extent;
use crate::mapped::Copied;
use crate::object::{Object, State};
use std::collections::VecDeque;
use std::fmt;
use std::io::IoSlice;
use std::task::{Context, Poll};

/// Why the rest of a body will never come: what was delivered is not the whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// Its fill ended early.
    Failed,
    /// What is wanted next has passed the window of a body that outgrew its store.
    Gone,
    /// A device does not give what was written to it.
    Damaged,
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Failed => "its fetch failed",
            Self::Gone => "the reader was left behind by a body that outgrew its store",
            Self::Damaged => "a device does not give what was written to it",
        })
    }
}

/// A reader's place in one object. Every call must name the object that the cursor was made for, and the last must be
/// [`Cursor::close`]: the writer of a windowed body waits for readers that have not left.
#[derive(Debug)]
pub struct Cursor {
    pub(crate) at: u64,
    /// The first byte that is not wanted; `u64::MAX` for all.
    pub(crate) end: u64,
    /// The extent under `at`, while the object's extents are not final.
    pub(crate) current: Option<Extent>,
    /// The place in the object's list of readers, if it was filling.
    ticket: Option<u32>,
    /// Why nothing more comes.
    cut: Option<Cut>,
    /// What it gives of a file is for system calls alone.
    pub(crate) for_kernel: bool,
    /// The bytes that were read from a file last.
    pub(crate) copied: Option<Box<Copied>>,
}

impl Cursor {
    /// A reader of the bytes `from..end`; an `end` of `u64::MAX` is the body's end.
    ///
    /// If the object keeps only a window of its body and that has moved on, [`Cursor::poll_ready`] answers [`Cut::Gone`] at once,
    /// before any byte.
    pub fn new(object: &Object, from: u64, end: u64) -> Self {
        let mut cursor =
            Self { at: from, end, current: None, ticket: None, cut: None, for_kernel: false, copied: None };
        if from >= end || (object.state() != State::Filling && !object.is_windowed()) {
            return cursor;
        }
        let writer = object.with_rest(|rest| {
            let needed = from.max(object.first_capacity());
            let is_late = object.is_windowed()
                && needed < end
                && rest.extents.front().is_some_and(|extent| extent.offset > needed);
            cursor.cut = is_late.then_some(Cut::Gone);
            if is_late || object.state() != State::Filling {
                return None;
            }
            cursor.ticket = Some(rest.enter(from));
            rest.writer.take()
        });
        if let Some(writer) = writer.flatten() {
            writer.wake();
        }
        cursor
    }

    /// Why the rest will never come, once [`Cursor::poll_ready`] has said that it will not.
    pub fn cut(&self) -> Option<Cut> {
        self.cut
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
            if let Some(cut) = self.cut {
                return Poll::Ready(Err(cut));
            }
            // The state before the mark: a mark loaded after `Stored` was seen is the last one.
            let state = object.state();
            if object.filled() > self.at {
                let mut found = self.find_extent(object);
                if object.is_in_file() {
                    found = found.and_then(|()| self.load(object));
                }
                self.cut = found.err();
                return Poll::Ready(found.map(|()| true));
            }
            match state {
                State::Stored => return Poll::Ready(Ok(false)),
                State::Failed => self.cut = Some(object.cut()),
                State::Filling if self.leave_waker(object, context) => return Poll::Pending,
                State::Filling => {}
            }
        }
    }

    /// Leaves a waker with the object; false if there is something new to look at instead.
    fn leave_waker(&mut self, object: &Object, context: &mut Context<'_>) -> bool {
        let at = self.at;
        let left = object.with_rest(|rest| {
            // Looked at again under the lock: the writer publishes before it takes the lock to wake.
            if object.state() != State::Filling || object.filled() > at {
                return false;
            }
            let ticket = *self.ticket.get_or_insert_with(|| rest.enter(at));
            if let Some(reader) = &mut rest.readers[ticket as usize] {
                match &mut reader.waker {
                    Some(waker) => waker.clone_from(context.waker()),
                    None => reader.waker = Some(context.waker().clone()),
                }
            }
            true
        });
        left == Some(true)
    }

    /// Appends what can be read now, at most `max` pieces, in order.
    pub fn slices<'object>(
        &'object self,
        object: &'object Object,
        max: usize,
        out: &mut Vec<IoSlice<'object>>,
    ) {
        if object.is_in_file() && self.copied_slices(object, out) {
            return;
        }
        let limit = object.filled().min(self.end);
        let first = object.first_capacity().min(limit);
        let most = out.len().saturating_add(max);
        let mut at = self.at;
        if at < first && out.len() < most {
            out.push(IoSlice::new(object.first_bytes(at, first)));
            at = first;
        }
        if at >= limit {
            return;
        }
        match object.sealed() {
            Some(extents) => push_all(object, extents, at, limit, most, out),
            None => {
                if let Some(extent) = &self.current
                    && (extent.offset..extent.end()).contains(&at)
                    && out.len() < most
                {
                    push(object, extent, at, limit, out);
                }
            }
        }
    }

    /// Moves on by `bytes`.
    pub fn consume(&mut self, object: &Object, bytes: u64) {
        self.at = self.at.saturating_add(bytes);
        if self.current.as_ref().is_some_and(|extent| extent.end() <= self.at) {
            self.current = None;
        }
        if self.at >= self.end {
            self.close(object);
        } else {
            self.report(object, Some(self.at));
        }
    }

    /// Goes on with the bytes `from..end`, which lie behind what was wanted until now, without leaving in between: a writer
    /// that keeps a window for this reader keeps it.
    pub fn move_to(&mut self, object: &Object, from: u64, end: u64) {
        debug_assert!(self.at <= from && from < end, "a reader that goes back is a new one");
        (self.at, self.end) = (from, end);
        if self.current.as_ref().is_some_and(|extent| extent.end() <= from) {
            self.current = None;
        }
        self.report(object, Some(from));
    }

    /// Leaves the object; a writer that waits for this reader goes on.
    pub fn close(&mut self, object: &Object) {
        self.current = None;
        self.copied = None;
        self.report(object, None);
        self.ticket = None;
    }

    /// Tells the writer where this reader stands, or that it left.
    fn report(&mut self, object: &Object, position: Option<u64>) {
        let Some(ticket) = self.ticket else { return };
        let writer = object.with_rest(|rest| {
            let place = &mut rest.readers[ticket as usize];
            match (position, place.as_mut()) {
                (Some(at), Some(reader)) => reader.at = at,
                _ => *place = None,
            }
            rest.writer.take()
        });
        match writer {
            // The object is final: there is no list of readers any more.
            None => self.ticket = None,
            Some(Some(writer)) => writer.wake(),
            Some(None) => {}
        }
    }

    /// Makes sure that `current` covers `at`, where the bytes are in an extent that is not final.
    fn find_extent(&mut self, object: &Object) -> Result<(), Cut> {
        if self.at < object.first_capacity() || self.current.is_some() || object.sealed().is_some() {
            return Ok(());
        }
        let at = self.at;
        let found = object.with_rest(|rest| {
            let index = rest.extents.partition_point(|extent| extent.end() <= at);
            rest.extents.get(index).filter(|extent| extent.offset <= at).cloned()
        });
        self.current = found.flatten();
        // Not found because it became final just now is as good.
        if self.current.is_some() || object.sealed().is_some() { Ok(()) } else { Err(Cut::Gone) }
    }
}

/// Appends the bytes `from..end` of a body that is stored whole, at most `max` pieces, in order: for a reader that looks at
/// several places at once and needs no cursor. Of a body that is not final or lies in a file, only what lies in the object's
/// first block.
pub fn stored_slices<'object>(
    object: &'object Object,
    from: u64,
    end: u64,
    max: usize,
    out: &mut Vec<IoSlice<'object>>,
) {
    let limit = object.filled().min(end);
    let first = object.first_capacity().min(limit);
    let most = out.len().saturating_add(max);
    let mut at = from;
    if at < first && out.len() < most {
        out.push(IoSlice::new(object.first_bytes(at, first)));
        at = first;
    }
    if at < limit
        && !object.is_in_file()
        && let Some(extents) = object.sealed()
    {
        push_all(object, extents, at, limit, most, out);
    }
}

/// Appends the bytes of `extents` from `at` to `limit`, until there are `most` pieces.
#[inline]
fn push_all<'object>(
    object: &Object,
    extents: &'object VecDeque<Extent>,
    mut at: u64,
    limit: u64,
    most: usize,
    out: &mut Vec<IoSlice<'object>>,
) {
    let index = extents.partition_point(|extent| extent.end() <= at);
    for extent in extents.range(index..) {
        if at >= limit || out.len() >= most {
            break;
        }
        at = push(object, extent, at, limit, out);
    }
}

/// Appends the bytes of `extent` from `at` to `limit` and returns where they end.
fn push<'object>(
    object: &Object,
    extent: &'object Extent,
    at: u64,
    limit: u64,
    out: &mut Vec<IoSlice<'object>>,
) -> u64 {
    let end = extent.end().min(limit);
    out.push(IoSlice::new(object.extent_bytes(extent, at, end)));
    end
}
