//! A request's body, read from the connection as the cache asks for it; and the way back to who sends it, ahead of the
//! response.

use crate::ahead::Ahead;
use crate::buffer::ReadBuffer;
use base::Seconds;
use cache::{BodyError, RequestBody};
use copal_base as base;
use copal_cache as cache;
use copal_net as net;
use copal_wire as wire;
use net::Deadline;
use std::future::poll_fn;
use std::task::{Context, Poll, ready};
use wire::chunked::Decoder;
use wire::h1::RequestFraming;
use wire::{ResponseHead, Version};

/// How much of a body is buffered at once.
const AHEAD: usize = 64 << 10;

/// Where the body stands.
#[derive(Debug)]
enum State {
    Length(u64),
    Chunked(Box<Decoder>),
    Done,
    Broken,
}

/// The body of the request whose head was just read.
pub(crate) struct ClientBody<'connection> {
    stream: &'connection net::Stream,
    buffer: &'connection mut ReadBuffer,
    deadline: &'connection Deadline,
    pause_max: f64,
    framing: RequestFraming,
    state: State,
    /// Whether the pause is being timed.
    waiting: bool,
    /// The client waits for `100 Continue`.
    to_continue: bool,
    /// The client understands interim responses (RFC 9110, section 15.2).
    takes_interim: bool,
    /// The interim responses that were sent and not yet asked for.
    told: Vec<ResponseHead>,
    /// What was to be sent before the response.
    pub(crate) ahead: Ahead,
    /// Body bytes handed out, without framing.
    pub(crate) received: u64,
}

impl<'connection> ClientBody<'connection> {
    pub(crate) fn new(
        stream: &'connection net::Stream,
        buffer: &'connection mut ReadBuffer,
        deadline: &'connection Deadline,
        pause_max: f64,
        framing: RequestFraming,
        version: Version,
        expects_continue: bool,
    ) -> Self {
        let state = match framing {
            RequestFraming::None | RequestFraming::Length(0) => State::Done,
            RequestFraming::Length(length) => State::Length(length),
            RequestFraming::Chunked => State::Chunked(Box::default()),
        };
        // RFC 9110, section 10.1.1: an HTTP/1.0 client expects nothing, whatever it says.
        let takes_interim = version == Version::Http11;
        let to_continue = expects_continue && takes_interim && buffer.is_empty();
        let ahead = Ahead::default();
        Self {
            stream,
            buffer,
            deadline,
            pause_max,
            framing,
            state,
            waiting: false,
            to_continue,
            takes_interim,
            told: Vec::new(),
            ahead,
            received: 0,
        }
    }

    /// Whether the whole body was read, so that the next request may follow.
    pub(crate) fn is_done(&self) -> bool {
        matches!(self.state, State::Done)
    }

    /// Whether what came of it is no body, or ended before the body did.
    pub(crate) fn is_broken(&self) -> bool {
        matches!(self.state, State::Broken)
    }

    /// Whether reading the rest makes sense: it is not broken, and the client was not told to wait for a word from us.
    pub(crate) fn may_drain(&self) -> bool {
        !matches!(self.state, State::Broken) && !self.to_continue
    }

    /// Sends what is still to be sent before the response; false if the client does not take it within `idle` seconds.
    pub(crate) async fn send_ahead(&mut self, idle: Seconds) -> bool {
        self.deadline.set(idle);
        let Self { ahead, stream, deadline, .. } = self;
        let sent = net::within(deadline, poll_fn(|context| ahead.poll_send(stream, context))).await;
        matches!(sent, Ok(Ok(())))
    }

    fn poll_some(&mut self, context: &mut Context<'_>, out: &mut [u8]) -> Poll<Result<usize, BodyError>> {
        loop {
            match &mut self.state {
                State::Done => return Poll::Ready(Ok(0)),
                State::Broken => return Poll::Ready(Err(BodyError)),
                State::Length(left) => {
                    let count = self
                        .buffer
                        .unused()
                        .len()
                        .min(out.len())
                        .min(usize::try_from(*left).unwrap_or(usize::MAX));
                    if count > 0 {
                        out[..count].copy_from_slice(&self.buffer.unused()[..count]);
                        self.buffer.consume(count);
                        *left -= count as u64;
                        if *left == 0 {
                            self.state = State::Done;
                        }
                        return Poll::Ready(Ok(count));
                    }
                }
                State::Chunked(decoder) => {
                    // No more is decoded at once than `out` takes.
                    let offered = self.buffer.unused().len().min(out.len());
                    let step = decoder.decode(&self.buffer.unused()[..offered]).map_err(|_| BodyError)?;
                    let count = step.data.len();
                    out[..count].copy_from_slice(&self.buffer.unused()[step.data.clone()]);
                    self.buffer.consume(step.consumed);
                    if step.done {
                        self.state = State::Done;
                    }
                    if count > 0 {
                        return Poll::Ready(Ok(count));
                    }
                    if step.done || step.consumed > 0 && !self.buffer.is_empty() {
                        continue;
                    }
                }
            }
            if ready!(self.buffer.poll_fill(self.stream, context, AHEAD)).map_err(|_| BodyError)? == 0 {
                return Poll::Ready(Err(BodyError));
            }
        }
    }

    /// Puts `100 Continue` in the way to the client, if that waits for it.
    fn add_continue(&mut self) -> bool {
        let waits = std::mem::take(&mut self.to_continue);
        if waits {
            let head = go_on(Version::Http11);
            self.ahead.add(text(&head));
            self.told.push(head);
        }
        waits
    }

    fn poll_continue(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BodyError>> {
        self.add_continue();
        self.ahead.poll_send(self.stream, context).map_err(|_| BodyError)
    }
}

/// `100 Continue` (RFC 9110, section 15.2.1).
pub(crate) fn go_on(version: Version) -> ResponseHead {
    ResponseHead { version, status: 100, reason: b"Continue".to_vec(), ..ResponseHead::default() }
}

fn text(head: &ResponseHead) -> Vec<u8> {
    let mut message = Vec::new();
    wire::h1::write_response_head(head, &mut message);
    message
}

impl RequestBody for ClientBody<'_> {
    fn framing(&self) -> RequestFraming {
        self.framing
    }

    fn is_begun(&self) -> bool {
        self.received > 0 || matches!(self.state, State::Broken)
    }

    fn interim(&mut self, head: &ResponseHead) {
        if self.takes_interim && self.ahead.offer(text(head)) {
            self.told.push(head.clone());
            self.ahead.send_present(self.stream);
        }
    }

    fn waits(&self) -> bool {
        self.to_continue
    }

    fn is_malformed(&self) -> bool {
        let State::Chunked(decoder) = &self.state else { return false };
        let (mut decoder, mut rest) = (Decoder::clone(decoder), self.buffer.unused());
        while !rest.is_empty() {
            match decoder.decode(rest) {
                Ok(step) if step.done || step.consumed == 0 => return false,
                Ok(step) => rest = &rest[step.consumed..],
                Err(_) => return true,
            }
        }
        false
    }

    fn go_on(&mut self) {
        if self.add_continue() {
            self.ahead.send_present(self.stream);
        }
    }

    fn told(&mut self) -> Vec<ResponseHead> {
        std::mem::take(&mut self.told)
    }

    fn poll_read(&mut self, context: &mut Context<'_>, out: &mut [u8]) -> Poll<Result<usize, BodyError>> {
        if self.to_continue || !self.ahead.is_empty() {
            ready!(self.poll_continue(context))?;
        }
        let result = self.poll_some(context, out);
        match result {
            Poll::Pending => {
                if !std::mem::replace(&mut self.waiting, true) {
                    self.deadline.set(self.pause_max);
                }
                if self.deadline.poll_passed(context).is_ready() {
                    self.state = State::Broken;
                    return Poll::Ready(Err(BodyError));
                }
            }
            Poll::Ready(Ok(count)) => {
                if std::mem::replace(&mut self.waiting, false) {
                    self.deadline.clear();
                }
                self.received += count as u64;
            }
            Poll::Ready(Err(BodyError)) => self.state = State::Broken,
        }
        result
    }
}
