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
use wire::Known;

/// What was written, and whether that was all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) head: u64,
    /// Body bytes, without chunk framing.
    pub(crate) body: u64,
    /// The response is complete; if not, the connection must be cut.
    pub(crate) complete: bool,
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
        let mut sent = Sent::default();
        self.head.clear();
        wire::h1::write_response_head(&exchange.response, &mut self.head);
        let chunked = exchange.response.fields.has_known(Known::TransferEncoding);
        let mut head_left = !self.head.is_empty();
        let mut total_left = limits.total;
        loop {
            let more = if head_left {
                // The head goes with the first of the body, but does not wait for it.
                ready_now(&mut exchange.body).await
            } else {
                Some(exchange.body.ready().await)
            };
            let more = match more {
                Some(Ok(more)) => more,
                Some(Err(cache::body::Aborted)) => {
                    self.flush_head(stream, head_left, &mut sent, deadline, limits.idle).await;
                    return sent;
                }
                None => {
                    if !self.flush_head(stream, head_left, &mut sent, deadline, limits.idle).await {
                        return sent;
                    }
                    head_left = false;
                    continue;
                }
            };
            let mut slices = recycle(std::mem::take(&mut self.slices));
            self.frame.clear();
            let body_bytes = {
                let mut body: Vec<IoSlice<'_>> = Vec::new();
                let list = if chunked { &mut body } else { &mut slices };
                if !chunked && head_left {
                    list.push(IoSlice::new(&self.head));
                }
                let before = list.iter().map(|slice| slice.len()).sum::<usize>();
                if more {
                    exchange.body.slices(list);
                }
                let bytes = list.iter().map(|slice| slice.len()).sum::<usize>() - before;
                if chunked {
                    if head_left {
                        slices.push(IoSlice::new(&self.head));
                    }
                    if more {
                        wire::chunked::head(bytes, &mut self.frame);
                        slices.push(IoSlice::new(&self.frame));
                        slices.append(&mut body);
                        slices.push(IoSlice::new(wire::chunked::END));
                    } else {
                        slices.push(IoSlice::new(wire::chunked::LAST));
                    }
                }
                bytes
            };
            let started = std::time::Instant::now();
            let written = write_all(stream, &mut slices, deadline, limits.idle).await;
            self.slices = recycle(slices);
            let head_bytes = if head_left { self.head.len() } else { 0 };
            match written {
                Ok(()) => {
                    sent.head += head_bytes as u64;
                    sent.body += body_bytes as u64;
                    head_left = false;
                    if !more {
                        sent.complete = true;
                        return sent;
                    }
                    exchange.body.consume(body_bytes);
                }
                Err(count) => {
                    sent.head += count.min(head_bytes) as u64;
                    sent.body += count.saturating_sub(head_bytes).min(body_bytes) as u64;
                    return sent;
                }
            }
            if !chunked && is_at_end(&exchange.body, sent.body, &exchange.response) {
                sent.complete = true;
                return sent;
            }
            total_left -= started.elapsed().as_secs_f64();
            if total_left <= 0.0 {
                return sent;
            }
        }
    }

    async fn flush_head(
        &mut self,
        stream: &mut Stream,
        left: bool,
        sent: &mut Sent,
        deadline: &Deadline,
        idle: Seconds,
    ) -> bool {
        if !left {
            return true;
        }
        let mut slices = vec![IoSlice::new(&self.head)];
        let ok = write_all(stream, &mut slices, deadline, idle).await.is_ok();
        if ok {
            sent.head += self.head.len() as u64;
        }
        ok
    }
}

/// Whether the body says so without waiting: the common end of a response, without another round.
fn is_at_end(body: &Body, sent: u64, _response: &wire::ResponseHead) -> bool {
    match body {
        Body::Empty => true,
        Body::Bytes(bytes, _) => sent >= bytes.len() as u64,
        Body::Object(known, cursor) => {
            known.length().is_some_and(|length| cursor.position() >= length)
                && known.state() == copal_cache::State::Stored
        }
        Body::Parts(_) | Body::Relay(_) => false,
    }
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

/// Writes all, or says how many bytes were.
async fn write_all(
    stream: &mut Stream,
    slices: &mut [IoSlice<'_>],
    deadline: &Deadline,
    idle: Seconds,
) -> Result<(), usize> {
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
            }
            _ => return Err(written),
        }
    }
    Ok(())
}
