//! Ending objects by their key or by surrogate keys, at once or softly.

use super::{Index, Key};
use base::{Seconds, Time};
use copal_base as base;
use std::sync::Arc;
use store::{Flags, Object};

use copal_store as store;

/// What a soft purge leaves of an object's life. Nothing is ever made longer by it.
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
        // In the precision in which the object keeps it, so that what is the same compares so.
        let ttl = f64::from((now + self.ttl - origin).max(0.0) as f32).min(before.0);
        let grace = self.grace.map_or(before.1, |grace| grace.max(0.0).min(before.1));
        let keep = self.keep.map_or(before.2, |keep| keep.max(0.0).min(before.2));
        let shorter = (ttl, grace, keep) != before;
        if shorter {
            object.set_times(origin, ttl, grace, keep);
        }
        shorter
    }
}

impl Index {
    /// Takes out every object under `key` and returns those that nobody took out before.
    pub fn purge(&self, key: &Key) -> Vec<Arc<Object>> {
        self.unlink_all(self.objects(key))
    }

    /// The resource under `key` has changed: takes out every response to it, and returns those that nobody took out
    /// before. What is being fetched serves those who asked for it already, and is not found by others. Markers stay:
    /// they say nothing of its state.
    ///
    /// Source: RFC 9111, section 4.4.
    pub fn invalidate(&self, key: &Key) -> Vec<Arc<Object>> {
        let mut objects = {
            let mut shard = self.shard(key);
            if let Some(head) = shard.heads.get_mut(key) {
                head.outdate();
            }
            shard.objects(key)
        };
        objects.retain(|object| object.flags().0 & (Flags::HIT_FOR_MISS | Flags::HIT_FOR_PASS) == 0);
        self.unlink_all(objects)
    }

    /// Takes out every object that has one of the surrogate keys in `text` and returns those that nobody took out before,
    /// with how many of the words in `text` name each.
    pub fn purge_tagged(&self, text: &[u8]) -> Vec<(Arc<Object>, u64)> {
        let mut found = self.tags.find(text);
        found.retain(|(object, _)| self.unlink(object));
        found
    }

    /// The objects that have one of the surrogate keys in `text` and are fresh still.
    pub fn fresh_tagged(&self, text: &[u8], now: Time) -> Vec<Arc<Object>> {
        let found = self.tags.find(text).into_iter().map(|(object, _)| object);
        found.filter(|object| object.origin_time() + object.ttl() > now).collect()
    }

    fn unlink_all(&self, mut objects: Vec<Arc<Object>>) -> Vec<Arc<Object>> {
        objects.retain(|object| self.unlink(object));
        objects
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
