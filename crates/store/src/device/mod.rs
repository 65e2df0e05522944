//! Where bytes are kept that survive: one file or one block device, read and written at offsets.
//!
//! Knows nothing of what the bytes mean. All calls block the thread that makes them.

mod error;
mod file;
mod open;

pub use error::OpenError;
pub use file::FileDevice;
pub use open::{OpenOptions, Taken};
pub mod sim;

use std::io;

/// A file or a block device of fixed size. Calls may come from several threads at once; what two of them do to the
/// same bytes at the same time is not defined, and the callers do not do it.
pub trait Device: Send + Sync {
    /// Its size in bytes, the same for as long as it is open.
    fn size(&self) -> u64;

    /// Reads all of `buffer` from `offset`.
    ///
    /// # Errors
    /// What the kernel said, or `UnexpectedEof` if `buffer` reaches beyond the end.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;

    /// Writes all of `bytes` at `offset`. It is in no defined order with other writes until [`sync`](Self::sync).
    ///
    /// # Errors
    /// What the kernel said. Any part of `bytes` may have been written then.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Makes all that was written before durable.
    ///
    /// # Errors
    /// What the kernel said. What was written since the last success may or may not be there, and asking again proves
    /// nothing: the kernel may have forgotten.
    fn sync(&self) -> io::Result<()>;

    /// Reads all of `buffer` from `offset` if that needs no waiting (it is in the page cache); `false` if it would wait.
    ///
    /// # Errors
    /// As [`read_at`](Self::read_at).
    fn read_ready(&self, _buffer: &mut [u8], _offset: u64) -> io::Result<bool> {
        Ok(false)
    }
}
