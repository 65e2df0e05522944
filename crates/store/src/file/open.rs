//! Opening the file: found or made, locked, sized, and its room reserved.

use super::map;
use super::options::{FileOptions, FileSize, OpenError};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// The largest granularity.
pub(super) const GRANULARITY_MAX: u64 = 1 << 30;

/// A file that is ready to be mapped.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) file: File,
    pub(super) path: PathBuf,
    /// A multiple of the granularity, all of it reserved on the device.
    pub(super) size: u64,
    pub(super) granularity: u64,
}

/// See the module.
pub(super) fn open(options: &FileOptions) -> Result<Opened, OpenError> {
    prepare(options, true)
}

/// Looks whether [`open`] would do, and does as much of it as stays: a file with a name is made, sized and reserved.
pub(super) fn check(options: &FileOptions) -> Result<(), OpenError> {
    prepare(options, !options.path.is_dir()).map(|_| ())
}

fn prepare(options: &FileOptions, reserved: bool) -> Result<Opened, OpenError> {
    let page = map::page_size();
    let granularity = options.granularity.unwrap_or(page);
    if !granularity.is_power_of_two() || !(page..=GRANULARITY_MAX).contains(&granularity) {
        return Err(OpenError::Granularity(granularity, page));
    }
    let path = options.path.clone();
    let file = find(&path)?;
    let other = |what, error| OpenError::Other(what, path.clone(), error);
    if !map::lock(&file).map_err(|error| other("locking", error))? {
        return Err(OpenError::Taken(path));
    }
    let about = file.metadata().map_err(|error| other("looking at", error))?;
    // What the file has on the device is its own already. Blocks are told in units of 512 bytes, whatever the device has.
    let own = about.blocks().saturating_mul(512);
    let free = map::free_space(&file).map_err(|error| other("asking for the free space of", error))?;
    let free = free.saturating_add(own);
    let size = wanted(options.size, about.len(), free).ok_or_else(|| OpenError::NoSize(path.clone()))??;
    let size = size / granularity * granularity;
    if size == 0 {
        return Err(OpenError::Small(size, granularity));
    }
    let no_room = || OpenError::NoRoom(path.clone(), size, free);
    if size > free {
        return Err(no_room());
    }
    if !reserved {
        return Ok(Opened { file, path, size, granularity });
    }
    if about.len() != size {
        file.set_len(size).map_err(|error| other("setting the size of", error))?;
    }
    if own < size || about.len() < size {
        reserve(&file, size).map_err(|error| match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => no_room(),
            io::ErrorKind::Unsupported => OpenError::NoReserve(path.clone()),
            _ => other("reserving room for", error),
        })?;
    }
    Ok(Opened { file, path, size, granularity })
}

/// Reserves room, or leaves the file without any.
fn reserve(file: &File, size: u64) -> io::Result<()> {
    map::reserve(file, size).inspect_err(|_| {
        // What was reserved before it failed would only keep the file system full.
        let _ = file.set_len(0);
    })
}

/// How many bytes are wanted, if that is known.
fn wanted(size: Option<FileSize>, present: u64, free: u64) -> Option<Result<u64, OpenError>> {
    match size {
        None => (present > 0).then_some(Ok(present)),
        Some(FileSize::Bytes(bytes)) => Some(Ok(bytes)),
        Some(FileSize::Percent(percent)) if percent > 0.0 && percent <= 100.0 => {
            Some(Ok((free as f64 * percent / 100.0) as u64))
        }
        Some(FileSize::Percent(percent)) => Some(Err(OpenError::Percent(percent))),
    }
}

fn find(path: &Path) -> Result<File, OpenError> {
    match std::fs::metadata(path) {
        Ok(about) if about.is_dir() => unnamed(path),
        Ok(about) if !about.is_file() || about.file_type().is_block_device() => {
            Err(OpenError::Kind(path.to_owned()))
        }
        _ => {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false).mode(0o600);
            options.open(path).map_err(|error| OpenError::Open(path.to_owned(), error))
        }
    }
}

/// A file in `directory` that has no name, so that it goes with the process.
fn unnamed(directory: &Path) -> Result<File, OpenError> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    loop {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = directory.join(format!("copal.{}.{number}", std::process::id()));
        let made = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path);
        match made {
            Ok(file) => {
                std::fs::remove_file(&path)
                    .map_err(|error| OpenError::Other("removing the name of", path, error))?;
                return Ok(file);
            }
            // Left by one that was killed between the two.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(OpenError::Open(directory.to_owned(), error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::Advice;

    /// A directory that goes with the test.
    struct Directory(PathBuf);

    impl Directory {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("copal-open-{name}.{}", std::process::id()));
            std::fs::create_dir_all(&path).expect("the test may make a directory");
            Self(path)
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn options(path: PathBuf, size: Option<FileSize>) -> FileOptions {
        FileOptions { path, size, granularity: None, advice: Advice::default() }
    }

    /// What opening `name` in a new directory gives: the size, or how the refusal begins.
    fn check(name: &str, size: Option<FileSize>, granularity: Option<u64>, expected: Result<u64, &str>) {
        let directory = Directory::new("check");
        let options = FileOptions { granularity, ..options(directory.0.join(name), size) };
        match (open(&options), expected) {
            (Ok(opened), Ok(size)) => {
                assert_eq!(opened.size, size);
                let about = opened.file.metadata().unwrap();
                assert!(about.len() == size && about.blocks() * 512 >= size, "the room is reserved");
            }
            (Err(error), Err(words)) => assert!(error.to_string().contains(words), "{error}"),
            (found, expected) => panic!("{found:?} in place of {expected:?}"),
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "needs the kernel's files")]
    fn files_are_made_and_sized_and_odd_ones_refused() {
        let bytes = |bytes| Some(FileSize::Bytes(bytes));
        check("new", bytes(1 << 20), None, Ok(1 << 20));
        check("", bytes(1 << 20), None, Ok(1 << 20));
        check("new", bytes((1 << 20) + 5_000), Some(8_192), Ok(1 << 20));
        check("new", None, None, Err("no size specified"));
        check("new", bytes(100), None, Err("did you forget"));
        check("new", bytes(1 << 60), None, Err("has no room for 1152921504606846976 bytes"));
        check("no/such", bytes(1 << 20), None, Err("cannot be opened or made"));
        check("new", Some(FileSize::Percent(0.0)), None, Err("0% is no size"));
        check("new", Some(FileSize::Percent(101.0)), None, Err("101% is no size"));
        for granularity in [0, 100, 5_000, 1 << 31] {
            check("new", bytes(1 << 20), Some(granularity), Err("give a power of two from"));
        }
        assert!(matches!(open(&options("/dev/null".into(), None)), Err(OpenError::Kind(_))));
    }

    #[test]
    #[cfg_attr(miri, ignore = "needs the kernel's files")]
    fn a_file_is_used_again_but_not_twice_at_once() {
        let directory = Directory::new("again");
        let path = directory.0.join("store");
        let first = open(&options(path.clone(), Some(FileSize::Bytes(1 << 20)))).unwrap();
        assert!(matches!(open(&options(path.clone(), None)), Err(OpenError::Taken(_))));
        drop(first);
        assert_eq!(open(&options(path.clone(), None)).unwrap().size, 1 << 20);
        let smaller = open(&options(path.clone(), Some(FileSize::Bytes(1 << 16)))).unwrap();
        assert_eq!(smaller.file.metadata().unwrap().len(), 1 << 16);
        drop(smaller);
        let in_directory = open(&options(directory.0.clone(), Some(FileSize::Bytes(1 << 16)))).unwrap();
        let names = std::fs::read_dir(&directory.0).unwrap().count();
        assert_eq!((names, in_directory.size), (1, 1 << 16), "it has no name");
    }

    #[test]
    fn a_share_is_of_what_is_free() {
        let share = |percent| wanted(Some(FileSize::Percent(percent)), 0, 1_000).map(Result::ok);
        assert_eq!(
            (share(90.0), share(100.0), share(-1.0)),
            (Some(Some(900)), Some(Some(1_000)), Some(None))
        );
        assert!(wanted(None, 0, 1_000).is_none());
    }
}
