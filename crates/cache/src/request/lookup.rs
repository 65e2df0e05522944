//! Lookup: what is there for this key and request?

use super::{Freshness, Step};
use crate::exchange::Exchange;
use crate::index::lookup::{Found, Query, ttl_for};
use base::Time;
use copal_base as base;
use copal_observe as observe;
use copal_rules as rules;
use copal_store as store;
use copal_vcl::variables::Var;
use copal_wire as wire;
use observe::Tag;
use std::future::{Future as _, poll_fn};
use std::sync::Arc;
use std::task::{Poll, Waker};
use store::{Flags, Object, State};
use wire::{Fields, Known};

/// The next step, or `None` if the request must wait for a fetch that runs.
pub(crate) fn step(exchange: &mut Exchange) -> Option<Step> {
    if let Some(step) = hot(exchange) {
        return Some(step);
    }
    let found = search(exchange, exchange.now, None);
    after(exchange, found)
}

/// A fresh hit on an object that this thread knows already.
fn hot(exchange: &mut Exchange) -> Option<Step> {
    if exchange.always_miss {
        return None;
    }
    let known = exchange.local.hot(&exchange.key)?;
    let fresh = known.origin_time() + ttl_for(&known, exchange.ttl_max) > exchange.times.arrival;
    if !fresh
        || known.flags().0 & (Flags::HIT_FOR_MISS | Flags::HIT_FOR_PASS) != 0
        || known.state() == State::Failed
        || known.is_shaded()
        || known.ban() < exchange.local.shared.bans.newest()
        || !(known.variant().is_empty() || fits(exchange, known.variant()))
    {
        return None;
    }
    Some(Step::Hit(known, None, Freshness::Fresh))
}

fn fits(exchange: &Exchange, variant: &[u8]) -> bool {
    exchange.ignore_vary || rules::vary::matches(variant, &exchange.request.fields)
}

fn search(exchange: &Exchange, now: Time, waiter: Option<(u64, &Waker)>) -> Found {
    let shared = &exchange.local.shared;
    let query = Query {
        key: exchange.key,
        arrival: exchange.times.arrival,
        now,
        ttl_max: exchange.ttl_max,
        grace_max: exchange.grace_max,
        always_miss: exchange.always_miss,
        ignore_busy: exchange.ignore_busy,
        fits: &|variant| fits(exchange, variant),
        predict: &|object| predict(object.variant(), &exchange.request.fields),
        banned: &|object| is_banned(exchange, object),
    };
    shared.index.lookup(&query, waiter)
}

fn is_banned(exchange: &Exchange, object: &Arc<Object>) -> bool {
    let shared = &exchange.local.shared;
    if object.ban() >= shared.bans.newest() {
        return false;
    }
    shared.bans.hits(object, (exchange.request.target.as_slice(), &exchange.request.fields))
}

/// The variant of this request, if the next response varies by the same fields as that of `variant`.
fn predict(variant: &[u8], request: &Fields) -> Vec<u8> {
    let mut example = Fields::new();
    for wanted in rules::vary::entries(variant) {
        example.push_known(Known::Vary, wanted.name);
    }
    rules::vary::build(&example, request).unwrap_or_default()
}

/// Waits until the running fetch ends, or for as long as the time-out allows; then the next step.
pub(crate) async fn wait(exchange: &mut Exchange) -> Step {
    exchange.local.counters.busy_sleep.inc();
    let id = exchange.local.waiter_id();
    let limit = exchange.current.settings.waiting_list_timeout;
    let guard = Waiting { index: Arc::clone(&exchange.local.shared.index), key: exchange.key, id };
    let sleep = tokio::time::sleep(std::time::Duration::from_secs_f64(limit.clamp(0.001, 86_400.0)));
    let mut sleep = std::pin::pin!(sleep);
    let found = poll_fn(|context| {
        if sleep.as_mut().poll(context).is_ready() {
            return Poll::Ready(None);
        }
        match search(exchange, exchange.local.now(), Some((id, context.waker()))) {
            Found::Wait => Poll::Pending,
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
            search(exchange, now, None)
        }
    };
    after(exchange, found).unwrap_or(Step::Pass)
}

/// A place on the waiting list, given up on drop.
struct Waiting {
    index: Arc<crate::index::Index>,
    key: crate::index::Key,
    id: u64,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.index.stop_waiting(&self.key, self.id);
    }
}

fn after(exchange: &mut Exchange, found: Found) -> Option<Step> {
    let counters = &exchange.local.counters;
    Some(match found {
        Found::Hit(object) => Step::Hit(exchange.local.know(&object, exchange.now), None, Freshness::Fresh),
        Found::Stale(object, busy) => {
            Step::Hit(exchange.local.know(&object, exchange.now), busy, Freshness::Grace)
        }
        Found::HitForPass(object) => {
            counters.cache_hitpass.inc();
            exchange.marker = Some(Var::ReqIsHitpass);
            let left = object.origin_time() + object.ttl() - exchange.now;
            exchange.records.fmt(Tag::HitPass, format_args!("{} {left:.6}", object.vxid()));
            Step::Pass
        }
        Found::HitForMiss(object, busy) => {
            counters.cache_hitmiss.inc();
            exchange.marker = Some(Var::ReqIsHitmiss);
            let left = object.origin_time() + object.ttl() - exchange.now;
            exchange.records.fmt(Tag::HitMiss, format_args!("{} {left:.6}", object.vxid()));
            Step::Miss(busy, None)
        }
        Found::Miss(busy, stale) => Step::Miss(busy, stale),
        Found::Wait => return None,
    })
}
