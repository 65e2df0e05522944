//! From what `-s` says to the stores themselves.

use crate::jail::Jail;
use crate::storage_spec::{self, Spec};
use copal_store as store;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use store::{Engine, Evictions, File, FileOptions, Memory};

/// Makes and sizes the files, while we have the rights for it, and gives them to the worker, which opens them again.
///
/// # Errors
/// A store that cannot be, and what to do.
pub(crate) fn prepare(specs: &[Spec], jail: Jail) -> Result<(), String> {
    for (spec, file) in specs.iter().filter_map(|spec| Some((spec, spec.file.as_ref()?))) {
        File::check(file).map_err(|error| refused(spec, &error))?;
        if !file.path.is_dir() {
            jail.worker_file(&file.path).map_err(|error| refused(spec, &error))?;
        }
    }
    Ok(())
}

/// The `-s` arguments as a worker gets them, who has fewer rights than we: for a directory a file in it that is the
/// worker's. The files lose their names when this is dropped, as the worker then has opened them.
pub(crate) struct Handed {
    pub(crate) arguments: Vec<String>,
    files: Vec<PathBuf>,
}

impl Handed {
    /// Makes the files.
    ///
    /// # Errors
    /// A store that cannot be, and what to do.
    pub(crate) fn new(arguments: &[String], jail: Jail) -> Result<Self, String> {
        let mut handed = Self { arguments: arguments.to_vec(), files: Vec::new() };
        if jail == Jail::None {
            return Ok(handed);
        }
        for (index, argument) in handed.arguments.iter_mut().enumerate() {
            let specs = storage_spec::parse_all(std::slice::from_ref(argument));
            let Some((spec, file)) =
                specs.iter().flatten().find_map(|spec| Some((spec, spec.file.as_ref()?)))
            else {
                continue;
            };
            if !file.path.is_dir() {
                continue;
            }
            let path = file.path.join(format!("copal.{}.{index}", std::process::id()));
            handed.files.push(path.clone());
            *argument = in_place_of_path(argument, &path);
            let file = FileOptions { path, ..file.clone() };
            File::check(&file).map_err(|error| refused(spec, &error))?;
            jail.worker_file(&file.path).map_err(|error| refused(spec, &error))?;
        }
        Ok(handed)
    }
}

impl Drop for Handed {
    fn drop(&mut self) {
        for file in &self.files {
            let _ = std::fs::remove_file(file);
        }
    }
}

/// `[name=]file,path...` with another path.
fn in_place_of_path(argument: &str, path: &Path) -> String {
    let mut parts: Vec<&str> = argument.split(',').collect();
    let path = path.to_string_lossy();
    if let Some(place) = parts.get_mut(1) {
        *place = &path;
    }
    parts.join(",")
}

/// The store that `spec` tells of.
///
/// # Errors
/// It cannot be, and what to do.
pub(crate) fn open(spec: &Spec, evictions: Arc<dyn Evictions>) -> Result<Arc<dyn Engine>, String> {
    Ok(match &spec.file {
        None => Arc::new(Memory::new(&spec.name, spec.size, evictions)),
        Some(file) => {
            Arc::new(File::open(&spec.name, file, evictions).map_err(|error| refused(spec, &error))?)
        }
    })
}

fn refused(spec: &Spec, error: &dyn std::fmt::Display) -> String {
    format!("(-s {}={}) {error}", spec.name, spec.kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_path_stands_where_the_path_stood() {
        let check = |argument, expected| assert_eq!(in_place_of_path(argument, Path::new("/new")), expected);
        check("file,/old", "file,/new");
        check("disk=file,/old,10m,,normal", "disk=file,/new,10m,,normal");
    }
}
