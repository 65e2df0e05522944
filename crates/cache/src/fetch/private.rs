//! An answer for the asking client alone: its body comes straight from the origin, or is stored aside first.

use super::filling::Job;
use super::filters::Filters;
use super::purpose::Purpose;
use super::relay::{Passing, Relay};
use super::sparse::Reader;
use super::sparse::requester::Requester;
use super::state::{Answer, Fetch, Fetched, Step};
use super::{part, storing};
use crate::body::Body;
use crate::known::Known;
use copal_origin as origin;
use copal_store as store;
use copal_wire as wire;
use origin::Connection;
use std::rc::Rc;
use std::sync::Arc;
use store::Flags;
use wire::Known as Field;
use wire::h1::ResponseFraming;

/// The answer for the asking client alone, its body straight from the origin; `first` of it was read already.
pub(super) async fn private(fetch: &mut Fetch, answer: Answer, first: Vec<u8>, filters: Filters) -> Step {
    if first.is_empty() && part::is_too_much(fetch, &answer) {
        // There was no room for it.
        return part::whole_instead(fetch, answer);
    }
    let mut head = Box::new(wire::ResponseHead::default());
    head.copy_from(&fetch.response);
    head.fields.remove_known(Field::TransferEncoding);
    let mut private = fetch.private();
    private.sends_gzip = filters.flags & Flags::GZIPPED != 0;
    if fetch.purpose == Purpose::Background {
        return Step::Done(Fetched::Failed);
    }
    let transient = Arc::clone(fetch.local.shared.stores.transient());
    let head_hold = transient.count(head.fields.lines().map(|line| line.len() as u64 + 2).sum());
    if fetch.was_304 {
        // An uncacheable 304: the body is the stale object's.
        if let Some(stale) = &fetch.stale {
            let body = match stale.pieces() {
                None => Body::object(stale, 0, u64::MAX),
                Some(pieces) => {
                    let whole = vec![(0, pieces.layout.total)];
                    let reader = Reader::new(Requester::of_fetch(fetch), stale, pieces, whole, None);
                    Body::made_by(reader)
                }
            };
            if let Some(length) = stale.length() {
                head.fields.set_known(Field::ContentLength, length.to_string().as_bytes());
            }
            private.sends_gzip = stale.flags().has(Flags::GZIPPED);
            return Step::Done(Fetched::Private { head, body, private });
        }
    }
    let body = match (answer.framing, answer.connection) {
        (ResponseFraming::None | ResponseFraming::Length(0), connection) => {
            if let Some(connection) = connection {
                fetch.log.release(connection);
            }
            Body::Empty
        }
        (framing, Some(connection)) => {
            let length = match framing {
                ResponseFraming::Length(length) if filters.chain.is_empty() => Some(length),
                _ => None,
            };
            if let Some(length) = length {
                head.fields.set_known(Field::ContentLength, length.to_string().as_bytes());
            } else {
                head.fields.remove_known(Field::ContentLength);
            }
            if !filters.parses {
                storing::log_transient(fetch);
            }
            storing::log_body(fetch, framing, fetch.do_stream && !filters.parses);
            let body = match filters.parses {
                true => Box::pin(aside(fetch, connection, first, filters)).await,
                false => {
                    let passing = Passing::new(&*transient, head_hold);
                    relay(fetch, connection, length, first, filters, passing).await
                }
            };
            // No client has seen the head: VCL may still answer in its place, or retry.
            let Some(body) = body else { return Step::failed() };
            body
        }
        (_, None) => Body::Empty,
    };
    Step::Done(Fetched::Private { head, body, private })
}

/// The body straight from the origin. `None` if it was to be complete first, and failed.
async fn relay(
    fetch: &mut Fetch,
    connection: Box<copal_origin::Connection>,
    length: Option<u64>,
    first: Vec<u8>,
    filters: Filters,
    passing: Passing,
) -> Option<Body> {
    let streams = fetch.do_stream;
    let mut relay = Relay::new(connection, length, first, filters, fetch.log.hand_over(), passing);
    if streams {
        return Some(Body::made_by(relay));
    }
    // Not streamed: the client's head waits until the body is whole, within a bound.
    match relay.collect(fetch.current.settings.relay_max).await {
        Ok(Some(bytes)) => Some(Body::bytes(bytes)),
        Ok(None) => Some(Body::made_by(relay)),
        Err(crate::body::Aborted) => {
            fetch.log = relay.into_log();
            None
        }
    }
}

/// Stores a body that only one client gets, since it can be delivered only when it is complete. `None` if it fails.
pub(super) async fn aside(
    fetch: &mut Fetch,
    connection: Box<Connection>,
    first: Vec<u8>,
    filters: Filters,
) -> Option<Body> {
    let engine = Arc::clone(fetch.local.shared.stores.transient());
    let fill = storing::begin_in(fetch, &*engine, b"", None, filters.flags)?;
    let object = Arc::clone(fill.object());
    let mut job = Job::new(fetch, fill, connection, None, first, filters, false);
    let is_whole = job.complete(&mut fetch.log).await;
    // It is in no index: it goes when its reader does.
    object.unlink();
    is_whole.then(|| Body::object(&Rc::new(Known::new(object)), 0, u64::MAX))
}
