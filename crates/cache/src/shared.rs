//! What all threads have in common.

use crate::outages::Outages;
use crate::range_support::RangeSupport;
use crate::reseed::Reseed;
use crate::settings::Settings;
use base::clock::Clock;
use base::vxid::VxidSource;
use base::{Live, Time};
use catalog::ban::Bans;
use catalog::index::Index;
use copal_base as base;
use copal_catalog as catalog;
use copal_origin as origin;
use copal_store as store;
use copal_vcl as vcl;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use store::{Engine, Health};
use vcl::host::{Fault, Result};
use vcl::instance::Instance;
use vcl::value::Value;
use vcl::variables::StorageVar;

/// A loaded VCL under its name.
pub struct Vcl {
    /// The name given to `vcl.load`, or `boot`.
    pub name: String,
    /// Its program, backends and objects.
    pub instance: Instance,
}

impl std::fmt::Debug for Vcl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Vcl").field("name", &self.name).finish_non_exhaustive()
    }
}

/// What VCL takes for the size of a store without limit: the largest number it can write. Source: Varnish 7.1, observed.
const UNLIMITED: u64 = 999_999_999_999_999;

/// Labels, each with the VCL that `return (vcl(label))` hands a request to.
pub type Labels = HashMap<String, Arc<Vcl>>;

/// The process-wide part of the cache.
pub struct Shared {
    /// Where time comes from.
    pub clock: Arc<dyn Clock>,
    /// All objects.
    pub index: Arc<Index>,
    /// Where they are kept.
    pub stores: Stores,
    /// Parameters.
    pub settings: Arc<Live<Settings>>,
    /// The active VCL; none before the first `vcl.use`.
    pub vcl: Arc<Live<Option<Arc<Vcl>>>>,
    /// The VCLs that labels stand for.
    pub labels: Arc<Live<Labels>>,
    /// Pipes under way.
    pub pipes: AtomicU64,
    /// Bans; the index has them, too.
    pub bans: Arc<Bans>,
    /// Stale objects whose origin has just failed.
    pub outages: Outages,
    /// Transaction numbers.
    pub vxids: Arc<VxidSource>,
    /// Begins random numbers anew.
    pub reseed: Reseed,
    /// Which of the next sessions that wake up, and probes, are to find no room (`debug.reqpool.fail`).
    pub no_room: Arc<base::Schedule>,
    /// Which backends serve ranges.
    pub range_support: RangeSupport,
    /// Makes backends while requests run. Set once, before the first VCL; tests may do without.
    pub maker: OnceLock<Arc<origin::Maker>>,
}

/// What the log says where an attempt of [`Shared::no_room`] fails; `left` are the bits of those to come. Source: Varnish
/// 7.1, observed.
pub fn no_room(left: u64) -> String {
    format!("Failing due to reqpoolfail (next= 0x{left:x})")
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl Shared {
    /// The present moment.
    pub fn now(&self) -> Time {
        self.clock.now()
    }
}

/// The stores of `-s`, and `Transient`.
pub struct Stores {
    named: Vec<Arc<dyn Engine>>,
    transient: Arc<dyn Engine>,
    turn: AtomicUsize,
}

impl Stores {
    /// `named` are the stores that objects go to by turns, in the order of the command line; at least one.
    ///
    /// # Panics
    /// If `named` is empty.
    pub fn new(named: Vec<Arc<dyn Engine>>, transient: Arc<dyn Engine>) -> Self {
        assert!(!named.is_empty(), "there is always a store");
        Self { named, transient, turn: AtomicUsize::new(0) }
    }

    /// The store of that name.
    pub fn find(&self, name: &[u8]) -> Option<&Arc<dyn Engine>> {
        self.all().find(|store| store.name().as_bytes() == name)
    }

    /// What VCL may ask of the store of that name.
    ///
    /// # Errors
    /// There is no such store.
    pub fn property(&self, name: &[u8], property: StorageVar) -> Result<Value> {
        let store = self.find(name);
        let store = store.ok_or_else(|| Fault(format!("no storage {}", String::from_utf8_lossy(name))))?;
        let statistics = store.statistics();
        if !store.devices().is_empty() {
            let report = store.report();
            let size = report.size.unwrap_or_default();
            return Ok(match property {
                StorageVar::FreeSpace => Value::Bytes(size.saturating_sub(report.used)),
                StorageVar::UsedSpace => Value::Bytes(report.used),
                StorageVar::Happy => Value::Bool(matches!(report.health, Health::Good | Health::Degraded)),
            });
        }
        Ok(match property {
            StorageVar::FreeSpace if store.size().is_none() => {
                Value::Bytes(UNLIMITED.saturating_sub(statistics.bytes))
            }
            StorageVar::FreeSpace => Value::Bytes(statistics.space),
            StorageVar::UsedSpace => Value::Bytes(statistics.bytes),
            StorageVar::Happy => Value::Bool(store.health() == Health::Good),
        })
    }

    /// The next store in turn, but for those whose device has failed.
    pub fn next(&self) -> &Arc<dyn Engine> {
        if self.named.len() == 1 {
            return &self.named[0];
        }
        let (turn, count) = (self.turn.fetch_add(1, Ordering::Relaxed), self.named.len());
        let in_turn = (0..count).map(|step| &self.named[turn.wrapping_add(step) % count]);
        let mut good = in_turn.filter(|store| store.health() == Health::Good);
        good.next().unwrap_or(&self.named[turn % count])
    }

    /// The size of the smallest store that objects go to by turns; `None` if none has a limit.
    pub fn smallest(&self) -> Option<u64> {
        self.named.iter().filter_map(|store| store.size()).min()
    }

    /// The store for what is short-lived or not cacheable.
    pub fn transient(&self) -> &Arc<dyn Engine> {
        &self.transient
    }

    /// All of them, `Transient` last.
    pub fn all(&self) -> impl Iterator<Item = &Arc<dyn Engine>> {
        let transient_is_named = self.named.iter().any(|store| Arc::ptr_eq(store, &self.transient));
        self.named.iter().chain((!transient_is_named).then_some(&self.transient))
    }
}
