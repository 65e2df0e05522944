//! `copal top`: the log entries that come most often, in `varnishtop`'s output.

mod ranking;

use crate::Failure;
use crate::display::Frame;
use crate::follow::{self, Sink};
use crate::options::{Given, Opt};
use crate::output::Output;
use crate::screen::{Key, Row, Style};
use crate::select::{Selection, Wanted};
use crate::settings::Settings;
use copal_observe::read::{Record, Transaction};
use ranking::Ranking;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// The options of `varnishtop(1)`.
pub(crate) const OPTIONS: &[Opt] = &[
    Opt::flag('1', "Run once"),
    Opt::flag('b', "Only display backend records"),
    Opt::flag('c', "Only display client records"),
    Opt::flag('C', "Caseless regular expressions"),
    Opt::flag('d', "Process old log entries"),
    Opt::flag('E', "Display ESI transactions"),
    Opt::flag('f', "First field only"),
    Opt::value('g', "session|request|vxid|raw", "Grouping mode (default: vxid)"),
    Opt::flag('h', "Usage help"),
    Opt::value('i', "taglist", "Include tags"),
    Opt::value('I', "[taglist:]regex", "Include by regex"),
    Opt::value('L', "limit", "Incomplete transaction limit"),
    Opt::value('n', "dir", "Work directory of the daemon"),
    Opt::value('p', "period", "Sampling period"),
    Opt::value('Q', "file", "VSL query file"),
    Opt::value('q', "query", "VSL query"),
    Opt::value('r', "filename", "Binary file input"),
    Opt::value('t', "seconds|off", "VSM connection timeout"),
    Opt::value('T', "seconds", "Transaction end timeout"),
    Opt::value('x', "taglist", "Exclude tags"),
    Opt::value('X', "[taglist:]regex", "Exclude by regex"),
    Opt::flag('V', "Version"),
];

/// How often the list changes.
const INTERVAL: Duration = Duration::from_secs(1);

/// Runs the tool.
pub(crate) fn run(given: &Given) -> Result<ExitCode, Failure> {
    let mut settings = Settings::new(given)?;
    settings.once = given.has('1');
    settings.from_start |= settings.once;
    let period = match given.get('p') {
        None => 60.0,
        Some(text) => text
            .parse::<f64>()
            .ok()
            .filter(|period| *period >= 0.0 && period.is_finite())
            .ok_or_else(|| Failure::Text(format!("Syntax error, {text} is not a number")))?,
    };
    let mut counter = Counter {
        selection: Selection::new(given)?,
        wanted: Wanted::new(given),
        first_field_only: given.has('f'),
        ranking: Ranking::new(if settings.once { 0.0 } else { period }),
    };
    if settings.once {
        follow::follow(settings, &mut counter)?;
        let mut output = Output::standard();
        for (count, tag, text) in counter.ranking.list() {
            output.write(format!("{count:9.2} {} ", tag.name()).as_bytes())?;
            output.write(text)?;
            output.write(b"\n")?;
        }
        output.flush()?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut display = Display { counter, frame: Frame::new(&settings) };
    follow::follow(settings, &mut display)?;
    Ok(ExitCode::SUCCESS)
}

struct Counter {
    selection: Selection,
    wanted: Wanted,
    first_field_only: bool,
    ranking: Ranking,
}

impl Counter {
    fn count(&mut self, record: &Record<'_>) {
        if record.tag.is_unsafe() || record.tag.is_binary() || !self.selection.shows(record) {
            return;
        }
        let data = if self.first_field_only { first_field(record.data) } else { record.data };
        if !data.is_empty() {
            self.ranking.count(record.tag, data);
        }
    }
}

/// What stands before the first blank, or the colon before it.
fn first_field(data: &[u8]) -> &[u8] {
    let end = data.iter().position(|byte| *byte == b':' || byte.is_ascii_whitespace());
    &data[..end.unwrap_or(data.len())]
}

impl Sink for Counter {
    fn group(&mut self, group: &[Transaction]) -> Result<bool, Failure> {
        let wanted = self.wanted;
        for transaction in group.iter().filter(|one| wanted.wants(one)) {
            for record in transaction.log_records() {
                self.count(&record);
            }
        }
        Ok(true)
    }

    fn record(&mut self, record: &Record<'_>) -> Result<bool, Failure> {
        if self.wanted.wants_record(record) {
            self.count(record);
        }
        Ok(true)
    }

    fn idle(&mut self) -> Result<(), Failure> {
        Ok(())
    }
}

struct Display {
    counter: Counter,
    frame: Frame,
}

impl Display {
    /// Draws if it is time, and does what keys ask for.
    fn pulse(&mut self) -> Result<(), Failure> {
        let screen = self.frame.screen()?;
        let (size, is_blank) = (screen.size(), screen.is_blank());
        let mut draw = is_blank || self.frame.drawn.is_none_or(|drawn| drawn.elapsed() >= INTERVAL);
        for key in self.frame.keys()? {
            draw = true;
            if key == Key::Byte(0x0b) {
                self.counter.ranking.clear();
            }
        }
        if !draw {
            return Ok(());
        }
        if let Some(drawn) = self.frame.drawn.replace(Instant::now())
            && !self.frame.has_ended
        {
            self.counter.ranking.age(drawn.elapsed());
        }
        let rows = page(&self.counter.ranking, &self.frame, size);
        self.frame.screen()?.show(&rows)
    }
}

fn page(ranking: &Ranking, frame: &Frame, (height, width): (usize, usize)) -> Vec<Row> {
    let list = ranking.list();
    let heading = frame.heading(&format!("list length {}", list.len()), width);
    let mut rows = vec![Row::styled(heading, Style::Bold), Row::default()];
    rows.extend(list.iter().take(height.saturating_sub(2)).map(|(count, tag, text)| {
        Row::plain(format!("{count:9.2} {:<14} {}", tag.name(), String::from_utf8_lossy(text)))
    }));
    rows
}

impl Sink for Display {
    fn group(&mut self, group: &[Transaction]) -> Result<bool, Failure> {
        self.counter.group(group)?;
        self.pulse()?;
        Ok(true)
    }

    fn record(&mut self, record: &Record<'_>) -> Result<bool, Failure> {
        self.counter.record(record)?;
        self.pulse()?;
        Ok(true)
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
    fn first_fields() {
        for (data, expected) in
            [("Date: x", "Date"), ("127.0.0.1 80 a0", "127.0.0.1"), ("/a", "/a"), ("", ""), (" a b", "")]
        {
            assert_eq!(first_field(data.as_bytes()), expected.as_bytes());
        }
    }
}
