//! Storing a body while it arrives, or from the object that a 304 confirmed.

use super::filters::Filters;
use super::log::FetchLog;
use super::patience::Patience;
use super::{Answer, Failure, Fetch, Fetched, Step, conclude, part, update};
use crate::body::Body;
use crate::known::Known;
use crate::local::Local;
use crate::trouble::Trouble;
use base::Seconds;
use copal_base as base;
use copal_filter as filter;
use copal_net as net;
use copal_observe as observe;
use copal_origin as origin;
use copal_store as store;
use filter::{Chain, Pace};
use observe::Tag;
use origin::Connection;
use std::future::{Future, poll_fn};
use std::io::IoSlice;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use store::{Cursor, Fill, Flags};

/// How much of a body of unknown length is read before its first extent is chosen.
const FIRST_READ: usize = 16 << 10;

/// Stores the answer. The object is there for everybody once its head is; where the body is not streamed, once that is
/// complete.
pub(super) async fn from_origin(
    fetch: &mut Fetch,
    answer: Answer,
    variant: &[u8],
    length: Option<u64>,
    filters: Filters,
) -> Step {
    let Answer { connection, framing } = answer;
    let Some(mut connection) = connection else {
        return Step::Done(store_whole(fetch, variant, b""));
    };
    let mut first = Vec::new();
    let mut known = length;
    if length.is_none() {
        match first_part(&mut connection).await {
            Ok((bytes, complete)) => {
                known = complete.then_some(bytes.len() as u64);
                first = bytes;
            }
            Err(error) => {
                // The head was good and VCL took it, but there is no body to go with it.
                broken(&mut fetch.log, &Broken::Origin(error));
                return Step::failed();
            }
        }
    }
    let whole = part::of_whole(fetch, length, &filters.chain);
    if let Some(part) = whole.filter(|_| fetch.do_sparse == Some(true)) {
        let answer = Answer { connection: Some(connection), framing };
        match part::store(fetch, answer, variant, part).await {
            Ok(step) => return step,
            Err(answer) => {
                conclude::release(fetch);
                return Box::pin(conclude::private(fetch, answer, first, filters)).await;
            }
        }
    }
    let stored = if filters.chain.is_empty() { known } else { None };
    let Some(fill) = conclude::begin(fetch, variant, stored, filters.flags) else {
        let mut answer = Answer { connection: Some(connection), framing };
        if let Some(part) = whole {
            // An answer too large for one object may fit in segments.
            match part::store(fetch, answer, variant, part).await {
                Ok(step) => return step,
                Err(left) => answer = left,
            }
        }
        conclude::release(fetch);
        return Box::pin(conclude::private(fetch, answer, first, filters)).await;
    };
    let object = Arc::clone(fill.object());
    let streamed = fetch.do_stream && !filters.parses;
    conclude::log_body(fetch, framing, streamed);
    if streamed {
        conclude::publish(fetch, &fill);
    }
    let mut job = Job::new(fetch, fill, connection, known, first, filters, streamed);
    if streamed {
        start(fetch, job).await;
        return Step::Done(Fetched::Stored(object));
    }
    if !job.complete(&mut fetch.log).await {
        return Step::failed();
    }
    conclude::insert(fetch, &object);
    Step::Done(Fetched::Stored(object))
}

/// Stores a body that only one client gets, since it can be delivered only when it is complete. `None` if it fails.
pub(super) async fn aside(
    fetch: &mut Fetch,
    connection: Box<Connection>,
    first: Vec<u8>,
    filters: Filters,
) -> Option<Body> {
    let engine = Arc::clone(fetch.local.shared.stores.transient());
    let fill = conclude::begin_in(fetch, &*engine, b"", None, filters.flags)?;
    let object = Arc::clone(fill.object());
    let mut job = Job::new(fetch, fill, connection, None, first, filters, false);
    let is_whole = job.complete(&mut fetch.log).await;
    // It is in no index: it goes when its reader does.
    object.unlink();
    is_whole.then(|| Body::object(&Rc::new(Known::new(object)), 0, u64::MAX))
}

/// Stores at once what has arrived, the rest in a task of its own.
async fn start(fetch: &mut Fetch, mut job: Job) {
    let mut log = fetch.log.hand_over();
    let mut filling: Pin<Box<dyn Future<Output = ()>>> = Box::pin(async move {
        let result = job.run(&mut log).await;
        job.finish(&mut log, result);
    });
    let done = poll_fn(|context| Poll::Ready(filling.as_mut().poll(context).is_ready())).await;
    if !done {
        net::worker::task(filling);
    }
}

/// The first bytes of a body of unknown length, and whether they are all. It waits for nothing but the first.
async fn first_part(connection: &mut Connection) -> Result<(Vec<u8>, bool), origin::Error> {
    let mut bytes = vec![0; FIRST_READ];
    let mut filled = 0;
    while filled < bytes.len() {
        let polled = {
            let mut read = std::pin::pin!(connection.read_body(&mut bytes[filled..]));
            poll_fn(|context| Poll::Ready(read.as_mut().poll(context))).await
        };
        match polled {
            Poll::Ready(Ok(0)) => {
                bytes.truncate(filled);
                return Ok((bytes, true));
            }
            Poll::Ready(Ok(count)) => {
                filled += count;
                if connection.piece_max().is_some() {
                    break;
                }
            }
            Poll::Ready(Err(error)) => return Err(error),
            Poll::Pending => break,
        }
    }
    bytes.truncate(filled);
    Ok((bytes, false))
}

fn store_whole(fetch: &mut Fetch, variant: &[u8], body: &[u8]) -> Fetched {
    let Some(mut fill) = conclude::begin(fetch, variant, Some(body.len() as u64), 0) else {
        conclude::release(fetch);
        return Fetched::Failed;
    };
    if fill.append(body).is_err() {
        return Fetched::Failed;
    }
    let object = Arc::clone(fill.object());
    conclude::publish(fetch, &fill);
    fill.commit();
    Fetched::Stored(object)
}

/// A new object with the stale one's body and the merged head. If the stale one is still filling, this waits for it.
pub(super) async fn from_stale(fetch: &mut Fetch, variant: &[u8]) -> Step {
    let Some(stale) = conclude::stale_of(fetch) else { return Step::Done(Fetched::Failed) };
    if stale.state() != store::State::Stored && !completed(stale.object()).await {
        // The object that the origin confirmed turned out to be incomplete.
        fetch.log.records.text(Tag::FetchError, b"Template object failed");
        return Step::failed();
    }
    if stale.is_windowed() {
        // It has outgrown its store meanwhile and lost its beginning.
        update::forget_stored(fetch);
        fetch.reset_response();
        return Step::Send;
    }
    let coding = stale.flags().0 & (Flags::GZIPPED | Flags::RECODED | Flags::CHECKED | Flags::SPARSE);
    // None for an object in segments: its segments stay where they are.
    let length = stale.object().length();
    let Some(mut fill) = conclude::begin(fetch, variant, length, coding) else {
        conclude::release(fetch);
        let answer = Answer { connection: None, framing: copal_wire::h1::ResponseFraming::None };
        return Box::pin(conclude::private(fetch, answer, Vec::new(), Filters::default())).await;
    };
    let planned = stale.plan().is_none_or(|plan| fill.set_plan(plan.into()).is_ok());
    let mut cursor = Cursor::new(&stale, 0, u64::MAX);
    let copied = poll_fn(|context| {
        loop {
            match cursor.poll_ready(&stale, context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(false)) => return Poll::Ready(true),
                Poll::Ready(Err(store::cursor::Cut)) => return Poll::Ready(false),
                Poll::Ready(Ok(true)) => {}
            }
            let mut pieces: Vec<IoSlice<'_>> = Vec::new();
            cursor.slices(&stale, 1, &mut pieces);
            let count = pieces.iter().map(|piece| piece.len()).sum::<usize>();
            if pieces.iter().any(|piece| fill.append(piece).is_err()) {
                return Poll::Ready(false);
            }
            drop(pieces);
            cursor.consume(&stale, count as u64);
        }
    })
    .await;
    if !copied || !planned {
        // There is no room for a second copy: the old object stays, and this client gets its body with the new head.
        drop(fill);
        conclude::release(fetch);
        let answer = Answer { connection: None, framing: copal_wire::h1::ResponseFraming::None };
        return Box::pin(conclude::private(fetch, answer, Vec::new(), Filters::default())).await;
    }
    let object = Arc::clone(fill.object());
    if stale.sparse().is_some() {
        // Committed before it is published: without its layout it would be taken for empty.
        fill.commit();
        conclude::insert(fetch, &object);
    } else {
        conclude::publish(fetch, &fill);
        fill.commit();
    }
    if !fetch.by_other {
        // The new object stands in its place, whatever its variant was.
        fetch.local.shared.index.unlink(stale.object());
    }
    fetch.log.stored_body = length;
    fetch.log.end_body();
    Step::Done(Fetched::Stored(object))
}

/// Waits until `object` is stored; false if it fails.
async fn completed(object: &Arc<store::Object>) -> bool {
    let mut cursor = Cursor::new(object, 0, u64::MAX);
    poll_fn(|context| {
        loop {
            match cursor.poll_ready(object, context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(false)) => return Poll::Ready(true),
                Poll::Ready(Err(store::cursor::Cut)) => return Poll::Ready(false),
                Poll::Ready(Ok(true)) => {}
            }
            let mut pieces: Vec<IoSlice<'_>> = Vec::new();
            cursor.slices(object, 64, &mut pieces);
            let count = pieces.iter().map(|piece| piece.len()).sum::<usize>();
            drop(pieces);
            cursor.consume(object, count as u64);
        }
    })
    .await
}

/// A body on its way into a store.
struct Job {
    fill: Option<Fill>,
    connection: Option<Box<Connection>>,
    /// The body's length, if it was announced.
    known: Option<u64>,
    received: u64,
    stored: u64,
    /// Bytes that were read and are not stored yet.
    first: Vec<u8>,
    chain: Chain,
    /// Others may read while it is filled.
    streamed: bool,
    local: Rc<Local>,
    patience: Patience,
    /// `slow_reader_patience`
    patience_max: Seconds,
    /// Readers that were too slow for it.
    left_behind: usize,
}

/// Why a fill ended early.
#[derive(Debug)]
enum Broken {
    Origin(origin::Error),
    TooLong,
    Unwanted,
    /// There is no room, and the body is not streamed, so that a window would not do.
    Full,
    Filter(filter::Failure),
}

impl From<filter::Failure> for Broken {
    fn from(failure: filter::Failure) -> Self {
        Self::Filter(failure)
    }
}

impl Job {
    #[allow(clippy::too_many_arguments)]
    fn new(
        fetch: &Fetch,
        fill: Fill,
        connection: Box<Connection>,
        known: Option<u64>,
        first: Vec<u8>,
        filters: Filters,
        streamed: bool,
    ) -> Self {
        let received = first.len() as u64;
        let (fill, connection) = (Some(fill), Some(connection));
        Self {
            fill,
            connection,
            known,
            received,
            stored: 0,
            first,
            chain: filters.chain,
            streamed,
            local: Rc::clone(&fetch.local),
            patience: Patience::default(),
            patience_max: fetch.current.settings.slow_reader_patience,
            left_behind: 0,
        }
    }

    /// Stores all of it while the fetch waits; false if that failed, which is logged then.
    async fn complete(&mut self, log: &mut FetchLog) -> bool {
        match self.run(log).await {
            Err(why) => {
                // No client has seen the head: VCL may still answer in its place, or retry.
                log.received_body = self.received;
                broken(log, &why);
                self.chain.close(log);
                false
            }
            result => {
                self.finish(&mut log.hand_over(), result);
                true
            }
        }
    }

    async fn run(&mut self, log: &mut FetchLog) -> Result<Box<Connection>, Broken> {
        let (Some(mut fill), Some(mut connection)) = (self.fill.take(), self.connection.take()) else {
            return Err(Broken::Unwanted);
        };
        if self.chain.is_empty() {
            let first = std::mem::take(&mut self.first);
            self.put(&mut fill, &first).await?;
            self.after_piece(&connection).await;
            self.fill_plainly(&mut fill, &mut connection).await?;
        } else {
            self.fill_filtered(&mut fill, &mut connection, log).await?;
            if let Some(plan) = self.chain.take_plan() {
                fill.set_plan(plan).map_err(|store::Full| Broken::Full)?;
            }
            self.chain.close(log);
        }
        self.stored = fill.filled();
        fill.commit();
        Ok(connection)
    }

    /// From the connection straight into the store.
    async fn fill_plainly(&mut self, fill: &mut Fill, connection: &mut Connection) -> Result<(), Broken> {
        loop {
            if self.known == Some(fill.filled()) {
                // All bytes are there. Reading on makes sure that the origin ends the body here, too.
                let mut nothing = [0; 1];
                match connection.read_body(&mut nothing).await {
                    Ok(0) => return Ok(()),
                    Ok(_) => return Err(Broken::TooLong),
                    Err(error) => return Err(Broken::Origin(error)),
                }
            }
            let room = self.room(fill).await?;
            match connection.read_body(room).await {
                Ok(0) => return Ok(()),
                Ok(count) => {
                    fill.advance(count);
                    self.received += count as u64;
                }
                Err(error) => return Err(Broken::Origin(error)),
            }
            self.after_piece(connection).await;
        }
    }

    /// Where the body is to come in small pieces, readers see each by itself.
    async fn after_piece(&self, connection: &Connection) {
        if self.streamed && connection.piece_max().is_some() {
            filter::give_way().await;
        }
    }

    /// Through the chain.
    async fn fill_filtered(
        &mut self,
        fill: &mut Fill,
        connection: &mut Connection,
        log: &mut FetchLog,
    ) -> Result<(), Broken> {
        let mut input = std::mem::take(&mut self.first);
        let (mut at, mut end) = (0, false);
        let mut out = Vec::with_capacity(filter::STEP);
        let mut pace = Pace::default();
        loop {
            if at == input.len() && !end {
                input.resize(filter::STEP, 0);
                let count = connection.read_body(&mut input).await.map_err(Broken::Origin)?;
                input.truncate(count);
                self.received += count as u64;
                (at, end) = (0, count == 0);
            }
            out.clear();
            let took = self.chain.step(&input[at..], end, &mut out, log)?;
            at += took.bytes;
            self.put(fill, &out).await?;
            pace.step().await;
            self.after_piece(connection).await;
            if took.done && end {
                return Ok(());
            }
        }
    }

    /// Room for the next bytes.
    async fn room<'fill>(&mut self, fill: &'fill mut Fill) -> Result<&'fill mut [u8], Broken> {
        if fill.is_windowed() {
            let waited = self.patience.wait(fill, self.patience_max, &self.local).await;
            self.left_behind += waited.map_err(|store::fill::NoReaders| Broken::Unwanted)?;
        }
        if fill.room().is_err() {
            if !self.streamed {
                return Err(Broken::Full);
            }
            fill.keep_window();
        }
        // A window always has room.
        fill.room().map_err(|store::Full| Broken::Full)
    }

    /// Stores `bytes`.
    async fn put(&mut self, fill: &mut Fill, mut bytes: &[u8]) -> Result<(), Broken> {
        while !bytes.is_empty() {
            let room = self.room(fill).await?;
            let count = room.len().min(bytes.len());
            if count == 0 {
                return Err(Broken::TooLong);
            }
            room[..count].copy_from_slice(&bytes[..count]);
            fill.advance(count);
            bytes = &bytes[count..];
        }
        Ok(())
    }

    /// The last records and counts of a fill.
    fn finish(&mut self, log: &mut FetchLog, result: Result<Box<Connection>, Broken>) {
        log.received_body = self.received;
        log.stored_body = Some(self.stored);
        if self.left_behind > 0 {
            log.records.fmt(Tag::Error, format_args!("{} slow clients left behind", self.left_behind));
        }
        match result {
            Ok(connection) => log.release(connection),
            Err(why) => {
                broken(log, &why);
                self.chain.close(log);
                if !matches!(why, Broken::Unwanted) {
                    log.local.counters.fetch_failed.inc();
                }
                return log.end();
            }
        }
        log.end_body();
    }
}

/// Logs why a body has no end, and that its connection is closed.
fn broken(log: &mut FetchLog, why: &Broken) {
    match why {
        Broken::Origin(error) => {
            log.count_bound(error);
            log.blame(Trouble::of_origin(error));
        }
        Broken::TooLong => log.blame(Trouble::bad_answer()),
        Broken::Filter(_) => log.blame(Trouble::bad_coding()),
        Broken::Unwanted | Broken::Full => {}
    }
    let records = &mut log.records;
    match why {
        Broken::Origin(error) => records.fmt(Tag::FetchError, format_args!("{error}")),
        Broken::TooLong => records.fmt(Tag::FetchError, format_args!("{}", Failure::TooLong)),
        Broken::Unwanted => {
            records.text(Tag::FetchError, b"no client is left for a body that is not stored");
        }
        Broken::Full => records.text(Tag::FetchError, b"Could not get storage"),
        Broken::Filter(failure) => records.fmt(Tag::FetchError, format_args!("{failure}")),
    }
    log.closed("Failure receiving req.body");
}
