//! `restart`: the request goes through its steps again, as VCL left it.

use super::step::Step;
use crate::exchange::Exchange;
use catalog::reason::Reason;
use copal_catalog as catalog;
use copal_observe as observe;
use copal_vcl as vcl;
use observe::{Kind, Tag};
use vcl::value::Text;

pub(crate) fn step(exchange: &mut Exchange) -> Step {
    exchange.restarts += 1;
    if exchange.restarts > exchange.current.settings.max_restarts {
        exchange.records.text(Tag::VCL_Error, b"Too many restarts");
        exchange.reason = Reason::TooManyRestarts;
        return Step::Synth(503, Some(Text::from_static(b"Too many restarts")));
    }
    // A restarted request is a transaction of its own, linked from the one before.
    let now = exchange.local.now();
    exchange.log_reason();
    exchange.timestamp("Restart", now);
    let (old, new) = (exchange.vxid, exchange.local.vxid());
    exchange.records.link(Tag::Link, "req", new, "restart");
    exchange.records.end();
    exchange.vxid = new;
    exchange.records.begin(new, Kind::Client);
    exchange.records.link(Tag::Begin, "req", old, "restart");
    exchange.records.timestamp("Start", now, now, now);
    exchange.times.start = now;
    exchange.times.previous = now;
    exchange.log_request_again();
    Step::Recv
}
