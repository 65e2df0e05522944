//! Finding what a request may be answered with.

use super::busy::Busy;
use super::head::Waiter;
use super::{Index, Key};
use base::{Seconds, Time};
use copal_base as base;
use std::sync::Arc;
use std::task::Waker;
use store::{Flags, Object, State};

use copal_store as store;

/// What a lookup asks.
pub struct Query<'request> {
    /// The digest.
    pub key: Key,
    /// The request's arrival: freshness is judged by it, so that who waited gets what came meanwhile.
    pub arrival: Time,
    /// The present moment, for grace.
    pub now: Time,
    /// `req.ttl`: no object may be fresh for longer.
    pub ttl_max: Option<Seconds>,
    /// `req.grace`: no object is served staler.
    pub grace_max: Option<Seconds>,
    /// `req.hash_always_miss`.
    pub always_miss: bool,
    /// `req.hash_ignore_busy`.
    pub ignore_busy: bool,
    /// Whether an object's variant fits the request.
    pub fits: &'request dyn Fn(&[u8]) -> bool,
    /// The variant this request would make of an object that varies like this one.
    pub predict: &'request dyn Fn(&Object) -> Vec<u8>,
    /// Whether a ban has killed an object.
    pub banned: &'request dyn Fn(&Arc<Object>) -> bool,
}

/// The answer.
#[derive(Debug)]
pub enum Found {
    /// Fresh.
    Hit(Arc<Object>),
    /// A marker: pass.
    HitForPass(Arc<Object>),
    /// A marker: fetch alone, nobody waits.
    HitForMiss(Arc<Object>, Busy),
    /// In grace. With a [`Busy`] the caller starts a background fetch; without, one runs already.
    Stale(Arc<Object>, Option<Busy>),
    /// Nothing usable: fetch; the object, if any, may be revalidated.
    Miss(Busy, Option<Arc<Object>>),
    /// Somebody fetches it; wait for it.
    Wait,
}

/// How long an object is fresh or usable for this request, relative to its origin time.
pub fn ttl_for(object: &Object, ttl_max: Option<Seconds>) -> Seconds {
    ttl_max.map_or(object.ttl(), |max| object.ttl().min(max))
}

impl Index {
    /// Answers `query`. With `waiter`, a request that must wait is put on the list, under that number.
    pub fn lookup(self: &Arc<Self>, query: &Query<'_>, waiter: Option<(u64, &Waker)>) -> Found {
        let mut dead = Vec::new();
        let found = self.lookup_locked(query, waiter, &mut dead);
        for object in dead {
            self.unlink(&object);
        }
        found
    }

    fn lookup_locked(
        self: &Arc<Self>,
        query: &Query<'_>,
        waiter: Option<(u64, &Waker)>,
        dead: &mut Vec<Arc<Object>>,
    ) -> Found {
        let mut shard = self.shard(&query.key);
        let mut stale: Option<Arc<Object>> = None;
        let mut vary_example: Option<Arc<Object>> = None;
        // A hit-for-miss marker in grace is one still.
        let mut lapsed: Option<Arc<Object>> = None;
        if !query.always_miss {
            let single = shard.single.get(&query.key).map(|entry| std::slice::from_ref(&entry.0));
            let variants =
                single.or_else(|| shard.heads.get(&query.key).map(|head| head.variants.as_slice()));
            // The newest first: of several that fit, it knows best.
            for object in variants.unwrap_or_default().iter().rev() {
                if object.state() == State::Failed || object.is_gone() {
                    continue;
                }
                if !object.variant().is_empty() {
                    vary_example = Some(Arc::clone(object));
                    if !(query.fits)(object.variant()) {
                        continue;
                    }
                }
                if (query.banned)(object) {
                    dead.push(Arc::clone(object));
                    continue;
                }
                let marker = object.flags();
                if object.origin_time() + ttl_for(object, query.ttl_max) > query.arrival {
                    if marker.has(Flags::HIT_FOR_PASS) {
                        return Found::HitForPass(Arc::clone(object));
                    }
                    if marker.has(Flags::HIT_FOR_MISS) {
                        let object = Arc::clone(object);
                        let id = shard.head(&query.key).begin(&[]);
                        return Found::HitForMiss(object, Busy::new(Arc::clone(self), query.key, id));
                    }
                    return Found::Hit(Arc::clone(object));
                }
                if marker.has(Flags::HIT_FOR_PASS) {
                    continue;
                }
                if marker.has(Flags::HIT_FOR_MISS) {
                    lapsed = lapsed.or_else(|| in_grace(object, query).then(|| Arc::clone(object)));
                    continue;
                }
                let newer = stale.as_ref().is_none_or(|other| object.origin_time() > other.origin_time());
                if newer {
                    stale = Some(Arc::clone(object));
                }
            }
        }
        let graceful = stale.as_ref().is_some_and(|object| in_grace(object, query));
        let predicted = vary_example.map_or_else(Vec::new, |object| (query.predict)(&object));
        let head = shard.head(&query.key);
        let somebody = !query.ignore_busy
            && !query.always_miss
            && head.busy.iter().any(|running| {
                !running.outdated
                    && (running.predicted.is_empty()
                        || predicted.is_empty()
                        || *running.predicted == *predicted)
            });
        if graceful {
            let object = stale.expect("graceful is of the stale object");
            let busy = (!somebody).then(|| Busy::new(Arc::clone(self), query.key, head.begin(&predicted)));
            if busy.is_none() {
                shard.simplify(&query.key);
            }
            return Found::Stale(object, busy);
        }
        if let Some(marker) = lapsed {
            return Found::HitForMiss(marker, Busy::new(Arc::clone(self), query.key, head.begin(&[])));
        }
        if somebody {
            if let Some((id, waker)) = waiter {
                match head.waiters.iter_mut().find(|waiter| waiter.id == id) {
                    Some(waiter) => waiter.waker.clone_from(waker),
                    None => head.waiters.push(Waiter { id, waker: waker.clone() }),
                }
            }
            return Found::Wait;
        }
        Found::Miss(Busy::new(Arc::clone(self), query.key, head.begin(&predicted)), stale)
    }

    /// The right to fetch what is under `key`, beside all others who do: for a response that came about otherwise.
    pub fn begin(self: &Arc<Self>, key: &Key) -> Busy {
        let id = self.shard(key).head(key).begin(&[]);
        Busy::new(Arc::clone(self), *key, id)
    }

    /// Takes a request off the waiting list, whose wait ended otherwise. If it had been woken to take over a failed
    /// fetch, the next in line is woken in its stead.
    pub fn stop_waiting(&self, key: &Key, id: u64) {
        let mut shard = self.shard(key);
        if let Some(head) = shard.heads.get_mut(key) {
            let before = head.waiters.len();
            head.waiters.retain(|waiter| waiter.id != id);
            if head.waiters.len() == before && head.busy.is_empty() {
                head.wake_one();
            }
        }
        shard.simplify(key);
    }
}

fn in_grace(object: &Object, query: &Query<'_>) -> bool {
    let grace = query.grace_max.map_or(object.grace(), |max| object.grace().min(max));
    object.origin_time() + ttl_for(object, query.ttl_max) + grace > query.now
}
