//! `copal hist`: how a number of the log is distributed over the last transactions, in `varnishhist`'s output.

mod histogram;
mod profile;

use crate::Failure;
use crate::display::Frame;
use crate::follow::{self, Sink};
use crate::options::{Given, Opt};
use crate::screen::{Key, Row};
use crate::settings::{Mode, Settings, Source};
use copal_observe::Tag;
use copal_observe::read::{Record, Transaction};
use histogram::Histogram;
use profile::{Profile, Side};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// The options of `varnishhist(1)`.
pub(crate) const OPTIONS: &[Opt] = &[
    Opt::value('B', "factor", "Time bending"),
    Opt::flag('C', "Caseless regular expressions"),
    Opt::flag('d', "Process old log entries and exit"),
    Opt::value('g', "request|vxid", "Grouping mode (default: vxid)"),
    Opt::flag('h', "Usage help"),
    Opt::value('L', "limit", "Incomplete transaction limit"),
    Opt::value('n', "dir", "Work directory of the daemon"),
    Opt::value('p', "period", "Refresh period"),
    Opt::value('P', "=responsetime", "Predefined client profile"),
    Opt::value('P', "=reqbodytime", "Predefined client profile"),
    Opt::value('P', "=size", "Predefined client profile"),
    Opt::value('P', "=Bereqtime", "Predefined backend profile"),
    Opt::value('P', "=Beresptime", "Predefined backend profile"),
    Opt::value('P', "=BerespBodytime", "Predefined backend profile"),
    Opt::value('P', "=Besize", "Predefined backend profile"),
    Opt::value('P', "[cbE:]tag:[prefix]:field_num[:min:max]", "Custom profile definition"),
    Opt::value('Q', "file", "VSL query file"),
    Opt::value('q', "query", "VSL query"),
    Opt::value('r', "filename", "Binary file input"),
    Opt::value('t', "seconds|off", "VSM connection timeout"),
    Opt::value('T', "seconds", "Transaction end timeout"),
    Opt::flag('V', "Version"),
];

/// The shortest and the longest time between two drawings, in seconds.
const PERIODS: (f64, f64) = (0.05, 512.0);

/// Runs the tool.
pub(crate) fn run(given: &Given) -> Result<ExitCode, Failure> {
    let profile = Profile::parse(given.get('P').unwrap_or("responsetime")).map_err(Failure::Text)?;
    let period = period(given)?;
    let bend = bend(given)?;
    let settings = Settings::new(given)?;
    if settings.mode == Mode::Raw {
        return Err(Failure::Text("Invalid grouping mode: raw".to_owned()));
    }
    let mut display = Display {
        histogram: Histogram::new(profile.low, profile.high),
        profile,
        frame: Frame::new(&settings),
        period,
        playback: Playback {
            factor: if matches!(settings.source, Source::File(_)) { bend } else { None },
            began: None,
        },
    };
    follow::follow(settings, &mut display)?;
    Ok(ExitCode::SUCCESS)
}

fn period(given: &Given) -> Result<f64, Failure> {
    let Some(text) = given.get('p') else { return Ok(1.0) };
    let period = text.parse::<f64>().ok().filter(|period| *period > 0.0 && period.is_finite());
    period
        .map(|period| period.clamp(PERIODS.0, PERIODS.1))
        .ok_or_else(|| Failure::Text(format!("-p: invalid '{text}'")))
}

/// How much faster than it was a file is played; None for as fast as it can be read.
fn bend(given: &Given) -> Result<Option<f64>, Failure> {
    let Some(text) = given.get('B') else { return Ok(None) };
    let factor = text.parse::<f64>().unwrap_or(0.0);
    let reason = if factor == 0.0 || !factor.is_finite() {
        "stop it"
    } else if factor < 0.0 {
        "make it go backwards"
    } else {
        return Ok(Some(factor));
    };
    let text = format!("-B: being able to bend time does not mean we can {reason} (invalid factor '{text}')");
    Err(Failure::Text(text))
}

/// The pace of a file that is played.
struct Playback {
    factor: Option<f64>,
    /// When it began here, and in the log.
    began: Option<(Instant, f64)>,
}

impl Playback {
    /// How long to wait until what happened at `moment` may be shown.
    fn wait(&mut self, moment: f64) -> Duration {
        let Some(factor) = self.factor else { return Duration::ZERO };
        let (here, there) = *self.began.get_or_insert_with(|| (Instant::now(), moment));
        let due =
            Duration::try_from_secs_f64(((moment - there) / factor).clamp(0.0, 1e6)).unwrap_or_default();
        due.saturating_sub(here.elapsed())
    }

    /// Goes on from here at another pace.
    fn bend(&mut self, by: f64) {
        self.factor = self.factor.map(|factor| (factor * by).clamp(1e-3, 1e6));
        self.began = None;
    }
}

struct Display {
    histogram: Histogram,
    profile: Profile,
    frame: Frame,
    period: f64,
    playback: Playback,
}

impl Display {
    fn take(&mut self, transaction: &Transaction) -> Result<(), Failure> {
        let (mut hit, mut value, mut moment) = (false, None, None);
        for (tag, data) in transaction.records() {
            hit |= tag == Tag::VCL_call && data.eq_ignore_ascii_case(b"HIT");
            if tag == Tag::Timestamp {
                moment = data.split(|byte| *byte == b' ').nth(1).and_then(number).or(moment);
            }
            value = self.profile.value(tag, data).or(value);
        }
        let Some(value) = value else { return Ok(()) };
        if let Some(moment) = moment {
            self.wait(moment)?;
        }
        self.histogram.add(value, hit);
        Ok(())
    }

    fn wait(&mut self, moment: f64) -> Result<(), Failure> {
        loop {
            let wait = self.playback.wait(moment);
            if wait.is_zero() || self.frame.is_over {
                return Ok(());
            }
            self.pulse()?;
            std::thread::sleep(wait.min(Duration::from_millis(20)));
        }
    }

    fn pulse(&mut self) -> Result<(), Failure> {
        let screen = self.frame.screen()?;
        let (size, is_blank) = (screen.size(), screen.is_blank());
        let due = |drawn: Instant| drawn.elapsed().as_secs_f64() >= self.period;
        let mut draw = is_blank || self.frame.drawn.is_none_or(due);
        for key in self.frame.keys()? {
            draw = true;
            self.frame.screen()?.touch();
            match key {
                Key::Byte(digit @ b'0'..=b'9') => self.period = f64::from(1u32 << (digit - b'0')),
                Key::Byte(b'+') => self.period = (self.period / 2.0).max(PERIODS.0),
                Key::Byte(b'-') => self.period = (self.period * 2.0).min(PERIODS.1),
                Key::Byte(b'>') => self.playback.bend(2.0),
                Key::Byte(b'<') => self.playback.bend(0.5),
                _ => {}
            }
        }
        if !draw {
            return Ok(());
        }
        self.frame.drawn = Some(Instant::now());
        let (bars, scale) = self.histogram.page(size.0.saturating_sub(1), size.1);
        let mut left = format!("1:{scale}, n = {}, d = {}", self.histogram.count(), self.period);
        if let Some(factor) = self.playback.factor {
            left += &format!(", B = {factor}");
        }
        let mut rows = vec![Row::plain(self.frame.heading(&left, size.1))];
        rows.extend(bars.into_iter().map(Row::plain));
        self.frame.screen()?.show(&rows)
    }
}

fn number(word: &[u8]) -> Option<f64> {
    std::str::from_utf8(word).ok()?.parse().ok().filter(|value: &f64| value.is_finite())
}

impl Sink for Display {
    fn group(&mut self, group: &[Transaction]) -> Result<bool, Failure> {
        let side: Side = self.profile.side;
        for transaction in group.iter().filter(|one| side.is(one)) {
            self.take(transaction)?;
        }
        self.pulse()?;
        Ok(true)
    }

    fn record(&mut self, _record: &Record<'_>) -> Result<bool, Failure> {
        Ok(false)
    }

    fn idle(&mut self) -> Result<(), Failure> {
        self.pulse()
    }

    fn is_done(&self) -> bool {
        self.frame.is_over
    }

    fn stays(&mut self) -> bool {
        self.frame.has_ended = true;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_bent() {
        let options =
            |letter, value: &str| Given { options: vec![(letter, value.to_owned())], operands: Vec::new() };
        assert_eq!(bend(&options('B', "2")).ok(), Some(Some(2.0)));
        for (value, expected) in [("0", "stop it"), ("foo", "stop it"), ("-1", "make it go backwards")] {
            let Err(Failure::Text(text)) = bend(&options('B', value)) else { panic!("accepted {value}") };
            assert!(text.contains(expected), "{text}");
        }
        for value in ["0", "foo", "-1"] {
            let Err(Failure::Text(text)) = period(&options('p', value)) else { panic!("accepted {value}") };
            assert_eq!(text, format!("-p: invalid '{value}'"));
        }
        let mut playback = Playback { factor: Some(1e-3), began: None };
        assert!(playback.wait(100.0).is_zero());
        assert!(playback.wait(101.0) > Duration::from_secs(900));
        assert!(playback.wait(99.0).is_zero());
    }
}
