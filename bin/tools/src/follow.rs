//! The round of every reader of the log: records in, groups that are wanted out, signals heeded.
//!
//! ```text
//! input --records--> grouper --groups--> query --> rate --> the tool's sink, until -k, -d, the file's end or a signal
//! ```
//! SIGUSR1 hands out what is incomplete, SIGHUP rotates the output in the background and ends a tool in the foreground.

use crate::Failure;
use crate::background;
use crate::input::{Found, Input};
use crate::settings::{Mode, Settings};
use copal_observe::process::{self, Signal};
use copal_observe::read::{Grouper, Record, Transaction};
use std::time::{Duration, Instant};

const IDLE: Duration = Duration::from_millis(20);
/// After so many records in a row the sink is asked what else it has to do.
const BUSY_MAX: u32 = 1000;

/// What a tool does with what is wanted.
pub(crate) trait Sink {
    /// A group, parents before children. Whether it counted for `-k`.
    fn group(&mut self, group: &[Transaction]) -> Result<bool, Failure>;
    /// A record on its own, where nothing is grouped. Whether it counted for `-k`.
    fn record(&mut self, record: &Record<'_>) -> Result<bool, Failure>;
    /// Nothing more for the moment; called about 50 times a second then, and now and then while records never cease.
    fn idle(&mut self) -> Result<(), Failure>;
    /// The output is to be opened anew.
    fn rotate(&mut self) -> Result<(), Failure> {
        Ok(())
    }
    /// Whether the tool wants no more.
    fn is_done(&self) -> bool {
        false
    }
    /// Whether what was found is still looked at when there is no more: on a screen.
    fn stays(&mut self) -> bool {
        false
    }
}

/// The signals that all readers heed.
const SIGNALS: &[Signal] = &[Signal::Hangup, Signal::Interrupt, Signal::Terminate, Signal::User1];

/// Heeds signals from now on.
pub(crate) fn heed_signals() -> Result<(), Failure> {
    process::watch(SIGNALS).map_err(|error| Failure::Text(format!("signals: {error}")))
}

/// Opens the log, goes to the background if it is to, and feeds `sink` to the end. Answers whether this process was the
/// one that did so: the one in front of a daemon has nothing more to do.
pub(crate) fn follow(settings: Settings, sink: &mut dyn Sink) -> Result<bool, Failure> {
    heed_signals()?;
    let input = Input::open(&settings)?;
    let Some(_process_file) = background::start(settings.daemon, settings.process_file.as_deref())? else {
        return Ok(false);
    };
    let grouper = match settings.mode {
        Mode::Raw => None,
        Mode::Grouped(grouping) => Some(Grouper::new(grouping, settings.limits)),
    };
    let filter = Filter { settings, outcome: Ok(()), full: false };
    Round { input, grouper, filter, sink }.run()?;
    Ok(true)
}

struct Round<'a> {
    input: Input,
    grouper: Option<Grouper>,
    filter: Filter,
    sink: &'a mut dyn Sink,
}

impl Round<'_> {
    fn run(&mut self) -> Result<(), Failure> {
        let mut busy = 0;
        loop {
            if self.heed()? {
                return self.flush_and_end();
            }
            busy += 1;
            if busy == BUSY_MAX {
                // Where records never cease and none is wanted, keys are heeded all the same.
                busy = 0;
                self.sink.idle()?;
            }
            if self.filter.full || self.sink.is_done() {
                break;
            }
            match self.input.step()? {
                Found::Record(record) => {
                    let (filter, sink) = (&mut self.filter, &mut *self.sink);
                    match &mut self.grouper {
                        None => filter.record(&record, sink),
                        Some(grouper) => {
                            grouper.add(&record, Instant::now(), &mut |group| filter.group(group, sink));
                        }
                    }
                }
                Found::Gap => self.flush(),
                Found::Nothing => {
                    busy = 0;
                    self.expire();
                    self.sink.idle()?;
                    std::thread::sleep(IDLE);
                }
                Found::End => break,
            }
            self.filter.outcome()?;
        }
        self.flush_and_end()?;
        while self.sink.stays() && !self.sink.is_done() && !self.heed()? {
            self.sink.idle()?;
            std::thread::sleep(IDLE);
        }
        Ok(())
    }

    fn flush_and_end(&mut self) -> Result<(), Failure> {
        self.flush();
        self.filter.outcome()?;
        self.sink.idle()
    }

    /// Does what signals ask for; whether it is time to end.
    fn heed(&mut self) -> Result<bool, Failure> {
        if process::take(Signal::User1) {
            self.flush();
        }
        if process::take(Signal::Hangup) {
            if !self.filter.settings.daemon {
                return Ok(true);
            }
            self.sink.rotate()?;
        }
        Ok(process::take(Signal::Interrupt) | process::take(Signal::Terminate))
    }

    fn flush(&mut self) {
        let (filter, sink) = (&mut self.filter, &mut *self.sink);
        if let Some(grouper) = &mut self.grouper {
            grouper.flush(&mut |group| filter.group(group, sink));
        }
    }

    fn expire(&mut self) {
        let (filter, sink) = (&mut self.filter, &mut *self.sink);
        if let Some(grouper) = &mut self.grouper {
            grouper.expire(Instant::now(), &mut |group| filter.group(group, sink));
        }
    }
}

/// Lets through what is wanted, and counts it.
struct Filter {
    settings: Settings,
    outcome: Result<(), Failure>,
    full: bool,
}

impl Filter {
    fn group(&mut self, group: &[Transaction], sink: &mut dyn Sink) {
        if self.full || self.settings.query.as_ref().is_some_and(|query| !query.matches(group)) {
            return;
        }
        if self.passes() {
            let outcome = sink.group(group);
            self.note(outcome);
        }
    }

    fn record(&mut self, record: &Record<'_>, sink: &mut dyn Sink) {
        let one = std::slice::from_ref(record);
        if self.full || self.settings.query.as_ref().is_some_and(|query| !query.matches(one)) {
            return;
        }
        if self.passes() {
            let outcome = sink.record(record);
            self.note(outcome);
        }
    }

    fn passes(&mut self) -> bool {
        self.settings.rate.as_mut().is_none_or(|rate| rate.passes(Instant::now()))
    }

    fn note(&mut self, outcome: Result<bool, Failure>) {
        match outcome {
            Ok(true) => {
                self.settings.left = self.settings.left.map(|left| left.saturating_sub(1));
                self.full = self.settings.left == Some(0);
            }
            Ok(false) => {}
            Err(failure) => {
                self.outcome = Err(failure);
                self.full = true;
            }
        }
    }

    fn outcome(&mut self) -> Result<(), Failure> {
        std::mem::replace(&mut self.outcome, Ok(()))
    }
}
