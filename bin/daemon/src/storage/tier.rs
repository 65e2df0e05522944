//! `tier,memory=size,fast=path:size,...,slow=path:size,...`: memory above fast disks above slow ones.

use super::error::Problem;
use super::persistent::Admit;
use super::words::{Words, once, size};
use super::{DeviceSpec, Kind};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// What `tier` may be told.
const OPTIONS: &str = "memory=size, admit=all|second, fast=path[:size] and slow=path[:size]";

/// A store of several tiers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TiersSpec {
    /// Bytes of memory, the topmost tier; `None`: see [`super::memory_default`].
    pub(crate) memory: Option<u64>,
    /// When an object is written.
    pub(crate) admit: Admit,
    /// The tiers on devices, the fastest first; at least one.
    pub(crate) tiers: Vec<TierSpec>,
}

/// The devices of one speed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TierSpec {
    /// What it is called: `fast`, `slow`, or `disk` where there is one.
    pub(crate) name: String,
    /// Its devices; at least one.
    pub(crate) devices: Vec<DeviceSpec>,
}

pub(super) fn parse(words: Words<'_>) -> Result<Kind, Problem> {
    let (mut memory, mut admit) = (None, None);
    let (mut fast, mut slow) = (Vec::new(), Vec::new());
    for option in words.others() {
        match option.split_once('=') {
            Some(("memory", text)) => once(&mut memory, "memory", size("memory", text)?)?,
            Some(("admit", text)) => once(&mut admit, "admit", Admit::parse(text)?)?,
            Some(("fast", text)) => fast.push(device(text)?),
            Some(("slow", text)) => slow.push(device(text)?),
            _ => return Err(Problem::Option { text: option.to_owned(), may_be: OPTIONS }),
        }
    }
    let tiers = [("fast", fast), ("slow", slow)].into_iter().filter(|(_, devices)| !devices.is_empty());
    let tiers: Vec<TierSpec> =
        tiers.map(|(name, devices)| TierSpec { name: name.to_owned(), devices }).collect();
    if tiers.is_empty() {
        return Err(Problem::NoDevices);
    }
    Ok(Kind::Tiers(TiersSpec { memory, admit: admit.unwrap_or_default(), tiers }))
}

/// `path[:size]`. A path with a colon in it needs its size.
fn device(text: &str) -> Result<DeviceSpec, Problem> {
    let (path, given) = match text.rsplit_once(':') {
        Some((path, given)) => (path, Some(size("size", given)?)),
        None => (text, None),
    };
    match path {
        "" => Err(Problem::NoPath),
        path => Ok(DeviceSpec { path: PathBuf::from(path), size: given }),
    }
}
