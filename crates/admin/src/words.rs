//! A line as words, and a word as it must be written on a line.
//!
//! Words stand apart by blanks. A word in double quotes may hold blanks and ends at the next bare quote; what follows at
//! once is the next word. A backslash, in quotes or not, begins one of `\n \r \t \" \\ \ooo \xhh`.

use std::fmt;

/// Why a line is no list of words. The texts are those that Varnish's users and scripts know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// A backslash before something that is no escape.
    Backslash,
    /// A quote in the middle of a bare word.
    StrayQuote,
    /// The closing quote is missing.
    OpenQuote,
    /// The bytes are no UTF-8.
    Encoding,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Backslash => "Invalid backslash sequence",
            Self::StrayQuote => "Invalid '\"'",
            Self::OpenQuote => "Missing '\"'",
            Self::Encoding => "Not UTF-8",
        })
    }
}

impl std::error::Error for Malformed {}

/// Splits a line, without its line feed, into words.
///
/// # Errors
/// [`Malformed`] if quotes, escapes or encoding are wrong.
pub fn split(line: &[u8]) -> Result<Vec<String>, Malformed> {
    let mut words = Vec::new();
    let mut rest = line.trim_ascii_start();
    while !rest.is_empty() {
        let (word, used) = if rest[0] == b'"' { quoted(rest)? } else { bare(rest)? };
        words.push(String::from_utf8(word).map_err(|_| Malformed::Encoding)?);
        rest = rest[used..].trim_ascii_start();
    }
    Ok(words)
}

fn quoted(text: &[u8]) -> Result<(Vec<u8>, usize), Malformed> {
    let mut word = Vec::new();
    let mut at = 1;
    loop {
        match text.get(at) {
            None => return Err(Malformed::OpenQuote),
            Some(b'"') => return Ok((word, at + 1)),
            Some(b'\\') => at += escape(&text[at..], &mut word)?,
            Some(&byte) => {
                word.push(byte);
                at += 1;
            }
        }
    }
}

fn bare(text: &[u8]) -> Result<(Vec<u8>, usize), Malformed> {
    let mut word = Vec::new();
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        match byte {
            byte if byte.is_ascii_whitespace() => break,
            b'"' => return Err(Malformed::StrayQuote),
            b'\\' => at += escape(&text[at..], &mut word)?,
            byte => {
                word.push(byte);
                at += 1;
            }
        }
    }
    Ok((word, at))
}

/// Reads the escape at the start of `text`; returns its length.
fn escape(text: &[u8], word: &mut Vec<u8>) -> Result<usize, Malformed> {
    let digits = |range: std::ops::Range<usize>, radix: u32| -> Option<u8> {
        let digits = text.get(range)?;
        let value = digits
            .iter()
            .try_fold(0u32, |value, &digit| Some(value * radix + char::from(digit).to_digit(radix)?))?;
        u8::try_from(value).ok()
    };
    let (byte, length) = match text.get(1) {
        Some(b'n') => (Some(b'\n'), 2),
        Some(b'r') => (Some(b'\r'), 2),
        Some(b't') => (Some(b'\t'), 2),
        Some(b'"') => (Some(b'"'), 2),
        Some(b'\\') => (Some(b'\\'), 2),
        Some(b'0'..=b'7') => (digits(1..4, 8), 4),
        Some(b'x') => (digits(2..4, 16), 4),
        _ => (None, 0),
    };
    word.push(byte.ok_or(Malformed::Backslash)?);
    Ok(length)
}

/// Writes `word` so that [`split`] reads it back: bare where that is possible, else in quotes.
pub fn quote(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_graphic() && byte != b'"' && byte != b'\\';
    if !word.is_empty() && word.bytes().all(plain) {
        return word.to_owned();
    }
    let mut out = String::with_capacity(word.len() + 2);
    out.push('"');
    for character in word.chars() {
        match character {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            control if u32::from(control) < 0x20 => out.push_str(&format!("\\x{:02x}", u32::from(control))),
            other => out.push(other),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(line: &str, words: Result<&[&str], Malformed>) {
        let words = words.map(|words| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>());
        assert_eq!(split(line.as_bytes()), words, "{line}");
    }

    #[test]
    fn lines() {
        check("", Ok(&[]));
        check(" \t ", Ok(&[]));
        check("ping", Ok(&["ping"]));
        check("  vcl.use  boot\r", Ok(&["vcl.use", "boot"]));
        check("\"ping\"", Ok(&["ping"]));
        check("ping \"a b\"c", Ok(&["ping", "a b", "c"]));
        check("ping \"\"", Ok(&["ping", ""]));
        check("ban req.url ~ \"a\\\\.b\\\"\\n\\x41\\101\"", Ok(&["ban", "req.url", "~", "a\\.b\"\nAA"]));
        check("a\\tb", Ok(&["a\tb"]));
        check("pi\"ng\"", Err(Malformed::StrayQuote));
        check("ping \"abc", Err(Malformed::OpenQuote));
        check("ping \"abc\\\"", Err(Malformed::OpenQuote));
        for wrong in ["\"\\q\"", "a\\ b", "\\", "\\x4", "\\xzz", "\\40", "\\400", "\\8"] {
            check(wrong, Err(Malformed::Backslash));
        }
        assert_eq!(split(b"a \xff"), Err(Malformed::Encoding));
        assert_eq!(split(b"a \\xff"), Err(Malformed::Encoding));
    }

    proptest! {
        #[test]
        fn what_is_quoted_reads_back(words in prop::collection::vec(any::<String>(), 0..5)) {
            let line = words.iter().map(|word| quote(word)).collect::<Vec<_>>().join(" ");
            prop_assert!(!line.contains('\n'));
            prop_assert_eq!(split(line.as_bytes()), Ok(words));
        }

        #[test]
        fn any_bytes_end_well(line in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = split(&line);
        }
    }
}
