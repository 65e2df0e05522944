//! The memory engine: `-s [name=]malloc[,size]`.
//!
//! The size counts payload: heads and bodies. Two sums are kept: what is linked (in the index, or being filled) stays
//! within the size; what is held in all, also by readers of objects that were evicted or purged meanwhile, may go over
//! it by an eighth, but no further: then new objects find the store full and pass through.

use crate::block::Block;
use crate::engine::{Creation, Engine, Evictions, Full, Statistics};
use crate::fill::Fill;
use crate::lru::Lru;
use crate::object::Object;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// The most bytes of a body that the first block takes; more would reserve memory that a slow origin may never fill.
const FIRST_MAX: u64 = 1 << 20;

/// First block's room for a body of unknown length.
const FIRST_UNKNOWN: u64 = 4 << 10;

/// The memory engine.
pub struct Memory {
    name: String,
    space: Arc<Space>,
}

/// The budget and the eviction order, shared with every object and fill.
pub(crate) struct Space {
    size: u64,
    slack: u64,
    /// How many objects one request for memory may evict (`nuke_limit`).
    evict_max: AtomicU64,
    linked: AtomicU64,
    held: AtomicU64,
    order: Mutex<Lru>,
    evictions: OnceLock<Arc<dyn Evictions>>,
    requests: AtomicU64,
    failures: AtomicU64,
    bytes_total: AtomicU64,
    bytes_freed: AtomicU64,
    objects: AtomicU64,
    evicted: AtomicU64,
    moved: AtomicU64,
}

impl std::fmt::Debug for Space {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Space").field("size", &self.size).field("held", &self.held).finish_non_exhaustive()
    }
}

impl Memory {
    /// An engine of `size` bytes of payload; `None` is unlimited.
    pub fn new(name: &str, size: Option<u64>, evictions: Arc<dyn Evictions>) -> Self {
        let space = Space::new(size.unwrap_or(u64::MAX));
        let fresh = space.evictions.set(evictions).is_ok();
        debug_assert!(fresh, "a new space has no evictions yet");
        Self { name: name.to_owned(), space: Arc::new(space) }
    }

    /// How many objects one request for memory may evict (Varnish's parameter `nuke_limit`, default 50).
    pub fn set_evict_max(&self, count: u64) {
        self.space.evict_max.store(count, Ordering::Relaxed);
    }
}

impl Engine for Memory {
    fn name(&self) -> &str {
        &self.name
    }

    fn kind(&self) -> &'static str {
        "malloc"
    }

    fn begin(&self, creation: &Creation<'_>) -> Result<Fill, Full> {
        let head = (creation.variant.len() + creation.head.len()) as u64;
        if creation.length.is_some_and(|length| length.saturating_add(head) > self.space.size) {
            self.space.failures.fetch_add(1, Ordering::Relaxed);
            return Err(Full);
        }
        let body = match creation.length {
            Some(length) => length.min(FIRST_MAX),
            None => FIRST_UNKNOWN.saturating_sub(head).max(1024),
        };
        self.space.reserve(head + body)?;
        self.space.objects.fetch_add(1, Ordering::Relaxed);
        let object = Object::new(
            creation.key,
            &creation.attributes,
            creation.variant,
            creation.head,
            creation.length,
            Block::new((head + body) as usize),
            Arc::clone(&self.space),
        );
        Ok(Fill::new(Arc::new(object), Arc::clone(&self.space)))
    }

    fn touch(&self, objects: &mut Vec<Arc<Object>>) {
        let mut order = self.space.order.lock();
        let moved = objects.iter().filter(|object| order.touch(object)).count();
        drop(order);
        self.space.moved.fetch_add(moved as u64, Ordering::Relaxed);
        objects.clear();
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
            space: if space.size == u64::MAX { 0 } else { space.size.saturating_sub(held) },
            evicted: load(&space.evicted),
            moved: load(&space.moved),
        }
    }
}

impl Space {
    fn new(size: u64) -> Self {
        Self {
            size,
            slack: if size == u64::MAX { 0 } else { (size / 8).max(256 << 10) },
            evict_max: AtomicU64::new(50),
            linked: AtomicU64::new(0),
            held: AtomicU64::new(0),
            order: Mutex::default(),
            evictions: OnceLock::new(),
            requests: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            bytes_total: AtomicU64::new(0),
            bytes_freed: AtomicU64::new(0),
            objects: AtomicU64::new(0),
            evicted: AtomicU64::new(0),
            moved: AtomicU64::new(0),
        }
    }

    /// Counts `bytes` as linked and held, evicting to make room.
    pub(crate) fn reserve(&self, bytes: u64) -> Result<(), Full> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let mut evictions_left = self.evict_max.load(Ordering::Relaxed);
        loop {
            let linked = self.linked.fetch_add(bytes, Ordering::Relaxed) + bytes;
            let held = self.held.load(Ordering::Relaxed).saturating_add(bytes);
            if linked <= self.size && held <= self.size.saturating_add(self.slack) {
                self.hold(bytes);
                return Ok(());
            }
            self.linked.fetch_sub(bytes, Ordering::Relaxed);
            // Evicting frees nothing at once if readers hold what goes; when they hold too much, only waiting helps.
            let helpless = held > self.size.saturating_add(self.slack) && linked <= self.size;
            if bytes > self.size || helpless || evictions_left == 0 || !self.evict_one() {
                self.failures.fetch_add(1, Ordering::Relaxed);
                return Err(Full);
            }
            evictions_left -= 1;
        }
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

    /// Puts a complete object into the eviction order, unless it is gone already.
    pub(crate) fn join_order(&self, object: &Arc<Object>) {
        let mut order = self.order.lock();
        // `unlink` marks first and leaves the order after: whichever comes second sees the other.
        if !object.is_gone() {
            order.insert(object);
        }
    }

    /// Takes an object out of the order.
    pub(crate) fn leave_order(&self, object: &Object) {
        // The hold is dropped after the lock: it may be the last, and dropping counts.
        let held = self.order.lock().remove(object);
        drop(held);
    }

    fn evict_one(&self) -> bool {
        // Index and order hold one reference each: two is nobody else. Others are passed over while there is a choice.
        let victim = self.order.lock().pop(64, |object| Arc::strong_count(object) <= 2);
        let Some(victim) = victim else { return false };
        if victim.unlink() {
            self.evicted.fetch_add(1, Ordering::Relaxed);
            if let Some(evictions) = self.evictions.get() {
                evictions.evicted(&victim);
            }
        }
        true
    }
}
