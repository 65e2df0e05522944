//! Time as a parameter.
//!
//! VCL's TIME and DURATION are doubles in seconds, so that is the representation throughout: a microsecond is still
//! exact two centuries after the epoch.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// A length of time in seconds; may be negative where VCL arithmetic makes it so.
pub type Seconds = f64;

/// A moment: seconds since the Unix epoch.
pub type Time = f64;

/// Where the present moment comes from.
pub trait Clock: Send + Sync {
    /// The present moment.
    fn now(&self) -> Time;
}

/// The machine's real-time clock.
#[derive(Debug, Default, Clone, Copy)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Time {
        // A clock set before 1970 reads as the epoch.
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
    }
}

/// A clock that tests move by hand.
#[derive(Debug, Default)]
pub struct ManualClock(AtomicU64);

impl ManualClock {
    /// A clock that stands at `start`.
    pub fn new(start: Time) -> Self {
        Self(AtomicU64::new(start.to_bits()))
    }

    /// Moves the clock to `now`.
    pub fn set(&self, now: Time) {
        self.0.store(now.to_bits(), Ordering::Relaxed);
    }

    /// Moves the clock forward by `seconds`.
    pub fn advance(&self, seconds: Seconds) {
        self.set(self.now() + seconds);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Time {
        f64::from_bits(self.0.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manual_clock_moves_only_when_told() {
        let clock = ManualClock::new(100.0);
        assert_eq!(clock.now(), 100.0);
        clock.advance(2.5);
        assert_eq!(clock.now(), 102.5);
    }
}
