//! Age: how old a response was when it came.
//!
//! ```text
//!   Date        requested           received
//!    │<───────── apparent age ─────────>│       by the origin's clock and ours, if not negative
//!         Age ──┼── response delay ────>│       by what the caches before us say
//! ```
//! The larger of the two counts. Both ends of the apparent age are whole seconds, as Date is.
//!
//! Source: RFC 9111, sections 4.2.3 and 5.1.

use crate::directive;
use copal_base::{Seconds, Time};
use copal_wire::{Fields, Known, date, syntax};

/// The Age of a response in seconds, at most [`crate::cache_control::DELTA_MAX`]. Of several values the first counts; if
/// that is no number, there is none.
///
/// Source: RFC 9111, section 5.1.
pub fn of(response: &Fields) -> Option<u32> {
    let first = response.all_known(Known::Age).flat_map(syntax::tokens).next()?;
    directive::delta_seconds(first)
}

/// When the origin made a response by its Date; `None` if it has none, or none that is a date.
pub fn date(response: &Fields) -> Option<Time> {
    response.get_known(Known::Date).and_then(date::parse)
}

/// How old a response was at `received` when it had been asked for at `requested`, in seconds; never negative.
///
/// Source: RFC 9111, section 4.2.3 (`corrected_initial_age`).
pub fn initial(response: &Fields, requested: Time, received: Time) -> Seconds {
    let apparent = date(response).map_or(0.0, |made| received.floor() - made);
    let delay = (received - requested).max(0.0);
    let corrected = of(response).map_or(0.0, f64::from) + delay;
    corrected.max(apparent).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sun, 06 Nov 1994 08:49:37 GMT
    const NOW: Time = 784_111_777.0;

    fn fields(lines: &[(&str, &str)]) -> Fields {
        let mut fields = Fields::new();
        for (name, value) in lines {
            assert!(fields.push(name.as_bytes(), value.as_bytes()));
        }
        fields
    }

    #[test]
    fn rfc9111_5_1_odd_values() {
        for (value, expected) in [
            ("30", Some(30)),
            ("030", Some(30)),
            ("0", Some(0)),
            ("0, 7200", Some(0)),
            ("7200, 0", Some(7200)),
            (" , 30", Some(30)),
            ("2147483648", Some(1 << 31)),
            ("99999999999999999999", Some(1 << 31)),
            ("abc", None),
            ("abc, 30", None),
            ("-30", None),
            ("+30", None),
            ("30.0", None),
            ("30;foo=bar", None),
            ("30 s", None),
            ("\"30\"", None),
            ("", None),
        ] {
            assert_eq!(of(&fields(&[("Age", value)])), expected, "{value}");
        }
        assert_eq!(of(&fields(&[("Age", "5"), ("Age", "9")])), Some(5));
        assert_eq!(of(&fields(&[("Age", "x"), ("Age", "9")])), None);
        assert_eq!(of(&fields(&[])), None);
    }

    #[test]
    fn rfc9111_4_2_3_the_larger_of_apparent_and_corrected() {
        let check = |lines: &[(&str, &str)], delay: Seconds, expected: Seconds| {
            assert_eq!(initial(&fields(lines), NOW - delay, NOW), expected, "{lines:?}");
        };
        check(&[], 0.0, 0.0);
        check(&[], 2.5, 2.5);
        check(&[("Age", "30")], 2.5, 32.5);
        check(&[("Date", "Sun, 06 Nov 1994 08:49:27 GMT")], 2.5, 10.0);
        check(&[("Date", "Sun, 06 Nov 1994 08:49:27 GMT"), ("Age", "9")], 2.5, 11.5);
        check(&[("Date", "Sun, 06 Nov 1994 08:59:27 GMT")], 1.0, 1.0);
        check(&[("Date", "yesterday"), ("Age", "-4")], 1.0, 1.0);
        check(&[], -3.0, 0.0);
    }

    #[test]
    fn rfc9111_4_2_3_parts_of_a_second_do_not_age() {
        let fields = fields(&[("Date", "Sun, 06 Nov 1994 08:49:37 GMT")]);
        assert_eq!(initial(&fields, NOW + 0.75, NOW + 0.75), 0.0);
        assert_eq!(initial(&fields, NOW + 1.25, NOW + 1.25), 1.0);
    }
}
