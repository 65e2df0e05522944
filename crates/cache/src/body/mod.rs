//! A response's body, as the connection's writer sees it: wait until there is something, look at it, write some, say how
//! much.
//!
//! The bodies of nearly all responses are inline: none, bytes in memory, a stored object. All others are a [`Source`]: a
//! relay from the origin, a reader of segments, a multipart body, a body through filters, an ESI page. Who reads a body
//! does not ask which of them it is.

mod cut;
pub(crate) mod filtered;

pub(crate) use cut::Cut;

use crate::known::Known;
use bytes::Bytes;
use copal_observe as observe;
use copal_store as store;
use observe::{Records, Tag};
use std::fmt;
use std::future::poll_fn;
use std::io::IoSlice;
use std::pin::Pin;
use std::rc::Rc;
use store::{Cursor, State};

/// How many pieces are written with one call: of a large body about 2 MiB, so that others are not kept waiting for long,
/// and what is queued in sockets stays in the processor's caches.
const PIECES: usize = 16;

/// The body cannot be completed: the connection must be cut, so that the client knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Aborted;

/// What [`Source::ready`] waits for.
pub type Ready<'source> = Pin<Box<dyn Future<Output = Result<bool, Aborted>> + 'source>>;

/// A body that is made while it is read.
pub trait Source: fmt::Debug {
    /// Waits until there are bytes to write; `false` at the end. Nothing is lost if the future is dropped while it waits.
    ///
    /// # Errors
    /// [`Aborted`] if the rest will never come.
    fn ready(&mut self) -> Ready<'_>;

    /// Appends the pieces that can be written now.
    fn slices<'body>(&'body self, out: &mut Vec<IoSlice<'body>>);

    /// Moves on by `count` bytes, which were written.
    fn consume(&mut self, count: usize);

    /// As [`Body::give_to_kernel`]. Most sources look at their bytes, and for the rest a copy is no matter.
    fn give_to_kernel(&mut self) -> bool {
        false
    }

    /// As [`Body::report_fault`].
    fn report_fault(&self) {}

    /// Whether it is known without waiting that all was consumed. False says nothing.
    fn is_at_end(&self) -> bool {
        false
    }

    /// Writes the records that were made on the way, as the body is at its end or given up.
    fn close(&mut self, _records: &mut Records) {}

    /// How long the whole is, if that is known before it is read.
    fn length(&self) -> Option<u64> {
        None
    }

    /// Leaves the bytes `from..end` of a body that nobody has begun to read; `false` if that cannot be done, and then
    /// nothing has changed.
    fn cut(&mut self, _from: u64, _end: u64) -> bool {
        false
    }

    /// Whether it comes straight from an origin, at the pace of its one client.
    fn is_relayed(&self) -> bool {
        false
    }

    /// Whether its bytes are already written into the gzip stream of the page that includes it.
    fn joins_stream(&self) -> bool {
        false
    }
}

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
    /// Any other.
    Source(Box<dyn Source>),
}

impl Body {
    /// A body of these bytes.
    pub fn bytes(bytes: impl Into<Bytes>) -> Self {
        Self::Bytes(bytes.into(), 0)
    }

    /// The whole of `known`, or of its bytes `from..end`.
    pub fn object(known: &Rc<Known>, from: u64, end: u64) -> Self {
        debug_assert!(known.sparse().is_none(), "an object in segments is read by a reader of its own");
        Self::Object(Rc::clone(known), Cursor::new(known, from, end))
    }

    /// A body that `source` makes.
    pub(crate) fn made_by(source: impl Source + 'static) -> Self {
        Self::Source(Box::new(source))
    }

    /// From now on what [`Body::slices`] gives goes to a socket's system call, and nothing here reads it before: bytes of a
    /// file are then not copied first. False if none of it can lie in a file.
    pub fn give_to_kernel(&mut self) -> bool {
        match self {
            Self::Object(known, cursor) => {
                cursor.give_to_kernel();
                known.is_in_file()
            }
            Self::Source(source) => source.give_to_kernel(),
            Self::Empty | Self::Bytes(..) => false,
        }
    }

    /// A system call could not read what [`Body::slices`] gave (`EFAULT`): the file that it lies in is damaged.
    pub fn report_fault(&self) {
        match self {
            Self::Object(known, cursor) => cursor.report_fault(known),
            Self::Source(source) => source.report_fault(),
            Self::Empty | Self::Bytes(..) => {}
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
            Self::Object(known, cursor) => {
                poll_fn(|context| cursor.poll_ready(known, context)).await.map_err(|_| Aborted)
            }
            Self::Source(source) => source.ready().await,
        }
    }

    /// Appends the pieces that can be written now.
    pub fn slices<'body>(&'body self, out: &mut Vec<IoSlice<'body>>) {
        match self {
            Self::Empty => {}
            Self::Bytes(bytes, at) => out.push(IoSlice::new(&bytes[*at..])),
            Self::Object(known, cursor) => cursor.slices(known, PIECES, out),
            Self::Source(source) => source.slices(out),
        }
    }

    /// Moves on by `count` bytes, which were written.
    pub fn consume(&mut self, count: usize) {
        match self {
            Self::Empty => debug_assert_eq!(count, 0),
            Self::Bytes(_, at) => *at += count,
            Self::Object(known, cursor) => cursor.consume(known, count as u64),
            Self::Source(source) => source.consume(count),
        }
    }

    /// Whether it is known without waiting that nothing is left: the common end of a response, without another round.
    pub fn is_at_end(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Bytes(bytes, at) => *at >= bytes.len(),
            Self::Object(known, cursor) => {
                known.length().is_some_and(|length| cursor.position() >= length)
                    && known.state() == State::Stored
            }
            Self::Source(source) => source.is_at_end(),
        }
    }

    /// Whether it has no byte at all.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Empty)
    }

    /// The object that it is read from, if it is one as it is stored.
    pub(crate) fn stored(&self) -> Option<&Rc<Known>> {
        match self {
            Self::Object(known, _) => Some(known),
            Self::Empty | Self::Bytes(..) | Self::Source(_) => None,
        }
    }

    /// How long the whole is, if that is known before it is read.
    pub(crate) fn length(&self) -> Option<u64> {
        match self {
            Self::Empty => Some(0),
            Self::Bytes(bytes, _) => Some(bytes.len() as u64),
            Self::Object(known, _) => known.length(),
            Self::Source(source) => source.length(),
        }
    }

    /// Leaves the bytes `from..end` of a body that nobody has begun to read; `false` if that cannot be done, and then
    /// nothing has changed.
    pub(crate) fn cut(&mut self, from: u64, end: u64) -> bool {
        match self {
            Self::Empty => true,
            Self::Bytes(bytes, _) => {
                let place = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(bytes.len());
                *bytes = bytes.slice(place(from)..place(end));
                true
            }
            Self::Object(known, _) => {
                let known = Rc::clone(known);
                *self = Self::object(&known, from, end);
                true
            }
            Self::Source(source) => source.cut(from, end),
        }
    }

    /// Whether it comes straight from an origin, at the pace of its one client.
    pub(crate) fn is_relayed(&self) -> bool {
        matches!(self, Self::Source(source) if source.is_relayed())
    }

    /// Whether its bytes are already written into the gzip stream of the page that includes it.
    pub(crate) fn joins_stream(&self) -> bool {
        matches!(self, Self::Source(source) if source.joins_stream())
    }

    /// Writes the records that were made on the way, as the body is at its end or given up.
    pub(crate) fn close(&mut self, records: &mut Records) {
        match self {
            Self::Source(source) => source.close(records),
            Self::Object(_, cursor) => log_cut(cursor.cut(), records),
            Self::Empty | Self::Bytes(..) => {}
        }
    }
}

/// Writes why a body out of a store was cut short, if it was.
pub(crate) fn log_cut(cut: Option<store::cursor::Cut>, records: &mut Records) {
    if let Some(cut) = cut {
        records.fmt(Tag::Error, format_args!("body cut short: {cut}"));
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        match self {
            Self::Object(known, cursor) => cursor.close(known),
            // Sources leave what they read by themselves.
            Self::Empty | Self::Bytes(..) | Self::Source(_) => {}
        }
    }
}
