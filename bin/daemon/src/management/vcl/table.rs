//! The table of VCLs and labels: what there is, what is warm, who leans on whom.
//!
//! ```text
//!   VCL --return (vcl(label))--> label --stands for--> VCL          never in a circle, never a label for a label
//! ```

use crate::server::{Compiled, Label, Load};
use admin::Reply;
use base::Time;
use copal_admin as admin;
use copal_base as base;

/// The state that an operator asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Auto,
    Cold,
    Warm,
}

impl State {
    const ALL: [(Self, &'static str); 3] = [(Self::Auto, "auto"), (Self::Cold, "cold"), (Self::Warm, "warm")];

    pub(super) fn parse(text: &str) -> Result<Self, Reply> {
        Self::ALL
            .iter()
            .find(|(_, name)| *name == text)
            .map(|(state, _)| *state)
            .ok_or_else(|| Reply::wrong("State must be one of auto, cold or warm."))
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Cold => "cold",
            Self::Warm => "warm",
        }
    }
}

/// A loaded VCL.
#[derive(Debug)]
pub(in crate::management) struct Loaded<Program> {
    pub(in crate::management) name: String,
    pub(super) compiled: Compiled<Program>,
    pub(super) state: State,
    pub(super) warm: bool,
    /// When it was loaded or last ceased to be needed.
    pub(super) last_used: Time,
}

impl<Program> Loaded<Program> {
    /// What the server needs of it.
    pub(in crate::management) fn load(&self) -> Load<'_, Program> {
        Load { name: &self.name, program: &self.compiled.program, warm: self.warm }
    }
}

/// A row.
#[derive(Debug)]
pub(super) enum Entry<Program> {
    Vcl(Box<Loaded<Program>>),
    Label(Label),
}

impl<Program> Entry<Program> {
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Vcl(vcl) => &vcl.name,
            Self::Label(label) => &label.name,
        }
    }

    fn vcl(&self) -> Option<&Loaded<Program>> {
        match self {
            Self::Vcl(vcl) => Some(vcl),
            Self::Label(_) => None,
        }
    }

    fn label(&self) -> Option<&Label> {
        match self {
            Self::Vcl(_) => None,
            Self::Label(label) => Some(label),
        }
    }
}

/// The loaded VCLs and the labels, oldest first.
#[derive(Debug)]
pub(in crate::management) struct Table<Program> {
    entries: Vec<Entry<Program>>,
    active: Option<String>,
}

impl<Program> Default for Table<Program> {
    fn default() -> Self {
        Self { entries: Vec::new(), active: None }
    }
}

pub(super) fn not_known(name: &str) -> Reply {
    Reply::wrong(format!("No VCL named {name} known"))
}

impl<Program> Table<Program> {
    /// The rows.
    pub(super) fn entries(&self) -> impl Iterator<Item = &Entry<Program>> {
        self.entries.iter()
    }

    /// The VCLs.
    pub(in crate::management) fn iter(&self) -> impl Iterator<Item = &Loaded<Program>> {
        self.entries.iter().filter_map(Entry::vcl)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Loaded<Program>> {
        self.entries.iter_mut().filter_map(|entry| match entry {
            Entry::Vcl(vcl) => Some(&mut **vcl),
            Entry::Label(_) => None,
        })
    }

    /// The labels.
    pub(in crate::management) fn labels(&self) -> Vec<Label> {
        self.entries.iter().filter_map(Entry::label).cloned().collect()
    }

    /// The VCL that serves new requests, by itself or by a label.
    pub(in crate::management) fn active(&self) -> Option<&Loaded<Program>> {
        self.behind(self.active.as_deref()?)
    }

    /// Whether that is what `vcl.use` named.
    pub(super) fn is_active(&self, name: &str) -> bool {
        self.active.as_deref() == Some(name)
    }

    pub(super) fn set_active(&mut self, name: &str) {
        self.active = Some(name.to_owned());
    }

    pub(super) fn entry(&self, name: &str) -> Option<&Entry<Program>> {
        self.entries.iter().find(|entry| entry.name() == name)
    }

    /// The VCL of that name.
    pub(super) fn vcl(&self, name: &str) -> Option<&Loaded<Program>> {
        self.entry(name)?.vcl()
    }

    /// The VCL of that name, or that the label of that name stands for.
    pub(super) fn behind(&self, name: &str) -> Option<&Loaded<Program>> {
        match self.entry(name)? {
            Entry::Vcl(vcl) => Some(vcl),
            Entry::Label(label) => self.vcl(&label.vcl),
        }
    }

    pub(super) fn vcl_mut(&mut self, name: &str) -> Option<&mut Loaded<Program>> {
        self.iter_mut().find(|vcl| vcl.name == name)
    }

    pub(super) fn push(&mut self, entry: Entry<Program>) {
        self.entries.push(entry);
    }

    /// Points a label, which may be new, at a VCL.
    pub(super) fn point(&mut self, name: &str, vcl: &str) {
        for entry in &mut self.entries {
            if let Entry::Label(label) = entry
                && label.name == name
            {
                vcl.clone_into(&mut label.vcl);
                return;
            }
        }
        self.push(Entry::Label(Label { name: name.to_owned(), vcl: vcl.to_owned() }));
    }

    /// Takes rows out.
    pub(super) fn remove(&mut self, names: &[String]) {
        self.entries.retain(|entry| !names.iter().any(|name| name == entry.name()));
    }

    /// The labels that stand for a VCL.
    pub(super) fn labels_of(&self, vcl: &str) -> Vec<&str> {
        let labels = self.entries.iter().filter_map(Entry::label);
        labels.filter(|label| label.vcl == vcl).map(|label| label.name.as_str()).collect()
    }

    /// The VCLs that hand requests to a label.
    pub(super) fn users_of(&self, label: &str) -> Vec<&str> {
        let users = self.iter().filter(|vcl| vcl.compiled.labels.iter().any(|used| used == label));
        users.map(|vcl| vcl.name.as_str()).collect()
    }

    /// What a row leans on: a label on its VCL, a VCL on the labels that it names.
    pub(super) fn needs(entry: &Entry<Program>) -> Vec<&str> {
        match entry {
            Entry::Vcl(vcl) => vcl.compiled.labels.iter().map(String::as_str).collect(),
            Entry::Label(label) => vec![&label.vcl],
        }
    }

    /// Whether requests may come to the VCL: then it is never let cool down.
    pub(super) fn is_needed(&self, vcl: &str) -> bool {
        self.is_active(vcl) || !self.labels_of(vcl).is_empty()
    }

    /// The VCL that names `label` among those that requests can get to from `vcl`: pointing the label at `vcl` would make a
    /// circle.
    pub(super) fn circle<'a>(&'a self, label: &str, vcl: &'a str) -> Option<&'a str> {
        let (mut seen, mut next) = (Vec::new(), vec![vcl]);
        while let Some(name) = next.pop() {
            let Some(vcl) = self.vcl(name) else { continue };
            if seen.contains(&name) {
                continue;
            }
            seen.push(name);
            if vcl.compiled.labels.iter().any(|used| used == label) {
                return Some(name);
            }
            let behind = vcl.compiled.labels.iter().filter_map(|used| self.behind(used));
            next.extend(behind.map(|vcl| vcl.name.as_str()));
        }
        None
    }
}
