//! `copal ncsa`: an access log, in `varnishncsa`'s formats.

use crate::Failure;
use crate::follow::{self, Sink};
use crate::options::{Given, Opt};
use crate::output::Output;
use crate::settings::{Mode, Settings};
use copal_base::reason;
use copal_observe::format::{DEFAULT, Format, Sides, Style};
use copal_observe::read::{Grouping, Record, Transaction};
use std::process::ExitCode;

/// The options of `varnishncsa(1)`.
pub(crate) const OPTIONS: &[Opt] = &[
    Opt::flag('a', "Append to file"),
    Opt::flag('b', "Backend mode"),
    Opt::flag('c', "Client mode"),
    Opt::flag('C', "Caseless regular expressions"),
    Opt::flag('d', "Process old log entries and exit"),
    Opt::flag('D', "Daemonize"),
    Opt::flag('E', "Show ESI requests"),
    Opt::value('F', "format", "Set output format"),
    Opt::value('f', "formatfile", "Read output format from file"),
    Opt::value('g', "request|vxid", "Grouping mode (default: vxid)"),
    Opt::flag('h', "Usage help"),
    Opt::flag('j', "Make output JSON-compatible"),
    Opt::value('k', "num", "Limit transactions"),
    Opt::value('L', "limit", "Incomplete transaction limit"),
    Opt::value('n', "dir", "Work directory of the daemon"),
    Opt::value('P', "file", "PID file"),
    Opt::value('Q', "file", "VSL query file"),
    Opt::value('q', "query", "VSL query"),
    Opt::value('r', "filename", "Binary file input"),
    Opt::value('R', "limit[/duration]", "Output rate limit"),
    Opt::value('t', "seconds|off", "VSM connection timeout"),
    Opt::value('T', "seconds", "Transaction end timeout"),
    Opt::flag('V', "Version"),
    Opt::value('w', "filename", "Output filename"),
];

struct Lines {
    format: Format,
    sides: Sides,
    output: Output,
    line: Vec<u8>,
}

/// Runs the tool.
pub(crate) fn run(given: &Given) -> Result<ExitCode, Failure> {
    let style = if given.has('j') { Style::Json } else { Style::Text };
    let settings = Settings::new(given)?;
    if !matches!(settings.mode, Mode::Grouped(Grouping::Vxid | Grouping::Request)) {
        let mode = given.get('g').unwrap_or_default();
        return Err(Failure::Text(format!("Invalid grouping mode: {mode}")));
    }
    let format = Format::parse(&format_text(given)?, style).map_err(Failure::Text)?;
    let output = Output::open(given.get('w'), given.has('a'), b"");
    let output =
        output.map_err(|error| Failure::Text(format!("Can't open output file ({})", reason(&error))))?;
    let mut lines = Lines { format, sides: sides(given, settings.mode), output, line: Vec::new() };
    follow::follow(settings, &mut lines)?;
    Ok(ExitCode::SUCCESS)
}

/// Grouped by request, every request of a group has its line, as in Varnish.
fn sides(given: &Given, mode: Mode) -> Sides {
    if mode == Mode::Grouped(Grouping::Request) {
        return Sides { client: true, backend: true, esi: true };
    }
    let esi = given.has('E');
    Sides { client: given.has('c') || esi || !given.has('b'), backend: given.has('b'), esi }
}

fn format_text(given: &Given) -> Result<String, Failure> {
    let formats = given.options.iter().filter(|(letter, _)| matches!(letter, 'F' | 'f')).count();
    if formats > 1 {
        return Err(Failure::Text("Format already set".to_owned()));
    }
    let Some(path) = given.get('f') else { return Ok(given.get('F').unwrap_or(DEFAULT).to_owned()) };
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::Text(format!("Can't open format file ({})", reason(&error))))?;
    match text.lines().next() {
        Some(line) if !line.is_empty() => Ok(line.to_owned()),
        _ => Err(Failure::Text("Empty format file".to_owned())),
    }
}

impl Sink for Lines {
    fn group(&mut self, group: &[Transaction]) -> Result<bool, Failure> {
        self.line.clear();
        for transaction in group.iter().filter(|transaction| self.sides.want(transaction)) {
            self.format.line(transaction, &mut self.line);
        }
        self.output.write(&self.line)?;
        Ok(!self.line.is_empty())
    }

    fn record(&mut self, _record: &Record<'_>) -> Result<bool, Failure> {
        Ok(false)
    }

    fn idle(&mut self) -> Result<(), Failure> {
        self.output.flush()
    }

    fn rotate(&mut self) -> Result<(), Failure> {
        self.output.rotate()
    }
}
