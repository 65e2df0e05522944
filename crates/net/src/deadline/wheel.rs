//! The timer wheel: which deadline to look at next. Pure: the time is an argument.
//!
//! ```text
//!  near:  256 slots of one tick (16 ms), the next 4 s
//!  far:   128 slots of 64 ticks (1,024 ms), the next 131 s; what is later still waits in the last of them
//! ```
//! A node sits in the slot of a tick not later than its due moment, in a list linked through a slab, so adding and
//! removing are a few stores and nothing is left behind by connections that are gone. A node set to a later moment stays
//! where it is; when its slot is swept, it is put where it belongs by then. So every node is looked at no more than once
//! in 131 s (or once a second near its end) for nothing.

use std::task::Waker;

/// A moment that never comes.
pub(crate) const NEVER: u64 = u64::MAX;

const TICK_MS: u64 = 16;
const NEAR: usize = 256;
const FAR: usize = 128;
/// Ticks in a far slot.
const SPAN: u64 = 64;
const NONE: u32 = u32::MAX;

const _: () = assert!(NEAR as u64 >= 2 * SPAN, "a far slot must fit into the near ones when it is reached");

/// A node's place in the slab.
pub(crate) type Key = u32;

#[derive(Debug)]
struct Node {
    due_ms: u64,
    /// The tick at which its slot is swept; meaningless while `slot` is `NONE`.
    visit: u64,
    slot: u32,
    next: u32,
    previous: u32,
    idle: bool,
    fired: bool,
    waker: Option<Waker>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Wheel {
    nodes: Vec<Node>,
    free: Vec<Key>,
    heads: [u32; NEAR + FAR],
    /// One bit a slot that is not empty.
    occupied: [u64; (NEAR + FAR) / 64],
    /// All ticks up to this one are swept.
    swept: u64,
    /// The tick the sweeper sleeps for.
    next: u64,
    ending: bool,
    /// Wakers of nodes that fired, for the caller to wake.
    pub(crate) woken: Vec<Waker>,
}

impl Default for Wheel {
    fn default() -> Self {
        Self {
            nodes: Vec::new(),
            free: Vec::new(),
            heads: [NONE; NEAR + FAR],
            occupied: [0; (NEAR + FAR) / 64],
            swept: 0,
            next: NEVER,
            ending: false,
            woken: Vec::new(),
        }
    }
}

impl Wheel {
    /// A new node, never due.
    pub(crate) fn add(&mut self) -> Key {
        let node = Node {
            due_ms: NEVER,
            visit: 0,
            slot: NONE,
            next: NONE,
            previous: NONE,
            idle: false,
            fired: false,
            waker: None,
        };
        if let Some(key) = self.free.pop() {
            self.nodes[key as usize] = node;
            return key;
        }
        assert!(self.nodes.len() < NONE as usize, "more deadlines than descriptors can exist");
        self.nodes.push(node);
        (self.nodes.len() - 1) as Key
    }

    /// Takes a node out for good and hands back its waker.
    pub(crate) fn remove(&mut self, key: Key) -> Option<Waker> {
        self.unlink(key);
        self.free.push(key);
        self.nodes[key as usize].waker.take()
    }

    /// Sets when a node is due. `true` if the sweeper must wake up for it before it meant to.
    #[inline]
    pub(crate) fn set(&mut self, key: Key, due_ms: u64, idle: bool) -> bool {
        let due_ms = if idle && self.ending { 0 } else { due_ms };
        let swept = self.swept;
        let node = &mut self.nodes[key as usize];
        node.due_ms = due_ms;
        node.idle = idle;
        node.fired = false;
        if due_ms == NEVER || (node.slot != NONE && node.visit <= visit_tick(due_ms, swept)) {
            return false;
        }
        self.unlink(key);
        self.link(key);
        let visit = self.nodes[key as usize].visit;
        if visit < self.next {
            self.next = visit;
            return true;
        }
        false
    }

    /// Whether a node has come due since it was set.
    #[inline]
    pub(crate) fn fired(&self, key: Key) -> bool {
        self.nodes[key as usize].fired
    }

    /// Has `waker` woken when the node comes due; hands back the waker that it replaces.
    #[inline]
    pub(crate) fn watch(&mut self, key: Key, waker: &Waker) -> Option<Waker> {
        let slot = &mut self.nodes[key as usize].waker;
        match slot {
            Some(known) if known.will_wake(waker) => None,
            _ => slot.replace(waker.clone()),
        }
    }

    /// Makes all idle nodes fire, and all that are set idle from now on due at once.
    pub(crate) fn end_idle(&mut self) {
        self.ending = true;
        for key in 0..self.nodes.len() as Key {
            let node = &self.nodes[key as usize];
            if node.slot != NONE && node.idle && node.due_ms != NEVER {
                self.unlink(key);
                self.fire(key);
            }
        }
    }

    /// A new sweeper starts: it will be told of everything.
    pub(crate) fn restart(&mut self) {
        self.ending = false;
        self.next = NEVER;
    }

    /// Fires what is due at `now_ms`; the moment of the next slot that holds anything, if any.
    pub(crate) fn sweep(&mut self, now_ms: u64) -> Option<u64> {
        let now = now_ms / TICK_MS;
        while self.swept < now {
            // Empty stretches are skipped in one step.
            match self.next_occupied() {
                Some(tick) if tick <= now => self.swept = tick,
                _ => {
                    self.swept = now;
                    break;
                }
            }
            if self.swept.is_multiple_of(SPAN) {
                self.sweep_slot(NEAR + (self.swept / SPAN) as usize % FAR, now_ms);
            }
            self.sweep_slot(self.swept as usize % NEAR, now_ms);
        }
        let next = self.next_occupied();
        self.next = next.unwrap_or(NEVER);
        next.map(|tick| tick * TICK_MS)
    }

    fn sweep_slot(&mut self, slot: usize, now_ms: u64) {
        let mut key = std::mem::replace(&mut self.heads[slot], NONE);
        self.occupied[slot / 64] &= !(1 << (slot % 64));
        while key != NONE {
            let node = &mut self.nodes[key as usize];
            let next = node.next;
            node.slot = NONE;
            if node.due_ms <= now_ms {
                self.fire(key);
            } else if node.due_ms != NEVER {
                self.link(key);
            }
            key = next;
        }
    }

    fn fire(&mut self, key: Key) {
        let node = &mut self.nodes[key as usize];
        node.fired = true;
        node.due_ms = NEVER;
        self.woken.extend(node.waker.take());
    }

    fn link(&mut self, key: Key) {
        let (visit, slot) = place(self.nodes[key as usize].due_ms, self.swept);
        let head = std::mem::replace(&mut self.heads[slot], key);
        if head != NONE {
            self.nodes[head as usize].previous = key;
        }
        self.occupied[slot / 64] |= 1 << (slot % 64);
        let node = &mut self.nodes[key as usize];
        (node.visit, node.slot, node.next, node.previous) = (visit, slot as u32, head, NONE);
    }

    fn unlink(&mut self, key: Key) {
        let node = &mut self.nodes[key as usize];
        if node.slot == NONE {
            return;
        }
        let (slot, next, previous) = (node.slot as usize, node.next, node.previous);
        node.slot = NONE;
        if next != NONE {
            self.nodes[next as usize].previous = previous;
        }
        if previous != NONE {
            self.nodes[previous as usize].next = next;
        } else {
            self.heads[slot] = next;
            if next == NONE {
                self.occupied[slot / 64] &= !(1 << (slot % 64));
            }
        }
    }

    /// The first tick after `swept` whose slot holds anything.
    fn next_occupied(&self) -> Option<u64> {
        let near = first_set(&self.occupied[..NEAR / 64], (self.swept + 1) as usize % NEAR)
            .map(|distance| self.swept + 1 + distance as u64);
        let block = self.swept / SPAN + 1;
        let far = first_set(&self.occupied[NEAR / 64..], block as usize % FAR)
            .map(|distance| (block + distance as u64) * SPAN);
        near.into_iter().chain(far).min()
    }
}

/// The tick and slot at which a node due at `due_ms` is looked at next, if all ticks up to `swept` are swept.
fn place(due_ms: u64, swept: u64) -> (u64, usize) {
    let tick = due_ms.div_ceil(TICK_MS).max(swept + 1);
    if tick - swept < NEAR as u64 {
        return (tick, tick as usize % NEAR);
    }
    let block = (tick / SPAN).min(swept / SPAN + FAR as u64 - 1);
    (block * SPAN, NEAR + block as usize % FAR)
}

fn visit_tick(due_ms: u64, swept: u64) -> u64 {
    place(due_ms, swept).0
}

/// How far behind `start`, going round, the first set bit stands.
fn first_set(bits: &[u64], start: usize) -> Option<usize> {
    let count = bits.len() * 64;
    let words = bits.len();
    for step in 0..=words {
        let index = (start / 64 + step) % words;
        let word = match step {
            0 => bits[index] & (u64::MAX << (start % 64)),
            _ if step == words => bits[index] & !(u64::MAX << (start % 64)),
            _ => bits[index],
        };
        if word != 0 {
            let bit = index * 64 + word.trailing_zeros() as usize;
            return Some((bit + count - start) % count);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn first_set_goes_round() {
        let mut bits = [0u64; 4];
        assert_eq!(first_set(&bits, 7), None);
        bits[0] = 1 << 3;
        assert_eq!(first_set(&bits, 3), Some(0));
        assert_eq!(first_set(&bits, 4), Some(255));
        assert_eq!(first_set(&bits, 200), Some(59));
        bits[3] = 1 << 63;
        assert_eq!(first_set(&bits, 200), Some(55));
    }

    #[test]
    fn removed_nodes_leave_nothing() {
        let mut wheel = Wheel::default();
        for round in 0..1000 {
            let key = wheel.add();
            wheel.set(key, 5_000 + round, false);
            wheel.remove(key);
        }
        assert_eq!(wheel.nodes.len(), 1);
        assert_eq!(wheel.sweep(1), None);
    }

    #[test]
    fn a_later_moment_moves_nothing() {
        let mut wheel = Wheel::default();
        let key = wheel.add();
        assert!(wheel.set(key, 5_000, false));
        let slot = wheel.nodes[0].slot;
        assert!(!wheel.set(key, 60_000, false));
        assert_eq!(wheel.nodes[0].slot, slot);
        assert!(wheel.set(key, 100, false));
        assert_ne!(wheel.nodes[0].slot, slot);
    }

    #[test]
    fn ending_fires_idle_ones_only() {
        let mut wheel = Wheel::default();
        let (idle, busy, late) = (wheel.add(), wheel.add(), wheel.add());
        wheel.set(idle, 5_000, true);
        wheel.set(busy, 5_000, false);
        wheel.end_idle();
        assert!(wheel.fired(idle) && !wheel.fired(busy));
        wheel.set(late, 5_000, true);
        wheel.sweep(TICK_MS);
        assert!(wheel.fired(late) && !wheel.fired(busy));
    }

    proptest! {
        /// Against a plain list: nothing fires early, everything fires by the tick after it is due.
        #[test]
        fn agrees_with_a_list(steps in prop::collection::vec((0usize..8, 0u64..200_000, 0u64..9_000), 1..200)) {
            let mut wheel = Wheel::default();
            let keys: Vec<Key> = (0..8).map(|_| wheel.add()).collect();
            let mut due = [NEVER; 8];
            let mut now = 0;
            for (index, wait, step) in steps {
                wheel.set(keys[index], now + wait, false);
                due[index] = now + wait;
                now += step;
                let next = wheel.sweep(now);
                for (index, &key) in keys.iter().enumerate() {
                    if wheel.fired(key) {
                        prop_assert!(due[index] <= now);
                    } else if due[index] != NEVER {
                        prop_assert!(due[index] + TICK_MS > now, "due {} at {}", due[index], now);
                        prop_assert!(next.is_some());
                    }
                }
            }
        }
    }
}
