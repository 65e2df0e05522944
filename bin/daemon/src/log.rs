//! The process log, for people: what changed, what went wrong. One line an event, with fields.
//!
//! In the foreground it goes to standard error, else to the system's log; a worker's goes to its manager. What commands were
//! given goes to the system's log alone, as with Varnish. A line that cannot be written is lost: nothing waits for a reader.

use crate::outlet::Outlet;
use std::fmt::{Display, Write as _};
use std::io::Write as _;
use std::os::unix::net::UnixDatagram;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How much an event matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    /// Someone must look.
    Error,
    /// Odd, but we went on.
    Warning,
    /// A change of state.
    Info,
    /// How that came about.
    Debug,
}

impl Level {
    /// The severity of RFC 5424, section 6.2.1.
    fn severity(self) -> u8 {
        match self {
            Self::Error => 3,
            Self::Warning => 4,
            Self::Info => 6,
            Self::Debug => 7,
        }
    }

    /// The level that a worker's mark means: `<3>`, `<4>`, `<6>` or `<7>`.
    pub(crate) fn from_mark(mark: &str) -> Option<Self> {
        [Self::Error, Self::Warning, Self::Info, Self::Debug].into_iter().find(|level| level.mark() == mark)
    }

    fn mark(self) -> String {
        format!("<{}>", self.severity())
    }

    fn name(self) -> &'static str {
        match self {
            Self::Error => "Error",
            Self::Warning => "Warning",
            Self::Info => "Info",
            Self::Debug => "Debug",
        }
    }
}

/// The facility "system daemons" of RFC 5424, section 6.2.1.
const FACILITY: u8 = 3;
const SYSTEM_LOG: &str = "/dev/log";

/// Bytes of lines that wait for somebody to read standard error.
const KEPT_MAX: usize = 1 << 20;
/// How long the last lines may wait for that at the end of the program.
const LAST_PATIENCE: Duration = Duration::from_secs(1);

enum Sink {
    Nowhere,
    Errors(Outlet<std::io::Stderr>),
    Manager,
    System,
}

/// Where lines go.
struct Sinks {
    main: Sink,
    /// The system's log, if there is one.
    system: Option<UnixDatagram>,
}

static SINKS: Mutex<Sinks> = Mutex::new(Sinks { main: Sink::Nowhere, system: None });

fn set(main: Sink, system: Option<UnixDatagram>) {
    *SINKS.lock().unwrap_or_else(PoisonError::into_inner) = Sinks { main, system };
}

/// Writes to standard error from now on. Before, nothing is written.
pub(crate) fn to_standard_error() {
    set(Sink::Errors(Outlet::new(std::io::stderr(), KEPT_MAX)), system());
}

/// Writes to the manager from now on, which reads our standard error.
pub(crate) fn to_manager() {
    set(Sink::Manager, None);
}

/// Writes to the system's log from now on, if there is one.
pub(crate) fn to_system() {
    set(Sink::System, system());
}

fn system() -> Option<UnixDatagram> {
    let socket = UnixDatagram::unbound().ok()?;
    socket.connect(SYSTEM_LOG).ok()?;
    socket.set_nonblocking(true).ok()?;
    Some(socket)
}

/// Writes lines that waited for room, as far as there is room now. To be called from time to time.
pub(crate) fn advance() {
    if let Sink::Errors(outlet) = &mut SINKS.lock().unwrap_or_else(PoisonError::into_inner).main {
        outlet.advance();
    }
}

/// Writes lines that waited for room, and waits for it for a short time: the end of the program.
pub(crate) fn finish() {
    if let Sink::Errors(outlet) = &mut SINKS.lock().unwrap_or_else(PoisonError::into_inner).main {
        outlet.finish(LAST_PATIENCE);
    }
}

/// Someone must look.
pub(crate) fn error(event: &str, fields: &[(&str, &dyn Display)]) {
    write(Level::Error, event, fields);
}

/// Odd, but we went on.
pub(crate) fn warning(event: &str, fields: &[(&str, &dyn Display)]) {
    write(Level::Warning, event, fields);
}

/// A change of state.
pub(crate) fn info(event: &str, fields: &[(&str, &dyn Display)]) {
    write(Level::Info, event, fields);
}

/// How a change of state came about.
pub(crate) fn debug(event: &str, fields: &[(&str, &dyn Display)]) {
    write(Level::Debug, event, fields);
}

/// A line that scripts wait for on standard error, as it is; also of a daemon that has not left its terminal yet.
pub(crate) fn plain(line: &str) {
    let line = format!("{line}\n");
    match &mut SINKS.lock().unwrap_or_else(PoisonError::into_inner).main {
        Sink::Nowhere | Sink::Manager => {}
        Sink::Errors(outlet) => _ = outlet.write(line.as_bytes()),
        Sink::System => _ = Outlet::new(std::io::stderr(), line.len()).write(line.as_bytes()),
    }
}

/// A command that somebody gave. Not shown on a terminal, where many would hide what matters.
pub(crate) fn command(fields: &[(&str, &dyn Display)]) {
    let line = format_line("cli", fields);
    SINKS.lock().unwrap_or_else(PoisonError::into_inner).to_system(Level::Info, &line);
}

/// What somebody else has to say.
pub(crate) fn say(level: Level, text: &str) {
    write(level, text, &[]);
}

fn write(level: Level, event: &str, fields: &[(&str, &dyn Display)]) {
    let line = format_line(event, fields);
    let mut sinks = SINKS.lock().unwrap_or_else(PoisonError::into_inner);
    match &mut sinks.main {
        Sink::Nowhere => {}
        Sink::Errors(outlet) => {
            outlet.write(format!("{}: {line}\n", level.name()).as_bytes());
        }
        Sink::Manager => {
            let line = line.replace('\n', " ");
            let _ = writeln!(std::io::stderr().lock(), "{}{line}", level.mark());
        }
        Sink::System => sinks.to_system(level, &line),
    }
}

impl Sinks {
    fn to_system(&self, level: Level, line: &str) {
        let Some(socket) = &self.system else { return };
        let priority = FACILITY * 8 + level.severity();
        let _ = socket.send(format!("<{priority}>copald[{}]: {line}", std::process::id()).as_bytes());
    }
}

/// `event field=value ...`; a value with anything but plain characters stands in quotes.
fn format_line(event: &str, fields: &[(&str, &dyn Display)]) -> String {
    let mut line = event.to_owned();
    for (name, value) in fields {
        let value = value.to_string();
        let plain = !value.is_empty() && value.chars().all(|c| c.is_ascii_graphic() && c != '"');
        let _ = match plain {
            true => write!(line, " {name}={value}"),
            false => write!(line, " {name}={value:?}"),
        };
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_stay_lines() {
        assert_eq!(
            format_line(
                "listening",
                &[("name", &"a0"), ("port", &80), ("why", &"no\n\"x\""), ("empty", &"")]
            ),
            "listening name=a0 port=80 why=\"no\\n\\\"x\\\"\" empty=\"\""
        );
    }
}
