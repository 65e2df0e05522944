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
    /// `req.rfc`: what has to be validated for each request is not worth waiting for.
    pub rfc: bool,
    /// What the request makes of an object that fits, where it asks for more than freshness.
    pub asks: Option<&'request dyn Fn(&Object) -> Suits>,
    /// What stood there when the request began to wait, once it does.
    pub waited: Option<Waited>,
    /// Whether an object's variant fits the request.
    pub fits: &'request dyn Fn(&[u8]) -> bool,
    /// The variant this request would make of an object that varies like this one.
    pub predict: &'request dyn Fn(&Object) -> Vec<u8>,
    /// Whether a ban has killed an object.
    pub banned: &'request dyn Fn(&Arc<Object>) -> bool,
}

/// What a request that asks for more than freshness makes of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Suits {
    /// It takes it as anybody does: fresh, or in its grace.
    Yes,
    /// It takes it although it is stale, beyond its grace.
    Stale,
    /// The origin has to be asked.
    No,
}

/// Why there is nothing to answer with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missed {
    /// There is nothing under the key.
    Nothing,
    /// Nothing under the key fits the request.
    Variant,
    /// What fits is stale.
    Stale,
    /// What fits is good for others; this request asks for more.
    Asked,
    /// VCL did not want to know (`req.hash_always_miss`).
    Told,
}

/// What a request waits over.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Waited {
    /// The origin time of the best object there was.
    pub best: Option<Time>,
    /// Why that would not do.
    pub missed: Missed,
}

impl Waited {
    /// Whether `object` came in since.
    fn is_new(self, object: &Object) -> bool {
        self.best.is_none_or(|best| object.origin_time() > best)
    }
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
    /// In grace. With a [`Busy`] the caller starts a background fetch; without, one runs already, or the request takes it
    /// so.
    Stale(Arc<Object>, Option<Busy>),
    /// Nothing usable: fetch; the object, if any, may be revalidated.
    Miss(Busy, Option<Arc<Object>>, Missed),
    /// Somebody fetches it; wait for it.
    Wait(Waited),
}

/// How long an object is fresh or usable for this request, relative to its origin time.
pub fn ttl_for(object: &Object, ttl_max: Option<Seconds>) -> Seconds {
    ttl_max.map_or(object.ttl(), |max| object.ttl().min(max))
}

impl Query<'_> {
    /// What the request makes of `object`. What came in while it waited was asked of the origin in its lifetime: no request
    /// can ask for more.
    fn suits(&self, object: &Object) -> Suits {
        match self.asks {
            Some(_) if self.waited.is_some_and(|waited| waited.is_new(object)) => Suits::Yes,
            Some(asks) => asks(object),
            None => Suits::Yes,
        }
    }
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
        let mut asked = false;
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
                    if query.suits(object) != Suits::No {
                        return Found::Hit(Arc::clone(object));
                    }
                    asked = true;
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
        let graceful = match &stale {
            None => false,
            Some(object) => match query.suits(object) {
                Suits::Yes => in_grace(object, query),
                Suits::Stale => return Found::Stale(Arc::clone(object), None),
                Suits::No => false,
            },
        };
        let missed = match &stale {
            _ if query.always_miss => Missed::Told,
            Some(_) if asked => Missed::Asked,
            Some(_) => Missed::Stale,
            None if vary_example.is_some() => Missed::Variant,
            None => Missed::Nothing,
        };
        // What came of the last fetch does not do for this request, or will not do for any other: each asks for itself, and
        // does not wait until those before it have asked for themselves, one after the other.
        let alone = query.rfc
            && stale.as_ref().is_some_and(|object| {
                object.ttl() <= 0.0 || query.waited.is_some_and(|waited| waited.is_new(object))
            });
        let predicted = vary_example.map_or_else(Vec::new, |object| (query.predict)(&object));
        let head = shard.head(&query.key);
        let somebody = !query.ignore_busy
            && !query.always_miss
            && !alone
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
            return Found::Wait(Waited { best: stale.map(|object| object.origin_time()), missed });
        }
        Found::Miss(Busy::new(Arc::clone(self), query.key, head.begin(&predicted)), stale, missed)
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
