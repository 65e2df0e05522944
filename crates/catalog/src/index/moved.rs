//! Tests: an entry whose record went to another device while something changed.

use super::Index;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use store::{Charge, Creation, Engine, Entry, Evictions as _, Facts, Fill, Full, Memory, Statistics};

use copal_store as store;

/// An engine of which only what it says of entries is of interest.
struct Table {
    memory: Memory,
    entries: Mutex<HashMap<Entry, Facts>>,
}

impl Table {
    fn change(&self, entry: Entry, change: impl FnOnce(&mut Facts)) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        change(entries.entry(entry).or_default());
    }
}

impl Engine for Table {
    fn name(&self) -> &str {
        self.memory.name()
    }

    fn kind(&self) -> &'static str {
        self.memory.kind()
    }

    fn begin(&self, creation: &Creation<'_>) -> Result<Fill, Full> {
        self.memory.begin(creation)
    }

    fn count(&self, bytes: u64) -> Charge {
        self.memory.count(bytes)
    }

    fn reserve(&self, bytes: u64) -> Result<Charge, Full> {
        self.memory.reserve(bytes)
    }

    fn begin_window(&self, creation: &Creation<'_>) -> Result<Fill, Full> {
        self.memory.begin_window(creation)
    }

    fn size(&self) -> Option<u64> {
        self.memory.size()
    }

    fn set_evict_max(&self, count: u64) {
        self.memory.set_evict_max(count);
    }

    fn statistics(&self) -> Statistics {
        self.memory.statistics()
    }

    fn memory(&self) -> u64 {
        self.memory.memory()
    }

    fn set_memory_max(&self, bytes: u64) {
        self.memory.set_memory_max(bytes);
    }

    fn shrink(&self, bytes: u64) -> u64 {
        self.memory.shrink(bytes)
    }

    fn devices(&self) -> std::ops::Range<u32> {
        0..2
    }

    fn facts(&self, entry: Entry) -> Option<Facts> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).get(&entry).copied()
    }

    fn entries(&self, each: &mut dyn FnMut(Entry, &Facts, &[u8])) {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner).clone();
        entries.iter().for_each(|(entry, facts)| each(*entry, facts, b""));
    }

    fn set_times(&self, entry: Entry, _: &[u8; 16], origin_time: f64, [ttl, grace, keep]: [f32; 3]) {
        self.change(entry, |facts| *facts = Facts { origin_time, ttl, grace, keep, ..*facts });
    }

    fn set_ban(&self, entry: Entry, _: &[u8; 16], ban: u32) {
        self.change(entry, |facts| facts.ban = ban);
    }
}

/// What the entry says after it was moved, if it was `then` when its record was copied and is `now` when the index hears of it.
fn check(then: Facts, now: Facts, expected: Facts) {
    let index = Arc::new(Index::default());
    let (old, new) = (Entry::new(0, 7), Entry::new(1, 9));
    let memory = Memory::new("s0", None, Arc::clone(&index) as Arc<dyn store::Evictions>);
    let table = Arc::new(Table { memory, entries: Mutex::new(HashMap::from([(old, then)])) });
    index.attach(vec![Arc::clone(&table) as Arc<dyn Engine>], 100.0);
    table.change(new, |facts| *facts = then);
    table.change(old, |facts| *facts = now);
    assert!(index.moved(old, new));
    assert_eq!(table.facts(new), Some(expected));
    assert!(!index.moved(old, new), "it is known as another now");
    assert_eq!(index.cold_count(), 1);
}

#[test]
fn what_changed_while_a_record_was_copied_is_true_of_the_new_one() {
    let then = Facts { key: [5; 16], origin_time: 90.0, ttl: 60.0, status: 200, ..Facts::default() };
    let used = Facts { hits: 3, ..then };
    check(then, then, then);
    check(then, used, then);
    let purged = Facts { ttl: 0.0, grace: 5.0, ..then };
    check(then, Facts { hits: 3, ..purged }, purged);
    let renewed = Facts { origin_time: 99.0, keep: 7.0, ban: 4, ..then };
    check(then, renewed, renewed);
}
