//! The counters of other processes, by their documents.

use crate::map::Foreign;
use crate::shm::{HEAD_BYTES, STRIPE_CLASS};
use crate::vsm::{self, Entry, Index, MANAGER, WORKER};
use serde_json::Value as Json;
use std::collections::HashMap;
use std::io;
use std::path::Path;

/// One value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    /// The full name, as `MAIN.cache_hit`.
    pub name: String,
    /// `c` counter, `g` gauge, `b` bitmap, `?` unknown.
    pub kind: char,
    /// `i` integer, `B` bytes, `b` bitmap, `d` duration, `?` unknown.
    pub format: char,
    /// `info`, `diag` or `debug`.
    pub level: String,
    /// A line of text.
    pub description: String,
    /// The value itself. A gauge may for a moment be below zero, that is, very large.
    pub value: u64,
}

impl Value {
    /// The value, but 0 for a gauge below zero.
    pub fn adjusted(&self) -> u64 {
        if self.kind == 'g' && self.value > i64::MAX as u64 { 0 } else { self.value }
    }
}

struct Row {
    name: String,
    kind: char,
    format: char,
    level: String,
    description: String,
    offset: usize,
}

/// All values that the manager and the worker in `work_directory` show, in the order in which their sections came up.
/// The stripes of our own worker are added up here, so the values are right at this very moment.
///
/// # Errors
/// `NotFound` if neither runs there.
pub fn read_counters(work_directory: &Path) -> io::Result<Vec<Value>> {
    let mut values = Vec::new();
    let mut found = Err(io::ErrorKind::NotFound.into());
    for part in [MANAGER, WORKER] {
        match Index::read(work_directory, part) {
            Ok(index) if index.is_alive() => {
                read_part(work_directory, part, &index, &mut values);
                found = Ok(());
            }
            Ok(_) => {}
            Err(error) if found.is_err() => found = Err(error),
            Err(_) => {}
        }
    }
    found.map(|()| values)
}

/// The text of a manager's argument, as `-T`; `None` if it does not offer it.
///
/// # Errors
/// If no manager runs there.
pub fn read_arguments(work_directory: &Path, name: &str) -> io::Result<Option<String>> {
    let index = Index::read(work_directory, MANAGER)?;
    if !index.is_alive() {
        let text = format!("{}: nothing runs there", work_directory.display());
        return Err(io::Error::new(io::ErrorKind::NotFound, text));
    }
    let Some(entry) = index.entries.iter().find(|entry| entry.class == "Arg" && entry.ident == name) else {
        return Ok(None);
    };
    let mapping = vsm::open_segment(work_directory, MANAGER, entry)?;
    let mut text = Vec::new();
    mapping.copy_out(entry.offset, entry.size, &mut text);
    let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
    Ok(Some(String::from_utf8_lossy(&text[..end]).into_owned()))
}

/// Segments that vanish or make no sense while they are read are passed over: sections come and go.
fn read_part(work_directory: &Path, part: &str, index: &Index, values: &mut Vec<Value>) {
    let open = |entry: &Entry| vsm::open_segment(work_directory, part, entry).ok();
    let mut documents = HashMap::new();
    for entry in index.entries.iter().filter(|entry| entry.class == "StatDoc") {
        if let Some((id, rows)) = open(entry).and_then(|mapping| read_document(&mapping, entry)) {
            documents.insert(id, rows);
        }
    }
    let stripes: Vec<_> = index
        .entries
        .iter()
        .filter(|entry| entry.class == STRIPE_CLASS)
        .filter_map(|entry| Some((open(entry)?, entry)))
        .collect();
    let mut striped = 0;
    for entry in index.entries.iter().filter(|entry| entry.class == "Stat") {
        let Some(mapping) = open(entry) else { continue };
        let Some((id, body)) = read_head(&mapping, entry) else { continue };
        let Some(rows) = documents.get(&id) else { continue };
        // MAIN is the first part of each stripe, COPAL the second.
        let from_stripes = !stripes.is_empty() && matches!(entry.ident.as_str(), "MAIN" | "COPAL");
        for row in rows {
            let value = if from_stripes {
                stripes.iter().try_fold(0u64, |sum, (mapping, entry)| {
                    Some(sum.wrapping_add(value_at(
                        mapping,
                        entry,
                        (HEAD_BYTES + striped).saturating_add(row.offset),
                    )?))
                })
            } else {
                value_at(&mapping, entry, body.saturating_add(row.offset))
            };
            values.extend(value.map(|value| Value {
                name: format!("{}.{}", entry.ident, row.name),
                kind: row.kind,
                format: row.format,
                level: row.level.clone(),
                description: row.description.clone(),
                value,
            }));
        }
        if from_stripes {
            striped += 8 * rows.len();
        }
    }
}

fn value_at(mapping: &Foreign, entry: &Entry, offset: usize) -> Option<u64> {
    if !offset.is_multiple_of(8) || !entry.offset.is_multiple_of(8) || offset.checked_add(8)? > entry.size {
        return None;
    }
    mapping.long_word((entry.offset + offset) / 8)
}

/// The document's number and where the values begin, if the segment is complete.
fn read_head(mapping: &Foreign, entry: &Entry) -> Option<(u64, usize)> {
    // Of the first eight bytes only these four are written.
    let ready = mapping.word(entry.offset / 4)?;
    let body = usize::try_from(value_at(mapping, entry, 8)?).ok()?;
    (ready == 1 && (HEAD_BYTES..=entry.size).contains(&body)).then_some((value_at(mapping, entry, 16)?, body))
}

fn read_document(mapping: &Foreign, entry: &Entry) -> Option<(u64, Vec<Row>)> {
    let (id, body) = read_head(mapping, entry)?;
    let mut text = Vec::new();
    mapping.copy_out(entry.offset + body, entry.size - body, &mut text);
    let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
    let document: Json = serde_json::from_slice(&text[..end]).ok()?;
    let mut rows: Vec<Row> = document
        .get("elem")?
        .as_object()?
        .iter()
        .filter_map(|(name, element)| read_row(name, element))
        .collect();
    rows.sort_by_key(|row| row.offset);
    Some((id, rows))
}

fn read_row(name: &str, element: &Json) -> Option<Row> {
    let text = |key: &str| element.get(key).and_then(Json::as_str).unwrap_or_default();
    Some(Row {
        name: name.to_owned(),
        kind: match text("type") {
            "counter" => 'c',
            "gauge" => 'g',
            "bitmap" => 'b',
            _ => '?',
        },
        format: match text("format") {
            "integer" => 'i',
            "bytes" => 'B',
            "bitmap" => 'b',
            "duration" => 'd',
            _ => '?',
        },
        level: text("level").to_owned(),
        description: text("oneliner").to_owned(),
        offset: usize::try_from(element.get("index")?.as_u64()?).ok()?,
    })
}
