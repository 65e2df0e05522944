//! Ending objects by their key or by surrogate keys, at once or softly.

use super::cold::Standing;
use super::head::Head;
use super::{Index, Key};
use base::{Seconds, Time};
use copal_base as base;
use std::sync::Arc;
use store::{Entry, Facts, Flags, Object};

use copal_store as store;

/// The rest of an object's life after a soft purge. It never makes a life longer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Remainder {
    /// How long it stays fresh from now.
    pub ttl: Seconds,
    /// Its new grace; `None` leaves it as it is.
    pub grace: Option<Seconds>,
    /// Its new keep.
    pub keep: Option<Seconds>,
}

impl Remainder {
    /// Stale from now, with grace and keep as they are.
    pub const STALE: Remainder = Remainder { ttl: 0.0, grace: None, keep: None };

    /// Shortens the life of `object`; false if that is as short already.
    pub fn apply(&self, object: &Object, now: Time) -> bool {
        let (origin, before) = (object.origin_time(), (object.ttl(), object.grace(), object.keep()));
        let (ttl, grace, keep) = self.of(origin, before, now);
        let shorter = (ttl, grace, keep) != before;
        if shorter {
            object.set_times(origin, ttl, grace, keep);
        }
        shorter
    }

    /// The ttl, grace and keep that are left, in the precision in which they are stored, so that equal ones compare equal.
    pub(super) fn of(
        &self,
        origin: Time,
        before: (Seconds, Seconds, Seconds),
        now: Time,
    ) -> (Seconds, Seconds, Seconds) {
        let ttl = f64::from((now + self.ttl - origin).max(0.0) as f32).min(before.0);
        let grace = self.grace.map_or(before.1, |grace| f64::from(grace.max(0.0) as f32).min(before.1));
        let keep = self.keep.map_or(before.2, |keep| f64::from(keep.max(0.0) as f32).min(before.2));
        (ttl, grace, keep)
    }
}

/// The objects that a purge has ended or shortened.
#[derive(Debug, Default)]
pub struct Purged {
    /// Objects in memory, each with how many of the given keys name it.
    pub objects: Vec<(Arc<Object>, u64)>,
    /// How many further objects were on devices alone.
    pub entries: u64,
    /// Sum over all these of how many of the given keys name each.
    pub times: u64,
}

impl Purged {
    /// How many there are.
    pub fn count(&self) -> u64 {
        self.objects.len() as u64 + self.entries
    }
}

/// Objects that are to be unlinked, and cold entries that are in no shard any more.
type TakenOut = (Vec<Arc<Object>>, Vec<(Entry, Facts)>);

impl Index {
    /// Takes out everything under `key`, and returns what had not been taken out before.
    pub fn purge(&self, key: &Key) -> Purged {
        self.end_all(self.take_out(key, |_| {}))
    }

    /// Takes out every response to the resource under `key`, which has changed, and returns those that had not been taken out
    /// before. Running fetches serve the requests that already wait for them, and no others. Markers stay: they say nothing
    /// of the resource's state.
    ///
    /// Source: RFC 9111, section 4.4.
    pub fn invalidate(&self, key: &Key) -> Purged {
        let (mut objects, entries) = self.take_out(key, Head::outdate);
        objects.retain(|object| object.flags().0 & (Flags::HIT_FOR_MISS | Flags::HIT_FOR_PASS) == 0);
        self.end_all((objects, entries))
    }

    /// Shortens the life of everything under `key`.
    pub fn shorten(&self, key: &Key, remainder: &Remainder, now: Time) -> (Vec<(Arc<Object>, bool)>, u64) {
        // In one hold of the lock: an object that is loaded meanwhile is in one of the two.
        let (objects, cold) = {
            let shard = self.shard(key);
            (shard.objects(key), shard.cold_of(self.engines(), key))
        };
        let objects = objects.into_iter().map(|object| {
            let shorter = remainder.apply(&object, now);
            (object, shorter)
        });
        let objects = objects.collect();
        for (entry, facts) in &cold {
            if !self.shorten_cold(*entry, facts, remainder, now)
                && let Some(Standing::Resident(object)) = self.by_entry(*entry)
            {
                remainder.apply(&object, now);
            }
        }
        (objects, cold.len() as u64)
    }

    /// Takes out everything that has one of the surrogate keys in `text`, and returns what had not been taken out before.
    pub fn purge_tagged(&self, text: &[u8]) -> Purged {
        let mut purged = Purged::default();
        let mut end = |object: Arc<Object>, times: u64| {
            if self.unlink(&object) {
                purged.times += times;
                purged.objects.push((object, times));
            }
        };
        let found = self.tags.find(text);
        found.objects.into_iter().for_each(|(object, times)| end(object, times));
        let mut cold = Vec::new();
        for (entry, times) in found.entries {
            match self.by_entry(entry) {
                Some(Standing::Resident(object)) => end(object, times),
                Some(Standing::Cold(facts)) => cold.push((entry, facts, times)),
                None => {}
            }
        }
        for (entry, facts, times) in cold {
            if self.end_entry(entry, &facts) {
                purged.entries += 1;
                purged.times += times;
            } else if let Some(Standing::Resident(object)) = self.by_entry(entry) {
                // It was loaded just now.
                self.unlink(&object);
                purged.entries += 1;
                purged.times += times;
            }
        }
        purged
    }

    /// Shortens the life of what has one of the surrogate keys in `text` and is fresh still: the objects, whether each
    /// became shorter, and how many there are on devices alone.
    pub fn shorten_tagged(
        &self,
        text: &[u8],
        remainder: &Remainder,
        now: Time,
    ) -> (Vec<(Arc<Object>, bool)>, u64) {
        let found = self.tags.find(text);
        let mut objects: Vec<Arc<Object>> = found.objects.into_iter().map(|(object, _)| object).collect();
        let mut cold = 0;
        for (entry, _) in found.entries {
            match self.by_entry(entry) {
                Some(Standing::Resident(object)) => objects.push(object),
                Some(Standing::Cold(facts)) if facts.origin_time + f64::from(facts.ttl) > now => {
                    self.shorten_cold(entry, &facts, remainder, now);
                    cold += 1;
                }
                Some(Standing::Cold(_)) | None => {}
            }
        }
        objects.retain(|object| object.origin_time() + object.ttl() > now);
        let objects = objects.into_iter().map(|object| {
            let shorter = remainder.apply(&object, now);
            (object, shorter)
        });
        (objects.collect(), cold)
    }

    /// The objects under `key`, and its cold entries, which are taken out. In one hold of the lock: what is loaded or evicted
    /// meanwhile is in one of the two. `act` is done to the key's head.
    pub(super) fn take_out(&self, key: &Key, act: impl FnOnce(&mut Head)) -> TakenOut {
        let mut shard = self.shard(key);
        if let Some(head) = shard.heads.get_mut(key) {
            act(head);
        }
        (shard.objects(key), shard.take_cold(self.engines(), key, |_| true))
    }

    pub(super) fn end_all(&self, (mut objects, cold): TakenOut) -> Purged {
        // The entry of one that is evicted meanwhile ends as well.
        objects.retain(|object| self.unlink(object));
        cold.iter().for_each(|(entry, facts)| self.leave_cold(*entry, facts));
        let entries = cold.len() as u64;
        let times = objects.len() as u64 + entries;
        Purged { objects: objects.into_iter().map(|object| (object, 1)).collect(), entries, times }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use copal_store::{Attributes, Creation, Engine, Evictions, Memory};

    struct Nobody;

    impl Evictions for Nobody {
        fn evicted(&self, _: &Arc<Object>) {}
    }

    /// Fetched at 1000, 60 s each of ttl, grace and keep; what is left of its life `age` seconds later after a soft purge.
    fn check(age: f64, ttl: f64, rest: Option<f64>, dies_in: f64) {
        let attributes = Attributes {
            origin_time: 1000.0,
            ttl: 60.0,
            grace: 60.0,
            keep: 60.0,
            status: 200,
            flags: Flags(0),
            ban: 0,
            vxid: 1,
        };
        let memory = Memory::new("s0", None, Arc::new(Nobody));
        let creation = Creation { key: [0; 32], attributes, variant: b"", head: b"", length: Some(0) };
        let fill = memory.begin(&creation).unwrap();
        let object = fill.object();
        let before = object.end_of_life();
        let changed = Remainder { ttl, grace: rest, keep: rest }.apply(object, 1000.0 + age);
        assert!((object.end_of_life() - 1000.0 - age - dies_in).abs() < 1e-3, "{age} {ttl} {rest:?}");
        assert_eq!(changed, object.end_of_life() < before - 1e-3, "{age} {ttl} {rest:?}");
    }

    #[test]
    fn a_soft_purge_only_shortens() {
        check(0.0, 0.0, None, 120.0);
        check(70.0, 0.0, None, 110.0);
        check(0.0, 0.0, Some(10.0), 20.0);
        check(65.0, 0.0, Some(10.0), 15.0);
        check(75.0, 0.0, Some(10.0), 5.0);
        check(5.0, 10.0, None, 130.0);
        check(55.0, 10.0, None, 125.0);
        check(70.0, 10.0, None, 110.0);
        check(0.0, 0.0, Some(100.0), 120.0);
        check(10.0, 0.0, Some(0.0), 0.0);
    }
}
