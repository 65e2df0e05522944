//! What holds for every policy, and small cases of each.

use super::{Item, Order, Policy, Position, uses::Uses};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU8;

#[derive(Debug)]
struct Thing {
    name: u8,
    position: Position,
    marks: AtomicU8,
}

impl Item for Thing {
    fn digest(&self) -> u64 {
        u64::from(self.name + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    fn position(&self) -> &Position {
        &self.position
    }

    fn uses(&self) -> Uses<'_> {
        Uses::new(&self.marks)
    }
}

fn thing(name: u8) -> Arc<Thing> {
    Arc::new(Thing { name, position: Position::default(), marks: AtomicU8::new(0) })
}

/// Steps with blanks between: `a` stores a, or uses it if it is there; `a:5` stores it with 5 KiB, else it has one; `-a` removes it,
/// `!a` forbids to evict it until the end; `*` evicts. Then all that may go are evicted, and what went, in order, is
/// compared; `|` stands before those of the end.
fn check(policy: Policy, steps: &str, expected: &str) {
    let mut order = policy.order::<Arc<Thing>>();
    let mut there = BTreeMap::<u8, Arc<Thing>>::new();
    let mut pinned = BTreeSet::new();
    let mut went = String::new();
    let evict = |order: &mut dyn Order<Arc<Thing>>, pinned: &BTreeSet<u8>, went: &mut String| {
        let victim = order.evict(100, &|thing| !pinned.contains(&thing.name));
        victim.inspect(|thing| went.push(thing.name as char)).map(|thing| thing.name)
    };
    for step in steps.split_whitespace() {
        match step.as_bytes() {
            b"*" => _ = evict(&mut *order, &pinned, &mut went).map(|name| there.remove(&name)),
            [b'-', name] => _ = order.remove(&there.remove(name).unwrap().position),
            [b'!', name] => _ = pinned.insert(*name),
            [name, size @ ..] => match there.get(name) {
                Some(thing) => thing.uses().note(),
                None => {
                    let kilobytes = if size.is_empty() { 1 } else { u64::from(size[1] - b'0') };
                    let thing = thing(*name);
                    order.insert(&thing, kilobytes << 10);
                    there.insert(*name, thing);
                }
            },
            [] => {}
        }
        assert_eq!(order.count(), there.len(), "{policy:?}: {steps}");
    }
    went.push('|');
    while evict(&mut *order, &pinned, &mut went).is_some() {}
    assert_eq!(went, expected, "{policy:?}: {steps}");
    let rest = std::iter::from_fn(|| order.evict_any().map(|thing| thing.name)).collect::<BTreeSet<u8>>();
    assert_eq!(rest, pinned, "what may not go is left");
    assert_eq!(order.count(), 0);
}

#[test]
fn second_chance() {
    let check = |steps, expected| check(Policy::Lru, steps, expected);
    check("", "|");
    check("a b c d", "|abcd");
    check("a b c d d", "|abcd");
    check("a b c d b", "|acdb");
    check("a b c d c b c", "|adbc");
    check("a b c d d c b a", "|abcd");
    check("a b c d -b a -c", "|da");
    check("a b c d !b", "|acd");
    check("a b c a * * a d", "bc|da");
}

#[test]
fn sieve() {
    let check = |steps, expected| check(Policy::Sieve, steps, expected);
    check("", "|");
    check("a b c d", "|abcd");
    check("a b c d b", "|acdb");
    // What was used stays where it is: the hand comes to what is newer first, then to it.
    check("a b c d a b * e f", "c|defab");
    check("a b c d a * e b * * * f", "bcde|bfa");
    // The hand's own item is removed, and the list is empty for a while.
    check("a b c d b * -c e", "a|deb");
    check("a b a * * c d", "ba|cd");
    check("a b c d !b", "|acd");
    check("a b c !a !b !c", "|");
}

#[test]
fn s3fifo() {
    let check = |steps, expected| check(Policy::S3Fifo, steps, expected);
    check("", "|");
    check("a b c d", "|abcd");
    // What was used goes after what is in the small list.
    check("a b c d a", "|bcda");
    // What comes back soon goes to the main list, what comes back late or was removed does not.
    check("a b c d * * a b e", "ab|cdeab");
    check("a b * c d e f g * * * * * a h", "abcdef|gah");
    check("a b c d -a a e", "|bcdae");
    // In the main list each use is another round.
    check("a b c a b * a", "c|ba");
    check("a b c a b * a a a b", "c|ba");
    check("a b c a b c !c * a", "a|ab");
    check("a b c d !b", "|acd");
    check("a b a b !a !b", "|");
}

#[test]
fn the_small_list_of_s3fifo_has_a_tenth_of_the_bytes() {
    // a is in the main list with 9 KiB; of what is small, that beyond a tenth goes first, and then a.
    check(Policy::S3Fifo, "a:9 a b:1 * c:1 d:1 * *", "bcd|a");
    check(Policy::S3Fifo, "a:9 a b:9 * c:9 c * d:1 *", "bad|c");
}

#[test]
fn names() {
    assert_eq!(Policy::NAMES.len(), Policy::ALL.len());
    for (policy, name) in Policy::ALL.iter().zip(Policy::NAMES) {
        assert_eq!((policy.name(), Policy::named(name)), (*name, Some(*policy)));
    }
    assert_eq!(Policy::named("fifo"), None);
}

#[derive(Clone, Debug)]
enum Step {
    /// Stores it, if it is not there.
    Insert(u8, u16),
    Use(u8),
    Remove(u8),
    /// From then on it may not be evicted, or may again.
    Pin(u8, bool),
    Evict,
    EvictAny,
}

fn step() -> impl Strategy<Value = Step> {
    let name = || 0..24_u8;
    prop_oneof![
        6 => (name(), any::<u16>()).prop_map(|(name, size)| Step::Insert(name, size)),
        6 => name().prop_map(Step::Use),
        1 => name().prop_map(Step::Remove),
        2 => (name(), any::<bool>()).prop_map(|(name, pinned)| Step::Pin(name, pinned)),
        4 => Just(Step::Evict),
        1 => Just(Step::EvictAny),
    ]
}

/// An order, and what should be in it.
struct Model {
    policy: Policy,
    order: Box<dyn Order<Arc<Thing>> + Send>,
    there: BTreeMap<u8, Arc<Thing>>,
    pinned: BTreeSet<u8>,
}

impl Model {
    fn step(&mut self, step: &Step) {
        match *step {
            Step::Insert(name, size) => {
                let item = self.there.entry(name).or_insert_with(|| thing(name));
                self.order.insert(item, u64::from(size));
                // A second time changes nothing.
                self.order.insert(item, 7);
            }
            Step::Use(name) => _ = self.there.get(&name).inspect(|thing| thing.uses().note()),
            Step::Remove(name) => {
                if let Some(thing) = self.there.remove(&name) {
                    let taken = self.order.remove(thing.position()).expect("it was there");
                    assert!(Arc::ptr_eq(&taken, &thing));
                    assert!(self.order.remove(thing.position()).is_none(), "once");
                }
            }
            Step::Pin(name, true) => _ = self.pinned.insert(name),
            Step::Pin(name, false) => _ = self.pinned.remove(&name),
            Step::Evict => {
                // Each is looked at once for each use, and once more; S3-FIFO looks at its two lists in turn.
                let looks = self.there.len() * 10;
                let victim = self.order.evict(looks, &|thing| !self.pinned.contains(&thing.name));
                let choice = self.there.keys().any(|name| !self.pinned.contains(name));
                assert_eq!(victim.is_some(), choice, "{:?}", self.policy);
                if let Some(victim) = victim {
                    assert!(!self.pinned.contains(&victim.name));
                    self.gone(&victim);
                }
            }
            Step::EvictAny => match self.order.evict_any() {
                Some(victim) => self.gone(&victim),
                None => assert!(self.there.is_empty()),
            },
        }
        assert_eq!(self.order.count(), self.there.len());
    }

    fn gone(&mut self, victim: &Arc<Thing>) {
        let known = self.there.remove(&victim.name).expect("only what was there goes");
        assert!(Arc::ptr_eq(&known, victim));
        assert!(self.order.remove(victim.position()).is_none());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 4 } else { 300 }, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_order_holds_what_was_inserted_and_keeps_what_may_not_go(
        steps in proptest::collection::vec(step(), 1..200),
    ) {
        for policy in Policy::ALL {
            let (there, pinned) = Default::default();
            let mut model = Model { policy: *policy, order: policy.order(), there, pinned };
            steps.iter().for_each(|step| model.step(step));
            while model.order.count() > 0 {
                model.step(&Step::EvictAny);
            }
            prop_assert!(model.there.is_empty());
        }
    }
}

#[test]
fn slots_are_used_again() {
    use super::slab::{List, Slab};
    let (mut slab, mut list) = (Slab::default(), List::default());
    for _ in 0..3 {
        let slots: Vec<u32> = (0..4000).filter_map(|value| slab.insert(&mut list, value)).collect();
        assert_eq!(slots.len(), 4000);
        slots.iter().for_each(|slot| _ = slab.take(&mut list, *slot).unwrap());
    }
    assert_eq!((slab.pages(), list.count), (1, 0));
}
