//! `vcl_pass`: fetch for this request alone.

use super::step::{Step, fail};
use super::{hash, miss, upload};
use crate::exchange::Exchange;
use crate::fetch::{self, Change};
use crate::request_body::RequestBody;
use copal_observe::{Native, Tag};
use copal_rules as rules;
use copal_vcl as vcl;
use vcl::host::{Action, Sub};

pub(crate) async fn step(exchange: &mut Exchange, body: &mut dyn RequestBody) -> Step {
    exchange.local.counters.s_pass.inc();
    exchange.handled.passed(&exchange.request.method);
    let action = if exchange.is_builtin(Sub::Pass) {
        exchange.records.native(const { &Native::new("PASS", "fetch") });
        Action::Fetch
    } else {
        exchange.decide(Sub::Pass).await
    };
    match action {
        Action::Fetch if body.is_begun() && exchange.cached_body.is_none() => {
            // After a restart: what an earlier fetch took of the body is gone.
            exchange
                .records
                .text(Tag::VCL_Error, b"the request body was sent already: keep it with std.cache_req_body");
            Step::Synth(503, None)
        }
        Action::Fetch => {
            let change = change(exchange).await;
            let mut fetch = exchange.fetch(fetch::Purpose::Pass);
            fetch.change = change.map(Box::new);
            let fetched = fetch.run(body).await;
            if let Some(change) = &fetch.change {
                end_others(exchange, change).await;
            }
            upload::fetched(exchange, body, fetch.uploaded);
            miss::take(exchange, &mut fetch, fetched)
        }
        Action::Restart => Step::Restart,
        Action::Synth(status, reason) => Step::Synth(status, reason),
        _ => fail(),
    }
}

/// The targets that the request may change, if its method is unsafe and the RFCs decide.
async fn change(exchange: &mut Exchange) -> Option<Change> {
    if !exchange.rfc || !rules::invalidate::is_unsafe(&exchange.request.method) {
        return None;
    }
    let target = exchange.request.target.clone();
    let host = exchange.host().unwrap_or_default().to_vec();
    let own = exchange.key;
    let of_get = hash::of_target(exchange, &target).await.unwrap_or(own);
    Some(Change { keys: [of_get, own], target, host, others: Vec::new() })
}

/// Ends what is stored of the other targets that the answer named.
async fn end_others(exchange: &mut Exchange, change: &Change) {
    for target in &change.others {
        if let Some(key) = hash::of_target(exchange, target).await {
            crate::purge::changed(&exchange.local, &key);
        }
    }
}
