//! Objects that have one body: a stored response that gets a new head keeps its body where it is.
//!
//! ```text
//!  owner        head | body ...      extents                 held, and unlinked by now
//!                      ^             ^ ^
//!  sharer       head   +-- extents --+-+                     in the index
//!  sharer       head   +-- extents --+-+
//! ```
//! The owner is held whole, with its old head, for as long as one who shares its body; a sharer of a sharer shares the
//! owner's, so that a response that is confirmed over and over keeps one old head, not all of them.
//!
//! Bytes are counted once. Held: with the owner, which lives as long. Linked: with the owner, too, for as long as it is linked
//! itself or one of its sharers is; how many of these there are is noted in the store ([`Space::lent`](crate::memory::Space)).
//! The owner's lock guards that count together with its mark of being gone.

use crate::block::Block;
use crate::body::Extent;
use crate::object::{LENT, Object, State};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A shorter body is copied: the old head, and what it takes to share, are as large.
const SHARED_MIN: u64 = 4 << 10;

impl Object {
    /// Whether others may share its body.
    pub(crate) fn has_body_to_share(&self) -> bool {
        self.state() == State::Stored && !self.is_windowed() && self.filled() >= SHARED_MIN
    }

    /// Bytes of payload that stand behind it, its own and those of the owner of its body.
    pub(crate) fn whole_size(&self) -> u64 {
        self.memory_size() + self.body_owner().map_or(0, |owner| owner.memory_size())
    }

    /// Makes the body of `of` that of this object, which is new and empty: nobody else has it yet. False if `of` or its owner
    /// was unlinked meanwhile, so that its bytes do not count any more.
    pub(crate) fn share_body(&self, of: &Arc<Self>) -> bool {
        debug_assert!(of.has_body_to_share() && Arc::ptr_eq(&self.space, &of.space));
        let owner = of.body_owner().unwrap_or(of);
        if !owner.lend() {
            return false;
        }
        let mut extents = VecDeque::new();
        if of.first_capacity() > 0 {
            extents.push_back(Extent { offset: 0, block: Arc::new(Block::of_object(of)) });
        }
        extents.extend(of.sealed().into_iter().flatten().cloned());
        let given = self.with_rest(|rest| {
            rest.extents = extents;
            rest.owner = Some(Arc::clone(owner));
        });
        debug_assert!(given.is_some(), "a new object is being filled");
        self.publish(of.filled());
        true
    }

    /// Whether linked objects share its body. The caller holds the lock.
    pub(crate) fn is_lent(&self) -> bool {
        self.marks.load(Ordering::Relaxed) & LENT != 0
            && self.space.lent.lock().contains_key(&std::ptr::from_ref(self).addr())
    }

    /// Notes one more that shares its body; false if it does not count as linked any more.
    fn lend(&self) -> bool {
        let _guard = self.lock.lock();
        let mut lent = self.space.lent.lock();
        let address = std::ptr::from_ref(self).addr();
        if self.is_gone() && !lent.contains_key(&address) {
            return false;
        }
        self.marks.fetch_or(LENT, Ordering::Relaxed);
        *lent.entry(address).or_default() += 1;
        true
    }

    /// Notes that an object that shares its body was unlinked.
    pub(crate) fn take_back(&self) {
        let _guard = self.lock.lock();
        let is_last = {
            let mut lent = self.space.lent.lock();
            let address = std::ptr::from_ref(self).addr();
            let left = lent.get(&address).map_or(0, |count| count - 1);
            match left {
                0 => lent.remove(&address),
                _ => lent.insert(address, left),
            };
            left == 0
        };
        if is_last && self.is_gone() {
            self.space.unlinked(self.size_locked());
        }
    }
}
