//! Commands about the process as a whole.

use super::Management;
use crate::args;
use crate::server::{Load, Server, Storage};
use admin::{Reply, json};
use copal_admin as admin;
use copal_base as base;
use std::fmt::Write as _;
use std::time::Duration;

/// What greets a session. The first line is the name of the protocol, which clients look for.
pub(crate) fn banner(jail: &str, storages: &[Storage], running: bool) -> String {
    let start = if running { "" } else { "Type 'start' to launch worker process.\n" };
    format!(
        "-----------------------------\nVarnish Cache CLI 1.0\n-----------------------------\n{}\n{}\n\n\
         Type 'help' for command list.\nType 'quit' to close CLI session.\n{start}",
        platform(jail, storages),
        version(),
    )
}

/// Which program this is.
pub(crate) fn version() -> String {
    format!("copal-{} revision {}", env!("CARGO_PKG_VERSION"), args::revision())
}

/// The system and what it is used for, in a line.
pub(crate) fn platform(jail: &str, storages: &[Storage]) -> String {
    let name = rustix::system::uname();
    let text = |part: &std::ffi::CStr| part.to_string_lossy().into_owned();
    let stores: String = storages.iter().map(|storage| format!("-s{},", storage.kind)).collect();
    format!(
        "{},{},{},-j{jail},{stores}-hcritbit",
        text(name.sysname()),
        text(name.release()),
        text(name.machine())
    )
}

impl<P: Server> Management<P> {
    fn state(&self) -> &'static str {
        self.server.state().name()
    }

    /// `-z` sets the counter of panics back, too.
    pub(super) fn panic_clear(&mut self, arguments: &[String]) -> Reply {
        let counts = match arguments {
            [] => false,
            [flag] if flag == "-z" => true,
            [flag, ..] => return Reply::wrong(format!("Unknown parameter \"{flag}\".")),
        };
        match self.server.forget_panic(counts) {
            false if !counts => Reply::cant("No panic to clear"),
            _ => Reply::done(),
        }
    }

    pub(super) fn ping(&self, json: bool) -> Reply {
        let now = self.now_time();
        if json {
            return Reply::ok(format!("{} \"PONG\"\n\n]\n", json::begin(2, &["ping", "-j"], now)));
        }
        Reply::ok(format!("PONG {} 1.0", now as u64))
    }

    pub(super) fn status(&self, json: bool) -> Reply {
        if json {
            let begin = json::begin(2, &["status", "-j"], self.now_time());
            return Reply::ok(format!("{begin} \"{}\"\n]\n", self.state()));
        }
        Reply::ok(format!("Child in state {}", self.state()))
    }

    pub(super) fn pid(&self, json: bool) -> Reply {
        let pid = std::process::id();
        let worker = self.server.process();
        if json {
            let begin = json::begin(2, &["pid", "-j"], self.now_time());
            let worker = worker.map_or(String::new(), |worker| format!(", \"worker\": {worker}"));
            return Reply::ok(format!("{begin}\n  {{\"master\": {pid}{worker}}}\n]\n"));
        }
        let worker = worker.map_or(String::new(), |worker| format!("Worker:  {worker:>9}\n"));
        Reply::ok(format!("Master:  {pid:>9}\n{worker}"))
    }

    pub(super) fn start_command(&mut self) -> Reply {
        if self.server.running() {
            return Reply::cant("Child in state running");
        }
        let Some(active) = self.vcls.active() else {
            let none = self.vcls.iter().next().is_none();
            return Reply::cant(if none { "No VCL loaded" } else { "No active VCL" });
        };
        let active = active.name.clone();
        let loads: Vec<Load<'_, P::Program>> = self.vcls.iter().map(|vcl| vcl.load()).collect();
        match self.server.start(&self.parameters, &loads, &self.vcls.labels(), &active) {
            Ok(()) => {
                crate::log::info("started", &[("vcl", &active)]);
                Reply::done()
            }
            Err(why) => {
                crate::log::error("start", &[("error", &why)]);
                Reply::cant(why)
            }
        }
    }

    /// After a worker has died: starts another, if that is wanted.
    pub(super) fn begin_anew(&mut self) {
        match self.parameters.auto_restart {
            true => drop(self.start_command()),
            false => self.server.stop(),
        }
    }

    pub(super) fn panic_show(&self, json: bool) -> Reply {
        match self.server.panic() {
            Some(text) if json => {
                let begin = json::begin(2, &["panic.show", "-j"], self.now_time());
                Reply::ok(format!("{begin} {}\n]\n", json::string(&text)))
            }
            Some(text) => Reply::ok(text),
            None => Reply::cant("Child has not panicked or panic has been cleared"),
        }
    }

    pub(super) fn stop_command(&mut self) -> Reply {
        if !self.server.running() {
            return Reply::cant("Child in state stopped");
        }
        self.server.stop();
        crate::log::info("stopped", &[]);
        Reply::done()
    }

    pub(super) fn listen_address(&self) -> Reply {
        let mut text = String::new();
        for place in self.server.listening() {
            let port = place.port.map_or("-".to_owned(), |port| port.to_string());
            let _ = writeln!(text, "{} {} {port}", place.name, place.address);
        }
        Reply::ok(text)
    }

    /// `debug.xid`: which transaction number was the last, and how many a thread takes at once.
    pub(super) fn xid(&mut self, last: &str, chunk: &str) -> Reply {
        let number = |word: &str| match word {
            "" => Ok(None),
            _ => word.parse().map(Some).map_err(|_| Reply::wrong(format!("Not a number: {word}"))),
        };
        let (last, chunk) = match (number(last), number(chunk)) {
            (Ok(last), Ok(chunk)) => (last, chunk),
            (Err(refusal), _) | (_, Err(refusal)) => return refusal,
        };
        let (last, chunk) = self.server.xid(last, chunk);
        Reply::ok(format!("XID is {last} chunk {chunk}"))
    }

    /// `debug.srandom`: without an argument the seed is 0.
    pub(super) fn srandom(&mut self, seed: &str) -> Reply {
        match if seed.is_empty() { Ok(0) } else { seed.parse() } {
            Ok(seed) => {
                self.server.reseed(seed);
                Reply::done()
            }
            Err(_) => Reply::wrong(format!("Not a number: {seed}")),
        }
    }

    /// `debug.fragfetch`: how many bytes, 0 for no bound.
    pub(super) fn fragfetch(&mut self, bytes: &str) -> Reply {
        match bytes.parse() {
            Ok(bytes) => {
                self.server.fragment(bytes);
                Reply::done()
            }
            Err(_) => Reply::wrong(format!("Not a number: {bytes}")),
        }
    }

    /// `debug.reqpool.fail`: any text is a schedule.
    pub(super) fn reqpool_fail(&mut self, schedule: &str) -> Reply {
        self.server.fail(base::Schedule::parse(schedule));
        Reply::done()
    }

    /// `debug.shutdown.delay`: seconds, or a duration with its unit. A worker that takes longer than `drain_limit` and
    /// `cli_timeout` together is killed, whatever is asked for here.
    pub(super) fn shutdown_delay(&mut self, delay: &str) -> Reply {
        let seconds = base::units::parse_duration(delay).or_else(|_| delay.parse::<f64>());
        match seconds.ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()) {
            Some(delay) => {
                self.server.delay_stop(delay);
                Reply::done()
            }
            None => Reply::wrong(format!("Not a duration: {delay}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, manager};

    #[test]
    fn process_commands() {
        let mut manager = manager();
        check(&mut manager, "ping", 200, "PONG 1000 1.0");
        check(&mut manager, "ping -j", 200, "[ 2, [\"ping\", \"-j\"], 1000.000, \"PONG\"\n\n]\n");
        check(&mut manager, "status", 200, "Child in state stopped");
        check(&mut manager, "stop", 300, "Child in state stopped");
        check(&mut manager, "start", 300, "No VCL loaded");
        check(&mut manager, "vcl.inline boot ok", 200, "VCL compiled.\n");
        check(&mut manager, "start", 300, "No active VCL");
        check(&mut manager, "vcl.use boot", 200, "VCL 'boot' now active");
        check(&mut manager, "start", 200, "");
        check(&mut manager, "start", 300, "Child in state running");
        check(&mut manager, "status -j", 200, "[ 2, [\"status\", \"-j\"], 1000.000, \"running\"\n]\n");
        check(&mut manager, "debug.listen_address", 200, "a0 127.0.0.1 8080\nu /tmp/u.sock -\n");
        check(&mut manager, "debug.srandom", 200, "");
        check(&mut manager, "debug.srandom 9", 200, "");
        check(&mut manager, "debug.srandom x", 106, "Not a number: x");
        check(&mut manager, "debug.shutdown.delay 2.5", 200, "");
        check(&mut manager, "debug.shutdown.delay 1m", 200, "");
        check(&mut manager, "debug.shutdown.delay -1", 106, "Not a duration: -1");
        let told = manager.server().log.borrow().clone();
        assert_eq!(told[told.len() - 4..], ["seed 0", "seed 9", "delay 2.5s", "delay 60s"]);
        check(&mut manager, "debug.fragfetch 32", 200, "");
        check(&mut manager, "debug.fragfetch x", 106, "Not a number: x");
        check(&mut manager, "debug.reqpool.fail F_f", 200, "");
        let told = manager.server().log.borrow().clone();
        assert_eq!(told[told.len() - 2..], ["pieces of 32", "fail 101"]);
        check(&mut manager, "panic.show", 300, "Child has not panicked or panic has been cleared");
        check(&mut manager, "stop", 200, "");
        check(
            &mut manager,
            "backend.list",
            101,
            "Unknown request in manager process (child not running).\nType 'help' for more info.",
        );
    }

    #[test]
    fn what_breaks_begins_anew() {
        let mut manager = super::super::testing::running();
        manager.server().broken.set(true);
        manager.tick();
        assert_eq!(manager.server().log.borrow().last().unwrap(), "start 1 boot ");
        check(&mut manager, "status", 200, "Child in state running");
        check(&mut manager, "param.set auto_restart off", 200, "");
        manager.server().broken.set(true);
        manager.tick();
        check(&mut manager, "status", 200, "Child in state stopped");
    }

    #[test]
    fn panics_and_a_silent_worker() {
        let mut manager = super::super::testing::running();
        manager.plant_mut().panic = Some("Panic at: x\n".to_owned());
        check(&mut manager, "panic.show", 200, "Panic at: x\n");
        check(&mut manager, "panic.clear -x", 106, "Unknown parameter \"-x\".");
        check(&mut manager, "panic.clear -z", 200, "");
        check(&mut manager, "panic.clear", 300, "No panic to clear");
        check(&mut manager, "panic.clear -z", 200, "");
        manager.server().lost.set(true);
        check(&mut manager, "backend.list", 400, "CLI communication error");
        check(&mut manager, "ban req.url ~ x", 200, "");
        assert_eq!(manager.server().noted.borrow().last().unwrap(), "ban req.url ~ x: 200");
        let pid = std::process::id();
        check(&mut manager, "pid", 200, &format!("Master:  {pid:>9}\nWorker:       4711\n"));
    }

    #[test]
    fn pids() {
        let mut manager = manager();
        let pid = std::process::id();
        check(&mut manager, "pid", 200, &format!("Master:  {pid:>9}\n"));
        check(
            &mut manager,
            "pid -j",
            200,
            &format!("[ 2, [\"pid\", \"-j\"], 1000.000,\n  {{\"master\": {pid}}}\n]\n"),
        );
    }
}
