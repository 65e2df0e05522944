//! Reading a record: its parts when it is opened, its body block by block, all verified before anything is given out.
//!
//! A region may be emptied and filled anew while one reads. Whoever reads is counted, so that other free regions are
//! filled first; if this one is filled all the same, the region's generation says so after each read, and the rest is
//! [`Gone`](ReadError::Gone).

use super::buffer::Buffer;
use super::entry::Known;
use super::error::ReadError;
use super::facts::{EntryId, Facts};
use super::inner::Inner;
use super::page::PAGE;
use super::record::{BLOCK, FIXED, RecordHeader, block_count};
use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Inner {
    /// Reads from the device, or what is not there yet from what is collected.
    pub(super) fn read_device(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let have = self.tail.lock().copy(offset, out);
        let mut at = 0;
        for range in have {
            self.read_part(offset, at..range.start, out)?;
            at = range.end;
        }
        self.read_part(offset, at..out.len(), out)
    }

    fn read_part(&self, offset: u64, part: Range<usize>, out: &mut [u8]) -> io::Result<()> {
        if part.is_empty() {
            return Ok(());
        }
        self.counters.device_read_bytes.add(part.len() as u64);
        self.device.read_at(&mut out[part.clone()], offset + part.start as u64)
    }

    /// Counts what went wrong with a record, and drops its entry.
    fn lose(&self, id: EntryId, known: &Known, error: ReadError) -> ReadError {
        match &error {
            ReadError::Io(_) => {
                if self.counters.read_errors.add(1) >= self.errors_max {
                    self.fail();
                }
            }
            ReadError::Damaged => {
                self.counters.damaged.add(1);
            }
            ReadError::Gone => return error,
        }
        self.discard(id, known);
        error
    }
}

/// Whether that is the header of the record that the entry stands for.
pub(super) fn is_record_of(header: &RecordHeader, known: &Known, generation: u32) -> bool {
    header.name.location == known.location
        && header.name.generation == generation
        && header.key[..16] == known.facts.key
        && known.facts.key_tail().is_none_or(|tail| header.key[16..] == tail)
}

/// Verifies all of a record; gives its header.
pub(super) fn verify_whole(bytes: &[u8], volume: u64) -> Option<RecordHeader> {
    let length = RecordHeader::peek(bytes, volume, bytes.len() as u64)?;
    let header = RecordHeader::decode(bytes.get(..length)?, volume)?;
    let body_start = header.body_start() as usize;
    let parts = bytes.get(length..body_start)?;
    let body = bytes.get(body_start..header.size() as usize)?;
    let whole = crc32c::crc32c(parts) == header.parts_checksum
        && body.chunks(BLOCK).zip(&header.blocks).all(|(block, checksum)| crc32c::crc32c(block) == *checksum);
    whole.then_some(header)
}

/// Counts as a reader of a region.
struct Reading {
    inner: Arc<Inner>,
    region: u32,
}

impl Reading {
    fn new(inner: &Arc<Inner>, region: u32) -> Self {
        if let Some(readers) = inner.readers.get(region as usize) {
            readers.fetch_add(1, Ordering::SeqCst);
        }
        Self { inner: Arc::clone(inner), region }
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        if let Some(readers) = self.inner.readers.get(self.region as usize) {
            readers.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// Bytes of the record that are in memory, not verified.
struct Window {
    bytes: Buffer,
    /// Where in the buffer the first byte of `covers` is.
    skip: usize,
    /// Counted from the start of the record.
    covers: Range<u64>,
}

impl Window {
    fn get(&self, wanted: Range<u64>) -> Option<&[u8]> {
        if wanted.start < self.covers.start || wanted.end > self.covers.end {
            return None;
        }
        let from = self.skip + (wanted.start - self.covers.start) as usize;
        self.bytes.get(from..from + (wanted.end - wanted.start) as usize)
    }
}

/// A record being read. All that it gives was verified.
pub struct RecordReader {
    reading: Reading,
    id: EntryId,
    known: Known,
    generation: u32,
    header: RecordHeader,
    facts: Facts,
    /// Variant, head, plan and links.
    parts: Box<[u8]>,
    window: Window,
    /// The next byte of the body.
    position: u64,
    /// What of the body is in the window and verified.
    verified: Range<u64>,
}

impl fmt::Debug for RecordReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordReader")
            .field("id", &self.id)
            .field("position", &self.position)
            .finish_non_exhaustive()
    }
}

impl RecordReader {
    pub(super) fn open(inner: &Arc<Inner>, id: EntryId, read_first: usize) -> Result<Self, ReadError> {
        let known = inner.table.load(id).ok_or(ReadError::Gone)?;
        if !known.location.is_possible(&inner.superblock) {
            return Err(ReadError::Gone);
        }
        let reading = Reading::new(inner, known.location.region);
        let generation = inner.generation(known.location.region);
        if generation as u16 != known.generation {
            return Err(ReadError::Gone);
        }
        inner.counters.opened.add(1);
        let source = Source { inner, known: &known, generation };
        match source.open(read_first) {
            Ok((header, parts, window)) => {
                let mut facts = known.facts;
                if facts.is_piece() {
                    let Facts { origin_time, ttl, grace, .. } = header.facts;
                    facts = Facts { origin_time, ttl, grace, ..facts };
                }
                Ok(Self {
                    reading,
                    id,
                    known,
                    generation,
                    header,
                    facts,
                    parts,
                    window,
                    position: 0,
                    verified: 0..0,
                })
            }
            Err(error) => Err(inner.lose(id, &known, error)),
        }
    }

    /// The whole key.
    pub fn key(&self) -> &[u8; 32] {
        &self.header.key
    }

    /// What the entry said when the record was opened; of a piece, the times that it was written with.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// The transaction that fetched it.
    pub fn vxid(&self) -> u32 {
        self.header.vxid
    }

    fn part(&self, before: u64, length: u32) -> &[u8] {
        self.parts.get(before as usize..(before + u64::from(length)) as usize).unwrap_or_default()
    }

    /// What tells the variant from others.
    pub fn variant(&self) -> &[u8] {
        self.part(0, self.header.variant_length)
    }

    /// The head.
    pub fn head(&self) -> &[u8] {
        self.part(u64::from(self.header.variant_length), self.header.head_length)
    }

    /// The plan of the body.
    pub fn plan(&self) -> Option<&[u8]> {
        let before = u64::from(self.header.variant_length) + u64::from(self.header.head_length);
        self.header.plan_length.map(|length| self.part(before, length))
    }

    /// What ties the entry to others.
    pub fn links(&self) -> &[u8] {
        let before = self.header.parts_length() - u64::from(self.header.links_length);
        self.part(before, self.header.links_length)
    }

    /// The length of the body.
    pub fn body_length(&self) -> u64 {
        self.header.body_length
    }

    /// Gives the next bytes of the body: how many, 0 at its end (or for an empty `out`).
    ///
    /// # Errors
    /// See [`ReadError`]. What was given before is right; nothing more comes.
    pub fn next(&mut self, out: &mut [u8]) -> Result<usize, ReadError> {
        if self.position >= self.header.body_length || out.is_empty() {
            return Ok(0);
        }
        if !self.verified.contains(&self.position)
            && let Err(error) = self.verify_next()
        {
            return Err(self.reading.inner.lose(self.id, &self.known, error));
        }
        let start = self.header.body_start();
        let end = self.verified.end.min(self.position + out.len() as u64);
        let bytes = self.window.get(start + self.position..start + end).ok_or(ReadError::Gone)?;
        out[..bytes.len()].copy_from_slice(bytes);
        self.position = end;
        Ok(bytes.len())
    }

    /// Leaves out the next `count` bytes of the body, without reading them.
    pub fn skip(&mut self, count: u64) {
        self.position = self.position.saturating_add(count).min(self.header.body_length);
    }

    /// Brings the block at the position into the window, and verifies it.
    fn verify_next(&mut self) -> Result<(), ReadError> {
        let block = self.position / BLOCK as u64;
        let first = block * BLOCK as u64;
        let length = self.header.block_length(block) as u64;
        let start = self.header.body_start() + first;
        if self.window.get(start..start + length).is_none() {
            let inner = &self.reading.inner;
            let ahead = (inner.read_ahead as u64).next_multiple_of(BLOCK as u64);
            let end = start + ahead.min(self.header.body_length - first);
            let source = Source { inner, known: &self.known, generation: self.generation };
            let buffer = std::mem::replace(&mut self.window.bytes, Buffer::new(0));
            self.window = source.read(start..end, buffer)?;
        }
        let bytes = self.window.get(start..start + length).ok_or(ReadError::Damaged)?;
        if self.header.blocks.get(block as usize) != Some(&crc32c::crc32c(bytes)) {
            let source =
                Source { inner: &self.reading.inner, known: &self.known, generation: self.generation };
            return Err(source.why_wrong());
        }
        // The block belongs to the record as it was opened; blocks read with it are verified when they are reached.
        self.verified = first..first + length;
        Ok(())
    }
}

/// Where a record's bytes come from.
struct Source<'a> {
    inner: &'a Inner,
    known: &'a Known,
    generation: u32,
}

impl Source<'_> {
    /// Why bytes are not what they should be.
    fn why_wrong(&self) -> ReadError {
        let is_there = self.inner.generation(self.known.location.region) == self.generation;
        if is_there { ReadError::Damaged } else { ReadError::Gone }
    }

    /// Reads bytes of the record, and whole pages around them, into `buffer` if it is large enough.
    fn read(&self, wanted: Range<u64>, buffer: Buffer) -> Result<Window, ReadError> {
        let start = self.known.location.start(&self.inner.superblock);
        let page = PAGE as u64;
        let from = (start + wanted.start) & !(page - 1);
        let to = (start + wanted.end).next_multiple_of(page);
        let mut bytes = buffer.reuse((to - from) as usize);
        self.inner.read_device(from, &mut bytes).map_err(ReadError::Io)?;
        if self.inner.generation(self.known.location.region) != self.generation {
            return Err(ReadError::Gone);
        }
        Ok(Window { bytes, skip: (start + wanted.start - from) as usize, covers: wanted })
    }

    /// Reads and verifies header and parts.
    fn open(&self, read_first: usize) -> Result<(RecordHeader, Box<[u8]>, Window), ReadError> {
        let size = self.known.location.bytes();
        let volume = self.inner.superblock.volume();
        let mut window =
            self.read(0..(read_first as u64).clamp(PAGE as u64, 64 << 20).min(size), Buffer::new(0))?;
        let fixed = window.get(0..(FIXED as u64).min(size)).ok_or(ReadError::Damaged)?;
        let length = RecordHeader::peek(fixed, volume, size).ok_or_else(|| self.why_wrong())? as u64;
        if window.get(0..length).is_none() {
            window = self.read(0..(length + PAGE as u64).min(size), window.bytes)?;
        }
        let header = window.get(0..length).and_then(|bytes| RecordHeader::decode(bytes, volume));
        let header = header
            .filter(|header| is_record_of(header, self.known, self.generation))
            .ok_or_else(|| self.why_wrong())?;
        debug_assert_eq!(header.blocks.len() as u64, block_count(header.body_length));
        let parts = length..header.body_start();
        if window.get(parts.clone()).is_none() {
            // The header is kept apart from here on; the first block of the body comes along.
            let end = (parts.end + header.block_length(0) as u64).min(size);
            window = self.read(parts.start..end, window.bytes)?;
        }
        let bytes: Box<[u8]> = window.get(parts).ok_or(ReadError::Damaged)?.into();
        if crc32c::crc32c(&bytes) != header.parts_checksum {
            return Err(self.why_wrong());
        }
        Ok((header, bytes, window))
    }
}

impl Inner {
    /// Verifies a record from its header to its last block; gives its size in bytes.
    pub(super) fn verify(self: &Arc<Self>, id: EntryId, scratch: &mut [u8]) -> Result<u64, ReadError> {
        let mut reader = RecordReader::open(self, id, self.read_ahead)?;
        while reader.next(scratch)? > 0 {}
        Ok(reader.known.location.bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_gives_what_it_covers() {
        let mut bytes = Buffer::new(PAGE);
        bytes[512..516].copy_from_slice(b"abcd");
        let window = Window { bytes, skip: 512, covers: 100..1000 };
        assert_eq!(window.get(100..104), Some(&b"abcd"[..]));
        assert_eq!(window.get(99..104), None);
        assert_eq!(window.get(100..1001), None);
    }
}
