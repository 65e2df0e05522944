//! Cache-Control: a list of directives, each a name with or without an argument.
//!
//! Source: RFC 9111, section 5.2; RFC 5861; RFC 8246.

use copal_wire::{Fields, Known, syntax};

/// The largest delta-seconds: what does not fit counts as this.
///
/// Source: RFC 9111, section 1.2.2.
pub const DELTA_MAX: u32 = 1 << 31;

/// One element of the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Directive<'a> {
    /// As written, in any case, without white space.
    pub name: &'a [u8],
    /// What stands after `=`; without the quotes if it is quoted, escapes kept.
    pub argument: Option<&'a [u8]>,
}

/// The directives of all Cache-Control fields of a request or response, those that nobody here knows left out.
///
/// A directive that occurs twice has the more cautious of its values. An argument that is no number counts as 0 where a
/// large value would mean "reuse longer" (RFC 9111, section 4.2.1: invalid freshness is stale).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CacheControl {
    /// `no-store`
    pub no_store: bool,
    /// `no-cache`, with or without field names.
    pub no_cache: bool,
    /// `private`, with or without field names.
    pub private: bool,
    /// `public`
    pub public: bool,
    /// `must-revalidate`
    pub must_revalidate: bool,
    /// `proxy-revalidate`
    pub proxy_revalidate: bool,
    /// `must-understand`
    pub must_understand: bool,
    /// `no-transform`
    pub no_transform: bool,
    /// `immutable`
    pub immutable: bool,
    /// `only-if-cached`
    pub only_if_cached: bool,
    /// `max-age`, seconds.
    pub max_age: Option<u32>,
    /// `s-maxage`, seconds.
    pub s_maxage: Option<u32>,
    /// `min-fresh`, seconds; the largest if there are several.
    pub min_fresh: Option<u32>,
    /// `max-stale`, seconds; [`DELTA_MAX`] without an argument.
    pub max_stale: Option<u32>,
    /// `stale-while-revalidate`, seconds.
    pub stale_while_revalidate: Option<u32>,
    /// `stale-if-error`, seconds.
    pub stale_if_error: Option<u32>,
}

impl CacheControl {
    /// Reads all Cache-Control fields of a message.
    pub fn of(fields: &Fields) -> Self {
        let mut all = Self::default();
        for directive in fields.all_known(Known::CacheControl).flat_map(directives) {
            all.take(directive);
        }
        all
    }

    fn take(&mut self, directive: Directive<'_>) {
        let seconds = directive.argument.and_then(delta_seconds).unwrap_or(0);
        let shorter = |old: Option<u32>| Some(old.map_or(seconds, |old| old.min(seconds)));
        let mut name = [0; 24];
        let Some(name) = name.get_mut(..directive.name.len()) else { return };
        name.copy_from_slice(directive.name);
        name.make_ascii_lowercase();
        match &*name {
            b"no-store" => self.no_store = true,
            b"no-cache" => self.no_cache = true,
            b"private" => self.private = true,
            b"public" => self.public = true,
            b"must-revalidate" => self.must_revalidate = true,
            b"proxy-revalidate" => self.proxy_revalidate = true,
            b"must-understand" => self.must_understand = true,
            b"no-transform" => self.no_transform = true,
            b"immutable" => self.immutable = true,
            b"only-if-cached" => self.only_if_cached = true,
            b"max-age" => self.max_age = shorter(self.max_age),
            b"s-maxage" => self.s_maxage = shorter(self.s_maxage),
            b"stale-while-revalidate" => self.stale_while_revalidate = shorter(self.stale_while_revalidate),
            b"stale-if-error" => self.stale_if_error = shorter(self.stale_if_error),
            b"min-fresh" => self.min_fresh = self.min_fresh.max(Some(seconds)),
            b"max-stale" => {
                let seconds = if directive.argument.is_none() { DELTA_MAX } else { seconds };
                self.max_stale = Some(self.max_stale.map_or(seconds, |old| old.min(seconds)));
            }
            _ => {}
        }
    }
}

/// The directives of one field value. A comma in a quoted argument separates nothing. White space around `=` is not
/// allowed; such a directive has an empty argument, which is no number.
pub fn directives(value: &[u8]) -> impl Iterator<Item = Directive<'_>> {
    let mut rest = value;
    std::iter::from_fn(move || {
        while !rest.is_empty() {
            let end = element_end(rest);
            let element = syntax::trim(&rest[..end]);
            rest = rest.get(end + 1..).unwrap_or_default();
            if !element.is_empty() {
                return Some(directive(element));
            }
        }
        None
    })
}

fn directive(element: &[u8]) -> Directive<'_> {
    let Some(equals) = element.iter().position(|&byte| byte == b'=') else {
        return Directive { name: element, argument: None };
    };
    let (name, argument) = (&element[..equals], &element[equals + 1..]);
    let trimmed = syntax::trim(name);
    let argument = match argument {
        _ if trimmed.len() != name.len() => b"",
        [b'"', inner @ .., b'"'] => inner,
        plain => plain,
    };
    Directive { name: trimmed, argument: Some(argument) }
}

/// Where the first comma outside quotes is, else the end.
fn element_end(list: &[u8]) -> usize {
    let (mut quoted, mut escaped) = (false, false);
    for (at, &byte) in list.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b',' if !quoted => return at,
            _ => {}
        }
    }
    list.len()
}

/// A number of seconds, at most [`DELTA_MAX`]. A fraction is cut off, as Varnish does. `None` if it is no number; a
/// negative one is none.
///
/// Source: RFC 9111, section 1.2.2.
pub fn delta_seconds(text: &[u8]) -> Option<u32> {
    let text = syntax::trim(text);
    let whole = match text.iter().position(|&byte| byte == b'.') {
        Some(dot) if text[dot + 1..].iter().all(u8::is_ascii_digit) => &text[..dot],
        Some(_) => return None,
        None => text,
    };
    if whole.is_empty() || !whole.iter().all(u8::is_ascii_digit) {
        return None;
    }
    // All digits, so what does not parse is too large.
    let seconds = syntax::parse_digits(whole).unwrap_or(u64::MAX);
    Some(seconds.min(u64::from(DELTA_MAX)) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(lines: &[&str]) -> CacheControl {
        let mut fields = Fields::new();
        for line in lines {
            assert!(fields.push_known(Known::CacheControl, line.as_bytes()));
        }
        CacheControl::of(&fields)
    }

    #[test]
    fn rfc9111_5_2_names_have_no_case_and_fields_add_up() {
        let all = of(&["max-age=60, Public", "No-Store,,PRIVATE=\"x, y\"", "foo=\"a, no-cache\""]);
        assert_eq!(
            all,
            CacheControl {
                no_store: true,
                private: true,
                public: true,
                max_age: Some(60),
                ..Default::default()
            }
        );
    }

    #[test]
    fn rfc9111_1_2_2_delta_seconds() {
        for (text, seconds) in [
            ("60", Some(60)),
            ("060", Some(60)),
            ("0", Some(0)),
            ("60.7", Some(60)),
            ("2147483648", Some(DELTA_MAX)),
            ("99999999999999999999999", Some(DELTA_MAX)),
            ("", None),
            ("-1", None),
            ("+1", None),
            ("1e3", None),
            ("1 2", None),
            ("0x10", None),
            ("60s", None),
            (".5", None),
            ("1.x", None),
        ] {
            assert_eq!(delta_seconds(text.as_bytes()), seconds, "{text}");
        }
    }

    #[test]
    fn rfc9111_4_2_1_what_is_invalid_is_stale_and_the_shorter_wins() {
        for line in
            ["max-age", "max-age=", "max-age=-1", "max-age=a", "max-age =60", "max-age= \"6", "max-age='60'"]
        {
            assert_eq!(of(&[line]).max_age, Some(0), "{line}");
        }
        assert_eq!(of(&["max-age=\"60\""]).max_age, Some(60));
        assert_eq!(of(&["max-age=60, max-age=10"]).max_age, Some(10));
        assert_eq!(of(&["max-age=10", "max-age=60"]).max_age, Some(10));
        assert_eq!(of(&["xmax-age=10"]).max_age, None);
        assert_eq!(of(&["max-stale"]).max_stale, Some(DELTA_MAX));
        assert_eq!(of(&["max-stale=5, min-fresh=1, min-fresh=2"]).max_stale, Some(5));
        assert_eq!(of(&["stale-while-revalidate=30"]).stale_while_revalidate, Some(30));
    }

    proptest! {
        #[test]
        fn any_value_parses_without_a_panic(value in "[a-z=\", \\\\]{0,60}") {
            let _ = directives(value.as_bytes()).count();
            let _ = of(&[value.as_str()]);
        }
    }
}
