//! The one list of commands: what the parser accepts, what `help` says, who may say it.

use crate::json;
use crate::reply::{Reply, Status};
use std::fmt::Write as _;

/// A command, for whoever does it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Verb {
    Auth,
    BackendList,
    BackendSetHealth,
    Ban,
    BanList,
    Banner,
    DebugFragfetch,
    DebugListenAddress,
    DebugPanicMaster,
    DebugPanicWorker,
    DebugReqpoolFail,
    DebugShutdownDelay,
    DebugSrandom,
    DebugVmod,
    DebugXid,
    Explain,
    Help,
    PanicClear,
    PanicShow,
    ParamReset,
    ParamSet,
    ParamShow,
    Pid,
    Ping,
    Quit,
    Start,
    Status,
    Stop,
    StorageDrain,
    StorageList,
    StorageUndrain,
    VclDeps,
    VclDiscard,
    VclInline,
    VclLabel,
    VclList,
    VclLoad,
    VclShow,
    VclState,
    VclSymtab,
    VclUse,
}

/// One row of the list.
#[derive(Clone, Copy, Debug)]
pub struct Command {
    /// Which command.
    pub verb: Verb,
    /// Its word.
    pub name: &'static str,
    /// How it is called.
    pub syntax: &'static str,
    /// What it does, in a line.
    pub help: &'static str,
    /// Arguments it needs, `-j` not counted.
    pub least: usize,
    /// Arguments it takes at most, `-j` not counted; `None` is any number.
    pub most: Option<usize>,
    /// Takes `-j` as its first argument and answers in JSON.
    pub json: bool,
    /// May be said by a peer that has not answered the challenge.
    pub before_auth: bool,
    /// Only where clients are being served.
    pub serving: bool,
}

impl Command {
    /// Left out of the list that `help` prints, as in Varnish: for tests, not for people.
    pub fn hidden(&self) -> bool {
        self.name.starts_with("debug.") || matches!(self.verb, Verb::VclSymtab)
    }
}

const fn row(
    verb: Verb,
    name: &'static str,
    syntax: &'static str,
    help: &'static str,
    arguments: (usize, Option<usize>),
) -> Command {
    let (least, most) = arguments;
    Command { verb, name, syntax, help, least, most, json: false, before_auth: false, serving: false }
}

impl Command {
    const fn json(mut self) -> Self {
        self.json = true;
        self
    }

    const fn before_auth(mut self) -> Self {
        self.before_auth = true;
        self
    }

    const fn serving(mut self) -> Self {
        self.serving = true;
        self
    }
}

/// Every command, in alphabetical order.
pub static COMMANDS: &[Command] = &[
    row(
        Verb::Auth,
        "auth",
        "auth <response>",
        "Answer the challenge that the connection began with.",
        (1, Some(1)),
    )
    .before_auth(),
    row(
        Verb::BackendList,
        "backend.list",
        "backend.list [-j] [-p] [<backend_pattern>]",
        "List backends and directors with their health; -p adds what probes saw.",
        (0, Some(2)),
    )
    .json()
    .serving(),
    row(
        Verb::BackendSetHealth,
        "backend.set_health",
        "backend.set_health <backend_pattern> [auto|healthy|sick]",
        "Say whether matching backends may be used; auto leaves it to their probes.",
        (2, Some(2)),
    )
    .serving(),
    row(
        Verb::Ban,
        "ban",
        "ban <field> <operator> <arg> [&& <field> <oper> <arg> ...]",
        "Let no object be served any more for which all conditions hold.",
        (3, None),
    )
    .serving(),
    row(Verb::BanList, "ban.list", "ban.list [-j]", "List the bans in force, newest first.", (0, Some(0)))
        .json()
        .serving(),
    row(Verb::Banner, "banner", "banner", "Show what greets a new session.", (0, Some(0))),
    row(
        Verb::DebugFragfetch,
        "debug.fragfetch",
        "debug.fragfetch <bytes>",
        "Let bodies from backends be read so many bytes at a time, at most; 0 for as many as come.",
        (1, Some(1)),
    )
    .serving(),
    row(
        Verb::DebugListenAddress,
        "debug.listen_address",
        "debug.listen_address",
        "List the addresses that clients can connect to.",
        (0, Some(0)),
    )
    .serving(),
    row(
        Verb::DebugPanicMaster,
        "debug.panic.master",
        "debug.panic.master",
        "Let the manager's process panic.",
        (0, Some(0)),
    ),
    row(
        Verb::DebugPanicWorker,
        "debug.panic.worker",
        "debug.panic.worker",
        "Let the worker's process panic.",
        (0, Some(0)),
    )
    .serving(),
    row(
        Verb::DebugReqpoolFail,
        "debug.reqpool.fail",
        "debug.reqpool.fail <plan>",
        "Plan which sessions that wake up, and probes, find no room: one character each, from the left; F fails, any \
         other passes.",
        (1, Some(1)),
    )
    .serving(),
    row(
        Verb::DebugShutdownDelay,
        "debug.shutdown.delay",
        "debug.shutdown.delay <duration>",
        "Let the worker wait before it ends.",
        (1, Some(1)),
    )
    .serving(),
    row(
        Verb::DebugSrandom,
        "debug.srandom",
        "debug.srandom [<seed>]",
        "Let random numbers begin anew from a seed.",
        (0, Some(1)),
    )
    .serving(),
    row(
        Verb::DebugVmod,
        "debug.vmod",
        "debug.vmod",
        "List the modules that VCLs import, and how many do.",
        (0, Some(0)),
    )
    .serving(),
    row(
        Verb::DebugXid,
        "debug.xid",
        "debug.xid [<xid> [<chunk>]]",
        "Show or set the last transaction number, and how many a thread takes at once.",
        (0, Some(2)),
    )
    .serving(),
    row(
        Verb::Explain,
        "explain",
        "explain [-j] [-X <method>] [-H <header>]... [-c <address>] <url>",
        "Say what would become of such a request, and why.",
        (1, None),
    )
    .json()
    .serving(),
    row(Verb::Help, "help", "help [-j|<command>]", "List the commands, or explain one.", (0, Some(1)))
        .json()
        .before_auth(),
    row(Verb::PanicClear, "panic.clear", "panic.clear [-z]", "Forget the last panic.", (0, Some(1))),
    row(
        Verb::PanicShow,
        "panic.show",
        "panic.show [-j]",
        "Show the last panic, if there was one.",
        (0, Some(0)),
    )
    .json(),
    row(
        Verb::ParamReset,
        "param.reset",
        "param.reset <param>",
        "Set a parameter back to its default.",
        (1, Some(1)),
    ),
    row(Verb::ParamSet, "param.set", "param.set [-j] <param> <value>", "Set a parameter.", (2, Some(2)))
        .json(),
    row(
        Verb::ParamShow,
        "param.show",
        "param.show [-l|-j] [<param>|changed]",
        "Show parameters: all, one, or those that are not at their default; -l explains them.",
        (0, Some(2)),
    )
    .json(),
    row(Verb::Pid, "pid", "pid [-j]", "Show the process numbers.", (0, Some(0))).json(),
    row(Verb::Ping, "ping", "ping [-j] [<timestamp>]", "Show that the session lives.", (0, Some(1)))
        .json()
        .before_auth(),
    row(Verb::Quit, "quit", "quit", "Close the session.", (0, Some(0))).before_auth(),
    row(Verb::Start, "start", "start", "Begin to serve clients.", (0, Some(0))),
    row(Verb::Status, "status", "status [-j]", "Say whether clients are being served.", (0, Some(0))).json(),
    row(Verb::Stop, "stop", "stop", "Stop serving clients; what was cached is lost.", (0, Some(0))),
    row(
        Verb::StorageDrain,
        "storage.drain",
        "storage.drain <store> <path|number>",
        "Take a device of a store out of use: what is on it moves to its others.",
        (2, Some(2)),
    ),
    row(Verb::StorageList, "storage.list", "storage.list [-j]", "List the stores.", (0, Some(0))).json(),
    row(
        Verb::StorageUndrain,
        "storage.undrain",
        "storage.undrain <store> <path|number>",
        "Take a device of a store into use again.",
        (2, Some(2)),
    ),
    row(
        Verb::VclDeps,
        "vcl.deps",
        "vcl.deps [-j]",
        "List VCLs and labels, each with what it leans on.",
        (0, Some(0)),
    )
    .json(),
    row(
        Verb::VclDiscard,
        "vcl.discard",
        "vcl.discard <name_pattern>...",
        "Unload every VCL whose name matches.",
        (1, None),
    ),
    row(
        Verb::VclInline,
        "vcl.inline",
        "vcl.inline <configname> <quoted_VCLstring> [auto|cold|warm]",
        "Compile the VCL given as an argument, and load it under that name.",
        (2, Some(3)),
    ),
    row(
        Verb::VclLabel,
        "vcl.label",
        "vcl.label <label> <configname>",
        "Let a label stand for a VCL, from now on or instead of another one.",
        (2, Some(2)),
    ),
    row(Verb::VclList, "vcl.list", "vcl.list [-j]", "List the loaded VCLs.", (0, Some(0))).json(),
    row(
        Verb::VclLoad,
        "vcl.load",
        "vcl.load <configname> <filename> [auto|cold|warm]",
        "Compile a VCL file, and load it under that name.",
        (2, Some(3)),
    ),
    row(
        Verb::VclShow,
        "vcl.show",
        "vcl.show [-v] [<configname>]",
        "Show the source of a VCL; -v adds included files and the built-in VCL.",
        (0, Some(2)),
    ),
    row(
        Verb::VclState,
        "vcl.state",
        "vcl.state <configname> [auto|cold|warm]",
        "Keep a VCL ready (warm), let its backends rest (cold), or decide by use (auto).",
        (2, Some(2)),
    ),
    row(
        Verb::VclSymtab,
        "vcl.symtab",
        "vcl.symtab",
        "Show which VCLs and labels refer to which.",
        (0, Some(0)),
    ),
    row(
        Verb::VclUse,
        "vcl.use",
        "vcl.use <configname|label>",
        "Serve new requests with that VCL.",
        (1, Some(1)),
    ),
];

/// The command of that name.
pub fn find(name: &str) -> Option<&'static Command> {
    COMMANDS.binary_search_by(|row| row.name.cmp(name)).ok().map(|index| &COMMANDS[index])
}

/// How the reply to something that is no command begins.
pub const UNKNOWN: &str = "Unknown request.\nType 'help' for more info.\n";

/// The reply to a name that is in no list.
pub fn unknown() -> Reply {
    Reply::new(Status::Unknown, UNKNOWN)
}

/// The commands there are at the moment: some only while clients are being served.
fn present(serving: bool) -> impl Iterator<Item = &'static Command> {
    COMMANDS.iter().filter(move |command| serving || !command.serving)
}

/// `help` with its arguments, `-j` taken off: the list, without (or with `-a` and, alone, with `-d`) what is for tests;
/// or what one command does.
pub fn help(arguments: &[String], serving: bool) -> Reply {
    let list = |wanted: fn(&Command) -> bool| {
        let lines = present(serving).filter(|command| wanted(command));
        Reply::ok(lines.fold(String::new(), |text, command| text + command.syntax + "\n"))
    };
    match arguments.first().map(String::as_str) {
        None => list(|command| !command.hidden()),
        Some("-a") => list(|_| true),
        Some("-d") => list(Command::hidden),
        Some(flag) if flag.starts_with('-') => Reply::new(Status::Unknown, "Unknown flag\n"),
        Some(name) => match present(serving).find(|command| command.name == name) {
            Some(command) => Reply::ok(format!("{}\n{}\n", command.syntax, command.help)),
            None => unknown(),
        },
    }
}

/// `help -j`: the whole list, whatever the arguments, as in Varnish.
pub fn help_json(words: &[&str], now: f64, serving: bool) -> Reply {
    let mut text = json::begin(2, words, now);
    for (index, command) in present(serving).enumerate() {
        let _ = write!(
            text,
            "{}\n  {{\n    \"request\": {},\n    \"syntax\": {},\n    \"help\": {},\n    \"minarg\": {},\n    \
             \"maxarg\": {},\n    \"flags\": \"{}\",\n    \"json\": {}\n  }}",
            if index == 0 { "" } else { "," },
            json::string(command.name),
            json::string(command.syntax),
            json::string(command.help),
            command.least,
            command.most.map_or("-1".to_owned(), |most| most.to_string()),
            if command.hidden() { "d" } else { "" },
            command.json,
        );
    }
    text.push_str("\n]\n");
    Reply::ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_sorted_and_agree_with_themselves() {
        assert!(COMMANDS.is_sorted_by(|a, b| a.name < b.name));
        for command in COMMANDS {
            assert!(command.syntax.starts_with(command.name), "{}", command.name);
            assert!(command.most.is_none_or(|most| most >= command.least), "{}", command.name);
            assert_eq!(command.json, command.syntax.contains("-j"), "{}", command.name);
            assert!(std::ptr::eq(find(command.name).unwrap(), command));
        }
        assert!(find("nope").is_none());
    }

    #[test]
    fn help_is_made_from_the_rows() {
        let all = help(&[], true).body;
        assert!(all.starts_with("auth <response>\nbackend.list [-j] [-p] [<backend_pattern>]\n"), "{all}");
        assert!(!all.contains("debug."), "{all}");
        assert!(help(&[], false).body.starts_with("auth <response>\nbanner\n"));
        assert!(help(&["-d".into()], true).body.starts_with("debug."));
        assert_eq!(help(&["-x".into()], true).body, "Unknown flag\n");
        assert!(help(&["-a".into()], true).body.contains("\ndebug.listen_address\n"));
        assert_eq!(
            help(&["ping".into()], true).body,
            "ping [-j] [<timestamp>]\nShow that the session lives.\n"
        );
        assert_eq!(help(&["x".into()], true).status, Status::Unknown);
        assert_eq!(help(&["ban".into()], false).status, Status::Unknown);
        let json = help_json(&["help", "-j"], 1.0, true).body;
        assert!(json.starts_with("[ 2, [\"help\", \"-j\"], 1.000,\n  {\n    \"request\": \"auth\",\n"));
        assert!(json.ends_with("  }\n]\n"));
    }
}
