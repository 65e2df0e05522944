//! `mse[,mse.conf]` and `mse4[,mse.conf]`: Varnish Enterprise's stores, its file read as it is.
//!
//! | there | here |
//! |---|---|
//! | `memcache_size` | the memory tier; `"auto"` is 80 % of the memory of the machine or of its group |
//! | `stores`: `filename`, `size` | devices of one tier, each with its own index and journal in it |
//! | `books`: `directory`, `database_size` (MSE 4: `filename`, `size`) | not needed: a store has all that is known of its objects |
//! | `id` | not needed: a store is named by its file |
//! | anything else | a warning: there is nothing for it to act on |
//!
//! Files that Varnish Enterprise has written are refused when they are opened, never overwritten.

mod libconfig;

use super::error::Problem;
use super::machine::Machine;
use super::tier::{TierSpec, TiersSpec};
use super::words::{Words, size};
use super::{DeviceSpec, Kind};
use libconfig::{Setting, Value, Wrong};
use std::path::PathBuf;

/// What `memcache_size` is where MSE 3 is not told.
const MEMORY_DEFAULT: u64 = 1 << 30;
/// The share of memory that `"auto"` means, in percent.
const MEMORY_SHARE: u64 = 80;

pub(super) fn parse(
    word: &str,
    mut words: Words<'_>,
    machine: &Machine<'_>,
    warnings: &mut Vec<String>,
) -> Result<Kind, Problem> {
    let automatic = machine.memory / 100 * MEMORY_SHARE;
    let Some(path) = words.next() else {
        words.end()?;
        return Ok(Kind::Memory { size: Some(automatic) });
    };
    words.end()?;
    let text = (machine.read)(path)
        .map_err(|error| Problem::Unreadable { path: path.to_owned(), why: copal_base::reason(&error) })?;
    // MSE 4 has no such setting: its memory is what a parameter leaves it.
    let memory_default = if word == "mse4" { automatic } else { MEMORY_DEFAULT };
    let mut reader = Reader { automatic, memory_default, ignored: Vec::new() };
    let kind = libconfig::parse(&text).and_then(|settings| reader.environment(&settings));
    let kind = kind.map_err(|Wrong { line, why }| Problem::Line { path: path.to_owned(), line, why })?;
    warnings.extend(
        reader.ignored.into_iter().map(|(line, name)| {
            format!("-s {word}: \"{path}\" line {line}: {name} has nothing to act on here")
        }),
    );
    Ok(kind)
}

struct Reader {
    automatic: u64,
    memory_default: u64,
    /// Settings without effect: their lines and names.
    ignored: Vec<(u32, String)>,
}

fn wrong(line: u32, why: impl Into<String>) -> Wrong {
    Wrong { line, why: why.into() }
}

impl Reader {
    fn ignore(&mut self, setting: &Setting) {
        self.ignored.push((setting.line, setting.name.clone()));
    }

    fn environment(&mut self, settings: &[Setting]) -> Result<Kind, Wrong> {
        let mut kind = None;
        for setting in settings {
            match setting.name.as_str() {
                "env" => kind = Some(self.kind(group(setting)?)?),
                _ => self.ignore(setting),
            }
        }
        kind.ok_or_else(|| wrong(1, "there is no env: { ... }"))
    }

    fn kind(&mut self, settings: &[Setting]) -> Result<Kind, Wrong> {
        let (mut memory, mut devices) = (self.memory_default, Vec::new());
        for setting in settings {
            match setting.name.as_str() {
                "id" => _ = text(setting)?,
                "memcache_size" => {
                    memory = match text(setting)? {
                        "auto" => self.automatic,
                        _ => bytes(setting)?,
                    }
                }
                "books" => {
                    for book in groups(setting)? {
                        self.book(book, setting.line, &mut devices)?;
                    }
                }
                _ => self.ignore(setting),
            }
        }
        Ok(match devices.is_empty() {
            true => Kind::Memory { size: Some(memory) },
            false => {
                let tiers = vec![TierSpec { name: "disk".to_owned(), devices }];
                Kind::Tiers(TiersSpec { memory: Some(memory), admit: super::persistent::Admit::All, tiers })
            }
        })
    }

    fn book(&mut self, settings: &[Setting], line: u32, devices: &mut Vec<DeviceSpec>) -> Result<(), Wrong> {
        let before = devices.len();
        for setting in settings {
            match setting.name.as_str() {
                "id" | "directory" | "filename" => _ = text(setting)?,
                "database_size" | "size" => _ = bytes(setting)?,
                "stores" => {
                    for store in groups(setting)? {
                        devices.push(self.store(store, setting.line)?);
                    }
                }
                _ => self.ignore(setting),
            }
        }
        match devices.len() > before {
            true => Ok(()),
            false => Err(wrong(settings.first().map_or(line, |first| first.line), "a book without stores")),
        }
    }

    fn store(&mut self, settings: &[Setting], line: u32) -> Result<DeviceSpec, Wrong> {
        let (mut path, mut size) = (None, None);
        for setting in settings {
            match setting.name.as_str() {
                "id" => _ = text(setting)?,
                "filename" => path = Some(PathBuf::from(text(setting)?)),
                "size" => size = Some(bytes(setting)?),
                _ => self.ignore(setting),
            }
        }
        let line = settings.first().map_or(line, |first| first.line);
        let path = path.filter(|path| !path.as_os_str().is_empty());
        let path = path.ok_or_else(|| wrong(line, "a store without filename"))?;
        // MSE 3 wants it; where it is not there, the file's own is meant.
        Ok(DeviceSpec { path, size })
    }
}

fn wrong_kind(setting: &Setting, may_be: &str) -> Wrong {
    wrong(setting.line, format!("{} must be {may_be}", setting.name))
}

fn text(setting: &Setting) -> Result<&str, Wrong> {
    match &setting.value {
        Value::Text(text) => Ok(text),
        _ => Err(wrong_kind(setting, "a text in quotes")),
    }
}

fn bytes(setting: &Setting) -> Result<u64, Wrong> {
    size(&setting.name, text(setting)?).map_err(|problem| wrong(setting.line, problem.to_string()))
}

fn group(setting: &Setting) -> Result<&[Setting], Wrong> {
    match &setting.value {
        Value::Group(settings) => Ok(settings),
        _ => Err(wrong_kind(setting, "a group: { ... }")),
    }
}

/// The groups in a list; a group alone is a list of one.
fn groups<'file>(setting: &'file Setting) -> Result<Vec<&'file [Setting]>, Wrong> {
    let refuse = || wrong_kind(setting, "a list of groups: ( { ... }, ... )");
    match &setting.value {
        Value::Group(settings) => Ok(vec![settings]),
        Value::List(items) => {
            let one = |item: &'file Value| match item {
                Value::Group(settings) => Some(settings.as_slice()),
                _ => None,
            };
            items.iter().map(one).collect::<Option<_>>().ok_or_else(refuse)
        }
        _ => Err(refuse()),
    }
}
