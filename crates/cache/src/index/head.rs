//! What stands under one key when it is more than a single object.

use std::sync::Arc;
use std::task::Waker;
use store::Object;

use copal_store as store;

/// Variants, running fetches and waiting requests of one key.
#[derive(Debug, Default)]
pub struct Head {
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
    /// What its variant will be if the next response varies as the last did; empty if none did.
    pub(crate) predicted: Box<[u8]>,
    /// What it brings was made before the resource changed: it is for who asked for it, and nobody else.
    pub(crate) outdated: bool,
}

/// A request that waits.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) id: u64,
    pub(crate) waker: Waker,
}

impl Head {
    /// Notes a new fetch and returns its number.
    pub(crate) fn begin(&mut self, predicted: &[u8]) -> u32 {
        self.next_id = self.next_id.wrapping_add(1);
        self.busy.push(Running { id: self.next_id, predicted: predicted.into(), outdated: false });
        self.next_id
    }

    /// The resource changed: what the running fetches bring is not for those who ask from now on, and who waits looks
    /// again.
    pub(crate) fn outdate(&mut self) {
        self.busy.iter_mut().for_each(|running| running.outdated = true);
        std::mem::take(&mut self.waiters).into_iter().for_each(|waiter| waiter.waker.wake());
    }

    /// Ends a fetch and says whether what it brought is outdated.
    pub(crate) fn end(&mut self, id: u32) -> bool {
        let Some(index) = self.busy.iter().position(|running| running.id == id) else { return false };
        self.busy.remove(index).outdated
    }

    /// Wakes all who wait.
    pub(crate) fn wake_all(&self) {
        self.waiters.iter().for_each(|waiter| waiter.waker.wake_by_ref());
    }

    /// Wakes the one who has waited longest: it will find that the fetch failed and run its own.
    pub(crate) fn wake_one(&mut self) {
        if !self.waiters.is_empty() {
            self.waiters.remove(0).waker.wake();
        }
    }
}
