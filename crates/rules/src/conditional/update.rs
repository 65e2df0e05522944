//! What a newer answer without a body changes in a stored response: a 304, or the answer to a HEAD.
//!
//! Source: RFC 9111, sections 3.2, 4.3.4 and 4.3.5.

use super::{is_weak, weakly_equal};
use copal_wire::{Fields, Known, date, syntax};

/// Whether a 304 with the fields `newer`, to a request that asked about `stored` alone, speaks of it. If not, the caller
/// asks again without conditions. Stricter than [`super::confirms`]: the tag must be the stored one, dates must be alike
/// where there is no tag. A 304 that names nothing is taken at its word.
///
/// A strong tag is taken for the stored weak one, which the RFC does not allow: servers that compress mark whole responses
/// weak and 304 not, and would never be able to confirm anything. [`update`] then keeps the weak one.
///
/// Source: RFC 9111, section 4.3.4.
pub fn selects(stored: &Fields, newer: &Fields) -> bool {
    let tag = validator(newer, Known::Etag);
    if let (Some(new), Some(old)) = (tag, validator(stored, Known::Etag)) {
        return weakly_equal(new, old);
    }
    let modified = |fields| validator(fields, Known::LastModified).and_then(date::parse);
    match (modified(newer), modified(stored)) {
        (Some(new), Some(old)) => new == old,
        (Some(_), None) => false,
        (None, _) => tag.is_none(),
    }
}

/// Whether the answer 200 to a HEAD, with the fields `head`, speaks of the `stored` response, so that it updates it; if
/// not, the stored one is stale. `length` is that of the stored body as the origin sent it, if that is known.
///
/// Source: RFC 9111, section 4.3.5.
pub fn head_agrees(stored: &Fields, length: Option<u64>, head: &Fields) -> bool {
    let same_tag = match (validator(head, Known::Etag), validator(stored, Known::Etag)) {
        (Some(new), Some(old)) => new == old,
        (Some(_), None) => false,
        (None, _) => true,
    };
    let same_date = match (validator(head, Known::LastModified), validator(stored, Known::LastModified)) {
        (Some(new), Some(old)) => {
            new == old || date::parse(new).is_some_and(|new| Some(new) == date::parse(old))
        }
        (Some(_), None) => false,
        (None, _) => true,
    };
    let same_length = head.all_known(Known::ContentLength).all(|value| {
        let named = syntax::parse_digits(syntax::trim(value));
        named.is_some() && named == length
    });
    same_tag && same_date && same_length
}

/// The fields of the `stored` response with those of the `newer` answer in place of its own of these names. Left as they
/// are: what describes the body that is stored (Content-Length, Content-Encoding, Content-Range, digests), and what is never stored
/// (fields of one connection, Proxy-Authenticate and its kin). Content-Type and all others are the newer ones. The stored
/// Age goes, for time counts anew. A weak tag stays weak.
///
/// Both have lost what their Connection named. What `private="..."` or `no-cache="..."` of the result names is for the
/// caller to leave out, as [`crate::judge::Verdict::left_out`] says.
///
/// Source: RFC 9111, sections 3.1 and 3.2.
pub fn update(stored: &Fields, newer: &Fields) -> Fields {
    let mut updated = super::merge_304(stored, newer);
    updated.remove(b"Proxy-Authentication-Info");
    for name in DIGESTS.iter().filter(|name| newer.has(name)) {
        updated.remove(name);
        for value in stored.all(name) {
            updated.push(name, value);
        }
    }
    if let (Some(old), Some(new)) = (validator(stored, Known::Etag), validator(&updated, Known::Etag))
        && is_weak(old)
        && !is_weak(new)
    {
        // The body we hold was not compared byte by byte.
        updated.set_known(Known::Etag, old);
    }
    updated
}

/// Digests of a body. That of a 304 may be of its own, which is empty.
///
/// Source: RFC 9530, sections 2 and 3; RFC 3230; RFC 2616, section 14.15.
const DIGESTS: [&[u8]; 4] = [b"Content-Digest", b"Repr-Digest", b"Digest", b"Content-MD5"];

/// The value of a validator that is there and not empty.
fn validator(fields: &Fields, name: Known) -> Option<&[u8]> {
    fields.get_known(name).filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    const EARLIER: &str = "Sun, 06 Nov 1994 08:49:30 GMT";
    const SAME: &str = "Sunday, 06-Nov-94 08:49:30 GMT";
    const LATER: &str = "Sun, 06 Nov 1994 08:49:35 GMT";

    fn of(lines: &[(&str, &str)]) -> Fields {
        let mut fields = Fields::new();
        for (name, value) in lines {
            assert!(fields.push(name.as_bytes(), value.as_bytes()));
        }
        fields
    }

    #[test]
    fn rfc9111_4_3_4_which_response_a_304_selects() {
        let check = |stored: &[(&str, &str)], newer: &[(&str, &str)], expected: bool| {
            assert_eq!(selects(&of(stored), &of(newer)), expected, "{stored:?} {newer:?}");
        };
        let (strong, weak) = (("ETag", "\"a\""), ("ETag", "W/\"a\""));
        check(&[strong], &[strong], true);
        check(&[strong], &[weak], true);
        check(&[weak], &[weak], true);
        check(&[weak], &[strong], true);
        check(&[strong], &[("ETag", "\"b\"")], false);
        check(&[strong], &[("ETag", "b")], false);
        check(&[strong], &[], true);
        check(&[strong], &[("ETag", "")], true);
        check(&[strong, ("Last-Modified", EARLIER)], &[strong, ("Last-Modified", LATER)], true);
        check(&[strong, ("Last-Modified", EARLIER)], &[("Last-Modified", LATER)], false);
        check(&[("Last-Modified", EARLIER)], &[("Last-Modified", SAME)], true);
        check(&[("Last-Modified", EARLIER)], &[("Last-Modified", LATER)], false);
        check(&[("Last-Modified", EARLIER)], &[strong], false);
        check(&[("Last-Modified", EARLIER)], &[strong, ("Last-Modified", EARLIER)], true);
        check(&[strong], &[("Last-Modified", EARLIER)], false);
        check(&[], &[strong], false);
        check(&[], &[], true);
    }

    #[test]
    fn rfc9111_4_3_5_which_response_a_head_agrees_with() {
        let stored = of(&[("ETag", "\"a\""), ("Last-Modified", EARLIER)]);
        let check = |head: &[(&str, &str)], length: Option<u64>, expected: bool| {
            assert_eq!(head_agrees(&stored, length, &of(head)), expected, "{head:?} {length:?}");
        };
        check(&[], None, true);
        check(&[("ETag", "\"a\""), ("Last-Modified", SAME), ("Content-Length", "5")], Some(5), true);
        check(&[("ETag", "\"b\"")], None, false);
        check(&[("ETag", "W/\"a\"")], None, false);
        check(&[("Last-Modified", LATER)], None, false);
        check(&[("Content-Length", "5")], Some(6), false);
        check(&[("Content-Length", "5")], None, false);
        check(&[("Content-Length", "x")], Some(5), false);
        check(&[("X", "y")], Some(5), true);
        assert!(!head_agrees(&of(&[]), None, &of(&[("ETag", "\"a\"")])));
        assert!(!head_agrees(&of(&[]), None, &of(&[("Last-Modified", EARLIER)])));
    }

    #[test]
    fn rfc9111_3_2_what_is_updated() {
        let stored = of(&[
            ("Content-Type", "a/b"),
            ("Content-Length", "5"),
            ("Content-Encoding", "gzip"),
            ("Content-Location", "/a"),
            ("Age", "9"),
            ("Stays", "1"),
            ("Set-Cookie", "a"),
        ]);
        let newer = of(&[
            ("Content-Type", "c/d"),
            ("Content-Length", "0"),
            ("Content-Encoding", "br"),
            ("Content-Range", "bytes 0-1/2"),
            ("Content-Location", "/b"),
            ("Set-Cookie", "b"),
            ("Keep-Alive", "5"),
            ("Proxy-Authenticate", "Basic"),
            ("Proxy-Authentication-Info", "x"),
            ("Proxy-Connection", "close"),
            ("TE", "trailers"),
            ("Upgrade", "x"),
            ("New", "n"),
        ]);
        let expected = of(&[
            ("Content-Length", "5"),
            ("Content-Encoding", "gzip"),
            ("Stays", "1"),
            ("Content-Type", "c/d"),
            ("Content-Location", "/b"),
            ("Set-Cookie", "b"),
            ("New", "n"),
        ]);
        assert_eq!(update(&stored, &newer), expected);
        let weak = of(&[("ETag", "W/\"a\"")]);
        assert_eq!(update(&weak, &of(&[("ETag", "\"a\"")])), weak);
        assert_eq!(update(&of(&[("ETag", "\"a\"")]), &weak), weak);
    }
}
