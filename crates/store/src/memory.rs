//! The memory engine: `-s [name=]malloc[,size]`.
//!
//! The size counts heads, bodies, and what each object takes itself. Two sums are kept. Linked bytes belong to objects that
//! are in the index or being filled; they stay within the size. Held bytes are all, also those of evicted or purged objects
//! that still have readers; they may exceed the size by an eighth (at least 256 KiB), but no further: then new objects find
//! the store full and pass through. The windows of bodies that outgrew the store are held beyond that; each is bounded
//! ([`crate::fill`]).
//!
//! An object's position in the eviction order, its entry in the index, and the rounding of its blocks (1 to 5 percent on
//! average, see `pool`) are not counted.

use crate::block::Block;
use crate::charge::Charge;
use crate::engine::{Creation, Engine, Evictions, Full, Keeper, Statistics};
use crate::eviction::{Item as _, LOOK_MAX, Order, Policy};
use crate::file::arena::Arena;
use crate::file::heads_max;
use crate::fill::Fill;
use crate::first::{self, First};
use crate::object::Object;
use crate::pool;
use parking_lot::{FairMutex, Mutex};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

/// The longest body whose announced length is believed.
const LENGTH_MAX: u64 = i64::MAX as u64;

/// What an object takes besides its blocks: itself, with the two counts of its `Arc`.
pub(crate) const OBJECT_BYTES: u64 = 128;

/// The memory engine.
pub struct Memory {
    space: Arc<Space>,
}

/// The budget and the eviction order, shared with every object and fill.
pub(crate) struct Space {
    /// The engine's name.
    pub(crate) name: String,
    /// Where bodies are kept, if not in memory. What follows counts both.
    pub(crate) file: Option<Arc<Arena>>,
    size: u64,
    slack: u64,
    /// How much of memory may be held at most, whatever the size says.
    memory_max: AtomicU64,
    /// How many objects one request for memory may evict (`nuke_limit`).
    evict_max: AtomicU64,
    linked: AtomicU64,
    held: AtomicU64,
    order: Mutex<Box<dyn Order<Arc<Object>> + Send>>,
    /// Held by the one who evicts to make room for itself; given on in the order of asking.
    turn: FairMutex<()>,
    /// How many evict, or wait for their turn to.
    evicting: AtomicU64,
    evictions: OnceLock<Arc<dyn Evictions>>,
    /// How many linked objects share the body of which, by its address ([`crate::shared`]).
    pub(crate) lent: Mutex<HashMap<usize, u32>>,
    /// Who writes what is stored to a device, if somebody does.
    keeper: OnceLock<Weak<dyn Keeper>>,
    requests: AtomicU64,
    failures: AtomicU64,
    bytes_total: AtomicU64,
    bytes_freed: AtomicU64,
    objects: AtomicU64,
    evicted: AtomicU64,
}

impl std::fmt::Debug for Space {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Space").field("size", &self.size).field("held", &self.held).finish_non_exhaustive()
    }
}

impl Memory {
    /// An engine of `size` bytes of payload, with the default policy of eviction; `None` is unlimited.
    pub fn new(name: &str, size: Option<u64>, evictions: Arc<dyn Evictions>) -> Self {
        Self::with_policy(name, size, Policy::default(), evictions)
    }

    /// As [`Memory::new`], with that policy.
    pub fn with_policy(name: &str, size: Option<u64>, policy: Policy, evictions: Arc<dyn Evictions>) -> Self {
        Self::over(Space::new(name, size.unwrap_or(u64::MAX), policy), evictions)
    }

    /// What the file engine has in memory. The file bounds what is linked, not these sums.
    pub(crate) fn beside_file(
        name: &str,
        file: &Arc<Arena>,
        policy: Policy,
        evictions: Arc<dyn Evictions>,
    ) -> Self {
        let size = file.size() + heads_max(file.size());
        Self::over(Space { file: Some(Arc::clone(file)), ..Space::new(name, size, policy) }, evictions)
    }

    fn over(space: Space, evictions: Arc<dyn Evictions>) -> Self {
        let fresh = space.evictions.set(evictions).is_ok();
        debug_assert!(fresh, "a new space has no evictions yet");
        Self { space: Arc::new(space) }
    }

    /// From now on `keeper` is told of what is stored here.
    pub(crate) fn set_keeper(&self, keeper: Weak<dyn Keeper>) {
        let _ = self.space.keeper.set(keeper);
    }

    /// The size of the first block and its room for the body, or `None` if the object could never fit. The block takes as
    /// much of the body as slabs give in one piece: reserving more at once would hold memory that a slow origin may never
    /// fill.
    fn first_size(&self, creation: &Creation<'_>) -> Option<(u64, u64)> {
        let (variant, head) = (creation.variant, creation.head);
        let bare = first::size_for(variant, head, 0)?;
        let length = creation.length.unwrap_or(0);
        if let Some(file) = &self.space.file {
            let fits = length <= file.size() && OBJECT_BYTES + bare <= heads_max(file.size());
            return Some((bare, 0)).filter(|_| fits && !file.is_damaged());
        }
        let fits = length <= LENGTH_MAX && OBJECT_BYTES + bare + length <= self.space.size;
        let capacity = length.min((pool::LARGEST as u64).saturating_sub(bare + pool::LINE as u64));
        Some((first::size_for(variant, head, capacity)?, capacity)).filter(|_| fits)
    }
}

impl Memory {
    /// Lets go of all objects that are stored.
    pub(crate) fn evict_all(&self) {
        loop {
            // The lock is let go of before the object is.
            let oldest = self.space.order.lock().evict_any();
            let Some(oldest) = oldest else { break };
            self.space.evict(&oldest);
        }
    }
}

impl Drop for Memory {
    /// The order and its objects hold each other: it lets go of them, so that memory goes with the last reader.
    fn drop(&mut self) {
        loop {
            let next = self.space.order.lock().evict_any();
            if next.is_none() {
                break;
            }
        }
    }
}

impl Engine for Memory {
    fn name(&self) -> &str {
        &self.space.name
    }

    fn kind(&self) -> &'static str {
        "malloc"
    }

    fn begin(&self, creation: &Creation<'_>) -> Result<Fill, Full> {
        // The first block of a body of unknown length has only the head: how much follows is seen as it comes, and the
        // last extent is cut to size in the end.
        let Some((size, capacity)) = self.first_size(creation) else {
            self.space.failures.fetch_add(1, Ordering::Relaxed);
            return Err(Full);
        };
        self.space.reserve(OBJECT_BYTES + size)?;
        self.space.objects.fetch_add(1, Ordering::Relaxed);
        let first = First::new(capacity, creation.attributes.status, creation.variant, creation.head);
        let space = Arc::clone(&self.space);
        let object = Object::new(creation.key, &creation.attributes, creation.length, first, space);
        Ok(Fill::new(Arc::new(object), Arc::clone(&self.space), creation.length))
    }

    fn begin_sharing(&self, creation: &Creation<'_>, of: &Arc<Object>) -> Result<Option<Fill>, Full> {
        if !Arc::ptr_eq(&self.space, &of.space) || !of.has_body_to_share() {
            return Ok(None);
        }
        let bare = Creation { length: Some(0), ..*creation };
        let (size, _) = self.first_size(&bare).ok_or(Full)?;
        self.space.reserve(OBJECT_BYTES + size)?;
        self.space.objects.fetch_add(1, Ordering::Relaxed);
        let first = First::new(0, creation.attributes.status, creation.variant, creation.head);
        let length = Some(of.filled());
        let object = Object::new(creation.key, &creation.attributes, length, first, Arc::clone(&self.space));
        let shares = object.share_body(of);
        Ok(shares.then(|| Fill::shared(Arc::new(object), Arc::clone(&self.space))))
    }

    fn count(&self, bytes: u64) -> Charge {
        Charge::count(&self.space, bytes)
    }

    fn reserve(&self, bytes: u64) -> Result<Charge, Full> {
        Charge::reserve(&self.space, bytes)
    }

    fn begin_window(&self, creation: &Creation<'_>) -> Result<Fill, Full> {
        let size = first::size_for(creation.variant, creation.head, 0).ok_or(Full)?;
        self.space.hold(OBJECT_BYTES + size);
        self.space.objects.fetch_add(1, Ordering::Relaxed);
        let first = First::new(0, creation.attributes.status, creation.variant, creation.head);
        let space = Arc::clone(&self.space);
        let object = Object::new(creation.key, &creation.attributes, creation.length, first, space);
        object.begin_apart();
        Ok(Fill::windowed(Arc::new(object), Arc::clone(&self.space), creation.length))
    }

    fn size(&self) -> Option<u64> {
        (self.space.size < u64::MAX).then_some(self.space.size)
    }

    fn set_evict_max(&self, count: u64) {
        self.space.evict_max.store(count, Ordering::Relaxed);
    }

    fn statistics(&self) -> Statistics {
        let space = &self.space;
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let held = load(&space.held);
        Statistics {
            requests: load(&space.requests),
            failures: load(&space.failures),
            bytes_total: load(&space.bytes_total),
            bytes_freed: load(&space.bytes_freed),
            objects: load(&space.objects),
            bytes: held,
            linked: load(&space.linked),
            space: if space.size == u64::MAX { 0 } else { space.size.saturating_sub(held) },
            evicted: load(&space.evicted),
            moved: space.order.lock().moved(),
            file: None,
        }
    }

    fn memory(&self) -> u64 {
        self.space.memory()
    }

    fn set_memory_max(&self, bytes: u64) {
        self.space.memory_max.store(bytes, Ordering::Relaxed);
    }

    fn shrink(&self, bytes: u64) -> u64 {
        let held = || self.space.memory();
        let before = held();
        while before.saturating_sub(held()) < bytes && self.space.evict_one(Shortage::Held) {}
        before.saturating_sub(held())
    }
}

impl Space {
    fn new(name: &str, size: u64, policy: Policy) -> Self {
        Self {
            name: name.to_owned(),
            file: None,
            size,
            slack: if size == u64::MAX { 0 } else { (size / 8).max(256 << 10) },
            memory_max: AtomicU64::new(u64::MAX),
            evict_max: AtomicU64::new(50),
            linked: AtomicU64::new(0),
            held: AtomicU64::new(0),
            order: Mutex::new(policy.order()),
            turn: FairMutex::default(),
            evicting: AtomicU64::new(0),
            evictions: OnceLock::new(),
            lent: Mutex::default(),
            keeper: OnceLock::new(),
            requests: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            bytes_total: AtomicU64::new(0),
            bytes_freed: AtomicU64::new(0),
            objects: AtomicU64::new(0),
            evicted: AtomicU64::new(0),
        }
    }

    /// Counts a request for memory.
    pub(crate) fn request(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts `bytes` as linked and held, evicting to make room. Who has to evict does so in the order in which they came,
    /// and gets what that frees: those who come meanwhile wait for it.
    pub(crate) fn reserve(&self, bytes: u64) -> Result<(), Full> {
        self.request();
        if self.evicting.load(Ordering::Acquire) == 0 && self.try_reserve(bytes).is_ok() {
            return Ok(());
        }
        self.evicting.fetch_add(1, Ordering::AcqRel);
        let reserved = {
            let _turn = self.turn.lock();
            self.evict_for(bytes)
        };
        self.evicting.fetch_sub(1, Ordering::AcqRel);
        if reserved.is_err() {
            self.failures.fetch_add(1, Ordering::Relaxed);
        }
        reserved
    }

    /// As [`Space::reserve`], when it is this thread's turn.
    fn evict_for(&self, bytes: u64) -> Result<(), Full> {
        let mut evictions_left = self.evict_max.load(Ordering::Relaxed);
        loop {
            let Err(shortage) = self.try_reserve(bytes) else { return Ok(()) };
            let memory_max = self.memory_max.load(Ordering::Relaxed);
            if bytes > self.size.min(memory_max) || evictions_left == 0 || !self.evict_one(shortage) {
                return Err(Full);
            }
            evictions_left -= 1;
        }
    }

    /// A block of about `size` bytes, at most `most`, counted as linked and held, evicting to make room.
    pub(crate) fn allocate(&self, size: u64, most: u64) -> Result<Block, Full> {
        let Some(file) = &self.file else {
            self.reserve(size)?;
            return Ok(Block::new(size as usize));
        };
        self.request();
        file.requests.fetch_add(1, Ordering::Relaxed);
        let mut evictions_left = self.evict_max.load(Ordering::Relaxed);
        loop {
            if let Some(block) = file.allocate(size, most) {
                let bytes = block.footprint();
                self.linked.fetch_add(bytes, Ordering::Relaxed);
                self.hold(bytes);
                return Ok(block);
            }
            // What is in use keeps its extents when it is evicted.
            if file.is_damaged() || evictions_left == 0 || !self.evict_one(Shortage::Held) {
                self.failures.fetch_add(1, Ordering::Relaxed);
                file.failures.fetch_add(1, Ordering::Relaxed);
                return Err(Full);
            }
            evictions_left -= 1;
        }
    }

    /// Neither sum goes over its limit, not for a moment.
    fn try_reserve(&self, bytes: u64) -> Result<(), Shortage> {
        let add = |sum: &AtomicU64, limit: u64| {
            let within = |now: u64| now.checked_add(bytes).filter(|sum| *sum <= limit);
            sum.fetch_update(Ordering::Relaxed, Ordering::Relaxed, within).is_ok()
        };
        if !add(&self.linked, self.size) {
            return Err(Shortage::Linked);
        }
        let memory_max = self.memory_max.load(Ordering::Relaxed);
        let held_max = self.size.saturating_add(self.slack);
        if !add(&self.held, if self.file.is_some() { held_max } else { held_max.min(memory_max) }) {
            self.unlinked(bytes);
            return Err(Shortage::Held);
        }
        if let Some(file) = &self.file
            && self.memory() > heads_max(file.size()).min(memory_max)
        {
            self.unlinked(bytes);
            self.held.fetch_sub(bytes, Ordering::Relaxed);
            return Err(Shortage::Held);
        }
        self.bytes_total.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Bytes of memory held.
    fn memory(&self) -> u64 {
        let in_file = self.file.as_ref().map_or(0, |file| file.used());
        self.held.load(Ordering::Relaxed).saturating_sub(in_file)
    }

    /// Counts `bytes` as held only: the window of a body that outgrew the store.
    pub(crate) fn hold(&self, bytes: u64) {
        self.held.fetch_add(bytes, Ordering::Relaxed);
        self.bytes_total.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Takes back `bytes` of such a window.
    pub(crate) fn let_go(&self, bytes: u64) {
        self.held.fetch_sub(bytes, Ordering::Relaxed);
        self.bytes_freed.fetch_add(bytes, Ordering::Relaxed);
    }

    /// An object gave back `bytes` when it was complete.
    pub(crate) fn shrunk(&self, bytes: u64, unlinked: bool) {
        if !unlinked {
            self.unlinked(bytes);
        }
        self.let_go(bytes);
    }

    /// An object of `bytes` was unlinked.
    pub(crate) fn unlinked(&self, bytes: u64) {
        self.linked.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// An object of `bytes` is dropped.
    pub(crate) fn give_back(&self, bytes: u64, unlinked: bool) {
        if !unlinked {
            self.unlinked(bytes);
        }
        self.let_go(bytes);
        self.objects.fetch_sub(1, Ordering::Relaxed);
    }

    /// Who writes what is stored to a device.
    pub(crate) fn keeper(&self) -> Option<Arc<dyn Keeper>> {
        self.keeper.get().and_then(Weak::upgrade)
    }

    /// Puts a complete object into the eviction order, unless it is gone already.
    pub(crate) fn join_order(&self, object: &Arc<Object>) {
        // First, so that it is not evicted before it was written.
        if let Some(keeper) = self.keeper().filter(|_| !object.is_gone()) {
            keeper.stored(object);
        }
        // Asked before the lock is taken: it has a lock of its own.
        let size = object.whole_size();
        let mut order = self.order.lock();
        // `unlink` marks first and leaves the order after: whichever comes second sees the other.
        if !object.is_gone() {
            order.insert(object, size);
        }
    }

    /// Takes an object out of the order.
    pub(crate) fn leave_order(&self, object: &Object) {
        // The hold is dropped after the lock: it may be the last, and dropping counts.
        let held = self.order.lock().remove(object.position());
        drop(held);
    }

    /// False if there is nothing to evict that would help.
    fn evict_one(&self, shortage: Shortage) -> bool {
        // Index and order hold one reference each: two is nobody else. Others are passed over while there is a choice.
        let unused = |object: &Arc<Object>| Arc::strong_count(object) <= 2;
        let victim = {
            let mut order = self.order.lock();
            match (order.evict(LOOK_MAX, &unused), shortage) {
                (None, Shortage::Linked) => order.evict_any(),
                // What is in use stays held when it is evicted: that would only lose it.
                (victim, Shortage::Linked | Shortage::Held) => victim,
            }
        };
        let Some(victim) = victim else { return false };
        self.evict(&victim);
        true
    }

    /// Ends the life of an object that was taken out of the order.
    fn evict(&self, victim: &Arc<Object>) {
        if victim.unlink() {
            self.evicted.fetch_add(1, Ordering::Relaxed);
            if let (Some(entry), Some(keeper)) = (victim.entry(), self.keeper()) {
                keeper.note_use(entry, victim.hits(), victim.last_use());
            }
            if let Some(evictions) = self.evictions.get() {
                evictions.evicted(victim);
            }
        }
    }
}

/// Which of the two sums has reached its limit.
#[derive(Clone, Copy, Debug)]
enum Shortage {
    Linked,
    Held,
}
