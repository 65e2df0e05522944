//! What the sender of a response says about its caching: one reading of Cache-Control, or of the targeted field that stands
//! in its place, for all who ask.
//!
//! What forbids counts however badly it is written; what permits counts only as it is defined.
//!
//! Source: RFC 9111, sections 4.2.1 and 5.2.2; RFC 5861; RFC 9213, section 2.

use crate::directive::{self, Argument};
use crate::targeted::{self, Names};
use copal_wire::{Fields, syntax};

/// Most names of fields that one response can have left out; with more it counts as if none were named.
const LEFT_OUT_MAX: usize = 64;

/// The directives that decide. A number that stands twice has the smaller of its values, one that is no number is 0.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Policy {
    /// It comes from a targeted field: Cache-Control and Expires say nothing.
    pub targeted: bool,
    /// `no-store`
    pub no_store: bool,
    /// `no-cache` without names of fields.
    pub no_cache: bool,
    /// `private` without names of fields.
    pub private: bool,
    /// `public`
    pub public: bool,
    /// `must-revalidate`
    pub must_revalidate: bool,
    /// `proxy-revalidate`
    pub proxy_revalidate: bool,
    /// `must-understand`
    pub must_understand: bool,
    /// `s-maxage`, seconds.
    pub s_maxage: Option<u32>,
    /// `max-age`, seconds.
    pub max_age: Option<u32>,
    /// `stale-while-revalidate`, seconds.
    pub stale_while_revalidate: Option<u32>,
    /// `stale-if-error`, seconds.
    pub stale_if_error: Option<u32>,
    /// The fields that `private="..."` and `no-cache="..."` name, in lower case: without them the response may be stored
    /// by a shared cache.
    pub left_out: Vec<Vec<u8>>,
}

impl Policy {
    /// What `response` says: by the first of the targeted fields `names` that is valid and not empty, else by
    /// Cache-Control.
    pub fn of(response: &Fields, names: &Names) -> Self {
        let mut policy = Self::default();
        if targeted::read(response, names, |name, argument| policy.take(name, argument)) {
            policy.targeted = true;
            return policy;
        }
        for directive in directive::all(response) {
            let mut lower = [0; 24];
            let Some(lower) = lower.get_mut(..directive.name.len()) else { continue };
            lower.copy_from_slice(directive.name);
            lower.make_ascii_lowercase();
            policy.take(lower, directive.argument);
        }
        policy
    }

    /// Whether a stale response may not be served without asking, whoever would permit it.
    ///
    /// Source: RFC 9111, sections 4.2.4 and 5.2.2.10.
    pub fn forbids_stale(&self) -> bool {
        self.no_cache || self.must_revalidate || self.proxy_revalidate || self.s_maxage.is_some()
    }

    /// Whether a response to a request with Authorization may serve others.
    ///
    /// Source: RFC 9111, section 3.5.
    pub fn allows_authorized(&self) -> bool {
        self.must_revalidate || self.public || self.s_maxage.is_some()
    }

    /// `name` is in lower case.
    fn take(&mut self, name: &[u8], argument: Argument<'_>) {
        let seconds = argument.seconds();
        let shorter = |old: Option<u32>| Some(old.map_or(seconds, |old| old.min(seconds)));
        match name {
            b"no-store" => self.no_store = true,
            b"no-cache" => self.no_cache |= !self.leave_out(argument),
            b"private" => self.private |= !self.leave_out(argument),
            b"must-revalidate" => self.must_revalidate = true,
            b"proxy-revalidate" => self.proxy_revalidate = true,
            b"public" => self.public |= argument == Argument::None,
            b"must-understand" => self.must_understand |= argument == Argument::None,
            b"max-age" => self.max_age = shorter(self.max_age),
            b"s-maxage" => self.s_maxage = shorter(self.s_maxage),
            b"stale-while-revalidate" => self.stale_while_revalidate = shorter(self.stale_while_revalidate),
            b"stale-if-error" => self.stale_if_error = shorter(self.stale_if_error),
            _ => {}
        }
    }

    /// Notes the fields that `argument` names; `false` if it names none, or none that can be understood.
    fn leave_out(&mut self, argument: Argument<'_>) -> bool {
        let Argument::Text(list) = argument else { return false };
        let mut names = syntax::tokens(list).peekable();
        if names.peek().is_none() || !syntax::tokens(list).all(copal_wire::valid_name) {
            return false;
        }
        for name in names {
            let name = name.to_ascii_lowercase();
            if !self.left_out.contains(&name) {
                if self.left_out.len() == LEFT_OUT_MAX {
                    return false;
                }
                self.left_out.push(name);
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(lines: &[(&str, &str)]) -> Policy {
        let mut fields = Fields::new();
        for (name, value) in lines {
            assert!(fields.push(name.as_bytes(), value.as_bytes()));
        }
        Policy::of(&fields, &Names::default())
    }

    fn cc(value: &str) -> Policy {
        of(&[("Cache-Control", value)])
    }

    #[test]
    fn rfc9111_5_2_names_have_no_case_and_unknown_ones_no_meaning() {
        let expected = Policy { no_store: true, public: true, max_age: Some(60), ..Policy::default() };
        assert_eq!(cc("MAX-AGE=60, Public, foo=\"a, no-cache\", No-Store, community=\"x\""), expected);
        assert_eq!(of(&[("Cache-Control", "max-age=60, public"), ("cache-control", "no-store")]), expected);
        assert_eq!(cc("xmax-age=1, max-agex=1, a-directive-that-is-longer-than-any=1"), Policy::default());
    }

    #[test]
    fn rfc9111_4_2_1_the_shorter_wins_and_what_is_invalid_is_zero() {
        for value in [
            "max-age",
            "max-age=",
            "max-age=-1",
            "max-age=a",
            "max-age=1.5",
            "max-age =60",
            "max-age= 60",
            "max-age='60'",
            "max-age=\"60",
            "max-age=60s",
            "max-age=60, max-age=x",
        ] {
            assert_eq!(cc(value).max_age, Some(0), "{value}");
        }
        assert_eq!(cc("max-age=\"60\"").max_age, Some(60));
        assert_eq!(cc("max-age=60, max-age=10").max_age, Some(10));
        assert_eq!(cc("max-age=10, max-age=60").max_age, Some(10));
        assert_eq!(cc("s-maxage=99999999999").s_maxage, Some(crate::cache_control::DELTA_MAX));
    }

    #[test]
    fn rfc9111_5_2_2_what_forbids_counts_and_what_permits_must_be_right() {
        let policy =
            cc("no-store=1, must-revalidate=\"x\", proxy-revalidate=?0, public=1, must-understand=x");
        assert!(policy.no_store && policy.must_revalidate && policy.proxy_revalidate);
        assert!(!policy.public && !policy.must_understand);
    }

    #[test]
    fn rfc9111_5_2_2_4_and_7_names_of_fields() {
        let policy = cc("private=\"Set-Cookie, X-A\", no-cache=x-a, max-age=5");
        assert!(!policy.private && !policy.no_cache);
        assert_eq!(policy.left_out, [b"set-cookie".to_vec(), b"x-a".to_vec()]);
        for value in
            ["private", "private=\"\"", "private=\"a b\"", "private=\"a", "private=\",\"", "private=5"]
        {
            assert!(cc(value).private, "{value}");
        }
        assert!(cc("private=\"a\", private").private);
        let many: Vec<String> = (0..65).map(|number| format!("a{number}")).collect();
        assert!(cc(&format!("no-cache=\"{}\"", many.join(","))).no_cache);
    }

    #[test]
    fn rfc9111_4_2_4_who_forbids_stale() {
        for value in ["no-cache", "must-revalidate", "proxy-revalidate", "s-maxage=5"] {
            assert!(cc(value).forbids_stale(), "{value}");
        }
        assert!(!cc("max-age=5, public, no-cache=\"a\"").forbids_stale());
    }

    #[test]
    fn rfc9111_3_5_who_allows_authorization() {
        for value in ["public", "must-revalidate", "s-maxage=5"] {
            assert!(cc(value).allows_authorized(), "{value}");
        }
        assert!(!cc("max-age=5, proxy-revalidate, no-cache").allows_authorized());
    }

    #[test]
    fn rfc9213_2_2_a_targeted_field_alone_decides() {
        let policy = of(&[("CDN-Cache-Control", "max-age=60"), ("Cache-Control", "no-store, max-age=1")]);
        assert_eq!(policy, Policy { targeted: true, max_age: Some(60), ..Policy::default() });
        let policy = of(&[("CDN-Cache-Control", "max-age=60,"), ("Cache-Control", "no-store")]);
        assert!(policy.no_store && !policy.targeted);
    }
}
