//! The worker as the manager sees it: [`Server`] by asking another process.
//!
//! ```text
//! stopped --start--> starting --> running --stop--> stopping --> stopped
//!                                    \--(dies, or does not answer)--> stopped, to be begun anew --> starting
//! ```
//! Sockets are bound once, by the manager, and every worker gets copies, so that no stop, no death and no start loses an
//! address. A worker that does not answer within `cli_timeout` is killed. One that dies young is followed by the next after a
//! pause, which doubles from one death to the next, so that a machine is not kept busy with dying.

mod child;
mod output;

use crate::compile::{self, Captured};
use crate::jail::Jail;
use crate::link::{self, Answer, Ask};
use crate::parameters::{self, Parameters};
use crate::server::{
    AdminHealth, Backend, Ban, Compiled, Label, Listening, Load, Question, Server, Source, State, Storage,
    StorageState,
};
use crate::{log, panic, storage, wire_up};
use child::{Child, End, Exited, Lost};
use copal_net as net;
use copal_observe as observe;
use copal_store::device::FileDevice;
use net::Endpoint;
use net::listen::{Protocol, Spec};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A worker that has lived as long as this dies of something new.
const YOUNG: Duration = Duration::from_secs(10);
/// How long a start may take at least, whatever `cli_timeout` says: it is more work than any other question.
const START_PATIENCE: Duration = Duration::from_secs(60);
/// The longest pause before a worker that died is followed by another.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// The longest wait: some thirty years. A bound keeps sums of moments within their range.
const LONGEST: Duration = Duration::from_secs(1_000_000_000);

/// The pause after so many workers in a row died young: none after the first, then 1 s, 2 s, 4 s ...
fn pause(young_deaths: u32) -> Duration {
    let doublings = young_deaths.checked_sub(2);
    doublings.map_or(Duration::ZERO, |doublings| Duration::from_secs(1 << doublings.min(16)).min(PAUSE_MAX))
}

/// What a worker needs besides parameters and VCL; fixed for the life of the manager.
#[derive(Debug)]
pub(crate) struct Fixed {
    /// The work directory.
    pub(crate) directory: PathBuf,
    /// `server.identity`.
    pub(crate) identity: String,
    /// `server.hostname`.
    pub(crate) hostname: String,
    /// Which rights a worker has.
    pub(crate) jail: Jail,
    /// The stores, `Transient` last.
    pub(crate) stores: Vec<storage::Spec>,
    /// What they are kept on, in the order of [`storage::Spec::devices`].
    pub(crate) devices: Vec<FileDevice>,
    /// `-o recover`, until a worker has done so: what was made anew once is good.
    pub(crate) recover: bool,
}

/// Parameters that concern the manager's dealings with the worker.
#[derive(Clone, Copy, Debug)]
struct Timeouts {
    /// How long an answer may take.
    patience: Duration,
    /// How often is asked whether it lives; zero is never.
    ping: Duration,
    /// How long requests under way may go on at a stop.
    drain: Duration,
}

impl Timeouts {
    fn new(parameters: &Parameters) -> Self {
        let seconds =
            |value: f64| Duration::try_from_secs_f64(value).map_or(LONGEST, |wait| wait.min(LONGEST));
        Self {
            patience: seconds(parameters.cli_timeout),
            ping: Duration::from_secs(parameters.ping_interval),
            drain: seconds(parameters.drain_limit),
        }
    }
}

/// The server that asks a worker.
pub(crate) struct Remote {
    fixed: Fixed,
    addresses: Vec<net::listen::Listening>,
    timeouts: Timeouts,
    shm: Rc<observe::Manager>,
    state: State,
    child: RefCell<Option<Child>>,
    /// After a death: when the next worker may be started.
    due: Option<Instant>,
    /// How many workers in a row died young.
    young_deaths: u32,
    /// An answer did not come since that was last asked.
    lost: Cell<bool>,
    panic: RefCell<Option<String>>,
    /// Devices that were taken out of use, by their places: store, device.
    draining: BTreeSet<(usize, usize)>,
    /// What the manager's exit status tells of its workers' ends.
    exit_bits: u8,
}

impl Remote {
    /// Binds the sockets that `specs` name; nothing is accepted before [`Server::start`].
    ///
    /// # Errors
    /// The first address that cannot be had.
    pub(crate) fn bind(
        fixed: Fixed,
        specs: &[Spec],
        parameters: &Parameters,
        shm: Rc<observe::Manager>,
    ) -> Result<Self, net::listen::BindError> {
        let threads = net::worker::cpus().len();
        let mut addresses = Vec::new();
        for spec in specs {
            addresses.extend(net::listen::bind(spec, threads, &wire_up::listen(parameters))?);
        }
        Ok(Self {
            fixed,
            addresses,
            timeouts: Timeouts::new(parameters),
            shm,
            state: State::Stopped,
            child: RefCell::new(None),
            due: None,
            young_deaths: 0,
            lost: Cell::new(false),
            panic: RefCell::new(None),
            draining: BTreeSet::new(),
            exit_bits: 0,
        })
    }

    /// What the manager's exit status is to tell: 0x20 a worker exited with a status, 0x40 by a signal, 0x80 with a core
    /// file. Source: Varnish 7.1, observed.
    pub(crate) fn exit_bits(&self) -> u8 {
        self.exit_bits
    }

    /// Asks; `None` if there is no worker or it does not answer, which is then noted.
    fn ask(&self, ask: &Ask) -> Option<Answer> {
        self.ask_for(ask, self.timeouts.patience)
    }

    fn ask_for(&self, ask: &Ask, patience: Duration) -> Option<Answer> {
        let mut child = self.child.borrow_mut();
        let answer = child.as_mut()?.ask(ask, patience);
        if answer.is_err() {
            self.lost.set(true);
        }
        answer.ok()
    }

    /// Asks for something that may fail.
    fn attempt(&self, ask: &Ask) -> Result<(), String> {
        match self.ask(ask) {
            Some(Answer::Done) => Ok(()),
            Some(Answer::Failed(why)) => Err(why),
            Some(_) | None => Err("CLI communication error".to_owned()),
        }
    }

    fn start_message(
        &self,
        parameters: &Parameters,
        vcls: &[Load<'_, Arc<Captured>>],
        labels: &[Label],
        active: &str,
    ) -> link::Start {
        let address = |listening: &net::listen::Listening| link::Address {
            name: listening.name.clone(),
            proxy: listening.protocol == Protocol::Proxy,
            endpoint: match &listening.endpoint {
                Endpoint::Tcp(address) => link::Endpoint::Tcp(*address),
                Endpoint::Unix(path) => link::Endpoint::Unix(path.clone()),
            },
            sockets: listening.listeners.len(),
        };
        link::Start {
            directory: self.fixed.directory.clone(),
            identity: self.fixed.identity.clone(),
            hostname: self.fixed.hostname.clone(),
            stores: self.fixed.stores.clone(),
            recover: self.fixed.recover,
            draining: self.draining.iter().copied().collect(),
            addresses: self.addresses.iter().map(address).collect(),
            parameters: parameters::settings(parameters),
            vcls: vcls.iter().map(vcl_message).collect(),
            labels: labels.to_vec(),
            active: active.to_owned(),
        }
    }

    /// A worker that serves, or why there is none.
    fn launch(&mut self, mut start: link::Start) -> Result<(), String> {
        // Until the worker has answered.
        let _handed =
            storage::Handed::new(&mut start.stores, self.fixed.jail).map_err(|why| why.to_string())?;
        observe::vsm::remove(&self.fixed.directory, observe::vsm::WORKER)
            .map_err(|error| format!("shared memory: {error}"))?;
        let shared = self.fixed.directory.join(observe::vsm::WORKER);
        self.fixed
            .jail
            .worker_directory(&shared)
            .map_err(|error| format!("shared memory: {}: {error}", shared.display()))?;
        let sockets = self
            .addresses
            .iter()
            .flat_map(|listening| listening.listeners.iter().map(|socket| socket.as_fd()));
        let devices = self.fixed.devices.iter().map(|device| device.as_fd());
        let descriptors: Vec<_> = sockets.chain(devices).collect();
        let name = self.fixed.directory.display().to_string();
        let mut child = Child::spawn(&descriptors, &name, self.fixed.jail)
            .map_err(|error| format!("could not start worker: {error}"))?;
        log::debug(&format!("Child ({}) Started", child.id()), &[]);
        match child.ask(&Ask::Start(Box::new(start)), self.timeouts.patience.max(START_PATIENCE)) {
            Ok(Answer::Done) => {
                self.shm.counters().child_start.inc();
                self.fixed.recover = false;
                log::plain("Child launched OK");
                self.child.replace(Some(child));
                Ok(())
            }
            Ok(Answer::Failed(why)) => {
                self.remember(child.reap());
                Err(why)
            }
            Ok(_) | Err(_) => {
                let pid = child.id();
                self.remember(child.reap());
                Err(format!("Child ({pid}) did not start"))
            }
        }
    }

    /// Reaps the worker, whose end nobody asked for, and sets when the next may be started.
    fn handle_death(&mut self, child: Child) {
        let age = child.age();
        self.remember(child.reap());
        self.state = State::Stopped;
        self.schedule_restart(age);
    }

    /// Sets when the next worker may be started after one that died at `age`.
    fn schedule_restart(&mut self, age: Duration) {
        self.young_deaths = if age < YOUNG { self.young_deaths + 1 } else { 1 };
        self.due = Some(Instant::now() + pause(self.young_deaths));
    }

    /// Logs, counts and keeps how a worker ended, and removes what it left.
    fn remember(&mut self, exited: Exited) {
        let counters = self.shm.counters();
        let words = exited.words();
        if let Some(why) = exited.killed {
            log::error(&format!("Child ({}) {why}", exited.pid), &[]);
        }
        match exited.end() {
            End::Orderly => {
                counters.child_exit.inc();
                log::info(&words, &[]);
            }
            End::Status(_) => {
                counters.child_stop.inc();
                self.exit_bits |= 0x20;
                log::error(&words, &[]);
            }
            End::Signal { dumped, .. } => {
                counters.child_died.inc();
                counters.child_dump.add(u64::from(dumped));
                self.exit_bits |= if dumped { 0xc0 } else { 0x40 };
                log::error(&words, &[]);
            }
        }
        let end = exited.end();
        match (exited.report, end) {
            (None, End::Status(_) | End::Signal { .. }) if !exited.explained => {
                let message = format!("{words}\n{}", exited.last_words);
                self.panic.replace(Some(panic::report(message.trim_end(), "", "", "")));
            }
            (report, _) => self.keep(report),
        }
        if let Err(error) = observe::vsm::remove(&self.fixed.directory, observe::vsm::WORKER) {
            log::warning("shared memory of the worker", &[("error", &error)]);
        }
    }

    /// Keeps the report of a panic, if there is one.
    fn keep(&self, report: Option<String>) {
        if let Some(report) = report {
            self.shm.counters().child_panic.inc();
            self.panic.replace(Some(report));
        }
    }
}

fn vcl_message(load: &Load<'_, Arc<Captured>>) -> link::Vcl {
    link::Vcl { name: load.name.to_owned(), captured: Captured::clone(load.program), warm: load.warm }
}

impl Server for Remote {
    type Program = Arc<Captured>;

    fn compile(
        &self,
        source: &Source,
        labels: &[Label],
        parameters: &Parameters,
    ) -> Result<Compiled<Arc<Captured>>, String> {
        let stores = storage::names(&self.fixed.stores);
        compile::compile(source, labels, &stores, parameters, self.fixed.jail)
    }

    fn state(&self) -> State {
        self.state
    }

    fn process(&self) -> Option<u32> {
        self.child.borrow().as_ref().map(Child::id)
    }

    fn lost(&self) -> bool {
        self.lost.replace(false)
    }

    fn panic(&self) -> Option<String> {
        self.panic.borrow().clone()
    }

    fn forget_panic(&mut self, counts: bool) -> bool {
        if counts {
            self.shm.counters().child_panic.set(0);
        }
        self.panic.take().is_some()
    }

    fn note(&self, command: &str, status: u16, reply: &str) {
        self.ask(&Ask::Note { command: command.to_owned(), status, reply: reply.to_owned() });
    }

    fn broken(&self) -> bool {
        self.due.is_some_and(|due| Instant::now() >= due)
    }

    fn start(
        &mut self,
        parameters: &Parameters,
        vcls: &[Load<'_, Arc<Captured>>],
        labels: &[Label],
        active: &str,
    ) -> Result<(), String> {
        self.timeouts = Timeouts::new(parameters);
        let due = self.due.take();
        self.state = State::Starting;
        let launched = self.launch(self.start_message(parameters, vcls, labels, active));
        self.state = if launched.is_ok() { State::Running } else { State::Stopped };
        if launched.is_err() && due.is_some() {
            // What keeps it from starting may pass: it is tried again, as after another death.
            self.schedule_restart(Duration::ZERO);
        }
        launched
    }

    fn stop(&mut self) {
        self.due = None;
        self.young_deaths = 0;
        let Some(mut child) = self.child.take() else { return };
        self.state = State::Stopping;
        log::debug("Stopping Child", &[]);
        let patience = self.timeouts.drain.saturating_add(self.timeouts.patience);
        if child.ask(&Ask::Stop, patience).is_err() {
            self.lost.set(false);
        }
        self.remember(child.reap());
        self.state = State::Stopped;
        log::debug("Child cleanup complete", &[]);
    }

    fn load(&mut self, vcl: &Load<'_, Arc<Captured>>) -> Result<(), String> {
        self.attempt(&Ask::Load(vcl_message(vcl)))
    }

    fn set_labels(&mut self, labels: &[Label]) {
        self.ask(&Ask::SetLabels(labels.to_vec()));
    }

    fn activate(&mut self, name: &str) {
        self.ask(&Ask::Activate(name.to_owned()));
    }

    fn set_warm(&mut self, name: &str, warm: bool) {
        self.ask(&Ask::SetWarm { name: name.to_owned(), warm });
    }

    fn discard(&mut self, name: &str) {
        self.ask(&Ask::Discard(name.to_owned()));
    }

    fn users(&self, name: &str) -> usize {
        match self.ask(&Ask::Users(name.to_owned())) {
            Some(Answer::Users(users)) => users,
            _ => 0,
        }
    }

    fn lingering(&self) -> Vec<(String, usize)> {
        match self.ask(&Ask::Lingering) {
            Some(Answer::Lingering(vcls)) => vcls,
            _ => Vec::new(),
        }
    }

    fn apply(&mut self, parameters: &Parameters) {
        self.timeouts = Timeouts::new(parameters);
        self.ask(&Ask::Apply(parameters::settings(parameters)));
    }

    fn backends(&self) -> Vec<Backend> {
        match self.ask(&Ask::Backends) {
            Some(Answer::Backends(backends)) => backends,
            _ => Vec::new(),
        }
    }

    fn set_health(&mut self, vcl: &str, backend: &str, health: AdminHealth) {
        self.ask(&Ask::SetHealth { vcl: vcl.to_owned(), backend: backend.to_owned(), health });
    }

    fn ban(&mut self, words: &[String]) -> Result<(), String> {
        self.attempt(&Ask::Ban(words.to_vec()))
    }

    fn bans(&self) -> Vec<Ban> {
        match self.ask(&Ask::Bans) {
            Some(Answer::Bans(bans)) => bans,
            _ => Vec::new(),
        }
    }

    fn explain(&self, question: &Question) -> Result<String, String> {
        match self.ask(&Ask::Explain(question.clone())) {
            Some(Answer::Explained(text)) => Ok(text),
            Some(Answer::Failed(why)) => Err(why),
            Some(_) | None => Err("CLI communication error".to_owned()),
        }
    }

    fn storages(&self) -> Vec<Storage> {
        Storage::rows(&self.fixed.stores)
    }

    fn storage_states(&self) -> Vec<StorageState> {
        match self.ask(&Ask::StorageStates) {
            Some(Answer::StorageStates(states)) => states,
            _ => Vec::new(),
        }
    }

    fn drain(&mut self, store: usize, device: usize, on: bool) -> Result<(), String> {
        let spec = self.fixed.stores.get(store).ok_or("no such store")?;
        if device >= spec.devices().len() {
            return Err(format!("Store {} keeps nothing that could be moved", spec.name));
        }
        match on {
            true => self.draining.insert((store, device)),
            false => self.draining.remove(&(store, device)),
        };
        match self.running() {
            true => self.attempt(&Ask::Drain { store, device, on }),
            false => Ok(()),
        }
    }

    fn listening(&self) -> Vec<Listening> {
        Listening::rows(&self.addresses)
    }

    fn panic_worker(&mut self) {
        self.ask(&Ask::Panic);
    }

    fn xid(&mut self, last: Option<u32>, chunk: Option<u32>) -> (u32, u32) {
        match self.ask(&Ask::Xid { last, chunk }) {
            Some(Answer::Xid(last, chunk)) => (last, chunk),
            _ => (0, 0),
        }
    }

    fn reseed(&mut self, seed: u32) {
        self.ask(&Ask::Reseed(seed));
    }

    fn fragment(&mut self, piece_max: u32) {
        self.ask(&Ask::Fragment(piece_max));
    }

    fn fail(&mut self, bits: u64) {
        self.ask(&Ask::Fail(bits));
    }

    fn delay_stop(&mut self, delay: Duration) {
        self.ask(&Ask::DelayStop(delay.as_secs_f64()));
    }

    fn tick(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        self.keep(child.report());
        let lost = child.check(self.timeouts.ping, self.timeouts.patience);
        if child.ended() || lost.is_err() {
            if lost == Err(Lost::Silent) {
                log::error(
                    "no answer from the worker",
                    &[("pid", &child.id()), ("cli_timeout_s", &self.timeouts.patience.as_secs())],
                );
            }
            self.handle_death(child);
        } else {
            self.child.replace(Some(child));
        }
    }
}

impl Drop for Remote {
    /// A manager that gives up leaves no worker.
    fn drop(&mut self) {
        self.stop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_who_die_young_in_a_row_are_followed_later_and_later() {
        let pauses: Vec<u64> = [0, 1, 2, 3, 4, 8, 9, 99].map(|deaths| pause(deaths).as_secs()).to_vec();
        assert_eq!(pauses, [0, 0, 1, 2, 4, 60, 60, 60]);
    }
}
