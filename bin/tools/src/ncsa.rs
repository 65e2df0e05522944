//! `copal ncsa`: an access log, in `varnishncsa`'s formats.

use crate::Failure;
use crate::follow::{self, GroupSink, Grouped};
use crate::options::{Given, Opt};
use crate::outlet::{Outlet, write_process_number};
use copal_observe::format::{DEFAULT, Format, Sides, Style};
use copal_observe::read::{Grouping, Transaction};
use std::process::ExitCode;

const NO_QUERY: &str = "VSL queries are not built in yet";

/// The options of `varnishncsa(1)`.
pub(crate) const OPTIONS: &[Opt] = &[
    Opt::flag('a', "Append to file"),
    Opt::flag('b', "Backend mode"),
    Opt::flag('c', "Client mode"),
    Opt::flag('C', "Caseless regular expressions"),
    Opt::flag('d', "Process old log entries and exit"),
    Opt::flag('E', "Show ESI requests"),
    Opt::value('F', "format", "Set output format"),
    Opt::value('f', "formatfile", "Read output format from file"),
    Opt::value('g', "request|vxid", "Grouping mode (default: vxid)"),
    Opt::flag('h', "Usage help"),
    Opt::flag('j', "Make output JSON-compatible"),
    Opt::value('L', "limit", "Incomplete transaction limit"),
    Opt::value('n', "dir", "Work directory of the daemon"),
    Opt::value('P', "file", "PID file"),
    Opt::value('t', "seconds|off", "Wait for the daemon"),
    Opt::flag('V', "Version"),
    Opt::value('w', "filename", "Output filename"),
    Opt::refused('D', "", "running in the background is left to the service manager"),
    Opt::refused('q', "query", NO_QUERY),
    Opt::refused('Q', "file", NO_QUERY),
    Opt::refused('r', "filename", "binary log files are not read"),
    Opt::refused('R', "limit", "rate limits are not built in"),
];

struct Lines {
    format: Format,
    sides: Sides,
    outlet: Outlet,
    line: Vec<u8>,
}

/// Runs the tool.
pub(crate) fn run(given: &Given) -> Result<ExitCode, Failure> {
    let style = if given.has('j') { Style::Json } else { Style::Text };
    let format = Format::parse(&format_text(given)?, style).map_err(Failure::Text)?;
    let grouping = match given.get('g') {
        None | Some("vxid") => Grouping::Vxid,
        Some("request") => Grouping::Request,
        Some(other) => return Err(Failure::Usage(format!("-g: no grouping \"{other}\""))),
    };
    let esi = given.has('E');
    let chosen = given.has('b') || given.has('c') || esi;
    // By request, a group's lines are those of both sides unless one is asked for.
    let sides = Sides {
        client: given.has('c') || esi || !chosen,
        backend: given.has('b') || !chosen && grouping == Grouping::Request,
        esi,
    };
    let outlet = Outlet::open(given.get('w'), given.has('a'))?;
    write_process_number(given.get('P'))?;
    let lines = Lines { format, sides, outlet, line: Vec::new() };
    follow::follow(given, &mut Grouped::new(grouping, follow::limits(given)?, lines))?;
    Ok(ExitCode::SUCCESS)
}

fn format_text(given: &Given) -> Result<String, Failure> {
    match (given.get('F'), given.get('f')) {
        (Some(_), Some(_)) => Err(Failure::Usage("-F and -f exclude each other".to_owned())),
        (Some(text), None) => Ok(text.to_owned()),
        (None, Some(path)) => {
            let text =
                std::fs::read_to_string(path).map_err(|error| Failure::Text(format!("{path}: {error}")))?;
            let line = text.lines().next().unwrap_or_default();
            if line.is_empty() {
                return Err(Failure::Text(format!("{path}: its first line is empty")));
            }
            Ok(line.to_owned())
        }
        (None, None) => Ok(DEFAULT.to_owned()),
    }
}

impl GroupSink for Lines {
    fn group(&mut self, group: &[Transaction]) -> Result<(), Failure> {
        self.line.clear();
        for transaction in group {
            if self.sides.want(transaction) {
                self.format.line(transaction, &mut self.line);
            }
        }
        self.outlet.write(&self.line)
    }

    fn idle(&mut self) -> Result<(), Failure> {
        self.outlet.flush()
    }

    fn is_done(&self) -> bool {
        false
    }
}
