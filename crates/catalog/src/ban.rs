//! Bans: objects that an operator ends by a condition instead of by a key.
//!
//! ```text
//! oldest                                              newest
//! +----+    +----+    +----+    +----+    +----+    +----+
//! | 17 |    | 18 |    | 19 |    | 20 |    | 21 |    | 22 |      numbers only grow
//! +----+    +----+    +----+    +----+    +----+    +----+
//!                ^ an object that was tested against 18: 22 to 19 are still to be tested, newest first
//! ```
//!
//! An object remembers the newest ban that it was tested against, or that there was when it came. A lookup compares that
//! number with [`Bans::newest`] and is done if they are equal. The lurker tests all objects in time against the bans that
//! need no request. As in Varnish there is always one ban, at first one that bans nothing, and a ban is *completed* once an
//! equal one is added or the lurker is through with it: it stays in its place without being tested, until no object stands
//! at it or below.

mod expression;
mod list;
mod lurker;
#[cfg(test)]
mod tests;

pub use expression::Request;
pub use lurker::{Lurker, Pace};

use base::Time;
use copal_base as base;
use copal_store::Object;
use expression::{Expression, Subject};
use list::List;
use lurker::{Fate, PassBans, Tested};
use parking_lot::RwLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// How many bans there may be unless [`Bans::set_max`] says otherwise. A regular expression in a ban takes some kilobytes.
pub const MAX_DEFAULT: usize = 100_000;

/// The longest expression.
pub const EXPRESSION_MAX: usize = 16 << 10;

/// The result of testing an object against the bans.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// None of them hits it, and all were tested.
    Live,
    /// One hits it.
    Banned,
    /// None hits it, but some could not be tested without a request.
    NeedsRequest,
}

/// A ban, as it is listed.
#[derive(Debug, Clone, PartialEq)]
pub struct Listed {
    /// Its number.
    pub sequence: u64,
    /// When it was added.
    pub time: Time,
    /// How many objects were last tested against it, or came when it was the newest.
    pub objects: u64,
    /// Its expression in one spelling; empty once completed.
    pub text: Vec<u8>,
    /// Whether it needs no testing any more.
    pub completed: bool,
    /// Whether it looks at requests.
    pub tests_request: bool,
    /// Whether it looks at objects.
    pub tests_object: bool,
}

/// Counts since the start, and of what there is. Names and meaning are those of Varnish's `MAIN.bans*` counters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Bans that there are (`bans`).
    pub bans: u64,
    /// Of these, completed ones (`bans_completed`).
    pub completed: u64,
    /// Of these, those that look at objects (`bans_obj`).
    pub obj: u64,
    /// Of these, those that look at requests (`bans_req`).
    pub req: u64,
    /// Bans added (`bans_added`).
    pub added: u64,
    /// Bans removed (`bans_deleted`).
    pub deleted: u64,
    /// Objects tested at lookup (`bans_tested`).
    pub tested: u64,
    /// Objects killed at lookup (`bans_obj_killed`).
    pub obj_killed: u64,
    /// Bans tested by the lurker, once for each object (`bans_lurker_tested`).
    pub lurker_tested: u64,
    /// Conditions tested at lookup (`bans_tests_tested`).
    pub tests_tested: u64,
    /// Conditions tested by the lurker (`bans_lurker_tests_tested`).
    pub lurker_tests_tested: u64,
    /// Objects killed by the lurker (`bans_lurker_obj_killed`).
    pub lurker_obj_killed: u64,
    /// Objects that the lurker killed untested (`bans_lurker_obj_killed_cutoff`).
    pub lurker_obj_killed_cutoff: u64,
    /// Times the lurker gave way to a lookup (`bans_lurker_contention`).
    pub lurker_contention: u64,
    /// Bans completed because a newer one equals them (`bans_dups`).
    pub dups: u64,
    /// Bytes that the list would take where it is written down (`bans_persisted_bytes`).
    pub bytes: u64,
}

/// A durable log of bans.
pub trait BanLog: Send + Sync {
    /// Called for each new ban: its number, its time, and its text in the form that [`Bans::restore`] takes. The ban is to be
    /// durable soon; a caller that must know when waits elsewhere.
    fn added(&self, number: u64, time: Time, text: &[u8]);
}

/// All bans of a process.
pub struct Bans {
    log: OnceLock<Arc<dyn BanLog>>,
    newest: AtomicU64,
    list: RwLock<List>,
    max: AtomicUsize,
    dups_enabled: AtomicBool,
    added: AtomicU64,
    deleted: AtomicU64,
    dups: AtomicU64,
    lookup: Tests,
    lurker: Tests,
    cut_off: AtomicU64,
    contention: AtomicU64,
}

/// Counts of one kind of tests.
#[derive(Debug, Default)]
struct Tests {
    tested: AtomicU64,
    conditions: AtomicU64,
    killed: AtomicU64,
}

impl Tests {
    fn count(&self, tested: u64, conditions: u64, killed: bool) {
        self.tested.fetch_add(tested, Ordering::Relaxed);
        self.conditions.fetch_add(conditions, Ordering::Relaxed);
        self.killed.fetch_add(u64::from(killed), Ordering::Relaxed);
    }
}

impl std::fmt::Debug for Bans {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bans").field("newest", &self.newest).finish_non_exhaustive()
    }
}

impl Default for Bans {
    fn default() -> Self {
        Self::new()
    }
}

impl Bans {
    /// The list with its one first ban, from the time 0.
    pub fn new() -> Self {
        Self::started_at(0.0)
    }

    /// The list with its one first ban, from the time `now`.
    pub fn started_at(now: Time) -> Self {
        let mut list = List::default();
        list.push(1, Expression::empty(), now);
        list.complete_equal(&Expression::empty());
        Self {
            log: OnceLock::new(),
            newest: AtomicU64::new(1),
            list: RwLock::new(list),
            max: AtomicUsize::new(MAX_DEFAULT),
            dups_enabled: AtomicBool::new(true),
            added: AtomicU64::new(1),
            deleted: AtomicU64::new(0),
            dups: AtomicU64::new(0),
            lookup: Tests::default(),
            lurker: Tests::default(),
            cut_off: AtomicU64::new(0),
            contention: AtomicU64::new(0),
        }
    }

    /// How many bans there may be; at least 1.
    pub fn set_max(&self, max: usize) {
        self.max.store(max.max(1), Ordering::Relaxed);
    }

    /// Whether a new ban completes those that equal it (Varnish's parameter `ban_dups`, default on).
    pub fn set_dups(&self, enabled: bool) {
        self.dups_enabled.store(enabled, Ordering::Relaxed);
    }

    /// Adds a ban from the text that VCL's `ban()` takes: words between blanks, without quoting. Returns its number.
    ///
    /// # Errors
    /// What is wrong with the expression, in Varnish's words; or there are too many bans.
    pub fn add(&self, expression: &[u8], now: Time) -> Result<u64, String> {
        check_length(expression.len())?;
        let words: Vec<&[u8]> =
            expression.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).collect();
        self.insert(Expression::parse(expression)?, &words.join(&0), now)
    }

    /// Adds a ban from the words of the command line's `ban`, which are split and unquoted already.
    ///
    /// # Errors
    /// As [`Bans::add`].
    pub fn add_words<W: AsRef<[u8]>>(&self, words: &[W], now: Time) -> Result<u64, String> {
        check_length(words.iter().map(|word| word.as_ref().len() + 1).sum())?;
        let kept: Vec<&[u8]> = words.iter().map(AsRef::as_ref).collect();
        self.insert(Expression::from_words(words)?, &kept.join(&0), now)
    }

    /// `words` is the text for the log: the words of the expression with a zero byte between them.
    fn insert(&self, expression: Expression, words: &[u8], now: Time) -> Result<u64, String> {
        let mut list = self.list.write();
        let max = self.max.load(Ordering::Relaxed);
        if list.len() >= max {
            return Err(format!("Too many bans (there are {}, the limit is {max})", list.len()));
        }
        if self.dups_enabled.load(Ordering::Relaxed) && list.complete_equal(&expression) {
            self.dups.fetch_add(1, Ordering::Relaxed);
        }
        let sequence = list.newest() + 1;
        if let Some(log) = self.log.get() {
            log.added(sequence, now, words);
        }
        list.push(sequence, expression, now);
        self.added.fetch_add(1, Ordering::Relaxed);
        // After the ban is in the list and before the lock goes: whoever sees the number finds the ban.
        self.newest.store(sequence, Ordering::Release);
        Ok(sequence)
    }

    /// The newest ban's number. An object with this number needs no test.
    #[inline]
    pub fn newest(&self) -> u64 {
        self.newest.load(Ordering::Acquire)
    }

    /// Whether a ban hits `object`, which a request has met: tests the bans that it was not tested against, the newest
    /// first, and notes that it survived them. The object is in the index, and its shard is locked.
    pub fn hits(&self, object: &Object, request: Request<'_>) -> bool {
        let mut conditions = 0;
        let list = self.list.read();
        let subject = Subject::new(object, Some(request));
        let banned = list.check(object.ban(), &subject, &mut conditions) == Verdict::Banned;
        if !banned {
            list.advance(object, list.newest());
        }
        drop(list);
        self.lookup.count(1, conditions, banned);
        banned
    }

    /// The ban that hits `object` as `request` meets it: the newest of those it was not tested against. Leaves no trace.
    pub fn find(&self, object: &Object, request: Request<'_>) -> Option<Listed> {
        self.list.read().find(object.ban(), &Subject::new(object, Some(request)))
    }

    /// Takes in an object that comes into the index now, its shard being locked. False if a ban that came while it was
    /// fetched hits it, or may have: then it must not come in.
    pub(crate) fn admit(&self, object: &Object) -> bool {
        let list = self.list.read();
        if object.ban() < list.newest() {
            let subject = Subject::new(object, None);
            match list.check(object.ban(), &subject, &mut 0) {
                Verdict::Banned => return false,
                _ if list.is_too_old(object.ban()) => return false,
                Verdict::Live => {
                    object.set_ban(list.newest());
                }
                // The next request that meets it decides.
                Verdict::NeedsRequest => {}
            }
        }
        list.enter(object.ban());
        true
    }

    /// Lets go of an object that was taken out of the index.
    pub(crate) fn leave(&self, object: &Object) {
        self.list.read().leave(object.ban());
    }

    /// Takes in an entry found at the start, which was tested up to `tested`. False if bans that came after that are no longer
    /// known.
    pub(crate) fn enter_entry(&self, tested: u32) -> bool {
        let list = self.list.read();
        let known = !list.is_too_old(tested.into());
        if known {
            list.enter(tested.into());
        }
        known
    }

    /// Lets go of an entry that was tested up to `tested`.
    pub(crate) fn leave_entry(&self, tested: u32) {
        self.list.read().leave(tested.into());
    }

    /// An object or entry that stood at `from` was tested up to `to`. Its shard is locked.
    pub(crate) fn shift(&self, from: u64, to: u64) {
        self.list.read().shift(from, to);
    }

    /// Takes in the bans that a device kept, oldest first: number, time and text of each. For the start, before any object
    /// comes in. A text that does not read as a ban bans everything before it, since its condition is not known.
    /// Numbers go on from `newest` at least: objects say that they were tested up to there.
    pub fn restore(&self, kept: &[(u64, Time, Vec<u8>)], newest: u64, now: Time) {
        let mut list = self.list.write();
        let mut restored = List::default();
        for (number, time, text) in kept {
            let words: Vec<&[u8]> = text.split(|byte| *byte == 0).collect();
            let expression = Expression::from_words(&words).unwrap_or_else(|_| Expression::everything());
            if restored.newest() < *number {
                restored.complete_equal(&expression);
                restored.push(*number, expression, *time);
            }
        }
        if restored.newest() < newest {
            restored.push(newest, Expression::empty(), now);
            restored.complete_equal(&Expression::empty());
        }
        if restored.len() > 0 {
            restored.forget_older();
            self.newest.store(restored.newest(), Ordering::Release);
            *list = restored;
        }
    }

    /// From now on `log` is told of each ban.
    pub fn set_log(&self, log: Arc<dyn BanLog>) {
        let _ = self.log.set(log);
    }

    /// An object was tested up to the ban `to`. It is in the index, and its shard is locked.
    pub(crate) fn advance(&self, object: &Object, to: u64) {
        self.list.read().advance(object, to);
    }

    /// All bans, the newest first.
    pub fn list(&self) -> Vec<Listed> {
        self.list.read().listed()
    }

    /// What the lurker can do now.
    fn bans_for_pass(&self, made_before: Time, cutoff: u64) -> Option<PassBans> {
        self.list.read().bans_for_pass(made_before, cutoff)
    }

    /// The lurker has tested every object.
    fn end_pass(&self, bans: &PassBans) {
        self.list.write().complete_tested(bans.tests.iter().map(|test| test.0));
        self.drop_tail();
    }

    /// Drops the oldest bans that no object stands at. The newest stays in any case.
    pub fn drop_tail(&self) {
        // Looked at first without keeping others out: most looks find nothing.
        if self.list.read().has_loose_tail() {
            let dropped = self.list.write().drop_tail();
            self.deleted.fetch_add(dropped, Ordering::Relaxed);
        }
    }

    fn count_contention(&self) {
        self.contention.fetch_add(1, Ordering::Relaxed);
    }

    fn count_lurker(&self, tested: Tested, fate: Fate, ended: bool) {
        self.lurker.count(tested.bans, tested.conditions, fate == Fate::Banned && ended);
        self.cut_off.fetch_add(u64::from(fate == Fate::CutOff && ended), Ordering::Relaxed);
    }

    /// How many bans there are.
    pub fn count(&self) -> usize {
        self.list.read().len()
    }

    /// How many of them are not completed.
    pub(crate) fn outstanding(&self) -> u64 {
        let list = self.list.read();
        (list.len() as u64).saturating_sub(list.completed)
    }

    /// The counters.
    pub fn counts(&self) -> Counts {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let list = self.list.read();
        Counts {
            bans: list.len() as u64,
            completed: list.completed,
            obj: list.obj,
            req: list.req,
            added: load(&self.added),
            deleted: load(&self.deleted),
            tested: load(&self.lookup.tested),
            obj_killed: load(&self.lookup.killed),
            lurker_tested: load(&self.lurker.tested),
            tests_tested: load(&self.lookup.conditions),
            lurker_tests_tested: load(&self.lurker.conditions),
            lurker_obj_killed: load(&self.lurker.killed),
            lurker_obj_killed_cutoff: load(&self.cut_off),
            lurker_contention: load(&self.contention),
            dups: load(&self.dups),
            bytes: list.bytes,
        }
    }
}

fn check_length(bytes: usize) -> Result<(), String> {
    if bytes > EXPRESSION_MAX {
        return Err(format!("Ban of {bytes} bytes is longer than {EXPRESSION_MAX}"));
    }
    Ok(())
}
