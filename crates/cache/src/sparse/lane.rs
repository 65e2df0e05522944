//! What a job and its reader, both of one thread, know of each other.
//!
//! ```text
//! job     next ........ end        segments it has yet to bring
//!         pushes each segment as it begins it (the reader keeps hold of it: it is not evicted before it was read)
//! reader  at                       where it stands; the job is never far ahead
//!         left                     the job ends with the segment it is in
//! ```

use copal_store as store;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use store::Object;

/// How a job ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// It brought what it was to bring, or what others did not.
    Done,
    /// The origin has another version.
    Changed,
    /// No answer, or none that is of use.
    Failed,
    /// The answer broke off.
    Broken,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Lane {
    next: Cell<u64>,
    end: Cell<u64>,
    at: Cell<u64>,
    left: Cell<bool>,
    ended: Cell<Option<End>>,
    segments: RefCell<VecDeque<(u64, Arc<Object>)>>,
    job: RefCell<Option<Waker>>,
    reader: RefCell<Option<Waker>>,
}

impl Lane {
    /// A lane for the segments `next..end`.
    pub(crate) fn new(next: u64, end: u64) -> Rc<Self> {
        Rc::new(Self {
            next: Cell::new(next),
            end: Cell::new(end),
            at: Cell::new(next),
            left: Cell::new(false),
            ended: Cell::new(None),
            segments: RefCell::default(),
            job: RefCell::default(),
            reader: RefCell::default(),
        })
    }

    fn wake(slot: &RefCell<Option<Waker>>) {
        let waker = slot.borrow_mut().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// The job begins segment `number`.
    pub(crate) fn push(&self, number: u64, object: Arc<Object>) {
        self.next.set(number + 1);
        if !self.left.get() {
            self.segments.borrow_mut().push_back((number, object));
        }
        Self::wake(&self.reader);
    }

    /// The job goes no further than to the beginning of segment `end`.
    pub(crate) fn shorten(&self, end: u64) {
        self.end.set(end.min(self.end.get()));
        Self::wake(&self.reader);
    }

    /// The job is over.
    pub(crate) fn finish(&self, end: End) {
        if self.ended.get().is_none() {
            self.ended.set(Some(end));
        }
        Self::wake(&self.reader);
    }

    /// Whether the reader is gone.
    pub(crate) fn is_left(&self) -> bool {
        self.left.get()
    }

    /// The segment at which the reader stands.
    pub(crate) fn reader_at(&self) -> u64 {
        self.at.get()
    }

    /// Waits until the reader has come to segment `number` or has left.
    pub(crate) async fn reached(&self, number: u64) {
        poll_fn(|context| {
            if self.left.get() || self.at.get() >= number {
                return Poll::Ready(());
            }
            *self.job.borrow_mut() = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

/// The reader's end of a lane; dropped, the job ends with the segment it is in.
#[derive(Debug)]
pub(crate) struct Link(Rc<Lane>);

/// What a lane has of a segment.
#[derive(Debug)]
pub(crate) enum Offer {
    /// Here it is.
    Segment(Arc<Object>),
    /// It will come, or the job will end.
    Later,
    /// Not by this lane; the end, if the job is over.
    Nothing(Option<End>),
}

impl Link {
    pub(crate) fn new(lane: &Rc<Lane>) -> Self {
        Self(Rc::clone(lane))
    }

    /// Whether the job means to bring segment `number`, or has brought it and nobody took it.
    pub(crate) fn covers(&self, number: u64) -> bool {
        let lane = &self.0;
        let coming = lane.ended.get().is_none() && (lane.next.get()..lane.end.get()).contains(&number);
        coming || lane.segments.borrow().iter().any(|(other, _)| *other == number)
    }

    /// The first segment that was not passed.
    pub(crate) fn from(&self) -> u64 {
        self.0.at.get()
    }

    /// The segment behind the last one that it brings.
    pub(crate) fn end(&self) -> u64 {
        self.0.end.get()
    }

    /// Whether there is nothing more to get from it.
    pub(crate) fn is_over(&self) -> bool {
        self.0.ended.get().is_some() && self.0.segments.borrow().is_empty()
    }

    /// Whether its job runs.
    pub(crate) fn runs(&self) -> bool {
        self.0.ended.get().is_none()
    }

    /// The reader has come to segment `number`: what lies before it is let go, and the job may go on.
    pub(crate) fn advance(&self, number: u64) {
        let lane = &self.0;
        let is_of_it = number < lane.end.get() && number >= lane.at.get();
        if is_of_it {
            lane.at.set(number);
            lane.segments.borrow_mut().retain(|(other, _)| *other >= number);
            Lane::wake(&lane.job);
        }
    }

    /// Asks for segment `number`; the reader is woken when there is news.
    pub(crate) fn poll(&self, number: u64, context: &Context<'_>) -> Offer {
        let lane = &self.0;
        let mut segments = lane.segments.borrow_mut();
        if let Some(place) = segments.iter().position(|(other, _)| *other == number)
            && let Some((_, object)) = segments.remove(place)
        {
            return Offer::Segment(object);
        }
        drop(segments);
        if let Some(end) = lane.ended.get() {
            return Offer::Nothing(Some(end));
        }
        if (lane.next.get()..lane.end.get()).contains(&number) {
            *lane.reader.borrow_mut() = Some(context.waker().clone());
            return Offer::Later;
        }
        Offer::Nothing(None)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.0.left.set(true);
        self.0.segments.borrow_mut().clear();
        Lane::wake(&self.0.job);
    }
}
