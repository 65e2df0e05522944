//! One load of a program: its backends and the objects that `vcl_init` makes.

use crate::exec::{Machine, Step};
use crate::host::{Action, Fault, Host, Sub};
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
        let objects = program.objects.iter().map(|_| OnceLock::new()).collect();
        Ok(Self { program, backends, objects })
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
    /// `vcl_init` failed; why has been logged as `VCL_Error`. The load must be given up.
    pub fn init(&self, host: &mut dyn Host) -> Result<(), Fault> {
        match Machine::new().run(self, Sub::Init, host) {
            Step::Done(Action::Ok) => Ok(()),
            Step::Done(_) => Err(Fault("vcl_init failed".into())),
            Step::Wait(wait) => Err(Fault(format!("vcl_init cannot wait for {wait:?}"))),
        }
    }

    /// Runs `vcl_fini`. Called once, when nothing uses the instance any more; what it returns changes nothing.
    pub fn fini(&self, host: &mut dyn Host) {
        let _ = Machine::new().run(self, Sub::Fini, host);
    }
}
