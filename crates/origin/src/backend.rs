//! A backend: one origin server as VCL defines it, shared by all threads.

use crate::endpoints::{self, ResolveError};
use crate::health::{Admin, Health};
use crate::pool::Peer;
use crate::probe;
use crate::settings::{Settings, Timeouts};
use base::Time;
use copal_base as base;
use copal_net::{Endpoint, tls};
use copal_observe::{Vbe, shm};
use copal_vcl::value::{self, Ask, BackendDefinition, BackendRef, Resolved};
use std::any::Any;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// A backend's counters: a section in shared memory, or memory of its own where there is none (tests, tools).
#[derive(Debug)]
pub enum Counters {
    /// In shared memory.
    Shared(shm::Live<Vbe>),
    /// Nobody else sees them.
    Own(Box<Vbe>),
}

impl Default for Counters {
    fn default() -> Self {
        Self::Own(Box::default())
    }
}

impl Deref for Counters {
    type Target = Vbe;

    fn deref(&self) -> &Vbe {
        match self {
            Self::Shared(section) => section,
            Self::Own(section) => section,
        }
    }
}

/// One origin server.
#[derive(Debug)]
pub struct Backend {
    definition: BackendDefinition,
    /// `vcl.name`, for log and counters.
    display: String,
    places: Vec<Place>,
    /// Which place is tried first: the last that answered.
    favourite: AtomicUsize,
    health: Health,
    probe: Option<probe::State>,
    counters: Counters,
    /// Exchanges under way.
    busy: AtomicU32,
    /// Seals connections, if TLS is spoken.
    tls: Option<tls::Client>,
}

/// Why a backend cannot be made.
#[derive(Debug)]
pub enum MakeError {
    /// Its host does not resolve.
    Resolve(ResolveError),
    /// TLS cannot be spoken to it.
    Tls {
        /// The backend's name in VCL.
        backend: String,
        /// Why.
        fault: tls::Fault,
    },
}

impl fmt::Display for MakeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Resolve(error) => error.fmt(f),
            Self::Tls { backend, fault } => write!(f, "backend {backend}: TLS: {fault}"),
        }
    }
}

impl std::error::Error for MakeError {}

/// One address of a backend.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) peer: Peer,
    /// No connection is tried before this moment (a [`Time`]'s bits) ...
    held_until: AtomicU64,
    /// ... because of this error number.
    held_for: AtomicU32,
}

impl Place {
    fn new(peer: Peer) -> Self {
        Self { peer, held_until: AtomicU64::new(0), held_for: AtomicU32::new(0) }
    }

    /// The error that keeps this address from being tried at `now`.
    pub(crate) fn held(&self, now: Time) -> Option<std::io::Error> {
        (now < Time::from_bits(self.held_until.load(Ordering::Relaxed)))
            .then(|| std::io::Error::from_raw_os_error(self.held_for.load(Ordering::Relaxed) as i32))
    }

    pub(crate) fn hold(&self, until: Time, error: &std::io::Error) {
        self.held_for.store(error.raw_os_error().unwrap_or(0) as u32, Ordering::Relaxed);
        self.held_until.store(until.to_bits(), Ordering::Relaxed);
    }
}

impl Backend {
    /// Makes a backend of its definition in the VCL named `vcl`. Resolves its host by the system's resolver, which
    /// blocks. The probe, if there is one, is not started: see [`probe::run`].
    ///
    /// # Errors
    /// The host does not resolve, or is to be spoken to by TLS and cannot be.
    pub fn new(
        definition: &BackendDefinition,
        vcl: &str,
        counters: Counters,
        settings: &Settings,
        now: Time,
    ) -> Result<Arc<Self>, MakeError> {
        let endpoints = endpoints::resolve(definition, settings.prefer_ipv6).map_err(MakeError::Resolve)?;
        let tls = tls_client(definition)?;
        Ok(Self::at(definition, vcl, endpoints, tls, counters, now))
    }

    /// Makes a backend whose addresses are known.
    pub(crate) fn at(
        definition: &BackendDefinition,
        vcl: &str,
        endpoints: Vec<Endpoint>,
        tls: Option<tls::Client>,
        counters: Counters,
        now: Time,
    ) -> Arc<Self> {
        let probe = definition.probe.as_ref().map(|probe| probe::State::new(Arc::clone(probe)));
        let healthy = !definition.none && probe.as_ref().is_none_or(probe::State::healthy);
        if let Some(probe) = &probe {
            counters.happy.set(probe.happy());
        }
        let seal = tls.as_ref().map(|client| Arc::clone(client.identity()));
        let place = |endpoint| {
            Place::new(Peer { endpoint, seal: seal.clone(), preamble: definition.preamble.clone() })
        };
        Arc::new(Self {
            definition: definition.clone(),
            display: format!("{vcl}.{}", definition.name),
            places: endpoints.into_iter().map(place).collect(),
            favourite: AtomicUsize::new(0),
            health: Health::new(healthy, now),
            probe,
            counters,
            busy: AtomicU32::new(0),
            tls,
        })
    }

    /// Its name as `vcl.name`.
    pub fn display(&self) -> &str {
        &self.display
    }

    /// Its definition.
    pub fn definition(&self) -> &BackendDefinition {
        &self.definition
    }

    /// What the Host field of a request is set to if it has none: `.host_header`, else `.host`, else `0.0.0.0` for a
    /// Unix socket.
    pub fn host_header(&self) -> &str {
        match &self.definition.host_header {
            Some(host) => host,
            None if self.definition.host.is_empty() => "0.0.0.0",
            None => &self.definition.host,
        }
    }

    /// Its addresses, in the order of preference.
    pub fn endpoints(&self) -> impl Iterator<Item = &Endpoint> {
        self.places.iter().map(|place| &place.peer.endpoint)
    }

    /// Its counters.
    pub fn counters(&self) -> &Vbe {
        &self.counters
    }

    /// Hides its counters from readers, as long as its VCL is cold, or shows them again.
    ///
    /// # Errors
    /// The shared memory's index cannot be written.
    pub fn show_counters(&self, shown: bool) -> std::io::Result<()> {
        match &self.counters {
            Counters::Shared(section) => section.set_shown(shown),
            Counters::Own(_) => Ok(()),
        }
    }

    /// Its timeouts, the parameters filling in for what the definition leaves out. VCL may change them for one exchange.
    pub fn timeouts(&self, settings: &Settings) -> Timeouts {
        let all = Timeouts::from(settings);
        Timeouts {
            connect: self.definition.connect_timeout.unwrap_or(all.connect),
            first_byte: self.definition.first_byte_timeout.unwrap_or(all.first_byte),
            between_bytes: self.definition.between_bytes_timeout.unwrap_or(all.between_bytes),
        }
    }

    /// Whether requests are sent to it.
    pub fn healthy(&self) -> bool {
        !self.definition.none && self.health.healthy()
    }

    /// When [`Backend::healthy`] last changed.
    pub fn changed(&self) -> Time {
        self.health.changed()
    }

    /// What the operator ordered.
    pub fn admin(&self) -> Admin {
        self.health.admin()
    }

    /// Takes the operator's order.
    pub fn set_admin(&self, admin: Admin, now: Time) {
        self.health.set_admin(admin, now);
    }

    /// The probe's state, if it has a probe.
    pub fn probe(&self) -> Option<&probe::State> {
        self.probe.as_ref()
    }

    /// Takes a probe's word; says whether it is new.
    pub(crate) fn probed(&self, healthy: bool, now: Time) -> bool {
        self.health.set_probed(healthy, now)
    }

    /// Exchanges under way.
    pub fn busy(&self) -> u32 {
        self.busy.load(Ordering::Relaxed)
    }

    /// Its addresses from the one that answered last, going round.
    pub(crate) fn places(&self) -> impl Iterator<Item = (usize, &Place)> {
        let count = self.places.len().max(1);
        let first = self.favourite.load(Ordering::Relaxed) % count;
        (0..self.places.len()).map(move |step| {
            let index = (first + step) % count;
            (index, &self.places[index])
        })
    }

    /// Who is at the address of that index, which [`Backend::places`] gave.
    pub(crate) fn peer(&self, index: usize) -> &Peer {
        // A backend's addresses never change.
        &self.places[index].peer
    }

    /// Seals connections, if TLS is spoken.
    pub(crate) fn tls(&self) -> Option<&tls::Client> {
        self.tls.as_ref()
    }

    /// Whether none of its addresses is to be tried at `now`, since each has just failed.
    pub(crate) fn is_held(&self, now: Time) -> bool {
        self.places.iter().all(|place| place.held(now).is_some())
    }

    pub(crate) fn set_favourite(&self, index: usize) {
        // Read first: all threads share the line, and it hardly ever changes.
        if self.favourite.load(Ordering::Relaxed) != index {
            self.favourite.store(index, Ordering::Relaxed);
        }
    }
}

/// The TLS client that a definition asks for.
pub(crate) fn tls_client(definition: &BackendDefinition) -> Result<Option<tls::Client>, MakeError> {
    let Some(wanted) = definition.tls else { return Ok(None) };
    let options = tls::Options {
        name: definition.tls_name().to_owned(),
        sni: wanted.sni,
        verify_peer: wanted.verify_peer,
        verify_host: wanted.verify_host,
    };
    let client = tls::Client::new(&options);
    client.map(Some).map_err(|fault| MakeError::Tls { backend: definition.name.clone(), fault })
}

/// One exchange under way, counted against `max_connections` while it lives.
#[derive(Debug)]
pub(crate) struct Slot(Arc<Backend>);

impl Slot {
    /// A slot, or `None` if all are taken.
    pub(crate) fn take(backend: &Arc<Backend>) -> Option<Self> {
        // Varnish takes 0 as no limit.
        let limit = backend.definition.max_connections.filter(|&limit| limit > 0).unwrap_or(u32::MAX);
        let more = |busy: u32| (busy < limit).then(|| busy + 1);
        backend.busy.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        backend.counters.conn.inc();
        Some(Self(Arc::clone(backend)))
    }

    pub(crate) fn backend(&self) -> &Arc<Backend> {
        &self.0
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Ordering::Relaxed);
        self.0.counters.conn.dec();
    }
}

impl value::Backend for Backend {
    fn name(&self) -> &str {
        &self.definition.name
    }

    fn kind(&self) -> &'static str {
        "backend"
    }

    fn resolve(&self, _ask: &Ask<'_>) -> Resolved {
        Resolved::Itself
    }

    fn health(&self, ask: &Ask<'_>) -> value::Health {
        value::Health { healthy: self.healthy() && !ask.has_tried(self), changed: self.changed() }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// How many directors may stand one behind the other.
const CHAIN_MAX: u8 = 32;

/// The backend at the end of a chain of directors. `None` if they found none healthy, the chain is too long, or it ends
/// in something that is no backend of ours.
pub fn leaf(backend: &BackendRef, ask: &Ask<'_>) -> Option<Arc<Backend>> {
    let mut current = Arc::clone(backend);
    let mut ask = *ask;
    while ask.depth < CHAIN_MAX {
        match current.resolve(&ask) {
            Resolved::Itself => {
                let any: Arc<dyn Any + Send + Sync> = current;
                return any.downcast().ok();
            }
            Resolved::Other(next) => current = next,
            Resolved::None => return None,
        }
        ask.depth += 1;
    }
    None
}
