//! Rust source with everything that is not code blanked out, so that a search meets code alone.
//!
//! Not a parser: it knows comments (line, nested block), strings (plain, byte, C, raw), characters and lifetimes. Blanked
//! bytes become spaces and line ends stay, so positions and line numbers are those of the source.

/// `source` with comments, strings and characters replaced by spaces. Same length, same line ends.
pub(crate) fn blank(source: &str) -> String {
    let bytes = source.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let end = match bytes[at] {
            b'/' if bytes.get(at + 1) == Some(&b'/') => line_end(bytes, at),
            b'/' if bytes.get(at + 1) == Some(&b'*') => comment_end(bytes, at),
            b'"' => string_end(bytes, at + 1),
            b'r' if !continues_word(bytes, at) => raw_end(bytes, at + 1).unwrap_or(at),
            b'\'' => character_end(bytes, at).unwrap_or(at),
            _ => at,
        };
        if end == at {
            out.push(bytes[at]);
            at += 1;
        } else {
            out.extend(bytes[at..end].iter().map(|&byte| if byte == b'\n' { b'\n' } else { b' ' }));
            at = end;
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Byte offsets at which `word` stands in `code` as a whole word or path (not inside a longer name).
pub(crate) fn find_word<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    code.match_indices(word).map(|(at, _)| at).filter(move |&at| {
        let before = at.checked_sub(1).map(|before| code.as_bytes()[before]);
        let after = code.as_bytes().get(at + word.len()).copied();
        !before.is_some_and(is_name) && !after.is_some_and(is_name)
    })
}

/// The line, counted from 1, in which the byte offset lies.
pub(crate) fn line_of(code: &str, offset: usize) -> usize {
    1 + code.as_bytes()[..offset].iter().filter(|&&byte| byte == b'\n').count()
}

fn line_end(bytes: &[u8], at: usize) -> usize {
    bytes[at..].iter().position(|&byte| byte == b'\n').map_or(bytes.len(), |length| at + length)
}

fn comment_end(bytes: &[u8], start: usize) -> usize {
    let mut depth = 0_usize;
    let mut at = start;
    while at + 1 < bytes.len() {
        match &bytes[at..at + 2] {
            b"/*" => depth += 1,
            b"*/" => depth -= 1,
            _ => {
                at += 1;
                continue;
            }
        }
        at += 2;
        if depth == 0 {
            return at;
        }
    }
    bytes.len()
}

fn string_end(bytes: &[u8], mut at: usize) -> usize {
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// The end of a raw string whose `r` stands before `at`, or nothing if no raw string begins there (`r#name`).
fn raw_end(bytes: &[u8], at: usize) -> Option<usize> {
    let hashes = bytes[at..].iter().take_while(|&&byte| byte == b'#').count();
    if bytes.get(at + hashes) != Some(&b'"') {
        return None;
    }
    let close = [b"\"".as_slice(), &b"#".repeat(hashes)].concat();
    let body = at + hashes + 1;
    let length = bytes[body..].windows(close.len()).position(|window| window == close);
    Some(length.map_or(bytes.len(), |length| body + length + close.len()))
}

/// The end of the character literal at `at`, or nothing if it is a lifetime.
fn character_end(bytes: &[u8], at: usize) -> Option<usize> {
    if bytes.get(at + 1) == Some(&b'\\') {
        // The escaped character may itself be a quote.
        let close = bytes.get(at + 3..)?.iter().position(|&byte| byte == b'\'')?;
        return Some(at + 3 + close + 1);
    }
    let width = match bytes.get(at + 1)? {
        0..=0x7f => 1,
        0x80..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xff => 4,
    };
    (bytes.get(at + 1 + width) == Some(&b'\'')).then_some(at + width + 2)
}

/// Whether the byte at `at` is inside a name, so that an `r` there begins no raw string (`br"..."` does).
fn continues_word(bytes: &[u8], at: usize) -> bool {
    let Some(before) = at.checked_sub(1).map(|before| bytes[before]) else { return false };
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let is_prefix =
        matches!(before, b'b' | b'c') && !at.checked_sub(2).is_some_and(|two| is_name(bytes[two]));
    is_name(before) && !is_prefix
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(source: &str, expected: &str) {
        assert_eq!(blank(source), expected, "{source:?}");
    }

    #[test]
    fn comments_are_blanked() {
        check("a // b\nc", "a     \nc");
        check("a /* b /* c */ d */ e", "a                   e");
        check("a /* open", "a        ");
        check("/// doc unsafe", "              ");
    }

    #[test]
    fn strings_are_blanked() {
        check(r#"a("b \" c") d"#, "a(        ) d");
        check(r##"x(r#"a " b"#) y"##, "x(          ) y");
        check(r#"x(br"a\") y"#, "x(b     ) y");
        check("let r#type = for_r;", "let r#type = for_r;");
        check("\"open", "     ");
    }

    #[test]
    fn characters_are_blanked_and_lifetimes_stay() {
        check("('\"', 'x')", "(   ,    )");
        check(r"('\'', b'\\')", "(    , b    )");
        check("fn f<'a>(x: &'a str)", "fn f<'a>(x: &'a str)");
        // Two quotes and two bytes of the letter.
        check("'é' 'a", "     'a");
    }

    #[test]
    fn words_are_found_whole() {
        assert_eq!(find_word("unsafe { } unsafe_code", "unsafe").collect::<Vec<_>>(), vec![0]);
        assert_eq!(find_word("use tokio::net; tokio_util", "tokio").count(), 1);
        assert_eq!(line_of("a\nb\nc", 4), 3);
    }
}
