//! Sizes and durations as people write them on a command line or in a parameter.

use crate::Seconds;
use std::fmt::Write as _;

/// Parses a byte count: digits with an optional fraction, then an optional unit `b k m g t p`, in either case and with
/// an optional trailing `b`, as Varnish's parameters take them. A unit is a power of 1024.
///
/// # Errors
/// The offending text, in words, if it is no size or does not fit in 64 bits.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let lower = text.trim().to_ascii_lowercase();
    let digits = lower.len() - lower.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.').len();
    let (number, unit) = lower.split_at(digits);
    let shift = match unit.trim_start() {
        "" | "b" => 0,
        "k" | "kb" => 10,
        "m" | "mb" => 20,
        "g" | "gb" => 30,
        "t" | "tb" => 40,
        "p" | "pb" => 50,
        _ => return Err(format!("unknown unit in size \"{text}\" (use b, k, m, g, t or p)")),
    };
    let wrong = || format!("\"{text}\" is not a size");
    if let Ok(whole) = number.parse::<u64>() {
        return whole
            .checked_mul(1 << shift)
            .ok_or_else(|| format!("size \"{text}\" does not fit in 64 bits"));
    }
    let value: f64 = number.parse().map_err(|_| wrong())?;
    let bytes = value * (1u64 << shift) as f64;
    if bytes >= u64::MAX as f64 {
        return Err(format!("size \"{text}\" does not fit in 64 bits"));
    }
    Ok(bytes as u64)
}

/// Prints a byte count as Varnish's `param.show` does: in the largest unit that divides it, `b` for bytes.
pub fn format_bytes(bytes: u64) -> String {
    for (shift, unit) in [(50, 'P'), (40, 'T'), (30, 'G'), (20, 'M'), (10, 'k')] {
        if bytes != 0 && bytes.trailing_zeros() >= shift {
            return format!("{}{unit}", bytes >> shift);
        }
    }
    format!("{bytes}b")
}

/// Prints a byte count as people say it: in the largest unit that it has one of, with a decimal unless that is nothing:
/// `1.5G`, `2T`, `17 bytes`.
pub fn human_bytes(bytes: u64) -> String {
    for (shift, unit) in [(50, 'P'), (40, 'T'), (30, 'G'), (20, 'M'), (10, 'k')] {
        if bytes >> shift > 0 {
            let tenths = (u128::from(bytes) * 10) >> shift;
            return match tenths % 10 {
                0 => format!("{}{unit}", tenths / 10),
                rest => format!("{}.{rest}{unit}", tenths / 10),
            };
        }
    }
    if bytes == 0 { "0".to_owned() } else { format!("{bytes} bytes") }
}

/// Parses a duration: a number and an optional unit `ms s m h d w y`; without a unit, seconds.
///
/// # Errors
/// The offending text, in words.
pub fn parse_duration(text: &str) -> Result<Seconds, String> {
    let text = text.trim();
    let end = text.len()
        - text.trim_start_matches(|c: char| c.is_ascii_digit() || matches!(c, '.' | '-' | '+')).len();
    let (number, unit) = text.split_at(end);
    let value: f64 = number.parse().map_err(|_| format!("\"{text}\" is not a duration"))?;
    let scale = unit_seconds(unit.trim())
        .ok_or_else(|| format!("unknown unit in duration \"{text}\" (use ms, s, m, h, d, w or y)"))?;
    Ok(value * scale)
}

/// The seconds in a VCL duration unit; the empty unit is a second.
pub fn unit_seconds(unit: &str) -> Option<Seconds> {
    Some(match unit {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3_600.0,
        "d" => 86_400.0,
        "w" => 604_800.0,
        "y" => 31_536_000.0,
        _ => return None,
    })
}

/// Appends `value` with exactly `places` decimals (at most 9), without the general float printer: this is on the log's
/// hot path. Values beyond the exact range of an `i64` count of last places print through the general printer.
pub fn push_fixed(out: &mut Vec<u8>, value: f64, places: u32) {
    let scale = 10i64.pow(places);
    let scaled = (value * scale as f64).round();
    if !scaled.is_finite() || scaled.abs() >= 9.0e18 {
        let mut text = String::new();
        let _ = write!(text, "{value:.*}", places as usize);
        out.extend_from_slice(text.as_bytes());
        return;
    }
    let scaled = scaled as i64;
    if scaled < 0 {
        out.push(b'-');
    }
    let magnitude = scaled.unsigned_abs();
    push_integer(out, magnitude / scale as u64);
    if places > 0 {
        out.push(b'.');
        let mut digits = [b'0'; 9];
        let mut rest = magnitude % scale as u64;
        for place in (0..places as usize).rev() {
            digits[place] = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        out.extend_from_slice(&digits[..places as usize]);
    }
}

/// Appends `value` in decimal.
pub fn push_integer(out: &mut Vec<u8>, mut value: u64) {
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_as_people_say_them() {
        for (bytes, text) in [
            (0, "0"),
            (1023, "1023 bytes"),
            (1024, "1k"),
            (1536, "1.5k"),
            (10 << 30, "10G"),
            ((10 << 30) + 1, "10G"),
            (u64::MAX, "16383.9P"),
        ] {
            assert_eq!(human_bytes(bytes), text);
        }
    }

    #[test]
    fn sizes() {
        for (text, bytes) in [
            ("0", 0),
            ("17", 17),
            ("8k", 8 << 10),
            ("6000m", 6000 << 20),
            ("2G", 2 << 30),
            ("1.5M", 3 << 19),
            ("4KB", 4096),
        ] {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
        for text in ["", "k", "8x", "-1", "99999999999999999999", "20000000p", "1.2.3k"] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
        assert_eq!(format_bytes(96 << 10), "96k");
        assert_eq!(format_bytes(1000), "1000b");
    }

    #[test]
    fn durations() {
        assert_eq!(parse_duration("2m"), Ok(120.0));
        assert_eq!(parse_duration("50ms"), Ok(0.05));
        assert_eq!(parse_duration("120"), Ok(120.0));
        assert!(parse_duration("5 parsecs").is_err());
        assert!(parse_duration("").is_err());
    }

    #[test]
    fn fixed_point_prints_as_the_general_printer_does() {
        for value in [0.0, 0.5, 1.0, 12.345_678, -3.25, 1_700_000_000.123_456, 1e300, -0.000_001] {
            let mut out = Vec::new();
            push_fixed(&mut out, value, 6);
            assert_eq!(String::from_utf8(out).unwrap(), format!("{value:.6}"), "{value}");
        }
    }
}
