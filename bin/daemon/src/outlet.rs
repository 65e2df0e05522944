//! Writing to standard output and error without ever waiting for whoever reads them.
//!
//! Both may be pipes that somebody opened and does not read. The manager has one thread for all that it does: if that waited
//! there, no command would be answered and no dead worker replaced. So bytes are written only as far as there is room at
//! once; the others are kept, up to a bound, and tried again later.

use rustix::event::{PollFd, PollFlags, Timespec};
use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// What may be written without waiting once the kernel says that there is room. Source: pipe(7), `PIPE_BUF`.
const PIECE: usize = 4096;

/// Somewhere to write to that may be full.
#[derive(Debug)]
pub(crate) struct Outlet<Target> {
    target: Target,
    /// What waits for room.
    kept: VecDeque<u8>,
    /// The most bytes that may wait.
    kept_max: usize,
    /// Messages that found no room to wait.
    lost: u64,
}

impl<Target: AsFd> Outlet<Target> {
    /// Writes to `target`, and keeps up to `kept_max` bytes that do not go at once.
    pub(crate) fn new(target: Target, kept_max: usize) -> Self {
        Self { target, kept: VecDeque::new(), kept_max, lost: 0 }
    }

    /// Writes `message` as soon as there is room for it, whole or not at all: one that would have to wait behind too much
    /// is lost. Says whether that is so.
    pub(crate) fn write(&mut self, message: &[u8]) -> bool {
        self.advance();
        if self.lost > 0 && self.kept.is_empty() {
            let note = format!("({} messages lost: nobody was reading)\n", self.lost);
            self.lost = 0;
            self.kept.extend(note.as_bytes());
        }
        if !self.kept.is_empty() && self.kept.len() + message.len() > self.kept_max {
            self.lost = self.lost.saturating_add(1);
            return false;
        }
        self.kept.extend(message);
        self.advance();
        true
    }

    /// Bytes that wait for room.
    pub(crate) fn waiting(&self) -> usize {
        self.kept.len()
    }

    /// Writes what waits, as far as there is room.
    pub(crate) fn advance(&mut self) {
        while !self.kept.is_empty() && self.room(Duration::ZERO) && self.put() {}
    }

    /// Writes what waits, and waits for room itself, at most `patience` in all: before the end of the program.
    pub(crate) fn finish(&mut self, patience: Duration) {
        let until = Instant::now() + patience;
        while !self.kept.is_empty()
            && self.room(until.saturating_duration_since(Instant::now()))
            && self.put()
        {}
    }

    fn room(&self, patience: Duration) -> bool {
        let patience = Timespec::try_from(patience).ok();
        let mut target = [PollFd::new(&self.target, PollFlags::OUT)];
        matches!(rustix::event::poll(&mut target, patience.as_ref()), Ok(count) if count > 0)
    }

    /// Writes one piece; says whether to go on. Where nothing can be written for good, nothing is kept either.
    fn put(&mut self) -> bool {
        let (piece, _) = self.kept.as_slices();
        match rustix::io::write(&self.target, &piece[..piece.len().min(PIECE)]) {
            Ok(count) => drop(self.kept.drain(..count)),
            Err(error) => match error.kind() {
                io::ErrorKind::Interrupted => {}
                io::ErrorKind::WouldBlock => return false,
                _ => self.kept.clear(),
            },
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;

    #[test]
    fn a_reader_that_reads_gets_all() {
        let (mut read, write) = io::pipe().unwrap();
        let mut outlet = Outlet::new(write, 1 << 20);
        assert!(outlet.write(b"one\n") && outlet.write(&[b'x'; 10_000]));
        assert_eq!(outlet.waiting(), 0);
        drop(outlet);
        let mut got = Vec::new();
        read.read_to_end(&mut got).unwrap();
        assert_eq!((got.len(), &got[..5]), (10_004, &b"one\nx"[..]));
    }

    #[test]
    fn one_that_does_not_read_holds_up_nobody() {
        let (mut read, write) = io::pipe().unwrap();
        let mut outlet = Outlet::new(write, 1 << 16);
        let line = [[b'y'; 99].as_slice(), b"\n"].concat();
        let kept = (0..10_000).filter(|_| outlet.write(&line)).count();
        assert!(outlet.waiting() <= 1 << 16 && kept < 10_000, "{kept}");
        let (started, patience) = (Instant::now(), Duration::from_millis(20));
        outlet.finish(patience);
        assert!(started.elapsed() >= patience && outlet.waiting() > 0);
        // It reads after all: what was kept comes whole, then how much is missing.
        let reader = std::thread::spawn(move || {
            let mut got = String::new();
            read.read_to_string(&mut got).unwrap();
            got
        });
        outlet.finish(Duration::from_secs(60));
        assert!(outlet.write(&line));
        outlet.finish(Duration::from_secs(60));
        drop(outlet);
        let got = reader.join().unwrap();
        let lines: Vec<&str> = got.lines().collect();
        assert_eq!(lines.iter().filter(|line| line.len() == 99).count(), kept + 1);
        assert_eq!(lines[kept], format!("({} messages lost: nobody was reading)", 10_000 - kept));
    }

    #[test]
    fn one_that_is_gone_is_written_to_no_more() {
        let (read, write) = io::pipe().unwrap();
        drop(read);
        let mut outlet = Outlet::new(write, 1 << 16);
        assert!(outlet.write(b"lost"));
        assert_eq!(outlet.waiting(), 0);
    }
}
