//! Failures that somebody asks for in advance, to see what comes of them: which of the next attempts are to fail.

use std::sync::atomic::{AtomicU64, Ordering};

/// Which of the next 64 attempts fail. Attempts of all threads count as they come.
#[derive(Debug, Default)]
pub struct Schedule(AtomicU64);

impl Schedule {
    /// Reads a plan, one character an attempt from the left: `F` or `f` fails, any other passes. What stands behind the
    /// 64th is not looked at. Source: Varnish 7.1, `debug.reqpool.fail`, observed.
    pub fn parse(plan: &str) -> u64 {
        let failing = plan.chars().take(64).enumerate().filter(|(_, word)| matches!(word, 'F' | 'f'));
        failing.fold(0, |bits, (at, _)| bits | 1 << at)
    }

    /// From now on the attempts fail whose bit is set, the next one's being the lowest, and no others.
    pub fn set(&self, bits: u64) {
        self.0.store(bits, Ordering::Relaxed);
    }

    /// Makes an attempt. If it is to fail, the bits of those to come.
    pub fn attempt(&self) -> Option<u64> {
        if self.0.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let before = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |bits| Some(bits >> 1));
        let bits = before.unwrap_or_default();
        (bits & 1 == 1).then_some(bits >> 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_fail_as_planned() {
        let long = "_".repeat(63) + "Ff";
        for (plan, failing) in
            [("", &[][..]), ("F", &[0]), ("F__f_F", &[0, 3, 5]), ("_x1f", &[3]), ("___", &[]), (&long, &[63])]
        {
            let schedule = Schedule::default();
            schedule.set(Schedule::parse(plan));
            let failed: Vec<usize> = (0..70).filter(|_| schedule.attempt().is_some()).collect();
            assert_eq!(failed, failing, "{plan}");
        }
        let schedule = Schedule::default();
        schedule.set(Schedule::parse("FF_F"));
        assert_eq!(schedule.attempt(), Some(0b101));
        schedule.set(0);
        assert_eq!(schedule.attempt(), None);
    }
}
