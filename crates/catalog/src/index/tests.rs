//! The index by itself: one fetch a key, variants, grace, waiting, purge, eviction.

use super::busy::Admit;
use super::confirmation::{Confirmation, PendingConfirmation};
use super::head::Head;
use super::lookup::{Acceptance, Found, Query, Waited};
use super::{Index, Key};
use crate::reason::Reason;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Wake, Waker};
use store::{Attributes, Creation, Engine, Flags, Memory, Object};

use copal_rules as rules;
use copal_store as store;
use copal_wire as wire;

struct Bench {
    index: Arc<Index>,
    store: Memory,
}

#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn key(byte: u8) -> Key {
    [byte; 32]
}

impl Bench {
    fn new(size: Option<u64>) -> Self {
        let index = Arc::new(Index::default());
        let store = Memory::new("s0", size, Arc::clone(&index) as Arc<dyn store::Evictions>);
        Self { index, store }
    }

    fn object(&self, key: Key, variant: &[u8], flags: u8, ttl: f64, body: &[u8]) -> Arc<Object> {
        let attributes = Attributes {
            origin_time: 100.0,
            ttl,
            grace: 10.0,
            keep: 0.0,
            status: 200,
            flags: Flags(flags),
            ban: 0,
            vxid: 1,
        };
        let creation =
            Creation { key, attributes, variant, head: b"OK\r\n", length: Some(body.len() as u64) };
        let mut fill = self.store.begin(&creation).expect("there is room");
        fill.append(body).expect("there is room");
        let object = Arc::clone(fill.object());
        fill.commit();
        object
    }

    fn look(&self, key: Key, now: f64, wants: &[u8], waiter: Option<(u64, &Waker)>) -> Found {
        let (fits, predict) = (|object: &Object| object.variant() == wants, |_: &Object| wants.to_vec());
        self.look_twice(&plain(key, now, &fits, &predict), waiter)
    }

    /// As a request by the RFCs, that answers `acceptance` to every object and waits already, as `waited` says.
    fn ask(&self, now: f64, acceptance: Acceptance, waited: Option<Waited>) -> Found {
        let accepts = |_: &Object, _| acceptance;
        let (fits, predict) = (|_: &Object| true, |_: &Object| Vec::new());
        let query =
            Query { rfc: true, accepts: Some(&accepts), waited, ..plain(key(1), now, &fits, &predict) };
        self.look_twice(&query, None)
    }

    /// What a lookup finds; a look before it, which leaves no trace, says the same.
    fn look_twice(&self, query: &Query<'_>, waiter: Option<(u64, &Waker)>) -> Found {
        let peeked = self.index.peek(query);
        let again = self.index.peek(query);
        assert_eq!((peeked.fetches, peeked.waiting), (again.fetches, again.waiting));
        let found = self.index.lookup(query, waiter);
        let (reason, object) = match &found {
            Found::Hit(object) => (Reason::Hit, Some(object)),
            Found::Stale(object, _, reason) => (*reason, Some(object)),
            Found::HitForPass(marker) => (Reason::HitForPass, Some(marker)),
            Found::HitForMiss(marker, _) => (Reason::HitForMiss, Some(marker)),
            Found::Miss(_, stale, reason) => (*reason, stale.as_ref()),
            Found::Wait(_) => (Reason::Busy, peeked.object.as_ref()),
            Found::Cold => panic!("nothing is on a device"),
        };
        assert_eq!((peeked.reason, again.reason), (reason, reason));
        assert_eq!(peeked.object.as_ref().map(Arc::as_ptr), object.map(Arc::as_ptr));
        found
    }

    fn miss(&self, key: Key, now: f64, wants: &[u8]) -> super::busy::Busy {
        match self.look(key, now, wants, None) {
            Found::Miss(busy, ..) => busy,
            other => panic!("expected a miss, found {other:?}"),
        }
    }
}

/// A query that asks for nothing special.
fn plain<'query>(
    key: Key,
    now: f64,
    fits: &'query dyn Fn(&Object) -> bool,
    predict: &'query dyn Fn(&Object) -> Vec<u8>,
) -> Query<'query> {
    Query { fits, predict, ..Query::plain(key, now) }
}

#[test]
fn one_fetch_and_the_others_wait_for_it() {
    let bench = Bench::new(None);
    let busy = bench.miss(key(1), 101.0, b"");
    let count = Arc::new(Count::default());
    let waker = Waker::from(Arc::clone(&count));
    assert!(matches!(bench.look(key(1), 101.0, b"", Some((7, &waker))), Found::Wait(_)));
    assert!(matches!(bench.look(key(1), 101.0, b"", Some((8, &waker))), Found::Wait(_)));
    busy.insert(bench.object(key(1), b"", 0, 60.0, b"body"));
    assert_eq!(count.0.load(Ordering::Relaxed), 2);
    assert!(matches!(bench.look(key(1), 101.0, b"", None), Found::Hit(_)));
}

#[test]
fn a_failed_fetch_wakes_one_who_takes_over() {
    let bench = Bench::new(None);
    let busy = bench.miss(key(1), 101.0, b"");
    let count = Arc::new(Count::default());
    let waker = Waker::from(Arc::clone(&count));
    for id in 0..3 {
        assert!(matches!(bench.look(key(1), 101.0, b"", Some((id, &waker))), Found::Wait(_)));
    }
    drop(busy);
    assert_eq!(count.0.load(Ordering::Relaxed), 1);
    let second = bench.miss(key(1), 101.0, b"");
    // The one that took over may itself go away without a fetch: the next in line is woken.
    drop(second);
    assert_eq!(count.0.load(Ordering::Relaxed), 2);
    bench.index.stop_waiting(&key(1), 1);
    assert_eq!(count.0.load(Ordering::Relaxed), 3);
}

#[test]
fn grace_serves_stale_with_one_fetch() {
    let bench = Bench::new(None);
    bench.miss(key(1), 101.0, b"").insert(bench.object(key(1), b"", 0, 5.0, b""));
    let Found::Stale(_, Some(busy), _) = bench.look(key(1), 106.0, b"", None) else { panic!("not in grace") };
    assert!(matches!(bench.look(key(1), 106.0, b"", None), Found::Stale(_, None, _)));
    drop(busy);
    assert!(matches!(bench.look(key(1), 116.0, b"", None), Found::Miss(_, Some(_), _)));
}

#[test]
fn variants_stand_side_by_side_and_are_replaced_each_by_its_own() {
    let bench = Bench::new(None);
    bench.miss(key(1), 101.0, b"a").insert(bench.object(key(1), b"a", 0, 60.0, b"A1"));
    bench.miss(key(1), 101.0, b"b").insert(bench.object(key(1), b"b", 0, 60.0, b"B1"));
    assert_eq!(bench.index.objects(&key(1)).len(), 2);
    let Found::Hit(old) = bench.look(key(1), 101.0, b"a", None) else { panic!("a is there") };
    bench.miss(key(1), 200.0, b"a").insert(bench.object(key(1), b"a", 0, 600.0, b"A2"));
    assert!(old.is_gone());
    assert_eq!(bench.index.objects(&key(1)).len(), 2);
    assert!(matches!(bench.look(key(1), 101.0, b"b", None), Found::Hit(_)));
}

#[test]
fn rfc9111_4_1_the_newest_that_fits_is_found_also_when_another_went() {
    let bench = Bench::new(None);
    let [first, older, newest] = [b"a", b"b", b"c"].map(|name| {
        let object = bench.object(key(1), name, 0, 60.0, b"body");
        bench.miss(key(1), 101.0, name).insert(Arc::clone(&object));
        object
    });
    assert!(bench.index.unlink(&first));
    let (fits, predict) = (|_: &Object| true, |_: &Object| Vec::new());
    let found = bench.look_twice(&plain(key(1), 101.0, &fits, &predict), None);
    assert!(matches!(found, Found::Hit(object) if Arc::ptr_eq(&object, &newest)));
    assert!(!older.is_gone());
}

#[test]
fn beyond_the_most_variants_the_oldest_goes_for_the_newest() {
    let bench = Bench::new(None);
    let mut head = Head::default();
    let mut enter = |name: &[u8]| head.enter(bench.object(key(1), name, 0, 60.0, b"body"), 3);
    assert!([b"a", b"b", b"c"].iter().all(|name| enter(*name).is_none()));
    let gone: Vec<_> = [b"d", b"e"].iter().map(|name| enter(*name).unwrap().variant().to_vec()).collect();
    assert_eq!(gone, [b"a", b"b"]);
    assert_eq!(head.variants.len(), 3);
}

/// A thread may go on with the object it knows only as long as no other kind of variant came after it.
#[test]
fn a_newer_object_for_the_same_requests_supersedes_the_older_ones() {
    let bench = Bench::new(None);
    let of = |field: &str, value: &str| {
        let mut request = wire::Fields::new();
        request.push(field.as_bytes(), value.as_bytes());
        let mut response = wire::Fields::new();
        response.push(b"Vary", field.as_bytes());
        rules::vary::build(&response, &request).unwrap()
    };
    let add = |variant: &[u8]| {
        let object = bench.object(key(1), variant, 0, 60.0, b"");
        bench.miss(key(1), 200.0, variant).insert(Arc::clone(&object));
        object
    };
    let (one, two) = (add(&of("X", "1")), add(&of("X", "2")));
    assert!(!one.may_be_superseded() && !two.may_be_superseded(), "no request fits both");
    let all = add(b"");
    assert!(one.may_be_superseded() && two.may_be_superseded() && !all.may_be_superseded());
}

#[test]
fn markers_do_not_make_others_wait() {
    let bench = Bench::new(None);
    bench.miss(key(1), 101.0, b"").insert(bench.object(key(1), b"", Flags::HIT_FOR_MISS, 60.0, b""));
    let Found::HitForMiss(_, first) = bench.look(key(1), 101.0, b"", None) else { panic!("no marker") };
    assert!(matches!(bench.look(key(1), 101.0, b"", None), Found::HitForMiss(..)));
    // In its grace it is still one, whether anybody fetches or not, and nothing to revalidate.
    assert!(matches!(bench.look(key(1), 165.0, b"", None), Found::HitForMiss(..)));
    drop(first);
    assert!(matches!(bench.look(key(1), 165.0, b"", None), Found::HitForMiss(..)));
    let Found::Miss(first, None, _) = bench.look(key(1), 400.0, b"", None) else { panic!("it is over") };
    first.insert(bench.object(key(1), b"", Flags::HIT_FOR_PASS, 60.0, b""));
    assert!(matches!(bench.look(key(1), 101.0, b"", None), Found::HitForPass(_)));
}

#[test]
fn purge_and_eviction_leave_nothing_behind() {
    let bench = Bench::new(Some(64 << 10));
    for number in 0..200u8 {
        bench.miss(key(number), 101.0, b"").insert(bench.object(key(number), b"", 0, 60.0, &[0; 1000]));
    }
    let keys = bench.index.key_count();
    assert!((30..=65).contains(&keys), "{keys} keys");
    assert_eq!(keys, bench.store.statistics().objects);
    assert!(matches!(bench.look(key(199), 101.0, b"", None), Found::Hit(_)));
    assert_eq!(bench.index.purge(&key(199)).count(), 1);
    assert!(matches!(bench.look(key(199), 101.0, b"", None), Found::Miss(..)));
    assert_eq!(bench.index.key_count(), keys - 1);
}

#[test]
fn rfc9111_4_4_what_was_fetched_before_a_change_is_not_found_after_it() {
    let bench = Bench::new(None);
    bench.miss(key(1), 101.0, b"a").insert(bench.object(key(1), b"a", 0, 60.0, b"A1"));
    let before = bench.miss(key(1), 101.0, b"b");
    let count = Arc::new(Count::default());
    let waker = Waker::from(Arc::clone(&count));
    assert!(matches!(bench.look(key(1), 101.0, b"b", Some((7, &waker))), Found::Wait(_)));
    assert_eq!(bench.index.invalidate(&key(1)).count(), 1);
    assert_eq!(count.0.load(Ordering::Relaxed), 1, "who waits looks again");
    let after = bench.miss(key(1), 101.0, b"b");
    after.insert(bench.object(key(1), b"b", 0, 60.0, b"B2"));
    let object = bench.object(key(1), b"b", 0, 60.0, b"B1");
    before.insert(Arc::clone(&object));
    assert!(object.is_gone());
    assert!(matches!(bench.look(key(1), 101.0, b"b", None), Found::Hit(_)), "the newer one stays");
    assert!(matches!(bench.look(key(1), 101.0, b"a", None), Found::Miss(..)));
}

#[test]
fn rfc9111_4_4_a_change_leaves_markers() {
    let bench = Bench::new(None);
    bench.miss(key(1), 101.0, b"").insert(bench.object(key(1), b"", Flags::HIT_FOR_MISS, 60.0, b""));
    assert_eq!(bench.index.invalidate(&key(1)).count(), 0);
    assert!(matches!(bench.look(key(1), 101.0, b"", None), Found::HitForMiss(..)));
}

#[test]
fn what_is_stale_from_the_start_comes_in_for_validation_only() {
    let bench = Bench::new(None);
    let stale = || bench.object(key(1), b"", 0, 0.0, b"");
    bench.miss(key(1), 200.0, b"").insert(stale());
    assert!(matches!(bench.look(key(1), 200.0, b"", None), Found::Miss(_, None, _)));
    bench.miss(key(1), 200.0, b"").admit(stale(), Admit::Alive);
    assert!(matches!(bench.look(key(1), 200.0, b"", None), Found::Miss(_, Some(_), _)));
}

#[test]
fn rfc9111_5_2_1_a_request_may_ask_for_more_than_freshness() {
    let bench = Bench::new(None);
    bench.miss(key(1), 101.0, b"").insert(bench.object(key(1), b"", 0, 60.0, b"body"));
    assert!(matches!(bench.ask(101.0, Acceptance::Yes, None), Found::Hit(_)));
    let Found::Miss(busy, Some(stored), Reason::RequestNoCache) =
        bench.ask(101.0, Acceptance::No(Reason::RequestNoCache), None)
    else {
        panic!("it is to be validated")
    };
    // Others hit it meanwhile.
    assert!(matches!(bench.look(key(1), 101.0, b"", None), Found::Hit(_)));
    assert!(stored.ttl() > 0.0);
    drop(busy);
    // Past its grace it is there for those who take it stale, as long as it is kept.
    stored.set_times(100.0, 60.0, 10.0, 50.0);
    assert!(matches!(bench.ask(200.0, Acceptance::Stale, None), Found::Stale(_, None, _)));
    assert!(matches!(bench.ask(230.0, Acceptance::Stale, None), Found::Miss(..)));
    assert!(matches!(bench.ask(165.0, Acceptance::Yes, None), Found::Stale(_, Some(_), _)));
    assert!(matches!(
        bench.ask(165.0, Acceptance::No(Reason::RequestNoCache), None),
        Found::Miss(_, Some(_), Reason::Expired)
    ));
}

#[test]
fn rfc9111_4_nobody_waits_for_what_only_its_own_request_may_use() {
    let bench = Bench::new(None);
    bench.miss(key(1), 101.0, b"").insert(bench.object(key(1), b"", 0, 1.0, b"body"));
    let Found::Miss(_busy, ..) = bench.ask(150.0, Acceptance::Yes, None) else { panic!("it is stale") };
    let Found::Wait(waited) = bench.ask(150.0, Acceptance::Yes, None) else { panic!("one validates it") };
    assert_eq!(waited.missed, Reason::Expired);
    // A waiter that finds something newer, and stale at once, does not queue up again.
    let before = Waited { best: Some(99.0), ..waited };
    assert!(matches!(bench.ask(150.0, Acceptance::Yes, Some(before)), Found::Miss(..)));
}

/// A request that needs confirmation, and takes no object that was not brought for it.
fn confirm(bench: &Bench, one: &Option<Arc<PendingConfirmation>>, waiter: Option<(u64, &Waker)>) -> Found {
    let accepts =
        |_: &Object, brought| if brought { Acceptance::Yes } else { Acceptance::No(Reason::RequestNoCache) };
    let (fits, predict) = (|_: &Object| true, |_: &Object| Vec::new());
    let query = Query {
        rfc: true,
        accepts: Some(&accepts),
        pending_confirmation: one.as_ref(),
        ..plain(key(1), 101.0, &fits, &predict)
    };
    bench.index.lookup(&query, waiter)
}

#[test]
fn rfc9111_5_2_1_4_requests_for_confirmation_share_fetches_that_confirm_as_much() {
    let bench = Bench::new(None);
    let waker = Waker::from(Arc::new(Count::default()));
    let (validation, reload) =
        (PendingConfirmation::new(Confirmation::Validation), PendingConfirmation::new(Confirmation::Reload));
    let plain = bench.miss(key(1), 101.0, b"");
    let Found::Miss(asked, ..) = confirm(&bench, &validation, None) else {
        panic!("a plain fetch will not do")
    };
    let Found::Miss(again, ..) = confirm(&bench, &reload, None) else { panic!("nor will a validation") };
    assert!(matches!(confirm(&bench, &validation, Some((7, &waker))), Found::Wait(_)));
    assert!(matches!(confirm(&bench, &reload, Some((8, &waker))), Found::Wait(_)));
    assert!(matches!(bench.look(key(1), 101.0, b"", Some((9, &waker))), Found::Wait(_)));
    // A validation's object is for who waits for that, and for who takes anything.
    asked.insert(bench.object(key(1), b"", 0, 60.0, b"validated"));
    assert!(matches!(confirm(&bench, &validation, None), Found::Hit(_)));
    assert!(matches!(bench.look(key(1), 101.0, b"", None), Found::Hit(_)));
    assert!(matches!(confirm(&bench, &reload, Some((8, &waker))), Found::Wait(_)));
    again.insert(bench.object(key(1), b"", 0, 60.0, b"reloaded"));
    let Found::Hit(reloaded) = confirm(&bench, &reload, None) else { panic!("it was brought for it") };
    // What was asked for with less comes too late.
    let late = bench.object(key(1), b"", 0, 60.0, b"from some cache");
    plain.insert(Arc::clone(&late));
    assert!(late.is_gone() && !reloaded.is_gone());
}

#[test]
fn a_request_for_confirmation_takes_nothing_from_another_fetch() {
    let bench = Bench::new(None);
    let waker = Waker::from(Arc::new(Count::default()));
    let validation = PendingConfirmation::new(Confirmation::Validation);
    let plain = bench.miss(key(1), 101.0, b"");
    let Found::Miss(asked, ..) = confirm(&bench, &validation, None) else {
        panic!("a plain fetch will not do")
    };
    assert!(matches!(confirm(&bench, &validation, Some((7, &waker))), Found::Wait(_)));
    plain.insert(bench.object(key(1), b"", 0, 60.0, b"plain"));
    assert!(matches!(confirm(&bench, &validation, Some((7, &waker))), Found::Wait(_)), "its own still runs");
    drop(asked);
    assert!(matches!(confirm(&bench, &validation, None), Found::Miss(..)), "and has failed");
}
