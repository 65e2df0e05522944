//! What came of a run, as a table and as JSON.

use super::cache::Cache;
use serde_json::{Value, json};
use std::fmt::Write as _;

/// What was read besides requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Count {
    /// Requests for the caches.
    pub(super) requests: u64,
    /// Requests that no cache answers, or of which nothing tells how large the answer is.
    pub(super) left_out: u64,
    /// Lines that say nothing.
    pub(super) bad: u64,
    /// The first of them: its file, and its number there, from 1.
    pub(super) first_bad: Option<(String, u64)>,
}

impl Count {
    /// In words.
    pub(super) fn words(&self) -> String {
        let mut text = format!("requests: {}", self.requests);
        if self.left_out > 0 {
            let _ = write!(text, ", left out (not cacheable, or of unknown size): {}", self.left_out);
        }
        if let Some((file, line)) = &self.first_bad {
            let _ = write!(text, ", lines not readable: {} (the first is line {line} of {file})", self.bad);
        }
        text
    }
}

/// A line on what was read, and one for each cache.
pub(super) fn table(count: &Count, caches: &[Cache]) -> String {
    let mut text = format!(
        "{}\n\n{:<8} {:>10} {:>12} {:>9} {:>14} {:>14}\n",
        count.words(),
        "policy",
        "size",
        "requests",
        "hit ratio",
        "byte hit ratio",
        "bytes written"
    );
    for cache in caches {
        let outcome = &cache.outcome;
        let _ = writeln!(
            text,
            "{:<8} {:>10} {:>12} {:>9.4} {:>14.4} {:>14}",
            cache.policy.name(),
            copal_base::units::format_bytes(cache.size),
            outcome.requests,
            ratio(outcome.hits, outcome.requests),
            ratio(outcome.hit_bytes, outcome.bytes),
            outcome.written_bytes,
        );
    }
    text
}

/// The same, for programs.
pub(super) fn json(count: &Count, caches: &[Cache]) -> Value {
    let one = |cache: &Cache| {
        let outcome = &cache.outcome;
        json!({
            "policy": cache.policy.name(),
            "size": cache.size,
            "requests": outcome.requests,
            "hits": outcome.hits,
            "hit_ratio": ratio(outcome.hits, outcome.requests),
            "bytes": outcome.bytes,
            "hit_bytes": outcome.hit_bytes,
            "byte_hit_ratio": ratio(outcome.hit_bytes, outcome.bytes),
            "bytes_written": outcome.written_bytes,
            "evicted": outcome.evicted,
        })
    };
    json!({
        "requests": count.requests,
        "left_out": count.left_out,
        "bad_lines": count.bad,
        "first_bad_file": count.first_bad.as_ref().map(|(file, _)| file),
        "first_bad_line": count.first_bad.as_ref().map(|(_, line)| line),
        "results": caches.iter().map(one).collect::<Vec<_>>(),
    })
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
