//! The channel of segments from a job to its reader. Both run on one thread.
//!
//! ```text
//! job     next ........ end        the segments that it has yet to store
//!         pushes each segment as it begins it; the queue holds it, so that it is not evicted before it was read
//! reader  at                       the segment that it is in; the job is never far ahead of it
//!         left                     the reader is gone: the job ends with the segment it is in
//! ```

use crate::fetch::state::Refusal;
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
    /// It stored its segments, but for those that others store.
    Done,
    /// The origin has another version.
    Changed,
    /// There was no answer, or no usable one.
    Failed,
    /// The answer broke off.
    Broken,
}

/// The state that both ends share; the job has this, the reader a [`JobHandle`].
#[derive(Debug)]
pub(crate) struct Channel {
    next: Cell<u64>,
    end: Cell<u64>,
    at: Cell<u64>,
    left: Cell<bool>,
    ended: Cell<Option<End>>,
    segments: RefCell<VecDeque<(u64, Arc<Object>)>>,
    /// What came in place of segments.
    refusal: RefCell<Option<Box<Refusal>>>,
    job: RefCell<Option<Waker>>,
    reader: RefCell<Option<Waker>>,
}

impl Channel {
    /// A channel for the segments `next..end`.
    pub(crate) fn new(next: u64, end: u64) -> Rc<Self> {
        Rc::new(Self {
            next: Cell::new(next),
            end: Cell::new(end),
            at: Cell::new(next),
            left: Cell::new(false),
            ended: Cell::new(None),
            segments: RefCell::default(),
            refusal: RefCell::default(),
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

    /// The job stops at segment `end`, which is not its to store.
    pub(crate) fn shorten(&self, end: u64) {
        self.end.set(end.min(self.end.get()));
        Self::wake(&self.reader);
    }

    /// The job is over, and `refusal` came in place of its segments.
    pub(crate) fn refuse(&self, refusal: Box<Refusal>) {
        if !self.left.get() {
            *self.refusal.borrow_mut() = Some(refusal);
        }
        self.finish(End::Failed);
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

/// The reader's end of the channel. Once it is dropped, the job ends with the segment it is in.
#[derive(Debug)]
pub(crate) struct JobHandle(Rc<Channel>);

/// The answer to [`JobHandle::poll`].
#[derive(Debug)]
pub(crate) enum Offer {
    /// The segment.
    Segment(Arc<Object>),
    /// The segment will come, or the job will end. After [`JobHandle::stop`] only the end.
    Later,
    /// The job does not bring it; with how the job ended, if it has.
    Nothing(Option<End>),
}

impl JobHandle {
    pub(crate) fn new(channel: &Rc<Channel>) -> Self {
        Self(Rc::clone(channel))
    }

    /// Whether the job is to bring segment `number`, or has brought it and it was not taken yet.
    pub(crate) fn covers(&self, number: u64) -> bool {
        let channel = &self.0;
        let runs = channel.ended.get().is_none() && !channel.left.get();
        let coming = runs && (channel.next.get()..channel.end.get()).contains(&number);
        coming || channel.segments.borrow().iter().any(|(other, _)| *other == number)
    }

    /// Whether segment `number` is among those that the reader has not passed and the job was to bring.
    pub(crate) fn was_for(&self, number: u64) -> bool {
        (self.0.at.get()..self.0.end.get()).contains(&number)
    }

    /// What came in place of segments, if something did.
    pub(crate) fn take_refusal(&self) -> Option<Box<Refusal>> {
        self.0.refusal.borrow_mut().take()
    }

    /// The first segment that the reader has not passed.
    pub(crate) fn from(&self) -> u64 {
        self.0.at.get()
    }

    /// The segment behind the last one that it brings.
    pub(crate) fn end(&self) -> u64 {
        self.0.end.get()
    }

    /// Has the job end with the segment it is in. The reader takes nothing more from it, and can still wait for its end.
    pub(crate) fn stop(&self) {
        let channel = &self.0;
        channel.left.set(true);
        channel.segments.borrow_mut().clear();
        channel.refusal.borrow_mut().take();
        Channel::wake(&channel.job);
    }

    /// Whether the job has ended and nothing is left to take.
    pub(crate) fn is_over(&self) -> bool {
        self.0.ended.get().is_some() && self.0.segments.borrow().is_empty()
    }

    /// Whether the job runs.
    pub(crate) fn runs(&self) -> bool {
        self.0.ended.get().is_none()
    }

    /// Waits until segment `number` begins to arrive (`None`), or the job has ended without it.
    pub(crate) fn poll_begun(&self, number: u64, context: &Context<'_>) -> Poll<Option<End>> {
        let channel = &self.0;
        if channel.next.get() > number {
            return Poll::Ready(None);
        }
        if let Some(end) = channel.ended.get() {
            return Poll::Ready(Some(end));
        }
        *channel.reader.borrow_mut() = Some(context.waker().clone());
        Poll::Pending
    }

    /// The reader has come to segment `number`: those before it are released, and the job may go on.
    pub(crate) fn advance(&self, number: u64) {
        let channel = &self.0;
        let is_of_it = number < channel.end.get() && number >= channel.at.get();
        if is_of_it {
            channel.at.set(number);
            channel.segments.borrow_mut().retain(|(other, _)| *other >= number);
            Channel::wake(&channel.job);
        }
    }

    /// Asks for segment `number`. The reader is woken when it comes or the job ends.
    pub(crate) fn poll(&self, number: u64, context: &Context<'_>) -> Offer {
        let channel = &self.0;
        let mut segments = channel.segments.borrow_mut();
        if let Some(place) = segments.iter().position(|(other, _)| *other == number)
            && let Some((_, object)) = segments.remove(place)
        {
            return Offer::Segment(object);
        }
        drop(segments);
        if let Some(end) = channel.ended.get() {
            return Offer::Nothing(Some(end));
        }
        if channel.left.get() || (channel.next.get()..channel.end.get()).contains(&number) {
            *channel.reader.borrow_mut() = Some(context.waker().clone());
            return Offer::Later;
        }
        Offer::Nothing(None)
    }
}

impl Drop for JobHandle {
    fn drop(&mut self) {
        self.stop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future as _;
    use std::pin::pin;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;
    use store::{Attributes, Creation, Engine, Evictions, Flags, Memory};

    struct Nobody;

    impl Evictions for Nobody {
        fn evicted(&self, _: &Arc<Object>) {}
    }

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn object() -> Arc<Object> {
        let attributes = Attributes {
            origin_time: 0.0,
            ttl: 1.0,
            grace: 0.0,
            keep: 0.0,
            status: 206,
            flags: Flags(Flags::SPARSE),
            ban: 0,
            vxid: 1,
        };
        let memory = Memory::new("s0", None, Arc::new(Nobody));
        let creation = Creation { key: [0; 32], attributes, variant: b"", head: b"", length: Some(0) };
        let fill = memory.begin(&creation).expect("there is room");
        Arc::clone(fill.object())
    }

    /// `S`: a segment, `L`: later, `N`: nothing, `E`: nothing any more.
    fn ask(handle: &JobHandle, number: u64, waker: &Waker) -> char {
        match handle.poll(number, &Context::from_waker(waker)) {
            Offer::Segment(_) => 'S',
            Offer::Later => 'L',
            Offer::Nothing(None) => 'N',
            Offer::Nothing(Some(_)) => 'E',
        }
    }

    #[test]
    fn what_is_brought_is_taken_once() {
        let count = Arc::new(Count::default());
        let waker = Waker::from(Arc::clone(&count));
        let channel = Channel::new(3, 6);
        let handle = JobHandle::new(&channel);
        assert_eq!([2, 3, 5, 6].map(|number| ask(&handle, number, &waker)), ['N', 'L', 'L', 'N']);
        channel.push(3, object());
        assert_eq!(count.0.load(Ordering::Relaxed), 1, "the reader hears of it");
        assert!(handle.covers(3) && handle.covers(5) && !handle.covers(6));
        assert_eq!([3, 3, 4].map(|number| ask(&handle, number, &waker)), ['S', 'N', 'L']);
        channel.push(4, object());
        channel.shorten(5);
        assert_eq!([5, 4].map(|number| ask(&handle, number, &waker)), ['N', 'S']);
        channel.finish(End::Done);
        channel.finish(End::Failed);
        assert!(handle.is_over() && !handle.runs());
        assert!(matches!(handle.poll(5, &Context::from_waker(&waker)), Offer::Nothing(Some(End::Done))));
    }

    #[test]
    fn what_begins_is_told_and_not_taken() {
        let count = Arc::new(Count::default());
        let waker = Waker::from(Arc::clone(&count));
        let begun = |handle: &JobHandle, number| handle.poll_begun(number, &Context::from_waker(&waker));
        let channel = Channel::new(3, 6);
        let handle = JobHandle::new(&channel);
        assert_eq!(begun(&handle, 3), Poll::Pending);
        channel.push(3, object());
        assert_eq!(count.0.load(Ordering::Relaxed), 1, "the reader hears of it");
        assert_eq!([begun(&handle, 3), begun(&handle, 4)], [Poll::Ready(None), Poll::Pending]);
        channel.finish(End::Changed);
        assert_eq!(
            [begun(&handle, 3), begun(&handle, 4)],
            [Poll::Ready(None), Poll::Ready(Some(End::Changed))]
        );
        assert_eq!(ask(&handle, 3, &waker), 'S', "it is still to be had");
    }

    #[test]
    fn what_is_stopped_is_waited_for_and_brings_nothing() {
        let count = Arc::new(Count::default());
        let waker = Waker::from(Arc::clone(&count));
        let channel = Channel::new(3, 6);
        let handle = JobHandle::new(&channel);
        channel.push(3, object());
        handle.stop();
        assert!(channel.is_left() && handle.runs() && !handle.covers(3) && !handle.covers(4));
        assert_eq!([3, 4, 9].map(|number| ask(&handle, number, &waker)), ['L', 'L', 'L']);
        channel.finish(End::Done);
        assert_eq!(count.0.load(Ordering::Relaxed), 1, "the reader hears of its end");
        assert!(handle.is_over());
        assert_eq!(ask(&handle, 4, &waker), 'E');
    }

    #[test]
    fn the_job_waits_for_its_reader_and_hears_when_it_leaves() {
        let channel = Channel::new(0, 100);
        let handle = JobHandle::new(&channel);
        let mut context = Context::from_waker(Waker::noop());
        {
            let mut reached = pin!(channel.reached(7));
            assert!(reached.as_mut().poll(&mut context).is_pending());
            channel.push(0, object());
            handle.advance(6);
            assert!(!handle.covers(0), "what was passed is let go");
            assert!(reached.as_mut().poll(&mut context).is_pending());
            handle.advance(200);
            assert_eq!(channel.reader_at(), 6, "the job does not bring that segment");
            handle.advance(7);
            assert!(reached.as_mut().poll(&mut context).is_ready());
        }
        let mut reached = pin!(channel.reached(50));
        assert!(reached.as_mut().poll(&mut context).is_pending());
        drop(handle);
        assert!(channel.is_left() && reached.as_mut().poll(&mut context).is_ready());
        channel.push(7, object());
        assert!(channel.segments.borrow().is_empty(), "nobody would take it");
    }
}
