//! Where the writer of a body in a file puts its bytes before they are written there.
//!
//! ```text
//! extent   | page | page | page ...         always written in whole pages, from the one under the mark on
//!                 ^start ^mark
//! buffer          | .... | room ...
//! ```
//!
//! A page that is not in memory is thus never read only because a part of it is written. What stands behind the mark in
//! the last page is of no meaning; it is written again when more has come.

use crate::block::Block;
use std::io;

/// How many bytes are written at once, about.
const SIZE: usize = 64 << 10;

/// Pages of memory are no larger here, or the kernel reads one now and then.
const PAGE: usize = 4096;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Staging {
    /// `SIZE + PAGE` bytes once used.
    buffer: Vec<u8>,
    /// The part of the last page that is filled already.
    before: usize,
}

impl Staging {
    /// Room for the bytes from `at` of `block` on, which is where the last write ended, or a block's begin.
    pub(crate) fn room(&mut self, block: &Block, at: usize) -> &mut [u8] {
        self.buffer.resize(SIZE + PAGE, 0);
        self.before = at % PAGE;
        let end = self.buffer.len().min(self.before + (block.size() - at));
        &mut self.buffer[self.before..end]
    }

    /// Writes the first `count` bytes of the room that was asked for `at` of `block`.
    ///
    /// # Errors
    /// As [`crate::file::arena::Arena::write`].
    pub(crate) fn write(&mut self, block: &Block, at: usize, count: usize) -> io::Result<()> {
        let (start, end) = (at - self.before, self.before + count);
        // An extent ends with a page.
        block.write(start, &self.buffer[..end.next_multiple_of(PAGE)])?;
        let kept = end % PAGE;
        self.buffer.copy_within(end - kept..end, 0);
        Ok(())
    }
}
