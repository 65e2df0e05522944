//! The contents of a marker: why the response that left it was not stored, and where in which VCL that was decided.
//!
//! A marker (hit-for-miss, hit-for-pass) has no head to serve. In the head's place it has one without fields, whose reason
//! phrase is five words, each in a line: the reason's name, the VCL's, the subroutine's, the file's, and the line's
//! number. Without a place in VCL, the last three are empty.

use crate::reason::Reason;
use copal_vcl as vcl;
use copal_wire::{Fields, ResponseHead};
use std::borrow::Cow;
use vcl::places::Place;

/// Longer names are cut, in characters.
const NAME_MAX: usize = 1024;

/// The contents of a marker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marked {
    /// Why the response was not stored.
    pub reason: Reason,
    /// The VCL's name.
    pub vcl: String,
    /// The place in that VCL that decided it, if VCL did.
    pub place: Option<MarkedPlace>,
}

/// A place in VCL that outlives the VCL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MarkedPlace {
    /// The subroutine, as `vcl_backend_response`.
    pub subroutine: String,
    /// The file, as messages name it.
    pub file: String,
    /// The line, from 1.
    pub line: u32,
}

/// The head of a marker.
pub fn head(reason: Reason, vcl: &str, place: Option<&Place<'_>>) -> Vec<u8> {
    let (subroutine, file) = place.map_or(("", ""), |place| (place.subroutine, place.file));
    let line = place.map_or_else(String::new, |place| place.line.to_string());
    let words = [word(reason.name()), word(vcl), word(subroutine), word(file), Cow::Owned(line)];
    let response = ResponseHead { reason: words.join("\n").into_bytes(), ..ResponseHead::default() };
    let mut head = Vec::new();
    crate::head::join(&response, &mut head);
    head
}

fn word(text: &str) -> Cow<'_, str> {
    let text = text.char_indices().nth(NAME_MAX).map_or(text, |(end, _)| &text[..end]);
    if text.contains('\n') { Cow::Owned(text.replace('\n', " ")) } else { Cow::Borrowed(text) }
}

impl Marked {
    /// Reads the head of a marker; `None` if it is no marker's.
    pub fn of(head: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(crate::head::load(head, &mut Fields::new())).ok()?;
        let words: Vec<&str> = text.split('\n').collect();
        let [reason, vcl, subroutine, file, line] = words[..] else { return None };
        let place = line.parse().ok().map(|line| MarkedPlace {
            subroutine: subroutine.to_owned(),
            file: file.to_owned(),
            line,
        });
        Some(Self { reason: Reason::from_name(reason.as_bytes())?, vcl: vcl.to_owned(), place })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_remembers() {
        let head = head(Reason::SetCookie, "boot", None);
        let marked = Marked { reason: Reason::SetCookie, vcl: "boot".into(), place: None };
        assert_eq!(Marked::of(&head), Some(marked));
    }

    #[test]
    fn what_is_no_marker_tells_nothing() {
        let mut head = Vec::new();
        crate::head::join(&ResponseHead { reason: b"OK".to_vec(), ..ResponseHead::default() }, &mut head);
        for bytes in [&head[..], b"", b"\xff\xff\0\0x", b"\x04\0\0\0\xff\n\n\n\n"] {
            assert_eq!(Marked::of(bytes), None);
        }
    }
}
