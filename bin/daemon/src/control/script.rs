//! The commands of `-I`: a file that is run before the worker is started, as if somebody had typed it.
//!
//! A command that fails ends the start, unless it begins with `-`.

use admin::intake::{Input, Intake, LINE_MAX};
use admin::{Commands, Reply, Session, Status};
use copal_admin as admin;
use std::fmt::Write as _;

/// Runs the commands in `text`. What was run and answered is appended to `protocol`.
///
/// # Errors
/// What failed, in words.
pub(crate) fn run(text: &[u8], commands: &mut dyn Commands, protocol: &mut String) -> Result<(), String> {
    let mut greeting = Vec::new();
    // Whoever may name the file may give every command.
    let mut session = Session::begin(None, [0; admin::challenge::LENGTH], commands, &mut greeting);
    let mut intake = Intake::new();
    intake.push(text);
    // The last line may lack its end.
    intake.push(b"\n");
    let _ = writeln!(protocol, "BEGIN of -I file processing");
    let _ = writeln!(protocol, "{}", String::from_utf8_lossy(&greeting).trim_end_matches('\n'));
    let _ = writeln!(protocol);
    while let Some(input) = intake.take(LINE_MAX) {
        let (tolerant, reply) = match input {
            Input::Command(words) => command(&words, &mut session, commands, protocol),
            Input::Malformed(malformed) => {
                (false, Reply::new(Status::Syntax, format!("Syntax Error: {malformed}\n")))
            }
            Input::TooLong => {
                (false, Reply::new(Status::Close, format!("Line longer than {LINE_MAX} bytes\n")))
            }
        };
        let done = matches!(reply.status, Status::Ok | Status::Truncated);
        if !done && !tolerant {
            return Err(format!("-I file CLI command failed ({})\n{}", reply.status.code(), reply.body));
        }
        let _ = writeln!(protocol, "{:<3} {:<8}\n{}", reply.status.code(), reply.body.len(), reply.body);
        if session.closed() {
            break;
        }
    }
    let _ = writeln!(protocol, "END of -I file processing");
    Ok(())
}

/// Runs one; says whether it may fail.
fn command(
    words: &[String],
    session: &mut Session,
    commands: &mut dyn Commands,
    protocol: &mut String,
) -> (bool, Reply) {
    let tolerant = words[0].starts_with('-');
    let _ = writeln!(protocol, "> {}", words.join(" "));
    (tolerant, session.dispatch(words, commands))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::management::testing;

    fn check(text: &str, outcome: Result<(), &str>, said: &str) {
        let (mut manager, mut protocol) = (testing::manager(), String::new());
        let result = run(text.as_bytes(), &mut manager, &mut protocol);
        assert_eq!(result, outcome.map_err(str::to_owned), "{text}");
        assert!(protocol.contains(said), "{protocol}");
    }

    #[test]
    fn files_of_commands() {
        check("", Ok(()), "BEGIN of -I file processing\n200 ");
        check("", Ok(()), "\n\nEND of -I file processing\n");
        check("param.set default_ttl 44\n\nparam.show default_ttl", Ok(()), "Value is: 44.000");
        check("vcl.inline a << EOF\nok\nEOF\nvcl.use a\n", Ok(()), "> vcl.use a\n200 ");
        check("-nonsense x\nping\n", Ok(()), "> -nonsense x\n101 ");
        check("quit\nnonsense\n", Err("-I file CLI command failed (500)\nClosing CLI connection"), "> quit");
        check(
            "ping\nparam.reset nope\nping\n",
            Err("-I file CLI command failed (106)\nUnknown parameter \"nope\"."),
            "> param.reset nope\n",
        );
        check("ping \"x\n", Err("-I file CLI command failed (100)\nSyntax Error: Missing '\"'\n"), "BEGIN ");
    }
}
