//! Which objects are worth a write to a device, so that those that are asked for once do not wear it.
//!
//! An object of which nobody asks again goes with its place in memory; its key is remembered. Fetched anew, it has been asked
//! for twice, and is written. Cf. the doorkeeper of TinyLFU (Einziger, Friedman, Manes, ACM ToS 2017), here with what is
//! remembered bounded by number, the oldest forgotten first.

use crate::eviction::Item as _;
use crate::eviction::ghost::Ghost;
use crate::object::{Flags, Object};
use parking_lot::Mutex;

/// The most keys that are remembered: 32 MiB of memory.
const REMEMBERED_MAX: u64 = 4 << 20;

/// When an object is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Admit {
    /// Once it is stored.
    #[default]
    All,
    /// Once it is stored the second time.
    Second,
}

/// Which objects that are loaded from a slower tier are worth a place in the faster one: those that are loaded again before as
/// many others were as the faster tier has entries. Others would drive out what is asked for more often.
#[derive(Debug, Default)]
pub(super) struct Promotion {
    loaded: Mutex<Ghost>,
}

impl Promotion {
    /// Whether `object`, which was just loaded, is to move up to a tier that has so many entries. What says no remembers it.
    pub(super) fn takes(&self, object: &Object, entries: u64) -> bool {
        let remembered = entries.clamp(1, REMEMBERED_MAX) as usize;
        let mut loaded = self.loaded.lock();
        let again = loaded.take(object.digest(), remembered);
        if !again {
            loaded.note(object.digest(), remembered);
        }
        again
    }
}

/// Decides it for one engine.
#[derive(Debug)]
pub(super) struct Admission {
    admit: Admit,
    remembered: usize,
    seen: Mutex<Ghost>,
}

impl Admission {
    /// For an engine whose devices have room for so many entries.
    pub(super) fn new(admit: Admit, entries: u64) -> Self {
        let remembered = entries.min(REMEMBERED_MAX) as usize;
        Self { admit, remembered, seen: Mutex::default() }
    }

    /// Whether `object`, which has just been stored, is to be written. What says no remembers it.
    pub(super) fn takes(&self, object: &Object) -> bool {
        // Without its master a segment is of no use.
        let is_master = object.flags().has(Flags::SPARSE) && object.status() == 200;
        if self.admit == Admit::All || is_master {
            return true;
        }
        let mut seen = self.seen.lock();
        let again = seen.take(object.digest(), self.remembered);
        if !again {
            seen.note(object.digest(), self.remembered);
        }
        again
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Memory;
    use crate::engine::{Creation, Engine as _, Evictions};
    use crate::object::Attributes;
    use std::sync::Arc;

    struct Nobody;

    impl Evictions for Nobody {
        fn evicted(&self, _: &Arc<Object>) {}
    }

    fn object(key: u8, flags: u8) -> Arc<Object> {
        let attributes = Attributes {
            origin_time: 0.0,
            ttl: 1.0,
            grace: 0.0,
            keep: 0.0,
            status: 200,
            flags: Flags(flags),
            ban: 0,
            vxid: 1,
        };
        let memory = Memory::new("s0", None, Arc::new(Nobody));
        let creation = Creation { key: [key; 32], attributes, variant: b"", head: b"", length: Some(0) };
        Arc::clone(memory.begin(&creation).expect("there is room").object())
    }

    fn check(admit: Admit, keys: &[u8], expected: &[bool]) {
        let admission = Admission::new(admit, 1000);
        let taken: Vec<bool> = keys.iter().map(|key| admission.takes(&object(*key, 0))).collect();
        assert_eq!(taken, expected);
    }

    #[test]
    fn what_is_stored_again_is_worth_a_write() {
        check(Admit::All, &[1, 1, 2], &[true, true, true]);
        check(Admit::Second, &[1, 2, 1, 2, 3, 1], &[false, false, true, true, false, false]);
    }

    #[test]
    fn what_is_loaded_again_soon_moves_up() {
        let promotion = Promotion::default();
        let takes = |key: u8| promotion.takes(&object(key, 0), 8);
        assert_eq!([takes(1), takes(2), takes(1), takes(1)], [false, false, true, false]);
        (10..60).for_each(|key| _ = takes(key));
        assert!(!takes(2), "too many others were loaded meanwhile");
    }

    #[test]
    fn masters_are_always_written() {
        assert!(Admission::new(Admit::Second, 1000).takes(&object(1, Flags::SPARSE)));
    }
}
