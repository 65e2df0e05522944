//! The part of a body that a client wants, where the body can only be read from its beginning.

use std::ops::Range;

/// How many bytes are not wanted, and how many behind them are.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cut {
    skip: u64,
    left: u64,
}

impl Default for Cut {
    /// All of it is wanted.
    fn default() -> Self {
        Self { skip: 0, left: u64::MAX }
    }
}

impl Cut {
    /// Bytes `from..end` are wanted.
    pub(crate) fn new(from: u64, end: u64) -> Self {
        Self { skip: from, left: end.saturating_sub(from) }
    }

    /// What is wanted of the next `count` bytes.
    #[inline]
    pub(crate) fn take(&mut self, count: usize) -> Range<usize> {
        let skip = usize::try_from(self.skip).unwrap_or(usize::MAX).min(count);
        let wanted = usize::try_from(self.left).unwrap_or(usize::MAX).min(count - skip);
        self.skip -= skip as u64;
        self.left -= wanted as u64;
        skip..skip + wanted
    }

    /// Whether nothing more is wanted.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.left == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_any_size_give_the_same_bytes() {
        let body: Vec<u8> = (0..=255).collect();
        for (from, end) in [(0, 1), (0, 256), (255, 256), (7, 7), (100, 200)] {
            for size in [1, 3, 100, 256, 1000] {
                let mut cut = Cut::new(from, end);
                let taken: Vec<u8> =
                    body.chunks(size).flat_map(|piece| &piece[cut.take(piece.len())]).copied().collect();
                assert_eq!(taken, body[from as usize..end as usize], "{from}..{end} by {size}");
                assert!(cut.is_over());
            }
        }
    }

    #[test]
    fn all_is_all() {
        let mut cut = Cut::default();
        assert_eq!((cut.take(5), cut.take(0), cut.take(1 << 20)), (0..5, 0..0, 0..1 << 20));
        assert!(!cut.is_over());
    }
}
