//! Conditions: has what the client holds changed, has what we hold changed, and what a 304 changes in what we hold.
//!
//! Source: RFC 9110, sections 8.8 and 13; RFC 9111, sections 3.2 and 4.3.

use copal_base::Time;
use copal_wire::{Fields, Known, date, syntax};

mod order;
mod update;

pub use order::{Held, Precondition, precondition};
pub use update::{head_agrees, selects, update};

/// Whether the client's copy is still good, so that 304 is the answer. To be asked for GET and HEAD and a response with
/// status 200 only.
///
/// If-None-Match decides if present (weak comparison, a list or `*`); else If-Modified-Since, if it is a date not after
/// `now`, against Last-Modified, or without one against `received`, the time the response came.
///
/// Source: RFC 9110, sections 13.1.2, 13.1.3 and 13.2.2.
pub fn not_modified(request: &Fields, response: &Fields, now: Time, received: Time) -> bool {
    if request.has_known(Known::IfNoneMatch) {
        let current = response.get_known(Known::Etag);
        // Who wants a part joins it to what it has: for that only the very same bytes will do, as Varnish has it.
        let equal = if request.has_known(Known::Range) { strongly_equal } else { weakly_equal };
        return request.all_known(Known::IfNoneMatch).any(|list| {
            syntax::trim(list) == b"*"
                || current.is_some_and(|current| tags(list).any(|tag| equal(tag, current)))
        });
    }
    let Some(since) = request.get_known(Known::IfModifiedSince).and_then(date::parse) else { return false };
    if since > now {
        return false;
    }
    match response.get_known(Known::LastModified) {
        Some(modified) => date::parse(modified).is_some_and(|modified| modified <= since),
        None => received <= since,
    }
}

/// Whether a Range field may be acted upon: there is no If-Range, or it names exactly what we hold. A date does so only
/// if it is a strong validator: Date says that the response was made at least a second after Last-Modified.
///
/// Source: RFC 9110, sections 8.8.2.2 and 13.1.5.
pub fn if_range_holds(request: &Fields, response: &Fields) -> bool {
    let mut conditions = request.all_known(Known::IfRange);
    let (condition, more) = (conditions.next(), conditions.next());
    let Some(condition) = condition else { return true };
    if more.is_some() {
        return false;
    }
    if condition.starts_with(b"\"") || condition.starts_with(b"W/") {
        return response.get_known(Known::Etag).is_some_and(|current| strongly_equal(condition, current));
    }
    let moment = |name| response.get_known(name).and_then(date::parse);
    match (date::parse(condition), moment(Known::LastModified), moment(Known::Date)) {
        (Some(asked), Some(modified), Some(made)) => asked == modified && modified + 1.0 <= made,
        _ => false,
    }
}

/// Makes `request` ask the origin whether `stored`, a response with status 200, is still good. `false`, and all
/// conditions gone, if it has no validator.
///
/// Source: RFC 9111, section 4.3.1.
pub fn add_conditions(stored: &Fields, request: &mut Fields) -> bool {
    for name in [
        Known::IfNoneMatch,
        Known::IfModifiedSince,
        Known::IfMatch,
        Known::IfUnmodifiedSince,
        Known::IfRange,
        Known::Range,
    ] {
        request.remove_known(name);
    }
    let mut added = false;
    for (validator, condition) in
        [(Known::Etag, Known::IfNoneMatch), (Known::LastModified, Known::IfModifiedSince)]
    {
        if let Some(value) = stored.get_known(validator).filter(|value| !value.is_empty()) {
            added |= request.push_known(condition, value);
        }
    }
    added
}

/// Whether a 304 with these fields speaks of the `stored` response. If it names another entity tag it does not, and the
/// caller asks again without conditions. What is no entity tag names nothing, unless the stored one was written as badly.
///
/// Source: RFC 9111, section 4.3.4.
pub fn confirms(stored: &Fields, fresh: &Fields) -> bool {
    match (stored.get_known(Known::Etag), fresh.get_known(Known::Etag)) {
        (Some(old), Some(new)) => weakly_equal(old, new) || old.ends_with(b"\"") && !new.ends_with(b"\""),
        (None, Some(_)) => stored.has_known(Known::LastModified),
        (_, None) => true,
    }
}

/// The fields of the `stored` response after a 304 with the `fresh` ones: what the 304 has replaces all stored fields of
/// that name, but for what describes the body we hold. Age counts anew. Both have lost their hop-by-hop fields.
///
/// Source: RFC 9111, section 3.2.
pub fn merge_304(stored: &Fields, fresh: &Fields) -> Fields {
    let replaces = |known: Option<Known>| match known {
        Some(Known::ContentLength | Known::ContentEncoding | Known::ContentRange) => false,
        Some(name) => !name.is_hop_by_hop(),
        None => true,
    };
    let mut merged = Fields::new();
    for field in stored.iter() {
        let replaced = replaces(field.known) && fresh.has(field.name);
        if !replaced && field.known != Some(Known::Age) {
            merged.push(field.name, field.value);
        }
    }
    for field in fresh.iter().filter(|field| replaces(field.known)) {
        merged.push(field.name, field.value);
    }
    merged
}

/// The entity tags of a list. A tag without quotes, which some senders write, ends at the comma.
fn tags(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = list;
    std::iter::from_fn(move || {
        while let [b' ' | b'\t' | b',', after @ ..] = rest {
            rest = after;
        }
        if rest.is_empty() {
            return None;
        }
        let (tag, after) = rest.split_at(tag_end(rest));
        rest = after;
        Some(syntax::trim(tag))
    })
}

/// Where the tag at the start of `list` ends; at least 1.
fn tag_end(list: &[u8]) -> usize {
    let prefix = if list.starts_with(b"W/") { 2 } else { 0 };
    let opaque = &list[prefix..];
    let end = match opaque.split_first() {
        Some((b'"', inner)) => inner.iter().position(|&byte| byte == b'"').map(|at| at + 2),
        _ => opaque.iter().position(|&byte| byte == b','),
    };
    prefix + end.unwrap_or(opaque.len())
}

fn is_weak(tag: &[u8]) -> bool {
    tag.starts_with(b"W/")
}

/// Source: RFC 9110, section 8.8.3.2.
fn weakly_equal(a: &[u8], b: &[u8]) -> bool {
    a.strip_prefix(b"W/").unwrap_or(a) == b.strip_prefix(b"W/").unwrap_or(b)
}

/// Source: RFC 9110, section 8.8.3.2.
fn strongly_equal(a: &[u8], b: &[u8]) -> bool {
    !is_weak(a) && !is_weak(b) && a == b
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Sun, 06 Nov 1994 08:49:37 GMT
    const NOW: Time = 784_111_777.0;
    const EARLIER: &str = "Sun, 06 Nov 1994 08:49:30 GMT";
    const LATER: &str = "Sun, 06 Nov 1994 08:49:35 GMT";
    const FUTURE: &str = "Sun, 06 Nov 1994 08:49:38 GMT";

    fn of(lines: &[(&str, &str)]) -> Fields {
        let mut fields = Fields::new();
        for (name, value) in lines {
            assert!(fields.push(name.as_bytes(), value.as_bytes()));
        }
        fields
    }

    fn check(request: &[(&str, &str)], response: &[(&str, &str)], expected: bool) {
        let found = not_modified(&of(request), &of(response), NOW, NOW - 5.0);
        assert_eq!(found, expected, "{request:?} {response:?}");
    }

    #[test]
    fn rfc9110_13_1_2_if_none_match() {
        let tagged = [("ETag", "\"a,b\""), ("Last-Modified", EARLIER)];
        for list in [
            "\"a,b\"",
            "W/\"a,b\"",
            "\"x\", \"a,b\"",
            "\"x\",W/\"a,b\" , \"y\"",
            "*",
            " * ",
            ",\"a,b\"",
            "\"x\"\"a,b\"",
        ] {
            check(&[("If-None-Match", list)], &tagged, true);
        }
        for list in ["\"a\"", "a,b", "\"a,B\"", "", "W/", "w/\"a,b\"", "\"a,b", "\"*\"", "\"x\", *"] {
            check(&[("If-None-Match", list)], &tagged, false);
        }
        check(&[("If-None-Match", "\"x\""), ("if-none-match", "\"a,b\"")], &tagged, true);
        check(&[("If-None-Match", "\"a\"")], &[], false);
        check(&[("If-None-Match", "*")], &[], true);
        check(&[("If-None-Match", "\"w\"")], &[("ETag", "W/\"w\"")], true);
        check(&[("If-None-Match", "x, abc")], &[("ETag", "abc")], true);
        // A date does not overrule a tag.
        check(&[("If-None-Match", "\"x\""), ("If-Modified-Since", LATER)], &tagged, false);
    }

    #[test]
    fn rfc9110_13_1_3_if_modified_since() {
        check(&[("If-Modified-Since", EARLIER)], &[("Last-Modified", EARLIER)], true);
        check(&[("If-Modified-Since", LATER)], &[("Last-Modified", EARLIER)], true);
        check(&[("If-Modified-Since", EARLIER)], &[("Last-Modified", LATER)], false);
        check(
            &[("If-Modified-Since", "Sunday, 06-Nov-94 08:49:35 GMT")],
            &[("Last-Modified", EARLIER)],
            true,
        );
        check(&[("If-Modified-Since", FUTURE)], &[("Last-Modified", EARLIER)], false);
        check(&[("If-Modified-Since", "yesterday")], &[("Last-Modified", EARLIER)], false);
        check(&[("If-Modified-Since", LATER)], &[("Last-Modified", "junk")], false);
        check(&[("If-Modified-Since", LATER)], &[], true);
        check(&[("If-Modified-Since", EARLIER)], &[], false);
        check(&[], &[("Last-Modified", EARLIER)], false);
    }

    #[test]
    fn rfc9110_13_1_5_if_range() {
        let holds = |condition: &str, response: &[(&str, &str)]| {
            if_range_holds(&of(&[("If-Range", condition)]), &of(response))
        };
        let dated = [("Last-Modified", EARLIER), ("Date", LATER), ("ETag", "\"a\"")];
        assert!(if_range_holds(&of(&[]), &of(&dated)));
        assert!(holds("\"a\"", &dated));
        assert!(holds(EARLIER, &dated));
        for condition in ["\"b\"", "W/\"a\"", LATER, "junk", "", "a"] {
            assert!(!holds(condition, &dated), "{condition}");
        }
        assert!(!holds("W/\"a\"", &[("ETag", "W/\"a\"")]));
        assert!(!holds("\"a\"", &[]));
        assert!(!holds(EARLIER, &[("Last-Modified", EARLIER)]));
        assert!(!holds(EARLIER, &[("Last-Modified", EARLIER), ("Date", EARLIER)]));
        assert!(!if_range_holds(&of(&[("If-Range", "\"a\""), ("If-Range", "\"a\"")]), &of(&dated)));
    }

    #[test]
    fn rfc9111_4_3_1_conditions_for_the_origin() {
        let mut request = of(&[
            ("Host", "h"),
            ("If-None-Match", "\"client\""),
            ("Range", "bytes=0-1"),
            ("If-Match", "\"x\""),
        ]);
        assert!(add_conditions(&of(&[("ETag", "W/\"a\""), ("Last-Modified", EARLIER)]), &mut request));
        assert_eq!(
            request,
            of(&[("Host", "h"), ("If-None-Match", "W/\"a\""), ("If-Modified-Since", EARLIER)])
        );
        assert!(!add_conditions(&of(&[("ETag", "")]), &mut request));
        assert_eq!(request, of(&[("Host", "h")]));
    }

    #[test]
    fn rfc9111_4_3_4_which_response_a_304_confirms() {
        let check = |stored: &[(&str, &str)], fresh: &[(&str, &str)], expected: bool| {
            assert_eq!(confirms(&of(stored), &of(fresh)), expected, "{stored:?} {fresh:?}");
        };
        check(&[("ETag", "\"a\"")], &[("ETag", "\"a\"")], true);
        check(&[("ETag", "\"a\"")], &[("ETag", "W/\"a\"")], true);
        check(&[("ETag", "\"a\"")], &[], true);
        check(&[("ETag", "\"a\"")], &[("ETag", "\"b\"")], false);
        check(&[("ETag", "\"a\"")], &[("ETag", "b")], true);
        check(&[("ETag", "a")], &[("ETag", "b")], false);
        check(&[("Last-Modified", EARLIER)], &[("ETag", "\"b\"")], true);
        check(&[], &[("ETag", "\"b\"")], false);
    }

    #[test]
    fn rfc9111_3_2_merging() {
        let stored = of(&[
            ("Date", EARLIER),
            ("Content-Length", "5"),
            ("Content-Encoding", "gzip"),
            ("ETag", "\"a\""),
            ("X", "1"),
            ("Y", "1"),
            ("x", "2"),
            ("Age", "9"),
            ("Cache-Control", "max-age=1"),
        ]);
        let fresh = of(&[
            ("date", LATER),
            ("Content-Length", "0"),
            ("Content-Encoding", "br"),
            ("Content-Range", "bytes 0-1/2"),
            ("Transfer-Encoding", "chunked"),
            ("Connection", "close"),
            ("ETag", "W/\"a\""),
            ("X", "3"),
            ("Cache-Control", "max-age=2"),
            ("Cache-Control", "public"),
            ("New", "n"),
        ]);
        let expected = of(&[
            ("Content-Length", "5"),
            ("Content-Encoding", "gzip"),
            ("Y", "1"),
            ("date", LATER),
            ("ETag", "W/\"a\""),
            ("X", "3"),
            ("Cache-Control", "max-age=2"),
            ("Cache-Control", "public"),
            ("New", "n"),
        ]);
        assert_eq!(merge_304(&stored, &fresh), expected);
        let merged = merge_304(&of(&[("ETag", "W/\"a\"")]), &of(&[("ETag", "\"a\""), ("Age", "3")]));
        assert_eq!(merged, of(&[("ETag", "\"a\""), ("Age", "3")]));
    }

    proptest! {
        #[test]
        fn any_list_is_read_without_a_panic_and_ends(list in "[Ww/\", *a]{0,40}") {
            prop_assert!(tags(list.as_bytes()).count() <= list.len());
            let _ = not_modified(&of(&[("If-None-Match", &list)]), &of(&[("ETag", &list)]), NOW, NOW);
        }

        #[test]
        fn merging_twice_changes_nothing_more(
            stored in prop::collection::vec(("[a-dA-D]|ETag|Age|Content-Length", "[xy]{0,3}"), 0..8),
            fresh in prop::collection::vec(("[a-dA-D]|ETag|Age|Content-Length", "[xy]{0,3}"), 0..8),
        ) {
            let fields = |lines: &[(String, String)]| {
                of(&lines.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect::<Vec<_>>())
            };
            let (stored, fresh) = (fields(&stored), fields(&fresh));
            let once = merge_304(&stored, &fresh);
            prop_assert_eq!(merge_304(&once, &fresh), once);
        }
    }
}
