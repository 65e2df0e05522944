//! What a device's log tells its engine.

use super::moving::copy;
use super::{Core, Station};
use crate::entry::Entry;
use crate::volume::{EntryId, Events, Facts, Fate};
use std::sync::{Arc, OnceLock, Weak};

/// Passes on what the log of one device tells.
pub(super) struct DeviceEvents {
    number: u32,
    core: OnceLock<Weak<Core>>,
}

impl DeviceEvents {
    /// Those of the device of that number; nobody hears them yet.
    pub(super) fn new(number: u32) -> Self {
        Self { number, core: OnceLock::new() }
    }

    /// From now on `core` hears them.
    pub(super) fn attach(&self, core: &Arc<Core>) {
        let _ = self.core.set(Arc::downgrade(core));
    }

    fn core(&self) -> Option<Arc<Core>> {
        self.core.get().and_then(Weak::upgrade)
    }
}

impl Events for DeviceEvents {
    fn fate(&self, id: EntryId, facts: &Facts) -> Fate {
        let Some(core) = self.core() else { return Fate::Drop };
        core.fate(Entry::new(self.number, id.0), facts)
    }

    fn dropped(&self, id: EntryId, facts: &Facts, links: &[u8]) {
        if let Some(core) = self.core() {
            core.evictions.entry_ended(Entry::new(self.number, id.0), facts, links);
        }
    }
}

impl Core {
    /// What becomes of `entry` when its region is evicted: it goes to the next slower tier. Where there is none, what was used
    /// since it was written stays on its device, once.
    fn fate(&self, entry: Entry, facts: &Facts) -> Fate {
        let Some((station, slot)) = self.station(entry) else { return Fate::Drop };
        if let Some(below) = self.choose(station.tier + 1) {
            self.demote(station, slot, entry, below);
            return Fate::Drop;
        }
        if facts.last_use != 0 || self.evictions.is_used(entry, facts) {
            station.volume.note_use(slot, facts.hits, 0);
            return Fate::Keep;
        }
        Fate::Drop
    }

    /// Writes the record below first; the one above goes after. Where that fails, the object is evicted.
    fn demote(&self, station: &Station, slot: EntryId, entry: Entry, below: &Station) {
        if let Ok(new) = copy(station, slot, below) {
            self.hand_over(entry, below, new);
        }
    }
}
