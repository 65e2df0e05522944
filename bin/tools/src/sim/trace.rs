//! What a line of a trace says: an access log as `varnishncsa` writes it, or a table with commas.
//!
//! ```text
//!   127.0.0.1 - - [22/Nov/2026:10:00:00 +0000] "GET http://e.org/a HTTP/1.1" 200 1234 "-" "curl"      log
//!   1795341600,e.org/a,1234                                                                    time,key,size
//! ```
//! A log has requests that no cache answers (POST, errors): they are left out. Others ask for an object without telling how
//! large it is (HEAD, 304, 206): it is as large as it was told before, and left out if it never was.

use std::hash::{DefaultHasher, Hasher as _};

/// What a line asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    /// A digest of the key.
    pub(super) key: u64,
    /// The object's size, if the line tells it.
    pub(super) size: Option<u64>,
    pub(super) second: Option<u32>,
}

/// What a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Said {
    Asked(Asked),
    /// Nothing that a cache would answer, or no request at all: a header, an empty line.
    Nothing(Why),
    /// Not readable.
    Bad,
}

/// Why a line is no request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// Another method than GET and HEAD, or a status that is not stored.
    NotCached,
    /// It names columns, or is empty.
    NoRequest,
}

/// Statuses that a cache stores with their body.
const STORED: &[&[u8]] =
    &[b"200", b"203", b"204", b"300", b"301", b"302", b"304", b"307", b"308", b"404", b"410", b"414"];

/// Where a table has its columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Columns {
    time: usize,
    key: usize,
    size: usize,
}

/// Reads lines; what kind of file it is, the first readable line says.
#[derive(Debug, Default)]
pub(super) struct Reader {
    kind: Kind,
}

#[derive(Clone, Copy, Debug, Default)]
enum Kind {
    #[default]
    Unknown,
    Log,
    /// `time,key,size`: the key is what is between the first and the last comma.
    Plain,
    /// With names of columns in the first line.
    Named(Columns),
}

impl Reader {
    /// What `line` says.
    pub(super) fn line(&mut self, line: &[u8]) -> Said {
        if line.trim_ascii().is_empty() {
            return Said::Nothing(Why::NoRequest);
        }
        match self.kind {
            Kind::Log => log_line(line).unwrap_or(Said::Bad),
            Kind::Plain => plain_line(line).unwrap_or(Said::Bad),
            Kind::Named(columns) => named_line(line, columns).unwrap_or(Said::Bad),
            Kind::Unknown => self.first(line),
        }
    }

    /// Whether lines of this kind may ask for what was told before.
    pub(super) fn may_lack_sizes(&self) -> bool {
        matches!(self.kind, Kind::Log)
    }

    fn first(&mut self, line: &[u8]) -> Said {
        if let Some(said) = log_line(line) {
            self.kind = Kind::Log;
            return said;
        }
        if let Some(said) = plain_line(line) {
            self.kind = Kind::Plain;
            return said;
        }
        let Some(columns) = columns(line) else { return Said::Bad };
        self.kind = Kind::Named(columns);
        Said::Nothing(Why::NoRequest)
    }
}

fn columns(line: &[u8]) -> Option<Columns> {
    let names: Vec<String> = line
        .split(|byte| *byte == b',')
        .map(|name| String::from_utf8_lossy(name).trim().to_lowercase())
        .collect();
    let find = |wanted: &[&str]| names.iter().position(|name| wanted.contains(&name.as_str()));
    Some(Columns {
        time: find(&["time", "timestamp", "ts"])?,
        key: find(&["key", "id", "obj", "obj_id", "object", "object_id", "url"])?,
        size: find(&["size", "obj_size", "object_size", "bytes"])?,
    })
}

fn named_line(line: &[u8], columns: Columns) -> Option<Said> {
    let field = |index| line.split(|byte| *byte == b',').nth(index);
    table_line(field(columns.time)?, field(columns.key)?, field(columns.size)?)
}

fn plain_line(line: &[u8]) -> Option<Said> {
    let first = line.iter().position(|byte| *byte == b',')?;
    let last = line.iter().rposition(|byte| *byte == b',').filter(|last| *last > first)?;
    table_line(&line[..first], &line[first + 1..last], &line[last + 1..])
}

fn table_line(time: &[u8], key: &[u8], size: &[u8]) -> Option<Said> {
    let time: f64 = text(time)?.parse().ok().filter(|time: &f64| time.is_finite() && *time >= 0.0)?;
    let size = text(size)?.parse().ok()?;
    // Of a time in milliseconds the low bits are as good.
    let second = Some(time as u64 as u32);
    Some(Said::Asked(Asked { key: digest(key.trim_ascii()), size: Some(size), second }))
}

fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes.trim_ascii()).ok()
}

fn log_line(line: &[u8]) -> Option<Said> {
    let open = line.iter().position(|byte| *byte == b'[')?;
    let (time, rest) = split(&line[open + 1..], b"] \"")?;
    let second = Some(second_of(time)?);
    let (request, rest) = split(rest, b"\" ")?;
    let mut rest = rest.split(|byte| *byte == b' ');
    let (status, bytes) = (rest.next()?, rest.next()?);
    if status.len() != 3 || !status.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let size = if bytes == b"-" { 0 } else { text(bytes)?.parse().ok()? };
    let mut words = request.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
    let (method, Some(url)) = (words.next()?, words.next()) else { return not_cached() };
    let whole = match (method, status) {
        (b"GET", b"206" | b"304") | (b"HEAD", _) => None,
        (b"GET", _) => Some(size),
        _ => return not_cached(),
    };
    if status != b"206" && !STORED.contains(&status) {
        return not_cached();
    }
    Some(Said::Asked(Asked { key: digest(url), size: whole, second }))
}

fn not_cached() -> Option<Said> {
    Some(Said::Nothing(Why::NotCached))
}

fn split<'a>(bytes: &'a [u8], at: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let place = bytes.windows(at.len()).position(|window| window == at)?;
    Some((&bytes[..place], &bytes[place + at.len()..]))
}

/// A number that grows by one each second, modulo 2^32, of `22/Nov/2026:10:00:00 +0000`. The zone is that of all lines, and left
/// out.
fn second_of(time: &[u8]) -> Option<u32> {
    const MONTHS: &[&str] =
        &["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let fields: Vec<&str> = text(time)?.split([' ', '/', ':']).collect();
    let [day, month, year, hour, minute, second, ..] = fields[..] else { return None };
    let number = |field: &str, most: u32| field.parse::<u32>().ok().filter(|value| *value <= most);
    let month = MONTHS.iter().position(|name| *name == month)? as u32 + 1;
    let days = days(number(year, 9999)?, month, number(day, 31)?);
    let (hour, minute, second) = (number(hour, 23)?, number(minute, 59)?, number(second, 60)?);
    Some(days.wrapping_mul(86_400).wrapping_add(hour * 3600 + minute * 60 + second))
}

/// A number that grows by one each day: years begin in March, so that leap days are last.
fn days(year: u32, month: u32, day: u32) -> u32 {
    let (year, month) = if month < 3 { (year.saturating_sub(1), month + 9) } else { (year, month - 3) };
    year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day
}

/// A digest of a key, the same in each run.
fn digest(key: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(key);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEFT_OUT: Said = Said::Nothing(Why::NotCached);
    const NO_REQUEST: Said = Said::Nothing(Why::NoRequest);

    fn asked(key: &str, size: Option<u64>, second: Option<u32>) -> Said {
        Said::Asked(Asked { key: digest(key.as_bytes()), size, second })
    }

    /// Reads lines in turn; `None` is a bad one.
    fn check(lines: &[(&str, Said)]) {
        let mut reader = Reader::default();
        for (line, expected) in lines {
            assert_eq!(reader.line(line.as_bytes()), *expected, "{line}");
        }
    }

    #[test]
    fn access_logs() {
        let line = |request: &str, rest: &str| {
            format!("127.0.0.1 - - [22/Nov/2026:10:00:01 +0000] \"{request}\" {rest} \"-\" \"a [b] \\\"c\"")
        };
        let second = second_of(b"22/Nov/2026:10:00:01 +0000");
        let url = "http://e.org/a?b=[c],d";
        let get = format!("GET {url} HTTP/1.1");
        let head = format!("HEAD {url} HTTP/1.1");
        check(&[
            ("", NO_REQUEST),
            (&line(&get, "200 1234"), asked(url, Some(1234), second)),
            (&line(&get, "404 -"), asked(url, Some(0), second)),
            (&line(&get, "304 -"), asked(url, None, second)),
            (&line(&get, "206 10"), asked(url, None, second)),
            (&line(&head, "200 -"), asked(url, None, second)),
            (&line(&get, "503 300"), LEFT_OUT),
            (&line("POST /a HTTP/1.1", "200 300"), LEFT_OUT),
            (&line("-", "400 0"), LEFT_OUT),
            (&line(&get, "20 1"), Said::Bad),
            (&line(&get, "200 x"), Said::Bad),
            ("1,a,2", Said::Bad),
            ("1.2.3.4 - - [32/Nov/2026:10:00:01 +0000] \"GET / HTTP/1.1\" 200 1", Said::Bad),
        ]);
    }

    #[test]
    fn tables() {
        check(&[
            ("12.7,http://e.org/a,b,99", asked("http://e.org/a,b", Some(99), Some(12))),
            ("13, k , 0\r", asked("k", Some(0), Some(13))),
            ("x,k,1", Said::Bad),
            ("1,k,-1", Said::Bad),
            ("1,k", Said::Bad),
            ("-1,k,1", Said::Bad),
        ]);
        check(&[
            ("# a comment", Said::Bad),
            ("Time,Size,id,next", NO_REQUEST),
            ("7,500,k,-1", asked("k", Some(500), Some(7))),
            ("7,500", Said::Bad),
        ]);
        check(&[("time,key,size", NO_REQUEST), ("7,k,500", asked("k", Some(500), Some(7)))]);
    }

    #[test]
    fn seconds_follow_each_other() {
        let later = |a: &str, b: &str| second_of(b.as_bytes()).unwrap() - second_of(a.as_bytes()).unwrap();
        assert_eq!(later("22/Nov/2026:10:00:01 +0000", "22/Nov/2026:10:01:03 +0000"), 62);
        assert_eq!(later("31/Dec/2026:23:59:59 +0000", "01/Jan/2027:00:00:00 +0000"), 1);
        assert_eq!(later("28/Feb/2028:23:59:59 +0000", "01/Mar/2028:00:00:00 +0000"), 86_401);
        assert_eq!(later("28/Feb/2027:23:59:59 +0000", "01/Mar/2027:00:00:00 +0000"), 1);
        for text in ["", "22/Nov/2026", "22/nov/2026:10:00:01 +0000", "22/Nov/2026:24:00:01 +0000"] {
            assert_eq!(second_of(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn no_line_panics() {
        let line = "1.2.3.4 - - [22/Nov/2026:10:00:01 +0000] \"GET /a HTTP/1.1\" 200 12";
        for cut in 0..line.len() {
            let mut reader = Reader::default();
            reader.line(&line.as_bytes()[..cut]);
            reader.line(&line.as_bytes()[cut..]);
            reader.line(b",\xff,,");
        }
    }
}
