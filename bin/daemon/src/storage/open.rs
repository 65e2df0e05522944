//! Opening what stores are kept on, by the manager: with its rights, before it gives them up, and once for all workers.
//!
//! Devices are opened and locked, and stay the manager's; a worker gets copies of their descriptors. So its user needs no
//! rights to them, a start loses no lock, and a second daemon is refused while this one has no worker, too. The file of
//! `-s file` keeps nothing and is opened by each worker itself; its user is given it here.

use super::error::Failure;
use super::words::SIZE_MIN;
use super::{FileSpec, Kind, Spec, memory_default};
use crate::jail::Jail;
use copal_store as store;
use std::io;
use std::path::Path;
use std::time::Duration;
use store::File;
use store::device::{Device as _, FileDevice, OpenOptions, Taken};
use store::volume::Volume;

/// How long a daemon that was killed may take to let go of its files: its memory is given back first.
const PATIENCE: Duration = Duration::from_secs(10);

/// Opens all that `specs` name, in the order of [`Spec::devices`]. Afterwards paths are absolute, devices have sizes, and
/// stores on devices have a size of memory.
///
/// # Errors
/// [`Failure`], of the first that cannot be had. Files made for others before it stay.
pub(crate) fn open(specs: &mut [Spec], jail: Jail) -> Result<Vec<FileDevice>, Failure> {
    open_within(specs, jail, PATIENCE)
}

fn open_within(specs: &mut [Spec], jail: Jail, patience: Duration) -> Result<Vec<FileDevice>, Failure> {
    let mut taken = Taken::default();
    let mut opened = Vec::new();
    for spec in specs {
        let word = spec.word.clone();
        let before = opened.len();
        let asked = spec.clone();
        for device in spec.devices_mut() {
            device.path = absolute(&device.path, &word)?;
            let volume = |source| {
                let path = device.path.display().to_string();
                Failure::Volume { kind: word.clone(), path, source }
            };
            if let Some(size) = device.size {
                // Before a file of that size is made.
                Volume::check_size(size, &asked.volume_options(size)).map_err(volume)?;
            }
            let options = OpenOptions { size: device.size, size_min: SIZE_MIN, survives: true, patience };
            let found = FileDevice::open(&device.path, &options, &mut taken)
                .map_err(|source| Failure::Open { kind: word.clone(), source })?;
            Volume::check_device(&found, &asked.volume_options(found.size())).map_err(volume)?;
            device.size = Some(found.size());
            opened.push(found);
        }
        let size = opened[before..].iter().map(FileDevice::size).fold(0, u64::saturating_add);
        match &mut spec.kind {
            Kind::Memory { .. } => {}
            Kind::File(file) => give_to_worker(file, &word, jail)?,
            Kind::Persistent(spec) => _ = spec.memory.get_or_insert(memory_default(size)),
            Kind::Tiers(spec) => _ = spec.memory.get_or_insert(memory_default(size)),
        }
    }
    Ok(opened)
}

fn fail(source: io::Error, doing: &'static str, path: &Path, kind: &str) -> Failure {
    Failure::Io { kind: kind.to_owned(), doing, path: path.display().to_string(), source }
}

/// What is meant from where the daemon was started: later it is elsewhere.
fn absolute(path: &Path, kind: &str) -> Result<std::path::PathBuf, Failure> {
    std::path::absolute(path).map_err(|error| fail(error, "looking for", path, kind))
}

/// Makes the file of `-s file` for the user that will open it.
fn give_to_worker(file: &mut FileSpec, kind: &str, jail: Jail) -> Result<(), Failure> {
    file.path = absolute(&file.path, kind)?;
    File::check(&super::build::file_options(file))
        .map_err(|source| Failure::File { kind: kind.to_owned(), source })?;
    if jail == Jail::None {
        return Ok(());
    }
    if !jail.worker_reaches(&file.path) {
        let path = file.path.display().to_string();
        return Err(Failure::Unreachable { kind: kind.to_owned(), path });
    }
    // In a folder, the worker makes a file without a name, if it may.
    if file.path.is_dir() {
        return Ok(());
    }
    jail.worker_file(&file.path).map_err(|error| fail(error, "making", &file.path, kind))
}

#[cfg(test)]
mod tests {
    use super::super::{Machine, parse_all};
    use super::*;
    use std::hash::{BuildHasher as _, RandomState};
    use std::path::PathBuf;

    /// A folder on a file system that is no memory, which that of temporary files may be.
    struct Folder(PathBuf);

    impl Folder {
        /// The number is of this one alone: a run that was killed leaves its files.
        fn new() -> Self {
            let parent = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
            let path = parent.join(format!("copald-stores-{}", RandomState::new().hash_one(())));
            std::fs::create_dir_all(&path).expect("a test may make a folder");
            Self(std::fs::canonicalize(path).expect("it was made"))
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    /// The paths and sizes opened for the arguments, in which `@` is a folder that was made for them, or the refusal.
    fn check(arguments: &[&str], expected: Result<&[(&str, u64)], &str>) -> Vec<Spec> {
        let folder = Folder::new();
        std::fs::write(folder.0.join("foreign"), vec![1; 2 << 20]).expect("the folder was made");
        let name = folder.0.display().to_string();
        let arguments: Vec<String> = arguments.iter().map(|argument| argument.replace('@', &name)).collect();
        let machine = Machine { memory: 1 << 30, read: &|_| Err(io::ErrorKind::NotFound.into()) };
        let mut specs = parse_all(&arguments, &machine).unwrap().specs;
        let opened = open_within(&mut specs, Jail::None, Duration::ZERO);
        let found = opened.map(|devices| {
            let row = |device: &FileDevice| {
                (device.path().display().to_string().replace(&name, "@"), device.size())
            };
            devices.iter().map(row).collect::<Vec<_>>()
        });
        let found = found.map_err(|error| error.to_string().replace(&name, "@"));
        let expected = expected
            .map(|rows| rows.iter().map(|&(path, size)| (path.to_owned(), size)).collect::<Vec<_>>())
            .map_err(str::to_owned);
        assert_eq!(found, expected, "{arguments:?}");
        specs
    }

    #[test]
    fn devices_are_opened_in_order_and_told_their_sizes() {
        let specs = check(
            &["malloc", "persistent,@/a,16M", "tier,slow=@/c:3M,fast=@/b:2M"],
            Ok(&[("@/a", 16 << 20), ("@/b", 2 << 20), ("@/c", 3 << 20)]),
        );
        let Kind::Persistent(spec) = &specs[1].kind else { panic!("{specs:?}") };
        assert_eq!((spec.memory, spec.device.size), (Some(4 << 20), Some(16 << 20)));
        let Kind::Tiers(spec) = &specs[2].kind else { panic!("{specs:?}") };
        assert_eq!(spec.memory, Some(5 << 18));
    }

    #[test]
    fn what_cannot_be_had_is_refused() {
        check(
            &["malloc", "persistent,@/foreign"],
            Err(
                "(-spersistent) \"@/foreign\": it holds something that is no Copal volume: give another path, or empty it first",
            ),
        );
        check(
            &["persistent,@/no/a,4M"],
            Err("(-spersistent) \"@/no/a\": there is no folder @/no: make it first (mkdir -p @/no)"),
        );
        check(
            &["persistent,@/a"],
            Err("(-spersistent) \"@/a\" has no size yet, and none is given: add one, as 10G"),
        );
        check(
            &["persistent,@/a,4M", "tier,fast=@/b:2M,fast=@/./a:4M"],
            Err("(-stier) \"@/a\" is given twice: give each store a file of its own"),
        );
        check(
            &["persistent,@/a,4M,region=1M"],
            Err("(-spersistent) \"@/a\": 4M is too small: give it at least 5M"),
        );
        check(
            &["persistent,@,4M"],
            Err("(-spersistent) \"@\" is a folder: name a file in it, as @/copal.store"),
        );
    }

    #[test]
    fn the_default_of_memory_is_a_quarter_within_bounds() {
        for (size, memory) in [(0, 1 << 20), (1 << 20, 1 << 20), (1 << 30, 256 << 20), (1 << 40, 1 << 30)] {
            assert_eq!(memory_default(size), memory, "{size}");
        }
    }
}
