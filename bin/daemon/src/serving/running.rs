//! What lives from `start` to `stop`.

use super::threads::{Parts, Threads};
use super::upkeep::{Job, Upkeep};
use super::{Fixed, backends, host};
use crate::compile::{self, Captured};
use crate::parameters::Parameters;
use crate::server::{AdminHealth, Backend, Ban, Holding, Label, Load, StorageState};
use crate::{log, storage, wire_up};
use admin::Status;
use base::Live;
use base::clock::Clock;
use base::vxid::VxidSource;
use cache::{Shared, Stores, Vcl};
use copal_admin as admin;
use copal_base as base;
use copal_cache as cache;
use copal_catalog as catalog;
use copal_front as front;
use copal_net as net;
use copal_observe as observe;
use copal_origin as origin;
use copal_store as store;
use copal_vcl as vcl;
use net::listen::Listening;
use net::worker::Stop;
use observe::{Kind, Tag};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use store::device::FileDevice;
use store::persistent::Pace;
use store::{DeviceReport, Engine};
use vcl::instance::Instance;

/// References to a VCL that are ours and no request's: in [`Running::vcls`], and with upkeep if it is the active one.
const OWN_REFERENCES: usize = 1;

/// How often, and after which pauses, it is looked whether the threads have let go of a VCL: 150 ms in all.
const SETTLE_STEPS: u32 = 75;
const SETTLE_STEP: Duration = Duration::from_millis(2);

/// A VCL in service.
struct Service {
    vcl: Arc<Vcl>,
    /// Ends its probes; absent while it is cold.
    probing: Option<Stop>,
}

/// Everything that runs.
pub(super) struct Running {
    fixed: Arc<Fixed>,
    parts: Parts,
    /// The stores, `Transient` last.
    engines: Vec<Arc<dyn Engine>>,
    /// How often their devices are written to and looked through.
    pace: Arc<Pace>,
    services: HashMap<String, Service>,
    /// Discarded, still in use by requests.
    lingering: Vec<Arc<Vcl>>,
    threads: Option<Threads>,
    upkeep: Upkeep,
}

impl Running {
    /// Stores, shared memory and the upkeep thread; no VCL and no clients yet.
    ///
    /// # Errors
    /// What could not be made.
    pub(super) fn new(
        fixed: &Arc<Fixed>,
        devices: Vec<FileDevice>,
        clock: &Arc<dyn Clock>,
        parameters: &Parameters,
    ) -> Result<Self, String> {
        let shm = observe::Worker::create(&fixed.directory, &wire_up::log(parameters), clock.now())
            .map_err(|error| format!("shared memory in {}: {error}", fixed.directory.display()))?;
        let bans = Arc::new(catalog::ban::Bans::started_at(clock.now()));
        let tags = catalog::index::tags::Tags::new(&parameters.xkey_fields);
        let index = Arc::new(catalog::index::Index::new(Arc::clone(&bans), tags));
        let policy = wire_up::eviction(parameters);
        let pace = Arc::new(Pace::default());
        let parts = storage::build::Parts {
            devices,
            evictions: Arc::clone(&index) as _,
            policy,
            pace: Arc::clone(&pace),
            recover: fixed.recover,
        };
        let engines = storage::build::build(&fixed.stores, parts).map_err(|error| error.to_string())?;
        adopt(&index, &engines, clock.now());
        for (store, device) in &fixed.draining {
            drain(&engines, *store, *device, true)?;
        }
        let (transient, named) = engines.split_last().expect("there is always a Transient store");
        debug_assert_eq!(transient.name(), storage::TRANSIENT);
        let shared = Arc::new(Shared {
            clock: Arc::clone(clock),
            index,
            stores: Stores::new(named.to_vec(), Arc::clone(transient)),
            settings: Arc::new(Live::new(wire_up::cache(parameters, &fixed.identity, &fixed.hostname))),
            vcl: Arc::new(Live::new(None)),
            labels: Arc::default(),
            pipes: AtomicU64::new(0),
            bans,
            outages: cache::outages::Outages::default(),
            vxids: Arc::new(VxidSource::default()),
            reseed: cache::Reseed::default(),
            no_room: Arc::default(),
            range_support: cache::RangeSupport::default(),
            maker: OnceLock::new(),
        });
        let parts = Parts {
            shared,
            front: Arc::new(Live::new(wire_up::front(parameters))),
            origin: Arc::new(Live::new(wire_up::origin(parameters))),
            shelves: Arc::default(),
            log: shm.log().clone(),
            counters: Arc::clone(shm.counters()),
            failures: Arc::default(),
            memory_max: Arc::default(),
        };
        let upkeep =
            Upkeep::start(&parts, &Arc::new(shm)).map_err(|error| format!("upkeep thread: {error}"))?;
        let _ = parts.shared.maker.set(upkeep.maker(&parts));
        let running = Self {
            fixed: Arc::clone(fixed),
            parts,
            engines,
            pace,
            services: HashMap::new(),
            lingering: Vec::new(),
            threads: None,
            upkeep,
        };
        running.apply(parameters);
        Ok(running)
    }

    /// Starts a thread for each CPU, which serves its socket of each address.
    ///
    /// # Errors
    /// A thread cannot be made; those made are ended.
    pub(super) fn open(&mut self, addresses: &[Listening], parameters: &Parameters) -> Result<(), String> {
        self.threads = Some(Threads::start(&self.parts, addresses, &wire_up::worker(parameters))?);
        // All of them are one.
        self.parts.counters.control().pools.set(1);
        Ok(())
    }

    /// Writes a command to the request log.
    pub(super) fn note(&self, command: &str) {
        self.parts.log.record(Tag::CLI, 0, Kind::Raw, format!("Rd {command}").as_bytes());
    }

    /// Writes the reply to a command to the request log.
    pub(super) fn note_reply(&self, status: u16, reply: &str) {
        let text = format!("Wr {status} {} {reply}", reply.len());
        self.parts.log.record(Tag::CLI, 0, Kind::Raw, text.as_bytes());
    }

    /// Writes a command that was done.
    fn note_done(&self, command: &str) {
        self.note(command);
        self.note_reply(Status::Ok.code(), "");
    }

    /// Whether a thread is gone that should be there.
    pub(super) fn broken(&self) -> bool {
        self.upkeep.is_broken() || self.threads.as_ref().is_some_and(Threads::is_broken)
    }

    /// Makes the backends of a program, runs its `vcl_init`, starts its probes if it is to be warm.
    pub(super) fn load(&mut self, load: &Load<'_, Arc<Captured>>) -> Result<(), String> {
        let name = load.name;
        self.note(&format!("vcl.load {name} {name} {}", temperature(load.warm)));
        let loaded = self.take_in(load);
        match &loaded {
            Ok(()) => self.note_reply(Status::Ok.code(), &format!("Loaded \"{name}\" as \"{name}\"")),
            Err(why) => self.note_reply(Status::Cant.code(), why),
        }
        loaded
    }

    fn take_in(&mut self, load: &Load<'_, Arc<Captured>>) -> Result<(), String> {
        let program = compile::again(load.program)?;
        let origin = self.parts.origin.get();
        let now = self.parts.shared.now();
        let mut make = |definition: &vcl::value::BackendDefinition| {
            let counters = self
                .parts
                .counters
                .backend(load.name, &definition.name)
                .map_err(|error| format!("counters: {error}"))?;
            let counters = origin::Counters::Shared(counters);
            let backend = origin::Backend::new(definition, load.name, counters, &origin, now);
            backend.map(|backend| backend as vcl::value::BackendRef).map_err(|error| {
                // The instance names the backend itself.
                let text = error.to_string();
                text.strip_prefix(&format!("backend {}: ", definition.name)).unwrap_or(&text).to_owned()
            })
        };
        let instance = Instance::new(program, &mut make)?;
        let vcl = Arc::new(Vcl { name: load.name.to_owned(), instance });
        let mut host = host::LoadHost::new(&self.parts.shared, &vcl, &self.parts.log);
        if let Err(fault) = vcl.instance.init(&mut host) {
            return Err(host.explain(&fault));
        }
        if vcl.instance.program.imports("xkey") {
            // From now on for good: what is stored meanwhile must be found when another VCL asks for keys again.
            self.parts.shared.index.tags.set_wanted(true);
        }
        let mut service = Service { vcl, probing: None };
        match load.warm {
            true => self.start_probes(&mut service),
            false => show_counters(&service.vcl, false),
        }
        self.services.insert(load.name.to_owned(), service);
        self.show_keys();
        self.rest();
        // So that the counts of VCLs and backends are right at once.
        self.tick();
        Ok(())
    }

    fn start_probes(&self, service: &mut Service) {
        if service.probing.is_some() {
            return;
        }
        let stop = Stop::new();
        for backend in backends::leaves(&service.vcl) {
            self.upkeep.give(Job::Probe { backend, stop: stop.clone() });
        }
        for group in backends::groups(&service.vcl) {
            let stop = stop.clone();
            self.upkeep.give(Job::Task(Box::new(move || Box::pin(origin::group::run(group, stop)))));
        }
        service.probing = Some(stop);
    }

    /// Lets the threads close the connections that they keep to backends of cold VCLs alone.
    fn rest(&self) {
        let endpoints = |warm: bool| {
            let services = self.services.values().filter(move |service| service.probing.is_some() == warm);
            let backends = services.flat_map(|service| backends::all(&service.vcl));
            backends
                .flat_map(|backend| backend.endpoints().cloned().collect::<Vec<_>>())
                .collect::<HashSet<_>>()
        };
        let warm = endpoints(true);
        let resting: HashSet<_> =
            endpoints(false).into_iter().filter(|endpoint| !warm.contains(endpoint)).collect();
        if *self.parts.origin.get().resting != resting {
            self.parts.origin.update(|settings| settings.resting = Arc::new(resting));
        }
    }

    /// Waits a moment for the threads to let go of a VCL that is no longer active, so that its users are then requests.
    /// Threads look at their next request, or at their next tick, of which there are ten a second.
    fn settle(&self, name: &str) {
        for _ in 0..SETTLE_STEPS {
            if self.users(name) == 0 {
                return;
            }
            std::thread::sleep(SETTLE_STEP);
        }
    }

    /// From now on, there are these labels and no others.
    pub(super) fn set_labels(&mut self, labels: &[Label]) {
        let row = |label: &Label| {
            let service = self.services.get(&label.vcl)?;
            Some((label.name.clone(), Arc::clone(&service.vcl)))
        };
        let before = self.parts.shared.labels.get();
        self.parts.shared.labels.set(labels.iter().filter_map(row).collect());
        let freed: Vec<String> = before
            .values()
            .map(|vcl| vcl.name.clone())
            .filter(|name| !labels.iter().any(|label| &label.vcl == name))
            .collect();
        drop(before);
        freed.iter().for_each(|name| self.settle(name));
    }

    /// Serves new requests with the VCL of that name.
    pub(super) fn activate(&mut self, name: &str) {
        let Some(service) = self.services.get(name) else { return };
        let before = self.parts.shared.vcl.get().as_ref().as_ref().map(|vcl| vcl.name.clone());
        self.parts.shared.vcl.set(Some(Arc::clone(&service.vcl)));
        self.note_done(&format!("vcl.use {name}"));
        if let Some(before) = before.filter(|before| before != name) {
            self.settle(&before);
        }
    }

    /// Probes the VCL's backends, or lets them rest.
    pub(super) fn set_warm(&mut self, name: &str, warm: bool) {
        let Some(mut service) = self.services.remove(name) else { return };
        match warm {
            true => self.start_probes(&mut service),
            false => end_probes(&mut service),
        }
        show_counters(&service.vcl, warm);
        self.services.insert(name.to_owned(), service);
        self.rest();
        self.note_done(&format!("vcl.state {name} {}", temperature(warm)));
    }

    /// Takes the VCL out of service; what is left of it goes when its last request has. Where there is none, what its
    /// `vcl_fini` logs stands in the log between the command and its reply.
    pub(super) fn discard(&mut self, name: &str) {
        let Some(mut service) = self.services.remove(name) else { return };
        self.note(&format!("vcl.discard {name}"));
        end_probes(&mut service);
        show_counters(&service.vcl, false);
        self.lingering.push(service.vcl);
        self.tick();
        self.note_reply(Status::Ok.code(), "");
    }

    /// Requests and the like that use the VCL.
    pub(super) fn users(&self, name: &str) -> usize {
        self.services.get(name).map_or(0, |service| self.references(&service.vcl))
    }

    /// References that are not ours. Each thread keeps one of the active VCL, whether requests use it or not, and one of an
    /// older VCL as long as any of its requests uses that.
    fn references(&self, vcl: &Arc<Vcl>) -> usize {
        let active =
            self.parts.shared.vcl.get().as_ref().as_ref().is_some_and(|active| Arc::ptr_eq(active, vcl));
        let standing = if active { 1 + self.threads.as_ref().map_or(0, Threads::threads) } else { 0 };
        let labels = self.parts.shared.labels.get();
        let standing = standing + labels.values().filter(|labelled| Arc::ptr_eq(labelled, vcl)).count();
        Arc::strong_count(vcl).saturating_sub(OWN_REFERENCES + standing)
    }

    /// Discarded VCLs that are in use.
    pub(super) fn lingering(&self) -> Vec<(String, usize)> {
        self.lingering.iter().map(|vcl| (vcl.name.clone(), self.references(vcl))).collect()
    }

    /// Ends discarded VCLs that nobody uses any more.
    pub(super) fn tick(&mut self) {
        let (shared, log) = (&self.parts.shared, &self.parts.log);
        self.lingering.retain(|vcl| {
            let in_use = Arc::strong_count(vcl) > OWN_REFERENCES;
            if !in_use {
                vcl.instance.fini(&mut host::LoadHost::new(shared, vcl, log));
            }
            in_use
        });
        self.show_keys();
        let control = self.parts.counters.control();
        let (ready, discarded) = (self.services.len() as u64, self.lingering.len() as u64);
        let backends: usize = self
            .services
            .values()
            .map(|service| {
                let defined = service.vcl.instance.backends.iter().flatten().count();
                let groups = backends::groups(&service.vcl);
                defined + groups.iter().map(|group| group.members().len()).sum::<usize>()
            })
            .sum();
        control.n_backend.set(backends as u64);
        control.n_vcl.set(ready + discarded);
        control.n_vcl_avail.set(ready);
        control.n_vcl_discard.set(discarded);
        let vcls = self.services.values().map(|service| &service.vcl).chain(&self.lingering);
        let modules: HashSet<&str> =
            vcls.flat_map(|vcl| vcl.instance.program.modules.iter().copied()).collect();
        control.vmods.set(modules.len() as u64);
    }

    /// Shows the counters of surrogate keys as long as a VCL has the module.
    fn show_keys(&self) {
        let vcls = self.services.values().map(|service| &service.vcl).chain(&self.lingering);
        let wanted = vcls.into_iter().any(|vcl| vcl.instance.program.imports("xkey"));
        if let Err(error) = self.parts.counters.keys().set_shown(wanted) {
            log::error("counters", &[("section", &"XKEY"), ("error", &error)]);
        }
    }

    /// Puts parameters into effect.
    pub(super) fn apply(&self, parameters: &Parameters) {
        self.parts.shared.settings.set(wire_up::cache(
            parameters,
            &self.fixed.identity,
            &self.fixed.hostname,
        ));
        self.parts.shared.bans.set_dups(parameters.ban_dups);
        self.parts.shared.index.tags.set_max(parameters.xkey_max);
        let before = self.parts.front.get();
        let may_find_no_room = before.may_find_no_room;
        self.parts.front.set(front::Settings { may_find_no_room, ..wire_up::front(parameters) });
        let before = self.parts.origin.get();
        let (resting, piece_max) = (Arc::clone(&before.resting), before.piece_max);
        self.parts.origin.set(origin::Settings { resting, piece_max, ..wire_up::origin(parameters) });
        for engine in &self.engines {
            engine.set_evict_max(parameters.nuke_limit);
        }
        self.parts.memory_max.store(parameters.memory_max, Ordering::Relaxed);
        self.pace.set_journal_sync(Duration::from_secs_f64(parameters.journal_sync.clamp(0.0, 60.0)));
        self.pace.set_scrub_rate(parameters.scrub_rate);
        let log = &self.parts.log;
        let settings = wire_up::log(parameters);
        log.set_mask(settings.mask);
        log.set_record_bytes(settings.record_bytes);
        log.set_buffer_bytes(settings.buffer_bytes);
        log.set_sync(settings.sync);
    }

    /// All backends and directors, VCLs in the order of their names.
    pub(super) fn backends(&self) -> Vec<Backend> {
        let mut services: Vec<&Service> = self.services.values().collect();
        services.sort_by(|a, b| a.vcl.name.cmp(&b.vcl.name));
        services
            .into_iter()
            .flat_map(|service| backends::list(&service.vcl, self.parts.shared.now()))
            .collect()
    }

    /// What each store holds.
    pub(super) fn storage_states(&self) -> Vec<StorageState> {
        let device = |device: DeviceReport| Holding {
            size: Some(device.size),
            used: device.used,
            objects: None,
            entries: Some(device.entries),
            health: device.health.word().to_owned(),
        };
        let state = |engine: &Arc<dyn Engine>| {
            let report = engine.report();
            StorageState {
                whole: Holding {
                    size: report.size,
                    used: report.used,
                    objects: Some(report.objects),
                    entries: report.entries,
                    health: report.health.word().to_owned(),
                },
                devices: report.devices.into_iter().map(device).collect(),
            }
        };
        self.engines.iter().map(state).collect()
    }

    /// Takes a device of a store out of use, or into use again.
    ///
    /// # Errors
    /// There is no such device.
    pub(super) fn drain(&self, store: usize, device: usize, on: bool) -> Result<(), String> {
        drain(&self.engines, store, device, on)
    }

    /// Notes what the operator says of a backend.
    pub(super) fn set_health(&self, vcl: &str, backend: &str, health: AdminHealth) {
        if let Some(service) = self.services.get(vcl) {
            backends::set_health(&service.vcl, backend, health, self.parts.shared.now());
        }
    }

    /// Has `work` done on the upkeep thread, and waits for what it gives, but no longer than `limit`.
    ///
    /// # Errors
    /// It took longer, and goes on no further.
    pub(super) fn ask_upkeep<Answer, Working>(
        &self,
        limit: Duration,
        work: impl FnOnce(Parts) -> Working + Send + 'static,
    ) -> Result<Answer, String>
    where
        Answer: Send + 'static,
        Working: Future<Output = Answer> + 'static,
    {
        let (answer, answered) = std::sync::mpsc::sync_channel(1);
        let parts = self.parts.clone();
        self.upkeep.give(Job::Task(Box::new(move || {
            Box::pin(async move {
                if let Ok(done) = tokio::time::timeout(limit, work(parts)).await {
                    // Who asked may have given up.
                    let _ = answer.send(done);
                }
            })
        })));
        answered.recv_timeout(limit).map_err(|_| format!("no answer within {} s", limit.as_secs()))
    }

    /// Adds a ban.
    pub(super) fn ban(&self, words: &[String]) -> Result<(), String> {
        self.parts.shared.bans.add_words(words, self.parts.shared.now())?;
        // Who has its reply may rely upon it, whatever happens to this process.
        let synced = self.engines.iter().try_for_each(|engine| engine.sync());
        synced.map_err(|error| format!("The ban is in force, but a device did not take it: {error}"))
    }

    /// Sets the last transaction number, if it is given; gives it and how many numbers a thread takes at once.
    pub(super) fn xid(&self, last: Option<u32>, chunk: Option<u32>) -> (u32, u32) {
        let vxids = &self.parts.shared.vxids;
        if let Some(last) = last {
            vxids.reset(last.saturating_add(1), chunk.unwrap_or(1));
        }
        (vxids.next().saturating_sub(1), vxids.chunk())
    }

    /// Lets all threads draw random numbers anew from `seed`.
    pub(super) fn reseed(&self, seed: u32) {
        self.parts.shared.reseed.set(seed);
    }

    /// Lets no more than `piece_max` bytes of a response's body be read at once; 0 is no bound.
    pub(super) fn fragment(&self, piece_max: usize) {
        self.parts.origin.update(|settings| settings.piece_max = piece_max);
    }

    /// Lets the next sessions that wake up, and probes, find no room, as `bits` say.
    pub(super) fn fail(&self, bits: u64) {
        self.parts.shared.no_room.set(bits);
        self.parts.front.update(|settings| settings.may_find_no_room = bits != 0);
    }

    /// All bans, newest first.
    pub(super) fn bans(&self) -> Vec<Ban> {
        let bans = self.parts.shared.bans.list();
        let row = |ban: catalog::ban::Listed| Ban {
            time: ban.time,
            objects: ban.objects,
            completed: ban.completed,
            spec: String::from_utf8_lossy(&ban.text).into_owned(),
        };
        bans.into_iter().map(row).collect()
    }

    /// Ends everything: clients first, with the time that `drain_limit` gives them; then VCLs, then upkeep.
    pub(super) fn stop(mut self) {
        if let Some(threads) = self.threads.take()
            && !threads.stop()
        {
            log::error("a worker thread had panicked", &[]);
        }
        self.parts.shared.vcl.set(None);
        self.parts.shared.labels.set(cache::shared::Labels::default());
        for (_, mut service) in std::mem::take(&mut self.services) {
            end_probes(&mut service);
            self.lingering.push(service.vcl);
        }
        for vcl in &self.lingering {
            vcl.instance.fini(&mut host::LoadHost::new(&self.parts.shared, vcl, &self.parts.log));
        }
        self.upkeep.stop();
        self.engines.iter().for_each(|engine| engine.close());
    }
}

/// Takes in what engines found on their devices, if any have some.
fn adopt(index: &catalog::index::Index, engines: &[Arc<dyn Engine>], now: base::Time) {
    let lasting: Vec<_> = engines.iter().filter(|engine| !engine.devices().is_empty()).cloned().collect();
    if lasting.is_empty() {
        return;
    }
    let found = index.attach(lasting, now);
    log::info("found on devices", &[("objects", &found.entries), ("useless", &found.useless)]);
}

fn drain(engines: &[Arc<dyn Engine>], store: usize, device: usize, on: bool) -> Result<(), String> {
    let done = engines.get(store).is_some_and(|engine| engine.drain(device, on));
    done.then_some(()).ok_or_else(|| format!("store {store} has no device {device}"))
}

fn temperature(warm: bool) -> &'static str {
    if warm { "warm" } else { "cold" }
}

/// Shows the counters of a VCL's backends to readers, or hides them.
fn show_counters(vcl: &Vcl, shown: bool) {
    for backend in backends::all(vcl) {
        if let Err(error) = backend.show_counters(shown) {
            log::error("counters", &[("backend", &backend.display()), ("error", &error)]);
        }
    }
}

fn end_probes(service: &mut Service) {
    if let Some(stop) = service.probing.take() {
        stop.request();
    }
}
