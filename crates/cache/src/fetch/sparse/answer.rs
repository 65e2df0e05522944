//! Reading an origin's answer to a Range: which part of which version it is.

use catalog::sparse::layout::{Layout, Validator};
use copal_catalog as catalog;
use copal_wire as wire;
use wire::range::ContentRange;
use wire::{Fields, Known, date};

/// A part of a whole whose length is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) first: u64,
    pub(crate) last: u64,
    pub(crate) total: u64,
}

impl Part {
    /// The part that a 206 with these fields has; `None` if it is several, coded, or of a whole of unknown length.
    pub(crate) fn of(fields: &Fields) -> Option<Self> {
        if fields.has_known(Known::ContentEncoding) {
            return None;
        }
        match wire::range::parse_content_range(only(fields, Known::ContentRange)?)? {
            ContentRange::Part { first, last, length: Some(total) } => Some(Self { first, last, total }),
            ContentRange::Part { length: None, .. } | ContentRange::Unsatisfied(_) => None,
        }
    }

    /// How many bytes it has.
    pub(crate) fn length(self) -> u64 {
        self.last - self.first + 1
    }

    /// Whether it is the whole.
    pub(crate) fn is_whole(self) -> bool {
        self.first == 0 && self.last + 1 == self.total
    }
}

fn only(fields: &Fields, name: Known) -> Option<&[u8]> {
    let mut all = fields.all_known(name);
    all.next().filter(|_| all.next().is_none())
}

/// The validator that tells versions apart: a strong entity tag, else a Last-Modified at least a second before Date.
///
/// Source: RFC 9110, sections 8.8.1 and 8.8.2.2.
pub(crate) fn strong_validator(fields: &Fields) -> Option<Validator> {
    let is_strong = |tag: &[u8]| tag.len() >= 2 && tag.starts_with(b"\"") && tag.ends_with(b"\"");
    if fields.has_known(Known::Etag) {
        return only(fields, Known::Etag).filter(|tag| is_strong(tag)).map(|tag| Validator::Tag(tag.into()));
    }
    let modified = only(fields, Known::LastModified)?;
    let made = date::parse(fields.get_known(Known::Date)?)?;
    (date::parse(modified)? + 1.0 <= made).then(|| Validator::Modified(modified.into()))
}

/// The verdict on an answer to a request for segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Judged {
    /// The segments that were asked for, or the first of them: up to this byte, included.
    Good(u64),
    /// The origin has another version, or none any more: the generation has ended.
    Changed,
    /// The right version, but another part than was asked for.
    Useless,
    /// Something else that says nothing about the version: it goes to the client that asked.
    Refused,
}

/// Judges an answer to the request for bytes `first..=last` of what `layout` describes.
pub(crate) fn judge(layout: &Layout, (first, last): (u64, u64), status: u16, fields: &Fields) -> Judged {
    match status {
        206 => {}
        // Another representation, none any more, or one to which the condition or the range does not apply.
        200..=299 | 404 | 410 | 412 | 416 => return Judged::Changed,
        // A redirection, a fault of this request, of this client's rights or of the origin ends nobody else's object.
        _ => return Judged::Refused,
    }
    let same = match &layout.validator {
        Validator::Tag(tag) => only(fields, Known::Etag) == Some(&**tag),
        Validator::Modified(date) => {
            !fields.has_known(Known::Etag) && only(fields, Known::LastModified) == Some(&**date)
        }
    };
    match Part::of(fields) {
        // An origin may send less than was asked for (RFC 9110, section 15.3.7); a segment of it must be whole.
        Some(part)
            if same
                && part.total == layout.total
                && part.first == first
                && (part.last == last || part.last < last && part.length() >= layout.segment) =>
        {
            Judged::Good(part.last)
        }
        // The same version, but not the part that was asked for.
        Some(part) if same && part.total == layout.total => Judged::Useless,
        _ => Judged::Changed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(lines: &[(&str, &str)]) -> Fields {
        let mut fields = Fields::new();
        for (name, value) in lines {
            assert!(fields.push(name.as_bytes(), value.as_bytes()));
        }
        fields
    }

    const DATE: (&str, &str) = ("Date", "Sun, 06 Nov 1994 08:49:37 GMT");
    const OLD: (&str, &str) = ("Last-Modified", "Sun, 06 Nov 1994 08:49:36 GMT");
    const NEW: (&str, &str) = ("Last-Modified", "Sun, 06 Nov 1994 08:49:37 GMT");

    #[test]
    fn rfc9110_8_8_1_strong_validators() {
        let check = |lines: &[(&str, &str)], expected: Option<Validator>| {
            assert_eq!(strong_validator(&of(lines)), expected, "{lines:?}");
        };
        let tag = |text: &str| Some(Validator::Tag(text.as_bytes().into()));
        check(&[("ETag", "\"a\"")], tag("\"a\""));
        check(&[("ETag", "\"a\""), NEW, DATE], tag("\"a\""));
        check(&[("ETag", "W/\"a\""), OLD, DATE], None);
        check(&[("ETag", "a")], None);
        check(&[("ETag", "\"")], None);
        check(&[("ETag", "\"a\""), ("ETag", "\"b\"")], None);
        check(&[OLD, DATE], Some(Validator::Modified(OLD.1.as_bytes().into())));
        check(&[NEW, DATE], None);
        check(&[OLD], None);
        check(&[("Last-Modified", "yesterday"), DATE], None);
        check(&[], None);
    }

    #[test]
    fn rfc9110_15_3_7_parts() {
        let check = |lines: &[(&str, &str)], expected: Option<(u64, u64, u64)>| {
            let part = Part::of(&of(lines)).map(|part| (part.first, part.last, part.total));
            assert_eq!(part, expected, "{lines:?}");
        };
        check(&[("Content-Range", "bytes 0-9/100")], Some((0, 9, 100)));
        check(&[("Content-Range", "bytes 0-9/*")], None);
        check(&[("Content-Range", "bytes */100")], None);
        check(&[("Content-Range", "bytes 0-9/100"), ("Content-Encoding", "gzip")], None);
        check(&[("Content-Range", "bytes 0-9/100"), ("Content-Range", "bytes 0-9/100")], None);
        check(&[("Content-Type", "multipart/byteranges; boundary=x")], None);
    }

    #[test]
    fn answers_of_another_version_are_told() {
        let layout =
            |validator| Layout { total: 100, segment: 10, generation: [0; 16], stays: false, validator };
        let tag = layout(Validator::Tag(b"\"a\"".as_slice().into()));
        let date = layout(Validator::Modified(OLD.1.as_bytes().into()));
        let check = |layout: &Layout, status, lines: &[(&str, &str)], expected| {
            assert_eq!(judge(layout, (10, 29), status, &of(lines)), expected, "{status} {lines:?}");
        };
        let range = ("Content-Range", "bytes 10-29/100");
        check(&tag, 206, &[("ETag", "\"a\""), range], Judged::Good(29));
        check(&tag, 206, &[("ETag", "\"b\""), range], Judged::Changed);
        check(&tag, 206, &[("ETag", "W/\"a\""), range], Judged::Changed);
        check(&tag, 206, &[range], Judged::Changed);
        check(&tag, 206, &[("ETag", "\"a\""), ("Content-Range", "bytes 10-29/101")], Judged::Changed);
        let part = |range| [("ETag", "\"a\""), ("Content-Range", range)];
        check(&tag, 206, &part("bytes 10-19/100"), Judged::Good(19));
        check(&tag, 206, &part("bytes 10-20/100"), Judged::Good(20));
        check(&tag, 206, &part("bytes 10-18/100"), Judged::Useless);
        check(&tag, 206, &part("bytes 10-30/100"), Judged::Useless);
        check(&tag, 206, &part("bytes 9-29/100"), Judged::Useless);
        check(&tag, 206, &[("ETag", "\"a\"")], Judged::Changed);
        check(&tag, 200, &[("ETag", "\"a\"")], Judged::Changed);
        check(&tag, 412, &[], Judged::Changed);
        check(&tag, 416, &[("Content-Range", "bytes */5")], Judged::Changed);
        check(&tag, 404, &[], Judged::Changed);
        check(&tag, 410, &[], Judged::Changed);
        check(&tag, 203, &[("ETag", "\"a\"")], Judged::Changed);
        for status in [302, 304, 400, 401, 403, 407, 429, 431, 500, 503] {
            check(&tag, status, &[], Judged::Refused);
        }
        check(&date, 206, &[OLD, range], Judged::Good(29));
        check(&date, 206, &[NEW, range], Judged::Changed);
        check(&date, 206, &[OLD, ("ETag", "\"a\""), range], Judged::Changed);
        check(&date, 206, &[range], Judged::Changed);
    }
}
