//! What requests and responses share: strict line ends, limits, and moving fields into [`Fields`].

use super::Limits;
use crate::{Fields, Known, Reject, syntax};

/// How many fields are parsed without allocating; a higher limit costs one allocation a head.
pub(super) const INLINE_FIELDS: usize = 128;

/// Checks a complete head, from its first line to its empty line: every LF follows a CR, every CR precedes an LF, and no
/// other control byte but HTAB occurs.
///
/// # Errors
/// [`Reject::LineEnd`] or [`Reject::ControlByte`].
pub(super) fn strict_bytes(head: &[u8]) -> Result<(), Reject> {
    // Two folds without early exit: both run in vector registers.
    let control = head.iter().fold(false, |bad, &byte| {
        bad | ((byte < 0x20) & (byte != b'\t') & (byte != b'\r') & (byte != b'\n')) | (byte == 0x7f)
    });
    if control {
        return Err(Reject::ControlByte);
    }
    let following = head.get(1..).unwrap_or_default();
    let torn = head
        .iter()
        .zip(following)
        .fold(false, |bad, (&byte, &next)| bad | ((byte == b'\r') != (next == b'\n')));
    if torn || head.first() == Some(&b'\n') || head.last() == Some(&b'\r') {
        return Err(Reject::LineEnd);
    }
    Ok(())
}

/// Moves the fields that `httparse` found in `head` into `fields`. `head` is the whole head and has passed
/// [`strict_bytes`]; its field lines begin at `first`.
///
/// Clients mostly send `Name: value` with one space: then all lines are taken over in one copy.
///
/// # Errors
/// A limit, or a name or value that is none.
pub(super) fn take_fields(
    head: &[u8],
    first: usize,
    parsed: &[httparse::Header<'_>],
    limits: &Limits,
    fields: &mut Fields,
) -> Result<(), Reject> {
    fields.clear();
    // The last two bytes are the empty line.
    let end = head.len().saturating_sub(2);
    let block = head.get(first..end).ok_or(Reject::LineEnd)?;
    let base = block.as_ptr() as usize;
    let mut expected = 0;
    let mut canonical = true;
    for header in parsed {
        let (name, value) = (header.name.as_bytes(), header.value);
        if name.is_empty() || name.len() > u16::MAX as usize {
            return Err(Reject::FieldName);
        }
        if !limits.allow(name, value) {
            return Err(Reject::LineTooLong);
        }
        // Pieces of `block`, so their addresses tell whether they stand where our own form would put them.
        canonical &= name.as_ptr() as usize == base + expected;
        canonical &= value.as_ptr() as usize == base + expected + name.len() + 2;
        expected += name.len() + value.len() + 4;
    }
    canonical &= expected == block.len();
    // A HTAB may stand for the space; it is not worth a look at each line, only one at the block.
    if canonical && !block.contains(&b'\t') {
        let lines = parsed.iter().map(|header| (header.name.len(), header.value.len()));
        return if fields.adopt(block, lines) { Ok(()) } else { Err(Reject::HeadTooLarge) };
    }
    for header in parsed {
        let (name, value) = (header.name.as_bytes(), syntax::trim(header.value));
        if !fields.append(Known::find(name), name, value) {
            return Err(Reject::HeadTooLarge);
        }
    }
    Ok(())
}

/// Says why `httparse` refused a field line: it has one error for several of our reasons.
pub(super) fn name_fault(head: &[u8]) -> Reject {
    for line in head.split(|&byte| byte == b'\n').skip(1) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            break;
        }
        if matches!(line[0], b' ' | b'\t') {
            return Reject::FieldSpace;
        }
        let Some(colon) = line.iter().position(|&byte| byte == b':') else { return Reject::FieldName };
        if colon > 0 && matches!(line[colon - 1], b' ' | b'\t') {
            return Reject::FieldSpace;
        }
        if !syntax::is_token(&line[..colon]) {
            return Reject::FieldName;
        }
    }
    Reject::FieldName
}
