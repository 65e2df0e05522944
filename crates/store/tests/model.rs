//! Random operations against a model that is simple enough to be right: a list in the order of use. Of policies with another
//! order, what went is taken as it is: which one goes is tested beside them.

mod support;

use copal_store::cursor::stored_slices;
use copal_store::eviction::LOOK_MAX;
use copal_store::{Creation, Engine, Fill, Object, Policy};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use std::collections::HashMap;
use std::sync::Arc;
use support::{
    Make, assert_empty, attributes, begin, body, engine_with, for_all_engines, linked_max, read_all,
};

const SIZE: u64 = 60_000;
const SLACK: u64 = 256 << 10;

#[derive(Debug, Clone)]
enum Step {
    /// Store an object of that length, announced or not.
    Store(u16, bool),
    /// Begin one, and leave it unfinished.
    Begin(u16, bool),
    /// Append to an unfinished one.
    Append(usize, u16),
    /// End an unfinished one: commit or drop.
    End(usize, bool),
    /// Use a stored one.
    Touch(usize),
    /// Give one a new head and keep its body; take out the old one before or after, or not at all; commit or drop.
    Share(usize, Old, bool),
    /// Take one out.
    Unlink(usize),
    /// Begin to hold one as a reader does.
    Hold(usize),
    /// Let all readers go.
    LetGo,
}

/// When an object whose body is shared is taken out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Old {
    Before,
    Between,
    After,
    Never,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..20_000_u16, any::<bool>()).prop_map(|(length, announced)| Step::Store(length, announced)),
        1 => (0..20_000_u16, any::<bool>()).prop_map(|(length, announced)| Step::Begin(length, announced)),
        2 => (any::<usize>(), 0..9_000_u16).prop_map(|(which, bytes)| Step::Append(which, bytes)),
        1 => (any::<usize>(), any::<bool>()).prop_map(|(which, commit)| Step::End(which, commit)),
        4 => any::<usize>().prop_map(Step::Touch),
        3 => (any::<usize>(), old(), prop::bool::weighted(0.9))
            .prop_map(|(which, old, commit)| Step::Share(which, old, commit)),
        2 => any::<usize>().prop_map(Step::Unlink),
        1 => any::<usize>().prop_map(Step::Hold),
        1 => Just(Step::LetGo),
    ]
}

fn old() -> impl Strategy<Value = Old> {
    prop_oneof![Just(Old::Before), Just(Old::Between), Just(Old::After), Just(Old::Never)]
}

/// What should be in the order, the next to go first, and whether it was used. The engine holds one reference, this list
/// is the index' one.
struct Model {
    policy: Policy,
    order: Vec<(Arc<Object>, bool)>,
    filling: Vec<(Fill, u64)>,
    readers: Vec<Arc<Object>>,
}

impl Model {
    /// Takes out what the engine evicted meanwhile: each time the first that nobody reads and that was not used since it
    /// was last passed over, unless too many have to be passed over.
    fn follow_evictions(&mut self) {
        if self.policy != Policy::Lru {
            self.order.retain(|(object, _)| !object.is_gone());
            return;
        }
        let gone = self.order.iter().filter(|(object, _)| object.is_gone()).count();
        // What went was the index' until now: whose body it shared is in use as long.
        let mut went: Vec<Arc<Object>> = Vec::new();
        for _ in 0..gone {
            let victim = self.next_to_go(&went);
            assert!(victim.is_gone(), "another object went before this one");
            went.push(victim);
        }
    }

    fn next_to_go(&mut self, went: &[Arc<Object>]) -> Arc<Object> {
        for _ in 0..LOOK_MAX {
            let (object, used) = self.order.remove(0);
            if !used && !self.is_held(&object, went) {
                return object;
            }
            self.order.push((object, false));
        }
        self.order.remove(0).0
    }

    /// Whether others than index and order hold it: readers, and those who share its body.
    fn is_held(&self, object: &Arc<Object>, went: &[Arc<Object>]) -> bool {
        let sharers = self.order.iter().map(|(sharer, _)| sharer).chain(&self.readers).chain(went);
        let mut owners = sharers.filter_map(|sharer| sharer.body_owner());
        self.readers.iter().any(|held| Arc::ptr_eq(held, object))
            || owners.any(|owner| Arc::ptr_eq(owner, object))
    }

    /// Stores the object at `index` anew, with another head and the same body.
    fn share(&mut self, memory: &Arc<dyn Engine>, index: usize, old: Old, commit: bool) {
        let stale = Arc::clone(&self.order[index].0);
        if old == Old::Before {
            self.unlink(&stale);
        }
        // Held while room is made, as by a reader.
        self.readers.push(Arc::clone(&stale));
        let creation = Creation {
            key: *stale.key(),
            attributes: attributes(1),
            variant: b"",
            head: b"another head, and a longer one",
            length: None,
        };
        let begun = memory.begin_sharing(&creation, &stale);
        self.follow_evictions();
        self.readers.pop();
        let Ok(Some(fill)) = begun else { return };
        assert!(stale.filled() >= 4096, "a small body is copied");
        let object = Arc::clone(fill.object());
        assert_eq!(read_all(&object, 0, u64::MAX).0, stale.filled(), "complete before it is committed");
        if old == Old::Between {
            self.unlink(&stale);
        }
        if !commit {
            drop(fill);
            object.unlink();
            return;
        }
        fill.commit();
        let owner = Arc::clone(object.body_owner().expect("it has no body of its own"));
        assert!(owner.body_owner().is_none(), "who shares leads to the owner at once");
        assert!(object.memory_size() < 500, "the body is not counted twice");
        self.order.push((Arc::clone(&object), false));
        if old == Old::After {
            self.unlink(&stale);
        }
        drop((stale, owner));
        assert_eq!(read_all(&object, 0, u64::MAX).0, object.filled());
        assert_eq!(object.head(), creation.head);
        if !object.is_in_file() {
            // As it is written to a device.
            let mut slices = Vec::new();
            stored_slices(&object, 0, u64::MAX, usize::MAX, &mut slices);
            let bytes: Vec<u8> = slices.iter().flat_map(|slice| slice.to_vec()).collect();
            assert_eq!(bytes, body(object.key()[0], object.filled() as usize));
        }
    }

    fn unlink(&mut self, object: &Arc<Object>) {
        self.order.retain(|(other, _)| !Arc::ptr_eq(other, object));
        object.unlink();
    }

    fn end(&mut self, index: usize, commit: bool) {
        let (fill, length) = self.filling.remove(index);
        let object = Arc::clone(fill.object());
        let whole = fill.filled() == length;
        if commit && whole {
            fill.commit();
            assert_eq!(read_all(&object, 0, u64::MAX).0, length);
            self.order.push((object, false));
        } else {
            drop(fill);
            object.unlink();
        }
    }
}

fn run(memory: &Arc<dyn Engine>, policy: Policy, steps: &[Step]) {
    let size = linked_max(memory, SIZE);
    let mut model = Model { policy, order: Vec::new(), filling: Vec::new(), readers: Vec::new() };
    let mut next_key = 0_u8;
    let mut second = 100;
    for step in steps.iter().cloned() {
        let pick = |which: usize, count: usize| (count > 0).then(|| which % count.max(1));
        match step {
            Step::Store(length, announced) | Step::Begin(length, announced) => {
                next_key = next_key.wrapping_add(1);
                let length = u64::from(length);
                if let Ok(mut fill) = begin(memory, next_key, b"some head", announced.then_some(length)) {
                    let unfinished = matches!(step, Step::Begin(..));
                    let whole = !unfinished && fill.append(&body(next_key, length as usize)).is_ok();
                    model.filling.push((fill, length));
                    if !unfinished {
                        // What was evicted for it left the order before it joins.
                        model.follow_evictions();
                        model.end(model.filling.len() - 1, whole);
                    }
                }
            }
            Step::Append(which, bytes) => {
                if let Some(index) = pick(which, model.filling.len()) {
                    let (fill, length) = &mut model.filling[index];
                    let (seed, at) = (fill.object().key()[0], fill.filled() as usize);
                    let to = (*length as usize).min(at + usize::from(bytes));
                    let _ = fill.append(&body(seed, to)[at..]);
                }
            }
            Step::End(which, commit) => {
                if let Some(index) = pick(which, model.filling.len()) {
                    model.end(index, commit);
                }
            }
            Step::Touch(which) => {
                if let Some(index) = pick(which, model.order.len()) {
                    let (object, used) = &mut model.order[index];
                    second += 10;
                    object.note_use(second, 2);
                    *used = true;
                }
            }
            Step::Share(which, old, commit) => {
                if let Some(index) = pick(which, model.order.len()) {
                    model.share(memory, index, old, commit);
                }
            }
            Step::Unlink(which) => {
                if let Some(index) = pick(which, model.order.len()) {
                    assert!(model.order.remove(index).0.unlink());
                }
            }
            Step::Hold(which) => {
                if let Some(index) = pick(which, model.order.len()) {
                    model.readers.push(Arc::clone(&model.order[index].0));
                }
            }
            Step::LetGo => model.readers.clear(),
        }
        model.follow_evictions();
        compare(&memory.statistics(), &model, size);
    }
    model.readers.clear();
    model.filling.clear();
    model.order.drain(..).for_each(|(object, _)| assert!(object.unlink()));
    assert_empty(memory);
}

fn compare(statistics: &copal_store::Statistics, model: &Model, size: u64) {
    let filling = model.filling.iter().map(|(fill, _)| fill.object()).filter(|object| !object.is_gone());
    let linked: Vec<&Arc<Object>> = model.order.iter().map(|(object, _)| object).chain(filling).collect();
    let held = linked
        .iter()
        .copied()
        .chain(model.filling.iter().map(|(fill, _)| fill.object()))
        .chain(&model.readers);
    assert_eq!(statistics.bytes, bytes_of(held));
    let linked = bytes_of(linked.iter().copied());
    assert_eq!(statistics.linked, linked);
    assert!(
        linked <= size && statistics.bytes <= size + SLACK && statistics.bytes >= linked,
        "{statistics:?}"
    );
    assert_eq!(statistics.bytes, statistics.bytes_total - statistics.bytes_freed);
}

/// What these take, and those whose bodies they share; each once.
fn bytes_of<'a>(objects: impl Iterator<Item = &'a Arc<Object>>) -> u64 {
    let all = objects.flat_map(|object| object.body_owner().into_iter().chain([object]));
    let each: HashMap<_, _> = all.map(|object| (Arc::as_ptr(object), object.memory_size())).collect();
    each.values().sum()
}

fn the_engine_agrees_with_the_model(engine: Make) {
    check(|steps| run(&engine(Some(SIZE)).0, Policy::Lru, steps));
}

fn check(test: impl Fn(&[Step])) {
    let cases = if cfg!(miri) { 4 } else { 200 };
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    let mut runner = TestRunner::new(config);
    let steps = proptest::collection::vec(step(), 1..120);
    let ran = runner.run(&steps, |steps| {
        test(&steps);
        Ok(())
    });
    ran.unwrap_or_else(|why| panic!("{why}"));
}

for_all_engines! { the_engine_agrees_with_the_model }

#[test]
fn every_policy_agrees_with_its_model() {
    for policy in Policy::ALL {
        check(|steps| run(&engine_with(Some(SIZE), *policy).0, *policy, steps));
    }
}
