//! Numbers as `std` reads them from strings.
//!
//! ```text
//! integer   [-] 1*15 DIGIT                      spaces around are skipped, in all of them
//! number    [-] 1*12 DIGIT . *DIGIT | [-] . 1*DIGIT | integer        decimals beyond the third are cut off
//! size      1*12 DIGIT . 1*3 DIGIT | 1*15 DIGIT , then [kmgtp] [b] in either case
//! duration  number, then one of ms s m h d w y
//! ```
//! No sign `+`, no exponent, no hexadecimal, no `inf`. Source: what varnishd 7.1.1 accepts (RFC 8941, section 4.2.4).

use copal_base::{Seconds, units};

/// The largest integer that a REAL holds without a gap below it: 2^53 - 1.
pub(super) const EXACT_MAX: i64 = (1 << 53) - 1;

/// How a fraction may be written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fraction {
    /// `.5`, `5.` and any count of decimals.
    Loose,
    /// At least one digit on either side of the point, at most three behind it.
    Strict,
}

/// The number that all of `text` is.
pub(super) fn number(text: &[u8]) -> Option<f64> {
    match decimal(text.trim_ascii(), Fraction::Loose)? {
        (value, []) => Some(value),
        _ => None,
    }
}

/// The whole number that all of `text` is; `5.0` is one.
pub(super) fn whole(text: &[u8]) -> Option<i64> {
    number(text).filter(|value| value.fract() == 0.0).map(|value| value as i64)
}

/// A duration with its unit.
pub(super) fn duration(text: &[u8]) -> Option<Seconds> {
    let (value, unit) = decimal(text.trim_ascii(), Fraction::Loose)?;
    let unit = std::str::from_utf8(unit.trim_ascii_start()).ok()?;
    if unit.is_empty() { None } else { units::unit_seconds(unit).map(|seconds| value * seconds) }
}

/// A size, at most 2^53 - 1 bytes; a fraction of a byte that a unit leaves is cut off.
pub(super) fn bytes(text: &[u8]) -> Option<u64> {
    let (value, unit) = decimal(text.trim_ascii(), Fraction::Strict)?;
    if value < 0.0 {
        return None;
    }
    let unit = unit.trim_ascii_start().to_ascii_lowercase();
    let shift = match unit.strip_suffix(b"b").unwrap_or(&unit) {
        [] => 0,
        b"k" => 10,
        b"m" => 20,
        b"g" => 30,
        b"t" => 40,
        b"p" => 50,
        _ => return None,
    };
    if shift == 0 && value.fract() != 0.0 {
        return None;
    }
    let size = value * (1u64 << shift) as f64;
    (size <= EXACT_MAX as f64).then_some(size as u64)
}

/// The number at the beginning of `text`, and what follows it.
fn decimal(text: &[u8], fraction: Fraction) -> Option<(f64, &[u8])> {
    let (sign, text) = match text.strip_prefix(b"-") {
        Some(rest) => (-1.0, rest),
        None => (1.0, text),
    };
    let (whole, rest) = digits(text);
    let Some(rest) = rest.strip_prefix(b".") else {
        let value = (1..=15).contains(&whole.len()).then(|| value_of(whole))?;
        return Some((sign * value as f64, rest));
    };
    let (decimals, rest) = digits(rest);
    let sound = match fraction {
        Fraction::Loose => !(whole.is_empty() && decimals.is_empty()),
        Fraction::Strict => !whole.is_empty() && (1..=3).contains(&decimals.len()),
    };
    if !sound || whole.len() > 12 {
        return None;
    }
    let kept = &decimals[..decimals.len().min(3)];
    let thousandths = value_of(kept) * [1000, 100, 10, 1][kept.len()];
    Some((sign * ((value_of(whole) * 1000 + thousandths) as f64 / 1000.0), rest))
}

fn digits(text: &[u8]) -> (&[u8], &[u8]) {
    text.split_at(text.iter().take_while(|byte| byte.is_ascii_digit()).count())
}

/// The value of at most 15 digits.
fn value_of(digits: &[u8]) -> u64 {
    digits.iter().fold(0, |value, digit| value * 10 + u64::from(digit - b'0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Text and what `std.integer`, `std.real`, `std.bytes` and `std.duration` of varnishd 7.1.1 make of it.
    type Row = (&'static str, Option<i64>, Option<f64>, Option<u64>, Option<f64>);

    const ROWS: &[Row] = &[
        ("5", Some(5), Some(5.0), Some(5), None),
        ("5.0", Some(5), Some(5.0), Some(5), None),
        ("5.5", None, Some(5.5), None, None),
        ("-5", Some(-5), Some(-5.0), None, None),
        ("+5", None, None, None, None),
        ("007", Some(7), Some(7.0), Some(7), None),
        ("1e3", None, None, None, None),
        ("0x10", None, None, None, None),
        (
            "123456789012345",
            Some(123_456_789_012_345),
            Some(123_456_789_012_345.0),
            Some(123_456_789_012_345),
            None,
        ),
        ("1234567890123456", None, None, None, None),
        ("000000000000000001", None, None, None, None),
        ("123456789012.5", None, Some(123_456_789_012.5), None, None),
        ("1234567890123.5", None, None, None, None),
        ("1.2346", None, Some(1.234), None, None),
        ("1.0000", Some(1), Some(1.0), None, None),
        ("0.0009", Some(0), Some(0.0), None, None),
        ("0.9999999999999999999999999999", None, Some(0.999), None, None),
        ("1.", Some(1), Some(1.0), None, None),
        (".5", None, Some(0.5), None, None),
        ("-.5", None, Some(-0.5), None, None),
        ("-0", Some(0), Some(0.0), Some(0), None),
        ("-", None, None, None, None),
        (".", None, None, None, None),
        ("1.2.3", None, None, None, None),
        ("5 x", None, None, None, None),
        (" 5 ", Some(5), Some(5.0), Some(5), None),
        ("\t5", Some(5), Some(5.0), Some(5), None),
        ("- 5", None, None, None, None),
        ("", None, None, None, None),
        ("inf", None, None, None, None),
        ("nan", None, None, None, None),
        ("5s", None, None, None, Some(5.0)),
        ("5  s ", None, None, None, Some(5.0)),
        ("-.5s", None, None, None, Some(-0.5)),
        ("1.5m", None, None, Some(1_572_864), Some(90.0)),
        ("1 w", None, None, None, Some(604_800.0)),
        ("10ms", None, None, None, Some(0.01)),
        ("1y", None, None, None, Some(31_536_000.0)),
        ("5S", None, None, None, None),
        ("5M", None, None, Some(5_242_880), None),
        ("5sx", None, None, None, None),
        ("5m5s", None, None, None, None),
        ("1.5 k", None, None, Some(1536), None),
        ("1.3k", None, None, Some(1331), None),
        ("1.123k", None, None, Some(1149), None),
        ("1.2345k", None, None, None, None),
        ("1  KB", None, None, Some(1024), None),
        ("1b", None, None, Some(1), None),
        ("1.0b", None, None, Some(1), None),
        ("1.3b", None, None, None, None),
        (".5k", None, None, None, None),
        ("1.k", None, None, None, None),
        ("-1k", None, None, None, None),
        ("-0k", None, None, Some(0), None),
        ("5%", None, None, None, None),
        ("8P", None, None, None, None),
        ("1e", None, None, None, None),
        ("5b b", None, None, None, None),
    ];

    #[test]
    fn strings_convert_as_in_varnish() {
        for &(text, integer, real, size, time) in ROWS {
            assert_eq!(whole(text.as_bytes()), integer, "integer of {text:?}");
            assert_eq!(number(text.as_bytes()), real, "real of {text:?}");
            assert_eq!(bytes(text.as_bytes()), size, "bytes of {text:?}");
            assert_eq!(duration(text.as_bytes()), time, "duration of {text:?}");
        }
    }
}
