//! Cache directives, read by the book: a name, and an argument that is a number, a text or malformed.
//!
//! [`crate::cache_control`] reads the same lists as Varnish does; this reader is for `rfc=on`. It is cautious where a sender
//! was not careful: white space around `=`, a number with a fraction or in single quotes and the like are
//! [`Argument::Malformed`] or no number, and a quote that is never closed hides nothing that stands behind it.
//!
//! Source: RFC 9111, sections 1.2.2, 4.2.1 and 5.2.

use crate::cache_control::DELTA_MAX;
use copal_wire::{Fields, Known, syntax};

/// One directive of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Directive<'a> {
    /// As written, in any case.
    pub name: &'a [u8],
    /// What it says beyond its name.
    pub argument: Argument<'a>,
}

/// What a directive says beyond its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Argument<'a> {
    /// Nothing.
    None,
    /// Digits and nothing else, quoted or not; at most [`DELTA_MAX`].
    Seconds(u32),
    /// A token, or the inside of a quoted string with its escapes; may be empty.
    Text(&'a [u8]),
    /// Neither token nor quoted string.
    Malformed,
}

impl Argument<'_> {
    /// The number of seconds, 0 if it is none: what is invalid is stale.
    ///
    /// Source: RFC 9111, section 4.2.1.
    pub fn seconds(self) -> u32 {
        match self {
            Argument::Seconds(seconds) => seconds,
            Argument::None | Argument::Text(_) | Argument::Malformed => 0,
        }
    }
}

/// The directives of all Cache-Control fields, in order.
pub fn all(fields: &Fields) -> impl Iterator<Item = Directive<'_>> {
    fields.all_known(Known::CacheControl).flat_map(directives)
}

/// The directives of one value. A comma in a quoted argument separates nothing; one after a quote that is never closed
/// does.
pub fn directives(value: &[u8]) -> impl Iterator<Item = Directive<'_>> {
    elements(value).map(directive)
}

/// A number of seconds: digits and nothing else, at most [`DELTA_MAX`].
///
/// Source: RFC 9111, section 1.2.2.
pub fn delta_seconds(text: &[u8]) -> Option<u32> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    // All digits, so what does not parse is too large.
    let seconds = syntax::parse_digits(text).unwrap_or(u64::MAX);
    Some(seconds.min(u64::from(DELTA_MAX)) as u32)
}

/// The elements of a list whose elements may hold quoted strings, trimmed, empty ones left out.
fn elements(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    split(value).filter(|element| !element.is_empty())
}

/// What stands between the commas of a list whose elements may hold quoted strings, trimmed; at least one element, which
/// may be empty. From a quote on that is never closed, quotes mean nothing.
pub(crate) fn split(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(value);
    let mut quotes = true;
    std::iter::from_fn(move || {
        let list = rest?;
        let end = element_end(list, &mut quotes);
        rest = list.get(end + 1..);
        Some(syntax::trim(&list[..end]))
    })
}

/// Where the first comma outside quotes is, else the end. `quotes` is whether there are any, and becomes `false` at the
/// first that is never closed, so that a list is not searched to its end for each element.
fn element_end(list: &[u8], quotes: &mut bool) -> usize {
    let mut at = 0;
    while let Some(&byte) = list.get(at) {
        at += match byte {
            b',' => return at,
            b'"' if *quotes => quoted_end(&list[at..]).unwrap_or_else(|| {
                *quotes = false;
                1
            }),
            _ => 1,
        };
    }
    list.len()
}

/// How long the quoted string at the start of `text` is, quotes included.
fn quoted_end(text: &[u8]) -> Option<usize> {
    let mut escaped = false;
    for (at, &byte) in text.iter().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return Some(at + 1),
            _ => {}
        }
    }
    None
}

fn directive(element: &[u8]) -> Directive<'_> {
    let Some(equals) = element.iter().position(|&byte| byte == b'=') else {
        return Directive { name: element, argument: Argument::None };
    };
    let (name, text) = (&element[..equals], &element[equals + 1..]);
    let trimmed = syntax::trim(name);
    let argument = if trimmed.len() == name.len() { argument(text) } else { Argument::Malformed };
    Directive { name: trimmed, argument }
}

fn argument(text: &[u8]) -> Argument<'_> {
    let inner = match text {
        [b'"', ..] if quoted_end(text) == Some(text.len()) => &text[1..text.len() - 1],
        token if syntax::is_token(token) => token,
        _ => return Argument::Malformed,
    };
    delta_seconds(inner).map_or(Argument::Text(inner), Argument::Seconds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(value: &str, expected: &[(&str, Argument<'_>)]) {
        let found: Vec<_> = directives(value.as_bytes()).collect();
        let expected: Vec<_> =
            expected.iter().map(|&(name, argument)| Directive { name: name.as_bytes(), argument }).collect();
        assert_eq!(found, expected, "{value}");
    }

    #[test]
    fn rfc9111_5_2_lists() {
        use Argument::{Malformed, None, Seconds, Text};
        check("no-store,, Public ,", &[("no-store", None), ("Public", None)]);
        check("max-age=60, s-maxage=\"61\"", &[("max-age", Seconds(60)), ("s-maxage", Seconds(61))]);
        check("x=\"a, no-store\", b", &[("x", Text(b"a, no-store")), ("b", None)]);
        check("x=\"a\\\", b\", c", &[("x", Text(b"a\\\", b")), ("c", None)]);
        check("x=\"a, no-store", &[("x", Malformed), ("no-store", None)]);
        check("x\", no-store, y=\"1", &[("x\", no-store, y", Malformed)]);
        check("max-age =1, max-age= 1", &[("max-age", Malformed), ("max-age", Malformed)]);
        check("max-age='1', max-age=", &[("max-age", Text(b"'1'")), ("max-age", Malformed)]);
        check("private=\"\", a=\"b\"c", &[("private", Text(b"")), ("a", Malformed)]);
    }

    #[test]
    fn rfc9111_1_2_2_digits_only_and_bounded() {
        for (text, expected) in [
            ("0", Some(0)),
            ("0060", Some(60)),
            ("2147483647", Some(DELTA_MAX - 1)),
            ("2147483648", Some(DELTA_MAX)),
            ("99999999999999999999999", Some(DELTA_MAX)),
            ("", None),
            ("-1", None),
            ("+1", None),
            ("1.0", None),
            ("1 ", None),
            ("1s", None),
            ("0x1", None),
        ] {
            assert_eq!(delta_seconds(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn many_quotes_that_are_never_closed_are_bearable() {
        assert_eq!(directives("\\\",".repeat(100_001).as_bytes()).count(), 100_001);
    }

    proptest! {
        #[test]
        fn rfc9111_4_2_1_no_quote_hides_a_directive_unless_it_is_closed(
            before in "[a-z=,\\\\ ]{0,12}",
            after in "[a-z=,\\\\ ]{0,12}",
        ) {
            let value = format!("{before}\"{after}, no-store");
            prop_assert!(directives(value.as_bytes()).any(|directive| directive.name == b"no-store"));
        }

        #[test]
        fn splitting_loses_nothing_but_white_space(value in "[a-c,\"\\\\]{0,40}") {
            let parts: Vec<&[u8]> = split(value.as_bytes()).collect();
            prop_assert_eq!(parts.join(&b","[..]), value.as_bytes());
        }

        #[test]
        fn any_value_is_read_without_a_panic(value in "[a-z0-9=\", \\\\]{0,60}") {
            prop_assert!(directives(value.as_bytes()).count() <= value.len());
        }
    }
}
