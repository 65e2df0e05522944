//! Which segments of each generation are in the index, so that they go with their master.
//!
//! A family is there as long as one of its masters is in the index: there are two for a moment when a 304 has made a new one.
//! A segment comes in only while its family is there; the shard of the segment is locked then, so that whoever ends the
//! family afterwards finds it.

use super::layout::{Layout, segment_key, segment_number};
use crate::index::Key;
use copal_store as store;
use parking_lot::{Mutex, MutexGuard};
use std::collections::{HashMap, HashSet};
use store::{Flags, Object};

const SHARDS: usize = 64;

/// The second half of a segment's key.
type Name = [u8; 16];

/// Segments of one generation.
#[derive(Debug)]
struct Family {
    base: Key,
    masters: u32,
    segments: HashSet<u64>,
}

/// All families.
#[derive(Debug)]
pub(crate) struct Families {
    shards: Box<[Mutex<HashMap<Name, Family>>]>,
}

impl Default for Families {
    fn default() -> Self {
        Self { shards: (0..SHARDS).map(|_| Mutex::default()).collect() }
    }
}

/// Whether `object` is a segment.
pub(crate) fn is_segment(object: &Object) -> bool {
    object.flags().has(Flags::SPARSE) && object.status() == 206
}

fn name(key: &Key) -> Name {
    let mut name = [0; 16];
    name.copy_from_slice(&key[16..]);
    name
}

fn base_of(master: &Object) -> Option<Key> {
    Layout::of_bytes(master.plan()?).map(|layout| layout.base(master.key()))
}

impl Families {
    fn shard(&self, name: &Name) -> MutexGuard<'_, HashMap<Name, Family>> {
        self.shards[usize::from(name[0]) % SHARDS].lock()
    }

    /// A sparse object comes into the index, and its shard there is locked. False if it must not: its family has ended, or
    /// it is no master.
    pub(crate) fn enter(&self, object: &Object) -> bool {
        if is_segment(object) {
            let name = name(object.key());
            let mut shard = self.shard(&name);
            let Some(family) = shard.get_mut(&name) else { return false };
            let number = segment_number(&family.base, object.key());
            family.segments.insert(number);
            return true;
        }
        let Some(base) = base_of(object) else { return false };
        let name = name(&base);
        let mut shard = self.shard(&name);
        let family =
            shard.entry(name).or_insert_with(|| Family { base, masters: 0, segments: HashSet::new() });
        family.masters = family.masters.saturating_add(1);
        true
    }

    /// A sparse object went out. The keys of those that go with it.
    pub(crate) fn leave(&self, object: &Object) -> Vec<Key> {
        if is_segment(object) {
            let name = name(object.key());
            let mut shard = self.shard(&name);
            if let Some(family) = shard.get_mut(&name) {
                let number = segment_number(&family.base, object.key());
                family.segments.remove(&number);
            }
            return Vec::new();
        }
        let Some(base) = base_of(object) else { return Vec::new() };
        let name = name(&base);
        let mut shard = self.shard(&name);
        let Some(family) = shard.get_mut(&name) else { return Vec::new() };
        family.masters = family.masters.saturating_sub(1);
        if family.masters > 0 {
            return Vec::new();
        }
        let ended = shard.remove(&name);
        drop(shard);
        ended.map_or_else(Vec::new, |family| {
            family.segments.iter().map(|number| segment_key(&family.base, *number)).collect()
        })
    }
}
