//! What the origin's resources consist of: each byte follows from site, variant and version, so that a body tells which it is.

use crate::plan::Size;
use std::collections::HashMap;
use std::rc::Rc;

/// One representation at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Form {
    pub(crate) site: usize,
    pub(crate) variant: u8,
    pub(crate) version: u32,
}

impl Form {
    fn seed(self) -> u64 {
        let mixed = (self.site as u64) << 40 | u64::from(self.variant) << 32 | u64::from(self.version);
        (mixed + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1
    }

    /// Its length in bytes.
    pub(crate) fn length(self, size: Size) -> usize {
        let chance = (self.seed() >> 33) as usize;
        match size {
            Size::Empty => 0,
            Size::Small => 1 + chance % 3_000,
            Size::Medium => 9_000 + chance % 20_000,
            Size::Large => 40_000 + chance % 60_000,
            // All versions are as long as each other, and no multiple of a segment.
            Size::Same => 20_001,
        }
    }
}

/// Bodies that were made already.
#[derive(Debug, Default)]
pub(crate) struct Bodies(HashMap<(Form, Size), Rc<Vec<u8>>>);

impl Bodies {
    /// The whole body of `form`.
    pub(crate) fn get(&mut self, form: Form, size: Size) -> Rc<Vec<u8>> {
        let made = self.0.entry((form, size)).or_insert_with(|| {
            let mut state = form.seed();
            let length = form.length(size);
            let mut bytes = Vec::with_capacity(length + 8);
            while bytes.len() < length {
                // Xorshift (Marsaglia, 2003): no two places look alike.
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                bytes.extend_from_slice(&state.to_le_bytes());
            }
            bytes.truncate(length);
            Rc::new(bytes)
        });
        Rc::clone(made)
    }
}
