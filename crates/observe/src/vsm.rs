//! The index of shared memory: which segments a process offers, as Varnish 7.1 keeps it.
//!
//! ```text
//! <-n directory>/_.vsm_mgt/    the manager's segments   (arguments, MGT counters)
//!                _.vsm_child/  the worker's segments    (the log, counters)
//!                  _.index          "# pid birth", then lines "+ file offset size class ident" and "- ..."
//!                  _.Log.0123...    one file a segment
//! ```
//! A line is added by one append after the segment is complete, and is taken back by the same line with `-`; when most
//! lines are dead the index is written anew beside the old one and renamed over it, which readers see by its inode.

use crate::map::{Foreign, Mapping};
use parking_lot::Mutex;
use std::fmt::Write as _;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// The manager's part.
pub const MANAGER: &str = "_.vsm_mgt";
/// The worker's part.
pub const WORKER: &str = "_.vsm_child";

const INDEX: &str = "_.index";
/// Where instances with a relative name live.
pub const STATE: &str = "/var/lib/varnish";
/// Dead lines are tolerated up to this many.
const DEAD_MAX: usize = 16;
/// No index that is sane is longer; a longer one is not read.
const INDEX_BYTES_MAX: u64 = 64 << 20;

/// The name in it where none is given, as Varnish 7.1's tools have it.
const DEFAULT_NAME: &str = "varnishd";
/// Overrides the default.
const DEFAULT_VARIABLE: &str = "VARNISH_DEFAULT_N";

/// The directory that `-n` means: an absolute path is itself, a name is below `/var/lib/varnish`; without one, the
/// environment's `VARNISH_DEFAULT_N`, else `varnishd` there. An empty name is none.
pub fn work_directory(name: Option<&str>) -> PathBuf {
    locate(name, std::env::var(DEFAULT_VARIABLE).ok().as_deref())
}

fn locate(name: Option<&str>, variable: Option<&str>) -> PathBuf {
    let given = [name, variable].into_iter().flatten().find(|name| !name.is_empty());
    Path::new(STATE).join(given.unwrap_or(DEFAULT_NAME))
}

/// One line of an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The segment's file, a plain name in the same directory.
    pub file: String,
    /// Where in the file it begins.
    pub offset: usize,
    /// How many bytes it has.
    pub size: usize,
    /// What kind of segment: `Log`, `Stat`, `StatDoc`, `Arg`...
    pub class: String,
    /// Which one of its kind; may be empty.
    pub ident: String,
}

impl Entry {
    fn line(&self, sign: char) -> String {
        format!("{sign} {} {} {} {} {}\n", self.file, self.offset, self.size, self.class, self.ident)
    }
}

/// The segments that this process offers under one of the two names.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    head: String,
    index: Mutex<Live>,
}

#[derive(Debug, Default)]
struct Live {
    entries: Vec<Entry>,
    dead: usize,
    serial: u64,
}

impl Directory {
    /// Makes `part` ([`MANAGER`] or [`WORKER`]) of the work directory anew; what a predecessor left there is removed.
    ///
    /// # Errors
    /// The file that could not be made, and why.
    pub fn create(work_directory: &Path, part: &str) -> io::Result<Arc<Directory>> {
        let path = work_directory.join(part);
        clear(&path).map_err(|error| at(&path, &error))?;
        let birth = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let head = format!("# {} {birth}\n", std::process::id());
        let directory = Directory { path, head, index: Mutex::default() };
        directory.rewrite(&mut directory.index.lock())?;
        Ok(Arc::new(directory))
    }

    /// Adds a segment of `size` bytes, zeroed and then filled by `fill` before anyone can find it. It goes when the
    /// returned value is dropped. Blanks in `ident` become underscores, as the index is split at blanks.
    ///
    /// # Errors
    /// The file that could not be made, and why.
    pub fn add(
        self: &Arc<Self>,
        class: &str,
        ident: &str,
        size: usize,
        fill: impl FnOnce(&Mapping),
    ) -> io::Result<Segment> {
        let mut index = self.index.lock();
        let (file, name) = self.create_file(class, &mut index.serial)?;
        let mapping = Mapping::create(&file, size).map_err(|error| at(&self.path.join(&name), &error))?;
        fill(&mapping);
        let ident = ident.replace(|c: char| c.is_whitespace() || c.is_control(), "_");
        let entry = Entry { file: name, offset: 0, size, class: class.to_owned(), ident };
        self.append(&entry.line('+'))?;
        index.entries.push(entry.clone());
        drop(index);
        Ok(Segment { mapping: Arc::new(mapping), entry, directory: Arc::clone(self) })
    }

    fn create_file(&self, class: &str, serial: &mut u64) -> io::Result<(File, String)> {
        // Unique within this directory, which only this process writes to and which began empty.
        *serial += 1;
        let mixed =
            (serial.wrapping_add(u64::from(std::process::id()) << 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let name = format!("_.{class}.{mixed:016x}");
        let path = self.path.join(&name);
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o640).open(&path);
        Ok((file.map_err(|error| at(&path, &error))?, name))
    }

    fn append(&self, line: &str) -> io::Result<()> {
        let path = self.path.join(INDEX);
        let mut index = OpenOptions::new().append(true).open(&path).map_err(|error| at(&path, &error))?;
        index.write_all(line.as_bytes()).map_err(|error| at(&path, &error))
    }

    fn rewrite(&self, index: &mut Live) -> io::Result<()> {
        let mut text = self.head.clone();
        for entry in &index.entries {
            text.push_str(&entry.line('+'));
        }
        let (fresh, path) = (self.path.join("_.index.new"), self.path.join(INDEX));
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o640)
            .open(&fresh)
            .map_err(|error| at(&fresh, &error))?;
        file.write_all(text.as_bytes()).map_err(|error| at(&fresh, &error))?;
        fs::rename(&fresh, &path).map_err(|error| at(&path, &error))?;
        index.dead = 0;
        Ok(())
    }

    fn list(&self, entry: &Entry) -> io::Result<()> {
        let mut index = self.index.lock();
        if index.entries.iter().all(|other| other.file != entry.file) {
            self.append(&entry.line('+'))?;
            index.entries.push(entry.clone());
        }
        Ok(())
    }

    fn unlist(&self, entry: &Entry) -> io::Result<()> {
        let mut index = self.index.lock();
        let before = index.entries.len();
        index.entries.retain(|other| other.file != entry.file);
        if index.entries.len() == before {
            return Ok(());
        }
        index.dead += 1;
        if index.dead > DEAD_MAX && index.dead > index.entries.len() {
            self.rewrite(&mut index)
        } else {
            self.append(&entry.line('-'))
        }
    }

    fn remove(&self, entry: &Entry) {
        // The directory may be gone already when the process ends: nobody is left to tell.
        let _ = self.unlist(entry);
        let _ = fs::remove_file(self.path.join(&entry.file));
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Removes what a process that died left of `part`. Nothing there is no error.
///
/// # Errors
/// It cannot be removed.
pub fn remove(work_directory: &Path, part: &str) -> io::Result<()> {
    let path = work_directory.join(part);
    match fs::remove_dir_all(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(at(&path, &error)),
        _ => Ok(()),
    }
}

/// One segment of ours; it leaves the index when dropped.
#[derive(Debug)]
pub struct Segment {
    mapping: Arc<Mapping>,
    entry: Entry,
    directory: Arc<Directory>,
}

impl Segment {
    /// Its memory.
    pub fn mapping(&self) -> &Arc<Mapping> {
        &self.mapping
    }

    /// Its line in the index.
    pub fn entry(&self) -> &Entry {
        &self.entry
    }

    /// Takes it out of the index, so that readers do not find it, or puts it back. Its memory stays as it is.
    ///
    /// # Errors
    /// The index cannot be written, and why.
    pub fn set_listed(&self, listed: bool) -> io::Result<()> {
        if listed { self.directory.list(&self.entry) } else { self.directory.unlist(&self.entry) }
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        self.directory.remove(&self.entry);
    }
}

/// An index as read from another process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Index {
    /// The process that offers the segments.
    pub process: u32,
    /// When it began, seconds since the epoch.
    pub birth: u64,
    /// What it offers, oldest first.
    pub entries: Vec<Entry>,
}

impl Index {
    /// Reads `part` of a work directory.
    ///
    /// # Errors
    /// `NotFound` if there is none; `InvalidData` if it is no index; else what the kernel says.
    pub fn read(work_directory: &Path, part: &str) -> io::Result<Index> {
        let path = work_directory.join(part).join(INDEX);
        let length = fs::metadata(&path).map_err(|error| at(&path, &error))?.len();
        if length > INDEX_BYTES_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("{}: too long", path.display())));
        }
        let text = fs::read_to_string(&path).map_err(|error| at(&path, &error))?;
        Index::parse(&text).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidData, format!("{}: not an index", path.display()))
        })
    }

    /// Reads an index's text; a last line without its end is one that is just being written, and is left for later.
    pub fn parse(text: &str) -> Option<Index> {
        let mut lines = text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
        let mut head = lines.next()?.strip_prefix("# ")?.split(' ');
        let mut index = Index {
            process: head.next()?.parse().ok()?,
            birth: head.next()?.parse().ok()?,
            entries: Vec::new(),
        };
        for line in lines {
            let (sign, rest) = line.split_at_checked(2)?;
            let entry = parse_entry(rest)?;
            match sign {
                "+ " => index.entries.push(entry),
                "- " => index.entries.retain(|other| *other != entry),
                _ => return None,
            }
        }
        Some(index)
    }

    /// Whether the process that wrote it still runs, as far as this process can see.
    pub fn is_alive(&self) -> bool {
        Path::new(&format!("/proc/{}", self.process)).exists()
    }

    /// The first segment of `class`.
    pub fn find(&self, class: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.class == class)
    }
}

fn parse_entry(text: &str) -> Option<Entry> {
    let mut words = text.splitn(5, ' ');
    let file = words.next()?.to_owned();
    if file.is_empty() || file.contains('/') {
        return None;
    }
    Some(Entry {
        file,
        offset: words.next()?.parse().ok()?,
        size: words.next()?.parse().ok()?,
        class: words.next()?.to_owned(),
        ident: words.next().unwrap_or_default().trim().to_owned(),
    })
}

/// Maps the file of `entry` for reading, and checks that the segment lies within it.
///
/// # Errors
/// What the kernel says, or `InvalidData` if the file is shorter than the index claims.
pub fn open_segment(work_directory: &Path, part: &str, entry: &Entry) -> io::Result<Foreign> {
    let path = work_directory.join(part).join(&entry.file);
    let mapping =
        File::open(&path).and_then(|file| Foreign::open(&file)).map_err(|error| at(&path, &error))?;
    if entry.offset.checked_add(entry.size).is_none_or(|end| end > mapping.len()) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("{}: shorter than its index says", path.display()),
        ));
    }
    Ok(mapping)
}

/// Empties or makes the directory; only names that a predecessor of ours would have used are removed.
fn clear(path: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o750).recursive(false).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        other => return other,
    }
    for file in fs::read_dir(path)? {
        let file = file?;
        if file.file_name().as_encoded_bytes().starts_with(b"_.") {
            fs::remove_file(file.path())?;
        }
    }
    Ok(())
}

fn at(path: &Path, error: &io::Error) -> io::Error {
    let mut text = String::new();
    let _ = write!(text, "{}: {error}", path.display());
    io::Error::new(error.kind(), text)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// A number of this run alone: one that was killed leaves its files.
    fn unique() -> u64 {
        use std::hash::{BuildHasher as _, RandomState};
        RandomState::new().hash_one(())
    }

    #[test]
    fn names_become_directories() {
        for (name, variable, expected) in [
            (None, None, "/var/lib/varnish/varnishd"),
            (None, Some("site"), "/var/lib/varnish/site"),
            (None, Some(""), "/var/lib/varnish/varnishd"),
            (Some("a"), Some("site"), "/var/lib/varnish/a"),
            (Some(""), Some("/tmp/site"), "/tmp/site"),
            (Some("/tmp/x"), None, "/tmp/x"),
        ] {
            assert_eq!(locate(name, variable), Path::new(expected));
        }
    }

    /// A directory of one test, removed with the value.
    pub(crate) struct Scratch(pub(crate) PathBuf);

    impl Scratch {
        pub(crate) fn new() -> Scratch {
            static NEXT: AtomicU32 = AtomicU32::new(0);
            let name = format!("copal-observe-{}-{}", unique(), NEXT.fetch_add(1, Ordering::Relaxed));
            let path = std::env::temp_dir().join(name);
            fs::create_dir(&path).unwrap();
            Scratch(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn segments_come_and_go() {
        let scratch = Scratch::new();
        let directory = Directory::create(&scratch.0, WORKER).unwrap();
        let first = directory.add("Arg", "-T", 16, |mapping| mapping.copy_in(0, b"hello\0")).unwrap();
        let mut others: Vec<_> =
            (0..40).map(|n| directory.add("Stat", &format!("X.{n} y"), 64, |_| {}).unwrap()).collect();
        let index = Index::read(&scratch.0, WORKER).unwrap();
        assert_eq!(index.entries.len(), 41);
        assert_eq!(index.process, std::process::id());
        assert!(index.is_alive());
        assert_eq!(index.entries[1].ident, "X.0_y");

        others.drain(..39);
        let index = Index::read(&scratch.0, WORKER).unwrap();
        assert_eq!(index.entries, [first.entry().clone(), others[0].entry().clone()]);
        let mapping = open_segment(&scratch.0, WORKER, &index.entries[0]).unwrap();
        let mut bytes = Vec::new();
        assert!(mapping.copy_out(0, 5, &mut bytes));
        assert_eq!(bytes, b"hello");
        assert!(!mapping.copy_out(10, 7, &mut bytes));

        drop((first, others, directory));
        assert!(!scratch.0.join(WORKER).exists());
    }

    #[test]
    fn an_index_is_not_trusted() {
        for text in
            ["", "# 1\n", "# x 1\n", "# 1 1\n+ a/b 0 1 C \n", "# 1 1\n+ a 0 -1 C x\n", "# 1 1\n* a 0 1 C x\n"]
        {
            assert_eq!(Index::parse(text), None, "{text}");
        }
        assert_eq!(Index::parse("# 1 1\n+ a 0 1 C x\n+ b 0").unwrap().entries.len(), 1);
    }
}
