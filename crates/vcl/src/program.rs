//! A compiled VCL.

use crate::host::Sub;
use crate::regex::Regex;
use crate::value::{AclValue, BackendDefinition, ProbeDefinition};
use crate::variables::Var;
use std::sync::Arc;

/// A compiled VCL, shared by all threads and never changed.
pub struct Program {
    /// The language version of the main file: 40 or 41.
    pub version: u32,
    /// The backends, in the order of the source.
    pub backends: Vec<BackendDefinition>,
    /// Which of them serves where VCL chooses none. Absent only if there is no backend.
    pub default_backend: Option<usize>,
    /// The access lists.
    pub acls: Vec<Arc<AclValue>>,
    /// The named probes.
    pub probes: Vec<Arc<ProbeDefinition>>,
    /// The regular expressions, by the index in [`crate::value::Value::Code`].
    pub regexes: Vec<Regex>,
    /// The files it was made of, for `vcl.show`: name and text, the built-in VCL last.
    pub sources: Vec<(String, String)>,
    pub(crate) builtin: u16,
    pub(crate) used: Vec<bool>,
}

impl Program {
    /// Whether the user's VCL adds nothing to `subroutine`, so that its effect is the built-in VCL's.
    pub fn is_builtin(&self, subroutine: Sub) -> bool {
        self.builtin & (1 << subroutine as u16) != 0
    }

    /// Whether the user's VCL mentions `variable` anywhere.
    pub fn uses(&self, variable: Var) -> bool {
        self.used[variable as usize]
    }
}
