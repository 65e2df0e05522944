//! Where a body ends, and whether the connection goes on after it.
//!
//! The one place that reads Content-Length and Transfer-Encoding. Everything doubtful is refused: request smuggling is
//! two readers taking a different byte for the end of a body.
//!
//! Source: RFC 9112, sections 6, 7 and 9.3.

use crate::{Fields, Known, Reject, RequestHead, ResponseHead, Version, syntax};

/// The largest Content-Length: peers keep it in signed 64 bits.
const LENGTH_MAX: u64 = i64::MAX as u64;

/// How a request's body is delimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestFraming {
    /// No body.
    None,
    /// This many bytes; may be zero.
    Length(u64),
    /// Chunked: see [`crate::chunked`].
    Chunked,
}

/// How a response's body is delimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponseFraming {
    /// No body, whatever the fields say. Bytes that follow belong to no response: do not use the connection again if
    /// there are any.
    None,
    /// This many bytes; may be zero.
    Length(u64),
    /// Chunked: see [`crate::chunked`].
    Chunked,
    /// All bytes until the connection is closed; whether the body is whole cannot be known.
    UntilClose,
}

/// What the two fields say, kind of message aside.
enum Said {
    Nothing,
    Length(u64),
    Chunked,
}

/// How the body of `head` is delimited. The method plays no part: a GET may have a body.
///
/// # Errors
/// Both fields, either one twice, a list, anything but digits or `chunked` (in any case), Transfer-Encoding in HTTP/1.0,
/// and there a POST or PUT that does not say how long it is (RFC 1945, section 8.3).
///
/// Source: RFC 9112, sections 6.1 and 6.3.
pub fn request_framing(head: &RequestHead) -> Result<RequestFraming, Reject> {
    Ok(match said(head.version, &head.fields)? {
        Said::Nothing if head.version == Version::Http10 && matches!(&head.method[..], b"POST" | b"PUT") => {
            return Err(Reject::Length);
        }
        Said::Nothing => RequestFraming::None,
        Said::Length(length) => RequestFraming::Length(length),
        Said::Chunked => RequestFraming::Chunked,
    })
}

/// How the body of `head`, an answer to `method`, is delimited.
///
/// # Errors
/// As [`request_framing`], also where there is no body: a cache stores and forwards these fields.
///
/// Source: RFC 9112, sections 6.1 and 6.3.
pub fn response_framing(method: &[u8], head: &ResponseHead) -> Result<ResponseFraming, Reject> {
    let said = said(head.version, &head.fields)?;
    Ok(match said {
        _ if is_bodyless(method, head.status) => ResponseFraming::None,
        Said::Nothing => ResponseFraming::UntilClose,
        Said::Length(length) => ResponseFraming::Length(length),
        Said::Chunked => ResponseFraming::Chunked,
    })
}

/// Codings that mean something: a body in one of them is not what it stands for until it is decoded.
///
/// Source: the registry of transfer codings, RFC 9112, section 12.3.
const CODINGS: [&[u8]; 6] = [b"chunked", b"compress", b"deflate", b"gzip", b"x-compress", b"x-gzip"];

/// As [`response_framing`], but takes a Transfer-Encoding that is one word without a meaning, as `identity` now is: such a
/// body ends with its connection, and there is nothing to decode.
///
/// # Errors
/// As [`response_framing`], for all else.
///
/// Source: RFC 9112, section 6.3, rule 4.
pub fn response_framing_by_close(method: &[u8], head: &ResponseHead) -> Result<ResponseFraming, Reject> {
    let framing = response_framing(method, head);
    if framing != Err(Reject::UnknownEncoding) {
        return framing;
    }
    let coding = head.fields.get_known(Known::TransferEncoding).unwrap_or_default();
    if !syntax::is_token(coding) || CODINGS.iter().any(|known| coding.eq_ignore_ascii_case(known)) {
        return framing;
    }
    Ok(if is_bodyless(method, head.status) { ResponseFraming::None } else { ResponseFraming::UntilClose })
}

/// Whether the answer of this `status` to `method` has no body, whatever its fields say.
fn is_bodyless(method: &[u8], status: u16) -> bool {
    let tunnel = method == b"CONNECT" && (200..300).contains(&status);
    method == b"HEAD" || matches!(status, 100..=199 | 204 | 304) || tunnel
}

fn said(version: Version, fields: &Fields) -> Result<Said, Reject> {
    if fields.has_known(Known::TransferEncoding) {
        return transfer_encoding(version, fields).map(|()| Said::Chunked);
    }
    let mut lengths = fields.all_known(Known::ContentLength);
    let Some(length) = lengths.next() else { return Ok(Said::Nothing) };
    if lengths.next().is_some() {
        return Err(Reject::RepeatedLength);
    }
    let length = syntax::parse_digits(length).filter(|&length| length <= LENGTH_MAX).ok_or(Reject::Length)?;
    Ok(Said::Length(length))
}

/// Accepts the one Transfer-Encoding there can be.
fn transfer_encoding(version: Version, fields: &Fields) -> Result<(), Reject> {
    if fields.has_known(Known::ContentLength) {
        return Err(Reject::LengthAndEncoding);
    }
    if version == Version::Http10 {
        return Err(Reject::EncodingInHttp10);
    }
    let mut codings = fields.all_known(Known::TransferEncoding);
    let coding = codings.next().unwrap_or_default();
    if codings.next().is_some() || coding.contains(&b',') {
        return Err(Reject::RepeatedEncoding);
    }
    if coding.eq_ignore_ascii_case(b"chunked") { Ok(()) } else { Err(Reject::UnknownEncoding) }
}

/// Whether Connection names only what may be one connection's: a sender that has Host or Age taken out for the next
/// reader is an attacker.
///
/// # Errors
/// [`Reject::Connection`] for a field that is known to be for every reader.
///
/// Source: RFC 9110, section 7.6.1.
pub fn check_connection(fields: &Fields) -> Result<(), Reject> {
    let mut options = fields.all_known(Known::Connection).flat_map(syntax::tokens);
    // The two that nearly all send are no fields and cost no look-up.
    let wrong = options.any(|option| {
        !option.eq_ignore_ascii_case(b"keep-alive")
            && !option.eq_ignore_ascii_case(b"close")
            && Known::find(option).is_some_and(|known| {
                !known.is_hop_by_hop() && known != Known::AcceptRanges || known == Known::ProxyAuthorization
            })
    });
    if wrong { Err(Reject::Connection) } else { Ok(()) }
}

/// Whether the sender means to keep the connection: the default of its version, unless Connection says otherwise.
/// `close` wins over `keep-alive`.
///
/// Source: RFC 9112, section 9.3.
pub fn keep_alive(version: Version, fields: &Fields) -> bool {
    let mut keep = version >= Version::Http11;
    for option in fields.all_known(Known::Connection).flat_map(syntax::tokens) {
        if option.eq_ignore_ascii_case(b"close") {
            return false;
        }
        keep |= option.eq_ignore_ascii_case(b"keep-alive");
    }
    keep
}
