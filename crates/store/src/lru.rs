//! The order of last use: a doubly linked list in a slab, 16 bytes an object.
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

/// Objects from the longest unused to the latest used.
#[derive(Debug)]
pub(crate) struct Lru {
    pages: Vec<Box<[Node]>>,
    /// Head of the list of free nodes, linked by `younger`.
    free: u32,
    oldest: u32,
    youngest: u32,
    count: usize,
}

impl Default for Lru {
    fn default() -> Self {
        Self { pages: Vec::new(), free: NO_SLOT, oldest: NO_SLOT, youngest: NO_SLOT, count: 0 }
    }
}

impl Lru {
    fn node(&mut self, slot: u32) -> &mut Node {
        &mut self.pages[slot as usize / PAGE][slot as usize % PAGE]
    }

    /// Takes `object` in as the latest used. An object that is in the order already stays where it is.
    pub(crate) fn insert(&mut self, object: &Arc<Object>) {
        if object.lru_slot.load(Ordering::Relaxed) != NO_SLOT {
            return;
        }
        let slot = self.free_slot();
        object.lru_slot.store(slot, Ordering::Relaxed);
        self.node(slot).object = Some(Arc::clone(object));
        self.link_youngest(slot);
        self.count += 1;
    }

    /// Makes `object` the latest used; false if it is not in the order.
    pub(crate) fn touch(&mut self, object: &Object) -> bool {
        let slot = object.lru_slot.load(Ordering::Relaxed);
        if slot == NO_SLOT {
            return false;
        }
        if slot != self.youngest {
            self.unlink(slot);
            self.link_youngest(slot);
        }
        true
    }

    /// Takes `object` out and returns the order's own hold on it.
    pub(crate) fn remove(&mut self, object: &Object) -> Option<Arc<Object>> {
        let slot = object.lru_slot.swap(NO_SLOT, Ordering::Relaxed);
        if slot == NO_SLOT {
            return None;
        }
        self.unlink(slot);
        let free = self.free;
        let node = self.node(slot);
        let held = node.object.take();
        node.younger = free;
        self.free = slot;
        self.count -= 1;
        held
    }

    /// Takes out the oldest object of which `evictable` is true, looking at no more than `limit`; if none is, the oldest
    /// of all.
    pub(crate) fn pop(&mut self, limit: usize, evictable: impl Fn(&Arc<Object>) -> bool) -> Option<Arc<Object>> {
        let mut slot = self.oldest;
        let mut chosen = None;
        for _ in 0..limit {
            if slot == NO_SLOT {
                break;
            }
            let node = self.node(slot);
            let next = node.younger;
            let object = node.object.as_ref().expect("a linked node holds an object");
            if evictable(object) {
                chosen = Some(Arc::clone(object));
                break;
            }
            slot = next;
        }
        if chosen.is_none() && self.oldest != NO_SLOT {
            let oldest = self.oldest;
            chosen = self.node(oldest).object.clone();
        }
        let chosen = chosen?;
        self.remove(&chosen);
        Some(chosen)
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    fn free_slot(&mut self) -> u32 {
        if self.free == NO_SLOT {
            let base = (self.pages.len() * PAGE) as u32;
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
        slot
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
