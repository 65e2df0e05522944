//! Surrogate keys: the objects that a response said belong together, by the keys in its head (`xkey: news sport`).
//!
//! ```text
//! key (128 bits of its SHA-256) > one object | a set of objects
//! ```
//!
//! The keys of an object in memory alone are not kept beside it: they stand in its head, and are read from there again when
//! it goes. So a link costs about 50 bytes where its key has no other object and about 16 where it has many, and nothing
//! where an object has no keys. An object that has a record on a device is linked by the number of its entry, whether it is
//! resident or not; its engine keeps the keys. How many links there may be is bounded; an object whose keys find no room is
//! not stored, since it could not be purged.

use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use store::{Entry, Object};
use wire::Fields;

use copal_store as store;
use copal_wire as wire;

/// The fields that name keys unless told otherwise: the second is what the module's forerunner, hashtwo, took.
pub const FIELDS: &str = "xkey X-HashTwo";

/// How many links there may be unless [`Tags::set_max`] says otherwise.
pub const MAX_DEFAULT: u64 = 16 << 20;

const SHARDS: usize = 64;

/// A table this much larger than it need be is made smaller.
const SHRINK: usize = 4;

/// 128 bits of a key's SHA-256: no two keys that anybody can find have the same.
pub(crate) type Tag = u128;

/// Sizes of the table, for counters.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// Keys.
    pub keys: u64,
    /// Links from a key to an object.
    pub links: u64,
    /// Bytes of the table of keys, but for the links in it.
    pub key_bytes: u64,
    /// Bytes of the links and of the sets that hold them.
    pub link_bytes: u64,
    /// Objects not stored for want of room here.
    pub refused: u64,
}

/// Objects by surrogate key.
#[derive(Debug)]
pub struct Tags {
    fields: Vec<Vec<u8>>,
    wanted: AtomicBool,
    shards: Box<[Mutex<Shard>]>,
    links: AtomicU64,
    max: AtomicU64,
    refused: AtomicU64,
}

#[derive(Debug, Default)]
struct Shard {
    /// Links to objects that are in memory alone.
    objects: Table<Link>,
    /// Links to objects that have a record.
    entries: Table<Entry>,
}

/// Links by key.
#[derive(Debug)]
struct Table<L> {
    keys: HashMap<Tag, Members<L>, BuildHasherDefault<TagHasher>>,
    set_bytes: u64,
}

impl<L> Default for Table<L> {
    fn default() -> Self {
        Self { keys: HashMap::default(), set_bytes: 0 }
    }
}

#[derive(Debug)]
enum Members<L> {
    One(L),
    #[allow(clippy::box_collection)]
    // Most tags have one object: a set in place would make their entries four times as large.
    Many(Box<HashSet<L>>),
}

/// An object, told from others by where it lies. It does not keep the object, but its place from being used again.
#[derive(Debug, Clone)]
struct Link(Weak<Object>);

impl PartialEq for Link {
    fn eq(&self, other: &Self) -> bool {
        self.0.ptr_eq(&other.0)
    }
}

impl Eq for Link {}

impl Hash for Link {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.as_ptr().hash(state);
    }
}

/// A tag is uniform already.
#[derive(Debug, Default)]
struct TagHasher(u64);

impl Hasher for TagHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        debug_assert!(false, "a tag is hashed as one number, not as {bytes:?}");
    }

    fn write_u128(&mut self, tag: u128) {
        self.0 = tag as u64;
    }
}

impl Default for Tags {
    fn default() -> Self {
        Self::new(FIELDS)
    }
}

/// The tags that `text` names: words between blanks, tabs or commas.
fn tags(text: &[u8]) -> impl Iterator<Item = Tag> {
    let words = text.split(|byte| matches!(byte, b' ' | b'\t' | b','));
    words.filter(|word| !word.is_empty()).map(|word| {
        let digest = Sha256::digest(word);
        let half: [u8; 16] = std::array::from_fn(|at| digest[at]);
        Tag::from_le_bytes(half)
    })
}

impl Tags {
    /// Keys are read from the fields named in `fields`, with blanks between the names.
    pub fn new(fields: &str) -> Self {
        Self {
            fields: fields.split_ascii_whitespace().map(|name| name.as_bytes().to_vec()).collect(),
            wanted: AtomicBool::new(false),
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            links: AtomicU64::new(0),
            max: AtomicU64::new(MAX_DEFAULT),
            refused: AtomicU64::new(0),
        }
    }

    /// Whether some VCL can ask for keys: only then are objects that come found by theirs.
    pub fn set_wanted(&self, wanted: bool) {
        self.wanted.store(wanted, Ordering::Relaxed);
    }

    /// Whether some VCL could, since the worker began.
    pub fn are_wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed)
    }

    /// How many links there may be.
    pub fn set_max(&self, max: u64) {
        self.max.store(max, Ordering::Relaxed);
    }

    /// Whether an object with this head is to be found by keys. Without a VCL that asks for any: one load.
    #[inline]
    pub fn are_in(&self, head: &Fields) -> bool {
        self.wanted.load(Ordering::Relaxed) && self.fields.iter().any(|name| head.has(name))
    }

    /// The tags of an object, each once.
    pub(super) fn of(&self, object: &Object) -> Vec<Tag> {
        let mut head = Fields::new();
        crate::head::load(object.head(), &mut head);
        let mut found: Vec<Tag> = self.fields.iter().flat_map(|name| head.all(name)).flat_map(tags).collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    fn shard(&self, tag: Tag) -> &Mutex<Shard> {
        &self.shards[(tag >> 64) as usize % SHARDS]
    }

    /// Counts `count` further links. False if there is no room for them.
    fn take_room(&self, count: usize) -> bool {
        let count = count as u64;
        let before = self.links.fetch_add(count, Ordering::Relaxed);
        let fits = before + count <= self.max.load(Ordering::Relaxed);
        if !fits {
            self.links.fetch_sub(count, Ordering::Relaxed);
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
        fits
    }

    /// Takes in an object. False if there is no room for its keys.
    pub(super) fn enter(&self, object: &Arc<Object>) -> bool {
        let tags = self.of(object);
        if !self.take_room(tags.len()) {
            return false;
        }
        for tag in tags {
            self.shard(tag).lock().objects.add(tag, Link(Arc::downgrade(object)));
        }
        true
    }

    /// Takes in an entry that has these tags. False if there is no room for them.
    pub(super) fn enter_entry(&self, entry: Entry, tags: &[Tag]) -> bool {
        let fits = self.take_room(tags.len());
        if fits {
            tags.iter().for_each(|tag| self.shard(*tag).lock().entries.add(*tag, entry));
        }
        fits
    }

    /// Lets go of an object that was taken in.
    pub(super) fn leave(&self, object: &Arc<Object>) {
        let tags = self.of(object);
        self.links.fetch_sub(tags.len() as u64, Ordering::Relaxed);
        let link = Link(Arc::downgrade(object));
        for tag in tags {
            self.shard(tag).lock().objects.remove(tag, &link);
        }
    }

    /// Lets go of an entry that was taken in with these tags.
    pub(super) fn leave_entry(&self, entry: Entry, tags: &[Tag]) {
        self.links.fetch_sub(tags.len() as u64, Ordering::Relaxed);
        tags.iter().for_each(|tag| self.shard(*tag).lock().entries.remove(*tag, &entry));
    }

    /// An object that has these tags got a record: from now on it is linked by its entry.
    pub(super) fn now_entry(&self, object: &Arc<Object>, entry: Entry, tags: &[Tag]) {
        let link = Link(Arc::downgrade(object));
        for tag in tags {
            let mut shard = self.shard(*tag).lock();
            shard.objects.remove(*tag, &link);
            shard.entries.add(*tag, entry);
        }
    }

    /// The record of an object that has these tags went, and the object is still there.
    pub(super) fn now_object(&self, object: &Arc<Object>, entry: Entry, tags: &[Tag]) {
        for tag in tags {
            let mut shard = self.shard(*tag).lock();
            shard.entries.remove(*tag, &entry);
            shard.objects.add(*tag, Link(Arc::downgrade(object)));
        }
    }

    /// The record of what has these tags moved to another device.
    pub(super) fn moved(&self, from: Entry, to: Entry, tags: &[Tag]) {
        for tag in tags {
            let mut shard = self.shard(*tag).lock();
            shard.entries.remove(*tag, &from);
            shard.entries.add(*tag, to);
        }
    }

    /// The objects in memory alone and the entries that have any key in `text`: each once, with how many words name it.
    pub(super) fn find(&self, text: &[u8]) -> Found {
        let mut links: HashMap<Link, u64> = HashMap::new();
        let mut entries: HashMap<Entry, u64> = HashMap::new();
        for tag in tags(text) {
            let shard = self.shard(tag).lock();
            shard.objects.each(tag, |link| *links.entry(link.clone()).or_default() += 1);
            shard.entries.each(tag, |entry| *entries.entry(*entry).or_default() += 1);
        }
        Found {
            objects: links.iter().filter_map(|(link, times)| Some((link.0.upgrade()?, *times))).collect(),
            entries: entries.into_iter().collect(),
        }
    }

    /// The sizes of the table.
    pub fn counts(&self) -> Counts {
        let mut counts = Counts {
            links: self.links.load(Ordering::Relaxed),
            refused: self.refused.load(Ordering::Relaxed),
            ..Counts::default()
        };
        for shard in &self.shards {
            let shard = shard.lock();
            shard.objects.count(&mut counts);
            shard.entries.count(&mut counts);
        }
        counts
    }
}

/// The result of [`Tags::find`], with how many of the words named each.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) objects: Vec<(Arc<Object>, u64)>,
    pub(super) entries: Vec<(Entry, u64)>,
}

fn set_bytes<L>(set: &HashSet<L>) -> u64 {
    (size_of::<HashSet<L>>() + set.capacity() * (size_of::<L>() + 1)) as u64
}

impl<L: Eq + Hash> Table<L> {
    fn each(&self, tag: Tag, mut act: impl FnMut(&L)) {
        match self.keys.get(&tag) {
            None => {}
            Some(Members::One(link)) => act(link),
            Some(Members::Many(set)) => set.iter().for_each(act),
        }
    }

    fn count(&self, counts: &mut Counts) {
        counts.keys += self.keys.len() as u64;
        // The table holds the link of a key that has one object.
        let single = self.keys.values().filter(|members| matches!(members, Members::One(_))).count();
        let single = (single * size_of::<L>()) as u64;
        counts.key_bytes += (self.keys.capacity() * (size_of::<(Tag, Members<L>)>() + 1)) as u64 - single;
        counts.link_bytes += single + self.set_bytes;
    }

    fn add(&mut self, tag: Tag, link: L) {
        match self.keys.remove(&tag) {
            None => drop(self.keys.insert(tag, Members::One(link))),
            Some(Members::One(first)) => {
                let set = Box::new(HashSet::from_iter([first, link]));
                self.set_bytes += set_bytes(&set);
                self.keys.insert(tag, Members::Many(set));
            }
            Some(Members::Many(mut set)) => {
                self.set_bytes -= set_bytes(&set);
                set.insert(link);
                self.set_bytes += set_bytes(&set);
                self.keys.insert(tag, Members::Many(set));
            }
        }
    }

    fn remove(&mut self, tag: Tag, link: &L) {
        match self.keys.remove(&tag) {
            None => {}
            Some(Members::One(only)) if only == *link => {}
            Some(Members::One(only)) => drop(self.keys.insert(tag, Members::One(only))),
            Some(Members::Many(mut set)) => {
                self.set_bytes -= set_bytes(&set);
                set.remove(link);
                if set.len() == 1
                    && let Some(last) = set.drain().next()
                {
                    self.keys.insert(tag, Members::One(last));
                } else {
                    if set.len() * SHRINK < set.capacity() {
                        set.shrink_to(set.len() * 2);
                    }
                    self.set_bytes += set_bytes(&set);
                    self.keys.insert(tag, Members::Many(set));
                }
            }
        }
        if self.keys.len() * SHRINK < self.keys.capacity() {
            self.keys.shrink_to(self.keys.len() * 2);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use copal_store::{Attributes, Creation, Engine, Evictions, Flags, Memory};

    struct Nobody;

    impl Evictions for Nobody {
        fn evicted(&self, _: &Arc<Object>) {}
    }

    fn object(fields: &[(&str, &str)]) -> Arc<Object> {
        let mut response = wire::ResponseHead::default();
        for (name, value) in fields {
            response.fields.push(name.as_bytes(), value.as_bytes());
        }
        let mut head = Vec::new();
        crate::head::join(&response, &mut head);
        let attributes = Attributes {
            origin_time: 0.0,
            ttl: 1.0,
            grace: 0.0,
            keep: 0.0,
            status: 200,
            flags: Flags(Flags::TAGGED),
            ban: 0,
            vxid: 1,
        };
        let memory = Memory::new("s0", None, Arc::new(Nobody));
        let creation = Creation { key: [0; 32], attributes, variant: b"", head: &head, length: Some(0) };
        let fill = memory.begin(&creation).unwrap();
        Arc::clone(fill.object())
    }

    #[test]
    fn keys_stand_between_blanks_and_commas_in_any_of_the_fields() {
        let table = Tags::new("xkey Surrogate-Key");
        let tagged = object(&[("xkey", "a  b,c"), ("XKEY", "d"), ("Surrogate-Key", "e a"), ("other", "f")]);
        assert!(table.enter(&tagged));
        for (text, count) in [("a", 1), ("b c", 1), ("d", 1), ("x,e", 1), ("f", 0), ("", 0), ("A", 0)] {
            assert_eq!(table.find(text.as_bytes()).objects.len(), count, "{text}");
        }
        assert_eq!((table.counts().keys, table.counts().links), (5, 5));
        table.leave(&tagged);
        assert_eq!((table.counts().keys, table.counts().links), (0, 0));
        assert!(table.find(b"a").objects.is_empty());
    }

    #[test]
    fn a_key_finds_all_its_objects_and_forgets_those_that_leave() {
        let table = Tags::default();
        let objects: Vec<_> = (0..100).map(|at| object(&[("xkey", &format!("all k{at}"))])).collect();
        objects.iter().for_each(|object| assert!(table.enter(object)));
        assert_eq!(table.find(b"all k7").objects.len(), 100);
        assert_eq!(table.counts().keys, 101);
        assert!(table.counts().link_bytes > 800);
        objects[1..].iter().for_each(|object| table.leave(object));
        let left = table.find(b"all k0 all nosuch").objects;
        assert!(left.len() == 1 && Arc::ptr_eq(&left[0].0, &objects[0]) && left[0].1 == 3);
        table.leave(&objects[0]);
        let counts = table.counts();
        assert_eq!((counts.keys, counts.links, counts.key_bytes, counts.link_bytes), (0, 0, 0, 0));
    }

    #[test]
    fn what_has_no_room_is_refused_whole() {
        let table = Tags::default();
        table.set_max(3);
        let (first, second) = (object(&[("xkey", "a b")]), object(&[("xkey", "b c")]));
        assert!(table.enter(&first));
        assert!(!table.enter(&second));
        assert_eq!(table.find(b"b c").objects.len(), 1);
        assert_eq!((table.counts().links, table.counts().refused), (2, 1));
    }

    #[test]
    fn only_what_vcl_asks_for_is_tagged() {
        let table = Tags::default();
        let mut head = Fields::new();
        head.push(b"xkey", b"a");
        assert!(!table.are_in(&head));
        table.set_wanted(true);
        assert!(table.are_in(&head));
        assert!(!table.are_in(&Fields::new()));
    }

    #[test]
    fn what_has_a_record_is_found_by_its_entry() {
        let table = Tags::default();
        let tagged = object(&[("xkey", "a b")]);
        assert!(table.enter(&tagged));
        let (own, entry, other) = (table.of(&tagged), Entry::new(0, 7), Entry::new(1, 3));
        table.now_entry(&tagged, entry, &own);
        let found = table.find(b"a b x");
        assert_eq!((found.objects.len(), found.entries), (0, vec![(entry, 2)]));
        table.moved(entry, other, &own);
        assert_eq!(table.find(b"b").entries, [(other, 1)]);
        table.now_object(&tagged, other, &own);
        assert_eq!((table.find(b"b").objects.len(), table.counts().links), (1, 2));
        table.leave(&tagged);
        assert!(table.enter_entry(entry, &own));
        table.leave_entry(entry, &own);
        assert_eq!((table.counts().keys, table.counts().links), (0, 0));
    }

    /// What `docs/memory.md` states a link costs.
    #[test]
    fn a_link_stays_small() {
        assert_eq!(size_of::<(Tag, Members<Link>)>(), 32);
        assert_eq!(size_of::<Link>(), 8);
    }
}
