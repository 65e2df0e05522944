//! The check of words in any text file: those that mark unfinished work, and paths of somebody's machine.

use super::Finding;
use super::code::find_word;

/// Words that mark unfinished work. Put together from halves, so that this file passes its own check.
const UNFINISHED: &[&str] = &[
    concat!("to", "do!"),
    concat!("un", "implemented!"),
    concat!("db", "g!"),
    concat!("FIX", "ME"),
    concat!("X", "XX"),
    concat!("for", " now"),
];

/// Beginnings of paths that exist on one machine only.
const MACHINE: &[&str] = &[concat!("/wo", "rk/"), concat!("/tmp", "/plan"), concat!("../", "shared")];

/// All such words in the text of one file.
pub(crate) fn check(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, line) in text.lines().enumerate() {
        for word in UNFINISHED {
            // Bytes of other protocols may hold such a word: test corpora of raw bytes are data.
            if find_word(line, word).next().is_some() && !path.ends_with(".json") {
                findings.push(Finding::new(
                    path,
                    index + 1,
                    format!("`{word}`: finish it, or name the issue"),
                ));
            }
        }
        for place in MACHINE {
            if line.contains(place) {
                findings.push(Finding::new(path, index + 1, format!("`{place}` is a path of one machine")));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, findings: usize) {
        assert_eq!(super::check("a.rs", &format!("first\n{line}\n")).len(), findings, "{line:?}");
    }

    #[test]
    fn unfinished_work_is_found() {
        for word in UNFINISHED {
            check(&format!("    {word}(\"later\")"), 1);
        }
    }

    #[test]
    fn longer_names_are_not_those_words() {
        check(concat!("mktemp -d /tmp/copal.X", "XXXXX"), 0);
        check("for nowhere", 0);
        check("the method list", 0);
    }

    #[test]
    fn paths_of_a_machine_are_found() {
        for place in MACHINE {
            check(&format!("see {place}x"), 1);
        }
        check("see $W/out/x", 0);
    }

    #[test]
    fn the_line_is_named() {
        assert_eq!(super::check("a.rs", concat!("a\nb FIX", "ME\n"))[0].line, 2);
    }
}
