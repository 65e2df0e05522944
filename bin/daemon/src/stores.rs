//! From what `-s` says to the stores themselves.

use crate::jail::Jail;
use crate::storage_spec::Spec;
use copal_store as store;
use std::sync::Arc;
use store::{Engine, Evictions, File, Memory, Policy};

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

/// The store that `spec` tells of.
///
/// # Errors
/// It cannot be, and what to do.
pub(crate) fn open(
    spec: &Spec,
    policy: Policy,
    evictions: Arc<dyn Evictions>,
) -> Result<Arc<dyn Engine>, String> {
    Ok(match &spec.file {
        None => Arc::new(Memory::with_policy(&spec.name, spec.size, policy, evictions)),
        Some(file) => {
            Arc::new(File::open(&spec.name, file, policy, evictions).map_err(|error| refused(spec, &error))?)
        }
    })
}

fn refused(spec: &Spec, error: &dyn std::fmt::Display) -> String {
    format!("(-s {}={}) {error}", spec.name, spec.kind)
}
