//! The list of bans and how many objects stand at each.
//!
//! An object stands at the newest ban that it was tested against. Only the oldest bans go, and only when no object stands
//! there: nothing is left then that they could be tested against.

use super::expression::{Expression, Hit, Subject};
use super::lurker::{PassBans, Untestable};
use super::{Listed, Verdict};
use base::Time;
use copal_base as base;
use copal_store::Object;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What a ban is reckoned to take beside its text, for `bans_persisted_bytes`.
const BAN_BYTES: u64 = 16;

#[derive(Debug)]
pub(super) struct Ban {
    pub(super) sequence: u64,
    pub(super) time: Time,
    /// Shared with the table of texts; empty once completed.
    text: Arc<[u8]>,
    pub(super) expression: Arc<Expression>,
    pub(super) completed: bool,
    pub(super) looks_at_request: bool,
    looks_at_object: bool,
    /// Objects of the index that stand here.
    objects: AtomicU64,
}

impl Ban {
    fn listed(&self) -> Listed {
        Listed {
            sequence: self.sequence,
            time: self.time,
            objects: self.objects.load(Ordering::Relaxed),
            text: self.text.to_vec(),
            completed: self.completed,
            tests_request: self.looks_at_request,
            tests_object: self.looks_at_object,
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct List {
    /// Oldest first; numbers grow, but not by one where bans were removed. Never empty.
    bans: VecDeque<Ban>,
    /// The one ban with that text that is not completed, if equal ones replace each other.
    by_text: HashMap<Arc<[u8]>, u64>,
    /// Of a ban up to this number it may be that nobody knows any more what it said, though no newer one says the same.
    forgotten: u64,
    /// How many of the bans are completed, look at the request, at the object; and the bytes of all.
    pub(super) completed: u64,
    pub(super) req: u64,
    pub(super) obj: u64,
    pub(super) bytes: u64,
    /// How many are neither completed nor look at the request.
    testable: u64,
}

impl List {
    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.bans.len()
    }

    pub(super) fn newest(&self) -> u64 {
        self.bans.back().map_or(0, |ban| ban.sequence)
    }

    pub(super) fn push(&mut self, sequence: u64, mut expression: Expression, time: Time) {
        let text: Arc<[u8]> = std::mem::take(&mut expression.text).into();
        let (looks_at_request, looks_at_object) =
            (expression.looks_at_request(), expression.looks_at_object());
        self.req += u64::from(looks_at_request);
        self.obj += u64::from(looks_at_object);
        self.testable += u64::from(!looks_at_request);
        self.bytes += BAN_BYTES + text.len() as u64;
        if expression.is_repeatable() {
            self.by_text.insert(Arc::clone(&text), sequence);
        }
        self.bans.push_back(Ban {
            sequence,
            time,
            text,
            expression: Arc::new(expression),
            completed: false,
            looks_at_request,
            looks_at_object,
            objects: AtomicU64::new(0),
        });
    }

    /// Completes the ban that says the same, if there is one.
    pub(super) fn complete_equal(&mut self, expression: &Expression) -> bool {
        if !expression.is_repeatable() {
            return false;
        }
        let Some(older) = self.by_text.get(expression.text.as_slice()).copied() else { return false };
        self.complete(older)
    }

    /// Completes bans that every object has been tested against.
    pub(super) fn complete_tested(&mut self, tested: impl Iterator<Item = u64>) {
        for sequence in tested {
            if self.complete(sequence) {
                self.forgotten = self.forgotten.max(sequence);
            }
        }
    }

    /// From now on this ban is not tested; what it said is forgotten. False if it is so already.
    fn complete(&mut self, sequence: u64) -> bool {
        let Ok(index) = self.bans.binary_search_by_key(&sequence, |ban| ban.sequence) else { return false };
        let ban = &mut self.bans[index];
        if ban.completed {
            return false;
        }
        ban.completed = true;
        ban.expression = Arc::new(Expression::empty());
        let text = std::mem::take(&mut ban.text);
        self.bytes -= text.len() as u64;
        // A newer one with the same text has the entry if duplicates are left alone.
        if self.by_text.get(&text) == Some(&sequence) {
            self.by_text.remove(&text);
        }
        self.completed += 1;
        self.testable -= u64::from(!ban.looks_at_request);
        true
    }

    /// Whether the oldest ban can be removed: no object stands at it. The newest stays in any case.
    pub(super) fn has_loose_tail(&self) -> bool {
        self.bans.len() > 1 && self.bans.front().is_some_and(|ban| ban.objects.load(Ordering::Relaxed) == 0)
    }

    /// Removes the oldest bans that no object stands at, and says how many.
    pub(super) fn drop_tail(&mut self) -> u64 {
        let mut dropped = 0;
        while self.has_loose_tail() {
            let Some(oldest) = self.bans.front() else { break };
            let (sequence, completed) = (oldest.sequence, oldest.completed);
            if !completed {
                self.complete(sequence);
                self.forgotten = self.forgotten.max(sequence);
            }
            let Some(ban) = self.bans.pop_front() else { break };
            self.completed -= 1;
            self.req -= u64::from(ban.looks_at_request);
            self.obj -= u64::from(ban.looks_at_object);
            self.bytes -= BAN_BYTES;
            dropped += 1;
        }
        dropped
    }

    /// The ban at which an object that was tested up to `sequence` is counted.
    fn place(&self, sequence: u64) -> Option<&Ban> {
        let index = self.bans.partition_point(|ban| ban.sequence < sequence);
        self.bans.get(index).or_else(|| self.bans.back())
    }

    /// Counts an object or entry, tested up to `tested`, that came into the index.
    pub(super) fn enter(&self, tested: u64) {
        if let Some(ban) = self.place(tested) {
            ban.objects.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts out an object or entry, tested up to `tested`, that left the index.
    pub(super) fn leave(&self, tested: u64) {
        if let Some(ban) = self.place(tested) {
            ban.objects.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Counts an object or entry of the index that stood at `from` at `to` from now on.
    pub(super) fn shift(&self, from: u64, to: u64) {
        if let Some(ban) = self.place(to) {
            ban.objects.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(ban) = self.place(from) {
            ban.objects.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// An object of the index was tested up to `to`.
    pub(super) fn advance(&self, object: &Object, to: u64) {
        let from = object.set_ban(to);
        if from < to {
            self.shift(from, to);
        }
    }

    /// Whether a ban that has been removed came after an object was tested up to `tested`.
    pub(super) fn is_too_old(&self, tested: u64) -> bool {
        tested < self.forgotten
    }

    /// Nobody knows what bans older than the oldest said.
    pub(super) fn forget_older(&mut self) {
        self.forgotten = self.forgotten.max(self.oldest().saturating_sub(1));
    }

    /// The number of the oldest.
    pub(super) fn oldest(&self) -> u64 {
        self.bans.front().map_or(0, |ban| ban.sequence)
    }

    /// Tests the newest first, down to the one that the subject was tested against. Adds the conditions tested.
    pub(super) fn check(&self, tested: u64, subject: &Subject<'_>, conditions: &mut u64) -> Verdict {
        let mut verdict = Verdict::Live;
        let untested = self.bans.iter().rev().take_while(|ban| ban.sequence > tested);
        for ban in untested.filter(|ban| !ban.completed) {
            match ban.expression.hits(subject, ban.time, conditions) {
                Hit::Yes => return Verdict::Banned,
                Hit::Depends => verdict = Verdict::NeedsRequest,
                Hit::No => {}
            }
        }
        verdict
    }

    /// The newest ban after `tested` that hits the subject.
    pub(super) fn find(&self, tested: u64, subject: &Subject<'_>) -> Option<Listed> {
        let untested = self.bans.iter().rev().take_while(|ban| ban.sequence > tested);
        let hits = |ban: &&Ban| ban.expression.hits(subject, ban.time, &mut 0) == Hit::Yes;
        untested.filter(|ban| !ban.completed).find(hits).map(Ban::listed)
    }

    /// The bans made before `made_before` that the lurker can test; `None` if it has nothing to do. Objects that stand at the
    /// ban number `cutoff` from the newest or below are to go, unless `cutoff` is 0.
    pub(super) fn bans_for_pass(&self, made_before: Time, cutoff: u64) -> Option<PassBans> {
        if self.testable == 0 && cutoff == 0 {
            return None;
        }
        let mut bans = PassBans::default();
        let mut below = 0;
        for ban in &self.bans {
            let testable = !ban.looks_at_request && ban.time < made_before;
            if testable && !ban.completed {
                bans.tests.push((ban.sequence, ban.time, Arc::clone(&ban.expression)));
            } else if !ban.completed {
                bans.untestable.push(Untestable { sequence: ban.sequence, below });
            }
            below = ban.sequence;
        }
        let beyond = usize::try_from(cutoff).ok().filter(|cutoff| *cutoff > 0);
        let index = beyond.and_then(|cutoff| self.bans.len().checked_sub(cutoff));
        if let Some(index) = index {
            bans.cutoff = self.bans[index].sequence;
        }
        let expunges = index.is_some_and(|index| {
            let occupied = self.bans.range(..=index).any(|ban| ban.objects.load(Ordering::Relaxed) > 0);
            self.bans[index].time < made_before && occupied
        });
        (!bans.tests.is_empty() || expunges).then_some(bans)
    }

    /// All of them, the newest first.
    pub(super) fn listed(&self) -> Vec<Listed> {
        self.bans.iter().rev().map(Ban::listed).collect()
    }
}
