//! Request heads.

use super::mend::{self, Mend};
use super::scan::{INLINE_FIELDS, name_fault, strict_bytes, take_fields};
use super::target::target_form;
use super::{Limits, Parse};
use crate::{Known, Reject, RequestHead, Version, syntax};
use std::mem::MaybeUninit;

/// How many empty lines before a request are skipped; some clients send one after a body.
///
/// Source: RFC 9112, section 2.2.
const LEADING_LINES_MAX: usize = 4;
/// Longest method: the longest registered one (`UPDATEREDIRECTREF`) has 17 bytes.
const METHOD_MAX: usize = 64;
/// How an HTTP/2 client with prior knowledge begins (RFC 9113, section 3.4); enough of it to be sure.
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2";

/// Parses the request head at the start of `buf` into `head`, replacing what is there and keeping its memory.
///
/// After `Done` the method is a token, the target has one of the four forms of RFC 9112 section 3.2 (see
/// [`super::target_form`]) and no byte that could end it, there is at most one Host and it is well-formed, and no field
/// has a control byte. HTTP/1.1 without Host passes: answering it is policy. After `Partial` or an error `head` holds
/// nothing of use.
///
/// # Errors
/// The first thing found wrong. The connection cannot be used further.
///
/// Source: RFC 9112, sections 2, 3 and 5.
pub fn parse_request(buf: &[u8], limits: &Limits, head: &mut RequestHead) -> Result<Parse, Reject> {
    match parse_strict(buf, limits, head) {
        Err(Reject::LineEnd) => mended(buf, limits, head),
        result => result,
    }
}

/// A head whose lines end otherwise, if they all do.
fn mended(buf: &[u8], limits: &Limits, head: &mut RequestHead) -> Result<Parse, Reject> {
    match mend::request(buf, limits.head_bytes) {
        Mend::Partial => Ok(Parse::Partial),
        Mend::No => Err(Reject::LineEnd),
        Mend::Done(mended) => match parse_strict(&mended.head, limits, head)? {
            Parse::Done(_) => Ok(Parse::Done(mended.size)),
            Parse::Partial => Err(Reject::LineEnd),
        },
    }
}

fn parse_strict(buf: &[u8], limits: &Limits, head: &mut RequestHead) -> Result<Parse, Reject> {
    let Some(skipped) = leading_lines(buf)? else { return Ok(Parse::Partial) };
    let buf = &buf[skipped..];
    if limits.fields <= INLINE_FIELDS {
        let mut headers = [const { MaybeUninit::uninit() }; INLINE_FIELDS];
        parse_with(buf, skipped, &mut headers[..limits.fields], limits, head)
    } else {
        let mut headers = vec![MaybeUninit::uninit(); limits.fields.min(limits.head_bytes / 4 + 1)];
        parse_with(buf, skipped, &mut headers, limits, head)
    }
}

/// The length of the empty lines at the start; `None` if it cannot be told yet.
fn leading_lines(buf: &[u8]) -> Result<Option<usize>, Reject> {
    let mut at = 0;
    loop {
        match buf.get(at..).unwrap_or_default() {
            [b'\r', b'\n', ..] if at == 2 * LEADING_LINES_MAX => return Err(Reject::LeadingEmptyLines),
            [b'\r', b'\n', ..] => at += 2,
            [] | [b'\r'] => return Ok(None),
            [b'\r' | b'\n', ..] => return Err(Reject::LineEnd),
            _ => return Ok(Some(at)),
        }
    }
}

fn parse_with<'b>(
    buf: &'b [u8],
    skipped: usize,
    headers: &mut [MaybeUninit<httparse::Header<'b>>],
    limits: &Limits,
    head: &mut RequestHead,
) -> Result<Parse, Reject> {
    let mut request = httparse::Request::new(&mut []);
    let size = match request.parse_with_uninit_headers(buf, headers) {
        Ok(httparse::Status::Complete(size)) if skipped + size <= limits.head_bytes => size,
        Ok(httparse::Status::Partial) if skipped + buf.len() < limits.head_bytes => {
            return Ok(Parse::Partial);
        }
        Ok(_) => return Err(too_large(&buf[..buf.len().min(limits.head_bytes)])),
        Err(error) => return Err(fault(error, buf)),
    };
    let whole = &buf[..size];
    strict_bytes(whole)?;
    let (Some(method), Some(target), Some(minor)) = (request.method, request.path, request.version) else {
        return Err(Reject::RequestLine);
    };
    if method.len() > METHOD_MAX {
        return Err(Reject::MethodTooLong);
    }
    target_form(method.as_bytes(), target.as_bytes())?;
    // method SP target SP HTTP/1.x CRLF
    let first_field = method.len() + 1 + target.len() + 1 + 8 + 2;
    take_fields(whole, first_field, request.headers, limits, &mut head.fields)?;
    check_host(head)?;
    head.method.clear();
    head.method.extend_from_slice(method.as_bytes());
    head.target.clear();
    head.target.extend_from_slice(target.as_bytes());
    head.version = if minor == 0 { Version::Http10 } else { Version::Http11 };
    Ok(Parse::Done(skipped + size))
}

/// At most one Host, and that a host. An empty one is no host: RFC 9110 section 4.2.1 has it rejected.
pub(crate) fn check_host(head: &RequestHead) -> Result<(), Reject> {
    let mut hosts = head.fields.all_known(Known::Host);
    let Some(host) = hosts.next() else { return Ok(()) };
    if hosts.next().is_some() {
        return Err(Reject::RepeatedHost);
    }
    if syntax::valid_authority(host) { Ok(()) } else { Err(Reject::Host) }
}

/// What of an over-long head was too long: `seen` is as much of it as the limit allows.
fn too_large(seen: &[u8]) -> Reject {
    if seen.contains(&b'\n') {
        Reject::HeadTooLarge
    } else if seen.contains(&b' ') {
        Reject::TargetTooLong
    } else {
        Reject::MethodTooLong
    }
}

/// Gives `httparse`'s error our name.
fn fault(error: httparse::Error, buf: &[u8]) -> Reject {
    let mut words = buf.splitn(3, |&byte| byte == b' ');
    let method = words.next().unwrap_or_default();
    let version = words.nth(1).unwrap_or_default();
    match error {
        httparse::Error::Token if !syntax::is_token(method) => Reject::Method,
        httparse::Error::Token => Reject::Target,
        httparse::Error::Version if buf.starts_with(HTTP2_PREFACE) => Reject::Http2Preface,
        httparse::Error::Version if matches!(version, [b'H', b'T', b'T', b'P', b'/', b'0'..=b'9', ..]) => {
            Reject::Version
        }
        httparse::Error::Version => Reject::RequestLine,
        httparse::Error::NewLine => Reject::LineEnd,
        httparse::Error::HeaderName => name_fault(buf),
        httparse::Error::HeaderValue => Reject::FieldValue,
        httparse::Error::TooManyHeaders => Reject::TooManyFields,
        httparse::Error::Status => Reject::RequestLine,
    }
}
