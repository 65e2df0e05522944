//! Files of `-s file` that a worker could not make itself: it has fewer rights than the manager.

use super::error::Failure;
use super::{Kind, Spec};
use crate::jail::Jail;
use copal_store::File;
use std::path::PathBuf;

/// Files made for one start of a worker. They lose their names when this is dropped, as the worker has opened them then.
pub(crate) struct Handed(Vec<PathBuf>);

impl Handed {
    /// For each store in a file without a name, makes a file in its directory that is the worker's, and names it in
    /// `specs`.
    ///
    /// # Errors
    /// A store that cannot be, and what to do.
    pub(crate) fn new(specs: &mut [Spec], jail: Jail) -> Result<Self, Failure> {
        let mut handed = Self(Vec::new());
        if jail == Jail::None {
            return Ok(handed);
        }
        for (index, spec) in specs.iter_mut().enumerate() {
            let Kind::File(file) = &mut spec.kind else { continue };
            if !file.path.is_dir() {
                continue;
            }
            file.path = file.path.join(format!("copal.{}.{index}", std::process::id()));
            handed.0.push(file.path.clone());
            File::check(&super::build::file_options(file))
                .map_err(|source| Failure::File { kind: spec.word.clone(), source })?;
            jail.worker_file(&file.path).map_err(|source| Failure::Io {
                kind: spec.word.clone(),
                doing: "giving away",
                path: file.path.display().to_string(),
                source,
            })?;
        }
        Ok(handed)
    }
}

impl Drop for Handed {
    fn drop(&mut self) {
        for file in &self.0 {
            // One that could not be made is not there.
            let _ = std::fs::remove_file(file);
        }
    }
}
