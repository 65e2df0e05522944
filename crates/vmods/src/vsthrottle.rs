//! The module `vsthrottle` of varnish-modules: how often something may happen.
//!
//! A bucket of `limit` tokens refills over `period`; each permitted event takes one. The four arguments together name the
//! bucket, so the same key under another rule is another bucket. Buckets live in [`SHARDS`] maps of their own lock. A
//! bucket that has refilled says nothing that a new one would not, so it is dropped when its map is swept: every
//! [`SWEEP_S`] seconds, or when the map is full. If that leaves no room, the bucket that is nearest to full goes.

use crate::arguments::{Arguments, functions, or, required};
use copal_base::{Seconds, Time};
use copal_vcl as vcl;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::sync::LazyLock;
use vcl::host::Result;
use vcl::value::Value;
use vcl::vmod::{Call, Type, Vmod};

/// How many maps there are.
const SHARDS: usize = 32;
/// The most buckets of one map; of all together 1,048,576, about 100 bytes each.
const BUCKETS_MAX: usize = 32 * 1024;
/// How often a map is swept at most, in seconds.
const SWEEP_S: Seconds = 10.0;

/// The module's table. Source: `vmod_vsthrottle(3)` of varnish-modules.
pub(crate) static VMOD: Vmod = Vmod {
    name: "vsthrottle",
    functions: functions! {
        "is_denied"(
            required("key", Type::String),
            required("limit", Type::Int),
            required("period", Type::Duration),
            or("block", Type::Duration, "0s")
        ) -> Bool, is_denied;
        "return_token"(
            required("key", Type::String),
            required("limit", Type::Int),
            required("period", Type::Duration),
            or("block", Type::Duration, "0s")
        ) -> Void, return_token;
        "remaining"(
            required("key", Type::String),
            required("limit", Type::Int),
            required("period", Type::Duration),
            or("block", Type::Duration, "0s")
        ) -> Int, remaining;
        "blocked"(
            required("key", Type::String),
            required("limit", Type::Int),
            required("period", Type::Duration),
            or("block", Type::Duration, "0s")
        ) -> Duration, blocked;
        "remove_bucket"(
            required("key", Type::String),
            required("limit", Type::Int),
            required("period", Type::Duration),
            or("block", Type::Duration, "0s")
        ) -> Void, remove_bucket;
    },
    objects: &[],
};

/// A bucket's name: a digest of the four arguments.
type Name = [u8; 32];

/// One bucket's rule.
#[derive(Clone, Copy, Debug)]
struct Rule {
    /// In tokens; not negative.
    limit: f64,
    /// In which an empty bucket fills.
    period: Seconds,
    block: Seconds,
}

/// The tokens of one bucket.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    /// How many there were at `updated`, with the fraction that is on its way.
    tokens: f64,
    updated: Time,
    /// Until when nothing is permitted.
    blocked_until: Time,
    /// When it will be full again if nothing happens.
    full_at: Time,
}

impl Bucket {
    fn full(rule: &Rule, now: Time) -> Self {
        Self { tokens: rule.limit, updated: now, blocked_until: 0.0, full_at: now }
    }

    fn refill(&mut self, rule: &Rule, now: Time) {
        if rule.period > 0.0 && now > self.updated {
            self.tokens += (now - self.updated) * rule.limit / rule.period;
        } else if rule.period <= 0.0 {
            self.tokens = rule.limit;
        }
        self.tokens = self.tokens.min(rule.limit);
        self.updated = self.updated.max(now);
    }

    /// Changes the tokens and reckons when the bucket is full again.
    fn put(&mut self, rule: &Rule, tokens: f64) {
        self.tokens = tokens.clamp(0.0, rule.limit);
        let missing = (rule.limit - self.tokens) / rule.limit.max(1.0) * rule.period.max(0.0);
        self.full_at = (self.updated + missing).max(self.blocked_until);
    }

    /// Who asks while nothing is permitted uses up tokens all the same.
    fn is_denied(&mut self, rule: &Rule, now: Time) -> bool {
        let is_blocked = now < self.blocked_until;
        self.refill(rule, now);
        let is_there = self.tokens >= 1.0;
        if is_there {
            self.put(rule, self.tokens - 1.0);
        } else if rule.block > 0.0 && !is_blocked {
            self.blocked_until = now + rule.block;
            self.put(rule, self.tokens);
        }
        is_blocked || !is_there
    }
}

/// One map of buckets.
#[derive(Debug, Default)]
struct Shard {
    buckets: HashMap<Name, Bucket>,
    swept: Time,
}

impl Shard {
    /// The bucket of that name; a full one if it was not there.
    fn bucket(&mut self, name: Name, rule: &Rule, now: Time) -> &mut Bucket {
        let is_new = !self.buckets.contains_key(&name);
        if now - self.swept >= SWEEP_S || (is_new && self.buckets.len() >= BUCKETS_MAX) {
            self.sweep(now);
        }
        self.buckets.entry(name).or_insert_with(|| Bucket::full(rule, now))
    }

    fn sweep(&mut self, now: Time) {
        self.swept = now;
        self.buckets.retain(|_, bucket| bucket.full_at > now);
        if self.buckets.len() >= BUCKETS_MAX {
            // Half of them go at once, so that the next sweep is not for the next bucket.
            let mut ends: Vec<Time> = self.buckets.values().map(|bucket| bucket.full_at).collect();
            let middle = ends.len() / 2;
            let (_, limit, _) = ends.select_nth_unstable_by(middle, Time::total_cmp);
            let limit = *limit;
            let mut left = BUCKETS_MAX / 2;
            self.buckets.retain(|_, bucket| {
                let keep = bucket.full_at >= limit && left > 0;
                left -= usize::from(keep);
                keep
            });
        }
    }
}

static SHARDED: LazyLock<Vec<Mutex<Shard>>> =
    LazyLock::new(|| (0..SHARDS).map(|_| Mutex::default()).collect());

/// The bucket that a call means; nothing without a key.
struct Asked {
    name: Name,
    rule: Rule,
    now: Time,
}

impl Asked {
    fn of(call: &Call<'_>) -> Result<Option<Self>> {
        let arguments = Arguments(call.arguments);
        let Some(key) = arguments.text(0)? else { return Ok(None) };
        let (limit, period, block) = (arguments.integer(1)?, arguments.duration(2)?, arguments.duration(3)?);
        let mut digest = Sha256::new();
        digest.update(limit.to_le_bytes());
        digest.update(period.to_le_bytes());
        digest.update(block.to_le_bytes());
        digest.update(key);
        let rule = Rule { limit: limit.max(0) as f64, period, block };
        Ok(Some(Self { name: digest.finalize().into(), rule, now: call.host.now() }))
    }

    fn shard(&self) -> &'static Mutex<Shard> {
        &SHARDED[usize::from(self.name[0]) % SHARDS]
    }

    /// What `ask` makes of the bucket.
    fn with<T>(&self, ask: impl FnOnce(&mut Bucket, &Rule, Time) -> T) -> T {
        let mut shard = self.shard().lock();
        ask(shard.bucket(self.name, &self.rule, self.now), &self.rule, self.now)
    }

    /// The same without making a bucket.
    fn look(&self) -> Bucket {
        let found = self.shard().lock().buckets.get(&self.name).copied();
        let mut bucket = found.unwrap_or_else(|| Bucket::full(&self.rule, self.now));
        bucket.refill(&self.rule, self.now);
        bucket
    }
}

/// Without a key, everything is denied.
fn is_denied(call: &mut Call<'_>) -> Result<Value> {
    let denied = Asked::of(call)?.is_none_or(|asked| asked.with(Bucket::is_denied));
    Ok(Value::Bool(denied))
}

fn return_token(call: &mut Call<'_>) -> Result<Value> {
    if let Some(asked) = Asked::of(call)? {
        asked.with(|bucket, rule, now| {
            bucket.refill(rule, now);
            bucket.put(rule, bucket.tokens + 1.0);
        });
    }
    Ok(Value::Void)
}

fn remaining(call: &mut Call<'_>) -> Result<Value> {
    Ok(Value::Int(Asked::of(call)?.map_or(-1, |asked| asked.look().tokens as i64)))
}

fn blocked(call: &mut Call<'_>) -> Result<Value> {
    let left = Asked::of(call)?.map_or(-1.0, |asked| (asked.look().blocked_until - asked.now).max(0.0));
    Ok(Value::Duration(left))
}

fn remove_bucket(call: &mut Call<'_>) -> Result<Value> {
    if let Some(asked) = Asked::of(call)? {
        asked.shard().lock().buckets.remove(&asked.name);
    }
    Ok(Value::Void)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{FakeHost, call_in_module, text};
    use vcl::host::Sub;

    fn at(now: Time, name: &str, key: &str, rule: (i64, f64, f64)) -> String {
        let mut host = FakeHost { now, ..FakeHost::default() };
        let arguments = [text(key), Value::Int(rule.0), Value::Duration(rule.1), Value::Duration(rule.2)];
        let value = call_in_module(&VMOD, &mut host, Sub::Recv, name, &arguments).unwrap();
        format!("{value:?}")
    }

    #[test]
    fn tokens_are_taken_and_come_back() {
        let rule = (4, 4.0, 0.0);
        for (now, denied, left) in [
            (100.0, false, 3),
            (100.5, false, 2),
            (101.0, false, 2),
            (101.5, false, 1),
            // The half tokens of the calls before are not lost.
            (102.0, false, 1),
            (102.0, false, 0),
            (102.0, true, 0),
            (103.0, false, 0),
            (200.0, false, 3),
        ] {
            assert_eq!(at(now, "is_denied", "back", rule), format!("Bool({denied})"), "{now}");
            assert_eq!(at(now, "remaining", "back", rule), format!("Int({left})"), "{now}");
        }
        assert_eq!(at(200.0, "remaining", "back", (5, 4.0, 0.0)), "Int(5)", "another rule, another bucket");
    }

    #[test]
    fn blocking() {
        let rule = (2, 1.0, 2.0);
        for (now, denied, left) in [
            (100.0, false, "0.0"),
            (100.0, false, "0.0"),
            (100.0, true, "2.0"),
            (101.5, true, "0.5"),
            (102.5, false, "0.0"),
        ] {
            assert_eq!(at(now, "is_denied", "block", rule), format!("Bool({denied})"), "{now}");
            assert_eq!(at(now, "blocked", "block", rule), format!("Duration({left})"), "{now}");
        }
    }

    #[test]
    fn asking_while_blocked_takes_tokens() {
        let rule = (2, 1.0, 2.0);
        for (now, denied) in [
            (100.0, false),
            (100.0, false),
            (100.0, true),
            (100.6, true),
            (101.2, true),
            (101.8, true),
            (102.1, false),
            (102.2, true),
            (103.0, true),
        ] {
            assert_eq!(at(now, "is_denied", "hammer", rule), format!("Bool({denied})"), "{now}");
        }
    }

    #[test]
    fn returning_and_removing() {
        let rule = (2, 1000.0, 0.0);
        for _ in 0..2 {
            assert_eq!(at(100.0, "is_denied", "return", rule), "Bool(false)");
        }
        at(100.0, "return_token", "return", rule);
        assert_eq!(at(100.0, "remaining", "return", rule), "Int(1)");
        for _ in 0..5 {
            at(100.0, "return_token", "return", rule);
        }
        assert_eq!(at(100.0, "remaining", "return", rule), "Int(2)");
        at(100.0, "is_denied", "return", rule);
        at(100.0, "remove_bucket", "return", rule);
        assert_eq!(at(100.0, "remaining", "return", rule), "Int(2)");
    }

    #[test]
    fn odd_rules() {
        for rule in [(0, 1.0, 0.0), (-5, 1.0, 0.0), (i64::MIN, f64::NAN, 0.0)] {
            assert_eq!(at(100.0, "is_denied", "odd", rule), "Bool(true)", "{rule:?}");
        }
        assert_eq!(at(100.0, "is_denied", "odd", (1, 0.0, 0.0)), "Bool(false)");
        assert_eq!(at(100.0, "is_denied", "odd", (1, 0.0, 0.0)), "Bool(false)");
        let mut host = FakeHost::default();
        let arguments = [Value::String(None), Value::Int(1), Value::Duration(1.0)];
        for (name, answer) in
            [("is_denied", "Bool(true)"), ("remaining", "Int(-1)"), ("blocked", "Duration(-1.0)")]
        {
            let value = call_in_module(&VMOD, &mut host, Sub::Recv, name, &arguments).unwrap();
            assert_eq!(format!("{value:?}"), answer);
        }
    }

    #[test]
    fn buckets_have_an_end() {
        let rule = Rule { limit: 1.0, period: 1000.0, block: 0.0 };
        let mut shard = Shard { swept: 100.0, ..Shard::default() };
        for number in 0..2 * BUCKETS_MAX as u64 {
            let mut name = [0; 32];
            name[..8].copy_from_slice(&number.to_le_bytes());
            shard.bucket(name, &rule, 100.0).is_denied(&rule, 100.0);
            assert!(shard.buckets.len() <= BUCKETS_MAX);
        }
        shard.bucket([0xff; 32], &rule, 2000.0);
        assert_eq!(shard.buckets.len(), 1, "all others have refilled");
    }
}
