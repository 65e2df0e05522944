//! The memory of a probe's outcomes and what follows from them. Pure.
//!
//! ```text
//!          good >= threshold: Went            good >= threshold: Still
//!   sick --------------------------> healthy --.
//!    ^  '- good < threshold: Still    |    ^---'
//!    '------ good < threshold: Went --'
//! ```

use base::Seconds;
use copal_base as base;
use copal_vcl::value::ProbeDefinition;

/// The largest window: outcomes are bits of a word.
const WINDOW_MAX: u32 = 64;

/// Over how many good probes the average of response times reaches back. Varnish's number.
const AVERAGE_OVER: f64 = 4.0;

/// What a probe's outcome changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Was and is healthy.
    StillHealthy,
    /// Became healthy.
    WentHealthy,
    /// Was and is sick.
    StillSick,
    /// Became sick.
    WentSick,
}

impl Verdict {
    /// Varnish's words for it.
    pub fn words(self) -> &'static str {
        match self {
            Self::StillHealthy => "Still healthy",
            Self::WentHealthy => "Went healthy",
            Self::StillSick => "Still sick",
            Self::WentSick => "Went sick",
        }
    }

    /// Whether it changed anything.
    pub fn changed(self) -> bool {
        matches!(self, Self::WentHealthy | Self::WentSick)
    }
}

/// The last outcomes.
#[derive(Clone, Debug, PartialEq)]
pub struct Window {
    happy: u64,
    size: u32,
    threshold: u32,
    healthy: bool,
    average: Seconds,
    rate: f64,
    /// For each letter of [`LETTERS`] but the last, whose bits are `happy`.
    steps: [u64; LETTERS.len() - 1],
}

/// The steps of a probe: the letter of each, and what `backend.list -p` calls it. Varnish's.
pub const LETTERS: [(char, &str); 8] = [
    ('4', "Good IPv4"),
    ('6', "Good IPv6"),
    ('U', "Good UNIX"),
    ('x', "Error Xmit"),
    ('X', "Good Xmit"),
    ('r', "Error Recv"),
    ('R', "Good Recv"),
    ('H', "Happy"),
];

impl Window {
    /// As a probe starts: with `initial` good outcomes, by default one less than it takes to be healthy.
    pub fn new(definition: &ProbeDefinition) -> Self {
        let size = definition.window.clamp(1, WINDOW_MAX);
        let threshold = definition.threshold.min(WINDOW_MAX);
        let initial = definition.initial.unwrap_or(threshold.saturating_sub(1)).min(threshold);
        let happy = if initial == WINDOW_MAX { u64::MAX } else { (1 << initial) - 1 };
        // The outcomes that are taken for granted count in the average, too, as ones that took no time.
        let rate = f64::from(initial).min(AVERAGE_OVER);
        let mut window = Self { happy, size, threshold, healthy: false, average: 0.0, rate, steps: [0; 7] };
        window.healthy = window.good() >= threshold;
        window
    }

    /// What to say of it where there is no new outcome; `fresh` is whether nothing was said before.
    pub fn standing(&self, fresh: bool) -> Verdict {
        match (self.healthy, fresh) {
            (true, _) => Verdict::StillHealthy,
            (false, true) => Verdict::WentSick,
            (false, false) => Verdict::StillSick,
        }
    }

    /// Takes one outcome; `took` is the time it took, which counts if it was good.
    pub fn record(&mut self, happy: bool, took: Seconds) -> Verdict {
        self.happy = self.happy << 1 | u64::from(happy);
        if happy {
            self.rate = (self.rate + 1.0).min(AVERAGE_OVER);
            self.average += (took - self.average) / self.rate;
        }
        let healthy = self.good() >= self.threshold;
        let was = std::mem::replace(&mut self.healthy, healthy);
        match (was, self.healthy) {
            (true, true) => Verdict::StillHealthy,
            (false, true) => Verdict::WentHealthy,
            (false, false) => Verdict::StillSick,
            (true, false) => Verdict::WentSick,
        }
    }

    /// Notes how far a probe came, as the letters say of [`LETTERS`], before its outcome is recorded.
    pub fn note(&mut self, letters: &str) {
        for ((letter, _), bits) in LETTERS.iter().zip(&mut self.steps) {
            *bits = *bits << 1 | u64::from(letters.contains(*letter));
        }
    }

    /// For each of [`LETTERS`] in which of the last 64 probes it was so, newest in the lowest bit.
    pub fn history(&self) -> impl Iterator<Item = (char, &'static str, u64)> {
        let bits = self.steps.into_iter().chain([self.happy]);
        LETTERS.into_iter().zip(bits).map(|((letter, words), bits)| (letter, words, bits))
    }

    /// How many of the window's outcomes were good.
    pub fn good(&self) -> u32 {
        let mask = if self.size == WINDOW_MAX { u64::MAX } else { (1 << self.size) - 1 };
        (self.happy & mask).count_ones()
    }

    /// Whether those are enough.
    pub fn healthy(&self) -> bool {
        self.healthy
    }

    /// All 64 outcomes, newest in the lowest bit.
    pub fn happy(&self) -> u64 {
        self.happy
    }

    /// How many outcomes count.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// How many must be good.
    pub fn threshold(&self) -> u32 {
        self.threshold
    }

    /// The running average of good probes' times.
    pub fn average(&self) -> Seconds {
        self.average
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(size: u32, threshold: u32, initial: Option<u32>) -> Window {
        Window::new(&ProbeDefinition { window: size, threshold, initial, ..ProbeDefinition::default() })
    }

    /// Feeds `+` and `-` and compares the verdicts: `H`ealthy still, `B`ack to health, `S`ick still, `W`ent sick.
    fn check(mut window: Window, outcomes: &str, expected: &str) {
        let verdicts: String = outcomes
            .chars()
            .map(|outcome| match window.record(outcome == '+', 0.1) {
                Verdict::StillHealthy => 'H',
                Verdict::WentHealthy => 'B',
                Verdict::StillSick => 'S',
                Verdict::WentSick => 'W',
            })
            .collect();
        assert_eq!(verdicts, expected, "{outcomes}");
    }

    #[test]
    fn goes_and_comes_back() {
        check(window(8, 3, None), "+", "B");
        check(window(8, 3, Some(0)), "+++", "SSB");
        check(window(8, 3, Some(3)), "-", "H");
        check(window(3, 2, Some(2)), "+--++", "HHWSB");
        check(window(64, 64, Some(64)), "+-", "HW");
        check(window(8, 0, Some(0)), "--", "HH");
        check(window(1, 1, Some(9)), "+-+", "HWB");
        check(window(4, 5, None), "+++++", "SSSSS");
    }

    #[test]
    fn what_is_said_without_an_outcome() {
        let (sick, healthy) = (window(8, 3, None), window(8, 3, Some(3)));
        assert_eq!((sick.standing(true), sick.standing(false)), (Verdict::WentSick, Verdict::StillSick));
        assert_eq!(
            (healthy.standing(true), healthy.standing(false)),
            (Verdict::StillHealthy, Verdict::StillHealthy)
        );
    }

    #[test]
    fn average_follows_good_probes_only() {
        for (initial, average) in [(0, 2.0), (2, 1.0)] {
            let mut window = window(8, 3, Some(initial));
            window.record(true, 1.0);
            window.record(false, 100.0);
            window.record(true, 3.0);
            assert_eq!(window.average(), average);
        }
    }
}
