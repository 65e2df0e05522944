//! Storing a body while it arrives, or from the object that a 304 confirmed.

use super::filling::{Broken, Job, broken};
use super::filters::Filters;
use super::state::{Answer, Fetch, Fetched, Step};
use super::{part, private, storing, update};
use crate::known::Known;
use copal_net as net;
use copal_observe as observe;
use copal_origin as origin;
use copal_store as store;
use observe::Tag;
use origin::Connection;
use std::future::{Future, poll_fn};
use std::io::IoSlice;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use store::cursor::Cut;
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
                fetch.release();
                return Box::pin(private::private(fetch, answer, first, filters)).await;
            }
        }
    }
    let stored = if filters.chain.is_empty() { known } else { None };
    let Some(fill) = storing::begin(fetch, variant, stored, filters.flags) else {
        let mut answer = Answer { connection: Some(connection), framing };
        if let Some(part) = whole {
            // An answer too large for one object may fit in segments.
            match part::store(fetch, answer, variant, part).await {
                Ok(step) => return step,
                Err(left) => answer = left,
            }
        }
        fetch.release();
        return Box::pin(private::private(fetch, answer, first, filters)).await;
    };
    let object = Arc::clone(fill.object());
    let streamed = fetch.do_stream && !filters.parses;
    storing::log_body(fetch, framing, streamed);
    if streamed {
        storing::publish(fetch, &fill);
    }
    let mut job = Job::new(fetch, fill, connection, known, first, filters, streamed);
    if streamed {
        start(fetch, job).await;
        return Step::Done(Fetched::Stored(object));
    }
    if !job.complete(&mut fetch.log).await {
        return Step::failed();
    }
    storing::insert(fetch, &object);
    Step::Done(Fetched::Stored(object))
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
    let Some(mut fill) = storing::begin(fetch, variant, Some(body.len() as u64), 0) else {
        fetch.release();
        return Fetched::Failed;
    };
    if fill.append(body).is_err() {
        return Fetched::Failed;
    }
    let object = Arc::clone(fill.object());
    storing::publish(fetch, &fill);
    fill.commit();
    Fetched::Stored(object)
}

/// A new object with the stale one's body and the merged head. The body is shared where the store can, else copied. If the stale one is still filling, this waits for it.
pub(super) async fn from_stale(fetch: &mut Fetch, variant: &[u8]) -> Step {
    let Some(stale) = fetch.stale.clone() else { return Step::Done(Fetched::Failed) };
    let whole = match stale.state() {
        store::State::Stored => Ok(()),
        store::State::Filling | store::State::Failed => completed(stale.object()).await,
    };
    if matches!(whole, Err(Cut::Failed | Cut::Gone)) {
        // The object that the origin confirmed turned out to be incomplete.
        fetch.log.records.text(Tag::FetchError, b"Template object failed");
        return Step::failed();
    }
    if whole.is_err() || stale.is_windowed() {
        // Its device gave other bytes than were written, or it has outgrown its store and lost its beginning: the origin is
        // asked for all of it.
        update::forget_stored(fetch);
        fetch.reset_response();
        return Step::Send;
    }
    let coding = stale.flags().0 & (Flags::GZIPPED | Flags::RECODED | Flags::CHECKED | Flags::SPARSE);
    // None for an object in segments: its segments stay where they are.
    let length = stale.object().length();
    if let Some(fill) = storing::begin_sharing(fetch, variant, coding, stale.object()) {
        storing::publish(fetch, &fill);
        return Step::Done(confirmed(fetch, &stale, fill, length));
    }
    let Some(mut fill) = storing::begin(fetch, variant, length, coding) else {
        fetch.release();
        let answer = Answer { connection: None, framing: copal_wire::h1::ResponseFraming::None };
        return Box::pin(private::private(fetch, answer, Vec::new(), Filters::default())).await;
    };
    let planned = stale.plan().is_none_or(|plan| fill.set_plan(plan.into()).is_ok());
    let mut cursor = Cursor::new(&stale, 0, u64::MAX);
    let copied = poll_fn(|context| {
        loop {
            match cursor.poll_ready(&stale, context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(false)) => return Poll::Ready(true),
                Poll::Ready(Err(_)) => return Poll::Ready(false),
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
        fetch.release();
        let answer = Answer { connection: None, framing: copal_wire::h1::ResponseFraming::None };
        return Box::pin(private::private(fetch, answer, Vec::new(), Filters::default())).await;
    }
    if stale.sparse().is_some() {
        // Committed before it is published: without its layout it would be taken for empty.
        let object = Arc::clone(fill.object());
        fill.commit();
        storing::insert(fetch, &object);
        return Step::Done(replaced(fetch, &stale, object, length));
    }
    storing::publish(fetch, &fill);
    Step::Done(confirmed(fetch, &stale, fill, length))
}

/// The new object is complete, and there for all.
fn confirmed(fetch: &mut Fetch, stale: &Known, fill: Fill, length: Option<u64>) -> Fetched {
    let object = Arc::clone(fill.object());
    fill.commit();
    replaced(fetch, stale, object, length)
}

/// `object` stands for what `stale` stood for.
fn replaced(fetch: &mut Fetch, stale: &Known, object: Arc<store::Object>, length: Option<u64>) -> Fetched {
    if !fetch.by_other {
        // The new object stands in its place, whatever its variant was.
        fetch.local.shared.index.unlink(stale.object());
    }
    fetch.log.stored_body = length;
    fetch.log.end_body();
    Fetched::Stored(object)
}

/// Waits until `object` is stored.
///
/// # Errors
/// Why it never will be.
async fn completed(object: &Arc<store::Object>) -> Result<(), Cut> {
    let mut cursor = Cursor::new(object, 0, u64::MAX);
    poll_fn(|context| {
        loop {
            match cursor.poll_ready(object, context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(false)) => return Poll::Ready(Ok(())),
                Poll::Ready(Err(cut)) => return Poll::Ready(Err(cut)),
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
