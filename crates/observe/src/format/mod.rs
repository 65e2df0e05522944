//! Access-log lines in the format language of `varnishncsa(1)` 7.1.
//!
//! | | |
//! |---|---|
//! | `parse` | the text of a format into its pieces |
//! | `facts` | what a transaction's records say, as the pieces ask for it |
//! | `print` | a piece and the facts into bytes, escaped |
//! | `local_time` | `strftime` |

mod facts;
pub mod local_time;
mod parse;
mod print;

use crate::read::group::{Transaction, TransactionKind};
use facts::Facts;
use parse::{Piece, Watches};

/// NCSA's "combined" with the whole URL in the request line.
pub const DEFAULT: &str = r#"%h %l %u %t "%r" %s %b "%{Referer}i" "%{User-agent}i""#;

/// How a line is escaped, and what stands for nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Style {
    /// `\xff`, and `-` for nothing.
    #[default]
    Text,
    /// `\u001f`, and an empty text or 0 for nothing; a request that was no HTTP has no line.
    Json,
}

/// Which transactions give a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sides {
    /// Clients' requests.
    pub client: bool,
    /// Requests to backends.
    pub backend: bool,
    /// Requests that ESI made, as clients' requests.
    pub esi: bool,
}

impl Default for Sides {
    fn default() -> Self {
        Sides { client: true, backend: false, esi: false }
    }
}

impl Sides {
    /// Whether `transaction` gives a line.
    pub fn want(self, transaction: &Transaction) -> bool {
        match transaction.kind {
            TransactionKind::Request => self.client && (self.esi || transaction.reason != "esi"),
            TransactionKind::Backend => self.backend,
            TransactionKind::Session | TransactionKind::Unknown => false,
        }
    }
}

/// A format, ready for use.
#[derive(Clone, Debug)]
pub struct Format {
    pieces: Vec<Piece>,
    watches: Watches,
    style: Style,
}

impl Format {
    /// Reads a format.
    ///
    /// # Errors
    /// What is wrong with it, as `varnishncsa` words it.
    pub fn parse(text: &str, style: Style) -> Result<Format, String> {
        let (pieces, watches) = parse::parse(text.as_bytes(), style)?;
        Ok(Format { pieces, watches, style })
    }

    /// Appends the line of `transaction` with its line end. Nothing is appended, and the answer is false, for what has
    /// no line: a request that was restarted (the last round has the line), a session, or a transaction that lacks
    /// what the format cannot do without.
    pub fn line(&self, transaction: &Transaction, out: &mut Vec<u8>) -> bool {
        let side = match transaction.kind {
            TransactionKind::Request => 'c',
            TransactionKind::Backend => 'b',
            TransactionKind::Session | TransactionKind::Unknown => return false,
        };
        let Some(facts) = Facts::gather(transaction, &self.watches, self.style) else { return false };
        let start = out.len();
        for piece in &self.pieces {
            if !print::piece(piece, &facts, side, self.style, out) {
                out.truncate(start);
                return false;
            }
        }
        out.push(b'\n');
        true
    }
}
