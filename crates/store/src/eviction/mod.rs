//! Which of a full store's objects go: one file a policy, all behind the trait [`Order`].
//!
//! ```text
//!   a hit   > uses: a bit on the item itself       no lock, no list, nothing that another core writes
//!   stored  > Order::insert
//!   removed > Order::remove                        all under the one lock of the store
//!   no room > Order::evict                         looks at the bits, and only now learns what was used
//! ```
//!
//! A policy knows no objects: it orders whatever has a digest, a position in the order and a count of uses ([`Item`]), so that
//! `copal sim` runs the code that the store runs.

pub(crate) mod ghost;
mod s3fifo;
mod second_chance;
mod sieve;
mod slab;
#[cfg(test)]
mod tests;
pub mod uses;

use s3fifo::S3Fifo;
use second_chance::SecondChance;
use sieve::Sieve;
pub use slab::Position;
use std::fmt::Debug;
use std::sync::Arc;
use uses::Uses;

/// How many items are looked at for one that is not used.
pub const LOOK_MAX: usize = 64;

/// What a policy must see of what it orders.
pub trait Item {
    /// A well-mixed digest of its name: the same when what was evicted comes back.
    fn digest(&self) -> u64;

    /// Where it stands in the order. An item is in one order at most.
    fn position(&self) -> &Position;

    /// How often it was used since the order last looked.
    fn uses(&self) -> Uses<'_>;
}

impl<T: Item> Item for Arc<T> {
    fn digest(&self) -> u64 {
        T::digest(self)
    }

    fn position(&self) -> &Position {
        T::position(self)
    }

    fn uses(&self) -> Uses<'_> {
        T::uses(self)
    }
}

/// Items, and which of them goes next.
pub trait Order<T: Item>: Debug {
    /// Takes in `item` of `size` bytes. One that is in the order already stays where it is. With 2^32 items in the order,
    /// more than any memory holds, further ones stay out of it.
    fn insert(&mut self, item: &T, size: u64);

    /// Takes out the item at `position` and returns the order's own reference to it; `None` if it is not in the order.
    fn remove(&mut self, position: &Position) -> Option<T>;

    /// Takes out the first item, by the policy's order, of which `may_go` is true, in at most `looks` looks at items; `None`
    /// if none was found. One that was used, or may not go, is passed over and may come up again later.
    fn evict(&mut self, looks: usize, may_go: &dyn Fn(&T) -> bool) -> Option<T>;

    /// Takes out the item that is next, whatever it is; `None` if there is none.
    fn evict_any(&mut self) -> Option<T>;

    /// How many items there are.
    fn count(&self) -> usize;

    /// How often an item was passed over because it had been or was being used.
    fn moved(&self) -> u64;
}

/// A policy by its name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// By the last use, as near as second chance comes to it.
    Lru,
    /// S3-FIFO.
    #[default]
    S3Fifo,
    /// SIEVE.
    Sieve,
}

impl Policy {
    /// All there are.
    pub const ALL: &[Policy] = &[Policy::Lru, Policy::S3Fifo, Policy::Sieve];

    /// Their names, in the same order.
    pub const NAMES: &[&str] = &["lru", "s3fifo", "sieve"];

    /// Its name, as in the parameter `eviction_policy`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lru => "lru",
            Self::S3Fifo => "s3fifo",
            Self::Sieve => "sieve",
        }
    }

    /// The policy of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|policy| policy.name() == name)
    }

    /// An empty order of this policy.
    pub fn order<T: Item + Clone + Debug + Send + 'static>(self) -> Box<dyn Order<T> + Send> {
        match self {
            Self::Lru => Box::new(SecondChance::default()),
            Self::S3Fifo => Box::new(S3Fifo::default()),
            Self::Sieve => Box::new(Sieve::default()),
        }
    }
}
