//! What is said of a panic: a report with all that is known, for the process log and for `panic.show`.
//!
//! In the worker the report goes to the manager, which keeps it. A panic that only ended one request is reported as well.

use crate::{args, log};
use copal_base::clock::{Clock, SystemClock};
use copal_wire as wire;
use std::fmt::Write as _;
use std::io::Write as _;

/// A longer report is cut.
pub(crate) const REPORT_MAX: usize = 256 << 10;

/// Which process it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Where {
    /// Reports go to the process log alone.
    Manager,
    /// Reports go to the manager.
    Worker,
}

/// Reports every panic from now on, on any thread.
pub(crate) fn watch(process: Where) {
    std::panic::set_hook(Box::new(move |info| {
        let thread = std::thread::current().name().unwrap_or("unnamed").to_owned();
        let at = info.location().map_or_else(String::new, ToString::to_string);
        let payload = info.payload();
        let message = payload.downcast_ref::<&str>().copied();
        let message = message.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        let trace = std::backtrace::Backtrace::force_capture().to_string();
        let text = report(message.unwrap_or("no message"), &at, &thread, &trace);
        match process {
            Where::Manager => log::error(text.trim_end(), &[]),
            Where::Worker => tell(&text),
        }
    }));
}

/// One write under one lock, so that no other line comes between.
fn tell(text: &str) {
    let bytes = &text.as_bytes()[..text.len().min(REPORT_MAX)];
    let whole = [announce(bytes.len()).as_bytes(), bytes].concat();
    // If the manager is gone there is nobody to tell.
    let _ = std::io::stderr().lock().write_all(&whole);
}

/// Marks a report on the worker's standard error, and its length.
pub(crate) fn announce(length: usize) -> String {
    format!("<panic {length}>\n")
}

/// The text of a report; what is not known is empty.
pub(crate) fn report(message: &str, at: &str, thread: &str, trace: &str) -> String {
    let now = SystemClock.now();
    let date = wire::date::format(now);
    let mut text = format!("Panic at: {}\n{message}\n", String::from_utf8_lossy(&date));
    let mut line = |name: &str, value: &str| {
        if !value.is_empty() {
            let _ = writeln!(text, "{name} = {value}");
        }
    };
    line("at", at);
    line("version", &format!("copal-{} revision {}", env!("CARGO_PKG_VERSION"), args::revision()));
    line("now", &format!("{now:.6} (real)"));
    line("thread", thread);
    if !trace.is_empty() {
        let _ = write!(text, "Backtrace:\n{trace}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_says_what_is_known() {
        let text = report("boom", "a.rs:1:2", "cache-0", "  0: main\n");
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("Panic at: ") && lines[0].ends_with(" GMT"), "{text}");
        assert_eq!(lines[1..3], ["boom", "at = a.rs:1:2"]);
        assert!(lines[3].starts_with("version = copal-"), "{text}");
        assert_eq!(lines[5..], ["thread = cache-0", "Backtrace:", "  0: main"]);
        assert!(!report("Child (7) died signal=9", "", "", "").contains("Backtrace"));
    }
}
