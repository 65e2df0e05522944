//! Stale objects whose origin has just failed: for a short while they are served without asking it again.
//!
//! Only a request that found nothing fresh looks here, and while all is well a look is one load. Bounded: beyond
//! [`MOST`] objects nothing more is noted, and each request asks for itself.

use crate::trouble::Trouble;
use base::Time;
use catalog::index::Key;
use copal_base as base;
use copal_catalog as catalog;
use copal_store as store;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use store::Object;

/// The most objects that are noted at a time.
const MOST: usize = 1 << 16;

/// The failure of one object's origin.
#[derive(Debug, Clone)]
pub(crate) struct Outage {
    /// The transaction that fetched the object: another one under the same key is not concerned.
    pub(crate) vxid: u32,
    /// The origin is not asked again before.
    pub(crate) until: Time,
    /// Requests without directives of their own may have the object up to this moment.
    pub(crate) stale_until: Time,
    /// Whether requests may ask for more time.
    pub(crate) may_be_stale: bool,
    /// What happened.
    pub(crate) trouble: Arc<Trouble>,
}

/// All of them, by key.
#[derive(Debug, Default)]
pub struct Outages {
    noted: Mutex<HashMap<Key, Outage>>,
    count: AtomicUsize,
}

impl Outages {
    /// Notes at `now` that the origin of `object` failed.
    pub(crate) fn note(&self, object: &Object, now: Time, outage: Outage) {
        if outage.until <= now {
            return;
        }
        let mut noted = self.noted.lock();
        if noted.len() >= MOST {
            noted.retain(|_, outage| outage.until > now);
        }
        if noted.len() < MOST || noted.contains_key(object.key()) {
            noted.insert(*object.key(), outage);
        }
        self.count.store(noted.len(), Ordering::Relaxed);
    }

    /// What was noted of `object` and still holds at `now`.
    pub(crate) fn of(&self, object: &Object, now: Time) -> Option<Outage> {
        if self.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let mut noted = self.noted.lock();
        let outage = noted.get(object.key())?;
        if outage.until <= now {
            noted.remove(object.key());
            self.count.store(noted.len(), Ordering::Relaxed);
            return None;
        }
        (outage.vxid == object.vxid()).then(|| outage.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use copal_store::{Attributes, Creation, Engine, Evictions, Flags, Memory};

    struct Nobody;

    impl Evictions for Nobody {
        fn evicted(&self, _: &Arc<Object>) {}
    }

    fn object(number: u32, vxid: u32) -> Arc<Object> {
        let memory = Memory::new("s0", None, Arc::new(Nobody));
        let attributes = Attributes {
            origin_time: 0.0,
            ttl: 1.0,
            grace: 0.0,
            keep: 60.0,
            status: 200,
            flags: Flags(0),
            ban: 0,
            vxid,
        };
        let mut key = [0; 32];
        key[..4].copy_from_slice(&number.to_le_bytes());
        let creation = Creation { key, attributes, variant: b"", head: b"", length: Some(0) };
        let fill = memory.begin(&creation).unwrap();
        let object = Arc::clone(fill.object());
        fill.commit();
        object
    }

    fn outage(vxid: u32, until: Time) -> Outage {
        let trouble = Arc::new(Trouble::internal());
        Outage { vxid, until, stale_until: 60.0, may_be_stale: true, trouble }
    }

    #[test]
    fn it_holds_for_its_time_and_its_object() {
        let outages = Outages::default();
        let (old, new) = (object(1, 7), object(1, 8));
        assert!(outages.of(&old, 10.0).is_none());
        outages.note(&old, 10.0, outage(7, 12.0));
        assert_eq!(outages.of(&old, 11.9).unwrap().stale_until.to_bits(), 60f64.to_bits());
        assert!(outages.of(&new, 11.9).is_none(), "another object");
        assert!(outages.of(&object(2, 7), 11.9).is_none(), "another key");
        assert!(outages.of(&old, 12.0).is_none(), "its time is over");
        assert_eq!(outages.count.load(Ordering::Relaxed), 0);
        outages.note(&old, 10.0, outage(7, 10.0));
        assert!(outages.of(&old, 10.0).is_none(), "no time at all");
    }

    #[test]
    fn there_are_never_more_than_so_many() {
        let outages = Outages::default();
        let one = object(1, 7);
        {
            let mut noted = outages.noted.lock();
            for number in 0..MOST as u32 {
                let mut key = [1; 32];
                key[..4].copy_from_slice(&number.to_le_bytes());
                noted.insert(key, outage(1, 20.0));
            }
        }
        outages.note(&one, 10.0, outage(7, 12.0));
        assert!(outages.of(&one, 11.0).is_none(), "no room");
        outages.note(&one, 20.0, outage(7, 22.0));
        assert!(outages.of(&one, 21.0).is_some(), "the others had their time");
        assert_eq!(outages.count.load(Ordering::Relaxed), 1);
    }
}
