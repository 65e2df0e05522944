//! `vcl_hit`: an object is there; deliver it?

use super::step::{Freshness, Step, fail};
use crate::exchange::{Exchange, Obj};
use crate::fetch::Purpose;
use crate::known::Known;
use catalog::index::busy::Busy;
use catalog::reason::Reason;
use copal_catalog as catalog;
use copal_observe as observe;
use copal_store as store;
use copal_vcl as vcl;
use observe::{Native, Tag};
use std::rc::Rc;
use std::sync::Arc;
use store::State;
use vcl::host::{Action, Sub};

pub(crate) async fn step(
    exchange: &mut Exchange,
    known: Rc<Known>,
    busy: Option<Busy>,
    freshness: Freshness,
) -> Step {
    log(exchange, &known);
    // It stays so if VCL passes: then X-Varnish names the fetch of that, as in Varnish.
    exchange.hit = true;
    // Counted whatever VCL makes of it, as in Varnish.
    exchange.local.counters.cache_hit.inc();
    if freshness == Freshness::Grace {
        exchange.local.counters.cache_hit_grace.inc();
    }
    exchange.obj = Obj::Stored(Rc::clone(&known));
    if exchange
        .current
        .vcl
        .as_ref()
        .is_some_and(|vcl| vcl.instance.program.uses(vcl::variables::Var::ObjHits))
    {
        known.count_hit();
    }
    let action = if exchange.is_builtin(Sub::Hit) {
        exchange.records.native(const { &Native::new("HIT", "deliver") });
        Action::Deliver
    } else {
        exchange.decide(Sub::Hit).await
    };
    // Passing, failing and restarting give the right to fetch up: a request that waits takes it.
    match action {
        Action::Deliver => {
            deliver(exchange, &known, busy);
            Step::Deliver
        }
        Action::Pass(_) => {
            exchange.obj = Obj::None;
            exchange.decided(Reason::VclPass);
            Step::Pass
        }
        Action::Restart => Step::Restart,
        Action::Synth(status, reason) => Step::Synth(status, reason),
        _ => fail(),
    }
}

fn log(exchange: &mut Exchange, known: &Known) {
    let fills = known.state() == State::Filling;
    if fills {
        exchange.promised = known.length();
    }
    let left = known.origin_time() + known.ttl() - exchange.now;
    exchange.records.line(Tag::Hit, |line| {
        line.integer(u64::from(known.vxid()));
        for seconds in [left, known.grace(), known.keep()] {
            line.text(b" ");
            line.micros(seconds);
        }
        if fills {
            // How much of a growing object is there, and its length if known.
            line.text(b" ");
            line.integer(known.filled());
            if let Some(length) = known.length() {
                line.text(b" ");
                line.integer(length);
            }
        }
    });
}

fn deliver(exchange: &mut Exchange, known: &Rc<Known>, busy: Option<Busy>) {
    let interval = exchange.current.settings.lru_interval;
    known.note_use(exchange.now as u32, interval as u32);
    if let Some(busy) = busy {
        let fetch = exchange.fetch(Purpose::Background);
        fetch.run_in_background(busy, Some(Arc::clone(known.object())));
    }
}
