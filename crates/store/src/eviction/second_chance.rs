//! Second chance: nearly the order of the last use, without a list that hits write to.
//!
//! Items go in at the young end and out at the old one. Eviction passes over what was used since it last looked, or is
//! being used, and moves it to the young end. Source: Corbato, "A paging experiment with the Multics system", 1968.

use super::slab::{List, Position, Slab};
use super::{Item, Order};

/// Items from the next to go to the last.
#[derive(Debug)]
pub(super) struct SecondChance<T> {
    slab: Slab<T>,
    all: List,
    moved: u64,
}

impl<T> Default for SecondChance<T> {
    fn default() -> Self {
        Self { slab: Slab::default(), all: List::default(), moved: 0 }
    }
}

impl<T: Item> SecondChance<T> {
    fn take(&mut self, slot: u32) -> Option<T> {
        let item = self.slab.take(&mut self.all, slot)?;
        item.position().clear();
        Some(item)
    }
}

impl<T: Item + Clone + std::fmt::Debug> Order<T> for SecondChance<T> {
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
            let slot = self.all.oldest;
            let item = self.slab.get(slot)?;
            if !item.uses().take_all() && may_go(item) {
                return self.take(slot);
            }
            self.moved += 1;
            self.slab.renew(&mut self.all, slot);
        }
        None
    }

    fn evict_any(&mut self) -> Option<T> {
        self.slab.get(self.all.oldest)?;
        self.take(self.all.oldest)
    }

    fn count(&self) -> usize {
        self.all.count
    }

    fn moved(&self) -> u64 {
        self.moved
    }
}
