//! Histories that went wrong once, made as small as they go.

use crate::plan::{
    Ask, Condition, Framing, History, Manner, Method, Mood, Policy, Setup, Site, Size, Span, Step, Tag,
    Which, Wishes,
};
use crate::world;

fn check(world: Setup, site: Site, steps: Vec<Step>) {
    if let Err(why) = world::run(&History { world, sites: vec![site], steps }) {
        panic!("{why}");
    }
}

const BY_RFC: Setup = Setup { rfc: true, purges: false, store_kib: 4096, segment: 4096 };

fn site(size: Size, tag: Tag, policy: Policy) -> Site {
    Site {
        size,
        framing: Framing::Length,
        tag,
        modified: false,
        ranges: true,
        vary: false,
        expires: false,
        policy,
    }
}

fn fresh() -> Policy {
    Policy { max_age: Some(60), ..Policy::default() }
}

fn get() -> Ask {
    Ask {
        site: 0,
        method: Method::Get,
        variant: 0,
        authorized: false,
        spans: Vec::new(),
        if_range: None,
        condition: Condition::None,
        wishes: Wishes::default(),
        manner: Manner::Alone,
    }
}

fn part(span: Span) -> Step {
    Step::Ask(Ask { spans: vec![span], ..get() })
}

/// What was stored in part was completed from the origin.
#[test]
fn rfc9111_5_2_1_7_only_if_cached_of_an_object_in_pieces() {
    let wishes = Wishes { only_if_cached: true, ..Wishes::default() };
    let steps = vec![part(Span::FromTo(150, 150)), Step::Ask(Ask { wishes, ..get() })];
    check(BY_RFC, site(Size::Large, Tag::Strong, fresh()), steps);
}

/// A part that cannot be joined with others, and is not to be stored, went out as the cache had asked for it.
#[test]
fn rfc9110_15_3_7_a_part_that_is_not_stored_is_the_one_asked_for() {
    let policy = Policy { max_age: Some(0), no_cache: true, ..Policy::default() };
    check(BY_RFC, site(Size::Large, Tag::None, policy), vec![part(Span::Last(13))]);
}

/// As above, of one that broke off before its head went out.
#[test]
fn rfc9110_15_3_7_a_part_that_breaks_off_is_the_one_asked_for() {
    let steps = vec![Step::Mood(0, Mood::Cut), part(Span::FromTo(150, 150))];
    check(BY_RFC, site(Size::Large, Tag::Weak, fresh()), steps);
}

/// A 304 confirmed a body that had outgrown its store since it was asked about: the answer was cut off at its first byte.
#[test]
fn rfc9111_4_3_4_a_304_for_a_body_that_is_kept_in_a_window() {
    let world = Setup { rfc: false, purges: true, store_kib: 64, segment: 16_384 };
    let policy = Policy { max_age: Some(0), age: 30, ..Policy::default() };
    let site = Site {
        framing: Framing::Chunked,
        modified: true,
        ranges: false,
        ..site(Size::Medium, Tag::Weak, policy)
    };
    let steps = vec![
        Step::Mood(0, Mood::SlowBody),
        Step::Change(0),
        Step::Ask(Ask { manner: Manner::Along, ..get() }),
        Step::Ask(get()),
    ];
    check(world, site, steps);
}

/// As above, of one that outgrew its store while the 304 was taken in.
#[test]
fn rfc9111_4_3_4_a_304_for_a_body_that_comes_to_be_kept_in_a_window() {
    let world = Setup { store_kib: 64, ..BY_RFC };
    let policy = Policy { max_age: Some(0), ..Policy::default() };
    let site = Site { framing: Framing::Close, modified: true, ..site(Size::Medium, Tag::Strong, policy) };
    let steps = vec![
        Step::Mood(0, Mood::SlowBody),
        Step::Ask(Ask { manner: Manner::Along, ..get() }),
        Step::Ask(get()),
    ];
    check(world, site, steps);
}

/// A part by itself that a 304 confirmed went out whole.
#[test]
fn rfc9110_15_3_7_a_part_that_is_confirmed_is_the_one_asked_for() {
    let wishes = Wishes { no_cache: true, ..Wishes::default() };
    let ask = Ask { spans: vec![Span::FromTo(150, 150)], wishes, ..get() };
    let steps = vec![part(Span::FromTo(150, 150)), Step::Ask(ask.clone()), part(Span::FromTo(150, 150))];
    check(BY_RFC, site(Size::Large, Tag::Weak, fresh()), steps);
    // The 304 may say that it is to be stored no more.
    let now = Policy { private: true, ..fresh() };
    let steps = vec![part(Span::FromTo(150, 150)), Step::Policy(0, now), Step::Ask(ask)];
    check(BY_RFC, site(Size::Large, Tag::Weak, fresh()), steps);
}

/// Pieces that are purged under a reader are fetched anew, also for who wants nothing stored.
#[test]
fn rfc9111_5_2_1_5_no_store_of_an_object_in_pieces_that_is_purged() {
    let wishes = Wishes { no_store: true, ..Wishes::default() };
    let modified = Site { modified: true, ..site(Size::Same, Tag::None, fresh()) };
    let steps = vec![
        Step::Ask(Ask { if_range: Some(0), spans: vec![Span::FromTo(103, 103)], ..get() }),
        Step::Ask(Ask { wishes, manner: Manner::Along, ..get() }),
        Step::Purge(0),
    ];
    check(Setup { purges: true, ..BY_RFC }, modified, steps);
}

/// A version changed once, and an answer of the old one that was still on its way made the request fail: 503.
#[test]
fn rfc9110_15_6_4_one_change_of_an_object_in_pieces_fails_nobody() {
    let no_cache = Wishes { no_cache: true, ..Wishes::default() };
    let along = |span| Step::Ask(Ask { spans: vec![span], manner: Manner::Along, ..get() });
    let steps = vec![
        part(Span::FromTo(0, 0)),
        part(Span::FromTo(100, 100)),
        Step::Mood(0, Mood::SlowHead),
        Step::Ask(Ask { wishes: no_cache, manner: Manner::Along, ..get() }),
        Step::Clock(3),
        Step::Mood(0, Mood::Fine),
        Step::Change(0),
        along(Span::FromTo(400, 400)),
        along(Span::FromTo(300, 300)),
        Step::Clock(3),
        Step::Open,
        Step::Settle,
    ];
    check(BY_RFC, site(Size::Large, Tag::Strong, fresh()), steps);
}

/// What was made of a failure for those who waited served, stale, who takes what is stale.
#[test]
fn rfc9111_5_2_1_2_no_max_stale_for_an_error_of_our_own() {
    let wishes = Wishes { max_stale: Some(1), ..Wishes::default() };
    let steps = vec![
        Step::Mood(0, Mood::Refuse),
        Step::Ask(Ask { manner: Manner::Along, ..get() }),
        Step::Ask(get()),
        Step::Mood(0, Mood::Fine),
        Step::Ask(get()),
        Step::Change(0),
        Step::Ask(Ask { wishes, ..get() }),
    ];
    check(BY_RFC, site(Size::Large, Tag::Strong, fresh()), steps);
}

/// What was made of a failure for those who waited stood in for the origin's next failure, and then for its answer.
#[test]
fn rfc5861_4_an_error_of_our_own_stands_in_for_nothing() {
    let no_cache = Wishes { no_cache: true, ..Wishes::default() };
    let steps = vec![
        Step::Mood(0, Mood::Refuse),
        Step::Ask(Ask { manner: Manner::Along, ..get() }),
        Step::Ask(get()),
        Step::Ask(Ask { wishes: no_cache, ..get() }),
        Step::Mood(0, Mood::Fine),
        Step::Settle,
        Step::Change(0),
        Step::Ask(get()),
    ];
    check(BY_RFC, site(Size::Small, Tag::Strong, fresh()), steps);
}

/// A request for the origin's confirmation got what another fetch brought, though it was not as fresh as it asked for.
#[test]
fn rfc9111_5_2_1_3_min_fresh_of_what_another_fetch_brought() {
    let wishes = Wishes { no_cache: true, min_fresh: Some(60), ..Wishes::default() };
    let steps = vec![
        Step::Ask(Ask { method: Method::Head, ..get() }),
        Step::Ask(Ask { condition: Condition::Match(Which::Back(0)), manner: Manner::Along, ..get() }),
        Step::Ask(Ask { wishes, ..get() }),
    ];
    let policy = Policy { age: 30, ..fresh() };
    let site = Site { modified: true, ranges: false, ..site(Size::Medium, Tag::None, policy) };
    check(Setup { store_kib: 600, segment: 16_384, ..BY_RFC }, site, steps);
}
