//! `copald`: the caching proxy, with the face of `varnishd`.
//!
//! It runs as two processes. The manager reads arguments, keeps VCLs and parameters ([`management`]) and answers the command
//! line ([`control`]); the worker ([`worker`]) has the threads that serve clients ([`serving`]). Between them stands only
//! [`server`], which the manager has as [`remote`], over a pipe ([`link`]).

mod args;
mod background;
mod bytes_as_text;
mod compile;
mod control;
mod jail;
mod launch;
mod limits;
mod link;
mod log;
mod management;
mod manual;
mod outlet;
mod panic;
mod parameters;
mod remote;
mod server;
mod serving;
mod storage;
mod wire_up;
mod workdir;
mod worker;

use std::process::ExitCode;

/// Objects are of all sizes and come and go on all threads. A sanitizer brings an allocator of its own, which it watches.
#[cfg(not(copal_sanitize))]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The command line cannot be understood.
const USAGE_ERROR: u8 = 2;

fn main() -> ExitCode {
    if worker::is_worker() {
        return worker::run();
    }
    let words = std::env::args_os().skip(1).map(std::ffi::OsString::into_string);
    let words = match words.collect::<Result<Vec<String>, _>>() {
        Ok(words) => words,
        Err(word) => {
            eprintln!("Error: the argument {word:?} is not UTF-8");
            return ExitCode::from(USAGE_ERROR);
        }
    };
    match args::parse(&words) {
        Ok(args::Task::Version) => {
            eprint!("{}", args::version());
            ExitCode::SUCCESS
        }
        Ok(args::Task::Usage) => {
            print!("{}", args::USAGE);
            ExitCode::from(USAGE_ERROR)
        }
        Ok(args::Task::Explain(topic)) => match manual::about(&topic) {
            Some(text) => {
                print!("{text}");
                ExitCode::SUCCESS
            }
            None => {
                eprintln!("Error: Invalid -x argument\n(-? gives usage)");
                ExitCode::from(USAGE_ERROR)
            }
        },
        Ok(args::Task::Run(arguments)) => launch::launch(&arguments),
        Err(error) if error.is_getopt() => {
            let name = std::env::args_os().next().unwrap_or_default();
            eprintln!("{}: {error}", name.to_string_lossy());
            print!("{}", args::USAGE);
            ExitCode::from(USAGE_ERROR)
        }
        Err(error) => {
            eprintln!("Error: {error}\n(-? gives usage)");
            ExitCode::from(USAGE_ERROR)
        }
    }
}
