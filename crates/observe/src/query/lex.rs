//! The text of queries into tokens.

use super::fault::Fault;
use std::ops::Range;

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A query ends: a line end, or the end of the text.
    End,
    And,
    Or,
    Not,
    Equal,
    Unequal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    SameText,
    OtherText,
    Match,
    NoMatch,
    /// One of `( ) { } [ ] , :`.
    Sign(u8),
    /// An operand or a name.
    Word,
    /// The same in quotes.
    Quoted,
}

/// A token and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) kind: Kind,
    pub(super) place: Range<usize>,
    /// Of a word or a quoted text: what it says.
    pub(super) text: String,
}

/// Whether a word may have this byte.
fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"+-_.*".contains(&byte)
}

/// Splits `text`. The last token is an [`Kind::End`].
pub(super) fn tokens(text: &str) -> Result<Vec<Token>, Fault> {
    let bytes = text.as_bytes();
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b' ' | b'\t' | b'\r' => at += 1,
            b'\\' if bytes.get(at + 1) == Some(&b'\n') => at += 2,
            b'#' => at = line_end(bytes, at),
            b'\n' => {
                tokens.push(Token { kind: Kind::End, place: at..at, text: String::new() });
                at += 1;
            }
            b'"' | b'\'' => {
                let token = quoted(text, at)?;
                at = token.place.end;
                tokens.push(token);
            }
            _ if is_word(byte) => {
                let length = bytes[at..].iter().take_while(|byte| is_word(**byte)).count();
                tokens.push(word(&text[at..at + length], at));
                at += length;
            }
            _ => {
                let (kind, length) = sign(&bytes[at..])
                    .ok_or_else(|| Fault::at(text, at..at + 1, "Syntax error".to_owned()))?;
                tokens.push(Token { kind, place: at..at + length, text: String::new() });
                at += length;
            }
        }
    }
    tokens.push(Token { kind: Kind::End, place: at..at, text: String::new() });
    Ok(tokens)
}

fn line_end(bytes: &[u8], at: usize) -> usize {
    at + bytes[at..].iter().take_while(|byte| **byte != b'\n').count()
}

fn word(text: &str, at: usize) -> Token {
    let kind = match text {
        "and" => Kind::And,
        "or" => Kind::Or,
        "not" => Kind::Not,
        "eq" => Kind::SameText,
        "ne" => Kind::OtherText,
        _ => Kind::Word,
    };
    Token { kind, place: at..at + text.len(), text: text.to_owned() }
}

/// A text between quotes of one kind; a backslash takes the next byte as it is.
fn quoted(text: &str, start: usize) -> Result<Token, Fault> {
    let bytes = text.as_bytes();
    let (quote, mut value, mut at) = (bytes[start], Vec::new(), start + 1);
    loop {
        match bytes.get(at) {
            Some(byte) if *byte == quote => break,
            Some(b'\\') if bytes.get(at + 1).is_some_and(|byte| *byte != b'\n') => {
                value.push(bytes[at + 1]);
                at += 2;
            }
            None | Some(b'\n') => {
                let mut fault = Fault::at(text, start..at, "Unterminated string".to_owned());
                fault.position = at + 1;
                return Err(fault);
            }
            Some(byte) => {
                value.push(*byte);
                at += 1;
            }
        }
    }
    // Only whole characters were taken: a backslash stands before a whole one, too.
    let value = String::from_utf8_lossy(&value).into_owned();
    Ok(Token { kind: Kind::Quoted, place: start..at + 1, text: value })
}

fn sign(rest: &[u8]) -> Option<(Kind, usize)> {
    Some(match rest {
        [b'=', b'=', ..] => (Kind::Equal, 2),
        [b'!', b'=', ..] => (Kind::Unequal, 2),
        [b'!', b'~', ..] => (Kind::NoMatch, 2),
        [b'<', b'=', ..] => (Kind::LessOrEqual, 2),
        [b'>', b'=', ..] => (Kind::GreaterOrEqual, 2),
        [b'<', ..] => (Kind::Less, 1),
        [b'>', ..] => (Kind::Greater, 1),
        [b'~', ..] => (Kind::Match, 1),
        [sign @ (b'(' | b')' | b'{' | b'}' | b'[' | b']' | b',' | b':'), ..] => (Kind::Sign(*sign), 1),
        _ => return None,
    })
}
