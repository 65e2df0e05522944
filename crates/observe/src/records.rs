//! Writing the log: [`LogWriter`], which all threads share, and [`Records`], one transaction's records in a buffer of its
//! own.
//!
//! Records are formatted in the form the ring has them and go there in one piece when the transaction ends, or earlier if
//! the buffer (`vsl_buffer`) is full. A tag that the mask leaves out costs one test. Nothing allocates once a buffer has
//! grown to what its transactions need.

use crate::digits::Moments;
use crate::mask::Mask;
use crate::tags::Tag;
use crate::vsl::{self, Berth, NUMBER_MASK, RECORD_HEAD, Ring, Statistics};
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
        records.lead();
        records.flush();
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

/// Room for the first records; most hits need no more.
const FIRST_BYTES: usize = 2048;

/// One transaction's records. Reused for the next one by [`Records::begin`].
#[derive(Debug)]
pub struct Records {
    writer: LogWriter,
    /// Where it writes from, once it has written.
    berth: Option<Arc<Berth>>,
    /// All of it may be written to; `used` bytes are.
    pub(crate) buffer: Vec<u8>,
    pub(crate) used: usize,
    /// Where this transaction's records begin in the buffer: behind a record of another one.
    own: usize,
    /// That record is still to be written.
    leads: bool,
    pub(crate) count: u32,
    /// How often the buffer was emptied; tells old marks from new ones.
    pub(crate) emptied: u32,
    pub(crate) identity: u32,
    pub(crate) mask: Mask,
    pub(crate) record_bytes: usize,
    buffer_bytes: usize,
    /// Each record is written at once.
    sync: bool,
    pub(crate) moments: Moments,
    /// Nothing is written: see [`Records::aside`].
    aside: bool,
}

impl Records {
    /// An empty buffer that writes to `writer`; memory is taken at the first record.
    pub fn new(writer: &LogWriter) -> Records {
        let ring = &writer.0;
        Records {
            writer: writer.clone(),
            berth: None,
            buffer: Vec::new(),
            used: 0,
            own: 0,
            leads: false,
            count: 0,
            emptied: 0,
            identity: 0,
            mask: ring.mask.get(),
            record_bytes: ring.record_bytes(),
            buffer_bytes: ring.buffer_bytes(),
            sync: ring.is_sync(),
            moments: Moments::default(),
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

    /// Turns to transaction `number` and has its parent's `Link` record (`what number why`) written ahead of its own: with them,
    /// or before by [`Records::announce`].
    #[inline]
    pub fn begin_linked(&mut self, parent: (u32, Kind), what: &str, (number, kind): (u32, Kind), why: &str) {
        self.begin(parent.0, parent.1);
        self.link(Tag::Link, what, number, why);
        self.lead();
        self.identity = number & NUMBER_MASK | kind.marker();
    }

    /// What is buffered, one record or none, leads what comes.
    fn lead(&mut self) {
        self.own = self.used;
        self.leads = self.used > 0;
    }

    /// Writes the record that leads this transaction's, if that is still to be done: for a transaction that takes a while.
    pub fn announce(&mut self) {
        if std::mem::take(&mut self.leads) && !self.aside {
            self.write(0, self.own, self.own, 1, false);
            self.count -= 1;
        }
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
        self.own = 0;
        self.leads = false;
        self.count = 0;
        self.emptied = self.emptied.wrapping_add(1);
    }

    /// Gives the buffer's memory back; for a connection that goes idle. What is buffered is written first.
    pub fn shrink(&mut self) {
        self.flush();
        self.buffer = Vec::new();
    }

    #[cfg(test)]
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
        let lead = if self.leads { 0 } else { self.own };
        if lead < self.used {
            self.write(lead, self.own, self.used, self.count, overflow);
        }
        self.discard();
    }

    /// Writes what the buffer has from `lead` to `own` as a record by itself, and up to `end` as a batch.
    fn write(&mut self, lead: usize, own: usize, end: usize, count: u32, overflow: bool) {
        let ring = &self.writer.0;
        let berth = self.berth.get_or_insert_with(|| ring.berth());
        ring.publish(berth, &self.buffer[lead..own], &self.buffer[own..end], count, overflow);
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
    pub(crate) fn close(&mut self, tag: Tag, length: usize) {
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
