//! `vcl_miss`: fetch it, for this request and for all that wait.

use super::step::{Step, fail};
use super::{lookup, upload};
use crate::exchange::{Exchange, Obj};
use crate::fetch::{self, update};
use crate::request_body::RequestBody;
use catalog::index::busy::Busy;
use catalog::reason::Reason;
use copal_catalog as catalog;
use copal_observe::Native;
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
        exchange.records.native(const { &Native::new("MISS", "fetch") });
        Action::Fetch
    } else {
        exchange.decide(Sub::Miss).await
    };
    match action {
        Action::Fetch if exchange.rfc && exchange.is_head() => {
            Box::pin(head(exchange, busy, stale, body)).await
        }
        Action::Fetch => {
            let mut fetch = exchange.fetch(fetch::Purpose::Miss);
            fetch.busy = Some(busy);
            fetch.set_stale(stale);
            if exchange.rfc {
                let objects = lookup::usable(exchange);
                fetch.others = update::others(objects, fetch.stale.as_deref());
            }
            let fetched = fetch.run(body).await;
            upload::fetched(exchange, body, fetch.uploaded);
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

/// By the RFCs a HEAD goes to the origin as one: nobody wants the body. What is stored and stale is updated by the answer;
/// where nothing is, the answer is for this client alone.
///
/// Source: RFC 9111, section 4.3.5.
async fn head(
    exchange: &mut Exchange,
    busy: Busy,
    stale: Option<Arc<Object>>,
    body: &mut dyn RequestBody,
) -> Step {
    let mut fetch = match stale.filter(|stale| update::is_response(stale)) {
        Some(stale) => {
            let mut fetch = exchange.fetch(fetch::Purpose::Miss);
            fetch.busy = Some(busy);
            fetch.ask_head(stale);
            fetch
        }
        None => {
            // Requests that wait for a body must not wait for this fetch.
            busy.release();
            exchange.fetch(fetch::Purpose::Pass)
        }
    };
    let fetched = fetch.run(body).await;
    upload::fetched(exchange, body, fetch.uploaded);
    take(exchange, &mut fetch, fetched)
}

/// Takes the result of `fetch` as the request's object.
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
            exchange.obj = Obj::Stored(exchange.local.know(&object, exchange.now));
            Step::Deliver
        }
        fetch::Fetched::Sparse(object, link) => {
            exchange.segment_job = Some(link);
            exchange.obj = Obj::Stored(exchange.local.know(&object, exchange.now));
            Step::Deliver
        }
        fetch::Fetched::Private { head, body, private } => {
            exchange.response.copy_from(&head);
            exchange.body = body;
            exchange.obj = Obj::Private(private);
            Step::Deliver
        }
        fetch::Fetched::Stale(object, trouble) => {
            exchange.local.counters.stale_if_error.inc();
            exchange.promised = object.length();
            exchange.obj = Obj::Stored(exchange.local.know(&object, exchange.now));
            exchange.hit = true;
            exchange.reason = Reason::StaleIfError;
            exchange.trouble = Some(trouble);
            Step::Deliver
        }
        fetch::Fetched::Lost(trouble) => {
            let status = if exchange.rfc { trouble.status() } else { 503 };
            exchange.trouble = Some(trouble);
            exchange.reason = Reason::FetchFailed;
            Step::Synth(status, None)
        }
        fetch::Fetched::Failed => {
            exchange.reason = Reason::FetchFailed;
            Step::Synth(503, None)
        }
    }
}
