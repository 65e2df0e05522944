//! Rebuilding the entries from the records, when journal or checkpoint is lost or not to be trusted.
//!
//! What was removed since it was written is not known then. So each entry is stale at once: it has no lifetime and no
//! grace, is kept for as long as it would have lived, and is asked for at the origin before it is served.

use super::bans::BanLog;
use super::buffer::Buffer;
use super::checkpoint::Next;
use super::core::Core;
use super::counters::Counters;
use super::entry::{Known, Table};
use super::error::OpenError;
use super::facts::{EntryId, Facts};
use super::inner::Started;
use super::journal::{self, Journal};
use super::page::PAGE;
use super::record::{FIXED, RecordHeader, decode_region_header};
use super::start::begin_session;
use super::superblock::Superblock;
use super::{FIRST_UNIT, UNIT};
use crate::device::Device;
use std::collections::HashMap;

/// Bytes of a region read at once.
const WINDOW: usize = 1 << 20;

/// A record that was found.
struct Found {
    known: Known,
    generation: u32,
    sequence: u64,
    key: [u8; 32],
    links: Box<[u8]>,
}

/// Rebuilds the list of entries. The caller writes two checkpoints before anything else.
pub(super) fn start(device: &dyn Device, mut superblock: Superblock) -> Result<Started, OpenError> {
    let (bans, bans_lost) = match BanLog::read(device, &superblock) {
        Ok((bans, _)) => (bans, false),
        Err(OpenError::Damaged { .. }) => (BanLog::anew(&superblock), true),
        Err(error) => return Err(error),
    };
    let mut core = Core::new(superblock);
    let table = Table::new(superblock.entries_max);
    let mut found = Vec::new();
    // The highest sequence in each region that has records, to tell their age.
    let mut ages = Vec::new();
    for region in 0..superblock.region_count {
        let (generation, mut records) = scan(device, &superblock, region);
        core.restore_region(region, generation, 0);
        if bans_lost {
            // Nobody could say which of them a ban has hit.
            records.clear();
        }
        if let Some(newest) = records.iter().map(|record| record.sequence).max() {
            ages.push((newest, region, generation));
        }
        found.append(&mut records);
    }
    ages.sort_unstable();
    for (order, (_, region, generation)) in (1..).zip(&ages) {
        core.restore_region(*region, *generation, order);
    }
    for (id, record) in (0..superblock.entries_max).zip(newest_of_each(found)) {
        if core.has_room_for_links(record.links.len()) {
            core.restore_entry(&table, EntryId(id), &record.known);
            core.restore_links(EntryId(id), &record.links);
        }
    }
    core.settle(&table);

    let next = journal::unused_sequence(device, &superblock);
    begin_session(device, &mut superblock)?;
    core.superblock = superblock;
    let counters = Counters::default();
    let mut bans = bans;
    bans.set_session(superblock.session);
    bans.compact(device, &counters)
        .map_err(|source| OpenError::Io { doing: "writing the list of bans", source })?;
    Ok(Started {
        superblock,
        table,
        core,
        journal: Journal::new(&superblock, next, next, next),
        // Higher than any number that came to be by counting.
        next_checkpoint: Next { number: u64::from(superblock.session) << 32, slot: 0 },
        bans,
        resume: None,
        counters,
    })
}

/// The newest record of each key and variant, the newest of all first.
fn newest_of_each(mut found: Vec<Found>) -> Vec<Found> {
    found.sort_by_key(|record| std::cmp::Reverse(record.sequence));
    let mut seen = HashMap::new();
    found.retain(|record| seen.insert((record.key, record.known.facts.variant), ()).is_none());
    found
}

/// Finds the records of a region, and its generation.
fn scan(device: &dyn Device, superblock: &Superblock, region: u32) -> (u32, Vec<Found>) {
    let mut bytes = Bytes {
        device,
        offset: superblock.region_offset(region),
        size: superblock.region_size as usize,
        first: 0,
        window: None,
    };
    let volume = superblock.volume();
    let said = bytes.get(0, PAGE).and_then(|page| decode_region_header(page, volume, region));
    let mut found = Vec::new();
    let mut unit = FIRST_UNIT;
    while unit < superblock.region_units() {
        let header = read_header(&mut bytes, volume, unit).filter(|header| {
            let location = header.name.location;
            (location.region, location.offset) == (region, unit)
                && location.is_possible(superblock)
                && said.is_none_or(|generation| header.name.generation == generation)
        });
        let Some(header) = header else {
            unit += 1;
            continue;
        };
        unit += header.name.location.size;
        if let Some(links) = read_links(&mut bytes, &header) {
            found.push(entry_of(&header, links));
        }
    }
    let generation = said.or(found.iter().map(|record| record.generation).max()).unwrap_or(0);
    found.retain(|record| record.generation == generation);
    (generation, found)
}

fn entry_of(header: &RecordHeader, links: Box<[u8]>) -> Found {
    let facts = &header.facts;
    let stale = Facts { ttl: 0.0, grace: 0.0, keep: facts.ttl.max(0.0) + facts.grace + facts.keep, ..*facts };
    Found {
        known: Known {
            facts: stale.for_entry(&header.key, header.name.location.size),
            location: header.name.location,
            generation: header.name.generation as u16,
            has_links: !links.is_empty(),
        },
        generation: header.name.generation,
        sequence: header.sequence,
        key: header.key,
        links,
    }
}

fn read_header(bytes: &mut Bytes<'_>, volume: u64, unit: u32) -> Option<RecordHeader> {
    let start = unit as usize * UNIT as usize;
    let left = bytes.size - start;
    let length = RecordHeader::peek(bytes.get(start, FIXED)?, volume, left as u64)?;
    RecordHeader::decode(bytes.get(start, length)?, volume)
}

/// The links of a record, empty if it has none; `None` if they are damaged.
fn read_links(bytes: &mut Bytes<'_>, header: &RecordHeader) -> Option<Box<[u8]>> {
    if header.links_length == 0 {
        return Some(Box::default());
    }
    let start = header.name.location.offset as usize * UNIT as usize + header.length() as usize;
    let parts = bytes.get(start, header.parts_length() as usize)?;
    let links = parts.len() - header.links_length as usize;
    (crc32c::crc32c(parts) == header.parts_checksum).then(|| parts[links..].into())
}

/// The bytes of a region, read in order.
struct Bytes<'a> {
    device: &'a dyn Device,
    offset: u64,
    size: usize,
    first: usize,
    window: Option<Buffer>,
}

impl Bytes<'_> {
    /// `None` beyond the region's end, and where the device gives an error.
    fn get(&mut self, start: usize, length: usize) -> Option<&[u8]> {
        let end = start.checked_add(length).filter(|end| *end <= self.size)?;
        let held = self.first..self.first + self.window.as_deref().map_or(0, <[u8]>::len);
        if start < held.start || end > held.end {
            let first = start / PAGE * PAGE;
            let least = end.next_multiple_of(PAGE) - first;
            let most = least.max(WINDOW).min(self.size - first);
            self.window = self.read(first, most).or_else(|| self.read(first, least));
            self.first = first;
        }
        self.window.as_ref()?.get(start - self.first..end - self.first)
    }

    fn read(&self, first: usize, length: usize) -> Option<Buffer> {
        let mut buffer = Buffer::new(length);
        self.device.read_at(&mut buffer, self.offset + first as u64).ok()?;
        Some(buffer)
    }
}
