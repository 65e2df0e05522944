//! Byte ranges: what a Range field asks of a representation of known length, and the frame of an answer with several.
//!
//! ```text
//! --B CRLF Content-Type: T CRLF Content-Range: bytes 0-9/100 CRLF CRLF    head 0
//! 10 bytes
//! CRLF --B CRLF ... CRLF CRLF                                             head 1
//! ...
//! CRLF --B-- CRLF                                                         tail
//! ```
//! An answer is never much longer than the representation: overlapping ranges are merged, and more ranges than allowed
//! get the whole.
//!
//! Source: RFC 9110, section 14.

use crate::{Fields, Known, syntax};
use copal_base::units::push_integer;

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ranges {
    /// The whole representation with status 200: there is no usable Range field, or its unit is not ours.
    Whole,
    /// Nothing that exists, or the range set is malformed: status 416 with [`content_range_unsatisfied`]. RFC 9110
    /// section 14.2 lets a malformed set be ignored or refused; Varnish refuses it.
    Unsatisfiable,
    /// First and last byte of each part, both included and below the length; at least one, no two overlapping.
    Parts(Vec<(u64, u64)>),
}

/// What the Range field of `request` asks of `length` bytes; several Range fields are ignored.
pub fn of_request(request: &Fields, length: u64, max: usize) -> Ranges {
    let mut ranges = request.all_known(Known::Range);
    match (ranges.next(), ranges.next()) {
        (Some(value), None) => parse(value, length, max),
        _ => Ranges::Whole,
    }
}

/// What a Range field's `value` asks of a representation of `length` bytes, at most `max` ranges.
///
/// Ranges wholly beyond the end are left out. If any two overlap, all are put in order and merged where they touch; else
/// the order asked for is kept. Numbers beyond 64 bits count as beyond the end.
///
/// Source: RFC 9110, sections 14.1.2 and 14.2.
pub fn parse(value: &[u8], length: u64, max: usize) -> Ranges {
    let Some(equals) = value.iter().position(|&byte| byte == b'=') else { return Ranges::Whole };
    let unit = &value[..equals];
    if !syntax::trim(unit).eq_ignore_ascii_case(b"bytes") || length == 0 {
        return Ranges::Whole;
    }
    if unit.len() != b"bytes".len() {
        return Ranges::Unsatisfiable;
    }
    let mut parts = Vec::new();
    for (index, spec) in syntax::tokens(&value[equals + 1..]).enumerate() {
        if index == max {
            return Ranges::Whole;
        }
        match range(spec, length) {
            Err(Malformed) => return Ranges::Unsatisfiable,
            Ok(part) => parts.extend(part),
        }
    }
    if parts.is_empty() {
        return Ranges::Unsatisfiable;
    }
    Ranges::Parts(merge(parts))
}

struct Malformed;

/// One range, cut at the end; `None` if nothing of it exists.
fn range(spec: &[u8], length: u64) -> Result<Option<(u64, u64)>, Malformed> {
    let dash = spec.iter().position(|&byte| byte == b'-').ok_or(Malformed)?;
    let (first, last) = (&spec[..dash], &spec[dash + 1..]);
    if first.is_empty() {
        let suffix = number(last)?;
        return Ok((suffix > 0).then(|| (length.saturating_sub(suffix), length - 1)));
    }
    let first = number(first)?;
    let last = if last.is_empty() { u64::MAX } else { number(last)? };
    if last < first {
        return Err(Malformed);
    }
    Ok((first < length).then(|| (first, last.min(length - 1))))
}

/// A number of digits; one beyond 64 bits is the largest.
fn number(digits: &[u8]) -> Result<u64, Malformed> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(Malformed);
    }
    Ok(syntax::parse_digits(digits).unwrap_or(u64::MAX))
}

fn merge(parts: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    let mut sorted = parts.clone();
    sorted.sort_unstable();
    if sorted.windows(2).all(|pair| pair[0].1 < pair[1].0) {
        return parts;
    }
    let mut merged: Vec<(u64, u64)> = Vec::with_capacity(sorted.len());
    for part in sorted {
        match merged.last_mut() {
            Some(open) if part.0 <= open.1.saturating_add(1) => open.1 = open.1.max(part.1),
            _ => merged.push(part),
        }
    }
    merged
}

/// Appends the value of Content-Range for one part of a representation; `length` is `None` while it is not known.
///
/// Source: RFC 9110, section 14.4.
pub fn content_range((first, last): (u64, u64), length: Option<u64>, out: &mut Vec<u8>) {
    out.extend_from_slice(b"bytes ");
    push_integer(out, first);
    out.push(b'-');
    push_integer(out, last);
    out.push(b'/');
    match length {
        Some(length) => push_integer(out, length),
        None => out.push(b'*'),
    }
}

/// Appends the value of Content-Range for an answer with status 416.
pub fn content_range_unsatisfied(length: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(b"bytes */");
    push_integer(out, length);
}

/// A boundary made from two numbers that together are not used twice, say the transaction's and the time's bits.
pub fn boundary(a: u64, b: u64) -> [u8; 32] {
    let mut out = [0; 32];
    for (place, byte) in out.iter_mut().enumerate() {
        let source = if place < 16 { a } else { b };
        *byte = b"0123456789abcdef"[(source >> (60 - 4 * (place % 16)) & 15) as usize];
    }
    out
}

/// The frame of a `multipart/byteranges` body: all of it but the bytes of the representation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Multipart {
    /// All heads and the tail, one after the other.
    frame: Vec<u8>,
    /// Where in `frame` the head of each part ends; the tail follows the last.
    ends: Vec<usize>,
    parts: Vec<(u64, u64)>,
    boundary: [u8; 32],
}

impl Multipart {
    /// The frame for `parts` of a representation of `length` bytes, whose Content-Type (if it has one) each part repeats.
    ///
    /// Source: RFC 9110, section 14.6.
    pub fn new(parts: Vec<(u64, u64)>, length: u64, content_type: Option<&[u8]>, boundary: [u8; 32]) -> Self {
        let (mut frame, mut ends) = (Vec::new(), Vec::with_capacity(parts.len()));
        for (index, &part) in parts.iter().enumerate() {
            frame.extend_from_slice(if index == 0 { b"--" } else { b"\r\n--" });
            frame.extend_from_slice(&boundary);
            if let Some(content_type) = content_type {
                frame.extend_from_slice(b"\r\nContent-Type: ");
                frame.extend_from_slice(content_type);
            }
            frame.extend_from_slice(b"\r\nContent-Range: ");
            content_range(part, Some(length), &mut frame);
            frame.extend_from_slice(b"\r\n\r\n");
            ends.push(frame.len());
        }
        frame.extend_from_slice(b"\r\n--");
        frame.extend_from_slice(&boundary);
        frame.extend_from_slice(b"--\r\n");
        Self { frame, ends, parts, boundary }
    }

    /// First and last byte of each part.
    pub fn parts(&self) -> &[(u64, u64)] {
        &self.parts
    }

    /// What goes out before the bytes of part `index`. Empty if there is no such part.
    pub fn head(&self, index: usize) -> &[u8] {
        let start =
            if index == 0 { 0 } else { self.ends.get(index - 1).copied().unwrap_or(self.frame.len()) };
        let end = self.ends.get(index).copied().unwrap_or(start);
        &self.frame[start..end]
    }

    /// What goes out after the bytes of the last part.
    pub fn tail(&self) -> &[u8] {
        &self.frame[self.ends.last().copied().unwrap_or(0)..]
    }

    /// The exact length of the body: frame and parts.
    pub fn content_length(&self) -> u64 {
        // Parts do not overlap, so their sum fits as the representation's length does.
        self.parts.iter().fold(self.frame.len() as u64, |sum, part| sum.saturating_add(part.1 - part.0 + 1))
    }

    /// Appends the value of Content-Type.
    pub fn content_type(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"multipart/byteranges; boundary=");
        out.extend_from_slice(&self.boundary);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(value: &str, length: u64, expected: Ranges) {
        assert_eq!(parse(value.as_bytes(), length, 4), expected, "{value} of {length}");
    }

    fn parts(parts: &[(u64, u64)]) -> Ranges {
        Ranges::Parts(parts.to_vec())
    }

    #[test]
    fn rfc9110_14_1_2_single_ranges() {
        check("bytes=0-9", 100, parts(&[(0, 9)]));
        check("BYTES=50-", 100, parts(&[(50, 99)]));
        check("bytes=-50", 100, parts(&[(50, 99)]));
        check("bytes=-2000", 100, parts(&[(0, 99)]));
        check("bytes=0-0", 100, parts(&[(0, 0)]));
        check("bytes=90-1000", 100, parts(&[(90, 99)]));
        check("bytes=0-99999999999999999999999", 100, parts(&[(0, 99)]));
        check("bytes=-9223372036854775809", 1000, parts(&[(0, 999)]));
        check("bytes=-99999999999999999999999", 1000, parts(&[(0, 999)]));
        check("bytes=0-", u64::MAX, parts(&[(0, u64::MAX - 1)]));
    }

    #[test]
    fn rfc9110_14_1_2_unsatisfiable_and_malformed() {
        for value in [
            "bytes=100-",
            "bytes=-0",
            "bytes=99999999999999999999999-",
            "bytes=9-0",
            "bytes=a-b",
            "bytes=-",
            "bytes=",
            "bytes=,",
            "bytes=5",
            "bytes=0- 9",
            "bytes =0-9",
            "bytes=0-a",
            "bytes=+0-9",
            "bytes=0--1",
            "bytes=0-9;x",
            "bytes=0-9,x",
        ] {
            check(value, 100, Ranges::Unsatisfiable);
        }
    }

    #[test]
    fn rfc9110_14_2_ignored() {
        for value in ["octets=0-9", "bytes", "", "0-9", "bytes=0-0,2-2,4-4,6-6,8-8"] {
            check(value, 100, Ranges::Whole);
        }
        check("bytes=0-9", 0, Ranges::Whole);
        check("bytes=-5", 0, Ranges::Whole);
    }

    #[test]
    fn rfc9110_14_1_2_several_ranges() {
        check("bytes=0-1, 5-6,,10-", 100, parts(&[(0, 1), (5, 6), (10, 99)]));
        check("bytes=50-60,0-1", 100, parts(&[(50, 60), (0, 1)]));
        check("bytes=0-1,200-300", 100, parts(&[(0, 1)]));
        check("bytes=5-10,0-6,11-12", 100, parts(&[(0, 12)]));
        check("bytes=0-99,0-99,0-99,-1", 100, parts(&[(0, 99)]));
        check("bytes=0-1,2-3", 100, parts(&[(0, 1), (2, 3)]));
    }

    #[test]
    fn several_range_fields_are_ignored() {
        let mut request = Fields::new();
        assert_eq!(of_request(&request, 100, 4), Ranges::Whole);
        request.push(b"Range", b"bytes=0-1");
        assert_eq!(of_request(&request, 100, 4), parts(&[(0, 1)]));
        request.push(b"range", b"bytes=5-6");
        assert_eq!(of_request(&request, 100, 4), Ranges::Whole);
    }

    #[test]
    fn rfc9110_14_6_multipart() {
        let boundary = boundary(1, u64::MAX);
        let multipart = Multipart::new(vec![(0, 1), (5, 5)], 10, Some(b"text/plain"), boundary);
        let mut body = Vec::new();
        for (index, &(first, last)) in multipart.parts().iter().enumerate() {
            body.extend_from_slice(multipart.head(index));
            body.extend_from_slice(&b"0123456789"[first as usize..=last as usize]);
        }
        body.extend_from_slice(multipart.tail());
        let b = "0000000000000001ffffffffffffffff";
        let text = format!(
            "--{b}\r\nContent-Type: text/plain\r\nContent-Range: bytes 0-1/10\r\n\r\n01\r\n--{b}\r\nContent-Type: \
             text/plain\r\nContent-Range: bytes 5-5/10\r\n\r\n5\r\n--{b}--\r\n"
        );
        assert_eq!(String::from_utf8_lossy(&body), text);
        assert_eq!(multipart.content_length(), body.len() as u64);
        assert!(multipart.head(2).is_empty());
        let mut content_type = Vec::new();
        multipart.content_type(&mut content_type);
        assert_eq!(content_type, format!("multipart/byteranges; boundary={b}").as_bytes());
    }

    #[test]
    fn rfc9110_14_4_content_range() {
        let mut out = Vec::new();
        content_range((2, 5), None, &mut out);
        out.push(b' ');
        content_range_unsatisfied(47, &mut out);
        assert_eq!(out, b"bytes 2-5/* bytes */47");
    }

    proptest! {
        #[test]
        fn parts_exist_do_not_overlap_and_cover_what_was_asked(
            asked in prop::collection::vec((0u64..120, 0u64..120), 1..6),
            length in 1u64..100,
        ) {
            let specs: Vec<_> = asked.iter().map(|(a, b)| format!("{}-{}", a.min(b), a.max(b))).collect();
            let value = format!("bytes={}", specs.join(","));
            let wanted = |byte: u64| asked.iter().any(|(a, b)| *a.min(b) <= byte && byte <= *a.max(b));
            match parse(value.as_bytes(), length, 8) {
                Ranges::Whole => prop_assert!(false),
                Ranges::Unsatisfiable => prop_assert!((0..length).all(|byte| !wanted(byte))),
                Ranges::Parts(parts) => {
                    for byte in 0..length {
                        let holders = parts.iter().filter(|(a, b)| *a <= byte && byte <= *b).count();
                        prop_assert_eq!(holders, usize::from(wanted(byte)));
                    }
                    prop_assert!(parts.iter().all(|(a, b)| a <= b && *b < length));
                }
            }
        }

        #[test]
        fn any_value_parses_without_a_panic(value in "(bytes)?=?[0-9a, -]{0,60}", length in any::<u64>()) {
            let _ = parse(value.as_bytes(), length, 8);
        }
    }
}
