//! Where the records of a tool come from: a running daemon's log, as it grows and with the next worker's after it, or a
//! file.

use crate::Failure;
use crate::settings::{Settings, Source};
use copal_base::reason;
use copal_observe::process::{self, Signal};
use copal_observe::read::{Cursor, LogFile, Next, Position, Record};
use std::fs::File;
use std::io::{ErrorKind, Read, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const RETRY: Duration = Duration::from_millis(500);
/// How often it is looked whether the worker still runs.
const CHECK: Duration = Duration::from_secs(1);
/// After so many overruns without a record between them the log is given up.
const FRUITLESS_MAX: u32 = 100;

/// What a step found.
pub(crate) enum Found<'a> {
    /// A record.
    Record(Record<'a>),
    /// Nothing for the moment.
    Nothing,
    /// Records were lost here: what is incomplete stays so.
    Gap,
    /// There is no more.
    End,
}

/// The records.
pub(crate) enum Input {
    /// Of a running daemon.
    Live(Box<Live>),
    /// Of a file, with its name.
    File(LogFile, String),
}

/// A running daemon's log.
pub(crate) struct Live {
    directory: PathBuf,
    /// None while there is no worker.
    cursor: Option<Cursor>,
    once: bool,
    checked: Instant,
    fruitless: u32,
}

impl Input {
    /// Opens what the settings say; a daemon is waited for.
    pub(crate) fn open(settings: &Settings) -> Result<Input, Failure> {
        match &settings.source {
            Source::File(path) => open_file(path).map(|file| Input::File(file, path.clone())),
            Source::Live(directory) => {
                let start = if settings.from_start { Position::Oldest } else { Position::Newest };
                let cursor =
                    insist("VSM: ", directory, settings.patience, || Cursor::attach(directory, start))?;
                Ok(Input::Live(Box::new(Live {
                    directory: directory.clone(),
                    cursor: Some(cursor),
                    once: settings.once,
                    checked: Instant::now(),
                    fruitless: 0,
                })))
            }
        }
    }

    /// The next record, if there is one.
    pub(crate) fn step(&mut self) -> Result<Found<'_>, Failure> {
        match self {
            Input::Live(live) => live.step(),
            Input::File(file, name) => match file.step() {
                Ok(true) => Ok(Found::Record(file.record())),
                Ok(false) => Ok(Found::End),
                Err(error) if error.kind() == ErrorKind::Interrupted => Ok(Found::Nothing),
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                    Err(Failure::Text(format!("{name}: VSL file read error: it ends within a record")))
                }
                Err(error) => Err(Failure::Text(format!("{name}: VSL file read error: {}", reason(&error)))),
            },
        }
    }
}

fn open_file(path: &str) -> Result<LogFile, Failure> {
    let input: Box<dyn Read> = match path {
        "-" => Box::new(std::io::stdin()),
        path => {
            let file = File::open(path);
            Box::new(file.map_err(|error| Failure::Text(format!("Cannot open {path}: {}", reason(&error))))?)
        }
    };
    LogFile::open(input).map_err(|error| {
        Failure::Text(match error.kind() {
            ErrorKind::InvalidData => format!("Not a VSL file: {path}"),
            ErrorKind::UnexpectedEof => "VSL file read error: EOF".to_owned(),
            _ => format!("VSL file read error: {}", reason(&error)),
        })
    })
}

impl Live {
    fn step(&mut self) -> Result<Found<'_>, Failure> {
        let Some(cursor) = &mut self.cursor else { return Ok(self.wait_for_worker()) };
        match cursor.step() {
            Next::Record => {
                self.fruitless = 0;
                // Looked up anew: the borrow above ends where the others return.
                Ok(self.cursor.as_ref().map_or(Found::Nothing, |cursor| Found::Record(cursor.record())))
            }
            Next::Overrun => {
                eprintln!("Log overrun");
                cursor.reset(Position::Oldest);
                self.fruitless += 1;
                if self.fruitless > FRUITLESS_MAX {
                    let text = "the log cannot be read: it is damaged or far too small";
                    return Err(Failure::Text(text.to_owned()));
                }
                Ok(Found::Gap)
            }
            Next::End if self.once => Ok(Found::End),
            Next::End => {
                if self.checked.elapsed() > CHECK {
                    self.checked = Instant::now();
                    if !cursor.is_current() {
                        eprintln!("Log abandoned (vsl)");
                        self.cursor = None;
                        return Ok(Found::Gap);
                    }
                }
                Ok(Found::Nothing)
            }
        }
    }

    fn wait_for_worker(&mut self) -> Found<'static> {
        if self.once {
            return Found::End;
        }
        if self.checked.elapsed() > RETRY {
            self.checked = Instant::now();
            if let Ok(cursor) = Cursor::attach(&self.directory, Position::Oldest) {
                eprintln!("Log reacquired");
                self.cursor = Some(cursor);
            }
        }
        Found::Nothing
    }
}

/// Calls `attempt` until it succeeds, `patience` ends or a signal says so; a dot on the standard error for each second.
pub(crate) fn insist<T>(
    what: &str,
    directory: &Path,
    patience: Option<Duration>,
    attempt: impl Fn() -> std::io::Result<T>,
) -> Result<T, Failure> {
    let began = Instant::now();
    let mut dots = 0;
    let outcome = loop {
        let error = match attempt() {
            Ok(done) => break Ok(done),
            Err(error) => error,
        };
        if process::take(Signal::Interrupt) || process::take(Signal::Terminate) {
            break Err(Failure::Text(format!("{what}Attach interrupted")));
        }
        // Only what may come up is waited for.
        let may_come = matches!(error.kind(), ErrorKind::NotFound | ErrorKind::InvalidData);
        if !may_come || patience.is_some_and(|patience| began.elapsed() + RETRY > patience) {
            let why = match may_come {
                // Nothing there: the question is all there is to say.
                true => String::new(),
                false => format!(" ({}: {})", directory.display(), reason(&error)),
            };
            let text = format!("{what}Could not get hold of varnishd, is it running?{why}");
            break Err(Failure::Text(text));
        }
        std::thread::sleep(RETRY);
        if began.elapsed().as_secs() > dots {
            dots += 1;
            eprint!(".");
            let _ = std::io::stderr().flush();
        }
    };
    if dots > 0 {
        eprintln!();
    }
    outcome
}
