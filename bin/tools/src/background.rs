//! `-D` and `-P`: going to the background, and the file with the process's number.

use crate::Failure;
use copal_base::reason;
use copal_observe::process::{Side, detach};
use rustix::fs::{FlockOperation, flock};
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};

/// The file with the process's number, locked while this value lives, and removed with it.
pub(crate) struct ProcessFile(Option<(PathBuf, File)>);

impl Drop for ProcessFile {
    fn drop(&mut self) {
        if let Some((path, _)) = &self.0 {
            // It may have been removed by whoever stops us.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Opens and locks the file, goes to the background if asked, and writes the number. None for the process that stays in
/// front: it ends now.
pub(crate) fn start(daemon: bool, path: Option<&Path>) -> Result<Option<ProcessFile>, Failure> {
    let file = path.map(open).transpose()?;
    if daemon {
        match detach().map_err(|error| Failure::Text(format!("background: {}", reason(&error))))? {
            Side::Front => return Ok(None),
            Side::Back => let_go()?,
        }
    }
    let Some((path, mut file)) = file else { return Ok(Some(ProcessFile(None))) };
    let written =
        file.set_len(0).and_then(|()| file.rewind()).and_then(|()| writeln!(file, "{}", std::process::id()));
    written.map_err(|error| Failure::Text(format!("{}: {}", path.display(), reason(&error))))?;
    Ok(Some(ProcessFile(Some((path, file)))))
}

fn open(path: &Path) -> Result<(PathBuf, File), Failure> {
    let failed = |error: std::io::Error| Failure::Text(format!("{}: {}", path.display(), reason(&error)));
    // The file outlives a change of directory.
    let path = std::path::absolute(path).map_err(failed)?;
    let mut file =
        OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).map_err(failed)?;
    if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        let mut other = String::new();
        let _ = (&mut file).take(20).read_to_string(&mut other);
        return Err(Failure::Text(format!("{}: already running, pid: {}", path.display(), other.trim())));
    }
    Ok((path, file))
}

/// Lets go of the terminal.
fn let_go() -> Result<(), Failure> {
    let null = OpenOptions::new().read(true).write(true).open("/dev/null")?;
    for point in [
        rustix::stdio::dup2_stdin(&null),
        rustix::stdio::dup2_stdout(&null),
        rustix::stdio::dup2_stderr(&null),
    ] {
        point.map_err(std::io::Error::from)?;
    }
    Ok(())
}
