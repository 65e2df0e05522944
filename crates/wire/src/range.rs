//! Byte ranges: what a Range field asks of a representation of known length, and the frame of an answer with several.
//!
//! ```text
//! --B CRLF Content-Type: T CRLF Content-Range: bytes 0-9/100 CRLF CRLF    head 0
//! 10 bytes
//! CRLF --B CRLF ... CRLF CRLF                                             head 1
//! ...
//! CRLF --B-- CRLF                                                         tail
//! ```
//! Readers of physics data ask for hundreds of ranges at once, and some of them take the parts for exactly what they asked
//! for, in that order, one part a range. So a set is answered as it was asked wherever that is harmless. It is not where
//! ranges overlap, or where many are so small that their frame is longer than they are (RFC 9110, section 17.15): such a set
//! is merged, near ranges too. More ranges than allowed get the whole.
//!
//! Source: RFC 9110, sections 14 and 15.3.7.2.

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

/// What a part takes besides its bytes, about: boundary, `Content-Range` with numbers of ten digits, line ends. A gap that is
/// not longer costs less than a part of its own.
const PART_BYTES: u64 = 100;

/// From so many ranges on a set counts as one of many small ones, if its frame is longer than its bytes.
const MANY: usize = 16;

/// What a Range field's `value` asks of a representation of `length` bytes, at most `max` ranges.
///
/// Ranges wholly beyond the end are left out. The rest is as asked, in that order; see [`arrange`] for the exceptions.
/// Numbers beyond 64 bits count as beyond the end.
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
    Ranges::Parts(arrange(parts))
}

/// One range of a request, as it is written: the representation's length is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spec {
    /// From this byte to that, both included, or to the end.
    From(u64, Option<u64>),
    /// The last so many bytes.
    Last(u64),
}

/// The first range of a Range field's `value`; `None` if any of them is malformed, or the unit is not ours.
///
/// Source: RFC 9110, section 14.1.2.
pub fn first_spec(value: &[u8]) -> Option<Spec> {
    let (unit, set) = value.split_at_checked(b"bytes=".len())?;
    let is_good = |spec: &[u8]| range(spec, u64::MAX).is_ok();
    if !unit.eq_ignore_ascii_case(b"bytes=") || !syntax::tokens(set).all(is_good) {
        return None;
    }
    let spec = syntax::tokens(set).next()?;
    let dash = spec.iter().position(|&byte| byte == b'-')?;
    let (first, last) = (&spec[..dash], &spec[dash + 1..]);
    match (number(first), number(last)) {
        (Ok(first), Ok(last)) => Some(Spec::From(first, Some(last))),
        (Ok(first), Err(Malformed)) => Some(Spec::From(first, None)),
        (Err(Malformed), Ok(last)) => Some(Spec::Last(last)),
        (Err(Malformed), Err(Malformed)) => None,
    }
}

/// What a Content-Range field says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContentRange {
    /// First and last byte, both included and below the length where that is known.
    Part {
        /// The first byte.
        first: u64,
        /// The last byte, included.
        last: u64,
        /// The length of the whole; `*` is `None`.
        length: Option<u64>,
    },
    /// Nothing that was asked for exists; the length of the representation.
    Unsatisfied(u64),
}

/// Reads a Content-Range field's `value`; `None` if it is malformed, or its unit is not ours.
///
/// Source: RFC 9110, section 14.4.
pub fn parse_content_range(value: &[u8]) -> Option<ContentRange> {
    let (unit, rest) = value.split_at_checked(b"bytes ".len())?;
    if !unit.eq_ignore_ascii_case(b"bytes ") {
        return None;
    }
    let slash = rest.iter().position(|&byte| byte == b'/')?;
    let (span, length) = (&rest[..slash], &rest[slash + 1..]);
    let length = if length == b"*" { None } else { Some(syntax::parse_digits(length)?) };
    if span == b"*" {
        return length.map(ContentRange::Unsatisfied);
    }
    let dash = span.iter().position(|&byte| byte == b'-')?;
    let (first, last) = (syntax::parse_digits(&span[..dash])?, syntax::parse_digits(&span[dash + 1..])?);
    let is_valid = first <= last && length.is_none_or(|length| last < length) && last < u64::MAX;
    is_valid.then_some(ContentRange::Part { first, last, length })
}

#[derive(Debug)]
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

/// The parts that answer these ranges: they themselves, unless some overlap or they are many and tiny. Then those that
/// overlap, touch or are nearer than a part's frame is long are one, which stands where the first of them was asked for.
fn arrange(parts: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    let tiny = parts.len() >= MANY && is_mostly_frame(&parts);
    if !tiny && parts.windows(2).all(|pair| pair[0].1 < pair[1].0) {
        return parts;
    }
    let mut sorted: Vec<(u64, u64, usize)> =
        parts.iter().enumerate().map(|(place, &(first, last))| (first, last, place)).collect();
    sorted.sort_unstable();
    if !tiny && sorted.windows(2).all(|pair| pair[0].1 < pair[1].0) {
        return parts;
    }
    // Merged in place: `merged` of them are done.
    let mut merged = 0;
    for index in 0..sorted.len() {
        let (first, last, place) = sorted[index];
        match sorted[..merged].last_mut() {
            Some(open) if first <= open.1.saturating_add(1 + PART_BYTES) => {
                (open.1, open.2) = (open.1.max(last), open.2.min(place));
            }
            _ => {
                sorted[merged] = (first, last, place);
                merged += 1;
            }
        }
    }
    sorted.truncate(merged);
    sorted.sort_unstable_by_key(|&(_, _, place)| place);
    sorted.into_iter().map(|(first, last, _)| (first, last)).collect()
}

/// Whether these ranges, each a part, would be sent with more bytes of frame than of their own.
fn is_mostly_frame(parts: &[(u64, u64)]) -> bool {
    let bytes = parts.iter().fold(0, |sum: u64, part| sum.saturating_add(part.1 - part.0 + 1));
    bytes < PART_BYTES.saturating_mul(parts.len() as u64)
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

/// The longest Content-Type that each part repeats; one that is longer is left out, so that a frame is bounded.
const CONTENT_TYPE_MAX: usize = 256;

/// The frame of a `multipart/byteranges` body: all of it but the bytes of the representation. Three allocations, however
/// many parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Multipart {
    /// All heads and the tail, one after the other.
    frame: Vec<u8>,
    /// Where in `frame` the head of each part ends; the tail follows the last.
    ends: Vec<u32>,
    parts: Vec<(u64, u64)>,
    boundary: [u8; 32],
}

impl Multipart {
    /// The frame for `parts` of a representation of `length` bytes, whose Content-Type (if it has one of at most 256 bytes)
    /// each part repeats.
    ///
    /// # Panics
    /// If there are ten million parts or more: the frame would not fit.
    ///
    /// Source: RFC 9110, section 14.6.
    pub fn new(parts: Vec<(u64, u64)>, length: u64, content_type: Option<&[u8]>, boundary: [u8; 32]) -> Self {
        assert!(parts.len() < 10_000_000, "a request has far fewer ranges");
        let mut start = b"\r\n--".to_vec();
        start.extend_from_slice(&boundary);
        if let Some(content_type) = content_type.filter(|value| value.len() <= CONTENT_TYPE_MAX) {
            start.extend_from_slice(b"\r\nContent-Type: ");
            start.extend_from_slice(content_type);
        }
        start.extend_from_slice(b"\r\nContent-Range: ");
        let mut end = Vec::with_capacity(24);
        push_integer(&mut end, length);
        // "bytes " and "-" and "/", no number longer than the length, and the empty line.
        let each = start.len() + 8 + 3 * end.len() + 4;
        let (mut frame, mut ends) =
            (Vec::with_capacity(each * parts.len() + 40), Vec::with_capacity(parts.len()));
        for (index, &part) in parts.iter().enumerate() {
            // Nothing stands before the first, so it needs no line end.
            frame.extend_from_slice(if index == 0 { &start[2..] } else { &start });
            content_range(part, Some(length), &mut frame);
            frame.extend_from_slice(b"\r\n\r\n");
            ends.push(frame.len() as u32);
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

    /// What goes out before the bytes of part `index`; after those of the last, with their number as the index: the tail.
    pub fn delimiter(&self, index: usize) -> &[u8] {
        let end_of = |part: usize| self.ends.get(part).map_or(self.frame.len(), |end| *end as usize);
        let start = if index == 0 { 0 } else { end_of(index - 1) };
        &self.frame[start..end_of(index)]
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
    fn rfc9110_14_1_2_the_first_as_written() {
        let check = |value: &str, expected| assert_eq!(first_spec(value.as_bytes()), expected, "{value}");
        check("bytes=0-9", Some(Spec::From(0, Some(9))));
        check("BYTES=5-", Some(Spec::From(5, None)));
        check("bytes=-7,0-1", Some(Spec::Last(7)));
        check("bytes= , 3-4", Some(Spec::From(3, Some(4))));
        check("bytes=-0", Some(Spec::Last(0)));
        for value in
            ["bytes=", "bytes=9-0", "bytes=0-1,x", "bytes=-", "bytes", "items=0-1", "", "bytes=0-1,9-0"]
        {
            check(value, None);
        }
    }

    #[test]
    fn rfc9110_14_4_read() {
        let check =
            |value: &str, expected| assert_eq!(parse_content_range(value.as_bytes()), expected, "{value}");
        let part = |first, last, length| Some(ContentRange::Part { first, last, length });
        check("bytes 0-9/100", part(0, 9, Some(100)));
        check("Bytes 5-5/6", part(5, 5, Some(6)));
        check("bytes 0-9/*", part(0, 9, None));
        check("bytes */47", Some(ContentRange::Unsatisfied(47)));
        for value in [
            "bytes 9-0/100",
            "bytes 0-100/100",
            "bytes 0-9",
            "bytes */*",
            "bytes 0-9/99999999999999999999999",
            "bytes 0-18446744073709551615/*",
            "bytes -9/100",
            "bytes 0-/100",
            "bytes=0-9/100",
            "items 0-9/100",
            "bytes 0 - 9/100",
            "",
        ] {
            check(value, None);
        }
    }

    #[test]
    fn rfc9110_14_1_2_several_ranges() {
        check("bytes=0-1, 5-6,,10-", 100, parts(&[(0, 1), (5, 6), (10, 99)]));
        check("bytes=50-60,0-1", 100, parts(&[(50, 60), (0, 1)]));
        check("bytes=0-1,200-300", 100, parts(&[(0, 1)]));
        check("bytes=5-10,0-6,11-12", 100, parts(&[(0, 12)]));
        check("bytes=0-9,90-99,20-29", 1000, parts(&[(0, 9), (90, 99), (20, 29)]));
        check("bytes=0-99,0-99,0-99,-1", 100, parts(&[(0, 99)]));
        check("bytes=0-1,2-3", 100, parts(&[(0, 1), (2, 3)]));
    }

    /// One part a range and in the order asked is what TWebFile of ROOT and older versions of davix count on.
    #[test]
    fn rfc9110_15_3_7_2_as_asked_where_nothing_overlaps() {
        check("bytes=2-3,0-1", 100, parts(&[(2, 3), (0, 1)]));
        check(
            "bytes=500-599,100-199,200-299,0-99",
            1000,
            parts(&[(500, 599), (100, 199), (200, 299), (0, 99)]),
        );
        let many: Vec<_> = (0..500).map(|n| (n * 3000, n * 3000 + 99)).collect();
        let value = specs(many.iter().rev());
        assert_eq!(parse(&value, 1 << 30, 500), Ranges::Parts(many.into_iter().rev().collect()));
    }

    #[test]
    fn rfc9110_15_3_7_2_overlapping_ones_are_merged_where_the_first_of_them_was_asked() {
        check(
            "bytes=9000-9001,5000-5999,0-99,5500-6500",
            10_000,
            parts(&[(9000, 9001), (5000, 6500), (0, 99)]),
        );
        // The set is not sent as asked anyway, so what is near goes with it.
        check("bytes=0-99,50-149,200-299,401-450", 10_000, parts(&[(0, 299), (401, 450)]));
        check("bytes=7-,8-,9-,-3", u64::MAX, parts(&[(7, u64::MAX - 1)]));
    }

    #[test]
    fn rfc9110_17_15_many_tiny_ranges_become_few() {
        let crumbs: Vec<_> = (0..900).map(|n| (n * 2, n * 2)).collect();
        assert_eq!(parse(&specs(&crumbs), 10_000, 1000), parts(&[(0, 1798)]));
        let apart: Vec<_> = (0..900).map(|n| (n * 200, n * 200)).collect();
        assert_eq!(parse(&specs(&apart), 1 << 20, 1000), parts(&apart));
        let few: Vec<_> = (0..MANY as u64 - 1).map(|n| (n * 2, n * 2)).collect();
        assert_eq!(parse(&specs(&few), 10_000, 1000), parts(&few));
    }

    fn specs<'a>(ranges: impl IntoIterator<Item = &'a (u64, u64)>) -> Vec<u8> {
        let specs: Vec<_> = ranges.into_iter().map(|(first, last)| format!("{first}-{last}")).collect();
        format!("bytes={}", specs.join(",")).into_bytes()
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
            body.extend_from_slice(multipart.delimiter(index));
            body.extend_from_slice(&b"0123456789"[first as usize..=last as usize]);
        }
        body.extend_from_slice(multipart.delimiter(2));
        let b = "0000000000000001ffffffffffffffff";
        let text = format!(
            "--{b}\r\nContent-Type: text/plain\r\nContent-Range: bytes 0-1/10\r\n\r\n01\r\n--{b}\r\nContent-Type: \
             text/plain\r\nContent-Range: bytes 5-5/10\r\n\r\n5\r\n--{b}--\r\n"
        );
        assert_eq!(String::from_utf8_lossy(&body), text);
        assert_eq!(multipart.content_length(), body.len() as u64);
        assert!(multipart.delimiter(3).is_empty());
        let mut content_type = Vec::new();
        multipart.content_type(&mut content_type);
        assert_eq!(content_type, format!("multipart/byteranges; boundary={b}").as_bytes());
    }

    #[test]
    fn a_frame_is_bounded() {
        let ranges: Vec<_> = (0..1000).map(|n| (u64::MAX - 2 * n - 3, u64::MAX - 2 * n - 3)).collect();
        for (kind, most) in [(CONTENT_TYPE_MAX, 450), (CONTENT_TYPE_MAX + 1, 150)] {
            let kind = vec![b'x'; kind];
            let multipart = Multipart::new(ranges.clone(), u64::MAX, Some(&kind), boundary(1, 2));
            assert!(multipart.frame.len() <= 1000 * most);
        }
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
                    let holders = |byte| parts.iter().filter(|(a, b)| *a <= byte && byte <= *b).count();
                    for byte in 0..length {
                        // Once, if it was asked for; a gap may go with what it divides.
                        prop_assert!(holders(byte) <= 1 && (holders(byte) == 1 || !wanted(byte)));
                    }
                    prop_assert!(parts.iter().all(|(a, b)| a <= b && *b < length && wanted(*a) && wanted(*b)));
                    prop_assert!(parts.len() <= asked.len());
                }
            }
        }

        #[test]
        fn any_value_parses_without_a_panic(value in "(bytes)?[= ]?[0-9a,/* -]{0,60}", length in any::<u64>()) {
            let _ = parse(value.as_bytes(), length, 8);
            let _ = (first_spec(value.as_bytes()), parse_content_range(value.as_bytes()));
        }
    }
}
