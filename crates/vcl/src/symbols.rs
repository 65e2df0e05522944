//! What the user named: backends, lists, probes, subroutines, objects and modules, in one namespace.
//!
//! A backend, a list or a subroutine may be referred to before it is defined; whether it was is looked at in the end.

use crate::diagnostics::{Checked, Problem};
use crate::source::Span;
use crate::syntax::Part;
use std::collections::BTreeMap;

/// The kind of a symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Acl,
    Backend,
    Instance,
    Probe,
    Sub,
    Vmod,
}

impl Kind {
    /// Its name in messages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Acl => "acl",
            Kind::Backend => "backend",
            Kind::Instance => "instance",
            Kind::Probe => "probe",
            Kind::Sub => "sub",
            Kind::Vmod => "vmod",
        }
    }

    /// What it is called where a second definition is refused.
    fn title(self) -> &'static str {
        match self {
            Kind::Acl => "Acl",
            Kind::Backend => "Backend",
            Kind::Instance => "Instance",
            Kind::Probe => "Probe",
            Kind::Sub => "Subroutine",
            Kind::Vmod => "Vmod",
        }
    }
}

/// One symbol, with its definition once there is one.
pub(crate) struct Row<T> {
    pub(crate) name: String,
    /// Its definition; before that, its first reference.
    pub(crate) span: Span,
    pub(crate) used: bool,
    /// How many of its kind were defined before it.
    pub(crate) number: u32,
    pub(crate) value: Option<T>,
}

/// The symbols of one kind.
pub(crate) struct Table<T> {
    kind: Kind,
    pub(crate) rows: Vec<Row<T>>,
    defined: u32,
}

impl<T> Table<T> {
    pub(crate) fn new(kind: Kind) -> Self {
        Self { kind, rows: Vec::new(), defined: 0 }
    }

    fn row(&mut self, name: &Part, used: bool) -> u32 {
        self.rows.push(Row { name: name.text.clone(), span: name.span, used, number: 0, value: None });
        self.rows.len() as u32 - 1
    }

    /// The value of a symbol that is defined.
    pub(crate) fn value(&self, index: u32) -> Option<&T> {
        self.rows[index as usize].value.as_ref()
    }

    /// The values in the order of their definitions.
    pub(crate) fn into_values(self) -> Vec<(String, T)> {
        let mut rows: Vec<_> = self.rows;
        rows.sort_by_key(|row| row.number);
        rows.into_iter().filter_map(|row| Some((row.name, row.value?))).collect()
    }

    /// Where each symbol stands in [`Table::into_values`].
    pub(crate) fn numbers(&self) -> Vec<u32> {
        self.rows.iter().map(|row| row.number).collect()
    }
}

/// The namespace: which symbol a name stands for.
#[derive(Default)]
pub(crate) struct Names {
    by_name: BTreeMap<String, (Kind, u32, Span)>,
}

impl Names {
    /// The symbol of that name.
    pub(crate) fn find(&self, name: &str) -> Option<(Kind, u32)> {
        self.by_name.get(name).map(|(kind, index, _)| (*kind, *index))
    }

    /// All symbols in the order of the alphabet, as Varnish looks through them.
    pub(crate) fn all(&self) -> Vec<(Kind, u32)> {
        self.by_name.values().map(|(kind, index, _)| (*kind, *index)).collect()
    }

    fn add<T>(&mut self, table: &mut Table<T>, name: &Part, used: bool) -> u32 {
        let index = table.row(name, used);
        self.by_name.insert(name.text.clone(), (table.kind, index, name.span));
        index
    }

    /// Defines a symbol, perhaps one that was referred to before.
    pub(crate) fn define<T>(&mut self, table: &mut Table<T>, name: &Part, value: T) -> Checked<u32> {
        let index = match self.by_name.get(&name.text) {
            None => self.add(table, name, false),
            Some((kind, index, _)) if *kind == table.kind && table.value(*index).is_none() => *index,
            Some((kind, index, first)) if *kind == table.kind => {
                debug_assert!(table.value(*index).is_some(), "the other case is above");
                let words = format!("{} '{}' redefined.", table.kind.title(), name.text);
                return Err(Problem::at(name.span, words).words("First definition:").token(*first).into());
            }
            Some(_) if matches!(table.kind, Kind::Sub | Kind::Vmod) => {
                return Err(self.wrong_kind(name, table.kind.name()));
            }
            Some((.., first)) => {
                let words = format!("Name '{}' already defined.", name.text);
                return Err(Problem::at(name.span, words).words("First definition:").token(*first).into());
            }
        };
        let number = table.defined;
        table.defined += 1;
        let row = &mut table.rows[index as usize];
        (row.span, row.number, row.value) = (name.span, number, Some(value));
        self.by_name.insert(name.text.clone(), (table.kind, index, name.span));
        Ok(index)
    }

    /// Refers to a symbol that may be defined later.
    pub(crate) fn refer<T>(&mut self, table: &mut Table<T>, name: &Part) -> Checked<u32> {
        match self.by_name.get(&name.text) {
            None => Ok(self.add(table, name, true)),
            Some((kind, index, _)) if *kind == table.kind => {
                table.rows[*index as usize].used = true;
                Ok(*index)
            }
            Some(_) => Err(self.wrong_kind(name, table.kind.name())),
        }
    }

    /// The message for a symbol that is of another kind than its place needs.
    pub(crate) fn wrong_kind(&self, name: &Part, expected: &str) -> Box<Problem> {
        let (kind, first) = match self.by_name.get(&name.text) {
            Some((kind, _, first)) => (kind.name(), *first),
            None => ("none", name.span),
        };
        let words = format!("Symbol '{}' has wrong type ({kind}), expected {expected}:", name.text);
        Problem::new()
            .words(words)
            .words("At: ")
            .stretch(name.span)
            .words("Symbol was defined here: ")
            .token(first)
            .into()
    }
}
