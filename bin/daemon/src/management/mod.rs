//! Managing: parameters, the table of VCLs, and every command of the command line.
//!
//! What serves clients is behind [`Server`]. State that must outlive a stop (VCLs, parameters) is kept here; what a stop
//! loses (objects, bans, health) is asked for there.

mod backend;
mod ban;
mod explain;
pub(crate) mod general;
mod param;
mod storage;
mod table;
#[cfg(test)]
pub(crate) mod testing;
pub(crate) mod vcl;

use crate::parameters::{self, Parameters};
use crate::server::{Server, Source};
use admin::{Command, Commands, Reply, Status, Verb};
use base::Time;
use base::clock::Clock;
use copal_admin as admin;
use copal_base as base;
use std::collections::HashSet;
use std::sync::Arc;
use vcl::Table;

/// The manager.
pub(crate) struct Management<P: Server> {
    server: P,
    parameters: Parameters,
    /// Names given with `-r`.
    protected: HashSet<&'static str>,
    vcls: Table<P::Program>,
    clock: Arc<dyn Clock>,
    /// The name of the jail, for the banner.
    jail: &'static str,
}

impl<P: Server> Management<P> {
    /// A manager that serves nothing yet.
    pub(crate) fn new(server: P, parameters: Parameters, clock: Arc<dyn Clock>) -> Self {
        Self { server, parameters, protected: HashSet::new(), vcls: Table::default(), clock, jail: "none" }
    }

    /// Lets the command line set `name` no more.
    ///
    /// # Errors
    /// There is no such parameter.
    pub(crate) fn protect(&mut self, name: &str) -> Result<(), String> {
        let row = parameters::find(name).ok_or_else(|| format!("Unknown parameter {name}"))?;
        self.protected.insert(row.name);
        Ok(())
    }

    /// What serves.
    pub(crate) fn server(&self) -> &P {
        &self.server
    }

    /// What serves, to be told what a test wants.
    #[cfg(test)]
    pub(crate) fn plant_mut(&mut self) -> &mut P {
        &mut self.server
    }

    /// Loads a VCL under `name`, as `vcl.load` and `vcl.inline` do.
    ///
    /// # Errors
    /// What these would answer.
    pub(crate) fn load(&mut self, name: &str, source: &Source) -> Result<(), Reply> {
        refusal(self.vcl_source(name, source, None))
    }

    /// Serves new requests with the VCL `name`, as `vcl.use` does.
    ///
    /// # Errors
    /// What `vcl.use` would answer.
    pub(crate) fn activate(&mut self, name: &str) -> Result<(), Reply> {
        refusal(self.vcl_use(name))
    }

    /// Notes which rights the worker has, for the banner.
    pub(crate) fn set_jail(&mut self, name: &'static str) {
        self.jail = name;
    }

    /// Whether there is a VCL to serve with.
    pub(crate) fn has_active(&self) -> bool {
        self.vcls.active().is_some()
    }

    /// Begins to serve, as `start` does.
    ///
    /// # Errors
    /// What `start` would answer.
    pub(crate) fn start(&mut self) -> Result<(), Reply> {
        refusal(self.start_command())
    }

    /// Stops serving, if it does. Waits for requests under way, for a bounded time.
    pub(crate) fn stop(&mut self) {
        self.server.stop();
    }

    /// Housekeeping, a few times a second.
    pub(crate) fn tick(&mut self) {
        self.server.tick();
        if self.server.broken() {
            self.begin_anew();
        }
        let now = self.clock.now();
        self.cool_down(now);
    }

    fn now_time(&self) -> Time {
        self.clock.now()
    }
}

fn refusal(reply: Reply) -> Result<(), Reply> {
    match reply.status {
        Status::Ok | Status::Truncated => Ok(()),
        _ => Err(reply),
    }
}

impl<P: Server> Commands for Management<P> {
    fn run(&mut self, command: &'static Command, arguments: &[String], json: bool) -> Reply {
        let reply = self.dispatch(command, arguments, json);
        if self.server.lost() {
            // Whatever was put together lacks what the worker did not say.
            return Reply::new(Status::Comms, "CLI communication error");
        }
        if command.serving && self.server.running() {
            let words: Vec<String> = arguments.iter().map(|word| admin::words::quote(word)).collect();
            let words = format!("{} {}", command.name, words.join(" "));
            self.server.note(words.trim_end(), reply.status.code(), &reply.body);
        }
        reply
    }

    fn banner(&self) -> String {
        general::banner(self.jail, &self.server.storages(), self.server.running())
    }

    fn serving(&self) -> bool {
        self.server.running()
    }

    fn reply_max(&self) -> usize {
        usize::try_from(self.parameters.cli_limit).unwrap_or(usize::MAX)
    }

    fn now(&self) -> f64 {
        self.now_time()
    }
}

impl<P: Server> Management<P> {
    fn dispatch(&mut self, command: &'static Command, arguments: &[String], json: bool) -> Reply {
        if self.parameters.syslog_cli_traffic {
            let words: Vec<String> = arguments.iter().map(|word| shortened(word)).collect();
            crate::log::command(&[("command", &command.name), ("arguments", &words.join(" "))]);
        }
        let argument = |index: usize| arguments.get(index).map(String::as_str);
        let first = argument(0).unwrap_or_default();
        match command.verb {
            // The session answers these itself.
            Verb::Auth | Verb::Help | Verb::Quit => admin::table::unknown(),
            Verb::Banner => Reply::ok(self.banner()),
            Verb::Ping => self.ping(json),
            Verb::Pid => self.pid(json),
            Verb::Status => self.status(json),
            Verb::Start => self.start_command(),
            Verb::Stop => self.stop_command(),
            Verb::PanicShow => self.panic_show(json),
            Verb::PanicClear => self.panic_clear(arguments),
            Verb::DebugFragfetch => self.fragfetch(first),
            Verb::DebugReqpoolFail => self.reqpool_fail(first),
            Verb::DebugShutdownDelay => self.shutdown_delay(first),
            Verb::DebugSrandom => self.srandom(first),
            Verb::DebugXid => self.xid(first, argument(1).unwrap_or_default()),
            Verb::DebugPanicMaster => panic!("You asked for it: debug.panic.master"),
            Verb::DebugPanicWorker => {
                self.server.panic_worker();
                Reply::done()
            }
            Verb::DebugVmod => self.debug_vmod(),
            Verb::DebugListenAddress => self.listen_address(),
            Verb::StorageList => self.storage_list(json),
            Verb::StorageDrain | Verb::StorageUndrain => {
                let on = command.verb == Verb::StorageDrain;
                self.storage_drain(first, argument(1).unwrap_or_default(), on)
            }
            Verb::Ban => self.ban(arguments),
            Verb::BanList => self.ban_list(json),
            Verb::Explain => self.explain(arguments, json),
            Verb::BackendList => self.backend_list(arguments, json),
            Verb::BackendSetHealth => self.backend_set_health(first, argument(1).unwrap_or_default()),
            Verb::ParamShow => self.param_show(arguments, json),
            Verb::ParamSet => self.param_set(first, argument(1).unwrap_or_default(), json),
            Verb::ParamReset => self.param_reset(first),
            Verb::VclLoad => self.vcl_load(first, argument(1).unwrap_or_default(), argument(2)),
            Verb::VclInline => self.vcl_inline(first, argument(1).unwrap_or_default(), argument(2)),
            Verb::VclUse => self.vcl_use(first),
            Verb::VclList => self.vcl_list(json),
            Verb::VclDiscard => self.vcl_discard(arguments),
            Verb::VclShow => self.vcl_show(arguments),
            Verb::VclLabel => self.vcl_label(first, argument(1).unwrap_or_default()),
            Verb::VclDeps => self.vcl_deps(json),
            Verb::VclSymtab => self.vcl_symtab(),
            Verb::VclState => self.vcl_state(first, argument(1).unwrap_or_default()),
        }
    }
}

/// An argument as the log shows it: its beginning, on one line.
fn shortened(word: &str) -> String {
    const LENGTH: usize = 200;
    let mut text: String = word.chars().take(LENGTH).collect();
    if text.len() < word.len() {
        text.push_str("...");
    }
    admin::words::quote(&text)
}
