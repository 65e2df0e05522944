//! Bytes as they arrive to complete commands, with a bound on everything that is kept.
//!
//! A command is a line. If its last two words are `<<` and a nonce, the lines up to one that is just the nonce are the
//! last argument instead, each with its line feed.

use crate::words::{self, Malformed};

/// The longest line of a peer that has not shown that it knows the secret.
pub const LINE_MAX_UNTRUSTED: usize = 1024;

/// The longest line, and the longest here-document, of a peer that may give commands.
pub const LINE_MAX: usize = 4 << 20;

/// One thing that came in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A command, with at least one word.
    Command(Vec<String>),
    /// A line that is no list of words.
    Malformed(Malformed),
    /// A line or document beyond its limit; nothing after it can be understood.
    TooLong,
}

/// The state of one peer's input.
#[derive(Debug, Default)]
pub struct Intake {
    /// What came after the last complete line; `scanned` bytes of it are known to hold no line feed.
    pending: Vec<u8>,
    scanned: usize,
    document: Option<Document>,
    broken: bool,
}

#[derive(Debug)]
struct Document {
    words: Vec<String>,
    nonce: String,
    text: Vec<u8>,
}

impl Intake {
    /// Nothing received.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes bytes as they came. Call [`Intake::take`] until it gives nothing before the next call, so that no more than
    /// a line's limit and one read are kept.
    pub fn push(&mut self, bytes: &[u8]) {
        if !self.broken {
            self.pending.extend_from_slice(bytes);
        }
    }

    /// The next thing that is complete. `line_max` is the limit for this peer at this moment.
    pub fn take(&mut self, line_max: usize) -> Option<Input> {
        loop {
            if self.broken {
                return None;
            }
            let Some(offset) = self.pending[self.scanned..].iter().position(|&byte| byte == b'\n') else {
                self.scanned = self.pending.len();
                return (self.scanned > line_max).then(|| self.give_up());
            };
            let end = self.scanned + offset;
            if end > line_max {
                return Some(self.give_up());
            }
            let line: Vec<u8> = self.pending.drain(..=end).collect();
            self.scanned = 0;
            if let Some(input) = self.line(&line[..end], line_max) {
                return Some(input);
            }
        }
    }

    fn give_up(&mut self) -> Input {
        *self = Self { broken: true, ..Self::default() };
        Input::TooLong
    }

    /// Takes one line without its line feed; gives what it completes.
    fn line(&mut self, line: &[u8], line_max: usize) -> Option<Input> {
        if let Some(document) = &mut self.document {
            if without_cr(line) != document.nonce.as_bytes() {
                document.text.extend_from_slice(line);
                document.text.push(b'\n');
                return (document.text.len() > line_max).then(|| self.give_up());
            }
            let document = self.document.take()?;
            let Ok(text) = String::from_utf8(document.text) else {
                return Some(Input::Malformed(Malformed::Encoding));
            };
            let mut words = document.words;
            words.push(text);
            return Some(Input::Command(words));
        }
        let mut words = match words::split(line) {
            Ok(words) if words.is_empty() => return None,
            Ok(words) => words,
            Err(malformed) => return Some(Input::Malformed(malformed)),
        };
        if words.len() >= 3 && words[words.len() - 2] == "<<" {
            let nonce = words.pop()?;
            words.pop();
            self.document = Some(Document { words, nonce, text: Vec::new() });
            return None;
        }
        Some(Input::Command(words))
    }
}

fn without_cr(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn command(words: &[&str]) -> Input {
        Input::Command(words.iter().map(|&word| word.to_owned()).collect())
    }

    /// Feeds `bytes` in pieces of `size` and gives all inputs.
    fn feed(bytes: &[u8], size: usize, line_max: usize) -> Vec<Input> {
        let mut intake = Intake::new();
        let mut inputs = Vec::new();
        for piece in bytes.chunks(size) {
            intake.push(piece);
            inputs.extend(std::iter::from_fn(|| intake.take(line_max)));
        }
        inputs
    }

    fn check(bytes: &str, inputs: &[Input]) {
        for size in [1, 2, 7, 1000] {
            assert_eq!(feed(bytes.as_bytes(), size, 50), inputs, "{bytes:?} in pieces of {size}");
        }
    }

    #[test]
    fn lines_and_documents() {
        check("", &[]);
        check("ping", &[]);
        check("ping\n", &[command(&["ping"])]);
        check("\r\n\n ping 1\r\nstatus\n", &[command(&["ping", "1"]), command(&["status"])]);
        check(
            "vcl.inline x << E\nvcl 4.1;\n\"E\nE\nping\n",
            &[command(&["vcl.inline", "x", "vcl 4.1;\n\"E\n"]), command(&["ping"])],
        );
        check("vcl.inline x << \"E F\"\r\na\r\nE F\r\n", &[command(&["vcl.inline", "x", "a\r\n"])]);
        check("a << b << C\n1\nb\nC\n", &[command(&["a", "<<", "b", "1\nb\n"])]);
        check("vcl.inline y <<E\n", &[command(&["vcl.inline", "y", "<<E"])]);
        check("<< E\n", &[command(&["<<", "E"])]);
        check("ping \"\nping\n", &[Input::Malformed(Malformed::OpenQuote), command(&["ping"])]);
    }

    #[test]
    fn everything_has_a_bound() {
        let long = format!("{}\nping\n", "x".repeat(60));
        check(&long, &[Input::TooLong]);
        let document = format!("a << E\n{}E\nping\n", "123456789\n".repeat(6));
        check(&document, &[Input::TooLong]);
    }

    proptest! {
        #[test]
        fn pieces_do_not_matter(
            bytes in prop::collection::vec(prop::sample::select(&b"a <\\\"\n\rE"[..]), 0..60),
            size in 1usize..9,
        ) {
            prop_assert_eq!(feed(&bytes, size, 40), feed(&bytes, 100, 40));
        }
    }
}
