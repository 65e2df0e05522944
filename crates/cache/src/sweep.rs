//! The background walk over all objects: the expired go, bans that need no request are tested, and bans that every
//! object has survived are forgotten.
//!
//! There is no expiry list: walking the index costs no memory an object, and its pace is bounded. A step visits about a
//! thousand objects; fifty steps a second go around ten thousand objects in a quarter of a second, around a million in
//! twenty.

use crate::ban::Verdict;
use crate::shared::Shared;
use base::Time;
use copal_base as base;
use copal_store as store;
use std::sync::Arc;
use store::{Object, State};

/// Objects that one step looks at before it pauses.
const STEP: usize = 1_000;

/// An empty shard counts as this part of an object.
const EMPTY: usize = 8;

/// What a step did.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Swept {
    /// Objects that were past their life.
    pub expired: u64,
    /// Objects that a ban killed.
    pub banned: u64,
    /// Whether the step ended a round over the whole index.
    pub round_ended: bool,
}

/// The walk's place.
#[derive(Debug)]
pub struct Sweeper {
    shard: usize,
    /// The newest ban when the round began: objects that come during the round are tested at least up to it.
    newest_at_start: u64,
    /// The least tested of the objects visited in this round.
    oldest_ban: u64,
}

impl Default for Sweeper {
    fn default() -> Self {
        Self { shard: 0, newest_at_start: 0, oldest_ban: u64::MAX }
    }
}

impl Sweeper {
    /// Visits the next objects.
    pub fn step(&mut self, shared: &Shared, now: Time, lurk: bool) -> Swept {
        let mut swept = Swept::default();
        if self.shard == 0 {
            self.newest_at_start = shared.bans.newest();
        }
        let newest = shared.bans.newest();
        let mut visited = 0;
        while visited < STEP * EMPTY {
            let oldest_ban = &mut self.oldest_ban;
            let picked = shared.index.pick(self.shard, |object| {
                let dead = is_dead(object, now);
                if !dead {
                    *oldest_ban = object.ban().min(*oldest_ban);
                }
                dead || lurk && object.ban() < newest
            });
            let Some((objects, count)) = picked else {
                self.end_round(shared);
                swept.round_ended = true;
                break;
            };
            self.shard += 1;
            visited += count * EMPTY + 1;
            for object in objects {
                visit(shared, &object, now, &mut swept);
            }
        }
        swept
    }

    fn end_round(&mut self, shared: &Shared) {
        shared.bans.drop_tested(self.oldest_ban.min(self.newest_at_start));
        *self = Self::default();
    }
}

fn is_dead(object: &Object, now: Time) -> bool {
    object.state() == State::Failed || object.end_of_life() < now
}

/// Ends an object that is dead, or that a ban kills; tests it against the bans since its last test otherwise. What it has
/// been tested against is seen in the next round.
fn visit(shared: &Shared, object: &Arc<Object>, now: Time, swept: &mut Swept) {
    if is_dead(object, now) {
        if shared.index.unlink(object) {
            swept.expired += 1;
        }
        return;
    }
    let newest = shared.bans.newest();
    match shared.bans.check(object, &|name| crate::ban_fields::field(object, name), None, now) {
        Verdict::Banned => {
            if shared.index.unlink(object) {
                swept.banned += 1;
            }
        }
        Verdict::Live => object.set_ban(newest),
        Verdict::NeedsRequest => {}
    }
}
