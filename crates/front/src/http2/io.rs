//! A connection as the framing library wants it: readable and writable, with what was read before in front.

use copal_net as net;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A stream, and bytes that were read from it already.
pub(super) struct Io {
    stream: net::Stream,
    ahead: Vec<u8>,
    /// How many of those have been read again.
    at: usize,
}

impl Io {
    pub(super) fn new(stream: net::Stream, ahead: Vec<u8>) -> Self {
        Self { stream, ahead, at: 0 }
    }
}

impl AsyncRead for Io {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.at < self.ahead.len() {
            let count = buffer.remaining().min(self.ahead.len() - self.at);
            buffer.put_slice(&self.ahead[self.at..self.at + count]);
            self.at += count;
            if self.at == self.ahead.len() {
                (self.ahead, self.at) = (Vec::new(), 0);
            }
            return Poll::Ready(Ok(()));
        }
        let count = ready!(self.stream.poll_read(context, buffer.initialize_unfilled()))?;
        buffer.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Io {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.stream.poll_write_vectored(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.stream.poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.stream.shutdown_write())
    }
}
