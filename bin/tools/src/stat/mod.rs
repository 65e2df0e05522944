//! `copal stat`: the counters, once or on a screen that refreshes, in `varnishstat`'s output.

mod filter;
mod history;
mod once;
mod page;
mod screen;

use crate::Failure;
use crate::input::insist;
use crate::options::{Given, Opt};
use crate::output::Output;
use crate::settings::{patience, work_directory};
use copal_observe::read::{Value, read_counters};
use filter::Filter;
use std::process::ExitCode;

/// The options of `varnishstat(1)`.
pub(crate) const OPTIONS: &[Opt] = &[
    Opt::flag('1', "Print the counters and exit"),
    Opt::value('f', "glob", "Include (or with ^ exclude) counters"),
    Opt::flag('h', "Usage help"),
    Opt::value('I', "glob", "Include counters"),
    Opt::flag('j', "Print the counters as JSON and exit"),
    Opt::flag('l', "List the counters' names"),
    Opt::value('n', "dir", "Work directory of the daemon"),
    Opt::flag('r', "Show gauges below zero as they are"),
    Opt::value('t', "seconds|off", "Wait for the daemon"),
    Opt::flag('V', "Version"),
    Opt::value('X', "glob", "Exclude counters"),
    Opt::flag('x', "Print the counters as XML and exit"),
];

/// One look at the counters.
pub(crate) struct Sample {
    /// Those that the filter lets through.
    pub(crate) values: Vec<Value>,
    /// The uptimes and what the share of hits is made of, whether the filter lets them through or not.
    pub(crate) all: Vec<Value>,
    /// Seconds the worker runs, or where there is none the manager; at least 1.
    pub(crate) uptime: f64,
}

/// Runs the tool.
pub(crate) fn run(given: &Given) -> Result<ExitCode, Failure> {
    let filter = Filter::new(given);
    let raw = given.has('r');
    let directory = work_directory(given);
    let patience = patience(given)?;
    let sample = || {
        let mut values = insist("", &directory, patience, || read_counters(&directory))?;
        let is_screen = !['j', 'x', 'l', '1'].iter().any(|letter| given.has(*letter));
        if !raw && !is_screen {
            for value in &mut values {
                value.value = value.adjusted();
            }
        }
        let find = |name: &str| values.iter().find(|value| value.name == name).map(|value| value.value);
        let uptime = find("MAIN.uptime").or_else(|| find("MGT.uptime")).unwrap_or(0).max(1) as f64;
        let is_kept =
            |name: &str| ["MGT.uptime", "MAIN.uptime", "MAIN.cache_hit", "MAIN.cache_miss"].contains(&name);
        let all = values.iter().filter(|value| is_kept(&value.name)).cloned().collect();
        values.retain(|value| filter.includes(&value.name));
        Ok::<_, Failure>(Sample { values, all, uptime })
    };
    let text = if given.has('j') {
        once::json(&sample()?)
    } else if given.has('x') {
        once::xml(&sample()?)
    } else if given.has('l') {
        once::list(&sample()?)
    } else if given.has('1') {
        once::table(&sample()?)
    } else {
        return screen::run(sample, raw);
    };
    let mut output = Output::standard();
    output.write(text.as_bytes())?;
    output.flush()?;
    Ok(ExitCode::SUCCESS)
}
