//! Groups with a resolver that a test plays.

use super::*;
use crate::Counters;
use crate::settings::Settings;
use copal_base::Live;
use copal_base::clock::SystemClock;
use std::io::ErrorKind;

fn maker() -> Arc<Maker> {
    Maker::new(
        Arc::new(SystemClock),
        Arc::new(Live::new(Settings::default())),
        Box::new(|_, _| Ok(Counters::default())),
        Arc::new(|| true),
        Arc::new(|_| {}),
        Box::new(|_| {}),
    )
}

fn group(options: Options) -> Arc<Group> {
    let template = BackendDefinition {
        host: "localhost".into(),
        port: Some("81".into()),
        ..BackendDefinition::default()
    };
    Group::new("g", "boot", template, options, &maker()).unwrap()
}

const PLAIN: Options = Options { ttl: 10.0, family: Family::Any, keep_if_empty: false };

fn addresses(texts: &[&str]) -> io::Result<Vec<SocketAddr>> {
    Ok(texts.iter().map(|text| text.parse().unwrap()).collect())
}

fn names(group: &Group) -> Vec<String> {
    group.members().iter().map(|member| member.definition().name.clone()).collect()
}

fn chosen(group: &Group, now: Time) -> Option<String> {
    let ask = Ask { now, digest: None, is_fetch: false, url: b"", random: 0, depth: 0, tried: &[] };
    match value::Backend::resolve(group, &ask) {
        Resolved::Other(member) => Some(member.name().to_owned()),
        Resolved::Itself | Resolved::None => None,
    }
}

fn nothing() -> io::Result<Vec<SocketAddr>> {
    Err(io::Error::other("failed to lookup address information: Name or service not known"))
}

#[test]
fn members_follow_the_answers_and_stay_themselves() {
    let group = group(PLAIN);
    assert_eq!(chosen(&group, 0.0), None);
    group.take(addresses(&["10.0.0.1:81", "10.0.0.2:81"]));
    let first = group.members();
    assert_eq!(names(&group), ["g(10.0.0.1:81)", "g(10.0.0.2:81)"]);
    group.take(addresses(&["10.0.0.2:81", "10.0.0.3:81"]));
    let second = group.members();
    assert_eq!(names(&group), ["g(10.0.0.2:81)", "g(10.0.0.3:81)"]);
    assert!(Arc::ptr_eq(&first[1], &second[0]));
    assert_eq!(second[0].display(), "boot.g(10.0.0.2:81)");
}

#[test]
fn an_empty_answer_empties_and_a_silent_resolver_does_not() {
    for (keep_if_empty, left) in [(false, 0), (true, 1)] {
        let group = group(Options { keep_if_empty, ..PLAIN });
        group.take(addresses(&["10.0.0.1:81"]));
        assert_eq!(group.failure(), None);
        group.take(Err(ErrorKind::TimedOut.into()));
        assert!(group.failure().is_some() && group.members().len() == 1);
        group.take(nothing());
        assert_eq!(group.members().len(), left);
        assert!(group.failure().unwrap().contains("not known"));
    }
}

#[test]
fn families_and_the_bound() {
    let both = || addresses(&["10.0.0.1:81", "[::1]:81"]);
    for (family, expected) in [(Family::Ipv4, "g(10.0.0.1:81)"), (Family::Ipv6, "g([::1]:81)")] {
        let group = group(Options { family, ..PLAIN });
        group.take(both());
        assert_eq!(names(&group), [expected]);
    }
    let group = group(PLAIN);
    group.take(Ok((0..200).map(|number| SocketAddr::from(([10, 0, 0, number], 81))).collect()));
    assert_eq!(group.members().len(), MEMBERS_MAX);
}

#[test]
fn turns_go_round_and_pass_over_the_sick_and_the_refusing() {
    let group = group(PLAIN);
    group.take(addresses(&["10.0.0.1:81", "10.0.0.2:81", "10.0.0.3:81"]));
    let turns: Vec<_> = (0..3).filter_map(|_| chosen(&group, 0.0)).collect();
    assert_eq!(turns, ["g(10.0.0.1:81)", "g(10.0.0.2:81)", "g(10.0.0.3:81)"]);
    let members = group.members();
    members[0].set_admin(crate::Admin::Sick, 1.0);
    for (_, place) in members[1].places() {
        place.hold(10.0, &ErrorKind::ConnectionRefused.into());
    }
    for _ in 0..4 {
        assert_eq!(chosen(&group, 5.0).as_deref(), Some("g(10.0.0.3:81)"));
    }
    members[2].set_admin(crate::Admin::Sick, 1.0);
    assert_eq!(chosen(&group, 5.0).as_deref(), Some("g(10.0.0.2:81)"));
    let ask = Ask { now: 5.0, digest: None, is_fetch: false, url: b"", random: 0, depth: 0, tried: &[] };
    assert!(value::Backend::health(&*group, &ask).healthy);
    let mut text = String::new();
    value::Backend::list(&*group, &ask, ListForm { members: false, json: false }, &mut text);
    assert_eq!(text, "1/3\thealthy");
}

#[test]
fn passing_groups_are_shared_and_bounded() {
    let maker = maker();
    let make = || Some(group(PLAIN));
    let one = maker.passing("a", make).unwrap();
    assert!(Arc::ptr_eq(&one, &maker.passing("a", || None).unwrap()));
    assert!(maker.passing("b", || None).is_none());
    for number in 1..1000 {
        assert!(maker.passing(&number.to_string(), || Some(Arc::clone(&one))).is_some());
    }
    assert!(maker.passing("one more", make).is_none());
}

#[test]
fn localhost_is_found_without_a_name_server() {
    let group = group(PLAIN);
    group.look_up_now();
    assert!(names(&group).iter().any(|name| name == "g(127.0.0.1:81)"), "{:?}", names(&group));
}
