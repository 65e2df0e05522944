//! Between manager and worker: what is asked and answered over their pipe.
//!
//! ```text
//! manager: Management > Remote --- descriptors, then frames: Ask ---> worker: worker > Serving
//!                              <------------- Answer --------------
//! ```
//! Each method of [`Server`](crate::server::Server) that concerns a running worker is an [`Ask`] here; to add one, add it
//! there, here, in [`Remote`](crate::remote::Remote) and in [`worker`](crate::worker). The manager asks, and waits for the answer;
//! the worker never speaks unasked. Both are the same program, so the format need not last.

pub(crate) mod descriptors;
pub(crate) mod frame;

use crate::compile::Captured;
use crate::parameters::Setting;
use crate::server::{AdminHealth, Backend, Ban, Label, Question, StorageState};
use crate::storage::Spec;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// A VCL to be taken into service.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Vcl {
    /// Its name.
    pub(crate) name: String,
    /// All it is made from.
    pub(crate) captured: Captured,
    /// Whether its backends are to be kept ready.
    pub(crate) warm: bool,
}

/// An address that is listened on; its sockets came before.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Address {
    /// The name given with `-a`.
    pub(crate) name: String,
    /// Whether clients send a PROXY header first.
    pub(crate) proxy: bool,
    /// The address, of TCP or of a Unix socket.
    pub(crate) endpoint: Endpoint,
    /// How many of the sockets are its.
    pub(crate) sockets: usize,
}

/// Where a [`Address`] is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Endpoint {
    /// TCP.
    Tcp(std::net::SocketAddr),
    /// A path or an abstract name.
    Unix(PathBuf),
}

/// All that a worker needs to begin.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Start {
    /// The work directory.
    pub(crate) directory: PathBuf,
    /// `server.identity`.
    pub(crate) identity: String,
    /// `server.hostname`.
    pub(crate) hostname: String,
    /// The stores; descriptors of their devices came behind the sockets.
    pub(crate) stores: Vec<Spec>,
    /// `-o recover`.
    pub(crate) recover: bool,
    /// Devices that are out of use, by their places: store, device.
    pub(crate) draining: Vec<(usize, usize)>,
    /// The addresses, in the order of their sockets.
    pub(crate) addresses: Vec<Address>,
    /// Parameters that are not at their default.
    pub(crate) parameters: Vec<Setting>,
    /// The VCLs.
    pub(crate) vcls: Vec<Vcl>,
    /// The labels.
    pub(crate) labels: Vec<Label>,
    /// The VCL that serves.
    pub(crate) active: String,
}

/// What the manager asks for. All but `Start` want a worker that has started.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[allow(missing_docs, reason = "each is the method of `Server` of that name")]
pub(crate) enum Ask {
    Start(Box<Start>),
    Stop,
    Ping,
    Load(Vcl),
    SetLabels(Vec<Label>),
    Activate(String),
    SetWarm {
        name: String,
        warm: bool,
    },
    Discard(String),
    Users(String),
    Lingering,
    Apply(Vec<Setting>),
    Backends,
    StorageStates,
    Drain {
        store: usize,
        device: usize,
        on: bool,
    },
    SetHealth {
        vcl: String,
        backend: String,
        health: AdminHealth,
    },
    Ban(Vec<String>),
    Bans,
    Explain(Question),
    Xid {
        last: Option<u32>,
        chunk: Option<u32>,
    },
    Reseed(u32),
    Fragment(u32),
    Fail(u64),
    /// Seconds.
    DelayStop(f64),
    /// `debug.panic.worker`; there is no answer.
    Panic,
    Note {
        command: String,
        status: u16,
        reply: String,
    },
}

/// What the worker answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// It is done.
    Done,
    /// It is not, and why.
    Failed(String),
    /// To `Users`.
    Users(usize),
    /// To `Lingering`.
    Lingering(Vec<(String, usize)>),
    /// To `Backends`.
    Backends(Vec<Backend>),
    /// To `StorageStates`.
    StorageStates(Vec<StorageState>),
    /// To `Bans`.
    Bans(Vec<Ban>),
    /// To `Explain`.
    Explained(String),
    /// To `Xid`.
    Xid(u32, u32),
}

impl Answer {
    /// The outcome of something that may fail.
    pub(crate) fn of(result: Result<(), String>) -> Self {
        match result {
            Ok(()) => Self::Done,
            Err(why) => Self::Failed(why),
        }
    }
}
