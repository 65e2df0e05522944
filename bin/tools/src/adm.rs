//! `copal adm`: one command to the daemon, those that come on the standard input, or a conversation at a terminal, as
//! `varnishadm` does it: its words, what it prints where, its exit codes.
//!
//! Where the daemon listens and its secret are in its shared memory (`Arg -T`, `Arg -S`), unless `-T` and `-S` say so.

use crate::Failure;
use crate::input::insist;
use crate::options::{Given, Opt};
use crate::output::Output;
use crate::settings::work_directory;
use copal_admin::client::{Answer, Client, Error as ClientError};
use copal_base::reason;
use copal_observe::read::read_arguments;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use std::error::Error;
use std::io::{self, BufRead as _, IsTerminal as _};
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

/// A here-document that is typed has at most this many bytes.
const DOCUMENT_MAX: usize = 64 << 20;

/// The exit code where no command was given, because there is no daemon or it does not take us, and where the connection
/// broke; `varnishadm`'s.
const UNREACHED: u8 = 2;
/// The status of the last reply of a session.
const CLOSING: u16 = 500;
/// The exit code where the one command was refused.
const REFUSED: u8 = 1;

/// As good as no limit.
const ENDLESS: Duration = Duration::from_secs(1_000_000_000);

/// Where the daemon may be reached.
struct Place {
    /// As `-T` or the shared memory says it, for messages; and as it is connected to.
    addresses: Vec<(String, String)>,
    secret: Option<PathBuf>,
}

/// The usage text of the tool that was called as `name`.
pub(crate) fn usage(name: &str) -> String {
    format!(
        "Usage: {name} [-h] [-V] [-n workdir] [-p] [-S secretfile] [-T [address]:port] [-t timeout] [command [...]]\n\
         \t-n stands for -S and -T, and not beside them\n"
    )
}

/// Runs the tool.
pub(crate) fn run(given: &Given) -> Result<ExitCode, Failure> {
    let mut client = match open(given) {
        Err(Failure::Text(text)) => return Ok(unreached(&text)),
        opened => opened?,
    };
    let mut output = Output::standard();
    let framed = given.has('p');
    if !given.operands.is_empty() {
        return one(&mut client, &given.operands.join(" "), framed, &mut output);
    }
    if io::stdin().is_terminal() && !framed {
        return converse(&mut client, &mut output);
    }
    pass(&mut client, framed, &mut output)
}

fn unreached(text: &str) -> ExitCode {
    eprintln!("{text}");
    ExitCode::from(UNREACHED)
}

/// A connection to the daemon that the options name.
///
/// # Errors
/// There is none, or it does not take us.
pub(crate) fn open(given: &Given) -> Result<Client, Failure> {
    let timeout = timeout(given)?;
    let place = place(given, timeout)?;
    let mut said = Vec::new();
    for (shown, address) in &place.addresses {
        match Client::connect(address, place.secret.as_deref(), timeout) {
            Ok(client) => return Ok(client),
            Err(error) => said.push(unwelcome(shown, &error)),
        }
    }
    Err(Failure::Text(said.join("\n")))
}

fn timeout(given: &Given) -> Result<Duration, Failure> {
    let Some(text) = given.get('t') else { return Ok(Duration::from_secs(5)) };
    match text.parse::<f64>() {
        Ok(0.0) => Ok(ENDLESS),
        Ok(seconds) if seconds > 0.0 && seconds < 1e9 => Ok(Duration::from_secs_f64(seconds)),
        _ => Err(Failure::Text(format!("-t: Invalid argument: {text}"))),
    }
}

fn place(given: &Given, timeout: Duration) -> Result<Place, Failure> {
    if let Some(address) = given.get('T') {
        if given.has('n') {
            return Err(Failure::Usage(String::new()));
        }
        let whole = if address.starts_with(':') { format!("localhost{address}") } else { joined(address) };
        let secret = given.get('S').map(PathBuf::from);
        return Ok(Place { addresses: vec![(address.to_owned(), whole)], secret });
    }
    if given.has('S') {
        return Err(Failure::Usage(String::new()));
    }
    let directory = work_directory(given);
    let listens = insist("", &directory, Some(timeout), || read_arguments(&directory, "-T"))?;
    let listens = listens.ok_or_else(|| Failure::Text("No -T in shared memory".to_owned()))?;
    let addresses = listens.lines().map(|line| (line.to_owned(), joined(line))).collect();
    let secret = read_arguments(&directory, "-S")?
        .filter(|path| !path.is_empty())
        .map(PathBuf::from)
        .or_else(|| Some(directory.join("_.secret")).filter(|path| path.exists()));
    Ok(Place { addresses, secret })
}

/// `host port`, as it is connected to.
fn joined(line: &str) -> String {
    match line.split_once(' ') {
        None => line.to_owned(),
        Some((host, port)) if host.contains(':') => format!("[{host}]:{port}"),
        Some((host, port)) => format!("{host}:{port}"),
    }
}

/// What `varnishadm` says where the daemon at `address` does not take us.
fn unwelcome(address: &str, error: &ClientError) -> String {
    match error {
        ClientError::Connect { source, .. } => {
            let why = match source.kind() {
                io::ErrorKind::InvalidInput => "Name or service not known".to_owned(),
                _ => reason(source).replace("failed to lookup address information: ", ""),
            };
            format!("Connection failed ({address}): {why}")
        }
        ClientError::SecretWanted => "Authentication required".to_owned(),
        ClientError::File { path, source } => {
            format!("Cannot open \"{}\": {}", path.display(), reason(source))
        }
        ClientError::Refused { code, body } => format!("Rejected {code}\n{body}"),
        ClientError::Io(_) | ClientError::Frame(_) => format!("Rejected 400\n{}", broken(error)),
        ClientError::Address { .. } => error.to_string(),
    }
}

/// What `varnishadm` says where a reply does not come, or is none.
fn broken(error: &ClientError) -> &'static str {
    match error {
        ClientError::Io(source) if source.kind() == io::ErrorKind::UnexpectedEof => {
            "CLI communication error (body)"
        }
        _ => "CLI communication error (hdr)",
    }
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

/// One command: the words of the command line as they are, with blanks between.
fn one(client: &mut Client, command: &str, framed: bool, output: &mut Output) -> Result<ExitCode, Failure> {
    let answer = match client.line(command) {
        Ok(answer) => answer,
        Err(error) => return Ok(unreached(broken(&error))),
    };
    print(&answer, framed, output)?;
    if answer.is_ok() {
        return Ok(ExitCode::SUCCESS);
    }
    if !framed {
        eprintln!("Command failed with error code {}", answer.code);
    }
    Ok(ExitCode::from(REFUSED))
}

fn print(answer: &Answer, framed: bool, output: &mut Output) -> Result<(), Failure> {
    const TRUNCATED: u16 = 201;
    if framed {
        output.write(format!("{:<3} {:<8}\n", answer.code, answer.body.len()).as_bytes())?;
        output.write(&answer.body)?;
        return output.flush();
    }
    output.write(&answer.body)?;
    output.write(b"\n")?;
    if answer.code == TRUNCATED {
        output.write(b"[response was truncated]\n")?;
    }
    output.flush()
}

/// Passes what comes on the standard input to the daemon as it comes, and prints its replies, to the end of both. What the
/// replies say makes no difference to the exit code.
fn pass(client: &mut Client, framed: bool, output: &mut Output) -> Result<ExitCode, Failure> {
    let input = io::stdin();
    let (mut has_more, mut has_asked) = (true, false);
    let mut bytes = vec![0; 16 << 10];
    loop {
        let (replies, keyboard) = wait(client, has_more.then_some(&input))?;
        if replies {
            match client.reply() {
                Ok(Some(answer)) => {
                    print(&answer, framed, output)?;
                    if answer.code == CLOSING {
                        return Ok(ExitCode::SUCCESS);
                    }
                }
                Ok(None) if !has_more => return Ok(ExitCode::SUCCESS),
                Ok(None) => return Ok(unreached("CLI communication error (hdr)")),
                Err(error) => return Ok(unreached(broken(&error))),
            }
        }
        if keyboard {
            match rustix::io::read(&input, &mut bytes) {
                Ok(0) | Err(Errno::IO) => {
                    if !has_asked {
                        return Ok(ExitCode::SUCCESS);
                    }
                    has_more = false;
                    // If the daemon is gone, the replies say so.
                    let _ = client.end();
                }
                Ok(count) => {
                    has_asked = true;
                    if let Err(error) = client.send(&bytes[..count]) {
                        let cause = error.source().map_or_else(String::new, ToString::to_string);
                        eprintln!("Write error CLI socket: {cause}");
                        return Ok(ExitCode::from(REFUSED));
                    }
                }
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(_) => return Ok(ExitCode::SUCCESS),
            }
        }
    }
}

/// Waits until the daemon or the keyboard has something to say.
fn wait(client: &Client, input: Option<&io::Stdin>) -> Result<(bool, bool), Failure> {
    let mut sides = vec![PollFd::new(client, PollFlags::IN)];
    sides.extend(input.map(|input| PollFd::new(input, PollFlags::IN)));
    match poll(&mut sides, None) {
        Err(Errno::INTR) => return Ok((false, false)),
        other => other.map_err(io::Error::from)?,
    };
    let is_ready = |side: &PollFd<'_>| !side.revents().is_empty();
    Ok((is_ready(&sides[0]), sides.get(1).is_some_and(is_ready)))
}

/// A conversation at a terminal: a prompt, a command, its status and its reply.
fn converse(client: &mut Client, output: &mut Output) -> Result<ExitCode, Failure> {
    let mut lines = io::stdin().lock().lines();
    let mut command = "banner".to_owned();
    loop {
        let answer = match client.line(&command) {
            Ok(answer) => answer,
            Err(error) => return Ok(unreached(broken(&error))),
        };
        output.write(format!("{}\n", answer.code).as_bytes())?;
        print(&answer, false, output)?;
        if answer.code == CLOSING {
            return Ok(ExitCode::SUCCESS);
        }
        command = loop {
            output.write(b"varnish> ")?;
            output.flush()?;
            let Some(line) = lines.next() else { return Ok(ExitCode::SUCCESS) };
            let line = line?;
            if !line.trim().is_empty() {
                break line;
            }
        };
        if let Some(end) = document_end(&command) {
            read_document(&mut lines, &end, &mut command)?;
        }
    }
}

/// Appends lines to `command` up to the one that is `end`.
fn read_document(
    lines: &mut impl Iterator<Item = io::Result<String>>,
    end: &str,
    command: &mut String,
) -> Result<(), Failure> {
    for line in lines {
        let line = line?;
        command.push('\n');
        command.push_str(&line);
        if line == end {
            return Ok(());
        }
        if command.len() > DOCUMENT_MAX {
            return Err(Failure::Text("the document is too long".to_owned()));
        }
    }
    Err(Failure::Text(format!("the document has no end \"{end}\"")))
}

/// The word that ends a here-document, if the line begins one: the last but one word is `<<`.
fn document_end(line: &str) -> Option<String> {
    let mut words = line.split_whitespace().rev();
    let end = words.next()?;
    (words.next()? == "<<").then(|| end.to_owned())
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
        let lines = |text: &'static str| text.lines().map(|line| Ok(line.to_owned()));
        let mut command = "vcl.inline a << E".to_owned();
        read_document(&mut lines("b\nE\nc"), "E", &mut command).unwrap();
        assert_eq!(command, "vcl.inline a << E\nb\nE");
        assert!(read_document(&mut lines("b"), "E", &mut command).is_err());
    }

    #[test]
    fn addresses_are_connected_to_in_one_word() {
        for (line, expected) in
            [("127.0.0.1 6082", "127.0.0.1:6082"), ("::1 6082", "[::1]:6082"), ("host:1", "host:1")]
        {
            assert_eq!(joined(line), expected);
        }
    }
}
