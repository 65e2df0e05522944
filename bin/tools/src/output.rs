//! Where a tool's lines go: the standard output or a file.

use crate::Failure;
use copal_base::reason;
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// A buffered output, written out whenever there is nothing more to read for the moment.
pub(crate) struct Output {
    sink: BufWriter<Box<dyn Write>>,
    /// None for the standard output.
    path: Option<PathBuf>,
    /// What a file that is empty begins with.
    head: &'static [u8],
}

impl Output {
    /// The file `path`, appended to or emptied first; the standard output for `None` and `-`. `head` is written to one
    /// that is empty. The error is what the kernel says, without where.
    pub(crate) fn open(path: Option<&str>, append: bool, head: &'static [u8]) -> io::Result<Output> {
        let path = path.filter(|path| *path != "-");
        // A file that is opened anew later is the same one, wherever we are then.
        let path = path.map(std::path::absolute).transpose()?;
        let (sink, is_empty): (Box<dyn Write>, bool) = match &path {
            None => (Box::new(io::stdout()), true),
            Some(path) => {
                let (file, is_empty) = open_file(path, append)?;
                (Box::new(file), is_empty)
            }
        };
        let mut output = Output { sink: BufWriter::with_capacity(64 << 10, sink), path, head };
        if is_empty {
            // At once: a process that goes to the background must not have it in its buffer twice.
            output.sink.write_all(head)?;
            output.sink.flush()?;
        }
        Ok(output)
    }

    /// The standard output.
    pub(crate) fn standard() -> Output {
        Output { sink: BufWriter::with_capacity(64 << 10, Box::new(io::stdout())), path: None, head: b"" }
    }

    /// Writes out what is buffered and opens the file anew: the old one may have been moved away.
    pub(crate) fn rotate(&mut self) -> Result<(), Failure> {
        self.flush()?;
        let Some(path) = &self.path else { return Ok(()) };
        let (file, is_empty) = open_file(path, true).map_err(|error| self.fault(error))?;
        self.sink = BufWriter::with_capacity(64 << 10, Box::new(file));
        if is_empty { self.write(self.head) } else { Ok(()) }
    }

    /// Writes `bytes`, at the latest at the next [`Output::flush`].
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.sink.write_all(bytes).map_err(|error| self.fault(error))
    }

    /// Writes out what is buffered.
    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        self.sink.flush().map_err(|error| self.fault(error))
    }

    fn fault(&self, error: io::Error) -> Failure {
        let name = self.path.as_deref().map_or("standard output".into(), Path::to_string_lossy);
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Failure::Closed;
        }
        Failure::Text(format!("{name}: {}", reason(&error)))
    }
}

/// Opens a file, and says whether it is empty.
fn open_file(path: &Path, append: bool) -> io::Result<(File, bool)> {
    let file = OpenOptions::new().create(true).write(true).append(append).truncate(!append).open(path)?;
    let is_empty = file.metadata()?.len() == 0;
    Ok((file, is_empty))
}
