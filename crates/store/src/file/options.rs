//! What `-s file` is told, and why it may be refused.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// `-s file,path[,size[,granularity[,advice]]]`.
#[derive(Debug, Clone, PartialEq)]
pub struct FileOptions {
    /// The file, made if it is not there, or a directory, in which a file without a name is made.
    pub path: PathBuf,
    /// How large; `None` is the size that the file has.
    pub size: Option<FileSize>,
    /// The file is given out in multiples of so many bytes, a power of two; `None` is the size of a page of memory.
    pub granularity: Option<u64>,
    /// What the kernel is told of how the file will be read.
    pub advice: Advice,
}

/// The size of a file.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum FileSize {
    /// In bytes.
    Bytes(u64),
    /// In percent of what is free on its file system; what the file has already counts as free.
    Percent(f64),
}

/// What the kernel is told of how the file will be read (`madvise(2)`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Advice {
    /// It reads some of what follows.
    Normal,
    /// It reads just what is asked for.
    #[default]
    Random,
    /// It reads far ahead.
    Sequential,
}

impl Advice {
    /// The advice of that name.
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "normal" => Some(Self::Normal),
            "random" => Some(Self::Random),
            "sequential" => Some(Self::Sequential),
            _ => None,
        }
    }
}

/// Why a file is refused, with what to do.
#[derive(Debug)]
pub enum OpenError {
    /// It cannot be opened or made.
    Open(PathBuf, io::Error),
    /// It is neither a file nor a directory.
    Kind(PathBuf),
    /// Another store or another daemon has it.
    Taken(PathBuf),
    /// It has no size yet, and none was given.
    NoSize(PathBuf),
    /// The granularity is no power of two from a page of memory to 1 GiB. It holds what was given, and a page's size.
    Granularity(u64, u64),
    /// The size has room for less than one granule. It holds both.
    Small(u64, u64),
    /// A percentage that is not above 0 and at most 100.
    Percent(f64),
    /// The file system has no room: the size wanted, and what is free.
    NoRoom(PathBuf, u64, u64),
    /// The file system cannot reserve room for a file.
    NoReserve(PathBuf),
    /// Something else failed: what was being done, to what, why.
    Other(&'static str, PathBuf, io::Error),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open(path, error) => write!(
                f,
                "\"{}\" cannot be opened or made: {error}; name a file in a directory that the daemon may write",
                path.display()
            ),
            Self::Kind(path) => {
                write!(f, "\"{}\" is neither a file nor a directory; name one of these", path.display())
            }
            Self::Taken(path) => write!(
                f,
                "\"{}\" is in use by another store or another daemon; give each store a file of its own",
                path.display()
            ),
            Self::NoSize(path) => {
                write!(
                    f,
                    "no size specified, and \"{}\" has none yet; add one, as 10G or 90%",
                    path.display()
                )
            }
            Self::Granularity(given, page) => write!(
                f,
                "granularity {given} is wrong; give a power of two from {page} to {} bytes, or none",
                super::open::GRANULARITY_MAX
            ),
            Self::Small(size, granularity) => write!(
                f,
                "size {size} is less than one piece of {granularity} bytes; did you forget to specify M or G?"
            ),
            Self::Percent(given) => write!(f, "{given}% is no size; give more than 0% and at most 100%"),
            Self::NoRoom(path, wanted, free) => write!(
                f,
                "the file system of \"{}\" has no room for {wanted} bytes, {free} are free; give a smaller size, or free space",
                path.display()
            ),
            Self::NoReserve(path) => write!(
                f,
                "the file system of \"{}\" cannot reserve room for a file; write a file of that size there before, or use another file system",
                path.display()
            ),
            Self::Other(what, path, error) => write!(f, "{what} \"{}\" failed: {error}", path.display()),
        }
    }
}

impl std::error::Error for OpenError {}
