//! `file,path[,size[,granularity[,advice]]]`: memory that is mapped from a file, of which nothing outlives a start.

use super::Kind;
use super::error::Problem;
use super::words::{Words, bytes, size};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Such a store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FileSpec {
    /// The file, or a folder, in which one without a name is made.
    pub(crate) path: PathBuf,
    /// How large it is to be; `None`: as large as it is.
    pub(crate) size: Option<FileSize>,
    /// Room is given out in multiples of so many bytes; `None`: of a page.
    pub(crate) granularity: Option<u64>,
    /// How it will be read.
    pub(crate) advice: Advice,
}

/// How large a file is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum FileSize {
    /// In bytes.
    Bytes(u64),
    /// In percent of what is free on its file system, 1 to 100.
    Percent(u8),
}

/// What the kernel is told of how it will be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Advice {
    /// Some of what follows is read, too.
    Normal,
    /// Just what is asked for.
    #[default]
    Random,
    /// Far ahead.
    Sequential,
}

pub(super) fn parse(mut words: Words<'_>) -> Result<Kind, Problem> {
    let path = PathBuf::from(words.next().ok_or(Problem::NoPath)?);
    let size = words.next().map(file_size).transpose()?;
    let granularity = words.next().map(granularity).transpose()?;
    let advice = match words.next() {
        None => Advice::default(),
        Some("normal") => Advice::Normal,
        Some("random") => Advice::Random,
        Some("sequential") => Advice::Sequential,
        Some(text) => {
            let (what, text) = ("advice".to_owned(), text.to_owned());
            return Err(Problem::Value { what, text, may_be: "normal, random or sequential" });
        }
    };
    words.end()?;
    Ok(Kind::File(FileSpec { path, size, granularity, advice }))
}

fn file_size(text: &str) -> Result<FileSize, Problem> {
    let Some(number) = text.strip_suffix('%') else { return size("size", text).map(FileSize::Bytes) };
    match number.parse() {
        Ok(percent @ 1..=100) => Ok(FileSize::Percent(percent)),
        _ => {
            let (what, text) = ("size".to_owned(), text.to_owned());
            Err(Problem::Value { what, text, may_be: "1% to 100% of what is free, or a number of bytes" })
        }
    }
}

fn granularity(text: &str) -> Result<u64, Problem> {
    let found = bytes("granularity", text)?;
    if !found.is_power_of_two() {
        let (what, text) = ("granularity".to_owned(), text.to_owned());
        return Err(Problem::Value { what, text, may_be: "a power of two" });
    }
    Ok(found)
}
