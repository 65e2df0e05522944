//! One exchange with an origin: a request out, a response in.
//!
//! ```text
//!  write_head > write_body* > end_request > read_head > read_body* > release
//! ```
//! The connection is kept afterwards only if all of the request went out, all of the response came in and not a byte
//! more, and both sides meant to go on. Dropping it at any point closes it.

mod body;
mod head;
mod send;

use crate::backend::{Backend, Slot};
use crate::error::Error;
use crate::pool::Pools;
use crate::settings::{Settings, Timeouts};
use base::Seconds;
use copal_base as base;
use copal_net::{Buffer, Deadline, Endpoint, Idle, Stream};
use copal_wire::chunked;
use std::net::SocketAddr;
use std::os::fd::AsRawFd as _;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use head::Next;
pub use send::Sent;

/// How the response's body goes on.
#[derive(Debug)]
enum Body {
    /// The response's head has not been read.
    Before,
    /// This many bytes are still to come; never 0.
    Length(u64),
    Chunked(chunked::Decoder),
    UntilClose,
    /// Its end was seen.
    Ended,
    /// It was cut or malformed.
    Broken,
}

/// Bytes of one exchange, as they went over the wire; of the response's body without the framing of chunks, as Varnish
/// counts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Request head, PROXY header included.
    pub sent_head_bytes: u64,
    /// Request body.
    pub sent_body_bytes: u64,
    /// Response heads, interim ones included.
    pub received_head_bytes: u64,
    /// Response body.
    pub received_body_bytes: u64,
}

/// What one exchange takes and uses: its slot, and its bytes, which the backend's counters get at the end.
#[derive(Debug)]
struct Account {
    slot: Slot,
    traffic: Traffic,
}

impl Drop for Account {
    fn drop(&mut self) {
        let counters = self.slot.backend().counters();
        counters.bereq_hdrbytes.add(self.traffic.sent_head_bytes);
        counters.bereq_bodybytes.add(self.traffic.sent_body_bytes);
        counters.beresp_hdrbytes.add(self.traffic.received_head_bytes);
        counters.beresp_bodybytes.add(self.traffic.received_body_bytes);
    }
}

/// A connection in use for one exchange.
#[derive(Debug)]
pub struct Connection {
    account: Account,
    place: usize,
    stream: Stream,
    pools: Rc<Pools>,
    deadline: Deadline,
    /// The time limits; VCL may change them between the steps.
    pub timeouts: Timeouts,
    reused: bool,
    /// Sent before the request head: a PROXY header.
    prefix: Vec<u8>,
    /// What was read and not yet used. None is held where nothing is unread.
    buffer: Option<Buffer>,
    body: Body,
    /// All of the request went out.
    sent_all: bool,
    /// The connection may be kept, as far as seen.
    keep: bool,
    interim: u32,
    /// When the answer must be at its end, if it must; set when its head is read.
    ends: Option<Instant>,
    /// How long its body may be.
    body_max: u64,
    /// A transfer coding without a meaning is overlooked.
    takes_any_coding: bool,
    /// How much of it is read at once.
    piece_max: usize,
}

impl Connection {
    pub(crate) fn new(
        slot: Slot,
        place: usize,
        stream: Stream,
        pools: Rc<Pools>,
        timeouts: Timeouts,
        reused: bool,
        prefix: Vec<u8>,
    ) -> Self {
        Self {
            account: Account { slot, traffic: Traffic::default() },
            place,
            stream,
            pools,
            deadline: Deadline::new(),
            timeouts,
            reused,
            keep: prefix.is_empty(),
            prefix,
            buffer: None,
            body: Body::Before,
            sent_all: false,
            interim: 0,
            ends: None,
            body_max: u64::MAX,
            takes_any_coding: false,
            piece_max: usize::MAX,
        }
    }

    /// Whether it served another exchange before.
    pub fn reused(&self) -> bool {
        self.reused
    }

    /// From now on an answer with a transfer coding that means nothing is taken as it comes, until the connection ends; else
    /// it is malformed.
    ///
    /// Source: RFC 9112, section 6.3.
    pub fn take_any_coding(&mut self) {
        self.takes_any_coding = true;
    }

    /// The backend it leads to.
    pub fn backend(&self) -> &Arc<Backend> {
        self.account.slot.backend()
    }

    /// The address it leads to.
    pub fn endpoint(&self) -> &Endpoint {
        &self.backend().peer(self.place).endpoint
    }

    /// The origin's address; `None` for a Unix socket.
    pub fn peer(&self) -> Option<SocketAddr> {
        self.stream.peer()
    }

    /// Our own address; `None` for a Unix socket.
    pub fn local(&self) -> Option<SocketAddr> {
        self.stream.local()
    }

    /// The number of its descriptor, for the log.
    pub fn descriptor(&self) -> i32 {
        self.stream.as_raw_fd()
    }

    /// How many bytes of the response's body are read at once at most, if that is bounded.
    pub fn piece_max(&self) -> Option<usize> {
        (self.piece_max < usize::MAX).then_some(self.piece_max)
    }

    /// Bytes so far.
    pub fn traffic(&self) -> Traffic {
        self.account.traffic
    }

    /// Says that the connection will not be kept: the request asked for its end, or VCL did.
    pub fn no_reuse(&mut self) {
        self.keep = false;
    }

    /// The bare stream, for a pipe. Whatever goes over it is not seen here: the connection will not be kept. Bytes that
    /// came in before are handed over too and go to the client first; usually there are none.
    pub fn pipe(&mut self) -> (&mut Stream, Vec<u8>) {
        self.keep = false;
        let unread = self.buffer.take().map_or_else(Vec::new, |buffer| buffer.unread().to_vec());
        (&mut self.stream, unread)
    }

    /// Has the connection closed after this exchange, however it ends.
    pub fn close_after(&mut self) {
        self.keep = false;
    }

    /// Ends the exchange: keeps the connection for another if it is fit for that, else closes it. Says which.
    pub fn release(self) -> bool {
        let fit = self.keep
            && self.sent_all
            && matches!(self.body, Body::Ended)
            && self.buffer.as_ref().is_none_or(Buffer::is_empty)
            && self.stream.idle() == Idle::Quiet;
        if !fit {
            return false;
        }
        let peer = self.backend().peer(self.place).clone();
        let Self { pools, stream, .. } = self;
        pools.put(peer, stream)
    }

    /// Has the deadline pass after `seconds` without progress, 0 or less never; and when the answer must be at its end.
    fn wait_at_most(&self, seconds: Seconds) {
        if let Some(ends) = self.ends {
            let left = ends.saturating_duration_since(Instant::now()).as_secs_f64();
            return self.deadline.set(if seconds > 0.0 { seconds.min(left) } else { left });
        }
        if seconds > 0.0 { self.deadline.set(seconds) } else { self.deadline.clear() }
    }

    /// Takes up the bounds of an answer, which is to begin now.
    fn bound_answer(&mut self, settings: &Settings) {
        let seconds = settings.fetch_time_max;
        let span = (seconds > 0.0).then(|| Duration::try_from_secs_f64(seconds).ok()).flatten();
        self.ends = span.and_then(|span| Instant::now().checked_add(span));
        self.body_max = if settings.fetch_bytes_max > 0 { settings.fetch_bytes_max } else { u64::MAX };
        self.piece_max = if settings.piece_max > 0 { settings.piece_max } else { usize::MAX };
    }

    /// Whether the answer takes too long as a whole.
    fn is_overtime(&self) -> bool {
        self.ends.is_some_and(|ends| Instant::now() >= ends)
    }

    /// What a wait that was too long comes to.
    fn timed_out(&self, error: Error) -> Error {
        if self.is_overtime() { Error::Overtime } else { error }
    }

    /// Gives a buffer without unread bytes back to the thread.
    fn spare_buffer(&mut self) {
        self.buffer = self.buffer.take().filter(|buffer| !buffer.is_empty());
    }
}
