//! A client joined with a backend, without understanding what they say.

use crate::fetch::log::FetchLog;
use crate::local::Local;
use copal_origin as origin;
use std::rc::Rc;
use std::sync::atomic::Ordering;

/// A backend connection on which the request's head was sent; from here bytes are copied both ways.
#[derive(Debug)]
pub struct Pipe {
    /// The connection; it is not used for anything else afterwards.
    pub connection: origin::Connection,
    /// Counts it while it lasts.
    pub(crate) _slot: Slot,
    /// Its end is logged when it comes.
    pub(crate) _log: PipeLog,
}

/// The records of a pipe's backend side.
pub(crate) struct PipeLog(pub(crate) FetchLog);

impl std::fmt::Debug for PipeLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PipeLog")
    }
}

impl Drop for PipeLog {
    fn drop(&mut self) {
        self.0.closed("Piped transaction");
    }
}

/// One pipe among those that `pipe_sess_max` allows.
pub(crate) struct Slot(Rc<Local>);

impl std::fmt::Debug for Slot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Slot")
    }
}

impl Slot {
    /// A slot, or `None` if all are taken.
    pub(crate) fn take(local: &Rc<Local>, most: u64) -> Option<Self> {
        let taken = local.shared.pipes.fetch_add(1, Ordering::Relaxed);
        local.counters.n_pipe.inc();
        let slot = Self(Rc::clone(local));
        if most > 0 && taken >= most {
            local.counters.pipe_limited.inc();
            return None;
        }
        Some(slot)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.shared.pipes.fetch_sub(1, Ordering::Relaxed);
        self.0.counters.n_pipe.dec();
    }
}
