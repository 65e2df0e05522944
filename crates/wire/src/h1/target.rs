//! The four forms of a request target, and what clients send instead.

use crate::{Known, Reject, RequestHead, syntax};

/// The form of a request target.
///
/// Source: RFC 9112, section 3.2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TargetForm {
    /// `/path?query`
    Origin,
    /// `http://authority/path?query`, or `https`. The path may be empty.
    Absolute,
    /// `host:port`, with CONNECT only.
    Authority,
    /// `*`, with OPTIONS only.
    Asterisk,
    /// A path that does not begin with `/`: not of the RFC, but passed on as it is, as Varnish does.
    Relative,
}

/// Checks `target` against `method` and says which form it has.
///
/// # Errors
/// [`Reject::Target`] for a byte or a form that is none, [`Reject::Scheme`] for `ftp://` and the like,
/// [`Reject::Authority`] for an authority that is empty, malformed or has userinfo.
#[inline]
pub fn target_form(method: &[u8], target: &[u8]) -> Result<TargetForm, Reject> {
    if !syntax::valid_target_bytes(target) {
        return Err(Reject::Target);
    }
    if method == b"CONNECT" {
        let has_port = target.iter().rposition(|&byte| byte == b':').is_some_and(|at| at + 1 < target.len());
        return if has_port && syntax::valid_authority(target) {
            Ok(TargetForm::Authority)
        } else {
            Err(Reject::Authority)
        };
    }
    match target {
        [b'/', ..] => Ok(TargetForm::Origin),
        b"*" if method == b"OPTIONS" => Ok(TargetForm::Asterisk),
        _ if is_relative(target) => Ok(TargetForm::Relative),
        _ => split_absolute(target).map(|_| TargetForm::Absolute),
    }
}

/// A path by its first byte, and by having nothing before its first `/` that another reader might take for a host.
fn is_relative(target: &[u8]) -> bool {
    let first = target.split(|byte| matches!(byte, b'/' | b'?')).next().unwrap_or_default();
    first
        .first()
        .is_some_and(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'~'))
        && !first.iter().any(|byte| matches!(byte, b':' | b'@' | b'\\'))
}

/// Splits an absolute-form target into authority and what follows it: empty, or beginning with `/` or `?`.
fn split_absolute(target: &[u8]) -> Result<(&[u8], &[u8]), Reject> {
    let scheme_end = target.iter().position(|&byte| byte == b':').ok_or(Reject::Target)?;
    let (scheme, rest) = target.split_at(scheme_end);
    let rest = rest.strip_prefix(b"://").ok_or(Reject::Target)?;
    if !scheme.eq_ignore_ascii_case(b"http") && !scheme.eq_ignore_ascii_case(b"https") {
        return Err(Reject::Scheme);
    }
    let end = rest.iter().position(|&byte| matches!(byte, b'/' | b'?')).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    if syntax::valid_authority(authority) { Ok((authority, path)) } else { Err(Reject::Authority) }
}

/// Turns an absolute-form target into origin-form: its authority becomes the one Host whatever Host said, the target
/// becomes its path and query (`*` for OPTIONS without either). Other forms are left as they are.
///
/// # Errors
/// As [`target_form`]; never after [`super::parse_request`] accepted the head and nothing changed it.
///
/// Source: RFC 9112, sections 3.2.2 and 3.2.4.
pub fn absolute_form(head: &mut RequestHead) -> Result<(), Reject> {
    if target_form(&head.method, &head.target)? != TargetForm::Absolute {
        return Ok(());
    }
    let (authority, path) = split_absolute(&head.target)?;
    if !head.fields.set_known(Known::Host, authority) {
        return Err(Reject::Authority);
    }
    let removed = head.target.len() - path.len();
    let prefix: &[u8] = match path.first() {
        Some(b'/') => b"",
        None if head.method == b"OPTIONS" => b"*",
        _ => b"/",
    };
    head.target.splice(..removed, prefix.iter().copied());
    Ok(())
}
