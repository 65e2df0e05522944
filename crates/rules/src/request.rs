//! What a client says about caching in its request.
//!
//! Source: RFC 9111, sections 5.2.1 and 5.4; RFC 5861, section 4.

use crate::cache_control::DELTA_MAX;
use crate::directive::{self, Argument};
use copal_wire::{Fields, Known, syntax};

/// The directives of a request. A number that is none counts as 0, of several the most demanding one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Directives {
    /// Not without asking the origin: `no-cache`, or `Pragma: no-cache` where there is no Cache-Control.
    pub no_cache: bool,
    /// Neither the request nor its response is to be stored; what is stored may be used.
    pub no_store: bool,
    /// From the cache or not at all: else 504.
    pub only_if_cached: bool,
    /// Not older than this, in seconds.
    pub max_age: Option<u32>,
    /// Stale by no more than this, in seconds; [`DELTA_MAX`] without an argument.
    pub max_stale: Option<u32>,
    /// Fresh for at least this much longer, in seconds.
    pub min_fresh: Option<u32>,
    /// Stale by no more than this, in seconds, if the origin fails.
    pub stale_if_error: Option<u32>,
}

impl Directives {
    /// Reads Cache-Control of `request`, or Pragma without it.
    #[inline]
    pub fn of(request: &Fields) -> Self {
        if request.has_known(Known::CacheControl) {
            Self::by_cache_control(request)
        } else if request.has_known(Known::Pragma) {
            let no_cache = request
                .all_known(Known::Pragma)
                .flat_map(syntax::tokens)
                .any(|token| token.eq_ignore_ascii_case(b"no-cache"));
            Self { no_cache, ..Self::default() }
        } else {
            Self::default()
        }
    }

    /// Whether the request asks for nothing special.
    #[inline]
    pub fn is_plain(&self) -> bool {
        *self == Self::default()
    }

    fn by_cache_control(request: &Fields) -> Self {
        let mut all = Self::default();
        for directive in directive::all(request) {
            all.take(directive.name, directive.argument);
        }
        all
    }

    fn take(&mut self, name: &[u8], argument: Argument<'_>) {
        let is = |wanted: &[u8]| name.eq_ignore_ascii_case(wanted);
        let seconds = argument.seconds();
        let smaller = |old: Option<u32>, new: u32| Some(old.map_or(new, |old| old.min(new)));
        if is(b"no-cache") {
            self.no_cache = true;
        } else if is(b"no-store") {
            self.no_store = true;
        } else if is(b"only-if-cached") {
            self.only_if_cached = true;
        } else if is(b"max-age") {
            self.max_age = smaller(self.max_age, seconds);
        } else if is(b"min-fresh") {
            self.min_fresh = self.min_fresh.max(Some(seconds));
        } else if is(b"max-stale") {
            let any = argument == Argument::None;
            self.max_stale = smaller(self.max_stale, if any { DELTA_MAX } else { seconds });
        } else if is(b"stale-if-error") {
            self.stale_if_error = smaller(self.stale_if_error, seconds);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(lines: &[(&str, &str)], expected: Directives) {
        let mut fields = Fields::new();
        for (name, value) in lines {
            assert!(fields.push(name.as_bytes(), value.as_bytes()));
        }
        let found = Directives::of(&fields);
        assert_eq!(found, expected, "{lines:?}");
        assert_eq!(found.is_plain(), expected == Directives::default());
    }

    fn cc(value: &str, expected: Directives) {
        check(&[("Cache-Control", value)], expected);
    }

    #[test]
    fn rfc9111_5_2_1_directives() {
        let none = Directives::default();
        check(&[], none);
        cc("x, y=1, no-transform", none);
        cc("No-Cache, no-store", Directives { no_cache: true, no_store: true, ..none });
        cc("no-cache=\"x\"", Directives { no_cache: true, ..none });
        cc("only-if-cached, max-age=0", Directives { only_if_cached: true, max_age: Some(0), ..none });
        cc("MAX-AGE=\"60\", min-fresh=5", Directives { max_age: Some(60), min_fresh: Some(5), ..none });
        cc("stale-if-error=9", Directives { stale_if_error: Some(9), ..none });
        check(
            &[("Cache-Control", "max-age=1"), ("cache-control", "max-stale=2")],
            Directives { max_age: Some(1), max_stale: Some(2), ..none },
        );
    }

    #[test]
    fn rfc9111_5_2_1_2_max_stale_without_an_argument() {
        let none = Directives::default();
        cc("max-stale", Directives { max_stale: Some(DELTA_MAX), ..none });
        cc("max-stale, max-stale=5", Directives { max_stale: Some(5), ..none });
        cc("max-stale=x", Directives { max_stale: Some(0), ..none });
    }

    #[test]
    fn rfc9111_5_2_1_odd_and_repeated_numbers() {
        let none = Directives::default();
        for value in ["max-age", "max-age=", "max-age=-1", "max-age=x", "max-age =9", "max-age=9, max-age=0"]
        {
            cc(value, Directives { max_age: Some(0), ..none });
        }
        cc("min-fresh=1, min-fresh=7, min-fresh=3", Directives { min_fresh: Some(7), ..none });
    }

    #[test]
    fn rfc9111_5_4_pragma_without_cache_control() {
        let none = Directives::default();
        check(&[("Pragma", "x, No-Cache")], Directives { no_cache: true, ..none });
        check(&[("Pragma", "no-cachex")], none);
        check(
            &[("Pragma", "no-cache"), ("Cache-Control", "max-stale=5")],
            Directives { max_stale: Some(5), ..none },
        );
    }
}
