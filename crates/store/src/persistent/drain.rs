//! Taking a device out of use while the engine runs: it takes no more records, and what is on it goes to others.
//!
//! ```text
//! a step: some records copied > the copies made durable > each handed over, and its old record ended > a rest as long
//! ```
//! Where they go: to a device of the same tier, else of the next slower one. While there is neither they stay where they
//! are, and can be read there. A thread of its own does so: a step waits for devices, and the journal must not.

use super::moving::{NotCopied, copy};
use super::{Core, Station};
use crate::entry::Entry;
use crate::volume::EntryId;
use parking_lot::{Condvar, Mutex};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The most records of one step.
const STEP_RECORDS: usize = 64;
/// Bytes of records after which a step copies no further.
const STEP_BYTES: u64 = 16 << 20;
/// Bytes of a unit of a record's size.
const UNIT: u64 = 512;
/// The shortest and the longest rest after a step: as long as it took, so that half of the time is left to others.
const REST: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(1));
/// The rest while no device is drained.
const SLEEP: Duration = Duration::from_secs(60);

/// Wakes the thread that drains.
#[derive(Debug, Default)]
pub(super) struct Bell {
    rung: Mutex<bool>,
    news: Condvar,
}

impl Bell {
    pub(super) fn ring(&self) {
        *self.rung.lock() = true;
        self.news.notify_all();
    }

    /// Waits until it is rung, but no longer than `limit`.
    fn wait(&self, limit: Duration) {
        let mut rung = self.rung.lock();
        if !*rung {
            self.news.wait_for(&mut rung, limit);
        }
        *rung = false;
    }
}

impl Core {
    /// See [`Engine::drain`](crate::Engine::drain).
    pub(super) fn drain(&self, place: usize, on: bool) -> bool {
        let Some(station) = self.stations.get(place) else { return false };
        station.draining.store(on, Ordering::Release);
        match on {
            true => station.volume.drain(),
            false => station.volume.undrain(),
        }
        self.drains.ring();
        true
    }
}

/// Does it until the engine ends.
pub(super) fn run(core: &Core) {
    // Where the next step goes on, of each device.
    let mut next = vec![EntryId(0); core.stations.len()];
    while !core.ends.load(Ordering::Acquire) {
        let began = Instant::now();
        let (mut drains, mut moved) = (false, 0);
        for (station, next) in core.stations.iter().zip(&mut next) {
            if station.draining.load(Ordering::Acquire) {
                drains = true;
                moved += step(core, station, next);
            }
        }
        core.drains.wait(match (drains, moved) {
            (false, _) => SLEEP,
            // What was being written when it began may still come.
            (true, 0) => REST.1,
            (true, _) => began.elapsed().clamp(REST.0, REST.1),
        });
    }
}

/// Moves some of the records of `station`, from `next` on; says how many have left it.
fn step(core: &Core, station: &Station, next: &mut EntryId) -> usize {
    let (mut copies, mut bytes, mut left) = (Vec::new(), 0, 0);
    while copies.len() < STEP_RECORDS && bytes < STEP_BYTES && !core.ends.load(Ordering::Acquire) {
        let target = core.choose(station.tier).filter(|target| target.number != station.number);
        let Some(target) = target else { break };
        let Some(slot) = station.volume.next_entry(*next) else {
            *next = EntryId(0);
            break;
        };
        *next = EntryId(slot.0 + 1);
        bytes += station.volume.facts(slot).map_or(0, |facts| u64::from(facts.size) * UNIT);
        match copy(station, slot, target) {
            Ok(new) => copies.push((slot, target, new)),
            // Its entry has ended.
            Err(NotCopied::Gone | NotCopied::Unreadable) => left += 1,
            Err(NotCopied::DoesNotFit) => {
                end(core, station, slot);
                left += 1;
            }
            // That device is not chosen again; the record's turn comes when all others had theirs.
            Err(NotCopied::Refused) => {}
        }
    }
    // The old ones go once the new ones would outlive a crash.
    let durable: Vec<u32> = core
        .stations
        .iter()
        .filter(|target| copies.iter().any(|(_, to, _)| to.number == target.number))
        .filter(|target| target.volume.flush_data().is_ok())
        .map(|target| target.number)
        .collect();
    for (slot, target, new) in copies {
        if !durable.contains(&target.number) {
            target.volume.remove(new);
        } else if core.hand_over(Entry::new(station.number, slot.0), target, new) {
            station.volume.remove(slot);
            left += 1;
        }
    }
    left
}

/// Ends what can be kept nowhere else.
fn end(core: &Core, station: &Station, slot: EntryId) {
    let Some(facts) = station.volume.facts(slot) else { return };
    let links = station.volume.links(slot).unwrap_or_default();
    core.evictions.entry_ended(Entry::new(station.number, slot.0), &facts, &links);
    station.volume.remove(slot);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::sim::{Fault, SimDevice};
    use crate::engine::{Engine as _, Evictions, Health};
    use crate::object::Object;
    use crate::persistent::{Admit, DeviceSpec, Pace, Persistent, Settings};
    use crate::volume::{Facts, NewRecord, Options};
    use std::collections::BTreeSet;
    use std::io;
    use std::sync::Arc;

    /// What entries there are.
    #[derive(Default)]
    struct Index(Mutex<BTreeSet<Entry>>);

    impl Evictions for Index {
        fn evicted(&self, _: &Arc<Object>) {}

        fn moved(&self, entry: Entry, new: Entry) -> bool {
            let mut entries = self.0.lock();
            entries.remove(&entry) && entries.insert(new)
        }

        fn entry_ended(&self, entry: Entry, _: &Facts, _: &[u8]) {
            self.0.lock().remove(&entry);
        }
    }

    struct Made {
        engine: Persistent,
        index: Arc<Index>,
        devices: Vec<Arc<SimDevice>>,
    }

    /// An engine with a device of 4 MiB in each of `tiers`, whose regions have these sizes.
    fn made(tiers: &[usize], region_sizes: &[u32]) -> Made {
        let index = Arc::new(Index::default());
        let devices: Vec<_> = tiers.iter().map(|_| Arc::new(SimDevice::new(4 << 20))).collect();
        let mut specs: Vec<Vec<DeviceSpec>> = Vec::new();
        for (number, tier) in tiers.iter().enumerate() {
            specs.resize_with(specs.len().max(tier + 1), Vec::new);
            specs[*tier].push(DeviceSpec {
                path: format!("{number}"),
                device: Arc::clone(&devices[number]) as _,
                options: Options { region_size: Some(region_sizes[number]), ..Options::default() },
            });
        }
        let settings = Settings {
            name: "s0".to_owned(),
            kind: "tier",
            memory: 1 << 20,
            policy: crate::Policy::default(),
            admit: Admit::All,
            tiers: specs,
            first_device: 3,
            pace: Arc::new(Pace::default()),
        };
        let engine = Persistent::open(settings, Arc::clone(&index) as _).expect("they are new");
        Made { engine, index, devices }
    }

    impl Made {
        fn put(&self, place: usize, key: u8, length: usize) {
            let station = &self.engine.core.stations[place];
            let body = vec![key; length];
            let record = NewRecord {
                key: [key; 32],
                facts: Facts { origin_time: 1.0, ttl: 2.0, status: 200, ..Facts::default() },
                vxid: 7,
                variant: b"v",
                head: b"head",
                plan: None,
                links: b"links",
                body: &[&body],
            };
            let slot = station.volume.write(&record).expect("there is room");
            self.index.0.lock().insert(Entry::new(station.number, slot.0));
        }

        /// Drains the device until a step moves nothing. The engine's own thread is not asked to.
        fn drain(&self, place: usize) {
            let core = &self.engine.core;
            core.stations[place].volume.drain();
            let mut next = EntryId(0);
            while step(core, &core.stations[place], &mut next) > 0 {}
        }

        fn entries(&self) -> Vec<u64> {
            self.engine.report().devices.iter().map(|device| device.entries).collect()
        }

        /// That the devices have so many entries, all of which the index knows, and can be read.
        fn check(&self, expected: &[u64]) {
            assert_eq!(self.entries(), expected);
            assert_eq!(self.index.0.lock().len() as u64, expected.iter().sum::<u64>());
            for entry in &*self.index.0.lock() {
                assert_eq!(self.engine.read_head(*entry).as_deref(), Some(&b"head"[..]), "{entry:?}");
                assert_eq!(self.engine.links(*entry), b"links");
                assert_eq!(self.engine.facts(*entry).map(|facts| facts.ttl), Some(2.0));
            }
        }
    }

    const REGION: u32 = 128 << 10;

    #[test]
    fn records_go_to_the_same_tier_else_to_the_next_slower_one_else_nowhere() {
        let made = made(&[0, 0, 1], &[REGION; 3]);
        (0..100).for_each(|key| made.put(0, key, 1000));
        made.drain(0);
        made.check(&[0, 100, 0]);
        assert_eq!(made.engine.health(), Health::Good);
        made.drain(1);
        made.check(&[0, 0, 100]);
        made.drain(2);
        made.check(&[0, 0, 100]);
        assert_eq!(made.engine.health(), Health::Draining);
        let words: Vec<_> = made.engine.report().devices.iter().map(|device| device.health.word()).collect();
        assert_eq!(words, ["drained", "drained", "draining"]);
    }

    #[test]
    fn what_fits_nowhere_ends_and_what_nobody_wants_is_not_moved() {
        let made = made(&[0, 1], &[2 * REGION, REGION / 2]);
        made.put(0, 1, 100);
        made.put(0, 2, 100_000);
        made.put(0, 3, 100);
        made.index.0.lock().pop_last();
        made.drain(0);
        assert_eq!(made.entries(), [1, 1]);
        assert_eq!(made.index.0.lock().len(), 1);
    }

    #[test]
    fn a_device_that_cannot_take_them_leaves_them_where_they_are() {
        let made = made(&[0, 0], &[REGION; 2]);
        (0..10).for_each(|key| made.put(0, key, 1000));
        made.devices[1].inject(Fault::Write { after: 0, kind: io::ErrorKind::StorageFull });
        made.drain(0);
        made.check(&[10, 0]);
    }

    #[test]
    fn only_devices_that_are_there_can_be_drained_and_taken_back() {
        let made = made(&[0, 1], &[REGION; 2]);
        assert!(made.engine.drain(1, true));
        assert!(!made.engine.drain(2, true));
        assert_eq!(made.engine.report().devices[1].health, Health::Drained);
        assert!(made.engine.drain(1, false));
        made.put(1, 1, 10);
        made.check(&[0, 1]);
    }
}
