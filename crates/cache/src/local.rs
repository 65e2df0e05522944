//! One thread's part of the cache: what a hit needs without touching anything shared.

use crate::known::{Hot, Known};
use crate::reseed::Reseed;
use crate::settings::Settings;
use crate::shared::{Labels, Shared, Vcl};
use base::LiveReader;
use base::Time;
use base::vxid::{Vxid, VxidPool};
use catalog::index::Key;
use copal_base as base;
use copal_catalog as catalog;
use copal_observe as observe;
use copal_origin as origin;
use copal_store as store;
use observe::{LogWriter, Stripe};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use store::Object;

/// The largest body of a hot object, in bytes.
const HOT_MAX: u64 = 32 << 10;

/// An object used again within this many seconds is hot.
const HOT_WITHIN: u32 = 2;

/// After this many deaths in the index a thread looks for them in its hot table at once, not at its next tick.
const DEATHS_MAX: u64 = 64;

/// Settings and VCL as one request sees them from start to end.
#[derive(Debug)]
pub struct Current {
    /// Parameters.
    pub settings: Arc<Settings>,
    /// The active VCL.
    pub vcl: Option<Arc<Vcl>>,
}

/// What settings and VCL are read through.
type Readers = (LiveReader<Settings>, LiveReader<Option<Arc<Vcl>>>);

/// A thread's state. Not shared: everything is a cell.
pub struct Local {
    /// The process-wide part.
    pub shared: Arc<Shared>,
    /// This thread's stripe of the counters.
    pub counters: Stripe,
    /// Where records go.
    pub log: LogWriter,
    /// Idle connections to origins.
    pub pools: Rc<origin::Pools>,
    readers: RefCell<Readers>,
    labels: RefCell<LiveReader<Labels>>,
    current: RefCell<Rc<Current>>,
    /// What an exchange holds between two requests: no VCL.
    idle: Rc<Current>,
    vxids: RefCell<VxidPool>,
    hot: RefCell<Hot>,
    random: Cell<u64>,
    /// The last [`Reseed`] that was followed.
    reseeded: Cell<u64>,
    waiter: Cell<u64>,
    /// Purges made on this thread.
    purges: Cell<u64>,
}

impl Local {
    /// The part of a thread whose random numbers start from `seed`.
    pub fn new(
        shared: &Arc<Shared>,
        counters: Stripe,
        log: LogWriter,
        pools: Rc<origin::Pools>,
        seed: u64,
    ) -> Self {
        let mut readers = (shared.settings.reader(), shared.vcl.reader());
        let current =
            Current { settings: Arc::clone(readers.0.current()), vcl: Option::clone(readers.1.current()) };
        Self {
            shared: Arc::clone(shared),
            counters,
            log,
            pools,
            readers: RefCell::new(readers),
            labels: RefCell::new(shared.labels.reader()),
            idle: Rc::new(Current { settings: Arc::clone(&current.settings), vcl: None }),
            current: RefCell::new(Rc::new(current)),
            vxids: RefCell::new(shared.vxids.pool()),
            hot: RefCell::default(),
            random: Cell::new(seed | 1),
            reseeded: Cell::new(0),
            // The seed tells the threads' waiters apart.
            waiter: Cell::new(seed << 32),
            purges: Cell::new(0),
        }
    }

    /// The present moment.
    #[inline]
    pub fn now(&self) -> Time {
        self.shared.clock.now()
    }

    /// Settings and VCL for a new request.
    pub fn current(&self) -> Rc<Current> {
        let mut readers = self.readers.borrow_mut();
        let mut current = self.current.borrow_mut();
        let same_settings = Arc::ptr_eq(readers.0.current(), &current.settings);
        let same_vcl = match (&**readers.1.current(), &current.vcl) {
            (Some(new), Some(old)) => Arc::ptr_eq(new, old),
            (None, None) => true,
            _ => false,
        };
        if !same_settings || !same_vcl {
            *current = Rc::new(Current {
                settings: Arc::clone(readers.0.current()),
                vcl: Option::clone(readers.1.current()),
            });
        }
        Rc::clone(&current)
    }

    /// Settings of old and no VCL, for what serves no request.
    pub(crate) fn idle(&self) -> &Rc<Current> {
        &self.idle
    }

    /// The VCL that the label stands for at this moment.
    pub(crate) fn labelled(&self, label: &str) -> Option<Arc<Vcl>> {
        self.labels.borrow_mut().current().get(label).map(Arc::clone)
    }

    /// A new transaction number.
    #[inline]
    pub fn vxid(&self) -> Vxid {
        self.vxids.borrow_mut().take()
    }

    /// A number for a place on a waiting list, unlike any other in the process.
    pub(crate) fn waiter_id(&self) -> u64 {
        let id = self.waiter.get().wrapping_add(1);
        self.waiter.set(id);
        id
    }

    /// Something was purged by a request of this thread.
    pub(crate) fn note_purge(&self) {
        self.purges.set(self.purges.get().wrapping_add(1));
    }

    /// How many purges there were on this thread.
    pub(crate) fn purges(&self) -> u64 {
        self.purges.get()
    }

    /// A number to choose by; not for secrets. Source: Marsaglia, "Xorshift RNGs" (2003).
    pub fn random(&self) -> u64 {
        let asked = self.shared.reseed.asked();
        if asked != self.reseeded.get() {
            self.reseeded.set(asked);
            self.random.set(Reseed::start(asked));
        }
        let mut x = self.random.get();
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.random.set(x);
        x
    }

    /// The hot entry for `key`, if its object lives.
    #[inline]
    pub(crate) fn hot(&self, key: &Key) -> Option<Rc<Known>> {
        self.hot.borrow().get(key).cloned()
    }

    /// Makes `object`, used at `now`, hot, unless it is large: then the counts that cores share cost little beside its
    /// bytes, and holding on to it would keep much memory that the store wants back.
    pub(crate) fn know(&self, object: &Arc<Object>, now: Time) -> Rc<Known> {
        if object.length().is_none_or(|length| length > HOT_MAX) {
            return Rc::new(Known::new(Arc::clone(object)));
        }
        let mut hot = self.hot.borrow_mut();
        if let Some(known) = hot.get(object.key())
            && Arc::ptr_eq(known.object(), object)
        {
            return Rc::clone(known);
        }
        // The first use in a while does not make it hot, the second does.
        let second = now as u32;
        if second.wrapping_sub(object.last_use()) <= HOT_WITHIN { hot.put(object) } else { hot.look(object) }
    }

    /// Lets go of hot objects that are gone, so that the store gets their memory back.
    pub(crate) fn forget_dead(&self) {
        let mut hot = self.hot.borrow_mut();
        hot.sweep(self.shared.index.deaths(), 0);
    }

    /// As [`Local::forget_dead`], if many have died since the last look. For every request: one load.
    #[inline]
    pub(crate) fn forget_many_dead(&self) {
        let deaths = self.shared.index.deaths();
        if deaths.wrapping_sub(self.hot.borrow().deaths_seen()) > DEATHS_MAX {
            self.forget_dead();
        }
    }

    /// Housekeeping, a few times a second: lets go of dead and cold entries.
    pub fn tick(&self) {
        let cold = (self.now() - 10.0).max(0.0) as u32;
        self.hot.borrow_mut().sweep(self.shared.index.deaths(), cold);
        // Lets go of old VCLs also on a thread without traffic.
        self.current();
        self.labels.borrow_mut().current();
    }
}
