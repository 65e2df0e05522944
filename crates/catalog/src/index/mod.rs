//! The index: from a request's digest to the objects under it.
//!
//! Shards by the digest's first bytes, each behind its own lock. A key with a single stored object, the common case,
//! costs one pointer in a table; a key with several variants, a running fetch or waiting requests has a `Head`.
//!
//! ```text
//! lookup > hit | stale (grace) | hit-for-pass | hit-for-miss | miss (busy is ours) | wait (somebody's is running)
//! busy   > insert (object joins its variants, waiters wake) | drop (failed: one waiter wakes and fetches)
//! ```
//!
//! The links of an object (its place among the bans, its surrogate keys) are made when it comes in and removed when it goes
//! out, whatever brings or ends it.

pub mod busy;
pub mod cold;
pub mod confirmation;
mod head;
pub mod hot;
pub mod lookup;
#[cfg(test)]
mod moved;
pub mod purge;
pub mod tags;
#[cfg(test)]
mod tests;

use crate::ban::Bans;
use crate::sparse::family::{Families, base_of, is_segment};
use cold::{Cold, Engines};
use head::Head;
use parking_lot::{Mutex, MutexGuard};
use std::borrow::Borrow;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use store::{Entry, Facts, Flags, Object};
use tags::Tags;

use copal_store as store;

/// A request's digest: SHA-256 of what `hash_data` was given.
pub type Key = [u8; 32];

const SHARDS: usize = 1024;

/// All objects by key.
#[derive(Debug)]
pub struct Index {
    shards: Box<[Mutex<Shard>]>,
    /// Moves whenever an object is unlinked, so that hot tables know to look for dead entries.
    deaths: AtomicU64,
    /// Objects that came in, and those that went out again; segments aside.
    moves: AtomicU64,
    /// The bans that objects here were tested against.
    bans: Arc<Bans>,
    /// Objects by their surrogate keys.
    pub tags: Tags,
    /// The segments of objects that are kept in pieces.
    families: Families,
    /// Engines that have entries.
    engines: OnceLock<Engines>,
}

/// The result of [`Index::pick_unless_busy`].
pub(crate) enum Picked {
    /// Objects and cold entries that are wanted, and how many there are of both.
    Wanted(Vec<Arc<Object>>, Vec<(Entry, Facts)>, usize),
    /// Another thread has locked the shard.
    Busy,
    /// There is no such shard.
    End,
}

/// A part of the index.
#[derive(Debug, Default)]
pub(crate) struct Shard {
    /// Keys with exactly one object and nothing else.
    single: HashSet<ByKey, BuildHasherDefault<DigestHasher>>,
    /// All other keys.
    pub(crate) heads: HashMap<HeadKey, Box<Head>, BuildHasherDefault<DigestHasher>>,
    /// Entries on devices whose objects are not resident.
    cold: Cold,
}

/// The key of a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HeadKey(Key);

/// The first half of a key, which is what an entry keeps: nobody can make two keys that share it.
type Half = [u8; 16];

fn half(key: &Key) -> &Half {
    key.first_chunk().expect("a key is longer than its half")
}

impl Hash for HeadKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl Borrow<Key> for HeadKey {
    fn borrow(&self) -> &Key {
        &self.0
    }
}

impl Borrow<Half> for HeadKey {
    fn borrow(&self) -> &Half {
        half(&self.0)
    }
}

/// An object found by its own key.
#[derive(Debug, Clone)]
pub(crate) struct ByKey(pub(crate) Arc<Object>);

impl Borrow<Key> for ByKey {
    fn borrow(&self) -> &Key {
        self.0.key()
    }
}

impl Borrow<Half> for ByKey {
    fn borrow(&self) -> &Half {
        half(self.0.key())
    }
}

impl Hash for ByKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.key().hash(state);
    }
}

impl PartialEq for ByKey {
    fn eq(&self, other: &Self) -> bool {
        self.0.key() == other.0.key()
    }
}

impl Eq for ByKey {}

/// A digest is uniform already: its bytes are the hash.
#[derive(Debug, Default)]
pub(crate) struct DigestHasher(u64);

impl Hasher for DigestHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        // The shard took the first two bytes; these are the eight after.
        if let Some(part) = bytes.get(8..16) {
            self.0 = u64::from_le_bytes(part.try_into().expect("eight bytes"));
        }
    }

    fn write_usize(&mut self, _length: usize) {
        // The length prefix of a slice: the same for every key.
    }
}

impl Default for Index {
    fn default() -> Self {
        Self::new(Arc::default(), Tags::default())
    }
}

impl Index {
    /// An empty index whose objects are tested against `bans`, and found by surrogate keys through `tags`.
    pub fn new(bans: Arc<Bans>, tags: Tags) -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Self {
            shards,
            deaths: AtomicU64::new(0),
            moves: AtomicU64::new(0),
            bans,
            tags,
            families: Families::default(),
            engines: OnceLock::new(),
        }
    }

    /// Links an object that comes in; its shard is locked. False if it must not come in.
    fn enter(&self, object: &Arc<Object>) -> bool {
        let is_sparse = object.flags().has(Flags::SPARSE);
        if is_sparse && is_segment(object) {
            // Bans and surrogate keys end its master, and the segments with it.
            return self.families.enter(object);
        }
        if !self.bans.admit(object) {
            return false;
        }
        let found = !object.flags().has(Flags::TAGGED) || self.tags.enter(object);
        if found && is_sparse && !self.families.enter(object) {
            self.tags_leave(object);
            self.bans.leave(object);
            return false;
        }
        if found {
            self.moves.fetch_add(1, Ordering::Relaxed);
        } else {
            self.bans.leave(object);
        }
        found
    }

    /// The bans that objects here are tested against.
    pub fn bans(&self) -> &Bans {
        &self.bans
    }

    fn tags_leave(&self, object: &Arc<Object>) {
        if object.flags().has(Flags::TAGGED) {
            self.tags.leave(object);
        }
    }

    /// An object went out, which happens once to each that came in; `entry` was taken from it then. No shard is locked: what
    /// goes with it is taken out here.
    fn leave(&self, object: &Arc<Object>, entry: Option<Entry>) {
        if let Some(entry) = entry {
            return self.leave_written(object, entry);
        }
        self.deaths.fetch_add(1, Ordering::Relaxed);
        let is_sparse = object.flags().has(Flags::SPARSE);
        if is_sparse && is_segment(object) {
            self.families.leave_segment(object.key());
            return;
        }
        self.moves.fetch_add(1, Ordering::Relaxed);
        self.bans.leave(object);
        self.tags_leave(object);
        if is_sparse && let Some(base) = base_of(object) {
            self.end_family(&base);
        }
    }

    fn shard_of(&self, key: &Half) -> MutexGuard<'_, Shard> {
        self.shards[usize::from(u16::from_le_bytes([key[0], key[1]])) % SHARDS].lock()
    }

    pub(crate) fn shard(&self, key: &Key) -> MutexGuard<'_, Shard> {
        self.shards[usize::from(u16::from_le_bytes([key[0], key[1]])) % SHARDS].lock()
    }

    /// How often an object was unlinked: unchanged means that no hot entry has died.
    #[inline]
    pub fn deaths(&self) -> u64 {
        self.deaths.load(Ordering::Relaxed)
    }

    /// How many objects came in, and went out again, since the start: each counts twice in its life. Segments do not.
    pub fn moves(&self) -> u64 {
        self.moves.load(Ordering::Relaxed)
    }

    /// Keys in the index.
    pub fn key_count(&self) -> u64 {
        self.shards
            .iter()
            .map(|shard| {
                let shard = shard.lock();
                (shard.single.len() + shard.heads.len() + shard.cold.len()) as u64
            })
            .sum()
    }

    /// Takes `object` out: it is purged, banned, expired or replaced; its entry ends with it. False if another did so before,
    /// or it was evicted.
    pub fn unlink(&self, object: &Arc<Object>) -> bool {
        let first = object.unlink();
        let (removed, entry) = {
            let mut shard = self.shard(object.key());
            let resident = shard.remove(object);
            // Evicted just now, its entry may stand for it already.
            let entry = object.entry();
            let was_in =
                resident.is_some() || entry.is_some_and(|entry| shard.cold.remove(entry, object.key()));
            (was_in.then_some(resident), if was_in { object.take_entry() } else { None })
        };
        // After the lock: it may be the last reference, and freeing takes time.
        if removed.is_some() {
            self.leave(object, entry);
        }
        first
    }

    /// Takes an object that was evicted out of its shard. If it has an entry, that stands in its place.
    fn forget_evicted(&self, object: &Arc<Object>) {
        let (removed, entry) = {
            let mut shard = self.shard(object.key());
            let removed = shard.remove(object);
            let entry = object.entry().filter(|_| removed.is_some());
            if let Some(entry) = entry {
                Self::cool(&mut shard, object, entry);
            }
            (removed, entry)
        };
        match (removed, entry) {
            (Some(object), None) => self.leave(&object, None),
            (Some(_), Some(_)) => drop(self.deaths.fetch_add(1, Ordering::Relaxed)),
            (None, _) => {}
        }
    }

    /// The objects under `key`.
    pub fn objects(&self, key: &Key) -> Vec<Arc<Object>> {
        self.shard(key).objects(key)
    }

    /// The `most` newest objects under `key`, the newest first.
    pub fn newest(&self, key: &Key, most: usize) -> Vec<Arc<Object>> {
        self.shard(key).variants(key).iter().rev().take(most).cloned().collect()
    }

    /// Shows every object of shard `number` to `wanted` and returns those it wants, and how many there are; `None` beyond
    /// the last shard. Objects are only looked at: counting a reference on each would take its memory away from the
    /// cores that serve it.
    pub fn pick(
        &self,
        number: usize,
        mut wanted: impl FnMut(&Object) -> bool,
    ) -> Option<(Vec<Arc<Object>>, usize)> {
        Some(self.shards.get(number)?.lock().pick(&mut wanted))
    }

    /// As [`Index::pick`], but gives way to others, and shows cold entries, too, segments aside: all by the ban up to which
    /// they were tested.
    pub(crate) fn pick_unless_busy(&self, number: usize, wanted: impl Fn(u64) -> bool) -> Picked {
        let Some(shard) = self.shards.get(number) else { return Picked::End };
        let Some(shard) = shard.try_lock() else { return Picked::Busy };
        let (objects, count) = shard.pick(&mut |object| wanted(object.ban()));
        // Under the same lock, so that objects that are loaded or evicted meanwhile are not missed.
        let entries = if self.has_devices() { shard.pick_cold(self.engines(), wanted) } else { Vec::new() };
        let count = count + shard.count_cold();
        Picked::Wanted(objects, entries, count)
    }

    /// Does `act` while nobody can take `object` out; false if it is out already.
    pub(crate) fn while_linked(&self, object: &Arc<Object>, act: impl FnOnce()) -> bool {
        let shard = self.shard(object.key());
        let linked = shard.has(object);
        if linked {
            act();
        }
        linked
    }
}

impl Shard {
    fn pick(&self, wanted: &mut dyn FnMut(&Object) -> bool) -> (Vec<Arc<Object>>, usize) {
        // The walks over a small index meet little else.
        if self.single.is_empty() && self.heads.is_empty() {
            return (Vec::new(), 0);
        }
        let single = self.single.iter().map(|entry| &entry.0);
        let variants = self.heads.values().flat_map(|head| head.variants.iter());
        let mut count = 0;
        let picked = single
            .chain(variants)
            .filter(|object| {
                count += 1;
                wanted(object)
            })
            .cloned()
            .collect();
        (picked, count)
    }

    fn has(&self, object: &Arc<Object>) -> bool {
        let mut single = self.single.get(object.key()).into_iter().map(|entry| &entry.0);
        let mut variants = self.heads.get(object.key()).into_iter().flat_map(|head| head.variants.iter());
        single.any(|other| Arc::ptr_eq(other, object)) || variants.any(|other| Arc::ptr_eq(other, object))
    }

    /// The resident objects under `key`, the newest last.
    pub(crate) fn variants(&self, key: &Key) -> &[Arc<Object>] {
        let single = self.single.get(key).map(|entry| std::slice::from_ref(&entry.0));
        single.or_else(|| self.heads.get(key).map(|head| head.variants.as_slice())).unwrap_or_default()
    }

    fn objects(&self, key: &Key) -> Vec<Arc<Object>> {
        self.variants(key).to_vec()
    }

    /// How many requests wait under `key`.
    pub(crate) fn waiter_count(&self, key: &Key) -> usize {
        self.heads.get(key).map_or(0, |head| head.waiters.len())
    }

    /// The object of `entry`, whose key begins with `half`.
    fn resident(&self, entry: Entry, half: &Half) -> Option<Arc<Object>> {
        let single = self.single.get(half).into_iter().map(|found| &found.0);
        let variants = self.heads.get(half).into_iter().flat_map(|head| head.variants.iter());
        single.chain(variants).find(|object| object.entry() == Some(entry)).cloned()
    }

    /// Adds the object of an entry, which has become resident.
    fn take_in(&mut self, object: Arc<Object>) {
        let key = *object.key();
        if !self.heads.contains_key(&key) && !self.single.contains(&key) {
            self.single.insert(ByKey(object));
            return;
        }
        let head = self.head(&key);
        // The newest last.
        let place = head.variants.partition_point(|other| other.origin_time() <= object.origin_time());
        head.variants.insert(place, object);
        // Only a comparison of all of them tells which one answers a request.
        head.variants.iter().for_each(|object| object.mark_superseded());
        self.simplify(&key);
    }

    /// Takes `object` out; the returned references are to be dropped after the lock.
    fn remove(&mut self, object: &Arc<Object>) -> Option<Arc<Object>> {
        if self.single.get(object.key()).is_some_and(|entry| Arc::ptr_eq(&entry.0, object)) {
            return self.single.take(object.key()).map(|entry| entry.0);
        }
        let head = self.heads.get_mut(object.key())?;
        let index = head.variants.iter().position(|variant| Arc::ptr_eq(variant, object))?;
        // The others keep their order: of several that fit, the newest is to be found.
        let removed = head.variants.remove(index);
        self.simplify(object.key());
        Some(removed)
    }

    /// The head of `key`, made from the single object if there is one, or new.
    pub(crate) fn head(&mut self, key: &Key) -> &mut Head {
        let single = self.single.take(key);
        let head = self.heads.entry(HeadKey(*key)).or_default();
        head.variants.extend(single.map(|entry| entry.0));
        head
    }

    /// Turns a head that is no longer needed into a single entry, or drops it.
    pub(crate) fn simplify(&mut self, key: &Key) {
        let Some(head) = self.heads.get(key) else { return };
        if !head.busy.is_empty() || head.variants.len() > 1 {
            return;
        }
        let head = self.heads.remove(key).expect("looked up above");
        head.wake_all();
        if let Some(object) = head.variants.into_iter().next() {
            self.single.insert(ByKey(object));
        }
    }
}
