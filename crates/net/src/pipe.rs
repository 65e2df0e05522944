//! Bytes copied both ways between two streams until both sides have ended, or nothing has moved for too long.

use crate::deadline::Deadline;
use crate::stream::Stream;
use base::Seconds;
use copal_base as base;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::task::{Context, Poll, ready};

/// How much one direction holds between reading and writing, bytes.
const SIZE: usize = 32 << 10;

/// Why a pipe ended.
#[derive(Debug)]
pub enum Ended {
    /// Both sides said that they were done.
    Closed,
    /// Nothing moved for the idle timeout.
    Idle,
    /// The client's side failed.
    Client(io::Error),
    /// The origin's side failed.
    Origin(io::Error),
}

/// What went through a pipe.
#[derive(Debug)]
pub struct Outcome {
    /// Bytes written to the origin.
    pub to_origin_bytes: u64,
    /// Bytes written to the client.
    pub to_client_bytes: u64,
    /// Why it ended.
    pub ended: Ended,
}

/// Copies until both directions have ended, one failed, or nothing moved for `idle_timeout` seconds (0 or less: no limit).
/// An end of stream on one side is passed on to the other, which may go on sending. Bytes already read from the client
/// are in `pending` and go first.
pub async fn copy(
    client: &mut Stream,
    origin: &mut Stream,
    pending: &[u8],
    idle_timeout: Seconds,
) -> Outcome {
    let deadline = Deadline::new();
    let mut up = Half::new();
    up.load(pending);
    let mut down = Half::new();
    let (client, origin) = (&*client, &*origin);
    if idle_timeout > 0.0 {
        deadline.set(idle_timeout);
    }
    let ended = poll_fn(|context| {
        let moved = up.moved + down.moved;
        let up_done = up.poll(context, client, origin).map_err(|fault| fault.ended(true))?;
        let down_done = down.poll(context, origin, client).map_err(|fault| fault.ended(false))?;
        if up_done.is_ready() && down_done.is_ready() {
            return Poll::Ready(Err(Ended::Closed));
        }
        if up.moved + down.moved != moved && idle_timeout > 0.0 {
            deadline.set(idle_timeout);
        }
        deadline.poll_passed(context).map(|()| Err::<(), _>(Ended::Idle))
    })
    .await;
    let ended = ended.err().unwrap_or(Ended::Closed);
    Outcome { to_origin_bytes: up.written, to_client_bytes: down.written, ended }
}

/// Which end of a direction failed.
enum Fault {
    Source(io::Error),
    Target(io::Error),
}

impl Fault {
    fn ended(self, from_client: bool) -> Ended {
        match (self, from_client) {
            (Self::Source(error), true) | (Self::Target(error), false) => Ended::Client(error),
            (Self::Source(error), false) | (Self::Target(error), true) => Ended::Origin(error),
        }
    }
}

/// One direction: reading > ended > flushed and shut down.
struct Half {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    source_ended: bool,
    done: bool,
    written: u64,
    /// Bytes read and written: anything that moved.
    moved: u64,
}

impl Half {
    fn new() -> Self {
        Self {
            buffer: vec![0; SIZE],
            start: 0,
            end: 0,
            source_ended: false,
            done: false,
            written: 0,
            moved: 0,
        }
    }

    fn load(&mut self, bytes: &[u8]) {
        if bytes.len() > self.buffer.len() {
            self.buffer.resize(bytes.len(), 0);
        }
        self.buffer[..bytes.len()].copy_from_slice(bytes);
        self.end = bytes.len();
    }

    /// Moves what can be moved. Ready when this direction is over.
    fn poll(
        &mut self,
        context: &mut Context<'_>,
        source: &Stream,
        target: &Stream,
    ) -> Result<Poll<()>, Fault> {
        match self.poll_inner(context, source, target) {
            Poll::Ready(Ok(())) => Ok(Poll::Ready(())),
            Poll::Ready(Err(fault)) => Err(fault),
            Poll::Pending => Ok(Poll::Pending),
        }
    }

    fn poll_inner(
        &mut self,
        context: &mut Context<'_>,
        source: &Stream,
        target: &Stream,
    ) -> Poll<Result<(), Fault>> {
        while !self.done {
            if self.start < self.end {
                let slice = [IoSlice::new(&self.buffer[self.start..self.end])];
                let count = ready!(target.poll_write_vectored(context, &slice)).map_err(Fault::Target)?;
                self.start += count;
                self.written += count as u64;
                self.moved += count as u64;
            } else if self.source_ended {
                // A target that is gone already has told us by now, or will on its own direction.
                let _ = target.shutdown_write();
                self.done = true;
            } else {
                let count = ready!(source.poll_read(context, &mut self.buffer)).map_err(Fault::Source)?;
                (self.start, self.end) = (0, count);
                self.moved += count as u64;
                self.source_ended = count == 0;
            }
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker;
    use socket2::{Domain, Socket, Type};

    fn pair() -> (Stream, Stream) {
        let (a, b) = Socket::pair(Domain::UNIX, Type::STREAM, None).unwrap();
        a.set_nonblocking(true).unwrap();
        b.set_nonblocking(true).unwrap();
        (Stream::new(a, None).unwrap(), Stream::new(b, None).unwrap())
    }

    async fn read_all(stream: &mut Stream) -> Vec<u8> {
        let (mut all, mut buffer) = (Vec::new(), vec![0; 9000]);
        loop {
            match stream.read(&mut buffer).await.unwrap() {
                0 => return all,
                count => all.extend_from_slice(&buffer[..count]),
            }
        }
    }

    #[test]
    fn half_close_is_passed_on_and_the_other_way_goes_on() {
        worker::block_on(async {
            let ((mut client, mut client_far), (mut origin, mut origin_far)) = (pair(), pair());
            let big = vec![b'x'; 700_000];
            let clients = async {
                client_far.write_all(b"tail").await.unwrap();
                client_far.shutdown_write().unwrap();
                read_all(&mut client_far).await
            };
            let origins = async {
                let asked = read_all(&mut origin_far).await;
                origin_far.write_all(&big).await.unwrap();
                origin_far.shutdown_write().unwrap();
                asked
            };
            let (outcome, got, asked) =
                tokio::join!(copy(&mut client, &mut origin, b"head ", 5.0), clients, origins);
            assert!(matches!(outcome.ended, Ended::Closed), "{outcome:?}");
            assert_eq!(asked, b"head tail");
            assert_eq!(got.len(), big.len());
            assert_eq!((outcome.to_origin_bytes, outcome.to_client_bytes), (9, 700_000));
        });
    }

    #[test]
    fn silence_ends_it() {
        worker::block_on(async {
            let ((mut client, _client_far), (mut origin, _origin_far)) = (pair(), pair());
            let outcome = copy(&mut client, &mut origin, b"", 0.01).await;
            assert!(matches!(outcome.ended, Ended::Idle), "{outcome:?}");
        });
    }

    #[test]
    fn a_vanished_side_is_named() {
        worker::block_on(async {
            let ((mut client, client_far), (mut origin, mut origin_far)) = (pair(), pair());
            origin_far.write_all(b"to nobody").await.unwrap();
            drop(client_far);
            let outcome = copy(&mut client, &mut origin, b"", 5.0).await;
            assert!(matches!(outcome.ended, Ended::Client(_)), "{outcome:?}");
        });
    }
}
