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

fn integer_32(out: &mut Room, mut value: u32) -> usize {
    let length = value.checked_ilog10().map_or(1, |log| log as usize + 1);
    let mut at = length;
    while at >= 2 {
        at -= 2;
        pair(out, at, value);
        value /= 100;
    }
    if at == 1 {
        out[0] = b'0' + (value % 10) as u8;
    }
    length
}

/// Writes `seconds` with six decimals and returns its length, or `None` if it is out of the range that needs no general
/// printer (about 290,000 years either way).
#[inline]
pub(crate) fn micros(out: &mut Room, seconds: f64) -> Option<usize> {
    // Half up; the conversion saturates, and what is no number becomes 0.
    let scaled = (seconds * 1e6 + 0.5) as i64;
    if (0..10_000_000).contains(&scaled) && seconds >= 0.0 {
        // As nearly all are that the log prints.
        let scaled = scaled as u32;
        out[0] = b'0' + (scaled / 1_000_000) as u8;
        fraction(&mut out[1..8], scaled % 1_000_000);
        return Some(8);
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
        let scaled = (moment * 1e6 + 0.5) as u64;
        let second = scaled / 1_000_000;
        if second != self.second {
            (self.second, self.length) = (second, integer(&mut self.digits, second));
        }
        // A copy of known size is two moves; what is too much of it is written over.
        *out = self.digits;
        fraction(&mut out[self.length..], (scaled % 1_000_000) as u32);
        Some(self.length + 7)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_print_as_the_general_printer_does() {
        for value in
            [0, 1, 9, 10, 99, 100, 12_345, 1_000_000, u64::MAX, u64::MAX / 10, 4_294_967_296, 10_000_000_001]
        {
            let mut out = [0; LENGTH_MAX];
            let length = integer(&mut out, value);
            assert_eq!(std::str::from_utf8(&out[..length]).unwrap(), value.to_string());
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
