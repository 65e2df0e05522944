//! What can go wrong with a volume, by what a caller would do about it.

use copal_base::units::{format_bytes, human_bytes};
use std::{fmt, io};

/// Why a volume cannot be opened.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// The device gave an error.
    Io {
        /// What was being done.
        doing: &'static str,
        /// What the device said.
        source: io::Error,
    },
    /// The device holds something that is no volume; it is not touched.
    Foreign,
    /// The volume is of another version of the format.
    Version {
        /// The version found.
        found: u32,
    },
    /// The volume was made for another size of device.
    Size {
        /// The size in the superblock, in bytes.
        made_for: u64,
        /// The size of the device, in bytes.
        found: u64,
    },
    /// The device is too small.
    TooSmall {
        /// The smallest size that would do with these options, in bytes.
        least: u64,
        /// The size of the device, in bytes.
        found: u64,
    },
    /// An option has a value that cannot be.
    Option {
        /// Its name.
        name: &'static str,
        /// What it may be.
        bounds: &'static str,
    },
    /// Both superblocks are damaged: nothing can be found.
    Superblock,
    /// The list of entries is damaged beyond its redundancy; the records may be whole. To be opened with `recover`.
    Damaged {
        /// What is damaged.
        what: &'static str,
    },
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { doing, .. } => write!(f, "{doing} failed"),
            Self::Foreign => f.write_str("it holds something that is no Copal volume: give another path, or empty it first"),
            Self::Version { found } => {
                write!(f, "it is a volume of format {found}, this program has format {}", super::VERSION)
            }
            Self::Size { made_for, found } => {
                let (made_for, found) = (format_bytes(*made_for), format_bytes(*found));
                write!(f, "it is a volume made for {made_for}, and not {found}: give the size it was made with, or remove it")
            }
            Self::TooSmall { least, found } => {
                // Rounded up: a size that can be given.
                let least = least.div_ceil(1 << 20);
                write!(f, "{} is too small: give it at least {least}M", human_bytes(*found))
            }
            Self::Option { name, bounds } => write!(f, "{name} must be {bounds}"),
            Self::Superblock => {
                f.write_str("both superblocks are damaged, nothing can be found: remove the volume to begin with an empty one")
            }
            Self::Damaged { what } => {
                write!(f, "the {what} is damaged: start with -o recover to rebuild the list of objects from their records")
            }
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// Why a record was not written.
#[derive(Debug)]
#[non_exhaustive]
pub enum WriteError {
    /// It is longer than [`Volume::record_max`](super::Volume::record_max), or one of its parts than its own bound.
    TooLong {
        /// Which part.
        what: &'static str,
    },
    /// Nothing more can be evicted to make room: all that is there was kept. The caller does without.
    Full,
    /// The volume takes no more writes, because the device failed.
    Failed,
    /// The volume takes no more writes, because it is being emptied.
    Draining,
    /// The device gave an error. The volume takes no more writes from here on.
    Io(io::Error),
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong { what } => write!(f, "the {what} is too long for the volume"),
            Self::Full => f.write_str("there is no room in the volume"),
            Self::Failed => f.write_str("the device of the volume has failed"),
            Self::Draining => f.write_str("the volume is being drained"),
            Self::Io(_) => f.write_str("writing to the device of the volume failed"),
        }
    }
}

impl std::error::Error for WriteError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(source) => Some(source),
            Self::TooLong { .. } | Self::Full | Self::Failed | Self::Draining => None,
        }
    }
}

/// Why a record, or the rest of one, cannot be read. In each case its entry is gone when the caller sees this.
#[derive(Debug)]
pub enum ReadError {
    /// The device gave an error.
    Io(io::Error),
    /// The bytes are not those that were written.
    Damaged,
    /// It is no longer there: removed, evicted, or never was.
    Gone,
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Io(_) => "reading from the device of the volume failed",
            Self::Damaged => "the record is damaged",
            Self::Gone => "the record is gone",
        })
    }
}

impl std::error::Error for ReadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(source) => Some(source),
            Self::Damaged | Self::Gone => None,
        }
    }
}

/// Why a ban was not kept. The caller must not say that it was.
#[derive(Debug)]
pub enum BanError {
    /// It is longer than [`BAN_MAX`](super::BAN_MAX).
    TooLong,
    /// The log of bans is full of bans that are still needed.
    Full,
    /// The volume takes no more writes, because the device failed.
    Failed,
    /// The device gave an error. The volume takes no more writes from here on.
    Io(io::Error),
}

impl fmt::Display for BanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooLong => "the ban is too long for the volume",
            Self::Full => "the ban log of the volume is full",
            Self::Failed => "the device of the volume has failed",
            Self::Io(_) => "writing to the device of the volume failed",
        })
    }
}

impl std::error::Error for BanError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(source) => Some(source),
            Self::TooLong | Self::Full | Self::Failed => None,
        }
    }
}
