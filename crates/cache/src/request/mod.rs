//! The steps of a client request, one file each.
//!
//! ```text
//! recv > hash > lookup > hit  > deliver > done
//!    |      |      |      |        |
//!    |      |      |      +> miss, pass, synth, restart
//!    |      |      +> load > hit, miss, pass
//!    |      |      +> miss > fetch > deliver | synth
//!    |      |      +> pass > fetch > deliver | synth
//!    |      +> purge > synth | restart
//!    |      +> pipe > done
//!    +> synth > done
//! deliver, synth > restart > recv          any > fail > synth(503)
//! ```
//!
//! Each takes the exchange and says which step is next; the `match` below has exactly the edges of the picture.
//! [`Exchange::run`] drives them; the front writes what `response` and `body` say, and then calls [`Exchange::finish`].

mod begin;
mod cache_status;
mod decision;
pub(crate) mod deliver;
mod demand;
mod esi;
mod fetching;
pub(crate) mod filters;
mod finish;
mod framing;
pub(crate) mod hash;
pub(crate) mod hit;
mod host;
mod load;
pub(crate) mod lookup;
pub(crate) mod miss;
mod multipart;
pub(crate) mod pass;
mod pipe;
pub(crate) mod prepared;
pub(crate) mod purge;
mod range;
pub(crate) mod recv;
pub(crate) mod restart;
pub(crate) mod sparse;
pub(crate) mod step;
mod subroutine;
pub(crate) mod synth;
pub(crate) mod upload;

pub use step::Outcome;

use crate::exchange::Exchange;
use crate::request_body::RequestBody;
use step::Step;

/// Takes a request through its steps.
pub(crate) async fn run(exchange: &mut Exchange, body: &mut dyn RequestBody) -> Outcome {
    if exchange.current.vcl.is_none() {
        exchange.close = true;
        exchange.records.text(copal_observe::Tag::Error, b"no VCL is active");
        return Outcome::Close;
    }
    let purges = exchange.local.purges();
    let mut step = Step::Recv;
    loop {
        step = match step {
            Step::Recv => {
                let step = match recv::step(exchange) {
                    recv::Decided::Step(step) => step,
                    recv::Decided::Wait(wait) => Box::pin(recv::wait(exchange, body, wait)).await,
                };
                if exchange.has_unread_body() {
                    upload::go_on(exchange, body, &step);
                }
                step
            }
            Step::Hash(after) => hash::step(exchange, after).await,
            Step::Lookup => match lookup::step(exchange) {
                Some(step) => step,
                None => {
                    exchange.records.announce();
                    Box::pin(lookup::wait(exchange)).await
                }
            },
            Step::Load => {
                exchange.records.announce();
                Box::pin(load::step(exchange)).await
            }
            Step::Hit(known, Some(busy), freshness) if exchange.has_unread_body() => {
                // The fetch in the background may want to send it on.
                Box::pin(upload::keep(exchange, body)).await;
                hit::step(exchange, known, Some(busy), freshness).await
            }
            Step::Hit(known, busy, freshness) => hit::step(exchange, known, busy, freshness).await,
            Step::Miss(busy, stale) => {
                exchange.records.announce();
                Box::pin(miss::step(exchange, busy, stale, body)).await
            }
            Step::Pass => {
                exchange.records.announce();
                Box::pin(pass::step(exchange, body)).await
            }
            Step::Pipe => {
                exchange.records.announce();
                Box::pin(pipe::step(exchange)).await
            }
            Step::Purge => purge::step(exchange).await,
            Step::Synth(status, reason) => {
                let waits = exchange.has_unread_body() && body.waits();
                let step = synth::step(exchange, status, reason, waits).await;
                if waits && matches!(step, Step::Done(Outcome::Deliver)) && !exchange.close {
                    // VCL keeps the connection, so the body comes first.
                    upload::tell(exchange, body);
                }
                step
            }
            Step::Deliver => deliver::step(exchange).await,
            Step::Restart => restart::step(exchange),
            Step::Done(outcome) => {
                if exchange.current.settings.sync_purges && exchange.local.purges() != purges {
                    Box::pin(crate::purge::durable(exchange)).await;
                }
                return outcome;
            }
        };
    }
}
