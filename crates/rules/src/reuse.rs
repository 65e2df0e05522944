//! Whether a stored response may answer a request without asking the origin.
//!
//! What VCL made of the times counts, not what the response says: the stored head is only asked whether it forbids what a
//! client would permit.
//!
//! Source: RFC 9111, sections 4, 4.2.4 and 5.2.1; RFC 5861.

use crate::policy::Policy;
use crate::request::Directives;
use crate::targeted::Names;
use copal_base::Seconds;
use copal_wire::Fields;
use std::fmt;

/// A stored response that fits the request.
#[derive(Debug, Clone, Copy)]
pub struct Stored<'a> {
    /// Seconds since the origin made it.
    pub age: Seconds,
    /// Seconds that it is fresh, from when the origin made it.
    pub ttl: Seconds,
    /// Seconds after that it may be used while a new one is fetched.
    pub grace: Seconds,
    /// Its stored head.
    pub fields: &'a Fields,
    /// The targeted fields that are obeyed.
    pub targets: &'a Names,
}

/// What can be done with a stored response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reuse {
    /// It is the answer.
    Fresh,
    /// It is the answer although it is stale.
    Stale(Allowed),
    /// The origin must be asked first.
    Validate(Why),
}

/// Who allows a stale response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Allowed {
    /// The response (`stale-while-revalidate`) or VCL: a new one is fetched meanwhile.
    Grace,
    /// The client: `max-stale`.
    MaxStale,
}

/// Why the origin must be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Why {
    /// It is stale and nobody allows that.
    Stale,
    /// The client said `no-cache`.
    NoCache,
    /// It is older than the client's `max-age`.
    MaxAge,
    /// It is not fresh for as long as the client's `min-fresh` wants.
    MinFresh,
}

impl Allowed {
    /// In words, for the log.
    pub const fn as_str(self) -> &'static str {
        match self {
            Allowed::Grace => "stale, within grace",
            Allowed::MaxStale => "stale, within max-stale of the request",
        }
    }
}

impl Why {
    /// In words, for the log.
    pub const fn as_str(self) -> &'static str {
        match self {
            Why::Stale => "stale",
            Why::NoCache => "no-cache in the request",
            Why::MaxAge => "older than max-age of the request",
            Why::MinFresh => "not as fresh as min-fresh of the request",
        }
    }
}

impl fmt::Display for Allowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Whether `stored` may answer a request with these directives. `only-if-cached` is for the caller: with
/// [`Reuse::Validate`] the answer is then 504.
///
/// A client that names an age or a freshness wants nothing stale, unless it names `max-stale`, too; grace is for those
/// that name nothing.
///
/// Source: RFC 9111, sections 4.2 and 5.2.1; RFC 5861, section 3.
pub fn reuse(directives: &Directives, stored: &Stored<'_>) -> Reuse {
    if directives.no_cache {
        return Reuse::Validate(Why::NoCache);
    }
    if directives.max_age.is_some_and(|most| stored.age > f64::from(most)) {
        return Reuse::Validate(Why::MaxAge);
    }
    let fresh_for = stored.ttl - stored.age;
    if let Some(least) = directives.min_fresh {
        return if fresh_for > 0.0 && fresh_for >= f64::from(least) {
            Reuse::Fresh
        } else {
            Reuse::Validate(Why::MinFresh)
        };
    }
    if fresh_for > 0.0 {
        return Reuse::Fresh;
    }
    if directives.max_age.is_none() && fresh_for + stored.grace > 0.0 {
        return Reuse::Stale(Allowed::Grace);
    }
    if directives.max_stale.is_some_and(|most| -fresh_for <= f64::from(most)) && may_be_stale(stored) {
        return Reuse::Stale(Allowed::MaxStale);
    }
    Reuse::Validate(Why::Stale)
}

/// Whether the response leaves it to others to allow that it is used stale.
///
/// Source: RFC 9111, section 4.2.4.
pub fn may_be_stale(stored: &Stored<'_>) -> bool {
    !Policy::of(stored.fields, stored.targets).forbids_stale()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache_control::DELTA_MAX;
    use proptest::prelude::*;

    const PLAIN: Directives = Directives {
        no_cache: false,
        no_store: false,
        only_if_cached: false,
        max_age: None,
        max_stale: None,
        min_fresh: None,
        stale_if_error: None,
    };

    fn head(cache_control: &str) -> Fields {
        let mut fields = Fields::new();
        assert!(fields.push(b"Cache-Control", cache_control.as_bytes()));
        fields
    }

    /// Age, ttl and grace of the stored response, and what it says.
    fn check(
        directives: Directives,
        (age, ttl, grace): (Seconds, Seconds, Seconds),
        says: &str,
        expected: Reuse,
    ) {
        let fields = head(says);
        let stored = Stored { age, ttl, grace, fields: &fields, targets: Names::standard() };
        assert_eq!(reuse(&directives, &stored), expected, "{directives:?} {age} {ttl} {grace} {says}");
    }

    #[test]
    fn rfc9111_4_2_fresh_while_younger_than_its_lifetime() {
        check(PLAIN, (5.0, 10.0, 0.0), "", Reuse::Fresh);
        check(PLAIN, (10.0, 10.0, 0.0), "", Reuse::Validate(Why::Stale));
        check(PLAIN, (0.0, 0.0, 0.0), "", Reuse::Validate(Why::Stale));
        // VCL has the last word.
        check(PLAIN, (5.0, 10.0, 0.0), "no-cache, must-revalidate", Reuse::Fresh);
        check(PLAIN, (15.0, 10.0, 10.0), "must-revalidate", Reuse::Stale(Allowed::Grace));
    }

    #[test]
    fn rfc5861_3_stale_while_revalidate() {
        check(PLAIN, (15.0, 10.0, 10.0), "", Reuse::Stale(Allowed::Grace));
        check(PLAIN, (20.0, 10.0, 10.0), "", Reuse::Validate(Why::Stale));
    }

    #[test]
    fn rfc9111_5_2_1_1_max_age() {
        let wants = |seconds| Directives { max_age: Some(seconds), ..PLAIN };
        check(wants(5), (5.0, 10.0, 0.0), "", Reuse::Fresh);
        check(wants(4), (5.0, 10.0, 0.0), "", Reuse::Validate(Why::MaxAge));
        check(wants(0), (0.5, 10.0, 0.0), "", Reuse::Validate(Why::MaxAge));
        check(wants(DELTA_MAX), (5.0, 10.0, 0.0), "", Reuse::Fresh);
        check(wants(60), (15.0, 10.0, 10.0), "", Reuse::Validate(Why::Stale));
    }

    #[test]
    fn rfc9111_5_2_1_2_max_stale() {
        let allows = |seconds| Directives { max_stale: Some(seconds), ..PLAIN };
        check(allows(5), (15.0, 10.0, 0.0), "max-age=10", Reuse::Stale(Allowed::MaxStale));
        check(allows(4), (15.0, 10.0, 0.0), "max-age=10", Reuse::Validate(Why::Stale));
        check(allows(5), (5.0, 10.0, 0.0), "", Reuse::Fresh);
        for says in ["must-revalidate", "proxy-revalidate", "s-maxage=10", "no-cache"] {
            check(allows(DELTA_MAX), (15.0, 10.0, 0.0), says, Reuse::Validate(Why::Stale));
        }
        let both = Directives { max_age: Some(20), ..allows(10) };
        check(both, (15.0, 10.0, 0.0), "", Reuse::Stale(Allowed::MaxStale));
        check(both, (25.0, 20.0, 0.0), "", Reuse::Validate(Why::MaxAge));
    }

    #[test]
    fn rfc9111_5_2_1_3_min_fresh() {
        let wants = |seconds| Directives { min_fresh: Some(seconds), ..PLAIN };
        check(wants(5), (5.0, 10.0, 0.0), "", Reuse::Fresh);
        check(wants(6), (5.0, 10.0, 0.0), "", Reuse::Validate(Why::MinFresh));
        check(wants(0), (15.0, 10.0, 10.0), "", Reuse::Validate(Why::MinFresh));
    }

    #[test]
    fn rfc9111_5_2_1_4_no_cache() {
        let directives = Directives { no_cache: true, max_stale: Some(9), ..PLAIN };
        check(directives, (5.0, 10.0, 10.0), "immutable", Reuse::Validate(Why::NoCache));
    }

    proptest! {
        #[test]
        fn rfc9111_4_2_4_nothing_stale_without_permission(
            age in 0.0..100.0, ttl in 0.0..50.0,
            max_age in prop::option::of(0u32..100), min_fresh in prop::option::of(0u32..50),
        ) {
            let directives = Directives { max_age, min_fresh, ..PLAIN };
            let fields = head("max-age=1");
            let stored = Stored { age, ttl, grace: 0.0, fields: &fields, targets: Names::standard() };
            match reuse(&directives, &stored) {
                Reuse::Fresh => {
                    prop_assert!(age < ttl);
                    prop_assert!(max_age.is_none_or(|most| age <= f64::from(most)));
                    prop_assert!(min_fresh.is_none_or(|least| ttl - age >= f64::from(least)));
                }
                Reuse::Validate(_) => {}
                Reuse::Stale(_) => prop_assert!(false),
            }
        }
    }
}
