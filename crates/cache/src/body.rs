//! What a response's body is made of, as the connection's writer sees it: wait until there is something, look at it,
//! write some, say how much.

use crate::fetch::trail::Trail;
use crate::index::hot::Known;
use bytes::Bytes;
use copal_observe::Tag;
use copal_origin as origin;
use copal_store as store;
use copal_wire as wire;
use std::future::poll_fn;
use std::io::IoSlice;
use std::rc::Rc;
use store::Cursor;
use wire::range::Multipart;

/// How many pieces are written with one call.
const PIECES: usize = 64;

/// Room for a body that comes from the origin straight to its one client.
const RELAY: usize = 64 << 10;

/// The body cannot be completed: the connection must be cut, so that the client knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Aborted;

/// A response's body.
#[derive(Debug, Default)]
pub enum Body {
    /// None.
    #[default]
    Empty,
    /// Bytes in memory, and how many of them are written.
    Bytes(Bytes, usize),
    /// A range of an object.
    Object(Rc<Known>, Cursor),
    /// Several ranges of an object, with what stands between them.
    Parts(Box<Parts>),
    /// Straight from an origin.
    Relay(Box<Relay>),
}

impl Body {
    /// A body of these bytes.
    pub fn bytes(bytes: impl Into<Bytes>) -> Self {
        Self::Bytes(bytes.into(), 0)
    }

    /// The whole of `known`, or of its bytes `from..end`.
    pub fn object(known: &Rc<Known>, from: u64, end: u64) -> Self {
        Self::Object(Rc::clone(known), Cursor::new(known, from, end))
    }

    /// Waits until there are bytes to write; `false` at the end.
    ///
    /// # Errors
    /// [`Aborted`] if the rest will never come.
    pub async fn ready(&mut self) -> Result<bool, Aborted> {
        match self {
            Self::Empty => Ok(false),
            Self::Bytes(bytes, at) => Ok(*at < bytes.len()),
            Self::Object(known, cursor) => poll_fn(|context| cursor.poll_ready(known, context))
                .await
                .map_err(|store::cursor::Cut| Aborted),
            Self::Parts(parts) => parts.ready().await,
            Self::Relay(relay) => Box::pin(relay.ready()).await,
        }
    }

    /// Appends the pieces that can be written now.
    pub fn slices<'body>(&'body self, out: &mut Vec<IoSlice<'body>>) {
        match self {
            Self::Empty => {}
            Self::Bytes(bytes, at) => out.push(IoSlice::new(&bytes[*at..])),
            Self::Object(known, cursor) => cursor.slices(known, PIECES, out),
            Self::Parts(parts) => parts.slices(out),
            Self::Relay(relay) => out.push(IoSlice::new(&relay.buffer[relay.from..relay.to])),
        }
    }

    /// Moves on by `count` bytes, which were written.
    pub fn consume(&mut self, count: usize) {
        match self {
            Self::Empty => debug_assert_eq!(count, 0),
            Self::Bytes(_, at) => *at += count,
            Self::Object(known, cursor) => cursor.consume(known, count as u64),
            Self::Parts(parts) => parts.consume(count),
            Self::Relay(relay) => relay.from += count,
        }
    }

    /// Whether it has no byte at all.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Empty)
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        match self {
            Self::Object(known, cursor) => cursor.close(known),
            Self::Parts(parts) => parts.cursor.close(&parts.known),
            Self::Empty | Self::Bytes(..) | Self::Relay(_) => {}
        }
    }
}

/// A `multipart/byteranges` body (RFC 9110, section 14.6).
#[derive(Debug)]
pub struct Parts {
    known: Rc<Known>,
    frame: Multipart,
    /// The part whose head or bytes are being written; one beyond the last for the tail.
    index: usize,
    /// How much of its head, or of the tail, is written.
    delimiter_at: usize,
    cursor: Cursor,
}

impl Parts {
    /// The parts of `known` that `frame` lays out.
    pub fn new(known: &Rc<Known>, frame: Multipart) -> Self {
        let cursor = part_cursor(known, &frame, 0);
        Self { known: Rc::clone(known), frame, index: 0, delimiter_at: 0, cursor }
    }

    fn delimiter(&self) -> &[u8] {
        if self.index < self.frame.parts().len() { self.frame.head(self.index) } else { self.frame.tail() }
    }

    async fn ready(&mut self) -> Result<bool, Aborted> {
        loop {
            if self.delimiter_at < self.delimiter().len() {
                return Ok(true);
            }
            if self.index >= self.frame.parts().len() {
                return Ok(false);
            }
            let (known, cursor) = (&self.known, &mut self.cursor);
            let ready = poll_fn(|context| cursor.poll_ready(known, context)).await;
            if ready.map_err(|store::cursor::Cut| Aborted)? {
                return Ok(true);
            }
            self.cursor.close(&self.known);
            self.index += 1;
            self.delimiter_at = 0;
            self.cursor = part_cursor(&self.known, &self.frame, self.index);
        }
    }

    fn slices<'body>(&'body self, out: &mut Vec<IoSlice<'body>>) {
        let delimiter = self.delimiter();
        if self.delimiter_at < delimiter.len() {
            out.push(IoSlice::new(&delimiter[self.delimiter_at..]));
        }
        self.cursor.slices(&self.known, PIECES, out);
    }

    fn consume(&mut self, count: usize) {
        let from_delimiter = count.min(self.delimiter().len() - self.delimiter_at);
        self.delimiter_at += from_delimiter;
        self.cursor.consume(&self.known, (count - from_delimiter) as u64);
    }
}

/// A reader of part `index`; of nothing beyond the last.
fn part_cursor(known: &Known, frame: &Multipart, index: usize) -> Cursor {
    let (from, end) = frame.parts().get(index).map_or((0, 0), |(first, last)| (*first, last + 1));
    Cursor::new(known, from, end)
}

/// A body on its way from an origin to the one client it is for: nothing is stored, and the client's pace is the
/// origin's.
#[derive(Debug)]
pub struct Relay {
    connection: Option<origin::Connection>,
    buffer: Vec<u8>,
    from: usize,
    to: usize,
    trail: Trail,
}

impl Relay {
    /// Relays `first`, and then what is left to read of the response on `connection`.
    pub(crate) fn new(connection: origin::Connection, first: Vec<u8>, mut trail: Trail) -> Self {
        trail.received_body = first.len() as u64;
        Self { connection: Some(connection), from: 0, to: first.len(), buffer: first, trail }
    }

    /// Reads the whole body, if it is not longer than `limit`; else `None`, and what was read is relayed first.
    pub(crate) async fn collect(&mut self, limit: usize) -> Result<Option<Vec<u8>>, Aborted> {
        let mut whole = Vec::new();
        while self.ready().await? {
            whole.extend_from_slice(&self.buffer[self.from..self.to]);
            if whole.len() > limit {
                (self.from, self.to) = (0, whole.len());
                self.buffer = whole;
                return Ok(None);
            }
            self.from = self.to;
        }
        Ok(Some(whole))
    }

    async fn ready(&mut self) -> Result<bool, Aborted> {
        if self.from < self.to {
            return Ok(true);
        }
        let Some(connection) = self.connection.as_mut() else { return Ok(false) };
        if self.buffer.len() < RELAY {
            self.buffer.resize(RELAY, 0);
        }
        match connection.read_body(&mut self.buffer).await {
            Ok(0) => {
                if let Some(connection) = self.connection.take() {
                    self.trail.release(connection);
                }
                self.trail.end_body();
                Ok(false)
            }
            Ok(count) => {
                self.trail.received_body += count as u64;
                (self.from, self.to) = (0, count);
                Ok(true)
            }
            Err(error) => {
                self.trail.records.fmt(Tag::FetchError, format_args!("{error}"));
                self.trail.local.counters.fetch_failed.inc();
                self.connection = None;
                Err(Aborted)
            }
        }
    }
}
