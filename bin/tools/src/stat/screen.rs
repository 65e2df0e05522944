//! The screen of counters: how it is moved about on, and the round that keeps it going.
//!
//! | | |
//! |---|---|
//! | `history` | what each counter was, and its averages |
//! | `page` | the rows, from that and from where the user is |

use super::Sample;
use super::history::History;
use super::page::{self, Place};
use crate::Failure;
use crate::screen::{Key, Screen};
use copal_observe::process::{self, Signal};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Between two looks at the keys.
const TICK_MS: u32 = 50;
const STEP: Duration = Duration::from_millis(100);
const INTERVAL_MIN: Duration = Duration::from_millis(100);
const INTERVAL_MAX: Duration = Duration::from_secs(1000);
/// How long a message stands.
const NOTE: Duration = Duration::from_secs(2);

/// Shows what `sample` gives until the user or a signal says that it is enough. `raw` shows gauges below zero as they are.
pub(super) fn run(sample: impl Fn() -> Result<Sample, Failure>, raw: bool) -> Result<ExitCode, Failure> {
    crate::follow::heed_signals()?;
    let mut history = History::default();
    history.take(&sample()?);
    let mut screen = Screen::open()?;
    let mut place = Place::default();
    place.raw = raw;
    let mut interval = Duration::from_secs(1);
    let mut looked = Instant::now();
    let mut note: Option<(Instant, String)> = None;
    let mut stale = true;
    loop {
        if [Signal::Hangup, Signal::Interrupt, Signal::Terminate].into_iter().any(process::take) {
            return Ok(ExitCode::SUCCESS);
        }
        let size = screen.size();
        if looked.elapsed() >= interval {
            looked = Instant::now();
            match sample() {
                Ok(sample) => history.take(&sample),
                // What was there is gone: what was seen last stays.
                Err(_) => history.is_gone(),
            }
            stale = true;
        }
        if note.as_ref().is_some_and(|(since, _)| since.elapsed() > NOTE) {
            note = None;
            stale = true;
        }
        if stale || screen.is_blank() {
            place.settle(&history, size);
            let text = note.as_ref().map(|(_, text)| text.as_str());
            screen.show(&page::rows(&history, &place, text, size))?;
        }
        let key = screen.key(TICK_MS)?;
        stale = key.is_some();
        match key {
            Some(Key::Byte(b'q' | 3)) => return Ok(ExitCode::SUCCESS),
            Some(Key::Byte(sign @ (b'+' | b'-'))) => {
                interval = if sign == b'+' { interval + STEP } else { interval.saturating_sub(STEP) };
                interval = interval.clamp(INTERVAL_MIN, INTERVAL_MAX);
                let text = format!("Refresh interval set to {:.1} seconds.", interval.as_secs_f64());
                note = Some((Instant::now(), text));
            }
            Some(Key::Byte(b'0')) => {
                history.forget_averages();
                note = Some((Instant::now(), "Averages reset.".to_owned()));
            }
            // Control-T: now.
            Some(Key::Byte(0x14)) => looked -= interval.min(looked.elapsed() + interval),
            Some(Key::Byte(0x0c)) => screen.forget(),
            Some(key) => move_about(&mut place, key, &history, size),
            None if screen.is_deaf => return Ok(ExitCode::SUCCESS),
            None => {}
        }
    }
}

fn move_about(place: &mut Place, key: Key, history: &History, size: (usize, usize)) {
    let page = page::list_height(size).max(1);
    let last = if place.help { page::help_height() } else { place.visible(history).len() }.saturating_sub(1);
    let at = if place.help { &mut place.help_top } else { &mut place.current };
    match key {
        Key::Byte(b'h') => {
            place.help = !place.help;
            place.help_top = 0;
        }
        Key::Up | Key::Byte(b'k') => *at = at.saturating_sub(1),
        Key::Down | Key::Byte(b'j') => *at = (*at + 1).min(last),
        Key::PageUp | Key::Byte(b'b' | 2) => *at = at.saturating_sub(page),
        Key::PageDown | Key::Byte(b' ' | 6) => *at = (*at + page).min(last),
        Key::Home | Key::Byte(b'g') => *at = 0,
        Key::End | Key::Byte(b'G') => *at = last,
        Key::Byte(b'd') => place.keep_current(history, |place| place.unseen = !place.unseen),
        Key::Byte(b'r') => place.raw = !place.raw,
        Key::Byte(b'e') => place.scale = !place.scale,
        Key::Byte(b'v') => place.keep_current(history, |place| place.verbosity = place.verbosity.more()),
        Key::Byte(b'V') => place.keep_current(history, |place| place.verbosity = place.verbosity.less()),
        Key::Byte(_) => {}
    }
}
