//! S3-FIFO: what is new must be used before it gets a place among what stays.
//!
//! ```text
//!            new                    used
//!   insert ──────> small, 10 % ──────────────> main, 90 % ──> evicted, if not used
//!      │                └─ else ──> evicted,      ^   │ used: again, with one use less
//!      │                            ghost         │───┘
//!      └────── was in the ghost ──────────────────┘
//! ```
//!
//! Both are lists in the order of coming, shared out by bytes; the ghost knows digests of what left the small one, as many
//! as nine tenths of the items there are. What is being used when its turn comes counts as used. What is asked for once goes through the small list and pushes nothing else out.
//!
//! Its limits: an item needs a use within a tenth of the cache's turnover, or to come back while the ghost knows it; and what
//! was popular leaves the main list only after up to four rounds. Where what is asked for changes faster than that, the order
//! of the last use is better.
//!
//! Source: Yang, Zhang, Qiu, Yue, Rashmi, "FIFO queues are all you need for cache eviction", SOSP 2023, algorithm 1. There an
//! item needs two uses for the main list. Here one will do: uses in quick succession are noted as one (`lru_interval`), and it
//! is as good or better in the figures of `docs/decisions/eviction.md`.

use super::ghost::Ghost;
use super::slab::{List, NONE, Position, Slab};
use super::{Item, Order};

/// The small list has one part in so many of the bytes.
const SMALL: u64 = 10;

/// Sizes are kept in units of 64 bytes, so that a node has 24.
const UNIT: u64 = 64;

/// The most uses that are noted, and the look after them.
const ROUNDS_MAX: usize = 4;

#[derive(Debug)]
struct Kept<T> {
    item: T,
    units: u32,
    in_main: bool,
}

/// One of the two lists, and how much is in it.
#[derive(Debug, Default)]
struct Queue {
    list: List,
    units: u64,
}

/// The two lists and the ghost.
#[derive(Debug)]
pub(super) struct S3Fifo<T> {
    slab: Slab<Kept<T>>,
    small: Queue,
    main: Queue,
    ghost: Ghost,
    moved: u64,
}

impl<T> Default for S3Fifo<T> {
    fn default() -> Self {
        let (small, main) = Default::default();
        Self { slab: Slab::default(), small, main, ghost: Ghost::default(), moved: 0 }
    }
}

impl<T: Item> S3Fifo<T> {
    fn wanted_ghosts(&self) -> usize {
        let count = self.small.list.count + self.main.list.count;
        count - count / 10
    }

    fn small_is_over(&self) -> bool {
        self.small.units * SMALL >= self.small.units + self.main.units
    }

    /// Takes out what stands in `slot`.
    fn take(&mut self, slot: u32) -> Option<T> {
        let kept = self.slab.get(slot)?;
        let (units, in_main) = (u64::from(kept.units), kept.in_main);
        let queue = if in_main { &mut self.main } else { &mut self.small };
        queue.units -= units;
        let kept = self.slab.take(&mut queue.list, slot)?;
        kept.item.position().clear();
        Some(kept.item)
    }

    /// Takes out what the small list gives up, and remembers it.
    fn evict_small(&mut self, slot: u32) -> Option<T> {
        let wanted = self.wanted_ghosts();
        let item = self.take(slot)?;
        self.ghost.note(item.digest(), wanted);
        Some(item)
    }

    /// Moves what stands in `slot` from the small list to the main one.
    fn promote(&mut self, slot: u32) {
        if let Some(kept) = self.slab.get_mut(slot) {
            kept.in_main = true;
            let units = u64::from(kept.units);
            self.small.units -= units;
            self.main.units += units;
            self.slab.pass(&mut self.small.list, &mut self.main.list, slot);
            self.moved += 1;
        }
    }

    /// One look at the small list: takes out its oldest item, or finds that it is used and moves it to the main list.
    fn look_small(&mut self, may_go: &dyn Fn(&T) -> bool) -> Option<T> {
        let slot = self.small.list.oldest;
        let item = &self.slab.get(slot)?.item;
        if !item.uses().take_all() && may_go(item) {
            return self.evict_small(slot);
        }
        self.promote(slot);
        None
    }

    /// One look at the main list: takes out its oldest item, or gives it another round.
    fn look_main(&mut self, may_go: &dyn Fn(&T) -> bool) -> Option<T> {
        let slot = self.main.list.oldest;
        let item = &self.slab.get(slot)?.item;
        if !item.uses().take_one() && may_go(item) {
            return self.take(slot);
        }
        self.slab.renew(&mut self.main.list, slot);
        self.moved += 1;
        None
    }
}

impl<T: Item + Clone + std::fmt::Debug> Order<T> for S3Fifo<T> {
    fn insert(&mut self, item: &T, size: u64) {
        if item.position().slot().is_some() {
            return;
        }
        let units = u32::try_from(size.div_ceil(UNIT)).unwrap_or(u32::MAX);
        let wanted = self.wanted_ghosts();
        let in_main = self.ghost.take(item.digest(), wanted);
        let queue = if in_main { &mut self.main } else { &mut self.small };
        let kept = Kept { item: item.clone(), units, in_main };
        if let Some(slot) = self.slab.insert(&mut queue.list, kept) {
            queue.units += u64::from(units);
            item.position().set(slot);
        }
    }

    fn remove(&mut self, position: &Position) -> Option<T> {
        self.take(position.slot()?)
    }

    fn evict(&mut self, looks: usize, may_go: &dyn Fn(&T) -> bool) -> Option<T> {
        // Where the main list has nothing for us, the small one may; half of the looks are kept for it.
        let mut main_looks = (ROUNDS_MAX * self.main.list.count).min(looks / 2);
        for _ in 0..looks {
            let (small, main) = (self.small.list.oldest, self.main.list.oldest);
            let found = match small != NONE && (main == NONE || main_looks == 0 || self.small_is_over()) {
                true => self.look_small(may_go),
                false => {
                    main_looks = main_looks.saturating_sub(1);
                    self.look_main(may_go)
                }
            };
            if found.is_some() {
                return found;
            }
        }
        None
    }

    fn evict_any(&mut self) -> Option<T> {
        let (small, main) = (self.small.list.oldest, self.main.list.oldest);
        if small != NONE && (main == NONE || self.small_is_over()) {
            return self.evict_small(small);
        }
        self.take(main)
    }

    fn count(&self) -> usize {
        self.small.list.count + self.main.list.count
    }

    fn moved(&self) -> u64 {
        self.moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    /// What `docs/memory.md` states.
    #[test]
    fn a_node_has_24_bytes() {
        assert_eq!(size_of::<Option<Kept<Arc<u8>>>>(), 16);
    }
}
