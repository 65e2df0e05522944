//! The head of a response that is going out: its status, length, range and connection. Each change is logged.

use crate::body::Body;
use crate::exchange::Exchange;
use crate::message::is_bodiless;
use base::units::push_integer;
use copal_base as base;
use copal_observe as observe;
use copal_rules as rules;
use copal_wire as wire;
use observe::Tag;
use wire::range::Ranges;
use wire::{Known, Version, standard_reason};

/// Whether a Range of this request means something. That of a HEAD does not (RFC 9110, section 14.2); Varnish answers as to
/// a GET.
pub(super) fn may_want_part(exchange: &Exchange) -> bool {
    reads(exchange) && !(exchange.rfc && exchange.is_head())
}

/// Whether it is a GET or a HEAD.
pub(super) fn reads(exchange: &Exchange) -> bool {
    matches!(exchange.request.method.as_slice(), b"GET" | b"HEAD")
}

/// The ranges that the request wants of a body of `length`.
pub(super) fn ranges(exchange: &mut Exchange, length: u64) -> Ranges {
    if !exchange.current.settings.http_range_support {
        return Ranges::Whole;
    }
    let request = &exchange.request.fields;
    if !request.has_known(Known::Range)
        || !rules::conditional::if_range_holds(request, &exchange.response.fields)
    {
        return Ranges::Whole;
    }
    wire::range::of_request(request, length, exchange.current.settings.http_range_max)
}

/// Sets the status and its standard reason.
pub(super) fn status(exchange: &mut Exchange, status: u16) {
    let reason = standard_reason(status).as_bytes();
    exchange.response.set_status(status, reason);
    exchange.records.text(Tag::RespProtocol, b"HTTP/1.1");
    exchange.records.fmt(Tag::RespStatus, format_args!("{status}"));
    exchange.records.text(Tag::RespReason, reason);
}

/// Answers that no range of the request lies in a body of `length`.
pub(super) fn unsatisfiable(exchange: &mut Exchange, length: u64) {
    exchange.body = Body::Empty;
    let mut value = Vec::with_capacity(32);
    wire::range::content_range_unsatisfied(length, &mut value);
    exchange.response.fields.set_known(Known::ContentRange, &value);
    exchange.records.header(Tag::RespHeader, b"Content-Range", &value);
    status(exchange, 416);
    set_length(exchange, 0);
}

/// The head of one part of a whole of `length` bytes, if that is known.
pub(super) fn single(exchange: &mut Exchange, length: Option<u64>, (first, last): (u64, u64)) {
    let mut value = Vec::with_capacity(48);
    wire::range::content_range((first, last), length, &mut value);
    exchange.response.fields.set_known(Known::ContentRange, &value);
    exchange.records.header(Tag::RespHeader, b"Content-Range", &value);
    status(exchange, 206);
    set_length(exchange, last - first + 1);
}

/// Says how long the body is, unless it says so already.
pub(super) fn set_length(exchange: &mut Exchange, length: u64) {
    let mut text = std::mem::take(&mut exchange.scratch);
    text.clear();
    push_integer(&mut text, length);
    if !is_bodiless(exchange.response.status)
        && exchange.response.fields.get_known(Known::ContentLength) != Some(&text)
    {
        unset_length(exchange);
        exchange.response.fields.push_own(Known::ContentLength, &text);
        exchange.records.header(Tag::RespHeader, b"Content-Length", &text);
    }
    exchange.scratch = text;
}

/// Takes the length away that the object has.
pub(super) fn unset_length(exchange: &mut Exchange) {
    if let Some(length) = exchange.response.fields.get_known(Known::ContentLength) {
        exchange.records.header(Tag::RespUnset, b"Content-Length", length);
        exchange.response.fields.remove_known(Known::ContentLength);
    }
}

/// Chunked for a client that knows it, else the end of the connection ends the body.
pub(super) fn set_unknown_length(exchange: &mut Exchange) {
    unset_length(exchange);
    if exchange.is_head() || is_bodiless(exchange.response.status) {
        return;
    }
    match exchange.request.version {
        Version::Http11 => {
            exchange.response.fields.set_known(Known::TransferEncoding, b"chunked");
            exchange.records.text(Tag::RespHeader, b"Transfer-Encoding: chunked");
        }
        Version::Http10 => exchange.close = true,
        // A stream has an end of its own.
        Version::Http20 => {}
    }
}

/// Says whether the connection stays open.
pub(super) fn set_connection(exchange: &mut Exchange) {
    if exchange.request.version == Version::Http20 {
        // A stream has no fields of a connection (RFC 9113, section 8.2.2).
        rules::hop::strip_nominated(&mut exchange.response.fields);
        exchange.response.fields.remove_known(Known::Connection);
        return;
    }
    if exchange.client_wants_close()
        || exchange
            .response
            .fields
            .get_known(Known::Connection)
            .is_some_and(|v| v.eq_ignore_ascii_case(b"close"))
    {
        exchange.close = true;
    }
    let value: &[u8] = if exchange.close { b"close" } else { b"keep-alive" };
    exchange.response.fields.set_own(Known::Connection, value);
    exchange.records.header(Tag::RespHeader, b"Connection", value);
}
