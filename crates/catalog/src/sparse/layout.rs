//! The layout of an object in segments: its length, and the size, generation and validator of the segments. It is the plan
//! that the store keeps with the master.
//!
//! | bytes | meaning |
//! |---|---|
//! | 8 | total: the length of the whole, in the machine's order, as all numbers here; never 0 |
//! | 8 | size of a segment; never 0. The last one may be shorter |
//! | 16 | generation: new for each version that is stored, kept by what a 304 confirms |
//! | 1 | 1 if segments go where the master is, 0 if they take turns among the stores |
//! | 1 | what the validator is: 1 an entity tag, 2 a Last-Modified |
//! | | validator, as the origin sent it |

use crate::index::Key;
use copal_store::Object;
use sha2::{Digest, Sha256};

const FIXED: usize = 34;

/// What tells one version of a representation from all others.
///
/// Source: RFC 9110, section 8.8.1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Validator {
    /// A strong entity tag.
    Tag(Box<[u8]>),
    /// A Last-Modified that is old enough to be strong.
    Modified(Box<[u8]>),
}

/// The layout of an object in segments. See the module for its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// Bytes of the whole; never 0.
    pub total: u64,
    /// Bytes of a segment; never 0. The last one may be shorter.
    pub segment: u64,
    /// New for each version that is stored, kept by what a 304 confirms.
    pub generation: [u8; 16],
    /// Segments go to the store of their master.
    pub stays: bool,
    /// What tells this version from others.
    pub validator: Validator,
}

impl Layout {
    /// The layout's bytes.
    pub fn to_bytes(&self) -> Box<[u8]> {
        let (kind, validator) = match &self.validator {
            Validator::Tag(tag) => (1, tag),
            Validator::Modified(date) => (2, date),
        };
        let mut bytes = Vec::with_capacity(FIXED + validator.len());
        bytes.extend_from_slice(&self.total.to_ne_bytes());
        bytes.extend_from_slice(&self.segment.to_ne_bytes());
        bytes.extend_from_slice(&self.generation);
        bytes.push(u8::from(self.stays));
        bytes.push(kind);
        bytes.extend_from_slice(validator);
        bytes.into_boxed_slice()
    }

    /// Reads a layout; `None` if the bytes are none.
    pub fn of_bytes(bytes: &[u8]) -> Option<Self> {
        let (fixed, validator) = bytes.split_at_checked(FIXED)?;
        let number = |at: usize| fixed[at..at + 8].try_into().map(u64::from_ne_bytes).ok();
        let (total, segment) = (number(0)?, number(8)?);
        let validator = match fixed[33] {
            1 => Validator::Tag(validator.into()),
            2 => Validator::Modified(validator.into()),
            _ => return None,
        };
        let layout = Self {
            total,
            segment,
            generation: fixed[16..32].try_into().ok()?,
            stays: fixed[32] == 1,
            validator,
        };
        (total > 0 && segment > 0).then_some(layout)
    }

    /// How many segments there are.
    pub fn count(&self) -> u64 {
        self.total.div_ceil(self.segment)
    }

    /// The segment that byte `offset` lies in.
    pub fn number(&self, offset: u64) -> u64 {
        offset / self.segment
    }

    /// Where segment `number` begins and ends (the first byte behind it); empty beyond the last.
    pub fn bounds(&self, number: u64) -> (u64, u64) {
        let start = number.saturating_mul(self.segment).min(self.total);
        (start, start.saturating_add(self.segment).min(self.total))
    }

    /// The base of the keys of this generation's segments; `master` is the master's key.
    pub fn base(&self, master: &Key) -> Key {
        Sha256::new().chain_update(master).chain_update(self.generation).finalize().into()
    }
}

/// The layout of a master and the base of its segments' keys: read once, kept with the hot object.
#[derive(Debug)]
pub struct Pieces {
    /// Its layout.
    pub layout: Layout,
    /// The base of the keys ([`segment_key`]).
    pub base: Key,
}

impl Pieces {
    /// Reads those of `master`; `None` if it is no master.
    pub fn of(master: &Object) -> Option<Self> {
        let layout = Layout::of_bytes(master.plan()?)?;
        Some(Self { base: layout.base(master.key()), layout })
    }
}

/// The key of segment `number`. Bytes 0..16 take up the number: the index shards by the first two and finds by the eight
/// from the ninth on, so that neighbours lie apart. Bytes 16..32 name the family.
pub fn segment_key(base: &Key, number: u64) -> Key {
    let mut key = *base;
    let bytes = number.to_le_bytes();
    for (at, byte) in bytes.into_iter().enumerate() {
        key[at] ^= byte;
        key[8 + at] ^= byte;
    }
    key
}

/// The number in a segment's key.
pub fn segment_number(base: &Key, key: &Key) -> u64 {
    let mut bytes = [0; 8];
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = base[at] ^ key[at];
    }
    u64::from_le_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    fn layout(total: u64, segment: u64) -> Layout {
        let validator = Validator::Tag(b"\"v1\"".as_slice().into());
        Layout { total, segment, generation: [7; 16], stays: false, validator }
    }

    #[test]
    fn bounds_cover_the_whole() {
        let check = |total, segment, expected: &[(u64, u64)]| {
            let layout = layout(total, segment);
            let found: Vec<_> = (0..layout.count()).map(|number| layout.bounds(number)).collect();
            assert_eq!(found, expected, "{total} in pieces of {segment}");
        };
        check(1, 10, &[(0, 1)]);
        check(10, 10, &[(0, 10)]);
        check(25, 10, &[(0, 10), (10, 20), (20, 25)]);
        let huge = layout(u64::MAX, 1 << 20);
        assert_eq!(huge.bounds(huge.count() - 1).1, u64::MAX);
        assert_eq!(huge.bounds(u64::MAX), (u64::MAX, u64::MAX));
    }

    #[test]
    fn what_is_no_layout_is_none() {
        let bytes = layout(25, 10).to_bytes();
        assert!(Layout::of_bytes(&bytes[..33]).is_none());
        assert!(Layout::of_bytes(b"").is_none());
        assert!(Layout::of_bytes(&layout(0, 10).to_bytes()).is_none());
        assert!(Layout::of_bytes(&layout(25, 0).to_bytes()).is_none());
        let mut odd = bytes.to_vec();
        odd[33] = 9;
        assert!(Layout::of_bytes(&odd).is_none());
    }

    #[test]
    fn keys_differ_and_tell_their_number() {
        let base = layout(25, 10).base(&[3; 32]);
        let numbers = [0, 1, 255, 256, 65_536, 1 << 40, u64::MAX];
        let keys: HashSet<_> = numbers.iter().map(|number| segment_key(&base, *number)).collect();
        assert_eq!(keys.len(), numbers.len());
        for number in numbers {
            let key = segment_key(&base, number);
            assert_eq!(segment_number(&base, &key), number);
            assert_eq!(key[16..], base[16..]);
        }
        let mut other = layout(25, 10);
        other.generation = [8; 16];
        assert_ne!(other.base(&[3; 32]), base);
        assert_ne!(layout(25, 10).base(&[4; 32]), base);
    }

    proptest! {
        #[test]
        fn a_layout_is_read_as_it_was_written(
            total in 1..u64::MAX,
            segment in 1..u64::MAX,
            generation in any::<[u8; 16]>(),
            stays in any::<bool>(),
            is_tag in any::<bool>(),
            validator in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            let validator = if is_tag { Validator::Tag(validator.into()) } else { Validator::Modified(validator.into()) };
            let layout = Layout { total, segment, generation, stays, validator };
            prop_assert_eq!(Layout::of_bytes(&layout.to_bytes()), Some(layout));
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            if let Some(layout) = Layout::of_bytes(&bytes) {
                let _ = (layout.count(), layout.bounds(3), layout.number(9));
            }
        }
    }
}
