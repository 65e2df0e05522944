//! Storing a body while it arrives, or from the object that a 304 confirmed.

use super::trail::Trail;
use super::{Answer, Failure, Fetch, Fetched, Step, conclude};
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
use store::{Cursor, Fill};

/// How much of a body of unknown length is read before its first extent is chosen.
const FIRST_READ: usize = 16 << 10;

/// Stores the answer. The object is there for everybody once its head is; where the body is not streamed, once that is
/// complete.
pub(super) async fn from_origin(
    fetch: &mut Fetch,
    answer: Answer,
    variant: &[u8],
    length: Option<u64>,
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
                broken(&mut fetch.trail, &Broken::Origin(error));
                return Step::failed();
            }
        }
    }
    let Some(mut fill) = conclude::begin(fetch, variant, known) else {
        conclude::release(fetch);
        let answer = Answer { connection: Some(connection), framing };
        return Step::Done(conclude::private(fetch, answer, first).await);
    };
    if fill.append(&first).is_err() {
        fill.keep_window();
        let appended = fill.append(&first[fill.filled() as usize..]);
        debug_assert!(appended.is_ok(), "a window always has room for its first bytes");
    }
    let object = Arc::clone(fill.object());
    let streamed = fetch.do_stream;
    if streamed {
        conclude::publish(fetch, &fill);
    }
    let mut job = Job { fill: Some(fill), connection: Some(connection), known, received: first.len() as u64 };
    if !streamed {
        let result = job.run().await;
        if let Err(why) = &result {
            // Nobody has seen the head: VCL may answer in its place, or try anew.
            fetch.trail.received_body = job.received;
            broken(&mut fetch.trail, why);
            return Step::failed();
        }
        finish(fetch.trail.hand_over(), job.received, result);
        if let Some(busy) = fetch.busy.take() {
            busy.insert(Arc::clone(&object));
        }
        return Step::Done(Fetched::Stored(object));
    }
    start(fetch, job).await;
    Step::Done(Fetched::Stored(object))
}

/// Fills at once what is there; what is still to come, in a task of its own.
async fn start(fetch: &mut Fetch, mut job: Job) {
    let trail = fetch.trail.hand_over();
    let mut filling: Pin<Box<dyn Future<Output = ()>>> = Box::pin(async move {
        let result = job.run().await;
        finish(trail, job.received, result);
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
            Poll::Ready(Ok(count)) => filled += count,
            Poll::Ready(Err(error)) => return Err(error),
            Poll::Pending => break,
        }
    }
    bytes.truncate(filled);
    Ok((bytes, false))
}

fn store_whole(fetch: &mut Fetch, variant: &[u8], body: &[u8]) -> Fetched {
    let Some(mut fill) = conclude::begin(fetch, variant, Some(body.len() as u64)) else {
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

/// A new object with the stale one's body and the merged head.
pub(super) async fn from_stale(fetch: &mut Fetch, variant: &[u8]) -> Fetched {
    let Some(stale) = conclude::stale_of(fetch) else { return Fetched::Failed };
    let Some(mut fill) = conclude::begin(fetch, variant, stale.length()) else {
        conclude::release(fetch);
        let answer = Answer { connection: None, framing: copal_wire::h1::ResponseFraming::None };
        return conclude::private(fetch, answer, Vec::new()).await;
    };
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
    if !copied {
        // No room for a second copy: the old object stays, and this client gets its body with the new head.
        drop(fill);
        conclude::release(fetch);
        let answer = Answer { connection: None, framing: copal_wire::h1::ResponseFraming::None };
        return conclude::private(fetch, answer, Vec::new()).await;
    }
    let object = Arc::clone(fill.object());
    conclude::publish(fetch, &fill);
    fill.commit();
    // The new object stands in its place, whatever its variant was.
    fetch.local.shared.index.unlink(stale.object());
    Fetched::Stored(object)
}

/// A body on its way into a store.
struct Job {
    fill: Option<Fill>,
    connection: Option<Connection>,
    known: Option<u64>,
    received: u64,
}

/// Why a fill ended early.
#[derive(Debug)]
enum Broken {
    Origin(origin::Error),
    TooLong,
    Unwanted,
}

impl Job {
    async fn run(&mut self) -> Result<Connection, Broken> {
        let (Some(mut fill), Some(mut connection)) = (self.fill.take(), self.connection.take()) else {
            return Err(Broken::Unwanted);
        };
        loop {
            if self.known == Some(fill.filled()) {
                // All is there; reading on makes sure that the origin agrees that this is the end.
                let mut nothing = [0; 1];
                match connection.read_body(&mut nothing).await {
                    Ok(0) => break,
                    Ok(_) => return Err(Broken::TooLong),
                    Err(error) => return Err(Broken::Origin(error)),
                }
            }
            if fill.is_windowed() {
                let waited = poll_fn(|context| fill.poll_window(context)).await;
                waited.map_err(|store::fill::NoReaders| Broken::Unwanted)?;
            }
            let Ok(room) = fill.room() else {
                fill.keep_window();
                continue;
            };
            match connection.read_body(room).await {
                Ok(0) => break,
                Ok(count) => {
                    fill.advance(count);
                    self.received += count as u64;
                }
                Err(error) => return Err(Broken::Origin(error)),
            }
        }
        fill.commit();
        Ok(connection)
    }
}

/// The last records and counts of a fill.
fn finish(mut trail: Trail, received: u64, result: Result<Connection, Broken>) {
    trail.received_body = received;
    match result {
        Ok(connection) => trail.release(connection),
        Err(why) => {
            broken(&mut trail, &why);
            if !matches!(why, Broken::Unwanted) {
                trail.local.counters.fetch_failed.inc();
            }
        }
    }
    trail.end_body();
}

/// Logs why a body has no end.
fn broken(trail: &mut Trail, why: &Broken) {
    let records = &mut trail.records;
    match why {
        Broken::Origin(error) => records.fmt(Tag::FetchError, format_args!("{error}")),
        Broken::TooLong => records.fmt(Tag::FetchError, format_args!("{}", Failure::TooLong)),
        Broken::Unwanted => {
            records.text(Tag::FetchError, b"no client is left for a body that is not stored");
        }
    }
}
