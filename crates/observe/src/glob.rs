//! Patterns for names: `*`, `?`, `[a-z]`, `[!a-z]`, and a backslash before a character that is meant itself.

/// Whether all of `text` matches `pattern`. The time is bounded by the product of their lengths.
pub fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut at, mut from) = (0, 0);
    // Where to go on when the guess for the last `*` was too short.
    let mut star: Option<(usize, usize)> = None;
    loop {
        if pattern.get(at) == Some(&b'*') {
            at += 1;
            star = Some((at, from));
            continue;
        }
        match (text.get(from), one(&pattern[at..])) {
            (None, None) if at == pattern.len() => return true,
            (None, _) => return false,
            (Some(byte), Some((length, piece))) if holds(piece, *byte) => {
                at += length;
                from += 1;
            }
            _ => {
                let Some((again, begun)) = star else { return false };
                star = Some((again, begun + 1));
                (at, from) = (again, begun + 1);
            }
        }
    }
}

#[derive(Clone, Copy)]
enum Piece<'a> {
    Any,
    Byte(u8),
    Class(&'a [u8]),
}

/// The first piece of a pattern and its length.
fn one(pattern: &[u8]) -> Option<(usize, Piece<'_>)> {
    Some(match pattern {
        [] => return None,
        [b'?', ..] => (1, Piece::Any),
        [b'\\', byte, ..] => (2, Piece::Byte(*byte)),
        [b'[', rest @ ..] => {
            // A `]` that comes first is a member.
            let first = usize::from(matches!(rest.first(), Some(b'!' | b'^'))) + 1;
            match rest.iter().skip(first).position(|byte| *byte == b']') {
                Some(end) => (first + end + 2, Piece::Class(&rest[..first + end])),
                None => (1, Piece::Byte(b'[')),
            }
        }
        [byte, ..] => (1, Piece::Byte(*byte)),
    })
}

fn holds(piece: Piece<'_>, byte: u8) -> bool {
    match piece {
        Piece::Any => true,
        Piece::Byte(wanted) => wanted == byte,
        Piece::Class(class) => {
            let (negated, mut members) = match class {
                [b'!' | b'^', rest @ ..] => (true, rest),
                _ => (false, class),
            };
            let mut found = false;
            while let Some((first, rest)) = members.split_first() {
                (found, members) = match rest {
                    [b'-', last, rest @ ..] => (found || (*first..=*last).contains(&byte), rest),
                    _ => (found || *first == byte, rest),
                };
            }
            found != negated
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        for (pattern, text, expected) in [
            ("MAIN.*", "MAIN.cache_hit", true),
            ("MAIN.*", "MGT.uptime", false),
            ("VBE.boot.*.happy", "VBE.boot.a.b.happy", true),
            ("VBE.boot.*.happy", "VBE.boot.happy", false),
            ("*", "", true),
            ("", "", true),
            ("", "x", false),
            ("?b*", "abc", true),
            ("a\\*", "a*", true),
            ("a\\*", "ab", false),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("[]]", "]", true),
            ("[", "[", true),
            ("*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", false),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
    }
}
