//! `std.strftime`: a TIME in UTC by a format, in the C locale.
//!
//! A conversion is `% [flags] [width] [E|O] letter`. Flags: `_` pads with spaces, `-` does not pad, `0` pads with zeros,
//! `^` makes upper case, `#` swaps it. What is no conversion stays as it is written. Source: glibc's strftime(3).

use super::calendar::Moment;
use crate::arguments::Arguments;
use copal_vcl as vcl;
use vcl::host::Result;
use vcl::value::Value;
use vcl::vmod::Call;

/// The longest result; what would be longer is the empty string, as a failed strftime(3).
const OUTPUT_MAX: usize = 16 * 1024;

const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// `std.strftime(time, format)`
pub(super) fn strftime(call: &mut Call<'_>) -> Result<Value> {
    let arguments = Arguments(call.arguments);
    let format = arguments.text_or_empty(1)?;
    Ok(Value::text(utc_time(arguments.time(0)?, format)))
}

/// `time` in UTC by `format`; empty if that is too long, or the time too far away.
pub(crate) fn utc_time(time: copal_base::Time, format: &[u8]) -> Vec<u8> {
    Moment::new(time).and_then(|moment| render(&moment, format)).unwrap_or_default()
}

/// `format` filled in; `None` if that outgrows [`OUTPUT_MAX`].
fn render(moment: &Moment, format: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(format.len() * 2);
    let mut at = 0;
    while at < format.len() {
        if out.len() > OUTPUT_MAX {
            return None;
        }
        let Some((conversion, next)) = (format[at] == b'%').then(|| Conversion::parse(format, at)).flatten()
        else {
            out.push(format[at]);
            at += 1;
            continue;
        };
        match field(moment, conversion.letter) {
            Some(field) => conversion.push(&field, moment, &mut out)?,
            None => out.extend_from_slice(&format[at..next]),
        }
        at = next;
    }
    (out.len() <= OUTPUT_MAX).then_some(out)
}

/// One `%...` of a format.
struct Conversion {
    /// `_`, `-` or `0`; the last one counts.
    pad: Option<u8>,
    upper: bool,
    swap: bool,
    /// At least as many columns; at most [`OUTPUT_MAX`] and one.
    width: Option<usize>,
    letter: u8,
}

impl Conversion {
    /// The conversion whose `%` is at `at`, and where the text after it begins. `None` if the format ends in it.
    fn parse(format: &[u8], at: usize) -> Option<(Self, usize)> {
        let mut this = Self { pad: None, upper: false, swap: false, width: None, letter: 0 };
        let mut at = at + 1;
        loop {
            match format.get(at)? {
                pad @ (b'_' | b'-' | b'0') => this.pad = Some(*pad),
                b'^' => this.upper = true,
                b'#' => this.swap = true,
                _ => break,
            }
            at += 1;
        }
        while let Some(digit @ b'0'..=b'9') = format.get(at) {
            this.width = Some((this.width.unwrap_or(0) * 10 + usize::from(digit - b'0')).min(OUTPUT_MAX + 1));
            at += 1;
        }
        if matches!(format.get(at)?, b'E' | b'O') {
            at += 1;
        }
        this.letter = *format.get(at)?;
        Some((this, at + 1))
    }

    fn push(&self, field: &Field, moment: &Moment, out: &mut Vec<u8>) -> Option<()> {
        match *field {
            Field::Number(value, digits, pad) => {
                let pad = self.pad.unwrap_or(pad);
                let width = if pad == b'-' { 0 } else { self.width.unwrap_or(digits) };
                push_number(value, width, if pad == b'_' { b' ' } else { b'0' }, out);
            }
            Field::Text(text) => self.push_text(text.as_bytes().to_vec(), out),
            Field::Composed(format) => {
                let text = render(moment, format.as_bytes())?;
                self.push_text(text, out);
            }
        }
        Some(())
    }

    fn push_text(&self, mut text: Vec<u8>, out: &mut Vec<u8>) {
        // `#` makes what is all upper case lower, and the rest upper: %p and %Z one way, names the other.
        let lower = self.swap && text.iter().all(u8::is_ascii_uppercase);
        if lower {
            text.make_ascii_lowercase();
        } else if self.upper || self.swap {
            text.make_ascii_uppercase();
        }
        let pad = if self.pad == Some(b'0') { b'0' } else { b' ' };
        let missing = self.width.unwrap_or(0).saturating_sub(text.len());
        out.resize(out.len() + missing, pad);
        out.extend_from_slice(&text);
    }
}

/// What a letter stands for.
enum Field {
    /// A number, its usual count of digits, and what it is padded with: `0` or `_`.
    Number(i64, usize, u8),
    Text(&'static str),
    /// Another format.
    Composed(&'static str),
}

fn field(moment: &Moment, letter: u8) -> Option<Field> {
    let zero = |value, digits| Field::Number(value, digits, b'0');
    let space = |value, digits| Field::Number(value, digits, b'_');
    let twelve = if moment.hour % 12 == 0 { 12 } else { moment.hour % 12 };
    let (iso_year, iso_week) = moment.iso_week();
    let monday_based = (moment.weekday + 6) % 7;
    let day_name = DAYS[moment.weekday as usize];
    let month_name = MONTHS[moment.month as usize - 1];
    Some(match letter {
        b'a' => Field::Text(&day_name[..3]),
        b'A' => Field::Text(day_name),
        b'b' | b'h' => Field::Text(&month_name[..3]),
        b'B' => Field::Text(month_name),
        b'c' => Field::Composed("%a %b %e %H:%M:%S %Y"),
        b'C' => zero(moment.year.div_euclid(100), 2),
        b'd' => zero(moment.day, 2),
        b'D' | b'x' => Field::Composed("%m/%d/%y"),
        b'e' => space(moment.day, 2),
        b'F' => Field::Composed("%Y-%m-%d"),
        b'g' => zero(iso_year.rem_euclid(100), 2),
        b'G' => zero(iso_year, 1),
        b'H' => zero(moment.hour, 2),
        b'I' => zero(twelve, 2),
        b'j' => zero(moment.year_day + 1, 3),
        b'k' => space(moment.hour, 2),
        b'l' => space(twelve, 2),
        b'm' => zero(moment.month, 2),
        b'M' => zero(moment.minute, 2),
        b'n' => Field::Text("\n"),
        b'p' => Field::Text(if moment.hour < 12 { "AM" } else { "PM" }),
        b'P' => Field::Text(if moment.hour < 12 { "am" } else { "pm" }),
        b'r' => Field::Composed("%I:%M:%S %p"),
        b'R' => Field::Composed("%H:%M"),
        b's' => zero(moment.epoch, 1),
        b'S' => zero(moment.second, 2),
        b't' => Field::Text("\t"),
        b'T' | b'X' => Field::Composed("%H:%M:%S"),
        b'u' => zero(monday_based + 1, 1),
        b'U' => zero((moment.year_day + 7 - moment.weekday) / 7, 2),
        b'V' => zero(iso_week, 2),
        b'w' => zero(moment.weekday, 1),
        b'W' => zero((moment.year_day + 7 - monday_based) / 7, 2),
        b'y' => zero(moment.year.rem_euclid(100), 2),
        b'Y' => zero(moment.year, 1),
        b'z' => Field::Text("+0000"),
        b'Z' => Field::Text("GMT"),
        b'%' => Field::Text("%"),
        _ => return None,
    })
}

fn push_number(value: i64, width: usize, pad: u8, out: &mut Vec<u8>) {
    let digits = value.unsigned_abs().to_string();
    let sign = usize::from(value < 0);
    let missing = width.saturating_sub(digits.len() + sign);
    if pad == b' ' {
        out.resize(out.len() + missing, b' ');
    }
    if value < 0 {
        out.push(b'-');
    }
    if pad == b'0' {
        out.resize(out.len() + missing, b'0');
    }
    out.extend_from_slice(digits.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{call_std, text};

    /// Formats Sunday, 6 November 1994, 08:49:37.5 UTC.
    fn check(format: &str, expected: &str) {
        let made = call_std("strftime", &[Value::Time(784_111_777.5), text(format)]).unwrap();
        assert_eq!(format!("{made:?}"), format!("{:?}", text(expected)), "{format}");
    }

    #[test]
    fn every_conversion() {
        for (format, expected) in [
            ("%Y%m%dT%H%M%SZ", "19941106T084937Z"),
            ("%a %A %b %B %h", "Sun Sunday Nov November Nov"),
            ("%c|%C %d %D %e %F", "Sun Nov  6 08:49:37 1994|19 06 11/06/94  6 1994-11-06"),
            ("%g %G %I %j %k %l", "94 1994 08 310  8  8"),
            ("%M%n%p %P %r %R %s", "49\nAM am 08:49:37 AM 08:49 784111777"),
            ("%S%t%T %u %U %V", "37\t08:49:37 7 45 44"),
            ("%w %W %x %X %y", "0 44 11/06/94 08:49:37 94"),
            ("%z %Z %%", "+0000 GMT %"),
        ] {
            check(format, expected);
        }
    }

    #[test]
    fn flags_widths_and_what_is_no_conversion() {
        for (format, expected) in [
            ("%-d|%_d|%0e|%^a|%#Z", "6| 6|06|SUN|gmt"),
            ("%-e|%_m|%^B|%5d|%10Y", "6|11|NOVEMBER|00006|0000001994"),
            ("%Ey %Od", "94 06"),
            ("%Q %+ %E ", "%Q %+ %E "),
            ("%", "%"),
            ("100%", "100%"),
            ("%5", "%5"),
            ("", ""),
            ("%9999999999d", ""),
        ] {
            check(format, expected);
        }
    }

    #[test]
    fn a_time_that_is_none_gives_the_empty_string() {
        let made = call_std("strftime", &[Value::Time(f64::NAN), text("%Y")]).unwrap();
        assert_eq!(format!("{made:?}"), format!("{:?}", text("")));
    }
}
