//! What was evicted lately: digests without their items, 8 bytes each, in a table that forgets by itself.
//!
//! ```text
//!   bucket: 8 entries of   fingerprint u32 | time u32       64 bytes
//! ```
//! The time is a count of what was noted; an entry is good while no more than the wanted number was noted after it. There
//! is no list: a full bucket loses its oldest entry. The table has room for the wanted number and at most twice that; when
//! more are wanted it begins anew, empty. What it says is a hint: a wrong match (8 in 2^32) or a lost entry costs a place
//! in the order, no more.

use std::fmt;

const BUCKET: usize = 8;

/// The fingerprint above the time; 0 is an empty entry.
type Entry = u64;

/// Digests of what was evicted lately.
#[derive(Default)]
pub(crate) struct Ghost {
    buckets: Vec<[Entry; BUCKET]>,
    /// How many were noted, modulo 2^32.
    now: u32,
}

impl fmt::Debug for Ghost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ghost").field("buckets", &self.buckets.len()).finish_non_exhaustive()
    }
}

impl Ghost {
    /// Notes `digest`, where the last `wanted` are of interest.
    pub(crate) fn note(&mut self, digest: u64, wanted: usize) {
        if self.buckets.len() * BUCKET < wanted.max(1) {
            let count = wanted.div_ceil(BUCKET).max(1).next_power_of_two();
            // Zeros, which come from the kernel as they are touched: this is under the store's lock.
            self.buckets = vec![[0; BUCKET]; count];
        }
        self.now = self.now.wrapping_add(1);
        let now = self.now;
        let age = |entry: &Entry| if *entry == 0 { u32::MAX } else { now.wrapping_sub(time(*entry)) };
        if let Some(entry) = self.bucket(digest).and_then(|bucket| bucket.iter_mut().max_by_key(|e| age(e))) {
            *entry = u64::from(print(digest)) << 32 | u64::from(now);
        }
    }

    /// Whether `digest` is among the last `wanted`; it is forgotten then.
    pub(crate) fn take(&mut self, digest: u64, wanted: usize) -> bool {
        let (now, print) = (self.now, u64::from(print(digest)));
        let is_it = |entry: &&mut Entry| {
            **entry >> 32 == print && (now.wrapping_sub(time(**entry)) as usize) < wanted
        };
        let found = self.bucket(digest).and_then(|bucket| bucket.iter_mut().find(is_it));
        found.map(|entry| *entry = 0).is_some()
    }

    fn bucket(&mut self, digest: u64) -> Option<&mut [Entry; BUCKET]> {
        let mask = self.buckets.len().checked_sub(1)?;
        self.buckets.get_mut(digest as usize & mask)
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.buckets.len() * size_of::<[Entry; BUCKET]>()
    }
}

fn time(entry: Entry) -> u32 {
    entry as u32
}

/// Other bits than those that choose the bucket; never 0.
fn print(digest: u64) -> u32 {
    ((digest >> 32) as u32).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A well-mixed digest.
    fn digest(name: u64) -> u64 {
        let mixed = (name + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) ^ (mixed >> 32)
    }

    #[test]
    fn the_last_are_known_once_and_older_ones_are_not() {
        let mut ghost = Ghost::default();
        assert!(!ghost.take(digest(0), 100));
        (0..1000).for_each(|name| ghost.note(digest(name), 100));
        assert!((0..900).all(|name| !ghost.take(digest(name), 100)));
        let known = (900..1000).filter(|name| ghost.take(digest(*name), 100)).count();
        assert!(known >= 80, "{known}: full buckets lose some");
        assert!((900..1000).all(|name| !ghost.take(digest(name), 100)), "once");
        assert_eq!(ghost.bytes(), 16 * 64);
    }

    #[test]
    fn it_grows_with_what_is_wanted_and_time_wraps() {
        let mut ghost = Ghost { now: u32::MAX - 50, ..Ghost::default() };
        ghost.note(digest(0), 0);
        assert_eq!(ghost.bytes(), 64);
        (0..100).for_each(|name| ghost.note(digest(name), 5000));
        assert_eq!(ghost.bytes(), 1024 * 64);
        assert!((0..100).all(|name| ghost.take(digest(name), 5000)));
    }
}
