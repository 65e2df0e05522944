//! A response's body that is read from segments.
//!
//! ```text
//! ranges   [---- 0 ----)      [-- 1 --)  [2)         in the order in which they go out
//! segments |  3  |  4  |  5  ...
//!                 at ^ open     ^ lookahead          the segments between are stored or being fetched
//! ```
//! A segment is taken from one of the reader's own jobs, else from the index, where others may have stored it or be fetching
//! it; else the reader starts a job for it and the missing ones behind it. The reader looks ahead, across the ends of
//! ranges, and starts jobs for the segments that are missing there, a few at a time.
//!
//! The response's head waits for the first segment and, if one is missing among those looked at, for the origin's answer
//! about the first such: before the first byte we can still send an error status, afterwards we can only abort.
//!
//! A job that breaks off after the first byte is started again, a few times: all segments are of one version, so it does not
//! matter which fetch brings them.

use super::channel::{End, JobHandle, Offer};
use super::job;
use super::limits::{RUN_MAX, jobs_max, lookahead_max};
use super::requester::Requester;
use crate::body::{Aborted, Ready, Source, log_cut};
use crate::fetch::state::Refusal;
use crate::known::Known;
use base::vxid::Vxid;
use catalog::index::cold::Loads;
use catalog::sparse::claim::{Claim, claim, is_there};
use catalog::sparse::layout::{Pieces, segment_key};
use copal_base as base;
use copal_catalog as catalog;
use copal_observe as observe;
use copal_store as store;
use observe::{Records, Tag};
use std::future::{Future as _, poll_fn};
use std::io::IoSlice;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use store::{Cursor, Object, State};
use tokio::time::Sleep;

/// How many pieces of memory are written at once.
const PIECES: usize = 16;

/// How many failures in a row are borne. A segment that breaks off counts twice: once as the end of the job, once as the
/// end of the segment's body.
const FAILURES_MAX: u8 = 4;

/// Pause before the origin is asked again for a segment that it did not send; doubled for each further failure.
const PAUSE: Duration = Duration::from_millis(50);

/// The most links to fetches that one reader logs.
const LINKS_MAX: usize = 1000;

/// The most segments that are looked up to see whether all are stored.
const LOOKUPS_MAX: u64 = 100_000;

/// Why there is no segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The origin has another version now; the object is unlinked.
    Changed,
    /// The origin does not send it.
    Failed,
}

/// A position in the order in which segments go out: a range, and a segment that it touches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Position {
    range: usize,
    number: u64,
}

/// See the module.
pub(crate) struct Reader {
    requester: Requester,
    known: Rc<Known>,
    pieces: Rc<Pieces>,
    /// The most segments that are looked at beyond the one that is read.
    lookahead_max: u64,
    /// Offset of the first byte of each, and of the first byte behind it.
    ranges: Vec<(u64, u64)>,
    range: usize,
    at: u64,
    open: Option<(Arc<Object>, Cursor)>,
    /// The slices go to a system call alone.
    for_kernel: bool,
    /// The segment that was last read, for another range in it.
    last: Option<(u64, Arc<Object>)>,
    jobs: Vec<JobHandle>,
    /// The next position to look at, and how many segments lie between it and the one that is read.
    lookahead: Position,
    lookahead_segments: u64,
    /// Where the reader was when it last looked ahead.
    lookahead_from: Option<Position>,
    waiter: u64,
    /// Its findings about segments on devices.
    loads: Arc<Loads>,
    waits_for: Option<u64>,
    patience: Option<Pin<Box<Sleep>>>,
    impatient: bool,
    failures: u8,
    /// Why the segment that was read last broke off, once no more is tried.
    cut: Option<store::cursor::Cut>,
    /// At least one segment was read.
    begun: bool,
    /// The pause after a failure, before the origin is asked again.
    pause: Option<Pin<Box<Sleep>>>,
    /// The origin has refused: it gets one request at a time, and the reader looks ahead no more.
    one_at_a_time: bool,
    /// The response's head waits for the first segment.
    opening: bool,
    /// The first position at which looking ahead found no stored segment.
    missing: Option<Position>,
    /// One of the segments is arriving, so the origin has just confirmed the version.
    live: bool,
    /// What came in place of the first segment.
    refusal: Option<Box<Refusal>>,
    /// The origin is not asked for what is missing.
    offline: bool,
    links: Vec<Vxid>,
    found: u64,
    fetched: u64,
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader").field("at", &self.at).finish_non_exhaustive()
    }
}

impl Reader {
    /// A reader of `ranges` (first byte, first byte behind; none empty) of `known`, whose body `pieces` describes, in that
    /// order. `handle` is that of a job that brings some of it already.
    pub(crate) fn new(
        requester: Requester,
        known: &Rc<Known>,
        pieces: Rc<Pieces>,
        ranges: Vec<(u64, u64)>,
        handle: Option<JobHandle>,
    ) -> Self {
        let layout = &pieces.layout;
        let at = ranges.first().map_or(0, |range| range.0);
        let waiter = requester.local.waiter_id();
        Self {
            lookahead_max: lookahead_max(ranges.len(), layout.segment, &requester.local.shared.stores),
            known: Rc::clone(known),
            lookahead: Position { range: 0, number: layout.number(at) },
            pieces,
            ranges,
            range: 0,
            at,
            open: None,
            for_kernel: false,
            last: None,
            jobs: handle.into_iter().collect(),
            lookahead_segments: 0,
            lookahead_from: None,
            waiter,
            loads: Arc::new(Loads::of_segments()),
            waits_for: None,
            patience: None,
            impatient: false,
            failures: 0,
            cut: None,
            begun: false,
            pause: None,
            one_at_a_time: false,
            opening: false,
            missing: None,
            live: false,
            refusal: None,
            offline: false,
            links: Vec::new(),
            found: 0,
            fetched: 0,
            requester,
        }
    }

    /// From now on only stored segments are read, and the body aborts where one is missing.
    pub(crate) fn stay_offline(&mut self) {
        self.offline = true;
    }

    /// Whether all segments that it is to read are stored or arriving. False if they are more than are looked up.
    pub(crate) fn is_at_hand(&self) -> bool {
        let (index, layout) = (&self.requester.local.shared.index, &self.pieces.layout);
        let mut left = LOOKUPS_MAX;
        self.ranges.iter().all(|&(from, end)| {
            (layout.number(from)..=layout.number(end.saturating_sub(1))).all(|number| {
                left -= u64::from(left > 0);
                left > 0 && is_there(index, &self.pieces.base, number)
            })
        })
    }

    /// Whether it reads just `ranges` of `known`, and nothing has been read.
    pub(crate) fn is_for(&self, known: &Known, ranges: &[(u64, u64)]) -> bool {
        Arc::ptr_eq(self.known.object(), known.object()) && self.ranges == ranges
    }

    /// Waits until the first segment is stored or begins to arrive, and likewise the first missing one among those looked
    /// at: then the origin has confirmed the version.
    ///
    /// # Errors
    /// Why one of the two will not come.
    pub(crate) async fn open(&mut self) -> Result<(), Stop> {
        if self.ranges.is_empty() {
            return Ok(());
        }
        self.opening = true;
        let opened = self.first().await;
        self.opening = false;
        opened
    }

    async fn first(&mut self) -> Result<(), Stop> {
        let number = self.pieces.layout.number(self.at);
        let object = poll_fn(|context| self.poll_segment(number, context)).await?;
        self.live |= self.fetched > 0 || object.state() == State::Filling;
        // A stored segment does not tell which version the origin has now.
        if !self.live
            && let Some(position) = self.missing
        {
            let confirmed = poll_fn(|context| self.poll_confirmed(position, context)).await;
            self.stop_waiting();
            confirmed?;
        }
        self.enter(number, object);
        Ok(())
    }

    /// Waits until the segment at `position` begins to arrive, by a job of this reader or of another.
    fn poll_confirmed(&mut self, position: Position, context: &mut Context<'_>) -> Poll<Result<(), Stop>> {
        let Position { number, .. } = position;
        loop {
            if let Some(job) = self.jobs.iter().find(|job| job.was_for(number)) {
                match ready!(job.poll_begun(number, context)) {
                    Some(End::Changed | End::Failed) => {}
                    // If it broke off, it is asked for again when it is read.
                    None | Some(End::Done | End::Broken) => return Poll::Ready(Ok(())),
                }
            }
            // `poll_jobs` decides what a failed job means.
            match self.poll_jobs(number, context)? {
                Offer::Segment(_) => return Poll::Ready(Ok(())),
                Offer::Later => return Poll::Pending,
                Offer::Nothing(_) => {}
            }
            let local = &self.requester.local;
            let waiter = Some((self.waiter, context.waker()));
            match claim(
                &local.shared.index,
                &self.pieces.base,
                number,
                local.now(),
                waiter,
                &self.loads,
                false,
            ) {
                Claim::Present(_) | Claim::Loading => return Poll::Ready(Ok(())),
                Claim::Mine(_) if self.known.object().is_gone() => return Poll::Ready(Err(Stop::Changed)),
                Claim::Mine(busy) => self.start(position, busy),
                Claim::Busy => {
                    self.waits_for = Some(number);
                    return if self.waits_in_vain(context) { Poll::Ready(Ok(())) } else { Poll::Pending };
                }
            }
        }
    }

    /// The answer of the origin, or of VCL in its place, because of which [`Reader::open`] failed, if there was one.
    pub(crate) fn take_refusal(&mut self) -> Option<Box<Refusal>> {
        self.refusal.take()
    }

    /// Waits until there are bytes of the present range; `false` at its end.
    pub(crate) fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<bool, Aborted>> {
        loop {
            let Some(&(_, end)) = self.ranges.get(self.range) else { return Poll::Ready(Ok(false)) };
            if self.at >= end {
                return Poll::Ready(Ok(false));
            }
            if let Some((object, cursor)) = &mut self.open {
                let cut = match ready!(cursor.poll_ready(object, context)) {
                    Ok(true) => return Poll::Ready(Ok(true)),
                    Ok(false) => None,
                    Err(cut) => Some(cut),
                };
                // It broke off. The bytes up to here are good.
                self.leave();
                self.last = None;
                self.failures += 1;
                if self.failures > FAILURES_MAX {
                    self.cut = cut;
                    return Poll::Ready(Err(Aborted));
                }
            }
            let number = self.pieces.layout.number(self.at);
            match ready!(self.poll_segment(number, context)) {
                Ok(object) => self.enter(number, object),
                Err(_) => return Poll::Ready(Err(Aborted)),
            }
        }
    }

    /// The bytes that can be read now, if they lie in a segment that is stored in memory: the segment, and from where to
    /// where in it.
    pub(crate) fn at_hand(&self) -> Option<(Arc<Object>, u64, u64)> {
        let (object, cursor) = self.open.as_ref()?;
        let (start, end) = self.pieces.layout.bounds(self.pieces.layout.number(self.at));
        let end = self.ranges.get(self.range)?.1.min(end);
        // The bytes of a window, and of a file, can be read with their cursor only.
        let by_cursor_only = object.is_windowed() || object.is_in_file();
        let is_stored = object.state() == State::Stored && !by_cursor_only && object.filled() >= end - start;
        is_stored.then(|| (Arc::clone(object), cursor.position(), end - start))
    }

    /// How far it looks ahead, in bytes; less than a segment where a store is small.
    pub(crate) fn lookahead_bytes(&self) -> u64 {
        self.lookahead_max.saturating_mul(self.pieces.layout.segment)
    }

    /// Whether the present range was read to its end.
    pub(crate) fn is_range_over(&self) -> bool {
        self.ranges.get(self.range).is_none_or(|range| self.at >= range.1)
    }

    /// Turns to the next range, once the present one is at its end; false if there is none.
    pub(crate) fn next_range(&mut self) -> bool {
        self.leave();
        self.range = (self.range + 1).min(self.ranges.len());
        let Some(&(from, _)) = self.ranges.get(self.range) else { return false };
        self.at = from;
        self.drop_jobs();
        true
    }

    /// Drops the jobs that bring nothing of the ranges that are left. Where the origin gets one request at a time, a running
    /// job is stopped and its end waited for.
    fn drop_jobs(&mut self) {
        let (layout, rest) = (&self.pieces.layout, &self.ranges[self.range..]);
        let touches = |from: u64, end: u64| {
            rest.iter()
                .any(|range| layout.number(range.0) < end && layout.number(range.1.saturating_sub(1)) >= from)
        };
        let one_at_a_time = self.one_at_a_time;
        self.jobs.retain(|job| {
            let is_of_use = touches(job.from(), job.end());
            if one_at_a_time && !is_of_use {
                job.stop();
            }
            is_of_use || one_at_a_time && job.runs()
        });
    }

    /// Whether something was missing, so that the origin was asked.
    pub(crate) fn has_asked(&self) -> bool {
        !self.links.is_empty()
    }

    fn enter(&mut self, number: u64, object: Arc<Object>) {
        let start = self.pieces.layout.bounds(number).0;
        let end = self
            .ranges
            .get(self.range)
            .map_or(self.at, |range| range.1)
            .min(self.pieces.layout.bounds(number).1);
        let mut cursor = Cursor::new(&object, self.at - start, end - start);
        if self.for_kernel {
            cursor.give_to_kernel();
        }
        self.begun = true;
        self.last = Some((number, Arc::clone(&object)));
        self.open = Some((object, cursor));
    }

    fn leave(&mut self) {
        if let Some((object, mut cursor)) = self.open.take() {
            cursor.close(&object);
        }
    }

    fn poll_segment(&mut self, number: u64, context: &mut Context<'_>) -> Poll<Result<Arc<Object>, Stop>> {
        if let Some((last, object)) = &self.last
            && *last == number
            && object.state() != State::Failed
            && !object.is_windowed()
        {
            return Poll::Ready(Ok(Arc::clone(object)));
        }
        let result = self.poll_jobs_and_index(number, context);
        if result.is_pending() {
            self.look_ahead(number);
            return result;
        }
        self.stop_waiting();
        self.look_ahead(number);
        result
    }

    fn poll_jobs_and_index(
        &mut self,
        number: u64,
        context: &mut Context<'_>,
    ) -> Poll<Result<Arc<Object>, Stop>> {
        self.jobs.iter().for_each(|job| job.advance(number));
        loop {
            match self.poll_jobs(number, context)? {
                Offer::Segment(object) => {
                    self.fetched += 1;
                    return Poll::Ready(Ok(object));
                }
                Offer::Later => return Poll::Pending,
                Offer::Nothing(_) => {}
            }
            if let Some(pause) = &mut self.pause {
                ready!(pause.as_mut().poll(context));
                self.pause = None;
            }
            let local = &self.requester.local;
            let waiter = Some((self.waiter, context.waker()));
            let index = &local.shared.index;
            match claim(index, &self.pieces.base, number, local.now(), waiter, &self.loads, self.impatient) {
                Claim::Present(object) => {
                    self.found += 1;
                    self.note_use(&object);
                    return Poll::Ready(Ok(object));
                }
                Claim::Loading => {
                    self.waits_for = Some(number);
                    return Poll::Pending;
                }
                Claim::Mine(_) if self.offline => return Poll::Ready(Err(Stop::Failed)),
                // The object was replaced or purged meanwhile: lookup may find a better one.
                Claim::Mine(_) if self.opening && self.known.object().is_gone() => {
                    return Poll::Ready(Err(Stop::Changed));
                }
                Claim::Mine(busy) => {
                    let range = self.range;
                    self.start(Position { range, number }, busy);
                }
                Claim::Busy => {
                    self.waits_for = Some(number);
                    if self.waits_in_vain(context) {
                        self.impatient = true;
                    } else {
                        return Poll::Pending;
                    }
                }
            }
        }
    }

    /// Asks the reader's jobs for segment `number`, and drops those that have ended.
    fn poll_jobs(&mut self, number: u64, context: &Context<'_>) -> Result<Offer, Stop> {
        let mut index = 0;
        while let Some(job) = self.jobs.get(index) {
            match job.poll(number, context) {
                Offer::Nothing(Some(End::Changed)) => return Err(Stop::Changed),
                Offer::Nothing(Some(end @ (End::Failed | End::Broken))) => {
                    let job = self.jobs.swap_remove(index);
                    // An origin that refuses gets one request at a time from now on.
                    self.one_at_a_time |= end == End::Failed;
                    if !job.was_for(number) {
                        // What could not be had ahead of time may be had once it is read.
                        continue;
                    }
                    let has_one = self.begun || self.found > 0;
                    if has_one && end == End::Failed && self.jobs.iter().any(JobHandle::runs) {
                        // Perhaps the origin refuses because of the requests that run beside this one.
                        self.jobs.iter().for_each(JobHandle::stop);
                        index = 0;
                        continue;
                    }
                    self.failures += 1;
                    let is_hopeless = end == End::Failed && !self.begun;
                    if is_hopeless || self.failures > FAILURES_MAX {
                        self.refusal = job.take_refusal();
                        return Err(Stop::Failed);
                    }
                    if end == End::Failed {
                        self.pause = Some(Box::pin(tokio::time::sleep(PAUSE * (1 << (self.failures - 1)))));
                    }
                }
                Offer::Nothing(Some(End::Done)) if job.is_over() => {
                    self.jobs.swap_remove(index);
                }
                Offer::Nothing(_) => index += 1,
                offer => return Ok(offer),
            }
        }
        Ok(Offer::Nothing(None))
    }

    fn note_use(&self, object: &Object) {
        let settings = &self.requester.current.settings;
        let (now, interval) = (self.requester.local.now() as u32, settings.lru_interval as u32);
        object.note_use(now, interval);
        self.known.note_use(now, interval);
        self.requester.local.counters.segment_hits.inc();
    }

    /// Whether the wait for another request's fetch has reached its limit.
    fn waits_in_vain(&mut self, context: &mut Context<'_>) -> bool {
        let limit = self.requester.current.settings.waiting_list_timeout.clamp(0.001, 86_400.0);
        let sleep =
            self.patience.get_or_insert_with(|| Box::pin(tokio::time::sleep(Duration::from_secs_f64(limit))));
        sleep.as_mut().poll(context).is_ready()
    }

    fn stop_waiting(&mut self) {
        self.patience = None;
        self.impatient = false;
        if let Some(number) = self.waits_for.take() {
            let key = segment_key(&self.pieces.base, number);
            self.requester.local.shared.index.stop_waiting(&key, self.waiter);
        }
    }

    /// Starts a job for the segment at `position` and the wanted ones behind it.
    fn start(&mut self, position: Position, busy: catalog::index::busy::Busy) {
        let stop = self.run_end(position);
        let object = self.known.object();
        let (channel, vxid) =
            job::start(&self.requester, object, &self.pieces, (position.number, stop), busy);
        self.jobs.push(JobHandle::new(&channel));
        if self.links.len() < LINKS_MAX {
            self.links.push(vxid);
        }
    }

    /// The end of the run of wanted segments that begins at `position`. A following range belongs to the run if it begins
    /// in it or next to it.
    fn run_end(&self, position: Position) -> u64 {
        let mut end = position.number + 1;
        for (range, &(from, to)) in self.ranges.iter().enumerate().skip(position.range) {
            let (first, last) =
                (self.pieces.layout.number(from), self.pieces.layout.number(to.saturating_sub(1)));
            let goes_on = range == position.range || (position.number..=end).contains(&first);
            if !goes_on || end - position.number >= RUN_MAX {
                break;
            }
            end = end.max(last.saturating_add(1));
        }
        end
    }

    /// Looks at the segments behind `number`, and starts jobs for those that are missing.
    fn look_ahead(&mut self, number: u64) {
        let here = Position { range: self.range, number };
        if self.lookahead_from == Some(here) || self.offline || self.one_at_a_time {
            return;
        }
        if self.lookahead_from.is_some() {
            self.lookahead_segments = self.lookahead_segments.saturating_sub(1);
        }
        self.lookahead_from = Some(here);
        if self.lookahead <= here {
            self.lookahead_segments = 0;
            self.lookahead = self.after(here, number);
        }
        let most = self.lookahead_max;
        while self.lookahead_segments < most && self.lookahead.range < self.ranges.len() {
            let position = self.lookahead;
            if let Some(job) = self.jobs.iter().find(|job| job.covers(position.number)) {
                self.missing.get_or_insert(position);
                let last = job.end().saturating_sub(1).max(position.number);
                self.lookahead_segments += last - position.number + 1;
                self.lookahead = self.after(position, last);
                continue;
            }
            if self.jobs.iter().filter(|job| job.runs()).count() >= jobs_max(self.ranges.len()) {
                break;
            }
            let local = &self.requester.local;
            match claim(
                &local.shared.index,
                &self.pieces.base,
                position.number,
                local.now(),
                None,
                &self.loads,
                false,
            ) {
                // A device that reads ahead is not the origin.
                Claim::Loading => {}
                Claim::Present(object) => self.live |= object.state() == State::Filling,
                Claim::Busy => {
                    self.missing.get_or_insert(position);
                }
                Claim::Mine(busy) => {
                    self.missing.get_or_insert(position);
                    self.start(position, busy);
                    continue;
                }
            }
            self.lookahead_segments += 1;
            self.lookahead = self.after(position, position.number);
        }
    }

    /// The position behind segment `last` in the range of `position`.
    fn after(&self, position: Position, last: u64) -> Position {
        let in_range = |range: usize| self.ranges.get(range).map(|(from, to)| (*from, to.saturating_sub(1)));
        match in_range(position.range) {
            Some((_, end)) if last < self.pieces.layout.number(end) => {
                Position { range: position.range, number: last + 1 }
            }
            _ => {
                let range = position.range + 1;
                Position {
                    range,
                    number: in_range(range).map_or(0, |(from, _)| self.pieces.layout.number(from)),
                }
            }
        }
    }
}

impl Source for Reader {
    fn ready(&mut self) -> Ready<'_> {
        Box::pin(poll_fn(|context| self.poll_ready(context)))
    }

    fn give_to_kernel(&mut self) -> bool {
        self.for_kernel = true;
        // The first segment tells of the others: they lie in one store, or take turns among few.
        self.open.as_mut().is_some_and(|(object, cursor)| {
            cursor.give_to_kernel();
            object.is_in_file()
        })
    }

    fn report_fault(&self) {
        if let Some((object, cursor)) = &self.open {
            cursor.report_fault(object);
        }
    }

    fn slices<'body>(&'body self, out: &mut Vec<IoSlice<'body>>) {
        if let Some((object, cursor)) = &self.open {
            cursor.slices(object, PIECES, out);
        }
    }

    fn consume(&mut self, count: usize) {
        let Some((object, cursor)) = &mut self.open else { return debug_assert_eq!(count, 0) };
        cursor.consume(object, count as u64);
        self.at += count as u64;
        let number = self.pieces.layout.number(self.at - u64::from(count > 0));
        let end_of_range = self.ranges.get(self.range).map_or(0, |range| range.1);
        if self.at >= self.pieces.layout.bounds(number).1.min(end_of_range) {
            self.failures = 0;
            self.leave();
        }
    }

    fn close(&mut self, records: &mut Records) {
        log_cut(self.cut.take(), records);
        for vxid in self.links.drain(..) {
            records.link(Tag::Link, "bereq", vxid, "segment");
        }
        let (found, fetched) = (std::mem::take(&mut self.found), std::mem::take(&mut self.fetched));
        if found + fetched > 0 {
            let (count, total) = (self.pieces.layout.count(), self.pieces.layout.total);
            records.fmt(
                Tag::Debug,
                format_args!("segments: {found} found, {fetched} fetched, of {count} ({total} bytes)"),
            );
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.leave();
        self.stop_waiting();
    }
}
