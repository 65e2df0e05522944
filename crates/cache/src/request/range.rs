//! A range of a body that is in no store: of an answer that VCL made, or of one that an origin gives to one client and that
//! is the whole. Such a body is read once, from its beginning, so several ranges get all of it.
//!
//! Source: RFC 9110, sections 14.2 and 15.3.7.

use super::framing;
use crate::exchange::Exchange;
use copal_wire as wire;
use wire::range::Ranges;
use wire::{Known, syntax};

/// Answers the request's range, if it has one, the response is a whole of known length, and that can be done. False leaves
/// the response as it is.
pub(super) fn cut(exchange: &mut Exchange) -> bool {
    if exchange.response.status != 200 {
        return false;
    }
    let Some(length) = length(exchange) else { return false };
    match framing::ranges(exchange, length) {
        Ranges::Whole => false,
        Ranges::Unsatisfiable => {
            framing::unsatisfiable(exchange, length);
            true
        }
        Ranges::Parts(parts) => {
            let [(first, last)] = *parts.as_slice() else { return false };
            if !exchange.body.cut(first, last + 1) {
                return false;
            }
            framing::single(exchange, Some(length), (first, last));
            true
        }
    }
}

/// The length of the body that is there, or would be but for the request's being a HEAD.
fn length(exchange: &Exchange) -> Option<u64> {
    let said = || exchange.response.fields.get_known(Known::ContentLength);
    if exchange.body.is_empty() && exchange.is_head() {
        return said().and_then(syntax::parse_digits);
    }
    // Where VCL took the length away, the client is to get it in chunks.
    exchange.body.length().filter(|_| !exchange.body.is_relayed() || said().is_some())
}
