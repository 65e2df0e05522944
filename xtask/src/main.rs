//! Checks of the repository, run as `cargo xtask <command>`.
//!
//! `tidy` holds the tree to the rules that the compiler cannot see (the layer picture, where `unsafe` may stand, words that
//! mark unfinished work, whether generated pages are current). It prints each finding as `path:line: text` and exits with 1
//! if there are any, so `./test` runs it like a test suite. `gen` writes the generated pages.

use std::path::PathBuf;
use std::process::ExitCode;

mod manual;
mod tidy;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["tidy"] => run_tidy(),
        ["gen"] => run_gen(),
        _ => {
            eprintln!("usage: cargo xtask tidy|gen");
            ExitCode::from(2)
        }
    }
}

fn run_tidy() -> ExitCode {
    match tidy::check(&root()) {
        Ok(report) => {
            for finding in &report.findings {
                println!("{finding}");
            }
            println!("tidy: {} files checked, {} findings", report.files, report.findings.len());
            if report.findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            eprintln!("tidy: {error}");
            ExitCode::from(2)
        }
    }
}

fn run_gen() -> ExitCode {
    match generate() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("gen: {error}");
            ExitCode::from(2)
        }
    }
}

/// Writes the generated part of the manual.
fn generate() -> Result<(), String> {
    let page = root().join(manual::PAGE);
    let source = tidy::read(&root().join(manual::SOURCE))?;
    let made = manual::with_table(&tidy::read(&page)?, &source)?;
    std::fs::write(&page, made).map_err(|error| format!("write {}: {error}", page.display()))
}

/// The root of the workspace: the folder above this package's.
fn root() -> PathBuf {
    let package = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    package.parent().map(PathBuf::from).unwrap_or(package)
}
