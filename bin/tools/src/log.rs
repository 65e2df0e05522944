//! `copal log`: the request log, raw or by transactions, in `varnishlog`'s output; or into a file that it and its
//! like read again.

use crate::Failure;
use crate::follow::{self, Sink};
use crate::options::{Given, Opt};
use crate::output::Output;
use crate::select::{Selection, Wanted};
use crate::settings::{Mode, Settings};
use crate::text;
use copal_base::reason;
use copal_observe::Tag;
use copal_observe::read::{Grouping, Record, Transaction, file};
use std::process::ExitCode;

/// The options of `varnishlog(1)`.
pub(crate) const OPTIONS: &[Opt] = &[
    Opt::flag('a', "Append to file"),
    Opt::flag('A', "Text output"),
    Opt::flag('b', "Only display backend records"),
    Opt::flag('c', "Only display client records"),
    Opt::flag('C', "Caseless regular expressions"),
    Opt::flag('d', "Process old log entries and exit"),
    Opt::flag('D', "Daemonize"),
    Opt::flag('E', "Display ESI transactions"),
    Opt::value('g', "session|request|vxid|raw", "Grouping mode (default: vxid)"),
    Opt::flag('h', "Usage help"),
    Opt::value('i', "taglist", "Include tags"),
    Opt::value('I', "[taglist:]regex", "Include by regex"),
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
    Opt::flag('u', "Unbuffered output"),
    Opt::flag('v', "Verbose record printing"),
    Opt::flag('V', "Version"),
    Opt::value('w', "filename", "Output filename"),
    Opt::value('x', "taglist", "Exclude tags"),
    Opt::value('X', "[taglist:]regex", "Exclude by regex"),
];

struct Printer {
    selection: Selection,
    wanted: Wanted,
    output: Output,
    as_text: bool,
    with_numbers: bool,
    unbuffered: bool,
    /// Each group counts for `-k`, whether any of it is printed or not.
    counts_all: bool,
    bytes: Vec<u8>,
}

/// Runs the tool.
pub(crate) fn run(given: &Given) -> Result<ExitCode, Failure> {
    let settings = Settings::new(given)?;
    let selection = Selection::new(given)?;
    let as_text = given.has('A') || !given.has('w');
    let output = Output::open(given.get('w'), given.has('a'), if as_text { b"" } else { file::MAGIC });
    let output =
        output.map_err(|error| Failure::Text(format!("Cannot open output file ({})", reason(&error))))?;
    let mut printer = Printer {
        selection,
        wanted: Wanted::new(given),
        output,
        as_text,
        with_numbers: given.has('v'),
        unbuffered: given.has('u'),
        counts_all: settings.mode != Mode::Grouped(Grouping::Vxid),
        bytes: Vec::new(),
    };
    follow::follow(settings, &mut printer)?;
    Ok(ExitCode::SUCCESS)
}

impl Printer {
    /// Whether a file has this record: what ties transactions together is in it in any case.
    fn keeps(&self, record: &Record<'_>) -> bool {
        matches!(record.tag, Tag::Begin | Tag::Link | Tag::End) || self.selection.shows(record)
    }

    fn write(&mut self) -> Result<(), Failure> {
        self.output.write(&self.bytes)?;
        if self.unbuffered { self.output.flush() } else { Ok(()) }
    }
}

impl Sink for Printer {
    fn group(&mut self, group: &[Transaction]) -> Result<bool, Failure> {
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.clear();
        let mut any = false;
        if self.as_text {
            any = text::group(group, self.wanted, &self.selection, self.with_numbers, &mut bytes);
        } else {
            for transaction in group.iter().filter(|one| self.wanted.wants(one)) {
                any = true;
                for record in transaction.log_records().filter(|record| self.keeps(record)) {
                    file::append(&record, &mut bytes);
                }
            }
        }
        self.bytes = bytes;
        self.write()?;
        Ok(any || self.counts_all)
    }

    fn record(&mut self, record: &Record<'_>) -> Result<bool, Failure> {
        self.bytes.clear();
        if self.wanted.wants_record(record) {
            if self.as_text && self.selection.shows(record) {
                text::numbered(record, &mut self.bytes);
            } else if !self.as_text && self.keeps(record) {
                file::append(record, &mut self.bytes);
            }
        }
        self.write()?;
        // As in Varnish, each record that the query lets through counts, printed or not.
        Ok(true)
    }

    fn idle(&mut self) -> Result<(), Failure> {
        self.output.flush()
    }

    fn rotate(&mut self) -> Result<(), Failure> {
        self.output.rotate()
    }
}
