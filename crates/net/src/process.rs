//! What a process as a whole asks of the kernel.

use crate::sys;
use std::io;

/// From now on, SIGHUP does nothing to this process nor to the programs that it starts.
///
/// # Errors
/// The kernel refuses.
pub fn ignore_hangup() -> io::Result<()> {
    sys::ignore_hangup()
}
