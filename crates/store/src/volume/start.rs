//! A start: formatting a new device, or finding out what is on it.

use super::FIRST_UNIT;
use super::bans::BanLog;
use super::buffer::Buffer;
use super::checkpoint::{self, Next, OpenEnd, Summary};
use super::core::Core;
use super::counters::Counters;
use super::entry::Table;
use super::error::OpenError;
use super::inner::Started;
use super::journal::{self, Journal};
use super::options::Options;
use super::page::PAGE;
use super::recover;
use super::superblock::{Found, Superblock};
use crate::device::Device;
use std::io;

fn io_error(doing: &'static str) -> impl Fn(io::Error) -> OpenError {
    move |source| OpenError::Io { doing, source }
}

/// Finds out what the volume has, and begins a session in it.
pub(super) fn start(device: &dyn Device, options: &Options) -> Result<Started, OpenError> {
    match read_superblock(device)? {
        Some(superblock) if options.recover => recover::start(device, superblock),
        Some(superblock) => start_from_checkpoint(device, superblock),
        None => format(device, options),
    }
}

/// See [`super::Volume::check_device`].
pub(super) fn check(device: &dyn Device, options: &Options) -> Result<(), OpenError> {
    match read_superblock(device)? {
        Some(_) => Ok(()),
        None => Superblock::for_device(device.size(), options).map(|_| ()),
    }
}

/// The better of the two superblocks; `None` if the device is new.
fn read_superblock(device: &dyn Device) -> Result<Option<Superblock>, OpenError> {
    let size = device.size();
    if size < 2 * PAGE as u64 {
        return Err(OpenError::TooSmall { least: 2 * PAGE as u64, found: size });
    }
    let mut found = Vec::new();
    let mut failed = None;
    for offset in Superblock::own_offsets(size) {
        let mut page = Buffer::new(PAGE);
        match device.read_at(&mut page, offset) {
            Ok(()) => found.push(Superblock::decode(&page)),
            Err(error) => failed = Some(error),
        }
    }
    let best = found
        .iter()
        .filter_map(|found| match found {
            Found::Good(superblock) => Some(*superblock),
            Found::Empty | Found::Version(_) | Found::Damaged | Found::Foreign => None,
        })
        .max_by_key(|superblock| superblock.session);
    if let Some(superblock) = best {
        let made_for = superblock.device_size;
        let fits = Superblock::own_offsets(size) == Superblock::own_offsets(made_for);
        return if fits { Ok(Some(superblock)) } else { Err(OpenError::Size { made_for, found: size }) };
    }
    if let Some(source) = failed {
        return Err(OpenError::Io { doing: "reading the superblock", source });
    }
    let version = found.iter().find_map(|found| match found {
        Found::Version(version) => Some(*version),
        Found::Good(_) | Found::Empty | Found::Damaged | Found::Foreign => None,
    });
    match version {
        Some(found) => Err(OpenError::Version { found }),
        None if found.contains(&Found::Damaged) => Err(OpenError::Superblock),
        None if found.contains(&Found::Foreign) => Err(OpenError::Foreign),
        None => Ok(None),
    }
}

/// Writes both superblocks, the second one first on a new device, so that the first says that all is there.
fn write_superblock(device: &dyn Device, superblock: &Superblock, order: [usize; 2]) -> io::Result<()> {
    let mut page = Buffer::new(PAGE);
    page.copy_from_slice(&superblock.encode());
    let offsets = Superblock::own_offsets(superblock.device_size);
    for copy in order {
        device.write_at(&page, offsets[copy])?;
        device.sync()?;
    }
    Ok(())
}

/// Begins a session: nothing is written before this is durable, and what was read is durable then, too.
pub(super) fn begin_session(device: &dyn Device, superblock: &mut Superblock) -> Result<(), OpenError> {
    superblock.session = superblock.session.saturating_add(1);
    write_superblock(device, superblock, [0, 1]).map_err(io_error("writing the superblock"))
}

fn format(device: &dyn Device, options: &Options) -> Result<Started, OpenError> {
    let superblock = Superblock::for_device(device.size(), options)?;
    let doing = io_error("formatting the volume");
    let counters = Counters::default();
    let bans = BanLog::format(device, &superblock, &counters).map_err(&doing)?;
    let core = Core::new(superblock);
    let table = Table::new(superblock.entries_max);
    write_first_checkpoint(device, &core, &counters).map_err(&doing)?;
    write_superblock(device, &superblock, [1, 0]).map_err(&doing)?;
    let mut core = core;
    core.settle(&table);
    let mut journal = Journal::new(&superblock, 0, 0, 0);
    journal.wants_checkpoint = true;
    Ok(Started {
        superblock,
        table,
        core,
        journal,
        next_checkpoint: Next { number: 2, slot: 1 },
        bans,
        resume: None,
        counters,
    })
}

fn write_first_checkpoint(device: &dyn Device, core: &Core, counters: &Counters) -> io::Result<()> {
    let superblock = core.superblock;
    let writer = checkpoint::Writer::new(device, counters, &superblock, Next { number: 1, slot: 0 });
    writer.regions(&checkpoint::region_table(&core.regions))?;
    device.sync()?;
    writer.header(&Summary {
        number: 1,
        session: superblock.session,
        slot: 0,
        journal_start: 0,
        journal_end: 0,
        links_bytes: 0,
        entries: 0,
        clean: false,
        open: None,
    })?;
    device.sync()
}

fn start_from_checkpoint(device: &dyn Device, mut superblock: Superblock) -> Result<Started, OpenError> {
    let summaries = checkpoint::find(device, &superblock);
    let reach = summaries.iter().map(|summary| summary.journal_end).max().unwrap_or(0);
    let mut error = OpenError::Damaged { what: "list of objects" };
    for summary in &summaries {
        let mut core = Core::new(superblock);
        let table = Table::new(superblock.entries_max);
        if let Err(reason) = checkpoint::read(device, summary, &mut core, &table) {
            error = reason;
            continue;
        }
        let from = (summary.journal_start, reach, summary.session);
        let replayed = journal::replay(device, &mut core, &table, from)?;
        let (mut bans, bans_whole) = BanLog::read(device, &superblock)?;
        core.settle(&table);

        begin_session(device, &mut superblock)?;
        core.superblock = superblock;
        let counters = Counters::default();
        repair(device, &superblock, &replayed.repairs).map_err(io_error("repairing the journal"))?;
        bans.set_session(superblock.session);
        if !bans_whole {
            bans.compact(device, &counters).map_err(io_error("repairing the list of bans"))?;
        }
        let other = summaries.iter().find(|other| other.number < summary.number);
        let older_start = other.map_or(summary.journal_start, |other| other.journal_start);
        let newest = summaries.first().map_or(summary.number, |newest| newest.number);
        let mut journal = Journal::new(&superblock, replayed.next, older_start, summary.journal_start);
        journal.wants_checkpoint = !(summary.clean && replayed.next == summary.journal_end);
        return Ok(Started {
            superblock,
            resume: resume(summary, &core, replayed.next),
            table,
            core,
            journal,
            // A number that no page in the other slot can have, whatever happened to its header.
            next_checkpoint: Next { number: newest + 2, slot: 1 - summary.slot },
            bans,
            counters,
        });
    }
    Err(error)
}

/// Writes pages again that are good in one copy only.
fn repair(device: &dyn Device, superblock: &Superblock, repairs: &[(usize, u64, Vec<u8>)]) -> io::Result<()> {
    let mirror = journal::mirror(superblock);
    for (copy, place, bytes) in repairs {
        mirror.write_copy(device, *copy, *place, bytes)?;
    }
    if repairs.is_empty() { Ok(()) } else { device.sync() }
}

/// The region that was open, if the volume was closed in order and nothing was done since.
fn resume(summary: &Summary, core: &Core, journal_next: u64) -> Option<OpenEnd> {
    let open = summary.open.filter(|_| summary.clean && journal_next == summary.journal_end)?;
    let region = core.regions.get(open.region as usize)?;
    let fits = region.order != 0
        && region.generation == open.generation
        && (FIRST_UNIT..core.superblock.region_units()).contains(&open.end)
        && (u64::from(open.end) * super::UNIT).is_multiple_of(PAGE as u64);
    fits.then_some(open)
}
