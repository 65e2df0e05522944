//! From a resident object to a record, on the one thread that writes to its device.

use super::queue::Taken;
use super::{Core, Station};
use crate::cursor;
use crate::entry::Entry;
use crate::object::{Object, State};
use crate::volume::{Facts, Health, NewRecord};
use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How often a writing thread looks whether it is to end.
const REST: Duration = Duration::from_secs(60);

/// How long a record may be collected with others before the device gets it: what a kill of the process loses.
const COLLECT: Duration = Duration::from_secs(1);

/// Writes what is given to one device until the engine ends, and then what is left.
pub(super) fn run(core: &Core, index: usize) {
    let station = &core.stations[index];
    // Since when something is collected, at the earliest.
    let mut collected: Option<Instant> = None;
    loop {
        let rest = collected.map_or(REST, |since| COLLECT.saturating_sub(since.elapsed()));
        if collected.is_some() && rest.is_zero() {
            // A volume that fails says so by its health.
            let _ = station.volume.write_collected();
            collected = None;
            continue;
        }
        match station.writes.take(rest) {
            Taken::One(object) => {
                let bytes = object.filled();
                // It may have been taken out of use since the object was given to it.
                let target = match station.volume.health() {
                    Health::Good => station,
                    Health::Draining | Health::Failed => core.choose(station.tier).unwrap_or(station),
                };
                match write(core, target, &object) {
                    true => collected = collected.or_else(|| Some(Instant::now())),
                    false => _ = core.unkept.fetch_add(1, Ordering::Relaxed),
                }
                drop(object);
                station.unwritten.fetch_sub(bytes, Ordering::Relaxed);
                core.wake_fills();
            }
            Taken::Nothing => {}
            Taken::Closed => return,
        }
    }
}

/// Appends the record of `object`; false if there is none now.
fn write(core: &Core, station: &Station, object: &Arc<Object>) -> bool {
    if object.is_gone() || object.state() != State::Stored || object.is_windowed() {
        return false;
    }
    if !is_linked(core, object) {
        return false;
    }
    let links = core.evictions.links(object);
    let head = core.evictions.pack_head(object);
    let mut slices = Vec::new();
    cursor::stored_slices(object, 0, u64::MAX, usize::MAX, &mut slices);
    let body: Vec<&[u8]> = slices.iter().map(|slice: &IoSlice<'_>| &**slice).collect();
    let record = NewRecord {
        key: *object.key(),
        facts: facts_of(core, object),
        vxid: object.vxid(),
        variant: object.variant(),
        head: &head,
        plan: object.plan(),
        links: &links,
        body: &body,
    };
    let Ok(slot) = station.volume.write(&record) else { return false };
    let before = object.entry();
    if !core.evictions.written(object, Entry::new(station.number, slot.0)) {
        station.volume.remove(slot);
        return false;
    }
    if let Some((other, old)) = before.and_then(|entry| core.station(entry)) {
        // It has moved to another device.
        other.volume.remove(old);
    }
    true
}

/// Waits for an object that was complete before it was shown (`do_stream` off, ESI) to be put into the index: its fetch does
/// so next. One that is not by then was given up.
fn is_linked(core: &Core, object: &Arc<Object>) -> bool {
    for _ in 0..LINK_TRIES {
        if core.evictions.is_linked(object) || object.is_gone() {
            return !object.is_gone();
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    false
}

/// How often it is looked whether an object has been put into the index, a millisecond apart.
const LINK_TRIES: usize = 100;

/// What an entry says of `object`.
fn facts_of(core: &Core, object: &Object) -> Facts {
    Facts {
        origin_time: object.origin_time(),
        ttl: object.ttl() as f32,
        grace: object.grace() as f32,
        keep: object.keep() as f32,
        ban: u32::try_from(object.ban()).unwrap_or(u32::MAX),
        last_use: object.last_use(),
        hits: u16::try_from(object.hits()).unwrap_or(u16::MAX),
        status: object.status(),
        flags: object.flags().0,
        variant: core.evictions.variant_hash(object.variant()),
        ..Facts::default()
    }
}
