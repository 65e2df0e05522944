//! The bans: a log of its own, kept twice, written again whole when it is full.
//!
//! The format is in `docs/storage-format.md`, section "Bans".

use super::bytes::{Parser, Put};
use super::counters::Counters;
use super::error::{BanError, OpenError};
use super::mirror::{LOOK_AHEAD, Mirror};
use super::page::{self, Header, Kind, PAGE};
use super::superblock::Superblock;
use super::{BAN_MAX, Ban, COUNTED_MAX};
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
                one.reader(device)
                    .page(0, |header| header.sequence == 0 && header.series < COUNTED_MAX)
                    .map(|page| page.header.series),
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

#[cfg(test)]
mod tests {
    use super::super::Options;
    use super::*;
    use crate::device::sim::SimDevice;

    fn superblock() -> Superblock {
        let options = Options { region_size: Some(64 << 10), uuid: [5; 16], ..Options::default() };
        Superblock::for_device(2 << 20, &options).expect("it is large enough")
    }

    fn log(device: &SimDevice) -> BanLog {
        BanLog::format(device, &superblock(), &Counters::default()).expect("nothing is wrong")
    }

    fn add(device: &SimDevice, log: &mut BanLog, number: u32, length: usize) {
        let ban = (number, 1.0, vec![number as u8; length]);
        log.add(device, ban, &Counters::default()).expect("there is room");
    }

    fn damage(device: &SimDevice, copy: usize, page: u64) {
        device.flip((superblock().ban_offsets()[copy] + page * PAGE as u64) as usize + 70, 1);
    }

    /// The numbers of the bans that a start finds, and whether both copies are whole.
    fn read(device: &SimDevice) -> Result<(Vec<u32>, bool), OpenError> {
        let (log, whole) = BanLog::read(device, &superblock())?;
        Ok((log.list.iter().map(|(number, ..)| *number).collect(), whole))
    }

    #[test]
    fn bans_come_back_from_either_copy() {
        let device = SimDevice::new(2 << 20);
        let mut log = log(&device);
        for number in 0..5 {
            add(&device, &mut log, number, 3000 * number as usize);
        }
        let all = vec![0, 1, 2, 3, 4];
        assert_eq!(read(&device).expect("it is whole"), (all.clone(), true));
        for (copy, page) in [(0, 0), (1, 1), (0, 2), (1, 9)] {
            damage(&device, copy, page);
            let (found, whole) = read(&device).expect("one copy is enough");
            assert_eq!((found, whole), (all.clone(), false));
        }
        damage(&device, 1, 2);
        assert!(read(&device).is_err());
    }

    #[test]
    fn a_compaction_that_did_not_end_does_not_count() {
        let device = SimDevice::new(2 << 20);
        let mut log = log(&device);
        for number in 0..4 {
            add(&device, &mut log, number, 3000);
        }
        let before = device.image();
        log.list.truncate(3);
        log.compact(&device, &Counters::default()).expect("nothing is wrong");
        assert_eq!(read(&device).expect("it is whole").0, [0, 1, 2]);
        // The first copy is new but for its last page, the second one is as it was.
        let [first, second] = superblock().ban_offsets().map(|offset| offset as usize);
        let mut torn = device.image();
        torn[second..second + 20 * PAGE].copy_from_slice(&before[second..second + 20 * PAGE]);
        torn[first + 2 * PAGE..first + 3 * PAGE].copy_from_slice(&before[first + 2 * PAGE..first + 3 * PAGE]);
        let (mut log, whole) =
            BanLog::read(&SimDevice::with_image(torn), &superblock()).expect("one is whole");
        assert_eq!((log.list.len(), whole), (4, false));
        // The next compaction has a number of its own.
        let (highest, generation) = (log.highest, log.generation);
        assert_eq!(highest, generation + 1);
        log.compact(&device, &Counters::default()).expect("nothing is wrong");
        assert_eq!(log.generation, highest + 1);
    }

    #[test]
    fn what_an_earlier_session_wrote_beyond_the_end_does_not_go_on() {
        let device = SimDevice::new(2 << 20);
        let mut log = log(&device);
        add(&device, &mut log, 1, 10);
        // Two pages, of which the first never arrives.
        let end = log.next;
        add(&device, &mut log, 2, 5000);
        damage(&device, 0, end);
        damage(&device, 1, end);
        let (mut log, _) = BanLog::read(&device, &superblock()).expect("it is whole");
        log.set_session(9);
        add(&device, &mut log, 3, 10);
        assert_eq!(read(&device).expect("it is whole").0, [1, 3]);
    }
}
