//! What making backends while the program runs takes of the rest of it.

use crate::backend::Counters;
use crate::group::Group;
use crate::probe::{Report, Room};
use crate::settings::Settings;
use copal_base::Live;
use copal_base::clock::Clock;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

/// Something to be run on the upkeep thread; made there, so it need not be `Send`.
pub type Task = Box<dyn FnOnce() -> Pin<Box<dyn Future<Output = ()>>> + Send>;

/// Counters for a backend of the VCL of the first name, called by the second.
pub type MakeCounters = Box<dyn Fn(&str, &str) -> Result<Counters, String> + Send + Sync>;

/// How many groups may pass at a time: names that requests ask for.
const PASSING_MAX: usize = 1000;

/// What making backends while the program runs takes of the rest of it.
pub struct Maker {
    /// Where time comes from.
    pub clock: Arc<dyn Clock>,
    /// Parameters.
    pub settings: Arc<Live<Settings>>,
    /// Makes counters.
    pub counters: MakeCounters,
    /// Whether the next probe may be made.
    pub room: Arc<Room>,
    /// Takes the outcomes of probes.
    pub report: Arc<dyn Fn(&Report) + Send + Sync>,
    /// Runs something on the upkeep thread.
    pub spawn: Box<dyn Fn(Task) + Send + Sync>,
    /// Groups that were made for requests, by what was asked for.
    pub(crate) passing: Mutex<HashMap<String, Arc<Group>>>,
}

impl fmt::Debug for Maker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Maker").finish_non_exhaustive()
    }
}

impl Maker {
    /// A maker of these parts.
    pub fn new(
        clock: Arc<dyn Clock>,
        settings: Arc<Live<Settings>>,
        counters: MakeCounters,
        room: Arc<Room>,
        report: Arc<dyn Fn(&Report) + Send + Sync>,
        spawn: Box<dyn Fn(Task) + Send + Sync>,
    ) -> Arc<Self> {
        Arc::new(Self { clock, settings, counters, room, report, spawn, passing: Mutex::default() })
    }

    /// The passing group known by `key`, or the one that `make` makes. It ends by itself when nobody has asked for it in
    /// a while. `None` if too many are asked for at once, or `make` gives none.
    pub fn passing(
        self: &Arc<Self>,
        key: &str,
        make: impl FnOnce() -> Option<Arc<Group>>,
    ) -> Option<Arc<Group>> {
        let mut passing = self.passing.lock();
        if let Some(group) = passing.get(key) {
            group.note_use();
            return Some(Arc::clone(group));
        }
        if passing.len() >= PASSING_MAX {
            return None;
        }
        let group = make()?;
        group.note_use();
        passing.insert(key.to_owned(), Arc::clone(&group));
        let (held, task, key) = (Arc::clone(self), Arc::clone(&group), key.to_owned());
        (self.spawn)(Box::new(move || {
            Box::pin(async move {
                crate::group::run_passing(&task).await;
                held.passing.lock().remove(&key);
            })
        }));
        Some(group)
    }
}
