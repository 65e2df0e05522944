//! What the counters were: changes, moving averages, and the share of hits over time.

use super::Sample;
use copal_observe::read::Value;
use std::collections::HashMap;
use std::time::Instant;

/// Over how many looks the three moving averages go.
pub(super) const WINDOWS: [f64; 3] = [10.0, 100.0, 1000.0];

/// A moving average of up to so many values.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Average {
    /// How many values are in it, up to the window.
    pub(super) count: f64,
    pub(super) value: f64,
}

impl Average {
    fn take(&mut self, value: f64, window: f64) {
        self.count = (self.count + 1.0).min(window);
        self.value += (value - self.value) / self.count;
    }
}

/// A counter as it is and was.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) value: Value,
    /// Each second since the look before; None at the first.
    pub(super) change: Option<f64>,
    /// Each second since the daemon began, of a counter.
    pub(super) average: Option<f64>,
    pub(super) averages: [Average; 3],
    /// It was not zero at some time.
    pub(super) seen: bool,
}

/// All counters.
#[derive(Debug, Default)]
pub(super) struct History {
    pub(super) lines: Vec<Line>,
    pub(super) manager_uptime: u64,
    /// None while no worker runs.
    pub(super) worker_uptime: Option<u64>,
    pub(super) hit_rates: [Average; 3],
    hits_and_misses: (u64, u64),
    /// The uptime of a worker that has ended, whose counters are still shown.
    kept: Option<u64>,
    looked: Option<Instant>,
}

impl History {
    /// Takes a look.
    pub(super) fn take(&mut self, sample: &Sample) {
        let now = Instant::now();
        let step = self.looked.map(|looked| now.duration_since(looked).as_secs_f64());
        self.looked = Some(now);
        let uptime = |name: &str| sample.all.iter().find(|value| value.name == name).map(|value| value.value);
        self.manager_uptime = uptime("MGT.uptime").unwrap_or(self.manager_uptime);
        let worker_was = std::mem::replace(&mut self.worker_uptime, uptime("MAIN.uptime")).or(self.kept);
        self.kept = worker_was.filter(|_| self.worker_uptime.is_none());
        if self.worker_uptime.is_none() && worker_was.is_some() && sample.values.len() < self.lines.len() {
            // The worker ended: what it showed last stays to be read.
            return;
        }
        let mut before: HashMap<String, Line> =
            std::mem::take(&mut self.lines).into_iter().map(|line| (line.value.name.clone(), line)).collect();
        self.take_hits(sample);
        for value in &sample.values {
            let line = before.remove(&value.name);
            self.lines.push(next(value, line, step, sample.uptime));
        }
    }

    fn take_hits(&mut self, sample: &Sample) {
        let find =
            |name: &str| sample.all.iter().find(|value| value.name == name).map_or(0, |value| value.value);
        let now = (find("MAIN.cache_hit"), find("MAIN.cache_miss"));
        let was = std::mem::replace(&mut self.hits_and_misses, now);
        let (hits, misses) = (now.0.saturating_sub(was.0) as f64, now.1.saturating_sub(was.1) as f64);
        let rate = if hits + misses > 0.0 { hits / (hits + misses) } else { 0.0 };
        for (average, window) in self.hit_rates.iter_mut().zip(WINDOWS) {
            average.take(rate, window);
        }
    }

    /// Nothing runs there any more.
    pub(super) fn is_gone(&mut self) {
        self.worker_uptime = None;
    }

    /// Begins the moving averages anew.
    pub(super) fn forget_averages(&mut self) {
        self.hit_rates = Default::default();
        for line in &mut self.lines {
            line.averages = Default::default();
        }
    }
}

fn next(value: &Value, before: Option<Line>, step: Option<f64>, uptime: f64) -> Line {
    let new = || Line {
        value: value.clone(),
        change: None,
        average: None,
        averages: Default::default(),
        seen: false,
    };
    let mut line = before.unwrap_or_else(new);
    let difference = value.value.wrapping_sub(line.value.value) as i64 as f64;
    line.change = step.filter(|step| *step > 0.0).map(|step| difference / step);
    line.average = (value.kind == 'c').then(|| value.value as f64 / uptime);
    let averaged = if value.kind == 'g' { value.value as i64 as f64 } else { line.change.unwrap_or(0.0) };
    if value.kind == 'g' || line.change.is_some() {
        for (average, window) in line.averages.iter_mut().zip(WINDOWS) {
            average.take(averaged, window);
        }
    }
    line.seen |= value.value != 0;
    line.value.clone_from(value);
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn averages_move() {
        let mut average = Average::default();
        (0..20).for_each(|_| average.take(4.0, 10.0));
        assert_eq!(average, Average { count: 10.0, value: 4.0 });
        average.take(14.0, 10.0);
        assert!((average.value - 5.0).abs() < 1e-9);
    }
}
