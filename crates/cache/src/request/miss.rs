//! `vcl_miss`: fetch it, for this request and all who wait.

use super::{Step, fail};
use crate::exchange::{Exchange, RequestBody, Source};
use crate::fetch;
use crate::index::busy::Busy;
use crate::reason::Reason;
use copal_rules as rules;
use copal_store as store;
use copal_vcl as vcl;
use rules::cache_status::Forward;
use std::sync::Arc;
use store::Object;
use vcl::host::{Action, Sub};

pub(crate) async fn step(
    exchange: &mut Exchange,
    busy: Busy,
    stale: Option<Arc<Object>>,
    body: &mut dyn RequestBody,
) -> Step {
    exchange.local.counters.cache_miss.inc();
    let action = if exchange.is_builtin(Sub::Miss) {
        exchange.log_native(b"MISS", b"fetch");
        Action::Fetch
    } else {
        exchange.decide(Sub::Miss).await
    };
    match action {
        Action::Fetch => {
            let mut fetch = fetch::Fetch::of(exchange, fetch::Purpose::Miss);
            fetch.busy = Some(busy);
            fetch.set_stale(stale);
            let fetched = fetch.run(body).await;
            take(exchange, &mut fetch, fetched)
        }
        Action::Pass(_) => {
            drop(busy);
            exchange.handled.forward(Forward::Bypass);
            exchange.decided(Reason::VclPass);
            Step::Pass
        }
        Action::Restart => Step::Restart,
        Action::Synth(status, reason) => Step::Synth(status, reason),
        _ => fail(),
    }
}

/// Takes what `fetch` brought as the request's object.
pub(crate) fn take(exchange: &mut Exchange, fetch: &mut fetch::Fetch, fetched: fetch::Fetched) -> Step {
    let stored = matches!(
        &fetched,
        fetch::Fetched::Stored(object) | fetch::Fetched::Sparse(object, _) if !object.is_gone()
    );
    exchange.handled.arrived(fetch.arrived, stored);
    exchange.own_fields = Some(std::mem::take(&mut fetch.for_asker)).filter(|own| !own.is_empty());
    let now = exchange.local.now();
    exchange.timestamp("Fetch", now);
    match fetched {
        fetch::Fetched::Stored(object) => {
            exchange.promised = object.length();
            if object.is_gone() && object.ttl() <= 0.0 {
                // It never came into the index.
                exchange.reason = Reason::ZeroTtl;
            }
            exchange.source = Source::Stored(exchange.local.know(&object, exchange.now));
            Step::Deliver
        }
        fetch::Fetched::Sparse(object, link) => {
            exchange.lane = Some(link);
            exchange.source = Source::Stored(exchange.local.know(&object, exchange.now));
            Step::Deliver
        }
        fetch::Fetched::Private { head, body, private } => {
            exchange.response.copy_from(&head);
            exchange.body = body;
            exchange.source = Source::Private(private);
            Step::Deliver
        }
        fetch::Fetched::Failed => {
            exchange.reason = Reason::FetchFailed;
            Step::Synth(503, None)
        }
    }
}
