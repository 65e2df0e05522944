//! What goes to an HTTP/1 client ahead of its response: `100 Continue`, and interim responses of the origin.
//!
//! Nothing here waits for the client while the origin may be answering: what the socket does not take at once goes out
//! with the next occasion, at the latest right before the response.

use copal_net as net;
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::task::{Context, Poll, Waker, ready};

/// The most bytes that wait. What would go beyond is left out: a client may always miss an interim response.
const WAITING_MAX: usize = 64 << 10;

/// Messages on their way, in order.
#[derive(Debug, Default)]
pub(crate) struct Ahead {
    /// The first is sent in part, perhaps.
    messages: VecDeque<Vec<u8>>,
    /// How much of the first is sent.
    at: usize,
    waiting: usize,
    /// Bytes that were sent.
    pub(crate) sent: u64,
}

impl Ahead {
    /// Whether all is sent.
    pub(crate) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Adds a message that must be sent. There is one such for a request at most.
    pub(crate) fn add(&mut self, message: Vec<u8>) {
        self.waiting += message.len();
        self.messages.push_back(message);
    }

    /// Adds a message; false, and it is left out, if too much waits already.
    pub(crate) fn offer(&mut self, message: Vec<u8>) -> bool {
        let fits = self.waiting + message.len() <= WAITING_MAX;
        if fits {
            self.add(message);
        }
        fits
    }

    /// Sends all of it. After an error nothing is left: the connection is of no use.
    pub(crate) fn poll_send(
        &mut self,
        stream: &net::Stream,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        while let Some(message) = self.messages.front() {
            let piece = [IoSlice::new(&message[self.at..])];
            let count = match ready!(stream.poll_write_vectored(context, &piece)) {
                Ok(count) => count,
                Err(error) => {
                    *self = Self { sent: self.sent, ..Self::default() };
                    return Poll::Ready(Err(error));
                }
            };
            self.at += count;
            self.waiting -= count;
            self.sent += count as u64;
            if self.at == message.len() {
                self.messages.pop_front();
                self.at = 0;
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Sends what the socket takes now. An error shows itself again when the response is written.
    pub(crate) fn send_present(&mut self, stream: &net::Stream) {
        let _ = self.poll_send(stream, &mut Context::from_waker(Waker::noop()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_has_a_bound() {
        let mut ahead = Ahead::default();
        assert!(ahead.offer(vec![b'a'; WAITING_MAX - 1]));
        assert!(!ahead.offer(vec![b'b'; 2]));
        assert!(ahead.offer(vec![b'c']));
        assert!(!ahead.is_empty());
    }
}
