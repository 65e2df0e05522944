//! Bytes charged to a store that are not an object's: a response on its way to one client, a request body kept for its
//! fetch. They show in the store's statistics until the charge is dropped.

use crate::engine::Full;
use crate::memory::Space;
use std::sync::Arc;

/// A count of bytes against a store, given back on drop.
#[derive(Debug)]
pub struct Charge {
    space: Arc<Space>,
    bytes: u64,
    /// Counts against the size, as a stored object does.
    reserved: bool,
}

impl Charge {
    /// Counts `bytes` as held. They do not count against the size: what has to pass is not stopped by a full store.
    pub(crate) fn count(space: &Arc<Space>, bytes: u64) -> Self {
        space.request();
        space.hold(bytes);
        Self { space: Arc::clone(space), bytes, reserved: false }
    }

    /// Counts `bytes` against the size, evicting to make room.
    pub(crate) fn reserve(space: &Arc<Space>, bytes: u64) -> Result<Self, Full> {
        space.reserve(bytes)?;
        Ok(Self { space: Arc::clone(space), bytes, reserved: true })
    }

    /// Lets go of the bytes counted until now and counts `bytes` others in their place, which does not fail: for a buffer
    /// that is filled again. Of a reservation this changes nothing.
    pub fn replace(&mut self, bytes: u64) {
        if !self.reserved {
            self.space.let_go(self.bytes);
            self.space.hold(bytes);
            self.bytes = bytes;
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.space.shrunk(self.bytes, !self.reserved);
    }
}

#[cfg(test)]
mod tests {
    use crate::engine::{Engine, Evictions, Full};
    use crate::{Memory, Object};
    use std::sync::Arc;

    struct Nobody;

    impl Evictions for Nobody {
        fn evicted(&self, _object: &Arc<Object>) {}
    }

    #[test]
    fn what_is_counted_shows_and_goes() {
        let memory = Memory::new("s", Some(1000), Arc::new(Nobody));
        let mut charge = memory.count(4000);
        let now = memory.statistics();
        assert_eq!((now.requests, now.bytes, now.linked, now.bytes_total), (1, 4000, 0, 4000));
        charge.replace(10);
        assert_eq!((memory.statistics().bytes, memory.statistics().bytes_total), (10, 4010));
        drop(charge);
        let now = memory.statistics();
        assert_eq!((now.requests, now.bytes, now.bytes_freed), (1, 0, 4010));
    }

    #[test]
    fn a_reservation_counts_against_the_size() {
        let memory = Memory::new("s", Some(1000), Arc::new(Nobody));
        let mut first = memory.reserve(900).expect("there is room");
        assert_eq!(memory.reserve(200).err(), Some(Full));
        first.replace(10);
        assert_eq!((memory.statistics().bytes, memory.statistics().linked), (900, 900));
        drop(first);
        assert_eq!((memory.statistics().bytes, memory.statistics().linked), (0, 0));
        assert!(memory.reserve(200).is_ok());
    }
}
