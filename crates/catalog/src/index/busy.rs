//! The right and duty to fetch an object that others wait for.

use super::cold::variant_hash;
use super::head::VARIANTS_MAX;
use super::{Index, Key};
use rules::vary;
use std::sync::Arc;
use store::{Facts, Object};

use copal_rules as rules;
use copal_store as store;

/// Which objects a fetch may put under its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admit {
    /// Objects that are fresh for a while.
    Fresh,
    /// Also objects that are stale from the start, but may be served so or be validated: by the RFC.
    Alive,
}

impl Admit {
    fn takes(self, object: &Object) -> bool {
        match self {
            Self::Fresh => object.ttl() > 0.0,
            Self::Alive => object.ttl() + object.grace() + object.keep() > 0.0,
        }
    }

    /// Whether an object of variant `new` takes the place of one of variant `old`. By the RFC requests are compared by what
    /// they mean, so the older one would answer some of those that the newer one is for.
    fn replaces(self, old: &[u8], new: &[u8]) -> bool {
        old == new || self == Self::Alive && vary::same_meaning(old, new)
    }
}

/// A running fetch. Ended by [`Busy::insert`]; dropped without it, one waiter takes the fetch over.
#[derive(Debug)]
pub struct Busy {
    index: Arc<Index>,
    key: Key,
    id: u32,
    ended: bool,
}

impl Busy {
    pub(super) fn new(index: Arc<Index>, key: Key, id: u32) -> Self {
        Self { index, key, id, ended: false }
    }

    /// The key that is fetched for.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Whether anybody waits for it.
    pub fn has_waiters(&self) -> bool {
        self.index.shard(&self.key).waiter_count(&self.key) > 0
    }

    /// As [`Busy::admit`], of an object that is fresh.
    pub fn insert(self, object: Arc<Object>) {
        self.admit(object, Admit::Fresh);
    }

    /// Puts `object` (or a marker) under the key, in the place of every other object of the same variant, and wakes all
    /// who wait. An object that a ban has hit meanwhile, that is not to be [admitted](Admit), or of a resource that has
    /// changed since the fetch began, does not come in: it is for who has it already, and an older one stays.
    pub fn admit(mut self, object: Arc<Object>, admit: Admit) {
        self.ended = true;
        let (mut old, mut old_entries) = (Vec::new(), Vec::new());
        let entered;
        {
            let mut shard = self.index.shard(&self.key);
            let head = shard.head(&self.key);
            head.hand_over(self.id, &object);
            let wanted = !head.end(self.id) && admit.takes(&object);
            head.variants.retain(|variant| {
                let same = wanted && admit.replaces(variant.variant(), object.variant());
                if same {
                    old.push(Arc::clone(variant));
                }
                !same
            });
            entered = wanted && self.index.enter(&object);
            if entered {
                for other in &head.variants {
                    let (one, another) = (other.variant(), object.variant());
                    if !vary::same_fields(one, another) || vary::same_meaning(one, another) {
                        other.mark_superseded();
                    }
                }
                old.extend(head.enter(Arc::clone(&object), VARIANTS_MAX));
            }
            std::mem::take(&mut head.waiters).into_iter().for_each(|waiter| waiter.waker.wake());
            shard.simplify(&self.key);
            if entered {
                let variant = variant_hash(object.variant());
                let same = |facts: &Facts| facts.variant == variant;
                old_entries = shard.take_cold(self.index.engines(), &self.key, same);
            }
        }
        if !entered {
            object.unlink();
        }
        for object in old {
            object.unlink();
            let entry = object.take_entry();
            self.index.leave(&object, entry);
        }
        for (entry, facts) in old_entries {
            self.index.leave_cold(entry, &facts);
        }
    }

    /// As [`Busy::release`], but `object`, which is under the key already, has turned out to be good.
    pub fn confirm(self, object: &Arc<Object>) {
        self.index.shard(&self.key).head(&self.key).hand_over(self.id, object);
        self.release();
    }

    /// Ends without an object: all who wait look again (a pass told them nothing).
    pub fn release(mut self) {
        self.end(true);
    }

    fn end(&mut self, wake_all: bool) {
        self.ended = true;
        let mut shard = self.index.shard(&self.key);
        let head = shard.head(&self.key);
        let was_awaited = head.report_failure(self.id);
        head.end(self.id);
        if wake_all || was_awaited || head.busy.is_empty() && head.waiters.len() == 1 {
            std::mem::take(&mut head.waiters).into_iter().for_each(|waiter| waiter.waker.wake());
        } else {
            head.wake_one();
        }
        if head.waiters.is_empty() {
            shard.simplify(&self.key);
        }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        if !self.ended {
            self.end(false);
        }
    }
}
