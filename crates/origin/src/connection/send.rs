//! Sending the request.
//!
//! An origin may answer before it has all of the body, and close. So whenever the socket takes no more, we also look for
//! an answer; and when it is gone, we look for what it left.

use super::Connection;
use crate::error::{Error, gone};
use copal_net::{Buffer, Stream, within};
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::task::{Context, Poll};

/// How far a piece of the request came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// All of it went out.
    All,
    /// The origin has begun its answer first: send no more and read it. The connection will not be kept.
    Answered,
}

/// What one try to write came to.
enum Progress {
    Wrote(usize),
    Answered,
    Failed(io::Error),
}

impl Connection {
    /// Sends the request's head and the first bytes of its body (framed by the caller; may be empty), in one call if the
    /// socket takes it. Each stall is limited by the first-byte timeout.
    ///
    /// # Errors
    /// [`Error::StaleReuse`], [`Error::SendTimeout`] or [`Error::Send`].
    pub async fn write_head(&mut self, head: &[u8], body: &[u8]) -> Result<Sent, Error> {
        let prefix = std::mem::take(&mut self.prefix);
        let head_bytes = (prefix.len() + head.len()) as u64;
        let (result, sent) =
            self.send(&mut [IoSlice::new(&prefix), IoSlice::new(head), IoSlice::new(body)]).await;
        let traffic = &mut self.account.traffic;
        traffic.sent_head_bytes += sent.min(head_bytes);
        traffic.sent_body_bytes += sent.saturating_sub(head_bytes);
        result
    }

    /// Sends more of the body, framed by the caller. The slices are advanced.
    ///
    /// # Errors
    /// As [`Connection::write_head`].
    pub async fn write_body(&mut self, slices: &mut [IoSlice<'_>]) -> Result<Sent, Error> {
        let (result, sent) = self.send(slices).await;
        self.account.traffic.sent_body_bytes += sent;
        result
    }

    /// Says that the request is complete. Without it the connection is not kept.
    pub fn end_request(&mut self) {
        self.sent_all = true;
    }

    async fn send(&mut self, mut slices: &mut [IoSlice<'_>]) -> (Result<Sent, Error>, u64) {
        let mut sent = 0;
        IoSlice::advance_slices(&mut slices, 0);
        while !slices.is_empty() {
            self.wait_at_most(self.timeouts.first_byte);
            let Self { stream, deadline, buffer, .. } = self;
            let step = poll_fn(|context| poll_send(context, stream, buffer, slices));
            match within(deadline, step).await {
                Err(_) => return (Err(Error::SendTimeout), sent),
                Ok(Progress::Wrote(count)) => {
                    sent += count as u64;
                    IoSlice::advance_slices(&mut slices, count);
                }
                Ok(Progress::Answered) => {
                    self.keep = false;
                    return (Ok(Sent::Answered), sent);
                }
                Ok(Progress::Failed(error)) => return (self.after_failure(error).await, sent),
            }
        }
        self.spare_buffer();
        (Ok(Sent::All), sent)
    }

    /// The socket took no more: either the origin left an answer, or the exchange is over.
    async fn after_failure(&mut self, error: io::Error) -> Result<Sent, Error> {
        self.keep = false;
        let buffer = self.buffer.get_or_insert_with(Buffer::new);
        if buffer.is_empty() && gone(&error) {
            // The end is known to this side already, so this does not wait; the deadline is for safety.
            let _ = within(&self.deadline, buffer.read_from(&mut self.stream)).await;
        }
        if !buffer.is_empty() {
            return Ok(Sent::Answered);
        }
        self.spare_buffer();
        let nothing_came = self.account.traffic.received_head_bytes == 0;
        if self.reused && gone(&error) && nothing_came {
            return Err(Error::StaleReuse);
        }
        Err(Error::Send(error))
    }
}

fn poll_send(
    context: &mut Context<'_>,
    stream: &Stream,
    buffer: &mut Option<Buffer>,
    slices: &[IoSlice<'_>],
) -> Poll<Progress> {
    match stream.poll_write_vectored(context, slices) {
        Poll::Ready(Ok(count)) => return Poll::Ready(Progress::Wrote(count)),
        Poll::Ready(Err(error)) => return Poll::Ready(Progress::Failed(error)),
        Poll::Pending => {}
    }
    let buffer = buffer.get_or_insert_with(Buffer::new);
    loop {
        if buffer.room().is_empty() || answered(buffer.unread()) {
            return Poll::Ready(Progress::Answered);
        }
        match stream.poll_read(context, buffer.room()) {
            // An end without an answer: reading the head will say so.
            Poll::Ready(Ok(0)) => return Poll::Ready(Progress::Answered),
            Poll::Ready(Ok(count)) => buffer.filled(count),
            Poll::Ready(Err(error)) => return Poll::Ready(Progress::Failed(error)),
            Poll::Pending => return Poll::Pending,
        }
    }
}

/// Whether `bytes` hold the beginning of an answer that is no interim one.
fn answered(mut bytes: &[u8]) -> bool {
    const DIGIT: usize = b"HTTP/1.1 ".len();
    while let Some(&digit) = bytes.get(DIGIT) {
        if digit != b'1' {
            return true;
        }
        match bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            Some(end) => bytes = &bytes[end + 4..],
            None => return false,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::answered;

    #[test]
    fn interim_answers_are_no_answer() {
        for (bytes, expected) in [
            ("", false),
            ("HTTP/1.1 ", false),
            ("HTTP/1.1 1", false),
            ("HTTP/1.1 100 Continue\r\n\r\n", false),
            ("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nA: b\r\n\r\n", false),
            ("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 4", true),
            ("HTTP/1.1 200 OK\r\n", true),
            ("garbage that is long enough", true),
        ] {
            assert_eq!(answered(bytes.as_bytes()), expected, "{bytes}");
        }
    }
}
