//! The process log, for people: what changed, what went wrong. One line an event, with fields.
//!
//! In the foreground it goes to standard error, else to the system's log; a worker's goes to its manager. A line that
//! cannot be written is lost.

use std::fmt::{Display, Write as _};
use std::io::Write as _;
use std::os::unix::net::UnixDatagram;
use std::sync::{Mutex, PoisonError};

/// How much an event matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    /// Someone must look.
    Error,
    /// Odd, but we went on.
    Warning,
    /// A change of state.
    Info,
}

impl Level {
    /// The severity of RFC 5424, section 6.2.1.
    fn severity(self) -> u8 {
        match self {
            Self::Error => 3,
            Self::Warning => 4,
            Self::Info => 6,
        }
    }

    /// The level that a worker's mark means: `<3>`, `<4>` or `<6>`.
    pub(crate) fn from_mark(mark: &str) -> Option<Self> {
        [Self::Error, Self::Warning, Self::Info].into_iter().find(|level| level.mark() == mark)
    }

    fn mark(self) -> String {
        format!("<{}>", self.severity())
    }

    fn name(self) -> &'static str {
        match self {
            Self::Error => "Error",
            Self::Warning => "Warning",
            Self::Info => "Info",
        }
    }
}

/// The facility "system daemons" of RFC 5424, section 6.2.1.
const FACILITY: u8 = 3;
const SYSTEM_LOG: &str = "/dev/log";

enum Sink {
    Nowhere,
    Errors,
    Manager,
    System(UnixDatagram),
}

static SINK: Mutex<Sink> = Mutex::new(Sink::Nowhere);

fn set(sink: Sink) {
    *SINK.lock().unwrap_or_else(PoisonError::into_inner) = sink;
}

/// Writes to standard error from now on. Before, nothing is written.
pub(crate) fn to_standard_error() {
    set(Sink::Errors);
}

/// Writes to the manager from now on, which reads our standard error.
pub(crate) fn to_manager() {
    set(Sink::Manager);
}

/// Writes to the system's log from now on, if there is one.
pub(crate) fn to_system() {
    let socket = UnixDatagram::unbound().and_then(|socket| {
        socket.connect(SYSTEM_LOG)?;
        socket.set_nonblocking(true)?;
        Ok(socket)
    });
    set(socket.map_or(Sink::Nowhere, Sink::System));
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

/// What somebody else has to say.
pub(crate) fn say(level: Level, text: &str) {
    write(level, text, &[]);
}

fn write(level: Level, event: &str, fields: &[(&str, &dyn Display)]) {
    let line = format_line(event, fields);
    match &*SINK.lock().unwrap_or_else(PoisonError::into_inner) {
        Sink::Nowhere => {}
        Sink::Errors => {
            let _ = writeln!(std::io::stderr().lock(), "{}: {line}", level.name());
        }
        Sink::Manager => {
            let line = line.replace('\n', " ");
            let _ = writeln!(std::io::stderr().lock(), "{}{line}", level.mark());
        }
        Sink::System(socket) => {
            let priority = FACILITY * 8 + level.severity();
            let _ = socket.send(format!("<{priority}>copald[{}]: {line}", std::process::id()).as_bytes());
        }
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
