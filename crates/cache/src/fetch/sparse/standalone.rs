//! A 206 that is stored by itself, since it cannot be combined with other parts: it has no strong validator, or it is a
//! short tail, which clients read to learn what to read next. Only with `rfc`.
//!
//! It is an ordinary object of status 206 whose head has its Content-Range, and it answers requests for a range that lies in
//! it. All other requests miss, and the responses fetched for them replace it.
//!
//! A body that is shorter than Content-Range says is taken from the offset given there, and still reaches the end of the
//! whole if Content-Range says so. The length of the whole then counts as unknown.
//!
//! Source: RFC 9111, sections 3.3 and 3.4; RFC 9110, section 15.3.7.

use crate::known::Known as KnownObject;
use copal_wire as wire;
use wire::range::{ContentRange, Spec};
use wire::{Fields, Known};

/// A suffix up to this length is asked for as it is, in bytes.
pub(crate) const TAIL_MAX: u64 = 1024;

/// See the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StandalonePart {
    /// Offset of its first byte.
    first: u64,
    /// Offset of its last byte.
    last: u64,
    /// Length of the whole, if it is known.
    total: Option<u64>,
    /// It reaches the end.
    is_tail: bool,
}

impl StandalonePart {
    /// The part that a response of status 206 with these fields and `length` bytes is; `None` if it is none or several.
    pub(crate) fn of(fields: &Fields, length: u64) -> Option<Self> {
        let mut values = fields.all_known(Known::ContentRange);
        let value = values.next().filter(|_| values.next().is_none())?;
        let ContentRange::Part { first, last, length: total } = wire::range::parse_content_range(value)?
        else {
            return None;
        };
        let claimed = last - first + 1;
        if length == 0 || length > claimed {
            return None;
        }
        let is_tail = total.is_some_and(|total| last + 1 == total);
        Some(Self { first, last: first + length - 1, total: total.filter(|_| length == claimed), is_tail })
    }

    /// The part that a stored object is; `None` if it is none. Of an object without a length, Content-Range is believed.
    pub(crate) fn of_object(known: &KnownObject) -> Option<Self> {
        if known.status() != 206 {
            return None;
        }
        let claimed = || {
            let value = known.fields().get_known(Known::ContentRange)?;
            match wire::range::parse_content_range(value)? {
                ContentRange::Part { first, last, .. } => Some(last - first + 1),
                ContentRange::Unsatisfied(_) => None,
            }
        };
        Self::of(known.fields(), known.length().or_else(claimed)?)
    }

    /// The first and last byte that the request asks for, if it is a single range that lies in this part, and not under a
    /// condition.
    pub(crate) fn answer(&self, request: &Fields) -> Option<(u64, u64)> {
        let mut values = request.all_known(Known::Range);
        let value = values.next().filter(|_| values.next().is_none())?;
        if request.has_known(Known::IfRange) || value.contains(&b',') {
            return None;
        }
        let (first, last) = match wire::range::first_spec(value)? {
            Spec::From(first, Some(last)) if last <= self.last => (first, last),
            Spec::From(first, _) if self.is_tail => (first, self.last),
            Spec::Last(count) if self.is_tail && count > 0 => {
                ((self.last + 1).checked_sub(count)?, self.last)
            }
            Spec::From(..) | Spec::Last(_) => return None,
        };
        (self.first <= first && first <= last).then_some((first, last))
    }

    /// Position in the part's body of byte `offset` of the whole.
    pub(crate) fn place(&self, offset: u64) -> u64 {
        offset - self.first
    }

    /// Whether these are the first and last byte of it, so that it goes out as it came.
    pub(crate) fn is_all(&self, first: u64, last: u64) -> bool {
        (first, last) == (self.first, self.last)
    }

    /// The length of the whole, if it is known.
    pub(crate) fn total(&self) -> Option<u64> {
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(name: Known, value: &str) -> Fields {
        let mut fields = Fields::new();
        assert!(fields.push_known(name, value.as_bytes()));
        fields
    }

    fn part(content_range: &str, length: u64) -> Option<StandalonePart> {
        StandalonePart::of(&fields(Known::ContentRange, content_range), length)
    }

    #[test]
    fn rfc9110_14_4_what_is_a_part() {
        let bytes = |first, last, total, is_tail| Some(StandalonePart { first, last, total, is_tail });
        assert_eq!(part("bytes 4-8/10", 5), bytes(4, 8, Some(10), false));
        assert_eq!(part("bytes 5-9/10", 5), bytes(5, 9, Some(10), true));
        assert_eq!(part("bytes 5-9/*", 5), bytes(5, 9, None, false));
        assert_eq!(part("bytes 4-9/10", 5), bytes(4, 8, None, true));
        assert_eq!(part("bytes 4-9/10", 7), None);
        assert_eq!(part("bytes 4-9/10", 0), None);
        assert_eq!(part("bytes */10", 5), None);
        assert_eq!(StandalonePart::of(&Fields::new(), 5), None);
        let mut two = fields(Known::ContentRange, "bytes 0-1/10");
        two.push_known(Known::ContentRange, b"bytes 0-1/10");
        assert_eq!(StandalonePart::of(&two, 2), None);
    }

    #[test]
    fn rfc9111_3_3_it_answers_ranges_that_lie_in_it() {
        let check = |content_range: &str, length, range: &str, expected| {
            let answer = part(content_range, length).unwrap().answer(&fields(Known::Range, range));
            assert_eq!(answer, expected, "{content_range} {range}");
        };
        let (middle, tail, short) = (("bytes 4-8/10", 5), ("bytes 5-9/10", 5), ("bytes 4-9/10", 5));
        check(middle.0, middle.1, "bytes=4-8", Some((4, 8)));
        check(middle.0, middle.1, "bytes=5-6", Some((5, 6)));
        check(middle.0, middle.1, "bytes=3-6", None);
        check(middle.0, middle.1, "bytes=5-9", None);
        check(middle.0, middle.1, "bytes=5-", None);
        check(middle.0, middle.1, "bytes=-2", None);
        check(middle.0, middle.1, "bytes=5-6,7-8", None);
        check(middle.0, middle.1, "items=5-6", None);
        check(tail.0, tail.1, "bytes=6-", Some((6, 9)));
        check(tail.0, tail.1, "bytes=6-700", Some((6, 9)));
        check(tail.0, tail.1, "bytes=-5", Some((5, 9)));
        check(tail.0, tail.1, "bytes=-6", None);
        check(tail.0, tail.1, "bytes=-0", None);
        check(tail.0, tail.1, "bytes=4-9", None);
        check(tail.0, tail.1, "bytes=10-", None);
        check(short.0, short.1, "bytes=6-8", Some((6, 8)));
        check(short.0, short.1, "bytes=6-", Some((6, 8)));
        check(short.0, short.1, "bytes=-1", Some((8, 8)));
    }

    #[test]
    fn a_condition_or_several_ranges_are_for_the_origin() {
        let part = part("bytes 0-9/10", 10).unwrap();
        let mut request = fields(Known::Range, "bytes=1-2");
        assert_eq!(part.answer(&request), Some((1, 2)));
        request.push_known(Known::IfRange, b"\"a\"");
        assert_eq!(part.answer(&request), None);
        let mut request = fields(Known::Range, "bytes=1-2");
        request.push_known(Known::Range, b"bytes=1-2");
        assert_eq!(part.answer(&request), None);
        assert_eq!(part.answer(&Fields::new()), None);
    }
}
