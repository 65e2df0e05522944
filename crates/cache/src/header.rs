//! The fields of a message as VCL changes them: each change is checked, and leaves its records.

use copal_observe as observe;
use copal_vcl as vcl;
use copal_wire as wire;
use observe::{Records, Tag};
use vcl::host::{Fault, Result};
use vcl::value::Text;
use wire::Fields;

/// How much a message that VCL builds may hold.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room {
    /// Bytes of its head.
    pub(crate) bytes: usize,
    /// Fields of its head.
    pub(crate) fields: usize,
}

impl Room {
    /// What the settings allow.
    pub(crate) fn of(settings: &crate::Settings) -> Self {
        Self { bytes: settings.head_max, fields: settings.fields_max }
    }
}

/// The fields of one message, the tags of its records, and where those go.
pub(crate) struct Header<'message> {
    pub(crate) fields: &'message mut Fields,
    pub(crate) set: Tag,
    pub(crate) unset: Tag,
    pub(crate) records: &'message mut Records,
}

impl Header<'_> {
    /// Replaces all fields of that name by one.
    ///
    /// # Errors
    /// A fault, and the message as it was, if the value cannot be one or there is no room for it; in the latter case the
    /// field is logged as lost.
    pub(crate) fn set(&mut self, name: &[u8], value: &[u8], room: Room) -> Result<()> {
        let there = self.fields.has(name);
        self.check(name, value, room, !there)?;
        if there {
            self.log_unset(name);
        }
        if !self.fields.set(name, value) {
            return Err(Fault(format!("Bad header {}", String::from_utf8_lossy(name))));
        }
        self.records.header(self.set, name, value.trim_ascii_start());
        Ok(())
    }

    /// Adds a field, also where there is one of that name.
    ///
    /// # Errors
    /// As [`Header::set`], and for a name that is none: it may come from data.
    pub(crate) fn add(&mut self, name: &[u8], value: &[u8], room: Room) -> Result<()> {
        self.check(name, value, room, true)?;
        if !self.fields.push(name, value) {
            return Err(Fault(format!("Bad header {}", String::from_utf8_lossy(name))));
        }
        self.records.header(self.set, name, value.trim_ascii());
        Ok(())
    }

    /// Puts other fields in the place of some, by their number, or takes them away. `changes` is in ascending order.
    ///
    /// # Errors
    /// As [`Header::add`], and the message as it was.
    pub(crate) fn change(&mut self, changes: &[(usize, Option<(Text, Text)>)], room: Room) -> Result<()> {
        let mut changed = Fields::new();
        let mut left = changes.iter().peekable();
        for (number, field) in self.fields.iter().enumerate() {
            let pushed = match left.next_if(|(at, _)| *at == number) {
                None => changed.push(field.name, field.value),
                Some((_, None)) => true,
                Some((_, Some((name, value)))) => {
                    // A value that is none would be refused by `push`, too, but without saying which.
                    check_value(name, value)?;
                    changed.push(name, value)
                }
            };
            if !pushed {
                return Err(Fault(format!("Bad header {}", String::from_utf8_lossy(field.name))));
            }
        }
        if changed.byte_len() > room.bytes {
            return Err(Fault("Workspace overflow".into()));
        }
        for (number, new) in changes {
            if let Some(old) = self.fields.lines().nth(*number) {
                self.records.text(self.unset, old);
            }
            if let Some((name, value)) = new {
                self.records.header(self.set, name, value.trim_ascii());
            }
        }
        *self.fields = changed;
        Ok(())
    }

    fn check(&mut self, name: &[u8], value: &[u8], room: Room, is_new: bool) -> Result<()> {
        check_value(name, value)?;
        let too_long = self.fields.byte_len() + name.len() + value.len() + 4 > room.bytes;
        if too_long || (is_new && self.fields.len() >= room.fields) {
            self.records.header(Tag::LostHeader, name, value);
            return Err(Fault("Workspace overflow".into()));
        }
        Ok(())
    }

    /// Replaces a field by one of our own making, which is always valid and always has room.
    pub(crate) fn replace(&mut self, known: wire::Known, value: &[u8]) {
        let name = known.name().as_bytes();
        self.log_unset(name);
        self.fields.set_own(known, value);
        self.records.header(self.set, name, value);
    }

    /// Removes all fields of that name.
    pub(crate) fn unset(&mut self, name: &[u8]) {
        if self.fields.has(name) {
            self.log_unset(name);
            self.fields.remove(name);
        }
    }

    fn log_unset(&mut self, name: &[u8]) {
        for field in self.fields.iter().filter(|field| field.name.eq_ignore_ascii_case(name)) {
            self.records.text(self.unset, field.line);
        }
    }
}

fn check_value(name: &[u8], value: &[u8]) -> Result<()> {
    if wire::syntax::valid_value(value) {
        return Ok(());
    }
    let shown = [name, b": ", value].concat();
    Err(Fault(format!("Bad header {}", String::from_utf8_lossy(&shown))))
}

/// A copy of all fields: names and values.
pub(crate) fn all(fields: &Fields) -> Vec<(Text, Text)> {
    let copy = Text::copy_from_slice;
    fields.iter().map(|field| (copy(field.name), copy(field.value))).collect()
}

/// The fault of a message that cannot be changed where VCL tries to.
pub(crate) fn unchangeable() -> Fault {
    Fault("this message cannot be changed here".into())
}
