//! What stands on a device, as lookups, purges and new versions meet it.

use copal_catalog::ban::Bans;
use copal_catalog::head;
use copal_catalog::index::Index;
use copal_catalog::index::cold::Loads;
use copal_catalog::index::lookup::{Found, Query};
use copal_catalog::index::purge::Remainder;
use copal_catalog::index::tags::Tags;
use copal_store as store;
use copal_wire::ResponseHead;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};
use store::device::Device;
use store::device::sim::SimDevice;
use store::persistent::{Admit, DeviceSpec, Pace, Persistent, Settings};
use store::{Attributes, Creation, Cursor, Engine, Evictions, Flags, Object, Policy, State};

struct Site {
    index: Arc<Index>,
    engine: Arc<Persistent>,
}

#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Waits for what a thread of the engine's is to bring about.
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(30), "{what}");
        std::thread::yield_now();
    }
}

impl Site {
    /// A start on `device`.
    fn on(device: &Arc<SimDevice>) -> Self {
        let index = Arc::new(Index::new(Arc::new(Bans::new()), Tags::default()));
        index.tags.set_wanted(true);
        let device = DeviceSpec {
            path: "sim".to_owned(),
            device: Arc::clone(device) as Arc<dyn Device>,
            options: store::volume::Options::default(),
        };
        let settings = Settings {
            name: "s0".to_owned(),
            kind: "persistent",
            memory: 4 << 20,
            policy: Policy::Lru,
            admit: Admit::All,
            tiers: vec![vec![device]],
            first_device: 0,
            pace: Arc::new(Pace::default()),
        };
        let engine = Persistent::open(settings, Arc::clone(&index) as Arc<dyn Evictions>);
        let engine = Arc::new(engine.expect("the device is good"));
        index.attach(vec![Arc::clone(&engine) as Arc<dyn Engine>], 100.0);
        Self { index, engine }
    }

    fn new() -> (Self, Arc<SimDevice>) {
        let device = Arc::new(SimDevice::new(16 << 20));
        (Self::on(&device), device)
    }

    /// Stores an object and waits for its record.
    fn store(&self, key: u8, body: &[u8]) -> Arc<Object> {
        let mut response = ResponseHead::default();
        response.reason.extend_from_slice(b"OK");
        response.fields.push(b"xkey", b"news");
        let mut bytes = Vec::new();
        head::join(&response, &mut bytes);
        let attributes = Attributes {
            origin_time: 100.0,
            ttl: 60.0,
            grace: 10.0,
            keep: 0.0,
            status: 200,
            flags: Flags(Flags::TAGGED),
            ban: 1,
            vxid: 1,
        };
        let key = [key; 32];
        let creation =
            Creation { key, attributes, variant: b"", head: &bytes, length: Some(body.len() as u64) };
        let mut fill = self.engine.begin(&creation).expect("there is room");
        fill.append(body).expect("there is room");
        let object = Arc::clone(fill.object());
        self.index.begin(&key).insert(Arc::clone(&object));
        fill.commit();
        until("the record is written", || object.entry().is_some());
        object
    }

    /// As [`Site::store`], and out of memory.
    fn store_cold(&self, key: u8, body: &[u8]) {
        drop(self.store(key, body));
        // The writer holds the object for a moment longer.
        until("it leaves memory", || {
            self.engine.shrink(u64::MAX);
            self.index.cold_count() > 0 && self.engine.statistics().linked == 0
        });
    }

    fn look(&self, key: u8, loads: &Arc<Loads>, waiter: Option<(u64, &Waker)>) -> Found {
        self.index.lookup(&Query { loads: Some(loads), ..Query::plain([key; 32], 110.0) }, waiter)
    }

    /// What a request finds, once what may answer was loaded.
    fn find(&self, key: u8) -> Found {
        let (loads, woken) = (Arc::new(Loads::default()), Arc::new(Woken::default()));
        let waker = Waker::from(Arc::clone(&woken));
        let mut seen = 0;
        loop {
            match self.look(key, &loads, Some((9, &waker))) {
                Found::Cold => until("the load is over", || woken.0.load(Ordering::SeqCst) > seen),
                found => return found,
            }
            seen = woken.0.load(Ordering::SeqCst);
        }
    }

    fn body(&self, key: u8) -> Option<Vec<u8>> {
        let Found::Hit(object) = self.find(key) else { return None };
        until("all of it is there", || object.state() == State::Stored);
        let mut cursor = Cursor::new(&object, 0, u64::MAX);
        let mut slices = Vec::new();
        cursor.slices(&object, usize::MAX, &mut slices);
        let body = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
        drop(slices);
        cursor.close(&object);
        Some(body)
    }
}

#[test]
fn what_left_memory_is_loaded_once_for_all_who_ask() {
    let (site, _) = Site::new();
    site.store_cold(1, b"a body");
    let (loads, woken) = (Arc::new(Loads::default()), Arc::new(Woken::default()));
    let waker = Waker::from(Arc::clone(&woken));
    let waiting =
        (0..5).filter(|id| matches!(site.look(1, &loads, Some((*id, &waker))), Found::Cold)).count();
    until("each that waits is woken", || woken.0.load(Ordering::SeqCst) >= waiting);
    assert_eq!(site.body(1).as_deref(), Some(&b"a body"[..]));
    assert_eq!(site.engine.report().devices[0].log.opened, 1);
    assert_eq!(site.index.cold_count(), 0);
}

#[test]
fn who_does_not_ask_for_devices_sees_none() {
    let (site, _) = Site::new();
    site.store_cold(1, b"x");
    let found = site.index.lookup(&Query::plain([1; 32], 110.0), None);
    assert!(matches!(found, Found::Miss(..)));
}

#[test]
fn a_purge_ends_what_is_cold() {
    let check = |purge: &dyn Fn(&Site) -> u64| {
        let (site, device) = Site::new();
        site.store_cold(1, b"x");
        assert_eq!(purge(&site), 1);
        assert!(matches!(site.find(1), Found::Miss(..)));
        assert_eq!((site.index.cold_count(), site.index.tags.counts().links), (0, 0));
        site.engine.close();
        let again = Site::on(&device);
        assert!(matches!(again.find(1), Found::Miss(..)), "it does not come back by a start");
    };
    check(&|site| site.index.purge(&[1; 32]).count());
    check(&|site| site.index.purge_tagged(b"sport news").count());
    check(&|site| site.index.invalidate(&[1; 32]).count());
}

#[test]
fn a_soft_purge_shortens_what_is_cold() {
    let (site, device) = Site::new();
    site.store_cold(1, b"x");
    let remainder = Remainder { ttl: 0.0, grace: Some(0.0), keep: Some(0.0) };
    assert_eq!(site.index.shorten(&[1; 32], &remainder, 105.0).1, 1);
    assert!(matches!(site.find(1), Found::Miss(..)));
    site.engine.close();
    assert!(matches!(Site::on(&device).find(1), Found::Miss(..)));
}

#[test]
fn a_new_version_ends_the_cold_one() {
    let (site, device) = Site::new();
    site.store_cold(1, b"old");
    site.store_cold(1, b"new");
    assert_eq!(site.index.cold_count(), 1);
    assert_eq!(site.body(1).as_deref(), Some(&b"new"[..]));
    site.engine.close();
    assert_eq!(Site::on(&device).body(1).as_deref(), Some(&b"new"[..]));
}

#[test]
fn what_is_complete_before_it_is_shown_is_written() {
    let (site, _) = Site::new();
    let attributes = Attributes {
        origin_time: 100.0,
        ttl: 60.0,
        grace: 0.0,
        keep: 0.0,
        status: 200,
        flags: Flags(0),
        ban: 1,
        vxid: 1,
    };
    let creation = Creation { key: [1; 32], attributes, variant: b"", head: b"", length: Some(1) };
    let mut fill = site.engine.begin(&creation).expect("there is room");
    fill.append(b"x").expect("there is room");
    let object = Arc::clone(fill.object());
    fill.commit();
    // The writer has it, and waits for this.
    std::thread::yield_now();
    site.index.begin(&[1; 32]).insert(Arc::clone(&object));
    until("the record is written", || object.entry().is_some());
}

#[test]
fn a_start_finds_what_there_was() {
    let (site, device) = Site::new();
    (1..20).for_each(|key| drop(site.store(key, &[key; 3000])));
    site.engine.close();
    let again = Site::on(&device);
    assert_eq!((again.index.cold_count(), again.index.tags.counts().links), (19, 19));
    for key in 1..20 {
        assert_eq!(again.body(key).as_deref(), Some(&[key; 3000][..]));
    }
    assert_eq!(again.index.purge_tagged(b"news").count(), 19);
}

#[test]
fn what_is_at_the_end_of_its_life_is_swept() {
    let (site, _) = Site::new();
    site.store_cold(1, b"x");
    let swept = |now: f64| {
        let mut count = 0;
        let dead = |facts: &store::Facts| facts.origin_time + f64::from(facts.ttl + facts.grace) < now;
        (0..).map_while(|shard| site.index.sweep_cold(shard, dead, |_| count += 1)).for_each(|_| {});
        count
    };
    assert_eq!((swept(169.0), swept(171.0), site.index.cold_count()), (0, 1, 0));
}
