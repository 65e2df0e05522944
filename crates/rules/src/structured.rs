//! Small help for writing structured fields: names, texts and numbers that are always valid, and appending to a list.
//!
//! Source: RFC 9651, sections 3.3 and 4.1.

use copal_base::Seconds;
use copal_wire::{Fields, Known};
use sfv::visitor::Ignored;
use sfv::{Integer, Parser, RefBareItem, StringRef, TokenRef};
use std::borrow::Cow;

/// The largest number of 15 digits.
const INTEGER_MAX: f64 = 999_999_999_999_999.0;

/// `text` with `?` for what no string may hold.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        return Cow::Borrowed(text);
    }
    text.bytes().map(|byte| if matches!(byte, b' '..=b'~') { char::from(byte) } else { '?' }).collect()
}

/// `bytes` as text, with `%XX` for what no string may hold.
pub(crate) fn escaped(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for &byte in bytes {
        match byte {
            b' '..=b'~' => text.push(char::from(byte)),
            _ => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

/// `text`, which is printable, as a string.
pub(crate) fn string(text: &str) -> RefBareItem<'_> {
    RefBareItem::String(StringRef::from_str(text).unwrap_or(StringRef::EMPTY))
}

/// `text`, which is printable, as a token if it is one, else as a string.
pub(crate) fn name(text: &str) -> RefBareItem<'_> {
    TokenRef::from_str(text).map_or_else(|_| string(text), RefBareItem::Token)
}

/// Seconds as an integer, rounded down; 0 for what is no number, the nearest that can be written for what is too large.
pub(crate) fn whole_seconds(seconds: Seconds) -> Integer {
    let bounded = if seconds.is_nan() { 0.0 } else { seconds.floor().clamp(-INTEGER_MAX, INTEGER_MAX) };
    Integer::try_from(bounded as i64).unwrap_or(Integer::ZERO)
}

/// Whether `value` is a list.
pub(crate) fn is_list(value: &[u8]) -> bool {
    Parser::new(value).parse_list_with_visitor(Ignored).is_ok()
}

/// Appends `member` to the list in the fields of this name, several of which become one. What is there and is no list
/// goes: a reader would have to ignore it, and `member` with it.
pub(crate) fn append(fields: &mut Fields, name: Known, member: &str) {
    if fields.has_known(name) {
        fields.collect_known(name, b", ");
        if fields.get_known(name).is_some_and(|value| !value.is_empty() && is_list(value)) {
            fields.append_to_list(name, member.as_bytes());
            return;
        }
    }
    fields.set_known(name, member.as_bytes());
}
