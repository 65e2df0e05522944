//! A compiled VCL.

use crate::code::Op;
use crate::host::Sub;
use crate::lower::Code;
use crate::places::{At, Place};
use crate::regex::Regex;
use crate::value::{AclValue, BackendDefinition, ProbeDefinition};
use crate::variables::Var;
use crate::vmod::{Function, Object};
use std::fmt;
use std::sync::Arc;

/// A compiled VCL, shared by all threads and never changed.
pub struct Program {
    /// The language version of the main file: 40 or 41.
    pub version: u32,
    /// The backends, in the order of the source.
    pub backends: Vec<BackendDefinition>,
    /// Which of them serves where VCL chooses none: the one called `default`, else the first.
    pub default_backend: Option<usize>,
    /// The access lists.
    pub acls: Vec<Arc<AclValue>>,
    /// The named probes.
    pub probes: Vec<Arc<ProbeDefinition>>,
    /// The regular expressions, by the index in [`crate::value::Value::Code`].
    pub regexes: Vec<Regex>,
    /// The files it was made of, for `vcl.show`: name and text, the main file first, the built-in VCL last.
    pub sources: Vec<(String, String)>,
    /// What was odd about it but no error: ready to print, empty if nothing was.
    pub warnings: String,
    /// The modules it imports, in the order of the source, for `vcl.symtab`.
    pub modules: Vec<&'static str>,
    /// The objects that `vcl_init` makes: their names and classes.
    pub(crate) objects: Vec<(String, &'static Object)>,
    pub(crate) functions: Vec<&'static Function>,
    pub(crate) code: Code,
    /// A bit for each subroutine that is the built-in VCL's alone.
    pub(crate) builtin: u16,
    /// For each variable whether the user's VCL mentions it.
    pub(crate) used: Vec<bool>,
    /// How many instructions one run may take.
    pub(crate) steps_max: u32,
}

impl Program {
    /// Whether the user's VCL adds nothing to `subroutine`, nor to anything that it calls, so that its effect is the
    /// built-in VCL's.
    pub fn is_builtin(&self, subroutine: Sub) -> bool {
        self.builtin & (1 << subroutine as u16) != 0
    }

    /// The labels that it may hand requests to by `return (vcl(label))`, each once.
    pub fn labels(&self) -> Vec<String> {
        let mut labels = Vec::new();
        for op in &self.code.ops {
            let Op::FinishVcl(text) = op else { continue };
            let label = String::from_utf8_lossy(&self.code.texts[*text as usize]).into_owned();
            if !labels.contains(&label) {
                labels.push(label);
            }
        }
        labels
    }

    /// Where an instruction comes from, as [`Machine::ended_at`](crate::exec::Machine::ended_at) names it after a run of
    /// this program; of another program's it is some place or none.
    pub fn place(&self, at: At) -> Option<Place<'_>> {
        self.code.places.find(at, &self.sources)
    }

    /// What stands on the line of a place, without the blanks around. Walks through the file.
    pub fn source_line(&self, place: &Place<'_>) -> &str {
        let text = self.sources.get(place.number).map_or("", |(_, text)| text);
        text.lines().nth((place.line as usize).saturating_sub(1)).unwrap_or_default().trim()
    }

    /// Whether it imports the module of that name.
    pub fn imports(&self, module: &str) -> bool {
        self.modules.contains(&module)
    }

    /// Whether the user's VCL mentions `variable` anywhere.
    pub fn uses(&self, variable: Var) -> bool {
        self.used[variable as usize]
    }
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Program")
            .field("version", &self.version)
            .field("backends", &self.backends.len())
            .field("instructions", &self.code.ops.len())
            .finish_non_exhaustive()
    }
}
