//! How often an item was used since its order last looked: up to three times, in three bits of a byte of marks.
//!
//! The number of set bits counts, not which: a use sets one more, the order clears one or all. So a use is one atomic `or`
//! on the item's own byte, at most three of them between two looks, that can neither overflow into another mark nor has
//! to be tried again; two uses at the same moment may count as one.

use std::sync::atomic::{AtomicU8, Ordering};

/// The bits of the byte that are uses; the item may have the rest for other marks.
pub const BITS: u8 = 0b1110_0000;

/// The uses in an item's byte of marks.
#[derive(Clone, Copy, Debug)]
pub struct Uses<'item>(&'item AtomicU8);

impl<'item> Uses<'item> {
    /// Those in [`BITS`] of `marks`.
    #[inline]
    pub fn new(marks: &'item AtomicU8) -> Self {
        Self(marks)
    }

    /// Notes one.
    #[inline]
    pub fn note(self) {
        let missing = !self.0.load(Ordering::Relaxed) & BITS;
        if missing != 0 {
            self.0.fetch_or(lowest(missing), Ordering::Relaxed);
        }
    }

    /// How many are noted, 3 at most.
    pub fn count(self) -> u32 {
        (self.0.load(Ordering::Relaxed) & BITS).count_ones()
    }

    /// Forgets one; false if none was noted.
    pub(super) fn take_one(self) -> bool {
        let noted = self.0.load(Ordering::Relaxed) & BITS;
        noted != 0 && self.0.fetch_and(!lowest(noted), Ordering::Relaxed) & BITS != 0
    }

    /// Forgets all; false if none was noted.
    pub(super) fn take_all(self) -> bool {
        self.0.load(Ordering::Relaxed) & BITS != 0 && self.0.fetch_and(!BITS, Ordering::Relaxed) & BITS != 0
    }
}

fn lowest(bits: u8) -> u8 {
    bits & bits.wrapping_neg()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Steps: `+` is a use, `-` takes one, `0` takes all.
    fn check(steps: &str, expected: u32) {
        let marks = AtomicU8::new(!BITS);
        for step in steps.chars() {
            let uses = Uses::new(&marks);
            let before = uses.count();
            match step {
                '+' => uses.note(),
                '-' => assert_eq!(uses.take_one(), before > 0, "{steps}"),
                _ => assert_eq!(uses.take_all(), before > 0, "{steps}"),
            }
        }
        assert_eq!(Uses::new(&marks).count(), expected, "{steps}");
        assert_eq!(marks.load(Ordering::Relaxed) & !BITS, !BITS, "other marks stay: {steps}");
    }

    #[test]
    fn three_uses_are_counted_and_no_more() {
        check("", 0);
        check("+", 1);
        check("++", 2);
        check("+++", 3);
        check("+++++", 3);
        check("+++-", 2);
        check("+++-+-+", 3);
        check("+-+--", 0);
        check("+++0+", 1);
        check("00", 0);
    }
}
