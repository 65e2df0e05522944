//! Conditions of a request against what is stored, in the order of RFC 9110.
//!
//! ```text
//! If-Match ── no ─> Failed          without it: If-Unmodified-Since ── no ─> Failed
//!    └─ yes ─> If-None-Match ── no ─> NotModified (GET, HEAD) or Failed
//!                               without it: If-Modified-Since ── no ─> NotModified (GET, HEAD only)
//!    └─ yes ─> Proceed; Range with If-Range is the last step, [`super::if_range_holds`]
//! ```
//! Source: RFC 9110, sections 13.1 and 13.2; RFC 9111, section 4.3.2.

use super::{strongly_equal, tags, weakly_equal};
use copal_base::Time;
use copal_wire::{Fields, Known, date, syntax};

/// What conditions make of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precondition {
    /// They hold, or there are none: answer as without them.
    Proceed,
    /// The client's copy is still good: 304.
    NotModified,
    /// What is stored is not what the client asks for. An origin would answer 412; a cache asks the origin, which may
    /// have the version that is meant.
    Failed,
}

/// The response that is stored.
#[derive(Debug, Clone, Copy)]
pub struct Held<'a> {
    /// Its status; conditions apply to 2xx only.
    pub status: u16,
    /// Its fields.
    pub fields: &'a Fields,
    /// When it came: what is compared with dates if it has neither Last-Modified nor Date.
    pub received: Time,
}

/// What the conditions of `request` make of it if `held` is the answer without them.
///
/// If-Match compares strongly, If-None-Match weakly. A date that is none, or that stands twice, is no condition.
///
/// Source: RFC 9110, section 13.2.2; RFC 9111, section 4.3.2.
pub fn precondition(method: &[u8], request: &Fields, held: &Held<'_>) -> Precondition {
    if !(200..300).contains(&held.status) {
        return Precondition::Proceed;
    }
    let reads = matches!(method, b"GET" | b"HEAD");
    if request.has_known(Known::IfMatch) {
        if !names(request, Known::IfMatch, held, strongly_equal) {
            return Precondition::Failed;
        }
    } else if let Some(since) = moment(request, Known::IfUnmodifiedSince)
        && moment(held.fields, Known::LastModified).is_some_and(|modified| modified > since)
    {
        return Precondition::Failed;
    }
    if request.has_known(Known::IfNoneMatch) {
        return match (names(request, Known::IfNoneMatch, held, weakly_equal), reads) {
            (false, _) => Precondition::Proceed,
            (true, true) => Precondition::NotModified,
            (true, false) => Precondition::Failed,
        };
    }
    match moment(request, Known::IfModifiedSince) {
        Some(since) if reads && modified(held) <= since => Precondition::NotModified,
        _ => Precondition::Proceed,
    }
}

/// Whether one of the entity tags in the fields `name` of `request` is that of `held`, or `*` stands there.
fn names(request: &Fields, name: Known, held: &Held<'_>, equal: fn(&[u8], &[u8]) -> bool) -> bool {
    let current = held.fields.get_known(Known::Etag);
    request.all_known(name).any(|list| {
        syntax::trim(list) == b"*" || current.is_some_and(|current| tags(list).any(|tag| equal(tag, current)))
    })
}

/// When `held` was last modified, else made, else received.
///
/// Source: RFC 9111, section 4.3.2.
fn modified(held: &Held<'_>) -> Time {
    if held.fields.has_known(Known::LastModified) {
        // What is no date was modified nobody knows when.
        return moment(held.fields, Known::LastModified).unwrap_or(Time::INFINITY);
    }
    crate::age::date(held.fields).unwrap_or(held.received)
}

/// The date in the one field of this name.
fn moment(fields: &Fields, name: Known) -> Option<Time> {
    let mut values = fields.all_known(name);
    let value = values.next()?;
    if values.next().is_some() {
        return None;
    }
    date::parse(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use Precondition::{Failed, NotModified, Proceed};
    use proptest::prelude::*;

    /// Sun, 06 Nov 1994 08:49:37 GMT
    const NOW: Time = 784_111_777.0;
    const EARLIER: &str = "Sun, 06 Nov 1994 08:49:30 GMT";
    const LATER: &str = "Sun, 06 Nov 1994 08:49:35 GMT";
    const FUTURE: &str = "Sun, 06 Nov 2094 08:49:38 GMT";

    fn of(lines: &[(&str, &str)]) -> Fields {
        let mut fields = Fields::new();
        for (name, value) in lines {
            assert!(fields.push(name.as_bytes(), value.as_bytes()));
        }
        fields
    }

    fn asked(method: &str, status: u16, request: &[(&str, &str)], held: &[(&str, &str)]) -> Precondition {
        let fields = of(held);
        let held = Held { status, fields: &fields, received: NOW - 5.0 };
        precondition(method.as_bytes(), &of(request), &held)
    }

    fn check(request: &[(&str, &str)], held: &[(&str, &str)], expected: Precondition) {
        assert_eq!(asked("GET", 200, request, held), expected, "{request:?} {held:?}");
    }

    const TAGGED: &[(&str, &str)] = &[("ETag", "\"a\""), ("Last-Modified", EARLIER)];

    #[test]
    fn rfc9110_13_1_1_if_match() {
        check(&[("If-Match", "\"x\", \"a\"")], TAGGED, Proceed);
        check(&[("If-Match", "*")], TAGGED, Proceed);
        check(&[("If-Match", "\"b\"")], TAGGED, Failed);
        check(&[("If-Match", "W/\"a\"")], TAGGED, Failed);
        check(&[("If-Match", "\"a\"")], &[("ETag", "W/\"a\"")], Failed);
        check(&[("If-Match", "\"a\"")], &[], Failed);
    }

    #[test]
    fn rfc9110_13_1_4_if_unmodified_since() {
        check(&[("If-Unmodified-Since", EARLIER)], TAGGED, Proceed);
        check(&[("If-Unmodified-Since", EARLIER)], &[("Last-Modified", LATER)], Failed);
        check(&[("If-Unmodified-Since", EARLIER)], &[], Proceed);
        check(&[("If-Unmodified-Since", "junk")], &[("Last-Modified", LATER)], Proceed);
        let twice = [("If-Unmodified-Since", EARLIER), ("If-Unmodified-Since", EARLIER)];
        check(&twice, &[("Last-Modified", LATER)], Proceed);
    }

    #[test]
    fn rfc9110_13_1_2_if_none_match() {
        check(&[("If-None-Match", "\"x\", W/\"a\"")], TAGGED, NotModified);
        check(&[("If-None-Match", "*")], &[], NotModified);
        check(&[("If-None-Match", "\"x\""), ("if-none-match", "\"a\"")], TAGGED, NotModified);
        check(&[("If-None-Match", "\"b\"")], TAGGED, Proceed);
        check(&[("If-None-Match", "\"a\"")], &[("ETag", "W/\"a\"")], NotModified);
        // Weakly also where a range is asked for.
        check(&[("If-None-Match", "W/\"a\""), ("Range", "bytes=0-1")], TAGGED, NotModified);
        assert_eq!(asked("HEAD", 200, &[("If-None-Match", "\"a\"")], TAGGED), NotModified);
        assert_eq!(asked("POST", 200, &[("If-None-Match", "\"a\"")], TAGGED), Failed);
    }

    #[test]
    fn rfc9111_4_3_2_if_modified_since() {
        check(&[("If-Modified-Since", EARLIER)], TAGGED, NotModified);
        check(&[("If-Modified-Since", FUTURE)], TAGGED, NotModified);
        check(&[("If-Modified-Since", EARLIER)], &[("Last-Modified", LATER)], Proceed);
        check(&[("If-Modified-Since", FUTURE)], &[("Last-Modified", "junk")], Proceed);
        check(&[("If-Modified-Since", "yesterday")], TAGGED, Proceed);
        check(&[("If-Modified-Since", LATER), ("If-Modified-Since", LATER)], TAGGED, Proceed);
        check(&[("If-Modified-Since", LATER)], &[("Date", LATER)], NotModified);
        check(&[("If-Modified-Since", EARLIER)], &[("Date", LATER)], Proceed);
        check(&[("If-Modified-Since", LATER)], &[], NotModified);
        check(&[("If-Modified-Since", EARLIER)], &[], Proceed);
        assert_eq!(asked("POST", 200, &[("If-Modified-Since", LATER)], TAGGED), Proceed);
    }

    #[test]
    fn rfc9110_13_2_2_order() {
        // A tag decides before a date.
        check(&[("If-None-Match", "\"b\""), ("If-Modified-Since", LATER)], TAGGED, Proceed);
        check(
            &[("If-Match", "\"a\""), ("If-Unmodified-Since", "Sun, 06 Nov 1993 08:49:37 GMT")],
            TAGGED,
            Proceed,
        );
        // What the client demands comes before what it has.
        check(&[("If-Match", "\"b\""), ("If-None-Match", "\"a\"")], TAGGED, Failed);
        check(&[("If-Match", "\"a\""), ("If-None-Match", "\"a\"")], TAGGED, NotModified);
        check(&[("If-Unmodified-Since", LATER), ("If-Modified-Since", LATER)], TAGGED, NotModified);
    }

    #[test]
    fn rfc9110_13_2_1_only_what_would_succeed() {
        for status in [301, 404, 412, 503] {
            assert_eq!(asked("GET", status, &[("If-None-Match", "\"a\"")], TAGGED), Proceed, "{status}");
            assert_eq!(asked("GET", status, &[("If-Match", "\"b\"")], TAGGED), Proceed, "{status}");
        }
        assert_eq!(asked("GET", 206, &[("If-None-Match", "\"a\"")], TAGGED), NotModified);
    }

    proptest! {
        #[test]
        fn without_a_range_it_agrees_with_the_short_form(
            tag in "(W/)?\"[ab]\"|\\*|[ab]", own in "(W/)?\"[ab]\"",
            since in prop::option::of(prop::sample::select(vec![EARLIER, LATER, "junk"])),
            modified in prop::option::of(prop::sample::select(vec![EARLIER, LATER])),
            tagged in any::<bool>(),
        ) {
            let mut request = Vec::new();
            if tagged { request.push(("If-None-Match", tag.as_str())); }
            if let Some(since) = since { request.push(("If-Modified-Since", since)); }
            let mut held = vec![("ETag", own.as_str())];
            if let Some(modified) = modified { held.push(("Last-Modified", modified)); }
            let short = super::super::not_modified(&of(&request), &of(&held), NOW, NOW - 5.0);
            let expected = if short { NotModified } else { Proceed };
            prop_assert_eq!(asked("GET", 200, &request, &held), expected);
        }
    }
}
