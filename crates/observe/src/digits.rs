//! Numbers in decimal, straight into a slice: the log prints a dozen a request.

const PAIRS: &[u8; 200] = &{
    let mut pairs = [0u8; 200];
    let mut n = 0;
    while n < 100 {
        pairs[2 * n] = b'0' + (n / 10) as u8;
        pairs[2 * n + 1] = b'0' + (n % 10) as u8;
        n += 1;
    }
    pairs
};

/// The most bytes that [`integer`] or [`micros`] writes: the room that they want.
pub(crate) const LENGTH_MAX: usize = 22;

/// Where a number is printed to.
type Room = [u8; LENGTH_MAX];

#[inline]
fn pair(out: &mut [u8], at: usize, value: u32) {
    let from = 2 * (value % 100) as usize;
    out[at..at + 2].copy_from_slice(&PAIRS[from..from + 2]);
}

/// Writes `value` and returns its length.
#[inline]
pub(crate) fn integer(out: &mut Room, value: u64) -> usize {
    match u32::try_from(value) {
        Ok(value) if value < 10 => {
            out[0] = b'0' + value as u8;
            1
        }
        Ok(value) => integer_32(out, value),
        Err(_) => {
            // Nine digits at a time, the first of them without leading zeroes.
            let head = integer(out, value / 1_000_000_000);
            let mut rest = (value % 1_000_000_000) as u32;
            out[head] = b'0' + (rest / 100_000_000) as u8;
            for at in (0..4).rev() {
                pair(out, head + 1 + 2 * at, rest);
                rest /= 100;
            }
            head + 9
        }
    }
}

fn integer_32(out: &mut Room, value: u32) -> usize {
    // Short numbers first: they are the most.
    if value < 100 {
        pair(out, 0, value);
        2
    } else if value < 1000 {
        out[0] = b'0' + (value / 100) as u8;
        pair(out, 1, value);
        3
    } else if value < 10_000 {
        pair(out, 0, value / 100);
        pair(out, 2, value);
        4
    } else {
        let head = integer(out, u64::from(value / 10_000));
        let Some(rest) = out[head..].first_chunk_mut::<4>() else { return head };
        pair(rest, 0, value / 100);
        pair(rest, 2, value);
        head + 4
    }
}

/// Writes `seconds` with six decimals and returns its length, or `None` if it is out of the range that needs no general
/// printer (about 290,000 years either way).
#[inline]
pub(crate) fn micros(out: &mut Room, seconds: f64) -> Option<usize> {
    // As nearly all are that the log prints.
    if let Some(micros) = as_short(seconds) {
        short(out, micros);
        return Some(SHORT);
    }
    any_micros(out, seconds)
}

fn any_micros(out: &mut Room, seconds: f64) -> Option<usize> {
    if seconds.is_nan() || seconds.abs() > 9.0e12 {
        return None;
    }
    if seconds < 0.0 {
        let mut digits = [0; LENGTH_MAX];
        let length = any_micros(&mut digits, -seconds)?;
        out[0] = b'-';
        out[1..].copy_from_slice(&digits[..LENGTH_MAX - 1]);
        return Some(length + 1);
    }
    let scaled = (seconds * 1e6 + 0.5) as u64;
    let length = integer(out, scaled / 1_000_000);
    fraction(&mut out[length..], (scaled % 1_000_000) as u32);
    Some(length + 7)
}

/// Writes `seconds` without decimals, half to even as C's printer does, and returns its length; `None` where that takes
/// the general printer.
pub(crate) fn seconds(out: &mut Room, seconds: f64) -> Option<usize> {
    // So far each whole number is one.
    const EXACT: f64 = 9.0e15;
    let rounded = seconds.round_ties_even();
    if rounded.is_nan() || rounded.abs() > EXACT {
        return None;
    }
    if rounded.is_sign_positive() {
        return Some(integer(out, rounded as u64));
    }
    let mut digits = [0; LENGTH_MAX];
    let length = integer(&mut digits, -rounded as u64);
    out[0] = b'-';
    out[1..].copy_from_slice(&digits[..LENGTH_MAX - 1]);
    Some(length + 1)
}

/// Bytes that [`short`] writes.
const SHORT: usize = 8;

/// Writes less than ten seconds, given in millionths.
#[inline]
fn short(out: &mut [u8], micros: u32) {
    out[0] = b'0' + (micros / 1_000_000) as u8;
    fraction(&mut out[1..SHORT], micros % 1_000_000);
}

/// The millionths of a second in `seconds` that [`short`] can write.
#[inline]
fn as_short(seconds: f64) -> Option<u32> {
    // Half up; the conversion saturates, and what is no number becomes 0.
    let scaled = (seconds * 1e6 + 0.5) as i64;
    ((0..10_000_000).contains(&scaled) && seconds >= 0.0).then_some(scaled as u32)
}

/// Writes a point and the six digits of `millionths`: seven bytes.
#[inline]
fn fraction(out: &mut [u8], millionths: u32) {
    let out = &mut out[..7];
    out[0] = b'.';
    pair(out, 1, millionths / 10_000);
    pair(out, 3, millionths / 100);
    pair(out, 5, millionths);
}

/// Prints moments, of which most lie in the same second as the one before: its digits are kept.
#[derive(Debug, Clone, Default)]
pub(crate) struct Moments {
    second: u64,
    digits: Room,
    length: usize,
}

impl Moments {
    /// As [`micros`].
    #[inline]
    pub(crate) fn print(&mut self, out: &mut Room, moment: f64) -> Option<usize> {
        if !(1.0..9.0e12).contains(&moment) {
            return micros(out, moment);
        }
        let millionths = self.enter(moment);
        // A copy of known size is two moves; what is too much of it is written over.
        *out = self.digits;
        fraction(&mut out[self.length..], millionths);
        Some(self.length + 7)
    }

    /// Has the digits of the second in which `moment` is; returns the millionths that have passed of it.
    #[inline]
    fn enter(&mut self, moment: f64) -> u32 {
        let scaled = (moment * 1e6 + 0.5) as u64;
        let second = scaled / 1_000_000;
        if second != self.second {
            (self.second, self.length) = (second, integer(&mut self.digits, second));
        }
        (scaled % 1_000_000) as u32
    }
}

/// Digits of the seconds since the epoch, from 2001 to 2286.
const TEN: usize = 10;
/// Bytes that [`Moments::stamp`] writes.
pub(crate) const STAMP: usize = 2 + TEN + 7 + 2 * (1 + SHORT);

impl Moments {
    /// Writes what a `Timestamp` record has behind its label, `: now since-start since-previous`, if all are of usual size.
    #[inline]
    pub(crate) fn stamp(&mut self, out: &mut [u8; STAMP], now: f64, start: f64, previous: f64) -> bool {
        let (Some(start), Some(previous)) = (as_short(now - start), as_short(now - previous)) else {
            return false;
        };
        if !(1e9..9e9).contains(&now) {
            return false;
        }
        let millionths = self.enter(now);
        out[..2].copy_from_slice(b": ");
        out[2..2 + TEN].copy_from_slice(&self.digits[..TEN]);
        fraction(&mut out[2 + TEN..9 + TEN], millionths);
        out[9 + TEN] = b' ';
        short(&mut out[10 + TEN..18 + TEN], start);
        out[18 + TEN] = b' ';
        short(&mut out[19 + TEN..], previous);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_print_as_the_general_printer_does() {
        for value in [
            0,
            1,
            9,
            10,
            99,
            100,
            999,
            1000,
            9999,
            12_345,
            1_000_000,
            99_999_999,
            u64::MAX,
            u64::MAX / 10,
            4_294_967_296,
            10_000_000_001,
        ] {
            let mut out = [0; LENGTH_MAX];
            let length = integer(&mut out, value);
            assert_eq!(std::str::from_utf8(&out[..length]).unwrap(), value.to_string());
        }
    }

    #[test]
    fn seconds_print_as_the_general_printer_does() {
        for value in [0.0, -0.0, 0.5, 1.5, 2.5, -0.4, -1.0, -1.5, 120.0, 1_795_237_696.5, 8.9e15, -8.9e15] {
            let mut out = [0; LENGTH_MAX];
            let length = seconds(&mut out, value).unwrap();
            assert_eq!(std::str::from_utf8(&out[..length]).unwrap(), format!("{value:.0}"));
        }
        for odd in [f64::NAN, f64::INFINITY, -1e300] {
            assert_eq!(seconds(&mut [0; LENGTH_MAX], odd), None);
        }
    }

    #[test]
    fn stamps_print_as_the_general_printer_does() {
        let mut moments = Moments::default();
        for (now, start, previous) in
            [(1_795_270_114.063_448, 0.000_513, 0.000_048), (1e9, 9.999_999, 0.0), (2e9, 1.5, 1.5)]
        {
            let mut out = [0; STAMP];
            assert!(moments.stamp(&mut out, now, now - start, now - previous));
            let wanted = format!(": {now:.6} {:.6} {:.6}", now - (now - start), now - (now - previous));
            assert_eq!(std::str::from_utf8(&out).unwrap(), wanted);
        }
        for (now, start) in [(1.5, 1.0), (2e9, 2e9 + 1.0), (2e9, 2e9 - 11.0), (f64::NAN, 0.0), (1e10, 1e10)] {
            assert!(!moments.stamp(&mut [0; STAMP], now, start, now));
        }
    }

    #[test]
    fn moments_print_as_the_general_printer_does() {
        for value in [0.0, 0.000_023, 1.5, 9.999_999_9, 1_795_237_696.123_456, -0.25, -0.000_000_1, 8.9e12] {
            let mut out = [0; LENGTH_MAX];
            let length = micros(&mut out, value).unwrap();
            assert_eq!(std::str::from_utf8(&out[..length]).unwrap(), format!("{value:.6}"));
            let (mut moments, mut again) = (Moments::default(), [0; LENGTH_MAX]);
            for _ in 0..2 {
                assert_eq!(moments.print(&mut again, value), Some(length));
                assert_eq!(again[..length], out[..length]);
            }
        }
        for odd in [f64::NAN, f64::INFINITY, -1e300] {
            assert_eq!(micros(&mut [0; LENGTH_MAX], odd), None);
        }
    }
}
