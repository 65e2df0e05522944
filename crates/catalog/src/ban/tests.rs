//! Bans by themselves: what they hit, who stands where, what the lurker does with them.

use super::*;
use copal_store::{Attributes, Creation, Engine, Evictions, Flags, Memory};
use copal_wire::{Fields, ResponseHead};
use std::sync::Arc;

struct Nobody;

impl Evictions for Nobody {
    fn evicted(&self, _: &Arc<Object>) {}
}

const NOW: Time = 1e9 + 60.0;

/// Status 404, one minute old, ttl 120.5 s, grace 10 s, keep 0, tested against `ban`.
fn object(ban: u64) -> Arc<Object> {
    let mut response = ResponseHead::default();
    response.fields.push(b"X-Tag", b"news sport");
    let mut head = Vec::new();
    crate::head::join(&response, &mut head);
    let memory = Memory::new("s0", None, Arc::new(Nobody));
    let attributes = Attributes {
        origin_time: 1e9,
        ttl: 120.5,
        grace: 10.0,
        keep: 0.0,
        status: 404,
        flags: Flags(0),
        ban,
        vxid: 1,
    };
    let creation = Creation { key: [0; 32], attributes, variant: b"", head: &head, length: Some(0) };
    let fill = memory.begin(&creation).unwrap();
    Arc::clone(fill.object())
}

fn fields() -> Fields {
    let mut fields = Fields::new();
    fields.push(b"Host", b"example.org");
    fields
}

/// What the bans say, with nothing noted.
fn verdict(bans: &Bans, object: &Object, with_request: bool) -> Verdict {
    let fields = fields();
    let request: Option<Request<'_>> = with_request.then_some((b"/a/b?c".as_slice(), &fields));
    bans.list.read().check(object.ban(), &Subject::new(object, request), &mut 0)
}

/// As a lookup does it.
fn hits(bans: &Bans, object: &Object) -> bool {
    bans.hits(object, (b"/a/b?c", &fields()))
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
    check("obj.http.none !~ .", false);
    check("obj.ttl == 60.5s", true);
    check("obj.ttl != 60.5s", false);
    check("obj.ttl > 1m", true);
    check("obj.ttl > 60.5s", false);
    check("obj.ttl >= 60.5s", true);
    check("obj.ttl < 61s", true);
    check("obj.ttl <= 60s", false);
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
    check("req.http.cookie !~ .", Live, NeedsRequest);
    check("req.http.cookie != a", Banned, NeedsRequest);
    check("req.url ~ . && obj.status == 404", Banned, NeedsRequest);
    check("req.url ~ . && obj.status == 200", Live, Live);
    check("obj.status == 200 && req.url ~ .", Live, Live);
}

#[test]
fn times_are_those_when_the_ban_was_made() {
    let bans = Bans::new();
    bans.add(b"obj.age > 2m", NOW + 90.0).unwrap();
    assert!(hits(&bans, &object(1)), "150 s old then");
    let bans = Bans::new();
    bans.add(b"obj.ttl > 1m", NOW + 90.0).unwrap();
    assert!(!hits(&bans, &object(1)), "it had expired then");
}

#[test]
fn only_newer_bans_are_tested() {
    let bans = Bans::new();
    let first = bans.add(b"obj.status == 404", NOW).unwrap();
    let second = bans.add(b"req.url == /other", NOW).unwrap();
    assert_eq!((first, second, bans.newest()), (2, 3, 3));
    assert_eq!(verdict(&bans, &object(1), false), Verdict::Banned);
    assert_eq!(verdict(&bans, &object(first), false), Verdict::NeedsRequest);
    let tested = object(first);
    assert!(!hits(&bans, &tested));
    assert_eq!(tested.ban(), second);
    bans.add(b"obj.status == 404", NOW).unwrap();
    assert!(hits(&bans, &tested));
    let counts = bans.counts();
    assert_eq!((counts.tested, counts.tests_tested, counts.obj_killed), (2, 2, 1));
}

/// Number, objects, whether completed, text: the newest first.
fn listed(bans: &Bans) -> Vec<(u64, u64, bool, String)> {
    let row = |ban: Listed| (ban.sequence, ban.objects, ban.completed, String::from_utf8(ban.text).unwrap());
    bans.list().into_iter().map(row).collect()
}

#[test]
fn the_list_is_newest_first_and_equal_bans_are_completed() {
    let bans = Bans::started_at(5.0);
    for (time, text) in [(10.0, "req.url == a"), (11.0, "obj.age > 60s"), (12.0, "req.url  ==  a")] {
        bans.add(text.as_bytes(), time).unwrap();
    }
    bans.add(b"obj.grace > 1m && req.url ~ b", 13.0).unwrap();
    bans.add(b"obj.age > 1m", 14.0).unwrap();
    let expected = [
        (6, false, "obj.age > 1m"),
        (5, false, "obj.grace > 1m && req.url ~ b"),
        (4, false, "req.url == a"),
        (3, false, "obj.age > 1m"),
        (2, true, ""),
        (1, true, ""),
    ];
    let expected = expected.map(|(number, completed, text)| (number, 0, completed, text.to_owned()));
    assert_eq!(listed(&bans), expected);
    let counts = bans.counts();
    assert_eq!((counts.bans, counts.completed, counts.added, counts.dups), (6, 2, 6, 1));
    assert_eq!((counts.req, counts.obj), (3, 3));
    assert_eq!(counts.bytes, 6 * 16 + 12 + 29 + 12 + 12);
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
    bans.drop_tail();
    assert_eq!(bans.count(), 1);
    bans.add(b"req.url == a", 4.0).unwrap();
    assert_eq!(bans.counts().dups, 2);
}

#[test]
fn a_ban_stays_while_an_object_stands_at_it_or_below() {
    let bans = Bans::new();
    let old = object(1);
    assert!(bans.admit(&old));
    for number in 0..3 {
        bans.add(format!("req.url == /{number}").as_bytes(), 1.0).unwrap();
    }
    let new = object(4);
    assert!(bans.admit(&new));
    bans.drop_tail();
    let places = |bans: &Bans| listed(bans).iter().map(|ban| (ban.0, ban.1)).collect::<Vec<_>>();
    assert_eq!(places(&bans), [(4, 1), (3, 0), (2, 0), (1, 1)]);
    assert!(!hits(&bans, &old));
    assert_eq!(places(&bans), [(4, 2), (3, 0), (2, 0), (1, 0)]);
    bans.drop_tail();
    assert_eq!(places(&bans), [(4, 2)]);
    bans.leave(&new);
    bans.leave(&old);
    bans.add(b"req.url == /x", 2.0).unwrap();
    bans.drop_tail();
    assert_eq!(places(&bans), [(5, 0)]);
    let counts = bans.counts();
    assert_eq!((counts.bans, counts.deleted, counts.req), (1, 4, 1));
}

#[test]
fn a_ban_that_comes_during_a_fetch_is_not_missed() {
    let bans = Bans::new();
    let fetched = || object(1);
    bans.add(b"obj.status == 200", NOW).unwrap();
    let spared = fetched();
    assert!(bans.admit(&spared));
    assert_eq!(spared.ban(), 2);
    bans.add(b"req.url == /a/b?c", NOW).unwrap();
    let open = fetched();
    assert!(bans.admit(&open), "whoever asks decides");
    assert_eq!(open.ban(), 1);
    assert!(hits(&bans, &open));
    bans.leave(&open);
    bans.add(b"obj.status == 404", NOW).unwrap();
    assert!(!bans.admit(&fetched()));
    bans.leave(&spared);
    bans.drop_tail();
    assert!(!bans.admit(&fetched()), "what it missed is forgotten");
    assert!(bans.admit(&object(4)));
}

/// The fate of each object in a pass over these bans.
fn fate(bans: &PassBans, objects: &[Arc<Object>]) -> (Vec<Fate>, Tested) {
    let mut tested = Tested::default();
    let fates = objects
        .iter()
        .map(|object| bans.fate(object.ban(), &Subject::new(object, None), &mut tested))
        .collect();
    (fates, tested)
}

#[test]
fn the_lurker_moves_objects_up_to_what_it_cannot_test() {
    use Fate::{Banned, Lives};
    let bans = Bans::new();
    let mut objects = vec![object(1)];
    let list = ["obj.status == 1", "obj.status == 2", "req.url == x", "obj.status == 3", "obj.status == 4"];
    for text in list {
        let number = bans.add(text.as_bytes(), 10.0).unwrap();
        objects.push(object(number));
    }
    bans.add(b"obj.status == 404", 100.0).unwrap();
    let pass = bans.bans_for_pass(50.0, 0).unwrap();
    let (fates, tested) = fate(&pass, &objects);
    assert_eq!(fates, [Lives(3), Lives(3), Lives(3), Lives(6), Lives(6), Lives(6)]);
    assert_eq!((tested.bans, tested.conditions), (4 + 3 + 2 + 2 + 1, 12));
    let pass = bans.bans_for_pass(200.0, 0).unwrap();
    assert_eq!(fate(&pass, &objects[3..]).0, [Banned; 3]);
    assert!(bans.admit(&object(7)));
    bans.list.write().complete_tested(pass.tests.iter().map(|test| test.0));
    assert!(bans.bans_for_pass(200.0, 0).is_none(), "all that can be tested is completed");
    let completed: Vec<_> = listed(&bans).iter().filter(|ban| ban.2).map(|ban| ban.0).collect();
    assert_eq!(completed, [7, 6, 5, 3, 2, 1]);
    bans.end_pass(&pass);
    assert_eq!(listed(&bans).iter().map(|ban| (ban.0, ban.1)).collect::<Vec<_>>(), [(7, 1)]);
}

#[test]
fn a_completed_ban_is_a_place_below_an_untestable_one() {
    let bans = Bans::new();
    let objects = [object(2), object(3), object(4), object(5)];
    for text in ["obj.status == 1", "obj.status == 2", "req.url == x", "obj.status == 2"] {
        bans.add(text.as_bytes(), 10.0).unwrap();
    }
    let pass = bans.bans_for_pass(50.0, 0).unwrap();
    assert_eq!(fate(&pass, &objects).0, [3, 3, 5, 5].map(Fate::Lives));
}

#[test]
fn beyond_the_cutoff_objects_go_untested() {
    let bans = Bans::new();
    let objects = [object(1), object(3), object(4)];
    for number in 0..4 {
        bans.add(format!("obj.status == {number}").as_bytes(), 10.0).unwrap();
    }
    let pass = bans.bans_for_pass(50.0, 3).unwrap();
    let (fates, tested) = fate(&pass, &objects);
    assert_eq!((fates, tested.bans), (vec![Fate::CutOff, Fate::CutOff, Fate::Lives(5)], 1));
    assert!(Bans::new().bans_for_pass(50.0, 1).is_none(), "there is nobody to expunge");
}

#[test]
fn there_are_bounds() {
    let bans = Bans::new();
    bans.set_max(3);
    bans.add(b"req.url == a", 1.0).unwrap();
    bans.add_words(&["req.url", "==", "a b"], 1.0).unwrap();
    let error = bans.add(b"req.url == c", 1.0).unwrap_err();
    assert_eq!(error, "Too many bans (there are 3, the limit is 3)");
    bans.drop_tail();
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
    std::thread::scope(|scope| {
        scope.spawn(|| (0..2_000).for_each(|_| drop(bans.add(b"obj.status == 404", NOW))));
        scope.spawn(|| {
            while bans.newest() == 1 {
                std::hint::spin_loop();
            }
            let object = object(1);
            for _ in 0..2_000 {
                assert!(hits(&bans, &object));
            }
        });
    });
    bans.drop_tail();
    assert_eq!((bans.count(), bans.counts().completed), (1, 0));
}

/// What a log was told of.
#[derive(Default)]
struct Kept(parking_lot::Mutex<Vec<(u64, f64, Vec<u8>)>>);

impl super::BanLog for Kept {
    fn added(&self, number: u64, time: f64, text: &[u8]) {
        self.0.lock().push((number, time, text.to_vec()));
    }
}

#[test]
fn bans_hold_across_a_start() {
    let (bans, kept) = (Bans::new(), Arc::new(Kept::default()));
    bans.set_log(Arc::clone(&kept) as _);
    bans.add_words(&["obj.http.x", "==", "two words"], 5.0).unwrap();
    bans.add(b"obj.status == 404", 6.0).unwrap();
    let after = Bans::new();
    after.restore(&kept.0.lock(), 1, 9.0);
    assert_eq!(after.newest(), 3);
    let texts: Vec<_> = after.list().into_iter().map(|ban| ban.text).collect();
    assert_eq!(texts, bans.list().into_iter().take(2).map(|ban| ban.text).collect::<Vec<_>>());
    // Tested against what there was before the first that is kept, or later.
    assert!(after.enter_entry(1) && after.enter_entry(3));
}

#[test]
fn what_no_ban_can_be_tested_for_does_not_come_back() {
    let bans = Bans::new();
    bans.restore(&[(7, 1.0, b"obj.status\0==\x00404".to_vec())], 9, 2.0);
    assert_eq!(bans.newest(), 9, "an object says that it was tested up to there");
    assert_eq!([5, 6, 7, 9].map(|tested| bans.enter_entry(tested)), [false, true, true, true]);
}
