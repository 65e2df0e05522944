//! The ban lurker: tests all objects against the bans that need no request, a few at a time, so that those bans need no
//! test at lookup any more and the list stays short.
//!
//! A pass goes once around the index with the bans that are old enough by then. An object that they spare moves up to the
//! newest of them, or to below the first ban above it that the lurker cannot test; at the end of the pass they are
//! completed. Objects that come meanwhile are newer than all bans of the pass.
//!
//! ```text
//! oldest        a request's        newest of the pass      too young
//! +----+----+----+ r +----+----+----+ n +----+ y
//!   A    B  <- B's objects stay here; C  <- C's come here
//! ```

use super::expression::{Expression, Hit, Subject};
use crate::index::{Index, Picked};
use base::{Seconds, Time};
use copal_base as base;
use copal_store::{Entry, Facts, Object};
use std::sync::Arc;

/// The lurker's rest when there is nothing to do, with an addition for each ban, since the search for work reads the whole list.
const IDLE: Seconds = 0.02;
const IDLE_PER_BAN: Seconds = 2e-6;

/// The lurker's rest when no ban is left but the newest, which new objects are counted at.
const QUIET: Seconds = 0.2;

/// The most heads that one step reads from devices.
const READS: usize = 16;

/// The most objects that one step may skip, for each that it may test.
const LOOK: usize = 20;

/// The lurker's pace, with Varnish's parameter names and defaults.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pace {
    /// `ban_lurker_sleep`: the rest after a batch; 0 turns the lurker off.
    pub sleep: Seconds,
    /// `ban_lurker_age`: how old a ban must be.
    pub age: Seconds,
    /// `ban_lurker_batch`: objects in a batch.
    pub batch: u64,
    /// `ban_lurker_holdoff`: the rest after it met a lookup.
    pub holdoff: Seconds,
    /// `ban_cutoff`: objects at that many bans from the newest go untested; 0 is never.
    pub cutoff: u64,
}

impl Default for Pace {
    fn default() -> Self {
        Self { sleep: 0.01, age: 60.0, batch: 1000, holdoff: 0.01, cutoff: 0 }
    }
}

/// A ban that the lurker cannot test, and the next older one.
#[derive(Debug)]
pub(super) struct Untestable {
    pub(super) sequence: u64,
    pub(super) below: u64,
}

/// The bans of one pass of the lurker.
#[derive(Debug, Default)]
pub(super) struct PassBans {
    /// The bans to test, oldest first: number, time, what they say.
    pub(super) tests: Vec<(u64, Time, Arc<Expression>)>,
    /// Bans in between and beyond that the lurker cannot test, oldest first.
    pub(super) untestable: Vec<Untestable>,
    /// Objects up to this ban go untested.
    pub(super) cutoff: u64,
}

/// The result of a pass for one object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// It was tested up to this ban.
    Lives(u64),
    Banned,
    CutOff,
}

/// Counts of bans and conditions tested.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tested {
    pub(super) bans: u64,
    pub(super) conditions: u64,
}

impl PassBans {
    fn newest(&self) -> u64 {
        self.tests.last().map_or(0, |test| test.0)
    }

    fn concerns(&self, stands_at: u64) -> bool {
        stands_at < self.newest() || stands_at <= self.cutoff
    }

    /// Tests an object that was tested up to the ban `stands_at`, the oldest ban first.
    pub(super) fn fate(&self, stands_at: u64, subject: &Subject<'_>, tested: &mut Tested) -> Fate {
        if stands_at <= self.cutoff {
            return Fate::CutOff;
        }
        for (sequence, time, expression) in &self.tests {
            if *sequence <= stands_at {
                continue;
            }
            tested.bans += 1;
            if expression.hits(subject, *time, &mut tested.conditions) == Hit::Yes {
                return Fate::Banned;
            }
        }
        let next = self.untestable.partition_point(|ban| ban.sequence <= stands_at);
        let limit = self.untestable.get(next).map_or(u64::MAX, |ban| ban.below);
        Fate::Lives(self.newest().min(limit).max(stands_at))
    }
}

/// The lurker and where it is in its pass.
#[derive(Debug, Default)]
pub struct Lurker {
    pass: Option<Pass>,
}

#[derive(Debug)]
struct Pass {
    bans: PassBans,
    shard: usize,
    /// Objects of the last shard that are still to be tested.
    waiting: Vec<Arc<Object>>,
    /// Entries of the last shard that are still to be tested; their heads are on devices.
    entries: Vec<(Entry, Facts)>,
}

impl Lurker {
    /// Does a batch of work and returns how long to rest. `killed` is called for each object that a ban ended, with the text
    /// for the log.
    pub fn step(
        &mut self,
        index: &Index,
        now: Time,
        pace: &Pace,
        killed: &mut dyn FnMut(&Object, &'static str),
    ) -> Seconds {
        if pace.sleep <= 0.0 {
            self.pass = None;
        } else if self.pass.is_none() {
            let bans = index.bans().bans_for_pass(now - pace.age, pace.cutoff);
            self.pass = bans.map(|bans| Pass { bans, shard: 0, waiting: Vec::new(), entries: Vec::new() });
        }
        let Some(mut pass) = self.pass.take() else {
            index.bans().drop_tail();
            return match index.bans().outstanding() {
                0 => QUIET,
                _ => IDLE + index.bans().count() as Seconds * IDLE_PER_BAN,
            };
        };
        let rest = pass.run(index, pace, killed);
        match rest {
            Some(rest) => {
                self.pass = Some(pass);
                rest
            }
            None => {
                index.bans().end_pass(&pass.bans);
                IDLE
            }
        }
    }
}

impl Pass {
    /// Tests one batch and returns how long to rest; `None` at the end of the pass.
    fn run(
        &mut self,
        index: &Index,
        pace: &Pace,
        killed: &mut dyn FnMut(&Object, &'static str),
    ) -> Option<Seconds> {
        let batch = usize::try_from(pace.batch.max(1)).unwrap_or(usize::MAX);
        let (mut tested, mut seen) = (0, 0);
        loop {
            while let Some(object) = self.waiting.pop() {
                self.visit(index, &object, killed);
                tested += 1;
                if tested >= batch {
                    return Some(pace.sleep);
                }
            }
            let mut read = 0;
            while let Some((entry, facts)) = self.entries.pop() {
                self.visit_entry(index, entry, &facts);
                read += 1;
                if read >= READS {
                    return Some(pace.sleep);
                }
            }
            if seen >= batch.saturating_mul(LOOK) {
                return Some(pace.sleep.min(IDLE));
            }
            let bans = &self.bans;
            match index.pick_unless_busy(self.shard, |stands_at| bans.concerns(stands_at)) {
                Picked::End => return None,
                Picked::Busy => {
                    index.bans().count_contention();
                    return Some(pace.holdoff.max(0.001));
                }
                Picked::Wanted(objects, entries, count) => {
                    (self.waiting, self.entries) = (objects, entries);
                    self.shard += 1;
                    seen += count;
                }
            }
        }
    }

    fn visit(&self, index: &Index, object: &Arc<Object>, killed: &mut dyn FnMut(&Object, &'static str)) {
        let mut tested = Tested::default();
        let fate = self.bans.fate(object.ban(), &Subject::new(object, None), &mut tested);
        let ended = match fate {
            Fate::Lives(up_to) => {
                let linked = index.while_linked(object, || index.bans().advance(object, up_to));
                // If it was evicted meanwhile, its entry is in the index in its place.
                if let Some(entry) = object.entry().filter(|_| !linked)
                    && let Some(half) = object.key().first_chunk()
                {
                    index.advance_entry(entry, half, up_to);
                }
                false
            }
            Fate::Banned | Fate::CutOff => index.unlink(object),
        };
        index.bans().count_lurker(tested, fate, ended);
        if ended {
            killed(
                object,
                if fate == Fate::CutOff { "killed for lurker cutoff" } else { "banned by lurker" },
            );
        }
    }

    /// As [`Pass::visit`], for an entry on a device.
    fn visit_entry(&self, index: &Index, entry: Entry, facts: &Facts) {
        let mut tested = Tested::default();
        let stands_at = u64::from(facts.ban);
        let fate = match index.read_head(entry) {
            Some(head) => self.bans.fate(stands_at, &Subject::on_device(facts, &head), &mut tested),
            // An entry that cannot be tested must not stay: the ban will be forgotten.
            None => Fate::CutOff,
        };
        let ended = match fate {
            Fate::Lives(up_to) => {
                index.advance_entry(entry, &facts.key, up_to);
                false
            }
            Fate::Banned | Fate::CutOff => index.end_standing(entry, facts),
        };
        index.bans().count_lurker(tested, fate, ended);
    }
}
