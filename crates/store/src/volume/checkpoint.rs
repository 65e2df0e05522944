//! The checkpoint: a copy of all entries, written while they change, and read at a start.
//!
//! The format is in `docs/storage-format.md`, section "Checkpoint".

use super::buffer::Buffer;
use super::bytes::{Parser, Put};
use super::core::{Core, Region};
use super::counters::Counters;
use super::entry::{Known, Table};
use super::error::OpenError;
use super::facts::EntryId;
use super::page::{Header, Kind, PAGE, PAYLOAD};
use super::superblock::{ENTRIES_PER_PAGE, ENTRY, REGIONS_PER_PAGE, Superblock};
use super::{COUNTED_MAX, LINKS_MAX, NO_REGION};
use crate::device::Device;
use parking_lot::Mutex;
use std::io;

/// Pages written or read at once, and the entries copied under one hold of the lock.
const RUN_PAGES: u32 = 64;

/// Where the next checkpoint goes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Next {
    pub(super) number: u64,
    pub(super) slot: usize,
}

/// Where a region that was being filled ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OpenEnd {
    pub(super) region: u32,
    pub(super) generation: u32,
    /// In units.
    pub(super) end: u32,
}

/// The header of a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Summary {
    pub(super) number: u64,
    pub(super) session: u32,
    pub(super) slot: usize,
    pub(super) journal_start: u64,
    pub(super) journal_end: u64,
    pub(super) links_bytes: u64,
    pub(super) entries: u32,
    pub(super) clean: bool,
    pub(super) open: Option<OpenEnd>,
}

impl Summary {
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.u64(self.journal_start);
        out.u64(self.journal_end);
        out.u64(0);
        out.u64(self.links_bytes);
        out.u32(self.entries);
        out.u32(u32::from(self.clean));
        let open = self.open.unwrap_or(OpenEnd { region: NO_REGION, generation: 0, end: 0 });
        out.u32(open.region);
        out.u32(open.generation);
        out.u32(open.end);
        out
    }

    fn decode(header: &Header, payload: &[u8], slot: usize) -> Option<Self> {
        let mut parser = Parser::new(payload);
        let (journal_start, journal_end) = (parser.u64()?, parser.u64()?);
        parser.u64()?;
        let (links_bytes, entries, clean) = (parser.u64()?, parser.u32()?, parser.u32()? == 1);
        let open = OpenEnd { region: parser.u32()?, generation: parser.u32()?, end: parser.u32()? };
        Some(Self {
            number: header.series,
            session: header.session,
            slot,
            journal_start,
            journal_end,
            links_bytes,
            entries,
            clean,
            open: (open.region != NO_REGION).then_some(open),
        })
    }
}

/// Where the parts of a slot begin, in pages.
struct Places {
    regions: u32,
    entries: u32,
    links: u32,
    end: u32,
}

impl Places {
    fn of(superblock: &Superblock) -> Self {
        let entries = 1 + superblock.region_count.div_ceil(REGIONS_PER_PAGE);
        let links = entries + superblock.entry_pages();
        Self { regions: 1, entries, links, end: links + superblock.link_pages() }
    }
}

/// Writes the pages of one checkpoint, many at once.
pub(super) struct Writer<'a> {
    device: &'a dyn Device,
    counters: &'a Counters,
    superblock: &'a Superblock,
    next: Next,
}

impl<'a> Writer<'a> {
    pub(super) fn new(
        device: &'a dyn Device,
        counters: &'a Counters,
        superblock: &'a Superblock,
        next: Next,
    ) -> Self {
        Self { device, counters, superblock, next }
    }

    /// Writes payloads into pages from `first` on, before page `end`.
    fn write(&self, first: u32, end: u32, payloads: &[u8], synced: u64) -> io::Result<u32> {
        let count = payloads.len().div_ceil(PAYLOAD) as u32;
        if first + count > end {
            return Err(io::Error::new(io::ErrorKind::StorageFull, "the checkpoint is full"));
        }
        let mut bytes = Vec::with_capacity(count as usize * PAGE);
        for (payload, page) in payloads.chunks(PAYLOAD).zip(first..) {
            let header = Header {
                kind: Kind::Checkpoint,
                volume: self.superblock.volume(),
                series: self.next.number,
                sequence: u64::from(page),
                synced,
                session: self.superblock.session,
                begins: page == first,
                base: 0,
            };
            header.encode(payload, &mut bytes);
        }
        let mut buffer = Buffer::new(bytes.len());
        buffer.copy_from_slice(&bytes);
        let offset = self.superblock.checkpoint_offsets()[self.next.slot] + u64::from(first) * PAGE as u64;
        self.device.write_at(&buffer, offset)?;
        self.counters.device_written_bytes.add(bytes.len() as u64);
        Ok(first + count)
    }

    /// Writes the table of regions, as it was when the journal's position was taken.
    pub(super) fn regions(&self, regions: &[(u32, u32)]) -> io::Result<()> {
        let places = Places::of(self.superblock);
        let mut first = places.regions;
        for run in regions.chunks((REGIONS_PER_PAGE * RUN_PAGES) as usize) {
            let mut payloads = Vec::with_capacity(run.len() * 8);
            for (generation, order) in run {
                payloads.u32(*generation);
                payloads.u32(*order);
            }
            first = self.write(first, places.entries, &payloads, 0)?;
        }
        Ok(())
    }

    /// Copies all entries with their links, a run at a time under the lock, and writes them. Gives the number of
    /// entries and the bytes of links.
    pub(super) fn entries(&self, core: &Mutex<Core>, table: &Table) -> io::Result<(u32, u64)> {
        let places = Places::of(self.superblock);
        let (mut entry_page, mut link_page) = (places.entries, places.links);
        let (mut id, mut links_bytes) = (0, 0);
        let mut links = Vec::new();
        let full = RUN_PAGES as usize * PAYLOAD;
        loop {
            let mut payloads = Vec::new();
            {
                let core = core.lock();
                let end = core.entries_end.min(id + RUN_PAGES * ENTRIES_PER_PAGE);
                while id < end {
                    let known = table.load(EntryId(id));
                    Known::encode(known.as_ref(), &mut payloads);
                    if known.is_some_and(|known| known.has_links) {
                        let bytes = core.links(EntryId(id));
                        links.u32(id);
                        links.u32(bytes.len() as u32);
                        links.bytes(bytes);
                    }
                    id += 1;
                }
            }
            entry_page = self.write(entry_page, places.links, &payloads, 0)?;
            let is_last = payloads.is_empty();
            while links.len() >= full || (is_last && !links.is_empty()) {
                let rest = links.split_off(links.len().min(full));
                link_page = self.write(link_page, places.end, &links, 0)?;
                links_bytes += links.len() as u64;
                links = rest;
            }
            if is_last {
                return Ok((id, links_bytes));
            }
        }
    }

    /// Writes the header: the checkpoint counts once this is durable.
    pub(super) fn header(&self, summary: &Summary) -> io::Result<()> {
        self.write(0, 1, &summary.encode(), summary.journal_end).map(|_| ())
    }
}

/// What regions a checkpoint will have.
pub(super) fn region_table(regions: &[Region]) -> Vec<(u32, u32)> {
    regions.iter().map(|region| (region.generation, region.order)).collect()
}

/// The headers that are good, the newest first.
pub(super) fn find(device: &dyn Device, superblock: &Superblock) -> Vec<Summary> {
    let mut found: Vec<Summary> = (0..2).filter_map(|slot| read_summary(device, superblock, slot)).collect();
    found.sort_by_key(|summary| std::cmp::Reverse(summary.number));
    found
}

fn read_summary(device: &dyn Device, superblock: &Superblock, slot: usize) -> Option<Summary> {
    let mut page = Buffer::new(PAGE);
    device.read_at(&mut page, superblock.checkpoint_offsets()[slot]).ok()?;
    let (header, payload) = Header::decode(&page, Kind::Checkpoint, superblock.volume())?;
    Summary::decode(&header, payload, slot).filter(|summary| {
        header.sequence == 0
            && summary.number < COUNTED_MAX
            && summary.journal_start <= summary.journal_end
            && summary.journal_end < COUNTED_MAX
    })
}

/// Reads pages of a checkpoint and gives each payload to `each`, which says whether it can be right.
fn read_pages(
    device: &dyn Device,
    superblock: &Superblock,
    summary: &Summary,
    (first, count): (u32, u32),
    mut each: impl FnMut(&[u8]) -> bool,
) -> Result<(), OpenError> {
    let damaged = || OpenError::Damaged { what: "list of objects" };
    let mut page = first;
    while page < first + count {
        let run = (first + count - page).min(RUN_PAGES * 4);
        let mut buffer = Buffer::new(run as usize * PAGE);
        let offset = superblock.checkpoint_offsets()[summary.slot] + u64::from(page) * PAGE as u64;
        device.read_at(&mut buffer, offset).map_err(|_| damaged())?;
        for (bytes, sequence) in buffer.chunks(PAGE).zip(u64::from(page)..) {
            let (header, payload) =
                Header::decode(bytes, Kind::Checkpoint, superblock.volume()).ok_or_else(damaged)?;
            if (header.series, header.sequence) != (summary.number, sequence) || !each(payload) {
                return Err(damaged());
            }
        }
        page += run;
    }
    Ok(())
}

/// Reads a checkpoint into an empty core and table.
pub(super) fn read(
    device: &dyn Device,
    summary: &Summary,
    core: &mut Core,
    table: &Table,
) -> Result<(), OpenError> {
    let superblock = core.superblock;
    let places = Places::of(&superblock);
    let damaged = OpenError::Damaged { what: "list of objects" };
    if summary.entries > superblock.entries_max {
        return Err(damaged);
    }
    let links_pages = summary.links_bytes.div_ceil(PAYLOAD as u64);
    if links_pages > u64::from(superblock.link_pages()) {
        return Err(damaged);
    }
    let mut region = 0;
    read_pages(device, &superblock, summary, (places.regions, places.entries - places.regions), |payload| {
        for bytes in payload.chunks_exact(8) {
            let mut parser = Parser::new(bytes);
            core.restore_region(region, parser.u32().unwrap_or(0), parser.u32().unwrap_or(0));
            region += 1;
        }
        true
    })?;
    let mut id = 0;
    let entry_pages = summary.entries.div_ceil(ENTRIES_PER_PAGE);
    read_pages(device, &superblock, summary, (places.entries, entry_pages), |payload| {
        for bytes in payload.chunks_exact(ENTRY) {
            if let Some(known) = Known::decode(bytes) {
                core.restore_entry(table, EntryId(id), &known);
            }
            id += 1;
        }
        true
    })?;
    // Links go on from page to page, and each run of pages was one piece of the stream.
    let mut carried: Vec<u8> = Vec::new();
    read_pages(device, &superblock, summary, (places.links, links_pages as u32), |payload| {
        carried.extend_from_slice(payload);
        let mut parser = Parser::new(&carried);
        let mut used = 0;
        while let Some((id, length)) = parser.u32().zip(parser.u32()) {
            if length as usize > LINKS_MAX {
                return false;
            }
            let Some(links) = parser.take(length as usize) else { break };
            core.restore_links(EntryId(id), links);
            used = carried.len() - parser.left();
        }
        carried.drain(..used);
        true
    })?;
    if carried.is_empty() { Ok(()) } else { Err(damaged) }
}
