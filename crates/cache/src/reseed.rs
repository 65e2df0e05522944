//! The seed from which the threads' random numbers begin anew.

use std::sync::atomic::{AtomicU64, Ordering};

/// Lets the random numbers of all threads begin anew from one seed, so that what is chosen by chance can be repeated: each
/// thread then draws the same row of numbers.
#[derive(Debug, Default)]
pub struct Reseed(AtomicU64);

impl Reseed {
    /// From its next number on, every thread begins with `seed`.
    pub fn set(&self, seed: u32) {
        // The upper half counts, so that the same seed again is seen as well; it is never zero.
        let next = |asked: u64| Some((asked >> 32).wrapping_add(1).max(1) << 32 | u64::from(seed));
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
    }

    /// What was asked for last; another number each time.
    #[inline]
    pub(crate) fn asked(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Where the generator begins: near seeds are to be far apart, and none may be zero.
    pub(crate) fn start(asked: u64) -> u64 {
        let seed = asked & u64::from(u32::MAX);
        (seed ^ 0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9) | 1
    }
}
