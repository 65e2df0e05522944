//! What the meaning of `-s` depends on besides its words.

use std::fs::File;
use std::io::{self, Read as _};

/// The longest file that is read.
const FILE_MAX: u64 = 1 << 20;

/// The machine that the stores are for.
pub(crate) struct Machine<'a> {
    /// Bytes of memory that this process may come to use.
    pub(crate) memory: u64,
    /// Reads a file that an argument names.
    pub(crate) read: &'a dyn Fn(&str) -> io::Result<String>,
}

impl Machine<'static> {
    /// This one.
    pub(crate) fn this() -> Self {
        Self { memory: memory(), read: &read }
    }
}

fn read(path: &str) -> io::Result<String> {
    let mut text = String::new();
    let length = File::open(path)?.take(FILE_MAX + 1).read_to_string(&mut text)? as u64;
    match length > FILE_MAX {
        true => Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("longer than {FILE_MAX} bytes"))),
        false => Ok(text),
    }
}

/// What the machine has, or what the group of processes that this one is in may use of it.
fn memory() -> u64 {
    let about = rustix::system::sysinfo();
    let total = (about.totalram as u64).saturating_mul(u64::from(about.mem_unit));
    // Of this group and those above it the smallest counts; within a container there is just the one at the top.
    let group = read("/proc/self/cgroup").ok().and_then(|text| own_group(&text).map(str::to_owned));
    let limits = std::path::Path::new("/sys/fs/cgroup").join(group.as_deref().unwrap_or_default());
    let limits = limits.ancestors().take_while(|path| path.starts_with("/sys/fs/cgroup"));
    let limits = limits.filter_map(|path| read(path.join("memory.max").to_str()?).ok()?.trim().parse().ok());
    limits.fold(total, u64::min)
}

/// The path of the group in the unified hierarchy, without the slash before it.
fn own_group(text: &str) -> Option<&str> {
    text.lines().find_map(|line| line.strip_prefix("0::/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_some_memory() {
        assert!((16 << 20..1 << 50).contains(&memory()), "{}", memory());
        assert_eq!(own_group("1:name=systemd:/x\n0::/a/b\n"), Some("a/b"));
        assert_eq!(own_group("0::/\n"), Some(""));
        assert_eq!(own_group(""), None);
    }

    #[test]
    fn files_are_read_to_a_bound() {
        assert_eq!(read("/dev/zero").unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(read("/nonexistent/mse.conf").unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
