//! Looks a segment up: stored, being fetched, or for the caller to fetch.

use super::layout::segment_key;
use crate::index::busy::Busy;
use crate::index::cold::Loads;
use crate::index::lookup::{Found, Query};
use crate::index::{Index, Key};
use base::{Seconds, Time};
use copal_base as base;
use copal_store as store;
use std::sync::Arc;
use std::task::Waker;
use store::{Flags, Object};

/// A segment's life is its master's; this only has to be longer. About 30 years.
pub const TTL: Seconds = 1e9;

/// The state of a segment.
#[derive(Debug)]
pub enum Claim {
    /// It is stored, or arriving.
    Present(Arc<Object>),
    /// It is on a device, and being loaded.
    Loading,
    /// Another request fetches it.
    Busy,
    /// The caller has to fetch it.
    Mine(Busy),
}

/// Looks up segment `number` under `base`. If it is busy or being loaded, `waiter` is woken when that ends. `loads` are the
/// reader's loads of segments from devices; an `impatient` reader does not wait for other fetches.
pub fn claim(
    index: &Arc<Index>,
    base: &Key,
    number: u64,
    now: Time,
    waiter: Option<(u64, &Waker)>,
    loads: &Arc<Loads>,
    impatient: bool,
) -> Claim {
    let query =
        Query { ignore_busy: impatient, loads: Some(loads), ..Query::plain(segment_key(base, number), now) };
    match index.lookup(&query, waiter) {
        Found::Hit(object) | Found::Stale(object, ..) | Found::HitForPass(object) => Claim::Present(object),
        Found::Cold => Claim::Loading,
        Found::Wait(_) => Claim::Busy,
        Found::Miss(busy, ..) | Found::HitForMiss(_, busy) => Claim::Mine(busy),
    }
}

/// Whether segment `number` is there.
pub fn is_there(index: &Index, base: &Key, number: u64) -> bool {
    let key = segment_key(base, number);
    let objects = index.objects(&key);
    index.has_cold(&key)
        || objects.iter().any(|object| {
            object.flags().has(Flags::SPARSE) && object.state() != store::State::Failed && !object.is_gone()
        })
}
