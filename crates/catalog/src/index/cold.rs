//! Entries in the index: objects that stand on a device and are not resident.
//!
//! ```text
//!            written                     evicted from memory
//! resident ----------> resident, entry ----------------------> entry (cold)
//!                            ^                                    |
//!                            +------------- loaded ---------------+
//! ```
//! A cold entry takes 8 bytes of its shard's table; the facts about it, 64 bytes, are the engine's. The links of an
//! object in the index (its place among the bans, its surrogate keys, its family) stay with the entry: they do not change
//! when an object leaves memory or comes back.
//!
//! An entry is loaded once: requests that need it meanwhile wait for that load. The shard's lock is held for the lookup only;
//! devices are read by threads of the engine's.

use super::purge::Remainder;
use super::tags::Tag;
use super::{Index, Key, Shard};
use crate::reason::Reason;
use crate::sparse::family::{base_of, is_segment};
use copal_rules::vary;
use copal_store as store;
use hashbrown::HashTable;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::task::Waker;
use store::{Engine, Entry, Facts, Flags, NotLoaded, Object};

/// The loads of one request: how many it may still begin, and which of them failed.
#[derive(Debug)]
pub struct Loads {
    failed: Mutex<Vec<(Entry, NotLoaded)>>,
    /// How many more may be begun for it.
    left: AtomicU32,
}

impl Default for Loads {
    fn default() -> Self {
        Self { failed: Mutex::default(), left: AtomicU32::new(LOADS_MAX) }
    }
}

/// The most loads that one request may begin, so that it does not load thousands of variants of one object.
const LOADS_MAX: u32 = 32;

/// A load that is to be begun, once no shard is locked.
pub(super) struct Start {
    engine: Arc<dyn Engine>,
    key: Key,
    entry: Entry,
}

impl Loads {
    /// Those of a reader that goes through many segments, each under a key of its own.
    pub fn of_segments() -> Self {
        Self { left: AtomicU32::new(u32::MAX), ..Self::default() }
    }

    fn take_one(&self) -> bool {
        let one_less = |left: u32| if left == u32::MAX { Some(left) } else { left.checked_sub(1) };
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok()
    }

    /// Why the last load failed, if one did.
    pub fn failure(&self) -> Option<Reason> {
        self.failed.lock().last().map(|(_, why)| match why {
            NotLoaded::Gone => Reason::LoadGone,
            NotLoaded::Damaged => Reason::LoadDamaged,
            NotLoaded::Unreadable => Reason::LoadUnreadable,
            NotLoaded::Full => Reason::LoadNoRoom,
        })
    }

    fn has_failed(&self, entry: Entry) -> bool {
        self.failed.lock().iter().any(|(other, _)| *other == entry)
    }
}

/// A request that waits for a load.
#[derive(Debug)]
struct Waiting {
    id: u64,
    waker: Waker,
    loads: Arc<Loads>,
}

/// The cold entries of a shard.
#[derive(Debug, Default)]
pub(super) struct Cold {
    /// Each with a part of its key, by which it is found.
    table: HashTable<(Entry, u32)>,
    /// Loads under way, and who waits for each.
    loading: HashMap<Entry, Vec<Waiting>>,
}

/// The part of a key that the table keeps; the shard took the first two bytes.
fn part(key: &[u8]) -> u32 {
    let bytes: [u8; 4] = std::array::from_fn(|at| key[8 + at]);
    u32::from_le_bytes(bytes)
}

/// A table uses the upper bits of a hash as well as the lower ones.
fn hash(part: u32) -> u64 {
    u64::from(part) << 32 | u64::from(part)
}

impl Cold {
    pub(super) fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    fn insert(&mut self, entry: Entry, key: &[u8]) {
        let part = part(key);
        self.table.insert_unique(hash(part), (entry, part), |(_, part)| hash(*part));
    }

    fn has(&self, entry: Entry, key: &[u8]) -> bool {
        self.table.find(hash(part(key)), |(other, _)| *other == entry).is_some()
    }

    /// Removes an entry; true if it was there.
    pub(super) fn remove(&mut self, entry: Entry, key: &[u8]) -> bool {
        match self.table.find_entry(hash(part(key)), |(other, _)| *other == entry) {
            Ok(found) => {
                found.remove();
                true
            }
            Err(_) => false,
        }
    }

    /// The entries that may be of `key`, and what is known of them.
    fn of(&self, engines: &Engines, key: &Key) -> Vec<(Entry, Facts)> {
        if self.table.is_empty() {
            return Vec::new();
        }
        let part = part(key);
        let same = self.table.iter_hash(hash(part)).filter(|(_, other)| *other == part);
        same.filter_map(|(entry, _)| Some((*entry, engines.facts(*entry)?)))
            .filter(|(_, facts)| is_of(facts, key))
            .collect()
    }

    /// Takes a request off the lists of those who wait for a load.
    pub(super) fn stop_waiting(&mut self, id: u64) {
        self.loading.values_mut().for_each(|waiting| waiting.retain(|one| one.id != id));
    }

    fn all(&self) -> impl Iterator<Item = Entry> + '_ {
        self.table.iter().map(|(entry, _)| *entry)
    }
}

/// Whether the entry of `facts` is under `key`. Facts hold the first half of a key; nobody can make two keys that share it.
fn is_of(facts: &Facts, key: &Key) -> bool {
    facts.key == key[..16] && facts.key_tail().is_none_or(|tail| tail == key[16..])
}

/// The end of an entry's ttl, grace and keep; a segment lives as long as its master.
pub(super) fn end_of_life(facts: &Facts) -> f64 {
    match facts.is_piece() {
        true => f64::INFINITY,
        false => {
            facts.origin_time + f64::from(facts.ttl.max(0.0)) + f64::from(facts.grace) + f64::from(facts.keep)
        }
    }
}

/// Counts of the entries that a start found on devices.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Adopted {
    /// Entries that requests may be answered from.
    pub entries: u64,
    /// Entries that were ended: segments without their master, and those whose bans are no longer known.
    pub useless: u64,
}

impl crate::ban::BanLog for Engines {
    fn added(&self, number: u64, time: f64, text: &[u8]) {
        self.0.iter().for_each(|engine| engine.add_ban(number, time, text));
    }
}

/// The engines that have devices, by the numbers of these.
#[derive(Default)]
pub(super) struct Engines(Vec<Arc<dyn Engine>>);

impl std::fmt::Debug for Engines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.iter().map(|engine| engine.name())).finish()
    }
}

impl Engines {
    fn of(&self, entry: Entry) -> Option<&Arc<dyn Engine>> {
        self.0.iter().find(|engine| engine.devices().contains(&entry.device()))
    }

    fn facts(&self, entry: Entry) -> Option<Facts> {
        self.of(entry)?.facts(entry)
    }
}

/// The links of an entry to other parts of the index: its surrogate keys and its family. Its engine keeps them with the
/// entry, so that the index need not read the head when the entry ends.
///
/// | bytes | meaning |
/// |---|---|
/// | 1 | 1 |
/// | 1 | 1 if a family's base follows the keys |
/// | 2 | how many surrogate keys there are, little endian |
/// | 16 each | the keys' digests, little endian |
/// | 32 | of a master: the base of its segments' keys |
#[derive(Debug, Default, PartialEq, Eq)]
struct Links {
    tags: Vec<Tag>,
    base: Option<Key>,
}

impl Links {
    fn to_bytes(&self) -> Vec<u8> {
        if self.tags.is_empty() && self.base.is_none() {
            return Vec::new();
        }
        let count = u16::try_from(self.tags.len()).unwrap_or(u16::MAX);
        let mut bytes = vec![1, u8::from(self.base.is_some())];
        bytes.extend_from_slice(&count.to_le_bytes());
        let tags = self.tags.iter().take(count.into());
        tags.for_each(|tag| bytes.extend_from_slice(&tag.to_le_bytes()));
        bytes.extend(self.base.iter().flatten());
        bytes
    }

    /// Reads links; `None` if the bytes are none, for instance another version's.
    fn of_bytes(bytes: &[u8]) -> Option<Self> {
        if bytes.is_empty() {
            return Some(Self::default());
        }
        let (&[version, has_base, low, high], rest) = bytes.split_first_chunk::<4>()?;
        let (tags, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes([low, high])) * 16)?;
        let tags = tags.chunks_exact(16).filter_map(|tag| tag.try_into().ok());
        let tags = tags.map(Tag::from_le_bytes).collect();
        let base = if has_base == 1 { Some(rest.try_into().ok()?) } else { None };
        (version == 1 && (base.is_some() || rest.is_empty())).then_some(Self { tags, base })
    }
}

impl Shard {
    pub(super) fn has_cold(&self) -> bool {
        !self.cold.is_empty()
    }

    /// The cold entries under `key`, and what is known of them.
    pub(super) fn cold_of(&self, engines: &Engines, key: &Key) -> Vec<(Entry, Facts)> {
        self.cold.of(engines, key)
    }

    pub(super) fn count_cold(&self) -> usize {
        self.cold.len()
    }

    /// The cold entries, apart from segments, for which `wanted` is true of the ban up to which they were tested.
    pub(super) fn pick_cold(&self, engines: &Engines, wanted: impl Fn(u64) -> bool) -> Vec<(Entry, Facts)> {
        let facts = |entry| Some((entry, engines.facts(entry)?));
        let entries = self.cold.all().filter_map(facts);
        entries.filter(|(_, facts)| !facts.is_piece() && wanted(facts.ban.into())).collect()
    }

    /// Takes a request off the lists of those who wait for a load.
    pub(super) fn stop_waiting_for_loads(&mut self, id: u64) {
        self.cold.stop_waiting(id);
    }

    /// Entries under `key` that a query may be answered by, the newest first, apart from those whose load failed for it.
    /// `wanted` is asked about the times.
    fn candidates(
        &self,
        engines: &Engines,
        key: &Key,
        loads: &Loads,
        wanted: impl Fn(&Facts) -> bool,
    ) -> Vec<(Entry, Facts)> {
        let mut found = self.cold.of(engines, key);
        found.retain(|(entry, facts)| wanted(facts) && !loads.has_failed(*entry));
        found.sort_by(|(_, one), (_, other)| other.origin_time.total_cmp(&one.origin_time));
        found
    }

    /// Takes the entries of `key` out for which `ends` is true.
    pub(super) fn take_cold(
        &mut self,
        engines: &Engines,
        key: &Key,
        ends: impl Fn(&Facts) -> bool,
    ) -> Vec<(Entry, Facts)> {
        let mut found = self.cold.of(engines, key);
        found.retain(|(entry, facts)| ends(facts) && self.cold.remove(*entry, key));
        found
    }
}

/// The hash of a variant: its one half is that of the field names, the other that of the whole.
pub(super) fn variant_hash(variant: &[u8]) -> u32 {
    if variant.is_empty() {
        return 0;
    }
    let names = vary::entries(variant).fold(0xffff_u32, |sum, wanted| {
        wanted.name.iter().fold(sum.wrapping_mul(31), |sum, byte| {
            sum.wrapping_mul(31).wrapping_add(u32::from(byte.to_ascii_lowercase()))
        })
    });
    let whole =
        variant.iter().fold(0x811c_9dc5_u32, |sum, byte| (sum ^ u32::from(*byte)).wrapping_mul(0x0100_0193));
    let mix = |sum: u32| (sum ^ sum >> 16) & 0xffff;
    (mix(names) << 16 | mix(whole)).max(1)
}

/// Whether two variants of these hashes name the same fields, as far as that can be told.
pub(super) fn same_fields(one: u32, other: u32) -> bool {
    one >> 16 == other >> 16
}

impl Index {
    /// Connects the index with `engines`: takes in the entries found on their devices, and keeps bans with them. Called once,
    /// before any object comes in.
    pub fn attach(&self, engines: Vec<Arc<dyn Engine>>, now: f64) -> Adopted {
        let mut bans: Vec<(u64, f64, Vec<u8>)> = engines.iter().flat_map(|engine| engine.bans()).collect();
        bans.sort_by_key(|ban| ban.0);
        bans.dedup_by_key(|ban| ban.0);
        let mut newest = 0;
        for engine in &engines {
            engine.entries(&mut |_, facts, _| {
                newest = newest.max(if facts.is_piece() { 0 } else { facts.ban })
            });
        }
        self.bans.restore(&bans, newest.into(), now);
        self.bans.set_log(Arc::new(Engines(engines.clone())));
        let _ = self.engines.set(Engines(engines));
        self.adopt()
    }

    /// Whether there are engines that may have entries.
    pub fn has_devices(&self) -> bool {
        self.engines.get().is_some_and(|engines| !engines.0.is_empty())
    }

    pub(super) fn engines(&self) -> &Engines {
        static NONE: Engines = Engines(Vec::new());
        self.engines.get().unwrap_or(&NONE)
    }

    /// Takes in what the engines found on their devices at the start.
    fn adopt(&self) -> Adopted {
        let (mut adopted, mut useless) = (0, Vec::new());
        // Masters first: a segment comes in only where its family is.
        for segments in [false, true] {
            for engine in &self.engines().0 {
                engine.entries(&mut |entry, facts, links| {
                    if facts.is_piece() == segments {
                        match self.adopt_entry(entry, facts, links) {
                            true => adopted += 1,
                            false => useless.push(entry),
                        }
                    }
                });
            }
        }
        for entry in &useless {
            if let Some(engine) = self.engines().of(*entry) {
                engine.remove(*entry);
            }
        }
        Adopted { entries: adopted, useless: useless.len() as u64 }
    }

    fn adopt_entry(&self, entry: Entry, facts: &Facts, links: &[u8]) -> bool {
        let Some(links) = Links::of_bytes(links) else { return false };
        if let Some(tail) = facts.key_tail() {
            let mut key = [0; 32];
            key[..16].copy_from_slice(&facts.key);
            key[16..].copy_from_slice(&tail);
            if !self.families.enter_segment(&key) {
                return false;
            }
        } else {
            let is_master = Flags(facts.flags).has(Flags::SPARSE);
            if is_master != links.base.is_some() || !self.bans.enter_entry(facts.ban) {
                return false;
            }
            if !self.tags.enter_entry(entry, &links.tags) {
                self.bans.leave_entry(facts.ban);
                return false;
            }
            links.base.iter().for_each(|base| self.families.enter_master(base));
            self.moves.fetch_add(1, Ordering::Relaxed);
        }
        self.shard_of(&facts.key).cold.insert(entry, &facts.key);
        true
    }

    /// Looks for a cold entry that may answer `key`, and puts the request among those who wait for its load. `wanted` is asked
    /// whether the request may want what an entry tells. `None` if there is none; else with the load to begin, unless that
    /// runs already.
    pub(super) fn look_cold(
        &self,
        shard: &mut Shard,
        key: &Key,
        loads: &Arc<Loads>,
        waiter: Option<(u64, &Waker)>,
        wanted: impl Fn(&Facts) -> bool,
    ) -> Option<Option<Start>> {
        let candidates = shard.candidates(self.engines(), key, loads, wanted);
        let (entry, _) = candidates.first().copied()?;
        let engine = Arc::clone(self.engines().of(entry)?);
        let under_way = shard.cold.loading.contains_key(&entry);
        if !under_way && !loads.take_one() {
            return None;
        }
        let waiting = shard.cold.loading.entry(entry).or_default();
        if let Some((id, waker)) = waiter {
            match waiting.iter_mut().find(|waiting| waiting.id == id) {
                Some(waiting) => waiting.waker.clone_from(waker),
                None => waiting.push(Waiting { id, waker: waker.clone(), loads: Arc::clone(loads) }),
            }
        }
        Some((!under_way).then_some(Start { engine, key: *key, entry }))
    }

    /// Begins a load. No shard is locked.
    pub(super) fn begin_load(self: &Arc<Self>, start: Start) {
        let Start { engine, key, entry } = start;
        let index = Arc::downgrade(self);
        engine.load(entry, Box::new(move |result| loaded(&index, &key, entry, result)));
    }

    /// Whether a cold entry is under `key`.
    pub(crate) fn has_cold(&self, key: &Key) -> bool {
        !self.shard(key).cold.of(self.engines(), key).is_empty()
    }

    /// How many cold entries are under `key`.
    pub(super) fn count_cold(&self, shard: &Shard, key: &Key) -> usize {
        shard.cold.of(self.engines(), key).len()
    }

    /// Ends a load of `entry`: takes the object in and wakes the requests that wait.
    fn loaded(self: &Arc<Self>, key: &Key, entry: Entry, result: Result<Arc<Object>, NotLoaded>) {
        let mut useless = None;
        let (waiting, failure) = {
            let mut shard = self.shard(key);
            let waiting = shard.cold.loading.remove(&entry).unwrap_or_default();
            match result {
                // One that was complete may have been evicted already.
                Ok(object) if object.key() == key && !object.is_gone() && shard.cold.remove(entry, key) => {
                    // They may have been changed since the device was asked.
                    if let Some(facts) = self.engines().facts(entry).filter(|facts| !facts.is_piece()) {
                        let spans = (facts.ttl.into(), facts.grace.into(), facts.keep.into());
                        if (object.ttl(), object.grace(), object.keep()) != spans {
                            object.set_times(facts.origin_time, spans.0, spans.1, spans.2);
                        }
                        object.set_ban(facts.ban.into());
                    }
                    shard.take_in(object);
                    (waiting, None)
                }
                // It was purged or replaced meanwhile.
                Ok(object) => {
                    useless = Some(object);
                    (waiting, Some(NotLoaded::Gone))
                }
                Err(why) => (waiting, Some(why)),
            }
        };
        if let Some(object) = useless {
            object.unlink();
        }
        for one in waiting {
            if let Some(why) = failure {
                one.loads.failed.lock().push((entry, why));
            }
            one.waker.wake();
        }
    }

    /// An entry is in no shard any more, and ends. No shard is locked.
    pub(super) fn leave_cold(&self, entry: Entry, facts: &Facts) {
        let Some(engine) = self.engines().of(entry) else { return };
        let links = engine.links(entry);
        engine.remove(entry);
        self.give_up(entry, facts, &links);
    }

    /// Removes the links of `entry` to bans, surrogate keys and family.
    fn give_up(&self, entry: Entry, facts: &Facts, links: &[u8]) {
        self.deaths.fetch_add(1, Ordering::Relaxed);
        if let Some(tail) = facts.key_tail() {
            let mut key = [0; 32];
            key[..16].copy_from_slice(&facts.key);
            key[16..].copy_from_slice(&tail);
            return self.families.leave_segment(&key);
        }
        self.moves.fetch_add(1, Ordering::Relaxed);
        self.bans.leave_entry(facts.ban);
        let links = Links::of_bytes(links).unwrap_or_default();
        self.tags.leave_entry(entry, &links.tags);
        if let Some(base) = links.base {
            self.end_family(&base);
        }
    }

    /// A master with segments under `base` went out.
    pub(super) fn end_family(&self, base: &Key) {
        for key in self.families.leave_master(base) {
            self.end_all(self.take_out(&key, |_| {}));
        }
    }

    /// Removes the links of `object`, whose entry was `entry`, without reading its head. No shard is locked.
    pub(super) fn leave_written(&self, object: &Arc<Object>, entry: Entry) {
        let Some(engine) = self.engines().of(entry) else { return };
        let links = engine.links(entry);
        engine.remove(entry);
        if is_segment(object) {
            self.deaths.fetch_add(1, Ordering::Relaxed);
            return self.families.leave_segment(object.key());
        }
        let facts = Facts { ban: u32::try_from(object.ban()).unwrap_or(u32::MAX), ..Facts::default() };
        self.give_up(entry, &facts, &links);
    }

    /// Ends or shortens what `entry` stands for, resident or cold: `act` gets the object, or the facts of a cold one.
    pub(super) fn by_entry(&self, entry: Entry) -> Option<Standing> {
        let facts = self.engines().facts(entry)?;
        let shard = self.shard_of(&facts.key);
        if shard.cold.has(entry, &facts.key) {
            return Some(Standing::Cold(facts));
        }
        shard.resident(entry, &facts.key).map(Standing::Resident)
    }

    /// Ends the cold entry; false if it is none any more.
    pub(super) fn end_entry(&self, entry: Entry, facts: &Facts) -> bool {
        let was_cold = self.shard_of(&facts.key).cold.remove(entry, &facts.key);
        if was_cold {
            self.leave_cold(entry, facts);
        }
        was_cold
    }

    /// Shortens the life of a cold entry as `remainder` says; false if it is as short already, or cold no more.
    pub(super) fn shorten_cold(&self, entry: Entry, facts: &Facts, remainder: &Remainder, now: f64) -> bool {
        let shard = self.shard_of(&facts.key);
        let Some(engine) = self.engines().of(entry) else { return false };
        let before = (facts.ttl.into(), facts.grace.into(), facts.keep.into());
        let (ttl, grace, keep) = remainder.of(facts.origin_time, before, now);
        let shorter = (ttl, grace, keep) != before && shard.cold.has(entry, &facts.key);
        if shorter {
            engine.set_times(entry, &facts.key, facts.origin_time, [ttl as f32, grace as f32, keep as f32]);
        }
        shorter
    }

    /// Ends the cold entries of shard `number` for which `ends` is true, and tells `ended` of each. How many there were;
    /// `None` beyond the last shard, and where there is no device.
    pub fn sweep_cold(
        &self,
        number: usize,
        ends: impl Fn(&Facts) -> bool,
        mut ended: impl FnMut(&Facts),
    ) -> Option<usize> {
        if !self.has_devices() {
            return None;
        }
        let shard = self.shards.get(number)?.lock();
        let count = shard.cold.len();
        let found: Vec<(Entry, Facts)> = shard
            .cold
            .all()
            .filter_map(|entry| Some((entry, self.engines().facts(entry)?)))
            .filter(|(_, facts)| ends(facts))
            .collect();
        drop(shard);
        let gone = found.iter().filter(|(entry, facts)| self.end_entry(*entry, facts));
        gone.for_each(|(_, facts)| ended(facts));
        Some(count)
    }

    /// The head of an entry as the cache keeps heads, read from its device on the caller's thread.
    pub(crate) fn read_head(&self, entry: Entry) -> Option<Vec<u8>> {
        crate::head::unpack(&self.engines().of(entry)?.read_head(entry)?)
    }

    /// Notes that `entry`, or the object that is resident for it, was tested against the bans up to `to`.
    pub(crate) fn advance_entry(&self, entry: Entry, key: &[u8; 16], to: u64) {
        let shard = self.shard_of(key);
        if shard.cold.has(entry, key) {
            let now = self.engines().facts(entry).map_or(to, |facts| facts.ban.into());
            if now < to
                && let Some(engine) = self.engines().of(entry)
            {
                self.bans.shift(now, to);
                engine.set_ban(entry, key, u32::try_from(to).unwrap_or(u32::MAX));
            }
        } else if let Some(object) = shard.resident(entry, key) {
            self.bans.advance(&object, to);
        }
    }

    /// Ends what `entry` stands for, in memory or not; false if it has ended.
    pub(crate) fn end_standing(&self, entry: Entry, facts: &Facts) -> bool {
        if self.end_entry(entry, facts) {
            return true;
        }
        let resident = self.shard_of(&facts.key).resident(entry, &facts.key);
        resident.is_some_and(|object| self.unlink(&object))
    }

    /// How many entries are cold.
    pub fn cold_count(&self) -> u64 {
        self.shards.iter().map(|shard| shard.lock().cold.len() as u64).sum()
    }

    /// Whether a cold entry's life is over at `now`.
    pub(crate) fn is_cold_dead(facts: &Facts, now: f64) -> bool {
        end_of_life(facts) < now
    }

    /// An object left memory: its entry stands for it from now on.
    pub(super) fn cool(shard: &mut Shard, object: &Object, entry: Entry) {
        shard.cold.insert(entry, object.key());
    }
}

/// Where an entry's object is: in memory, or on its device alone.
pub(super) enum Standing {
    Resident(Arc<Object>),
    Cold(Facts),
}

fn loaded(index: &Weak<Index>, key: &Key, entry: Entry, result: Result<Arc<Object>, NotLoaded>) {
    if let Some(index) = index.upgrade() {
        index.loaded(key, entry, result);
    }
}

impl store::Evictions for Index {
    fn evicted(&self, object: &Arc<Object>) {
        self.forget_evicted(object);
    }

    fn links(&self, object: &Object) -> Vec<u8> {
        let is_master = object.flags().has(Flags::SPARSE) && !is_segment(object);
        let tags = if object.flags().has(Flags::TAGGED) { self.tags.of(object) } else { Vec::new() };
        Links { tags, base: if is_master { base_of(object) } else { None } }.to_bytes()
    }

    fn pack_head(&self, object: &Object) -> Vec<u8> {
        crate::head::pack(object.head())
    }

    fn unpack_head(&self, packed: &[u8]) -> Option<Vec<u8>> {
        crate::head::unpack(packed)
    }

    fn variant_hash(&self, variant: &[u8]) -> u32 {
        variant_hash(variant)
    }

    fn written(&self, object: &Arc<Object>, entry: Entry) -> bool {
        let shard = self.shard(object.key());
        if !shard.has(object) {
            return false;
        }
        let before = object.entry();
        if !object.set_entry(entry) {
            return false;
        }
        if object.flags().has(Flags::TAGGED) {
            let tags = self.tags.of(object);
            match before {
                Some(before) => self.tags.moved(before, entry, &tags),
                None => self.tags.now_entry(object, entry, &tags),
            }
        }
        // Changes made while the record was written did not reach the entry.
        if let Some(engine) = self.engines().of(entry) {
            let spans = [object.ttl() as f32, object.grace() as f32, object.keep() as f32];
            engine.set_times(entry, object.key_half(), object.origin_time(), spans);
            engine.set_ban(entry, object.key_half(), u32::try_from(object.ban()).unwrap_or(u32::MAX));
        }
        true
    }

    fn is_linked(&self, object: &Arc<Object>) -> bool {
        self.shard(object.key()).has(object)
    }

    fn is_used(&self, entry: Entry, facts: &Facts) -> bool {
        let shard = self.shard_of(&facts.key);
        shard.resident(entry, &facts.key).is_some_and(|object| object.last_use() != 0)
    }

    fn moved(&self, entry: Entry, new: Entry) -> bool {
        let Some(engine) = self.engines().of(entry) else { return false };
        let Some(facts) = engine.facts(entry) else { return false };
        let links = Links::of_bytes(&engine.links(entry)).unwrap_or_default();
        let mut shard = self.shard_of(&facts.key);
        // What changed while the record was copied went past the new one.
        let (known, now) = if shard.cold.remove(entry, &facts.key) {
            shard.cold.insert(new, &facts.key);
            (true, engine.facts(entry))
        } else {
            match shard.resident(entry, &facts.key) {
                Some(object) if object.set_entry(new) => (true, Some(as_resident(&object, &facts))),
                _ => (false, None),
            }
        };
        if let (Some(now), Some(copied)) = (now, engine.facts(new)) {
            bring_up(engine.as_ref(), new, &copied, &now);
        }
        if known {
            self.tags.moved(entry, new, &links.tags);
        }
        known
    }

    fn entry_ended(&self, entry: Entry, facts: &Facts, links: &[u8]) {
        let mut shard = self.shard_of(&facts.key);
        if shard.cold.remove(entry, &facts.key) {
            drop(shard);
            self.give_up(entry, facts, links);
        } else if let Some(object) = shard.resident(entry, &facts.key) {
            // It lives on in memory alone.
            object.take_entry();
            let links = Links::of_bytes(links).unwrap_or_default();
            self.tags.now_object(&object, entry, &links.tags);
        }
    }
}

/// What the entry of `object` is to say: `facts` with what is true of the object now.
fn as_resident(object: &Object, facts: &Facts) -> Facts {
    let ban = u32::try_from(object.ban()).unwrap_or(u32::MAX);
    let keep = object.keep() as f32;
    if facts.is_piece() {
        return Facts { ban, keep, ..*facts };
    }
    let (ttl, grace) = (object.ttl() as f32, object.grace() as f32);
    Facts { origin_time: object.origin_time(), ttl, grace, keep, ban, ..*facts }
}

/// Changes what `entry` says from `before` to `now`.
fn bring_up(engine: &dyn store::Engine, entry: Entry, before: &Facts, now: &Facts) {
    let of = |facts: &Facts| (facts.origin_time, facts.ttl, facts.grace, facts.keep);
    if of(before) != of(now) {
        engine.set_times(entry, &now.key, now.origin_time, [now.ttl, now.grace, now.keep]);
    }
    if before.ban != now.ban {
        engine.set_ban(entry, &now.key, now.ban);
    }
}

/// Whether a variant of hash `variant` may be what a request wants that would make `predicted` of one that varies by the
/// same fields; `examples` are variants for which that is known.
pub(super) fn may_fit(variant: u32, examples: &[(u32, u32)]) -> bool {
    variant == 0
        || examples
            .iter()
            .find(|(example, _)| same_fields(*example, variant))
            .is_none_or(|(_, predicted)| *predicted == variant)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_read_as_they_were_written() {
        for (tags, base) in [
            (vec![], None),
            (vec![1, u128::MAX], None),
            (vec![], Some([7; 32])),
            (vec![9; 40], Some([255; 32])),
        ] {
            let links = Links { tags, base };
            let bytes = links.to_bytes();
            assert_eq!(Links::of_bytes(&bytes).as_ref(), Some(&links));
            (1..bytes.len()).for_each(|end| assert_eq!(Links::of_bytes(&bytes[..end]), None));
        }
        assert_eq!(Links::of_bytes(&[2, 0, 0, 0]), None);
    }

    #[test]
    fn a_variant_is_ruled_out_only_where_its_fields_are_known() {
        let examples = [(0x0001_0005, 0x0001_0007)];
        for (variant, fits) in [(0, true), (0x0001_0007, true), (0x0001_0006, false), (0x0002_0006, true)] {
            assert_eq!(may_fit(variant, &examples), fits, "{variant:x}");
        }
    }
}
