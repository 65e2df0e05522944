//! Field lines that come again: a client sends the same ones with each of its requests, and so do all that run the same
//! program. Lines seen twice are kept with what they parse to, and the third time only the request line is parsed.

use super::{Limits, Parse, parse_request};
use crate::{Fields, Reject, RequestHead, Version};

/// How many sets of lines are kept; each has a place of its own by its bytes.
const PLACES: usize = 64;
/// The longest set that is kept, in bytes with the empty line at its end.
const LINES_MAX: usize = 2 << 10;
/// The shortest: what it is recognised by is taken from it.
const LINES_MIN: usize = 16;

/// Sets of field lines that were seen lately. For one thread; it holds at most some 300 KiB.
#[derive(Debug, Default)]
pub struct Memo {
    places: Vec<Place>,
    /// By which the kept ones were found to be in order.
    limits: Limits,
}

#[derive(Debug, Default)]
struct Place {
    /// What was seen here last is recognised by this.
    seen: u64,
    lines: Vec<u8>,
    fields: Fields,
}

impl Memo {
    /// As [`parse_request`], with the same result.
    ///
    /// # Errors
    /// Those of [`parse_request`].
    pub fn parse_request(
        &mut self,
        buf: &[u8],
        limits: &Limits,
        head: &mut RequestHead,
    ) -> Result<Parse, Reject> {
        let Some((line, mark)) = plain_line(buf).and_then(|line| Some((line, mark_of(&buf[line.end..])?)))
        else {
            return parse_request(buf, limits, head);
        };
        if self.limits != *limits || self.places.is_empty() {
            self.limits = *limits;
            self.places.clear();
            self.places.resize_with(PLACES, Place::default);
        }
        let place = &mut self.places[mark as usize % PLACES];
        let lines = &buf[line.end..];
        if place.lines == lines && buf.len() <= limits.head_bytes {
            head.method.clear();
            head.method.extend_from_slice(&buf[..line.method]);
            head.target.clear();
            head.target.extend_from_slice(&buf[line.method + 1..line.end - VERSION.len()]);
            head.version = Version::Http11;
            head.fields.copy_from(&place.fields);
            return Ok(Parse::Done(buf.len()));
        }
        let parsed = parse_request(buf, limits, head)?;
        if parsed == Parse::Done(buf.len()) {
            if place.seen == mark {
                place.lines.clear();
                place.lines.extend_from_slice(lines);
                place.fields.copy_from(&head.fields);
            }
            place.seen = mark;
        }
        Ok(parsed)
    }
}

/// Where the pieces of a request line end.
#[derive(Debug, Clone, Copy)]
struct Line {
    method: usize,
    end: usize,
}

const VERSION: &[u8] = b" HTTP/1.1\r\n";

/// The request line of a GET or HEAD in HTTP/1.1, whose target is a path of plain bytes; `None` of any other.
fn plain_line(buf: &[u8]) -> Option<Line> {
    let method = match buf {
        [b'G', b'E', b'T', b' ', b'/', ..] => 3,
        [b'H', b'E', b'A', b'D', b' ', b'/', ..] => 4,
        _ => return None,
    };
    let target = &buf[method + 1..];
    let length = target.iter().position(|byte| !PLAIN[usize::from(*byte)])?;
    target[length..].starts_with(VERSION).then_some(Line { method, end: method + 1 + length + VERSION.len() })
}

/// The bytes of paths and queries by RFC 3986, and of nothing else.
const PLAIN: [bool; 256] = {
    let mut plain = [false; 256];
    let others = b"-._~/?&=%+:@!$'()*,;";
    let mut byte = 0;
    while byte < 256 {
        plain[byte] = (byte as u8).is_ascii_alphanumeric();
        byte += 1;
    }
    let mut index = 0;
    while index < others.len() {
        plain[others[index] as usize] = true;
        index += 1;
    }
    plain
};

/// What a set of lines is recognised by, cheaply; `None` if it is none to keep, or is followed by more.
fn mark_of(lines: &[u8]) -> Option<u64> {
    if !(LINES_MIN..=LINES_MAX).contains(&lines.len()) || !lines.ends_with(b"\r\n\r\n") {
        return None;
    }
    let word = |at: usize| lines[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    let (middle, end) = (word(lines.len() / 2 - 4), word(lines.len() - 12));
    let mixed = (middle ^ end.rotate_left(29) ^ lines.len() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    // Never that of a place where nothing was seen.
    Some((mixed >> 32) | 1 << 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: &str = "Host: a.example\r\nUser-Agent: some/1\r\nAccept: */*\r\n\r\n";

    fn kept(memo: &Memo) -> usize {
        memo.places.iter().filter(|place| !place.lines.is_empty()).count()
    }

    /// Whatever came before, the result is that of a parser without a memory.
    #[test]
    fn it_parses_as_if_it_remembered_nothing() {
        let small = Limits { head_bytes: 80, ..Limits::default() };
        let narrow = Limits { line_bytes: 12, ..Limits::default() };
        let heads = [
            format!("GET / HTTP/1.1\r\n{LINES}"),
            format!("GET /other?a=b HTTP/1.1\r\n{LINES}"),
            format!("HEAD /x HTTP/1.1\r\n{LINES}"),
            format!("GET /x HTTP/1.0\r\n{LINES}"),
            format!("GET /x HTTP/1.1\r\n{LINES}GET / HTTP/1.1\r\n"),
            format!("GET /a b HTTP/1.1\r\n{LINES}"),
            format!("GET /\"x\" HTTP/1.1\r\n{LINES}"),
            format!("GET http://b/ HTTP/1.1\r\n{LINES}"),
            format!("GET /x HTTP/1.1\r\n{}", LINES.replace("some/1", "some/2")),
            format!("GET /x HTTP/1.1\r\n{}", LINES.replace("a.example", "a/example")),
            format!("GET /x HTTP/1.1\r\n{}", LINES.replace("Host: a", "host:\ta")),
            format!("GET /{} HTTP/1.1\r\n{LINES}", "x".repeat(40)),
            format!("GET / HTTP/1.1\r\n{}", &LINES[..40]),
            "GET / HTTP/1.1\r\n\r\n".to_string(),
        ];
        let mut memo = Memo::default();
        for limits in [Limits::default(), small, narrow, Limits::default()] {
            for round in 0..4 {
                for head in &heads {
                    let (mut plain, mut recalled) = (RequestHead::new(), RequestHead::new());
                    let expected = parse_request(head.as_bytes(), &limits, &mut plain);
                    let parsed = memo.parse_request(head.as_bytes(), &limits, &mut recalled);
                    assert_eq!(parsed, expected, "round {round} of {head:?}");
                    if matches!(parsed, Ok(Parse::Done(_))) {
                        let lines = |head: &RequestHead| {
                            head.fields
                                .iter()
                                .map(|field| (field.line.to_vec(), field.known))
                                .collect::<Vec<_>>()
                        };
                        assert_eq!(lines(&recalled), lines(&plain));
                        assert_eq!(
                            (&recalled.method, &recalled.target, recalled.version),
                            (&plain.method, &plain.target, plain.version)
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn it_keeps_what_it_sees_twice_and_has_a_bound() {
        let (mut memo, mut head) = (Memo::default(), RequestHead::new());
        let mut parse = |text: &str| {
            memo.parse_request(text.as_bytes(), &Limits::default(), &mut head).unwrap();
            kept(&memo)
        };
        let counts = [
            parse(&format!("GET / HTTP/1.1\r\n{LINES}")),
            parse(&format!("GET /b HTTP/1.1\r\n{LINES}")),
            parse(&format!("GET /b HTTP/1.1\r\nX: {}\r\n{LINES}", "x".repeat(LINES_MAX))),
        ];
        assert_eq!(counts, [0, 1, 1]);
        for index in 0..10 * PLACES {
            let text = format!("GET / HTTP/1.1\r\nX: {index:08}\r\n{LINES}");
            parse(&text);
            assert!(parse(&text) <= PLACES);
        }
    }
}
