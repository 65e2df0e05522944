//! A random history of one volume: operations, restarts, crashes; after each of them it is checked against the model.

use crate::content::{Content, Style};
use crate::model::{Change, Item, Model, Told};
use copal_store::device::sim::{Chance, SimDevice};
use copal_store::volume::{EntryId, Options, ReadError, Volume, WriteError};
use std::sync::Arc;

/// How a run of the volume ends.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum End {
    /// Closed.
    Order,
    /// The process is killed: what was written is there.
    Kill,
    /// The power is cut.
    Crash,
}

pub(crate) struct History {
    chance: Chance,
    options: Options,
    style: Style,
    device: Arc<SimDevice>,
    told: Arc<Told>,
    volume: Option<Volume>,
    pub(crate) model: Model,
    next_number: u32,
    next_ban: u32,
    pub(crate) reached: Reached,
}

/// How often what is rare was done, so that a run can say that it was done at all.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Reached {
    pub(crate) evicted: u64,
    pub(crate) reinserted: u64,
    pub(crate) checkpoints: u64,
    pub(crate) lost: u64,
}

/// Options that make a small volume do much.
pub(crate) fn options(chance: &mut Chance) -> Options {
    let pick = |chance: &mut Chance, from: &[u64]| from[chance.below(from.len() as u64) as usize];
    Options {
        region_size: Some(pick(chance, &[64, 64, 128, 256]) as u32 * 1024),
        entry_bytes: pick(chance, &[4, 16, 16, 64]) as u32 * 1024,
        write_buffer: pick(chance, &[4, 16, 64]) as usize * 1024,
        read_ahead: 64 << 10,
        errors_max: 100,
        recover: false,
        uuid: [7; 16],
    }
}

impl History {
    pub(crate) fn new(seed: u64) -> Self {
        let mut chance = Chance::new(seed);
        let options = options(&mut chance);
        let regions = 5 + chance.below(12);
        let size = (1 << 20) + regions * u64::from(options.region_size.unwrap_or(0));
        let style = Style {
            most: u64::from(options.region_size.unwrap_or(0)) - 4096,
            alike: chance.one_in(4),
            links: if chance.one_in(3) { 3000 } else { 60 },
        };
        let mut history = Self {
            chance,
            options,
            style,
            device: Arc::new(SimDevice::new(size as usize)),
            told: Arc::default(),
            volume: None,
            model: Model::default(),
            next_number: 0,
            next_ban: 0,
            reached: Reached::default(),
        };
        history.open();
        history
    }

    pub(crate) fn device(&self) -> &Arc<SimDevice> {
        &self.device
    }

    pub(crate) fn style(&self) -> Style {
        self.style
    }

    pub(crate) fn options(&self) -> &Options {
        &self.options
    }

    pub(crate) fn volume(&self) -> &Volume {
        self.volume.as_ref().expect("it is open")
    }

    fn open(&mut self) {
        let device = Arc::clone(&self.device);
        let volume = Volume::open(device, &self.options, Arc::clone(&self.told) as _);
        self.volume = Some(volume.expect("a crash leaves a volume that can be opened"));
    }

    /// Runs some operations, and ends as told.
    pub(crate) fn run(&mut self, operations: u64, end: End) {
        for _ in 0..operations {
            self.operation();
        }
        self.model.check(self.volume());
        let statistics = self.volume().statistics();
        self.reached.evicted += statistics.evicted;
        self.reached.reinserted += statistics.reinserted;
        self.reached.checkpoints += statistics.checkpoints;
        self.end(end);
    }

    fn end(&mut self, end: End) {
        let image = match end {
            End::Order => {
                self.volume().close().expect("nothing is wrong with the device");
                self.model.all_durable();
                self.model.all_written_out();
                self.device.image()
            }
            End::Kill => self.device.image(),
            End::Crash => self.crash(),
        };
        self.volume = None;
        self.start(image);
        if end == End::Order {
            self.model.check(self.volume());
            self.model.check_bans(self.volume());
        } else {
            let mut model = std::mem::take(&mut self.model);
            model.check_after_crash(self.volume());
            self.model = model;
        }
        self.read_all();
    }

    /// The image of a crash now, or in the middle of what is done next.
    fn crash(&mut self) -> Vec<u8> {
        let chance = Chance::new(self.chance.bits());
        if self.chance.one_in(4) {
            return self.device.crash(&mut { chance });
        }
        let after = if self.chance.one_in(2) { self.chance.below(8) } else { self.chance.below(60) };
        self.device.crash_after(after, chance);
        for _ in 0..100 {
            self.operation();
            if let Some(image) = self.device.has_crashed().then(|| self.device.crashed()).flatten() {
                return image;
            }
        }
        self.volume().close().expect("nothing is wrong with the device");
        self.device.crashed().unwrap_or_else(|| {
            self.model.all_durable();
            self.model.all_written_out();
            self.device.image()
        })
    }

    /// Starts on an image. The start, too, may be in the middle of a crash.
    fn start(&mut self, mut image: Vec<u8>) {
        loop {
            self.device = Arc::new(SimDevice::with_image(image));
            if self.chance.one_in(3) {
                self.device.crash_after(self.chance.below(6), Chance::new(self.chance.bits()));
            }
            self.open();
            match self.device.crashed() {
                Some(taken) => {
                    self.model.clone().check_after_crash(self.volume());
                    self.volume = None;
                    image = taken;
                }
                None => return,
            }
        }
    }

    /// What was done up to now is durable, unless the crash came meanwhile.
    fn durable(&mut self) {
        if !self.device.has_crashed() {
            self.model.all_durable();
        }
    }

    /// Reads every entry. One may be lost only if its bytes were never made durable.
    pub(crate) fn read_all(&mut self) {
        let items: Vec<_> = self.model.items.iter().map(|(id, item)| (*id, *item)).collect();
        for (id, item) in items {
            self.read(id, item);
        }
    }

    fn content(&self, number: u32) -> Content {
        Content::new(number, self.style)
    }

    fn key_of(&self, item: Item) -> [u8; 16] {
        self.content(item.number).key[..16].try_into().expect("16 bytes")
    }

    fn read(&mut self, id: EntryId, item: Item) {
        let content = self.content(item.number);
        let mut chance = self.chance.clone();
        self.chance.bits();
        let result = content.check(self.volume(), id, &mut chance);
        match result {
            Ok(()) => {
                let facts = self.volume().facts(id).expect("it was just read");
                let tail = facts.is_piece().then(|| content.key[16..].try_into().expect("16 bytes"));
                assert_eq!(facts.key_tail(), tail);
                assert_eq!(facts.key, content.key[..16]);
                assert_eq!(self.volume().links(id).unwrap_or_default().to_vec(), content.links);
            }
            Err(ReadError::Io(error)) => panic!("no error was injected: {error}"),
            Err(ReadError::Damaged | ReadError::Gone) => {
                assert!(
                    !self.model.written_out.contains(&(id, item.number)),
                    "{id:?} was durable and is lost"
                );
                self.reached.lost += 1;
            }
        }
        self.follow();
    }

    /// Takes over what the volume told.
    fn follow(&mut self) {
        for id in std::mem::take(&mut *self.told.kept.lock().expect("nobody panics")) {
            // It may lie elsewhere now, where it is not durable yet.
            self.model.written_out.retain(|(kept, _)| *kept != id);
        }
        for id in std::mem::take(&mut *self.told.dropped.lock().expect("nobody panics")) {
            assert!(self.model.items.contains_key(&id), "{id:?} was dropped and was not there");
            self.model.change(Change::Remove(id));
        }
    }

    fn any_entry(&mut self) -> Option<(EntryId, Item)> {
        let count = self.model.items.len() as u64;
        if count == 0 {
            return None;
        }
        let at = self.chance.below(count) as usize;
        self.model.items.iter().nth(at).map(|(id, item)| (*id, *item))
    }

    fn operation(&mut self) {
        match self.chance.below(100) {
            0..45 => self.write(),
            45..60 => self.remove(),
            60..66 => self.set_times(),
            66..72 => self.set_ban(),
            72..80 => self.note_use(),
            80..84 => self.add_ban(),
            84..85 => self.drop_bans(),
            85..92 => {
                self.volume().tick().expect("nothing is wrong with the device");
                self.durable();
            }
            92..94 => {
                self.volume().sync().expect("nothing is wrong with the device");
                self.durable();
            }
            94..95 => {
                self.volume().flush_data().expect("nothing is wrong with the device");
                if !self.device.has_crashed() {
                    self.model.all_durable();
                    self.model.all_written_out();
                }
            }
            95..96 => {
                let report = self.volume().scrub(100_000);
                // What a crash left without its bytes was found when all was read after it.
                assert_eq!(report.damaged, 0);
            }
            _ => {
                if let Some((id, item)) = self.any_entry() {
                    self.read(id, item);
                }
            }
        }
    }

    fn write(&mut self) {
        let number = self.next_number;
        self.next_number += 1;
        let content = self.content(number);
        let written = content.write(self.volume());
        self.follow();
        match written {
            Ok(id) => {
                assert!(!self.model.items.contains_key(&id), "{id:?} is in use");
                let facts = content.facts;
                let times = if facts.is_piece() {
                    (0.0, 0.0, 0.0, facts.keep)
                } else {
                    (facts.origin_time, facts.ttl, facts.grace, facts.keep)
                };
                self.model.change(Change::Put(id, Item { number, times, ban: 0 }));
            }
            Err(WriteError::TooLong { .. }) => assert!(content.body.len() > 50_000),
            Err(error) => panic!("nothing is wrong with the device: {error}"),
        }
    }

    fn remove(&mut self) {
        if let Some((id, _)) = self.any_entry() {
            self.volume().remove(id);
            self.model.change(Change::Remove(id));
        }
    }

    fn set_times(&mut self) {
        if let Some((id, mut item)) = self.any_entry() {
            let times = (self.chance.below(1000) as f64, self.chance.below(100) as f32, 1.0, 2.0);
            let is_piece = self.volume().facts(id).is_some_and(|facts| facts.is_piece());
            let key = self.key_of(item);
            assert!(self.volume().set_times(id, &key, times.0, times.1, times.2, times.3));
            item.times = if is_piece { (0.0, 0.0, 0.0, times.3) } else { times };
            self.model.change(Change::Put(id, item));
        }
    }

    fn set_ban(&mut self) {
        if let Some((id, mut item)) = self.any_entry() {
            item.ban = self.next_ban;
            let key = self.key_of(item);
            assert!(!self.volume().set_ban(id, &[0; 16], 77));
            assert!(self.volume().set_ban(id, &key, item.ban));
            self.model.change(Change::Put(id, item));
        }
    }

    fn note_use(&mut self) {
        if let Some((id, _)) = self.any_entry() {
            let hits = 1 + self.chance.below(100) as u16;
            self.volume().note_use(id, hits, 5);
        }
    }

    fn add_ban(&mut self) {
        let number = self.next_ban;
        self.next_ban += 1;
        let length = if self.chance.one_in(10) { 9000 } else { self.chance.below(200) };
        let text: Vec<u8> = (0..length).map(|_| self.chance.bits() as u8).collect();
        match self.volume().add_ban(number, f64::from(number), &text) {
            Ok(()) if self.device.has_crashed() => self.model.perhaps = Some((number, text)),
            Ok(()) => self.model.bans.push((number, text)),
            Err(copal_store::volume::BanError::Full) => {
                // Those that were dropped and are there again count, too.
                let bytes: usize = self.volume().bans().iter().map(|(_, _, text)| text.len()).sum();
                assert!(bytes > 15 * 1024, "the log holds {bytes} bytes only");
            }
            Err(error) => panic!("nothing is wrong with the device: {error}"),
        }
    }

    fn drop_bans(&mut self) {
        let before = self.chance.below(u64::from(self.next_ban) + 1) as u32;
        self.volume().drop_bans(&|number| number >= before);
        let dropped = self.model.bans.iter().map(|(number, _)| *number).filter(|number| *number < before);
        self.model.dropped_bans.extend(dropped);
        self.model.bans.retain(|(number, _)| *number >= before);
    }
}
