//! The persistent engine: `-s [name=]persistent,path,size`, and `tier`, which is the same with devices of several speeds.
//!
//! ```text
//!                begin > Fill > commit                     load
//!  memory part   resident objects, evicted as in `malloc` <------+
//!                     | stored                                   |
//!                     v                                          |
//!  writer        one thread a device: the record is appended     | reading: a few threads a device
//!                     |                                          |
//!  device        regions of records, journal, checkpoint --------+  ([`crate::volume`])
//! ```
//! Every object begins in memory and is served from there. Once it is complete, its device's writer appends a record, and
//! the object has an *entry*. Evicted from memory, the entry stands for it; asked for again it is *loaded*: a fill whose
//! origin is the device, so that readers stream along as they do with a fetch. Nothing of this blocks a thread that serves.
//!
//! Memory is never full of what waits to be written: fills wait while that is more than a third of the memory part, and
//! beyond two thirds what is stored is not written.

mod admission;
mod drain;
mod events;
mod loader;
mod moving;
mod queue;
mod upkeep;
mod writer;

pub use admission::Admit;
pub use upkeep::Pace;

use crate::charge::Charge;
use crate::device::Device;
use crate::engine::{Creation, Engine, Evictions, Full, Health, Keeper, Loaded, NotLoaded, Statistics};
use crate::entry::Entry;
use crate::eviction::Policy;
use crate::fill::Fill;
use crate::memory::Memory;
use crate::object::Object;
use crate::report::{DeviceReport, Report};
use crate::volume::{self, BanError, EntryId, Facts, Health as VolumeHealth, LINKS_MAX, OpenError, Volume};
use admission::{Admission, Promotion};
use drain::Bell;
use events::DeviceEvents;
use loader::Loads;
use parking_lot::Mutex;
use queue::Queue;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::thread::JoinHandle;

/// A device to be opened.
pub struct DeviceSpec {
    /// What it is called in messages and lists: its path.
    pub path: String,
    /// The device.
    pub device: Arc<dyn Device>,
    /// How its log is laid out.
    pub options: volume::Options,
}

/// What a persistent engine is made of.
pub struct Settings {
    /// The name given with `-s`.
    pub name: String,
    /// The kind given with `-s`.
    pub kind: &'static str,
    /// Bytes of memory for resident objects.
    pub memory: u64,
    /// Which of them leave memory first.
    pub policy: Policy,
    /// When an object is written to a device.
    pub admit: Admit,
    /// Devices by speed, the fastest first; at least one.
    pub tiers: Vec<Vec<DeviceSpec>>,
    /// The process's number of the first of these devices; the others follow.
    pub first_device: u32,
    /// How often it does what.
    pub pace: Arc<Pace>,
}

/// A device whose log could not be opened.
#[derive(Debug)]
pub struct NotOpened {
    /// The device.
    pub path: String,
    /// Why.
    pub source: OpenError,
}

impl fmt::Display for NotOpened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.source)
    }
}

impl std::error::Error for NotOpened {}

/// One device of the engine, and who works on it.
pub(crate) struct Station {
    path: String,
    tier: usize,
    /// The process's number of it.
    number: u32,
    volume: Volume,
    /// Complete objects that wait for their record.
    writes: Queue<Arc<Object>>,
    /// Bytes of these.
    unwritten: AtomicU64,
    loads: Loads,
    /// What is on it goes to other devices.
    draining: AtomicBool,
}

/// What the engine and its threads share.
pub(crate) struct Core {
    name: String,
    kind: &'static str,
    memory: Memory,
    stations: Vec<Station>,
    evictions: Arc<dyn Evictions>,
    admission: Admission,
    promotion: Promotion,
    pace: Arc<Pace>,
    ends: AtomicBool,
    /// With more bytes than this waiting to be written, fills wait; with twice as many, what is stored is not written.
    behind: u64,
    /// Fills that wait.
    fills: Mutex<Vec<Waker>>,
    /// Bans that are still to be written.
    new_bans: Mutex<VecDeque<volume::Ban>>,
    /// Objects that no record was written of: too large, or no device took them.
    unkept: AtomicU64,
    /// Rung when a device is to be drained.
    drains: Bell,
}

/// The engine. Dropped, it writes what waits, and a checkpoint.
pub struct Persistent {
    core: Arc<Core>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Persistent {
    /// Opens the devices and starts the threads that work on them. [`Engine::entries`] tells what was found.
    ///
    /// # Errors
    /// A device's log is not to be read, or a thread cannot be made.
    ///
    /// # Panics
    /// If there is no device.
    pub fn open(settings: Settings, evictions: Arc<dyn Evictions>) -> Result<Self, NotOpened> {
        let memory = Memory::with_policy(
            &settings.name,
            Some(settings.memory),
            settings.policy,
            Arc::clone(&evictions),
        );
        let mut stations = Vec::new();
        let mut listeners = Vec::new();
        let mut number = settings.first_device;
        for (tier, specs) in settings.tiers.into_iter().enumerate() {
            for spec in specs {
                let events = Arc::new(DeviceEvents::new(number));
                let opened = Volume::open(spec.device, &spec.options, Arc::clone(&events) as _);
                let volume = opened.map_err(|source| NotOpened { path: spec.path.clone(), source })?;
                stations.push(Station {
                    path: spec.path,
                    tier,
                    number,
                    volume,
                    writes: Queue::default(),
                    unwritten: AtomicU64::new(0),
                    loads: Loads::default(),
                    draining: AtomicBool::new(false),
                });
                listeners.push(events);
                number += 1;
            }
        }
        let entries = stations.iter().map(|station| station.volume.statistics().entries_max).sum();
        assert!(!stations.is_empty(), "a persistent engine has a device");
        let core = Arc::new(Core {
            name: settings.name,
            kind: settings.kind,
            memory,
            stations,
            evictions,
            admission: Admission::new(settings.admit, entries),
            promotion: Promotion::default(),
            pace: settings.pace,
            ends: AtomicBool::new(false),
            behind: settings.memory / 3,
            fills: Mutex::default(),
            new_bans: Mutex::default(),
            unkept: AtomicU64::new(0),
            drains: Bell::default(),
        });
        listeners.iter().for_each(|listener| listener.attach(&core));
        let weak: Weak<dyn Keeper> = Arc::downgrade(&(Arc::clone(&core) as Arc<dyn Keeper>));
        core.memory.set_keeper(weak);
        let threads = start_threads(&core).map_err(|error| NotOpened {
            path: core.name.clone(),
            source: OpenError::Io { doing: "making a thread", source: error },
        })?;
        Ok(Self { core, threads: Mutex::new(threads) })
    }
}

/// With fewer bans than this on a device nothing is gained by forgetting some.
const FORGET_FROM: usize = 16;

/// How much of a record is read for its head.
const HEAD_READ: usize = 16 << 10;

/// More fills than this do not wait for devices. Those that gave up waiting count until the others are woken.
const FILLS_MAX: usize = 10_000;

/// Threads that read from each device.
const READERS: usize = 8;

fn start_threads(core: &Arc<Core>) -> io::Result<Vec<JoinHandle<()>>> {
    let mut threads = Vec::new();
    let mut start = |name: String, run: Box<dyn FnOnce(&Core) + Send>| {
        let core = Arc::clone(core);
        let builder = std::thread::Builder::new().name(name);
        builder.spawn(move || run(&core)).map(|thread| threads.push(thread))
    };
    for index in 0..core.stations.len() {
        start(format!("write-{index}"), Box::new(move |core| writer::run(core, index)))?;
        for reader in 0..READERS {
            start(format!("read-{index}-{reader}"), Box::new(move |core| loader::run(core, index)))?;
        }
    }
    start("store-upkeep".to_owned(), Box::new(upkeep::run))?;
    start("store-drain".to_owned(), Box::new(drain::run))?;
    Ok(threads)
}

impl Drop for Persistent {
    fn drop(&mut self) {
        self.close();
    }
}

impl Station {
    fn report(&self) -> DeviceReport {
        let statistics = self.volume.statistics();
        DeviceReport {
            path: self.path.clone().into(),
            size: statistics.bytes_max,
            used: statistics.bytes,
            entries: statistics.entries,
            health: match self.volume.health() {
                VolumeHealth::Good => Health::Good,
                VolumeHealth::Draining if statistics.entries == 0 => Health::Drained,
                VolumeHealth::Draining => Health::Draining,
                VolumeHealth::Failed => Health::Failed,
            },
            tier: self.tier,
            unwritten: self.unwritten.load(Ordering::Relaxed),
            log: statistics,
        }
    }
}

impl Core {
    /// Writes the bans that came to every device. An error is that of the last device that could not take one; others have
    /// it, and what is on a device that failed is not written to any more.
    fn keep_bans(&self) -> Result<(), BanError> {
        // One at a time, so that who waits for a ban knows that it was written.
        let mut news = self.new_bans.lock();
        let mut kept = Ok(());
        while let Some((number, time, text)) = news.pop_front() {
            for station in &self.stations {
                kept = station.volume.add_ban(number, time, &text).and(kept);
            }
        }
        kept
    }

    /// Lets devices forget the bans that every object on them was tested against.
    fn forget_bans(&self) {
        for station in &self.stations {
            let bans = station.volume.bans();
            let newest = bans.iter().map(|ban| ban.0).max().unwrap_or_default();
            if bans.len() < FORGET_FROM {
                continue;
            }
            let mut oldest = newest;
            station.volume.for_each(|_, facts, _| {
                if !facts.is_piece() {
                    oldest = oldest.min(facts.ban);
                }
            });
            let needed = bans.iter().filter(|ban| ban.0 >= oldest).count();
            // What the entries say is to be durable before that is relied upon, and that costs a checkpoint.
            if needed * 2 <= bans.len() && station.volume.checkpoint().is_ok() {
                station.volume.drop_bans(&|number| number >= oldest);
            }
        }
    }

    /// The device that `entry` is on.
    fn station(&self, entry: Entry) -> Option<(&Station, EntryId)> {
        let first = self.stations.first()?.number;
        let index = entry.device().checked_sub(first)? as usize;
        self.stations.get(index).map(|station| (station, EntryId(entry.slot())))
    }

    /// Bytes that wait to be written, on all devices.
    fn waiting(&self) -> u64 {
        self.stations.iter().map(|station| station.unwritten.load(Ordering::Relaxed)).sum()
    }

    /// The device for the next record, of `tier` or else of the next slower one that has any in use: of those of one tier the
    /// one with the least to write, and of several such the emptiest.
    fn choose(&self, tier: usize) -> Option<&Station> {
        self.stations
            .iter()
            .filter(|station| station.tier >= tier && station.volume.health() == VolumeHealth::Good)
            .min_by_key(|station| {
                (station.tier, station.unwritten.load(Ordering::Relaxed), station.volume.fullness())
            })
    }

    /// Whether `object`, which was loaded from `station`, is to move up a tier.
    fn promotes(&self, object: &Object, station: &Station) -> bool {
        let Some(above) = station.tier.checked_sub(1).filter(|tier| self.takes_any(*tier)) else {
            return false;
        };
        let entries = |station: &Station| station.volume.statistics().entries;
        let entries = self.stations.iter().filter(|station| station.tier == above).map(entries).sum();
        self.promotion.takes(object, entries)
    }

    /// Whether any device of `tier` takes records.
    fn takes_any(&self, tier: usize) -> bool {
        self.choose(tier).is_some_and(|station| station.tier == tier)
    }

    /// Some of what waits was written: fills look again, if that was enough.
    fn wake_fills(&self) {
        if self.waiting() > self.behind {
            return;
        }
        let waiting = std::mem::take(&mut *self.fills.lock());
        waiting.into_iter().for_each(Waker::wake);
    }

    /// The device for a new object: of the fastest tier that has one in use, with regions that it surely fits in.
    fn choose_for(&self, object: &Object) -> Option<&Station> {
        // Links, and a checksum for each block, come to what it takes in memory.
        let most = object.whole_size().saturating_add(object.filled() >> 13).saturating_add(LINKS_MAX as u64);
        let tiers = self.stations.last().map_or(0, |station| station.tier);
        let mut good = (0..=tiers).filter_map(|tier| self.choose(tier));
        let first = good.next();
        first.into_iter().chain(good).find(|station| station.volume.record_max() >= most).or(first)
    }

    /// Gives `object` to the writer of `station`, if there is one.
    fn write_soon(&self, object: &Arc<Object>, station: Option<&Station>) {
        let fits = self.waiting() <= self.behind.saturating_mul(2);
        let Some(station) = station.filter(|_| fits) else {
            self.unkept.fetch_add(1, Ordering::Relaxed);
            return;
        };
        station.unwritten.fetch_add(object.filled(), Ordering::Relaxed);
        station.writes.push(Arc::clone(object));
    }
}

impl Keeper for Core {
    fn stored(&self, object: &Arc<Object>) {
        if object.entry().is_some() {
            // It was loaded.
            return;
        }
        if self.admission.takes(object) {
            self.write_soon(object, self.choose_for(object));
        }
    }

    fn set_times(&self, entry: Entry, key: &[u8; 16], origin_time: f64, spans: [f32; 3]) {
        if let Some((station, slot)) = self.station(entry) {
            let [ttl, grace, keep] = spans;
            station.volume.set_times(slot, key, origin_time, ttl, grace, keep);
        }
    }

    fn set_ban(&self, entry: Entry, key: &[u8; 16], ban: u32) {
        if let Some((station, slot)) = self.station(entry) {
            // After a ban every hit does so: nothing may wait for the device.
            station.volume.note_ban(slot, key, ban);
        }
    }

    fn note_use(&self, entry: Entry, hits: u32, last_use: u32) {
        if let Some((station, slot)) = self.station(entry) {
            station.volume.note_use(slot, u16::try_from(hits).unwrap_or(u16::MAX), last_use);
        }
    }

    fn is_behind(&self, waker: &Waker) -> bool {
        if self.waiting() <= self.behind {
            return false;
        }
        {
            let mut fills = self.fills.lock();
            if fills.len() >= FILLS_MAX {
                return false;
            }
            fills.push(waker.clone());
        }
        // Written just now: nobody else may call the waker.
        self.wake_fills();
        true
    }
}

impl Engine for Persistent {
    fn name(&self) -> &str {
        &self.core.name
    }

    fn kind(&self) -> &'static str {
        self.core.kind
    }

    fn begin(&self, creation: &Creation<'_>) -> Result<Fill, Full> {
        self.core.memory.begin(creation)
    }

    fn begin_sharing(&self, creation: &Creation<'_>, of: &Arc<Object>) -> Result<Option<Fill>, Full> {
        self.core.memory.begin_sharing(creation, of)
    }

    fn count(&self, bytes: u64) -> Charge {
        self.core.memory.count(bytes)
    }

    fn reserve(&self, bytes: u64) -> Result<Charge, Full> {
        self.core.memory.reserve(bytes)
    }

    fn begin_window(&self, creation: &Creation<'_>) -> Result<Fill, Full> {
        self.core.memory.begin_window(creation)
    }

    /// That of the memory part: what is in use at one time has to fit there.
    fn size(&self) -> Option<u64> {
        self.core.memory.size()
    }

    fn statistics(&self) -> Statistics {
        self.core.memory.statistics()
    }

    fn set_evict_max(&self, count: u64) {
        self.core.memory.set_evict_max(count);
    }

    fn memory(&self) -> u64 {
        self.core.memory.memory()
    }

    fn set_memory_max(&self, bytes: u64) {
        self.core.memory.set_memory_max(bytes);
    }

    fn shrink(&self, bytes: u64) -> u64 {
        self.core.memory.shrink(bytes)
    }

    fn health(&self) -> Health {
        let stations = &self.core.stations;
        let count = |health| stations.iter().filter(|station| station.volume.health() == health).count();
        let (good, failed) = (count(VolumeHealth::Good), count(VolumeHealth::Failed));
        match (good, failed) {
            (0, _) if failed == stations.len() => Health::Failed,
            (0, _) if stations.iter().all(|station| station.volume.statistics().entries == 0) => {
                Health::Drained
            }
            (0, _) => Health::Draining,
            // A device that is being drained is missed by nobody while there are others.
            (_, 0) => Health::Good,
            _ => Health::Degraded,
        }
    }

    fn devices(&self) -> std::ops::Range<u32> {
        let first = self.core.stations[0].number;
        first..first + self.core.stations.len() as u32
    }

    fn facts(&self, entry: Entry) -> Option<Facts> {
        let (station, slot) = self.core.station(entry)?;
        station.volume.facts(slot)
    }

    fn entries(&self, each: &mut dyn FnMut(Entry, &Facts, &[u8])) {
        for station in &self.core.stations {
            station.volume.for_each(|slot, facts, links| {
                each(Entry::new(station.number, slot.0), facts, links);
            });
        }
    }

    fn load(&self, entry: Entry, loaded: Loaded) {
        match self.core.station(entry) {
            Some((station, slot)) => station.loads.push(slot, loaded),
            None => loaded(Err(NotLoaded::Gone)),
        }
    }

    fn read_head(&self, entry: Entry) -> Option<Vec<u8>> {
        let (station, slot) = self.core.station(entry)?;
        station.volume.open_record(slot, HEAD_READ).ok().map(|reader| reader.head().to_vec())
    }

    fn remove(&self, entry: Entry) {
        if let Some((station, slot)) = self.core.station(entry) {
            station.volume.remove(slot);
        }
    }

    fn links(&self, entry: Entry) -> Vec<u8> {
        let links = self.core.station(entry).and_then(|(station, slot)| station.volume.links(slot));
        links.map_or_else(Vec::new, Vec::from)
    }

    fn set_times(&self, entry: Entry, key: &[u8; 16], origin_time: f64, spans: [f32; 3]) {
        Keeper::set_times(&*self.core, entry, key, origin_time, spans);
    }

    fn set_ban(&self, entry: Entry, key: &[u8; 16], ban: u32) {
        Keeper::set_ban(&*self.core, entry, key, ban);
    }

    fn add_ban(&self, number: u64, time: f64, text: &[u8]) {
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        self.core.new_bans.lock().push_back((number, time, text.to_vec()));
        self.core.pace.wake();
    }

    fn bans(&self) -> Vec<(u64, f64, Vec<u8>)> {
        let mut bans: Vec<volume::Ban> =
            self.core.stations.iter().flat_map(|station| station.volume.bans()).collect();
        bans.sort_by_key(|ban| ban.0);
        bans.dedup_by_key(|ban| ban.0);
        bans.into_iter().map(|(number, time, text)| (number.into(), time, text)).collect()
    }

    fn drain(&self, place: usize, on: bool) -> bool {
        self.core.drain(place, on)
    }

    fn sync(&self) -> io::Result<()> {
        self.core.keep_bans().map_err(io::Error::other)?;
        self.core.stations.iter().try_for_each(|station| station.volume.sync())
    }

    fn report(&self) -> Report {
        let core = &self.core;
        let devices: Vec<DeviceReport> = core.stations.iter().map(Station::report).collect();
        Report {
            size: Some(devices.iter().map(|device| device.size).sum()),
            used: devices.iter().map(|device| device.used).sum(),
            objects: self.statistics().objects,
            entries: Some(devices.iter().map(|device| device.entries).sum()),
            health: self.health(),
            devices,
        }
    }

    fn close(&self) {
        self.core.ends.store(true, Ordering::Release);
        for station in &self.core.stations {
            station.writes.close();
            station.loads.close();
        }
        self.core.pace.wake();
        self.core.drains.ring();
        let threads = std::mem::take(&mut *self.threads.lock());
        if threads.is_empty() {
            return;
        }
        for thread in threads {
            let _ = thread.join();
        }
        // What was used in memory is noted with its entry when it leaves.
        self.core.memory.evict_all();
        let _ = self.core.keep_bans();
        for station in &self.core.stations {
            // What a device that fails does not take is lost, as in a crash.
            let _ = station.volume.close();
        }
    }
}
