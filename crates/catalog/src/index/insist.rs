//! Requests that insist on the origin's word: whose fetch they may share, and how they get what it brought.
//!
//! ```text
//! plain fetch   serves: plain
//! validation    serves: plain, validation
//! reload        serves: plain, validation, reload
//! ```
//! A fetch for somebody who took anything may have been answered by a cache on the way, or by a 304 where bytes were
//! wanted. So who insists waits only for a fetch that insists as much, and takes only what that one brought: it is handed
//! over, since by itself an object does not tell how it was asked for. What such a fetch brings stays: fetches for
//! less demanding requests that still run come too late with theirs.

use std::sync::{Arc, OnceLock};
use store::Object;

use copal_store as store;

/// How much of the origin's word a request wants, in order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Insists {
    /// None: what is fresh will do.
    #[default]
    Not,
    /// That what is stored is still good.
    Validation,
    /// All of the response.
    Reload,
}

/// A request that insists, as it waits.
#[derive(Debug)]
pub struct Insistent {
    how: Insists,
    /// What its fetch has brought: an object, or nothing.
    brought: OnceLock<Option<Arc<Object>>>,
}

impl Insistent {
    /// A request that wants so much; `None` for one that does not insist.
    pub fn new(how: Insists) -> Option<Arc<Self>> {
        (how > Insists::Not).then(|| Arc::new(Self { how, brought: OnceLock::new() }))
    }

    /// How much it wants.
    pub fn how(&self) -> Insists {
        self.how
    }

    /// Takes what a fetch for requests that insisted on `how` has brought, if that is enough.
    pub(super) fn offer(&self, how: Insists, object: Option<&Arc<Object>>) {
        if how >= self.how {
            // One that is there already is as good.
            let _ = self.brought.set(object.cloned());
        }
    }

    /// Whether `object` is what was brought for it.
    pub(super) fn has(&self, object: &Object) -> bool {
        let brought = self.brought.get().and_then(Option::as_ref);
        brought.is_some_and(|brought| std::ptr::eq(Arc::as_ptr(brought), object))
    }

    /// Whether its fetch has brought nothing. It does not wait for another then: of those who wait with it each would
    /// find out the same, one after the other.
    pub(super) fn is_let_down(&self) -> bool {
        matches!(self.brought.get(), Some(None))
    }
}
