//! The data plane as management sees it: sockets that are bound once, worker threads that are started and stopped, and
//! the housekeeping of what they share.

use base::LiveReader;
use base::Live;
use copal_base as base;
use copal_cache as cache;
use copal_front as front;
use copal_net as net;
use copal_observe as observe;
use copal_origin as origin;
use copal_store as store;
use cache::sweep::Sweeper;
use net::listen::{Listening, Statistics};
use net::worker::{Stop, Worker};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use store::Engine as _;

/// How often the sweeper looks at the next objects.
const SWEEP: Duration = Duration::from_millis(20);

/// How many sweeps between two counts for the readers of counters.
const COUNT_EVERY: u32 = 10;

/// What a worker thread is made of. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Plant {
    /// The cache.
    pub(crate) shared: Arc<cache::Shared>,
    /// Parameters of client connections.
    pub(crate) front: Arc<Live<front::Settings>>,
    /// Parameters of origin connections.
    pub(crate) origin: Arc<Live<origin::Settings>>,
    /// The log and the counters.
    pub(crate) log: observe::LogWriter,
    /// Counters.
    pub(crate) counters: Arc<observe::CounterSet>,
}

/// Running worker threads.
pub(crate) struct Serving {
    workers: Vec<Worker>,
    stop: Stop,
}

impl Serving {
    /// Starts one worker for each CPU of the process, on copies of the sockets in `doors`.
    ///
    /// # Errors
    /// In words, what could not be made.
    pub(crate) fn start(
        plant: &Plant,
        doors: &[Listening],
        settings: &net::worker::Settings,
        failures: &Arc<Statistics>,
    ) -> Result<Self, String> {
        let stop = Stop::new();
        let mut workers = Vec::new();
        for (index, cpu) in net::worker::cpus().into_iter().enumerate() {
            let entrances = entrances(doors, index, failures)?;
            let worker = spawn(plant, index, cpu, entrances, settings, &stop)
                .map_err(|error| format!("worker thread {index}: {error}"))?;
            workers.push(worker);
        }
        Ok(Self { workers, stop })
    }

    /// How many threads serve.
    pub(crate) fn threads(&self) -> usize {
        self.workers.len()
    }

    /// Whether a thread ended by itself, which only a panic makes it do.
    pub(crate) fn is_broken(&self) -> bool {
        self.workers.iter().any(Worker::ended)
    }

    /// Lets running requests end, within the drain limit, and waits for that. True if no thread had panicked.
    pub(crate) fn stop(self) -> bool {
        self.stop.request();
        self.workers.into_iter().map(Worker::join).fold(true, |all, fine| all & fine)
    }
}

/// Copies of the sockets that belong to worker `index`.
fn entrances(
    doors: &[Listening],
    index: usize,
    failures: &Arc<Statistics>,
) -> Result<Vec<front::Entrance>, String> {
    doors
        .iter()
        .map(|door| {
            let socket = &door.listeners[index % door.listeners.len()];
            let listener =
                socket.duplicate().map_err(|error| format!("listener {} at {}: {error}", door.name, door.endpoint))?;
            Ok(front::Entrance {
                name: door.name.clone(),
                endpoint: door.endpoint.to_string(),
                protocol: door.protocol,
                listener,
                failures: Arc::clone(failures),
            })
        })
        .collect()
}

fn spawn(
    plant: &Plant,
    index: usize,
    cpu: usize,
    entrances: Vec<front::Entrance>,
    settings: &net::worker::Settings,
    stop: &Stop,
) -> std::io::Result<Worker> {
    let plant = plant.clone();
    let signal = stop.clone();
    net::worker::spawn(&format!("cache-{index}"), Some(cpu), settings, stop, move || async move {
        let stripe = match plant.counters.stripe() {
            Ok(stripe) => stripe,
            Err(error) => {
                eprintln!("counters of worker thread {index}: {error}");
                return;
            }
        };
        stripe.threads.inc();
        let pools = origin::Pools::new(&plant.origin);
        let seed = seed(index);
        let local = Rc::new(cache::Local::new(&plant.shared, stripe, plant.log.clone(), pools, seed));
        let settings: LiveReader<front::Settings> = plant.front.reader();
        front::Front::new(Rc::clone(&local), settings).run(entrances, signal).await;
        local.counters.threads.dec();
    })
}

/// A seed unlike that of other threads and starts; for choices, not for secrets.
fn seed(index: usize) -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(index) | 1
}

/// Expires objects, tests bans in the background and counts what the threads do not, until `stop`.
pub(crate) async fn keep_house(plant: Plant, shm: Arc<observe::Worker>, stop: Stop) {
    let mut sweeper = Sweeper::default();
    let mut gauges = Gauges::new(&plant);
    let mut tick = tokio::time::interval(SWEEP);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut turn = 0u32;
    while !stop.requested() {
        tick.tick().await;
        let now = plant.shared.now();
        let lurk = plant.shared.settings.get().ban_lurker;
        let swept = sweeper.step(&plant.shared, now, lurk);
        let control = plant.counters.control();
        control.n_expired.add_shared(swept.expired);
        control.bans_lurker_obj_killed.add_shared(swept.banned);
        turn = turn.wrapping_add(1);
        if turn % COUNT_EVERY == 0 {
            gauges.update(&plant);
            shm.merge(now);
        }
    }
    gauges.update(&plant);
    shm.merge(plant.shared.now());
}

/// Counters that are read off the stores and the index.
struct Gauges {
    stores: Vec<observe::Live<observe::Sma>>,
}

impl Gauges {
    fn new(plant: &Plant) -> Self {
        let stores = plant
            .shared
            .stores
            .all()
            .filter_map(|store| match plant.counters.memory_store(store.name()) {
                Ok(section) => Some(section),
                Err(error) => {
                    eprintln!("counters of store {}: {error}", store.name());
                    None
                }
            })
            .collect();
        Self { stores }
    }

    fn update(&mut self, plant: &Plant) {
        let control = plant.counters.control();
        let (mut evicted, mut moved, mut objects) = (0, 0, 0);
        for (store, section) in plant.shared.stores.all().zip(&self.stores) {
            let statistics = store.statistics();
            section.c_req.set(statistics.requests);
            section.c_fail.set(statistics.failures);
            section.c_bytes.set(statistics.bytes_total);
            section.c_freed.set(statistics.bytes_freed);
            section.g_alloc.set(statistics.objects);
            section.g_bytes.set(statistics.bytes);
            section.g_space.set(statistics.space);
            evicted += statistics.evicted;
            moved += statistics.moved;
            objects += statistics.objects;
        }
        control.n_lru_nuked.set(evicted);
        control.n_lru_moved.set(moved);
        control.n_object.set(objects);
        control.n_objectcore.set(objects);
        control.n_objecthead.set(plant.shared.index.key_count());
    }
}
