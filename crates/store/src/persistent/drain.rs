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
