//! `cargo xtask tidy`: the rules of the tree that the compiler cannot see.
//!
//! ```text
//! tree (walk) --> Cargo.toml files --> layers    edges against the picture of layers.toml
//!             \-> *.rs files       --> source    unsafe, SAFETY, `//!`, pure crates, length
//!             \-> all text files   --> words     unfinished work, paths of somebody's machine
//!             \-> docs/rfc.md      --> manual    whether the generated table is current
//! ```
//!
//! Each check takes text and gives findings, so that its tests need no files: a check that cannot fail is not a check.

mod code;
mod layers;
mod picture;
mod source;
mod tree;
mod words;

use std::fmt;
use std::path::Path;

use crate::manual;
use picture::Picture;
pub(crate) use tree::read;

/// One broken rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    /// Path from the root of the tree, with `/`.
    pub(crate) path: String,
    /// Line, counted from 1; 0 when the whole file is meant.
    pub(crate) line: usize,
    /// What is wrong and, where it is not plain, what to do.
    pub(crate) text: String,
}

impl Finding {
    pub(crate) fn new(path: &str, line: usize, text: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, text: text.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(formatter, "{}: {}", self.path, self.text),
            line => write!(formatter, "{}:{line}: {}", self.path, self.text),
        }
    }
}

/// What a run of all checks found.
pub(crate) struct Report {
    /// How many text files were read.
    pub(crate) files: usize,
    /// Sorted by path and line.
    pub(crate) findings: Vec<Finding>,
}

/// Runs all checks over the tree at `root`.
///
/// # Errors
/// A sentence that names the file that could not be read or understood; findings are not errors.
pub(crate) fn check(root: &Path) -> Result<Report, String> {
    let picture = Picture::parse(&tree::read(&root.join("layers.toml"))?)?;
    let files = tree::text_files(root)?;
    let mut findings = layers::check(&picture, &files)?;
    for file in &files {
        findings.extend(words::check(&file.path, &file.text));
        if file.path.ends_with(".rs") {
            findings.extend(source::check(&picture, &file.path, &file.text));
        }
    }
    findings.extend(picture.stale_exceptions(&files));
    findings.extend(stale_page(&files));
    findings.sort_by(|a, b| (&a.path, a.line).cmp(&(&b.path, b.line)));
    Ok(Report { files: files.len(), findings })
}

/// Whether the generated part of the manual is what the source gives now.
fn stale_page(files: &[tree::File]) -> Option<Finding> {
    let text = |path: &str| files.iter().find(|file| file.path == path).map_or("", |file| file.text.as_str());
    let page = text(manual::PAGE);
    match manual::with_table(page, text(manual::SOURCE)) {
        Ok(made) if made == page => None,
        Ok(_) => Some(Finding::new(
            manual::PAGE,
            0,
            format!("not what {} gives: run `cargo xtask gen`", manual::SOURCE),
        )),
        Err(error) => Some(Finding::new(manual::PAGE, 0, error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_is_not_current_is_found() {
        let file = |path: &str, text: &str| tree::File { path: path.to_owned(), text: text.to_owned() };
        let source = "DIFFERENCES: &[Difference] = &[ \"a\", \"b\", \"c\", \"d\"\n];";
        let page = "<!-- begin differences: made by `cargo xtask gen` -->\n<!-- end differences -->\n";
        let made = manual::with_table(page, source).expect("both are whole");
        let check = |page: &str| stale_page(&[file(manual::PAGE, page), file(manual::SOURCE, source)]);
        assert_eq!(check(&made), None);
        assert!(check(page).is_some_and(|finding| finding.text.contains("xtask gen")));
        assert!(stale_page(&[]).is_some());
    }

    #[test]
    fn the_tree_itself_is_readable() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask stands in the workspace");
        let report = check(root).expect("layers.toml and all manifests can be read");
        assert!(report.files > 20, "only {} files seen", report.files);
    }

    #[test]
    fn finding_prints_as_an_editor_can_follow() {
        assert_eq!(Finding::new("a/b.rs", 7, "bad").to_string(), "a/b.rs:7: bad");
        assert_eq!(Finding::new("a/b.rs", 0, "bad").to_string(), "a/b.rs: bad");
    }
}
