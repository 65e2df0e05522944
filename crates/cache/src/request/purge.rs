//! `vcl_purge`: everything under the key goes.

use super::{Step, fail};
use crate::exchange::Exchange;
use copal_vcl as vcl;
use vcl::host::{Action, Sub};
use vcl::value::Text;

pub(crate) async fn step(exchange: &mut Exchange) -> Step {
    let purged = exchange.local.shared.index.purge(&exchange.key);
    let counters = &exchange.local.counters;
    counters.n_purges.inc();
    counters.n_obj_purged.add(purged as u64);
    if exchange.is_builtin(Sub::Purge) {
        exchange.log_native(b"PURGE", b"synth");
        return Step::Synth(200, Some(Text::from_static(b"Purged")));
    }
    match exchange.decide(Sub::Purge).await {
        Action::Synth(status, reason) => Step::Synth(status, reason),
        Action::Restart => Step::Restart,
        _ => fail(),
    }
}
