//! Writing the log: [`LogWriter`], which all threads share, and [`Records`], one transaction's records in a buffer of its
//! own.
//!
//! Records are formatted in the form the ring has them and go there in one piece when the transaction ends, or earlier if
//! the buffer (`vsl_buffer`) is full. A tag that the mask leaves out costs one test. Nothing allocates once a buffer has
//! grown to what its transactions need.

use crate::digits;
use crate::mask::Mask;
use crate::tags::Tag;
use crate::vsl::{self, NUMBER_MASK, RECORD_HEAD, Ring, Statistics};
use copal_base::{Seconds, Time};
use std::fmt;
use std::io::Write as _;
use std::sync::Arc;

/// The log as all threads see it. Cloning it is cheap.
#[derive(Clone, Debug)]
pub struct LogWriter(pub(crate) Arc<Ring>);

impl LogWriter {
    /// Writes one record at once, outside any buffer: for what is no transaction (`number` 0: the control connection,
    /// probes, expiry) or for a rare event. Longer content than `vsl_reclen` is cut.
    pub fn record(&self, tag: Tag, number: u32, kind: Kind, text: &[u8]) {
        if !self.0.mask.get().has(tag) {
            return;
        }
        let mut records = Records::new(self);
        records.begin(number, kind);
        records.text(tag, text);
        self.0.publish_one(records.bytes());
        records.discard();
    }

    /// Replaces `vsl_mask`; transactions begun from now on go by it.
    pub fn set_mask(&self, mask: Mask) {
        self.0.mask.replace(mask);
    }

    /// `vsl_mask` now.
    pub fn mask(&self) -> Mask {
        self.0.mask.get()
    }

    /// Replaces `vsl_reclen`, the longest record in bytes with its NUL; kept within 16 to 16,372.
    pub fn set_record_bytes(&self, bytes: usize) {
        self.0.set_record_bytes(bytes);
    }

    /// Replaces `vsl_buffer`, the bytes of a transaction that are kept before they are written early. At least one
    /// record of the greatest length and at most 64 KiB are kept.
    pub fn set_buffer_bytes(&self, bytes: usize) {
        self.0.set_buffer_bytes(bytes);
    }

    /// What was written so far.
    pub fn statistics(&self) -> Statistics {
        self.0.statistics()
    }
}

/// What a transaction is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A client's connection.
    Session,
    /// A client's request.
    Client,
    /// A request to a backend.
    Backend,
    /// None: single records.
    Raw,
}

impl Kind {
    fn marker(self) -> u32 {
        match self {
            Kind::Session | Kind::Client => vsl::CLIENT,
            Kind::Backend => vsl::BACKEND,
            Kind::Raw => 0,
        }
    }
}

/// Room for the first records; most hits need no more.
const FIRST_BYTES: usize = 2048;

/// One transaction's records. Reused for the next one by [`Records::begin`].
#[derive(Debug)]
pub struct Records {
    writer: LogWriter,
    /// All of it may be written to; `used` bytes are.
    buffer: Vec<u8>,
    used: usize,
    count: u32,
    identity: u32,
    mask: Mask,
    record_bytes: usize,
    buffer_bytes: usize,
}

impl Records {
    /// An empty buffer that writes to `writer`; memory is taken at the first record.
    pub fn new(writer: &LogWriter) -> Records {
        let ring = &writer.0;
        Records {
            writer: writer.clone(),
            buffer: Vec::new(),
            used: 0,
            count: 0,
            identity: 0,
            mask: ring.mask.get(),
            record_bytes: ring.record_bytes(),
            buffer_bytes: ring.buffer_bytes(),
        }
    }

    /// Turns to transaction `number` (30 bits). What was buffered for another one is written first. The settings of the
    /// log are taken over here.
    #[inline]
    pub fn begin(&mut self, number: u32, kind: Kind) {
        self.flush();
        let ring = &self.writer.0;
        self.mask = ring.mask.get();
        self.record_bytes = ring.record_bytes();
        self.buffer_bytes = ring.buffer_bytes();
        self.identity = number & NUMBER_MASK | kind.marker();
    }

    /// The transaction's number, 0 before the first [`Records::begin`].
    #[inline]
    pub fn number(&self) -> u32 {
        self.identity & NUMBER_MASK
    }

    /// Whether a record of this tag would be kept.
    #[inline]
    pub fn wants(&self, tag: Tag) -> bool {
        self.mask.has(tag)
    }

    /// A record of these bytes.
    #[inline]
    pub fn text(&mut self, tag: Tag, text: &[u8]) {
        if !self.mask.has(tag) {
            return;
        }
        let binary = tag.is_binary();
        let length = text.len().min(self.record_bytes - usize::from(!binary));
        self.open(tag, length + usize::from(!binary))[..length].copy_from_slice(&text[..length]);
    }

    /// A record `name: value`.
    #[inline]
    pub fn header(&mut self, tag: Tag, name: &[u8], value: &[u8]) {
        self.parts(tag, &[name, b": ", value]);
    }

    /// A record of these bytes, joined.
    #[inline]
    pub fn parts(&mut self, tag: Tag, parts: &[&[u8]]) {
        if !self.mask.has(tag) {
            return;
        }
        let length = parts.iter().map(|part| part.len()).sum::<usize>().min(self.record_bytes - 1);
        let mut rest = &mut self.open(tag, length + 1)[..length];
        for part in parts {
            let fits = part.len().min(rest.len());
            let (head, tail) = rest.split_at_mut(fits);
            head.copy_from_slice(&part[..fits]);
            rest = tail;
        }
    }

    /// A record of formatted text; the slow way, for what is rare or has numbers of unusual shape.
    pub fn fmt(&mut self, tag: Tag, arguments: fmt::Arguments<'_>) {
        if !self.mask.has(tag) {
            return;
        }
        let room = self.record_bytes - 1;
        self.make_room(room + 1);
        let start = self.used + RECORD_HEAD;
        let mut out = &mut self.buffer[start..start + room];
        // An error says that the text is longer than the record may be: it is cut.
        let _ = out.write_fmt(arguments);
        let length = room - out.len();
        self.close(tag, length + 1);
    }

    /// A record of numbers with blanks between: `ReqAcct`, `BereqAcct`, `PipeAcct`. At most 8 of them are written.
    pub fn numbers(&mut self, tag: Tag, numbers: &[u64]) {
        if !self.mask.has(tag) {
            return;
        }
        let mut text = [0u8; 8 * (digits::INTEGER_MAX + 1)];
        let mut length = 0;
        for (at, number) in numbers.iter().take(8).enumerate() {
            if at > 0 {
                text[length] = b' ';
                length += 1;
            }
            length += digits::integer(&mut text[length..], *number);
        }
        self.text(tag, &text[..length]);
    }

    /// A `Begin` or `Link` record: `what number why`, as in `req 3 rxreq`. In a Begin the number is the parent's, in a
    /// Link the child's.
    pub fn link(&mut self, tag: Tag, what: &str, number: u32, why: &str) {
        let mut text = [0u8; digits::INTEGER_MAX + 2];
        text[0] = b' ';
        let end = 1 + digits::integer(&mut text[1..], u64::from(number));
        text[end] = b' ';
        self.parts(tag, &[what.as_bytes(), &text[..=end], why.as_bytes()]);
    }

    /// A `Timestamp` record: `label: now since-start since-previous`, each with six decimals.
    pub fn timestamp(&mut self, label: &str, now: Time, start: Time, previous: Time) {
        if !self.mask.has(Tag::Timestamp) {
            return;
        }
        let mut text = [0u8; 3 * (digits::MICROS_MAX + 1)];
        match timestamp_text(&mut text, now, now - start, now - previous) {
            Some(length) => self.parts(Tag::Timestamp, &[label.as_bytes(), b":", &text[..length]]),
            None => {
                let (since, step) = (now - start, now - previous);
                self.fmt(Tag::Timestamp, format_args!("{label}: {now:.6} {since:.6} {step:.6}"));
            }
        }
    }

    /// The `End` record, and everything is written.
    #[inline]
    pub fn end(&mut self) {
        self.text(Tag::End, b"");
        self.flush();
    }

    /// Writes what is buffered as one batch.
    #[inline]
    pub fn flush(&mut self) {
        if self.used > 0 {
            self.publish(false);
        }
    }

    /// Drops what is buffered.
    pub fn discard(&mut self) {
        self.used = 0;
        self.count = 0;
    }

    /// Gives the buffer's memory back; for a connection that goes idle. What is buffered is written first.
    pub fn shrink(&mut self) {
        self.flush();
        self.buffer = Vec::new();
    }

    fn bytes(&self) -> &[u8] {
        &self.buffer[..self.used]
    }

    fn publish(&mut self, overflow: bool) {
        self.writer.0.publish(&self.buffer[..self.used], self.count, overflow);
        self.discard();
    }

    /// The content of a new record of `length` bytes; its last word is zeroed beforehand, the rest is the caller's.
    #[inline]
    fn open(&mut self, tag: Tag, length: usize) -> &mut [u8] {
        self.make_room(length);
        let start = self.used + RECORD_HEAD;
        self.close(tag, length);
        &mut self.buffer[start..start + length]
    }

    /// Completes a record whose content of `length` bytes, NUL included, stands at the end: heads, padding, count.
    #[inline]
    fn close(&mut self, tag: Tag, length: usize) {
        let padded = vsl::words(length) * 4;
        let record = &mut self.buffer[self.used..self.used + RECORD_HEAD + padded];
        record[0..4].copy_from_slice(&vsl::first_word(tag, length).to_ne_bytes());
        record[4..8].copy_from_slice(&self.identity.to_ne_bytes());
        if !tag.is_binary() {
            record[RECORD_HEAD + length - 1..].fill(0);
        } else {
            record[RECORD_HEAD + length..].fill(0);
        }
        self.used += RECORD_HEAD + padded;
        self.count += 1;
    }

    #[inline]
    fn make_room(&mut self, length: usize) {
        if self.used + RECORD_HEAD + length + 4 > self.buffer.len() {
            self.make_room_slowly(RECORD_HEAD + length + 4);
        }
    }

    #[cold]
    fn make_room_slowly(&mut self, bytes: usize) {
        if self.used + bytes > self.buffer_bytes && self.used > 0 {
            self.publish(true);
        }
        let wanted = self.used + bytes;
        if wanted > self.buffer.len() {
            let size = wanted.next_power_of_two().max(FIRST_BYTES).min(self.buffer_bytes.max(wanted));
            self.buffer.resize(size, 0);
        }
    }
}

impl Drop for Records {
    /// A transaction dropped half way is written as far as it came.
    fn drop(&mut self) {
        self.flush();
    }
}

/// ` now since step`; `None` if a number needs the general printer.
fn timestamp_text(text: &mut [u8], now: Time, since: Seconds, step: Seconds) -> Option<usize> {
    let mut length = 0;
    for number in [now, since, step] {
        text[length] = b' ';
        length += 1;
        length += digits::micros(&mut text[length..], number)?;
    }
    Some(length)
}
