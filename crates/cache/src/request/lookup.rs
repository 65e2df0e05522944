//! Lookup: what is there for this key and request?

use super::step::{Freshness, Step};
use crate::demand::Demand;
use crate::exchange::Exchange;
use crate::fetch::sparse::standalone::StandalonePart;
use base::Time;
use catalog::ban::Listed;
use catalog::index::confirmation::PendingConfirmation;
use catalog::index::lookup::{Acceptance, Found, Peeked, Query, Waited, ttl_for};
use catalog::reason::{Kind, Reason};
use copal_base as base;
use copal_catalog as catalog;
use copal_observe as observe;
use copal_rules as rules;
use copal_store as store;
use copal_vcl::variables::Var;
use copal_wire as wire;
use observe::Tag;
use rules::cache_status::Forward;
use rules::request::Directives;
use std::future::{Future as _, poll_fn};
use std::sync::Arc;
use std::task::{Poll, Waker};
use store::{Flags, Object, State};
use wire::{Fields, Known};

/// The next step, or `None` if the request must wait for a fetch that runs.
pub(crate) fn step(exchange: &mut Exchange) -> Option<Step> {
    note_demand(exchange);
    if let Some(step) = hot(exchange) {
        return Some(step);
    }
    if exchange.loads.is_none() && exchange.local.shared.index.has_devices() {
        exchange.loads = Some(Arc::default());
    }
    let found = search(exchange, exchange.now, None, None);
    if matches!(found, Found::Miss(_, _, Reason::Absent)) {
        // As varnishd: a new key is what a lookup needs the lock for.
        exchange.local.counters.hcb_lock.inc();
        exchange.local.counters.hcb_insert.inc();
    }
    after(exchange, found)
}

#[inline]
fn note_demand(exchange: &mut Exchange) {
    exchange.demand = if exchange.rfc { Demand::of(&exchange.request.fields) } else { None };
    if let Some(demand) = exchange.demand {
        exchange.pending_confirmation = PendingConfirmation::new(demand.confirmation());
    }
}

/// A fresh hit on an object in this thread's hot table.
fn hot(exchange: &mut Exchange) -> Option<Step> {
    if exchange.always_miss {
        return None;
    }
    let known = exchange.local.hot(&exchange.key)?;
    let fresh = known.origin_time() + ttl_for(&known, exchange.ttl_max) > exchange.times.arrival;
    if !fresh
        || known.flags().0 & (Flags::HIT_FOR_MISS | Flags::HIT_FOR_PASS) != 0
        || known.state() == State::Failed
        || known.may_be_superseded()
        || known.ban() < exchange.local.shared.bans.newest()
        || !(known.variant().is_empty() || fits(exchange, &known))
        || known.status() == 206 && has_part(exchange, &known) == Some(false)
    {
        return None;
    }
    if let Some(demand) = exchange.demand
        && demand.permits_with(exchange, &known, known.fields(), exchange.now) != Acceptance::Yes
    {
        return None;
    }
    Some(Step::Hit(known, None, Freshness::Fresh))
}

fn fits(exchange: &Exchange, object: &Object) -> bool {
    let (variant, request) = (object.variant(), &exchange.request.fields);
    exchange.ignore_vary
        || rules::vary::matches(variant, request)
        || exchange.rfc && fits_by_meaning(object, request)
}

fn fits_by_meaning(object: &Object, request: &Fields) -> bool {
    let mut fields = Fields::new();
    if request.has_known(Known::AcceptLanguage) {
        catalog::head::load(object.head(), &mut fields);
    }
    let mut languages = fields.all_known(Known::ContentLanguage);
    let language = languages.next().filter(|_| languages.next().is_none());
    rules::vary::matches_normalised(object.variant(), request, language)
}

/// Whether a standalone part has what the request wants; `None` of other objects.
fn has_part(exchange: &Exchange, object: &Object) -> Option<bool> {
    let mut fields = Fields::new();
    catalog::head::load(object.head(), &mut fields);
    if !fields.has_known(Known::ContentRange) {
        return None;
    }
    let part = object.length().and_then(|length| StandalonePart::of(&fields, length));
    let answers = |part: StandalonePart| part.answer(&exchange.request.fields).is_some();
    Some(exchange.rfc && exchange.request.method == b"GET" && part.is_some_and(answers))
}

/// Looks the request's key up in the index. `waited` is what there was when the request began to wait, if it does.
pub(super) fn search(
    exchange: &Exchange,
    now: Time,
    waited: Option<Waited>,
    waiter: Option<(u64, &Waker)>,
) -> Found {
    let banned = |object: &Arc<Object>| is_banned(exchange, object);
    with_query(exchange, now, waited, &banned, |query| exchange.local.shared.index.lookup(query, waiter))
}

/// The result that a lookup would have, without its effects, and with the request's directives applied.
pub(crate) fn peek(exchange: &mut Exchange) -> Peeked {
    note_demand(exchange);
    let mut peeked = peek_all(exchange);
    if let Some(demand) = exchange.demand.filter(|_| peeked.reason.kind() != Kind::Hit) {
        if demand.directives.only_if_cached {
            peeked.reason = Reason::OnlyIfCached;
        } else if demand.directives.no_store {
            peeked.reason = Reason::RequestNoStore;
        }
    }
    peeked
}

/// The objects under the key, without regard to the request's directives.
pub(crate) fn peek_all(exchange: &Exchange) -> Peeked {
    let banned = |object: &Arc<Object>| ban_of(exchange, object).is_some();
    let peek = |query: &Query<'_>| exchange.local.shared.index.peek(query);
    with_query(exchange, exchange.now, None, &banned, peek)
}

/// The ban that would end `object` if the request met it.
pub(crate) fn ban_of(exchange: &Exchange, object: &Object) -> Option<Listed> {
    let bans = &exchange.local.shared.bans;
    if object.ban() >= bans.newest() {
        return None;
    }
    bans.find(object, (exchange.request.target.as_slice(), &exchange.request.fields))
}

fn with_query<Answer>(
    exchange: &Exchange,
    now: Time,
    waited: Option<Waited>,
    banned: &dyn Fn(&Arc<Object>) -> bool,
    act: impl FnOnce(&Query<'_>) -> Answer,
) -> Answer {
    let demand = exchange.demand;
    let permits = move |object: &Object, is_brought| match demand {
        Some(demand) if is_brought => demand.permits_fetched(exchange, object, now),
        Some(demand) => demand.permits(exchange, object, now),
        None => Acceptance::Yes,
    };
    let query = Query {
        key: exchange.key,
        arrival: exchange.times.arrival,
        now,
        ttl_max: exchange.ttl_max,
        grace_max: exchange.grace_max,
        always_miss: exchange.always_miss,
        ignore_busy: exchange.ignore_busy,
        rfc: exchange.rfc,
        accepts: demand.is_some().then_some(&permits),
        pending_confirmation: exchange.pending_confirmation.as_ref(),
        waited,
        fits: &|object| fits(exchange, object),
        part: &|object| has_part(exchange, object),
        excused: &|object, graceful| exchange.rfc && is_excused(exchange, object, graceful, now),
        predict: &|object| predict(object.variant(), &exchange.request.fields),
        banned,
        loads: exchange.loads.as_ref(),
    };
    act(&query)
}

/// Whether the origin of a stale object failed a moment ago, so that the object may do without asking it again.
fn is_excused(exchange: &Exchange, object: &Object, graceful: bool, now: Time) -> bool {
    let Some(outage) = exchange.local.shared.outages.of(object, now) else { return false };
    let directives = exchange.demand.map_or_else(Directives::default, |demand| demand.directives);
    let own = directives.stale_if_error.map(f64::from);
    if graceful || (now < outage.stale_until && (!directives.no_cache || own.is_some())) {
        return true;
    }
    outage.may_be_stale && own.is_some_and(|own| now < object.origin_time() + object.ttl().max(0.0) + own)
}

/// Notes the failure of the origin for which a stale object stands in.
fn note_outage(exchange: &mut Exchange, object: &Object) {
    exchange.local.counters.stale_if_error.inc();
    let outage = exchange.local.shared.outages.of(object, exchange.now);
    exchange.trouble = outage.map(|outage| outage.trouble);
}

fn is_banned(exchange: &Exchange, object: &Arc<Object>) -> bool {
    let shared = &exchange.local.shared;
    if object.ban() >= shared.bans.newest() {
        return false;
    }
    shared.bans.hits(object, (exchange.request.target.as_slice(), &exchange.request.fields))
}

/// The most variants considered for the condition of a fetch.
const LOOKED_AT: usize = 32;

/// What is stored under the request's key and may be asked about, whether it fits or not, the newest first; nothing for who
/// distrusts what is stored.
pub(super) fn usable(exchange: &Exchange) -> Vec<Arc<Object>> {
    if exchange.always_miss || exchange.demand.is_some_and(|demand| demand.reload) {
        return Vec::new();
    }
    let mut objects = exchange.local.shared.index.newest(&exchange.key, LOOKED_AT);
    objects.retain(|object| !is_banned(exchange, object));
    objects
}

/// The variant of this request, if the next response varies by the same fields as that of `variant`.
fn predict(variant: &[u8], request: &Fields) -> Vec<u8> {
    let mut example = Fields::new();
    for wanted in rules::vary::entries(variant) {
        example.push_known(Known::Vary, wanted.name);
    }
    rules::vary::build(&example, request).unwrap_or_default()
}

/// Waits until the running fetch ends, or until the time-out; then the next step.
pub(crate) async fn wait(exchange: &mut Exchange) -> Step {
    exchange.local.counters.busy_sleep.inc();
    let id = exchange.local.waiter_id();
    let limit = exchange.current.settings.waiting_list_timeout;
    let guard = Waiting::new(exchange, id);
    let sleep = tokio::time::sleep(std::time::Duration::from_secs_f64(limit.clamp(0.001, 86_400.0)));
    let mut sleep = std::pin::pin!(sleep);
    let mut waited = None;
    let found = poll_fn(|context| {
        if sleep.as_mut().poll(context).is_ready() {
            return Poll::Ready(None);
        }
        match search(exchange, exchange.local.now(), waited, Some((id, context.waker()))) {
            Found::Wait(over) => {
                waited = waited.or(Some(over));
                Poll::Pending
            }
            Found::Cold => Poll::Pending,
            found => Poll::Ready(Some(found)),
        }
    })
    .await;
    drop(guard);
    exchange.local.counters.busy_wakeup.inc();
    let now = exchange.local.now();
    exchange.timestamp("Waitinglist", now);
    let found = match found {
        Some(found) => found,
        None => {
            // The fetch takes too long: this request fetches for itself.
            exchange.ignore_busy = true;
            search(exchange, now, waited, None)
        }
    };
    // The object that was handed over need not be held any longer.
    exchange.pending_confirmation = None;
    if let (Found::Hit(_) | Found::Stale(..), Some(waited)) = (&found, waited) {
        exchange.handled.collapsed(waited.missed);
    }
    let fetches = matches!(found, Found::Miss(..)) && exchange.ignore_busy;
    let step = after(exchange, found).unwrap_or(Step::Pass);
    if fetches {
        exchange.reason = Reason::Waited;
    }
    step
}

/// An entry in a waiting list, removed on drop.
pub(super) struct Waiting {
    index: Arc<catalog::index::Index>,
    key: catalog::index::Key,
    id: u64,
}

impl Waiting {
    /// The entry `id` in the list of those who wait under the exchange's key.
    pub(super) fn new(exchange: &Exchange, id: u64) -> Self {
        Self { index: Arc::clone(&exchange.local.shared.index), key: exchange.key, id }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.index.stop_waiting(&self.key, self.id);
    }
}

/// What a request gets that wants nothing fetched, or nothing stored; `None` if that is not said of it, or does not matter
/// for what was found.
fn restrained(exchange: &mut Exchange, found: &Found) -> Option<Step> {
    let directives = exchange.demand?.directives;
    let missed = match found {
        Found::Hit(_) | Found::Stale(..) | Found::Cold => return None,
        Found::Miss(_, _, missed) => *missed,
        Found::Wait(waited) => waited.missed,
        Found::HitForPass(_) => Reason::HitForPass,
        Found::HitForMiss(..) => Reason::HitForMiss,
    };
    if directives.only_if_cached {
        // RFC 9111, section 5.2.1.7.
        exchange.reason = Reason::OnlyIfCached;
        return Some(Step::Synth(504, None));
    }
    if directives.no_store {
        // Its answer is for this client alone, so that no other request waits for it.
        exchange.handled.missed(missed);
        exchange.reason = Reason::RequestNoStore;
        return Some(Step::Pass);
    }
    None
}

/// The step that follows from what was found; `None` if the request must wait for a fetch that runs.
pub(super) fn after(exchange: &mut Exchange, found: Found) -> Option<Step> {
    if let Some(step) = restrained(exchange, &found) {
        return Some(step);
    }
    Some(match found {
        Found::Hit(object) => Step::Hit(exchange.local.know(&object, exchange.now), None, Freshness::Fresh),
        Found::Stale(object, busy, reason) => {
            exchange.reason = reason;
            if reason == Reason::StaleIfError {
                note_outage(exchange, &object);
            }
            Step::Hit(exchange.local.know(&object, exchange.now), busy, Freshness::Grace)
        }
        Found::HitForPass(object) => {
            exchange.local.counters.cache_hitpass.inc();
            exchange.marker = Some(Var::ReqIsHitpass);
            exchange.handled.forward(Forward::Bypass);
            exchange.reason = Reason::HitForPass;
            let left = object.origin_time() + object.ttl() - exchange.now;
            exchange.records.fmt(Tag::HitPass, format_args!("{} {left:.6}", object.vxid()));
            Step::Pass
        }
        Found::HitForMiss(object, busy) => {
            exchange.local.counters.cache_hitmiss.inc();
            exchange.marker = Some(Var::ReqIsHitmiss);
            exchange.handled.forward(Forward::Miss);
            exchange.reason = Reason::HitForMiss;
            let left = object.origin_time() + object.ttl() - exchange.now;
            exchange.records.fmt(Tag::HitMiss, format_args!("{} {left:.6}", object.vxid()));
            Step::Miss(busy, None)
        }
        Found::Miss(busy, stale, missed) => {
            exchange.handled.missed(missed);
            exchange.reason = missed;
            let reload = exchange.demand.is_some_and(|demand| demand.reload);
            Step::Miss(busy, stale.filter(|_| !reload))
        }
        Found::Cold => Step::Load,
        Found::Wait(_) => return None,
    })
}
