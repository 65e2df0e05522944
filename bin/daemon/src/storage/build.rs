//! From what was asked for to the engines, in the worker.

use super::{Kind, Spec, error};
use copal_store as store;
use error::{Error, Problem};
use std::sync::Arc;
use store::device::FileDevice;
use store::{Engine, Evictions, Memory};

/// Whether this program has such a store; asked by the manager, before anything is opened.
///
/// # Errors
/// [`Problem::Missing`].
pub(crate) fn available(spec: &Spec) -> Result<(), Error> {
    match spec.kind {
        Kind::Memory { .. } => Ok(()),
        Kind::File(_) | Kind::Persistent(_) | Kind::Tiers(_) => Err(Problem::Missing.of(&spec.word)),
    }
}

/// What engines are made of, besides what was asked for.
pub(crate) struct Parts {
    /// The devices of all stores, in the order of [`Spec::devices`].
    pub(crate) devices: Vec<FileDevice>,
    /// Whoever keeps the index.
    pub(crate) evictions: Arc<dyn Evictions>,
    /// `-o recover`: lists of objects are made anew from the objects themselves.
    pub(crate) recover: bool,
}

/// The engines, in the order of `specs`.
///
/// # Errors
/// The first that cannot be made.
pub(crate) fn build(specs: &[Spec], parts: Parts) -> Result<Vec<Arc<dyn Engine>>, Error> {
    let Parts { devices, evictions, recover } = parts;
    // The manager refuses it otherwise.
    debug_assert!(!recover || !devices.is_empty(), "there is something to recover");
    debug_assert_eq!(devices.len(), specs.iter().map(|spec| spec.devices().len()).sum::<usize>());
    let engine = |spec: &Spec| -> Result<Arc<dyn Engine>, Error> {
        let evictions = Arc::clone(&evictions);
        Ok(match &spec.kind {
            Kind::Memory { size } => Arc::new(Memory::new(&spec.name, *size, evictions)),
            Kind::File(_) | Kind::Persistent(_) | Kind::Tiers(_) => {
                return Err(Problem::Missing.of(&spec.word));
            }
        })
    };
    specs.iter().map(engine).collect()
}
