//! A cache of one size under one policy: the store's own policy, without the bytes.

use copal_store::Policy;
use copal_store::eviction::uses::Uses;
use copal_store::eviction::{Item, LOOK_MAX, Order, Position};
use std::collections::HashMap;
use std::collections::hash_map;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

/// One request of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    /// A well-mixed digest of what is asked for.
    pub(super) key: u64,
    /// Bytes of it.
    pub(super) size: u64,
    /// When, in seconds, if the trace says so.
    pub(super) second: Option<u32>,
}

/// What holds for all caches of a run.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rules {
    /// How long after a use further ones do not count (`lru_interval`), where the trace has times.
    pub(super) interval: u32,
    /// Bytes an object takes besides its own.
    pub(super) overhead: u64,
}

/// An object, as far as a policy goes.
#[derive(Debug)]
struct Entry {
    key: u64,
    /// With the overhead.
    size: u64,
    position: Position,
    marks: AtomicU8,
    last_use: AtomicU32,
}

impl Item for Entry {
    fn digest(&self) -> u64 {
        self.key
    }

    fn position(&self) -> &Position {
        &self.position
    }

    fn uses(&self) -> Uses<'_> {
        Uses::new(&self.marks)
    }
}

impl Entry {
    /// As `Object::note_use` of the store.
    fn note_use(&self, second: Option<u32>, interval: u32) {
        if let Some(second) = second {
            if second.wrapping_sub(self.last_use.load(Ordering::Relaxed)) < interval {
                return;
            }
            self.last_use.store(second, Ordering::Relaxed);
        }
        self.uses().note();
    }
}

/// What came of all requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) requests: u64,
    pub(super) hits: u64,
    pub(super) bytes: u64,
    pub(super) hit_bytes: u64,
    /// Of what was stored.
    pub(super) written_bytes: u64,
    pub(super) evicted: u64,
}

/// The cache.
pub(super) struct Cache {
    pub(super) policy: Policy,
    pub(super) size: u64,
    pub(super) outcome: Outcome,
    rules: Rules,
    used: u64,
    index: HashMap<u64, Arc<Entry>>,
    order: Box<dyn Order<Arc<Entry>> + Send>,
}

impl Cache {
    /// An empty one.
    pub(super) fn new(policy: Policy, size: u64, rules: Rules) -> Cache {
        let (outcome, index) = Default::default();
        Cache { policy, size, outcome, rules, used: 0, index, order: policy.order() }
    }

    /// Answers a request: a hit, or stored now. An object keeps the size with which it was stored; what is larger than the
    /// cache is not stored.
    pub(super) fn request(&mut self, request: &Request) {
        let outcome = &mut self.outcome;
        outcome.requests += 1;
        outcome.bytes = outcome.bytes.saturating_add(request.size);
        if let Some(entry) = self.index.get(&request.key) {
            outcome.hits += 1;
            outcome.hit_bytes = outcome.hit_bytes.saturating_add(request.size);
            entry.note_use(request.second, self.rules.interval);
            return;
        }
        let size = request.size.saturating_add(self.rules.overhead);
        if size > self.size {
            return;
        }
        while self.used > self.size - size {
            self.evict();
        }
        self.store(request.key, size);
        self.outcome.written_bytes = self.outcome.written_bytes.saturating_add(request.size);
    }

    fn store(&mut self, key: u64, size: u64) {
        let entry = Arc::new(Entry {
            key,
            size,
            position: Position::default(),
            marks: AtomicU8::new(0),
            last_use: AtomicU32::new(0),
        });
        self.order.insert(&entry, size);
        self.used += size;
        self.index.insert(key, entry);
    }

    fn evict(&mut self) {
        let victim = self.order.evict(LOOK_MAX, &|_| true).or_else(|| self.order.evict_any());
        let victim = victim.expect("what is used is in the order");
        self.used -= victim.size;
        self.outcome.evicted += 1;
        if let hash_map::Entry::Occupied(known) = self.index.entry(victim.key) {
            known.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each letter asks for an object of 10 bytes, a capital for one of 20; a dot is a second.
    fn check(policy: Policy, size: u64, trace: &str, hits: u64, hit_bytes: u64) {
        let mut cache = Cache::new(policy, size, Rules { interval: 2, overhead: 0 });
        let mut second = 1000;
        for letter in trace.bytes() {
            if letter == b'.' {
                second += 1;
                continue;
            }
            let size = if letter.is_ascii_uppercase() { 20 } else { 10 };
            let key = u64::from(letter).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            cache.request(&Request { key, size, second: Some(second) });
            assert!(cache.used <= cache.size);
            assert_eq!(cache.used, cache.index.values().map(|entry| entry.size).sum::<u64>());
        }
        let outcome = cache.outcome;
        assert_eq!((outcome.hits, outcome.hit_bytes), (hits, hit_bytes), "{policy:?}: {trace}");
        assert_eq!(outcome.requests - outcome.hits - outcome.evicted, cache.index.len() as u64);
        assert_eq!(outcome.written_bytes, outcome.bytes - outcome.hit_bytes);
    }

    #[test]
    fn hits_of_small_traces() {
        for policy in Policy::ALL {
            check(*policy, 30, "", 0, 0);
            check(*policy, 30, "abcabc", 3, 30);
            check(*policy, 30, "abcdabcd", 0, 0);
            check(*policy, 30, "aBaB", 2, 30);
            check(*policy, 30, "aBCa", 0, 0);
        }
        // a is used once; many come that are not: second chance keeps it for a round, the others for longer.
        check(Policy::Lru, 50, "aabcdefghija", 1, 10);
        check(Policy::Sieve, 50, "aabcdefghija", 2, 20);
        check(Policy::S3Fifo, 50, "aabcdefghija", 2, 20);
    }

    #[test]
    fn uses_in_quick_succession_are_one() {
        let mut cache = Cache::new(Policy::Lru, 100, Rules { interval: 2, overhead: 0 });
        cache.store(1, 10);
        let entry = &cache.index[&1];
        for (second, uses) in [(Some(100), 1), (Some(101), 1), (Some(102), 2), (None, 3)] {
            entry.note_use(second, cache.rules.interval);
            assert_eq!(entry.uses().count(), uses, "{second:?}");
        }
    }

    #[test]
    fn what_is_too_large_and_what_takes_more_than_its_bytes() {
        let mut cache = Cache::new(Policy::Lru, 100, Rules { interval: 0, overhead: 50 });
        let mut request = |key, size| cache.request(&Request { key, size, second: None });
        request(1, 51);
        request(1, 51);
        request(2, 50);
        request(2, 50);
        request(3, 0);
        let expected =
            Outcome { requests: 5, hits: 1, bytes: 202, hit_bytes: 50, written_bytes: 50, evicted: 1 };
        assert_eq!(cache.outcome, expected);
    }
}
