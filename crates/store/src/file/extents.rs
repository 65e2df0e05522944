//! Which parts of a file are free: the bookkeeping alone, no file.
//!
//! Free extents are kept twice: by their start, so that one that comes back is joined with its neighbours, and by their
//! length, so that the shortest one that is long enough is taken (best fit; of equal ones the first in the file). Both in
//! trees: each call takes the logarithm of the number of free extents, of which there is at most one more than of extents
//! given out. Numbers are in granules, not bytes.

use std::collections::{BTreeMap, BTreeSet};

/// A free extent of at least so many granules is a large one (as Varnish's `g_smf_large` has it).
const LARGE: u64 = 128;

/// See the module.
#[derive(Debug)]
pub(crate) struct Extents {
    size: u64,
    /// Start to length. No two of them touch.
    by_start: BTreeMap<u64, u64>,
    /// The same as (length, start).
    by_length: BTreeSet<(u64, u64)>,
    used: u64,
    given_out: u64,
    large: u64,
}

/// How many there are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Granules given out.
    pub(crate) used: u64,
    /// Extents given out.
    pub(crate) given_out: u64,
    /// Free extents of fewer than 128 granules.
    pub(crate) free_small: u64,
    /// Free extents of more.
    pub(crate) free_large: u64,
}

impl Extents {
    /// `size` granules, all free.
    pub(crate) fn new(size: u64) -> Self {
        let mut new = Self {
            size,
            by_start: BTreeMap::new(),
            by_length: BTreeSet::new(),
            used: 0,
            given_out: 0,
            large: 0,
        };
        if size > 0 {
            new.insert(0, size);
        }
        new
    }

    /// An extent of `wanted` granules, or the longest there is if that has at least `least`: start and length.
    pub(crate) fn take(&mut self, wanted: u64, least: u64) -> Option<(u64, u64)> {
        debug_assert!(0 < least && least <= wanted);
        let fitting = self.by_length.range((wanted, 0)..).next();
        let &(length, start) =
            fitting.or_else(|| self.by_length.last().filter(|(length, _)| *length >= least))?;
        self.remove(start, length);
        let taken = length.min(wanted);
        if taken < length {
            self.insert(start + taken, length - taken);
        }
        self.used += taken;
        self.given_out += 1;
        Some((start, taken))
    }

    /// Takes back an extent as it was given out.
    pub(crate) fn give_back(&mut self, start: u64, length: u64) {
        self.given_out -= 1;
        self.free(start, length);
    }

    /// Takes back the end of an extent, of which something stays given out.
    pub(crate) fn cut(&mut self, start: u64, length: u64) {
        self.free(start, length);
    }

    fn free(&mut self, mut start: u64, mut length: u64) {
        debug_assert!(length > 0 && start + length <= self.size, "an extent of another file");
        self.used -= length;
        let before = self.by_start.range(..start).next_back().map(|(start, length)| (*start, *length));
        if let Some((before, its_length)) = before {
            debug_assert!(before + its_length <= start, "an extent came back twice");
            if before + its_length == start {
                self.remove(before, its_length);
                (start, length) = (before, its_length + length);
            }
        }
        let after = self.by_start.range(start..).next().map(|(start, length)| (*start, *length));
        if let Some((after, its_length)) = after {
            debug_assert!(start + length <= after, "an extent came back twice");
            if start + length == after {
                self.remove(after, its_length);
                length += its_length;
            }
        }
        self.insert(start, length);
    }

    pub(crate) fn counts(&self) -> Counts {
        Counts {
            used: self.used,
            given_out: self.given_out,
            free_small: self.by_start.len() as u64 - self.large,
            free_large: self.large,
        }
    }

    fn insert(&mut self, start: u64, length: u64) {
        self.by_start.insert(start, length);
        self.by_length.insert((length, start));
        self.large += u64::from(length >= LARGE);
    }

    fn remove(&mut self, start: u64, length: u64) {
        self.by_start.remove(&start);
        self.by_length.remove(&(length, start));
        self.large -= u64::from(length >= LARGE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    impl Extents {
        /// All that must hold between the two trees and the sums.
        fn check(&self) {
            let mirrored: BTreeSet<_> =
                self.by_start.iter().map(|(start, length)| (*length, *start)).collect();
            assert_eq!(mirrored, self.by_length);
            let free: u64 = self.by_start.values().sum();
            assert_eq!(free + self.used, self.size);
            let large = self.by_start.values().filter(|length| **length >= LARGE).count() as u64;
            assert_eq!(large, self.large);
            let pairs = self.by_start.iter().zip(self.by_start.iter().skip(1));
            assert!(pairs.into_iter().all(|(one, next)| one.0 + one.1 < *next.0), "two that touch");
        }
    }

    #[test]
    fn the_shortest_that_fits_is_taken_and_neighbours_are_joined() {
        let mut extents = Extents::new(20);
        let taken: Vec<_> = [4, 2, 6, 3, 5].map(|wanted| extents.take(wanted, wanted).unwrap()).into();
        assert_eq!(taken, [(0, 4), (4, 2), (6, 6), (12, 3), (15, 5)]);
        assert_eq!(extents.take(1, 1), None);
        extents.give_back(0, 4);
        extents.give_back(12, 3);
        assert_eq!(extents.take(3, 3), Some((12, 3)), "the shortest that fits");
        assert_eq!(extents.take(9, 5), None);
        assert_eq!(extents.take(9, 4), Some((0, 4)), "less, if that is enough");
        extents.cut(9, 3);
        extents.give_back(12, 3);
        assert_eq!(extents.counts(), Counts { used: 14, given_out: 4, free_small: 1, free_large: 0 });
        for (start, length) in [(0, 4), (6, 3), (15, 5), (4, 2)] {
            extents.give_back(start, length);
            extents.check();
        }
        assert_eq!(extents.take(20, 20), Some((0, 20)));
    }

    #[test]
    fn long_free_extents_are_counted_apart() {
        let mut extents = Extents::new(300);
        assert_eq!(extents.counts().free_large, 1);
        extents.take(173, 173);
        assert_eq!((extents.counts().free_large, extents.counts().free_small), (0, 1));
        assert_eq!(Extents::new(0).take(1, 1), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 4 } else { 200 }, failure_persistence: None, ..ProptestConfig::default() })]

        /// No granule is given out twice, and all come back.
        #[test]
        fn no_two_overlap(steps in proptest::collection::vec((1_u64..40, any::<usize>(), any::<bool>()), 1..200)) {
            let mut extents = Extents::new(500);
            let mut held: Vec<(u64, u64)> = Vec::new();
            for (wanted, which, take) in steps {
                if take {
                    let before = extents.by_length.last().map_or(0, |(length, _)| *length);
                    let taken = extents.take(wanted, wanted.min(3));
                    prop_assert_eq!(taken.is_some(), before >= wanted.min(3));
                    if let Some((start, length)) = taken {
                        prop_assert!(length == wanted || length == before);
                        prop_assert!(held.iter().all(|(at, size)| at + size <= start || start + length <= *at));
                        held.push((start, length));
                    }
                } else if !held.is_empty() {
                    let which = which % held.len();
                    let (start, length) = held[which];
                    if length > 1 && wanted % 2 == 0 {
                        extents.cut(start + 1, length - 1);
                        held[which].1 = 1;
                    } else {
                        extents.give_back(start, length);
                        held.swap_remove(which);
                    }
                }
                extents.check();
            }
            held.drain(..).for_each(|(start, length)| extents.give_back(start, length));
            extents.check();
            prop_assert_eq!(extents.counts(), Counts { free_large: 1, ..Counts::default() });
        }
    }
}
