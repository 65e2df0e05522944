//! A response's body that is read from segments.
//!
//! ```text
//! ranges   [---- 0 ----)      [-- 1 --)  [2)         in the order in which they go out
//! segments |  3  |  4  |  5  ...
//!                 at ^ open     ^ scout              what lies between is there, or on its way
//! ```
//! A segment is taken from one of the reader's own lanes, else from the index, where others may have stored it or be at it;
//! else the reader starts a job for it and what follows. A scout looks ahead of it, over the ends of ranges, and starts jobs
//! for what is missing there, a few at a time.
//!
//! The response's head waits for its first segment and, should one be missing within sight, for the origin's answer about the
//! first of these: who has no byte yet can be told of another version, a refusal or a dead origin, who reads can only be cut.
//!
//! A job that breaks off once something was sent is begun again, a few times: all bytes are of one version, whoever brings
//! them.

use super::job;
use super::lane::{End, Link, Offer};
use super::site::Site;
use super::{RUN_MAX, lanes_max, sight};
use crate::body::Aborted;
use crate::fetch::Refusal;
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

/// How often in a row a segment may break off. A break is seen twice: by the job's end and by the body's.
const FAILURES_MAX: u8 = 4;

/// Before the origin is asked again for a segment that it did not give, so long is waited the first time, and twice as
/// long each further time.
const PAUSE: Duration = Duration::from_millis(50);

/// How many links to fetches are logged.
const LINKS_MAX: usize = 1000;

/// The most segments that are looked for to see whether all are there.
const LOOKUPS_MAX: u64 = 100_000;

/// Why there is no segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The origin has another version now; the object is unlinked.
    Changed,
    /// The origin does not give it.
    Failed,
}

/// A place in the order in which segments go out: a range, and a segment that it touches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    range: usize,
    number: u64,
}

/// See the module.
pub struct Reader {
    site: Site,
    known: Rc<Known>,
    pieces: Rc<Pieces>,
    /// How many segments are looked at beyond the one that is read.
    ahead: u64,
    /// First byte, and first byte behind.
    ranges: Vec<(u64, u64)>,
    range: usize,
    at: u64,
    open: Option<(Arc<Object>, Cursor)>,
    /// What it gives is for a system call alone.
    for_kernel: bool,
    /// The segment that was last read, for another range in it.
    last: Option<(u64, Arc<Object>)>,
    lanes: Vec<Link>,
    /// The next place to look at, and how many lie between.
    scout: Place,
    scouted: u64,
    /// Where the scout was last sent from.
    sent_from: Option<Place>,
    waiter: u64,
    /// What it learnt of segments on devices.
    loads: Arc<Loads>,
    waits_for: Option<u64>,
    patience: Option<Pin<Box<Sleep>>>,
    impatient: bool,
    failures: u8,
    /// It has had a segment.
    begun: bool,
    /// Until when the origin is let alone.
    pause: Option<Pin<Box<Sleep>>>,
    /// No scout is sent any more.
    alone: bool,
    /// The response's head waits for the first segment.
    opening: bool,
    /// The first place that a scout found empty.
    missing: Option<Place>,
    /// Somebody's job is at it: the origin has just confirmed the version.
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
    /// order. `link` leads to a job that brings some of it already.
    pub(crate) fn new(
        site: Site,
        known: &Rc<Known>,
        pieces: Rc<Pieces>,
        ranges: Vec<(u64, u64)>,
        link: Option<Link>,
    ) -> Self {
        let layout = &pieces.layout;
        let at = ranges.first().map_or(0, |range| range.0);
        let waiter = site.local.waiter_id();
        Self {
            ahead: sight(ranges.len(), layout.segment, &site.local.shared.stores),
            known: Rc::clone(known),
            scout: Place { range: 0, number: layout.number(at) },
            pieces,
            ranges,
            range: 0,
            at,
            open: None,
            for_kernel: false,
            last: None,
            lanes: link.into_iter().collect(),
            scouted: 0,
            sent_from: None,
            waiter,
            loads: Arc::new(Loads::of_segments()),
            waits_for: None,
            patience: None,
            impatient: false,
            failures: 0,
            begun: false,
            pause: None,
            alone: false,
            opening: false,
            missing: None,
            live: false,
            refusal: None,
            offline: false,
            links: Vec::new(),
            found: 0,
            fetched: 0,
            site,
        }
    }

    /// From now on it reads what is stored, and breaks off where something is missing.
    pub(crate) fn stay_offline(&mut self) {
        self.offline = true;
    }

    /// Whether all that it is to read is there, at least in part. What is not within reach of a bounded search is not.
    pub(crate) fn is_at_hand(&self) -> bool {
        let (index, layout) = (&self.site.local.shared.index, &self.pieces.layout);
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

    /// Waits until the first segment is there, or begins to come, and so does the first within sight that was missing: then
    /// the origin has confirmed the version.
    ///
    /// # Errors
    /// Why one of them will not come.
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
        // What was stored says nothing of what the origin has now.
        if !self.live
            && let Some(place) = self.missing
        {
            let confirmed = poll_fn(|context| self.poll_confirmed(place, context)).await;
            self.stop_waiting();
            confirmed?;
        }
        self.enter(number, object);
        Ok(())
    }

    /// Waits until the segment at `place` begins to come, by a job of this reader or another's.
    fn poll_confirmed(&mut self, place: Place, context: &mut Context<'_>) -> Poll<Result<(), Stop>> {
        let Place { number, .. } = place;
        loop {
            if let Some(lane) = self.lanes.iter().find(|lane| lane.was_for(number)) {
                match ready!(lane.poll_begun(number, context)) {
                    Some(End::Changed | End::Failed) => {}
                    // It came, or broke off: then it is asked for again, as any that does.
                    None | Some(End::Done | End::Broken) => return Poll::Ready(Ok(())),
                }
            }
            // What such an end means is told where segments are taken.
            match self.poll_lanes(number, context)? {
                Offer::Segment(_) => return Poll::Ready(Ok(())),
                Offer::Later => return Poll::Pending,
                Offer::Nothing(_) => {}
            }
            let local = &self.site.local;
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
                Claim::Mine(busy) => self.start(place, busy),
                Claim::Busy => {
                    self.waits_for = Some(number);
                    return if self.waits_in_vain(context) { Poll::Ready(Ok(())) } else { Poll::Pending };
                }
            }
        }
    }

    /// What the origin, or VCL in its place, answered instead of the first segment, if [`Reader::open`] failed by that.
    pub(crate) fn take_refusal(&mut self) -> Option<Box<Refusal>> {
        self.refusal.take()
    }

    /// Waits until there are bytes of the present range; `false` at its end.
    pub(crate) async fn ready(&mut self) -> Result<bool, Aborted> {
        poll_fn(|context| self.poll_ready(context)).await
    }

    /// As [`Reader::ready`].
    pub(crate) fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<bool, Aborted>> {
        loop {
            let Some(&(_, end)) = self.ranges.get(self.range) else { return Poll::Ready(Ok(false)) };
            if self.at >= end {
                return Poll::Ready(Ok(false));
            }
            if let Some((object, cursor)) = &mut self.open {
                if let Ok(true) = ready!(cursor.poll_ready(object, context)) {
                    return Poll::Ready(Ok(true));
                }
                // It broke off: its bytes up to here are good.
                self.leave();
                self.last = None;
                self.failures += 1;
                if self.failures > FAILURES_MAX {
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

    /// As [`crate::Body::give_to_kernel`].
    pub(crate) fn give_to_kernel(&mut self) {
        self.for_kernel = true;
        if let Some((_, cursor)) = &mut self.open {
            cursor.give_to_kernel();
        }
    }

    /// Whether its first segment lies in a file.
    pub(crate) fn is_in_file(&self) -> bool {
        self.open.as_ref().is_some_and(|(object, _)| object.is_in_file())
    }

    /// As [`crate::Body::report_fault`].
    pub(crate) fn report_fault(&self) {
        if let Some((object, cursor)) = &self.open {
            cursor.report_fault(object);
        }
    }

    /// Appends the pieces that can be written now.
    pub(crate) fn slices<'body>(&'body self, out: &mut Vec<IoSlice<'body>>) {
        if let Some((object, cursor)) = &self.open {
            cursor.slices(object, PIECES, out);
        }
    }

    /// Moves on by `count` bytes.
    pub(crate) fn consume(&mut self, count: usize) {
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

    /// What can be read now, if it lies in a segment that is stored in memory: the segment, and from where to where in it.
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
    pub(crate) fn sight_bytes(&self) -> u64 {
        self.ahead.saturating_mul(self.pieces.layout.segment)
    }

    /// Whether the present range was read to its end.
    pub(crate) fn is_range_over(&self) -> bool {
        self.ranges.get(self.range).is_none_or(|range| self.at >= range.1)
    }

    /// Turns to the next range, once the present one is at its end; false if there is none.
    pub fn next_range(&mut self) -> bool {
        self.leave();
        self.range = (self.range + 1).min(self.ranges.len());
        let Some(&(from, _)) = self.ranges.get(self.range) else { return false };
        self.at = from;
        self.drop_lanes();
        true
    }

    /// Lets go of lanes that bring nothing of the ranges that are left. Where one thing is asked for at a time, the end of
    /// what is under way is waited for.
    fn drop_lanes(&mut self) {
        let (layout, rest) = (&self.pieces.layout, &self.ranges[self.range..]);
        let touches = |from: u64, end: u64| {
            rest.iter()
                .any(|range| layout.number(range.0) < end && layout.number(range.1.saturating_sub(1)) >= from)
        };
        let alone = self.alone;
        self.lanes.retain(|lane| {
            let is_of_use = touches(lane.from(), lane.end());
            if alone && !is_of_use {
                lane.stop();
            }
            is_of_use || alone && lane.runs()
        });
    }

    /// Whether something was missing, so that the origin was asked.
    pub(crate) fn has_asked(&self) -> bool {
        !self.links.is_empty()
    }

    /// Writes the records that were made on the way.
    pub(crate) fn close(&mut self, records: &mut Records) {
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
        let result = self.poll_lanes_and_index(number, context);
        if result.is_pending() {
            self.send_scout(number);
            return result;
        }
        self.stop_waiting();
        self.send_scout(number);
        result
    }

    fn poll_lanes_and_index(
        &mut self,
        number: u64,
        context: &mut Context<'_>,
    ) -> Poll<Result<Arc<Object>, Stop>> {
        self.lanes.iter().for_each(|lane| lane.advance(number));
        loop {
            match self.poll_lanes(number, context)? {
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
            let local = &self.site.local;
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
                // There may be something better than what was replaced or purged meanwhile.
                Claim::Mine(_) if self.opening && self.known.object().is_gone() => {
                    return Poll::Ready(Err(Stop::Changed));
                }
                Claim::Mine(busy) => {
                    let range = self.range;
                    self.start(Place { range, number }, busy);
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

    /// What the lanes have of segment `number`; those that are over go.
    fn poll_lanes(&mut self, number: u64, context: &Context<'_>) -> Result<Offer, Stop> {
        let mut place = 0;
        while let Some(lane) = self.lanes.get(place) {
            match lane.poll(number, context) {
                Offer::Nothing(Some(End::Changed)) => return Err(Stop::Changed),
                Offer::Nothing(Some(end @ (End::Failed | End::Broken))) => {
                    let lane = self.lanes.swap_remove(place);
                    // An origin that refuses is asked for one thing at a time.
                    self.alone |= end == End::Failed;
                    if !lane.was_for(number) {
                        // What a scout did not get may be had once its turn has come.
                        continue;
                    }
                    let has_one = self.begun || self.found > 0;
                    if has_one && end == End::Failed && self.lanes.iter().any(Link::runs) {
                        // They may be what the origin has no room beside.
                        self.lanes.iter().for_each(Link::stop);
                        place = 0;
                        continue;
                    }
                    self.failures += 1;
                    let is_hopeless = end == End::Failed && !self.begun;
                    if is_hopeless || self.failures > FAILURES_MAX {
                        self.refusal = lane.take_refusal();
                        return Err(Stop::Failed);
                    }
                    if end == End::Failed {
                        self.pause = Some(Box::pin(tokio::time::sleep(PAUSE * (1 << (self.failures - 1)))));
                    }
                }
                Offer::Nothing(Some(End::Done)) if lane.is_over() => {
                    self.lanes.swap_remove(place);
                }
                Offer::Nothing(_) => place += 1,
                offer => return Ok(offer),
            }
        }
        Ok(Offer::Nothing(None))
    }

    fn note_use(&self, object: &Object) {
        let settings = &self.site.current.settings;
        let (now, interval) = (self.site.local.now() as u32, settings.lru_interval as u32);
        object.note_use(now, interval);
        self.known.note_use(now, interval);
        self.site.local.counters.segment_hits.inc();
    }

    /// Whether the wait for somebody else's fetch has lasted as long as it may.
    fn waits_in_vain(&mut self, context: &mut Context<'_>) -> bool {
        let limit = self.site.current.settings.waiting_list_timeout.clamp(0.001, 86_400.0);
        let sleep =
            self.patience.get_or_insert_with(|| Box::pin(tokio::time::sleep(Duration::from_secs_f64(limit))));
        sleep.as_mut().poll(context).is_ready()
    }

    fn stop_waiting(&mut self) {
        self.patience = None;
        self.impatient = false;
        if let Some(number) = self.waits_for.take() {
            let key = segment_key(&self.pieces.base, number);
            self.site.local.shared.index.stop_waiting(&key, self.waiter);
        }
    }

    /// Starts a job for the segment at `place` and those wanted behind it.
    fn start(&mut self, place: Place, busy: catalog::index::busy::Busy) {
        let stop = self.run_end(place);
        let object = self.known.object();
        let (lane, vxid) = job::start(&self.site, object, &self.pieces, (place.number, stop), busy);
        self.lanes.push(Link::new(&lane));
        if self.links.len() < LINKS_MAX {
            self.links.push(vxid);
        }
    }

    /// Behind the last segment of the run of wanted ones that begins at `place`: ranges that follow belong to it as long as
    /// they begin in it or next to it.
    fn run_end(&self, place: Place) -> u64 {
        let mut end = place.number + 1;
        for (range, &(from, to)) in self.ranges.iter().enumerate().skip(place.range) {
            let (first, last) =
                (self.pieces.layout.number(from), self.pieces.layout.number(to.saturating_sub(1)));
            let goes_on = range == place.range || (place.number..=end).contains(&first);
            if !goes_on || end - place.number >= RUN_MAX {
                break;
            }
            end = end.max(last.saturating_add(1));
        }
        end
    }

    /// Looks at what comes after segment `number`, and starts jobs for what is missing.
    fn send_scout(&mut self, number: u64) {
        let here = Place { range: self.range, number };
        if self.sent_from == Some(here) || self.offline || self.alone {
            return;
        }
        if self.sent_from.is_some() {
            self.scouted = self.scouted.saturating_sub(1);
        }
        self.sent_from = Some(here);
        if self.scout <= here {
            self.scouted = 0;
            self.scout = self.after(here, number);
        }
        let most = self.ahead;
        while self.scouted < most && self.scout.range < self.ranges.len() {
            let place = self.scout;
            if let Some(lane) = self.lanes.iter().find(|lane| lane.covers(place.number)) {
                self.missing.get_or_insert(place);
                let last = lane.end().saturating_sub(1).max(place.number);
                self.scouted += last - place.number + 1;
                self.scout = self.after(place, last);
                continue;
            }
            if self.lanes.iter().filter(|lane| lane.runs()).count() >= lanes_max(self.ranges.len()) {
                break;
            }
            let local = &self.site.local;
            match claim(
                &local.shared.index,
                &self.pieces.base,
                place.number,
                local.now(),
                None,
                &self.loads,
                false,
            ) {
                // A device that reads ahead is not the origin.
                Claim::Loading => {}
                Claim::Present(object) => self.live |= object.state() == State::Filling,
                Claim::Busy => {
                    self.missing.get_or_insert(place);
                }
                Claim::Mine(busy) => {
                    self.missing.get_or_insert(place);
                    self.start(place, busy);
                    continue;
                }
            }
            self.scouted += 1;
            self.scout = self.after(place, place.number);
        }
    }

    /// The place behind segment `last` in the range of `place`.
    fn after(&self, place: Place, last: u64) -> Place {
        let in_range = |range: usize| self.ranges.get(range).map(|(from, to)| (*from, to.saturating_sub(1)));
        match in_range(place.range) {
            Some((_, end)) if last < self.pieces.layout.number(end) => {
                Place { range: place.range, number: last + 1 }
            }
            _ => {
                let range = place.range + 1;
                Place {
                    range,
                    number: in_range(range).map_or(0, |(from, _)| self.pieces.layout.number(from)),
                }
            }
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.leave();
        self.stop_waiting();
    }
}
