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

    /// Has each record written at once (`debug=+syncvsl`), for tests that wait for one: transactions begun from now on.
    pub fn set_sync(&self, sync: bool) {
        self.0.set_sync(sync);
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

/// One word or number of a record.
#[derive(Clone, Copy, Debug)]
pub enum Field<'a> {
    /// Bytes as they are.
    Text(&'a [u8]),
    /// A text with a colon behind it.
    Label(&'a str),
    /// A whole number.
    Integer(u64),
    /// Seconds with six decimals.
    Micros(Seconds),
}

impl Field<'_> {
    /// Prints the field and returns its length: at most `most` bytes for a text, and a number whole. `out` has room for
    /// [`digits::LENGTH_MAX`] bytes beyond `most`.
    #[inline]
    fn print(self, out: &mut [u8], most: usize) -> usize {
        match self {
            Field::Text(text) => copy(out, text, most),
            Field::Label(text) => {
                let length = copy(out, text.as_bytes(), most);
                out[length] = b':';
                length + 1
            }
            Field::Integer(number) => digits::integer(out, number),
            Field::Micros(number) => digits::micros(out, number).unwrap_or_else(|| {
                let most = most.min(out.len());
                let mut rest = &mut out[..most];
                // An error says that it is longer than there is room: it is cut.
                let _ = write!(rest, "{number:.6}");
                most - rest.len()
            }),
        }
    }
}

#[inline]
fn copy(out: &mut [u8], text: &[u8], most: usize) -> usize {
    let length = text.len().min(most);
    out[..length].copy_from_slice(&text[..length]);
    length
}

/// Room for the first records; most hits need no more.
const FIRST_BYTES: usize = 2048;

/// One transaction's records. Reused for the next one by [`Records::begin`].
#[derive(Debug)]
pub struct Records {
    writer: LogWriter,
    /// All of it may be written to; `used` bytes are.
    pub(crate) buffer: Vec<u8>,
    pub(crate) used: usize,
    pub(crate) count: u32,
    /// How often the buffer was emptied; tells old marks from new ones.
    pub(crate) emptied: u32,
    pub(crate) identity: u32,
    pub(crate) mask: Mask,
    pub(crate) record_bytes: usize,
    buffer_bytes: usize,
    /// Each record is written at once.
    sync: bool,
    moments: digits::Moments,
    /// Nothing is written: see [`Records::aside`].
    aside: bool,
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
            emptied: 0,
            identity: 0,
            mask: ring.mask.get(),
            record_bytes: ring.record_bytes(),
            buffer_bytes: ring.buffer_bytes(),
            sync: ring.is_sync(),
            moments: digits::Moments::default(),
            aside: false,
        }
    }

    /// A buffer that is never written, by the settings of `writer`: for who wants to see the records by itself, through
    /// [`Records::block`]. When it is full, it begins anew.
    pub fn aside(writer: &LogWriter) -> Records {
        let mut records = Records::new(writer);
        records.aside = true;
        records
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
        self.sync = ring.is_sync();
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
        self.written();
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
        self.written();
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

    /// A record of numbers with blanks between: `ReqAcct`, `BereqAcct`, `PipeAcct`.
    #[inline]
    pub fn numbers(&mut self, tag: Tag, numbers: &[u64]) {
        if self.mask.has(tag) {
            self.assemble(tag, numbers.iter().map(|number| Field::Integer(*number)));
        }
    }

    /// A record of words and numbers with blanks between, as `Hit` and `TTL` have them.
    #[inline]
    pub fn fields(&mut self, tag: Tag, fields: &[Field<'_>]) {
        if self.mask.has(tag) {
            self.assemble(tag, fields.iter().copied());
        }
    }

    /// A `Begin` or `Link` record: `what number why`, as in `req 3 rxreq`. In a Begin the number is the parent's, in a
    /// Link the child's.
    #[inline]
    pub fn link(&mut self, tag: Tag, what: &str, number: u32, why: &str) {
        let number = Field::Integer(number.into());
        self.fields(tag, &[Field::Text(what.as_bytes()), number, Field::Text(why.as_bytes())]);
    }

    /// A `Timestamp` record: `label: now since-start since-previous`, each with six decimals.
    #[inline]
    pub fn timestamp(&mut self, label: &str, now: Time, start: Time, previous: Time) {
        if !self.mask.has(Tag::Timestamp) {
            return;
        }
        let mut digits = [0; digits::LENGTH_MAX + 7];
        let Some(length) = self.moments.print(&mut digits, now) else { return };
        let spans = [Field::Micros(now - start), Field::Micros(now - previous)];
        let moment = [Field::Label(label), Field::Text(&digits[..length])];
        self.assemble(Tag::Timestamp, moment.into_iter().chain(spans));
    }

    /// The two `Timestamp` records that every request begins with, both at `now`: its number is printed once.
    pub fn arrival(&mut self, now: Time) {
        if !self.mask.has(Tag::Timestamp) {
            return;
        }
        let mut digits = [0; digits::LENGTH_MAX + 7];
        let Some(length) = self.moments.print(&mut digits, now) else { return };
        for label in ["Start: ", "Req: "] {
            self.parts(Tag::Timestamp, &[label.as_bytes(), &digits[..length], b" 0.000000 0.000000"]);
        }
    }

    /// A record of fields, formatted in place. What does not fit into a record is cut.
    fn assemble<'a>(&mut self, tag: Tag, fields: impl Iterator<Item = Field<'a>>) {
        let most = self.record_bytes - 1;
        // Numbers are printed whole before it is known whether they fit.
        self.make_room(self.record_bytes + digits::LENGTH_MAX + 1);
        let out = &mut self.buffer[self.used + RECORD_HEAD..][..most + digits::LENGTH_MAX + 1];
        let mut length = 0;
        for field in fields {
            if length >= most {
                break;
            }
            if length > 0 {
                out[length] = b' ';
                length += 1;
            }
            length += field.print(&mut out[length..], most - length.min(most));
        }
        self.close(tag, length.min(most) + 1);
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
        self.emptied = self.emptied.wrapping_add(1);
    }

    /// Gives the buffer's memory back; for a connection that goes idle. What is buffered is written first.
    pub fn shrink(&mut self) {
        self.flush();
        self.buffer = Vec::new();
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buffer[..self.used]
    }

    fn publish(&mut self, overflow: bool) {
        if self.aside {
            if overflow {
                self.discard();
            }
            return;
        }
        self.writer.0.publish(&self.buffer[..self.used], self.count, overflow);
        self.discard();
    }

    /// The content of a new record of `length` bytes, NUL included, for the caller to fill.
    #[inline]
    fn open(&mut self, tag: Tag, length: usize) -> &mut [u8] {
        self.make_room(length);
        let size = RECORD_HEAD + vsl::words(length) * 4;
        let record = &mut self.buffer[self.used..][..size];
        record[0..4].copy_from_slice(&vsl::first_word(tag, length).to_ne_bytes());
        record[4..8].copy_from_slice(&self.identity.to_ne_bytes());
        // The NUL and the padding, or a part of the content that is written over these.
        record[size - 4..].copy_from_slice(&[0; 4]);
        self.used += size;
        self.count += 1;
        &mut record[RECORD_HEAD..RECORD_HEAD + length]
    }

    /// Writes the head of a record whose content of `length` bytes, NUL included, stands or will stand behind it, and
    /// zeroes what is left of the content's last word.
    #[inline]
    fn close(&mut self, tag: Tag, length: usize) {
        let padded = vsl::words(length) * 4;
        let record = &mut self.buffer[self.used..self.used + RECORD_HEAD + padded];
        if tag.is_binary() {
            record[RECORD_HEAD + length..].fill(0);
        } else if let Some(last) = record.last_chunk_mut::<4>() {
            // The bytes of text in the last word, 0 to 3: the NUL is behind them.
            let keep = (length - 1) % 4;
            *last = (u32::from_le_bytes(*last) & ((1 << (8 * keep)) - 1)).to_le_bytes();
        }
        record[0..4].copy_from_slice(&vsl::first_word(tag, length).to_ne_bytes());
        record[4..8].copy_from_slice(&self.identity.to_ne_bytes());
        self.used += RECORD_HEAD + padded;
        self.count += 1;
        self.written();
    }

    /// A record is complete.
    #[inline]
    pub(crate) fn written(&mut self) {
        if self.sync {
            self.flush();
        }
    }

    #[inline]
    pub(crate) fn make_room(&mut self, length: usize) {
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
