//! The layer picture as `layers.toml` states it, parsed once into what the checks ask for.

use std::collections::BTreeMap;

use toml::{Table, Value};

use super::Finding;
use super::tree::File;

/// The rules of `layers.toml`. Crates are named by their folder.
#[derive(Debug, Default)]
pub(crate) struct Picture {
    /// Rank of each crate; an edge must go to a smaller rank.
    ranks: BTreeMap<String, usize>,
    /// Crates that have no edge to or from the others.
    apart: Vec<String>,
    unsafe_crates: Vec<String>,
    pure_crates: Vec<String>,
    /// Paths or names that must not appear in the code of a pure crate.
    pub(crate) impure: Vec<String>,
    /// Longest Rust file, in lines.
    pub(crate) most_lines: usize,
    /// Path and reason of each longer file.
    exceptions: Vec<(String, String)>,
}

impl Picture {
    /// Reads the text of `layers.toml`.
    ///
    /// # Errors
    /// A sentence that names the key that is missing or has the wrong type, or the crate that stands twice.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let table: Table = text.parse().map_err(|error| format!("layers.toml: {error}"))?;
        let mut picture = Self {
            apart: strings(&table, "apart")?,
            unsafe_crates: strings(section(&table, "unsafe")?, "crates")?,
            pure_crates: strings(section(&table, "pure")?, "crates")?,
            impure: strings(section(&table, "pure")?, "forbidden")?,
            ..Self::default()
        };
        for (rank, row) in array(&table, "ranks")?.iter().enumerate() {
            for name in strings_of(row, "ranks")? {
                if picture.ranks.insert(name.clone(), rank).is_some() {
                    return Err(format!("layers.toml: {name} stands in two ranks"));
                }
            }
        }
        picture.parse_length(section(&table, "length")?)?;
        Ok(picture)
    }

    fn parse_length(&mut self, length: &Table) -> Result<(), String> {
        let lines = length.get("most_lines").and_then(Value::as_integer);
        self.most_lines = lines
            .and_then(|lines| usize::try_from(lines).ok())
            .ok_or("layers.toml: length.most_lines must be a positive number")?;
        for row in array(length, "exceptions")? {
            let text = |key: &str| row.get(key).and_then(Value::as_str).map(str::to_owned);
            match (text("path"), text("reason")) {
                (Some(path), Some(reason)) if !reason.trim().is_empty() => {
                    self.exceptions.push((path, reason))
                }
                _ => {
                    return Err(
                        "layers.toml: an entry of length.exceptions needs a path and a reason".to_owned()
                    );
                }
            }
        }
        Ok(())
    }

    /// Why `from` may not depend on `to`, or nothing if it may.
    pub(crate) fn edge_fault(&self, from: &str, to: &str) -> Option<String> {
        for name in [from, to] {
            if self.apart.iter().any(|apart| apart == name) {
                return Some(format!("{name} stands apart: no edge may go from it or to it"));
            }
        }
        match (self.ranks.get(from), self.ranks.get(to)) {
            (Some(above), Some(below)) if below < above => None,
            (Some(above), Some(below)) if below == above => {
                Some(format!("{from} depends on {to} beside it: edges go down only"))
            }
            (Some(_), Some(_)) => Some(format!("{from} depends on {to} above it: edges go down only")),
            (None, _) => Some(format!("{from} has no place in layers.toml")),
            (_, None) => Some(format!("{to} has no place in layers.toml")),
        }
    }

    /// Whether `name` has a place in the picture.
    pub(crate) fn knows(&self, name: &str) -> bool {
        self.ranks.contains_key(name) || self.apart.iter().any(|apart| apart == name)
    }

    /// Whether `unsafe` may stand in the crate.
    pub(crate) fn may_be_unsafe(&self, name: &str) -> bool {
        self.unsafe_crates.iter().any(|allowed| allowed == name)
    }

    /// Whether the crate must do without sockets, runtime, clock and files.
    pub(crate) fn is_pure(&self, name: &str) -> bool {
        self.pure_crates.iter().any(|pure| pure == name)
    }

    /// Whether the file may be longer than [`Self::most_lines`].
    pub(crate) fn may_be_long(&self, path: &str) -> bool {
        self.exceptions.iter().any(|(allowed, _)| allowed == path)
    }

    /// Exceptions that are no longer needed: the file is gone or short again.
    pub(crate) fn stale_exceptions(&self, files: &[File]) -> Vec<Finding> {
        let still_long = |path: &str| {
            files.iter().any(|file| file.path == path && file.text.lines().count() > self.most_lines)
        };
        let stale = self.exceptions.iter().filter(|(path, _)| !still_long(path));
        stale
            .map(|(path, _)| Finding::new("layers.toml", 0, format!("{path} needs no exception any more")))
            .collect()
    }
}

fn section<'a>(table: &'a Table, key: &str) -> Result<&'a Table, String> {
    table.get(key).and_then(Value::as_table).ok_or_else(|| format!("layers.toml: [{key}] is missing"))
}

fn array<'a>(table: &'a Table, key: &str) -> Result<&'a Vec<Value>, String> {
    table.get(key).and_then(Value::as_array).ok_or_else(|| format!("layers.toml: {key} must be a list"))
}

fn strings(table: &Table, key: &str) -> Result<Vec<String>, String> {
    table
        .get(key)
        .map_or_else(|| Err(format!("layers.toml: {key} is missing")), |value| strings_of(value, key))
}

fn strings_of(value: &Value, key: &str) -> Result<Vec<String>, String> {
    let fault = || format!("layers.toml: {key} must hold lists of strings");
    let items = value.as_array().ok_or_else(fault)?;
    items.iter().map(|item| item.as_str().map(str::to_owned).ok_or_else(fault)).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A small picture for the tests of all checks.
    pub(crate) fn sample() -> Picture {
        let text = r#"
            ranks = [["base"], ["wire", "vcl"], ["net"], ["cache"]]
            apart = ["xtask"]
            [unsafe]
            crates = ["net"]
            [pure]
            crates = ["wire", "vcl"]
            forbidden = ["tokio", "std::net::TcpStream", "TcpStream", "SystemTime"]
            [length]
            most_lines = 5
            exceptions = [{ path = "crates/wire/src/table.rs", reason = "a table" }]
        "#;
        Picture::parse(text).expect("the sample is well formed")
    }

    #[test]
    fn edges_go_down_only() {
        let picture = sample();
        assert_eq!(picture.edge_fault("cache", "base"), None);
        assert_eq!(picture.edge_fault("net", "wire"), None);
        for (from, to, part) in [
            ("wire", "vcl", "beside"),
            ("wire", "net", "above"),
            ("wire", "odd", "odd has no place"),
            ("odd", "base", "odd has no place"),
            ("xtask", "base", "apart"),
            ("base", "xtask", "apart"),
        ] {
            let fault = picture.edge_fault(from, to).unwrap_or_default();
            assert!(fault.contains(part), "{from} -> {to}: {fault:?}");
        }
    }

    #[test]
    fn malformed_pictures_are_refused() {
        let good = "ranks = [['a']]\napart = []\n[unsafe]\ncrates = []\n[pure]\ncrates = []\nforbidden = []\n\
                    [length]\nmost_lines = 9\nexceptions = []\n";
        assert!(Picture::parse(good).is_ok());
        for (from, to) in [
            ("['a']", "['a'], ['a']"),
            ("most_lines = 9", "most_lines = 'x'"),
            ("exceptions = []", "exceptions = [{ path = 'x' }]"),
            ("exceptions = []", "exceptions = [{ path = 'x', reason = ' ' }]"),
            ("[pure]", "[purr]"),
            ("apart = []", ""),
        ] {
            assert!(Picture::parse(&good.replace(from, to)).is_err(), "{from} -> {to}");
        }
    }

    #[test]
    fn an_exception_that_is_not_needed_is_a_finding() {
        let picture = sample();
        let file =
            |lines: usize| File { path: "crates/wire/src/table.rs".to_owned(), text: "x\n".repeat(lines) };
        assert_eq!(picture.stale_exceptions(&[file(6)]), vec![]);
        assert_eq!(picture.stale_exceptions(&[file(5)]).len(), 1);
        assert_eq!(picture.stale_exceptions(&[]).len(), 1);
    }
}
