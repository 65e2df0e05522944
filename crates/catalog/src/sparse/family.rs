//! Which segments of each generation are in the index, so that they go with their master.
//!
//! A family is there as long as one of its masters is in the index: there are two for a moment when a 304 has made a new one.
//! A segment comes in only while its family is there; the shard of the segment is locked then, so that whoever ends the
//! family afterwards finds it.

use super::layout::{Pieces, segment_key, segment_number};
use crate::index::Key;
use copal_store as store;
use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use store::{Flags, Object};

const SHARDS: usize = 64;

/// The second half of a segment's key.
type Name = [u8; 16];

/// Segments of one generation.
#[derive(Debug)]
struct Family {
    base: Key,
    masters: u32,
    /// Their numbers, and how many objects there are of each: one that takes another's place comes before that has left.
    segments: HashMap<u64, u32>,
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

pub(crate) fn base_of(master: &Object) -> Option<Key> {
    Pieces::of(master).map(|pieces| pieces.base)
}

impl Families {
    fn shard(&self, name: &Name) -> MutexGuard<'_, HashMap<Name, Family>> {
        self.shards[usize::from(name[0]) % SHARDS].lock()
    }

    /// A sparse object comes into the index, and its shard there is locked. False if it must not: its family has ended, or
    /// it is no master.
    pub(crate) fn enter(&self, object: &Object) -> bool {
        match is_segment(object) {
            true => self.enter_segment(object.key()),
            false => base_of(object).is_some_and(|base| {
                self.enter_master(&base);
                true
            }),
        }
    }

    /// A segment comes in. False if its family has ended.
    pub(crate) fn enter_segment(&self, key: &Key) -> bool {
        let name = name(key);
        let mut shard = self.shard(&name);
        let Some(family) = shard.get_mut(&name) else { return false };
        let number = segment_number(&family.base, key);
        *family.segments.entry(number).or_default() += 1;
        true
    }

    /// A master of the segments under `base` comes in.
    pub(crate) fn enter_master(&self, base: &Key) {
        let name = name(base);
        let mut shard = self.shard(&name);
        let family =
            shard.entry(name).or_insert_with(|| Family { base: *base, masters: 0, segments: HashMap::new() });
        family.masters = family.masters.saturating_add(1);
    }

    /// A segment went out.
    pub(crate) fn leave_segment(&self, key: &Key) {
        let name = name(key);
        let mut shard = self.shard(&name);
        if let Some(family) = shard.get_mut(&name) {
            let number = segment_number(&family.base, key);
            if let Entry::Occupied(mut count) = family.segments.entry(number) {
                *count.get_mut() -= 1;
                if *count.get() == 0 {
                    count.remove();
                }
            }
        }
    }

    /// A master of the segments under `base` went out. The keys of those that go with it.
    pub(crate) fn leave_master(&self, base: &Key) -> Vec<Key> {
        let name = name(base);
        let mut shard = self.shard(&name);
        let Some(family) = shard.get_mut(&name) else { return Vec::new() };
        family.masters = family.masters.saturating_sub(1);
        if family.masters > 0 {
            return Vec::new();
        }
        let ended = shard.remove(&name);
        drop(shard);
        ended.map_or_else(Vec::new, |family| {
            family.segments.keys().map(|number| segment_key(&family.base, *number)).collect()
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::index::busy::Busy;
    use crate::index::{Index, Key};
    use crate::sparse::claim::{Claim, TTL, claim, is_there};
    use crate::sparse::layout::{Layout, Pieces, Validator, segment_key};
    use copal_store as store;
    use std::sync::Arc;
    use std::task::Waker;
    use store::{Attributes, Creation, Engine, Flags, Memory, Object};

    struct Bench {
        index: Arc<Index>,
        store: Memory,
    }

    const KEY: Key = [5; 32];

    impl Bench {
        fn new(size: Option<u64>) -> Self {
            let index = Arc::new(Index::default());
            let store = Memory::new("s0", size, Arc::clone(&index) as Arc<dyn store::Evictions>);
            Self { index, store }
        }

        fn object(&self, key: Key, status: u16, layout: Option<Box<[u8]>>, body: &[u8]) -> Arc<Object> {
            let attributes = Attributes {
                origin_time: 100.0,
                ttl: TTL,
                grace: 0.0,
                keep: 0.0,
                status,
                flags: Flags(Flags::SPARSE),
                ban: 0,
                vxid: 1,
            };
            let creation =
                Creation { key, attributes, variant: b"", head: b"", length: Some(body.len() as u64) };
            let mut fill = self.store.begin(&creation).expect("there is room");
            fill.append(body).expect("there is room");
            if let Some(layout) = layout {
                fill.set_plan(layout).expect("there is room");
            }
            let object = Arc::clone(fill.object());
            fill.commit();
            object
        }

        fn mine(&self, base: &Key, number: u64) -> Option<Busy> {
            match claim(&self.index, base, number, 100.0, None, &Arc::default(), false) {
                Claim::Mine(busy) => Some(busy),
                Claim::Present(_) | Claim::Loading | Claim::Busy => None,
            }
        }

        /// Puts a master in, by the way of any object.
        fn master(&self, generation: u8) -> (Arc<Object>, Key) {
            let validator = Validator::Tag(b"\"v\"".as_slice().into());
            let layout =
                Layout { total: 1000, segment: 100, generation: [generation; 16], stays: false, validator };
            let master = self.object(KEY, 200, Some(layout.to_bytes()), b"");
            let base = Pieces::of(&master).expect("it has a layout").base;
            // No segment, but a place under the key as any.
            match claim_key(&self.index, KEY) {
                Claim::Mine(busy) => busy.insert(Arc::clone(&master)),
                other => panic!("{other:?}"),
            }
            (master, base)
        }

        fn segment(&self, base: &Key, number: u64) -> Arc<Object> {
            let busy = self.mine(base, number).expect("nobody has it");
            let object = self.object(segment_key(base, number), 206, None, &[7; 100]);
            busy.insert(Arc::clone(&object));
            object
        }
    }

    /// The right to fetch what is under `key` itself, whatever is there.
    fn claim_key(index: &Arc<Index>, key: Key) -> Claim {
        use crate::index::lookup::{Found, Query};
        let query = Query { always_miss: true, ignore_busy: true, ..Query::plain(key, 100.0) };
        match index.lookup(&query, None) {
            Found::Miss(busy, ..) => Claim::Mine(busy),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn segments_go_with_their_master_and_none_comes_after() {
        let bench = Bench::new(None);
        let (master, base) = bench.master(1);
        let segments = [0, 3, 9].map(|number| bench.segment(&base, number));
        assert!(segments.iter().all(|segment| !segment.is_gone()));
        assert!(is_there(&bench.index, &base, 3) && !is_there(&bench.index, &base, 4));
        let late = bench.mine(&base, 4).expect("nobody has it");
        assert!(bench.index.unlink(&master));
        assert!(segments.iter().all(|segment| segment.is_gone()));
        let object = bench.object(segment_key(&base, 4), 206, None, b"late");
        late.insert(Arc::clone(&object));
        assert!(object.is_gone(), "its family has ended");
        assert_eq!(bench.index.key_count(), 0);
        drop((master, segments, object));
        assert_eq!(bench.store.statistics().bytes, 0);
    }

    #[test]
    fn a_new_version_ends_the_old_and_a_304_does_not() {
        let bench = Bench::new(None);
        let (_, base) = bench.master(1);
        let segment = bench.segment(&base, 2);
        let (again, same) = bench.master(1);
        assert_eq!(base, same);
        assert!(!segment.is_gone(), "the generation goes on");
        let (_, other) = bench.master(2);
        assert_ne!(base, other);
        assert!(again.is_gone() && segment.is_gone());
        let new = bench.segment(&other, 2);
        assert!(!new.is_gone());
    }

    #[test]
    fn a_segment_in_the_place_of_another_goes_with_the_master_too() {
        let bench = Bench::new(None);
        let (master, base) = bench.master(1);
        let first = bench.segment(&base, 2);
        let Claim::Mine(busy) = claim_key(&bench.index, segment_key(&base, 2)) else {
            panic!("always a miss")
        };
        let second = bench.object(segment_key(&base, 2), 206, None, b"again");
        busy.insert(Arc::clone(&second));
        assert!(first.is_gone() && !second.is_gone());
        bench.index.unlink(&master);
        assert!(second.is_gone());
        assert_eq!(bench.index.key_count(), 0);
    }

    #[test]
    fn a_segment_is_fetched_once_and_waited_for() {
        let bench = Bench::new(None);
        let (_, base) = bench.master(1);
        let busy = bench.mine(&base, 2).expect("nobody has it");
        let waiter = Some((7, Waker::noop()));
        assert!(matches!(claim(&bench.index, &base, 2, 100.0, waiter, &Arc::default(), false), Claim::Busy));
        assert!(busy.has_waiters());
        assert!(
            matches!(claim(&bench.index, &base, 2, 100.0, None, &Arc::default(), true), Claim::Mine(_)),
            "the impatient"
        );
        assert!(matches!(claim(&bench.index, &base, 3, 100.0, None, &Arc::default(), false), Claim::Mine(_)));
        busy.insert(bench.object(segment_key(&base, 2), 206, None, b"x"));
        assert!(matches!(
            claim(&bench.index, &base, 2, 1e8, None, &Arc::default(), false),
            Claim::Present(_)
        ));
    }

    #[test]
    fn an_evicted_segment_may_come_again_and_an_evicted_master_takes_all() {
        let bench = Bench::new(Some(1 << 10));
        let (master, base) = bench.master(1);
        let first = bench.segment(&base, 0);
        drop(first);
        master.note_use(100, 1);
        for number in 1..8 {
            bench.segment(&base, number);
        }
        assert!(!master.is_gone() && !is_there(&bench.index, &base, 0));
        assert!(!bench.segment(&base, 0).is_gone());
        drop(master);
        for number in 0..40 {
            if let Some(busy) = bench.mine(&base, 100 + number) {
                let object = bench.object(segment_key(&base, 100 + number), 206, None, &[1; 100]);
                busy.insert(object);
            }
        }
        assert_eq!(bench.index.objects(&KEY).len(), 0);
        assert_eq!(bench.index.key_count(), 0, "nothing of the family is left");
    }
}
