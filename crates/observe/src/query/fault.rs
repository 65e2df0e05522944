//! What is wrong with a query, and where: shown under the text with the culprit marked.

use std::fmt;
use std::ops::Range;

/// A fault in the text of a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What is wrong; empty if there was no query at all.
    pub message: String,
    /// Where, in bytes from 1.
    pub position: usize,
    text: String,
    /// Marked `#`.
    token: Range<usize>,
    /// Marked `^`, if it is a place within the token.
    spot: Option<usize>,
}

impl Fault {
    /// A fault at the beginning of `token`.
    pub(super) fn at(text: &str, token: Range<usize>, message: String) -> Fault {
        Fault { message, position: token.start + 1, text: text.to_owned(), token, spot: None }
    }

    /// A fault at byte `spot`, near or within `token`.
    pub(super) fn within(text: &str, token: Range<usize>, spot: usize, message: String) -> Fault {
        Fault { message, position: spot + 1, text: text.to_owned(), token, spot: Some(spot) }
    }

    /// There is no query.
    pub(super) fn empty() -> Fault {
        Fault { message: String::new(), position: 0, text: String::new(), token: 0..0, spot: None }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "Query expression error:")?;
        if self.message.is_empty() {
            return Ok(());
        }
        writeln!(out, "{} (Pos {})", self.message, self.position)?;
        writeln!(out, "{}", self.text.replace(['\n', '\r', '\t'], " "))?;
        for at in 0..self.text.len() {
            let mark = match at {
                _ if self.spot == Some(at) => "^",
                _ if self.token.contains(&at) => "#",
                _ => "-",
            };
            out.write_str(mark)?;
        }
        writeln!(out)
    }
}

impl std::error::Error for Fault {}
