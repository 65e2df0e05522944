//! HTTP/1 on one connection: requests one after the other.

use crate::buffer::ReadBuffer;
use crate::proxy;
use crate::reject;
use crate::request_body::ClientBody;
use crate::respond::{Limits, Sent};
use crate::serve::{Front, Work};
use cache::{Exchange, Outcome, RequestBody as _, Session};
use copal_cache as cache;
use copal_net as net;
use copal_observe as observe;
use copal_wire as wire;
use net::{Deadline, Idle, Stream};
use observe::{Kind, Tag};
use std::future::poll_fn;
use std::io::IoSlice;
use std::rc::Rc;
use std::time::Instant;
use wire::Known;
use wire::h1::{Parse, RequestFraming};

/// The most bytes of an unread request body that are read and thrown away to keep a connection.
const DRAIN_MAX: u64 = 64 << 10;

/// A connection and its memory.
pub(crate) struct Connection {
    front: Rc<Front>,
    stream: Stream,
    buffer: ReadBuffer,
    deadline: Deadline,
    /// Whether a request was waited for before.
    served: bool,
}

/// What came instead of another request. The words are Varnish's in `SessClose`.
type Closed = &'static str;

/// What a connection came to.
pub(crate) enum Ended {
    /// Its end, and why.
    Closed(Closed),
    /// HTTP/2: its preface stands in the buffer.
    Http2,
}

impl Connection {
    pub(crate) fn new(front: Rc<Front>, stream: Stream) -> Self {
        let deadline = Deadline::new();
        Self { front, stream, buffer: ReadBuffer::default(), deadline, served: false }
    }

    pub(crate) async fn read_proxy(&mut self) -> Result<proxy::Introduction, Option<wire::proxy::Wrong>> {
        let timeout = self.front.settings().timeout_idle;
        proxy::read(&mut self.stream, &mut self.buffer, &self.deadline, timeout).await
    }

    /// Serves requests until the connection ends, and says why it did.
    pub(crate) async fn run(&mut self, session: &Rc<Session>) -> Ended {
        let mut answered = false;
        loop {
            let waited = self.buffer.is_empty();
            if waited && let Err(reason) = self.wait_idle(session).await {
                return Ended::Closed(reason);
            }
            if answered && !self.buffer.is_empty() && !waited {
                self.front.local.counters.sess_readahead.inc();
            }
            let mut work = self.front.work(session);
            let next = match self.read_head(&mut work.exchange).await {
                Ok(head) => self.answer(&mut work, session, head).await,
                Err(End::Quiet(reason)) => Err(reason),
                Err(End::Reject(wire::Reject::Http2Preface, _))
                    if self.front.settings().http2.is_some() && !answered =>
                {
                    self.front.rest(work);
                    return Ended::Http2;
                }
                Err(End::Reject(reject, head)) => Err(self.refuse(session, reject, &head).await),
            };
            self.front.rest(work);
            if let Err(reason) = next {
                return Ended::Closed(reason);
            }
            answered = true;
        }
    }

    /// What is needed to go on with another protocol: the stream, and what was read of it and not used.
    pub(crate) fn into_parts(self) -> (Stream, Vec<u8>) {
        let ahead = self.buffer.unused().to_vec();
        (self.stream, ahead)
    }

    /// Reads a request's head into the exchange: its length and when it was complete.
    async fn read_head(&mut self, exchange: &mut Exchange) -> Result<usize, End> {
        let settings = self.front.settings();
        let limits = settings.limits;
        let mut timed = false;
        loop {
            let unused = self.buffer.unused();
            let parsed = self.front.memo.borrow_mut().parse_request(unused, &limits, &mut exchange.request);
            match parsed {
                Ok(Parse::Done(length)) => return self.accept_head(exchange, length),
                Ok(Parse::Partial) => {}
                Err(reject) => return Err(End::Reject(reject, unused[..unused.len().min(256)].to_vec())),
            }
            let Self { stream, buffer, deadline, .. } = &mut *self;
            let filled = poll_fn(|context| {
                let filled = buffer.poll_fill(stream, context, limits.head_bytes);
                if filled.is_pending() {
                    // A head that comes in one piece, as most do, needs no time limit.
                    if !std::mem::replace(&mut timed, true) {
                        deadline.set(settings.timeout_req);
                    }
                    return deadline.poll_passed(context).map(|()| Err(net::Elapsed));
                }
                filled.map(Ok)
            });
            match filled.await {
                Ok(Ok(0)) => return Err(End::Quiet("REM_CLOSE")),
                Ok(Ok(_)) => {}
                Ok(Err(_)) => return Err(End::Quiet("REM_CLOSE")),
                Err(net::Elapsed) => return Err(End::Quiet("RX_TIMEOUT")),
            }
        }
    }

    /// Waits for the first byte of a request, holding no buffer.
    async fn wait_idle(&mut self, session: &Session) -> Result<(), Closed> {
        let first = !std::mem::replace(&mut self.served, true);
        let settings = self.front.settings();
        let timeout = session.timeouts.get().timeout_idle.unwrap_or(settings.timeout_idle);
        let since = settings.may_find_no_room.then(Instant::now);
        if first {
            self.deadline.set(timeout);
        } else if self.front.is_stopping() {
            return Err("SHUTDOWN");
        } else {
            // Ends at once when the worker is told to stop.
            self.deadline.set_idle(timeout);
        }
        if self.buffer.is_large() {
            self.front.buffers.give(self.buffer.take_memory());
        }
        match net::within(&self.deadline, self.stream.readable()).await {
            Ok(Ok(())) => {
                if !first
                    && self.front.may_find_no_room()
                    && no_room(&self.front, session, &self.stream, since)
                {
                    return Err("OVERLOAD");
                }
                self.buffer.give_memory(self.front.buffers.take());
                Ok(())
            }
            Ok(Err(_)) => Err("REM_CLOSE"),
            Err(net::Elapsed) => Err("RX_CLOSE_IDLE"),
        }
    }

    fn accept_head(&mut self, exchange: &mut Exchange, length: usize) -> Result<usize, End> {
        let whole = exchange.request.target.starts_with(b"https://") && !self.front.settings().https_scheme;
        let taken_apart = if whole { Ok(()) } else { wire::h1::absolute_form(&mut exchange.request) };
        let checked = taken_apart
            .and_then(|()| wire::h1::request_framing(&exchange.request))
            .and_then(|framing| wire::h1::check_connection(&exchange.request.fields).map(|()| framing))
            .and_then(|framing| expectation(exchange).map(|_| framing));
        match checked {
            Ok(_) => {
                self.buffer.consume(length);
                Ok(length)
            }
            Err(reject) => {
                let unused = self.buffer.unused();
                Err(End::Reject(reject, unused[..length.min(256)].to_vec()))
            }
        }
    }

    /// Answers the request in the exchange. An error says why the connection is over.
    async fn answer(&mut self, work: &mut Work, session: &Session, head: usize) -> Result<(), Closed> {
        let Work { exchange, writer } = work;
        let settings = self.front.settings();
        let framing = wire::h1::request_framing(&exchange.request).unwrap_or(RequestFraming::None);
        let expects_continue = expectation(exchange).unwrap_or(false);
        let arrival = self.front.local.now();
        let Self { stream, buffer, deadline, .. } = self;
        let version = exchange.request.version;
        let mut body = ClientBody::new(
            stream,
            buffer,
            deadline,
            settings.timeout_body,
            framing,
            version,
            expects_continue,
        );
        exchange.close_after = self.front.is_stopping();
        let outcome = exchange.run(&mut body, head, arrival).await;
        let received = body.received;
        let (done, may_drain) = (body.is_done(), body.may_drain());
        let limits = Limits::of(&settings, session);
        if !body.ahead.is_empty() && !body.send_ahead(limits.idle).await {
            exchange.finish(body.ahead.sent, 0, received);
            return Err("TX_ERROR");
        }
        match outcome {
            Outcome::Close => {
                exchange.finish(0, 0, received);
                Err("TX_ERROR")
            }
            Outcome::Pipe(pipe) => Err(Box::pin(self.pipe(exchange, *pipe, settings.pipe_timeout)).await),
            Outcome::Deliver => {
                let drained = done || may_drain && drain(&mut body).await;
                let (sent_ahead, broken) = (body.ahead.sent, body.is_broken());
                drop(body);
                if !drained {
                    exchange.must_close();
                }
                if let Some(tos) = session.tos.take() {
                    // A refusal changes nothing but the packets' priority.
                    let _ = self.stream.set_tos(tos);
                }
                let mut sent = writer.respond(&mut self.stream, exchange, &self.deadline, limits).await;
                sent.head += sent_ahead;
                self.conclude(exchange, sent, received, (drained, broken), settings.linger).await
            }
        }
    }

    async fn conclude(
        &mut self,
        exchange: &mut Exchange,
        sent: Sent,
        received: u64,
        (drained, broken): (bool, bool),
        linger: f64,
    ) -> Result<(), Closed> {
        let (close, reason) = (exchange.close, exchange.close_reason());
        exchange.finish(sent.head, sent.body, received);
        if !sent.complete {
            // Where only the end of the connection ends the body, a clean end would pass for the whole.
            if sent.until_close {
                self.stream.reset_on_close();
            }
            return Err("TX_ERROR");
        }
        if !drained {
            self.linger(linger).await;
            return Err(if broken { "RX_BODY" } else { "REQ_CLOSE" });
        }
        match close {
            true if sent.until_close && sent.body > 0 => Err("TX_EOF"),
            true => Err(reason),
            false => Ok(()),
        }
    }

    /// Joins client and backend until both are done.
    async fn pipe(&mut self, exchange: &mut Exchange, pipe: cache::Pipe, timeout: f64) -> Closed {
        let ahead = self.buffer.unused().to_vec();
        self.buffer.consume(ahead.len());
        let mut connection = pipe.connection;
        let (backend, early) = connection.pipe();
        let mut slices = [IoSlice::new(&early)];
        self.deadline.set(timeout);
        let (mut from_client, mut to_client) = (0, 0);
        if matches!(
            net::within(&self.deadline, self.stream.write_all_vectored(&mut slices)).await,
            Ok(Ok(()))
        ) {
            let moved = net::pipe::copy(&mut self.stream, backend, &ahead, timeout).await;
            (from_client, to_client) = (moved.to_origin_bytes, moved.to_client_bytes + early.len() as u64);
        }
        exchange.finish_pipe(connection.backend(), from_client, to_client);
        "TX_PIPE"
    }

    /// Answers a request that never became one, and ends the connection.
    async fn refuse(&mut self, session: &Session, reject: wire::Reject, head: &[u8]) -> Closed {
        let answer = reject::answer(reject);
        self.deadline.set(self.front.settings().linger);
        let mut slices = [IoSlice::new(answer.as_bytes())];
        let written = net::within(&self.deadline, self.stream.write_all_vectored(&mut slices)).await;
        reject::log(&self.front.local, session.vxid, reject, head, answer.len());
        if matches!(written, Ok(Ok(()))) {
            self.linger(self.front.settings().linger).await;
        }
        reject::close_reason(reject)
    }

    /// Lets the client read our last words: without this, closing on unread bytes would reset the connection before it
    /// has. Bounded in time and bytes.
    async fn linger(&mut self, timeout: f64) {
        if self.stream.shutdown_write().is_err() {
            return;
        }
        self.deadline.set(timeout);
        let mut waste = vec![0; 16 << 10];
        let mut left = 1 << 20;
        while left > 0 {
            match net::within(&self.deadline, self.stream.read(&mut waste)).await {
                Ok(Ok(count @ 1..)) => left -= count.min(left),
                _ => return,
            }
        }
    }
}

/// Whether a session that waited `since` then, or since before it could matter, is told that there is no room for it, as
/// varnishd tells one for which it finds no thread. One that waited no longer than `timeout_linger` has its thread there, and
/// needs none.
fn no_room(front: &Front, session: &Session, stream: &Stream, since: Option<Instant>) -> bool {
    if stream.idle() == Idle::Closed {
        return false;
    }
    let set = session.timeouts.get().timeout_linger;
    let linger = set.unwrap_or_else(|| front.local.current().settings.session_timeouts.timeout_linger);
    if since.is_some_and(|since| since.elapsed().as_secs_f64() <= linger) {
        return false;
    }
    let Some(left) = front.local.shared.no_room.attempt() else { return false };
    if front.local.log.mask().has(Tag::Debug) {
        front.local.log.record(Tag::Debug, 0, Kind::Raw, cache::shared::no_room(left).as_bytes());
    }
    true
}

/// Why there is no next request.
enum End {
    Quiet(Closed),
    Reject(wire::Reject, Vec<u8>),
}

/// Whether the client waits for `100 Continue`. Any other expectation cannot be met (RFC 9110, section 10.1.1).
fn expectation(exchange: &Exchange) -> Result<bool, wire::Reject> {
    match exchange.request.fields.get_known(Known::Expect) {
        None => Ok(false),
        Some(value) if value.eq_ignore_ascii_case(b"100-continue") => Ok(true),
        Some(_) => Err(wire::Reject::Expectation),
    }
}

/// Reads what is left of a request's body, if that is not much.
async fn drain(body: &mut ClientBody<'_>) -> bool {
    let mut waste = vec![0; 16 << 10];
    let mut left = DRAIN_MAX;
    loop {
        match poll_fn(|context| body.poll_read(context, &mut waste)).await {
            Ok(0) => return true,
            Ok(count) if (count as u64) < left => left -= count as u64,
            Ok(_) | Err(cache::BodyError) => return false,
        }
    }
}
