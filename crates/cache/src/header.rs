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

    fn check(&mut self, name: &[u8], value: &[u8], room: Room, is_new: bool) -> Result<()> {
        if !wire::syntax::valid_value(value) {
            let shown = [name, b": ", value].concat();
            return Err(Fault(format!("Bad header {}", String::from_utf8_lossy(&shown))));
        }
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

/// A copy of all fields: names and values.
pub(crate) fn all(fields: &Fields) -> Vec<(Text, Text)> {
    let copy = Text::copy_from_slice;
    fields.iter().map(|field| (copy(field.name), copy(field.value))).collect()
}

/// The fault of a message that cannot be changed where VCL tries to.
pub(crate) fn unchangeable() -> Fault {
    Fault("this message cannot be changed here".into())
}
