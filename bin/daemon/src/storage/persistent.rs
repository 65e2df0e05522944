//! Stores on one device that outlive a start: `persistent,path[,size][,option=value...]`, and
//! `fellow,path,dsksize,memsize,objsize_hint` as SLASH/ has it.

use super::error::Problem;
use super::words::{Words, bytes, once, size};
use super::{DeviceSpec, Kind};
use copal_store as store;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use store::volume::Options;

/// What `persistent` may be told.
const OPTIONS: &str = "memory=size, admit=all|second, region=size and entries=number";
/// The bounds of a region's size, bytes.
const REGION: std::ops::RangeInclusive<u64> = 64 << 10..=1 << 30;
/// Regions are multiples of so many bytes.
const REGION_UNIT: u64 = 4 << 10;

/// When an object is written to a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Admit {
    /// Once it is stored.
    #[default]
    All,
    /// Once it is stored the second time: what is asked for once does not wear the device.
    Second,
}

impl Admit {
    pub(super) fn parse(text: &str) -> Result<Self, Problem> {
        match text {
            "all" => Ok(Self::All),
            "second" => Ok(Self::Second),
            _ => {
                let (what, text) = ("admit".to_owned(), text.to_owned());
                Err(Problem::Value { what, text, may_be: "all or second" })
            }
        }
    }
}

/// Such a store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PersistentSpec {
    /// The file or block device.
    pub(crate) device: DeviceSpec,
    /// Bytes of memory for objects in use; `None`: see [`super::memory_default`].
    pub(crate) memory: Option<u64>,
    /// When an object is written.
    pub(crate) admit: Admit,
    /// Bytes of a region; `None`: the store's choice.
    pub(crate) region: Option<u64>,
    /// How many objects are provided for; `None`: the store's choice.
    pub(crate) entries: Option<u64>,
}

/// The fewest bytes of a device for which an entry is provided.
const ENTRY_BYTES_MIN: u32 = 512;

impl PersistentSpec {
    /// How the log of its device is laid out, which has `size` bytes.
    pub(super) fn volume_options(&self, size: u64) -> Options {
        let default = Options::default();
        let bytes = |entries: u64| u32::try_from(size / entries.max(1)).unwrap_or(u32::MAX);
        Options {
            region_size: self.region.map(|region| u32::try_from(region).expect("bounded when it was read")),
            entry_bytes: self
                .entries
                .map_or(default.entry_bytes, |entries| bytes(entries).max(ENTRY_BYTES_MIN)),
            ..default
        }
    }
}

pub(super) fn parse(mut words: Words<'_>) -> Result<Kind, Problem> {
    let path = PathBuf::from(words.next().ok_or(Problem::NoPath)?);
    let mut options: Vec<&str> = words.others().collect();
    let given =
        options.first().filter(|first| !first.contains('=')).map(|text| size("size", text)).transpose()?;
    if given.is_some() {
        options.remove(0);
    }
    let (mut memory, mut admit, mut region, mut entries) = (None, None, None, None);
    for option in options {
        match option.split_once('=') {
            Some(("memory", text)) => once(&mut memory, "memory", size("memory", text)?)?,
            Some(("admit", text)) => once(&mut admit, "admit", Admit::parse(text)?)?,
            Some(("region", text)) => once(&mut region, "region", region_size(text)?)?,
            Some(("entries", text)) => once(&mut entries, "entries", entry_count(text)?)?,
            _ => return Err(Problem::Option { text: option.to_owned(), may_be: OPTIONS }),
        }
    }
    let admit = admit.unwrap_or_default();
    let device = DeviceSpec { path, size: given };
    Ok(Kind::Persistent(PersistentSpec { device, memory, admit, region, entries }))
}

fn region_size(text: &str) -> Result<u64, Problem> {
    let found = bytes("region", text)?;
    if !REGION.contains(&found) || !found.is_multiple_of(REGION_UNIT) {
        let (what, text) = ("region".to_owned(), text.to_owned());
        return Err(Problem::Value { what, text, may_be: "a multiple of 4k from 64k to 1G" });
    }
    Ok(found)
}

fn entry_count(text: &str) -> Result<u64, Problem> {
    text.parse().ok().filter(|count| *count > 0).ok_or_else(|| {
        let (what, text) = ("entries".to_owned(), text.to_owned());
        Problem::Value { what, text, may_be: "how many objects there may be" }
    })
}

pub(super) fn fellow(mut words: Words<'_>) -> Result<Kind, Problem> {
    let path = PathBuf::from(words.next().ok_or(Problem::NoPath)?);
    let mut next = |what: &str| {
        let text = words.next().ok_or_else(|| {
            let (what, text) = (what.to_owned(), String::new());
            Problem::Value { what, text, may_be: "path,dsksize,memsize,objsize_hint" }
        })?;
        if text.contains('=') {
            let (what, text) = (what.to_owned(), text.to_owned());
            return Err(Problem::Value { what, text, may_be: "a size: no store shares another's memory" });
        }
        match what {
            "objsize_hint" => bytes(what, text),
            _ => size(what, text),
        }
    };
    let (device_size, memory, object_size) = (next("dsksize")?, next("memsize")?, next("objsize_hint")?);
    words.end()?;
    let device = DeviceSpec { path, size: Some(device_size) };
    // The hint says how large most objects are, so that there is room for what must be known of each.
    let entries = Some((device_size / object_size.max(1)).max(1));
    Ok(Kind::Persistent(PersistentSpec {
        device,
        memory: Some(memory),
        admit: Admit::All,
        region: None,
        entries,
    }))
}
