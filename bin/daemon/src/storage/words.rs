//! The words of an `-s` argument, one after the other, and what single ones mean.

use super::error::Problem;
use copal_base::units::parse_bytes;

/// The smallest size: less is a forgotten unit.
pub(super) const SIZE_MIN: u64 = 1 << 20;

/// The words behind the kind, with commas between them.
#[derive(Debug)]
pub(super) struct Words<'a> {
    rest: std::str::Split<'a, char>,
}

impl<'a> Words<'a> {
    /// What stands behind the kind; `None` where no comma follows it.
    pub(super) fn new(text: Option<&'a str>) -> Self {
        let mut rest = text.unwrap_or_default().split(',');
        if text.is_none() {
            rest.next();
        }
        Self { rest }
    }

    /// The next word; an empty one is one that is not given.
    pub(super) fn next(&mut self) -> Option<&'a str> {
        self.rest.next().filter(|word| !word.is_empty())
    }

    /// All further words, without empty ones.
    pub(super) fn others(self) -> impl Iterator<Item = &'a str> {
        self.rest.filter(|word| !word.is_empty())
    }

    /// Refuses further words.
    pub(super) fn end(mut self) -> Result<(), Problem> {
        match self.rest.next() {
            Some(text) => Err(Problem::TooMany { text: text.to_owned() }),
            None => Ok(()),
        }
    }
}

/// A number of bytes, with a unit or without.
pub(super) fn bytes(what: &str, text: &str) -> Result<u64, Problem> {
    parse_bytes(text).map_err(|_| {
        let number = text.trim();
        let digits = number.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'.').count();
        let unit = number[digits..].trim_start().to_ascii_lowercase();
        let is_known = unit.is_empty()
            || unit == "b"
            || matches!(unit.strip_suffix('b').unwrap_or(&unit), "k" | "m" | "g" | "t" | "p");
        let why = match () {
            () if digits == 0 => "Invalid number",
            () if !is_known => "Unknown BYTES unit of measurement ([KMGTP][B])",
            () if number[..digits].matches('.').count() > 1 => "Invalid number",
            () => "Too many digits",
        };
        Problem::Size { what: what.to_owned(), text: text.to_owned(), why }
    })
}

/// A size of something that keeps objects.
pub(super) fn size(what: &str, text: &str) -> Result<u64, Problem> {
    let found = bytes(what, text)?;
    if found < SIZE_MIN {
        let why = "too small, did you forget to specify M or G?";
        return Err(Problem::Size { what: what.to_owned(), text: text.to_owned(), why });
    }
    Ok(found)
}

/// Puts `value` where nothing was put before.
pub(super) fn once<T>(slot: &mut Option<T>, name: &str, value: T) -> Result<(), Problem> {
    match slot.replace(value) {
        Some(_) => Err(Problem::Repeated { name: name.to_owned() }),
        None => Ok(()),
    }
}
