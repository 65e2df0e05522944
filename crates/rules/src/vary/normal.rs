//! Values of request fields that mean the same although they are written differently.
//!
//! | fields | what does not count |
//! |---|---|
//! | Accept, Accept-Charset, Accept-Encoding, Accept-Language | white space, case, order, how a weight is written, a weight of 1 |
//! | those that are no lists (Cookie, User-Agent ...) | white space at the ends |
//! | all others | white space around the commas outside quoted strings |
//!
//! Which line of several a member stands on never counts.
//!
//! Source: RFC 9111, section 4.1; RFC 9110, sections 5.3, 5.6.1 and 12.5.

use crate::directive;
use copal_wire::{Known, syntax};

/// Most members of a list that is put in order; a longer one is compared as it is.
const MEMBERS_MAX: usize = 256;

/// How the value of a field is to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A list of members in order.
    List,
    /// Members with weights, in no order.
    Preferences,
    /// No list.
    Single,
}

fn kind(name: &[u8]) -> Kind {
    match Known::find(name) {
        Some(Known::Accept | Known::AcceptCharset | Known::AcceptEncoding | Known::AcceptLanguage) => {
            Kind::Preferences
        }
        Some(
            Known::Authorization
            | Known::ContentDisposition
            | Known::Cookie
            | Known::Date
            | Known::From
            | Known::Host
            | Known::IfModifiedSince
            | Known::IfRange
            | Known::IfUnmodifiedSince
            | Known::ProxyAuthorization
            | Known::Referer
            | Known::UserAgent,
        ) => Kind::Single,
        _ => Kind::List,
    }
}

/// Whether two values of the field `name`, each of all its lines joined by commas, mean the same.
pub(super) fn equal(name: &[u8], one: &[u8], other: &[u8]) -> bool {
    match kind(name) {
        Kind::Single => syntax::trim(one) == syntax::trim(other),
        Kind::List => directive::split(one).eq(directive::split(other)),
        Kind::Preferences => {
            let values = name.eq_ignore_ascii_case(Known::Accept.name().as_bytes());
            match (preferences(one, values), preferences(other, values)) {
                (Some(one), Some(other)) => one == other,
                _ => directive::split(one).eq(directive::split(other)),
            }
        }
    }
}

/// Whether `language` is what an Accept-Language `list` wants more than anything else. A range that only begins like it
/// (`de` of `de-AT`) is not looked at.
///
/// Source: RFC 9110, section 12.5.4.
pub(super) fn prefers(list: &[u8], language: &[u8]) -> bool {
    let mut best: Option<(u32, &[u8])> = None;
    let mut shared = false;
    for member in directive::split(list).filter(|member| !member.is_empty()) {
        let mut parts = member.split(|&byte| byte == b';').map(syntax::trim);
        let range = parts.next().unwrap_or_default();
        let weight = match parts.next() {
            None => Some(1000),
            Some([b'q' | b'Q', b'=', text @ ..]) => weight(text),
            Some(_) => None,
        };
        let (Some(weight), None) = (weight, parts.next()) else { return false };
        match best {
            Some((most, _)) if weight < most => {}
            Some((most, _)) if weight == most => shared = true,
            _ => (best, shared) = (Some((weight, range)), false),
        }
    }
    best.is_some_and(|(weight, range)| weight > 0 && !shared && range.eq_ignore_ascii_case(language))
}

/// The members in one order, each written in one way; `None` if there are too many. With `values` the values of
/// parameters may have case, as those of media types.
fn preferences(list: &[u8], values: bool) -> Option<Vec<Vec<u8>>> {
    let members = directive::split(list).filter(|member| !member.is_empty());
    let mut all: Vec<Vec<u8>> = members.take(MEMBERS_MAX + 1).map(|member| written(member, values)).collect();
    all.sort_unstable();
    (all.len() <= MEMBERS_MAX).then_some(all)
}

/// A member as it is compared: in lower case, without white space, its weight in its shortest form.
fn written(member: &[u8], values: bool) -> Vec<u8> {
    let mut parts = member.split(|&byte| byte == b';').map(syntax::trim);
    let mut out = parts.next().unwrap_or_default().to_ascii_lowercase();
    for part in parts {
        let equals = part.iter().position(|&byte| byte == b'=').unwrap_or(part.len());
        let (name, value) = part.split_at(equals);
        if name.eq_ignore_ascii_case(b"q")
            && let Some(weight) = weight(&value[value.len().min(1)..])
        {
            if weight != 1000 {
                out.extend_from_slice(b";q=");
                out.extend_from_slice(weight.to_string().as_bytes());
            }
            continue;
        }
        out.push(b';');
        out.extend(name.iter().map(u8::to_ascii_lowercase));
        out.extend(value.iter().map(|byte| if values { *byte } else { byte.to_ascii_lowercase() }));
    }
    out
}

/// A weight in thousandths; `None` if it is none.
///
/// Source: RFC 9110, section 12.4.2.
fn weight(text: &[u8]) -> Option<u32> {
    let (whole, fraction) = match text.split_first()? {
        (whole, []) => (whole, &[][..]),
        (whole, [b'.', fraction @ ..]) if fraction.len() <= 3 => (whole, fraction),
        _ => return None,
    };
    let mut thousandths = match whole {
        b'0' => 0,
        b'1' => 1000,
        _ => return None,
    };
    for (digit, place) in fraction.iter().zip([100, 10, 1]) {
        thousandths += u32::from(digit.is_ascii_digit().then(|| digit - b'0')?) * place;
    }
    (thousandths <= 1000).then_some(thousandths)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(name: &str, one: &str, other: &str, expected: bool) {
        assert_eq!(
            equal(name.as_bytes(), one.as_bytes(), other.as_bytes()),
            expected,
            "{name}: {one} | {other}"
        );
        assert_eq!(
            equal(name.as_bytes(), other.as_bytes(), one.as_bytes()),
            expected,
            "{name}: {other} | {one}"
        );
    }

    #[test]
    fn rfc9111_4_1_white_space_around_commas() {
        check("Foo", "1,2", "1 ,\t2 ", true);
        check("Foo", "1,2", "2,1", false);
        check("Foo", "1,2", "1,,2", false);
        check("Foo", "a", "A", false);
        check("Foo", "\"1,2\"", "\"1, 2\"", false);
        check("Foo", "1 2", "1  2", false);
    }

    #[test]
    fn rfc9111_4_1_fields_that_are_no_lists() {
        check("User-Agent", "a (b, c)", "a (b, c) ", true);
        check("User-Agent", "a (b, c)", "a (b,c)", false);
        check("Cookie", "a=b,c", "a=b, c", false);
    }

    #[test]
    fn rfc9110_12_5_4_languages_have_neither_case_nor_order() {
        check("Accept-Language", "en, de;q=0.5", "DE ; q=0.500,en;q=1", true);
        check("accept-language", "en, de", "de,EN", true);
        check("Accept-Language", "en, de", "en, de,", true);
        check("Accept-Language", "en, de;q=0.5", "en, de;q=0.51", false);
        check("Accept-Language", "en, de;q=0.5", "en;q=0.5, de", false);
        check("Accept-Language", "en", "en, de", false);
        check("Accept-Language", "en", "en, en", false);
        check("Accept-Language", "en;q=x", "en", false);
        check("Accept-Language", "en;q=0.*", "en", false);
        check("Accept-Language", "en;q=0.\"", "en;q=0", false);
    }

    #[test]
    fn rfc9110_12_5_4_the_language_that_is_wanted_most() {
        let check = |list: &str, language: &str, expected| {
            assert_eq!(prefers(list.as_bytes(), language.as_bytes()), expected, "{list} {language}");
        };
        check("fr;q=0.5, de;q=1.0", "de", true);
        check("fr;q=0.5, DE", "de", true);
        check("de", "de", true);
        check("fr;q=0.5, de;q=0.2", "de", false);
        check("en, de", "de", false);
        check("de, de-AT;q=0.9", "de-AT", false);
        check("*", "de", false);
        check("de;q=0", "de", false);
        check("de;q=x", "de", false);
        check("de;q=1;x", "de", false);
        check("", "de", false);
    }

    #[test]
    fn rfc9110_12_5_1_media_types() {
        check("Accept", "text/HTML;Level=1, */*;q=0.80", "*/*; q=.8", false);
        check("Accept", "text/HTML;Level=1, */*;q=0.80", "*/*;q=0.8,text/html ;level=1", true);
        check("Accept", "a/b;c=D", "a/b;c=d", false);
        check("Accept-Encoding", "gzip;q=1.0, BR", "br,gzip", true);
    }

    #[test]
    fn rfc9110_12_4_2_weights() {
        for (text, expected) in [
            ("1", Some(1000)),
            ("1.000", Some(1000)),
            ("0", Some(0)),
            ("0.", Some(0)),
            ("0.05", Some(50)),
            ("1.001", None),
            ("0.0005", None),
            ("2", None),
            (".5", None),
            ("", None),
            ("0.x", None),
            ("-1", None),
        ] {
            assert_eq!(weight(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn long_lists_are_compared_as_they_are() {
        let long: Vec<String> = (0..300).map(|number| format!("a{number}")).collect();
        let turned: Vec<String> = long.iter().rev().cloned().collect();
        check("Accept-Language", &long.join(","), &long.join(" , "), true);
        check("Accept-Language", &long.join(","), &turned.join(","), false);
    }

    proptest! {
        #[test]
        fn equality_is_reflexive_and_symmetric(
            name in "Accept|Accept-Language|Foo|Cookie",
            one in "[ab,;=q.01\" ]{0,20}", other in "[ab,;=q.01\" ]{0,20}",
        ) {
            let (name, one, other) = (name.as_bytes(), one.as_bytes(), other.as_bytes());
            prop_assert!(equal(name, one, one));
            prop_assert_eq!(equal(name, one, other), equal(name, other, one));
        }
    }
}
