//! What a screen is drawn with: bytes to the terminal that nobody ever waits for.
//!
//! A terminal may stop taking bytes (Control-S, a slow line, a window system that is busy). A tool that waited there would
//! heed no key and no signal until it goes on. So what does not go at once is kept, and nothing more is drawn until it went.

use crate::Failure;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// A way of one's own to the terminal of standard output.
pub(crate) struct Pen {
    terminal: OwnedFd,
    /// What is yet to go.
    kept: Vec<u8>,
}

impl Pen {
    /// Opens it.
    ///
    /// # Errors
    /// What the kernel says.
    pub(crate) fn open() -> Result<Pen, Failure> {
        // Not to wait is a property of what was opened, which standard output may share with a shell: so it is opened anew. Where
        // that is not permitted, as when another user owns the terminal, it is shared, and then may be waited for.
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let terminal = match rustix::fs::open("/proc/self/fd/1", flags, Mode::empty()) {
            Ok(terminal) => terminal,
            Err(_) => rustix::io::fcntl_dupfd_cloexec(std::io::stdout(), 0).map_err(std::io::Error::from)?,
        };
        Ok(Pen { terminal, kept: Vec::new() })
    }

    /// Whether all that was drawn has gone.
    pub(crate) fn is_free(&self) -> bool {
        self.kept.is_empty()
    }

    /// Draws `bytes`, as far as they go, and keeps the rest.
    ///
    /// # Errors
    /// The terminal is gone.
    pub(crate) fn draw(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.kept.extend_from_slice(bytes);
        self.advance()
    }

    /// Draws what was kept, as far as it goes.
    ///
    /// # Errors
    /// As [`Pen::draw`].
    pub(crate) fn advance(&mut self) -> Result<(), Failure> {
        while !self.kept.is_empty() {
            match rustix::io::write(&self.terminal, &self.kept) {
                Ok(count) => drop(self.kept.drain(..count)),
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(error) => return Err(std::io::Error::from(error).into()),
            }
        }
        Ok(())
    }

    /// Draws `bytes` after all that was kept, and waits for it at most so long: before somebody else draws.
    pub(crate) fn finish(&mut self, bytes: &[u8], patience: Duration) {
        let until = Instant::now() + patience;
        let mut fine = self.draw(bytes).is_ok();
        while fine && !self.is_free() {
            let left = until.saturating_duration_since(Instant::now());
            let mut ready = [PollFd::new(&self.terminal, PollFlags::OUT)];
            fine = match poll(&mut ready, Timespec::try_from(left).ok().as_ref()) {
                Ok(0) => false,
                Err(error) => error == Errno::INTR && !left.is_zero(),
                Ok(_) => self.advance().is_ok(),
            };
        }
        self.kept.clear();
    }
}
