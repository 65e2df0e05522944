//! Files that the daemon keeps: its work directory, the secret, the number of the process.

use copal_observe as observe;
use std::fmt;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};

/// The file that holds the process number and the lock.
const PID: &str = "_.pid";
/// The secret where `-S` names none.
const SECRET: &str = "_.secret";
/// Bytes of a secret that we make.
const SECRET_LENGTH: usize = 256;
/// The longest secret that is read.
const SECRET_MAX: u64 = 1 << 20;

/// What could not be done to which file.
#[derive(Debug)]
pub(crate) struct Error {
    doing: &'static str,
    path: PathBuf,
    source: Option<io::Error>,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Could not {} {}", self.doing, self.path.display())?;
        match &self.source {
            Some(source) => write!(f, ": {source}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {}

fn fail(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    move |source| Error { doing, path: path.to_owned(), source: Some(source) }
}

/// The work directory, ours alone while this value lives.
#[derive(Debug)]
pub(crate) struct WorkDirectory {
    path: PathBuf,
    _lock: File,
}

/// The directory that `-n name` means, for tools as well. Relative names stay below the state directory.
///
/// # Errors
/// A relative name that leads out of it.
fn locate(name: Option<&str>) -> Result<PathBuf, Error> {
    let path = observe::vsm::work_directory(name);
    let upwards = path.components().any(|part| part == Component::ParentDir);
    if path.starts_with(observe::vsm::STATE) && upwards {
        return Err(Error { doing: "use a work directory outside the state directory:", path, source: None });
    }
    Ok(path)
}

impl WorkDirectory {
    /// Makes the directory that `-n` means, unless it is there, and takes it for this process.
    ///
    /// # Errors
    /// [`Error`]: it cannot be made, or another daemon has it.
    pub(crate) fn open(name: Option<&str>) -> Result<Self, Error> {
        Self::open_at(&locate(name)?)
    }

    fn open_at(path: &Path) -> Result<Self, Error> {
        if !path.is_dir() {
            make(path).map_err(fail("create work directory", path))?;
        }
        let lock = write_pid(&path.join(PID), "lock the work directory (another daemon uses it)")?;
        Ok(Self { path: path.to_owned(), _lock: lock })
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the secret that we made: it is good for nothing once we have ended.
    pub(crate) fn forget_secret(&self) {
        let _ = std::fs::remove_file(self.path.join(SECRET));
    }

    /// The secret file that `-S` means: none for `none`, the file itself, or one of our own with fresh random bytes.
    ///
    /// # Errors
    /// [`Error`]: the file cannot be read or made.
    pub(crate) fn secret(&self, argument: Option<&str>) -> Result<Option<PathBuf>, Error> {
        match argument {
            Some("none") => Ok(None),
            Some(path) => {
                let path = std::path::absolute(path).map_err(fail("find secret file", Path::new(path)))?;
                read_secret(&path)?;
                Ok(Some(path))
            }
            None => {
                let path = self.path.join(SECRET);
                make_secret(&path)?;
                Ok(Some(path))
            }
        }
    }
}

/// Makes a work directory. What is above it must be there, so that a slip of the pen makes no tree of directories; but the
/// state directory itself is made, since nothing else may have done that on a machine without Varnish.
fn make(path: &Path) -> io::Result<()> {
    let state = Path::new(observe::vsm::STATE);
    if path.parent() == Some(state) {
        DirBuilder::new().mode(0o755).recursive(true).create(state)?;
    }
    DirBuilder::new().mode(0o755).create(path)
}

fn make_secret(path: &Path) -> Result<(), Error> {
    // A fresh file, never one that somebody else has open.
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(fail("replace secret file", path)(error));
        }
        _ => {}
    }
    let bytes: [u8; SECRET_LENGTH] = random().map_err(fail("read random bytes for", path))?;
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    file.and_then(|mut file| file.write_all(&bytes)).map_err(fail("write secret file", path))
}

/// The secret in a file.
///
/// # Errors
/// [`Error`]: it cannot be read.
pub(crate) fn read_secret(path: &Path) -> Result<Vec<u8>, Error> {
    let mut secret = Vec::new();
    let read = File::open(path).and_then(|file| file.take(SECRET_MAX).read_to_end(&mut secret));
    read.map_err(fail("read secret file", path))?;
    Ok(secret)
}

/// Writes our process number to the file of `-P`, and keeps it locked until the returned value is dropped.
///
/// # Errors
/// [`Error`]: the file cannot be written, or a running daemon holds it.
pub(crate) fn pid_file(path: &str) -> Result<PidFile, Error> {
    let path = std::path::absolute(path).map_err(fail("find pid file", Path::new(path)))?;
    let lock = write_pid(&path, "lock the pid file (another daemon uses it)")?;
    Ok(PidFile { path, _lock: lock })
}

/// The file of `-P`; goes with this value.
#[derive(Debug)]
pub(crate) struct PidFile {
    path: PathBuf,
    _lock: File,
}

impl Drop for PidFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn write_pid(path: &Path, locking: &'static str) -> Result<File, Error> {
    let open = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o644).open(path);
    let mut file = open.map_err(fail("open pid file", path))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(std::fs::TryLockError::WouldBlock) => {
            return Err(Error { doing: locking, path: path.to_owned(), source: None });
        }
        Err(std::fs::TryLockError::Error(error)) => return Err(fail(locking, path)(error)),
    }
    let write = |file: &mut File| {
        file.set_len(0)?;
        file.rewind()?;
        writeln!(file, "{}", std::process::id())
    };
    write(&mut file).map_err(fail("write pid file", path))?;
    Ok(file)
}

/// Bytes that nobody can foresee.
///
/// # Errors
/// The kernel's source cannot be read.
pub(crate) fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// A directory of this test's own, gone at its end.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let unique: [u8; 8] = random().unwrap();
            Self(std::env::temp_dir().join(format!("copald-{name}-{:016x}", u64::from_ne_bytes(unique))))
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn names_become_directories() {
        for (name, expected) in
            [("a", "/var/lib/varnish/a"), ("/tmp/x", "/tmp/x"), ("/tmp/../x", "/tmp/../x")]
        {
            assert_eq!(locate(Some(name)).unwrap(), Path::new(expected));
        }
        assert!(locate(Some("a/../../b")).is_err());
    }

    #[test]
    fn one_daemon_a_directory() {
        let scratch = Scratch::new("lock");
        let first = WorkDirectory::open_at(&scratch.0).unwrap();
        let second = WorkDirectory::open_at(&scratch.0).unwrap_err();
        assert!(second.to_string().contains("another daemon"), "{second}");
        drop(first);
        WorkDirectory::open_at(&scratch.0).unwrap();
    }

    #[test]
    fn no_directories_above_are_made() {
        let scratch = Scratch::new("above");
        let error = WorkDirectory::open_at(&scratch.0.join("below")).unwrap_err().to_string();
        assert!(
            error.starts_with("Could not create work directory ") && error.contains("os error 2"),
            "{error}"
        );
        assert!(!scratch.0.exists());
    }

    #[test]
    fn secrets() {
        let scratch = Scratch::new("secret");
        let directory = WorkDirectory::open_at(&scratch.0).unwrap();
        assert_eq!(directory.secret(Some("none")).unwrap(), None);
        assert!(directory.secret(Some("/nonexistent/secret")).is_err());
        let path = directory.secret(None).unwrap().unwrap();
        let secret = read_secret(&path).unwrap();
        assert_eq!(secret.len(), SECRET_LENGTH);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        directory.secret(None).unwrap();
        assert_ne!(read_secret(&path).unwrap(), secret);
        assert_eq!(directory.secret(Some(path.to_str().unwrap())).unwrap(), Some(path));
    }

    #[test]
    fn the_pid_file_goes_with_us() {
        let scratch = Scratch::new("pid");
        let _directory = WorkDirectory::open_at(&scratch.0).unwrap();
        let path = scratch.0.join("daemon.pid");
        let file = pid_file(path.to_str().unwrap()).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), format!("{}\n", std::process::id()));
        drop(file);
        assert!(!path.exists());
    }
}
