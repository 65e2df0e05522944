//! Variants: which request fields a stored response was chosen by, and whether a request has them alike.
//!
//! A stored response carries a specification, made from its Vary and the request that fetched it:
//!
//! | size | what |
//! |---|---|
//! | 1 | length of the name, 1 to 127 |
//! | n | the name in lower case |
//! | 2 | length of the value, little-endian; 65,535 if the field was absent |
//! | m | the values of all fields of this name, joined by `, ` |
//!
//! once for each name. No Vary makes an empty specification, which every request matches.
//!
//! Source: RFC 9111, section 4.1.

use copal_wire::{Fields, Known, syntax, valid_name};

mod normal;

/// Longest name.
const NAME_MAX: usize = 127;
/// Most names.
const NAMES_MAX: usize = 64;
/// Longest specification, in bytes.
const SPEC_MAX: usize = 32 << 10;
/// In place of a length: the field was absent.
const ABSENT: u16 = u16::MAX;
const JOINT: &[u8] = b", ";

/// Why a response cannot be stored by its Vary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unusable {
    /// `*`: no request matches, ever.
    Star,
    /// Not a list of field names.
    Malformed,
    /// More or longer names or values than are kept.
    TooLong,
}

/// The names in all Vary fields of `response`.
fn names(response: &Fields) -> impl Iterator<Item = Result<&[u8], Unusable>> {
    response.all_known(Known::Vary).flat_map(syntax::tokens).enumerate().map(|(index, name)| match name {
        b"*" => Err(Unusable::Star),
        _ if index >= NAMES_MAX || name.len() > NAME_MAX => Err(Unusable::TooLong),
        _ if valid_name(name) => Ok(name),
        _ => Err(Unusable::Malformed),
    })
}

/// Whether Vary of `response` allows it to be stored. [`build`] may still find a value too long.
///
/// # Errors
/// Why it does not; [`Unusable::Star`] before any other reason.
pub fn check(response: &Fields) -> Result<(), Unusable> {
    let mut result = Ok(());
    for name in names(response) {
        match name {
            Err(Unusable::Star) => return Err(Unusable::Star),
            Err(other) if result.is_ok() => result = Err(other),
            _ => {}
        }
    }
    result
}

/// The specification of `response`, an answer to `request` as it was sent to the origin. Empty without Vary.
///
/// # Errors
/// The response serves no other request.
pub fn build(response: &Fields, request: &Fields) -> Result<Vec<u8>, Unusable> {
    build_without(response, request, None)
}

/// As [`build`], for a cache that serves requests with any value of `ours` from one response.
///
/// # Errors
/// The response serves no other request.
pub fn build_without(response: &Fields, request: &Fields, ours: Option<Known>) -> Result<Vec<u8>, Unusable> {
    let mut spec = Vec::new();
    if !response.has_known(Known::Vary) {
        return Ok(spec);
    }
    check(response)?;
    for name in names(response) {
        let name = name?;
        if ours.is_some_and(|ours| name.eq_ignore_ascii_case(ours.name().as_bytes())) {
            continue;
        }
        spec.push(name.len() as u8);
        spec.extend(name.iter().map(u8::to_ascii_lowercase));
        let at = spec.len();
        spec.extend_from_slice(&ABSENT.to_le_bytes());
        for (index, value) in request.all(name).enumerate() {
            spec.extend_from_slice(if index == 0 { b"" } else { JOINT });
            spec.extend_from_slice(value);
        }
        if request.has(name) {
            let length = u16::try_from(spec.len() - at - 2).ok().filter(|&length| length != ABSENT);
            spec[at..at + 2].copy_from_slice(&length.ok_or(Unusable::TooLong)?.to_le_bytes());
        }
        if spec.len() > SPEC_MAX {
            return Err(Unusable::TooLong);
        }
    }
    Ok(spec)
}

/// Whether `request` would get the response that `spec` was built for. A specification that is none matches nothing.
pub fn matches(spec: &[u8], request: &Fields) -> bool {
    let mut rest = spec;
    while !rest.is_empty() {
        let Some((wanted, after)) = entry(rest) else { return false };
        if !same(request, wanted) {
            return false;
        }
        rest = after;
    }
    true
}

/// As [`matches`], but what means the same is the same: white space in lists, case and order of preferences. For `rfc=on`.
///
/// Source: RFC 9111, section 4.1.
///
/// A response in the one language (`Content-Language`) that the request wants more than any other fits, too, whatever others
/// either request names: the origin has it, and has nothing that is wanted more.
pub fn matches_normalised(spec: &[u8], request: &Fields, language: Option<&[u8]>) -> bool {
    let mut rest = spec;
    while !rest.is_empty() {
        let Some((wanted, after)) = entry(rest) else { return false };
        let fits = same(request, wanted)
            || means_the_same(request, wanted)
            || language.is_some_and(|language| wants_most(request, wanted, language));
        if !fits {
            return false;
        }
        rest = after;
    }
    true
}

/// Whether the wanted field is Accept-Language, and that of `request` wants `language` most.
fn wants_most(request: &Fields, wanted: Wanted<'_>, language: &[u8]) -> bool {
    if Known::find(wanted.name) != Some(Known::AcceptLanguage) {
        return false;
    }
    let lines: Vec<&[u8]> = request.all_known(Known::AcceptLanguage).collect();
    normal::prefers(&lines.join(JOINT), language)
}

/// Whether the fields of `request` of the wanted name mean the wanted value. An absent field is like absent ones only.
fn means_the_same(request: &Fields, wanted: Wanted<'_>) -> bool {
    let Some(expected) = wanted.value else { return false };
    let lines: Vec<&[u8]> = request.all(wanted.name).collect();
    !lines.is_empty() && normal::equal(wanted.name, &lines.join(JOINT), expected)
}

/// What a specification says of one name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted<'a> {
    /// In lower case.
    pub name: &'a [u8],
    /// The values joined; `None` if the field was absent.
    pub value: Option<&'a [u8]>,
}

/// Whether two specifications name the same fields in the same order: then no request fits both, unless they are the same.
pub fn same_fields(one: &[u8], other: &[u8]) -> bool {
    entries(one).map(|wanted| wanted.name).eq(entries(other).map(|wanted| wanted.name))
}

/// Whether two specifications name the same fields in the same order with values that mean the same: then a request that
/// fits one fits the other, too, by [`matches_normalised`].
pub fn same_meaning(one: &[u8], other: &[u8]) -> bool {
    let equal = |(one, other): (Wanted<'_>, Wanted<'_>)| match (one.value, other.value) {
        (None, None) => true,
        (Some(value), Some(another)) => value == another || normal::equal(one.name, value, another),
        _ => false,
    };
    same_fields(one, other) && entries(one).zip(entries(other)).all(equal)
}

/// What a specification says, in order. Ends at the first entry that is none.
pub fn entries(spec: &[u8]) -> impl Iterator<Item = Wanted<'_>> {
    let mut rest = spec;
    std::iter::from_fn(move || {
        let (wanted, after) = entry(rest)?;
        rest = after;
        Some(wanted)
    })
}

/// The first entry, and what follows it.
fn entry(spec: &[u8]) -> Option<(Wanted<'_>, &[u8])> {
    let (&name_len, rest) = spec.split_first()?;
    let (name, rest) = rest.split_at_checked(name_len as usize)?;
    let (length, rest) = rest.split_first_chunk::<2>()?;
    match u16::from_le_bytes(*length) {
        ABSENT => Some((Wanted { name, value: None }, rest)),
        length => {
            let (value, rest) = rest.split_at_checked(length as usize)?;
            Some((Wanted { name, value: Some(value) }, rest))
        }
    }
}

/// Whether the fields of `request` of the wanted name, joined, have the wanted value.
fn same(request: &Fields, wanted: Wanted<'_>) -> bool {
    let mut values = request.all(wanted.name);
    let (first, mut rest) = match (values.next(), wanted.value) {
        (None, None) => return true,
        (Some(first), Some(expected)) => (first, expected),
        _ => return false,
    };
    let mut value = Some(first);
    let mut joint: &[u8] = b"";
    while let Some(present) = value {
        let Some(after) = rest.strip_prefix(joint).and_then(|rest| rest.strip_prefix(present)) else {
            return false;
        };
        rest = after;
        joint = JOINT;
        value = values.next();
    }
    rest.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(lines: &[(&str, &str)]) -> Fields {
        let mut fields = Fields::new();
        for (name, value) in lines {
            assert!(fields.push(name.as_bytes(), value.as_bytes()));
        }
        fields
    }

    #[test]
    fn rfc9111_4_1_matching() {
        let vary = of(&[("Vary", "Accept-Language, X-A"), ("vary", "Host,")]);
        let fetched = of(&[("Host", "h"), ("Accept-Language", "de"), ("accept-language", "en")]);
        let spec = build(&vary, &fetched).unwrap();
        assert_eq!(entries(&spec).count(), 3);
        assert!(matches(&spec, &fetched));
        assert!(matches(&spec, &of(&[("accept-LANGUAGE", "de, en"), ("Other", "x"), ("host", "h")])));
        for lines in [
            &[("Host", "h"), ("Accept-Language", "de")][..],
            &[("Host", "h"), ("Accept-Language", "de, e")],
            &[("Host", "h"), ("Accept-Language", "de"), ("Accept-Language", "en"), ("Accept-Language", "")],
            &[("Host", "h")],
            &[("Host", "h"), ("Accept-Language", "de, en"), ("X-A", "")],
            &[("Host", "H"), ("Accept-Language", "de, en")],
        ] {
            assert!(!matches(&spec, &of(lines)), "{lines:?}");
        }
        assert_eq!(build(&of(&[]), &fetched), Ok(vec![]));
        assert_eq!(build(&of(&[("Vary", "")]), &fetched), Ok(vec![]));
        assert!(matches(&[], &fetched));
    }

    #[test]
    fn rfc9111_4_1_specifications_of_the_same_meaning() {
        let vary = of(&[("Vary", "Accept-Language, Foo")]);
        let spec = |lines: &[(&str, &str)]| build(&vary, &of(lines)).unwrap();
        let one = spec(&[("Accept-Language", "en, de;q=0.5"), ("Foo", "1, 2")]);
        assert!(same_meaning(&one, &one));
        assert!(same_meaning(&one, &spec(&[("Accept-Language", "de;q=0.50,EN"), ("Foo", "1,2")])));
        assert!(!same_meaning(&one, &spec(&[("Accept-Language", "en, de;q=0.5"), ("Foo", "2, 1")])));
        assert!(!same_meaning(&one, &spec(&[("Accept-Language", "en, de;q=0.5")])));
        assert!(!same_meaning(&one, &build(&of(&[("Vary", "Foo")]), &of(&[("Foo", "1, 2")])).unwrap()));
        assert!(same_meaning(&spec(&[("Foo", "1")]), &spec(&[("Foo", " 1")])));
    }

    #[test]
    fn rfc9111_4_1_normalised_matching() {
        let vary = of(&[("Vary", "Accept-Language, Foo")]);
        let spec = build(&vary, &of(&[("Accept-Language", "en, de"), ("Foo", "1, 2")])).unwrap();
        let fits = |lines: &[(&str, &str)]| {
            assert!(!matches(&spec, &of(lines)));
            matches_normalised(&spec, &of(lines), None)
        };
        assert!(fits(&[("Accept-Language", "DE,en"), ("Foo", "1,2")]));
        assert!(fits(&[("Accept-Language", "de"), ("Foo", "1"), ("Accept-Language", "en"), ("Foo", "2 ")]));
        assert!(!fits(&[("Accept-Language", "de, en"), ("Foo", "2, 1")]));
        assert!(!fits(&[("Accept-Language", "de, en")]));
        assert!(matches_normalised(&spec, &of(&[("Accept-Language", "en, de"), ("Foo", "1, 2")]), None));
        let absent = build(&vary, &of(&[])).unwrap();
        assert!(matches_normalised(&absent, &of(&[]), None));
        assert!(!matches_normalised(&absent, &of(&[("Foo", "")]), None));
        assert!(!matches_normalised(&spec, &of(&[]), None));
    }

    #[test]
    fn rfc9110_12_5_4_a_response_in_the_language_that_is_wanted_most() {
        let vary = of(&[("Vary", "Accept-Language, Foo")]);
        let spec = build(&vary, &of(&[("Accept-Language", "en, de"), ("Foo", "1")])).unwrap();
        let fits = |lines: &[(&str, &str)], language: &str| {
            matches_normalised(&spec, &of(lines), Some(language.as_bytes()))
        };
        let wants_german = ("Accept-Language", "fr;q=0.5, de");
        assert!(fits(&[wants_german, ("Foo", "1")], "de"));
        assert!(!fits(&[wants_german, ("Foo", "1")], "en"));
        assert!(!fits(&[wants_german, ("Foo", "2")], "de"));
        assert!(!fits(&[("Foo", "1")], "de"));
    }

    #[test]
    fn an_empty_value_is_not_an_absent_one() {
        let spec = build(&of(&[("Vary", "A")]), &of(&[("A", "")])).unwrap();
        assert!(matches(&spec, &of(&[("a", "")])));
        assert!(!matches(&spec, &of(&[])));
    }

    #[test]
    fn rfc9111_4_1_star_and_what_cannot_be_kept() {
        let request = of(&[("Big", &"x".repeat(40_000))]);
        for (vary, why) in [
            ("*", Unusable::Star),
            ("a, *", Unusable::Star),
            ("a b, *", Unusable::Star),
            ("a b", Unusable::Malformed),
            ("\"a\"", Unusable::Malformed),
            ("big", Unusable::TooLong),
            (&"x".repeat(128), Unusable::TooLong),
            (&"x,".repeat(65), Unusable::TooLong),
        ] {
            assert_eq!(build(&of(&[("Vary", vary)]), &request), Err(why), "{vary}");
        }
    }

    proptest! {
        #[test]
        fn what_fetched_it_matches_and_a_change_does_not(
            lines in prop::collection::vec(("[a-c]", "[xy, ]{0,3}"), 0..6),
            extra in "[a-c]",
        ) {
            let lines: Vec<_> = lines.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            let mut request = of(&lines);
            let spec = build(&of(&[("Vary", "A, b")]), &request).unwrap();
            prop_assert!(matches(&spec, &request) && matches_normalised(&spec, &request, None));
            request.push(extra.as_bytes(), b"z");
            prop_assert_eq!(matches(&spec, &request), extra == "c");
        }

        #[test]
        fn any_specification_matches_without_a_panic(spec in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = matches(&spec, &of(&[("A", "b")]));
            let _ = matches_normalised(&spec, &of(&[("A", "b")]), None);
            let _ = entries(&spec).count();
        }
    }
}
