//! `copal log`: the request log, raw or by transactions, in `varnishlog`'s output.

use crate::Failure;
use crate::follow::{self, GroupSink, Grouped, Sink};
use crate::options::{Given, Opt};
use crate::outlet::{Outlet, write_process_number};
use crate::select::Selection;
use copal_observe::read::{Grouping, Record, Transaction, TransactionKind};
use std::io::Write as _;
use std::process::ExitCode;

const NO_QUERY: &str = "VSL queries are not built in yet";

/// The options of `varnishlog(1)`.
pub(crate) const OPTIONS: &[Opt] = &[
    Opt::flag('a', "Append to file"),
    Opt::flag('A', "Text output (what -w writes here in any case)"),
    Opt::flag('b', "Backend mode"),
    Opt::flag('c', "Client mode"),
    Opt::flag('C', "Caseless regular expressions"),
    Opt::flag('d', "Process old log entries and exit"),
    Opt::flag('E', "Show ESI requests"),
    Opt::value('g', "session|request|vxid|raw", "Grouping mode (default: vxid)"),
    Opt::flag('h', "Usage help"),
    Opt::value('i', "taglist", "Include tags"),
    Opt::value('I', "[taglist:]regex", "Include by regex"),
    Opt::value('k', "num", "Limit transactions"),
    Opt::value('L', "limit", "Incomplete transaction limit"),
    Opt::value('n', "dir", "Work directory of the daemon"),
    Opt::value('P', "file", "PID file"),
    Opt::value('t', "seconds|off", "Wait for the daemon"),
    Opt::value('T', "seconds", "Transaction end timeout"),
    Opt::flag('u', "Write each transaction at once"),
    Opt::flag('v', "Verbose record printing"),
    Opt::flag('V', "Version"),
    Opt::value('w', "filename", "Output filename (text: with -A)"),
    Opt::value('x', "taglist", "Exclude tags"),
    Opt::value('X', "[taglist:]regex", "Exclude by regex"),
    Opt::refused('D', "", "running in the background is left to the service manager"),
    Opt::refused('q', "query", NO_QUERY),
    Opt::refused('Q', "file", NO_QUERY),
    Opt::refused('r', "filename", "binary log files are not read"),
    Opt::refused('R', "limit", "rate limits are not built in"),
];

struct Printer {
    selection: Selection,
    outlet: Outlet,
    client: bool,
    backend: bool,
    esi: bool,
    verbose: bool,
    unbuffered: bool,
    left: Option<u64>,
    line: Vec<u8>,
}

/// Runs the tool.
pub(crate) fn run(given: &Given) -> Result<ExitCode, Failure> {
    if given.get('w').is_some_and(|path| path != "-") && !given.has('A') {
        return Err(Failure::Usage("-w writes text only: give -A with it".to_owned()));
    }
    let grouping = match given.get('g') {
        None | Some("vxid") => Some(Grouping::Vxid),
        Some("request") => Some(Grouping::Request),
        Some("session") => Some(Grouping::Session),
        Some("raw") => None,
        Some(other) => return Err(Failure::Usage(format!("-g: no grouping \"{other}\""))),
    };
    let left = given.get('k').map(|text| {
        let count = text.parse::<u64>().ok().filter(|count| *count > 0);
        count.ok_or_else(|| Failure::Usage(format!("-k: \"{text}\" is no number above 0")))
    });
    let printer = Printer {
        selection: Selection::new(given)?,
        outlet: Outlet::open(given.get('w'), given.has('a'))?,
        client: given.has('c') || given.has('E'),
        backend: given.has('b'),
        esi: given.has('E'),
        verbose: given.has('v'),
        unbuffered: given.has('u'),
        left: left.transpose()?,
        line: Vec::new(),
    };
    write_process_number(given.get('P'))?;
    match grouping {
        None => follow::follow(given, &mut Raw(printer))?,
        Some(grouping) => {
            follow::follow(given, &mut Grouped::new(grouping, follow::limits(given)?, printer))?
        }
    }
    Ok(ExitCode::SUCCESS)
}

impl Printer {
    fn count_down(&mut self) {
        self.left = self.left.map(|left| left.saturating_sub(1));
    }

    fn wants(&self, transaction: &Transaction) -> bool {
        let chosen = self.client || self.backend;
        let side = match transaction.kind {
            TransactionKind::Request => self.client || !chosen,
            TransactionKind::Backend => self.backend || !chosen,
            TransactionKind::Session | TransactionKind::Unknown => !chosen,
        };
        side && (!self.client || self.esi || transaction.reason != "esi")
    }

    fn transaction(&mut self, transaction: &Transaction) -> Result<(), Failure> {
        let line = &mut self.line;
        line.clear();
        bullet('*', transaction.level, line);
        let (kind, number) = (transaction.kind.name(), transaction.number);
        let _ = if self.verbose {
            // Under the columns of the verbose records: number, tag, side.
            writeln!(line, "{:>10} << {kind:<9}>>   {number:<10}", "")
        } else {
            writeln!(line, "<< {kind:<9}>> {number:<10}")
        };
        for record in transaction.log_records().filter(|record| self.selection.shows(record)) {
            bullet('-', transaction.level, line);
            if self.verbose {
                verbose(&record, line);
            } else {
                let _ = write!(line, "{:<14} ", record.tag.name());
                content(&record, line);
            }
            line.push(b'\n');
        }
        self.outlet.write(line)
    }
}

impl GroupSink for Printer {
    fn group(&mut self, group: &[Transaction]) -> Result<(), Failure> {
        let mut any = false;
        for transaction in group {
            if self.wants(transaction) {
                self.transaction(transaction)?;
                any = true;
            }
        }
        if any {
            self.outlet.write(b"\n")?;
            self.count_down();
            if self.unbuffered {
                self.outlet.flush()?;
            }
        }
        Ok(())
    }

    fn idle(&mut self) -> Result<(), Failure> {
        self.outlet.flush()
    }

    fn is_done(&self) -> bool {
        self.left == Some(0)
    }
}

/// Records one by one.
struct Raw(Printer);

impl Sink for Raw {
    fn record(&mut self, record: &Record<'_>) -> Result<(), Failure> {
        let printer = &mut self.0;
        let chosen = printer.client || printer.backend;
        let side = !chosen || printer.client && record.client || printer.backend && record.backend;
        if !side || !printer.selection.shows(record) {
            return Ok(());
        }
        printer.line.clear();
        verbose(record, &mut printer.line);
        printer.line.push(b'\n');
        printer.outlet.write(&printer.line)?;
        printer.count_down();
        Ok(())
    }

    fn idle(&mut self) -> Result<(), Failure> {
        self.0.outlet.flush()
    }

    fn interrupted(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    fn is_done(&self) -> bool {
        self.0.is_done()
    }
}

fn bullet(sign: char, level: usize, line: &mut Vec<u8>) {
    let text = if level > 3 { format!("{sign}{level}{sign}") } else { sign.to_string().repeat(level) };
    let _ = write!(line, "{text:<3} ");
}

fn verbose(record: &Record<'_>, line: &mut Vec<u8>) {
    let _ = write!(line, "{:>10} {:<14} {} ", record.number, record.tag.name(), record.side());
    content(record, line);
}

/// Content that may hold anything is quoted, with the NUL that ends it; binary content is hexadecimal.
fn content(record: &Record<'_>, line: &mut Vec<u8>) {
    if record.tag.is_unsafe() {
        line.push(b'"');
        for byte in record.data.iter().chain(&[0]) {
            match byte {
                b' '..=b'~' => line.push(*byte),
                _ => _ = write!(line, "%{byte:02x}"),
            }
        }
        line.push(b'"');
    } else if record.tag.is_binary() {
        line.push(b'[');
        for byte in record.data {
            let _ = write!(line, "{byte:02x}");
        }
        line.push(b']');
    } else {
        line.extend_from_slice(record.data);
    }
}
