//! Values of parameters: how each kind is read, bounded and printed.

use copal_observe as observe;
use copal_rules as rules;
use observe::mask::Mask;
use rules::targeted::Names;

/// The longest time a parameter takes, in seconds: 30 years. What uses it may add it to the present moment.
pub(crate) const SECONDS_MAX: f64 = 1e9;

/// A parameter's value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    /// Of [`Kind::Seconds`] and [`Kind::Real`].
    Real(f64),
    /// Of [`Kind::Count`] and [`Kind::Bytes`].
    Whole(u64),
    /// Of [`Kind::Switch`].
    Switch(bool),
    /// Of the other kinds, in the form that is printed.
    Text(String),
}

/// The names of a parameter's bits.
#[derive(Debug, PartialEq)]
pub(crate) struct BitNames {
    /// What messages call one of them.
    pub(crate) word: &'static str,
    /// All, in the order in which they are shown.
    pub(crate) names: &'static [&'static str],
}

impl BitNames {
    /// Whether the bit `name` is on in `value`, which is of this kind.
    pub(crate) fn is_on(&self, value: &str, name: &str) -> bool {
        debug_assert!(self.names.contains(&name), "{name}");
        words(value).any(|word| word.strip_prefix('+') == Some(name))
    }
}

/// What a parameter may be set to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    /// A time, printed to the millisecond.
    Seconds(f64, Option<f64>),
    /// A number with a fraction.
    Real(f64, f64),
    /// A whole number.
    Count(u64, Option<u64>),
    /// A size, with Varnish's units.
    Bytes(u64, Option<u64>),
    /// `on` or `off`.
    Switch,
    /// One of these words.
    Word(&'static [&'static str]),
    /// Any text.
    Text,
    /// Names of header fields.
    FieldNames,
    /// The log's tags, some left out.
    Mask,
    /// Named bits, changed by `+name` and `-name`.
    Bits(&'static BitNames),
    /// Three numbers with commas between: sizes and age of a memory pool.
    Pool,
    /// Varnish has it, but not on Linux.
    Unavailable,
}

impl Kind {
    /// Reads `text`; bits and masks are changes of `current`, or of `default` after the word `default`.
    ///
    /// # Errors
    /// What is wrong, in Varnish's words.
    pub(crate) fn parse(self, text: &str, current: &Value, default: &Value) -> Result<Value, String> {
        match self {
            Self::Seconds(least, most) => {
                let value = seconds(text)?;
                if value < least {
                    return Err(format!("Must be greater or equal to {least:.3}\n"));
                }
                let most = most.unwrap_or(SECONDS_MAX);
                if value > most {
                    return Err(format!("Must be less than or equal to {most:.3}\n"));
                }
                Ok(Value::Real(value))
            }
            Self::Real(least, most) => {
                let value = number(text)?;
                match value {
                    value if value < least => Err(format!("Must be greater or equal to {least}\n")),
                    value if value > most => Err(format!("Must be less than or equal to {most}\n")),
                    value => Ok(Value::Real(value)),
                }
            }
            Self::Count(least, most) => {
                let value = whole(text).ok_or_else(|| format!("Not a number ({text})\n"))?;
                within(value, least, most, |bound| bound.to_string())
            }
            Self::Bytes(least, most) => {
                let value = copal_base::units::parse_bytes(text).map_err(|_| not_bytes(text))?;
                within(value, least, most, print_bytes)
            }
            Self::Switch => switch(text),
            Self::Word(words) if words.contains(&text) => Ok(Value::Text(text.to_owned())),
            Self::Word(words) => Err(format!("Must be one of {}\n", words.join(", "))),
            Self::Text => Ok(Value::Text(text.to_owned())),
            Self::FieldNames => match Names::parse(text) {
                Ok(_) => Ok(Value::Text(text.to_owned())),
                Err(wrong) => Err(format!("{wrong}\n")),
            },
            Self::Mask => mask(text, current),
            Self::Bits(names) => bits(names, text, current, default),
            Self::Pool => pool(text),
            Self::Unavailable => Err("Not available on this platform\n".to_owned()),
        }
    }

    /// Prints a value of this kind so that [`Kind::parse`] reads it back.
    pub(crate) fn print(self, value: &Value) -> String {
        match (self, value) {
            (Self::Seconds(..), Value::Real(value)) => format!("{value:.3}"),
            (Self::Bytes(..), Value::Whole(value)) => print_bytes(*value),
            (_, Value::Real(value)) => value.to_string(),
            (_, Value::Whole(value)) => value.to_string(),
            (_, Value::Switch(on)) => if *on { "on" } else { "off" }.to_owned(),
            (_, Value::Text(text)) => text.clone(),
        }
    }

    /// The bounds as they are shown.
    pub(crate) fn bounds(self) -> (Option<String>, Option<String>) {
        match self {
            Self::Seconds(least, most) => {
                (Some(format!("{least:.3}")), most.map(|most| format!("{most:.3}")))
            }
            Self::Real(least, most) => (Some(least.to_string()), Some(most.to_string())),
            Self::Count(least, most) => (Some(least.to_string()), most.map(|most| most.to_string())),
            Self::Bytes(least, most) => (Some(print_bytes(least)), most.map(print_bytes)),
            Self::Switch
            | Self::Word(_)
            | Self::Text
            | Self::FieldNames
            | Self::Mask
            | Self::Bits(_)
            | Self::Pool
            | Self::Unavailable => (None, None),
        }
    }
}

/// A time: a number of seconds, or one with a unit of VCL. Varnish 7.1 takes any unit there is for seconds.
fn seconds(text: &str) -> Result<f64, String> {
    match number(text) {
        Err(wrong) => {
            let trimmed = text.trim();
            let begins = trimmed.trim_end_matches(|c: char| c.is_ascii_alphabetic()).trim_end();
            let with_unit = number(begins).and_then(|_| copal_base::units::parse_duration(trimmed));
            with_unit.ok().filter(|value| value.is_finite()).ok_or(wrong)
        }
        plain => plain,
    }
}

/// A whole number, as C writes it: `0x10`, too.
fn whole(text: &str) -> Option<u64> {
    let text = text.trim();
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) if !digits.starts_with('+') => u64::from_str_radix(digits, 16).ok(),
        _ => text.parse().ok(),
    }
}

fn number(given: &str) -> Result<f64, String> {
    let text = given.trim();
    let plain =
        text.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'-' | b'+' | b'e' | b'E'));
    match text.parse::<f64>() {
        Ok(value) if plain && value.is_finite() => Ok(value),
        _ => Err(format!("Invalid number ({given})\n")),
    }
}

fn not_bytes(text: &str) -> String {
    let why = match text.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        true => "Unknown BYTES unit of measurement ([KMGTP][B])",
        false => "Invalid number",
    };
    format!("Could not convert to bytes.\n{why}\n  Try something like '80k' or '120M'\n")
}

fn within(value: u64, least: u64, most: Option<u64>, print: fn(u64) -> String) -> Result<Value, String> {
    if value < least {
        return Err(format!("Must be at least {}\n", print(least)));
    }
    match most {
        Some(most) if value > most => Err(format!("Must be no more than {}\n", print(most))),
        _ => Ok(Value::Whole(value)),
    }
}

fn switch(text: &str) -> Result<Value, String> {
    match text.to_ascii_lowercase().as_str() {
        "on" | "yes" | "true" | "enable" => Ok(Value::Switch(true)),
        "off" | "no" | "false" | "disable" => Ok(Value::Switch(false)),
        _ => Err("use \"on\" or \"off\"\n".to_owned()),
    }
}

/// The changes in `text` to the mask `current`, one after the other.
fn mask(text: &str, current: &Value) -> Result<Value, String> {
    let Value::Text(current) = current else { unreachable!("a mask is kept as text") };
    let mut mask = Mask::ALL.changed(current).expect("what a mask prints reads back");
    for word in words(text) {
        if word != "default" && !word.starts_with(['+', '-']) {
            return Err(format!("Missing '+' or '-' ({word})\n"));
        }
        mask = mask.changed(word).map_err(|_| format!("Unknown VSL tag ({word})\n"))?;
    }
    Ok(Value::Text(mask.to_string()))
}

fn bits(bits: &'static BitNames, text: &str, current: &Value, default: &Value) -> Result<Value, String> {
    let names = bits.names;
    let mut on = set_bits(names, current);
    for word in words(text) {
        match word {
            "default" => on = set_bits(names, default),
            "none" => on = vec![false; names.len()],
            _ => {
                let (value, name) = match word.as_bytes()[0] {
                    b'+' => (true, &word[1..]),
                    b'-' => (false, &word[1..]),
                    _ => return Err(format!("Missing '+' or '-' ({word})\n")),
                };
                let bit = names.iter().position(|bit| bit.eq_ignore_ascii_case(name));
                on[bit.ok_or_else(|| format!("Unknown {} ({word})\n", bits.word))?] = value;
            }
        }
    }
    let set: Vec<String> =
        names.iter().zip(on).filter(|(_, on)| *on).map(|(name, _)| format!("+{name}")).collect();
    Ok(Value::Text(if set.is_empty() { "none".to_owned() } else { set.join(",") }))
}

fn set_bits(names: &[&str], value: &Value) -> Vec<bool> {
    let Value::Text(text) = value else { unreachable!("bits are kept as text") };
    names.iter().map(|name| words(text).any(|word| word.strip_prefix('+') == Some(name))).collect()
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split([',', ' ', '\t']).filter(|word| !word.is_empty())
}

fn pool(text: &str) -> Result<Value, String> {
    let words: Vec<&str> = words(text).collect();
    let [least, most, age] = words[..] else {
        return Err("Three fields required: min_pool, max_pool and max_age\n".to_owned());
    };
    let count =
        |text: &str| -> Result<u32, String> { text.parse().map_err(|_| format!("Not a number ({text})\n")) };
    let (least, most, age) = (count(least)?, count(most)?, number(age)?);
    if age > 1e6 {
        return Err("Must be less than or equal to 1000000\n".to_owned());
    }
    if least > most {
        return Err("min_pool cannot be larger than max_pool\n".to_owned());
    }
    Ok(Value::Text(format!("{least},{most},{age}")))
}

/// A size in the largest unit in which it is a multiple of a quarter, as Varnish prints it: `0.75k`, `96k`, `255b`.
pub(crate) fn print_bytes(bytes: u64) -> String {
    if bytes == 0 || !bytes.is_multiple_of(256) {
        return format!("{bytes}b");
    }
    let mut bytes = bytes;
    for unit in ['k', 'M', 'G', 'T', 'P'] {
        if !bytes.is_multiple_of(1024) {
            let quarters = bytes / 256;
            if !quarters.is_multiple_of(4) && bytes.is_multiple_of(256) {
                return format!("{}.{:02}{unit}", quarters / 4, quarters % 4 * 25);
            }
        }
        bytes /= 1024;
        if !bytes.is_multiple_of(256) {
            return format!("{bytes}{unit}");
        }
    }
    format!("{bytes}P")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(kind: Kind, current: &str, text: &str, expected: Result<&str, &str>) {
        let current = match kind {
            Kind::Mask | Kind::Bits(_) => Value::Text(current.to_owned()),
            _ => Value::Whole(0),
        };
        let default = Value::Text("+b".to_owned());
        let found = kind.parse(text, &current, &default).map(|value| kind.print(&value));
        assert_eq!(found.as_deref().map_err(|error| error.trim_end()), expected, "{kind:?} {text}");
    }

    #[test]
    fn each_kind() {
        let seconds = Kind::Seconds(0.0, Some(7200.0));
        check(seconds, "", "120", Ok("120.000"));
        check(seconds, "", ".5", Ok("0.500"));
        check(seconds, "", "x", Err("Invalid number (x)"));
        check(seconds, "", "inf", Err("Invalid number (inf)"));
        check(seconds, "", "1h", Ok("3600.000"));
        check(seconds, "", "300s", Ok("300.000"));
        check(seconds, "", " 0.5 m ", Ok("30.000"));
        check(seconds, "", "h", Err("Invalid number (h)"));
        check(seconds, "", "5x", Err("Invalid number (5x)"));
        check(seconds, "", "1.5.2s", Err("Invalid number (1.5.2s)"));
        check(Kind::Count(5, Some(32)), "", " 0x10", Ok("16"));
        check(Kind::Count(5, Some(32)), "", "0x+10", Err("Not a number (0x+10)"));
        check(seconds, "", "NaN", Err("Invalid number (NaN)"));
        check(seconds, "", "-1", Err("Must be greater or equal to 0.000"));
        check(seconds, "", "8000", Err("Must be less than or equal to 7200.000"));
        check(Kind::Seconds(0.0, None), "", "1e300", Err("Must be less than or equal to 1000000000.000"));
        check(Kind::Count(5, Some(32)), "", "7", Ok("7"));
        check(Kind::Count(5, Some(32)), "", "1x", Err("Not a number (1x)"));
        check(Kind::Count(5, Some(32)), "", "4", Err("Must be at least 5"));
        check(Kind::Count(5, Some(32)), "", "99", Err("Must be no more than 32"));
        check(Kind::Bytes(128, Some(1 << 20)), "", "8k", Ok("8k"));
        check(Kind::Bytes(128, Some(1 << 20)), "", "1g", Err("Must be no more than 1M"));
        check(Kind::Switch, "", "ON", Ok("on"));
        check(Kind::Switch, "", "maybe", Err("use \"on\" or \"off\""));
        check(Kind::Pool, "", "10,100,10", Ok("10,100,10"));
        check(Kind::Pool, "", "10,1,10", Err("min_pool cannot be larger than max_pool"));
    }

    #[test]
    fn bits_and_masks_change_what_is() {
        const NAMES: BitNames = BitNames { word: "feature bit", names: &["a", "b", "c"] };
        let bits = Kind::Bits(&NAMES);
        check(bits, "+b", "+a", Ok("+a,+b"));
        check(bits, "+b", "-b", Ok("none"));
        check(bits, "none", "+c,default", Ok("+b"));
        check(bits, "+b", "none +c", Ok("+c"));
        check(bits, "+b", "a", Err("Missing '+' or '-' (a)"));
        check(bits, "+b", "+z", Err("Unknown feature bit (+z)"));
        check(Kind::Mask, "-Debug,-Hash", "+Hash", Ok("-Debug"));
        check(Kind::Mask, "-Debug", "-Hash,-VCL_call", Ok("-Debug,-VCL_call,-Hash"));
        check(Kind::Mask, "-Debug", "+Nope", Err("Unknown VSL tag (+Nope)"));
        check(Kind::Mask, "-Debug", "all", Err("Missing '+' or '-' (all)"));
    }

    #[test]
    fn sizes_print_as_varnish_prints_them() {
        for (bytes, text) in [
            (0, "0b"),
            (255, "255b"),
            (256, "0.25k"),
            (768, "0.75k"),
            (1280, "1.25k"),
            (8192, "8k"),
            (49_152, "48k"),
            (98_304, "96k"),
            (99_999_999, "99999999b"),
            (1 << 20, "1M"),
            (80 << 20, "80M"),
            (1 << 28, "0.25G"),
            (4 << 30, "4G"),
            (1 << 50, "1P"),
        ] {
            assert_eq!(print_bytes(bytes), text);
            assert_eq!(copal_base::units::parse_bytes(text), Ok(bytes));
        }
    }
}
