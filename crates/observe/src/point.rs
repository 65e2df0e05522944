//! What a counter is: its name, what kind of number it is and how to show it; and the document that says so to a reader
//! in another process.
//!
//! The document is the JSON text that Varnish 7.1's `varnishstat` reads from a `StatDoc` segment: for each value a name,
//! a type, a level, a display format, one line of text and the byte offset within the section's segment.

use std::fmt::Write as _;

/// What kind of number a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// A row of bits.
    Bitmap,
}

impl Kind {
    /// The word in the document.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Bitmap => "bitmap",
        }
    }

    /// The letter in `stat -j`.
    pub fn letter(self) -> char {
        match self {
            Kind::Counter => 'c',
            Kind::Gauge => 'g',
            Kind::Bitmap => 'b',
        }
    }
}

/// How a value is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// A plain number.
    Integer,
    /// A number of bytes.
    Bytes,
    /// Bits.
    Bitmap,
    /// Seconds.
    Duration,
}

impl Format {
    /// The word in the document.
    pub fn word(self) -> &'static str {
        match self {
            Format::Integer => "integer",
            Format::Bytes => "bytes",
            Format::Bitmap => "bitmap",
            Format::Duration => "duration",
        }
    }

    /// The letter in `stat -j`.
    pub fn letter(self) -> char {
        match self {
            Format::Integer => 'i',
            Format::Bytes => 'B',
            Format::Bitmap => 'b',
            Format::Duration => 'd',
        }
    }
}

/// Who wants to see a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Everyone.
    Info,
    /// Those who look for a fault.
    Diag,
    /// Developers.
    Debug,
}

impl Level {
    /// The word in the document.
    pub fn word(self) -> &'static str {
        match self {
            Level::Info => "info",
            Level::Diag => "diag",
            Level::Debug => "debug",
        }
    }
}

/// One row: a value of a section.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    /// The last part of the full name.
    pub name: &'static str,
    /// What kind of number.
    pub kind: Kind,
    /// How to show it.
    pub format: Format,
    /// Who wants it.
    pub level: Level,
    /// A line of text.
    pub text: &'static str,
}

/// A kind of section: its rows and how it is announced.
#[derive(Debug)]
pub struct SectionKind {
    /// The number that ties segments to the document; not 0, distinct for each kind.
    pub id: u64,
    /// The name in the document.
    pub name: &'static str,
    /// What full names begin with.
    pub label: &'static str,
    /// A line of text.
    pub text: &'static str,
    /// Where tools list it.
    pub order: u32,
    /// The rows; row `i` is the 64-bit word `i` of the segment's body.
    pub points: &'static [Point],
}

impl SectionKind {
    /// The document. All texts are ours and need no JSON escapes.
    pub fn document(&self) -> String {
        let mut out = String::new();
        let _ = write!(
            out,
            "{{\"version\":\"1\",\"name\":\"{}\",\"oneliner\":\"{}\",\"order\":{},\"docs\":\"\",\"elements\":{},\"elem\":{{",
            self.name,
            self.text,
            self.order,
            self.points.len()
        );
        for (at, point) in self.points.iter().enumerate() {
            let _ = write!(
                out,
                "{}\"{name}\":{{\"type\":\"{}\",\"ctype\":\"uint64_t\",\"level\":\"{}\",\"oneliner\":\"{}\",\
                 \"format\":\"{}\",\"index\":{},\"name\":\"{name}\",\"docs\":\"\"}}",
                if at == 0 { "" } else { "," },
                point.kind.word(),
                point.level.word(),
                point.text,
                point.format.word(),
                at * 8,
                name = point.name,
            );
        }
        out.push_str("}}");
        out
    }
}

#[cfg(test)]
mod tests {
    use crate::counters::{COPAL, MAIN};
    use crate::sections::{Dev, Mgt, Sma, Smf, Vbe};

    #[test]
    fn documents_are_json_with_distinct_ids() {
        let mut ids = std::collections::HashSet::new();
        for kind in [&MAIN, &COPAL, Mgt::KIND, Sma::KIND, Smf::KIND, Dev::KIND, Vbe::KIND] {
            let document: serde_json::Value = serde_json::from_str(&kind.document()).unwrap();
            assert_eq!(document["elem"].as_object().unwrap().len(), kind.points.len());
            assert_eq!(document["elem"][kind.points[1].name]["index"], 8);
            assert!(kind.id != 0 && ids.insert(kind.id));
        }
    }
}
