//! `copal adm`: one command to the daemon, or those that come on the standard input, as `varnishadm` does.
//!
//! Where the daemon listens and its secret are in its shared memory (`Arg -T`, `Arg -S`), unless `-T` and `-S` say so.

use crate::Failure;
use crate::input::insist;
use crate::options::{Given, Opt};
use crate::outlet::Outlet;
use crate::settings::work_directory;
use copal_admin::client::{Answer, Client};
use copal_observe::read::read_arguments;
use std::error::Error;
use std::io::{BufRead as _, IsTerminal as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// The options of `varnishadm(1)`.
pub(crate) const OPTIONS: &[Opt] = &[
    Opt::flag('h', "Usage help"),
    Opt::value('n', "dir", "Work directory of the daemon"),
    Opt::flag('p', "Print replies with their status line"),
    Opt::value('S', "secretfile", "Secret file"),
    Opt::value('T', "address:port", "Where the daemon listens"),
    Opt::value('t', "seconds", "Wait for the daemon and its replies"),
    Opt::flag('V', "Version"),
];

/// A here-document has at most this many bytes.
const DOCUMENT_MAX: usize = 64 << 20;

/// The exit code where no command was given, because there is no daemon or it does not take us; `varnishadm`'s.
const UNREACHED: u8 = 2;

/// Runs the tool.
pub(crate) fn run(given: &Given) -> Result<ExitCode, Failure> {
    let mut client = match open(given) {
        Err(Failure::Text(text)) => {
            eprintln!("{text}");
            return Ok(ExitCode::from(UNREACHED));
        }
        opened => opened?,
    };
    let mut outlet = Outlet::standard();
    let framed = given.has('p');
    if !given.operands.is_empty() {
        let words: Vec<&str> = given.operands.iter().map(String::as_str).collect();
        let answer = client.words(&words).map_err(|error| chain(&error))?;
        print(&answer, framed, &mut outlet)?;
        return Ok(verdict(&answer));
    }
    if std::io::stdin().is_terminal() {
        outlet.write(client.banner())?;
        outlet.write(b"\n")?;
    }
    let outcome = commands(&mut client, framed, &mut outlet);
    outlet.flush()?;
    outcome
}

/// A connection to the daemon that the options name.
///
/// # Errors
/// There is none, or it does not take us.
pub(crate) fn open(given: &Given) -> Result<Client, Failure> {
    let timeout = timeout(given)?;
    let (addresses, secret) = place(given, timeout)?;
    connect(&addresses, secret.as_deref(), timeout)
}

fn timeout(given: &Given) -> Result<Duration, Failure> {
    let Some(text) = given.get('t') else { return Ok(Duration::from_secs(5)) };
    match text.parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds < 1e9 => Ok(Duration::from_secs_f64(seconds)),
        _ => Err(Failure::Text(format!("-t: Invalid argument: {text}"))),
    }
}

/// The addresses to try and the secret's file.
fn place(given: &Given, timeout: Duration) -> Result<(Vec<String>, Option<PathBuf>), Failure> {
    let secret = given.get('S').map(PathBuf::from);
    if let Some(address) = given.get('T') {
        let address =
            if address.starts_with(':') { format!("localhost{address}") } else { address.to_owned() };
        return Ok((vec![address], secret));
    }
    let directory = work_directory(given);
    let listens = insist("", &directory, Some(timeout), || read_arguments(&directory, "-T"))?;
    let listens = listens.ok_or_else(|| Failure::Text("the daemon was started without -T".to_owned()))?;
    let addresses: Vec<String> = listens
        .lines()
        .filter_map(|line| line.split_once(' '))
        .map(
            |(host, port)| {
                if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
            },
        )
        .collect();
    if addresses.is_empty() {
        return Err(Failure::Text(format!("{}: it does not say where it listens", directory.display())));
    }
    let secret = match secret {
        Some(secret) => Some(secret),
        None => read_arguments(&directory, "-S")?
            .filter(|path| !path.is_empty())
            .map(PathBuf::from)
            .or_else(|| Some(directory.join("_.secret")).filter(|path| path.exists())),
    };
    Ok((addresses, secret))
}

fn connect(
    addresses: &[String],
    secret: Option<&std::path::Path>,
    timeout: Duration,
) -> Result<Client, Failure> {
    let mut last = Failure::Text("no address to connect to".to_owned());
    for address in addresses {
        match Client::connect(address, secret, timeout) {
            Ok(client) => return Ok(client),
            Err(error) => last = chain(&error),
        }
    }
    Err(last)
}

/// An error with its causes.
pub(crate) fn chain(error: &dyn Error) -> Failure {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text += &format!(": {error}");
        cause = error.source();
    }
    Failure::Text(text)
}

/// The commands on the standard input, to its end or to `quit`.
fn commands(client: &mut Client, framed: bool, outlet: &mut Outlet) -> Result<ExitCode, Failure> {
    let mut code = ExitCode::SUCCESS;
    let mut lines = std::io::stdin().lock().lines();
    while let Some(line) = lines.next() {
        let mut command = line?;
        if command.trim().is_empty() {
            continue;
        }
        if let Some(end) = document_end(&command) {
            loop {
                let line = lines
                    .next()
                    .ok_or_else(|| Failure::Text(format!("the document has no end \"{end}\"")))??;
                command.push('\n');
                command.push_str(&line);
                if line == end {
                    break;
                }
                if command.len() > DOCUMENT_MAX {
                    return Err(Failure::Text("the document is too long".to_owned()));
                }
            }
        }
        let leaves = command.trim() == "quit";
        let answer = client.line(&command).map_err(|error| chain(&error))?;
        print(&answer, framed, outlet)?;
        // The answer to quit is not a success, but what was wanted.
        if leaves {
            break;
        }
        if !answer.is_ok() {
            code = verdict(&answer);
        }
    }
    Ok(code)
}

/// The word that ends a here-document, if the line begins one: the last but one word is `<<`.
fn document_end(line: &str) -> Option<String> {
    let mut words = line.split_whitespace().rev();
    let end = words.next()?;
    (words.next()? == "<<").then(|| end.to_owned())
}

fn print(answer: &Answer, framed: bool, outlet: &mut Outlet) -> Result<(), Failure> {
    if framed {
        outlet.write(format!("{:<3} {:<8}\n", answer.code, answer.body.len()).as_bytes())?;
    }
    outlet.write(&answer.body)?;
    outlet.write(b"\n")?;
    outlet.flush()
}

fn verdict(answer: &Answer) -> ExitCode {
    if answer.is_ok() {
        return ExitCode::SUCCESS;
    }
    eprintln!("Command failed with error code {}", answer.code);
    ExitCode::from(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn here_documents_are_seen() {
        assert_eq!(document_end("vcl.inline a << EOF").as_deref(), Some("EOF"));
        for line in ["", "EOF", "vcl.list", "vcl.inline a <<", "a <<b c"] {
            assert_eq!(document_end(line), None, "{line}");
        }
    }
}
