//! One connection of the command line, without its socket.
//!
//! ```text
//!   begin --(no secret)--> trusted
//!   begin --> challenged --(right answer)--> trusted
//!   challenged --(wrong answer, line too long)--> closed
//!   trusted --(quit, line too long)--> closed
//! ```
//! A peer that is challenged gets the few commands that the table marks; all others are unknown to it.

use crate::challenge::{self, Challenge};
use crate::intake::{Input, Intake, LINE_MAX, LINE_MAX_UNTRUSTED};
use crate::reply::{Reply, Status};
use crate::table::{self, Command, Verb};

/// Whoever does what the commands say.
pub trait Commands {
    /// Does one command, whose arguments are as many as its row wants. `json` says that `-j` was given, which is taken
    /// off `arguments`. Never called for `auth`, `help` and `quit`, which are the session's own.
    fn run(&mut self, command: &'static Command, arguments: &[String], json: bool) -> Reply;

    /// The text that greets a trusted peer.
    fn banner(&self) -> String;

    /// Whether clients are being served, which some commands need.
    fn serving(&self) -> bool;

    /// The longest body of a reply, in bytes; longer ones are cut.
    fn reply_max(&self) -> usize;

    /// The present moment, for replies in JSON.
    fn now(&self) -> f64;
}

/// The reply to a command that needs a running cache, or that is not known, while none runs.
const NOT_RUNNING: &str =
    "Unknown request in manager process (child not running).\nType 'help' for more info.";

/// The state of a session.
#[derive(Debug)]
pub struct Session {
    intake: Intake,
    guard: Option<Guard>,
    closed: bool,
}

#[derive(Debug)]
struct Guard {
    challenge: Challenge,
    secret: Vec<u8>,
    /// The right answer was given.
    passed: bool,
}

impl Session {
    /// A session that asks for `secret`, if there is one, with a challenge made from `random`. Appends what the peer is
    /// greeted with to `out`.
    pub fn begin(
        secret: Option<Vec<u8>>,
        random: [u8; challenge::LENGTH],
        commands: &dyn Commands,
        out: &mut Vec<u8>,
    ) -> Self {
        let guard = secret.map(|secret| Guard { challenge: Challenge::new(random), secret, passed: false });
        let greeting = match &guard {
            Some(guard) => Reply::new(Status::Auth, guard.challenge.text()),
            None => Reply::ok(commands.banner()),
        };
        greeting.write(usize::MAX, out);
        Self { intake: Intake::new(), guard, closed: false }
    }

    /// Takes bytes of the peer, runs what they complete, appends the replies to `out`. After [`Session::closed`], nothing
    /// is taken any more.
    pub fn feed(&mut self, bytes: &[u8], commands: &mut dyn Commands, out: &mut Vec<u8>) {
        self.intake.push(bytes);
        while !self.closed {
            let line_max = if self.trusted() { LINE_MAX } else { LINE_MAX_UNTRUSTED };
            let Some(input) = self.intake.take(line_max) else { return };
            let reply = match input {
                Input::Command(words) => self.dispatch(&words, commands),
                Input::Malformed(malformed) => Reply::new(
                    Status::Syntax,
                    format!("Unknown request.\nType 'help' for more info.\nSyntax Error: {malformed}\n"),
                ),
                Input::TooLong => self.close(format!("Line longer than {line_max} bytes\n")),
            };
            reply.write(commands.reply_max(), out);
        }
    }

    /// The replies written so far are the last; the connection is to be closed after them.
    pub fn closed(&self) -> bool {
        self.closed
    }

    /// Whether the peer may give every command.
    pub fn trusted(&self) -> bool {
        self.guard.as_ref().is_none_or(|guard| guard.passed)
    }

    fn close(&mut self, why: impl Into<String>) -> Reply {
        self.closed = true;
        Reply::new(Status::Close, why)
    }

    /// Runs one command, its words already apart, as the peer would give it. A `-` before it, by which files of commands
    /// say that it may fail, is passed over.
    pub fn dispatch(&mut self, words: &[String], commands: &mut dyn Commands) -> Reply {
        // The sign may stand alone, as a word before the command.
        let mut unsigned = words.to_vec();
        if let Some(rest) = words[0].strip_prefix('-') {
            match rest {
                "" => drop(unsigned.remove(0)),
                rest => rest.clone_into(&mut unsigned[0]),
            }
        }
        let words = unsigned.as_slice();
        let Some(name) = words.first() else {
            return Reply::new(Status::Syntax, format!("{}Empty CLI command.\n", table::UNKNOWN));
        };
        if name.starts_with(|c: char| c.is_ascii_uppercase()) {
            return Reply::new(
                Status::Unknown,
                format!("{}all commands are in lower-case.\n", table::UNKNOWN),
            );
        }
        let command = table::find(name);
        if !self.trusted() && command.is_none_or(|command| !command.before_auth) {
            return table::unknown();
        }
        let Some(command) = command.filter(|command| !command.serving || commands.serving()) else {
            return match commands.serving() {
                true => table::unknown(),
                false => Reply::new(Status::Unknown, NOT_RUNNING),
            };
        };
        let json = words.get(1).is_some_and(|word| word == "-j");
        if json && !command.json {
            return Reply::new(Status::Unimplemented, "JSON unimplemented\n");
        }
        let arguments = &words[1 + usize::from(json)..];
        if arguments.len() < command.least {
            return Reply::new(Status::TooFew, "Too few parameters\n");
        }
        if command.most.is_some_and(|most| arguments.len() > most) {
            return Reply::new(Status::TooMany, "Too many parameters\n");
        }
        match command.verb {
            Verb::Auth => self.authenticate(&arguments[0], commands),
            Verb::Quit => self.close("Closing CLI connection"),
            Verb::Help if json => {
                let words: Vec<&str> = words.iter().map(String::as_str).collect();
                table::help_json(&words, commands.now(), commands.serving())
            }
            Verb::Help => table::help(arguments, commands.serving()),
            _ => commands.run(command, arguments, json),
        }
    }

    fn authenticate(&mut self, answer: &str, commands: &dyn Commands) -> Reply {
        if let Some(guard) = &mut self.guard {
            // One wrong answer ends the session, so that guesses cost a connection each.
            if !guard.challenge.accepts(&guard.secret, answer) {
                return self.close("");
            }
            guard.passed = true;
        }
        Reply::ok(commands.banner())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Echo {
        serving: bool,
    }

    impl Commands for Echo {
        fn run(&mut self, command: &'static Command, arguments: &[String], json: bool) -> Reply {
            Reply::ok(format!("{}{} {}", command.name, if json { " json" } else { "" }, arguments.join("|")))
        }

        fn banner(&self) -> String {
            "hello".into()
        }

        fn serving(&self) -> bool {
            self.serving
        }

        fn reply_max(&self) -> usize {
            200
        }

        fn now(&self) -> f64 {
            1.0
        }
    }

    const CHALLENGE: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

    /// Feeds `lines` to a session; `replies` are the statuses and bodies that must come, greeting excluded.
    fn check(secret: Option<&str>, lines: &str, replies: &[(u16, &str)], closed: bool) {
        let mut commands = Echo { serving: true };
        let (mut greeting, mut out) = (Vec::new(), Vec::new());
        let secret = secret.map(|secret| secret.as_bytes().to_vec());
        let mut session = Session::begin(secret, [0; 32], &commands, &mut greeting);
        session.feed(lines.as_bytes(), &mut commands, &mut out);
        let expected: String =
            replies.iter().map(|(code, body)| format!("{code:<3} {:<8}\n{body}\n", body.len())).collect();
        assert_eq!(String::from_utf8(out).unwrap(), expected, "{lines}");
        assert_eq!(session.closed(), closed, "{lines}");
    }

    #[test]
    fn without_a_secret() {
        check(None, "ping 1\nping -j\n", &[(200, "ping 1"), (200, "ping json ")], false);
        check(None, "nope\n", &[(101, "Unknown request.\nType 'help' for more info.\n")], false);
        check(None, "-ping\n", &[(200, "ping ")], false);
        check(
            None,
            "-\n",
            &[(100, "Unknown request.\nType 'help' for more info.\nEmpty CLI command.\n")],
            false,
        );
        check(None, "ping 1 2\n", &[(105, "Too many parameters\n")], false);
        check(None, "ban a ==\n", &[(104, "Too few parameters\n")], false);
        check(None, "ban -j\n", &[(102, "JSON unimplemented\n")], false);
        check(None, "ban a == b && c ~ d\n", &[(200, "ban a|==|b|&&|c|~|d")], false);
        check(
            None,
            "-\n- ping 1\n-ping\n-Ping\n",
            &[
                (100, "Unknown request.\nType 'help' for more info.\nEmpty CLI command.\n"),
                (200, "ping 1"),
                (200, "ping "),
                (101, "Unknown request.\nType 'help' for more info.\nall commands are in lower-case.\n"),
            ],
            false,
        );
        check(
            None,
            "pi\"ng\"\nquit\nping\n",
            &[
                (100, "Unknown request.\nType 'help' for more info.\nSyntax Error: Invalid '\"'\n"),
                (500, "Closing CLI connection"),
            ],
            true,
        );
    }

    #[test]
    fn with_a_secret() {
        let unknown = (101, "Unknown request.\nType 'help' for more info.\n");
        check(Some("s\n"), "status\nping\n", &[unknown, (200, "ping ")], false);
        check(Some("s\n"), "auth 0123\nping\n", &[(500, "")], true);
        let answer = Challenge::new([0; 32]).answer(b"s\n");
        check(Some("s\n"), &format!("auth {answer}\nstatus\n"), &[(200, "hello"), (200, "status ")], false);
        check(Some("s\n"), &format!("auth {answer}\nauth 1\n"), &[(200, "hello"), (500, "")], true);
        check(Some("s\n"), &"x".repeat(2000), &[(500, "Line longer than 1024 bytes\n")], true);
    }

    #[test]
    fn greetings() {
        let mut out = Vec::new();
        Session::begin(Some(b"s".to_vec()), [0; 32], &Echo { serving: true }, &mut out);
        assert_eq!(
            String::from_utf8(out).unwrap(),
            format!("107 59      \n{CHALLENGE}\n\nAuthentication required.\n\n")
        );
    }

    #[test]
    fn some_commands_need_a_running_cache() {
        let mut commands = Echo { serving: false };
        let mut out = Vec::new();
        let mut session = Session::begin(None, [0; 32], &commands, &mut Vec::new());
        session.feed(b"ban.list\nnope\nvcl.list\n", &mut commands, &mut out);
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text.matches("Unknown request in manager process").count(), 2, "{text}");
        assert!(text.starts_with("101 82      \nUnknown request in manager process"), "{text}");
        assert!(text.ends_with("200 9       \nvcl.list \n"), "{text}");
    }
}
