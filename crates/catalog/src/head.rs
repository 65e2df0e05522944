//! A stored head.
//!
//! | bytes | meaning |
//! |---|---|
//! | 2 | length of the reason phrase, in the machine's order, as all numbers here |
//! | 2 | length of the index |
//! | | reason phrase |
//! | | index: where each field of the block begins ([`Fields::write_index`]) |
//! | | block: the fields as they go on the wire, each with CRLF |
//!
//! The index is for this process only: a store that outlives it keeps reason and block, and makes the index anew.

use copal_wire as wire;
use wire::{Fields, ResponseHead};

const NUMBERS: usize = 4;

/// Writes the head of `response` as the store keeps it. A reason beyond 64 KiB is cut.
pub fn join(response: &ResponseHead, out: &mut Vec<u8>) {
    let reason = &response.reason[..response.reason.len().min(usize::from(u16::MAX))];
    out.clear();
    out.extend_from_slice(&(reason.len() as u16).to_ne_bytes());
    out.extend_from_slice(&[0; 2]);
    out.extend_from_slice(reason);
    let before = out.len();
    response.fields.write_index(out);
    match u16::try_from(out.len() - before) {
        Ok(length) => out[2..NUMBERS].copy_from_slice(&length.to_ne_bytes()),
        // More fields than an index takes: it is read without one.
        Err(_) => out.truncate(before),
    }
    response.fields.write_to(out);
}

/// Reason phrase, index and block of a stored head; all empty if it is none (a marker's).
fn split(head: &[u8]) -> (&[u8], &[u8], &[u8]) {
    let number =
        |at: usize| head.get(at..at + 2).map(|bytes| usize::from(u16::from_ne_bytes([bytes[0], bytes[1]])));
    let parts = || {
        let rest = &head[NUMBERS..];
        let (reason, rest) = rest.split_at_checked(number(0)?)?;
        let (index, block) = rest.split_at_checked(number(2)?)?;
        Some((reason, index, block))
    };
    if head.len() < NUMBERS { (b"", b"", b"") } else { parts().unwrap_or((b"", b"", b"")) }
}

/// Reads a stored head into `fields` and gives its reason phrase.
pub fn load<'head>(head: &'head [u8], fields: &mut Fields) -> &'head [u8] {
    let (reason, index, block) = split(head);
    if !fields.load_indexed(index, block) {
        fields.load_block(block);
    }
    reason
}

/// A stored head in a form that outlives the process: the reason phrase with its length, little endian in two bytes, and the
/// block.
pub(crate) fn pack(head: &[u8]) -> Vec<u8> {
    let (reason, _, block) = split(head);
    let mut packed = Vec::with_capacity(2 + reason.len() + block.len());
    packed.extend_from_slice(&(reason.len() as u16).to_le_bytes());
    packed.extend_from_slice(reason);
    packed.extend_from_slice(block);
    packed
}

/// A head as it is stored, from what [`pack`] gave; `None` if it is none.
pub(crate) fn unpack(packed: &[u8]) -> Option<Vec<u8>> {
    let (length, rest) = packed.split_first_chunk::<2>()?;
    let (reason, block) = rest.split_at_checked(usize::from(u16::from_le_bytes(*length)))?;
    let mut response = ResponseHead { reason: reason.to_vec(), ..ResponseHead::default() };
    response.fields.load_block(block);
    let mut head = Vec::new();
    join(&response, &mut head);
    Some(head)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn load_undoes_join() {
        let mut response = ResponseHead::default();
        response.reason.extend_from_slice(b"Quite Fine");
        response.fields.push(b"ETag", b"\"x\"");
        response.fields.push(b"X-Own", b"y");
        let mut head = Vec::new();
        join(&response, &mut head);
        let mut fields = Fields::new();
        assert_eq!(load(&head, &mut fields), b"Quite Fine");
        let lines: Vec<_> = fields.lines().collect();
        assert_eq!(lines, [&b"ETag: \"x\""[..], b"X-Own: y"]);
        assert_eq!(fields.get(b"etag"), Some(&b"\"x\""[..]));
    }

    #[test]
    fn no_head_is_empty() {
        let mut fields = Fields::new();
        for head in [&b""[..], b"a", b"\xff\xff\xff\xffx"] {
            assert_eq!(load(head, &mut fields), b"");
            assert!(fields.is_empty());
        }
    }
}
