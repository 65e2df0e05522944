//! Messages on the pipe between manager and worker: bytes to frames and back.
//!
//! | offset | bytes | meaning |
//! |---|---|---|
//! | 0 | 4 | length of the body, little-endian, at most [`BODY_MAX`] |
//! | 4 | 4 | number of the question, little-endian; the answer bears the same |
//! | 8 | length | the message in JSON |
//!
//! The peer is our own program, but a frame that cannot be is still an error and no panic: the peer may be dying.

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Bytes before the body.
const HEAD: usize = 8;
/// The longest body: VCL sources are the longest that is sent, files of at most 16 MiB.
const BODY_MAX: usize = 256 << 20;
/// Bytes read at once.
const CHUNK: usize = 64 << 10;

/// One end of the pipe.
#[derive(Debug)]
pub(crate) struct Pipe {
    stream: UnixStream,
    /// Bytes that came and are no whole frame yet.
    pending: Vec<u8>,
}

/// What came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event<T> {
    /// A message with its number.
    Message(u32, T),
    /// Nothing whole within the time.
    Nothing,
    /// The peer is gone.
    End,
}

impl Pipe {
    /// The end that is `stream`, which is blocking.
    pub(crate) fn new(stream: UnixStream) -> Self {
        Self { stream, pending: Vec::new() }
    }

    /// Sends one message; a peer that takes nothing for `patience` is an error.
    ///
    /// # Errors
    /// The message is too long, or the peer is gone or stuck. What was sent of it cannot be taken back: the pipe is of
    /// no use any more.
    pub(crate) fn send(
        &mut self,
        number: u32,
        message: &impl Serialize,
        patience: Duration,
    ) -> io::Result<()> {
        let mut frame = vec![0; HEAD];
        serde_json::to_writer(&mut frame, message)?;
        let length = frame.len() - HEAD;
        if length > BODY_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("a message of {length} bytes")));
        }
        frame[..4].copy_from_slice(&u32::try_from(length).expect("bounded above").to_le_bytes());
        frame[4..HEAD].copy_from_slice(&number.to_le_bytes());
        self.stream.set_write_timeout(Some(at_least(patience)))?;
        self.stream.write_all(&frame)
    }

    /// The next message, waited for until `patience` has passed.
    ///
    /// # Errors
    /// What came is no frame or no such message.
    pub(crate) fn receive<T: DeserializeOwned>(&mut self, patience: Duration) -> io::Result<Event<T>> {
        let until = Instant::now() + patience;
        loop {
            if let Some((number, message)) = self.take()? {
                return Ok(Event::Message(number, message));
            }
            let left = until.saturating_duration_since(Instant::now());
            self.stream.set_read_timeout(Some(at_least(left)))?;
            let before = self.pending.len();
            self.pending.resize(before + CHUNK, 0);
            let read = self.stream.read(&mut self.pending[before..]);
            self.pending.truncate(before + *read.as_ref().unwrap_or(&0));
            match read {
                Ok(0) => return Ok(Event::End),
                Ok(_) => {}
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut if left.is_zero() => {
                        return Ok(Event::Nothing);
                    }
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted => {}
                    io::ErrorKind::ConnectionReset => return Ok(Event::End),
                    _ => return Err(error),
                },
            }
        }
    }

    fn take<T: DeserializeOwned>(&mut self) -> io::Result<Option<(u32, T)>> {
        let Some((head, rest)) = self.pending.split_first_chunk::<HEAD>() else { return Ok(None) };
        let [a, b, c, d, number @ ..] = *head;
        let length = u32::from_le_bytes([a, b, c, d]) as usize;
        if length > BODY_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("a frame of {length} bytes")));
        }
        let Some(body) = rest.get(..length) else { return Ok(None) };
        let message = serde_json::from_slice(body)?;
        self.pending.drain(..HEAD + length);
        Ok(Some((u32::from_le_bytes(number), message)))
    }
}

/// A timeout of zero would mean none.
fn at_least(patience: Duration) -> Duration {
    patience.max(Duration::from_millis(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(20);

    fn pair() -> (Pipe, Pipe) {
        let (a, b) = UnixStream::pair().unwrap();
        (Pipe::new(a), Pipe::new(b))
    }

    #[test]
    fn messages_come_whole_and_in_order() {
        let (mut a, mut b) = pair();
        let long = "x".repeat(40_000);
        a.send(7, &"short", SOON).unwrap();
        a.send(8, &long, SOON).unwrap();
        assert_eq!(b.receive::<String>(SOON).unwrap(), Event::Message(7, "short".into()));
        assert_eq!(b.receive::<String>(SOON).unwrap(), Event::Message(8, long));
        assert_eq!(b.receive::<String>(Duration::ZERO).unwrap(), Event::Nothing);
        drop(a);
        assert_eq!(b.receive::<String>(SOON).unwrap(), Event::End);
    }

    #[test]
    fn what_is_no_frame_is_refused() {
        for bytes in [&[255; 8][..], &[1, 0, 0, 0, 0, 0, 0, 0, b'{'], &[2, 0, 0, 0, 0, 0, 0, 0, b'1', b'2']] {
            let (a, mut b) = pair();
            (&a.stream).write_all(bytes).unwrap();
            assert!(b.receive::<String>(SOON).is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn a_piece_of_a_frame_is_waited_for() {
        let (a, mut b) = pair();
        (&a.stream).write_all(&[3, 0, 0, 0, 9, 0, 0, 0, b'"']).unwrap();
        assert_eq!(b.receive::<String>(Duration::ZERO).unwrap(), Event::Nothing);
        (&a.stream).write_all(b"y\"").unwrap();
        assert_eq!(b.receive::<String>(SOON).unwrap(), Event::Message(9, "y".into()));
    }
}
