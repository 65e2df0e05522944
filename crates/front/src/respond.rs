//! Writing a response: head and body in as few calls as they take, chunked where the length is not known.

use crate::settings::Settings;
use base::Seconds;
use cache::{Body, Exchange};
use copal_base as base;
use copal_cache as cache;
use copal_net as net;
use copal_wire as wire;
use net::{Deadline, Stream};
use std::future::{Future, poll_fn};
use std::io::IoSlice;
use std::pin::pin;
use std::task::Poll;
use std::time::Instant;
use wire::Known;

/// After so many bytes of a body in one go other connections have their turn.
const TURN: usize = 1 << 20;

/// What was written, and whether that was all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) head: u64,
    /// Body bytes, without chunk framing.
    pub(crate) body: u64,
    /// The response is complete; if not, the connection must be cut.
    pub(crate) complete: bool,
    /// Only the end of the connection says where the body ends.
    pub(crate) until_close: bool,
}

/// Time limits of one response.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) idle: Seconds,
    pub(crate) total: Seconds,
}

impl Limits {
    pub(crate) fn of(settings: &Settings, session: &cache::Session) -> Self {
        let set = session.timeouts.get();
        Self {
            idle: set.idle_send_timeout.unwrap_or(settings.idle_send_timeout),
            total: set.send_timeout.unwrap_or(settings.send_timeout),
        }
    }
}

/// The writing side of a connection, with memory it uses again.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    head: Vec<u8>,
    frame: Vec<u8>,
    slices: Vec<IoSlice<'static>>,
}

/// An empty list of another lifetime in the same memory.
fn recycle<'to>(mut list: Vec<IoSlice<'_>>) -> Vec<IoSlice<'to>> {
    list.clear();
    list.into_iter().map(|_| IoSlice::new(&[])).collect()
}

impl Writer {
    /// Writes the exchange's response.
    pub(crate) async fn respond(
        &mut self,
        stream: &mut Stream,
        exchange: &mut Exchange,
        deadline: &Deadline,
        limits: Limits,
    ) -> Sent {
        let Self { head, frame, slices: memory } = self;
        head.clear();
        let mut chunked = false;
        let mut sent = Sent::default();
        if exchange.head.is_empty() {
            wire::h1::write_response_head(&exchange.response, head);
            chunked = exchange.response.fields.has_known(Known::TransferEncoding);
            sent.until_close = !chunked && !exchange.response.fields.has_known(Known::ContentLength);
        } else {
            std::mem::swap(head, &mut exchange.head);
        }
        let from_file = !stream.is_sealed() && exchange.body.give_to_kernel();
        let mut head_left = &head[..];
        let mut writing_s = 0.0;
        loop {
            // The head goes with the first of the body, but does not wait for it.
            let wait = head_left.is_empty();
            let part = next_part(&mut exchange.body, wait).await;
            let body = matches!(part, Part::Some).then_some(&exchange.body);
            let ends = chunked && matches!(part, Part::End);
            let mut slices = recycle(std::mem::take(memory));
            let body_bytes = gather(head_left, body, ends, chunked, frame, &mut slices);
            // The first write is timed by its progress alone: most responses have no other.
            let started = wait.then(Instant::now);
            let written = write_all(stream, &mut slices, deadline, limits.idle, from_file).await;
            *memory = recycle(slices);
            let head_bytes = head_left.len();
            if let Err(Unwritten { count, fault }) = written {
                if fault {
                    exchange.body.report_fault();
                }
                sent.head += count.min(head_bytes) as u64;
                sent.body += count.saturating_sub(head_bytes).min(body_bytes) as u64;
                return sent;
            }
            head_left = &[];
            sent.head += head_bytes as u64;
            sent.body += body_bytes as u64;
            exchange.body.consume(body_bytes);
            sent.complete = match part {
                Part::End => true,
                Part::Some => !chunked && exchange.body.is_at_end(),
                Part::Aborted => return sent,
                Part::Later => false,
            };
            writing_s += started.map_or(0.0, |started| started.elapsed().as_secs_f64());
            if sent.complete || writing_s >= limits.total {
                return sent;
            }
            if body_bytes >= TURN {
                tokio::task::yield_now().await;
            }
        }
    }
}

/// What comes next of a body.
enum Part {
    /// Bytes.
    Some,
    /// Nothing: it was all.
    End,
    /// Nothing yet, and the caller did not want to wait.
    Later,
    /// Nothing, and the rest will not come.
    Aborted,
}

async fn next_part(body: &mut Body, wait: bool) -> Part {
    let ready = if wait { Some(body.ready().await) } else { ready_now(body).await };
    match ready {
        Some(Ok(true)) => Part::Some,
        Some(Ok(false)) => Part::End,
        Some(Err(cache::body::Aborted)) => Part::Aborted,
        None => Part::Later,
    }
}

/// Puts what is written next into `out`: what is left of the head, a part of the body if there is one, and the framing
/// of chunks. Returns the body's bytes.
fn gather<'out>(
    head: &'out [u8],
    body: Option<&'out Body>,
    ends: bool,
    chunked: bool,
    frame: &'out mut Vec<u8>,
    out: &mut Vec<IoSlice<'out>>,
) -> usize {
    if !head.is_empty() {
        out.push(IoSlice::new(head));
    }
    let first = out.len();
    if let Some(body) = body {
        body.slices(out);
    }
    let bytes = out[first..].iter().map(|slice| slice.len()).sum();
    if chunked && bytes > 0 {
        frame.clear();
        wire::chunked::head(bytes, frame);
        out.insert(first, IoSlice::new(frame));
        out.push(IoSlice::new(wire::chunked::END));
    }
    if ends {
        out.push(IoSlice::new(wire::chunked::LAST));
    }
    bytes
}

/// What `ready` says if it need not wait.
async fn ready_now(body: &mut Body) -> Option<Result<bool, cache::body::Aborted>> {
    let mut ready = pin!(body.ready());
    poll_fn(|context| match ready.as_mut().poll(context) {
        Poll::Ready(more) => Poll::Ready(Some(more)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

/// Not all was written.
struct Unwritten {
    /// How many bytes were.
    count: usize,
    /// What was to be written could not be read.
    fault: bool,
}

/// After a short write: at a page that cannot be read the kernel stops as at a full socket, but never says that it goes on.
/// How many bytes it took, if it can be asked; else whether that page is why.
fn write_again(stream: &Stream, left: &[IoSlice<'_>]) -> Result<Option<usize>, bool> {
    match stream.write_again(left) {
        Ok(count) => Ok(Some(count)),
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(net::is_fault(&error)),
    }
}

/// Writes all, or says how many bytes were. Of what comes from a file the kernel may meet a page that cannot be read.
async fn write_all(
    stream: &mut Stream,
    slices: &mut [IoSlice<'_>],
    deadline: &Deadline,
    idle: Seconds,
    from_file: bool,
) -> Result<(), Unwritten> {
    let mut left = slices;
    let mut written = 0;
    IoSlice::advance_slices(&mut left, 0);
    let mut timed = false;
    while !left.is_empty() {
        let wrote = poll_fn(|context| {
            let progress = stream.poll_write_vectored(context, left);
            if progress.is_pending() {
                // Most writes need no time limit, since they do not wait.
                if !std::mem::replace(&mut timed, true) {
                    deadline.set(idle);
                }
                return deadline.poll_passed(context).map(|()| Err(std::io::ErrorKind::TimedOut.into()));
            }
            progress
        });
        match wrote.await {
            Ok(count) if count > 0 => {
                written += count;
                timed = false;
                IoSlice::advance_slices(&mut left, count);
                while from_file && !left.is_empty() {
                    let again = write_again(stream, left);
                    let again = again.map_err(|fault| Unwritten { count: written, fault })?;
                    let Some(count) = again else { break };
                    written += count;
                    IoSlice::advance_slices(&mut left, count);
                }
            }
            Ok(_) => return Err(Unwritten { count: written, fault: false }),
            Err(error) => return Err(Unwritten { count: written, fault: net::is_fault(&error) }),
        }
    }
    Ok(())
}
