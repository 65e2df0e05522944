//! Response heads.

use super::mend::{self, Mend};
use super::scan::{INLINE_FIELDS, name_fault, strict_bytes, take_fields};
use super::{Limits, Parse};
use crate::{Reject, ResponseHead, Version};
use std::mem::MaybeUninit;

/// Parses the response head at the start of `buf` into `head`, replacing what is there and keeping its memory.
///
/// What is not of the strict form but can be read in one way only is taken: see [`mend`]. After `Done` the status is 100 to 999 and no field has a control byte.
///
/// # Errors
/// The first thing found wrong. The connection cannot be used further.
///
/// Source: RFC 9112, sections 2, 4 and 5.
pub fn parse_response(buf: &[u8], limits: &Limits, head: &mut ResponseHead) -> Result<Parse, Reject> {
    match parse_strict(buf, limits, head) {
        Err(fault @ (Reject::LineEnd | Reject::FieldSpace)) => mended(buf, limits, head, fault),
        result => result,
    }
}

/// A head with other line ends or folded lines.
fn mended(buf: &[u8], limits: &Limits, head: &mut ResponseHead, fault: Reject) -> Result<Parse, Reject> {
    match mend::response(buf, limits.head_bytes) {
        Mend::Partial => Ok(Parse::Partial),
        Mend::No => Err(fault),
        Mend::Done(mended) => match parse_strict(&mended.head, limits, head)? {
            Parse::Done(_) => Ok(Parse::Done(mended.size)),
            Parse::Partial => Err(fault),
        },
    }
}

fn parse_strict(buf: &[u8], limits: &Limits, head: &mut ResponseHead) -> Result<Parse, Reject> {
    if limits.fields <= INLINE_FIELDS {
        let mut headers = [const { MaybeUninit::uninit() }; INLINE_FIELDS];
        parse_with(buf, &mut headers[..limits.fields], limits, head)
    } else {
        let mut headers = vec![MaybeUninit::uninit(); limits.fields.min(limits.head_bytes / 4 + 1)];
        parse_with(buf, &mut headers, limits, head)
    }
}

fn parse_with<'b>(
    buf: &'b [u8],
    headers: &mut [MaybeUninit<httparse::Header<'b>>],
    limits: &Limits,
    head: &mut ResponseHead,
) -> Result<Parse, Reject> {
    if matches!(buf.first(), Some(b'\r' | b'\n')) {
        return Err(Reject::StatusLine);
    }
    let mut response = httparse::Response::new(&mut []);
    let parsed =
        httparse::ParserConfig::default().parse_response_with_uninit_headers(&mut response, buf, headers);
    let size = match parsed {
        Ok(httparse::Status::Complete(size)) if size <= limits.head_bytes => size,
        Ok(httparse::Status::Partial) if buf.len() < limits.head_bytes => return Ok(Parse::Partial),
        Ok(_) => return Err(Reject::HeadTooLarge),
        Err(error) => return Err(fault(error, buf)),
    };
    let whole = &buf[..size];
    strict_bytes(whole)?;
    let (Some(status), Some(minor)) = (response.code, response.version) else {
        return Err(Reject::StatusLine);
    };
    if !(100..=999).contains(&status) {
        return Err(Reject::StatusLine);
    }
    let line_end = whole.iter().position(|&byte| byte == b'\r').ok_or(Reject::StatusLine)?;
    take_fields(whole, line_end + 2, response.headers, limits, &mut head.fields)?;
    head.version = if minor == 0 { Version::Http10 } else { Version::Http11 };
    head.status = status;
    head.reason.clear();
    // version SP 3digit SP; httparse gives no reason that has bytes from 0x80, so it is taken from the line itself.
    head.reason.extend_from_slice(whole.get(8 + 1 + 3 + 1..line_end).unwrap_or_default());
    Ok(Parse::Done(size))
}

/// Gives `httparse`'s error our name.
fn fault(error: httparse::Error, buf: &[u8]) -> Reject {
    match error {
        httparse::Error::Version => Reject::Version,
        httparse::Error::NewLine => Reject::LineEnd,
        httparse::Error::HeaderName => name_fault(buf),
        httparse::Error::HeaderValue => Reject::FieldValue,
        httparse::Error::TooManyHeaders => Reject::TooManyFields,
        httparse::Error::Status | httparse::Error::Token => Reject::StatusLine,
    }
}
