//! Lookup: finds the object that answers a request, or the reason why a fetch or a wait is needed.

use super::busy::Busy;
use super::cold::{Loads, Start, end_of_life, may_fit, same_fields, variant_hash};
use super::confirmation::{Confirmation, PendingConfirmation};
use super::head::{Head, Waiter, is_alike};
use super::{Index, Key, Shard};
use crate::reason::Reason;
use base::{Seconds, Time};
use copal_base as base;
use std::sync::Arc;
use std::task::Waker;
use store::{Facts, Flags, Object, State};

use copal_store as store;

/// Whether a request accepts an object; `true`: a shared fetch has brought it for this request.
pub type Accepts<'request> = dyn Fn(&Object, bool) -> Acceptance + 'request;

/// The request, as far as lookup needs it.
pub struct Query<'request> {
    /// The digest.
    pub key: Key,
    /// The request's arrival: freshness counts from it, so that a request that waited is answered by what came meanwhile.
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
    /// Whether the request accepts an object that fits, where it demands more than freshness.
    pub accepts: Option<&'request Accepts<'request>>,
    /// The request, if it needs the confirmation of the origin.
    pub pending_confirmation: Option<&'request Arc<PendingConfirmation>>,
    /// What was stored when the request began to wait, once it does.
    pub waited: Option<Waited>,
    /// Whether the request fits an object's variant.
    pub fits: &'request dyn Fn(&Object) -> bool,
    /// Whether an object of status 206 that is stored by itself has the range that the request wants. `None` of other objects.
    pub part: &'request dyn Fn(&Object) -> Option<bool>,
    /// The variant this request would make of an object that varies like this one.
    pub predict: &'request dyn Fn(&Object) -> Vec<u8>,
    /// Whether a stale object is served without asking its origin, which has just failed; and whether it is in grace.
    pub excused: &'request dyn Fn(&Object, bool) -> bool,
    /// Whether a ban has killed an object.
    pub banned: &'request dyn Fn(&Arc<Object>) -> bool,
    /// The request's loads from devices; without, entries on devices are not looked at.
    pub loads: Option<&'request Arc<Loads>>,
}

impl Query<'static> {
    /// A query for nothing but `key`: every object under it fits, and no ban counts.
    pub fn plain(key: Key, now: Time) -> Self {
        Self {
            key,
            arrival: now,
            now,
            ttl_max: None,
            grace_max: None,
            always_miss: false,
            ignore_busy: false,
            rfc: false,
            accepts: None,
            pending_confirmation: None,
            waited: None,
            fits: &|_| true,
            part: &|_| None,
            predict: &|_| Vec::new(),
            excused: &|_, _| false,
            banned: &|_| false,
            loads: None,
        }
    }
}

/// Whether a request that demands more than freshness accepts an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acceptance {
    /// As any request: while it is fresh, or in its grace.
    Yes,
    /// Also stale, beyond its grace.
    Stale,
    /// No: the origin has to be asked, for this reason.
    No(Reason),
}

/// What was stored when a request began to wait.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Waited {
    /// The origin time of the best object there was.
    pub best: Option<Time>,
    /// Why that did not answer the request.
    pub missed: Reason,
}

impl Waited {
    /// Whether `object` came in since.
    fn is_new(self, object: &Object) -> bool {
        self.best.is_none_or(|best| object.origin_time() > best)
    }
}

/// The result of a lookup.
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
    Stale(Arc<Object>, Option<Busy>, Reason),
    /// Nothing usable, and why: fetch; the object, if any, may be revalidated.
    Miss(Busy, Option<Arc<Object>>, Reason),
    /// Another request fetches it; wait for that.
    Wait(Waited),
    /// An entry that may answer is being loaded from its device; wait for that.
    Cold,
}

/// How one object under the key compares with a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judged {
    /// Its fetch failed, or it was taken out meanwhile.
    Dead,
    /// It is for requests with other fields.
    OtherVariant,
    /// It is a stored 206 that is stale, or does not have the wanted range.
    OtherPart,
    /// A ban has hit it.
    Banned,
    /// It is fresh.
    Fresh,
    /// It is fresh, and the request demands more.
    Refused(Reason),
    /// A marker in force.
    HitForPass,
    /// A marker in force.
    HitForMiss,
    /// A marker that is in force no more; a hit-for-miss marker serves on in its grace.
    Lapsed,
    /// It is stale, and perhaps in its grace.
    Stale,
}

/// The result of [`Index::peek`].
#[derive(Debug)]
pub struct Peeked {
    /// The result that a lookup would have, and why.
    pub reason: Reason,
    /// The object that would be served or revalidated, or the marker that decides.
    pub object: Option<Arc<Object>>,
    /// All objects under the key, the newest first.
    pub objects: Vec<(Arc<Object>, Judged)>,
    /// How many further ones are on devices alone.
    pub entries: usize,
    /// Fetches that run under the key.
    pub fetches: usize,
    /// Requests that wait for one of them.
    pub waiting: usize,
    /// Whether one of the fetches is for requests like this.
    pub fetched: bool,
}

/// The result of comparing all objects under a key with a query, without regard to running fetches.
struct Choice {
    /// The object that ends the search: a fresh one, or a marker in force.
    found: Option<(Arc<Object>, Judged)>,
    /// The stale object to serve or to revalidate.
    stale: Option<Arc<Object>>,
    /// A hit-for-miss marker in its grace, which is one still.
    lapsed: Option<Arc<Object>>,
    /// An object that varies, from which the variant of the next one is predicted.
    example: Option<Arc<Object>>,
    /// Why nothing was found.
    why: Reason,
}

impl Choice {
    /// Notes why nothing was found, unless what is noted says more.
    fn because(&mut self, why: Reason) {
        let weight = |why: Reason| match why {
            Reason::Absent => 0,
            Reason::Variant => 1,
            Reason::OtherPart => 2,
            Reason::Banned => 3,
            Reason::Expired => 4,
            _ => 5,
        };
        if weight(why) > weight(self.why) {
            self.why = why;
        }
    }

    /// Takes `object` as the one to serve stale or to revalidate, if it is the newest.
    fn offer(&mut self, object: &Arc<Object>) {
        if self.stale.as_ref().is_none_or(|other| object.origin_time() > other.origin_time()) {
            self.stale = Some(Arc::clone(object));
        }
    }

    /// Why the stale object serves as it is, if it does.
    fn serves_stale(&self, query: &Query<'_>) -> Option<Reason> {
        let object = self.stale.as_ref()?;
        match query.acceptance(object) {
            Acceptance::Yes if in_grace(object, query) => Some(Reason::Grace),
            // An object whose life has ended may be there until the next sweep.
            Acceptance::Stale if is_alive(object, query.now) => Some(Reason::MaxStale),
            Acceptance::Yes | Acceptance::Stale | Acceptance::No(_) => {
                (query.excused)(object, false).then_some(Reason::StaleIfError)
            }
        }
    }
}

/// Whether the ttl, grace and keep of `object` are not over.
fn is_alive(object: &Object, now: Time) -> bool {
    now < object.origin_time() + object.ttl() + object.grace() + object.keep()
}

/// Goes through `variants`, the newest first: of several that fit, it knows best. `banned` gets those that a ban has hit.
fn choose(variants: &[Arc<Object>], query: &Query<'_>, banned: &mut dyn FnMut(&Arc<Object>)) -> Choice {
    let mut choice = Choice { found: None, stale: None, lapsed: None, example: None, why: Reason::Absent };
    if query.always_miss {
        choice.why = Reason::AlwaysMiss;
        return choice;
    }
    for object in variants.iter().rev() {
        let judged = judge(object, query);
        if judged != Judged::Dead && !object.variant().is_empty() {
            choice.example = Some(Arc::clone(object));
        }
        match judged {
            Judged::Dead => {}
            Judged::OtherVariant => choice.because(Reason::Variant),
            Judged::OtherPart => choice.because(Reason::OtherPart),
            Judged::Banned => {
                banned(object);
                choice.because(Reason::Banned);
            }
            Judged::Fresh | Judged::HitForPass | Judged::HitForMiss => {
                choice.found = Some((Arc::clone(object), judged));
                return choice;
            }
            Judged::Lapsed => {
                choice.because(Reason::Expired);
                let serves = object.flags().has(Flags::HIT_FOR_MISS) && in_grace(object, query);
                choice.lapsed = choice.lapsed.or_else(|| serves.then(|| Arc::clone(object)));
            }
            Judged::Refused(why) => {
                choice.because(why);
                choice.offer(object);
            }
            Judged::Stale => {
                choice.because(Reason::Expired);
                choice.offer(object);
            }
        }
    }
    choice
}

fn judge(object: &Arc<Object>, query: &Query<'_>) -> Judged {
    if object.state() == State::Failed || object.is_gone() {
        return Judged::Dead;
    }
    if !object.variant().is_empty() && !(query.fits)(object) {
        return Judged::OtherVariant;
    }
    if (query.banned)(object) {
        return Judged::Banned;
    }
    let marker = object.flags();
    let fresh = object.origin_time() + ttl_for(object, query.ttl_max) > query.arrival;
    if object.status() == 206 && (query.part)(object).is_some_and(|has_it| !(has_it && fresh)) {
        return Judged::OtherPart;
    }
    match (fresh, marker.has(Flags::HIT_FOR_PASS), marker.has(Flags::HIT_FOR_MISS)) {
        (true, true, _) => Judged::HitForPass,
        (true, false, true) => Judged::HitForMiss,
        (true, false, false) => match query.acceptance(object) {
            Acceptance::Yes | Acceptance::Stale => Judged::Fresh,
            Acceptance::No(why) => Judged::Refused(why),
        },
        (false, false, false) => Judged::Stale,
        (false, ..) => Judged::Lapsed,
    }
}

/// Whether a fetch runs that will bring what the query wants, as far as can be told.
fn is_fetched(head: &Head, query: &Query<'_>, choice: &Choice, predicted: &[u8]) -> bool {
    // The object of the last fetch cannot answer this request, or no other request: each fetches for itself at once, rather
    // than wait until those before it have done so, one after the other.
    let alone = query.rfc
        && choice.stale.as_ref().is_some_and(|object| {
            object.ttl() <= 0.0
                || query.waited.is_some_and(|waited| waited.is_new(object))
                || query.pending_confirmation.is_some_and(|pending| pending.has_failed())
        });
    !query.ignore_busy
        && !query.always_miss
        && !alone
        && head.busy.iter().any(|running| {
            !running.outdated
                && running.confirmation >= query.confirmation()
                && is_alike(&running.predicted, predicted)
        })
}

/// How long an object is fresh or usable for this request, relative to its origin time.
#[inline]
pub fn ttl_for(object: &Object, ttl_max: Option<Seconds>) -> Seconds {
    ttl_max.map_or(object.ttl(), |max| object.ttl().min(max))
}

impl Query<'_> {
    fn confirmation(&self) -> Confirmation {
        self.pending_confirmation.map_or(Confirmation::Unneeded, |pending| pending.needed())
    }

    /// Whether the request accepts `object`.
    fn acceptance(&self, object: &Object) -> Acceptance {
        let is_brought = || self.pending_confirmation.is_some_and(|pending| pending.has(object));
        self.accepts.map_or(Acceptance::Yes, |accepts| accepts(object, is_brought()))
    }
}

impl Index {
    /// Answers `query`. With `waiter`, a request that must wait is put on the list, under that number.
    pub fn lookup(self: &Arc<Self>, query: &Query<'_>, waiter: Option<(u64, &Waker)>) -> Found {
        let mut dead = Vec::new();
        let mut start = None;
        let found = self.lookup_locked(query, waiter, &mut dead, &mut start);
        for object in dead {
            self.unlink(&object);
        }
        if let Some(start) = start {
            self.begin_load(start);
        }
        found
    }

    fn lookup_locked(
        self: &Arc<Self>,
        query: &Query<'_>,
        waiter: Option<(u64, &Waker)>,
        dead: &mut Vec<Arc<Object>>,
        start: &mut Option<Start>,
    ) -> Found {
        let mut shard = self.shard(&query.key);
        let mut choice =
            choose(shard.variants(&query.key), query, &mut |object| dead.push(Arc::clone(object)));
        match choice.found {
            Some((object, Judged::HitForPass)) => return Found::HitForPass(object),
            Some((object, Judged::HitForMiss)) => {
                let id = shard.head(&query.key).begin(&[], query.confirmation());
                return Found::HitForMiss(object, Busy::new(Arc::clone(self), query.key, id));
            }
            Some((object, _)) => return Found::Hit(object),
            None => {}
        }
        if let Some(loads) = query.loads.filter(|_| !query.always_miss && shard.has_cold()) {
            if let Some(begin) = self.look_for_cold(&mut shard, query, &choice, loads, waiter) {
                *start = begin;
                return Found::Cold;
            }
            if let Some(why) = loads.failure() {
                choice.because(why);
            }
        }
        let serves = choice.serves_stale(query);
        if let (Some(reason), Some(object)) = (serves, &choice.stale)
            && (reason != Reason::Grace || (query.excused)(object, true))
        {
            return Found::Stale(Arc::clone(object), None, reason);
        }
        let predicted = choice.example.as_ref().map_or_else(Vec::new, |object| (query.predict)(object));
        let head = shard.head(&query.key);
        let somebody = is_fetched(head, query, &choice, &predicted);
        let Choice { stale, lapsed, why, .. } = choice;
        if let (Some(reason), Some(object)) = (serves, &stale) {
            let object = Arc::clone(object);
            let busy = (!somebody).then(|| {
                Busy::new(Arc::clone(self), query.key, head.begin(&predicted, query.confirmation()))
            });
            if busy.is_none() {
                shard.simplify(&query.key);
            }
            return Found::Stale(object, busy, reason);
        }
        if let Some(marker) = lapsed {
            return Found::HitForMiss(
                marker,
                Busy::new(Arc::clone(self), query.key, head.begin(&[], query.confirmation())),
            );
        }
        if somebody {
            if let Some((id, waker)) = waiter {
                match head.waiters.iter_mut().find(|waiter| waiter.id == id) {
                    Some(waiter) => waiter.waker.clone_from(waker),
                    None => {
                        let pending_confirmation = query.pending_confirmation.cloned();
                        head.waiters.push(Waiter { id, waker: waker.clone(), pending_confirmation });
                    }
                }
            }
            return Found::Wait(Waited { best: stale.map(|object| object.origin_time()), missed: why });
        }
        Found::Miss(
            Busy::new(Arc::clone(self), query.key, head.begin(&predicted, query.confirmation())),
            stale,
            why,
        )
    }

    /// Looks for what may answer `query` on devices: something newer than the best that is resident, not at the end of its
    /// life, and not for requests with other fields as far as can be told.
    fn look_for_cold(
        &self,
        shard: &mut Shard,
        query: &Query<'_>,
        choice: &Choice,
        loads: &Arc<Loads>,
        waiter: Option<(u64, &Waker)>,
    ) -> Option<Option<Start>> {
        let variants = shard.variants(&query.key).iter().filter(|object| !object.variant().is_empty());
        let mut examples: Vec<(u32, u32)> = Vec::new();
        for object in variants {
            let own = variant_hash(object.variant());
            if !examples.iter().any(|(other, _)| same_fields(*other, own)) {
                examples.push((own, variant_hash(&(query.predict)(object))));
            }
        }
        let best = choice.stale.as_ref().map_or(f64::NEG_INFINITY, |object| object.origin_time());
        // By the RFC, values that differ may mean the same.
        let fits = |variant: u32| query.rfc || may_fit(variant, &examples);
        let is_of_use = |facts: &Facts| {
            let (fresh, graceful) = (
                facts.origin_time + f64::from(facts.ttl) > query.arrival,
                facts.origin_time + f64::from(facts.ttl) + f64::from(facts.grace) > query.now,
            );
            fresh || graceful || Flags(facts.flags).has(Flags::VALIDATOR)
        };
        self.look_cold(shard, &query.key, loads, waiter, |facts| {
            facts.is_piece()
                || end_of_life(facts) > query.now
                    && is_of_use(facts)
                    && facts.origin_time > best
                    && fits(facts.variant)
        })
    }

    /// The result that [`Index::lookup`] would have, without its effects: no fetch begins, no request waits, no object is taken
    /// out. `query.banned` must have no effects either.
    pub fn peek(&self, query: &Query<'_>) -> Peeked {
        let shard = self.shard(&query.key);
        let variants = shard.variants(&query.key);
        let objects =
            variants.iter().rev().map(|object| (Arc::clone(object), judge(object, query))).collect();
        let choice = choose(variants, query, &mut |_| {});
        let predicted = choice.example.as_ref().map_or_else(Vec::new, |object| (query.predict)(object));
        let entries = self.count_cold(&shard, &query.key);
        let head = shard.heads.get(&query.key);
        let fetched = head.is_some_and(|head| is_fetched(head, query, &choice, &predicted));
        let serves = choice.serves_stale(query);
        let Choice { found, stale, lapsed, why, .. } = choice;
        let (reason, object) = match (found, serves, lapsed) {
            (Some((object, Judged::HitForPass)), ..) => (Reason::HitForPass, Some(object)),
            (Some((object, Judged::HitForMiss)), ..) => (Reason::HitForMiss, Some(object)),
            (Some((object, _)), ..) => (Reason::Hit, Some(object)),
            (None, Some(reason), _) => (reason, stale),
            (None, None, Some(marker)) => (Reason::HitForMiss, Some(marker)),
            (None, None, None) if entries > 0 && !query.always_miss => (Reason::Load, stale),
            (None, None, None) if fetched => (Reason::Busy, stale),
            (None, None, None) => (why, stale),
        };
        let (fetches, waiting) = head.map_or((0, 0), |head| (head.busy.len(), head.waiters.len()));
        Peeked { reason, object, objects, entries, fetches, waiting, fetched }
    }

    /// Begins a fetch under `key` beside all running ones: for a response that did not come from a miss.
    pub fn begin(self: &Arc<Self>, key: &Key) -> Busy {
        let id = self.shard(key).head(key).begin(&[], Confirmation::Unneeded);
        Busy::new(Arc::clone(self), *key, id)
    }

    /// Takes a request off the waiting list, whose wait ended otherwise. If it had been woken to take over a failed
    /// fetch, the next in line is woken in its stead.
    pub fn stop_waiting(&self, key: &Key, id: u64) {
        let mut shard = self.shard(key);
        shard.stop_waiting_for_loads(id);
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
