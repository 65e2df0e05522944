//! Taking objects out by their key or their surrogate keys, or shortening their lives, with what is counted and logged of
//! it.

use crate::local::Local;
use catalog::index::Key;
use catalog::index::purge::Remainder;
use copal_catalog as catalog;
use copal_observe as observe;
use copal_store::Object;
use observe::{Kind, Tag};

/// Takes out every object under `key`, and returns how many.
pub(crate) fn hard(local: &Local, key: &Key) -> usize {
    let purged = local.shared.index.purge(key);
    purged.iter().for_each(|object| log(local, "EXP_Removed", object));
    count(local, purged.len())
}

/// The resource under `key` has changed: what is stored of it goes. Returns how many objects that are.
pub(crate) fn changed(local: &Local, key: &Key) -> usize {
    let ended = local.shared.index.invalidate(key);
    ended.iter().for_each(|object| log(local, "EXP_Removed", object));
    local.counters.invalidated.add(ended.len() as u64);
    ended.len()
}

/// Shortens the life of every object under `key`, and returns how many there are.
pub(crate) fn soft(local: &Local, key: &Key, remainder: Remainder) -> usize {
    let objects = local.shared.index.objects(key);
    objects.iter().for_each(|object| shorten(local, object, remainder));
    count(local, objects.len())
}

/// Ends or shortens the life of the objects with one of the surrogate keys in `keys`, and returns how many, as
/// varnish-modules counts them: an object that goes, once for each of the keys that names it; one that turns stale, once.
pub(crate) fn tagged(local: &Local, keys: &[u8], remainder: Option<Remainder>) -> u64 {
    let index = &local.shared.index;
    match remainder {
        Some(remainder) => {
            let fresh = index.fresh_tagged(keys, local.now());
            fresh.iter().for_each(|object| shorten(local, object, remainder));
            fresh.len() as u64
        }
        None => {
            let purged = index.purge_tagged(keys);
            purged.iter().for_each(|(object, _)| log(local, "EXP_Removed", object));
            purged.iter().map(|(_, times)| times).sum()
        }
    }
}

fn shorten(local: &Local, object: &Object, remainder: Remainder) {
    let shorter = remainder.apply(object, local.now());
    log(local, if shorter { "EXP_Reduce" } else { "EXP_Unchanged" }, object);
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
