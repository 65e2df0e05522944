//! The upkeep thread: probes, and the housekeeping of [`threads`].

use super::threads::{self, Parts};
use crate::log;
use copal_base::clock::Clock;
use copal_net as net;
use copal_observe as observe;
use copal_origin as origin;
use net::worker::{Stop, Worker};
use observe::{Kind, LogWriter, Tag};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Notify;

/// A backend to probe until told otherwise.
pub(super) struct Job {
    pub(super) backend: Arc<origin::Backend>,
    pub(super) stop: Stop,
}

/// What others leave for the thread. As many jobs wait as backends are loaded between two looks.
#[derive(Default)]
struct Desk {
    jobs: Mutex<Vec<Job>>,
    arrived: Notify,
}

/// A handle on the thread.
pub(super) struct Upkeep {
    desk: Arc<Desk>,
    stop: Stop,
    thread: Option<Worker>,
}

impl Upkeep {
    /// Starts the thread.
    ///
    /// # Errors
    /// It cannot be made.
    pub(super) fn start(parts: &Parts, shm: &Arc<observe::Worker>) -> std::io::Result<Self> {
        let (desk, stop) = (Arc::new(Desk::default()), Stop::new());
        let settings = net::worker::Settings { drain_limit: 0.0, ..net::worker::Settings::default() };
        let (parts, shm) = (parts.clone(), Arc::clone(shm));
        let (jobs, ended) = (Arc::clone(&desk), stop.clone());
        let main = move || async move {
            let (clock, writer) = (Arc::clone(&parts.shared.clock), parts.log.clone());
            let keeping = threads::keep_house(parts, shm, ended);
            tokio::select! {
                () = take_jobs(&jobs, &clock, &writer) => {}
                () = keeping => {}
            }
        };
        let thread = net::worker::spawn("upkeep", None, &settings, &stop, main)?;
        Ok(Self { desk, stop, thread: Some(thread) })
    }

    /// Begins to probe a backend.
    pub(super) fn give(&self, job: Job) {
        self.desk.jobs.lock().unwrap_or_else(PoisonError::into_inner).push(job);
        self.desk.arrived.notify_one();
    }

    /// Whether the thread is gone, which only a panic makes it.
    pub(super) fn is_broken(&self) -> bool {
        self.thread.as_ref().is_none_or(Worker::ended)
    }

    /// Ends the thread.
    pub(super) fn stop(self) {
        drop(self);
    }
}

impl Drop for Upkeep {
    fn drop(&mut self) {
        self.stop.request();
        if let Some(thread) = self.thread.take()
            && !thread.join()
        {
            log::error("upkeep panicked", &[]);
        }
    }
}

async fn take_jobs(desk: &Desk, clock: &Arc<dyn Clock>, writer: &LogWriter) {
    loop {
        let jobs = std::mem::take(&mut *desk.jobs.lock().unwrap_or_else(PoisonError::into_inner));
        for Job { backend, stop } in jobs {
            let writer = writer.clone();
            let report = move |report: &origin::probe::Report| {
                writer.record(Tag::Backend_health, 0, Kind::Raw, report.to_string().as_bytes());
            };
            net::worker::task(origin::probe::run(backend, Arc::clone(clock), stop, report));
        }
        desk.arrived.notified().await;
    }
}
