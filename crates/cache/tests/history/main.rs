//! Random histories of requests, origin changes, ranges, evictions and clock steps against a simple slow model of RFC 9111:
//! the cache never serves bytes of a version that the model forbids.
//!
//! ```text
//! plan (a history) > world: clients > the cache, with a clock that the history moves > origin (writes down what it says)
//!                             |                                                           |
//!                             '------ what they got ------> model <-----------------------'
//! ```
//! `HISTORIES=5000` runs more of them, `HISTORY_SEED=7` other ones. What fails is made smaller and printed as a test for
//! `regressions.rs`, with the log of what happened.

#![allow(missing_docs, unreachable_pub)]

mod client;
mod content;
mod disk;
mod model;
mod origin;
mod plan;
mod regressions;
mod state;
mod world;

use plan::History;
use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngAlgorithm, TestError, TestRng, TestRunner};
use state::Tally;
use std::cell::RefCell;

/// Histories of one test, unless the environment says otherwise.
const HISTORIES: u32 = 250;

/// How often a history that went wrong is tried smaller.
const SHRINK_MAX: u32 = 400;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Plays some histories of that kind.
fn play(kind: impl Strategy<Value = History>, stream: u8) -> Tally {
    let cases = number("HISTORIES").map_or(HISTORIES, |count| count as u32);
    let mut seed = [stream; 32];
    seed[..8].copy_from_slice(&number("HISTORY_SEED").unwrap_or(1).to_le_bytes());
    let config =
        Config { cases, max_shrink_iters: SHRINK_MAX, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &seed));
    let sum = RefCell::new(Tally::default());
    let result = runner.run(&kind, |history| {
        let tally = world::run(&history).map_err(proptest::test_runner::TestCaseError::fail)?;
        sum.borrow_mut().add(&tally);
        Ok(())
    });
    match result {
        Ok(()) => {}
        Err(TestError::Fail(why, _)) => panic!("a history went wrong: {why}"),
        Err(TestError::Abort(why)) => panic!("no histories: {why}"),
    }
    sum.into_inner()
}

#[test]
fn rfc9111_short_histories_are_as_the_model_has_them() {
    let tally = play(plan::history(1..25), 3);
    assert!(tally.reused > 0 && tally.parts > 0, "{tally:?}");
    println!("{tally:?}");
}

#[test]
fn rfc9111_long_histories_are_as_the_model_has_them() {
    let tally = play(plan::history(1..120), 5);
    let Tally { requests, reused, stale, parts, reused_parts, not_modified, shared, confirmed, .. } = tally;
    // A test that never comes to what it is about would prove nothing.
    let all = [
        reused * 10,
        stale * 200,
        parts * 20,
        reused_parts * 50,
        not_modified * 100,
        shared * 500,
        confirmed * 200,
    ];
    assert!(all.iter().all(|&often| often > requests), "{tally:?}");
    println!("{tally:?}");
}

#[test]
fn rfc9110_14_histories_of_objects_in_pieces_are_as_the_model_has_them() {
    let tally = play(plan::pieces(1..50), 7);
    assert!(tally.reused_parts * 10 > tally.requests && tally.shared * 500 > tally.requests, "{tally:?}");
    println!("{tally:?}");
}

/// What was not durable at a crash may be lost; what is found again is as right as ever.
#[test]
fn histories_with_restarts_on_a_disk_are_as_the_model_has_them() {
    let tally = play(plan::restarts(1..80), 9);
    assert!(tally.reused * 20 > tally.requests && tally.reused_parts > 0, "{tally:?}");
    println!("{tally:?}");
}
