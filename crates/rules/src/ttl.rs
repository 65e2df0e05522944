//! How long a response is fresh, by Varnish's default rules.
//!
//! ```text
//! received - Age        received                + ttl           + grace          + keep
//!    t_origin ─────────────┼───── fresh ──────────┼──── stale ─────┼─ conditional ─┼ gone
//! ```
//! The first of `s-maxage`, `max-age`, `Expires` and the default wins. A cache in front of the server is not a cache of
//! strangers: clock skew between the two does not forbid caching, Expires is then taken relative to Date.

use crate::cache_control::{self, CacheControl};
use copal_base::{Seconds, Time};
use copal_wire::{Fields, Known, date};

/// The parameters that take part, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Defaults {
    /// `default_ttl`
    pub ttl: Seconds,
    /// `default_grace`
    pub grace: Seconds,
    /// `default_keep`
    pub keep: Seconds,
    /// `clock_skew`: how far Date may be from our clock for Expires to be taken by our clock.
    pub clock_skew: Seconds,
    /// Follow RFC 9111 where Varnish does not: an Expires that is no date is in the past (section 5.3), not absent.
    pub rfc: bool,
}

impl Default for Defaults {
    /// Varnish's.
    fn default() -> Self {
        Self { ttl: 120.0, grace: 10.0, keep: 0.0, clock_skew: 10.0, rfc: false }
    }
}

/// What the rules give, and what they gave it from (the log has it all).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Lifetime {
    /// Seconds from `t_origin` the response is fresh. -1: not cacheable unless VCL says otherwise.
    pub ttl: Seconds,
    /// Seconds after that it may be served while a new one is fetched.
    pub grace: Seconds,
    /// Seconds after that it is kept for conditional requests.
    pub keep: Seconds,
    /// When the origin made it: reception less Age.
    pub t_origin: Time,
    /// Age as received, in seconds; 0 without.
    pub age: u32,
    /// Date as received; 0 without, or if it is no date.
    pub date: Time,
    /// Expires as received; 0 without, or if it is no date.
    pub expires: Time,
    /// The `s-maxage` or `max-age` that decided, else 0.
    pub max_age: u32,
}

/// The lifetime of a response with `status` and `response` fields that was received at `now`.
///
/// The default applies to 200, 203, 204, 300, 301, 304, 404, 410 and 414. 302 and 307 need an explicit lifetime. All
/// others are not cacheable. For a pass the caller takes `t_origin` alone.
///
/// Source: Varnish 7.1, `cache_rfc2616.c`; RFC 9111, section 4.2; RFC 5861, section 3.
pub fn lifetime(status: u16, response: &Fields, now: Time, defaults: &Defaults) -> Lifetime {
    let age = response.get_known(Known::Age).map_or(0, age);
    let mut lifetime = Lifetime {
        ttl: -1.0,
        grace: defaults.grace,
        keep: defaults.keep,
        t_origin: now - f64::from(age),
        age,
        date: response.get_known(Known::Date).and_then(date::parse_exact).unwrap_or(0.0),
        expires: response.get_known(Known::Expires).and_then(date::parse_exact).unwrap_or(0.0),
        max_age: 0,
    };
    let fallback = match status {
        200 | 203 | 204 | 300 | 301 | 304 | 404 | 410 | 414 => defaults.ttl,
        302 | 307 => -1.0,
        _ => return lifetime,
    };
    let control = CacheControl::of(response);
    lifetime.ttl = if let Some(seconds) = control.s_maxage.or(control.max_age) {
        lifetime.max_age = seconds;
        f64::from(seconds)
    } else if lifetime.expires != 0.0 {
        by_expires(lifetime.expires, lifetime.date, now, defaults.clock_skew)
    } else if defaults.rfc && response.has_known(Known::Expires) {
        0.0
    } else {
        fallback
    };
    if lifetime.ttl >= 0.0
        && let Some(seconds) = control.stale_while_revalidate
    {
        lifetime.grace = f64::from(seconds);
    }
    lifetime
}

/// Expires against our clock if Date agrees with it (or is absent), else against Date.
fn by_expires(expires: Time, date: Time, now: Time, clock_skew: Seconds) -> Seconds {
    if expires < date {
        0.0
    } else if date == 0.0 || (date - now).abs() < clock_skew {
        (expires - now).max(0.0)
    } else {
        expires - date
    }
}

/// The first number of an Age field; what is none counts as 0.
fn age(value: &[u8]) -> u32 {
    let first = value.split(|&byte| byte == b',').next().unwrap_or_default();
    cache_control::delta_seconds(first).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sun, 06 Nov 1994 08:49:37 GMT
    const NOW: Time = 784_111_777.0;

    fn of(status: u16, lines: &[&str]) -> Lifetime {
        let mut fields = Fields::new();
        for line in lines {
            let (name, value) = line.split_once(':').unwrap();
            assert!(fields.push(name.as_bytes(), value.as_bytes()));
        }
        lifetime(status, &fields, NOW, &Defaults::default())
    }

    fn check(lines: &[&str], ttl: Seconds) {
        assert_eq!(of(200, lines).ttl, ttl, "{lines:?}");
    }

    #[test]
    fn statuses() {
        for status in [200, 203, 204, 300, 301, 304, 404, 410, 414] {
            assert_eq!(of(status, &[]).ttl, 120.0, "{status}");
            assert_eq!(of(status, &["Cache-Control: max-age=5"]).ttl, 5.0, "{status}");
        }
        for status in [302, 307] {
            assert_eq!(of(status, &[]).ttl, -1.0, "{status}");
            assert_eq!(of(status, &["Cache-Control: max-age=5"]).ttl, 5.0, "{status}");
            assert_eq!(of(status, &["Expires: Sun, 06 Nov 1994 08:49:47 GMT"]).ttl, 10.0, "{status}");
        }
        for status in [100, 201, 206, 303, 308, 400, 403, 405, 416, 500, 502, 503, 504, 999] {
            let lifetime = of(status, &["Cache-Control: max-age=5, stale-while-revalidate=7"]);
            assert_eq!((lifetime.ttl, lifetime.grace), (-1.0, 10.0), "{status}");
        }
    }

    #[test]
    fn rfc9111_4_2_1_order_of_the_sources() {
        check(&["Cache-Control: max-age=10, s-maxage=60"], 60.0);
        check(&["Cache-Control: max-age=10", "Expires: Sun, 06 Nov 1994 09:49:37 GMT"], 10.0);
        check(&["Cache-Control: public", "Expires: Sun, 06 Nov 1994 08:50:37 GMT"], 60.0);
        check(&["Cache-Control: max-age=junk", "Expires: Sun, 06 Nov 1994 09:49:37 GMT"], 0.0);
        check(&["Cache-Control: max-age=99999999999"], 2_147_483_648.0);
        check(&["Cache-Control: public"], 120.0);
    }

    #[test]
    fn expires_and_skewed_clocks() {
        check(&["Expires: Sun, 06 Nov 1994 08:49:36 GMT"], 0.0);
        check(&["Date: Sun, 06 Nov 1994 08:49:42 GMT", "Expires: Sun, 06 Nov 1994 08:50:37 GMT"], 60.0);
        check(&["Date: Sun, 06 Nov 1994 07:49:37 GMT", "Expires: Sun, 06 Nov 1994 07:49:57 GMT"], 20.0);
        check(&["Date: Sun, 06 Nov 1994 09:49:37 GMT", "Expires: Sun, 06 Nov 1994 09:49:57 GMT"], 20.0);
        check(&["Date: Sun, 06 Nov 1994 09:49:37 GMT", "Expires: Sun, 06 Nov 1994 09:49:36 GMT"], 0.0);
    }

    #[test]
    fn rfc9111_5_3_an_expires_that_is_no_date() {
        for value in ["0", "-1", "never"] {
            check(&[&format!("Expires: {value}")], 120.0);
            let mut fields = Fields::new();
            fields.push_known(Known::Expires, value.as_bytes());
            let defaults = Defaults { rfc: true, ..Defaults::default() };
            assert_eq!(lifetime(200, &fields, NOW, &defaults).ttl, 0.0);
        }
    }

    #[test]
    fn rfc9111_4_2_3_age_moves_the_origin() {
        for (value, age) in
            [("30", 30), ("30, 40", 30), ("-5", 0), ("x", 0), ("", 0), ("99999999999", 1 << 31)]
        {
            let lifetime = of(503, &[&format!("Age: {value}")]);
            assert_eq!((lifetime.age, lifetime.t_origin), (age, NOW - f64::from(age)), "{value}");
        }
        check(&["Age: 30", "Cache-Control: max-age=100"], 100.0);
    }

    #[test]
    fn rfc5861_3_stale_while_revalidate_is_grace() {
        let lifetime = of(200, &["Cache-Control: max-age=5, stale-while-revalidate=7, stale-if-error=9"]);
        assert_eq!((lifetime.ttl, lifetime.grace, lifetime.keep), (5.0, 7.0, 0.0));
        assert_eq!(of(302, &["Cache-Control: stale-while-revalidate=7"]).grace, 10.0);
    }
}
