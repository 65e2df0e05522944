//! Bytes to tokens.

use crate::diagnostics::{Checked, Problem};
use crate::source::{Sources, Span};

/// What a token is. Strings carry their contents, numbers their digits by way of the span.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Kind {
    /// `[A-Za-z][A-Za-z0-9_-]*`
    Id,
    /// Digits.
    Int,
    /// Digits, a point, perhaps digits.
    Real,
    /// Any of the three string forms, without its quotes.
    String(Vec<u8>),
    /// `:base64:`
    Blob(Vec<u8>),
    /// Punctuation, one or two characters.
    Sign(&'static str),
    /// Behind the last token.
    End,
}

/// One token.
#[derive(Clone, Debug)]
pub(crate) struct Token {
    pub(crate) kind: Kind,
    pub(crate) span: Span,
}

/// Longest first, so that `<=` is not `<` and `=`.
const SIGNS: &[&str] = &[
    "++", "--", "+=", "-=", "*=", "/=", "==", "!=", "!~", "<=", ">=", "<<", ">>", "&&", "||", "{", "}", "(",
    ")", "*", "+", "-", "/", "%", ">", "<", "=", ";", "!", "&", ".", "|", "~", ",",
];

/// How long an integer may be, as Varnish and RFC 8941 have it.
const INTEGER_DIGITS: usize = 15;
/// How long the parts of a real number may be, before and after the point. Varnish 7 takes three digits after it, Varnish
/// 6 took more, and deployed files have more (`0.000001s`).
const REAL_DIGITS: (usize, usize) = (12, 9);

/// The tokens of a file, with [`Kind::End`] last.
pub(crate) fn lex(sources: &Sources, file: u16) -> Checked<Vec<Token>> {
    let mut lexer = Lexer { text: &sources.files[file as usize].text, file, at: 0 };
    let mut tokens = Vec::new();
    loop {
        let token = lexer.next()?;
        let end = token.kind == Kind::End;
        tokens.push(token);
        if end {
            return Ok(tokens);
        }
    }
}

struct Lexer<'text> {
    text: &'text [u8],
    file: u16,
    at: usize,
}

impl Lexer<'_> {
    fn next(&mut self) -> Checked<Token> {
        self.skip_blank()?;
        let start = self.at;
        let Some(&byte) = self.text.get(start) else { return Ok(self.token(Kind::End, start)) };
        let rest = &self.text[start..];
        if rest.starts_with(b"C{") {
            let end = find(rest, b"}C").map_or(rest.len(), |at| at + 2);
            let span = self.span(start, start + end);
            let words = "Inline-C not allowed: this program runs VCL without a C compiler.";
            return Err(Problem::at(span, words).into());
        }
        if rest.starts_with(b"{\"") {
            return self.quoted(start, 2, b"\"}", "long-string");
        }
        if rest.starts_with(b"\"\"\"") {
            return self.quoted(start, 3, b"\"\"\"", "long-string");
        }
        match byte {
            b'"' => self.short_string(start),
            b':' => self.blob(start),
            b'a'..=b'z' | b'A'..=b'Z' | b'_' => {
                let length = rest
                    .iter()
                    .position(|byte| !byte.is_ascii_alphanumeric() && !matches!(byte, b'_' | b'-'))
                    .unwrap_or(rest.len());
                self.at += length;
                Ok(self.token(Kind::Id, start))
            }
            b'0'..=b'9' => self.number(start),
            _ => match SIGNS.iter().find(|sign| rest.starts_with(sign.as_bytes())) {
                Some(sign) => {
                    self.at += sign.len();
                    Ok(self.token(Kind::Sign(sign), start))
                }
                None => Err(Problem::at(self.span(start, start + 1), "Syntax error at").into()),
            },
        }
    }

    fn skip_blank(&mut self) -> Checked<()> {
        loop {
            let rest = &self.text[self.at..];
            match rest {
                [b' ' | b'\t' | b'\r' | b'\n' | 0x0b | 0x0c, ..] => self.at += 1,
                [b'#', ..] | [b'/', b'/', ..] => {
                    self.at += rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
                }
                [b'/', b'*', inside @ ..] => match find(inside, b"*/") {
                    Some(length) => match find(&inside[..length], b"/*") {
                        None => self.at += length + 4,
                        Some(nested) => {
                            let at = self.at + 2 + nested;
                            return Err(Problem::at(
                                self.span(self.at, self.at + 2),
                                "/* ... */ comment contains /*",
                            )
                            .token(self.span(at, at + 2))
                            .into());
                        }
                    },
                    None => {
                        let span = self.span(self.at, self.at + 2);
                        return Err(Problem::at(span, "Unterminated /* ... */ comment, starting at").into());
                    }
                },
                _ => return Ok(()),
            }
        }
    }

    fn quoted(&mut self, start: usize, open: usize, close: &[u8], what: &str) -> Checked<Token> {
        let inside = start + open;
        let Some(length) = find(&self.text[inside..], close) else {
            let words = format!("Unterminated {what}, starting at");
            return Err(Problem::at(self.span(start, inside), words).into());
        };
        self.at = inside + length + close.len();
        self.string(start, inside, inside + length)
    }

    fn short_string(&mut self, start: usize) -> Checked<Token> {
        let rest = &self.text[start + 1..];
        match rest.iter().position(|byte| matches!(byte, b'"' | b'\n' | b'\r')) {
            Some(length) if rest[length] == b'"' => {
                self.at = start + length + 2;
                self.string(start, start + 1, start + 1 + length)
            }
            _ => {
                let span = self.span(start, start + 1);
                Err(Problem::at(span, "Unterminated string, starting at").into())
            }
        }
    }

    fn string(&mut self, start: usize, from: usize, to: usize) -> Checked<Token> {
        let text = &self.text[from..to];
        if text.contains(&0) {
            return Err(Problem::at(self.span(start, self.at), "String contains a NUL byte").into());
        }
        Ok(self.token(Kind::String(text.to_vec()), start))
    }

    fn blob(&mut self, start: usize) -> Checked<Token> {
        let from = start + 1;
        let at = |place: usize, words: &str| -> Box<Problem> {
            Problem::at(self.span(place, place + 1), words).into()
        };
        let mut count = 0;
        loop {
            match self.text.get(from + count) {
                None | Some(b'\n' | b'\r') => return Err(at(start, "Missing colon at end of BLOB:")),
                Some(b':') => break,
                Some(b'=') => {
                    let padding = self.text[from + count..].iter().take_while(|byte| **byte == b'=').count();
                    let closed = self.text.get(from + count + padding) == Some(&b':');
                    if !closed || padding > 2 || !(count + padding).is_multiple_of(4) {
                        return Err(at(from + count, "Wrong padding ('=') in BLOB:"));
                    }
                    count += padding;
                }
                Some(byte) if sextet(*byte).is_some() => count += 1,
                Some(_) => return Err(at(from + count, "Illegal BLOB character:")),
            }
        }
        if !count.is_multiple_of(4) {
            return Err(at(from + count, "BLOB must have n*4 base64 characters:"));
        }
        match base64(&self.text[from..from + count]) {
            Some(bytes) => {
                self.at = from + count + 1;
                Ok(self.token(Kind::Blob(bytes), start))
            }
            // The last character has bits that belong to no byte.
            None => Err(at(from + count - 1, "Illegal BLOB character:")),
        }
    }

    fn number(&mut self, start: usize) -> Checked<Token> {
        let digits = |from: usize| self.text[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let whole = digits(start);
        if self.text.get(start + whole) != Some(&b'.') {
            self.at = start + whole;
            if whole > INTEGER_DIGITS {
                return Err(Problem::at(self.span(start, self.at), "Too many digits for integer.").into());
            }
            return Ok(self.token(Kind::Int, start));
        }
        let part = digits(start + whole + 1);
        self.at = start + whole + 1 + part;
        if whole > REAL_DIGITS.0 || part > REAL_DIGITS.1 {
            return Err(Problem::at(self.span(start, self.at), "Too many digits for real.").into());
        }
        Ok(self.token(Kind::Real, start))
    }

    fn token(&self, kind: Kind, start: usize) -> Token {
        Token { kind, span: self.span(start, self.at) }
    }

    fn span(&self, start: usize, end: usize) -> Span {
        Span { file: self.file, start: start as u32, end: end.min(self.text.len()) as u32 }
    }
}

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|window| window == what)
}

fn sextet(byte: u8) -> Option<u8> {
    Some(match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    })
}

/// Standard base64, padding and length already checked; `None` if bits are left over that are not zero. RFC 4648,
/// section 4.
fn base64(text: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len() * 3 / 4);
    let (mut bits, mut count) = (0u32, 0);
    for byte in text.iter().take_while(|byte| **byte != b'=') {
        bits = bits << 6 | u32::from(sextet(*byte)?);
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push((bits >> count) as u8);
        }
    }
    (bits & ((1 << count) - 1) == 0).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::File;

    fn tokens(text: &str) -> Result<Vec<String>, String> {
        let file = File { name: "x".into(), text: text.into(), version: 41 };
        let sources = Sources { files: vec![file] };
        let tokens = lex(&sources, 0)
            .map_err(|problem| crate::diagnostics::Diagnostics::new(&sources, &[*problem]).to_string())?;
        Ok(tokens[..tokens.len() - 1]
            .iter()
            .map(|token| match &token.kind {
                Kind::String(text) => format!("s:{}", String::from_utf8_lossy(text)),
                Kind::Blob(bytes) => format!("b:{bytes:?}"),
                _ => sources.quote(token.span),
            })
            .collect())
    }

    #[test]
    fn splits() {
        for (text, want) in [
            ("a-b.c_d", vec!["a-b", ".", "c_d"]),
            ("# x\n// y\n/* z */ a /**/", vec!["a"]),
            ("1.5s 10 3.", vec!["1.5", "s", "10", "3."]),
            (r#""a\b" {"x"y"} """p"q""""#, vec!["s:a\\b", "s:x\"y", "s:p\"q"]),
            ("<=<!~!==&&", vec!["<=", "<", "!~", "!=", "=", "&&"]),
            (":aGk=:", vec!["b:[104, 105]"]),
        ] {
            assert_eq!(tokens(text), Ok(want.into_iter().map(String::from).collect()), "{text}");
        }
    }

    #[test]
    fn refuses() {
        for (text, words) in [
            ("a \"b", "Unterminated string, starting at\n('x' Line 1 Pos 3)\na \"b\n--#-\n\n"),
            ("{\"", "Unterminated long-string, starting at\n('x' Line 1 Pos 1)\n{\"\n##\n"),
            ("\n /* ", "Unterminated /* ... */ comment, starting at\n('x' Line 2 Pos 2)\n /* \n-##-\n"),
            ("?", "Syntax error at\n('x' Line 1 Pos 1)\n?\n#\n"),
            ("1234567890123456", "Too many digits for integer.\n"),
            ("1.2345678901", "Too many digits for real.\n"),
            ("\tC{ int i; }C ;", "Inline-C not allowed"),
            (":aGk:", "BLOB must have n*4 base64 characters:\n('x' Line 1 Pos 5)"),
            (":AB==:", "Illegal BLOB character:\n('x' Line 1 Pos 5)"),
            (":aa?:", "Illegal BLOB character:\n('x' Line 1 Pos 4)"),
            (":aaaa=aa:", "Wrong padding ('=') in BLOB:"),
            (":aa", "Missing colon at end of BLOB:"),
            ("/* /* */", "/* ... */ comment contains /*"),
        ] {
            let error = tokens(text).unwrap_err();
            assert!(error.starts_with(words), "{text}: {error}");
        }
    }
}
