//! Volumes on a device that crashes, against a model: nothing durable that was removed or banned comes back, no wrong
//! byte is read, nothing panics.
//!
//! Some hundred histories by default; `CRASH_HISTORIES=10000 CRASH_SEED=1` for more of them, from that seed on. A
//! history that fails prints its seed: `CRASH_HISTORIES=1 CRASH_SEED=<seed>` runs it alone. `CRASH_FLIPS=all` flips a bit
//! in every byte of an image in turn, in place of some; `CRASH_FORGED=1000` tries more of wrong contents under right
//! checksums.

mod content;
mod flips;
mod history;
mod model;

use copal_store::device::sim::Chance;
use history::{End, History, Reached};

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

fn run(count: u64, first: u64, ends: &[End]) -> Reached {
    let mut reached = Reached::default();
    for seed in first..first + count {
        let told = Seed(seed);
        let mut history = History::new(seed);
        let mut chance = Chance::new(!seed);
        for _ in 0..1 + chance.below(5) {
            let end = ends[chance.below(ends.len() as u64) as usize];
            let most = if chance.one_in(4) { 600 } else { 100 };
            history.run(chance.below(most), end);
        }
        reached.evicted += history.reached.evicted;
        reached.reinserted += history.reached.reinserted;
        reached.checkpoints += history.reached.checkpoints;
        reached.lost += history.reached.lost;
        drop(told);
    }
    reached
}

#[test]
fn restarts_in_order_keep_all() {
    let reached = run(number("CRASH_HISTORIES", 120) / 5 + 1, number("CRASH_SEED", 0), &[End::Order]);
    assert_eq!(reached.lost, 0);
}

#[test]
fn crashes_lose_only_the_last() {
    let count = number("CRASH_HISTORIES", 120);
    let reached = run(count, number("CRASH_SEED", 0), &[End::Crash, End::Crash, End::Kill, End::Order]);
    println!("{count} histories: {reached:?}");
    let Reached { evicted, reinserted, checkpoints, lost } = reached;
    assert!(
        count < 100 || [evicted, reinserted, checkpoints, lost].iter().all(|times| *times > 0),
        "{reached:?}"
    );
}
