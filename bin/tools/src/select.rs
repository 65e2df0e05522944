//! Which records are shown: `-i`, `-x`, `-I` and `-X`, in Varnish's order of precedence.

use crate::Failure;
use crate::options::Given;
use copal_observe::read::Record;
use copal_observe::{Tag, glob};
use pcre2::bytes::{Regex, RegexBuilder};

/// A choice of records.
#[derive(Debug, Default)]
pub(crate) struct Selection {
    chosen: Vec<Tag>,
    chosen_by_text: Vec<Pattern>,
    left_out: Vec<Tag>,
    left_out_by_text: Vec<Pattern>,
}

#[derive(Debug)]
struct Pattern {
    /// Empty for all.
    tags: Vec<Tag>,
    regex: Regex,
}

impl Pattern {
    fn holds(&self, record: &Record<'_>) -> bool {
        (self.tags.is_empty() || self.tags.contains(&record.tag))
            // A pattern that runs into a limit does not match.
            && self.regex.is_match(record.data).unwrap_or(false)
    }
}

impl Selection {
    /// Reads the options, in order.
    pub(crate) fn new(given: &Given) -> Result<Selection, Failure> {
        let mut selection = Selection::default();
        let mut is_first = true;
        for (letter, value) in &given.options {
            if !matches!(letter, 'i' | 'I' | 'x' | 'X') {
                continue;
            }
            if is_first && matches!(letter, 'i' | 'I') {
                selection.left_out = Tag::ALL.to_vec();
            }
            is_first = false;
            match letter {
                'i' => selection.chosen.extend(tags(*letter, value)?),
                'x' => selection.left_out.extend(tags(*letter, value)?),
                'I' => selection.chosen_by_text.push(pattern(*letter, value, given.has('C'))?),
                _ => selection.left_out_by_text.push(pattern(*letter, value, given.has('C'))?),
            }
        }
        Ok(selection)
    }

    /// Whether `record` is shown.
    pub(crate) fn shows(&self, record: &Record<'_>) -> bool {
        let any = |patterns: &[Pattern]| patterns.iter().any(|pattern| pattern.holds(record));
        any(&self.chosen_by_text)
            || self.chosen.contains(&record.tag)
            || !(any(&self.left_out_by_text) || self.left_out.contains(&record.tag))
    }
}

fn tags(letter: char, list: &str) -> Result<Vec<Tag>, Failure> {
    let mut tags = Vec::new();
    for word in list.split(',').map(str::trim).filter(|word| !word.is_empty()) {
        let pattern = word.to_ascii_lowercase();
        let before = tags.len();
        tags.extend(Tag::ALL.iter().filter(|tag| glob::matches(&pattern, &tag.name().to_ascii_lowercase())));
        if tags.len() == before {
            return Err(Failure::Text(format!("-{letter}: \"{word}\" matches zero tags")));
        }
    }
    Ok(tags)
}

fn pattern(letter: char, text: &str, any_case: bool) -> Result<Pattern, Failure> {
    // As in Varnish, what stands before the first colon is a list of tags.
    let (tags, regex) = match text.split_once(':') {
        Some((list, regex)) => (tags(letter, list)?, regex),
        None => (Vec::new(), text),
    };
    let regex = RegexBuilder::new().caseless(any_case).build(regex);
    Ok(Pattern { tags, regex: regex.map_err(|error| Failure::Text(format!("-{letter}: {error}")))? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(options: &[(char, &str)], shown: &[(Tag, &str)], hidden: &[(Tag, &str)]) {
        let options = options.iter().map(|(letter, value)| (*letter, (*value).to_owned())).collect();
        let selection = Selection::new(&Given { options, operands: Vec::new() });
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
}
