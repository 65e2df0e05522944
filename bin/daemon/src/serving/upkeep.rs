//! The upkeep thread: probes, and the housekeeping of [`threads`].

use super::threads::{self, Parts};
use crate::log;
use copal_base::clock::Clock;
use copal_cache as cache;
use copal_net as net;
use copal_observe as observe;
use copal_origin as origin;
use net::worker::{Stop, Worker};
use observe::{Kind, LogWriter, Tag};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Notify;

/// Something to do beside the housekeeping.
pub(super) enum Job {
    /// A backend to probe until told otherwise.
    Probe { backend: Arc<origin::Backend>, stop: Stop },
    /// Whatever it is.
    Task(origin::maker::Task),
}

/// What others leave for the thread. As many jobs wait as backends are loaded between two looks.
#[derive(Default)]
struct Desk {
    jobs: Mutex<Vec<Job>>,
    arrived: Notify,
}

impl Desk {
    fn leave(&self, job: Job) {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner).push(job);
        self.arrived.notify_one();
    }
}

/// Logs the outcomes of probes.
fn reporter(writer: &LogWriter) -> impl Fn(&origin::probe::Report) + Send + Sync + use<> {
    let writer = writer.clone();
    move |report| writer.record(Tag::Backend_health, 0, Kind::Raw, report.to_string().as_bytes())
}

/// Lets probes be left out as planned (`debug.reqpool.fail`), and says so in the log.
fn room(parts: &Parts) -> impl Fn() -> bool + Send + Sync + use<> {
    let (schedule, writer) = (Arc::clone(&parts.shared.no_room), parts.log.clone());
    move || match schedule.attempt() {
        None => true,
        Some(left) => {
            if writer.mask().has(Tag::Debug) {
                writer.record(Tag::Debug, 0, Kind::Raw, cache::shared::no_room(left).as_bytes());
            }
            false
        }
    }
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
            let room: Arc<origin::probe::Room> = Arc::new(room(&parts));
            let keeping = threads::keep_house(parts, shm, ended);
            tokio::select! {
                () = take_jobs(&jobs, &clock, &room, &writer) => {}
                () = keeping => {}
            }
        };
        let thread = net::worker::spawn("upkeep", None, &settings, &stop, main)?;
        Ok(Self { desk, stop, thread: Some(thread) })
    }

    /// Has a job done.
    pub(super) fn give(&self, job: Job) {
        self.desk.leave(job);
    }

    /// What makes backends while requests run, for [`Parts::shared`].
    pub(super) fn maker(&self, parts: &Parts) -> Arc<origin::Maker> {
        let (counters, desk) = (Arc::clone(&parts.counters), Arc::clone(&self.desk));
        let make_counters = move |vcl: &str, name: &str| {
            let section = counters.backend(vcl, name).map_err(|error| format!("counters: {error}"))?;
            Ok(origin::Counters::Shared(section))
        };
        origin::Maker::new(
            Arc::clone(&parts.shared.clock),
            Arc::clone(&parts.origin),
            Box::new(make_counters),
            Arc::new(room(parts)),
            Arc::new(reporter(&parts.log)),
            Box::new(move |task| desk.leave(Job::Task(task))),
        )
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

async fn take_jobs(desk: &Desk, clock: &Arc<dyn Clock>, room: &Arc<origin::probe::Room>, writer: &LogWriter) {
    loop {
        let jobs = std::mem::take(&mut *desk.jobs.lock().unwrap_or_else(PoisonError::into_inner));
        for job in jobs {
            match job {
                Job::Probe { backend, stop } => {
                    let report = reporter(writer);
                    let (clock, room) = (Arc::clone(clock), Arc::clone(room));
                    net::worker::task(origin::probe::run(backend, clock, room, stop, report));
                }
                Job::Task(make) => {
                    net::worker::task(make());
                }
            }
        }
        desk.arrived.notified().await;
    }
}
