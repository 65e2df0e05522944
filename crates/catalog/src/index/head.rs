//! The head of a key that has more than a single object: its variants, running fetches and waiting requests.

use super::confirmation::{Confirmation, PendingConfirmation};
use std::sync::Arc;
use std::task::Waker;
use store::Object;

use copal_store as store;

/// The most objects under one key: each lookup that none of them fits looks at all. Their requests differ in fields that
/// clients choose, so a client could make any number of them; beyond this the oldest goes for the newest.
pub(crate) const VARIANTS_MAX: usize = 4096;

/// Variants, running fetches and waiting requests of one key.
#[derive(Debug, Default)]
pub(crate) struct Head {
    /// Stored and filling objects, and markers; no two match the same request but for a moment.
    pub(crate) variants: Vec<Arc<Object>>,
    /// Fetches that will bring an object.
    pub(crate) busy: Vec<Running>,
    /// Requests that wait for one of them, oldest first.
    pub(crate) waiters: Vec<Waiter>,
    next_id: u32,
}

/// A fetch that runs.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) id: u32,
    /// The variant that it will bring if the response varies as the last did; empty if none did.
    pub(crate) predicted: Box<[u8]>,
    /// How much confirmation it brings: what its own request needed.
    pub(crate) confirmation: Confirmation,
    /// The resource has changed since the fetch began: its object is for the requests that already wait for it alone.
    pub(crate) outdated: bool,
}

/// A request that waits.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) id: u64,
    pub(crate) waker: Waker,
    /// Receives what is brought, if the request needs confirmation.
    pub(crate) pending_confirmation: Option<Arc<PendingConfirmation>>,
}

/// Whether two fetches may bring objects for the same requests, as far as their variants were predicted.
pub(crate) fn is_alike(one: &[u8], other: &[u8]) -> bool {
    one.is_empty() || other.is_empty() || one == other
}

impl Head {
    /// Adds an object; gives back the oldest, which goes for it, if there are more than `most` now.
    pub(crate) fn enter(&mut self, object: Arc<Object>, most: usize) -> Option<Arc<Object>> {
        self.variants.push(object);
        (self.variants.len() > most).then(|| self.variants.remove(0))
    }

    /// Notes a new fetch, for a request that needs `confirmation`, and returns its number.
    pub(crate) fn begin(&mut self, predicted: &[u8], confirmation: Confirmation) -> u32 {
        self.next_id = self.next_id.wrapping_add(1);
        let (id, predicted) = (self.next_id, predicted.into());
        self.busy.push(Running { id, predicted, confirmation, outdated: false });
        id
    }

    /// Hands `object`, which the running fetch `id` has brought, to the requests that wait for such a fetch, and marks less
    /// demanding fetches as outdated, so that they do not replace it.
    pub(crate) fn hand_over(&mut self, id: u32, object: &Arc<Object>) {
        let Some(index) = self.busy.iter().position(|running| running.id == id) else { return };
        let confirmation = self.busy[index].confirmation;
        if confirmation == Confirmation::Unneeded {
            return;
        }
        self.waiters
            .iter()
            .flat_map(|waiter| &waiter.pending_confirmation)
            .for_each(|one| one.offer(confirmation, Some(object)));
        let predicted = std::mem::take(&mut self.busy[index].predicted);
        for other in self.busy.iter_mut().filter(|other| other.confirmation < confirmation) {
            other.outdated |= is_alike(&other.predicted, &predicted);
        }
    }

    /// The running fetch `id` brings nothing. Returns whether requests for confirmation wait for it: they have to be woken.
    pub(crate) fn report_failure(&mut self, id: u32) -> bool {
        let confirmation = self
            .busy
            .iter()
            .find(|running| running.id == id)
            .map_or(Confirmation::Unneeded, |one| one.confirmation);
        let pending = self.waiters.iter().flat_map(|waiter| &waiter.pending_confirmation);
        confirmation > Confirmation::Unneeded && pending.map(|one| one.offer(confirmation, None)).count() > 0
    }

    /// Notes that the resource changed: the objects that running fetches bring are not for later requests, and waiting
    /// requests look again.
    pub(crate) fn outdate(&mut self) {
        self.busy.iter_mut().for_each(|running| running.outdated = true);
        std::mem::take(&mut self.waiters).into_iter().for_each(|waiter| waiter.waker.wake());
    }

    /// Ends a fetch and says whether what it brought is outdated.
    pub(crate) fn end(&mut self, id: u32) -> bool {
        let Some(index) = self.busy.iter().position(|running| running.id == id) else { return false };
        self.busy.remove(index).outdated
    }

    /// Wakes all waiting requests.
    pub(crate) fn wake_all(&self) {
        self.waiters.iter().for_each(|waiter| waiter.waker.wake_by_ref());
    }

    /// Wakes the request that has waited longest: it will find that the fetch failed and run its own.
    pub(crate) fn wake_one(&mut self) {
        if !self.waiters.is_empty() {
            self.waiters.remove(0).waker.wake();
        }
    }
}
