//! HTTP dates: read in all three forms, written in one.
//!
//! ```text
//! Sun, 06 Nov 1994 08:49:37 GMT     IMF-fixdate: the one that is written
//! Sunday, 06-Nov-94 08:49:37 GMT    RFC 850
//! Sun Nov  6 08:49:37 1994          asctime
//! ```
//! Source: RFC 9110, section 5.6.7.

use copal_base::Time;

const DAYS: [&[u8; 3]; 7] = [b"Mon", b"Tue", b"Wed", b"Thu", b"Fri", b"Sat", b"Sun"];
const LONG_DAYS: [&[u8]; 7] =
    [b"Monday", b"Tuesday", b"Wednesday", b"Thursday", b"Friday", b"Saturday", b"Sunday"];
const MONTHS: [&[u8; 3]; 12] =
    [b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"];

/// The moment `text` names; `None` if it is no HTTP date. The name of the day must be one but is not compared with the
/// date. A year of two digits is taken to lie in 1970 to 2069. A leap second (`:60`) counts as the next second. Names have
/// no case: senders need not be as exact as a cache can be lenient (RFC 9111, section 4.2).
pub fn parse(text: &[u8]) -> Option<Time> {
    let comma = text.iter().position(|&byte| byte == b',');
    let civil = match comma {
        Some(3) => imf_fixdate(text).or_else(|| short_day(text)),
        Some(end) => rfc850(text, end),
        None => asctime(text),
    }?;
    civil.moment()
}

/// As [`parse`], but only if the names in it are written as the RFC has them: what Varnish understands.
pub fn parse_exact(text: &[u8]) -> Option<Time> {
    let is_name = |word: &[u8]| {
        word == b"GMT"
            || DAYS.iter().any(|day| word == *day)
            || LONG_DAYS.contains(&word)
            || MONTHS.iter().any(|month| word == *month)
    };
    let mut words = text.split(|byte| !byte.is_ascii_alphabetic()).filter(|word| !word.is_empty());
    words.all(is_name).then(|| parse(text)).flatten()
}

/// `time` as IMF-fixdate. What lies before the year 0 or after 9999 is written as the nearest moment within.
pub fn format(time: Time) -> [u8; 29] {
    // NaN becomes 0 by the cast, the limits are those of four digits.
    let seconds = (time.floor() as i64).clamp(-62_167_219_200, 253_402_300_799);
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400) as u32);
    let (year, month, day) = from_days(days);
    let mut out = *b"Thu, 01 Jan 1970 00:00:00 GMT";
    out[0..3].copy_from_slice(DAYS[(days + 3).rem_euclid(7) as usize]);
    put(&mut out[5..7], day);
    out[8..11].copy_from_slice(MONTHS[month as usize - 1]);
    put(&mut out[12..16], year as u32);
    put(&mut out[17..19], second / 3600);
    put(&mut out[20..22], second / 60 % 60);
    put(&mut out[23..25], second % 60);
    out
}

/// Fills `out` with the last decimal digits of `value`.
fn put(out: &mut [u8], mut value: u32) {
    for place in out.iter_mut().rev() {
        *place = b'0' + (value % 10) as u8;
        value /= 10;
    }
}

/// As IMF-fixdate, with one digit for a day below 10: many write it so, and there is one way to read it.
fn short_day(text: &[u8]) -> Option<Civil> {
    let (head, rest) = text.split_at_checked(5)?;
    imf_fixdate(&[head, b"0", rest].concat())
}

struct Civil {
    year: u32,
    month: u32,
    day: u32,
    hour: u32,
    minute: u32,
    second: u32,
}

impl Civil {
    fn moment(&self) -> Option<Time> {
        let leap =
            self.year.is_multiple_of(4) && (!self.year.is_multiple_of(100) || self.year.is_multiple_of(400));
        let month_days = match self.month {
            2 => 28 + u32::from(leap),
            4 | 6 | 9 | 11 => 30,
            _ => 31,
        };
        if self.day == 0 || self.day > month_days || self.hour > 23 || self.minute > 59 || self.second > 60 {
            return None;
        }
        let days = days_from(i64::from(self.year), self.month, self.day);
        let second = i64::from(self.hour * 3600 + self.minute * 60 + self.second);
        Some((days * 86_400 + second) as Time)
    }
}

fn imf_fixdate(text: &[u8]) -> Option<Civil> {
    if text.len() != 29 || !is_day(&text[..3]) || !text[25..].eq_ignore_ascii_case(b" GMT") {
        return None;
    }
    if &text[3..5] != b", " || text[7] != b' ' || text[11] != b' ' || text[16] != b' ' {
        return None;
    }
    let (hour, minute, second) = clock(&text[17..25])?;
    let (day, month, year) = (number(&text[5..7])?, month(&text[8..11])?, number(&text[12..16])?);
    Some(Civil { year, month, day, hour, minute, second })
}

fn rfc850(text: &[u8], comma: usize) -> Option<Civil> {
    if !LONG_DAYS.iter().any(|day| text[..comma].eq_ignore_ascii_case(day)) {
        return None;
    }
    let rest = &text[comma..];
    if rest.len() != 24 || &rest[..2] != b", " || !rest[20..].eq_ignore_ascii_case(b" GMT") {
        return None;
    }
    if rest[4] != b'-' || rest[8] != b'-' || rest[11] != b' ' {
        return None;
    }
    let (hour, minute, second) = clock(&rest[12..20])?;
    let (day, month, short) = (number(&rest[2..4])?, month(&rest[5..8])?, number(&rest[9..11])?);
    let year = if short < 70 { 2000 + short } else { 1900 + short };
    Some(Civil { year, month, day, hour, minute, second })
}

fn asctime(text: &[u8]) -> Option<Civil> {
    if text.len() != 24 || !is_day(&text[..3]) {
        return None;
    }
    if text[3] != b' ' || text[7] != b' ' || text[10] != b' ' || text[19] != b' ' {
        return None;
    }
    let (hour, minute, second) = clock(&text[11..19])?;
    let day = if text[8] == b' ' { number(&text[9..10])? } else { number(&text[8..10])? };
    Some(Civil { year: number(&text[20..24])?, month: month(&text[4..7])?, day, hour, minute, second })
}

/// `hh:mm:ss`
fn clock(text: &[u8]) -> Option<(u32, u32, u32)> {
    if text[2] != b':' || text[5] != b':' {
        return None;
    }
    Some((number(&text[..2])?, number(&text[3..5])?, number(&text[6..])?))
}

fn number(digits: &[u8]) -> Option<u32> {
    crate::syntax::parse_digits(digits)?.try_into().ok()
}

fn is_day(name: &[u8]) -> bool {
    DAYS.iter().any(|day| name.eq_ignore_ascii_case(*day))
}

fn month(name: &[u8]) -> Option<u32> {
    Some(MONTHS.iter().position(|month| name.eq_ignore_ascii_case(*month))? as u32 + 1)
}

/// Days from 1970-01-01 to a date of the Gregorian calendar. The year is taken to begin in March, so that the leap day is
/// its last; 400 years have 146,097 days.
fn days_from(year: i64, month: u32, day: u32) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let month_of_year = i64::from((month + 9) % 12);
    let day_of_year = (153 * month_of_year + 2) / 5 + i64::from(day) - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// The inverse of [`days_from`].
fn from_days(days: i64) -> (i64, u32, u32) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_of_year = (5 * day_of_year + 2) / 153;
    let day = (day_of_year - (153 * month_of_year + 2) / 5 + 1) as u32;
    let month = if month_of_year < 10 { month_of_year + 3 } else { month_of_year - 9 } as u32;
    (era * 400 + year_of_era + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn rfc9110_5_6_7_three_forms_of_one_moment() {
        for text in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
            "Sun Nov 06 08:49:37 1994",
            "SUN, 06 nov 1994 08:49:37 gmT",
            "sunday, 06-NOV-94 08:49:37 Gmt",
            "sUN nOV  6 08:49:37 1994",
        ] {
            assert_eq!(parse(text.as_bytes()), Some(784_111_777.0), "{text}");
            let exact = text.starts_with("Sun") && !text.ends_with("gmT");
            assert_eq!(parse_exact(text.as_bytes()).is_some(), exact, "{text}");
        }
        assert_eq!(&format(784_111_777.9), b"Sun, 06 Nov 1994 08:49:37 GMT");
    }

    #[test]
    fn what_is_no_date() {
        for text in [
            "",
            "0",
            "-1",
            "Sun, 06 Nov 1994 08:49:37",
            "Sun, 06 Nov 1994 08:49:37 CET",
            "Sun, 31 Feb 1994 08:49:37 GMT",
            "Sun, 29 Feb 1900 08:49:37 GMT",
            "Sun, 00 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 24:00:00 GMT",
            "Sun, 06 Nov 1994 08:60:37 GMT",
            "Sun, 06 Nov 1994 08:49:61 GMT",
            "Xxx, 06 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nox 1994 08:49:37 GMT",
            "Sun, 06 Nov +994 08:49:37 GMT",
            "Sunday, 06 Nov 94 08:49:37 GMT",
            "Sunday,",
            ",",
            "Sun,",
            "1994-11-06T08:49:37",
            "Sun Nov  6 08:49:37 94",
        ] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn limits() {
        assert_eq!(&format(0.0), b"Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(&format(-1.0), b"Wed, 31 Dec 1969 23:59:59 GMT");
        assert_eq!(&format(951_782_400.0), b"Tue, 29 Feb 2000 00:00:00 GMT");
        assert_eq!(&format(f64::INFINITY), b"Fri, 31 Dec 9999 23:59:59 GMT");
        assert_eq!(&format(f64::NAN), b"Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(&format(f64::NEG_INFINITY)[12..16], b"0000");
        assert_eq!(parse(b"Sun, 06 Nov 0001 08:49:60 GMT").map(|time| time < 0.0), Some(true));
    }

    proptest! {
        #[test]
        fn parse_gives_back_what_format_wrote(second in -62_167_219_200i64..253_402_300_800) {
            prop_assert_eq!(parse(&format(second as f64)), Some(second as f64));
        }

        #[test]
        fn any_bytes_parse_without_a_panic(text in prop::collection::vec(any::<u8>(), 0..40)) {
            let _ = parse(&text);
        }

        #[test]
        fn any_near_date_parses_without_a_panic(text in "(Sun|Sunday|X)?,? ?[0-9A-Za-z :-]{15,26}( GMT)?") {
            let _ = parse(text.as_bytes());
        }
    }
}
