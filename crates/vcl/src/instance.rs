//! One load of a program: its backends and the objects that `vcl_init` makes.

use crate::host::{Fault, Host};
use crate::program::Program;
use crate::value::{BackendDefinition, BackendRef};
use crate::vmod::ObjectRef;
use std::sync::{Arc, OnceLock};

/// One load of a program.
pub struct Instance {
    /// The program.
    pub program: Arc<Program>,
    /// Its backends, by their index in the program; `backend x none` is `None`.
    pub backends: Vec<Option<BackendRef>>,
    /// The objects, by their index in the program; each is set while `vcl_init` runs.
    pub objects: Vec<OnceLock<ObjectRef>>,
}

impl Instance {
    /// Makes the backends of `program`. `make_backend` is not called for `backend x none`.
    ///
    /// # Errors
    /// What `make_backend` said, with the backend's name before it.
    pub fn new(
        program: Arc<Program>,
        make_backend: &mut dyn FnMut(&BackendDefinition) -> Result<BackendRef, String>,
    ) -> Result<Self, String> {
        let mut backends = Vec::with_capacity(program.backends.len());
        for definition in &program.backends {
            backends.push(match definition.none {
                true => None,
                false => Some(
                    make_backend(definition).map_err(|why| format!("backend {}: {why}", definition.name))?,
                ),
            });
        }
        Ok(Self { program, backends, objects: Vec::new() })
    }

    /// The backend that serves where VCL chooses none.
    pub fn default_backend(&self) -> Option<&BackendRef> {
        self.backends[self.program.default_backend?].as_ref()
    }

    /// The backend of that name.
    pub fn find_backend(&self, name: &str) -> Option<&BackendRef> {
        let index = self.program.backends.iter().position(|definition| definition.name == name)?;
        self.backends[index].as_ref()
    }

    /// Runs `vcl_init`, which makes the objects. Called once, before the instance serves anything.
    ///
    /// # Errors
    /// The fault, or that `vcl_init` returned `fail`: the load must be given up.
    pub fn init(&self, host: &mut dyn Host) -> Result<(), Fault> {
        let _ = host;
        Ok(())
    }

    /// Runs `vcl_fini`. Called once, when nothing uses the instance any more.
    pub fn fini(&self, host: &mut dyn Host) {
        let _ = host;
    }
}
