//! The options that all readers of the log share: where it is read from, how it is grouped, what of it is wanted.

use crate::Failure;
use crate::limit::Rate;
use crate::options::Given;
use copal_base::reason;
use copal_observe::query::Query;
use copal_observe::read::{Grouping, Limits};
use copal_observe::vsm;
use std::path::PathBuf;
use std::time::Duration;

/// The longest file of queries.
const QUERY_BYTES_MAX: u64 = 1 << 20;
/// How long a daemon is waited for unless `-t` says so.
const PATIENCE: Duration = Duration::from_secs(5);

/// Where records come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The log of the daemon with this work directory.
    Live(PathBuf),
    /// A file; `-` is the standard input.
    File(String),
}

/// What `-g` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Record by record.
    Raw,
    /// By transactions.
    Grouped(Grouping),
}

/// The settings.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) source: Source,
    pub(crate) mode: Mode,
    pub(crate) limits: Limits,
    pub(crate) patience: Option<Duration>,
    pub(crate) query: Option<Query>,
    pub(crate) rate: Option<Rate>,
    /// Groups to show before the end.
    pub(crate) left: Option<u64>,
    /// What is in the log now, and no more.
    pub(crate) once: bool,
    /// From the log's beginning.
    pub(crate) from_start: bool,
    /// In the background: a hang-up rotates.
    pub(crate) daemon: bool,
    pub(crate) process_file: Option<PathBuf>,
}

impl Settings {
    /// Reads the options; a tool that has not got one of them does not take it on its command line.
    pub(crate) fn new(given: &Given) -> Result<Settings, Failure> {
        let daemon = given.has('D');
        if daemon {
            check_daemon(given)?;
        }
        let source = match given.get('r') {
            Some(_) if given.has('n') => {
                return Err(Failure::Text("Only one of -n and -r options may be used".to_owned()));
            }
            Some(path) => Source::File(path.to_owned()),
            None => Source::Live(work_directory(given)),
        };
        let count = |text: &str| {
            let count = text.parse::<u64>().ok().filter(|count| *count > 0);
            count.ok_or_else(|| Failure::Text(format!("-k: Invalid number '{text}'")))
        };
        Ok(Settings {
            source,
            mode: mode(given.get('g'))?,
            limits: limits(given)?,
            patience: patience(given)?,
            query: query(given)?,
            rate: given
                .get('R')
                .map(|text| Rate::parse(text).map_err(|fault| Failure::Text(format!("-R: {fault}"))))
                .transpose()?,
            left: given.get('k').map(count).transpose()?,
            once: given.has('d'),
            from_start: given.has('d'),
            daemon,
            process_file: given.get('P').map(PathBuf::from),
        })
    }
}

fn check_daemon(given: &Given) -> Result<(), Failure> {
    let text = match (given.get('w'), given.get('r')) {
        (None, _) => "Missing -w option",
        (Some("-"), _) => "Daemon cannot write to stdout",
        (_, Some("-")) => "Daemon cannot read from stdin",
        _ => return Ok(()),
    };
    Err(Failure::Text(text.to_owned()))
}

/// What `-g` means; a beginning that only one has is enough.
fn mode(text: Option<&str>) -> Result<Mode, Failure> {
    const MODES: [(&str, Mode); 4] = [
        ("session", Mode::Grouped(Grouping::Session)),
        ("request", Mode::Grouped(Grouping::Request)),
        ("vxid", Mode::Grouped(Grouping::Vxid)),
        ("raw", Mode::Raw),
    ];
    let Some(text) = text else { return Ok(Mode::Grouped(Grouping::Vxid)) };
    let mut found = MODES.iter().filter(|(name, _)| name.starts_with(text) && !text.is_empty());
    match (found.next(), found.next()) {
        (Some((_, mode)), None) => Ok(*mode),
        (None, _) => Err(Failure::Text(format!("Unknown grouping type: {text}"))),
        (Some(_), Some(_)) => Err(Failure::Text(format!("Ambiguous grouping type: {text}"))),
    }
}

/// How long `-t` waits for the daemon: `None` without end.
pub(crate) fn patience(given: &Given) -> Result<Option<Duration>, Failure> {
    match given.get('t') {
        None => Ok(Some(PATIENCE)),
        Some("off") => Ok(None),
        Some(text) => match text.parse::<f64>() {
            Ok(seconds) if (0.0..1e9).contains(&seconds) => Ok(Some(Duration::from_secs_f64(seconds))),
            _ => Err(Failure::Text(format!("-t: Invalid argument: {text}"))),
        },
    }
}

/// The work directory that `-n` means.
pub(crate) fn work_directory(given: &Given) -> PathBuf {
    vsm::work_directory(given.get('n'))
}

fn limits(given: &Given) -> Result<Limits, Failure> {
    let mut limits = Limits::default();
    if let Some(text) = given.get('L') {
        let count: i64 = text.parse().map_err(|_| Failure::Text("-L: Syntax error".to_owned()))?;
        let count = usize::try_from(count).ok().filter(|count| (1..=i32::MAX as usize).contains(count));
        limits.transactions = count.ok_or_else(|| Failure::Text("-L: Range error".to_owned()))?;
    }
    if let Some(text) = given.get('T') {
        let seconds: f64 = text.parse().map_err(|_| Failure::Text("-T: Syntax error".to_owned()))?;
        if !(0.0..1e9).contains(&seconds) {
            return Err(Failure::Text("-T: Range error".to_owned()));
        }
        limits.age = Duration::from_secs_f64(seconds);
    }
    Ok(limits)
}

/// All of `-q` and `-Q`: any of them is enough.
fn query(given: &Given) -> Result<Option<Query>, Failure> {
    let mut text = String::new();
    let mut any = false;
    for (letter, value) in &given.options {
        match letter {
            'q' => text.push_str(value),
            'Q' => text.push_str(&query_file(value)?),
            _ => continue,
        }
        any = true;
        text.push('\n');
    }
    if !any {
        return Ok(None);
    }
    // The line end behind the last one is not part of it.
    text.pop();
    let query = Query::parse(&text, given.has('C'));
    query.map(Some).map_err(|fault| Failure::Text(fault.to_string()))
}

fn query_file(path: &str) -> Result<String, Failure> {
    // As Varnish has it: the reason and not the number behind it.
    let failed = |error: std::io::Error| Failure::Text(format!("-Q {path}: {}", reason(&error)));
    let length = std::fs::metadata(path).map_err(failed)?.len();
    if length > QUERY_BYTES_MAX {
        return Err(Failure::Text(format!("-Q {path}: longer than {QUERY_BYTES_MAX} bytes")));
    }
    std::fs::read_to_string(path).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(options: &[(char, &str)], expected: &str) {
        let options = options.iter().map(|(letter, value)| (*letter, (*value).to_owned())).collect();
        let said = match Settings::new(&Given { options, operands: Vec::new() }) {
            Ok(_) => String::new(),
            Err(Failure::Text(text)) => text,
            Err(other) => format!("{other:?}"),
        };
        assert_eq!(said, expected);
    }

    #[test]
    fn faults_are_worded_as_varnish_words_them() {
        check(&[], "");
        check(&[('D', "")], "Missing -w option");
        check(&[('D', ""), ('w', "-")], "Daemon cannot write to stdout");
        check(&[('D', ""), ('w', "x"), ('r', "-")], "Daemon cannot read from stdin");
        check(&[('g', "r")], "Ambiguous grouping type: r");
        check(&[('g', "foo")], "Unknown grouping type: foo");
        check(&[('g', "ra")], "");
        check(&[('k', "foo")], "-k: Invalid number 'foo'");
        check(&[('k', "0")], "-k: Invalid number '0'");
        check(&[('L', "0")], "-L: Range error");
        check(&[('L', "foo")], "-L: Syntax error");
        check(&[('T', "foo")], "-T: Syntax error");
        check(&[('T', "-1")], "-T: Range error");
        check(&[('t', "Nan")], "-t: Invalid argument: Nan");
        check(&[('t', "off")], "");
        check(&[('R', "0")], "-R: Range error");
        check(&[('n', "x"), ('r', "y")], "Only one of -n and -r options may be used");
        check(&[('Q', "/nonexistent/q")], "-Q /nonexistent/q: No such file or directory");
        check(&[('q', "ReqURL"), ('q', "RespStatus == 2")], "");
        check(&[('q', "# nothing")], "Query expression error:\n");
    }
}
