//! `-R`: how many transactions may be shown in a stretch of time.

use std::time::{Duration, Instant};

/// A limit of so many in a period. What is over it is left out.
#[derive(Debug)]
pub(crate) struct Rate {
    limit: u32,
    period: Duration,
    began: Option<Instant>,
    passed: u32,
}

impl Rate {
    /// Reads `limit[/duration]`; the duration is as in VCL, or a unit alone; a second if left out.
    ///
    /// # Errors
    /// What is wrong, as Varnish's tools word it.
    pub(crate) fn parse(text: &str) -> Result<Rate, &'static str> {
        let (number, duration) = match text.split_once('/') {
            Some((number, duration)) => (number, Some(duration)),
            None => (text, None),
        };
        let digits =
            number.strip_prefix('-').unwrap_or(number).bytes().take_while(u8::is_ascii_digit).count();
        if digits == 0 {
            return Err("Range error");
        }
        if digits < number.trim_start_matches('-').len() || duration == Some("") {
            return Err("Syntax error");
        }
        let limit = number.parse::<i64>().ok().and_then(|limit| u32::try_from(limit).ok());
        let limit = limit.filter(|limit| (1..=i32::MAX as u32).contains(limit)).ok_or("Range error")?;
        let period = match duration {
            None => Duration::from_secs(1),
            Some(text) => period(text).ok_or("Syntax error: Invalid duration")?,
        };
        Ok(Rate { limit, period, began: None, passed: 0 })
    }

    /// Whether one more may pass.
    pub(crate) fn passes(&mut self, now: Instant) -> bool {
        if self.began.is_none_or(|began| now.duration_since(began) >= self.period) {
            self.began = Some(now);
            self.passed = 0;
        }
        self.passed = self.passed.saturating_add(1);
        self.passed <= self.limit
    }
}

fn period(text: &str) -> Option<Duration> {
    let digits = text.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'.').count();
    let number: f64 = if digits == 0 { 1.0 } else { text[..digits].parse().ok()? };
    let unit = match &text[digits..] {
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        "w" => 7.0 * 86_400.0,
        "y" => 365.0 * 86_400.0,
        _ => return None,
    };
    let seconds = number * unit;
    (seconds > 0.0 && seconds < 1e12).then(|| Duration::from_secs_f64(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts() {
        for (text, expected) in [
            ("10", Ok((10, 1.0))),
            ("10/s", Ok((10, 1.0))),
            ("5/m", Ok((5, 60.0))),
            ("10/2m", Ok((10, 120.0))),
            ("1/1.5h", Ok((1, 5400.0))),
            ("1foo", Err("Syntax error")),
            ("0", Err("Range error")),
            ("-1", Err("Range error")),
            ("3000000000", Err("Range error")),
            ("foo", Err("Range error")),
            ("10/", Err("Syntax error")),
            ("10/0s", Err("Syntax error: Invalid duration")),
            ("10/-10s", Err("Syntax error: Invalid duration")),
            ("10/1q", Err("Syntax error: Invalid duration")),
            ("10/11f09s", Err("Syntax error: Invalid duration")),
            ("10/1000000000000000000000000000000s", Err("Syntax error: Invalid duration")),
        ] {
            let found = Rate::parse(text).map(|rate| (rate.limit, rate.period.as_secs_f64()));
            assert_eq!(found, expected, "{text}");
        }
    }

    #[test]
    fn a_period_lets_the_limit_pass() {
        let mut rate = Rate::parse("2/1s").unwrap();
        let now = Instant::now();
        let passed: Vec<bool> =
            [0, 1, 2, 999, 1000].iter().map(|ms| rate.passes(now + Duration::from_millis(*ms))).collect();
        assert_eq!(passed, [true, true, false, false, true]);
    }
}
