//! Which records are shown: `-i`, `-x`, `-I` and `-X`, in Varnish's order of precedence; and of which side.

use crate::Failure;
use crate::options::Given;
use copal_observe::read::{Record, Transaction, TransactionKind};
use copal_observe::{Mask, taglist};
use pcre2::bytes::{Regex, RegexBuilder};

/// A choice of records. What `-I` matches is shown, then what `-X` matches is not; else the last of `-i` and `-x` that
/// names the tag decides.
#[derive(Debug)]
pub(crate) struct Selection {
    shown_by_text: Vec<Pattern>,
    hidden_by_text: Vec<Pattern>,
    hidden: Mask,
    is_all: bool,
}

#[derive(Debug)]
struct Pattern {
    tags: Mask,
    regex: Regex,
}

impl Pattern {
    fn holds(&self, record: &Record<'_>) -> bool {
        // A pattern that runs into a limit does not match.
        self.tags.has(record.tag) && self.regex.is_match(record.data).unwrap_or(false)
    }
}

impl Selection {
    /// Reads the options, in order.
    pub(crate) fn new(given: &Given) -> Result<Selection, Failure> {
        let mut selection = Selection {
            shown_by_text: Vec::new(),
            hidden_by_text: Vec::new(),
            hidden: Mask::NONE,
            is_all: true,
        };
        for (letter, value) in &given.options {
            if !matches!(letter, 'i' | 'I' | 'x' | 'X') {
                continue;
            }
            if selection.is_all && matches!(letter, 'i' | 'I') {
                selection.hidden = Mask::ALL;
            }
            selection.is_all = false;
            match letter {
                'i' => selection.hidden = selection.hidden.without(tags(*letter, value)?),
                'x' => selection.hidden = selection.hidden.union(tags(*letter, value)?),
                'I' => selection.shown_by_text.push(pattern(*letter, value, given.has('C'))?),
                _ => selection.hidden_by_text.push(pattern(*letter, value, given.has('C'))?),
            }
        }
        Ok(selection)
    }

    /// Whether `record` is shown.
    pub(crate) fn shows(&self, record: &Record<'_>) -> bool {
        let any = |patterns: &[Pattern]| patterns.iter().any(|pattern| pattern.holds(record));
        self.is_all || any(&self.shown_by_text) || !any(&self.hidden_by_text) && !self.hidden.has(record.tag)
    }
}

fn tags(letter: char, list: &str) -> Result<Mask, Failure> {
    taglist::list(list).map_err(|wrong| Failure::Text(format!("-{letter}: {wrong}")))
}

fn pattern(letter: char, text: &str, any_case: bool) -> Result<Pattern, Failure> {
    // As in Varnish, what stands before the first colon is a list of tags.
    let (tags, regex) = match text.split_once(':') {
        Some((list, regex)) => (tags(letter, list)?, regex),
        None => (Mask::ALL, text),
    };
    let regex = RegexBuilder::new().caseless(any_case).build(regex).map_err(|error| {
        let text = error.to_string();
        let reason = text.rsplit_once(": ").map_or(text.as_str(), |(_, reason)| reason);
        let position = error.offset().unwrap_or(0);
        Failure::Text(format!("-{letter}: Regex error at position {position} ({reason})"))
    })?;
    Ok(Pattern { tags, regex })
}

/// Which transactions are shown: `-b`, `-c` and `-E`; without any of them, all.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    client: bool,
    backend: bool,
    esi: bool,
}

impl Wanted {
    /// Reads the options.
    pub(crate) fn new(given: &Given) -> Wanted {
        Wanted { client: given.has('c') || given.has('E'), backend: given.has('b'), esi: given.has('E') }
    }

    /// Whether `transaction` is shown.
    pub(crate) fn wants(self, transaction: &Transaction) -> bool {
        let chosen = self.client || self.backend;
        let side = match transaction.kind {
            TransactionKind::Request => self.client || !chosen,
            TransactionKind::Backend => self.backend || !chosen,
            TransactionKind::Session | TransactionKind::Unknown => !chosen,
        };
        side && (!self.client || self.esi || transaction.reason != "esi")
    }

    /// Whether `record`, on its own, is shown.
    pub(crate) fn wants_record(self, record: &Record<'_>) -> bool {
        !(self.client || self.backend) || self.client && record.client || self.backend && record.backend
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use copal_observe::Tag;

    fn options(options: &[(char, &str)]) -> Given {
        let options = options.iter().map(|(letter, value)| (*letter, (*value).to_owned())).collect();
        Given { options, operands: Vec::new() }
    }

    fn check(given: &[(char, &str)], shown: &[(Tag, &str)], hidden: &[(Tag, &str)]) {
        let selection = Selection::new(&options(given));
        let Ok(selection) = selection else { panic!("{selection:?}") };
        for (records, expected) in [(shown, true), (hidden, false)] {
            for (tag, text) in records {
                let record =
                    Record { tag: *tag, number: 1, client: true, backend: false, data: text.as_bytes() };
                assert_eq!(selection.shows(&record), expected, "{tag:?} {text}");
            }
        }
    }

    #[test]
    fn precedence() {
        check(&[], &[(Tag::Begin, "")], &[]);
        check(&[('i', "req*,End")], &[(Tag::ReqURL, "/"), (Tag::End, "")], &[(Tag::Begin, "")]);
        check(&[('x', "Begin")], &[(Tag::End, "")], &[(Tag::Begin, "")]);
        check(&[('x', "Begin"), ('i', "Beg*")], &[(Tag::End, ""), (Tag::Begin, "")], &[]);
        check(&[('i', "Beg*"), ('x', "Begin")], &[], &[(Tag::End, ""), (Tag::Begin, "")]);
        check(&[('i', "Begin"), ('X', "esi")], &[(Tag::Begin, "req")], &[(Tag::Begin, "req 1 esi")]);
        check(
            &[('I', "ReqHeader:^Host")],
            &[(Tag::ReqHeader, "Host: a")],
            &[(Tag::ReqHeader, "X: Host"), (Tag::RespHeader, "Host: a")],
        );
        check(
            &[('C', ""), ('X', "^host")],
            &[(Tag::ReqHeader, "X: a")],
            &[(Tag::ReqHeader, "Host: a"), (Tag::VCL_Log, "HOST")],
        );
    }

    #[test]
    fn faults_are_worded_as_varnish_words_them() {
        for (letter, value, expected) in [
            ('i', "foo", "-i: \"foo\" matches zero tags"),
            ('i', "Resp", "-i: \"Resp\" is ambiguous"),
            ('x', "**", "-x: Syntax error in \"**\""),
            ('X', "**:bar", "-X: Syntax error in \"**\""),
            ('I', "(foo", "-I: Regex error at position 4 (missing closing parenthesis)"),
        ] {
            let said = match Selection::new(&options(&[(letter, value)])) {
                Err(Failure::Text(text)) => text,
                other => format!("{other:?}"),
            };
            assert_eq!(said, expected);
        }
    }
}
