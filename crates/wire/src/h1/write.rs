//! Heads as they go out. The last place where VCL's strings could split a message, so they are checked here once more.

use crate::{Reject, RequestHead, ResponseHead, standard_reason, syntax, valid_value};
use copal_base::units::push_integer;

/// Appends the request line, the fields and the empty line.
///
/// # Errors
/// [`Reject::Method`] or [`Reject::Target`], and nothing appended, if VCL has made the method no token, or the target
/// empty or one with white space or control bytes.
///
/// Source: RFC 9112, section 3.
pub fn write_request_head(head: &RequestHead, out: &mut Vec<u8>) -> Result<(), Reject> {
    if !syntax::is_token(&head.method) {
        return Err(Reject::Method);
    }
    if !syntax::sendable_target(&head.target) {
        return Err(Reject::Target);
    }
    out.reserve(head.method.len() + head.target.len() + 14 + head.fields.byte_len());
    out.extend_from_slice(&head.method);
    out.push(b' ');
    out.extend_from_slice(&head.target);
    out.push(b' ');
    out.extend_from_slice(head.version.as_bytes());
    out.extend_from_slice(b"\r\n");
    head.fields.write_to(out);
    out.extend_from_slice(b"\r\n");
    Ok(())
}

/// Appends the status line, the fields and the empty line. A reason with control bytes, which VCL could make, gives way
/// to the registered one; a status without three digits to 503.
///
/// Source: RFC 9112, section 4.
pub fn write_response_head(head: &ResponseHead, out: &mut Vec<u8>) {
    out.reserve(head.reason.len() + 17 + head.fields.byte_len());
    out.extend_from_slice(head.version.as_bytes());
    out.push(b' ');
    let status = if (100..=999).contains(&head.status) { head.status } else { 503 };
    push_integer(out, u64::from(status));
    out.push(b' ');
    let reason = if valid_value(&head.reason) { &head.reason } else { standard_reason(status).as_bytes() };
    out.extend_from_slice(reason);
    out.extend_from_slice(b"\r\n");
    head.fields.write_to(out);
    out.extend_from_slice(b"\r\n");
}
