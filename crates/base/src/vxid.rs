//! Transaction identifiers, as Varnish's VXID: one number each for sessions, requests and backend fetches.
//!
//! Threads take blocks of numbers, so that making one touches nothing shared.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A transaction's number, 1 to 2^30 - 1; it wraps. Source: Varnish 7.1, `vsl(7)`.
pub type Vxid = u32;

const LIMIT: u32 = 1 << 30;
const BLOCK: u32 = 32_768;

/// The process's source of blocks.
#[derive(Debug)]
pub struct VxidSource {
    next: AtomicU32,
    chunk: AtomicU32,
}

impl Default for VxidSource {
    fn default() -> Self {
        Self { next: AtomicU32::new(1), chunk: AtomicU32::new(BLOCK) }
    }
}

impl VxidSource {
    /// A thread's own pool, which refills itself from here.
    pub fn pool(self: &Arc<Self>) -> VxidPool {
        VxidPool { source: Arc::clone(self), next: 0, left: 0 }
    }

    /// The first number of a fresh block of `count` numbers.
    pub fn block(&self, count: u32) -> Vxid {
        loop {
            let first = self.next.fetch_add(count, Ordering::Relaxed) % LIMIT;
            // A block that holds 0 or crosses the limit is skipped.
            if first != 0 && first + count <= LIMIT {
                return first;
            }
        }
    }

    /// Makes the next block begin at `next`, and blocks of pools have `chunk` numbers, from 1 to 32,768, from then on.
    pub fn reset(&self, next: Vxid, chunk: u32) {
        self.chunk.store(chunk.clamp(1, BLOCK), Ordering::Relaxed);
        self.next.store(next.max(1), Ordering::Relaxed);
    }

    /// Where the next block begins.
    pub fn next(&self) -> Vxid {
        self.next.load(Ordering::Relaxed) % LIMIT
    }

    /// How many numbers a pool takes at once.
    pub fn chunk(&self) -> u32 {
        self.chunk.load(Ordering::Relaxed)
    }
}

/// One thread's numbers.
#[derive(Debug)]
pub struct VxidPool {
    source: Arc<VxidSource>,
    next: Vxid,
    left: u32,
}

impl VxidPool {
    /// The next number.
    #[inline]
    pub fn take(&mut self) -> Vxid {
        if self.left == 0 {
            self.left = self.source.chunk();
            self.next = self.source.block(self.left);
        }
        self.left -= 1;
        let vxid = self.next;
        self.next += 1;
        vxid
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_distinct_and_never_zero() {
        let source = Arc::new(VxidSource::default());
        let (mut a, mut b) = (source.pool(), source.pool());
        let mut seen = std::collections::HashSet::new();
        for _ in 0..BLOCK + 2 {
            assert!(seen.insert(a.take()));
            assert!(seen.insert(b.take()));
        }
        assert!(!seen.contains(&0));
    }

    #[test]
    fn wrapping_skips_the_broken_block() {
        let source = Arc::new(VxidSource::default());
        source.reset(LIMIT - 10, BLOCK);
        let mut pool = source.pool();
        assert!(pool.take() < LIMIT);
    }

    #[test]
    fn small_chunks_are_taken_in_turn() {
        let source = Arc::new(VxidSource::default());
        source.reset(1000, 1);
        let (mut a, mut b) = (source.pool(), source.pool());
        assert_eq!([a.take(), b.take(), a.take()], [1000, 1001, 1002]);
        assert_eq!((source.next(), source.chunk()), (1003, 1));
    }
}
