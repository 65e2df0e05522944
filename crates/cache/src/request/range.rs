//! A range of a body that is in no store: of an answer that VCL made, or of one that an origin gives to one client and that
//! is the whole. Such a body is read once, from its beginning, so several ranges get all of it.
//!
//! Source: RFC 9110, sections 14.2 and 15.3.7.

use super::deliver;
use crate::body::Body;
use crate::exchange::Exchange;
use copal_wire as wire;
use std::rc::Rc;
use wire::range::Ranges;
use wire::{Known, syntax};

/// Answers the request's range, if it has one, the response is a whole of known length, and that can be done. False leaves
/// the response as it is.
pub(super) fn cut(exchange: &mut Exchange) -> bool {
    if exchange.response.status != 200 {
        return false;
    }
    let Some(length) = length(exchange) else { return false };
    match deliver::ranges(exchange, length) {
        Ranges::Whole => false,
        Ranges::Unsatisfiable => {
            deliver::unsatisfiable(exchange, length);
            true
        }
        Ranges::Parts(parts) => {
            let [(first, last)] = *parts.as_slice() else { return false };
            if !cut_body(&mut exchange.body, first, last + 1) {
                return false;
            }
            deliver::single(exchange, Some(length), (first, last));
            true
        }
    }
}

/// The length of the body that is there, or would be but for the request's being a HEAD.
fn length(exchange: &Exchange) -> Option<u64> {
    match &exchange.body {
        Body::Empty if !exchange.is_head() => Some(0),
        Body::Empty => {
            exchange.response.fields.get_known(Known::ContentLength).and_then(syntax::parse_digits)
        }
        Body::Bytes(bytes, _) => Some(bytes.len() as u64),
        Body::Object(known, _) => known.length(),
        // Where VCL took the length away, the client is to get it in chunks.
        Body::Relay(relay) => {
            relay.length().filter(|_| exchange.response.fields.has_known(Known::ContentLength))
        }
        Body::Sparse(_) | Body::Parts(_) | Body::Filtered(_) | Body::Esi(_) => None,
    }
}

/// Leaves the bytes `from..end` of a body that nobody has begun to read.
fn cut_body(body: &mut Body, from: u64, end: u64) -> bool {
    match body {
        Body::Empty => true,
        Body::Bytes(bytes, _) => {
            let place = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(bytes.len());
            *bytes = bytes.slice(place(from)..place(end));
            true
        }
        Body::Object(known, _) => {
            let known = Rc::clone(known);
            *body = Body::object(&known, from, end);
            true
        }
        Body::Relay(relay) => {
            relay.cut(from, end);
            true
        }
        Body::Sparse(_) | Body::Parts(_) | Body::Filtered(_) | Body::Esi(_) => false,
    }
}
