//! Volumes on a device that crashes, against a model: nothing durable that was removed or banned comes back, no wrong
//! byte is read, nothing panics.
//!
//! A few hundred histories by default; `CRASH_HISTORIES=10000 CRASH_SEED=1` for more of them, from that seed on. A
//! history that fails prints its seed: `CRASH_HISTORIES=1 CRASH_SEED=<seed>` runs it alone. `CRASH_FLIPS=all` flips a bit
//! in every byte of an image in turn, in place of some.

mod content;
mod flips;
mod history;
mod model;

use copal_store::device::sim::Chance;
use history::{End, History};

fn number(name: &str, or: u64) -> u64 {
    std::env::var(name)
        .ok()
        .map_or(or, |value| value.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

/// Prints the seed of the history that is running when a check fails.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("CRASH_HISTORIES=1 CRASH_SEED={}", self.0);
        }
    }
}

fn run(count: u64, first: u64, ends: &[End]) {
    for seed in first..first + count {
        let told = Seed(seed);
        let mut history = History::new(seed);
        let mut chance = Chance::new(!seed);
        for _ in 0..1 + chance.below(5) {
            let end = ends[chance.below(ends.len() as u64) as usize];
            history.run(chance.below(120), end);
        }
        drop(told);
    }
}

#[test]
fn restarts_in_order_keep_all() {
    run(number("CRASH_HISTORIES", 200) / 5 + 1, number("CRASH_SEED", 0), &[End::Order]);
}

#[test]
fn crashes_lose_only_the_last() {
    run(
        number("CRASH_HISTORIES", 200),
        number("CRASH_SEED", 0),
        &[End::Crash, End::Crash, End::Kill, End::Order],
    );
}
