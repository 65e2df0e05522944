//! The order of eviction: a doubly linked list in a slab, 16 bytes an object.
//!
//! Objects go in at the young end and out at the old one. A use is only marked on the object itself; eviction passes a
//! marked object over, and moves it to the young end (second chance; Corbato, "A paging experiment with the Multics
//! system", 1968). So a hit takes no lock and writes to no list, which for a large cache would be four lines of cold
//! memory.
//!
//! The slab grows by fixed pages, so that it never copies nor holds twice what it needs.

use crate::object::{NO_SLOT, Object};
use std::sync::Arc;
use std::sync::atomic::Ordering;

const PAGE: usize = 4096;

#[derive(Debug)]
struct Node {
    older: u32,
    younger: u32,
    object: Option<Arc<Object>>,
}

/// Objects from the next to go to the last.
#[derive(Debug)]
pub(crate) struct Lru {
    pages: Vec<Box<[Node]>>,
    /// Head of the list of free nodes, linked by `younger`.
    free: u32,
    oldest: u32,
    youngest: u32,
    count: usize,
    /// Objects passed over because they had been used.
    pub(crate) moved: u64,
}

impl Default for Lru {
    fn default() -> Self {
        Self { pages: Vec::new(), free: NO_SLOT, oldest: NO_SLOT, youngest: NO_SLOT, count: 0, moved: 0 }
    }
}

impl Lru {
    fn node(&mut self, slot: u32) -> &mut Node {
        &mut self.pages[slot as usize / PAGE][slot as usize % PAGE]
    }

    /// Takes `object` in at the young end. An object that is in the order already stays where it is. With 2^32 objects
    /// in the order, more than any memory holds, further ones stay out of it.
    pub(crate) fn insert(&mut self, object: &Arc<Object>) {
        if object.lru_slot.load(Ordering::Relaxed) != NO_SLOT {
            return;
        }
        let Some(slot) = self.free_slot() else { return };
        object.lru_slot.store(slot, Ordering::Relaxed);
        self.node(slot).object = Some(Arc::clone(object));
        self.link_youngest(slot);
        self.count += 1;
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.count
    }

    /// Takes `object` out and returns the order's own hold on it.
    pub(crate) fn remove(&mut self, object: &Object) -> Option<Arc<Object>> {
        self.take(object.lru_slot.load(Ordering::Relaxed))
    }

    /// Takes out the oldest object of which `evictable` is true and which was not used, looking at no more than `limit`; if
    /// none is, the oldest of all.
    pub(crate) fn pop(
        &mut self,
        limit: usize,
        evictable: impl Fn(&Arc<Object>) -> bool,
    ) -> Option<Arc<Object>> {
        let slot = self.find(limit, evictable).unwrap_or(self.oldest);
        self.take(slot)
    }

    /// As [`Lru::pop`], but nothing if none is.
    pub(crate) fn pop_only(
        &mut self,
        limit: usize,
        evictable: impl Fn(&Arc<Object>) -> bool,
    ) -> Option<Arc<Object>> {
        let slot = self.find(limit, evictable)?;
        self.take(slot)
    }

    /// The first object that may go and was not used since it was last passed over. Those that were used are moved to the
    /// young end on the way: this is where the order learns of their use.
    fn find(&mut self, limit: usize, evictable: impl Fn(&Arc<Object>) -> bool) -> Option<u32> {
        let mut slot = self.oldest;
        for _ in 0..limit {
            if slot == NO_SLOT {
                break;
            }
            let node = self.node(slot);
            let younger = node.younger;
            if !node.object.as_ref().is_some_and(&evictable) {
                slot = younger;
                continue;
            }
            if !node.object.as_ref().is_some_and(|object| object.take_used()) {
                return Some(slot);
            }
            if younger != NO_SLOT {
                self.unlink(slot);
                self.link_youngest(slot);
                slot = younger;
            }
            self.moved += 1;
        }
        None
    }

    /// Takes out what stands in `slot`.
    fn take(&mut self, slot: u32) -> Option<Arc<Object>> {
        if slot == NO_SLOT {
            return None;
        }
        self.unlink(slot);
        let free = self.free;
        let node = self.node(slot);
        node.younger = free;
        let object = node.object.take();
        self.free = slot;
        self.count -= 1;
        if let Some(object) = &object {
            object.lru_slot.store(NO_SLOT, Ordering::Relaxed);
        }
        object
    }

    fn free_slot(&mut self) -> Option<u32> {
        if self.free == NO_SLOT {
            let base =
                u32::try_from(self.pages.len() * PAGE).ok().filter(|base| *base < NO_SLOT - PAGE as u32)?;
            let page = (0..PAGE as u32).map(|index| Node {
                older: NO_SLOT,
                younger: if index as usize + 1 == PAGE { NO_SLOT } else { base + index + 1 },
                object: None,
            });
            self.pages.push(page.collect());
            self.free = base;
        }
        let slot = self.free;
        self.free = self.node(slot).younger;
        Some(slot)
    }

    fn link_youngest(&mut self, slot: u32) {
        let youngest = self.youngest;
        let node = self.node(slot);
        node.older = youngest;
        node.younger = NO_SLOT;
        if youngest == NO_SLOT {
            self.oldest = slot;
        } else {
            self.node(youngest).younger = slot;
        }
        self.youngest = slot;
    }

    fn unlink(&mut self, slot: u32) {
        let (older, younger) = {
            let node = self.node(slot);
            (node.older, node.younger)
        };
        if older == NO_SLOT {
            self.oldest = younger;
        } else {
            self.node(older).younger = younger;
        }
        if younger == NO_SLOT {
            self.youngest = older;
        } else {
            self.node(younger).older = older;
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::Object;
    use crate::engine::{Creation, Engine, Evictions};
    use crate::eviction::second_chance::Lru;
    use crate::memory::Memory;
    use crate::object::{Attributes, Flags};
    use std::sync::Arc;

    struct Nobody;

    impl Evictions for Nobody {
        fn evicted(&self, _: &Arc<Object>) {}
    }

    fn objects(count: u8) -> Vec<Arc<Object>> {
        let memory = Memory::new("s0", None, Arc::new(Nobody));
        let attributes = Attributes {
            origin_time: 0.0,
            ttl: 1.0,
            grace: 0.0,
            keep: 0.0,
            status: 200,
            flags: Flags(0),
            ban: 0,
            vxid: 1,
        };
        let make = |index| {
            let creation =
                Creation { key: [index; 32], attributes, variant: b"", head: b"", length: Some(0) };
            Arc::clone(memory.begin(&creation).unwrap().object())
        };
        (0..count).map(make).collect()
    }

    fn order_of(order: &mut Lru) -> Vec<u8> {
        std::iter::from_fn(|| order.pop(9, |_| true)).map(|object| object.key()[0]).collect()
    }

    /// After taking in 0 to 5: `+n` is used, `-n` (or 0) is removed, and then all are evicted.
    fn check(steps: &[i8], expected: &[u8]) {
        let objects = objects(6);
        let mut order = Lru::default();
        objects.iter().for_each(|object| order.insert(object));
        for step in steps {
            let object = &objects[usize::from(step.unsigned_abs())];
            if *step > 0 {
                object.note_use(9, 1);
            } else {
                order.remove(object);
            }
        }
        assert_eq!(order.len(), expected.len());
        assert_eq!(order_of(&mut order), expected, "{steps:?}");
        assert_eq!(order.len(), 0);
    }

    #[test]
    fn what_was_used_is_passed_over_once() {
        check(&[], &[0, 1, 2, 3, 4, 5]);
        check(&[5], &[0, 1, 2, 3, 4, 5]);
        check(&[1, 3], &[0, 2, 4, 5, 1, 3]);
        check(&[3, 1, 3], &[0, 2, 4, 5, 1, 3]);
        check(&[5, 4, 3, 2, 1], &[0, 1, 2, 3, 4, 5]);
        check(&[-1, 1, -5], &[0, 2, 3, 4]);
        check(&[-1, -2, -3, -4, -5], &[0]);
        check(&[-1, -1], &[0, 2, 3, 4, 5]);
    }

    #[test]
    fn slots_are_used_again_and_a_second_insert_changes_nothing() {
        let objects = objects(4);
        let mut order = Lru::default();
        for _ in 0..3 {
            objects.iter().for_each(|object| order.insert(object));
            order.insert(&objects[0]);
            assert_eq!(order_of(&mut order), [0, 1, 2, 3]);
        }
        assert_eq!(order.pages.len(), 1);
    }

    #[test]
    fn what_may_not_go_is_passed_over_while_there_is_a_choice() {
        let objects = objects(4);
        let mut order = Lru::default();
        objects.iter().for_each(|object| order.insert(object));
        let key = |object: Option<Arc<Object>>| object.map(|object| object.key()[0]);
        assert_eq!(key(order.pop(4, |object| object.key()[0] >= 2)), Some(2));
        assert_eq!(key(order.pop(1, |object| object.key()[0] >= 2)), Some(0), "looked at one only");
        assert_eq!(key(order.pop_only(4, |_| false)), None);
        assert_eq!(order_of(&mut order), [1, 3]);
    }
}
