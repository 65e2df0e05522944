//! Writing records: the open region, and the buffer in which they are collected.
//!
//! ```text
//!  region header │ records on the device │ being written │ collected │ free
//!                                        └ `writing`     └ `tail`
//! ```
//!
//! One thread at a time appends (the lock of the log). Readers take the bytes that are not yet on the device from the
//! tail, under a lock that is never held while the device is used.

use super::buffer::Buffer;
use super::change::RecordName;
use super::checkpoint::OpenEnd;
use super::entry::{Known, Location};
use super::error::WriteError;
use super::facts::{EntryId, NewRecord};
use super::inner::Inner;
use super::options::Health;
use super::page::PAGE;
use super::record::{RecordHeader, encode_region_header};
use super::{FIRST_UNIT, HEAD_MAX, LINKS_MAX, PLAN_MAX, UNIT, VARIANT_MAX};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const UNITS_PER_PAGE: u32 = (PAGE as u64 / UNIT) as u32;
const ZEROS: [u8; PAGE] = [0; PAGE];

/// The region that is being filled.
pub(super) struct Log {
    /// `end` is where the next record begins.
    pub(super) open: Option<OpenEnd>,
    /// A region that was open when the volume was closed in order, and may be filled further.
    pub(super) resume: Option<OpenEnd>,
}

impl Log {
    pub(super) fn new(resume: Option<OpenEnd>) -> Self {
        Self { open: None, resume }
    }
}

/// Bytes that are collected. See the module.
pub(super) struct Tail {
    size: usize,
    bytes: Buffer,
    filled: usize,
    /// Where the first of them belongs on the device: a multiple of a page.
    start: u64,
    writing: Option<(u64, Arc<Buffer>)>,
}

impl Tail {
    pub(super) fn new(size: usize) -> Self {
        let size = size.clamp(PAGE, 64 << 20).next_multiple_of(PAGE);
        Self { size, bytes: Buffer::new(size), filled: 0, start: 0, writing: None }
    }

    /// Copies what it has of `out.len()` bytes from `offset` on into `out`; gives the ranges it has, in order.
    pub(super) fn copy(&self, offset: u64, out: &mut [u8]) -> Vec<std::ops::Range<usize>> {
        let end = offset + out.len() as u64;
        let mut have = Vec::new();
        let writing = self.writing.as_ref().map(|(start, bytes)| (*start, &***bytes));
        for (start, bytes) in writing.into_iter().chain([(self.start, &self.bytes[..self.filled])]) {
            let (from, to) = (offset.max(start), end.min(start + bytes.len() as u64));
            if from < to {
                let range = (from - offset) as usize..(to - offset) as usize;
                out[range.clone()].copy_from_slice(&bytes[(from - start) as usize..(to - start) as usize]);
                have.push(range);
            }
        }
        have.sort_by_key(|range| range.start);
        have
    }
}

impl Inner {
    /// Bytes of the largest record.
    pub(super) fn record_max(&self) -> u64 {
        u64::from(self.superblock.region_units() - FIRST_UNIT) * UNIT
    }

    /// See [`Volume::write`](super::Volume::write).
    pub(super) fn write(&self, record: &NewRecord<'_>) -> Result<EntryId, WriteError> {
        check_lengths(record)?;
        if record.body_length() > self.record_max() {
            return Err(WriteError::TooLong { what: "record" });
        }
        let mut header = RecordHeader::for_record(record);
        if header.size() > self.record_max() {
            return Err(WriteError::TooLong { what: "record" });
        }
        let mut log = self.log.lock();
        match self.health() {
            Health::Good => {}
            Health::Draining => return Err(WriteError::Draining),
            Health::Failed => return Err(WriteError::Failed),
        }
        // Before any region is chosen to be emptied.
        if let Some(resume) = log.resume.take() {
            self.reopen(&mut log, resume).map_err(WriteError::Io)?;
        }
        let id = self.number_for(&mut log, record.links.len())?;
        let written = self.append_record(&mut log, &mut header, record);
        if let Err(error) = written {
            self.core.lock().give_number_back(id);
            return Err(error);
        }
        let known = Known {
            facts: record.facts.for_entry(&record.key, header.name.location.size),
            location: header.name.location,
            generation: header.name.generation as u16,
            has_links: !record.links.is_empty(),
        };
        self.change().add(&self.table, id, &known, record.links);
        self.counters.written.add(1);
        self.counters.written_bytes.add(known.location.bytes());
        Ok(id)
    }

    /// A number for a new entry, and room for its links; empties regions until there is.
    fn number_for(&self, log: &mut Log, links: usize) -> Result<EntryId, WriteError> {
        for _ in 0..=self.superblock.region_count {
            {
                let mut core = self.core.lock();
                if core.has_room_for_links(links)
                    && let Some(id) = core.take_number()
                {
                    return Ok(id);
                }
            }
            if !self.evict(log, false)? {
                break;
            }
        }
        Err(WriteError::Full)
    }

    fn append_record(
        &self,
        log: &mut Log,
        header: &mut RecordHeader,
        record: &NewRecord<'_>,
    ) -> Result<(), WriteError> {
        let size = header.name.location.size;
        header.name = self.place(log, size)?;
        header.sequence = self.sequence.fetch_add(1, Ordering::Relaxed);
        let bytes = header.encode(self.superblock.volume());
        let parts =
            [bytes.as_slice(), record.variant, record.head, record.plan.unwrap_or_default(), record.links];
        for part in parts.iter().chain(record.body) {
            self.append(part).map_err(WriteError::Io)?;
        }
        self.append_padding(header.size())
    }

    /// Fills a record up to a whole unit.
    pub(super) fn append_padding(&self, written: u64) -> Result<(), WriteError> {
        let padding = written.next_multiple_of(UNIT) - written;
        self.append(&ZEROS[..padding as usize]).map_err(WriteError::Io)
    }

    /// The place for the next record of `size` units, in another region if this one has too little room.
    pub(super) fn place(&self, log: &mut Log, size: u32) -> Result<RecordName, WriteError> {
        // The first new region may have been filled by what was kept of an emptied one; the second has only this.
        for keeping in [true, true, false] {
            if let Some(open) = &mut log.open
                && open.end + size <= self.superblock.region_units()
            {
                let location = Location { region: open.region, offset: open.end, size };
                open.end += size;
                return Ok(RecordName { location, generation: open.generation });
            }
            self.next_region(log, keeping)?;
        }
        match &mut log.open {
            Some(open) if open.end + size <= self.superblock.region_units() => {
                let location = Location { region: open.region, offset: open.end, size };
                open.end += size;
                Ok(RecordName { location, generation: open.generation })
            }
            _ => Err(WriteError::Full),
        }
    }

    /// Goes on filling a region. The journal says so first, so that a crash from here on is seen not to be in order.
    fn reopen(&self, log: &mut Log, open: OpenEnd) -> io::Result<()> {
        self.change().reopen_region(open.region);
        self.commit()?;
        let mut tail = self.tail.lock();
        tail.start = self.superblock.region_offset(open.region) + u64::from(open.end) * UNIT;
        tail.filled = 0;
        log.open = Some(open);
        Ok(())
    }

    /// Opens a free region, once its header and the change are durable.
    pub(super) fn open_region(&self, log: &mut Log, region: u32) -> io::Result<()> {
        let generation = self.change().open_region(region, &self.generations);
        let page = encode_region_header(self.superblock.volume(), region, generation);
        let mut buffer = Buffer::new(page.len());
        buffer.copy_from_slice(&page);
        let offset = self.superblock.region_offset(region);
        self.noticing(self.device.write_at(&buffer, offset))?;
        self.counters.device_written_bytes.add(page.len() as u64);
        self.commit()?;
        // The journal's sync came after the header was written; if another thread's did it all, this makes sure.
        self.noticing(self.device.sync())?;
        let mut tail = self.tail.lock();
        tail.start = offset + PAGE as u64;
        tail.filled = 0;
        log.open = Some(OpenEnd { region, generation, end: FIRST_UNIT });
        Ok(())
    }

    /// Appends bytes at the end of what is collected, and writes that out whenever it is full.
    pub(super) fn append(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let is_full = {
                let mut tail = self.tail.lock();
                let filled = tail.filled;
                let count = bytes.len().min(tail.size - filled);
                tail.bytes[filled..filled + count].copy_from_slice(&bytes[..count]);
                tail.filled += count;
                bytes = &bytes[count..];
                tail.filled == tail.size
            };
            if is_full {
                self.write_out()?;
            }
        }
        Ok(())
    }

    /// Writes out what is collected, filled up to a page. The log stays locked meanwhile; readers do not wait.
    fn write_out(&self) -> io::Result<()> {
        let (start, bytes) = {
            let mut tail = self.tail.lock();
            if tail.filled == 0 {
                return Ok(());
            }
            let filled = tail.filled.next_multiple_of(PAGE);
            let (from, size) = (tail.filled, tail.size);
            tail.bytes[from..filled].fill(0);
            let mut bytes = std::mem::replace(&mut tail.bytes, Buffer::new(size));
            bytes.truncate(filled);
            let bytes = Arc::new(bytes);
            let start = tail.start;
            tail.writing = Some((start, Arc::clone(&bytes)));
            tail.start += filled as u64;
            tail.filled = 0;
            (start, bytes)
        };
        let result = self.noticing(self.device.write_at(&bytes, start));
        self.counters.device_written_bytes.add(bytes.len() as u64);
        self.tail.lock().writing = None;
        result
    }

    /// Writes out what is collected; the next record begins on a new page.
    pub(super) fn flush_log(&self, log: &mut Log) -> io::Result<()> {
        if let Some(open) = &mut log.open {
            open.end = open.end.next_multiple_of(UNITS_PER_PAGE);
        }
        self.write_out()
    }

    /// Leaves the open region as it is.
    pub(super) fn seal(&self, log: &mut Log) -> io::Result<()> {
        self.flush_log(log)?;
        log.open = None;
        Ok(())
    }
}

fn check_lengths(record: &NewRecord<'_>) -> Result<(), WriteError> {
    let parts = [
        ("variant", record.variant.len(), VARIANT_MAX),
        ("head", record.head.len(), HEAD_MAX),
        ("plan", record.plan.map_or(0, <[u8]>::len), PLAN_MAX),
        ("list of links", record.links.len(), LINKS_MAX),
    ];
    match parts.iter().find(|(_, length, most)| length > most) {
        Some((what, ..)) => Err(WriteError::TooLong { what }),
        None => Ok(()),
    }
}
