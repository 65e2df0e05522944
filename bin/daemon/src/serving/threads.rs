//! Worker threads that are started and stopped, and the housekeeping of what they share.

use super::budget::Budget;
use crate::log;
use base::{Live, LiveReader};
use catalog::sweep::{Expired, Sweeper};
use copal_base as base;
use copal_cache as cache;
use copal_catalog as catalog;
use copal_front as front;
use copal_net as net;
use copal_observe as observe;
use copal_origin as origin;
use copal_store as store;
use net::listen::{Listening, Statistics};
use net::worker::{Stop, Worker};
use observe::{Counters, Kind, Tag};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// How long the sweeper rests between two steps of a round.
const SWEEP: Duration = Duration::from_millis(20);

/// How often a round begins at most, and how often is counted for the readers of counters.
const COUNT: Duration = Duration::from_millis(200);

/// What a worker thread is made of. Cheap to clone.
#[derive(Clone)]
pub(super) struct Parts {
    /// The cache.
    pub(super) shared: Arc<cache::Shared>,
    /// Parameters of client connections.
    pub(super) front: Arc<Live<front::Settings>>,
    /// Parameters of origin connections.
    pub(super) origin: Arc<Live<origin::Settings>>,
    /// Unused connections to origins, for all threads.
    pub(super) shelves: Arc<origin::Shelves>,
    /// The log and the counters.
    pub(super) log: observe::LogWriter,
    /// Counters.
    pub(super) counters: Arc<observe::CounterSet>,
    /// Connections that could not be accepted.
    pub(super) failures: Arc<Statistics>,
    /// Parameter `memory_max`.
    pub(super) memory_max: Arc<AtomicU64>,
}

/// Running worker threads.
pub(super) struct Threads {
    workers: Vec<Worker>,
    stop: Stop,
}

impl Threads {
    /// Starts one worker for each CPU of the process, on copies of the sockets in `addresses`.
    ///
    /// # Errors
    /// In words, what could not be made.
    pub(super) fn start(
        parts: &Parts,
        addresses: &[Listening],
        settings: &net::worker::Settings,
    ) -> Result<Self, String> {
        let mut threads = Self { workers: Vec::new(), stop: Stop::new() };
        for (index, cpu) in net::worker::cpus().into_iter().enumerate() {
            if let Err(why) = threads.add(parts, addresses, settings, index, cpu) {
                threads.stop();
                return Err(why);
            }
        }
        Ok(threads)
    }

    fn add(
        &mut self,
        parts: &Parts,
        addresses: &[Listening],
        settings: &net::worker::Settings,
        index: usize,
        cpu: usize,
    ) -> Result<(), String> {
        let entrances = entrances(addresses, index, &parts.failures)?;
        let worker = spawn(parts, index, cpu, entrances, settings, &self.stop)
            .map_err(|error| format!("worker thread {index}: {error}"))?;
        self.workers.push(worker);
        Ok(())
    }

    /// How many threads serve.
    pub(super) fn threads(&self) -> usize {
        self.workers.len()
    }

    /// Whether a thread ended by itself, which only a panic makes it do.
    pub(super) fn is_broken(&self) -> bool {
        self.workers.iter().any(Worker::ended)
    }

    /// Lets running requests end, within the drain limit, and waits for that. True if no thread had panicked.
    pub(super) fn stop(self) -> bool {
        self.stop.request();
        self.workers.into_iter().map(Worker::join).fold(true, |all, fine| all & fine)
    }
}

/// Copies of the sockets that belong to worker `index`.
fn entrances(
    addresses: &[Listening],
    index: usize,
    failures: &Arc<Statistics>,
) -> Result<Vec<front::Entrance>, String> {
    addresses
        .iter()
        .map(|listening| {
            let socket = &listening.listeners[index % listening.listeners.len()];
            let listener = socket
                .duplicate()
                .map_err(|error| format!("listener {} at {}: {error}", listening.name, listening.endpoint))?;
            Ok(front::Entrance {
                name: listening.name.clone(),
                endpoint: listening.endpoint.to_string(),
                protocol: listening.protocol,
                listener,
                failures: Arc::clone(failures),
            })
        })
        .collect()
}

fn spawn(
    parts: &Parts,
    index: usize,
    cpu: usize,
    entrances: Vec<front::Entrance>,
    settings: &net::worker::Settings,
    stop: &Stop,
) -> std::io::Result<Worker> {
    let parts = parts.clone();
    let signal = stop.clone();
    net::worker::spawn(&format!("cache-{index}"), Some(cpu), settings, stop, move || async move {
        let stripe = match parts.counters.stripe() {
            Ok(stripe) => stripe,
            Err(error) => {
                log::error("counters", &[("thread", &index), ("error", &error)]);
                return;
            }
        };
        stripe.threads.inc();
        stripe.threads_created.inc();
        let pools = origin::Pools::among(&parts.origin, &parts.shelves);
        let seed = seed(index);
        let local = Rc::new(cache::Local::new(&parts.shared, stripe, parts.log.clone(), pools, seed));
        let settings: LiveReader<front::Settings> = parts.front.reader();
        front::Front::new(Rc::clone(&local), settings).run(entrances, signal).await;
        local.counters.threads.dec();
    })
}

/// A seed unlike that of other threads and starts; for choices, not for secrets.
fn seed(index: usize) -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(index) | 1
}

/// The longest rest of the lurker between two looks at its parameters.
const LURKER_REST: f64 = 0.2;

/// Tests objects against bans in the background, for ever.
async fn lurk(parts: &Parts) {
    let mut lurker = catalog::ban::Lurker::default();
    let mut killed = |object: &store::Object, how: &'static str| {
        let text = format!("{} {how}", object.vxid());
        parts.log.record(Tag::ExpBan, 0, Kind::Raw, text.as_bytes());
    };
    let mut rest_until = 0.0;
    loop {
        let now = parts.shared.now();
        if now >= rest_until {
            let pace = parts.shared.settings.get().ban_lurker;
            rest_until = now + lurker.step(&parts.shared.index, now, &pace, &mut killed);
        }
        let rest = (rest_until - parts.shared.now()).clamp(0.0, LURKER_REST);
        tokio::time::sleep(Duration::from_secs_f64(rest)).await;
    }
}

/// Expires objects, tests bans in the background and counts what the threads do not, until `stop`.
pub(super) async fn keep_house(parts: Parts, shm: Arc<observe::Worker>, stop: Stop) {
    let mut gauges = Gauges::new(&parts);
    let mut budget = Budget::default();
    let mut count = || {
        budget.keep(&parts);
        gauges.update(&parts);
        shm.merge(parts.shared.now());
    };
    tokio::select! {
        () = lurk(&parts) => {}
        () = sweep(&parts, &mut count) => {}
        () = stop.wait() => {}
    }
    count();
}

/// Expires objects, round after round, and has all counted meanwhile, for ever.
async fn sweep(parts: &Parts, count: &mut impl FnMut()) {
    let control = parts.counters.control();
    let mut expired = |expired: &Expired<'_>| {
        control.n_expired.add_shared(1);
        if parts.log.mask().has(Tag::ExpKill) {
            let text = expired.record("EXP_Expired");
            parts.log.record(Tag::ExpKill, 0, Kind::Raw, text.as_bytes());
        }
    };
    let mut sweeper = Sweeper::default();
    let mut next_count = Instant::now();
    loop {
        let around = sweeper.step(&parts.shared.index, parts.shared.now(), &mut expired);
        if Instant::now() >= next_count {
            count();
            next_count = Instant::now() + COUNT;
        }
        let next_step = if around { next_count } else { Instant::now() + SWEEP };
        tokio::time::sleep_until(next_step).await;
    }
}

/// Counters that are read off the stores and the index.
struct Gauges {
    stores: Vec<StoreGauges>,
}

/// Those of one store, and whether it was said that it has failed.
struct StoreGauges {
    section: StoreSection,
    /// Those of its devices.
    devices: Vec<observe::Live<observe::Dev>>,
    is_damaged: bool,
}

enum StoreSection {
    Memory(observe::Live<observe::Sma>),
    File(observe::Live<observe::Smf>),
}

impl Gauges {
    fn new(parts: &Parts) -> Self {
        let stores =
            parts.shared.stores.all().filter_map(|store| StoreGauges::new(parts, &**store)).collect();
        Self { stores }
    }

    fn update(&mut self, parts: &Parts) {
        let control = parts.counters.control();
        let (mut evicted, mut moved, mut objects) = (0, 0, 0);
        for (store, gauges) in parts.shared.stores.all().zip(&mut self.stores) {
            let statistics = store.statistics();
            gauges.update(&**store, &statistics);
            evicted += statistics.evicted;
            moved += statistics.moved;
            objects += statistics.objects;
        }
        control.n_lru_nuked.set(evicted);
        control.n_lru_moved.set(moved);
        control.n_objecthead.set(parts.shared.index.key_count());
        let cold = if parts.shared.index.has_devices() { parts.shared.index.cold_count() } else { 0 };
        control.n_object.set(objects + cold);
        control.n_objectcore.set(objects + cold);
        count_index(parts);
        count_failures(control, &parts.failures);
        count_bans(control, &parts.shared.bans);
        count_keys(parts.counters.keys(), &parts.shared.index.tags);
    }
}

impl StoreGauges {
    fn new(parts: &Parts, store: &dyn store::Engine) -> Option<Self> {
        let (name, counters) = (store.name(), &parts.counters);
        let section = match store.statistics().file {
            None => counters.memory_store(name).map(StoreSection::Memory),
            Some(_) => counters.file_store(name).map(StoreSection::File),
        };
        match section {
            Ok(section) => Some(Self { section, devices: device_sections(parts, store), is_damaged: false }),
            Err(error) => {
                log::error("counters", &[("store", &name), ("error", &error)]);
                None
            }
        }
    }

    fn update(&mut self, store: &dyn store::Engine, now: &store::Statistics) {
        match &self.section {
            StoreSection::Memory(section) => {
                section.c_req.set(now.requests);
                section.c_fail.set(now.failures);
                section.c_bytes.set(now.bytes_total);
                section.c_freed.set(now.bytes_freed);
                section.g_alloc.set(now.objects);
                section.g_bytes.set(now.bytes);
                section.g_space.set(now.space);
            }
            StoreSection::File(section) => {
                let file = now.file.unwrap_or_default();
                section.c_req.set(file.requests);
                section.c_fail.set(file.failures);
                section.c_bytes.set(file.bytes_total);
                section.c_freed.set(file.bytes_freed);
                section.g_alloc.set(file.extents);
                section.g_bytes.set(file.bytes);
                section.g_space.set(file.space);
                section.g_smf.set(file.extents + file.free_small + file.free_large);
                section.g_smf_frag.set(file.free_small);
                section.g_smf_large.set(file.free_large);
            }
        }
        if !self.devices.is_empty() {
            let report = store.report();
            self.devices
                .iter()
                .zip(&report.devices)
                .for_each(|(section, device)| count_device(section, device));
        }
        if store.health() == store::Health::Failed && !std::mem::replace(&mut self.is_damaged, true) {
            log::error("a store's device has failed, it is taken out of use", &[("store", &store.name())]);
        }
        store.tend();
    }
}

/// Counters of each device of `store`; of one that cannot have them, none of those behind it has any.
fn device_sections(parts: &Parts, store: &dyn store::Engine) -> Vec<observe::Live<observe::Dev>> {
    let sections = (0..store.devices().len()).map_while(|number| {
        let section = parts.counters.device(store.name(), number);
        section
            .inspect_err(|error| log::error("counters", &[("store", &store.name()), ("error", error)]))
            .ok()
    });
    sections.collect()
}

fn count_device(section: &observe::Dev, device: &store::DeviceReport) {
    let log = &device.log;
    section.tier.set(device.tier as u64);
    section.healthy.set(u64::from(device.health == store::Health::Good));
    section.g_entries.set(device.entries);
    section.g_bytes.set(device.used);
    section.g_space.set(device.size.saturating_sub(device.used));
    section.g_unwritten.set(device.unwritten);
    section.c_written.set(log.written);
    section.c_written_bytes.set(log.written_bytes);
    section.c_device_bytes.set(log.device_written_bytes);
    section.c_reinserted.set(log.reinserted);
    section.c_evicted.set(log.evicted);
    section.c_regions.set(log.regions_evicted);
    section.c_read.set(log.opened);
    section.c_read_bytes.set(log.device_read_bytes);
    section.c_read_fail.set(log.read_errors);
    section.c_damaged.set(log.damaged);
    section.c_scrubbed.set(log.scrubbed);
    section.c_journal.set(log.journal_syncs);
    section.c_checkpoint.set(log.checkpoints);
    section.g_bans.set(log.bans);
}

/// What need not be counted where it happens, because it follows from what is.
fn count_index(parts: &Parts) {
    let (control, counters) = (parts.counters.control(), &parts.counters);
    // Each of these is a lookup, and none but these.
    let found = counters.total(|stripe| &stripe.cache_hit) + counters.total(|stripe| &stripe.cache_hitpass);
    let lookups =
        found + counters.total(|stripe| &stripe.cache_miss) + counters.total(|stripe| &stripe.n_purges);
    control.hcb_nolock.set(lookups);
    // varnishd's expiry hears of each object that comes, and of each that goes by other means than expiry.
    let heard = parts.shared.index.moves().saturating_sub(control.n_expired.get());
    control.exp_mailed.set(heard);
    control.exp_received.set(heard);
}

/// Once no VCL ever had the module, there is nothing to look at.
fn count_keys(section: &observe::Xkey, tags: &catalog::index::tags::Tags) {
    if !tags.are_wanted() {
        return;
    }
    let counts = tags.counts();
    section.g_keys.set(counts.keys);
    section.g_hashhead_bytes.set(counts.key_bytes);
    section.g_oc_bytes.set(counts.link_bytes);
    section.g_bytes.set(counts.key_bytes + counts.link_bytes);
}

fn count_failures(control: &Counters, failures: &Statistics) {
    let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let (aborted, files) = (load(&failures.aborted), load(&failures.no_descriptors));
    let (memory, other) = (load(&failures.no_memory), load(&failures.other));
    control.sess_fail.set(aborted + files + memory + other);
    control.sess_fail_econnaborted.set(aborted);
    control.sess_fail_emfile.set(files);
    control.sess_fail_enomem.set(memory);
    control.sess_fail_other.set(other);
}

fn count_bans(control: &Counters, bans: &catalog::ban::Bans) {
    let bans = bans.counts();
    control.bans.set(bans.bans);
    control.bans_completed.set(bans.completed);
    control.bans_obj.set(bans.obj);
    control.bans_req.set(bans.req);
    control.bans_added.set(bans.added);
    control.bans_deleted.set(bans.deleted);
    control.bans_tested.set(bans.tested);
    control.bans_obj_killed.set(bans.obj_killed);
    control.bans_lurker_tested.set(bans.lurker_tested);
    control.bans_tests_tested.set(bans.tests_tested);
    control.bans_lurker_tests_tested.set(bans.lurker_tests_tested);
    control.bans_lurker_obj_killed.set(bans.lurker_obj_killed);
    control.bans_lurker_obj_killed_cutoff.set(bans.lurker_obj_killed_cutoff);
    control.bans_lurker_contention.set(bans.lurker_contention);
    control.bans_persisted_bytes.set(bans.bytes);
    control.bans_dups.set(bans.dups);
}
