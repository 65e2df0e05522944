//! Files: `std.fileread`, `std.blobread`, `std.file_exists`.
//!
//! A file's contents are read once and kept for the life of the process, as the manual promises. So there are bounds: a
//! file of at most 16 MiB, 1,024 files, 64 MiB in all. A file that cannot be read gives the unset value and an `Error`
//! record; one that would break a bound is a fault.

use crate::arguments::Arguments;
use crate::task;
use bytes::Bytes;
use copal_vcl as vcl;
use parking_lot::RwLock;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::LazyLock;
use vcl::host::{Fault, Result};
use vcl::value::Value;
use vcl::vmod::Call;

/// The largest file, in bytes.
const FILE_MAX: u64 = 16 << 20;
/// The most files.
const FILES_MAX: usize = 1024;
/// The most bytes of all files together.
const TOTAL_MAX: usize = 64 << 20;

/// `std.fileread(path)`
pub(super) fn fileread(call: &mut Call<'_>) -> Result<Value> {
    contents(call, "fileread", Value::String)
}

/// `std.blobread(path)`
pub(super) fn blobread(call: &mut Call<'_>) -> Result<Value> {
    contents(call, "blobread", Value::Blob)
}

/// `std.file_exists(path)`: links are followed.
pub(super) fn file_exists(call: &mut Call<'_>) -> Result<Value> {
    let path = Arguments(call.arguments).text(0)?.cloned().unwrap_or_default();
    task::blocking(call, move || Ok(Value::Bool(Path::new(OsStr::from_bytes(&path)).exists())))
}

fn contents(call: &mut Call<'_>, function: &'static str, value: fn(Option<Bytes>) -> Value) -> Result<Value> {
    static KEPT: LazyLock<Kept> = LazyLock::new(Kept::default);
    let Some(path) = Arguments(call.arguments).text(0)?.cloned() else { return Ok(value(None)) };
    if let Some(contents) = KEPT.find(&path) {
        return Ok(value(Some(contents)));
    }
    task::blocking_with(
        call,
        move || (KEPT.get(&path), path),
        move |host, (contents, path)| {
            let shown = String::from_utf8_lossy(&path);
            match contents {
                Ok(contents) => Ok(value(Some(contents))),
                Err(Failure::Bound(what)) => Err(Fault(format!("std.{function}: {shown}: {what}"))),
                Err(Failure::Read(error)) => {
                    let sentence = format!("std.{function}: reading {shown}: {error}");
                    host.log("Error", sentence.as_bytes());
                    Ok(value(None))
                }
            }
        },
    )
}

/// Why there are no contents.
#[derive(Debug)]
enum Failure {
    /// The file could not be read.
    Read(io::Error),
    /// It is too large, or too much is kept already.
    Bound(String),
}

/// The files read so far, by path as written.
#[derive(Default)]
struct Kept {
    files: RwLock<HashMap<Bytes, Bytes>>,
}

impl Kept {
    fn find(&self, path: &Bytes) -> Option<Bytes> {
        self.files.read().get(path).cloned()
    }

    fn get(&self, path: &Bytes) -> std::result::Result<Bytes, Failure> {
        if let Some(contents) = self.find(path) {
            return Ok(contents);
        }
        let contents = Bytes::from(read(path)?);
        let mut files = self.files.write();
        if let Some(earlier) = files.get(path) {
            return Ok(earlier.clone());
        }
        let total: usize = files.values().map(Bytes::len).sum();
        if files.len() >= FILES_MAX || total + contents.len() > TOTAL_MAX {
            let kept = files.len();
            return Err(Failure::Bound(format!(
                "{kept} files with {total} bytes are kept already; no room for another"
            )));
        }
        // A copy of the path, since the argument may be a slice of a whole request.
        files.insert(Bytes::copy_from_slice(path), contents.clone());
        Ok(contents)
    }
}

fn read(path: &[u8]) -> std::result::Result<Vec<u8>, Failure> {
    let path = Path::new(OsStr::from_bytes(path));
    // A pipe or a device could block this thread for ever.
    if !std::fs::metadata(path).map_err(Failure::Read)?.is_file() {
        return Err(Failure::Read(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file")));
    }
    let file = std::fs::File::open(path).map_err(Failure::Read)?;
    let mut contents = Vec::new();
    file.take(FILE_MAX + 1).read_to_end(&mut contents).map_err(Failure::Read)?;
    if contents.len() as u64 > FILE_MAX {
        return Err(Failure::Bound(format!("the file is larger than {FILE_MAX} bytes")));
    }
    Ok(contents)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{FakeHost, call_std, call_std_on, text};

    /// A number of this run alone: one that was killed leaves its files.
    fn unique() -> u64 {
        use std::hash::{BuildHasher as _, RandomState};
        RandomState::new().hash_one(())
    }

    #[test]
    fn a_file_is_read_once() {
        let path = std::env::temp_dir().join(format!("copal-vmods-file-{}", unique()));
        std::fs::write(&path, b"one\n").unwrap();
        let kept = Kept::default();
        let name = Bytes::copy_from_slice(path.as_os_str().as_bytes());
        assert_eq!(kept.get(&name).unwrap(), "one\n");
        std::fs::write(&path, b"two\n").unwrap();
        assert_eq!(kept.get(&name).unwrap(), "one\n");
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(Kept::default().get(&name), Err(Failure::Read(_))));
    }

    #[test]
    fn what_cannot_be_read_is_unset_and_logged() {
        let mut host = FakeHost::default();
        for path in ["/nonexistent/file", "/dev/null", "/", "a\0b"] {
            let value = call_std_on(&mut host, "fileread", &[text(path)]).unwrap();
            assert!(matches!(value, Value::String(None)), "{path}");
            assert!(host.logged.pop().unwrap().starts_with("Error std.fileread: reading "), "{path}");
        }
        assert!(matches!(call_std("blobread", &[text("/nonexistent")]).unwrap(), Value::Blob(None)));
        assert!(matches!(call_std("fileread", &[Value::String(None)]).unwrap(), Value::String(None)));
    }

    #[test]
    fn existence() {
        for (path, exists) in [("/", true), ("/nonexistent", false), ("", false), ("a\0b", false)] {
            let value = call_std("file_exists", &[text(path)]).unwrap();
            assert!(matches!(value, Value::Bool(found) if found == exists), "{path}");
        }
    }
}
