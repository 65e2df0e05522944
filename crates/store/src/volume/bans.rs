//! The bans: a log of its own, kept twice, written again whole when it is full.
//!
//! The format is in `docs/storage-format.md`, section "Bans".

use super::bytes::{Parser, Put};
use super::counters::Counters;
use super::error::{BanError, OpenError};
use super::mirror::{LOOK_AHEAD, Mirror};
use super::page::{self, Header, Kind, PAGE};
use super::superblock::Superblock;
use super::{BAN_MAX, Ban};
use crate::device::Device;
use std::io;

/// See the module.
pub(super) struct BanLog {
    mirror: Mirror,
    session: u32,
    generation: u64,
    /// The highest generation that was begun.
    highest: u64,
    /// The place of the next page.
    next: u64,
    pub(super) list: Vec<Ban>,
}

impl BanLog {
    /// The log of a volume that is formatted now. Not durable before a sync.
    pub(super) fn format(
        device: &dyn Device,
        superblock: &Superblock,
        counters: &Counters,
    ) -> io::Result<Self> {
        let mut log = Self {
            mirror: mirror(superblock),
            session: superblock.session,
            generation: 0,
            highest: 0,
            next: 0,
            list: Vec::new(),
        };
        log.compact(device, counters)?;
        Ok(log)
    }

    /// A log without bans, in place of one that cannot be read. To be [compacted](Self::compact) before use.
    pub(super) fn anew(superblock: &Superblock) -> Self {
        Self {
            mirror: mirror(superblock),
            session: superblock.session,
            generation: 0,
            // Higher than any that came to be by counting.
            highest: u64::from(superblock.session) << 32,
            next: 0,
            list: Vec::new(),
        }
    }

    /// Reads the log. Says, too, whether it should be [compacted](Self::compact) because a copy is not whole.
    pub(super) fn read(device: &dyn Device, superblock: &Superblock) -> Result<(Self, bool), OpenError> {
        let mirror = mirror(superblock);
        let mut generations = Vec::new();
        for copy in 0..2 {
            let one = Mirror { offsets: [mirror.offsets[copy]; 2], ..mirror };
            generations.extend(
                one.reader(device).page(0, |header| header.sequence == 0).map(|page| page.header.series),
            );
        }
        let agree = generations.len() == 2 && generations[0] == generations[1];
        generations.sort_unstable();
        generations.dedup();
        for generation in generations.iter().rev() {
            if let Some((mut log, whole)) = Self::read_generation(device, superblock, *generation)? {
                // One that was not written to its end is not gone on with.
                log.highest = generations.last().copied().unwrap_or(log.generation);
                return Ok((log, agree && whole));
            }
        }
        Err(OpenError::Damaged { what: "list of bans" })
    }

    /// `None` if this generation was never written to its end.
    fn read_generation(
        device: &dyn Device,
        superblock: &Superblock,
        generation: u64,
    ) -> Result<Option<(Self, bool)>, OpenError> {
        let damaged = || OpenError::Damaged { what: "list of bans" };
        let mirror = mirror(superblock);
        let mut reader = mirror.reader(device);
        let mut log = Self {
            mirror,
            session: superblock.session,
            generation,
            highest: generation,
            next: 0,
            list: Vec::new(),
        };
        let (mut base, mut session, mut whole) = (1, 0, true);
        let mut carried: Vec<u8> = Vec::new();
        while log.next < mirror.pages {
            let wanted = |header: &Header| {
                (header.series, header.sequence) == (generation, log.next) && header.session >= session
            };
            let Some(page) = reader.page(log.next, wanted) else { break };
            if log.next == 0 {
                base = u64::from(page.header.base);
            }
            session = page.header.session;
            whole &= page.bad_copy.is_none();
            if page.header.begins {
                carried.clear();
            }
            carried.extend_from_slice(&page.payload);
            let mut stream = carried.as_slice();
            while let Some(ban) = decode(&mut stream) {
                log.list.push(ban.ok_or_else(damaged)?);
            }
            carried = stream.to_vec();
            log.next += 1;
        }
        if log.next < base {
            return Ok(None);
        }
        for place in log.next + 1..=log.next + LOOK_AHEAD {
            let wanted = |header: &Header| header.series == generation && header.synced > log.next;
            if reader.page(place, wanted).is_some() {
                return Err(damaged());
            }
        }
        Ok(Some((log, whole)))
    }

    /// Adds a ban; it is durable then.
    pub(super) fn add(&mut self, device: &dyn Device, ban: Ban, counters: &Counters) -> Result<(), BanError> {
        if ban.2.len() > BAN_MAX {
            return Err(BanError::TooLong);
        }
        let mut bytes = Vec::new();
        encode(&ban, &mut bytes);
        if self.next + page::pages(bytes.len()) > self.mirror.pages {
            let all: usize = self.list.iter().map(encoded_length).sum();
            if page::pages(all).max(1) + page::pages(bytes.len()) > self.mirror.pages {
                return Err(BanError::Full);
            }
            self.compact(device, counters).map_err(BanError::Io)?;
        }
        let mut pages = Vec::new();
        let next = page::encode_stream(self.header(0), &bytes, &mut pages);
        for copy in 0..2 {
            self.mirror.write_copy(device, copy, self.next, &pages).map_err(BanError::Io)?;
        }
        device.sync().map_err(BanError::Io)?;
        counters.device_written_bytes.add(2 * pages.len() as u64);
        self.next = next;
        self.list.push(ban);
        Ok(())
    }

    /// Writes the bans that are held as a new log. One copy is whole at any time.
    pub(super) fn compact(&mut self, device: &dyn Device, counters: &Counters) -> io::Result<()> {
        let mut bytes = Vec::new();
        for ban in &self.list {
            encode(ban, &mut bytes);
        }
        self.highest += 1;
        self.generation = self.highest;
        self.next = 0;
        let base = page::pages(bytes.len()).max(1);
        let mut pages = Vec::with_capacity(base as usize * PAGE);
        if bytes.is_empty() {
            self.header(1).encode(&[], &mut pages);
        } else {
            page::encode_stream(self.header(base as u32), &bytes, &mut pages);
        }
        for copy in 0..2 {
            self.mirror.write_copy(device, copy, 0, &pages)?;
            device.sync()?;
        }
        counters.device_written_bytes.add(2 * pages.len() as u64);
        self.next = base;
        Ok(())
    }

    fn header(&self, base: u32) -> Header {
        Header {
            kind: Kind::Bans,
            volume: self.mirror.volume,
            series: self.generation,
            sequence: self.next,
            synced: self.next,
            session: self.session,
            begins: true,
            base,
        }
    }

    /// Takes the session of a start that has been made durable.
    pub(super) fn set_session(&mut self, session: u32) {
        self.session = session;
    }
}

fn mirror(superblock: &Superblock) -> Mirror {
    Mirror {
        kind: Kind::Bans,
        volume: superblock.volume(),
        offsets: superblock.ban_offsets(),
        pages: u64::from(superblock.ban_pages),
    }
}

fn encoded_length(ban: &Ban) -> usize {
    4 + 8 + 4 + ban.2.len()
}

fn encode((number, time, text): &Ban, out: &mut Vec<u8>) {
    out.u32(*number);
    out.f64(*time);
    out.u32(text.len() as u32);
    out.bytes(text);
}

/// Takes a ban from the stream: `None` if it is not all there, `Some(None)` if it cannot be one.
fn decode(stream: &mut &[u8]) -> Option<Option<Ban>> {
    let mut parser = Parser::new(stream);
    let (number, time, length) = (parser.u32()?, parser.f64()?, parser.u32()? as usize);
    if length > BAN_MAX {
        return Some(None);
    }
    let text = parser.take(length)?;
    *stream = &stream[stream.len() - parser.left()..];
    Some(Some((number, time, text.to_vec())))
}
