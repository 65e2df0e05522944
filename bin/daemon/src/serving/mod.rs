//! Serving, for real: stores, threads, sockets and loaded VCLs behind [`Server`].
//!
//! ```text
//! worker threads (one a CPU): accept > front > cache > origin      upkeep thread: probes, sweeping, merging of counters
//!          \______________ cache::Shared, settings in base::Live, counters in observe ______________/
//! ```
//! The sockets are the manager's, which keeps them while nothing runs, so that a stop and a start lose no address. All else
//! lives from `start` to `stop`.

mod backends;
mod budget;
mod explain;
mod host;
mod running;
mod threads;
mod upkeep;

use crate::compile::{self, Captured};
use crate::jail::Jail;
use crate::parameters::Parameters;
use crate::server::{
    AdminHealth, Backend, Ban, Compiled, Label, Listening, Load, Question, Server, Source, State, Storage,
    StorageState,
};
use crate::storage;
use admin::Status;
use base::clock::Clock;
use copal_admin as admin;
use copal_base as base;
use copal_net as net;
use copal_store::device::FileDevice;
use running::Running;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// What serving needs besides parameters; fixed for the life of the process.
#[derive(Debug)]
pub(crate) struct Fixed {
    /// The work directory.
    pub(crate) directory: PathBuf,
    /// `server.identity`.
    pub(crate) identity: String,
    /// `server.hostname`.
    pub(crate) hostname: String,
    /// The stores, `Transient` last.
    pub(crate) stores: Vec<storage::Spec>,
    /// `-o recover`: they make the lists of their objects anew.
    pub(crate) recover: bool,
    /// Devices that are out of use from the start, by their places: store, device.
    pub(crate) draining: Vec<(usize, usize)>,
}

/// The server in the worker: it does what it is told.
pub(crate) struct Serving {
    fixed: Arc<Fixed>,
    clock: Arc<dyn Clock>,
    addresses: Vec<net::listen::Listening>,
    /// What stores are kept on, until they are made.
    devices: Vec<FileDevice>,
    running: Option<Running>,
    /// How long the end of serving is to take longer than it does: `debug.shutdown.delay`.
    stop_delay: Duration,
}

impl Serving {
    /// Serves on `addresses`; nothing is accepted before [`Server::start`].
    pub(crate) fn new(
        fixed: Fixed,
        addresses: Vec<net::listen::Listening>,
        devices: Vec<FileDevice>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self { fixed: Arc::new(fixed), clock, addresses, devices, running: None, stop_delay: Duration::ZERO }
    }

    /// Writes to the request log that the manager asked whether we live.
    pub(crate) fn pong(&self) {
        self.note("ping", Status::Ok.code(), &format!("PONG {} 1.0", self.clock.now() as u64));
    }
}

impl Server for Serving {
    type Program = Arc<Captured>;

    fn compile(
        &self,
        source: &Source,
        labels: &[Label],
        parameters: &Parameters,
    ) -> Result<Compiled<Arc<Captured>>, String> {
        // Here everything is seen with our own rights.
        let stores = storage::names(&self.fixed.stores);
        compile::compile(source, labels, &stores, parameters, Jail::None)
    }

    fn state(&self) -> State {
        if self.running.is_some() { State::Running } else { State::Stopped }
    }

    fn process(&self) -> Option<u32> {
        self.running.as_ref().map(|_| std::process::id())
    }

    fn lost(&self) -> bool {
        false
    }

    fn panic(&self) -> Option<String> {
        None
    }

    fn forget_panic(&mut self, _: bool) -> bool {
        false
    }

    fn note(&self, command: &str, status: u16, reply: &str) {
        if let Some(running) = &self.running {
            running.note(command);
            running.note_reply(status, reply);
        }
    }

    fn broken(&self) -> bool {
        self.running.as_ref().is_some_and(Running::broken)
    }

    fn start(
        &mut self,
        parameters: &Parameters,
        vcls: &[Load<'_, Arc<Captured>>],
        labels: &[Label],
        active: &str,
    ) -> Result<(), String> {
        let mut running =
            Running::new(&self.fixed, std::mem::take(&mut self.devices), &self.clock, parameters)?;
        for vcl in vcls {
            running.load(vcl).map_err(|why| format!("VCL \"{}\": {why}", vcl.name))?;
        }
        running.set_labels(labels);
        running.activate(active);
        running.note("start");
        running.open(&self.addresses, parameters)?;
        running.note_reply(Status::Ok.code(), "");
        self.running = Some(running);
        Ok(())
    }

    fn stop(&mut self) {
        if let Some(running) = self.running.take() {
            running.stop();
            std::thread::sleep(std::mem::take(&mut self.stop_delay));
        }
    }

    fn load(&mut self, vcl: &Load<'_, Arc<Captured>>) -> Result<(), String> {
        self.running.as_mut().map_or(Ok(()), |running| running.load(vcl))
    }

    fn set_labels(&mut self, labels: &[Label]) {
        if let Some(running) = &mut self.running {
            running.set_labels(labels);
        }
    }

    fn activate(&mut self, name: &str) {
        if let Some(running) = &mut self.running {
            running.activate(name);
        }
    }

    fn set_warm(&mut self, name: &str, warm: bool) {
        if let Some(running) = &mut self.running {
            running.set_warm(name, warm);
        }
    }

    fn discard(&mut self, name: &str) {
        if let Some(running) = &mut self.running {
            running.discard(name);
        }
    }

    fn users(&self, name: &str) -> usize {
        self.running.as_ref().map_or(0, |running| running.users(name))
    }

    fn lingering(&self) -> Vec<(String, usize)> {
        self.running.as_ref().map_or_else(Vec::new, Running::lingering)
    }

    fn apply(&mut self, parameters: &Parameters) {
        if let Some(running) = &self.running {
            running.apply(parameters);
        }
    }

    fn backends(&self) -> Vec<Backend> {
        self.running.as_ref().map_or_else(Vec::new, Running::backends)
    }

    fn set_health(&mut self, vcl: &str, backend: &str, health: AdminHealth) {
        if let Some(running) = &self.running {
            running.set_health(vcl, backend, health);
        }
    }

    fn ban(&mut self, words: &[String]) -> Result<(), String> {
        self.running.as_ref().map_or(Ok(()), |running| running.ban(words))
    }

    fn bans(&self) -> Vec<Ban> {
        self.running.as_ref().map_or_else(Vec::new, Running::bans)
    }

    fn explain(&self, question: &Question) -> Result<String, String> {
        let running = self.running.as_ref().ok_or("Child not running")?;
        explain::explain(running, &self.addresses, question)
    }

    fn storages(&self) -> Vec<Storage> {
        Storage::rows(&self.fixed.stores)
    }

    fn storage_states(&self) -> Vec<StorageState> {
        self.running.as_ref().map_or_else(Vec::new, Running::storage_states)
    }

    fn drain(&mut self, store: usize, device: usize, on: bool) -> Result<(), String> {
        self.running.as_ref().map_or(Ok(()), |running| running.drain(store, device, on))
    }

    fn listening(&self) -> Vec<Listening> {
        Listening::rows(&self.addresses)
    }

    fn panic_worker(&mut self) {
        panic!("You asked for it: debug.panic.worker");
    }

    fn xid(&mut self, last: Option<u32>, chunk: Option<u32>) -> (u32, u32) {
        self.running.as_ref().map_or((0, 0), |running| running.xid(last, chunk))
    }

    fn reseed(&mut self, seed: u32) {
        if let Some(running) = &self.running {
            running.reseed(seed);
        }
    }

    fn fragment(&mut self, piece_max: u32) {
        if let Some(running) = &self.running {
            running.fragment(piece_max as usize);
        }
    }

    fn fail(&mut self, bits: u64) {
        if let Some(running) = &self.running {
            running.fail(bits);
        }
    }

    fn delay_stop(&mut self, delay: Duration) {
        self.stop_delay = delay;
    }

    fn tick(&mut self) {
        if let Some(running) = &mut self.running {
            running.tick();
        }
    }
}
