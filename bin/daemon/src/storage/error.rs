//! Why an `-s` is refused. Where Varnish has such a refusal, its words are Varnish's.

use copal_store as store;
use std::fmt;

/// Why an `-s` is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Error {
    /// It is empty.
    Empty,
    /// There is a name, and nothing behind it.
    EmptyNamed {
        /// The argument.
        argument: String,
    },
    /// VCL could not write that name.
    Name {
        /// The name.
        name: String,
    },
    /// Two stores of one name.
    Defined {
        /// The argument of the second.
        argument: String,
        /// The name of both.
        name: String,
    },
    /// There is no such kind of store.
    Method {
        /// What stands there.
        method: String,
    },
    /// Something about a store of a kind.
    Store {
        /// The kind, as it was given.
        kind: String,
        /// What is wrong.
        problem: Problem,
    },
}

/// What is wrong with a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Problem {
    /// There is no path.
    NoPath,
    /// There is no size.
    NoSize,
    /// Something that must be a size, or a part of it, is none.
    Size {
        /// What it is: `size`, `memory`, `granularity` ...
        what: String,
        /// What stands there.
        text: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// Something has a value that it cannot have.
    Value {
        /// What it is.
        what: String,
        /// What stands there.
        text: String,
        /// What it may be.
        may_be: &'static str,
    },
    /// There is more than is known of.
    TooMany {
        /// The first of what is too much.
        text: String,
    },
    /// There is no such option.
    Option {
        /// What stands there.
        text: String,
        /// What may stand there.
        may_be: &'static str,
    },
    /// The option was given before.
    Repeated {
        /// Its name.
        name: String,
    },
    /// There is nothing to keep objects on.
    NoDevices,
    /// A file that the argument names cannot be read.
    Unreadable {
        /// The file.
        path: String,
        /// Why.
        why: String,
    },
    /// A file that the argument names is not understood.
    Line {
        /// The file.
        path: String,
        /// The line, from 1.
        line: u32,
        /// What is wrong there.
        why: String,
    },
}

impl Problem {
    /// This problem of a store of `kind`.
    pub(super) fn of(self, kind: &str) -> Error {
        Error::Store { kind: kind.to_owned(), problem: self }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("-s argument lacks strategy {malloc, file, persistent, tier, ...}"),
            Self::EmptyNamed { argument } => write!(f, "Empty named -s argument \"{argument}\""),
            Self::Name { name } => write!(f, "invalid -s name \"{name}\"=[...]"),
            Self::Defined { argument, name } => write!(f, "(-s {argument}) '{name}' is already defined"),
            Self::Method { method } => write!(f, "Unknown storage method \"{method}\""),
            Self::Store { kind, problem } => write!(f, "(-s{kind}) {problem}"),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoPath => f.write_str("path is mandatory"),
            Self::NoSize => f.write_str("no size specified"),
            Self::Size { what, text, why } => write!(f, "{what} \"{text}\": {why}"),
            Self::Value { what, text, may_be } => write!(f, "invalid {what}: \"{text}\" (give {may_be})"),
            Self::TooMany { text } => write!(f, "too many arguments ({text})"),
            Self::Option { text, may_be } => write!(f, "unknown option \"{text}\" (there are {may_be})"),
            Self::Repeated { name } => write!(f, "{name} is given twice"),
            Self::NoDevices => {
                f.write_str("no device to keep objects on: add fast=path:size or slow=path:size")
            }
            Self::Unreadable { path, why } => write!(f, "cannot read \"{path}\": {why}"),
            Self::Line { path, line, why } => write!(f, "\"{path}\" line {line}: {why}"),
        }
    }
}

impl std::error::Error for Error {}

/// Why a store that was asked for cannot be had: which one, and why.
#[derive(Debug)]
pub(crate) enum Failure {
    /// What it is to be kept on cannot be opened.
    Open {
        /// The kind, as it was given.
        kind: String,
        /// Why.
        source: store::device::OpenError,
    },
    /// The file of `-s file` cannot be had.
    File {
        /// The kind, as it was given.
        kind: String,
        /// Why.
        source: store::file::OpenError,
    },
    /// What is on a device cannot be used, or the device cannot.
    Volume {
        /// The kind, as it was given.
        kind: String,
        /// Where it is.
        path: String,
        /// Why.
        source: store::volume::OpenError,
    },
    /// The worker could not come to the file.
    Unreachable {
        /// The kind, as it was given.
        kind: String,
        /// The file.
        path: String,
    },
    /// Something else could not be done.
    Io {
        /// The kind, as it was given.
        kind: String,
        /// What was being done.
        doing: &'static str,
        /// To what.
        path: String,
        /// Why.
        source: std::io::Error,
    },
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open { kind, source } => write!(f, "(-s{kind}) {source}"),
            Self::File { kind, source } => write!(f, "(-s{kind}) {source}"),
            Self::Volume { kind, path, source: store::volume::OpenError::Io { doing, source } } => {
                write!(f, "(-s{kind}) \"{path}\": {doing}: {}", copal_base::reason(source))
            }
            Self::Volume { kind, path, source } => write!(f, "(-s{kind}) \"{path}\": {source}"),
            Self::Unreachable { kind, path } => write!(
                f,
                "(-s{kind}) \"{path}\" is where the worker's user may not go: give it rights to the folders above, or start with -j none"
            ),
            Self::Io { kind, doing, path, source } => {
                write!(f, "(-s{kind}) {doing} \"{path}\": {}", copal_base::reason(source))
            }
        }
    }
}

impl std::error::Error for Failure {}
