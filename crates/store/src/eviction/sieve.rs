//! SIEVE: as second chance, but what was used stays where it is, and what came later goes before it.
//!
//! A hand goes from the oldest item to the youngest and then begins again. It passes over what was used since it last came
//! by, and takes the first that was not; new items go in at the young end. So an item
//! that is never used again goes soon, while old ones that are used stay for good.
//!
//! ```text
//!   oldest  a  b* c  d* e  f  youngest <── new         * used
//!                 ^ hand: takes c, passes d and clears its mark, takes e ...
//! ```
//!
//! Its limit: a walk over more than the cache holds goes through the whole list as anything new does, and what was used
//! once before it is cleared by the time it ends.
//!
//! Source: Zhang, Yang, Yue, Vigfusson, Rashmi, "SIEVE is simpler than LRU", NSDI 2024, algorithm 1.

use super::slab::{List, NONE, Position, Slab};
use super::{Item, Order};

/// Items in the order in which they came, and the hand.
#[derive(Debug)]
pub(super) struct Sieve<T> {
    slab: Slab<T>,
    all: List,
    /// The next to look at; [`NONE`] is the oldest.
    hand: u32,
    moved: u64,
}

impl<T> Default for Sieve<T> {
    fn default() -> Self {
        Self { slab: Slab::default(), all: List::default(), hand: NONE, moved: 0 }
    }
}

impl<T: Item> Sieve<T> {
    /// Where the hand stands; [`NONE`] if there are no items.
    fn at(&self) -> u32 {
        if self.hand == NONE { self.all.oldest } else { self.hand }
    }

    fn take(&mut self, slot: u32) -> Option<T> {
        if self.hand == slot {
            self.hand = self.slab.younger(slot);
        }
        let item = self.slab.take(&mut self.all, slot)?;
        item.position().clear();
        Some(item)
    }
}

impl<T: Item + Clone + std::fmt::Debug> Order<T> for Sieve<T> {
    fn insert(&mut self, item: &T, _size: u64) {
        if item.position().slot().is_none()
            && let Some(slot) = self.slab.insert(&mut self.all, item.clone())
        {
            item.position().set(slot);
        }
    }

    fn remove(&mut self, position: &Position) -> Option<T> {
        self.take(position.slot()?)
    }

    fn evict(&mut self, looks: usize, may_go: &dyn Fn(&T) -> bool) -> Option<T> {
        for _ in 0..looks {
            let slot = self.at();
            let item = self.slab.get(slot)?;
            if !item.uses().take_all() && may_go(item) {
                self.hand = slot;
                return self.take(slot);
            }
            self.moved += 1;
            self.hand = self.slab.younger(slot);
        }
        None
    }

    fn evict_any(&mut self) -> Option<T> {
        let slot = self.at();
        self.slab.get(slot)?;
        self.take(slot)
    }

    fn count(&self) -> usize {
        self.all.count
    }

    fn moved(&self) -> u64 {
        self.moved
    }
}
