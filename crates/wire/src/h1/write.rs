//! Heads as they go out.

use crate::{RequestHead, ResponseHead};
use copal_base::units::push_integer;

/// Appends the request line, the fields and the empty line. `method` and `target` must be as [`super::parse_request`]
/// accepts them; whoever changes them checks them.
///
/// Source: RFC 9112, section 3.
pub fn write_request_head(head: &RequestHead, out: &mut Vec<u8>) {
    out.reserve(head.method.len() + head.target.len() + 14 + head.fields.byte_len());
    out.extend_from_slice(&head.method);
    out.push(b' ');
    out.extend_from_slice(&head.target);
    out.push(b' ');
    out.extend_from_slice(head.version.as_bytes());
    out.extend_from_slice(b"\r\n");
    head.fields.write_to(out);
    out.extend_from_slice(b"\r\n");
}

/// Appends the status line, the fields and the empty line.
///
/// Source: RFC 9112, section 4.
pub fn write_response_head(head: &ResponseHead, out: &mut Vec<u8>) {
    out.reserve(head.reason.len() + 17 + head.fields.byte_len());
    out.extend_from_slice(head.version.as_bytes());
    out.push(b' ');
    push_integer(out, u64::from(head.status));
    out.push(b' ');
    out.extend_from_slice(&head.reason);
    out.extend_from_slice(b"\r\n");
    head.fields.write_to(out);
    out.extend_from_slice(b"\r\n");
}
