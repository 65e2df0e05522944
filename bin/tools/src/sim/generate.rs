//! Traces made up, so that anybody can repeat a figure: `zipf=0.9,keys=100000,requests=1000000,mean=16K,seed=1`.
//!
//! The chance of a key is as its rank to the power of minus `zipf`. Sizes are a key's own, log-normal with a standard deviation
//! of one in the exponent (the median is 0.6 of the mean). What is mixed in:
//! - `once`: this part of the requests is for keys that are never asked for again.
//! - `scan`: this part walks through as many other keys, in order and again and again, in runs of a tenth of them.
//! - `churn`: over the trace, this part of the keys is replaced: a new key comes in as the most popular one, and each of the
//!   others goes down by a rank.

use super::cache::Request;

/// The most keys: 8 bytes each are kept.
const KEYS_MAX: u64 = 100_000_000;

/// What a trace is made of.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Recipe {
    zipf: f64,
    keys: u64,
    requests: u64,
    mean: u64,
    seed: u64,
    once: f64,
    scan: f64,
    churn: f64,
}

impl Default for Recipe {
    fn default() -> Self {
        Self {
            zipf: 0.9,
            keys: 100_000,
            requests: 1_000_000,
            mean: 16 << 10,
            seed: 1,
            once: 0.0,
            scan: 0.0,
            churn: 0.0,
        }
    }
}

impl Recipe {
    /// Reads `name=value,...`; what is not named has its default.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn parse(text: &str) -> Result<Recipe, String> {
        let mut recipe = Recipe::default();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').ok_or_else(|| format!("\"{part}\" is no name=value"))?;
            let wrong = || format!("{name}: \"{value}\" will not do");
            let real = |most: f64| {
                let number = value.parse::<f64>().ok();
                number.filter(|number| (0.0..=most).contains(number)).ok_or_else(wrong)
            };
            let whole = |least: u64, most: u64| {
                let number = value.parse::<u64>().ok();
                number.filter(|number| (least..=most).contains(number)).ok_or_else(wrong)
            };
            match name {
                "zipf" => recipe.zipf = real(10.0)?,
                "keys" => recipe.keys = whole(1, KEYS_MAX)?,
                "requests" => recipe.requests = whole(1, u64::MAX)?,
                "mean" => recipe.mean = copal_base::units::parse_bytes(value)?,
                "seed" => recipe.seed = whole(0, u64::MAX)?,
                "once" => recipe.once = real(1.0)?,
                "scan" => recipe.scan = real(1.0)?,
                "churn" => recipe.churn = real(1000.0)?,
                _ => return Err(format!("\"{name}\" is none of {NAMES}")),
            }
        }
        match recipe.once + recipe.scan > 1.0 {
            true => Err("once and scan are more than all requests".to_owned()),
            false => Ok(recipe),
        }
    }
}

const NAMES: &str = "zipf, keys, requests, mean, seed, once, scan, churn";

/// The requests of a recipe.
pub(super) struct Trace {
    recipe: Recipe,
    dice: Dice,
    /// At each rank, the chance of this one and all before.
    chances: Vec<f64>,
    done: u64,
    /// Steps of the walk done, and left in this run.
    walked: u64,
    walk_left: u64,
}

impl Trace {
    pub(super) fn new(recipe: Recipe) -> Trace {
        let mut sum = 0.0;
        let chance = |rank: u64| {
            sum += (rank as f64).powf(-recipe.zipf);
            sum
        };
        let chances = (1..=recipe.keys).map(chance).collect();
        Trace { dice: Dice(recipe.seed), recipe, chances, done: 0, walked: 0, walk_left: 0 }
    }

    /// The next key: those of popularity, of a walk and those asked for once are different ones.
    fn key(&mut self) -> u64 {
        const ONCE: u64 = 1 << 62;
        const WALK: u64 = 2 << 62;
        let recipe = &self.recipe;
        if self.walk_left == 0 {
            // A run of so many, begun so seldom that the part is as wanted.
            let run = (recipe.keys / 10).max(1);
            let begins = recipe.scan / (recipe.scan + (1.0 - recipe.scan) * run as f64);
            if self.dice.real() < begins {
                self.walk_left = run;
            }
        }
        if self.walk_left > 0 {
            self.walk_left -= 1;
            self.walked += 1;
            return WALK | (self.walked % recipe.keys);
        }
        if self.dice.real() * (1.0 - recipe.scan) < recipe.once {
            return ONCE | self.done;
        }
        let shift = self.done as f64 / recipe.requests as f64 * recipe.churn * recipe.keys as f64;
        let rank = self.rank();
        // Ranks count down from the newest key.
        (1 << 61) + shift as u64 - rank
    }

    fn rank(&mut self) -> u64 {
        let all = self.chances.last().copied().unwrap_or_default();
        let dice = self.dice.real() * all;
        (self.chances.partition_point(|chance| *chance <= dice) as u64).min(self.recipe.keys - 1)
    }

    /// The size that belongs to the key, at least 1.
    fn size(&self, key: u64) -> u64 {
        let mut dice = Dice(self.recipe.seed ^ mixed(key));
        // A normal number by two uniform ones (Box and Muller, 1958).
        let (a, b) = (1.0 - dice.real(), dice.real());
        let normal = (-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos();
        ((self.recipe.mean as f64 * (normal - 0.5).exp()) as u64).max(1)
    }
}

impl Iterator for Trace {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        if self.done == self.recipe.requests {
            return None;
        }
        let key = self.key();
        self.done += 1;
        Some(Request { key: mixed(key), size: self.size(key), second: None })
    }
}

/// Numbers from a seed: SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014).
struct Dice(u64);

impl Dice {
    /// From 0 up to, but not, 1.
    fn real(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        (mixed(self.0) >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// A number with all bits of `number` spread over all of it; different for different ones.
fn mixed(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn counts(recipe: &str) -> (HashMap<u64, u64>, u64) {
        let (mut counts, mut bytes) = (HashMap::new(), 0);
        for request in Trace::new(Recipe::parse(recipe).unwrap()) {
            *counts.entry(request.key).or_insert(0) += 1;
            bytes += request.size;
        }
        (counts, bytes)
    }

    #[test]
    fn the_same_seed_gives_the_same_trace() {
        let trace = |text| Trace::new(Recipe::parse(text).unwrap()).take(1000).collect::<Vec<_>>();
        let mixed = "once=0.2,scan=0.3,churn=2";
        assert_eq!(trace(mixed), trace(mixed));
        assert_ne!(trace("seed=1"), trace("seed=2"));
    }

    #[test]
    fn chances_are_as_asked() {
        let (keys, bytes) = counts("zipf=1,keys=1000,requests=200000,mean=10K");
        let most = keys.values().max().copied().unwrap() as f64 / 200_000.0;
        // 1 / (1 + 1/2 + ... + 1/1000).
        assert!((most - 0.1336).abs() < 0.01, "{most}");
        assert!(keys.len() > 950 && keys.len() <= 1000, "{}", keys.len());
        let mean = bytes as f64 / 200_000.0;
        assert!((2e3..5e4).contains(&mean), "{mean}");
        let (keys, _) = counts("keys=1000,requests=100000,once=0.3");
        let once = keys.values().filter(|count| **count == 1).count();
        assert!((29_000..31_000).contains(&once), "{once}");
        let (keys, _) = counts("keys=1000,requests=100000,scan=0.5");
        assert!(keys.len() > 1900 && keys.len() <= 2000, "{}", keys.len());
        let (keys, _) = counts("keys=1000,requests=100000,churn=1");
        assert!(keys.len() > 1500 && keys.len() <= 2000, "{}", keys.len());
    }

    #[test]
    fn recipes() {
        assert_eq!(Recipe::parse(""), Ok(Recipe::default()));
        let text = "zipf=1.1,keys=5,requests=7,mean=1M,seed=3,once=0.1,scan=0.2,churn=4";
        let recipe = Recipe {
            zipf: 1.1,
            keys: 5,
            requests: 7,
            mean: 1 << 20,
            seed: 3,
            once: 0.1,
            scan: 0.2,
            churn: 4.0,
        };
        assert_eq!(Recipe::parse(text), Ok(recipe));
        for (text, fault) in [
            ("zipf", "\"zipf\" is no name=value"),
            ("zipf=x", "zipf: \"x\" will not do"),
            ("zipf=NaN", "zipf: \"NaN\" will not do"),
            ("keys=0", "keys: \"0\" will not do"),
            ("mean=k", "\"k\" is not a size"),
            ("skew=1", "\"skew\" is none of zipf, keys, requests, mean, seed, once, scan, churn"),
            ("once=0.6,scan=0.6", "once and scan are more than all requests"),
        ] {
            assert_eq!(Recipe::parse(text), Err(fault.to_owned()));
        }
    }
}
