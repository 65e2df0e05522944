//! `vcl_purge`: everything under the key goes.

use super::step::{Step, fail};
use crate::exchange::Exchange;
use crate::purge;
use catalog::reason::Reason;
use copal_catalog as catalog;
use copal_observe::Native;
use copal_vcl as vcl;
use vcl::host::{Action, Sub};
use vcl::value::Text;

pub(crate) async fn step(exchange: &mut Exchange) -> Step {
    exchange.reason = Reason::Purge;
    purge::hard(&exchange.local, &exchange.key);
    if exchange.is_builtin(Sub::Purge) {
        exchange.records.native(const { &Native::new("PURGE", "synth") });
        return Step::Synth(200, Some(Text::from_static(b"Purged")));
    }
    match exchange.decide(Sub::Purge).await {
        Action::Synth(status, reason) => Step::Synth(status, reason),
        Action::Restart => Step::Restart,
        _ => fail(),
    }
}
