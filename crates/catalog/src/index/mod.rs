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
//! What hangs on an object's stay here (its place among the bans, its surrogate keys) is taken up when it comes in and
//! given up when it goes out, whatever brings or ends it.

pub mod busy;
mod head;
pub mod hot;
pub mod insist;
pub mod lookup;
pub mod purge;
pub mod tags;
#[cfg(test)]
mod tests;

use crate::ban::Bans;
use crate::sparse::family::{Families, is_segment};
use head::Head;
use parking_lot::{Mutex, MutexGuard};
use std::borrow::Borrow;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use store::{Evictions, Flags, Object};
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
}

/// What [`Index::pick_unless_busy`] found.
pub(crate) enum Picked {
    /// Objects that are wanted, and how many there are.
    Objects(Vec<Arc<Object>>, usize),
    /// Somebody else has the shard.
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
    pub(crate) heads: HashMap<Key, Box<Head>, BuildHasherDefault<DigestHasher>>,
}

/// An object found by its own key.
#[derive(Debug, Clone)]
pub(crate) struct ByKey(pub(crate) Arc<Object>);

impl Borrow<Key> for ByKey {
    fn borrow(&self) -> &Key {
        self.0.key()
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
        }
    }

    /// An object comes in; its shard is locked. False if it must not.
    fn enter(&self, object: &Arc<Object>) -> bool {
        let is_sparse = object.flags().has(Flags::SPARSE);
        if is_sparse && is_segment(object) {
            // What bans and surrogate keys end is its master.
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

    /// An object went out, which happens once to each that came in. No shard is locked: what goes with it is taken out
    /// here.
    fn leave(&self, object: &Arc<Object>) {
        self.deaths.fetch_add(1, Ordering::Relaxed);
        let is_sparse = object.flags().has(Flags::SPARSE);
        if is_sparse && is_segment(object) {
            self.families.leave(object);
            return;
        }
        self.moves.fetch_add(1, Ordering::Relaxed);
        self.bans.leave(object);
        self.tags_leave(object);
        if is_sparse {
            let orphans = self.families.leave(object);
            orphans.iter().flat_map(|key| self.objects(key)).for_each(|segment| {
                self.unlink(&segment);
            });
        }
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
                (shard.single.len() + shard.heads.len()) as u64
            })
            .sum()
    }

    /// Takes `object` out: it is purged, banned, expired or replaced. False if another did so before.
    pub fn unlink(&self, object: &Arc<Object>) -> bool {
        let first = object.unlink();
        self.forget(object);
        first
    }

    /// Takes an object that is gone out of its shard.
    fn forget(&self, object: &Arc<Object>) {
        let removed = self.shard(object.key()).remove(object);
        // After the lock: it may be the last reference, and freeing takes time.
        if let Some(object) = removed {
            self.leave(&object);
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

    /// As [`Index::pick`], but gives way to others.
    pub(crate) fn pick_unless_busy(&self, number: usize, mut wanted: impl FnMut(&Object) -> bool) -> Picked {
        let Some(shard) = self.shards.get(number) else { return Picked::End };
        let Some(shard) = shard.try_lock() else { return Picked::Busy };
        let (objects, count) = shard.pick(&mut wanted);
        Picked::Objects(objects, count)
    }

    /// Does `act` while nobody can take `object` out, unless it is out already.
    pub(crate) fn while_linked(&self, object: &Arc<Object>, act: impl FnOnce()) {
        let shard = self.shard(object.key());
        if shard.has(object) {
            act();
        }
    }
}

impl Evictions for Index {
    fn evicted(&self, object: &Arc<Object>) {
        self.forget(object);
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

    /// What stands under `key`, the newest last.
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
        let head = self.heads.entry(*key).or_default();
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
