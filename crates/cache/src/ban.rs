//! Bans: what an operator declares dead by a condition instead of by a key.
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
//! number with [`Bans::newest`] and is done if they are equal. The sweeper tests all objects in time; bans that every
//! object has survived go. As in Varnish there is always one ban, at first a completed one that bans nothing, and a ban
//! that equals a newer one is *completed*: it stays in its place without being tested.

mod expression;

pub use expression::Request;

use base::Time;
use copal_base as base;
use copal_store::Object;
use expression::{Expression, Hit, Subject};
use parking_lot::RwLock;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// How many bans there may be unless [`Bans::set_max`] says otherwise. A regular expression in a ban takes some kilobytes.
pub const MAX_DEFAULT: usize = 100_000;

/// The longest expression.
pub const EXPRESSION_MAX: usize = 16 << 10;

/// What the bans say of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// None of them hits it, and all were tested: the caller notes that with [`Object::set_ban`].
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
    /// Objects tested by the sweeper (`bans_lurker_tested`).
    pub lurker_tested: u64,
    /// Conditions tested at lookup (`bans_tests_tested`).
    pub tests_tested: u64,
    /// Conditions tested by the sweeper (`bans_lurker_tests_tested`).
    pub lurker_tests_tested: u64,
    /// Objects killed by the sweeper (`bans_lurker_obj_killed`).
    pub lurker_obj_killed: u64,
    /// Bans completed because a newer one equals them (`bans_dups`).
    pub dups: u64,
}

/// All bans of a process.
#[derive(Debug)]
pub struct Bans {
    newest: AtomicU64,
    list: RwLock<List>,
    max: AtomicUsize,
    dups_enabled: AtomicBool,
    added: AtomicU64,
    deleted: AtomicU64,
    dups: AtomicU64,
    /// At lookup and by the sweeper.
    tests: [Tests; 2],
}

/// What testing did.
#[derive(Debug, Default)]
struct Tests {
    objects: AtomicU64,
    conditions: AtomicU64,
    killed: AtomicU64,
}

#[derive(Debug)]
struct List {
    /// Oldest first; numbers grow, but not by one where bans were removed.
    bans: VecDeque<Ban>,
    /// The one ban with that text that is not completed.
    by_text: HashMap<Arc<[u8]>, u64>,
    /// Every ban up to this number has been tested against all objects, or was removed.
    settled: u64,
    completed: u64,
    obj: u64,
    req: u64,
}

#[derive(Debug)]
struct Ban {
    sequence: u64,
    time: Time,
    /// Shared with the table of texts; empty once completed.
    text: Arc<[u8]>,
    expression: Expression,
    completed: bool,
    looks_at_request: bool,
    looks_at_object: bool,
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
        let mut list =
            List { bans: VecDeque::new(), by_text: HashMap::new(), settled: 0, completed: 0, obj: 0, req: 0 };
        list.push(1, Expression::empty(), now);
        list.complete(0);
        Self {
            newest: AtomicU64::new(1),
            list: RwLock::new(list),
            max: AtomicUsize::new(MAX_DEFAULT),
            dups_enabled: AtomicBool::new(true),
            added: AtomicU64::new(1),
            deleted: AtomicU64::new(0),
            dups: AtomicU64::new(0),
            tests: Default::default(),
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
        self.insert(Expression::parse(expression)?, now)
    }

    /// Adds a ban from the words of the command line's `ban`, which are split and unquoted already.
    ///
    /// # Errors
    /// As [`Bans::add`].
    pub fn add_words<W: AsRef<[u8]>>(&self, words: &[W], now: Time) -> Result<u64, String> {
        check_length(words.iter().map(|word| word.as_ref().len() + 1).sum())?;
        self.insert(Expression::from_words(words)?, now)
    }

    fn insert(&self, expression: Expression, now: Time) -> Result<u64, String> {
        let mut list = self.list.write();
        let max = self.max.load(Ordering::Relaxed);
        if list.bans.len() >= max {
            return Err(format!("Too many bans (there are {}, the limit is {max})", list.bans.len()));
        }
        if self.dups_enabled.load(Ordering::Relaxed)
            && let Some(older) = list.by_text.get(expression.text.as_slice()).copied()
            && let Some(index) = list.index_of(older)
        {
            list.complete(index);
            self.dups.fetch_add(1, Ordering::Relaxed);
        }
        let sequence = self.newest.load(Ordering::Relaxed) + 1;
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

    /// Tests `object` against the bans that it was not tested against, the newest first.
    ///
    /// `stored` looks a header up in the object's head; it is called only for bans that ask. Without a request, a ban that
    /// looks at requests counts as tested if a condition on the object fails already.
    ///
    /// An object that is behind bans which are gone from the list is [`Verdict::Banned`]: that can only be one which came
    /// too slowly for the sweeper to see, and nobody can say any more whether they hit it.
    pub fn check(
        &self,
        object: &Object,
        stored: &dyn Fn(&[u8]) -> Option<Vec<u8>>,
        request: Option<Request<'_>>,
        now: Time,
    ) -> Verdict {
        let tested = object.ban();
        let subject = Subject { object, stored, request, now };
        let mut conditions = 0;
        let list = self.list.read();
        let verdict = if tested < list.settled {
            Verdict::Banned
        } else {
            list.check(tested, &subject, &mut conditions)
        };
        drop(list);
        let tests = &self.tests[usize::from(request.is_none())];
        tests.objects.fetch_add(1, Ordering::Relaxed);
        tests.conditions.fetch_add(conditions, Ordering::Relaxed);
        tests.killed.fetch_add(u64::from(verdict == Verdict::Banned), Ordering::Relaxed);
        verdict
    }

    /// All bans, the newest first.
    pub fn list(&self) -> Vec<Listed> {
        let list = self.list.read();
        let listed = |ban: &Ban| Listed {
            sequence: ban.sequence,
            time: ban.time,
            text: ban.text.to_vec(),
            completed: ban.completed,
            tests_request: ban.looks_at_request,
            tests_object: ban.looks_at_object,
        };
        list.bans.iter().rev().map(listed).collect()
    }

    /// Every object has been tested against the bans up to `oldest_object_ban`: older ones go, this one is completed. The
    /// newest stays in any case.
    pub fn drop_tested(&self, oldest_object_ban: u64) {
        {
            // Looked at first without keeping others out: most rounds find nothing.
            let list = self.list.read();
            let oldest = list.bans.front();
            if oldest
                .is_none_or(|ban| ban.sequence > oldest_object_ban || (ban.completed && list.bans.len() == 1))
            {
                return;
            }
        }
        let mut list = self.list.write();
        let settled = oldest_object_ban.min(self.newest.load(Ordering::Relaxed));
        list.settled = list.settled.max(settled);
        while list.bans.len() > 1 && list.bans.front().is_some_and(|ban| ban.sequence < settled) {
            list.complete(0);
            list.remove_oldest();
            self.deleted.fetch_add(1, Ordering::Relaxed);
        }
        if list.bans.front().is_some_and(|ban| ban.sequence <= settled) {
            list.complete(0);
        }
    }

    /// How many bans there are.
    pub fn count(&self) -> usize {
        self.list.read().bans.len()
    }

    /// The counters.
    pub fn counts(&self) -> Counts {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let list = self.list.read();
        let [lookup, lurker] = &self.tests;
        Counts {
            bans: list.bans.len() as u64,
            completed: list.completed,
            obj: list.obj,
            req: list.req,
            added: load(&self.added),
            deleted: load(&self.deleted),
            tested: load(&lookup.objects),
            obj_killed: load(&lookup.killed),
            lurker_tested: load(&lurker.objects),
            tests_tested: load(&lookup.conditions),
            lurker_tests_tested: load(&lurker.conditions),
            lurker_obj_killed: load(&lurker.killed),
            dups: load(&self.dups),
        }
    }
}

fn check_length(bytes: usize) -> Result<(), String> {
    if bytes > EXPRESSION_MAX {
        return Err(format!("Ban of {bytes} bytes is longer than {EXPRESSION_MAX}"));
    }
    Ok(())
}

impl List {
    fn push(&mut self, sequence: u64, mut expression: Expression, time: Time) {
        let text: Arc<[u8]> = std::mem::take(&mut expression.text).into();
        let (looks_at_request, looks_at_object) =
            (expression.looks_at_request(), expression.looks_at_object());
        self.req += u64::from(looks_at_request);
        self.obj += u64::from(looks_at_object);
        self.by_text.insert(Arc::clone(&text), sequence);
        self.bans.push_back(Ban {
            sequence,
            time,
            text,
            expression,
            completed: false,
            looks_at_request,
            looks_at_object,
        });
    }

    fn index_of(&self, sequence: u64) -> Option<usize> {
        self.bans.binary_search_by_key(&sequence, |ban| ban.sequence).ok()
    }

    /// From now on this ban is not tested; what it said is forgotten.
    fn complete(&mut self, index: usize) {
        let Some(ban) = self.bans.get_mut(index).filter(|ban| !ban.completed) else { return };
        ban.completed = true;
        ban.expression = Expression::empty();
        let text = std::mem::take(&mut ban.text);
        // A newer one with the same text has the entry if duplicates are left alone.
        if self.by_text.get(&text) == Some(&ban.sequence) {
            self.by_text.remove(&text);
        }
        self.completed += 1;
    }

    /// Removes the oldest, which is completed.
    fn remove_oldest(&mut self) {
        let Some(ban) = self.bans.pop_front() else { return };
        self.completed -= u64::from(ban.completed);
        self.req -= u64::from(ban.looks_at_request);
        self.obj -= u64::from(ban.looks_at_object);
    }

    fn check(&self, tested: u64, subject: &Subject<'_>, conditions: &mut u64) -> Verdict {
        let mut verdict = Verdict::Live;
        let untested = self.bans.iter().rev().take_while(|ban| ban.sequence > tested);
        for ban in untested.filter(|ban| !ban.completed) {
            match ban.expression.hits(subject, conditions) {
                Hit::Yes => return Verdict::Banned,
                Hit::Depends => verdict = Verdict::NeedsRequest,
                Hit::No => {}
            }
        }
        verdict
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use copal_store::{Attributes, Creation, Engine, Evictions, Flags, Memory};
    use copal_wire::Fields;

    struct Nobody;

    impl Evictions for Nobody {
        fn evicted(&self, _: &Arc<Object>) {}
    }

    const NOW: Time = 1e9 + 60.0;

    /// Status 404, one minute old, ttl 120.1 s, grace 10 s, keep 0, tested against `ban`.
    fn object(ban: u64) -> Arc<Object> {
        let memory = Memory::new("s0", None, Arc::new(Nobody));
        let attributes = Attributes {
            origin_time: 1e9,
            ttl: 120.1,
            grace: 10.0,
            keep: 0.0,
            status: 404,
            flags: Flags(0),
            ban,
            vxid: 1,
        };
        let creation = Creation { key: [0; 32], attributes, variant: b"", head: b"", length: Some(0) };
        let fill = memory.begin(&creation).unwrap();
        Arc::clone(fill.object())
    }

    fn stored(name: &[u8]) -> Option<Vec<u8>> {
        name.eq_ignore_ascii_case(b"x-tag").then(|| b"news sport".to_vec())
    }

    fn fields() -> Fields {
        let mut fields = Fields::new();
        fields.push(b"Host", b"example.org");
        fields
    }

    fn verdict(bans: &Bans, object: &Object, with_request: bool) -> Verdict {
        let fields = fields();
        let request: Option<Request<'_>> = with_request.then_some((b"/a/b?c".as_slice(), &fields));
        bans.check(object, &stored, request, NOW)
    }

    /// What one ban says of the object above, for a request of `/a/b?c` on example.org, and without a request.
    fn check(expression: &str, with_request: Verdict, without: Verdict) {
        let bans = Bans::new();
        bans.add(expression.as_bytes(), NOW).unwrap();
        assert_eq!(verdict(&bans, &object(1), true), with_request, "{expression}");
        assert_eq!(verdict(&bans, &object(1), false), without, "{expression} without a request");
        assert_eq!(verdict(&bans, &object(2), true), Verdict::Live, "{expression} tested already");
    }

    #[test]
    fn operators_on_the_object() {
        use Verdict::{Banned, Live};
        let check = |expression: &str, banned: bool| {
            let expected = if banned { Banned } else { Live };
            check(expression, expected, expected);
        };
        check("obj.status == 404", true);
        check("obj.status == 40", false);
        check("obj.status != 404", false);
        check("obj.status != 200", true);
        check("obj.status ~ ^4", true);
        check("obj.status !~ ^4", false);
        check("obj.http.x-tag ~ \\bsport\\b", true);
        check("obj.http.X-Tag == news", false);
        check("obj.http.x-tag !~ music", true);
        check("obj.http.none == a", false);
        check("obj.http.none != a", true);
        check("obj.http.none ~ .", false);
        check("obj.http.none !~ .", true);
        check("obj.ttl == 120.1s", true);
        check("obj.ttl != 120.1s", false);
        check("obj.ttl > 2m", true);
        check("obj.ttl > 120.1s", false);
        check("obj.ttl >= 120.1s", true);
        check("obj.ttl < 121s", true);
        check("obj.ttl <= 120s", false);
        check("obj.age == 1m", true);
        check("obj.age > 59s", true);
        check("obj.age > 1h", false);
        check("obj.grace >= 10s", true);
        check("obj.keep < 1ms", true);
        check("obj.keep > 0s", false);
        check("obj.status == 404 && obj.age > 30s", true);
        check("obj.status == 404 && obj.age > 90s", false);
    }

    #[test]
    fn operators_on_the_request() {
        use Verdict::{Banned, Live, NeedsRequest};
        check("req.url == /a/b?c", Banned, NeedsRequest);
        check("req.url == /a", Live, NeedsRequest);
        check("req.url ~ ^/a/", Banned, NeedsRequest);
        check("req.url !~ ^/a/", Live, NeedsRequest);
        check("req.http.host == example.org", Banned, NeedsRequest);
        check("req.http.HOST != example.org", Live, NeedsRequest);
        check("req.http.cookie ~ .", Live, NeedsRequest);
        check("req.http.cookie !~ .", Banned, NeedsRequest);
        check("req.url ~ . && obj.status == 404", Banned, NeedsRequest);
        check("req.url ~ . && obj.status == 200", Live, Live);
        check("obj.status == 200 && req.url ~ .", Live, Live);
    }

    #[test]
    fn only_newer_bans_are_tested_and_one_without_a_request_can_kill() {
        let bans = Bans::new();
        let first = bans.add(b"obj.status == 404", NOW).unwrap();
        let second = bans.add(b"req.url == /other", NOW).unwrap();
        assert_eq!((first, second, bans.newest()), (2, 3, 3));
        assert_eq!(verdict(&bans, &object(1), false), Verdict::Banned);
        assert_eq!(verdict(&bans, &object(first), false), Verdict::NeedsRequest);
        let tested = object(first);
        assert_eq!(verdict(&bans, &tested, true), Verdict::Live);
        tested.set_ban(bans.newest());
        bans.add(b"obj.status == 404", NOW).unwrap();
        assert_eq!(verdict(&bans, &tested, false), Verdict::Banned);
        let counts = bans.counts();
        assert_eq!((counts.tested, counts.tests_tested, counts.obj_killed), (1, 1, 0));
        assert_eq!((counts.lurker_tested, counts.lurker_tests_tested, counts.lurker_obj_killed), (3, 4, 2));
    }

    #[test]
    fn the_list_is_newest_first_and_equal_bans_are_completed() {
        let bans = Bans::started_at(5.0);
        for (time, text) in [(10.0, "req.url == a"), (11.0, "obj.age > 60s"), (12.0, "req.url  ==  a")] {
            bans.add(text.as_bytes(), time).unwrap();
        }
        bans.add(b"obj.age > 1m && req.url ~ b", 13.0).unwrap();
        bans.add(b"obj.age > 1m", 14.0).unwrap();
        let listed: Vec<_> = bans
            .list()
            .into_iter()
            .map(|ban| (ban.sequence, ban.time as u64, ban.completed, String::from_utf8(ban.text).unwrap()))
            .collect();
        let expected = [
            (6, 14, false, "obj.age > 1m"),
            (5, 13, false, "obj.age > 1m && req.url ~ b"),
            (4, 12, false, "req.url == a"),
            (3, 11, true, ""),
            (2, 10, true, ""),
            (1, 5, true, ""),
        ];
        assert_eq!(
            listed,
            expected.map(|(sequence, time, completed, text)| (sequence, time, completed, text.to_owned()))
        );
        let counts = bans.counts();
        assert_eq!((counts.bans, counts.completed, counts.added, counts.dups), (6, 3, 6, 2));
        assert_eq!((counts.req, counts.obj), (3, 3));
    }

    #[test]
    fn duplicates_can_be_left_alone() {
        let bans = Bans::new();
        bans.set_dups(false);
        bans.add(b"req.url == a", 1.0).unwrap();
        bans.add(b"req.url == a", 2.0).unwrap();
        assert_eq!((bans.counts().dups, bans.counts().completed), (0, 1));
        bans.set_dups(true);
        bans.add(b"req.url == a", 3.0).unwrap();
        assert_eq!(bans.counts().dups, 1);
        bans.drop_tested(3);
        bans.add(b"req.url == a", 4.0).unwrap();
        assert_eq!(bans.counts().dups, 2);
    }

    #[test]
    fn what_all_objects_survived_goes_but_the_newest_stays() {
        let bans = Bans::new();
        for number in 0..5 {
            bans.add(format!("req.url == /{number}").as_bytes(), 1.0).unwrap();
        }
        bans.drop_tested(0);
        assert_eq!(bans.count(), 6);
        bans.drop_tested(4);
        let left =
            |bans: &Bans| bans.list().iter().map(|ban| (ban.sequence, ban.completed)).collect::<Vec<_>>();
        assert_eq!(left(&bans), [(6, false), (5, false), (4, true)]);
        bans.drop_tested(u64::MAX);
        assert_eq!(left(&bans), [(6, true)]);
        let counts = bans.counts();
        assert_eq!((counts.bans, counts.deleted, counts.completed, counts.req, counts.obj), (1, 5, 1, 1, 0));
        assert_eq!(bans.newest(), 6);
        assert_eq!(verdict(&bans, &object(6), true), Verdict::Live);
        assert_eq!(verdict(&bans, &object(5), true), Verdict::Banned, "it missed a ban that is forgotten");
        assert_eq!(bans.add(b"req.url == /x", 2.0), Ok(7));
        assert_eq!(verdict(&bans, &object(6), true), Verdict::Live);
        bans.drop_tested(u64::MAX);
        bans.drop_tested(u64::MAX);
        assert_eq!(left(&bans), [(7, true)]);
    }

    #[test]
    fn there_are_bounds() {
        let bans = Bans::new();
        bans.set_max(3);
        bans.add(b"req.url == a", 1.0).unwrap();
        bans.add_words(&["req.url", "==", "a b"], 1.0).unwrap();
        assert_eq!(
            bans.add(b"req.url == c", 1.0).unwrap_err(),
            "Too many bans (there are 3, the limit is 3)"
        );
        bans.drop_tested(3);
        assert_eq!(bans.add(b"req.url == c", 1.0), Ok(4));
        let long = format!("req.url == {}", "a".repeat(EXPRESSION_MAX));
        assert!(bans.add(long.as_bytes(), 1.0).unwrap_err().contains("longer than"));
        assert!(bans.add_words(&["req.url", "==", &long], 1.0).is_err());
        assert!(bans.add(b"req.url ~ (", 1.0).is_err());
        assert_eq!(bans.counts().added, 4, "what is refused leaves no trace");
    }

    #[test]
    fn threads_see_a_ban_with_its_number() {
        let bans = Bans::new();
        let object = object(1);
        std::thread::scope(|scope| {
            scope.spawn(|| (0..2_000).for_each(|_| drop(bans.add(b"obj.status == 404", NOW))));
            scope.spawn(|| {
                while bans.newest() == 1 {
                    std::hint::spin_loop();
                }
                for _ in 0..2_000 {
                    assert_eq!(verdict(&bans, &object, false), Verdict::Banned);
                }
            });
        });
        bans.drop_tested(bans.newest());
        assert_eq!((bans.count(), bans.counts().completed), (1, 1));
    }
}
