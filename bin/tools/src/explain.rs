//! `copal explain`: asks a running daemon what would become of a request, and why.
//!
//! It finds the daemon as `copal adm` does and gives it the command `explain`.

use crate::Failure;
use crate::adm;
use crate::options::{self, Given, Opt};
use crate::output::Output;
use std::process::ExitCode;

/// The options.
pub(crate) const OPTIONS: &[Opt] = &[
    Opt::value('c', "address", "Client's IP address (127.0.0.1)"),
    Opt::value('H', "header", "A header field: \"Name: value\""),
    Opt::flag('h', "Usage help"),
    Opt::flag('j', "Answer in JSON"),
    Opt::value('n', "dir", "Work directory of the daemon"),
    Opt::value('S', "secretfile", "Secret file"),
    Opt::value('T', "address:port", "Where the daemon listens"),
    Opt::value('t', "seconds", "Wait for the daemon and its replies"),
    Opt::flag('V', "Version"),
    Opt::value('X', "method", "Method (GET)"),
];

/// Runs the tool.
pub(crate) fn run(given: &Given) -> Result<ExitCode, Failure> {
    let given = whole(given)?;
    let [url] = &given.operands[..] else { return Err(Failure::Usage(String::new())) };
    let mut words = vec!["explain"];
    words.extend(given.has('j').then_some("-j"));
    let dashed = |letter: char| match letter {
        'X' => Some("-X"),
        'c' => Some("-c"),
        'H' => Some("-H"),
        _ => None,
    };
    for (letter, value) in &given.options {
        if let Some(option) = dashed(*letter) {
            words.extend([option, value]);
        }
    }
    words.push(url);
    let mut client = adm::open(&given)?;
    let answer = client.words(&words).map_err(|error| adm::chain(&error))?;
    if !answer.is_ok() {
        return Err(Failure::Text(String::from_utf8_lossy(&answer.body).into_owned()));
    }
    let mut output = Output::standard();
    output.write(answer.body.trim_ascii_end())?;
    output.write(b"\n")?;
    output.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// The command line with the options that stand behind the URL.
fn whole(given: &Given) -> Result<Given, Failure> {
    options::anywhere(OPTIONS, given).map_err(|fault| Failure::Usage(format!("copal explain: {fault}\n")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_stand_before_and_behind_the_url() {
        let line = ["-n", "x", "http://e.org/", "-H", "A: b", "-HC: d", "-j"].map(Into::into).to_vec();
        let given = whole(&options::parse(OPTIONS, line).unwrap()).unwrap();
        assert_eq!(given.operands, ["http://e.org/"]);
        let options: Vec<(char, &str)> =
            given.options.iter().map(|(letter, value)| (*letter, value.as_str())).collect();
        assert_eq!(options, [('n', "x"), ('H', "A: b"), ('H', "C: d"), ('j', "")]);
        assert!(whole(&Given { operands: vec!["/".into(), "-z".into()], ..Given::default() }).is_err());
    }
}
