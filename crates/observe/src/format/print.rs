//! A piece of a format and the facts of a transaction into bytes.

use super::facts::Facts;
use super::parse::{Fact, Moment, Piece};
use super::{Style, local_time};
use std::io::Write as _;

/// Appends a piece; false if the line cannot be without what the transaction lacks.
pub(super) fn piece(piece: &Piece, facts: &Facts<'_>, side: char, style: Style, out: &mut Vec<u8>) -> bool {
    match piece {
        Piece::Literal(text) => out.extend_from_slice(text),
        Piece::Fact(fact) => fact_text(*fact, facts, style, out),
        Piece::RequestLine => request_line(facts, style, out),
        Piece::Moment(moment) => return moment_text(moment, facts, style, out),
        Piece::Taken(scale) => return taken(*scale, facts, style, out),
        Piece::Side => out.push(side as u8),
        Piece::Number => _ = write!(out, "{}", facts.number),
        Piece::HitMiss => out.extend_from_slice(facts.hit_miss.as_bytes()),
        Piece::Handling => out.extend_from_slice(facts.handling.as_bytes()),
        Piece::RequestHeader(at) => text(facts.request_headers[*at], "-", style, out),
        Piece::ResponseHeader(at) => text(facts.response_headers[*at], "-", style, out),
        Piece::Logged(at) => text(facts.logged[*at], "", style, out),
        Piece::Record(at) => text(facts.records[*at], "-", style, out),
        Piece::RecordWithNul(at) => {
            text(facts.records[*at], "-", style, out);
            quoted(facts.records[*at].map_or(&b""[..], |_| b"\0"), style, out);
        }
        Piece::Dash => out.push(b'-'),
    }
    true
}

fn fact_text(fact: Fact, facts: &Facts<'_>, style: Style, out: &mut Vec<u8>) {
    match fact {
        Fact::BodyBytes => number(facts.body_bytes, style, out),
        Fact::BytesIn => number(facts.bytes_in, style, out),
        Fact::BytesOut => number(facts.bytes_out, style, out),
        Fact::Status => number(facts.status, style, out),
        Fact::FirstByte => number(facts.first_byte, style, out),
        Fact::Protocol => quoted(facts.protocol.unwrap_or(b"HTTP/1.0"), style, out),
        Fact::Host => text(facts.peer, "-", style, out),
        Fact::Method => text(facts.method, "-", style, out),
        Fact::Query => text(facts.query, "", style, out),
        Fact::Url => text(facts.url, "-", style, out),
        Fact::User => {
            let user = facts.authorization.and_then(user);
            quoted(user.as_deref().unwrap_or(b"-"), style, out);
        }
    }
}

/// A text, or `nothing`; JSON has an empty one for nothing.
fn text(value: Option<&[u8]>, nothing: &str, style: Style, out: &mut Vec<u8>) {
    match value {
        Some(value) => quoted(value, style, out),
        None if style == Style::Json => {}
        None => out.extend_from_slice(nothing.as_bytes()),
    }
}

/// A number, or `-`; JSON has 0 for nothing, as `varnishncsa` does (its manual says `null`).
fn number(value: Option<&[u8]>, style: Style, out: &mut Vec<u8>) {
    match value {
        Some(value) => quoted(value, style, out),
        None => out.extend_from_slice(if style == Style::Json { b"0" } else { b"-" }),
    }
}

fn request_line(facts: &Facts<'_>, style: Style, out: &mut Vec<u8>) {
    // Without a method there is a dash here in JSON, too.
    quoted(facts.method.unwrap_or(b"-"), style, out);
    out.push(b' ');
    let host = facts.host.unwrap_or(b"localhost");
    let has_scheme = strip_prefix_any_case(host, b"http://") || strip_prefix_any_case(host, b"https://");
    if !has_scheme {
        out.extend_from_slice(b"http://");
    }
    quoted(host, style, out);
    quoted(facts.url.unwrap_or_default(), style, out);
    quoted(facts.query.unwrap_or_default(), style, out);
    out.push(b' ');
    quoted(facts.protocol.unwrap_or(b"HTTP/1.0"), style, out);
}

fn strip_prefix_any_case(text: &[u8], prefix: &[u8]) -> bool {
    text.get(..prefix.len()).is_some_and(|head| head.eq_ignore_ascii_case(prefix))
}

fn moment_text(moment: &Moment, facts: &Facts<'_>, style: Style, out: &mut Vec<u8>) -> bool {
    let Some(began) = facts.began else {
        number(None, style, out);
        return true;
    };
    // Fractions are cut, not rounded, as varnishncsa has them.
    let _ = match moment {
        Moment::Formatted(format) => {
            local_time::format(format, began, out);
            Ok(())
        }
        Moment::Since(scale) => write!(out, "{}", (began * scale) as i64),
        Moment::Fraction(scale, digits) => {
            write!(out, "{:0digits$}", ((began - began.floor()) * scale) as i64)
        }
    };
    true
}

fn taken(scale: f64, facts: &Facts<'_>, style: Style, out: &mut Vec<u8>) -> bool {
    match facts.began {
        None => number(None, style, out),
        Some(began) => {
            let ended = facts.ended.unwrap_or(began);
            let _ = write!(out, "{}", ((ended - began) * scale) as i64);
        }
    }
    true
}

/// Appends `value` with what would break a quoted text escaped.
fn quoted(value: &[u8], style: Style, out: &mut Vec<u8>) {
    for &byte in value {
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0x20..0x7f => out.push(byte),
            _ if style == Style::Text => _ = write!(out, "\\x{byte:02x}"),
            0..0x20 | 0x7f => _ = write!(out, "\\u{byte:04x}"),
            0x80.. => out.push(byte),
        }
    }
}

/// The user's name in the value of `Basic`, that is base64 of `name:password`.
fn user(value: &[u8]) -> Option<Vec<u8>> {
    let value = value.split(u8::is_ascii_whitespace).find(|word| !word.is_empty())?;
    let (mut bits, mut count, mut name) = (0u32, 0, Vec::new());
    for &byte in value {
        let digit = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            b'=' => break,
            _ => return None,
        };
        bits = bits << 6 | u32::from(digit);
        count += 6;
        if count >= 8 {
            count -= 8;
            name.push((bits >> count) as u8);
        }
    }
    let end = name.iter().position(|byte| *byte == b':')?;
    name.truncate(end);
    Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes() {
        for (style, expected) in [
            (Style::Text, &b"a\\\"b\\\\c\\t\\x01\\xff"[..]),
            (Style::Json, &b"a\\\"b\\\\c\\t\\u0001\xff"[..]),
        ] {
            let mut out = Vec::new();
            quoted(b"a\"b\\c\t\x01\xff", style, &mut out);
            assert_eq!(out, expected);
        }
    }

    #[test]
    fn users() {
        assert_eq!(user(b"am9lOnB3"), Some(b"joe".to_vec()));
        assert_eq!(user(b"am9l"), None);
        assert_eq!(user(b"!!!!"), None);
        assert_eq!(user(b""), None);
    }
}
