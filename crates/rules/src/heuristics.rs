//! What a status code means to a cache, and how long a response is fresh that does not say so itself.
//!
//! Source: RFC 9110, section 15.1; RFC 9111, sections 3 and 4.2.2.

use crate::age;
use copal_base::{Seconds, Time};
use copal_wire::{Fields, Known, date};

/// Whether a response with this status may be stored and be fresh without saying so.
///
/// Source: RFC 9110, section 15.1.
pub const fn is_heuristically_cacheable(status: u16) -> bool {
    matches!(status, 200 | 203 | 204 | 206 | 300 | 301 | 308 | 404 | 405 | 410 | 414 | 501)
}

/// Whether what RFC 9110 says of this status is followed here: what `must-understand` asks. 206 is among them, 304 is no
/// response of its own.
///
/// Source: RFC 9111, sections 3 and 5.2.2.3; RFC 9110, section 15.
pub const fn is_understood(status: u16) -> bool {
    matches!(status, 200..=206 | 300..=303 | 305 | 307 | 308 | 400..=417 | 421 | 422 | 426 | 500..=505)
}

/// The seconds a response without explicit freshness is fresh: a tenth of the time from Last-Modified to Date (or to
/// `received`), at most `most`; without Last-Modified there is nothing to guess from. An error (a status of 400 or more) is
/// never fresh for longer than `error_most`.
///
/// Source: RFC 9111, section 4.2.2.
pub fn freshness(
    status: u16,
    response: &Fields,
    received: Time,
    error_most: Seconds,
    most: Seconds,
) -> Seconds {
    let modified = response.get_known(Known::LastModified).and_then(date::parse);
    let Some(modified) = modified else { return 0.0 };
    let made = age::date(response).unwrap_or(received);
    let tenth = ((made - modified) / 10.0).clamp(0.0, most.max(0.0));
    if status >= 400 { tenth.min(error_most.max(0.0)) } else { tenth }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sun, 06 Nov 1994 08:49:37 GMT
    const NOW: Time = 784_111_777.0;

    fn check(status: u16, lines: &[(&str, &str)], expected: Seconds) {
        let mut fields = Fields::new();
        for (name, value) in lines {
            assert!(fields.push(name.as_bytes(), value.as_bytes()));
        }
        assert_eq!(freshness(status, &fields, NOW, 120.0, 86_400.0), expected, "{status} {lines:?}");
    }

    #[test]
    fn rfc9111_4_2_2_a_tenth_of_its_age() {
        check(200, &[("Last-Modified", "Sun, 06 Nov 1994 08:47:57 GMT")], 10.0);
        let date = ("Date", "Sun, 06 Nov 1994 07:47:57 GMT");
        check(200, &[("Last-Modified", "Sun, 06 Nov 1994 07:46:17 GMT"), date], 10.0);
        check(200, &[("Last-Modified", "Sun, 06 Nov 1904 08:49:37 GMT")], 86_400.0);
        check(200, &[("Last-Modified", "Mon, 07 Nov 1994 08:49:37 GMT")], 0.0);
        check(200, &[("Last-Modified", "yesterday")], 0.0);
        check(200, &[], 0.0);
        check(404, &[("Last-Modified", "Sun, 06 Nov 1904 08:49:37 GMT")], 120.0);
        check(404, &[("Last-Modified", "Sun, 06 Nov 1994 08:47:57 GMT")], 10.0);
    }

    #[test]
    fn rfc9110_15_1_statuses() {
        let cacheable: Vec<u16> = (100..=999).filter(|&status| is_heuristically_cacheable(status)).collect();
        assert_eq!(cacheable, [200, 203, 204, 206, 300, 301, 308, 404, 405, 410, 414, 501]);
        assert!(cacheable.iter().all(|&status| is_understood(status)));
        for status in [100, 199, 207, 299, 304, 306, 399, 418, 499, 506, 599, 999] {
            assert!(!is_understood(status), "{status}");
        }
    }
}
