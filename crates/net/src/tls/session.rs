//! The state of one sealed connection: records on the socket's side, plain bytes on ours.
//!
//! Reading also writes (what the protocol answers by itself), and a write is over when the kernel has its records: so
//! nothing lies here that only a later call would send. Records are received a buffer at a time, since rustls by itself
//! asks for 4 KiB, a quarter of a record.

use super::fault::Fault;
use crate::buffer::Buffer;
use crate::stream::{Idle, Stream};
use parking_lot::Mutex;
use rustls::Connection;
use std::fmt;
use std::future::poll_fn;
use std::io::{self, IoSlice, Read, Write};
use std::task::{Context, Poll, ready};

/// The TLS side of a [`Stream`]. The lock is never contended: a stream has one task.
pub(crate) struct Session {
    state: Mutex<State>,
}

struct State {
    connection: Connection,
    /// What was received and not yet taken in. None is held where nothing is.
    incoming: Option<Buffer>,
    /// Plain bytes that were taken and whose records are not all out yet: the result of the write that is under way.
    taken: usize,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Session")
    }
}

impl Session {
    pub(crate) fn new(connection: Connection) -> Self {
        Self { state: Mutex::new(State { connection, incoming: None, taken: 0 }) }
    }

    /// Sends and takes in records until both sides may talk.
    pub(crate) async fn handshake(&self, stream: &Stream) -> Result<(), Fault> {
        poll_fn(|context| {
            let mut state = self.state.lock();
            loop {
                ready!(state.flush(stream, context)).map_err(Fault::Io)?;
                if !state.connection.is_handshaking() {
                    return Poll::Ready(Ok(()));
                }
                if ready!(state.receive(stream, context))? == 0 {
                    return Poll::Ready(Err(Fault::Io(io::ErrorKind::UnexpectedEof.into())));
                }
            }
        })
        .await
    }

    /// Plain bytes; 0 is the peer's farewell. A connection that ends without one is an error, as it may have been cut by
    /// anybody on the way.
    pub(crate) fn poll_read(
        &self,
        stream: &Stream,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let mut state = self.state.lock();
        loop {
            // What cannot be sent will be told by a write; what was received before is still good.
            let _ = state.flush(stream, context);
            match state.connection.reader().read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return Poll::Ready(result),
            }
            ready!(state.receive(stream, context)).map_err(into_io)?;
        }
    }

    /// Takes some of `slices` and is ready when the kernel has them. Until then it must be called with the same bytes.
    pub(crate) fn poll_write(
        &self,
        stream: &Stream,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut state = self.state.lock();
        // Key updates and the like go first; they leave all of the buffer free.
        ready!(state.flush(stream, context))?;
        if state.taken == 0 {
            state.taken = state.connection.writer().write_vectored(slices)?;
            ready!(state.flush(stream, context))?;
        }
        Poll::Ready(Ok(std::mem::take(&mut state.taken)))
    }

    /// Reads what is there without waiting; `None` if nothing is.
    pub(crate) fn try_read(&self, stream: &Stream, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        let mut state = self.state.lock();
        loop {
            match state.connection.reader().read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return result.map(Some),
            }
            match state.take_in(|room| stream.receive_present(room)) {
                Ok(_) => {}
                Err(fault) if fault.is_blocking() => return Ok(None),
                Err(fault) => return Err(into_io(fault)),
            }
        }
    }

    /// Whether plain bytes (or the end) may be read without the socket.
    pub(crate) fn has_plain(&self) -> bool {
        let mut state = self.state.lock();
        if state.incoming.is_some() {
            return true;
        }
        match state.connection.process_new_packets() {
            Ok(found) => found.plaintext_bytes_to_read() > 0 || found.peer_has_closed(),
            Err(_) => true,
        }
    }

    /// What has happened on a connection nobody reads from, as far as `receive` knows. Session tickets are taken in and are
    /// no data.
    pub(crate) fn idle(&self, mut receive: impl FnMut(&mut [u8]) -> io::Result<usize>) -> Idle {
        let mut state = self.state.lock();
        loop {
            match state.connection.process_new_packets() {
                Ok(found) if found.plaintext_bytes_to_read() > 0 => return Idle::Data,
                Ok(found) if !found.peer_has_closed() => {}
                Ok(_) | Err(_) => return Idle::Closed,
            }
            match state.take_in(&mut receive) {
                Ok(1..) => {}
                Err(fault) if fault.is_blocking() => return Idle::Quiet,
                Ok(0) | Err(_) => return Idle::Closed,
            }
        }
    }

    /// Says farewell, as far as the socket takes it at once.
    pub(crate) fn farewell(&self, stream: &Stream) {
        let mut state = self.state.lock();
        state.connection.send_close_notify();
        while state.connection.wants_write() {
            if !matches!(state.connection.write_tls(&mut Room(stream)), Ok(count) if count > 0) {
                return;
            }
        }
    }
}

impl State {
    /// Sends records until none is left.
    fn flush(&mut self, stream: &Stream, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.connection.wants_write() {
            match self.connection.write_tls(&mut Outgoing { stream, context }) {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Poll::Pending,
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Takes in records: how many bytes; 0 is the end of the socket's stream.
    fn receive(&mut self, stream: &Stream, context: &mut Context<'_>) -> Poll<Result<usize, Fault>> {
        match self.take_in(|room| blocking(stream.poll_receive(context, room))) {
            Err(fault) if fault.is_blocking() => Poll::Pending,
            Err(fault) => {
                // The peer is told why, if it can be.
                let _ = self.flush(stream, context);
                Poll::Ready(Err(fault))
            }
            Ok(count) => Poll::Ready(Ok(count)),
        }
    }

    /// Takes in some of what was received before, else of what `receive` receives.
    fn take_in(&mut self, receive: impl FnOnce(&mut [u8]) -> io::Result<usize>) -> Result<usize, Fault> {
        let mut buffer = self.incoming.take().unwrap_or_default();
        if buffer.is_empty() {
            let count = receive(buffer.room()).map_err(Fault::Io)?;
            buffer.filled(count);
        }
        let count = self.connection.read_tls(&mut buffer.unread()).map_err(Fault::Io)?;
        buffer.consume(count);
        self.incoming = Some(buffer).filter(|buffer| !buffer.is_empty());
        self.connection.process_new_packets()?;
        Ok(count)
    }
}

fn into_io(fault: Fault) -> io::Error {
    match fault {
        Fault::Io(error) => error,
        other => io::Error::new(io::ErrorKind::InvalidData, format!("TLS: {other}")),
    }
}

/// What `Pending` is to `std::io`.
fn blocking(result: Poll<io::Result<usize>>) -> io::Result<usize> {
    match result {
        Poll::Ready(result) => result,
        Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
    }
}

/// The socket for writing; wakes the task.
struct Outgoing<'a, 'b> {
    stream: &'a Stream,
    context: &'a mut Context<'b>,
}

impl Write for Outgoing<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        blocking(self.stream.poll_send(self.context, slices))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The socket for writing what it has room for.
struct Room<'a>(&'a Stream);

impl Write for Room<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.send_present(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
