//! The background walk over all objects: those at the end of their life go.
//!
//! There is no expiry list: walking the index costs no memory an object, and its pace is bounded. A step visits about a
//! thousand objects; with fifty steps a second a round takes a quarter of a second for ten thousand objects, twenty seconds
//! for a million. A round that is done soon is followed by a rest, since each waking costs the machine something.

use crate::index::Index;
use base::Time;
use copal_base as base;
use copal_store as store;
use std::sync::Arc;
use store::{Facts, Object, State};

/// Objects that one step looks at before it pauses.
const STEP: usize = 1_000;

/// An empty shard counts as this part of an object.
const EMPTY: usize = 8;

/// An object whose life was over when the walk met it.
#[derive(Debug)]
pub enum Expired<'a> {
    /// An object in memory.
    Resident(&'a Object),
    /// An entry on a device; these are the facts about it.
    Cold(&'a Facts),
}

impl Expired<'_> {
    /// As [`record`]. The transaction of an entry is not known without reading its device, and given as 0.
    pub fn record(&self, what: &str) -> String {
        match self {
            Self::Resident(object) => record(what, object),
            Self::Cold(facts) => {
                let stale_at = facts.origin_time + f64::from(facts.ttl);
                format!("{what} x=0 t={stale_at:.0} h={}", facts.hits)
            }
        }
    }
}

/// The walk and where it is in its round.
#[derive(Debug, Default)]
pub struct Sweeper {
    shard: usize,
}

impl Sweeper {
    /// Visits the next objects; `expired` is called for each that was past its life. Returns whether that was the end of a
    /// round.
    pub fn step(&mut self, index: &Index, now: Time, expired: &mut dyn FnMut(&Expired<'_>)) -> bool {
        let mut visited = 0;
        while visited < STEP * EMPTY {
            let Some((objects, count)) = index.pick(self.shard, |object| is_dead(object, now)) else {
                self.shard = 0;
                return true;
            };
            visited += count * EMPTY + 1;
            let cold = index.sweep_cold(
                self.shard,
                |facts| Index::is_cold_dead(facts, now),
                |facts| expired(&Expired::Cold(facts)),
            );
            visited += cold.map_or(0, |count| count * EMPTY);
            for object in objects {
                visit(index, &object, now, expired);
            }
            self.shard += 1;
        }
        false
    }
}

fn is_dead(object: &Object, now: Time) -> bool {
    object.is_gone() || object.state() == State::Failed || object.end_of_life() < now
}

fn visit(index: &Index, object: &Arc<Object>, now: Time, expired: &mut dyn FnMut(&Expired<'_>)) {
    // Its times may have been set anew since it was picked.
    if is_dead(object, now) && index.unlink(object) {
        expired(&Expired::Resident(object));
    }
}

/// The text of an `ExpKill` record: what happened, the object's transaction, when it is stale, its hits.
pub fn record(what: &str, object: &Object) -> String {
    let stale_at = object.origin_time() + object.ttl();
    format!("{what} x={} t={stale_at:.0} h={}", object.vxid(), object.hits())
}
