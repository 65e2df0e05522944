//! The rows of the counters' screen, as `varnishstat` lays them out: uptimes, the list, the counter that is looked at.

use super::history::{Average, History, Line};
use crate::screen::{Row, Style};

/// Columns of a number.
const CELL: usize = 14;
/// The least columns of the names.
const NAME_MIN: usize = 24;
/// Rows above the list and below it.
const ABOVE: usize = 4;
const BELOW: usize = 4;
const COLUMNS: [&str; 6] = ["CURRENT", "CHANGE", "AVERAGE", "AVG_10", "AVG_100", "AVG_1000"];

/// Which counters are shown by their level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) enum Verbosity {
    #[default]
    Info,
    Diag,
    Debug,
}

impl Verbosity {
    pub(super) fn more(self) -> Verbosity {
        if self == Verbosity::Info { Verbosity::Diag } else { Verbosity::Debug }
    }

    pub(super) fn less(self) -> Verbosity {
        if self == Verbosity::Debug { Verbosity::Diag } else { Verbosity::Info }
    }

    fn of(level: &str) -> Verbosity {
        match level {
            "info" => Verbosity::Info,
            "diag" => Verbosity::Diag,
            _ => Verbosity::Debug,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Verbosity::Info => "INFO",
            Verbosity::Diag => "DIAG",
            Verbosity::Debug => "DEBUG",
        }
    }
}

/// Where the user is.
#[derive(Clone, Debug)]
pub(super) struct Place {
    /// The counter that is looked at, among those shown.
    pub(super) current: usize,
    /// The first of the list on the screen.
    top: usize,
    pub(super) verbosity: Verbosity,
    /// Those that were always zero are shown.
    pub(super) unseen: bool,
    pub(super) raw: bool,
    pub(super) scale: bool,
    pub(super) help: bool,
    pub(super) help_top: usize,
}

impl Default for Place {
    fn default() -> Place {
        Place {
            current: 0,
            top: 0,
            verbosity: Verbosity::Info,
            unseen: false,
            raw: false,
            scale: true,
            help: false,
            help_top: 0,
        }
    }
}

impl Place {
    /// The counters that are shown.
    pub(super) fn visible<'a>(&self, history: &'a History) -> Vec<&'a Line> {
        let is_shown =
            |line: &&Line| Verbosity::of(&line.value.level) <= self.verbosity && (self.unseen || line.seen);
        history.lines.iter().filter(is_shown).collect()
    }

    /// Changes what is shown and stays at the same counter, or near it.
    pub(super) fn keep_current(&mut self, history: &History, change: impl FnOnce(&mut Place)) {
        let name = self.visible(history).get(self.current).map(|line| line.value.name.clone());
        change(self);
        let again = self.visible(history).iter().position(|line| Some(&line.value.name) == name.as_ref());
        self.current = again.unwrap_or(self.current);
    }

    /// Brings the list to where the counter that is looked at is on the screen.
    pub(super) fn settle(&mut self, history: &History, size: (usize, usize)) {
        let (count, height) = (self.visible(history).len(), list_height(size).max(1));
        self.current = self.current.min(count.saturating_sub(1));
        self.top = self.top.clamp((self.current + 1).saturating_sub(height), self.current);
        self.top = self.top.min(count.saturating_sub(height));
        self.help_top = self.help_top.min(help_height().saturating_sub(height));
    }
}

/// Rows of the list.
pub(super) fn list_height((height, _): (usize, usize)) -> usize {
    height.saturating_sub(ABOVE + BELOW)
}

/// Rows of the help.
pub(super) fn help_height() -> usize {
    help().len()
}

/// The screen.
pub(super) fn rows(history: &History, place: &Place, note: Option<&str>, size: (usize, usize)) -> Vec<Row> {
    let (_, width) = size;
    let height = list_height(size);
    let mut rows = uptimes(history, width);
    rows.push(Row::plain(note.unwrap_or("Press <h> to toggle help screen")));
    if place.help {
        rows.push(Row::default());
        rows.extend(help().into_iter().skip(place.help_top).take(height).map(Row::plain));
        return rows;
    }
    let cells = (width.saturating_sub(NAME_MIN) / CELL).clamp(1, COLUMNS.len());
    let name_width = width.saturating_sub(cells * CELL).max(1);
    let visible = place.visible(history);
    let above = if place.top > 0 { "^^^" } else { "   " };
    let mut head = format!("{above} {:<1$}", "NAME", name_width.saturating_sub(4));
    COLUMNS[..cells].iter().for_each(|name| head += &format!("{name:>13} "));
    rows.push(Row::styled(head, Style::Bold));
    for (at, line) in visible.iter().enumerate().skip(place.top).take(height) {
        let style = if at == place.current { Style::Reverse } else { Style::Plain };
        rows.push(Row::styled(counter(line, place, name_width, cells), style));
    }
    rows.resize(ABOVE + height, Row::default());
    rows.extend(foot(&visible, place, height, width));
    rows
}

fn uptimes(history: &History, width: usize) -> Vec<Row> {
    let duration = |seconds: u64| {
        let (days, rest) = (seconds / 86_400, seconds % 86_400);
        format!("{days:3}+{:02}:{:02}:{:02}", rest / 3600, rest / 60 % 60, rest % 60)
    };
    let child = history.worker_uptime.map_or("Not Running".to_owned(), duration);
    let numbers = |number: &dyn Fn(&Average) -> String| {
        history.hit_rates.iter().map(|average| format!("{:>9}", number(average))).collect::<String>()
    };
    let both = |left: String, right: String| {
        Row::plain(format!("{left}{}{right}", " ".repeat(width.saturating_sub(left.len() + right.len()))))
    };
    vec![
        both(
            format!("Uptime mgt:    {}", duration(history.manager_uptime)),
            format!("Hitrate n:{}", numbers(&|average| format!("{:.0}", average.count))),
        ),
        both(
            format!("Uptime child:  {child:>12}"),
            format!("avg(n):{}", numbers(&|average| format!("{:.4}", average.value))),
        ),
    ]
}

fn counter(line: &Line, place: &Place, name_width: usize, cells: usize) -> String {
    let value = &line.value;
    let name = if value.name.chars().count() > name_width {
        format!("{}...", value.name.chars().take(name_width.saturating_sub(3)).collect::<String>())
    } else {
        value.name.clone()
    };
    let mut text = format!("{name:<name_width$}");
    if value.format == 'b' {
        // The oldest 40 bits as a number, the newest 24 one by one.
        text += &format!("   {:010x}     ", value.value >> 24);
        text.extend((0..24).rev().map(|bit| if value.value >> bit & 1 == 1 { 'V' } else { '_' }));
        return text;
    }
    let current = if place.raw { value.value } else { value.adjusted() };
    let is_bytes = value.format == 'B';
    for column in 0..cells {
        let cell = match column {
            0 if value.format == 'd' => Some(duration(current)),
            0 => Some(whole(current, is_bytes, place.scale)),
            1 => line.change.filter(|_| line.seen).map(|change| real(change, is_bytes, place.scale)),
            2 => line.average.filter(|_| line.seen).map(|average| real(average, is_bytes, place.scale)),
            _ => Some(real(line.averages[column - 3].value, is_bytes, place.scale)),
        };
        text += &cell.map_or(format!("{:>CELL$}", ".   "), |cell| format!("{cell:>CELL$}"));
    }
    text
}

fn duration(seconds: u64) -> String {
    format!("{}+{:02}:{:02}:{:02} ", seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60)
}

const UNITS: [char; 6] = ['K', 'M', 'G', 'T', 'P', 'E'];
/// Whole numbers up to here are shown in full.
const WHOLE_MAX: f64 = 1e9;

/// A number with a unit behind it, or a blank.
fn scaled(value: f64, base: f64) -> Option<(f64, char)> {
    let (mut value, mut unit) = (value, None);
    for sign in UNITS {
        if value.abs() < base {
            break;
        }
        value /= base;
        unit = Some(sign);
    }
    unit.map(|unit| (value, unit))
}

fn whole(value: u64, is_bytes: bool, scale: bool) -> String {
    let number = value as f64;
    match scaled(number, if is_bytes { 1024.0 } else { 1000.0 }) {
        Some((number, unit)) if scale && (is_bytes || value as f64 >= WHOLE_MAX) => {
            format!("{number:.2}{unit}")
        }
        _ => format!("{value} "),
    }
}

fn real(value: f64, is_bytes: bool, scale: bool) -> String {
    match scaled(value, if is_bytes { 1024.0 } else { 1000.0 }) {
        Some((number, unit)) if scale && (is_bytes || value.abs() >= WHOLE_MAX) => {
            format!("{number:.2}{unit}")
        }
        _ => format!("{value:.2} "),
    }
}

/// The counter that is looked at: its name, the state of the list, and what it means.
fn foot(visible: &[&Line], place: &Place, height: usize, width: usize) -> Vec<Row> {
    let below = if place.top + height < visible.len() { "vvv" } else { "   " };
    let current = visible.get(place.current);
    let name = current.map_or("", |line| line.value.name.as_str());
    let mut right = String::new();
    for (on, word) in [(place.raw, "RAW  "), (place.unseen, "UNSEEN  ")] {
        right += if on { word } else { "" };
    }
    let last = (place.top + height).min(visible.len());
    let first = (place.top + 1).min(last);
    right += &format!("{}  {first}-{last}/{}", place.verbosity.word(), visible.len());
    let left = format!("{below} {name}");
    let space = width.saturating_sub(left.chars().count() + right.len());
    let mut rows = vec![Row::styled(format!("{left}{}{right}", " ".repeat(space)), Style::Bold)];
    if let Some(line) = current {
        rows.push(Row::plain(format!("{}:", line.value.description)));
    }
    rows
}

/// What the keys do.
fn help() -> Vec<String> {
    const KEYS: [(&str, &str); 17] = [
        ("<h>", "Toggle the help screen."),
        ("<UP> or <k>", "Navigate the counter list one line up."),
        ("<DOWN> or <j>", "Navigate the counter list one line down."),
        ("<PAGEUP> or <b> or <CTRL-B>", "Navigate the counter list one page up."),
        ("<PAGEDOWN> or <SPACE> or <CTRL-F>", "Navigate the counter list one page down."),
        ("<HOME> or <g>", "Navigate the counter list to the top."),
        ("<END> or <G>", "Navigate the counter list to the bottom."),
        ("<d>", "Show or hide counters that were zero ever since."),
        ("<r>", "Show gauges below zero as they are, or as zero."),
        ("<e>", "Toggle scaling of values."),
        ("<v>", "Show counters of the next level, too."),
        ("<V>", "Show counters of fewer levels."),
        ("<q>", "Quit."),
        ("<CTRL+T>", "Sample now."),
        ("<0>", "Reset averages."),
        ("<+>", "Increase refresh interval."),
        ("<->", "Decrease refresh interval."),
    ];
    KEYS.iter().flat_map(|(keys, text)| [(*keys).to_owned(), format!("    {text}")]).collect()
}

#[cfg(test)]
mod tests {
    use super::super::Sample;
    use super::*;
    use copal_observe::read::Value;

    fn value(name: &str, kind: char, format: char, level: &str, value: u64) -> Value {
        let (level, description) = (level.to_owned(), format!("About {name}"));
        Value { name: name.to_owned(), kind, format, level, description, value }
    }

    fn history() -> History {
        let values = vec![
            value("MGT.uptime", 'c', 'd', "info", 90_061),
            value("MAIN.cache_hit", 'c', 'i', "info", 12),
            value("MAIN.zero", 'c', 'i', "info", 0),
            value("SMA.s0.g_space", 'g', 'B', "info", 100 << 20),
            value("VBE.boot.a.happy", 'b', 'b', "info", 0xffff_ffff_ff00_0007),
            value("MAIN.bans_persisted_bytes", 'g', 'B', "diag", 16),
        ];
        let mut history = History::default();
        let all = values.clone();
        history.take(&Sample { values, all, uptime: 4.0 });
        history
    }

    fn texts(place: &Place, size: (usize, usize)) -> Vec<String> {
        let rows = rows(&history(), place, None, size);
        rows.into_iter().map(|row| row.text.trim_end().to_owned()).collect()
    }

    #[test]
    fn a_screen() {
        let rows = texts(&Place::default(), (14, 80));
        assert_eq!(
            rows[0],
            "Uptime mgt:      1+01:01:01                Hitrate n:        1        1        1"
        );
        assert!(rows[1].starts_with("Uptime child:   Not Running"), "{}", rows[1]);
        assert_eq!(
            rows[3],
            "    NAME                      CURRENT        CHANGE       AVERAGE        AVG_10"
        );
        assert_eq!(
            rows[5],
            "MAIN.cache_hit                     12           .            3.00          0.00"
        );
        assert_eq!(
            rows[6],
            "SMA.s0.g_space                 100.00M          .             .          100.00M"
        );
        assert_eq!(
            rows[7],
            "VBE.boot.a.happy           ffffffffff     ___________________ _____VVV"
                .replace(" _____V", "__V")
        );
        assert_eq!(
            rows[10],
            "    MGT.uptime                                                       INFO  1-4/4"
        );
        assert_eq!(rows[11], "About MGT.uptime:");
    }

    #[test]
    fn places() {
        let (history, mut place) = (history(), Place::default());
        place.current = 3;
        place.keep_current(&history, |place| place.unseen = true);
        assert_eq!(place.current, 4);
        place.verbosity = place.verbosity.more();
        assert_eq!(place.visible(&history).len(), 6);
        place.current = 100;
        place.settle(&history, (11, 80));
        assert_eq!((place.current, place.top), (5, 3));
        place.help = true;
        for size in [(0, 0), (1, 1), (24, 80), (500, 500)] {
            place.settle(&history, size);
            place.help = !place.help;
            rows(&history, &place, None, size);
        }
    }
}
