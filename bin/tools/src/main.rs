//! `copal`: what people run beside the daemon, in one program.
//!
//! `copal stat`, `log`, `ncsa`, `top`, `hist` and `adm` have the options and the output of `varnishstat` and the like
//! of 7.1; called by one of those names (a link), the program is that tool. They read the shared memory of a running
//! daemon, or of a Varnish 7.1, by its work directory (`-n`), or a log file (`-r`). `copal explain` and `copal sim` are our
//! own.
//!
//! ```text
//! options > settings > follow: input (the log, a file) > groups > query, rate > log | ncsa | top | hist
//!                      stat: counters                     adm, explain: the control connection
//!                      screen: what top, hist and stat draw on
//!                      sim: a trace > caches > a table    no daemon
//! ```

mod adm;
mod background;
mod display;
mod explain;
mod follow;
mod hist;
mod input;
mod limit;
mod log;
mod ncsa;
mod options;
mod output;
mod pen;
mod screen;
mod select;
mod settings;
mod sim;
mod stat;
mod text;
mod top;

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::Path;
use std::process::ExitCode;

/// Why a tool ends without having done its work.
#[derive(Debug)]
enum Failure {
    /// The command line is wrong; this (with its line end) and the tool's options are printed.
    Usage(String),
    /// Anything else, in words.
    Text(String),
    /// Whoever read our output is gone: nothing to say.
    Closed,
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Failure {
        if error.kind() == ErrorKind::BrokenPipe { Failure::Closed } else { Failure::Text(error.to_string()) }
    }
}

/// One of the tools.
struct Tool {
    name: &'static str,
    /// What Varnish calls it.
    varnish_name: Option<&'static str>,
    about: &'static str,
    options: &'static [options::Opt],
    operands: &'static str,
    /// Its own usage text, which goes to the standard error; else one is made of its options.
    usage: Option<fn(&str) -> String>,
    /// What stands below the options in the text that is made of them.
    notes: &'static str,
    run: fn(&options::Given) -> Result<ExitCode, Failure>,
}

const TOOLS: &[Tool] = &[
    Tool {
        name: "stat",
        varnish_name: Some("varnishstat"),
        about: "show the counters",
        options: stat::OPTIONS,
        operands: "",
        usage: None,
        notes: "",
        run: stat::run,
    },
    Tool {
        name: "log",
        varnish_name: Some("varnishlog"),
        about: "show the request log",
        options: log::OPTIONS,
        operands: "",
        usage: None,
        notes: "",
        run: log::run,
    },
    Tool {
        name: "ncsa",
        varnish_name: Some("varnishncsa"),
        about: "write an access log",
        options: ncsa::OPTIONS,
        operands: "",
        usage: None,
        notes: "",
        run: ncsa::run,
    },
    Tool {
        name: "top",
        varnish_name: Some("varnishtop"),
        about: "rank log entries",
        options: top::OPTIONS,
        operands: "",
        usage: None,
        notes: "",
        run: top::run,
    },
    Tool {
        name: "hist",
        varnish_name: Some("varnishhist"),
        about: "show a histogram of requests",
        options: hist::OPTIONS,
        operands: "",
        usage: None,
        notes: "",
        run: hist::run,
    },
    Tool {
        name: "adm",
        varnish_name: Some("varnishadm"),
        about: "give commands to the daemon",
        options: adm::OPTIONS,
        operands: " [command [argument ...]]",
        usage: Some(adm::usage),
        notes: "",
        run: adm::run,
    },
    Tool {
        name: "explain",
        varnish_name: None,
        about: "say why a request is answered as it is",
        options: explain::OPTIONS,
        operands: " <url>",
        usage: None,
        notes: "",
        run: explain::run,
    },
    Tool {
        name: "sim",
        varnish_name: None,
        about: "say what a cache of a size and a policy would have hit",
        options: sim::OPTIONS,
        operands: " [file ...]",
        usage: None,
        notes: sim::NOTES,
        run: sim::run,
    },
];

fn main() -> ExitCode {
    let mut arguments = std::env::args_os();
    let called = arguments.next().unwrap_or_default();
    let called = Path::new(&called).file_name().unwrap_or_default().to_string_lossy().into_owned();
    if let Some(tool) = TOOLS.iter().find(|tool| tool.varnish_name == Some(&called)) {
        return run(tool, &called, arguments.collect());
    }
    let Some(word) = arguments.next() else {
        eprint!("{}", help());
        return ExitCode::from(1);
    };
    match word.to_string_lossy().as_ref() {
        "help" | "-h" | "--help" => {
            print!("{}", help());
            ExitCode::SUCCESS
        }
        "-V" | "--version" => {
            println!("copal {}", env!("CARGO_PKG_VERSION"));
            ExitCode::SUCCESS
        }
        word => match TOOLS.iter().find(|tool| tool.name == word) {
            Some(tool) => run(tool, &format!("copal {}", tool.name), arguments.collect()),
            None => {
                eprint!("copal: no tool \"{word}\"\n{}", help());
                ExitCode::from(1)
            }
        },
    }
}

fn help() -> String {
    let mut text = "Usage: copal <tool> [options]\n\n".to_owned();
    for tool in TOOLS {
        let model = tool.varnish_name.map_or(String::new(), |name| format!(" (as {name})"));
        text += &format!(" {:<7} {}{model}\n", tool.name, tool.about);
    }
    text + "\n\"copal <tool> -h\" shows a tool's options.\n"
}

/// Runs a tool that was called as `name`.
fn run(tool: &Tool, name: &str, arguments: Vec<OsString>) -> ExitCode {
    let usage = || match tool.usage {
        Some(usage) => usage(name),
        None => options::usage(name, tool.operands, tool.options) + tool.notes,
    };
    let outcome = match options::parse(tool.options, arguments) {
        Ok(given) if given.has('h') => {
            match tool.usage {
                Some(_) => eprint!("{}", usage()),
                None => print!("{}", usage()),
            }
            Ok(ExitCode::SUCCESS)
        }
        Ok(given) if given.has('V') => {
            // Exporters look for three numbers and a revision: they get those of the Varnish whose formats these are.
            println!(
                "{name} (varnish-7.1.1 revision 0; formats of it by copal {})",
                env!("CARGO_PKG_VERSION")
            );
            Ok(ExitCode::SUCCESS)
        }
        Ok(given) if tool.operands.is_empty() && !given.operands.is_empty() => {
            Err(Failure::Usage(String::new()))
        }
        Ok(given) => (tool.run)(&given),
        Err(fault) => Err(Failure::Usage(format!("{name}: {fault}\n"))),
    };
    match outcome {
        Ok(code) => code,
        Err(Failure::Closed) => ExitCode::SUCCESS,
        Err(Failure::Text(text)) => {
            eprintln!("{text}");
            ExitCode::from(1)
        }
        Err(Failure::Usage(text)) => {
            eprint!("{text}{}", usage());
            ExitCode::from(1)
        }
    }
}
