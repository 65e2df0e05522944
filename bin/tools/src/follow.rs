//! Reading the log as it grows: attaching with patience, going on after an overrun and with the next worker.

use crate::Failure;
use crate::options::Given;
use copal_observe::read::{Cursor, Grouper, Grouping, Limits, Next, Position, Record, Transaction};
use copal_observe::vsm;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const RETRY: Duration = Duration::from_millis(500);
const IDLE: Duration = Duration::from_millis(20);
/// After so many overruns without a record between them the log is given up.
const FRUITLESS_MAX: u32 = 100;
/// How often it is looked whether the worker still runs.
const CHECK: Duration = Duration::from_secs(1);

/// How long `-t` waits for the daemon: `None` without end.
pub(crate) fn patience(given: &Given) -> Result<Option<Duration>, Failure> {
    match given.get('t') {
        None => Ok(Some(Duration::from_secs(5))),
        Some("off") => Ok(None),
        Some(text) => match text.parse::<f64>() {
            Ok(seconds) if (0.0..1e9).contains(&seconds) => Ok(Some(Duration::from_secs_f64(seconds))),
            _ => Err(Failure::Usage(format!("-t: \"{text}\" is neither seconds nor \"off\""))),
        },
    }
}

/// The work directory that `-n` means.
pub(crate) fn work_directory(given: &Given) -> PathBuf {
    vsm::work_directory(given.get('n'))
}

/// Calls `attempt` until it succeeds or `patience` ends.
pub(crate) fn insist<T>(
    directory: &Path,
    patience: Option<Duration>,
    attempt: impl Fn() -> std::io::Result<T>,
) -> Result<T, Failure> {
    let began = Instant::now();
    loop {
        let error = match attempt() {
            Ok(done) => return Ok(done),
            Err(error) => error,
        };
        // Only what may come up is waited for.
        let may_come = matches!(error.kind(), ErrorKind::NotFound | ErrorKind::InvalidData);
        if !may_come || patience.is_some_and(|patience| began.elapsed() + RETRY > patience) {
            return Err(Failure::Text(format!(
                "could not get hold of a daemon in {}, is it running? ({error})",
                directory.display()
            )));
        }
        std::thread::sleep(RETRY);
    }
}

/// What a tool does with the log.
pub(crate) trait Sink {
    /// A record, in the order of the log.
    fn record(&mut self, record: &Record<'_>) -> Result<(), Failure>;
    /// Nothing more for the moment.
    fn idle(&mut self) -> Result<(), Failure>;
    /// Records were lost here, or the log ends: what is incomplete stays so.
    fn interrupted(&mut self) -> Result<(), Failure>;
    /// Whether it has seen enough.
    fn is_done(&self) -> bool;
}

/// Feeds the log to `sink`: with `-d` what is there, else what comes, until it is done.
pub(crate) fn follow(given: &Given, sink: &mut dyn Sink) -> Result<(), Failure> {
    let directory = work_directory(given);
    let patience = patience(given)?;
    let once = given.has('d');
    let start = if once { Position::Oldest } else { Position::Newest };
    let mut cursor = insist(&directory, patience, || Cursor::attach(&directory, start))?;
    let mut checked = Instant::now();
    let mut fruitless = 0;
    while !sink.is_done() {
        match cursor.step() {
            Next::Record => {
                fruitless = 0;
                sink.record(&cursor.record())?;
            }
            Next::Overrun => {
                eprintln!("Log overrun: records were lost");
                sink.interrupted()?;
                cursor.reset(Position::Oldest);
                fruitless += 1;
                if fruitless > FRUITLESS_MAX {
                    return Err(Failure::Text(
                        "the log cannot be read: it is damaged or far too small".to_owned(),
                    ));
                }
                if fruitless > 1 {
                    std::thread::sleep(IDLE);
                }
            }
            Next::End if once => break,
            Next::End => {
                sink.idle()?;
                if checked.elapsed() > CHECK {
                    checked = Instant::now();
                    if !cursor.is_current() {
                        eprintln!("Log abandoned: its worker has ended");
                        sink.interrupted()?;
                        sink.idle()?;
                        cursor = insist(&directory, None, || Cursor::attach(&directory, Position::Oldest))?;
                        eprintln!("Log reacquired");
                    }
                }
                std::thread::sleep(IDLE);
            }
        }
    }
    sink.interrupted()?;
    sink.idle()
}

/// What is done with complete groups.
pub(crate) trait GroupSink {
    /// A group, parents before children.
    fn group(&mut self, group: &[Transaction]) -> Result<(), Failure>;
    /// Nothing more for the moment.
    fn idle(&mut self) -> Result<(), Failure>;
    /// Whether it has seen enough.
    fn is_done(&self) -> bool;
}

/// Groups records for a [`GroupSink`].
pub(crate) struct Grouped<S> {
    grouper: Grouper,
    sink: S,
}

impl<S: GroupSink> Grouped<S> {
    pub(crate) fn new(grouping: Grouping, limits: Limits, sink: S) -> Grouped<S> {
        Grouped { grouper: Grouper::new(grouping, limits), sink }
    }

    fn feed(
        &mut self,
        take: impl FnOnce(&mut Grouper, &mut dyn FnMut(&[Transaction])),
    ) -> Result<(), Failure> {
        let mut outcome = Ok(());
        let sink = &mut self.sink;
        take(&mut self.grouper, &mut |group| {
            if outcome.is_ok() && !sink.is_done() {
                outcome = sink.group(group);
            }
        });
        outcome
    }
}

impl<S: GroupSink> Sink for Grouped<S> {
    fn record(&mut self, record: &Record<'_>) -> Result<(), Failure> {
        self.feed(|grouper, emit| grouper.add(record, Instant::now(), emit))
    }

    fn idle(&mut self) -> Result<(), Failure> {
        self.feed(|grouper, emit| grouper.expire(Instant::now(), emit))?;
        self.sink.idle()
    }

    fn interrupted(&mut self) -> Result<(), Failure> {
        self.feed(|grouper, emit| grouper.flush(emit))
    }

    fn is_done(&self) -> bool {
        self.sink.is_done()
    }
}

/// The limits that `-L` and `-T` set.
pub(crate) fn limits(given: &Given) -> Result<Limits, Failure> {
    let mut limits = Limits::default();
    if let Some(text) = given.get('L') {
        limits.transactions = text
            .parse()
            .ok()
            .filter(|count| *count > 0)
            .ok_or_else(|| Failure::Usage(format!("-L: \"{text}\" is no number above 0")))?;
    }
    if let Some(text) = given.get('T') {
        let seconds = text.parse::<f64>().ok().filter(|seconds| (0.0..1e9).contains(seconds));
        let seconds =
            seconds.ok_or_else(|| Failure::Usage(format!("-T: \"{text}\" is no number of seconds")))?;
        limits.age = Duration::from_secs_f64(seconds);
    }
    Ok(limits)
}
