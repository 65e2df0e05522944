//! What a response's body is made of, as the connection's writer sees it: wait until there is something, look at it,
//! write some, say how much.

use crate::assemble::Assembly;
use crate::cut::Cut;
use crate::delivery::Filtered;
use crate::fetch::filters::Filters;
use crate::fetch::trail::Trail;
use crate::known::Known;
use crate::parts::Parts;
use crate::sparse::Reader;
use crate::trouble::Trouble;
use bytes::Bytes;
use copal_filter as filter;
use copal_observe::{Records, Tag};
use copal_origin as origin;
use copal_store as store;
use filter::{Chain, Pace, STEP};
use std::future::poll_fn;
use std::io::IoSlice;
use std::rc::Rc;
use store::Cursor;

/// How many pieces are written with one call: of a large body about 2 MiB, so that others are not kept waiting for long,
/// and what is queued in sockets stays in the processor's caches.
const PIECES: usize = 16;

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
    /// A range of an object that is kept in pieces.
    Sparse(Box<Reader>),
    /// Several ranges of an object, with what stands between them.
    Parts(Box<Parts>),
    /// Straight from an origin.
    Relay(Box<Relay>),
    /// Another body, through filters.
    Filtered(Box<Filtered>),
    /// Put together from several.
    Esi(Box<Assembly>),
}

impl Body {
    /// A body of these bytes.
    pub fn bytes(bytes: impl Into<Bytes>) -> Self {
        Self::Bytes(bytes.into(), 0)
    }

    /// The whole of `known`, or of its bytes `from..end`.
    pub fn object(known: &Rc<Known>, from: u64, end: u64) -> Self {
        debug_assert!(known.sparse().is_none(), "what is in pieces is read by a reader of its own");
        Self::Object(Rc::clone(known), Cursor::new(known, from, end))
    }

    /// From now on what [`Body::slices`] gives goes to a socket's system call, and nobody looks at it on the way: what lies
    /// in a file is then not copied first. False if none of it can lie in a file.
    pub fn give_to_kernel(&mut self) -> bool {
        match self {
            Self::Object(known, cursor) => {
                cursor.give_to_kernel();
                known.is_in_file()
            }
            Self::Sparse(reader) => {
                reader.give_to_kernel();
                reader.is_in_file()
            }
            // Most of these are looked at, and what is not costs a copy.
            Self::Empty
            | Self::Bytes(..)
            | Self::Parts(_)
            | Self::Relay(_)
            | Self::Filtered(_)
            | Self::Esi(_) => false,
        }
    }

    /// A system call could not read what [`Body::slices`] gave (`EFAULT`): the file that it lies in is damaged.
    pub fn report_fault(&self) {
        match self {
            Self::Object(known, cursor) => cursor.report_fault(known),
            Self::Sparse(reader) => reader.report_fault(),
            Self::Empty
            | Self::Bytes(..)
            | Self::Parts(_)
            | Self::Relay(_)
            | Self::Filtered(_)
            | Self::Esi(_) => {}
        }
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
            Self::Sparse(reader) => reader.ready().await,
            Self::Parts(parts) => parts.ready().await,
            Self::Relay(relay) => Box::pin(relay.ready()).await,
            Self::Filtered(filtered) => Box::pin(filtered.ready()).await,
            Self::Esi(assembly) => Box::pin(assembly.ready()).await,
        }
    }

    /// Appends the pieces that can be written now.
    pub fn slices<'body>(&'body self, out: &mut Vec<IoSlice<'body>>) {
        match self {
            Self::Empty => {}
            Self::Bytes(bytes, at) => out.push(IoSlice::new(&bytes[*at..])),
            Self::Object(known, cursor) => cursor.slices(known, PIECES, out),
            Self::Sparse(reader) => reader.slices(out),
            Self::Parts(parts) => parts.slices(out),
            Self::Relay(relay) => out.push(IoSlice::new(relay.bytes())),
            Self::Filtered(filtered) => filtered.slices(out),
            Self::Esi(assembly) => assembly.slices(out),
        }
    }

    /// Moves on by `count` bytes, which were written.
    pub fn consume(&mut self, count: usize) {
        match self {
            Self::Empty => debug_assert_eq!(count, 0),
            Self::Bytes(_, at) => *at += count,
            Self::Object(known, cursor) => cursor.consume(known, count as u64),
            Self::Sparse(reader) => reader.consume(count),
            Self::Parts(parts) => parts.consume(count),
            Self::Relay(relay) => relay.from += count,
            Self::Filtered(filtered) => filtered.consume(count),
            Self::Esi(assembly) => assembly.consume(count),
        }
    }

    /// Writes the records that were made on the way, as the body is at its end or given up.
    pub(crate) fn close(&mut self, records: &mut Records) {
        match self {
            Self::Sparse(reader) => reader.close(records),
            Self::Filtered(filtered) => filtered.close(records),
            Self::Parts(parts) => parts.close(records),
            Self::Esi(assembly) => assembly.close(records),
            Self::Empty | Self::Bytes(..) | Self::Object(..) | Self::Relay(_) => {}
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
            Self::Esi(assembly) => assembly.abandon(),
            // Parts and pieces leave what they read by themselves.
            Self::Empty
            | Self::Bytes(..)
            | Self::Sparse(_)
            | Self::Parts(_)
            | Self::Relay(_)
            | Self::Filtered(_) => {}
        }
    }
}

/// A body on its way from an origin to the one client it is for: nothing is stored, and the client's pace is the
/// origin's.
#[derive(Debug)]
pub struct Relay {
    connection: Option<Box<origin::Connection>>,
    buffer: Vec<u8>,
    from: usize,
    to: usize,
    /// What happens to it on the way; `input` is what comes from the origin then, and `buffer` what goes to the client.
    chain: Chain,
    input: Vec<u8>,
    input_at: usize,
    pace: Pace,
    trail: Trail,
    passing: Passing,
    /// How long the whole is, if that is known.
    length: Option<u64>,
    /// What of it the client wants.
    cut: Cut,
}

/// What a response for one client counts for in `Transient` while it passes.
#[derive(Debug)]
pub(crate) struct Passing {
    /// Held for as long as the body is read.
    _head: store::Hold,
    /// The bytes that were read last.
    body: store::Hold,
}

impl Passing {
    /// Counts a head in `engine`, and prepares to count the body.
    pub(crate) fn new(engine: &dyn store::Engine, head: store::Hold) -> Self {
        Self { _head: head, body: engine.count(0) }
    }
}

impl Relay {
    /// Relays `first`, and then what is left to read of the response on `connection`, through `filters`. `length` is that of
    /// what comes out, where it is known.
    pub(crate) fn new(
        connection: Box<origin::Connection>,
        length: Option<u64>,
        first: Vec<u8>,
        filters: Filters,
        mut trail: Trail,
        mut passing: Passing,
    ) -> Self {
        trail.received_body = first.len() as u64;
        passing.body.replace(trail.received_body);
        let chain = filters.chain;
        let (input, buffer) = if chain.is_empty() { (Vec::new(), first) } else { (first, Vec::new()) };
        Self {
            connection: Some(connection),
            from: 0,
            to: buffer.len(),
            buffer,
            chain,
            input,
            input_at: 0,
            pace: Pace::default(),
            trail,
            passing,
            length,
            cut: Cut::default(),
        }
    }

    /// How long the whole is, if that is known.
    pub(crate) fn length(&self) -> Option<u64> {
        self.length
    }

    /// Only the bytes `from..end` of it. Nothing has been written yet.
    pub(crate) fn cut(&mut self, from: u64, end: u64) {
        self.cut = Cut::new(from, end);
        self.trim();
    }

    /// Leaves of what was read last what is wanted.
    fn trim(&mut self) {
        let wanted = self.cut.take(self.to - self.from);
        (self.from, self.to) = (self.from + wanted.start, self.from + wanted.end);
    }

    /// What can be written now.
    fn bytes(&self) -> &[u8] {
        &self.buffer[self.from..self.to]
    }

    /// Reads the whole body, if it is not longer than `limit`; else `None`, and what was read is relayed first.
    pub(crate) async fn collect(&mut self, limit: usize) -> Result<Option<Vec<u8>>, Aborted> {
        let mut whole = Vec::new();
        while self.ready().await? {
            whole.extend_from_slice(self.bytes());
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
        loop {
            if self.from < self.to {
                return Ok(true);
            }
            // Behind the last byte of all, the connection is given back.
            if self.cut.is_over() && self.length != Some(self.trail.received_body) {
                return Ok(false);
            }
            if self.chain.is_empty() {
                let count = self.read_into_buffer().await?;
                (self.from, self.to) = (0, count);
                if count == 0 {
                    return Ok(false);
                }
                self.trim();
                if self.from < self.to {
                    return Ok(true);
                }
            } else if !self.filter().await? {
                return Ok(false);
            }
            self.pace.step().await;
        }
    }

    /// One step of the chain; false at its end.
    async fn filter(&mut self) -> Result<bool, Aborted> {
        if self.input_at == self.input.len() && self.connection.is_some() {
            if self.input.len() < STEP {
                self.input.resize(STEP, 0);
            }
            // Nothing is lost if this is dropped while it waits: the buffer then is taken for one to be filled again.
            self.input_at = self.input.len();
            let count = read(&mut self.connection, &mut self.trail, &mut self.input).await?;
            self.passing.body.replace(count as u64);
            self.input.truncate(count);
            self.input_at = 0;
        }
        self.buffer.clear();
        let end = self.connection.is_none();
        let stepped = self.chain.step(&self.input[self.input_at..], end, &mut self.buffer, &mut self.trail);
        match stepped {
            Ok(took) => {
                self.input_at += took.bytes;
                (self.from, self.to) = (0, self.buffer.len());
                if took.done && end && self.buffer.is_empty() {
                    self.finish();
                    return Ok(false);
                }
                if took.done && end {
                    self.finish();
                    self.chain = Chain::default();
                }
                Ok(true)
            }
            Err(failure) => {
                self.trail.records.fmt(Tag::FetchError, format_args!("{failure}"));
                self.trail.closed("Failure receiving req.body");
                self.trail.local.counters.fetch_failed.inc();
                self.chain.close(&mut self.trail);
                self.connection = None;
                Err(Aborted)
            }
        }
    }

    /// The records, for who goes on with the fetch after this failed.
    pub(crate) fn into_trail(self) -> Trail {
        self.trail
    }

    fn finish(&mut self) {
        self.chain.close(&mut self.trail);
        self.trail.end_body();
    }

    async fn read_into_buffer(&mut self) -> Result<usize, Aborted> {
        if self.connection.is_none() {
            return Ok(0);
        }
        if self.buffer.len() < RELAY {
            self.buffer.resize(RELAY, 0);
        }
        let count = read(&mut self.connection, &mut self.trail, &mut self.buffer).await?;
        self.passing.body.replace(count as u64);
        if count == 0 {
            self.trail.end_body();
        }
        Ok(count)
    }
}

/// Reads some of a body. At its end the connection is given back.
async fn read(
    slot: &mut Option<Box<origin::Connection>>,
    trail: &mut Trail,
    buffer: &mut [u8],
) -> Result<usize, Aborted> {
    let Some(connection) = slot.as_mut() else { return Ok(0) };
    match connection.read_body(buffer).await {
        Ok(0) => {
            if let Some(connection) = slot.take() {
                trail.release(connection);
            }
            Ok(0)
        }
        Ok(count) => {
            trail.received_body += count as u64;
            Ok(count)
        }
        Err(error) => {
            trail.records.fmt(Tag::FetchError, format_args!("{error}"));
            trail.count_bound(&error);
            trail.blame(Trouble::of_origin(&error));
            trail.closed(error.close_reason());
            trail.local.counters.fetch_failed.inc();
            *slot = None;
            Err(Aborted)
        }
    }
}
