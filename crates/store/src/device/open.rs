//! Opening a device: found or made, taken for one process alone, its room set aside, and refused where it would not keep
//! what it is given.

use super::error::OpenError;
use rustix::fs::{FallocateFlags, FlockOperation, OFlags};
use std::fs::{File, Metadata};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// File systems that are memory: what `statfs(2)` calls them, and their names.
const MEMORY: [(u32, &str); 2] = [(0x0102_1994, "tmpfs"), (0x8584_58f6, "ramfs")];
/// How often it is looked whether a lock has been let go of.
const LOOK: Duration = Duration::from_millis(50);
/// The most that is read of the kernel's list of locks.
const LOCKS_MAX: u64 = 4 << 20;

/// What a device is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenOptions {
    /// Its size in bytes. `None`: the size that it has. Of a block device this may be a part.
    pub size: Option<u64>,
    /// The least size that is of use, in bytes.
    pub size_min: u64,
    /// Whether it must outlive a restart of the machine: then it is not made of memory.
    pub survives: bool,
    /// How long another process may take to let go of it: one that was killed may still be ending.
    pub patience: Duration,
}

/// Which files were opened, and by which names, so that none is opened twice.
#[derive(Debug, Default)]
pub struct Taken(Vec<(Identity, PathBuf)>);

/// What a file is told from all others by, whatever its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Identity {
    /// File system and number there.
    File { device: u64, inode: u64 },
    /// A block device may have several files that name it.
    BlockDevice(u64),
}

impl Identity {
    fn of(about: &Metadata) -> Self {
        match about.file_type().is_block_device() {
            true => Self::BlockDevice(about.rdev()),
            false => Self::File { device: about.dev(), inode: about.ino() },
        }
    }
}

impl Taken {
    /// The name by which it was opened before.
    fn find(&self, about: &Metadata) -> Option<&Path> {
        let identity = Identity::of(about);
        self.0.iter().find(|(other, _)| *other == identity).map(|(_, path)| path.as_path())
    }

    fn insert(&mut self, about: &Metadata, path: &Path) {
        self.0.push((Identity::of(about), path.to_owned()));
    }
}

/// See [`FileDevice::open`](super::FileDevice::open): the file, and how much of it is used.
pub(super) fn open(path: &Path, options: &OpenOptions, taken: &mut Taken) -> Result<(File, u64), OpenError> {
    let about = match std::fs::metadata(path) {
        Ok(about) => about,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return make(path, options, taken),
        Err(error) => return Err(OpenError::of(error, "looking at", path, 0)),
    };
    if let Some(first) = taken.find(&about) {
        return Err(OpenError::Twice { path: path.to_owned(), first: first.to_owned() });
    }
    let kind = about.file_type();
    let opened = match () {
        () if kind.is_file() => take_file(path, options)?,
        () if kind.is_block_device() => take_block_device(path, options)?,
        () if kind.is_dir() => return Err(OpenError::IsFolder { path: path.to_owned() }),
        () => return Err(OpenError::Unsuitable { path: path.to_owned() }),
    };
    taken.insert(&about, path);
    Ok(opened)
}

fn make(path: &Path, options: &OpenOptions, taken: &mut Taken) -> Result<(File, u64), OpenError> {
    let folder = match path.parent() {
        Some(folder) if folder.as_os_str().is_empty() => Path::new("."),
        Some(folder) => folder,
        None => Path::new("/"),
    };
    let fail = |error, doing| OpenError::of(error, doing, path, options.size.unwrap_or(0));
    // The folder first: what is wrong with it is not what is wrong with the file.
    let opened_folder = File::open(folder).map_err(|error| fail(error, "looking into the folder of"))?;
    let size = options.size.ok_or_else(|| OpenError::NoSize { path: path.to_owned() })?;
    look_at_file_system(&opened_folder, path, options)?;
    check_size(path, size, options)?;
    check_room(&opened_folder, path, size)?;
    let made = std::fs::OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path);
    let file = made.map_err(|error| fail(error, "making"))?;
    let about = file.metadata().map_err(|error| fail(error, "looking at"))?;
    let filled = lock(&file, path, options.patience)
        .and_then(|()| reserve(&file, path, size))
        .and_then(|()| file.sync_all().map_err(|error| fail(error, "writing")));
    if let Err(error) = filled {
        // What was reserved would only keep the file system full.
        let _ = std::fs::remove_file(path);
        return Err(error);
    }
    // Its name is to survive, too. A folder that cannot be synced is one whose names need no syncing.
    let _ = opened_folder.sync_all();
    taken.insert(&about, path);
    Ok((file, size))
}

fn take_file(path: &Path, options: &OpenOptions) -> Result<(File, u64), OpenError> {
    let fail = |error, doing| OpenError::of(error, doing, path, options.size.unwrap_or(0));
    let opened = std::fs::OpenOptions::new().read(true).write(true).open(path);
    let file = opened.map_err(|error| fail(error, "opening"))?;
    look_at_file_system(&file, path, options)?;
    lock(&file, path, options.patience)?;
    let about = file.metadata().map_err(|error| fail(error, "looking at"))?;
    let size = match (about.len(), options.size) {
        // Made by somebody who left the rest to us, or by one of us who was killed before it had its size.
        (0, size) => size.ok_or_else(|| OpenError::NoSize { path: path.to_owned() })?,
        (found, Some(given)) if found != given => {
            let path = path.to_owned();
            return Err(OpenError::OtherSize { path, found, given, is_block_device: false });
        }
        (found, _) => found,
    };
    check_size(path, size, options)?;
    // Blocks are told in units of 512 bytes, whatever the device has.
    let missing = size.saturating_sub(about.blocks().saturating_mul(512));
    if missing > 0 {
        check_room(&file, path, missing)?;
        reserve(&file, path, size)?;
        file.sync_all().map_err(|error| fail(error, "writing"))?;
    }
    Ok((file, size))
}

fn take_block_device(path: &Path, options: &OpenOptions) -> Result<(File, u64), OpenError> {
    let fail = |error, doing| OpenError::of(error, doing, path, 0);
    // Of a block device this means: nobody else, not even a file system.
    let alone = i32::try_from(OFlags::EXCL.bits()).expect("the flags of open(2) are an int");
    let opened = std::fs::OpenOptions::new().read(true).write(true).custom_flags(alone).open(path);
    let mut file = opened.map_err(|error| fail(error, "opening"))?;
    let about = file.metadata().map_err(|error| fail(error, "looking at"))?;
    if is_read_only(about.rdev()) {
        return Err(OpenError::ReadOnlyDevice { path: path.to_owned() });
    }
    lock(&file, path, options.patience)?;
    let found = file.seek(SeekFrom::End(0)).map_err(|error| fail(error, "measuring"))?;
    let size = match options.size {
        Some(given) if given > found => {
            let path = path.to_owned();
            return Err(OpenError::OtherSize { path, found, given, is_block_device: true });
        }
        Some(given) => given,
        None => found,
    };
    check_size(path, size, options)?;
    Ok((file, size))
}

/// Whether the kernel says that the block device cannot be written. To open it for that may succeed all the same.
fn is_read_only(device: u64) -> bool {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let said = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/ro"));
    said.is_ok_and(|said| said.trim() == "1")
}

fn check_size(path: &Path, size: u64, options: &OpenOptions) -> Result<(), OpenError> {
    if size < options.size_min {
        return Err(OpenError::TooSmall { path: path.to_owned(), size, size_min: options.size_min });
    }
    // The kernel would end the process for writing beyond its limit, and not say why.
    let limit = rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
    match limit {
        Some(limit) if size > limit => Err(OpenError::TooLong { path: path.to_owned(), size }),
        _ => Ok(()),
    }
}

/// Refuses a file system that is memory, where that matters.
fn look_at_file_system(file: &File, path: &Path, options: &OpenOptions) -> Result<(), OpenError> {
    let about = rustix::fs::fstatfs(file);
    let about =
        about.map_err(|error| OpenError::of(error.into(), "looking at the file system of", path, 0))?;
    // The type is of another width and sign from one architecture to the next; the names are 32 bits.
    let found = about.f_type as u32;
    match MEMORY.into_iter().find(|(kind, _)| *kind == found) {
        Some((_, kind)) if options.survives => Err(OpenError::InMemory { path: path.to_owned(), kind }),
        _ => Ok(()),
    }
}

fn check_room(file: &File, path: &Path, wanted: u64) -> Result<(), OpenError> {
    let about = rustix::fs::fstatvfs(file);
    let about =
        about.map_err(|error| OpenError::of(error.into(), "looking at the file system of", path, 0))?;
    let free = about.f_bavail.saturating_mul(about.f_frsize);
    match wanted > free {
        true => Err(OpenError::NoRoom { path: path.to_owned(), wanted, free: Some(free) }),
        false => Ok(()),
    }
}

/// Sets room aside for `size` bytes and gives the file that size. The size comes last, at once: a file that was left behind
/// half way has none, and is taken for a new one.
fn reserve(file: &File, path: &Path, size: u64) -> Result<(), OpenError> {
    let fail = |error| OpenError::of(error, "setting room aside for", path, size);
    loop {
        match rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, 0, size) {
            Ok(()) => break,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(fail(error.into())),
        }
    }
    let has = file.metadata().map_err(fail)?.len();
    if has < size { file.set_len(size).map_err(fail) } else { Ok(()) }
}

/// Takes a file for this process alone. One that has it and runs is refused at once; one that was killed, or who has copies of
/// its descriptors, is waited for as long as `patience`.
fn lock(file: &File, path: &Path, patience: Duration) -> Result<(), OpenError> {
    let mut waited = Duration::ZERO;
    loop {
        match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(()),
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let owner = file.metadata().ok().and_then(|about| owner_of_lock(&about));
                let process = owner.filter(|process| is_running(*process));
                if process.is_some() || waited >= patience {
                    return Err(OpenError::InUse { path: path.to_owned(), process });
                }
                std::thread::sleep(LOOK);
                waited += LOOK;
            }
            Err(error) => return Err(OpenError::of(error.into(), "locking", path, 0)),
        }
    }
}

/// Which process has locked the file, where the kernel says so.
fn owner_of_lock(about: &Metadata) -> Option<u32> {
    let mut list = String::new();
    File::open("/proc/locks").ok()?.take(LOCKS_MAX).read_to_string(&mut list).ok()?;
    let (major, minor) = (rustix::fs::major(about.dev()), rustix::fs::minor(about.dev()));
    find_owner(&list, &format!("{major:02x}:{minor:02x}:{}", about.ino()))
}

/// The owner of the lock on `file`, a place as `/proc/locks` names it.
fn find_owner(list: &str, file: &str) -> Option<u32> {
    list.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, "FLOCK", _, _, process, place, ..] = words[..] else { return None };
        // Of other containers the number is 0.
        (place == file).then(|| process.parse().ok()).flatten().filter(|process| *process > 0)
    })
}

/// Whether the process is there and not on its way out.
fn is_running(process: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // The second word is its name, in parentheses, and may have any in it; the third is its state.
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

#[cfg(test)]
pub(super) mod testing {
    use super::*;
    use std::hash::{BuildHasher as _, RandomState};

    /// A folder that goes with the test.
    pub(in super::super) struct Folder(PathBuf);

    impl Folder {
        pub(in super::super) fn new() -> Self {
            Self::within(&std::env::temp_dir())
        }

        /// The number is of this one alone: a run that was killed leaves its files.
        pub(in super::super) fn within(parent: &Path) -> Self {
            let path = parent.join(format!("copal-device-{}", RandomState::new().hash_one(())));
            std::fs::create_dir_all(&path).expect("a test may make a folder");
            Self(path)
        }

        pub(in super::super) fn path(&self, name: &str) -> PathBuf {
            self.0.join(name)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    pub(in super::super) fn options(size: u64) -> OpenOptions {
        // The folder of temporary files may be memory.
        OpenOptions { size: Some(size), size_min: 0, survives: false, patience: Duration::ZERO }
    }
}

#[cfg(test)]
#[cfg(not(miri))]
mod tests {
    use super::testing::{Folder, options};
    use super::*;

    const SIZE: u64 = 1 << 20;

    /// What opening `path` gives: the size, or the refusal with the folder's name left out.
    fn opened(folder: &Folder, path: &Path, options: &OpenOptions) -> Result<u64, String> {
        open(path, options, &mut Taken::default())
            .map(|(file, size)| {
                let about = file.metadata().unwrap();
                assert_eq!(about.len(), size);
                assert!(about.blocks() * 512 >= size, "the room is set aside");
                assert_eq!(about.mode() & 0o077, 0, "what clients were given is nobody else's");
                size
            })
            .map_err(|error| error.to_string().replace(&folder.path("").display().to_string(), ""))
    }

    fn check(name: &str, change: impl FnOnce(&mut OpenOptions), expected: Result<u64, &str>) {
        let folder = Folder::new();
        std::fs::create_dir(folder.path("folder")).unwrap();
        let private = |name: &str| {
            let mut made = std::fs::OpenOptions::new();
            made.write(true).create(true).truncate(true).mode(0o600).open(folder.path(name)).unwrap()
        };
        private("empty");
        private("sparse").set_len(SIZE).unwrap();
        private("short").set_len(SIZE / 2).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, folder.path("pipe"), rustix::fs::Mode::RWXU).unwrap();
        std::os::unix::fs::symlink(folder.path("sparse"), folder.path("link")).unwrap();
        let mut options = options(SIZE);
        change(&mut options);
        let found = opened(&folder, &folder.path(name), &options);
        assert_eq!(found.as_ref().map_err(String::as_str), expected.as_ref().map_err(|text| *text), "{name}");
        if found.is_err() {
            assert!(!folder.path("new").exists(), "nothing is left behind");
        }
    }

    #[test]
    fn files_are_made_or_taken() {
        for name in ["new", "empty", "sparse", "link"] {
            check(name, |_| (), Ok(SIZE));
        }
        check("short", |options| options.size = None, Ok(SIZE / 2));
    }

    #[test]
    fn refusals_say_what_to_do() {
        check("folder", |_| (), Err("\"folder\" is a folder: name a file in it, as folder/copal.store"));
        check(
            "missing/store",
            |_| (),
            Err("\"missing/store\": there is no folder missing: make it first (mkdir -p missing)"),
        );
        check(
            "empty/store",
            |_| (),
            Err("\"empty/store\": there is no folder empty: make it first (mkdir -p empty)"),
        );
        check("pipe", |_| (), Err("\"pipe\" is neither a file nor a block device: name one of these"));
        check(
            "short",
            |_| (),
            Err("\"short\" has 512k, not 1M: give that size, or remove the file, with all that it keeps"),
        );
        let no_size = |name| format!("\"{name}\" has no size yet, and none is given: add one, as 10G");
        for name in ["new", "empty"] {
            check(name, |options| options.size = None, Err(&no_size(name)));
        }
        for name in ["new", "sparse"] {
            let text = format!("\"{name}\" has 1M, which is too small: give it at least 64M");
            check(name, |options| options.size_min = 64 << 20, Err(&text));
        }
    }

    #[test]
    fn more_than_there_is_room_for_is_refused_before_anything_is_made() {
        let folder = Folder::new();
        let error = opened(&folder, &folder.path("new"), &options(1 << 60)).unwrap_err();
        assert!(
            error.starts_with("\"new\": the file system has no room for 1024P more, ")
                && error.ends_with(" is free: give a smaller size, or make room")
                || error.contains("a file may not have 1024P there"),
            "{error}"
        );
        assert!(!folder.path("new").exists());
    }

    #[test]
    fn memory_is_refused_where_it_must_survive() {
        let memory = Path::new("/dev/shm");
        let is_memory = rustix::fs::statfs(memory).is_ok_and(|about| about.f_type as u32 == MEMORY[0].0);
        if !is_memory {
            return;
        }
        let folder = Folder::within(memory);
        let survives = OpenOptions { survives: true, ..options(SIZE) };
        let refused = "\"new\" is on tmpfs, which is memory and would not survive a restart: \
                       use malloc, or name a file on a disk";
        assert_eq!(opened(&folder, &folder.path("new"), &survives), Err(refused.to_owned()));
        assert_eq!(opened(&folder, &folder.path("new"), &options(SIZE)), Ok(SIZE));
        assert_eq!(opened(&folder, &folder.path("new"), &survives), Err(refused.to_owned()));
    }

    #[test]
    fn what_another_has_is_refused() {
        let folder = Folder::new();
        let path = folder.path("store");
        let first = open(&path, &options(SIZE), &mut Taken::default()).unwrap();
        match open(&path, &options(SIZE), &mut Taken::default()) {
            Err(OpenError::InUse { process, .. }) => {
                assert!(process.is_none_or(|process| process == std::process::id()), "{process:?}");
            }
            other => panic!("{other:?}"),
        }
        drop(first);
        assert!(open(&path, &options(SIZE), &mut Taken::default()).is_ok());
    }

    #[test]
    fn this_process_runs() {
        assert!(is_running(std::process::id()));
        // Numbers are below this.
        assert!(!is_running(1 << 22 | 1));
    }

    #[test]
    fn one_file_is_not_opened_twice_by_whatever_name() {
        let folder = Folder::new();
        let mut taken = Taken::default();
        let _first = open(&folder.path("store"), &options(SIZE), &mut taken).unwrap();
        std::fs::hard_link(folder.path("store"), folder.path("hard")).unwrap();
        std::os::unix::fs::symlink(folder.path("store"), folder.path("soft")).unwrap();
        for name in ["store", "hard", "soft"] {
            let error = open(&folder.path(name), &options(SIZE), &mut taken).unwrap_err();
            assert!(
                matches!(&error, OpenError::Twice { first, .. } if *first == folder.path("store")),
                "{error}"
            );
        }
        assert!(open(&folder.path("other"), &options(SIZE), &mut taken).is_ok());
    }

    #[test]
    fn the_owner_of_a_lock_is_found_in_the_list() {
        let list = "1: POSIX  ADVISORY  WRITE 10 fd:00:77 0 EOF\n2: FLOCK  ADVISORY  WRITE 11 fd:00:78 0 EOF\n\
                    2: -> FLOCK  ADVISORY  WRITE 12 fd:00:77 0 EOF\n3: FLOCK  ADVISORY  WRITE 13 fd:00:77 0 EOF\n\
                    4: FLOCK  ADVISORY  WRITE 0 fd:00:79 0 EOF\nodd\n";
        for (file, owner) in
            [("fd:00:77", Some(13)), ("fd:00:78", Some(11)), ("fd:00:79", None), ("fd:00:7", None)]
        {
            assert_eq!(find_owner(list, file), owner, "{file}");
        }
    }
}
