//! One worker process: started, asked, and reaped.
//!
//! ```text
//! spawn > starting --(Start answered)--> serving --(Stop answered, exit 0)--> ended
//!            \______________(no answer in time, pipe closed, exit)______________/--> died
//! ```

use super::output::Output;
use crate::jail::Jail;
use crate::link::frame::{Event, Pipe};
use crate::link::{Answer, Ask};
use crate::worker;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How long a worker may take to end once it has answered that it will, or was killed.
const EXIT_PATIENCE: Duration = Duration::from_secs(5);
/// How often it is looked whether it has.
const LOOK: Duration = Duration::from_millis(5);
/// How long a worker may take to fetch its sockets.
const HANDOVER: Duration = Duration::from_secs(60);

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lost {
    /// None came in time.
    Silent,
    /// The pipe was closed, or what came was no answer.
    Gone,
}

/// A worker process.
#[derive(Debug)]
pub(super) struct Child {
    process: std::process::Child,
    pipe: Pipe,
    output: Output,
    /// The number of the next question.
    next: u32,
    /// The last question was a ping that is not answered yet: its number, and when it was asked.
    ping: Option<(u32, Instant)>,
    /// When the last ping was asked.
    pinged: Instant,
    /// When it was started.
    began: Instant,
    /// It has failed to answer, and is to be ended.
    lost: Option<Lost>,
}

impl Child {
    /// Starts a worker and hands it the descriptors of sockets and devices. It waits for [`Ask::Start`] then.
    ///
    /// # Errors
    /// It cannot be started.
    pub(super) fn spawn(descriptors: &[BorrowedFd<'_>], name: &str, jail: Jail) -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        let (read, write) = io::pipe()?;
        let mut command = Command::new("/proc/self/exe");
        command.arg0(worker::NAME).args(["-n", name]);
        command.env(worker::MARK, std::process::id().to_string());
        command.stdin(Stdio::from(OwnedFd::from(theirs)));
        command.stdout(write.try_clone()?).stderr(write);
        // A terminal's Ctrl-C is for the manager, which lets the worker end in order.
        command.process_group(0);
        jail.confine(&mut command);
        let process = command.spawn()?;
        // Our copies of the worker's ends go, so that its end is seen.
        drop(command);
        let output = Output::watch(read, process.id())?;
        ours.set_write_timeout(Some(HANDOVER))?;
        let now = Instant::now();
        let mut child = Self {
            process,
            pipe: Pipe::new(ours.try_clone()?),
            output,
            next: 0,
            ping: None,
            pinged: now,
            began: now,
            lost: None,
        };
        if let Err(error) = crate::link::descriptors::send(&ours, descriptors) {
            child.kill();
            return Err(error);
        }
        Ok(child)
    }

    /// Its number.
    pub(super) fn id(&self) -> u32 {
        self.process.id()
    }

    /// How long it has lived.
    pub(super) fn age(&self) -> Duration {
        self.began.elapsed()
    }

    /// The report of a panic that it survived, if one came since this was last asked.
    pub(super) fn report(&self) -> Option<String> {
        self.output.report()
    }

    /// Asks, and waits for the answer as long as `patience`. After a failure it is lost.
    pub(super) fn ask(&mut self, ask: &Ask, patience: Duration) -> Result<Answer, Lost> {
        if let Some(lost) = self.lost {
            return Err(lost);
        }
        let number = self.send(ask, patience)?;
        let until = Instant::now() + patience;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.receive(left)? {
                Some((answered, answer)) if answered == number => return Ok(answer),
                // The answer to a ping of before.
                Some(_) => {}
                None => return Err(self.lose(Lost::Silent)),
            }
        }
    }

    /// Pings every `interval` (zero: never), without waiting; one that is not answered within `patience` is a loss.
    pub(super) fn check(&mut self, interval: Duration, patience: Duration) -> Result<(), Lost> {
        if let Some(lost) = self.lost {
            return Err(lost);
        }
        if let Some((_, since)) = self.ping {
            self.receive(Duration::ZERO)?;
            return match self.ping {
                Some(_) if since.elapsed() >= patience => Err(self.lose(Lost::Silent)),
                _ => Ok(()),
            };
        }
        if !interval.is_zero() && self.pinged.elapsed() >= interval {
            let now = Instant::now();
            let number = self.send(&Ask::Ping, patience)?;
            (self.ping, self.pinged) = (Some((number, now)), now);
        }
        Ok(())
    }

    fn send(&mut self, ask: &Ask, patience: Duration) -> Result<u32, Lost> {
        let number = self.next;
        self.next = self.next.wrapping_add(1);
        match self.pipe.send(number, ask, patience) {
            Ok(()) => Ok(number),
            Err(error) => Err(self.lose(match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Lost::Silent,
                _ => Lost::Gone,
            })),
        }
    }

    fn receive(&mut self, patience: Duration) -> Result<Option<(u32, Answer)>, Lost> {
        match self.pipe.receive(patience) {
            Ok(Event::Message(number, answer)) => {
                if self.ping.is_some_and(|(ping, _)| ping == number) {
                    self.ping = None;
                }
                Ok(Some((number, answer)))
            }
            Ok(Event::Nothing) => Ok(None),
            Ok(Event::End) | Err(_) => Err(self.lose(Lost::Gone)),
        }
    }

    fn lose(&mut self, lost: Lost) -> Lost {
        self.lost = Some(lost);
        lost
    }

    /// Whether it has ended by itself.
    pub(super) fn ended(&mut self) -> bool {
        // An error would mean that it is not our child any more, which only we can make it.
        !matches!(self.process.try_wait(), Ok(None))
    }

    fn kill(&mut self) {
        // Fails only if it has ended already.
        let _ = self.process.kill();
    }

    /// Waits for its end and what it last said, and kills it if that takes too long: at once where it is lost.
    pub(super) fn reap(mut self) -> Exited {
        let until = Instant::now() + EXIT_PATIENCE;
        let mut killed = None;
        loop {
            if let Ok(Some(status)) = self.process.try_wait() {
                let report = self.output.finish();
                let explained = self.output.explained();
                let last_words = self.output.last_words();
                return Exited { pid: self.process.id(), status, report, explained, last_words, killed };
            }
            let late = Instant::now() >= until;
            // One whose pipe is closed is most likely about to end, with its own report.
            if killed.is_none() && (late || self.lost == Some(Lost::Silent)) {
                killed = Some("not responding to CLI, killed it.");
                self.kill();
            }
            std::thread::sleep(LOOK);
        }
    }
}

/// How a worker ended.
#[derive(Debug)]
pub(super) struct Exited {
    /// Its number.
    pub(super) pid: u32,
    status: ExitStatus,
    /// What it said of its panic.
    pub(super) report: Option<String>,
    /// Whether it said why, then or shortly before.
    pub(super) explained: bool,
    /// What else it said last, whole lines.
    pub(super) last_words: String,
    /// That it had to be killed, and why.
    pub(super) killed: Option<&'static str>,
}

/// The kind of a worker's end, which each has its counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Exit status 0.
    Orderly,
    /// Another exit status.
    Status(i32),
    /// A signal, with or without a core file.
    Signal { number: i32, dumped: bool },
}

impl Exited {
    /// How it ended.
    pub(super) fn end(&self) -> End {
        match (self.status.code(), self.status.signal()) {
            (Some(0), _) => End::Orderly,
            (Some(code), _) => End::Status(code),
            (None, Some(number)) => End::Signal { number, dumped: self.status.core_dumped() },
            (None, None) => End::Status(-1),
        }
    }

    /// In words, as Varnish says it.
    pub(super) fn words(&self) -> String {
        let pid = self.pid;
        match self.end() {
            End::Orderly => format!("Child ({pid}) ended"),
            End::Status(code) => format!("Child ({pid}) died status={code}"),
            End::Signal { number, dumped } => {
                let core = if dumped { " (core dumped)" } else { "" };
                format!("Child ({pid}) died signal={number}{core}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(raw: i32, end: End, words: &str) {
        let status = ExitStatus::from_raw(raw);
        let exited = Exited {
            pid: 7,
            status,
            report: None,
            explained: false,
            last_words: String::new(),
            killed: None,
        };
        assert_eq!((exited.end(), exited.words().as_str()), (end, words));
    }

    #[test]
    fn ends_in_words() {
        check(0, End::Orderly, "Child (7) ended");
        check(2 << 8, End::Status(2), "Child (7) died status=2");
        check(9, End::Signal { number: 9, dumped: false }, "Child (7) died signal=9");
        check(6 | 0x80, End::Signal { number: 6, dumped: true }, "Child (7) died signal=6 (core dumped)");
    }
}
