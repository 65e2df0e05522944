//! Taking objects out by their key or their surrogate keys, or shortening their lives, with what is counted and logged of
//! it.

use crate::exchange::Exchange;
use crate::local::Local;
use catalog::index::Key;
use catalog::index::purge::{Purged, Remainder};
use copal_catalog as catalog;
use copal_observe as observe;
use copal_store::Object;
use observe::{Kind, Tag};
use std::sync::Arc;

/// Takes out every object under `key`, and returns how many.
pub(crate) fn hard(local: &Local, key: &Key) -> usize {
    local.note_purge();
    let purged = local.shared.index.purge(key);
    log_removed(local, &purged);
    count(local, purged.count() as usize)
}

/// The resource under `key` has changed: what is stored of it goes. Returns how many objects that are.
pub(crate) fn changed(local: &Local, key: &Key) -> usize {
    local.note_purge();
    let ended = local.shared.index.invalidate(key);
    log_removed(local, &ended);
    local.counters.invalidated.add(ended.count());
    ended.count() as usize
}

/// Shortens the life of every object under `key`, and returns how many there are.
pub(crate) fn soft(local: &Local, key: &Key, remainder: Remainder) -> usize {
    local.note_purge();
    let (objects, entries) = local.shared.index.shorten(key, &remainder, local.now());
    log_shortened(local, &objects);
    count(local, objects.len() + entries as usize)
}

/// Ends or shortens the life of the objects with one of the surrogate keys in `keys`, and returns how many, as
/// varnish-modules counts them: an object that goes, once for each of the keys that names it; one that turns stale, once.
pub(crate) fn tagged(local: &Local, keys: &[u8], remainder: Option<Remainder>) -> u64 {
    local.note_purge();
    let index = &local.shared.index;
    match remainder {
        Some(remainder) => {
            let (objects, entries) = index.shorten_tagged(keys, &remainder, local.now());
            log_shortened(local, &objects);
            objects.len() as u64 + entries
        }
        None => {
            let purged = index.purge_tagged(keys);
            log_removed(local, &purged);
            purged.times
        }
    }
}

/// Logs the objects that were taken out. Those that were only on a device are not named: their heads were not read.
fn log_removed(local: &Local, purged: &Purged) {
    purged.objects.iter().for_each(|(object, _)| log(local, "EXP_Removed", object));
}

fn log_shortened(local: &Local, objects: &[(Arc<Object>, bool)]) {
    for (object, shorter) in objects {
        log(local, if *shorter { "EXP_Reduce" } else { "EXP_Unchanged" }, object);
    }
}

fn count(local: &Local, objects: usize) -> usize {
    local.counters.n_purges.inc();
    local.counters.n_obj_purged.add(objects as u64);
    objects
}

fn log(local: &Local, what: &str, object: &Object) {
    if local.log.mask().has(Tag::ExpKill) {
        let text = catalog::sweep::record(what, object);
        local.log.record(Tag::ExpKill, 0, Kind::Raw, text.as_bytes());
    }
}

/// Waits until what was purged is durable on every store that has devices. The thread that serves is not held up.
pub(crate) async fn durable(exchange: &mut Exchange) {
    let stores = exchange.local.shared.stores.all().filter(|store| !store.devices().is_empty());
    let stores: Vec<_> = stores.cloned().collect();
    if stores.is_empty() {
        return;
    }
    let (done, wait) = tokio::sync::oneshot::channel();
    let sync = move || {
        // Nobody waits any more if the request was given up.
        let _ = done.send(stores.iter().try_for_each(|store| store.sync()));
    };
    let failure = match std::thread::Builder::new().name("purge-sync".to_owned()).spawn(sync) {
        Ok(_) => match wait.await {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error.to_string(),
            Err(_) => "the thread ended".to_owned(),
        },
        Err(error) => error.to_string(),
    };
    exchange.records.fmt(Tag::Error, format_args!("purge is not durable: {failure}"));
}
