//! Whether a group of transactions satisfies an expression. Nothing is copied: the records are looked at where they are.

use super::number::{float_in, integer_in};
use super::{Expression, Level, Selection, Source, Test};
use crate::tags::Tag;

impl Expression {
    pub(super) fn holds<S: Source>(&self, group: &[S]) -> bool {
        match self {
            Expression::Any(all) => all.iter().any(|part| part.holds(group)),
            Expression::All(all) => all.iter().all(|part| part.holds(group)),
            Expression::Not(part) => !part.holds(group),
            Expression::Number(relation, wanted) => {
                group.iter().any(|source| relation.holds(u64::from(source.number()).cmp(wanted)))
            }
            Expression::Record(selection, test) => group
                .iter()
                .filter(|source| selection.level.is_none_or(|level| level.holds(source.level())))
                .any(|source| {
                    source
                        .any(&mut |tag, data| selection.part(tag, data).is_some_and(|part| test.holds(part)))
                }),
        }
    }
}

impl Level {
    fn holds(self, level: usize) -> bool {
        match self {
            Level::Is(wanted) => level == wanted,
            Level::AtLeast(least) => level >= least,
            Level::AtMost(most) => level <= most,
        }
    }
}

impl Selection {
    /// The part of a record that is meant, if the record is one of those meant.
    fn part<'a>(&self, tag: Tag, data: &'a [u8]) -> Option<&'a [u8]> {
        if self.tags.is_some_and(|tags| !tags.has(tag)) {
            return None;
        }
        let data = match &self.prefix {
            None => data,
            Some(prefix) => after_prefix(data, prefix)?,
        };
        match self.field {
            None => Some(data),
            Some(number) => field(data, number),
        }
    }
}

/// The field of this number, from 1: what stands between blanks, or between quotes that blanks surround. `None` too if
/// quotes up to it are not closed, or something follows them at once.
fn field(data: &[u8], number: usize) -> Option<&[u8]> {
    let mut rest = data.trim_ascii_start();
    for at in 1.. {
        let (found, after) = match rest.split_first()? {
            (b'"', quoted) => {
                let end = quoted.iter().position(|byte| *byte == b'"')?;
                (&quoted[..end], &quoted[end + 1..])
            }
            _ => rest.split_at(rest.iter().position(u8::is_ascii_whitespace).unwrap_or(rest.len())),
        };
        if after.first().is_some_and(|byte| !byte.is_ascii_whitespace()) {
            return None;
        }
        if at == number {
            return Some(found);
        }
        rest = after.trim_ascii_start();
    }
    None
}

/// What follows `prefix`, a colon and blanks.
fn after_prefix<'a>(data: &'a [u8], prefix: &[u8]) -> Option<&'a [u8]> {
    let (head, rest) = data.split_at_checked(prefix.len())?;
    if !head.eq_ignore_ascii_case(prefix) {
        return None;
    }
    rest.strip_prefix(b":").map(<[u8]>::trim_ascii_start)
}

impl Test {
    fn holds(&self, part: &[u8]) -> bool {
        match self {
            Test::Exists => true,
            Test::Integer(relation, wanted) => {
                integer_in(part).is_some_and(|value| relation.holds(value.cmp(wanted)))
            }
            Test::Float(relation, wanted) => float_in(part)
                .is_some_and(|value| value.partial_cmp(wanted).is_some_and(|o| relation.holds(o))),
            Test::Text { equal, text, any_case } => {
                let same = if *any_case { part.eq_ignore_ascii_case(text) } else { part == text };
                same == *equal
            }
            Test::Regex { matches, regex } => regex.is_match(part).is_ok_and(|found| found == *matches),
        }
    }
}
