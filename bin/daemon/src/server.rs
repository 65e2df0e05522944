//! The one interface between managing and serving: what the manager may ask of whatever serves clients.
//!
//! The two are two processes. [`Server`] is implemented on both sides: by [`Remote`](crate::remote::Remote), which asks the worker
//! over a pipe ([`link`](crate::link)), and there by [`Serving`](crate::serving::Serving), which does it. So all that passes is plain
//! data, or a program that the other side makes again from all that it was made from.

use crate::bytes_as_text;
use crate::parameters::Parameters;
use crate::storage::Spec;
use copal_base as base;
use copal_net as net;
use net::Endpoint;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::time::Duration;

/// A VCL as text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Source {
    /// What messages call it: a file's path, or `<vcl.inline>`.
    pub(crate) name: String,
    /// The text; need not be UTF-8.
    #[serde(with = "bytes_as_text")]
    pub(crate) text: Vec<u8>,
}

/// A VCL that the compiler accepts.
#[derive(Clone, Debug)]
pub(crate) struct Compiled<Program> {
    /// What runs.
    pub(crate) program: Program,
    /// All files it was made of, name and text: the first is the user's, the built-in VCL is the last.
    pub(crate) sources: Vec<Source>,
    /// The modules that it imports, in the order of the source.
    pub(crate) modules: Vec<String>,
    /// The labels that it hands requests to.
    pub(crate) labels: Vec<String>,
    /// What the compiler found odd; empty if nothing.
    pub(crate) warnings: String,
}

/// A VCL to be taken into service.
#[derive(Debug)]
pub(crate) struct Load<'a, Program> {
    /// Its name.
    pub(crate) name: &'a str,
    /// What runs.
    pub(crate) program: &'a Program,
    /// Whether its backends are to be kept ready (probed).
    pub(crate) warm: bool,
}

/// A name that stands for a VCL in `return (vcl(name))`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Label {
    /// The name.
    pub(crate) name: String,
    /// The VCL, one that is loaded.
    pub(crate) vcl: String,
}

/// What an operator said of a backend's health.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum AdminHealth {
    /// Nothing: its probe, if it has one, decides.
    Auto,
    /// It is well.
    Healthy,
    /// It is not.
    Sick,
}

/// A backend or director, for `backend.list`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Backend {
    /// The VCL it belongs to.
    pub(crate) vcl: String,
    /// Its name there.
    pub(crate) name: String,
    /// `backend`, or the kind of director.
    pub(crate) kind: String,
    /// What the operator said.
    pub(crate) admin: AdminHealth,
    /// Good of how many: probes, or a director's backends. `None` without probe.
    pub(crate) probe: Option<(u64, u64)>,
    /// Whether it would be used, the operator aside.
    pub(crate) healthy: bool,
    /// When that last changed.
    pub(crate) changed: base::Time,
    /// What `-p` adds: whole lines.
    pub(crate) details: Vec<String>,
    /// What `-p` adds in JSON: an object; empty for a director that has nothing to add.
    pub(crate) details_json: String,
}

/// A ban, for `ban.list`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Ban {
    /// When it was issued.
    pub(crate) time: base::Time,
    /// Objects tested up to this one and no further.
    pub(crate) objects: u64,
    /// No object needs to be tested against it any more.
    pub(crate) completed: bool,
    /// Its conditions.
    pub(crate) spec: String,
}

/// A request to be explained.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Question {
    /// Its method.
    pub(crate) method: String,
    /// Its target.
    pub(crate) target: String,
    /// Its fields: names and values that may be sent.
    pub(crate) fields: Vec<(String, String)>,
    /// Who sends it.
    pub(crate) client: IpAddr,
    /// Whether the answer is to be JSON.
    pub(crate) json: bool,
}

/// A store, for `storage.list`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Storage {
    /// Its name.
    pub(crate) name: String,
    /// Its kind.
    pub(crate) kind: String,
    /// What it is kept on; nothing for memory.
    pub(crate) devices: Vec<StorageDevice>,
}

/// What a store is kept on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StorageDevice {
    /// The tier that it belongs to; empty where there are none.
    pub(crate) tier: String,
    /// Where it is.
    pub(crate) path: String,
}

/// What a store, or a device of one, holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Holding {
    /// Bytes that it may keep; `None` if there is no limit.
    pub(crate) size: Option<u64>,
    /// Bytes that it keeps.
    pub(crate) used: u64,
    /// Objects in memory; `None` for a device.
    pub(crate) objects: Option<u64>,
    /// Objects known, in memory or not; `None` where there are no others.
    pub(crate) entries: Option<u64>,
    /// In a word, whether it can be used.
    pub(crate) health: String,
}

/// What a store holds now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StorageState {
    /// All of it.
    pub(crate) whole: Holding,
    /// Its devices, in the order of [`Storage::devices`].
    pub(crate) devices: Vec<Holding>,
}

impl Storage {
    /// A row for each store.
    pub(crate) fn rows(specs: &[Spec]) -> Vec<Self> {
        let row = |spec: &Spec| Self {
            name: spec.name.clone(),
            kind: spec.word.clone(),
            devices: spec.places().into_iter().map(|(tier, path)| StorageDevice { tier, path }).collect(),
        };
        specs.iter().map(row).collect()
    }
}

/// An address that clients connect to, for `debug.listen_address`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listening {
    /// The name given with `-a`.
    pub(crate) name: String,
    /// The address or path.
    pub(crate) address: String,
    /// The port; `None` for a Unix socket.
    pub(crate) port: Option<u16>,
}

impl Listening {
    /// One row for each address.
    pub(crate) fn rows(addresses: &[net::listen::Listening]) -> Vec<Self> {
        let row = |from: &net::listen::Listening| {
            let (address, port) = match &from.endpoint {
                Endpoint::Tcp(address) => (address.ip().to_string(), Some(address.port())),
                Endpoint::Unix(path) => (path.display().to_string(), None),
            };
            Self { name: from.name.clone(), address, port }
        };
        addresses.iter().map(row).collect()
    }
}

/// How it is with the worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// There is none.
    Stopped,
    /// It is being started.
    Starting,
    /// It serves.
    Running,
    /// It is being stopped.
    Stopping,
}

impl State {
    /// The word that `status` says.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Stopped => "stopped",
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Stopping => "stopping",
        }
    }
}

/// Whatever serves clients. Calls come from one thread; those that take long say so.
pub(crate) trait Server {
    /// A compiled VCL.
    type Program: Clone;

    /// Compiles `source`, in which `labels` are known. Reads the files it includes.
    ///
    /// # Errors
    /// The compiler's message, which may have several lines.
    fn compile(
        &self,
        source: &Source,
        labels: &[Label],
        parameters: &Parameters,
    ) -> Result<Compiled<Self::Program>, String>;

    /// How it is.
    fn state(&self) -> State;

    /// Whether clients are being served.
    fn running(&self) -> bool {
        self.state() == State::Running
    }

    /// The process that serves, while there is one.
    fn process(&self) -> Option<u32>;

    /// Whether the worker did not answer since this was last asked: what the methods gave meanwhile is nothing. It is then
    /// ended, and [`Server::broken`] comes to be true.
    fn lost(&self) -> bool;

    /// The last report of a panic or of a worker's death, unless it was forgotten.
    fn panic(&self) -> Option<String>;

    /// Forgets that report; says whether there was one. With `counts`, its counters begin anew, too.
    fn forget_panic(&mut self, counts: bool) -> bool;

    /// Writes a command that only asked something, and its reply, to the request log. Only while running.
    fn note(&self, command: &str, status: u16, reply: &str);

    /// Whether something that serves has ended by itself, so that serving must be begun anew.
    fn broken(&self) -> bool;

    /// Begins to serve with these VCLs and labels, `active` one of the VCLs. Resolves host names, which may take long.
    ///
    /// # Errors
    /// What could not be had; then nothing runs.
    fn start(
        &mut self,
        parameters: &Parameters,
        vcls: &[Load<'_, Self::Program>],
        labels: &[Label],
        active: &str,
    ) -> Result<(), String>;

    /// Stops serving: no new connections, and requests under way get a bounded time, which this waits for. Does nothing
    /// where nothing runs.
    fn stop(&mut self);

    /// Takes another VCL into service. Only while running. Resolves host names, which may take long.
    ///
    /// # Errors
    /// Why it cannot be used; then it is as if it had never been.
    fn load(&mut self, vcl: &Load<'_, Self::Program>) -> Result<(), String>;

    /// From now on, there are these labels and no others. Only while running.
    fn set_labels(&mut self, labels: &[Label]);

    /// Serves new requests with the VCL of that name, which was loaded. Only while running.
    fn activate(&mut self, name: &str);

    /// Keeps the VCL's backends ready, or lets them rest. Only while running.
    fn set_warm(&mut self, name: &str, warm: bool);

    /// Takes the VCL out of service; it goes when nobody uses it any more. Never the active one. Only while running.
    fn discard(&mut self, name: &str);

    /// How many requests and the like use the VCL.
    fn users(&self, name: &str) -> usize;

    /// VCLs that were discarded and are still in use, with the number of users.
    fn lingering(&self) -> Vec<(String, usize)>;

    /// Puts parameters into effect, as far as they can change while running.
    fn apply(&mut self, parameters: &Parameters);

    /// All backends and directors, those of one VCL together.
    fn backends(&self) -> Vec<Backend>;

    /// Notes what the operator says of a backend.
    fn set_health(&mut self, vcl: &str, backend: &str, health: AdminHealth);

    /// Adds a ban; `words` are its conditions: field, operator, argument, with `&&` between.
    ///
    /// # Errors
    /// What is wrong with it.
    fn ban(&mut self, words: &[String]) -> Result<(), String>;

    /// All bans, the newest first.
    fn bans(&self) -> Vec<Ban>;

    /// What would become of a request, as text or as a JSON object. Only while running.
    ///
    /// # Errors
    /// Why that cannot be said.
    fn explain(&self, question: &Question) -> Result<String, String>;

    /// The stores, in the order of the command line.
    fn storages(&self) -> Vec<Storage>;

    /// What they hold, in the same order; nothing while nothing runs.
    fn storage_states(&self) -> Vec<StorageState>;

    /// Takes a device of a store out of use, or into use again; they are told by their places in [`Server::storages`]. It
    /// stays so however often serving stops and begins.
    ///
    /// # Errors
    /// Why it cannot be.
    fn drain(&mut self, store: usize, device: usize, on: bool) -> Result<(), String>;

    /// Where clients connect to.
    fn listening(&self) -> Vec<Listening>;

    /// `debug.panic.worker`: lets the worker panic, to see what comes of it.
    fn panic_worker(&mut self);

    /// With `last`, the next transaction number is the one after it, and threads take `chunk` numbers at once from then on
    /// (1 if that is not given). Gives both as they are. For tests: threads that have numbers left use them up first.
    fn xid(&mut self, last: Option<u32>, chunk: Option<u32>) -> (u32, u32);

    /// `debug.srandom`: all threads draw their random numbers anew from `seed`. Only while running.
    fn reseed(&mut self, seed: u32);

    /// `debug.fragfetch`: lets bodies from backends be read at most so many bytes at a time; 0 is no bound. Only while running.
    fn fragment(&mut self, piece_max: u32);

    /// `debug.reqpool.fail`: lets the next sessions that wake up, and probes, find no room where a bit is set, the lowest being
    /// for the first of them. Only while running.
    fn fail(&mut self, bits: u64);

    /// `debug.shutdown.delay`: lets the worker wait so long, once it has stopped serving, before it says so and ends. Only
    /// while running.
    fn delay_stop(&mut self, delay: Duration);

    /// Housekeeping, a few times a second.
    fn tick(&mut self);
}
