//! The fields of one message, kept in the form in which they go out.
//!
//! ```text
//! bytes    Host: a\r\nAccept: */*\r\nX-Old: 1\r\nUser-Agent: c\r\n
//! entries  {0,4,1,Host} {9,6,3,Accept}        {33,10,1,UserAgent}
//! ```
//! A removed or replaced line leaves its bytes behind; entries that still follow each other are written in one copy.
//! Left-over bytes are squeezed out when they outweigh the live ones, so that repeated `set` cannot grow the buffer
//! without bound. A set of the known names present answers "is it there" without a walk.

use crate::known::Known;
use crate::syntax::{trim, valid_name, valid_value};
use std::ops::Range;

/// Bytes between name and value, and after the value.
const SEPARATOR: &[u8] = b": ";
const END: &[u8] = b"\r\n";
const LIST_SEPARATOR: &[u8] = b", ";
const OVERHEAD: usize = SEPARATOR.len() + END.len();
/// Left-over bytes that are tolerated whatever the size of the live ones.
const GARBAGE_MIN: usize = 8 << 10;
const UNKNOWN: u8 = u8::MAX;
/// In an index, says that the length of the value follows in 32 bits.
const LONG: u16 = u16::MAX;

#[derive(Debug, Clone, Copy)]
struct Entry {
    start: u32,
    value_len: u32,
    name_len: u16,
    /// The number of a [`Known`], or [`UNKNOWN`].
    known: u8,
}

const _: () = assert!(size_of::<Entry>() == 12);

impl Entry {
    #[inline]
    fn name(&self) -> Range<usize> {
        let start = self.start as usize;
        start..start + self.name_len as usize
    }

    #[inline]
    fn value(&self) -> Range<usize> {
        let start = self.start as usize + self.name_len as usize + SEPARATOR.len();
        start..start + self.value_len as usize
    }

    /// The line with its CRLF.
    #[inline]
    fn whole(&self) -> Range<usize> {
        let start = self.start as usize;
        start..start + self.size()
    }

    #[inline]
    fn size(&self) -> usize {
        self.name_len as usize + self.value_len as usize + OVERHEAD
    }

    /// Takes one entry of a table of contents; `None` at its end and where it is none.
    #[inline]
    fn read(index: &mut &[u8], start: usize) -> Option<Entry> {
        let mut rest = *index;
        let (&known, after) = rest.split_first()?;
        rest = after;
        let (known, name_len) = match Known::from_index(known) {
            Some(name) => (known, name.name().len() as u16),
            None => (UNKNOWN, take_u16(&mut rest)?),
        };
        let value_len = match take_u16(&mut rest)? {
            LONG => {
                let (bytes, after) = rest.split_first_chunk::<4>()?;
                rest = after;
                u32::from_le_bytes(*bytes)
            }
            short => u32::from(short),
        };
        *index = rest;
        Some(Entry { start: u32::try_from(start).ok()?, value_len, name_len, known })
    }
}

/// One field of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field<'a> {
    /// As received, case kept.
    pub name: &'a [u8],
    /// Without outer white space.
    pub value: &'a [u8],
    /// The name, if it is one the proxy acts upon.
    pub known: Option<Known>,
    /// `Name: value` without CRLF.
    pub line: &'a [u8],
}

/// A set of known names, for [`Fields::has_any`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnownSet(u128);

impl KnownSet {
    /// The set of exactly these.
    pub const fn of(names: &[Known]) -> Self {
        let (mut bits, mut index) = (0, 0);
        while index < names.len() {
            bits |= names[index].bit();
            index += 1;
        }
        Self(bits)
    }

    /// Whether that name is in it; a name that is not known never is.
    pub fn has(self, name: Option<Known>) -> bool {
        name.is_some_and(|name| self.0 & name.bit() != 0)
    }
}

/// The fields of one message, in order. Names compare without case. Holds at most 4 GiB, names at most 64 KiB.
#[derive(Debug, Clone, Default)]
pub struct Fields {
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    /// Bit `k` is set iff an entry has known name number `k`.
    present: u128,
    /// What [`Fields::write_to`] would write, in bytes.
    live: usize,
}

impl Fields {
    /// No fields, no memory.
    pub const fn new() -> Self {
        Self { bytes: Vec::new(), entries: Vec::new(), present: 0, live: 0 }
    }

    /// Removes all fields, keeps the memory.
    #[inline]
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.entries.clear();
        self.present = 0;
        self.live = 0;
    }

    /// How many fields there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// How many bytes [`Fields::write_to`] appends.
    #[inline]
    pub fn byte_len(&self) -> usize {
        self.live
    }

    /// Appends a field; white space before `value` is dropped. What follows it stays, since VCL that puts a text together
    /// in a field sees it as it left it; to whoever gets the message it means nothing (RFC 9110, section 5.5). `false`,
    /// and nothing appended, if `name` is no token or `value` has a byte that no field may have: the last line of defence
    /// against response splitting.
    #[inline]
    pub fn push(&mut self, name: &[u8], value: &[u8]) -> bool {
        let value = value.trim_ascii_start();
        if !valid_name(name) || !valid_value(value) {
            return false;
        }
        self.append(Known::find(name), name, value)
    }

    /// Appends a field under its canonical name; see [`Fields::push`].
    #[inline]
    pub fn push_known(&mut self, known: Known, value: &[u8]) -> bool {
        let value = trim(value);
        valid_value(value) && self.append(Some(known), known.name().as_bytes(), value)
    }

    /// As [`Fields::push_known`] for a value that this program made itself and that needs no look.
    pub fn push_own(&mut self, known: Known, value: &[u8]) {
        debug_assert!(valid_value(value) && trim(value) == value, "a value of our own is a value");
        self.append(Some(known), known.name().as_bytes(), value);
    }

    /// As [`Fields::set_known`] for such a value.
    pub fn set_own(&mut self, known: Known, value: &[u8]) {
        debug_assert!(valid_value(value) && trim(value) == value, "a value of our own is a value");
        self.replace(Some(known), known.name().as_bytes(), value);
    }

    /// The value of the first field called `name`.
    pub fn get(&self, name: &[u8]) -> Option<&[u8]> {
        match Known::find(name) {
            Some(known) => self.get_known(known),
            None => self.entries.iter().find(|e| self.is_called(e, name)).map(|e| &self.bytes[e.value()]),
        }
    }

    /// The value of the first field of this name.
    #[inline]
    pub fn get_known(&self, known: Known) -> Option<&[u8]> {
        if !self.has_known(known) {
            return None;
        }
        self.entries.iter().find(|e| e.known == known as u8).map(|e| &self.bytes[e.value()])
    }

    /// The values of all fields called `name`, in order.
    pub fn all<'a>(&'a self, name: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        let known = Known::find(name);
        self.entries.iter().filter(move |e| self.matches(e, known, name)).map(|e| &self.bytes[e.value()])
    }

    /// The values of all fields of this name, in order.
    pub fn all_known(&self, known: Known) -> impl Iterator<Item = &[u8]> {
        let entries = if self.has_known(known) { self.entries.as_slice() } else { &[] };
        entries.iter().filter(move |e| e.known == known as u8).map(|e| &self.bytes[e.value()])
    }

    /// Whether a field of this name is present.
    #[inline]
    pub fn has_known(&self, known: Known) -> bool {
        self.present & known.bit() != 0
    }

    /// Whether a field of any of these names is present; it costs what one name does.
    #[inline]
    pub fn has_any(&self, names: KnownSet) -> bool {
        self.present & names.0 != 0
    }

    /// Whether a field called `name` is present.
    pub fn has(&self, name: &[u8]) -> bool {
        match Known::find(name) {
            Some(known) => self.has_known(known),
            None => self.entries.iter().any(|e| self.is_called(e, name)),
        }
    }

    /// Leaves exactly one field called `name`, at the place of the first there was, else at the end. `false`, and nothing
    /// changed, if name or value cannot be in a message. White space is kept as by [`Fields::push`].
    pub fn set(&mut self, name: &[u8], value: &[u8]) -> bool {
        let value = value.trim_ascii_start();
        if !valid_name(name) || !valid_value(value) {
            return false;
        }
        self.replace(Known::find(name), name, value)
    }

    /// As [`Fields::set`], under the canonical name.
    pub fn set_known(&mut self, known: Known, value: &[u8]) -> bool {
        let value = trim(value);
        valid_value(value) && self.replace(Some(known), known.name().as_bytes(), value)
    }

    /// Joins all fields of this name into one with `separator` between the values, at the place of the first: one value
    /// for VCL to look at.
    ///
    /// Source: RFC 9110, section 5.3.
    pub fn collect_known(&mut self, known: Known, separator: &[u8]) {
        if self.all_known(known).nth(1).is_some() {
            let joined = self.all_known(known).collect::<Vec<_>>().join(separator);
            self.set_known(known, &joined);
        }
    }

    /// Appends `value` to the list in the one field of this name, which is made if need be; several are joined first.
    /// `false`, and the list as it was, if `value` cannot be in a message.
    pub fn append_to_list(&mut self, known: Known, value: &[u8]) -> bool {
        let value = trim(value);
        if !self.has_known(known) {
            return valid_value(value) && self.append(Some(known), known.name().as_bytes(), value);
        }
        self.collect_known(known, LIST_SEPARATOR);
        self.squeeze();
        let old = self.entries.iter().position(|e| e.known == known as u8 && e.value_len > 0);
        let Some(index) = old else { return self.set_known(known, value) };
        let old = self.entries[index];
        let start = self.bytes.len();
        let value_len = old.value_len as usize + LIST_SEPARATOR.len() + value.len();
        if !valid_value(value) || u32::try_from(start + value_len + old.size()).is_err() {
            return false;
        }
        self.bytes.extend_from_within(old.start as usize..old.value().end);
        self.bytes.extend_from_slice(LIST_SEPARATOR);
        self.bytes.extend_from_slice(value);
        self.bytes.extend_from_slice(END);
        let entry = Entry { start: start as u32, value_len: value_len as u32, ..old };
        self.live = self.live - old.size() + entry.size();
        self.entries[index] = entry;
        true
    }

    /// Removes all fields called `name` and says how many there were.
    pub fn remove(&mut self, name: &[u8]) -> usize {
        match Known::find(name) {
            Some(known) => self.remove_known(known),
            None => self.remove_where(|fields, e| fields.is_called(e, name)),
        }
    }

    /// Removes all fields of this name and says how many there were.
    pub fn remove_known(&mut self, known: Known) -> usize {
        if !self.has_known(known) {
            return 0;
        }
        self.present &= !known.bit();
        self.remove_where(|_, e| e.known == known as u8)
    }

    /// Keeps only the fields for which `keep` says so.
    pub fn retain(&mut self, mut keep: impl FnMut(Field<'_>) -> bool) {
        self.remove_where(|fields, e| !keep(fields.field(e)));
        self.present = self.entries.iter().fold(0, |set, e| set | Self::bit_of(e.known));
    }

    /// All fields, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Field<'_>> {
        self.entries.iter().map(|e| self.field(e))
    }

    /// The lines in order, without CRLF: what [`Field::line`] has.
    pub fn lines(&self) -> impl Iterator<Item = &[u8]> {
        self.entries.iter().map(|entry| {
            let start = entry.start as usize;
            &self.bytes[start..start + entry.size() - END.len()]
        })
    }

    /// Appends all lines, each with its CRLF, without the empty line that ends a head.
    #[inline]
    pub fn write_to(&self, out: &mut Vec<u8>) {
        out.reserve(self.live);
        let mut run = 0..0;
        for entry in &self.entries {
            let line = entry.whole();
            if line.start != run.end {
                out.extend_from_slice(&self.bytes[run.clone()]);
                run.start = line.start;
            }
            run.end = line.end;
        }
        out.extend_from_slice(&self.bytes[run]);
    }

    /// Makes `self` equal to `other`, in the memory it has: two copies when `other` has no left-over bytes.
    pub fn copy_from(&mut self, other: &Fields) {
        self.clear();
        if other.live == other.bytes.len() && other.in_order() {
            self.bytes.extend_from_slice(&other.bytes);
            self.entries.extend_from_slice(&other.entries);
        } else {
            other.write_to(&mut self.bytes);
            let mut start = 0;
            self.entries.extend(other.entries.iter().map(|e| {
                let moved = Entry { start, ..*e };
                start += e.size() as u32;
                moved
            }));
        }
        self.present = other.present;
        self.live = other.live;
    }

    /// Reads back a block that [`Fields::write_to`] wrote, replacing what is there. The block is ours: its syntax is not
    /// checked again, but whatever it holds, the result is in bounds and reading stops at the first line that is none.
    pub fn load_block(&mut self, block: &[u8]) {
        self.clear();
        let mut rest = block;
        while let Some(end) = find(b'\n', rest) {
            let line = &rest[..end];
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            let Some(colon) = find(b':', line) else { return };
            if colon == 0 || colon > u16::MAX as usize {
                return;
            }
            let name = &line[..colon];
            if !self.append(Known::find(name), name, trim(&line[colon + 1..])) {
                return;
            }
            rest = &rest[end + 1..];
        }
    }

    /// Appends a table of contents for the block that [`Fields::write_to`] writes, 3 bytes a known field, 5 another. Made
    /// once when a block is stored, it lets [`Fields::load_indexed`] read the block several times faster than
    /// [`Fields::load_block`]. Known names go by their number: valid within this process only.
    pub fn write_index(&self, out: &mut Vec<u8>) {
        for entry in &self.entries {
            out.push(entry.known);
            if entry.known == UNKNOWN {
                out.extend_from_slice(&entry.name_len.to_le_bytes());
            }
            match u16::try_from(entry.value_len) {
                Ok(short) if short != LONG => out.extend_from_slice(&short.to_le_bytes()),
                _ => {
                    out.extend_from_slice(&LONG.to_le_bytes());
                    out.extend_from_slice(&entry.value_len.to_le_bytes());
                }
            }
        }
    }

    /// As [`Fields::load_block`], with the table of contents that [`Fields::write_index`] wrote for the same fields.
    /// `false`, and no fields, if the two do not belong together.
    pub fn load_indexed(&mut self, mut index: &[u8], block: &[u8]) -> bool {
        self.clear();
        self.bytes.extend_from_slice(block);
        let mut start = 0;
        while let Some(entry) = Entry::read(&mut index, start) {
            start += entry.size();
            self.present |= Self::bit_of(entry.known);
            self.entries.push(entry);
        }
        if start != block.len() || !index.is_empty() {
            self.clear();
            return false;
        }
        self.live = start;
        true
    }

    fn field<'a>(&'a self, entry: &Entry) -> Field<'a> {
        let line = entry.start as usize..entry.value().end;
        Field {
            name: &self.bytes[entry.name()],
            value: &self.bytes[entry.value()],
            known: Known::from_index(entry.known),
            line: &self.bytes[line],
        }
    }

    /// `name` is no known name.
    fn is_called(&self, entry: &Entry, name: &[u8]) -> bool {
        entry.known == UNKNOWN
            && entry.name_len as usize == name.len()
            && self.bytes[entry.name()].eq_ignore_ascii_case(name)
    }

    fn matches(&self, entry: &Entry, known: Option<Known>, name: &[u8]) -> bool {
        match known {
            Some(known) => entry.known == known as u8,
            None => self.is_called(entry, name),
        }
    }

    fn bit_of(known: u8) -> u128 {
        Known::from_index(known).map_or(0, Known::bit)
    }

    /// Writes the line at the end of the bytes; `None` if 32 bits cannot count that far.
    #[inline]
    fn write_line(&mut self, known: Option<Known>, name: &[u8], value: &[u8]) -> Option<Entry> {
        let start = self.bytes.len();
        let size = name.len() + value.len() + OVERHEAD;
        u32::try_from(start + size).ok()?;
        debug_assert!(valid_value(value) && !name.is_empty());
        self.bytes.reserve(size);
        self.bytes.extend_from_slice(name);
        self.bytes.extend_from_slice(SEPARATOR);
        self.bytes.extend_from_slice(value);
        self.bytes.extend_from_slice(END);
        self.live += size;
        Some(Entry {
            start: start as u32,
            value_len: value.len() as u32,
            name_len: name.len() as u16,
            known: known.map_or(UNKNOWN, |known| known as u8),
        })
    }

    /// `name` and `value` have been checked.
    #[inline]
    pub(crate) fn append(&mut self, known: Option<Known>, name: &[u8], value: &[u8]) -> bool {
        let Some(entry) = self.write_line(known, name, value) else { return false };
        self.present |= known.map_or(0, Known::bit);
        self.entries.push(entry);
        true
    }

    /// Takes over a block of lines that are all in our own form; `names` tells for each the lengths of name and value.
    /// The block has been checked, and the lengths fill it exactly.
    pub(crate) fn adopt(&mut self, block: &[u8], lines: impl Iterator<Item = (usize, usize)>) -> bool {
        let base = self.bytes.len();
        if u32::try_from(base + block.len()).is_err() {
            return false;
        }
        self.bytes.extend_from_slice(block);
        let mut start = base;
        for (name_len, value_len) in lines {
            let known = Known::find(&self.bytes[start..start + name_len]);
            self.present |= known.map_or(0, Known::bit);
            let known = known.map_or(UNKNOWN, |known| known as u8);
            let entry =
                Entry { start: start as u32, value_len: value_len as u32, name_len: name_len as u16, known };
            start += entry.size();
            self.entries.push(entry);
        }
        debug_assert_eq!(start, self.bytes.len());
        self.live += block.len();
        true
    }

    /// `name` and `value` have been checked.
    fn replace(&mut self, known: Option<Known>, name: &[u8], value: &[u8]) -> bool {
        let absent = known.is_some_and(|known| self.present & known.bit() == 0);
        let first =
            if absent { None } else { self.entries.iter().position(|e| self.matches(e, known, name)) };
        let Some(first) = first else {
            self.squeeze();
            return self.append(known, name, value);
        };
        let old = self.entries[first];
        if old.value_len as usize == value.len() && self.bytes[old.name()] == *name {
            self.bytes[old.value()].copy_from_slice(value);
        } else {
            self.squeeze();
            let Some(entry) = self.write_line(known, name, value) else { return false };
            self.live -= old.size();
            self.entries[first] = entry;
        }
        let mut index = 0;
        self.remove_where(|fields, e| {
            index += 1;
            index - 1 > first && fields.matches(e, known, name)
        });
        true
    }

    /// Does not correct `present`.
    fn remove_where(&mut self, mut gone: impl FnMut(&Self, &Entry) -> bool) -> usize {
        let mut kept = 0;
        for index in 0..self.entries.len() {
            let entry = self.entries[index];
            if gone(self, &entry) {
                self.live -= entry.size();
            } else {
                self.entries[kept] = entry;
                kept += 1;
            }
        }
        let removed = self.entries.len() - kept;
        self.entries.truncate(kept);
        removed
    }

    /// Whether entry follows entry in the bytes, so that a copy of the bytes is a copy of what would be written.
    fn in_order(&self) -> bool {
        self.entries.windows(2).all(|pair| pair[0].start < pair[1].start)
    }

    /// Drops left-over bytes once they outweigh the live ones.
    fn squeeze(&mut self) {
        if self.bytes.len() - self.live > self.live + GARBAGE_MIN {
            let mut fresh = Fields::new();
            fresh.copy_from(self);
            *self = fresh;
        }
    }

    /// Sweeps the invariants; for tests.
    #[cfg(test)]
    pub(crate) fn check(&self) {
        let mut written = Vec::new();
        self.write_to(&mut written);
        assert_eq!(written.len(), self.live);
        let mut present = 0;
        for field in self.iter() {
            assert_eq!(field.known, Known::find(field.name));
            assert!(valid_name(field.name) && valid_value(field.value));
            assert_eq!(field.value.trim_ascii_start(), field.value);
            present |= field.known.map_or(0, Known::bit);
        }
        assert_eq!(present, self.present);
        assert!(self.bytes.len() - self.live <= self.live + GARBAGE_MIN + (128 << 10));
    }
}

impl PartialEq for Fields {
    /// Equal lines in equal order.
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().zip(other.iter()).all(|(a, b)| a.line == b.line)
    }
}

impl Eq for Fields {}

fn take_u16(bytes: &mut &[u8]) -> Option<u16> {
    let (number, rest) = bytes.split_first_chunk::<2>()?;
    *bytes = rest;
    Some(u16::from_le_bytes(*number))
}

/// Where `needle` first is. Eight bytes a step: lines are short, so a call into a library costs more than it saves.
#[inline]
fn find(needle: u8, bytes: &[u8]) -> Option<usize> {
    const LOW: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x8080_8080_8080_8080;
    let pattern = LOW * u64::from(needle);
    let (words, tail) = bytes.as_chunks::<8>();
    for (index, word) in words.iter().enumerate() {
        // A byte of `differs` is zero where `needle` is; the lowest set bit of `hit` is exact.
        let differs = u64::from_le_bytes(*word) ^ pattern;
        let hit = differs.wrapping_sub(LOW) & !differs & HIGH;
        if hit != 0 {
            return Some(index * 8 + hit.trailing_zeros() as usize / 8);
        }
    }
    tail.iter().position(|&byte| byte == needle).map(|at| words.len() * 8 + at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(lines: &[(&str, &str)]) -> Fields {
        let mut fields = Fields::new();
        for (name, value) in lines {
            assert!(fields.push(name.as_bytes(), value.as_bytes()));
        }
        fields.check();
        fields
    }

    fn check(fields: &Fields, text: &str) {
        fields.check();
        let mut out = Vec::new();
        fields.write_to(&mut out);
        assert_eq!(String::from_utf8_lossy(&out), text);
        let mut back = Fields::new();
        back.load_block(&out);
        back.check();
        // Reading drops white space behind a value.
        let lines =
            |fields: &Fields| fields.lines().map(|line| line.trim_ascii_end().to_vec()).collect::<Vec<_>>();
        assert_eq!(lines(&back), lines(fields));
        let mut index = Vec::new();
        fields.write_index(&mut index);
        assert!(back.load_indexed(&index, &out));
        back.check();
        assert_eq!(&back, fields);
        back.copy_from(fields);
        back.check();
        assert_eq!(&back, fields);
    }

    #[test]
    fn an_index_that_does_not_belong_is_refused() {
        let fields = of(&[("Host", "a"), ("X-Long", &"x".repeat(70_000))]);
        let (mut block, mut index) = (Vec::new(), Vec::new());
        fields.write_to(&mut block);
        fields.write_index(&mut index);
        let mut back = Fields::new();
        assert!(back.load_indexed(&index, &block));
        assert_eq!(back, fields);
        for end in 0..index.len() {
            assert!(!back.load_indexed(&index[..end], &block));
            assert!(back.is_empty() && back.byte_len() == 0);
        }
        assert!(!back.load_indexed(&index, &block[1..]));
        assert!(!back.load_indexed(&[0xfe; 9], &block));
    }

    #[test]
    fn pushed_fields_are_written_as_they_came_but_for_leading_blanks() {
        check(&of(&[("Host", " a\t"), ("x-b", ""), ("X-B", "2")]), "Host: a\t\r\nx-b: \r\nX-B: 2\r\n");
    }

    #[test]
    fn lookups_ignore_case_and_find_the_first() {
        let fields = of(&[("x-b", "1"), ("hOST", "a"), ("X-B", "2"), ("Host", "b")]);
        assert_eq!(fields.get(b"X-b"), Some(&b"1"[..]));
        assert_eq!(fields.get(b"host"), Some(&b"a"[..]));
        assert_eq!(fields.get_known(Known::Host), Some(&b"a"[..]));
        assert_eq!(fields.get_known(Known::Age), None);
        assert_eq!(fields.get(b"nope"), None);
        assert_eq!(fields.all(b"X-B").collect::<Vec<_>>(), [b"1", b"2"]);
        assert_eq!(fields.all_known(Known::Host).collect::<Vec<_>>(), [b"a", b"b"]);
        assert!(fields.has(b"HOST") && fields.has(b"X-B") && !fields.has(b"Y"));
    }

    #[test]
    fn set_keeps_the_first_place_and_leaves_one() {
        let mut fields = of(&[("A", "1"), ("B", "2"), ("a", "3"), ("C", "4")]);
        assert!(fields.set(b"A", b"long"));
        check(&fields, "A: long\r\nB: 2\r\nC: 4\r\n");
        assert!(fields.set(b"b", b"x"));
        check(&fields, "A: long\r\nb: x\r\nC: 4\r\n");
        assert!(fields.set_known(Known::Age, b"7"));
        assert!(fields.set_known(Known::Age, b"8"));
        check(&fields, "A: long\r\nb: x\r\nC: 4\r\nAge: 8\r\n");
        assert!(fields.set(b"A", b"s"));
        assert!(fields.set(b"C", b"four"));
        check(&fields, "A: s\r\nb: x\r\nC: four\r\nAge: 8\r\n");
    }

    #[test]
    fn rfc9110_5_3_lists_are_joined_and_grow() {
        let mut fields = of(&[("Cookie", "a"), ("Vary", "x"), ("vary", "y"), ("cookie", "b"), ("Age", "")]);
        fields.collect_known(Known::Vary, b", ");
        fields.collect_known(Known::Cookie, b"; ");
        fields.collect_known(Known::Host, b", ");
        check(&fields, "Cookie: a; b\r\nVary: x, y\r\nAge: \r\n");
        assert!(fields.append_to_list(Known::Vary, b" z "));
        assert!(fields.append_to_list(Known::XForwardedFor, b"1.2.3.4"));
        assert!(fields.append_to_list(Known::XForwardedFor, b"::1"));
        assert!(fields.append_to_list(Known::Age, b"1"));
        assert!(!fields.append_to_list(Known::Vary, b"a\r\nb"));
        check(&fields, "Cookie: a; b\r\nVary: x, y, z\r\nAge: 1\r\nX-Forwarded-For: 1.2.3.4, ::1\r\n");
        fields.push(b"x-forwarded-for", b"b");
        fields.append_to_list(Known::XForwardedFor, b"c");
        assert_eq!(fields.get(b"X-Forwarded-For"), Some(&b"1.2.3.4, ::1, b, c"[..]));
        fields.check();
    }

    #[test]
    fn removal_counts_and_forgets() {
        let mut fields = of(&[("Age", "1"), ("X", "2"), ("age", "3"), ("x", "4"), ("Via", "5")]);
        assert_eq!(fields.remove_known(Known::Age), 2);
        assert_eq!(fields.remove(b"x"), 2);
        assert_eq!(fields.remove(b"x"), 0);
        check(&fields, "Via: 5\r\n");
        fields.retain(|field| field.known != Some(Known::Via));
        check(&fields, "");
        assert!(!fields.has_known(Known::Via));
        assert!(fields.is_empty());
    }

    #[test]
    fn rfc9112_11_1_nothing_splits_a_message() {
        let mut fields = of(&[("A", "1")]);
        for value in ["a\r\nB: 2", "a\rb", "a\nb", "a\0b", "\x7f"] {
            assert!(!fields.push(b"X", value.as_bytes()));
            assert!(!fields.set(b"A", value.as_bytes()));
            assert!(!fields.set_known(Known::Host, value.as_bytes()));
            assert!(!fields.push_known(Known::Host, value.as_bytes()));
        }
        for name in ["", "a b", "a:", "a\r\nb"] {
            assert!(!fields.push(name.as_bytes(), b"x"));
        }
        check(&fields, "A: 1\r\n");
    }

    #[test]
    fn repeated_set_does_not_grow_without_bound() {
        let mut fields = of(&[("A", "1")]);
        for round in 0..100_000u32 {
            fields.set(b"A", "x".repeat(1 + (round % 50) as usize).as_bytes());
        }
        assert!(fields.bytes.len() < 20_000, "{}", fields.bytes.len());
        fields.check();
    }

    #[test]
    fn any_block_loads_without_a_panic() {
        for block in ["", "\n", ":\n", "a\n", "a:\n", ": b\r\n", "a: b", "a: b\r\n\r\n", "a:b\r\nc"] {
            Fields::new().load_block(block.as_bytes());
        }
    }

    #[test]
    fn find_sees_every_place() {
        let text: Vec<u8> = (0..40).collect();
        for at in 0..40u8 {
            assert_eq!(find(at, &text), Some(at as usize));
        }
        assert_eq!(find(200, &text), None);
    }

    /// What a list of pairs does where `Fields` is clever.
    #[derive(Default)]
    struct Model(Vec<(String, String)>);

    impl Model {
        fn set(&mut self, name: &str, value: &str) {
            let same = |line: &(String, String)| line.0.eq_ignore_ascii_case(name);
            let at = self.0.iter().position(same).unwrap_or(self.0.len());
            let before = self.0.len();
            self.0.retain(|line| !same(line));
            let at = if at == before { self.0.len() } else { at };
            self.0.insert(at, (name.into(), value.into()));
        }
    }

    proptest! {
        #[test]
        fn any_operations_do_what_a_list_does(
            operations in prop::collection::vec((0u8..6, "Age|AGE|Via|X|x|Yy", "[a-c]{0,4}"), 0..40),
        ) {
            let (mut fields, mut model) = (Fields::new(), Model::default());
            for (operation, name, value) in &operations {
                let (name_bytes, value_bytes) = (name.as_bytes(), value.as_bytes());
                match (operation, Known::find(name_bytes)) {
                    (0 | 1, _) => {
                        fields.push(name_bytes, value_bytes);
                        model.0.push((name.clone(), value.clone()));
                    }
                    (2, _) => {
                        fields.set(name_bytes, value_bytes);
                        model.set(name, value);
                    }
                    (3, Some(known)) => {
                        fields.set_known(known, value_bytes);
                        model.set(known.name(), value);
                    }
                    (4, _) => {
                        fields.retain(|field| field.value != value_bytes);
                        model.0.retain(|line| line.1 != *value);
                    }
                    _ => {
                        fields.remove(name_bytes);
                        model.0.retain(|line| !line.0.eq_ignore_ascii_case(name));
                    }
                }
            }
            let text: String = model.0.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
            check(&fields, &text);
        }
    }
}
