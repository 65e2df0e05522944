//! Heads of HTTP/2 requests, from the parts that framing and HPACK leave of them.
//!
//! What comes out stands to the same rules as a head of HTTP/1 and can be written as one: whatever could mean something
//! else there is refused here.

use crate::h1::{Limits, RequestFraming, absolute_form, check_host, target_form};
use crate::{Known, Reject, RequestHead, Version, syntax};

/// How an HTTP/2 connection with prior knowledge begins (RFC 9113, section 3.4).
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// What a request's pseudo-fields say.
#[derive(Debug, Clone, Copy)]
pub struct Pseudo<'a> {
    /// `:method`
    pub method: &'a [u8],
    /// `:path`; with CONNECT the authority.
    pub path: &'a [u8],
    /// `:authority`, if there is one.
    pub authority: Option<&'a [u8]>,
}

/// Makes `head` of a request's pseudo-fields and fields. `:authority` becomes Host, whatever Host said.
///
/// # Errors
/// As for a head of HTTP/1, and for fields that belong to a connection of HTTP/1 (RFC 9113, section 8.2.2).
pub fn request_head<'a>(
    pseudo: &Pseudo<'_>,
    fields: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    limits: &Limits,
    head: &mut RequestHead,
) -> Result<(), Reject> {
    head.clear();
    head.version = Version::Http20;
    if !syntax::is_token(pseudo.method) {
        return Err(Reject::Method);
    }
    head.method.extend_from_slice(pseudo.method);
    target_form(pseudo.method, pseudo.path)?;
    head.target.extend_from_slice(pseudo.path);
    if let Some(authority) = pseudo.authority
        && !head.fields.push_known(Known::Host, authority)
    {
        return Err(Reject::Authority);
    }
    let mut size = pseudo.method.len() + pseudo.path.len();
    for (name, value) in fields {
        size += name.len() + value.len() + 4;
        if !limits.allow(name, value) {
            return Err(Reject::LineTooLong);
        }
        if size > limits.head_bytes {
            return Err(Reject::HeadTooLarge);
        }
        match Known::find(name) {
            Some(Known::Host) if pseudo.authority.is_some() => continue,
            Some(Known::Te) if syntax::trim(value).eq_ignore_ascii_case(b"trailers") => continue,
            Some(known) if known.is_hop_by_hop() => return Err(Reject::FieldName),
            _ => {}
        }
        if head.fields.len() >= limits.fields {
            return Err(Reject::TooManyFields);
        }
        if !head.fields.push(name, value) {
            return Err(if syntax::valid_name(name) { Reject::FieldValue } else { Reject::FieldName });
        }
    }
    absolute_form(head)?;
    check_host(head)
}

/// How the body of `head` is delimited where it goes on over HTTP/1. `ended` says that there is none.
///
/// # Errors
/// A length that is none, or several.
pub fn request_framing(head: &RequestHead, ended: bool) -> Result<RequestFraming, Reject> {
    Ok(match crate::h1::request_framing(head)? {
        RequestFraming::None if !ended => RequestFraming::Chunked,
        framing => framing,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(pseudo: (&str, &str, Option<&str>), fields: &[(&str, &str)]) -> Result<String, Reject> {
        let mut head = RequestHead::new();
        let pseudo = Pseudo {
            method: pseudo.0.as_bytes(),
            path: pseudo.1.as_bytes(),
            authority: pseudo.2.map(str::as_bytes),
        };
        let fields = fields.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        request_head(&pseudo, fields, &Limits::default(), &mut head)?;
        let mut text = Vec::new();
        crate::h1::write_request_head(&head, &mut text).unwrap();
        Ok(String::from_utf8(text).unwrap())
    }

    #[test]
    fn a_request_reads_as_one_of_http_1() {
        assert_eq!(
            head(("GET", "/a?b", Some("x.example:80")), &[("accept", "*/*"), ("host", "other")]).unwrap(),
            "GET /a?b HTTP/2.0\r\nHost: x.example:80\r\naccept: */*\r\n\r\n"
        );
        assert_eq!(
            head(("GET", "/", None), &[("host", "y"), ("te", "trailers")]).unwrap(),
            "GET / HTTP/2.0\r\nhost: y\r\n\r\n"
        );
    }

    #[test]
    fn rfc_9113_section_8_malformed_requests() {
        let refused = |pseudo, fields: &[(&str, &str)], reject| assert_eq!(head(pseudo, fields), Err(reject));
        let plain = ("GET", "/", Some("x"));
        refused(("G T", "/", None), &[], Reject::Method);
        refused(("GET", "", None), &[], Reject::Target);
        refused(("GET", "/ HTTP/1.1\r\nX: y", None), &[], Reject::Target);
        refused(("GET", "/", Some("x\r\ny: z")), &[], Reject::Authority);
        refused(("GET", "/", Some("x y")), &[], Reject::Host);
        refused(plain, &[("connection", "close")], Reject::FieldName);
        refused(plain, &[("transfer-encoding", "chunked")], Reject::FieldName);
        refused(plain, &[("te", "gzip")], Reject::FieldName);
        refused(plain, &[("a b", "c")], Reject::FieldName);
        refused(plain, &[("a", "b\r\nc: d")], Reject::FieldValue);
        refused(("GET", "/", None), &[("host", "a"), ("host", "b")], Reject::RepeatedHost);
        refused(plain, &[("a", &"b".repeat(40 << 10))], Reject::LineTooLong);
        let many: Vec<_> = (0..200).map(|_| ("a", "b")).collect();
        refused(plain, &many, Reject::TooManyFields);
    }

    #[test]
    fn a_body_has_a_length_or_is_chunked() {
        let framing = |length: Option<&str>, ended| {
            let mut head = RequestHead { version: Version::Http20, ..RequestHead::new() };
            if let Some(length) = length {
                head.fields.push_known(Known::ContentLength, length.as_bytes());
            }
            request_framing(&head, ended)
        };
        assert_eq!(framing(None, true), Ok(RequestFraming::None));
        assert_eq!(framing(None, false), Ok(RequestFraming::Chunked));
        assert_eq!(framing(Some("5"), false), Ok(RequestFraming::Length(5)));
        assert_eq!(framing(Some("x"), false), Err(Reject::Length));
    }
}
