//! Whether a stale response may stand in for an answer that failed, and for how long.
//!
//! Source: RFC 5861, section 4; RFC 9111, section 4.2.4.

use crate::policy::Policy;
use crate::request::Directives;
use copal_base::Seconds;

/// For how long beyond its freshness a response with this policy may be used where an error is what the origin gives, by
/// its own word, or by `default` where it has none; 0 is not at all.
///
/// A response that must not be used stale (`must-revalidate`, `proxy-revalidate`, `s-maxage`, `no-cache`) has nothing.
pub fn granted(policy: &Policy, default: Seconds) -> Seconds {
    if policy.forbids_stale() {
        return 0.0;
    }
    policy.stale_if_error.map_or(default.max(0.0), f64::from)
}

/// As [`granted`], for a request with these directives: it may ask for more time with a `stale-if-error` of its own. `None` if
/// it wants nothing that is not validated (`no-cache`), fresh or not, and does not say that an error is another matter.
pub fn granted_to(directives: &Directives, policy: &Policy, default: Seconds) -> Option<Seconds> {
    let own = directives.stale_if_error.map(f64::from);
    if directives.no_cache && own.is_none() {
        return None;
    }
    let own = own.filter(|_| !policy.forbids_stale());
    Some(granted(policy, default).max(own.unwrap_or(0.0)))
}

/// Whether an answer of that status is one of the errors that a stale response may stand in for (RFC 5861, section 4).
pub fn is_error(status: u16) -> bool {
    matches!(status, 500 | 502 | 503 | 504)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::targeted::Names;
    use copal_wire::{Fields, Known};

    fn control(value: &str) -> Fields {
        let mut fields = Fields::new();
        if !value.is_empty() {
            fields.push_known(Known::CacheControl, value.as_bytes());
        }
        fields
    }

    fn check(stored: &str, request: &str, expected: Option<Seconds>) {
        let policy = Policy::of(&control(stored), Names::standard());
        let got = granted_to(&Directives::of(&control(request)), &policy, 7.0);
        let same = match (got, expected) {
            (Some(got), Some(expected)) => (got - expected).abs() < 1e-9,
            (got, expected) => got.is_none() && expected.is_none(),
        };
        assert!(same, "{stored:?} asked for with {request:?}: {got:?}");
    }

    #[test]
    fn rfc5861_4_the_response_or_the_request_says_how_long() {
        check("max-age=1", "", Some(7.0));
        check("max-age=1, stale-if-error=60", "", Some(60.0));
        check("max-age=1, stale-if-error=0", "", Some(0.0));
        check("max-age=1, stale-if-error=60", "stale-if-error=10", Some(60.0));
        check("max-age=1, stale-if-error=10", "stale-if-error=60", Some(60.0));
        check("max-age=1, stale-if-error=x", "", Some(0.0));
        check("max-age=1, stale-if-error=60", "max-age=0", Some(60.0));
    }

    #[test]
    fn rfc9111_4_2_4_what_must_not_be_stale_never_is() {
        for forbidden in ["must-revalidate", "proxy-revalidate", "s-maxage=1", "no-cache"] {
            check(&format!("stale-if-error=60, {forbidden}"), "", Some(0.0));
            check(forbidden, "stale-if-error=60", Some(0.0));
        }
    }

    #[test]
    fn rfc9111_5_2_1_4_a_request_that_wants_validation_gets_no_stale_response() {
        check("max-age=1, stale-if-error=60", "no-cache", None);
        check("max-age=1, stale-if-error=60", "no-cache, stale-if-error=5", Some(60.0));
    }

    #[test]
    fn errors_are_those_of_the_origin_and_of_gateways() {
        let errors: Vec<u16> = (100..=599).filter(|&status| is_error(status)).collect();
        assert_eq!(errors, [500, 502, 503, 504]);
    }
}
