//! Requests that need the origin's confirmation: whose fetch they may share, and how they get what it brought.
//!
//! ```text
//! plain fetch   serves: plain
//! validation    serves: plain, validation
//! reload        serves: plain, validation, reload
//! ```
//! A plain fetch may have been answered by a cache on the way, or by a 304 where the request wanted bytes. So a request that
//! needs confirmation waits only for a fetch that brings as much, and takes only what that fetch brought. The object is
//! handed over, since it does not tell by itself how it was asked for. It stays in the index: fetches for less demanding
//! requests that still run come too late with theirs.

use std::sync::{Arc, OnceLock};
use store::Object;

use copal_store as store;

/// How much confirmation by the origin a request needs, in ascending order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Confirmation {
    /// None: any fresh object will do.
    #[default]
    Unneeded,
    /// The stored response has to be validated.
    Validation,
    /// The whole response has to be fetched anew.
    Reload,
}

/// A request that confirmation, as it waits.
#[derive(Debug)]
pub struct PendingConfirmation {
    needed: Confirmation,
    /// What its fetch has brought: an object, or nothing.
    brought: OnceLock<Option<Arc<Object>>>,
}

impl PendingConfirmation {
    /// A request that needs so much; `None` for one that needs no confirmation.
    pub fn new(needed: Confirmation) -> Option<Arc<Self>> {
        (needed > Confirmation::Unneeded).then(|| Arc::new(Self { needed, brought: OnceLock::new() }))
    }

    /// How much it needs.
    pub fn needed(&self) -> Confirmation {
        self.needed
    }

    /// Takes what a fetch that confirms as much as `by` has brought, if that is enough.
    pub(super) fn offer(&self, by: Confirmation, object: Option<&Arc<Object>>) {
        if by >= self.needed {
            // An object that is there already is as good.
            let _ = self.brought.set(object.cloned());
        }
    }

    /// Whether `object` is what was brought for it.
    pub(super) fn has(&self, object: &Object) -> bool {
        let brought = self.brought.get().and_then(Option::as_ref);
        brought.is_some_and(|brought| std::ptr::eq(Arc::as_ptr(brought), object))
    }

    /// Whether its fetch has brought nothing. The request does not wait for another fetch then: those who wait with it
    /// would each find out the same, one after the other.
    pub(super) fn has_failed(&self) -> bool {
        matches!(self.brought.get(), Some(None))
    }
}
