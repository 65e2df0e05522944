//! Doubly linked lists in a slab: 8 bytes of links an item and what a policy keeps with it.
//!
//! The slab grows by fixed pages, so that it never copies nor holds twice what it needs. One slab has all lists of a
//! policy; a slot is in one list, or free.

use std::sync::atomic::{AtomicU32, Ordering};

const PAGE: usize = 4096;

/// No slot.
pub(super) const NONE: u32 = u32::MAX;

/// Where an item stands in its order, if it is in one; read and written under the order's lock only.
#[derive(Debug)]
pub struct Position(AtomicU32);

impl Default for Position {
    fn default() -> Self {
        Self(AtomicU32::new(NONE))
    }
}

impl Position {
    pub(super) fn slot(&self) -> Option<u32> {
        Some(self.0.load(Ordering::Relaxed)).filter(|slot| *slot != NONE)
    }

    pub(super) fn set(&self, slot: u32) {
        self.0.store(slot, Ordering::Relaxed);
    }

    pub(super) fn clear(&self) {
        self.set(NONE);
    }
}

#[derive(Debug)]
struct Node<V> {
    older: u32,
    /// In a free node, the next free one.
    younger: u32,
    value: Option<V>,
}

/// The nodes of all lists of a policy.
#[derive(Debug)]
pub(super) struct Slab<V> {
    pages: Vec<Box<[Node<V>]>>,
    free: u32,
}

/// One list, from the oldest to the youngest.
#[derive(Debug)]
pub(super) struct List {
    pub(super) oldest: u32,
    youngest: u32,
    pub(super) count: usize,
}

impl Default for List {
    fn default() -> Self {
        Self { oldest: NONE, youngest: NONE, count: 0 }
    }
}

impl<V> Default for Slab<V> {
    fn default() -> Self {
        Self { pages: Vec::new(), free: NONE }
    }
}

impl<V> Slab<V> {
    /// Puts `value` at the young end of `list` and returns its slot; `None`, and it is dropped, if there are 2^32 already.
    pub(super) fn insert(&mut self, list: &mut List, value: V) -> Option<u32> {
        let slot = self.free_slot()?;
        self.node(slot).value = Some(value);
        self.link_youngest(list, slot);
        Some(slot)
    }

    /// Takes out of `list`, where it is, what stands in `slot`.
    pub(super) fn take(&mut self, list: &mut List, slot: u32) -> Option<V> {
        self.unlink(list, slot);
        let free = std::mem::replace(&mut self.free, slot);
        let node = self.node(slot);
        node.younger = free;
        node.value.take()
    }

    /// Moves what stands in `slot` of `from` to the young end of `to`.
    pub(super) fn pass(&mut self, from: &mut List, to: &mut List, slot: u32) {
        self.unlink(from, slot);
        self.link_youngest(to, slot);
    }

    /// Moves what stands in `slot` to the young end of its list.
    pub(super) fn renew(&mut self, list: &mut List, slot: u32) {
        self.unlink(list, slot);
        self.link_youngest(list, slot);
    }

    /// What stands in `slot`; `None` if it is free or [`NONE`].
    pub(super) fn get(&self, slot: u32) -> Option<&V> {
        self.pages.get(slot as usize / PAGE)?[slot as usize % PAGE].value.as_ref()
    }

    /// As [`Slab::get`], to change it.
    pub(super) fn get_mut(&mut self, slot: u32) -> Option<&mut V> {
        self.pages.get_mut(slot as usize / PAGE)?[slot as usize % PAGE].value.as_mut()
    }

    /// The next younger one in its list, or [`NONE`].
    pub(super) fn younger(&self, slot: u32) -> u32 {
        self.pages[slot as usize / PAGE][slot as usize % PAGE].younger
    }

    #[cfg(test)]
    pub(super) fn pages(&self) -> usize {
        self.pages.len()
    }

    fn node(&mut self, slot: u32) -> &mut Node<V> {
        &mut self.pages[slot as usize / PAGE][slot as usize % PAGE]
    }

    fn free_slot(&mut self) -> Option<u32> {
        if self.free == NONE {
            let base =
                u32::try_from(self.pages.len() * PAGE).ok().filter(|base| *base < NONE - PAGE as u32)?;
            let page = (0..PAGE as u32).map(|index| Node {
                older: NONE,
                younger: if index as usize + 1 == PAGE { NONE } else { base + index + 1 },
                value: None,
            });
            self.pages.push(page.collect());
            self.free = base;
        }
        let slot = self.free;
        self.free = self.node(slot).younger;
        Some(slot)
    }

    fn link_youngest(&mut self, list: &mut List, slot: u32) {
        let node = self.node(slot);
        node.older = list.youngest;
        node.younger = NONE;
        match list.youngest {
            NONE => list.oldest = slot,
            youngest => self.node(youngest).younger = slot,
        }
        list.youngest = slot;
        list.count += 1;
    }

    fn unlink(&mut self, list: &mut List, slot: u32) {
        let node = self.node(slot);
        let (older, younger) = (node.older, node.younger);
        match older {
            NONE => list.oldest = younger,
            older => self.node(older).younger = younger,
        }
        match younger {
            NONE => list.youngest = older,
            younger => self.node(younger).older = older,
        }
        list.count -= 1;
    }
}
