//! Responses, and what may be done with them.

use super::*;
use proptest::prelude::*;

/// Sun, 06 Nov 1994 08:49:37 GMT
const NOW: Time = 784_111_777.0;
const NOW_DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";

fn fields(lines: &[(&str, &str)]) -> Fields {
    let mut fields = Fields::new();
    for (name, value) in lines {
        assert!(fields.push(name.as_bytes(), value.as_bytes()));
    }
    fields
}

/// The answer to a plain GET, at once.
fn of(status: u16, lines: &[(&str, &str)]) -> Verdict {
    with(&GET, status, lines)
}

static NOTHING: Fields = Fields::new();
const GET: Asked<'static> =
    Asked { method: b"GET", fields: &NOTHING, authorized: false, no_store: false, requested: NOW };

fn with(asked: &Asked<'_>, status: u16, lines: &[(&str, &str)]) -> Verdict {
    let answer = Answer { status, fields: &fields(lines), received: NOW };
    judge(asked, &answer, &Defaults::default())
}

fn cc(value: &str) -> Verdict {
    of(200, &[("Cache-Control", value)])
}

/// Fresh for `ttl` seconds.
fn check(lines: &[(&str, &str)], ttl: Seconds) {
    let verdict = of(200, lines);
    let expected = if ttl > 0.0 { Storable::Yes } else { Storable::No(Why::Expired) };
    assert_eq!((verdict.storable, verdict.lifetime.ttl), (expected, ttl), "{lines:?}");
}

fn refused(verdict: Verdict, why: Why) {
    assert_eq!(verdict.storable, Storable::No(why));
    let Lifetime { ttl, grace, keep, .. } = verdict.lifetime;
    assert_eq!((ttl, grace, keep, verdict.stale_if_error), (0.0, 0.0, 0.0, 0.0));
}

#[test]
fn rfc9111_3_methods_and_statuses() {
    let explicit = [("Cache-Control", "max-age=60")];
    for method in [&b"HEAD"[..], b"POST", b"PUT", b"get"] {
        refused(with(&Asked { method, ..GET }, 200, &explicit), Why::Method);
    }
    for status in [100, 103, 199, 304] {
        refused(of(status, &explicit), Why::Status);
    }
    for status in [200, 201, 206, 302, 399, 400, 404, 418, 500, 503, 599, 999] {
        assert_eq!(of(status, &explicit).lifetime.ttl, 60.0, "{status}");
    }
    for status in [201, 202, 205, 302, 303, 307, 400, 403, 418, 500, 502, 503, 504, 599] {
        refused(of(status, &[]), Why::NotCacheable);
        refused(of(status, &[("Last-Modified", "Sun, 06 Nov 1993 08:49:37 GMT")]), Why::NotCacheable);
    }
}

#[test]
fn rfc9111_5_2_2_3_must_understand() {
    refused(of(599, &[("Cache-Control", "max-age=60, must-understand")]), Why::NotUnderstood);
    refused(of(599, &[("Cache-Control", "max-age=60, no-store, must-understand")]), Why::NotUnderstood);
    assert_eq!(cc("max-age=60, must-understand, no-store").lifetime.ttl, 60.0);
    refused(cc("max-age=60, must-understand=1, no-store"), Why::NoStore);
}

#[test]
fn rfc9111_5_2_2_5_no_store() {
    refused(cc("max-age=60, No-Store"), Why::NoStore);
    refused(cc("no-store=\"x\", max-age=60"), Why::NoStore);
    refused(
        of(200, &[("Surrogate-Control", "no-store"), ("Cache-Control", "max-age=60")]),
        Why::SurrogateControl,
    );
}

#[test]
fn rfc9111_5_2_1_5_no_store_in_the_request() {
    let request = fields(&[("Cache-Control", "no-store")]);
    let explicit = [("Cache-Control", "max-age=60")];
    refused(with(&Asked { fields: &request, ..GET }, 200, &explicit), Why::RequestNoStore);
    refused(with(&Asked { no_store: true, ..GET }, 200, &explicit), Why::RequestNoStore);
}

#[test]
fn rfc9111_5_2_2_7_private() {
    refused(cc("private, max-age=60, s-maxage=60, public"), Why::Private);
    refused(cc("private=\"\", max-age=60"), Why::Private);
    let verdict = cc("private=\"X-User\", max-age=60");
    assert_eq!((verdict.storable, verdict.lifetime.ttl), (Storable::Yes, 60.0));
    assert_eq!(verdict.left_out, [b"x-user".to_vec()]);
}

#[test]
fn rfc9111_3_5_authorization() {
    let asked = Asked { authorized: true, ..GET };
    for value in ["max-age=60", "max-age=60, proxy-revalidate", "max-age=60, immutable"] {
        refused(with(&asked, 200, &[("Cache-Control", value)]), Why::Authorization);
    }
    for value in ["max-age=60, public", "max-age=60, must-revalidate", "s-maxage=60"] {
        assert_eq!(with(&asked, 200, &[("Cache-Control", value)]).lifetime.ttl, 60.0, "{value}");
    }
}

#[test]
fn rfc9111_4_1_vary() {
    refused(of(200, &[("Vary", "*"), ("Cache-Control", "max-age=60")]), Why::VaryStar);
    refused(of(200, &[("Vary", "a"), ("Vary", "b, *"), ("Cache-Control", "max-age=60")]), Why::VaryStar);
    refused(of(200, &[("Vary", "a b"), ("Cache-Control", "max-age=60")]), Why::VaryUnusable);
}

#[test]
fn rfc9111_4_2_1_order_of_the_sources() {
    check(&[("Cache-Control", "max-age=10, s-maxage=60")], 60.0);
    check(&[("Cache-Control", "max-age=60, s-maxage=0")], 0.0);
    check(&[("Cache-Control", "max-age=60, s-maxage=x")], 0.0);
    check(&[("Cache-Control", "max-age=10"), ("Expires", "Sun, 06 Nov 1994 09:49:37 GMT")], 10.0);
    check(&[("Cache-Control", "public"), ("Expires", "Sun, 06 Nov 1994 08:50:37 GMT")], 60.0);
    check(&[("Cache-Control", "max-age=99999999999")], 2_147_483_648.0);
    check(&[("Pragma", "no-cache"), ("Cache-Control", "max-age=5")], 5.0);
}

#[test]
fn rfc9111_5_3_expires_counts_from_date() {
    check(&[("Expires", "Sun, 06 Nov 1994 08:50:37 GMT")], 60.0);
    check(&[("Expires", "Sun, 06 Nov 1994 08:50:37 GMT"), ("Date", "junk")], 60.0);
    check(&[("Expires", "Sun, 06 Nov 1994 08:50:37 GMT"), ("Date", NOW_DATE)], 60.0);
    check(&[("Expires", "Sun, 06 Nov 1994 10:00:10 GMT"), ("Date", "Sun, 06 Nov 1994 10:00:00 GMT")], 10.0);
    check(&[("Expires", NOW_DATE), ("Date", NOW_DATE)], 0.0);
    check(&[("Expires", "Sun, 06 Nov 1994 08:50:37 GMT"), ("Date", "Sun, 06 Nov 1994 09:49:37 GMT")], 0.0);
    for value in ["0", "-1", "", "never", "Sun, 06 Nov 2094 08:49:37", "Sun, 06 Nov 2094 08:49:37 CET"] {
        check(&[("Expires", value)], 0.0);
    }
    check(&[("Expires", "Sun, 06 Nov 2094 08:49:37 GMT"), ("Expires", "0")], 0.0);
    // Its clock is slow: the apparent age eats the lifetime.
    let verdict =
        of(200, &[("Date", "Sun, 06 Nov 1994 08:39:37 GMT"), ("Expires", "Sun, 06 Nov 1994 08:50:37 GMT")]);
    assert_eq!((verdict.lifetime.ttl, verdict.lifetime.t_origin), (660.0, NOW - 600.0));
}

#[test]
fn rfc9111_4_2_3_age_and_the_time_it_took() {
    let asked = Asked { requested: NOW - 2.0, ..GET };
    let verdict = with(&asked, 200, &[("Age", "30"), ("Cache-Control", "max-age=60"), ("Date", NOW_DATE)]);
    assert_eq!((verdict.lifetime.ttl, verdict.lifetime.age), (60.0, 30));
    assert_eq!(verdict.lifetime.t_origin, NOW - 32.0);
    refused(of(200, &[("Age", "60"), ("Cache-Control", "max-age=60")]), Why::Expired);
    assert_eq!(of(200, &[("Age", "-60"), ("Cache-Control", "max-age=60")]).lifetime.t_origin, NOW);
}

#[test]
fn rfc9111_4_2_2_heuristics() {
    let year = ("Last-Modified", "Sun, 06 Nov 1994 08:47:57 GMT");
    for status in [200, 203, 204, 300, 301, 308, 404, 405, 410, 414, 501] {
        let verdict = of(status, &[year]);
        assert_eq!((verdict.lifetime.ttl, verdict.heuristic), (10.0, true), "{status}");
        refused(of(status, &[]), Why::Expired);
    }
    assert_eq!(of(599, &[year, ("Cache-Control", "public")]).lifetime.ttl, 10.0);
    for lines in
        [&[("Cache-Control", "max-age=0")][..], &[("Expires", "0")], &[("Cache-Control", "s-maxage=")]]
    {
        let verdict = of(200, &[&[year], lines].concat());
        assert_eq!((verdict.lifetime.ttl, verdict.heuristic), (0.0, false), "{lines:?}");
    }
    refused(of(200, &[year, ("Set-Cookie", "a=b")]), Why::SetCookie);
    check(&[("Set-Cookie", "a=b"), ("Cache-Control", "max-age=60")], 60.0);
    check(&[year, ("Set-Cookie", "a=b"), ("Cache-Control", "public")], 10.0);
}

#[test]
fn rfc9111_4_2_2_nothing_to_guess_from() {
    let verdict = of(200, &[("ETag", "\"a\"")]);
    assert_eq!(
        (verdict.storable, verdict.lifetime.ttl, verdict.lifetime.keep),
        (Storable::Yes, 0.0, 86_400.0)
    );
}

#[test]
fn rfc9111_5_2_2_4_no_cache_is_kept_to_be_validated() {
    let verdict = of(200, &[("Cache-Control", "no-cache, max-age=60, stale-if-error=60"), ("ETag", "\"a\"")]);
    assert_eq!(verdict.storable, Storable::Yes);
    let Lifetime { ttl, grace, keep, .. } = verdict.lifetime;
    assert_eq!((ttl, grace, keep, verdict.stale_if_error), (0.0, 0.0, 86_400.0, 0.0));
    refused(cc("no-cache, max-age=60"), Why::Expired);
    let verdict = cc("no-cache=\"Set-Cookie\", max-age=60");
    assert_eq!((verdict.lifetime.ttl, verdict.left_out), (60.0, vec![b"set-cookie".to_vec()]));
}

#[test]
fn rfc9111_4_3_what_can_be_validated_is_kept() {
    for (name, value, keep) in [
        ("ETag", "W/\"a\"", 86_400.0),
        ("ETag", "", 0.0),
        ("Last-Modified", NOW_DATE, 86_400.0),
        ("Last-Modified", "junk", 0.0),
        ("X", "y", 0.0),
    ] {
        let verdict = of(200, &[(name, value), ("Cache-Control", "max-age=1")]);
        assert_eq!(verdict.lifetime.keep, keep, "{name}: {value}");
    }
}

#[test]
fn rfc5861_stale_while_revalidate_and_stale_if_error() {
    let verdict = cc("max-age=60, stale-while-revalidate=7, stale-if-error=30");
    let Lifetime { ttl, grace, keep, .. } = verdict.lifetime;
    assert_eq!((ttl, grace, keep, verdict.stale_if_error), (60.0, 7.0, 23.0, 30.0));
    assert_eq!(cc("max-age=60").lifetime.grace, 0.0);
    assert_eq!(cc("max-age=0, stale-while-revalidate=7").lifetime.grace, 7.0);
    for says in ["must-revalidate", "proxy-revalidate", "s-maxage=60", "no-cache"] {
        let value = format!("max-age=60, stale-while-revalidate=7, stale-if-error=30, {says}");
        let verdict = of(200, &[("Cache-Control", &value), ("ETag", "\"a\"")]);
        assert_eq!((verdict.lifetime.grace, verdict.stale_if_error), (0.0, 0.0), "{says}");
    }
}

#[test]
fn rfc9213_2_2_a_targeted_field_alone_decides() {
    let cdn = |value| ("CDN-Cache-Control", value);
    check(&[cdn("max-age=60"), ("Cache-Control", "no-store"), ("Expires", "0")], 60.0);
    check(&[cdn("max-age=\"60\""), ("Cache-Control", "max-age=60")], 0.0);
    check(&[cdn("max-age=60;x"), ("Cache-Control", "max-age=1")], 60.0);
    check(&[cdn("MAX-AGE=60"), ("Cache-Control", "max-age=1")], 1.0);
    check(&[cdn(""), ("Cache-Control", "max-age=1")], 1.0);
    refused(of(200, &[cdn("no-store"), ("Cache-Control", "max-age=60")]), Why::NoStore);
    refused(of(200, &[cdn("private, max-age=60"), ("Cache-Control", "max-age=60")]), Why::Private);
    // Nothing is said of freshness, neither by it nor by Expires.
    assert!(of(200, &[cdn("public"), ("Expires", "0")]).heuristic);
}

#[test]
fn rfc9110_9_3_3_a_post_that_answers_a_get() {
    let check = |lines: &[(&str, &str)], expected: bool| {
        assert_eq!(answers_get(&fields(lines), b"/a/b?c", b"h:80", b"http"), expected, "{lines:?}");
    };
    check(&[("Content-Location", "/a/b?c")], true);
    check(&[("Content-Location", "b?c")], true);
    check(&[("Content-Location", "http://H/a/b?c")], true);
    check(&[("Content-Location", "/a/b")], false);
    check(&[("Content-Location", "http://i/a/b?c")], false);
    check(&[("Content-Location", "/a/b?c"), ("Content-Location", "/a/b?c")], false);
    check(&[("Content-Location", "")], false);
    check(&[], false);
}

#[test]
fn errors_do_not_stay_for_long() {
    let explicit = [("Cache-Control", "max-age=86400")];
    assert_eq!(of(404, &explicit).lifetime.ttl, 3_600.0);
    assert_eq!(of(503, &explicit).lifetime.ttl, 3_600.0);
    assert_eq!(of(301, &explicit).lifetime.ttl, 86_400.0);
}

proptest! {
    #[test]
    fn rfc9111_4_2_1_one_restriction_more_never_helps(
        says in prop::collection::vec(
            "max-age=[0-9]{1,3}|s-maxage=[0-9]{0,2}|public|stale-while-revalidate=5|stale-if-error=9|no-cache=\"a\"|private|x=\"a, public\"",
            0..5,
        ),
        more in "no-store|private|no-cache|must-revalidate|max-age=0|max-age=x|no-store=\"|proxy-revalidate",
        status in prop::sample::select(vec![200u16, 404, 302, 500, 599]),
    ) {
        let before = says.join(", ");
        let of = |value: &str| of(status, &[("Cache-Control", value), ("ETag", "\"a\"")]);
        let (without, with) = (of(&before), of(&format!("{before}, {more}")));
        // A number makes storable what says nothing of freshness.
        if without.storable == Storable::Yes || !more.starts_with("max-age") {
            prop_assert!(with.lifetime.ttl <= without.lifetime.ttl);
            prop_assert!(with.lifetime.grace <= without.lifetime.grace);
            prop_assert!(with.stale_if_error <= without.stale_if_error);
            prop_assert!(without.storable == Storable::Yes || with.storable != Storable::Yes);
        }
    }

    #[test]
    fn rfc9213_2_1_both_syntaxes_say_the_same(
        says in prop::collection::vec(
            "(max-age|s-maxage|stale-while-revalidate|stale-if-error)=[0-9]{1,9}|no-store|private|no-cache|public|\
             must-revalidate|proxy-revalidate|must-understand|(private|no-cache)=\"[a-c], x\"|extension",
            1..6,
        ),
        status in prop::sample::select(vec![200u16, 302, 404, 599]),
    ) {
        // Of several with one name a dictionary has the last, Cache-Control the strictest.
        let mut once: Vec<String> = Vec::new();
        for directive in says {
            let name = |text: &str| text.split('=').next().unwrap_or_default().to_owned();
            if once.iter().all(|known| name(known) != name(&directive)) {
                once.push(directive);
            }
        }
        let value = once.join(", ");
        let of = |name: &str| of(status, &[(name, value.as_str()), ("ETag", "\"a\"")]);
        let (mut plain, mut targeted) = (of("Cache-Control"), of("CDN-Cache-Control"));
        plain.left_out.sort();
        targeted.left_out.sort();
        prop_assert_eq!(plain, targeted);
    }

    #[test]
    fn any_response_is_judged_and_times_are_sound(
        status in 100u16..=999,
        lines in prop::collection::vec(
            ("Cache-Control|CDN-Cache-Control|Age|Date|Expires|Last-Modified|Vary", "[a-z0-9=\", *;-]{0,30}"),
            0..6,
        ),
    ) {
        let lines: Vec<_> = lines.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let verdict = of(status, &lines);
        let Lifetime { ttl, grace, keep, t_origin, .. } = verdict.lifetime;
        for seconds in [ttl, grace, keep, verdict.stale_if_error] {
            prop_assert!((0.0..=2_147_483_648.0).contains(&seconds));
        }
        prop_assert!(t_origin <= NOW);
        prop_assert!(verdict.stale_if_error <= grace + keep);
    }
}
