//! A stored head: the reason phrase, CRLF, then the fields as they go on the wire, each with CRLF.

use copal_wire as wire;
use wire::ResponseHead;

/// Writes the head of `response` as the store keeps it.
pub(crate) fn join(response: &ResponseHead, out: &mut Vec<u8>) {
    out.clear();
    out.extend_from_slice(&response.reason);
    out.extend_from_slice(b"\r\n");
    response.fields.write_to(out);
}

/// Reason phrase and field block of a stored head.
pub(crate) fn split(head: &[u8]) -> (&[u8], &[u8]) {
    match head.windows(2).position(|pair| pair == b"\r\n") {
        Some(end) => (&head[..end], &head[end + 2..]),
        None => (head, b""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn split_undoes_join() {
        let mut response = ResponseHead::default();
        response.reason.extend_from_slice(b"Quite Fine");
        response.fields.push(b"ETag", b"\"x\"");
        let mut head = Vec::new();
        join(&response, &mut head);
        assert_eq!(split(&head), (&b"Quite Fine"[..], &b"ETag: \"x\"\r\n"[..]));
        assert_eq!(split(b""), (&b""[..], &b""[..]));
    }
}
