//! The range that an origin is asked for on a miss, when the client wants a part and the length of the whole is not known.
//!
//! It is the whole segments of the client's first range. A range from offset 0 is at least `sparse_min_size` long, so that a
//! smaller response comes whole in one answer. For a suffix it is one segment more than needed: it is not known where the
//! suffix begins, and the segment in which it does must be whole.

use super::answer::Part;
use base::units::push_integer;
use copal_base as base;
use copal_wire as wire;
use wire::range::Spec;

/// The bytes that are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ask {
    /// From the first offset to the last, or to the end.
    From(u64, Option<u64>),
    /// The last so many bytes.
    Last(u64),
}

impl Ask {
    /// The first segments, to learn the length of the whole.
    pub(crate) fn head(segment: u64, min: u64) -> Self {
        Self::From(0, Some(up(min.max(1), segment) - 1))
    }

    /// The suffix of at most `max` bytes that `value` asks for, as it is; `None` if `value` is another range.
    pub(crate) fn tail(value: &[u8], max: u64) -> Option<Self> {
        match wire::range::first_spec(value)? {
            Spec::Last(count) if 0 < count && count <= max && !value.contains(&b',') => {
                Some(Self::Last(count))
            }
            Spec::Last(_) | Spec::From(..) => None,
        }
    }

    /// The range to ask for to serve a client's Range `value`; `None` if the whole is wanted, or the value is malformed.
    pub(crate) fn of(value: &[u8], segment: u64, min: u64) -> Option<Self> {
        match wire::range::first_spec(value)? {
            Spec::From(0, None) => None,
            Spec::From(first, last) => {
                let start = first - first % segment;
                let last = last.map(|last| {
                    let end = up(last.saturating_add(1), segment);
                    if start == 0 { end.max(up(min, segment)) - 1 } else { end - 1 }
                });
                Some(Self::From(start, last))
            }
            Spec::Last(0) => None,
            Spec::Last(count) => Some(Self::Last(count.saturating_add(segment - 1).max(min))),
        }
    }

    /// Whether `part` has what was asked for, or at least its first segment: an origin may send less.
    pub(crate) fn is_met_by(self, part: Part, segment: u64) -> bool {
        let reaches = part.last + 1 == part.total;
        match self {
            Self::From(first, last) => {
                let is_all = reaches || last.is_some_and(|last| part.last >= last);
                part.first == first && (is_all || part.length() >= segment)
            }
            Self::Last(count) => reaches && part.first <= part.total.saturating_sub(count),
        }
    }

    /// Whether it begins at the first byte.
    pub(crate) fn is_head(self) -> bool {
        matches!(self, Self::From(0, _))
    }

    /// The Range field's value.
    pub(crate) fn value(self) -> Vec<u8> {
        let mut value = Vec::with_capacity(48);
        value.extend_from_slice(b"bytes=");
        match self {
            Self::From(first, last) => {
                push_integer(&mut value, first);
                value.push(b'-');
                if let Some(last) = last {
                    push_integer(&mut value, last);
                }
            }
            Self::Last(count) => {
                value.push(b'-');
                push_integer(&mut value, count);
            }
        }
        value
    }
}

/// `offset`, rounded up to the beginning of a segment.
fn up(offset: u64, segment: u64) -> u64 {
    offset.div_ceil(segment).saturating_mul(segment)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(range: &str, min: u64, expected: Option<&str>) {
        let value = Ask::of(range.as_bytes(), 100, min).map(|ask| String::from_utf8(ask.value()).unwrap());
        assert_eq!(value.as_deref(), expected, "{range}");
    }

    #[test]
    fn whole_segments_are_asked_for() {
        check("bytes=0-0", 0, Some("bytes=0-99"));
        check("bytes=0-99", 0, Some("bytes=0-99"));
        check("bytes=0-100", 0, Some("bytes=0-199"));
        check("bytes=5-7", 250, Some("bytes=0-299"));
        check("bytes=250-260", 250, Some("bytes=200-299"));
        check("bytes=250-", 250, Some("bytes=200-"));
        check("bytes=5-", 250, Some("bytes=0-"));
        check("bytes=0-0,900-901", 0, Some("bytes=0-99"));
        check("bytes=-5", 0, Some("bytes=-104"));
        check("bytes=-5", 500, Some("bytes=-500"));
        check("bytes=7-18446744073709551615", 0, Some("bytes=0-18446744073709551614"));
        check("bytes=7-99999999999999999999999999", 0, Some("bytes=0-18446744073709551614"));
        check("bytes=-18446744073709551615", 0, Some("bytes=-18446744073709551615"));
    }

    #[test]
    fn a_short_tail_is_asked_for_as_it_is() {
        assert_eq!(Ask::tail(b"bytes=-5", 8), Some(Ask::Last(5)));
        for range in ["bytes=-9", "bytes=-0", "bytes=5-", "bytes=-5,-6", "x"] {
            assert_eq!(Ask::tail(range.as_bytes(), 8), None, "{range}");
        }
    }

    #[test]
    fn what_is_whole_or_malformed_is_not() {
        for range in ["bytes=0-", "bytes=-0", "bytes=9-0", "bytes=", "items=0-5", "bytes=0-5,x", "x", ""] {
            check(range, 0, None);
        }
    }

    #[test]
    fn rfc9110_15_3_7_what_meets_it() {
        let check = |ask: Ask, first, last, expected| {
            let part = Part { first, last, total: 1000 };
            assert_eq!(ask.is_met_by(part, 100), expected, "{ask:?} {first}-{last}");
        };
        let some = Ask::From(200, Some(499));
        check(some, 200, 499, true);
        check(some, 200, 299, true);
        check(some, 200, 298, false);
        check(some, 201, 499, false);
        check(Ask::From(900, Some(1099)), 900, 999, true);
        check(Ask::From(200, None), 200, 999, true);
        check(Ask::Last(104), 896, 999, true);
        check(Ask::Last(104), 900, 999, false);
        check(Ask::Last(104), 800, 949, false);
        check(Ask::Last(5000), 0, 999, true);
    }

    #[test]
    fn the_head_is_as_long_as_the_smallest() {
        assert_eq!(Ask::head(100, 250).value(), b"bytes=0-299");
        assert_eq!(Ask::head(100, 0).value(), b"bytes=0-99");
    }
}
