//! What is known while a history runs: the resources as they are, and what the origin said when.

use crate::content::{Bodies, Form};
use crate::plan::{Ask, History, Mood, Policy, Setup, Site, Tag};
use copal_base::Time;
use copal_base::clock::{Clock, ManualClock};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use tokio::sync::watch;

/// A resource at the origin.
#[derive(Debug)]
pub(crate) struct Resource {
    pub(crate) site: Site,
    pub(crate) policy: Policy,
    pub(crate) mood: Mood,
    /// When each version came to be, in whole seconds; the last is the present one.
    pub(crate) modified: Vec<i64>,
}

impl Resource {
    pub(crate) fn version(&self) -> u32 {
        self.modified.len() as u32 - 1
    }

    /// The version that many before the present one.
    pub(crate) fn back(&self, count: u32) -> u32 {
        self.version().saturating_sub(count)
    }

    /// The entity tag of a representation.
    pub(crate) fn tag(&self, form: Form) -> Option<String> {
        let opaque = format!("\"{}-{}-{}\"", form.site, form.variant, form.version);
        match self.site.tag {
            Tag::None => None,
            Tag::Weak => Some(format!("W/{opaque}")),
            Tag::Strong => Some(opaque),
        }
    }

    /// Its Last-Modified.
    pub(crate) fn modified(&self, version: u32) -> Option<i64> {
        self.site.modified.then(|| self.modified[version as usize])
    }
}

/// One answer of the origin.
#[derive(Debug, Clone)]
pub(crate) struct Record {
    /// Which request made the cache ask.
    pub(crate) request: usize,
    pub(crate) form: Form,
    pub(crate) status: u16,
    pub(crate) policy: Policy,
    /// The clock when the origin's request came.
    pub(crate) arrived_at: Time,
    /// When the answer's head was sent: the clock, the event, the epoch.
    pub(crate) sent_at: Time,
    pub(crate) sent: u64,
    pub(crate) epoch: u32,
    /// Its Date.
    pub(crate) date: i64,
    /// When a client first had it.
    pub(crate) delivered: Option<u64>,
    /// And by the clock.
    pub(crate) delivered_at: Time,
    /// Whether the request that made the cache ask was answered with it; if not, it was fetched in the background.
    pub(crate) answers: bool,
    /// It answers HEAD.
    pub(crate) head: bool,
}

/// What was stored before must not be used any more.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Barrier {
    pub(crate) site: usize,
    pub(crate) began: u64,
    pub(crate) done: u64,
    pub(crate) epoch: u32,
    pub(crate) what: &'static str,
}

/// All of it.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) setup: Setup,
    pub(crate) clock: Arc<ManualClock>,
    events: Cell<u64>,
    /// Grows each time everything has come to rest.
    pub(crate) epoch: Cell<u32>,
    /// When each epoch ended.
    pub(crate) ends: RefCell<Vec<Time>>,
    pub(crate) resources: RefCell<Vec<Resource>>,
    pub(crate) asks: RefCell<Vec<Option<Ask>>>,
    pub(crate) records: RefCell<Vec<Record>>,
    /// Which request's fetch reached the origin.
    pub(crate) contacts: RefCell<Vec<usize>>,
    /// Where the origin failed: site, epoch and time.
    pub(crate) faults: RefCell<Vec<(usize, u32, Time)>>,
    pub(crate) barriers: RefCell<Vec<Barrier>>,
    pub(crate) bodies: RefCell<Bodies>,
    /// Counts how often the gates were opened.
    pub(crate) gate: watch::Sender<u64>,
    /// Exchanges under way at the origin.
    pub(crate) serving: Cell<usize>,
    pub(crate) log: RefCell<Vec<String>>,
    pub(crate) wrong: RefCell<Option<String>>,
    pub(crate) tally: RefCell<Tally>,
}

/// What a history came to: for seeing that the test tests something.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Tally {
    pub(crate) requests: usize,
    /// Answers from what was there before the request.
    pub(crate) reused: usize,
    pub(crate) stale: usize,
    pub(crate) parts: usize,
    pub(crate) reused_parts: usize,
    pub(crate) not_modified: usize,
    pub(crate) shared: usize,
    pub(crate) cut: usize,
    pub(crate) failed: usize,
    pub(crate) confirmed: usize,
}

impl Tally {
    /// The sum of both.
    pub(crate) fn add(&mut self, other: &Tally) {
        self.requests += other.requests;
        self.reused += other.reused;
        self.stale += other.stale;
        self.parts += other.parts;
        self.reused_parts += other.reused_parts;
        self.not_modified += other.not_modified;
        self.shared += other.shared;
        self.cut += other.cut;
        self.failed += other.failed;
        self.confirmed += other.confirmed;
    }
}

/// The clock at the beginning: a whole second.
const START: i64 = 1_700_000_000;

impl State {
    pub(crate) fn new(history: &History) -> Rc<Self> {
        let resource = |site: &Site| Resource {
            site: site.clone(),
            policy: site.policy.clone(),
            mood: Mood::Fine,
            modified: vec![START - 100],
        };
        Rc::new(Self {
            setup: history.world,
            clock: Arc::new(ManualClock::new(START as f64)),
            events: Cell::new(0),
            epoch: Cell::new(0),
            ends: RefCell::default(),
            resources: RefCell::new(history.sites.iter().map(resource).collect()),
            asks: RefCell::default(),
            records: RefCell::default(),
            contacts: RefCell::default(),
            faults: RefCell::default(),
            barriers: RefCell::default(),
            bodies: RefCell::default(),
            gate: watch::Sender::new(0),
            serving: Cell::new(0),
            log: RefCell::default(),
            wrong: RefCell::default(),
            tally: RefCell::default(),
        })
    }

    /// The number of what happens now; each is greater than those before.
    pub(crate) fn event(&self) -> u64 {
        self.events.set(self.events.get() + 1);
        self.events.get()
    }

    pub(crate) fn now(&self) -> Time {
        self.clock.now()
    }

    /// A new version of the resource. The clock goes on, so that no two versions have the same Last-Modified.
    pub(crate) fn change(&self, site: usize) {
        self.clock.advance(2.0);
        let now = self.now().floor() as i64 - 1;
        self.resources.borrow_mut()[site].modified.push(now);
        self.note(|| format!("/s{site} is now version {}", self.resources.borrow()[site].version()));
    }

    /// Writes a line about what happens.
    pub(crate) fn note(&self, line: impl FnOnce() -> String) {
        let elapsed = self.now() - START as f64;
        self.log.borrow_mut().push(format!("{:>7.1} e{:<3} {}", elapsed, self.epoch.get(), line()));
    }

    /// Something is wrong; the first counts.
    pub(crate) fn fail(&self, why: String) {
        self.note(|| format!("WRONG: {why}"));
        self.wrong.borrow_mut().get_or_insert(why);
    }

    /// Whether the origin failed for that resource since all was at rest.
    pub(crate) fn failed_lately(&self, site: usize) -> bool {
        self.faults.borrow().iter().any(|fault| (fault.0, fault.1) == (site, self.epoch.get()))
    }

    /// Whether it failed at `time` or later, or the cache may have learned of it then.
    pub(crate) fn failed_since(&self, site: usize, time: Time) -> bool {
        let ends = self.ends.borrow();
        let learned = |epoch: u32, at: Time| ends.get(epoch as usize).map_or(at, |end| end.max(at));
        self.faults.borrow().iter().any(|fault| fault.0 == site && learned(fault.1, fault.2) >= time)
    }

    /// All is at rest.
    pub(crate) fn rest(&self) {
        self.ends.borrow_mut().push(self.now());
        self.epoch.set(self.epoch.get() + 1);
    }

    /// When the cache had the response at the latest.
    pub(crate) fn had(&self, record: &Record) -> Time {
        let end = self.ends.borrow().get(record.epoch as usize).copied();
        end.map_or(record.delivered_at, |end| end.min(record.delivered_at))
    }

    /// Waits until the gates are opened.
    pub(crate) async fn gate(&self) {
        let mut opened = self.gate.subscribe();
        let _ = opened.changed().await;
    }

    pub(crate) fn open(&self) {
        self.gate.send_modify(|count| *count += 1);
    }
}
