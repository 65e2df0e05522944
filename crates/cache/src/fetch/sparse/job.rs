//! One request to the origin for a run of segments, and the task that stores its answer.
//!
//! The job claims a few segments ahead of the one that it stores, so that other requests wait for them instead of fetching
//! them again. It never gets further ahead of its reader: it gives the claims up and waits. It ends at a segment that
//! another request has claimed or stored. Once its reader has left, it ends with the segment it is in, unless others wait
//! for the next one.
//!
//! A segment for which the store has no room goes through a window to this reader alone; so do all once the master is gone.

use super::answer::Part;
use super::channel::{Channel, End};
use super::limits::{RUN_MAX, ahead_max};
use super::requester::Requester;

use crate::fetch::log::FetchLog;
use crate::fetch::patience::Patience;
use crate::fetch::state::{Answer, Brought, Fetch, Refusal};
use crate::local::Local;
use base::Seconds;
use base::vxid::Vxid;
use catalog::index::busy::Busy;
use catalog::index::cold::Loads;
use catalog::sparse::claim::{Claim, TTL, claim, is_there};
use catalog::sparse::layout::{Layout, Pieces, segment_key};
use copal_base as base;
use copal_catalog as catalog;
use copal_net as net;
use copal_observe as observe;
use copal_origin as origin;
use copal_store as store;
use observe::Tag;
use origin::Connection;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use store::{Attributes, Creation, Engine, Fill, Flags, Object};

/// Bytes read at once of what is not wanted.
const SKIP: usize = 16 << 10;

/// Lifetime, in seconds, of the hit-for-miss marker left by a failed segment fetch.
const MARKER_TTL: Seconds = 1.0;

/// See the module.
pub(crate) struct Job {
    local: Rc<Local>,
    master: Arc<Object>,
    pieces: Rc<Pieces>,
    /// The most segments that it may be ahead of its reader.
    ahead: u64,
    channel: Rc<Channel>,
    vxid: Vxid,
    /// The next byte from the origin.
    at: u64,
    /// Where the answer ends.
    end: u64,
    /// The next segment to be stored.
    number: u64,
    /// The first segment behind that is not to be stored.
    stop: u64,
    /// Claims of the next segments, in order.
    claims: VecDeque<Busy>,
    /// Its findings about segments on devices.
    loads: Arc<Loads>,
    /// What follows goes to the reader alone.
    private: bool,
    stored: u64,
    patience: Patience,
    /// `slow_reader_patience`
    patience_max: Seconds,
}

/// Why a job stops before its answer's end.
#[derive(Debug)]
enum Stop {
    Origin(origin::Error),
    /// The answer is shorter or longer than announced.
    Length,
    /// No reader is left.
    Unwanted,
}

impl Job {
    /// The job that stores `part`, the first answer of a new master.
    pub(crate) fn first(fetch: &Fetch, master: &Arc<Object>, layout: Layout, part: Part) -> Self {
        let number = part.first.div_ceil(layout.segment);
        let end = part.last + 1;
        let stop = if end == layout.total { layout.count() } else { end / layout.segment };
        let pieces = Rc::new(Pieces { base: layout.base(master.key()), layout });
        let patience = fetch.current.settings.slow_reader_patience;
        let mut job = Self::new(&fetch.local, master, pieces, (number, stop.max(number)), patience);
        (job.at, job.end, job.vxid) = (part.first, end, fetch.vxid);
        job.claim_ahead();
        job
    }

    fn new(
        local: &Rc<Local>,
        master: &Arc<Object>,
        pieces: Rc<Pieces>,
        (number, stop): (u64, u64),
        patience_max: Seconds,
    ) -> Self {
        Self {
            local: Rc::clone(local),
            master: Arc::clone(master),
            ahead: ahead_max(pieces.layout.segment, &local.shared.stores),
            pieces,
            channel: Channel::new(number, stop),
            vxid: 0,
            at: 0,
            end: 0,
            number,
            stop,
            claims: VecDeque::new(),
            loads: Arc::new(Loads::of_segments()),
            private: false,
            stored: 0,
            patience: Patience::default(),
            patience_max,
        }
    }

    /// The channel to its reader.
    pub(crate) fn channel(&self) -> &Rc<Channel> {
        &self.channel
    }

    /// Claims the next segments, up to the first that another request has claimed or stored.
    fn claim_ahead(&mut self) {
        let most = self.ahead.max(1);
        while !self.private && (self.claims.len() as u64) < most {
            let next = self.number + self.claims.len() as u64;
            if next >= self.stop {
                break;
            }
            let (index, now) = (&self.local.shared.index, self.local.now());
            match claim(index, &self.pieces.base, next, now, None, &self.loads, false) {
                Claim::Mine(busy) => self.claims.push_back(busy),
                Claim::Present(_) | Claim::Loading | Claim::Busy => self.stop_at(next),
            }
        }
    }

    fn stop_at(&mut self, number: u64) {
        self.stop = number;
        self.claims.truncate(usize::try_from(number.saturating_sub(self.number)).unwrap_or(usize::MAX));
        self.channel.shorten(number);
    }

    /// Stores the answer that `connection` gives.
    pub(crate) async fn run(mut self, mut connection: Box<Connection>, mut log: FetchLog) {
        let result = self.store_segments(&mut connection).await;
        // Whoever waits for these looks them up again.
        self.claims.clear();
        log.received_body = connection.traffic().received_body_bytes;
        log.stored_body = Some(self.stored);
        let end = match result {
            Ok(()) => {
                if connection.body_ended() {
                    log.release(connection);
                }
                log.end_body();
                End::Done
            }
            Err(why) => {
                self.log(&mut log, &why);
                log.end();
                End::Broken
            }
        };
        self.channel.finish(end);
    }

    fn log(&self, log: &mut FetchLog, why: &Stop) {
        let records = &mut log.records;
        match why {
            Stop::Origin(error) => records.fmt(Tag::FetchError, format_args!("{error}")),
            Stop::Length => records.text(Tag::FetchError, b"partial answer is not as long as announced"),
            Stop::Unwanted => {
                records.text(Tag::FetchError, b"no client is left for a body that is not stored")
            }
        }
        log.closed("Failure receiving req.body");
        if !matches!(why, Stop::Unwanted) {
            self.local.counters.fetch_failed.inc();
        }
    }

    async fn store_segments(&mut self, connection: &mut Connection) -> Result<(), Stop> {
        while self.number < self.stop {
            self.claim_ahead();
            if self.number >= self.stop || !self.wait_for_reader().await {
                return Ok(());
            }
            let (start, end) = self.pieces.layout.bounds(self.number);
            self.skip(connection, start).await?;
            self.segment(connection, end).await?;
            self.number += 1;
        }
        if self.at < self.end {
            // The rest is less than a segment, or another request has it.
            return Ok(());
        }
        let mut nothing = [0; 1];
        match connection.read_body(&mut nothing).await {
            Ok(0) => Ok(()),
            Ok(_) => Err(Stop::Length),
            Err(error) => Err(Stop::Origin(error)),
        }
    }

    /// Waits while the reader is far behind; false if the next segment is not to be fetched.
    async fn wait_for_reader(&mut self) -> bool {
        let number = self.number;
        let is_waited_for = |job: &Self| job.claims.front().is_some_and(Busy::has_waiters);
        if self.channel.is_left() {
            return is_waited_for(self);
        }
        let ahead = if self.private { 0 } else { self.ahead };
        let is_far = number > self.channel.reader_at().saturating_add(ahead);
        if !is_far || is_waited_for(self) {
            return true;
        }
        self.claims.clear();
        self.channel.reached(number - ahead).await;
        self.claim_ahead();
        !self.channel.is_left() && number < self.stop
    }

    /// Reads what lies before `start`.
    async fn skip(&mut self, connection: &mut Connection, start: u64) -> Result<(), Stop> {
        let mut buffer = Vec::new();
        while self.at < start {
            let most = usize::try_from(start - self.at).unwrap_or(usize::MAX).min(SKIP);
            buffer.resize(most, 0);
            self.at += read(connection, &mut buffer).await? as u64;
        }
        Ok(())
    }

    /// Stores the next segment, which goes to `end`.
    async fn segment(&mut self, connection: &mut Connection, end: u64) -> Result<(), Stop> {
        let mut fill = self.begin(end - self.at)?;
        let object = Arc::clone(fill.object());
        let busy = self.claims.pop_front();
        if !object.is_gone()
            && let Some(busy) = busy
        {
            busy.insert(Arc::clone(&object));
        } else {
            object.unlink();
        }
        if object.is_gone() {
            self.go_private();
        }
        self.channel.push(self.number, object);
        while self.at < end {
            let left = usize::try_from(end - self.at).unwrap_or(usize::MAX);
            let room = self.room(&mut fill).await?;
            let most = room.len().min(left);
            let count = read(connection, &mut room[..most]).await?;
            fill.advance(count);
            self.at += count as u64;
            self.stored += count as u64;
            self.local.counters.segment_bytes.add(count as u64);
        }
        fill.commit();
        self.local.counters.segments_fetched.inc();
        Ok(())
    }

    /// What follows goes to the reader alone; others fetch for themselves.
    fn go_private(&mut self) {
        self.private = true;
        self.claims.clear();
    }

    /// Leaves hit-for-miss markers for a moment, so that requests that waited in vain do not try one after the other.
    fn let_others_try(&mut self) {
        for (busy, number) in std::mem::take(&mut self.claims).into_iter().zip(self.number..) {
            if !busy.has_waiters() {
                continue;
            }
            let attributes = self.attributes(MARKER_TTL, Flags::HIT_FOR_MISS);
            let key = segment_key(&self.pieces.base, number);
            let creation = Creation { key, attributes, variant: b"", head: b"", length: Some(0) };
            if let Ok(fill) = self.local.shared.stores.transient().begin(&creation) {
                busy.insert(Arc::clone(fill.object()));
                fill.commit();
            }
        }
    }

    fn attributes(&self, ttl: Seconds, flags: u8) -> Attributes {
        Attributes {
            origin_time: self.local.now(),
            ttl,
            grace: 0.0,
            keep: 0.0,
            status: 206,
            flags: Flags(flags),
            // Bans end its master.
            ban: u64::MAX,
            vxid: self.vxid,
        }
    }

    fn begin(&mut self, length: u64) -> Result<Fill, Stop> {
        let attributes = self.attributes(TTL, Flags::SPARSE);
        let key = segment_key(&self.pieces.base, self.number);
        let creation = Creation { key, attributes, variant: b"", head: b"", length: Some(length) };
        let engine = self.engine();
        if !self.private {
            let begun = engine.begin(&creation).or_else(|store::Full| {
                // This thread's hot table may hold on to objects that were evicted.
                self.local.forget_dead();
                engine.begin(&creation)
            });
            if let Ok(fill) = begun {
                return Ok(fill);
            }
            self.local.counters.not_stored_too_big.inc();
        }
        // A head of no bytes is never too long.
        engine.begin_window(&creation).map_err(|store::Full| Stop::Unwanted)
    }

    /// The store of the master, or the one whose turn it is.
    fn engine(&self) -> Arc<dyn Engine> {
        let stores = &self.local.shared.stores;
        let own = self.pieces.layout.stays.then(|| stores.find(self.master.engine().as_bytes())).flatten();
        Arc::clone(own.unwrap_or_else(|| stores.next()))
    }

    /// Room for the next bytes.
    async fn room<'fill>(&mut self, fill: &'fill mut Fill) -> Result<&'fill mut [u8], Stop> {
        if fill.is_windowed() {
            let waited = self.patience.wait(fill, self.patience_max, &self.local).await;
            waited.map_err(|store::fill::NoReaders| Stop::Unwanted)?;
        } else {
            self.patience.wait_for_devices(fill).await;
        }
        if fill.room().is_err() {
            self.go_private();
            fill.keep_window();
        }
        // A window always has room.
        fill.room().map_err(|store::Full| Stop::Unwanted)
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        // Has an effect only if the job did not end by itself, as when the thread stops.
        self.channel.finish(End::Failed);
    }
}

/// Reads some of a body that is not at its end.
async fn read(connection: &mut Connection, buffer: &mut [u8]) -> Result<usize, Stop> {
    match connection.read_body(buffer).await {
        Ok(0) => Err(Stop::Length),
        Ok(count) => Ok(count),
        Err(error) => Err(Stop::Origin(error)),
    }
}

/// Asks the origin for segment `number` of `master`, which the caller has claimed by `busy`, and for the missing ones behind
/// it up to `stop`. Returns the channel and the fetch's transaction.
pub(crate) fn start(
    requester: &Requester,
    master: &Arc<Object>,
    pieces: &Rc<Pieces>,
    (number, stop): (u64, u64),
    busy: Busy,
) -> (Rc<Channel>, Vxid) {
    let stop = stop.min(number.saturating_add(RUN_MAX));
    let layout = &pieces.layout;
    let patience = requester.current.settings.slow_reader_patience;
    let mut job = Job::new(&requester.local, master, Rc::clone(pieces), (number, stop), patience);
    job.claims.push_back(busy);
    job.claim_ahead();
    let unclaimed = number + job.claims.len() as u64;
    let index = &requester.local.shared.index;
    if let Some(found) = (unclaimed..job.stop).find(|number| is_there(index, &job.pieces.base, *number)) {
        job.stop_at(found);
    }
    (job.at, job.end) = (layout.bounds(number).0, layout.bounds(job.stop - 1).1);
    let fetch = Fetch::segments(requester, master.key(), layout, (job.at, job.end - 1));
    job.vxid = fetch.vxid;
    requester.local.counters.segment_fetches.inc();
    let (channel, vxid) = (Rc::clone(&job.channel), fetch.vxid);
    net::worker::task(ask(fetch, job));
    (channel, vxid)
}

/// Sends the request and stores the answer, if it is what was asked for.
async fn ask(mut fetch: Fetch, mut job: Job) {
    let span = (job.at, job.end - 1);
    match fetch.run_segments(&job.pieces.layout, span).await {
        Brought::Part(Answer { connection: Some(connection), .. }, last) => {
            if last < span.1 {
                job.end = last + 1;
                job.stop_at(job.end / job.pieces.layout.segment);
            }
            job.vxid = fetch.vxid;
            let log = fetch.log.hand_over();
            drop(fetch);
            job.run(connection, log).await;
        }
        Brought::Changed => {
            fetch.log.records.text(Tag::FetchError, b"the origin has another version");
            fetch.local.counters.sparse_changed.inc();
            end_generation(&fetch.local, &job);
            job.claims.clear();
            job.channel.finish(End::Changed);
        }
        Brought::Refused(fetched) => {
            fetch.local.counters.segment_refusals.inc();
            job.let_others_try();
            job.channel.refuse(Box::new(Refusal { fetch, fetched }));
        }
        Brought::Useless | Brought::Part(..) => {
            fetch.log.records.text(Tag::FetchError, b"another part than was asked for");
            fetch.local.counters.fetch_failed.inc();
            job.let_others_try();
            job.channel.finish(End::Failed);
        }
    }
}

/// Takes out every master of the job's generation: there are two for a moment when a 304 has made a new one.
fn end_generation(local: &Local, job: &Job) {
    let index = &local.shared.index;
    let same = |object: &Arc<Object>| {
        object.flags().has(Flags::SPARSE)
            && Pieces::of(object).is_some_and(|pieces| pieces.base == job.pieces.base)
    };
    index.objects(job.master.key()).iter().filter(|object| same(object)).for_each(|object| {
        index.unlink(object);
    });
}
