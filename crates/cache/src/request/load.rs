//! `load`: waits until a stored response that may answer, and is on a device, is resident.
//!
//! The index has begun the load, one for all who wait. When it is over the request looks again: there may be a hit, another
//! entry to load, or nothing, as where the record turned out to be damaged.

use super::lookup::{Waiting, after, search, wait};
use super::step::Step;
use crate::exchange::Exchange;
use catalog::index::lookup::Found;
use copal_catalog as catalog;
use std::future::{Future as _, poll_fn};
use std::task::Poll;
use std::time::Duration;

/// The longest wait for a device. After that the request is a miss.
const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) async fn step(exchange: &mut Exchange) -> Step {
    let id = exchange.local.waiter_id();
    let guard = Waiting::new(exchange, id);
    let mut sleep = std::pin::pin!(tokio::time::sleep(PATIENCE));
    let found = poll_fn(|context| {
        if sleep.as_mut().poll(context).is_ready() {
            return Poll::Ready(None);
        }
        match search(exchange, exchange.local.now(), None, Some((id, context.waker()))) {
            Found::Cold => Poll::Pending,
            found => Poll::Ready(Some(found)),
        }
    })
    .await;
    drop(guard);
    let now = exchange.local.now();
    exchange.timestamp("Load", now);
    let found = match found {
        Some(found) => found,
        None => {
            // From now on it looks at what is resident alone.
            exchange.loads = None;
            search(exchange, now, None, None)
        }
    };
    match after(exchange, found) {
        Some(step) => step,
        None => Box::pin(wait(exchange)).await,
    }
}
