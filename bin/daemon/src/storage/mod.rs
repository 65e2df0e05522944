//! The stores that `-s` asks for: from the argument to the engine.
//!
//! ```text
//! manager: arguments > Spec (a file a kind) > open: files made, sized, locked --- Specs, descriptors ---> worker: build > engines
//! ```
//! What is wrong with an argument, or with what it names, is found by the manager and refused at the start. The worker has
//! other rights; it gets what was opened.

pub(crate) mod build;
mod error;
mod file;
mod handed;
mod machine;
mod memory;
mod mse;
mod open;
mod persistent;
#[cfg(test)]
mod tests;
mod tier;
mod words;

use copal_store as store;
pub(crate) use error::Error;
pub(crate) use file::FileSpec;
pub(crate) use handed::Handed;
pub(crate) use machine::Machine;
pub(crate) use open::open;
pub(crate) use persistent::PersistentSpec;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use store::volume::Options;
pub(crate) use tier::{TierSpec, TiersSpec};
use words::Words;

/// The name of the store for what is short-lived or not cacheable. It is there also if nobody asks for it.
pub(crate) const TRANSIENT: &str = "Transient";

/// The most memory that a store on a device takes where it was not said how much.
const MEMORY_DEFAULT_MAX: u64 = 1 << 30;

/// One store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Spec {
    /// The name: given, or `s0`, `s1` ... in the order of the command line.
    pub(crate) name: String,
    /// What it was called, for `storage.list`: `malloc`, `debug`, `tier` ...
    pub(crate) word: String,
    /// What it is.
    pub(crate) kind: Kind,
}

/// The kinds of stores, with all that was said of one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Kind {
    /// In memory.
    Memory {
        /// Bytes of payload; `None` is unlimited.
        size: Option<u64>,
    },
    /// In memory that is mapped from a file.
    File(FileSpec),
    /// On a device.
    Persistent(PersistentSpec),
    /// On several devices.
    Tiers(TiersSpec),
}

/// A file or block device that objects are kept on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DeviceSpec {
    /// Where it is; absolute once it is open.
    pub(crate) path: PathBuf,
    /// Its size in bytes; `None`, until it is open: the size that it has.
    pub(crate) size: Option<u64>,
}

impl Spec {
    /// The devices that are to be opened for it, in the order in which they are handed over.
    pub(crate) fn devices(&self) -> Vec<&DeviceSpec> {
        match &self.kind {
            Kind::Memory { .. } | Kind::File(_) => Vec::new(),
            Kind::Persistent(spec) => vec![&spec.device],
            Kind::Tiers(spec) => spec.tiers.iter().flat_map(|tier| &tier.devices).collect(),
        }
    }

    /// What people are told of where it is kept: tiers, if it has any, and paths.
    pub(crate) fn places(&self) -> Vec<(String, String)> {
        let place = |tier: &str, path: &Path| (tier.to_owned(), path.display().to_string());
        match &self.kind {
            Kind::Memory { .. } => Vec::new(),
            Kind::File(spec) => vec![place("", &spec.path)],
            Kind::Persistent(spec) => vec![place("", &spec.device.path)],
            Kind::Tiers(spec) => {
                let tiers = spec.tiers.iter();
                let devices = |tier: &'_ TierSpec| {
                    tier.devices.iter().map(|device| place(&tier.name, &device.path)).collect::<Vec<_>>()
                };
                tiers.flat_map(devices).collect()
            }
        }
    }

    /// How the log on one of its devices is laid out, which has `size` bytes.
    fn volume_options(&self, size: u64) -> Options {
        match &self.kind {
            Kind::Persistent(spec) => spec.volume_options(size),
            Kind::Memory { .. } | Kind::File(_) | Kind::Tiers(_) => Options::default(),
        }
    }

    fn devices_mut(&mut self) -> Vec<&mut DeviceSpec> {
        match &mut self.kind {
            Kind::Memory { .. } | Kind::File(_) => Vec::new(),
            Kind::Persistent(spec) => vec![&mut spec.device],
            Kind::Tiers(spec) => spec.tiers.iter_mut().flat_map(|tier| &mut tier.devices).collect(),
        }
    }
}

/// How much memory a store on devices of `size` bytes in all gets where it was not said: a quarter, at most 1 GiB.
pub(crate) fn memory_default(size: u64) -> u64 {
    (size / 4).clamp(words::SIZE_MIN, MEMORY_DEFAULT_MAX)
}

/// The stores of a command line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Stores {
    /// In the order of the command line, `Transient` last.
    pub(crate) specs: Vec<Spec>,
    /// What was said that has no effect, with the reason.
    pub(crate) warnings: Vec<String>,
}

/// Reads all `-s` arguments. Without any but `Transient`, there is one unlimited store `s0`; `Transient` is unlimited
/// unless given, and comes last.
///
/// # Errors
/// [`Error`], of the first that is wrong.
pub(crate) fn parse_all(arguments: &[String], machine: &Machine<'_>) -> Result<Stores, Error> {
    let mut stores = Stores { specs: Vec::new(), warnings: Vec::new() };
    let mut unnamed = 0;
    for argument in arguments {
        let spec = parse(argument, &mut unnamed, machine, &mut stores.warnings)?;
        if stores.specs.iter().any(|other| other.name == spec.name) {
            return Err(Error::Defined { argument: argument.clone(), name: spec.name });
        }
        stores.specs.push(spec);
    }
    let unlimited = |name: &str| Spec {
        name: name.to_owned(),
        word: "malloc".to_owned(),
        kind: Kind::Memory { size: None },
    };
    let transient = match stores.specs.iter().position(|spec| spec.name == TRANSIENT) {
        Some(index) => stores.specs.remove(index),
        None => unlimited(TRANSIENT),
    };
    if stores.specs.is_empty() {
        stores.specs.push(unlimited("s0"));
    }
    stores.specs.push(transient);
    Ok(stores)
}

/// The names of the stores, as VCL knows them.
pub(crate) fn names(specs: &[Spec]) -> Vec<String> {
    specs.iter().map(|spec| spec.name.clone()).collect()
}

fn parse(
    argument: &str,
    unnamed: &mut usize,
    machine: &Machine<'_>,
    warnings: &mut Vec<String>,
) -> Result<Spec, Error> {
    let head = argument.split(',').next().unwrap_or_default();
    let (name, rest) = match head.split_once('=') {
        Some((name, _)) => (Some(name), &argument[name.len() + 1..]),
        None => (None, argument),
    };
    match name {
        Some(name) if !is_name(name) => return Err(Error::Name { name: name.to_owned() }),
        Some(_) if rest.is_empty() => return Err(Error::EmptyNamed { argument: argument.to_owned() }),
        None if rest.is_empty() => return Err(Error::Empty),
        _ => {}
    }
    let (method, words) = match rest.split_once(',') {
        Some((method, words)) => (method, Words::new(Some(words))),
        None => (rest, Words::new(None)),
    };
    let word = if method == "default" { "malloc" } else { method };
    let kind = match word {
        "malloc" | "umem" => memory::malloc(words),
        "debug" => memory::debug(words),
        "buddy" => memory::buddy(words, warnings),
        "file" => file::parse(words),
        "persistent" => persistent::parse(words),
        "fellow" => persistent::fellow(words),
        "tier" => tier::parse(words),
        "mse" | "mse4" => mse::parse(word, words, machine, warnings),
        _ => return Err(Error::Method { method: method.to_owned() }),
    };
    let kind = kind.map_err(|problem| problem.of(word))?;
    let name = name.map_or_else(
        || {
            *unnamed += 1;
            format!("s{}", *unnamed - 1)
        },
        str::to_owned,
    );
    Ok(Spec { name, word: word.to_owned(), kind })
}

/// A name that VCL can write after `storage.`.
fn is_name(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_alphabetic())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
}
