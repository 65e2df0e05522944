//! What a request that may have changed something makes unusable in the cache.
//!
//! Source: RFC 9111, section 4.4; RFC 3986, section 5 (references); RFC 9110, section 9.2.1 (safe methods).

use copal_wire::{Fields, Known, syntax};

/// A resource whose stored responses are to go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The host as the request named it.
    pub host: Vec<u8>,
    /// Path and query, or the whole target if it is not of that form.
    pub target: Vec<u8>,
}

/// Whether a method may change something at the origin: all but those known to be safe. Methods have case.
///
/// Source: RFC 9110, section 9.2.1, and the registry of methods.
pub fn is_unsafe(method: &[u8]) -> bool {
    !matches!(
        method,
        b"GET" | b"HEAD" | b"OPTIONS" | b"TRACE" | b"PROPFIND" | b"REPORT" | b"SEARCH" | b"QUERY"
    )
}

/// What the `response` with this `status` to an unsafe request invalidates: nothing if it is an error or not final, else
/// the target of the request, and what Location and Content-Location name if that is of the same origin. At most 3, each
/// once.
///
/// `target` is the request's target as the cache knows it, `host` its Host, `scheme` `http` or `https`.
///
/// Source: RFC 9111, section 4.4.
pub fn targets(target: &[u8], host: &[u8], scheme: &[u8], status: u16, response: &Fields) -> Vec<Target> {
    if !(200..400).contains(&status) {
        return Vec::new();
    }
    let mut all = vec![Target { host: host.to_vec(), target: target.to_vec() }];
    for name in [Known::Location, Known::ContentLocation] {
        let named = response.get_known(name).and_then(|value| resolve(value, target, host, scheme));
        if let Some(target) = named
            && all.iter().all(|known| known.target != target)
        {
            all.push(Target { host: host.to_vec(), target });
        }
    }
    all
}

/// Path and query that `reference` means on the page `base` of the origin `scheme://host`; `None` if it is of another
/// origin or cannot be requested.
///
/// Source: RFC 3986, sections 5.2 and 5.3; RFC 9110, section 4.3.1.
pub(crate) fn resolve(reference: &[u8], base: &[u8], host: &[u8], scheme: &[u8]) -> Option<Vec<u8>> {
    let reference = until(syntax::trim(reference), b"#");
    let (of_scheme, rest) = split_scheme(reference);
    if of_scheme.is_some_and(|of| !of.eq_ignore_ascii_case(scheme)) {
        return None;
    }
    if let Some(after) = rest.strip_prefix(b"//") {
        let authority = until(after, b"/?");
        let rest = &after[authority.len()..];
        return same_authority(authority, host, scheme).then(|| absolute(rest)).flatten();
    }
    // `http:a` has no authority: not a reference that an http URI allows.
    if of_scheme.is_some() {
        return None;
    }
    if rest.starts_with(b"/") {
        return absolute(rest);
    }
    let base = if base.starts_with(b"/") { base } else { b"/" };
    let path = until(base, b"?");
    if rest.is_empty() {
        return None;
    }
    if rest.starts_with(b"?") {
        return absolute(&[path, rest].concat());
    }
    let folder = path.iter().rposition(|&byte| byte == b'/').map_or(0, |at| at + 1);
    absolute(&[&path[..folder], rest].concat())
}

/// A target from a path, which may be empty, and what follows it; its dot segments resolved.
fn absolute(target: &[u8]) -> Option<Vec<u8>> {
    let path = until(target, b"?");
    let mut resolved = without_dots(path);
    resolved.extend_from_slice(&target[path.len()..]);
    syntax::valid_target_bytes(&resolved).then_some(resolved)
}

/// `path` without its `.` and `..` segments; begins with `/`.
///
/// Source: RFC 3986, section 5.2.4.
fn without_dots(path: &[u8]) -> Vec<u8> {
    let mut out: Vec<u8> = Vec::with_capacity(path.len() + 1);
    let segments = path.strip_prefix(b"/").unwrap_or(path).split(|&byte| byte == b'/');
    let mut ends_open = true;
    for segment in segments {
        ends_open = matches!(segment, b"." | b"..");
        match segment {
            b"." => {}
            b".." => {
                let parent = out.iter().rposition(|&byte| byte == b'/').unwrap_or(0);
                out.truncate(parent);
            }
            _ => {
                out.push(b'/');
                out.extend_from_slice(segment);
            }
        }
    }
    if ends_open {
        out.push(b'/');
    }
    out
}

/// What is before the first of the bytes `ends`.
fn until<'a>(text: &'a [u8], ends: &[u8]) -> &'a [u8] {
    let end = text.iter().position(|byte| ends.contains(byte)).unwrap_or(text.len());
    &text[..end]
}

/// The scheme of a reference, if it has one, and what follows its colon.
fn split_scheme(reference: &[u8]) -> (Option<&[u8]>, &[u8]) {
    let head = until(reference, b":/?#");
    let is_scheme = reference.get(head.len()) == Some(&b':')
        && head.first().is_some_and(u8::is_ascii_alphabetic)
        && head.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'));
    if is_scheme { (Some(head), &reference[head.len() + 1..]) } else { (None, reference) }
}

/// Whether two authorities of one scheme are the same: host without case, port with its default. User names make an
/// authority of its own.
fn same_authority(one: &[u8], other: &[u8], scheme: &[u8]) -> bool {
    let (one, other) = (split_port(one, scheme), split_port(other, scheme));
    !one.0.is_empty() && one.0.eq_ignore_ascii_case(other.0) && one.1 == other.1
}

fn split_port<'a>(authority: &'a [u8], scheme: &[u8]) -> (&'a [u8], Option<u64>) {
    let default = if scheme.eq_ignore_ascii_case(b"https") { 443 } else { 80 };
    let colon = authority.iter().rposition(|&byte| byte == b':');
    match colon.map(|at| authority.split_at(at)) {
        // The last colon of `[::1]` is inside.
        Some((host, port)) if !port.contains(&b']') => match &port[1..] {
            [] => (host, Some(default)),
            digits => (host, syntax::parse_digits(digits)),
        },
        _ => (authority, Some(default)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(status: u16, base: &str, lines: &[(&str, &str)]) -> Vec<String> {
        let mut fields = Fields::new();
        for (name, value) in lines {
            assert!(fields.push(name.as_bytes(), value.as_bytes()));
        }
        let all = targets(base.as_bytes(), b"Example.org:8080", b"http", status, &fields);
        assert!(all.iter().all(|target| target.host == b"Example.org:8080"));
        all.into_iter().map(|target| String::from_utf8(target.target).unwrap()).collect()
    }

    fn check(location: &str, expected: Option<&str>) {
        let found = of(200, "/a/b?q", &[("Location", location)]);
        assert_eq!(found.get(1).map(String::as_str), expected, "{location}");
    }

    #[test]
    fn rfc9110_9_2_1_safe_methods() {
        for method in ["POST", "PUT", "DELETE", "PATCH", "MKCOL", "get", "WHATEVER", ""] {
            assert!(is_unsafe(method.as_bytes()), "{method}");
        }
        for method in ["GET", "HEAD", "OPTIONS", "TRACE", "PROPFIND"] {
            assert!(!is_unsafe(method.as_bytes()), "{method}");
        }
    }

    #[test]
    fn rfc9111_4_4_only_what_is_no_error() {
        for status in [200, 201, 204, 206, 301, 303, 399] {
            assert_eq!(of(status, "/a", &[("Location", "/b")]), ["/a", "/b"], "{status}");
        }
        for status in [100, 199, 400, 404, 500, 999] {
            assert_eq!(of(status, "/a", &[("Location", "/b")]).len(), 0, "{status}");
        }
        assert_eq!(of(200, "/a", &[("Content-Location", "/c"), ("Location", "/b")]), ["/a", "/b", "/c"]);
        assert_eq!(of(200, "/a", &[("Content-Location", "/a"), ("Location", "/a#x")]), ["/a"]);
        assert_eq!(of(200, "*", &[("Location", "b")]), ["*", "/b"]);
    }

    #[test]
    fn rfc9111_4_4_same_origin() {
        check("http://example.org:8080/x?y#z", Some("/x?y"));
        check("HTTP://EXAMPLE.ORG:8080", Some("/"));
        check("//example.org:8080?x", Some("/?x"));
        for other in [
            "http://example.org/x",
            "http://example.org:80/x",
            "https://example.org:8080/x",
            "http://example.com:8080/x",
            "http://user@example.org:8080/x",
            "//example.org:8080x/x",
            "///x",
            "http:///x",
            "http:x",
            "mailto:a@b",
        ] {
            check(other, None);
        }
        for (one, other, scheme, same) in [
            ("a:80", "a", "http", true),
            ("a:", "A", "http", true),
            ("a:443", "a", "https", true),
            ("a:80", "a", "https", false),
            ("[::1]:80", "[::1]", "http", true),
            ("[::1]", "[::2]", "http", false),
            ("", "", "http", false),
        ] {
            assert_eq!(
                same_authority(one.as_bytes(), other.as_bytes(), scheme.as_bytes()),
                same,
                "{one} {other}"
            );
        }
    }

    #[test]
    fn rfc3986_5_4_references() {
        check("c", Some("/a/c"));
        check("./c/", Some("/a/c/"));
        check("../c", Some("/c"));
        check("../../../c", Some("/c"));
        check("?y", Some("/a/b?y"));
        check("/x/./y/../z/..", Some("/x/"));
        check(".", Some("/a/"));
        check("c?d=../e", Some("/a/c?d=../e"));
        check("c//d", Some("/a/c//d"));
        check("c:d", None);
        check("./c:d", Some("/a/c:d"));
        check("/a b", None);
        check("", None);
        check("#x", None);
    }

    proptest! {
        #[test]
        fn any_reference_gives_a_target_or_nothing(
            reference in "(http:)?[a:/.?#@ ]{0,20}", base in "/?[a/.?]{0,10}",
        ) {
            if let Some(target) = resolve(reference.as_bytes(), base.as_bytes(), b"a", b"http") {
                prop_assert!(target.starts_with(b"/"));
                prop_assert!(syntax::valid_target_bytes(&target));
            }
        }
    }
}
