//! A cache with one worker, its origin and its clients, all on this thread, and a history that happens to them.

use crate::client;
use crate::disk::{self, Disk};
use crate::model::{self, DEFAULT_GRACE, DEFAULT_STALE_IF_ERROR, DEFAULT_TTL};
use crate::origin;
use crate::plan::{Ask, History, Manner, Step};
use crate::state::{Barrier, State, Tally};
use base::Live;
use base::clock::Clock;
use base::vxid::VxidSource;
use cache::{Exchange, Local, Session, Shared, Stores, Vcl};
use catalog::ban::{Bans, Lurker, Pace};
use catalog::index::Index;
use catalog::index::tags::Tags;
use catalog::sweep::Sweeper;
use copal_base as base;
use copal_cache as cache;
use copal_catalog as catalog;
use copal_net as net;
use copal_observe as observe;
use copal_origin as upstream;
use copal_store as store;
use copal_vcl as vcl;
use net::worker;
use std::cell::RefCell;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use store::device::sim::SimDevice;
use tokio::net::TcpListener;
use vcl::vmod::{Registry, Vmod};

/// A number of this run alone: one that was killed leaves its files.
fn unique() -> u64 {
    use std::hash::{BuildHasher as _, RandomState};
    RandomState::new().hash_one(())
}

/// Longer than this nothing takes to come to rest.
const HANG: Duration = Duration::from_secs(20);

/// A directory that goes with this value.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let name = format!("copal-history-{}-{}", unique(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).expect("a directory for shared memory");
        Self(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

thread_local! {
    /// Log and counters of this thread's caches.
    static MEMORY: (observe::Worker, Directory) = {
        let directory = Directory::new();
        let settings = observe::vsl::Settings { space: 1 << 20, ..Default::default() };
        (observe::Worker::create(&directory.0, &settings, 0.0).expect("shared memory"), directory)
    };
}

struct NoModules;

impl Registry for NoModules {
    fn find(&self, _: &str) -> Option<&'static Vmod> {
        None
    }
}

/// What happened, or what was wrong with it.
pub(crate) fn run(history: &History) -> Result<Tally, String> {
    let state = State::new(history);
    MEMORY.with(|(shm, _)| {
        worker::block_on(async {
            let is_on_disk = history.steps.iter().any(|step| matches!(step, Step::Restart(_)));
            let world = World::new(&state, shm, is_on_disk).await;
            world.play(&history.steps).await;
            world.settle().await;
        });
    });
    let tally = *state.tally.borrow();
    match state.wrong.take() {
        None => Ok(tally),
        Some(why) => Err(format!("{why}\n{}\n{history:?}", state.log.borrow().join("\n"))),
    }
}

struct World<'memory> {
    state: Rc<State>,
    shm: &'memory observe::Worker,
    origin: SocketAddr,
    cache: RefCell<Cache>,
    session: Rc<Session>,
    /// Connections without a request: exchanges that are used again.
    idle: Rc<RefCell<Vec<Exchange>>>,
    clients: RefCell<Vec<tokio::task::JoinHandle<()>>>,
    sweeper: RefCell<Sweeper>,
    lurker: RefCell<Lurker>,
}

/// What ends and begins again with a restart.
struct Cache {
    shared: Arc<Shared>,
    local: Rc<Local>,
    disk: Option<Disk>,
}

impl Cache {
    /// A cache with that disk, if it has one.
    fn new(state: &Rc<State>, shm: &observe::Worker, origin: SocketAddr, device: Option<SimDevice>) -> Self {
        let (shared, disk) = shared(state, device);
        let origins = Arc::new(Live::new(upstream::Settings {
            local_error_holddown: 0.0,
            remote_error_holddown: 0.0,
            ..upstream::Settings::default()
        }));
        let vcl = load(origin, state.setup.purges, &origins.get(), state.now());
        shared.vcl.set(Some(Arc::new(vcl)));
        let stripe = shm.counters().stripe().expect("room for counters");
        let pools = upstream::Pools::new(&origins);
        let local = Rc::new(Local::new(&shared, stripe, shm.log().clone(), pools, 7));
        Self { shared, local, disk }
    }
}

impl<'memory> World<'memory> {
    async fn new(state: &Rc<State>, shm: &'memory observe::Worker, is_on_disk: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback");
        let address = listener.local_addr().expect("it is bound");
        tokio::task::spawn_local(origin::run(listener, Rc::clone(state)));
        let device = is_on_disk.then(|| SimDevice::new(disk::SIZE));
        let cache = Cache::new(state, shm, address, device);
        Self {
            state: Rc::clone(state),
            shm,
            origin: address,
            cache: RefCell::new(cache),
            session: Rc::new(session()),
            idle: Rc::default(),
            clients: RefCell::default(),
            sweeper: RefCell::default(),
            lurker: RefCell::default(),
        }
    }

    fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.cache.borrow().shared)
    }

    /// The cache ends, in order or as after a crash with that seed, and begins again on the same disk.
    async fn restart(&self, crash: Option<u64>) {
        self.settle().await;
        self.idle.borrow_mut().clear();
        let device = self.cache.borrow().disk.as_ref().map(|disk| disk.end(crash));
        self.state.note(|| format!("restart, {crash:?}"));
        let next = Cache::new(&self.state, self.shm, self.origin, device);
        *self.cache.borrow_mut() = next;
        self.sweeper.take();
        self.lurker.take();
    }

    async fn play(&self, steps: &[Step]) {
        for step in steps {
            if self.state.wrong.borrow().is_some() {
                return;
            }
            match step {
                Step::Ask(ask) => self.ask(ask).await,
                Step::Clock(tenths) => {
                    self.state.clock.advance(f64::from(*tenths) / 10.0);
                    self.keep_house();
                }
                Step::Change(site) => self.state.change(*site),
                Step::Policy(site, policy) => {
                    self.state.note(|| format!("/s{site} says {policy:?}"));
                    self.state.resources.borrow_mut()[*site].policy = policy.clone();
                }
                Step::Mood(site, mood) => self.state.resources.borrow_mut()[*site].mood = *mood,
                Step::Purge(site) if self.state.setup.purges => self.purge(*site).await,
                Step::Purge(site) => self.ban(*site, true),
                Step::Ban(site, by_request) => self.ban(*site, *by_request),
                Step::Open => {
                    self.state.note(|| "the gates open".to_owned());
                    self.state.open();
                }
                Step::Settle => self.settle().await,
                Step::Restart(crash) => self.restart(*crash).await,
            }
            // What is under way gets more or less far.
            for _ in 0..turns(step) {
                tokio::task::yield_now().await;
            }
        }
    }

    fn exchange(&self) -> Exchange {
        self.idle
            .borrow_mut()
            .pop()
            .unwrap_or_else(|| Exchange::new(&self.cache.borrow().local, &self.session))
    }

    async fn ask(&self, ask: &Ask) {
        let id = {
            let mut asks = self.state.asks.borrow_mut();
            asks.push(Some(ask.clone()));
            asks.len() - 1
        };
        let (state, idle, mut exchange) = (Rc::clone(&self.state), Rc::clone(&self.idle), self.exchange());
        let owned = ask.clone();
        self.clients.borrow_mut().push(tokio::task::spawn_local(async move {
            if let Some(seen) = one(&state, &mut exchange, &owned, id).await
                && seen.end == client::End::Clean
            {
                idle.borrow_mut().push(exchange);
            }
        }));
        if ask.manner == Manner::Alone {
            self.settle().await;
        } else {
            tokio::task::yield_now().await;
        }
    }

    async fn purge(&self, site: usize) {
        let id = self.state.asks.borrow().len();
        self.state.asks.borrow_mut().push(None);
        let mut exchange = self.exchange();
        let barrier = self.barrier(site, "purge");
        let fields =
            [("host".to_owned(), "example.org".to_owned()), ("x-request".to_owned(), id.to_string())];
        let length = client::write(&mut exchange, "PURGE", &format!("/s{site}"), &fields);
        exchange.run(&mut Nothing, length, self.state.now()).await;
        if exchange.response.status != 200 {
            self.state.fail(format!("a purge was answered with {}", exchange.response.status));
        }
        exchange.finish(0, 0, 0);
        self.pass(barrier);
    }

    fn ban(&self, site: usize, by_request: bool) {
        let barrier = self.barrier(site, "ban");
        let words = if by_request {
            ["req.url".to_owned(), "==".to_owned(), format!("/s{site}")]
        } else {
            ["obj.http.X-Site".to_owned(), "==".to_owned(), site.to_string()]
        };
        self.shared().bans.add_words(&words, self.state.now()).expect("a good ban");
        self.pass(barrier);
    }

    fn barrier(&self, site: usize, what: &'static str) -> Barrier {
        let began = self.state.event();
        self.state.note(|| format!("{what} of /s{site}"));
        Barrier { site, began, done: began, epoch: self.state.epoch.get(), what }
    }

    fn pass(&self, barrier: Barrier) {
        let barrier = Barrier { done: self.state.event(), ..barrier };
        self.state.barriers.borrow_mut().push(barrier);
    }

    fn keep_house(&self) {
        let now = self.state.now();
        let (shared, local) = (self.shared(), Rc::clone(&self.cache.borrow().local));
        let _ = self.sweeper.borrow_mut().step(&shared.index, now, &mut |_| {});
        let pace = Pace { age: 0.0, ..Pace::default() };
        self.lurker.borrow_mut().step(&shared.index, now, &pace, &mut |_, _| {});
        local.tick();
    }

    /// Lets everything end that is under way, clients and fetches.
    async fn settle(&self) {
        let began = Instant::now();
        let mut turns = 0_u32;
        loop {
            self.clients.borrow_mut().retain(|client| !client.is_finished());
            let left = self.clients.borrow().len();
            if left == 0 && worker::tasks() == 0 && self.state.serving.get() == 0 {
                break;
            }
            turns += 1;
            if turns.is_multiple_of(16) {
                self.state.open();
            }
            if began.elapsed() > HANG {
                let (tasks, serving) = (worker::tasks(), self.state.serving.get());
                self.state
                    .fail(format!("hangs: {left} clients, {tasks} tasks, {serving} answers of the origin"));
                return;
            }
            if turns < 2_000 {
                tokio::task::yield_now().await;
            } else {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        self.keep_house();
        self.state.rest();
    }
}

/// How far things get after the step: by what it is, so that a history is as it was when another step is left out.
fn turns(step: &Step) -> usize {
    match step {
        Step::Ask(ask) => (ask.spans.len() * 5 + usize::from(ask.variant) * 7 + ask.site) % 13,
        _ => 2,
    }
}

/// One request from its beginning to the verdict.
async fn one(state: &State, exchange: &mut Exchange, ask: &Ask, id: usize) -> Option<client::Seen> {
    let epoch = state.epoch.get();
    let started = state.event();
    state.note(|| {
        let fields: Vec<String> = client::fields(state, ask, id)
            .iter()
            .skip(2)
            .map(|(name, value)| format!("{name}: {value}"))
            .collect();
        format!("#{id} {} /s{} [{}] {:?}", ask.method.name(), ask.site, fields.join(", "), ask.manner)
    });
    let seen = client::ask(state, exchange, ask, id).await;
    state.tally.borrow_mut().requests += 1;
    let Some(seen) = seen else {
        state.note(|| format!("    #{id} vanished"));
        return None;
    };
    state.note(|| {
        let fields: Vec<String> =
            seen.fields.iter().map(|(name, value)| format!("{name}: {value}")).collect();
        format!(
            "    #{id} got {} {:?} {} bytes [{}]",
            seen.status,
            seen.end,
            seen.body.len(),
            fields.join(" | ")
        )
    });
    if ask.method.is_unsafe() && state.setup.rfc && (200..400).contains(&seen.status) {
        let barrier =
            Barrier { site: ask.site, began: started, done: state.event(), epoch, what: ask.method.name() };
        state.barriers.borrow_mut().push(barrier);
    }
    if let Err(why) = model::judge(state, ask, &seen) {
        state.fail(format!("#{id}: {why}"));
    }
    Some(seen)
}

/// A request without a body.
struct Nothing;

impl cache::RequestBody for Nothing {
    fn framing(&self) -> copal_wire::h1::RequestFraming {
        copal_wire::h1::RequestFraming::None
    }

    fn is_begun(&self) -> bool {
        false
    }

    fn poll_read(
        &mut self,
        _: &mut std::task::Context<'_>,
        _: &mut [u8],
    ) -> std::task::Poll<Result<usize, cache::BodyError>> {
        std::task::Poll::Ready(Ok(0))
    }
}

fn shared(state: &State, device: Option<SimDevice>) -> (Arc<Shared>, Option<Disk>) {
    let bans = Arc::new(Bans::started_at(state.now()));
    let index = Arc::new(Index::new(Arc::clone(&bans), Tags::new("")));
    let size = Some(state.setup.store_kib << 10);
    let disk = device.map(|device| Disk::open(device, state.setup.store_kib << 10, &index));
    let named: Arc<dyn store::Engine> = match &disk {
        Some(disk) => Arc::clone(&disk.engine) as _,
        None => Arc::new(store::Memory::new("s0", size, Arc::clone(&index) as _)),
    };
    if disk.is_some() {
        index.attach(vec![Arc::clone(&named)], state.now());
    }
    let transient = Arc::new(store::Memory::new("Transient", None, Arc::clone(&index) as _));
    let settings = cache::Settings {
        rfc: state.setup.rfc,
        default_ttl: DEFAULT_TTL,
        default_grace: DEFAULT_GRACE,
        default_stale_if_error: DEFAULT_STALE_IF_ERROR,
        segment_size: state.setup.segment,
        sparse_min_size: 2 * state.setup.segment,
        cache_status: cache::settings::CacheStatus::Detail,
        ..cache::Settings::default()
    };
    let shared = Shared {
        clock: Arc::clone(&state.clock) as Arc<dyn Clock>,
        index,
        stores: Stores::new(vec![named], transient),
        settings: Arc::new(Live::new(settings)),
        vcl: Arc::new(Live::new(None)),
        labels: Arc::default(),
        pipes: AtomicU64::new(0),
        bans,
        vxids: Arc::new(VxidSource::default()),
        reseed: cache::Reseed::default(),
        no_room: Arc::default(),
        range_support: cache::RangeSupport::default(),
        outages: Default::default(),
        maker: OnceLock::new(),
    };
    (Arc::new(shared), disk)
}

const PURGE: &str = "sub vcl_recv { if (req.method == \"PURGE\") { return (purge); } }\n";

fn load(address: SocketAddr, purges: bool, settings: &upstream::Settings, now: f64) -> Vcl {
    let recv = if purges { PURGE } else { "" };
    let port = address.port();
    let text = format!("vcl 4.1;\nbackend default {{ .host = \"127.0.0.1\"; .port = \"{port}\"; }}\n{recv}");
    let program = vcl::compile("test", &text, &vcl::Options::new(&NoModules)).expect("good VCL");
    let mut make = |definition: &vcl::value::BackendDefinition| {
        let counters = upstream::Counters::default();
        upstream::Backend::new(definition, "test", counters, settings, now)
            .map(|backend| backend as vcl::value::BackendRef)
            .map_err(|error| error.to_string())
    };
    let instance = vcl::instance::Instance::new(Arc::new(program), &mut make).expect("a backend");
    Vcl { name: "test".to_owned(), instance }
}

fn session() -> Session {
    let address: SocketAddr = "192.0.2.1:4711".parse().expect("an address");
    Session {
        vxid: 1,
        client: address,
        server: address,
        remote: address,
        local: address,
        listener: "a0".to_owned(),
        endpoint: "127.0.0.1:80".to_owned(),
        opened: 0.0,
        client_text: b"192.0.2.1".to_vec(),
        req_start: cache::session::req_start(address, "a0"),
        begin: cache::session::begin(1),
        timeouts: std::cell::Cell::default(),
        tos: std::cell::Cell::default(),
        descriptor: None,
        credentials: None,
        proxy_attributes: None,
    }
}
