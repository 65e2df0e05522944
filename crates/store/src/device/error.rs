//! Why a device cannot be opened, each with what to do about it in one line.

use copal_base::reason;
use copal_base::units::human_bytes;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Why a file or block device cannot be opened as a device. What it holds is not touched then.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// The folder that it is to be made in is not there.
    NoFolder {
        /// What was to be opened.
        path: PathBuf,
        /// The folder.
        folder: PathBuf,
    },
    /// It is a folder.
    IsFolder {
        /// What was to be opened.
        path: PathBuf,
    },
    /// It is something in which nothing can be kept: a pipe, a socket, a terminal.
    Unsuitable {
        /// What was to be opened.
        path: PathBuf,
    },
    /// The process may not.
    NoRights {
        /// What was to be opened.
        path: PathBuf,
        /// What it may not do.
        doing: &'static str,
    },
    /// Its file system is mounted to be read only.
    ReadOnly {
        /// What was to be opened.
        path: PathBuf,
    },
    /// A block device that is set to be read only.
    ReadOnlyDevice {
        /// What was to be opened.
        path: PathBuf,
    },
    /// Its file system is memory.
    InMemory {
        /// What was to be opened.
        path: PathBuf,
        /// What kind of file system it is.
        kind: &'static str,
    },
    /// It is not there, or empty, and no size was given.
    NoSize {
        /// What was to be opened.
        path: PathBuf,
    },
    /// There is less than what is of use.
    TooSmall {
        /// What was to be opened.
        path: PathBuf,
        /// Its size, in bytes.
        size: u64,
        /// The least that is of use, in bytes.
        size_min: u64,
    },
    /// It is there, with another size than that given.
    OtherSize {
        /// What was to be opened.
        path: PathBuf,
        /// The size that it has, in bytes.
        found: u64,
        /// The size given, in bytes.
        given: u64,
        /// It is a block device, whose size nobody can change.
        is_block_device: bool,
    },
    /// The file system has not so much room.
    NoRoom {
        /// What was to be opened.
        path: PathBuf,
        /// How much was wanted beyond what the file has, in bytes.
        wanted: u64,
        /// How much is free, in bytes, where that is known.
        free: Option<u64>,
    },
    /// Files may not be as long there, or this process may not make them as long.
    TooLong {
        /// What was to be opened.
        path: PathBuf,
        /// The size given, in bytes.
        size: u64,
    },
    /// The file system cannot set room aside.
    NoReserve {
        /// What was to be opened.
        path: PathBuf,
        /// The size given, in bytes.
        size: u64,
    },
    /// Another process has it.
    InUse {
        /// What was to be opened.
        path: PathBuf,
        /// Which process, where that is known.
        process: Option<u32>,
    },
    /// A block device that is mounted, or a part of something that is in use.
    Mounted {
        /// What was to be opened.
        path: PathBuf,
    },
    /// It was given twice: by the same or by another name.
    Twice {
        /// What was to be opened.
        path: PathBuf,
        /// The name by which it was given first.
        first: PathBuf,
    },
    /// Anything else.
    Io {
        /// What was being done.
        doing: &'static str,
        /// What was to be opened.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
}

impl OpenError {
    /// What an error of the kernel means for the device at `path` that is to have `size` bytes.
    pub(super) fn of(source: io::Error, doing: &'static str, path: &Path, size: u64) -> Self {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::PermissionDenied => Self::NoRights { path, doing },
            io::ErrorKind::ReadOnlyFilesystem => Self::ReadOnly { path },
            io::ErrorKind::IsADirectory => Self::IsFolder { path },
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Self::NoRoom { path, wanted: size, free: None }
            }
            io::ErrorKind::FileTooLarge => Self::TooLong { path, size },
            io::ErrorKind::Unsupported => Self::NoReserve { path, size },
            io::ErrorKind::ResourceBusy => Self::Mounted { path },
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
                let folder = path.parent().unwrap_or(Path::new("/")).to_owned();
                Self::NoFolder { path, folder }
            }
            _ => Self::Io { doing, path, source },
        }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoFolder { path, folder } => {
                let folder = folder.display();
                write!(f, "{}: there is no folder {folder}: make it first (mkdir -p {folder})", Name(path))
            }
            Self::IsFolder { path } => {
                let file = path.join("copal.store");
                write!(f, "{} is a folder: name a file in it, as {}", Name(path), file.display())
            }
            Self::Unsuitable { path } => {
                write!(f, "{} is neither a file nor a block device: name one of these", Name(path))
            }
            Self::NoRights { path, doing } => write!(
                f,
                "{doing} {} is not allowed: start as root, or give the user that copald runs as rights to it",
                Name(path)
            ),
            Self::ReadOnly { path } => {
                let name = Name(path);
                write!(
                    f,
                    "{name} is on a file system that can only be read: mount it with rw, or name another"
                )
            }
            Self::ReadOnlyDevice { path } => {
                let device = path.display();
                write!(
                    f,
                    "{} can only be read: let it be written (blockdev --setrw {device}), or name another",
                    Name(path)
                )
            }
            Self::InMemory { path, kind } => write!(
                f,
                "{} is on {kind}, which is memory and would not survive a restart: use malloc, or name a file on a disk",
                Name(path)
            ),
            Self::NoSize { path } => {
                write!(f, "{} has no size yet, and none is given: add one, as 10G", Name(path))
            }
            Self::TooSmall { path, size, size_min } => {
                let (size, least) = (human_bytes(*size), human_bytes(*size_min));
                write!(f, "{} has {size}, which is too small: give it at least {least}", Name(path))
            }
            Self::OtherSize { path, found, given, is_block_device } => {
                let (found, given) = (exact(*found), exact(*given));
                write!(f, "{} has {found}, not {given}: ", Name(path))?;
                f.write_str(match is_block_device {
                    true => "give no size, or at most that",
                    false => "give that size, or remove the file, with all that it keeps",
                })
            }
            Self::NoRoom { path, wanted, free } => {
                write!(f, "{}: the file system has no room for {} more", Name(path), human_bytes(*wanted))?;
                if let Some(free) = free {
                    write!(f, ", {} is free", human_bytes(*free))?;
                }
                f.write_str(": give a smaller size, or make room")
            }
            Self::TooLong { path, size } => write!(
                f,
                "{}: a file may not have {} there: give a smaller size, or raise the limit (ulimit -f)",
                Name(path),
                human_bytes(*size)
            ),
            Self::NoReserve { path, size } => write!(
                f,
                "{}: the file system cannot set room aside: write a file of {size} bytes there first, or name another",
                Name(path)
            ),
            Self::InUse { path, process } => {
                write!(f, "{} is used by another process", Name(path))?;
                if let Some(process) = process {
                    write!(f, " ({process})")?;
                }
                f.write_str(": stop that one, or name another file")
            }
            Self::Mounted { path } => {
                write!(
                    f,
                    "{} is mounted, or part of something in use: unmount it, or name another",
                    Name(path)
                )
            }
            Self::Twice { path, first } if path == first => {
                write!(f, "{} is given twice: give each store a file of its own", Name(path))
            }
            Self::Twice { path, first } => {
                let (path, first) = (Name(path), Name(first));
                write!(f, "{path} and {first} are the same file: give each store a file of its own")
            }
            Self::Io { doing, path, source } => write!(f, "{doing} {}: {}", Name(path), reason(source)),
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

/// A path in quotes, as Varnish writes it.
struct Name<'a>(&'a Path);

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.display())
    }
}

/// A size that can be given as it is printed: in the largest unit that divides it.
fn exact(bytes: u64) -> String {
    copal_base::units::format_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(errno: rustix::io::Errno, expected: &str) {
        let error = OpenError::of(errno.into(), "making", Path::new("/disk/x"), 3 << 29);
        let said = error.to_string();
        assert_eq!(said, expected);
        assert!(!said.contains('\n'));
    }

    #[test]
    fn what_the_kernel_says_is_said_with_what_to_do() {
        use rustix::io::Errno;
        check(
            Errno::ACCESS,
            "making \"/disk/x\" is not allowed: start as root, or give the user that copald runs as rights to it",
        );
        check(
            Errno::ROFS,
            "\"/disk/x\" is on a file system that can only be read: mount it with rw, or name another",
        );
        let full =
            "\"/disk/x\": the file system has no room for 1.5G more: give a smaller size, or make room";
        check(Errno::NOSPC, full);
        check(Errno::DQUOT, full);
        check(Errno::NOTDIR, "\"/disk/x\": there is no folder /disk: make it first (mkdir -p /disk)");
        check(
            Errno::FBIG,
            "\"/disk/x\": a file may not have 1.5G there: give a smaller size, or raise the limit (ulimit -f)",
        );
        check(
            Errno::OPNOTSUPP,
            "\"/disk/x\": the file system cannot set room aside: write a file of 1610612736 bytes there first, or name another",
        );
        check(
            Errno::BUSY,
            "\"/disk/x\" is mounted, or part of something in use: unmount it, or name another",
        );
        check(Errno::IO, "making \"/disk/x\": Input/output error");
    }
}
