//! Where a tool's lines go: the standard output or a file.

use crate::Failure;
use std::fs::OpenOptions;
use std::io::{BufWriter, Write};

/// A buffered output, written out whenever there is nothing more to read for the moment.
pub(crate) struct Outlet {
    sink: BufWriter<Box<dyn Write>>,
    name: String,
}

impl Outlet {
    /// The file `path`, appended to or emptied first; the standard output for `None` and `-`.
    pub(crate) fn open(path: Option<&str>, append: bool) -> Result<Outlet, Failure> {
        let (name, sink): (_, Box<dyn Write>) = match path {
            None | Some("-") => ("standard output".to_owned(), Box::new(std::io::stdout())),
            Some(path) => {
                let file =
                    OpenOptions::new().create(true).write(true).append(append).truncate(!append).open(path);
                (path.to_owned(), Box::new(file.map_err(|error| Failure::Text(format!("{path}: {error}")))?))
            }
        };
        Ok(Outlet { sink: BufWriter::with_capacity(64 << 10, sink), name })
    }

    /// Writes `bytes`, at the latest at the next [`Outlet::flush`].
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.sink.write_all(bytes).map_err(|error| fault(&self.name, error))
    }

    /// Writes out what is buffered.
    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        self.sink.flush().map_err(|error| fault(&self.name, error))
    }
}

fn fault(name: &str, error: std::io::Error) -> Failure {
    match Failure::from(error) {
        Failure::Text(text) => Failure::Text(format!("{name}: {text}")),
        other => other,
    }
}

/// Writes this process's number to the file of `-P`.
pub(crate) fn write_process_number(path: Option<&str>) -> Result<(), Failure> {
    let Some(path) = path else { return Ok(()) };
    std::fs::write(path, format!("{}\n", std::process::id()))
        .map_err(|error| Failure::Text(format!("{path}: {error}")))
}
