//! The body of a request on one stream.

use super::room::Piece;
use crate::request_body::go_on;
use bytes::{Buf as _, Bytes};
use cache::{BodyError, RequestBody};
use copal_cache as cache;
use copal_net as net;
use copal_wire as wire;
use h2::RecvStream;
use h2::server::SendResponse;
use net::Deadline;
use std::task::{Context, Poll};
use wire::h1::RequestFraming;
use wire::{ResponseHead, Version};

/// The body that follows a request's head.
pub(super) struct StreamBody<'stream> {
    stream: RecvStream,
    /// Where interim responses go.
    respond: &'stream mut SendResponse<Piece>,
    /// The client waits for `100 Continue`.
    to_continue: bool,
    /// The interim responses that were sent and not yet asked for.
    told: Vec<ResponseHead>,
    framing: RequestFraming,
    /// Received and not yet handed out.
    rest: Bytes,
    deadline: Deadline,
    pause_max: f64,
    /// Whether the pause is being timed.
    waiting: bool,
    broken: bool,
    /// Bytes handed out.
    pub(super) received: u64,
}

impl<'stream> StreamBody<'stream> {
    /// `to_continue` says that the client waits for `100 Continue`.
    pub(super) fn new(
        stream: RecvStream,
        framing: RequestFraming,
        respond: &'stream mut SendResponse<Piece>,
        to_continue: bool,
        pause_max: f64,
    ) -> Self {
        Self {
            stream,
            respond,
            to_continue,
            told: Vec::new(),
            framing,
            rest: Bytes::new(),
            deadline: Deadline::new(),
            pause_max,
            waiting: false,
            broken: false,
            received: 0,
        }
    }

    /// Has the client send, if it waits for a word from us.
    fn send_continue(&mut self) -> Result<(), BodyError> {
        if !std::mem::take(&mut self.to_continue) {
            return Ok(());
        }
        let mut interim = http::Response::new(());
        *interim.status_mut() = http::StatusCode::CONTINUE;
        self.respond.send_informational(interim).map_err(|_| BodyError)?;
        self.told.push(go_on(Version::Http20));
        Ok(())
    }

    fn poll_some(&mut self, context: &mut Context<'_>, out: &mut [u8]) -> Poll<Result<usize, BodyError>> {
        if self.broken {
            return Poll::Ready(Err(BodyError));
        }
        self.send_continue()?;
        while self.rest.is_empty() {
            match self.stream.poll_data(context) {
                Poll::Ready(Some(Ok(bytes))) => self.rest = bytes,
                Poll::Ready(Some(Err(_))) => return Poll::Ready(Err(BodyError)),
                Poll::Ready(None) => return Poll::Ready(Ok(0)),
                Poll::Pending => return Poll::Pending,
            }
        }
        let count = self.rest.len().min(out.len());
        self.rest.copy_to_slice(&mut out[..count]);
        // The client may send as much again as was handed out. A stream that is gone needs no window.
        let _ = self.stream.flow_control().release_capacity(count);
        Poll::Ready(Ok(count))
    }
}

impl RequestBody for StreamBody<'_> {
    fn framing(&self) -> RequestFraming {
        self.framing
    }

    fn is_begun(&self) -> bool {
        self.received > 0 || self.broken
    }

    fn interim(&mut self, head: &ResponseHead) {
        let mut interim = http::Response::new(());
        let Ok(status) = http::StatusCode::from_u16(head.status) else { return };
        *interim.status_mut() = status;
        let Some(fields) = super::stream::map(&head.fields) else { return };
        *interim.headers_mut() = fields;
        // A stream that is gone needs no answer; who looks at it next will see.
        if self.respond.send_informational(interim).is_ok() {
            self.told.push(ResponseHead { version: Version::Http20, ..head.clone() });
        }
    }

    fn waits(&self) -> bool {
        self.to_continue
    }

    fn go_on(&mut self) {
        // A stream that is gone shows itself at the next read.
        let _ = self.send_continue();
    }

    fn told(&mut self) -> Vec<ResponseHead> {
        std::mem::take(&mut self.told)
    }

    fn poll_read(&mut self, context: &mut Context<'_>, out: &mut [u8]) -> Poll<Result<usize, BodyError>> {
        let result = self.poll_some(context, out);
        match result {
            Poll::Pending => {
                if !std::mem::replace(&mut self.waiting, true) {
                    self.deadline.set(self.pause_max);
                }
                if self.deadline.poll_passed(context).is_ready() {
                    self.broken = true;
                    return Poll::Ready(Err(BodyError));
                }
            }
            Poll::Ready(Ok(count)) => {
                if std::mem::replace(&mut self.waiting, false) {
                    self.deadline.clear();
                }
                self.received += count as u64;
            }
            Poll::Ready(Err(BodyError)) => self.broken = true,
        }
        result
    }
}
