//! What a volume should have: a list of entries, and the changes to it that need not be durable yet.
//!
//! A crash may lose changes, but only the last ones: what is there afterwards is what was there after some change, not
//! before the last one that was made durable.

use copal_store::volume::{EntryId, Events, Facts, Fate, Volume};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

/// What is known of an entry.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Item {
    /// The number of its record.
    pub(crate) number: u32,
    /// The times that its facts should have; of a piece only `keep` is looked at.
    pub(crate) times: (f64, f32, f32, f32),
    pub(crate) ban: u32,
}

/// One change.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Change {
    Put(EntryId, Item),
    Remove(EntryId),
}

pub(crate) type Items = BTreeMap<EntryId, Item>;

fn apply(items: &mut Items, change: Change) {
    match change {
        Change::Put(id, item) => {
            items.insert(id, item);
        }
        Change::Remove(id) => {
            items.remove(&id);
        }
    }
}

/// See the module.
#[derive(Default, Clone)]
pub(crate) struct Model {
    durable: Items,
    since: Vec<Change>,
    pub(crate) items: Items,
    /// Records whose bytes are durable where their entries say. They stay so until it is durable that they are gone.
    pub(crate) written_out: BTreeSet<(EntryId, u32)>,
    pub(crate) bans: Vec<(u32, Vec<u8>)>,
    /// A ban that was being added when the crash came.
    pub(crate) perhaps: Option<(u32, Vec<u8>)>,
    /// Bans that were dropped, and may be there again.
    pub(crate) dropped_bans: BTreeSet<u32>,
}

impl Model {
    pub(crate) fn change(&mut self, change: Change) {
        apply(&mut self.items, change);
        self.since.push(change);
    }

    /// All changes up to now are durable.
    pub(crate) fn all_durable(&mut self) {
        self.durable = self.items.clone();
        self.since.clear();
    }

    /// Checks that the volume has what it should have while it runs, or after a start in order.
    pub(crate) fn check(&self, volume: &Volume) {
        let found = entries(volume);
        for (id, item) in &self.items {
            assert_eq!(found.get(id), Some(item), "{id:?}");
        }
        assert_eq!(found.len(), self.items.len());
        volume.check();
    }

    /// Checks a volume after a crash, and takes over what it has.
    pub(crate) fn check_after_crash(&mut self, volume: &Volume) {
        volume.check();
        let found = entries(volume);
        let mut items = self.durable.clone();
        let mut is_prefix = items == found;
        for change in &self.since {
            apply(&mut items, *change);
            is_prefix |= items == found;
        }
        assert!(
            is_prefix,
            "what the crash left was never there\nfound   {found:?}\ndurable {:?}\nsince   {:?}",
            self.durable, self.since
        );
        self.written_out.retain(|(id, number)| found.get(id).is_some_and(|item| item.number == *number));
        self.items = found;
        self.all_durable();
        if let Some(perhaps) = self.perhaps.take()
            && volume.bans().iter().any(|(number, ..)| *number == perhaps.0)
        {
            self.bans.push(perhaps);
        }
        self.check_bans(volume);
    }

    /// The bytes of all records are durable.
    pub(crate) fn all_written_out(&mut self) {
        self.written_out = self.items.iter().map(|(id, item)| (*id, item.number)).collect();
    }

    /// Checks that no ban is missing or another.
    pub(crate) fn check_bans(&self, volume: &Volume) {
        let found: Vec<_> = volume
            .bans()
            .into_iter()
            .filter(|(number, ..)| !self.dropped_bans.contains(number))
            .map(|(number, time, text)| {
                assert_eq!(time.to_bits(), f64::from(number).to_bits());
                (number, text)
            })
            .collect();
        assert_eq!(found, self.bans);
    }
}

/// What the volume says of its entries.
pub(crate) fn entries(volume: &Volume) -> Items {
    let mut found = Items::new();
    volume.for_each(|id, facts, _| {
        let earlier = found.insert(id, item_of(facts));
        assert!(earlier.is_none(), "{id:?} twice");
        assert_eq!(volume.facts(id).as_ref().map(item_of), Some(item_of(facts)));
    });
    found
}

fn item_of(facts: &Facts) -> Item {
    let times = if facts.is_piece() {
        (0.0, 0.0, 0.0, facts.keep)
    } else {
        (facts.origin_time, facts.ttl, facts.grace, facts.keep)
    };
    Item { number: facts.variant, times, ban: facts.ban }
}

/// What the volume told while it made room.
#[derive(Default)]
pub(crate) struct Told {
    pub(crate) dropped: Mutex<Vec<EntryId>>,
    pub(crate) kept: Mutex<Vec<EntryId>>,
}

impl Events for Told {
    fn fate(&self, id: EntryId, facts: &Facts) -> Fate {
        if facts.hits > 0 {
            self.kept.lock().expect("nobody panics").push(id);
            Fate::Keep
        } else {
            Fate::Drop
        }
    }

    fn dropped(&self, id: EntryId, _facts: &Facts, _links: &[u8]) {
        self.dropped.lock().expect("nobody panics").push(id);
    }
}
