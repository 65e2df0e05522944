//! From an entry to a resident object, on the threads that read from its device.
//!
//! A load is a fill whose origin is the device: the object is shown as soon as its head and its first bytes are verified, and
//! readers follow while the rest comes. A block that is damaged fails the fill before any of its bytes is seen.

use super::queue::{Queue, Taken};
use super::{Core, Station};
use crate::engine::{Creation, Engine as _, Full, Loaded, NotLoaded};
use crate::entry::Entry;
use crate::fill::Fill;
use crate::object::{Attributes, Flags};
use crate::volume::{EntryId, ReadError, RecordReader};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How much of a record is read with its head: small objects come with one call.
const FIRST_READ: usize = 256 << 10;

/// How often a reading thread looks whether it is to end.
const REST: Duration = Duration::from_secs(60);

/// The life of what has none of its own, in seconds since 1970: a segment's is its master's. In about 3,000 years.
const SEGMENT_TTL: f64 = 1e11;

/// Loads that wait for a thread.
#[derive(Default)]
pub(super) struct Loads(Queue<(EntryId, Loaded)>);

impl Loads {
    pub(super) fn push(&self, slot: EntryId, loaded: Loaded) {
        if let Some((_, loaded)) = self.0.push((slot, loaded)) {
            loaded(Err(NotLoaded::Unreadable));
        }
    }

    pub(super) fn close(&self) {
        self.0.close();
    }
}

/// Serves the loads of one device until the engine ends.
pub(super) fn run(core: &Core, index: usize) {
    let station = &core.stations[index];
    loop {
        match station.loads.0.take(REST) {
            Taken::One((_, loaded)) if core.ends.load(Ordering::Acquire) => {
                loaded(Err(NotLoaded::Unreadable));
            }
            Taken::One((slot, loaded)) => load(core, station, slot, loaded),
            Taken::Nothing => {}
            Taken::Closed => return,
        }
    }
}

impl From<ReadError> for NotLoaded {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Gone => Self::Gone,
            ReadError::Damaged => Self::Damaged,
            ReadError::Io(_) => Self::Unreadable,
        }
    }
}

impl From<Full> for NotLoaded {
    fn from(Full: Full) -> Self {
        Self::Full
    }
}

fn load(core: &Core, station: &Station, slot: EntryId, loaded: Loaded) {
    let (mut fill, mut reader) = match begin(core, station, slot) {
        Ok(begun) => begun,
        Err(why) => return loaded(Err(why)),
    };
    let object = Arc::clone(fill.object());
    // The first bytes are verified before anybody sees the object: a client that has got nothing yet can be given another. A
    // body that came with the head is verified whole, and so is one with a plan, which is seen only then.
    if reader.plan().is_some() || reader.body_length() <= FIRST_READ as u64 {
        if let Err(why) = read_rest(fill, &mut reader) {
            return loaded(Err(why));
        }
        loaded(Ok(Arc::clone(&object)));
    } else {
        if let Err(why) = read_some(&mut fill, &mut reader) {
            return loaded(Err(why));
        }
        loaded(Ok(Arc::clone(&object)));
        if read_rest(fill, &mut reader).is_err() {
            // Its readers are cut off.
            return;
        }
    }
    if core.promotes(&object, station) {
        core.write_soon(&object, core.choose(station.tier - 1));
    }
}

/// Reads what is left of the body, and ends the fill.
fn read_rest(mut fill: Fill, reader: &mut RecordReader) -> Result<(), NotLoaded> {
    loop {
        match read_some(&mut fill, reader) {
            Ok(0) => {
                fill.commit();
                return Ok(());
            }
            Ok(_) => {}
            Err(why) => {
                if matches!(why, NotLoaded::Damaged | NotLoaded::Unreadable) {
                    fill.damage();
                }
                // Else dropping it cuts its readers off.
                return Err(why);
            }
        }
    }
}

/// Reads and verifies the record's head, and makes room in memory.
fn begin(core: &Core, station: &Station, slot: EntryId) -> Result<(Fill, RecordReader), NotLoaded> {
    let reader = station.volume.open_record(slot, FIRST_READ)?;
    let facts = station.volume.facts(slot).ok_or(NotLoaded::Gone)?;
    let head = core.evictions.unpack_head(reader.head()).ok_or(NotLoaded::Damaged)?;
    let is_segment = facts.key_tail().is_some();
    let (origin_time, ttl, grace, keep) = match is_segment {
        true => (0.0, SEGMENT_TTL, 0.0, 0.0),
        false => (facts.origin_time, facts.ttl.into(), facts.grace.into(), facts.keep.into()),
    };
    let attributes = Attributes {
        origin_time,
        ttl,
        grace,
        keep,
        status: facts.status,
        flags: Flags(facts.flags),
        ban: facts.ban.into(),
        vxid: reader.vxid(),
    };
    let creation = Creation {
        key: *reader.key(),
        attributes,
        variant: reader.variant(),
        head: &head,
        length: Some(reader.body_length()),
    };
    let mut fill = core.memory.begin(&creation)?;
    fill.object().restore_use(facts.hits.into(), facts.last_use);
    fill.object().set_entry(Entry::new(station.number, slot.0));
    if let Some(plan) = reader.plan() {
        fill.set_plan(plan.into())?;
    }
    // All of it before it is shown: who would have to be cut off in the middle can still be given another now.
    fill.reserve_all()?;
    Ok((fill, reader))
}

/// Reads into the room that there is; 0 at the body's end.
fn read_some(fill: &mut Fill, reader: &mut RecordReader) -> Result<usize, NotLoaded> {
    let room = fill.room()?;
    if room.is_empty() {
        return Ok(0);
    }
    let count = reader.next(room)?;
    fill.advance(count);
    Ok(count)
}
