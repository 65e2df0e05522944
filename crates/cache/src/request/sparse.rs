//! The body of an object that is kept in pieces: opened before the response's head is made, so that a version that has
//! changed, or an origin that does not answer, is known while there is something to be done about it.

use super::miss;
use super::multipart::Parts;
use super::step::Step;
use crate::body::{Body, Source as _};
use crate::exchange::{Exchange, Obj};
use crate::fetch::Refusal;
use crate::fetch::sparse::Reader;
use crate::fetch::sparse::reader::Stop;
use crate::fetch::sparse::requester::Requester;
use crate::known::Known;
use catalog::reason::Reason;
use copal_catalog as catalog;
use copal_rules as rules;
use copal_wire as wire;
use rules::cache_status::Forward;
use std::rc::Rc;
use wire::RequestHead;
use wire::range::{Multipart, Ranges};

/// The object, if its body is in segments.
#[inline]
pub(super) fn of(exchange: &Exchange) -> Option<Rc<Known>> {
    match &exchange.obj {
        Obj::Stored(known) if known.sparse().is_some() => Some(Rc::clone(known)),
        Obj::Stored(_) | Obj::Private(_) | Obj::None => None,
    }
}

/// Waits for the first segment that the client will get. The next step, if that is not to deliver the object.
pub(super) async fn open(exchange: &mut Exchange, known: &Rc<Known>) -> Option<Step> {
    let Some(ranges) = wanted(exchange, known) else {
        exchange.close_segments();
        return None;
    };
    let mut reader = reader(exchange, known, ranges)?;
    if let Some(step) = restrained(exchange, &mut reader) {
        return Some(step);
    }
    let stop = match reader.open().await {
        Ok(()) => {
            if exchange.hit && reader.has_asked() {
                exchange.handled.partial();
                exchange.reason = Reason::Partial;
            }
            exchange.sparse = Some(reader);
            return None;
        }
        Err(stop) => stop,
    };
    reader.close(&mut exchange.records);
    let refusal = reader.take_refusal();
    drop(reader);
    Some(instead(exchange, stop, refusal))
}

/// The next step of a request that has had no byte, and does not get the first that it wants: if the version has changed,
/// it looks for the new one, as often as it could restart; if something else came from the origin, it gets that, as for a
/// miss; else the origin is asked for this request alone.
fn instead(exchange: &mut Exchange, stop: Stop, refusal: Option<Box<Refusal>>) -> Step {
    exchange.obj = Obj::None;
    exchange.hit = false;
    if exchange.demand.is_some_and(|demand| demand.directives.only_if_cached) {
        exchange.reason = Reason::OnlyIfCached;
        return Step::Synth(504, None);
    }
    if stop == Stop::Changed && exchange.looked_again < exchange.current.settings.max_restarts {
        exchange.looked_again += 1;
        return Step::Lookup;
    }
    exchange.handled.forward(Forward::Partial);
    exchange.reason = Reason::NoPieces;
    match refusal {
        Some(refusal) => {
            let Refusal { mut fetch, fetched } = *refusal;
            miss::take(exchange, &mut fetch, fetched)
        }
        None => Step::Pass,
    }
}

/// The next step of a request that wants nothing fetched, or nothing stored, if that would be needed: what is stored in part
/// does not do for it then (RFC 9111, sections 5.2.1.5 and 5.2.1.7).
fn restrained(exchange: &mut Exchange, reader: &mut Reader) -> Option<Step> {
    let directives = exchange.demand?.directives;
    if !exchange.hit || !directives.only_if_cached && !directives.no_store {
        return None;
    }
    if reader.is_at_hand() {
        if directives.only_if_cached {
            reader.stay_offline();
        }
        return None;
    }
    exchange.obj = Obj::None;
    exchange.hit = false;
    if directives.only_if_cached {
        exchange.reason = Reason::OnlyIfCached;
        return Some(Step::Synth(504, None));
    }
    exchange.reason = Reason::RequestNoStore;
    Some(Step::Pass)
}

/// The ranges that the client will get, unless VCL changes that later; `None` if it gets no body.
pub(crate) fn wanted(exchange: &Exchange, known: &Known) -> Option<Vec<(u64, u64)>> {
    let total = known.length()?;
    let whole = Some(vec![(0, total)]);
    let request = &exchange.request.fields;
    if exchange.esi_level > 0 {
        return whole;
    }
    if exchange.is_head() {
        return None;
    }
    let now = exchange.local.now();
    if rules::conditional::not_modified(request, known.fields(), now, known.origin_time()) {
        return None;
    }
    let settings = &exchange.current.settings;
    if !settings.http_range_support || !rules::conditional::if_range_holds(request, known.fields()) {
        return whole;
    }
    match wire::range::of_request(request, total, settings.http_range_max) {
        Ranges::Unsatisfiable => None,
        Ranges::Parts(parts) => Some(spans(&parts)),
        Ranges::Whole => whole,
    }
}

fn reader(exchange: &mut Exchange, known: &Rc<Known>, ranges: Vec<(u64, u64)>) -> Option<Box<Reader>> {
    let pieces = known.pieces()?;
    let requester = requester(exchange);
    Some(Box::new(Reader::new(requester, known, pieces, ranges, exchange.segment_job.take())))
}

/// For whom segments are fetched.
fn requester(exchange: &Exchange) -> Requester {
    let mut request = RequestHead::default();
    request.copy_from(&exchange.request);
    Requester {
        local: Rc::clone(&exchange.local),
        session: Rc::clone(&exchange.session),
        current: Rc::clone(&exchange.current),
        request,
        vxid: exchange.vxid,
        client_ip: exchange.client_ip,
        identity: exchange.identity.clone(),
        backend: exchange.hint(),
        rfc: exchange.rfc,
    }
}

/// First byte and first byte behind of each part.
fn spans(parts: &[(u64, u64)]) -> Vec<(u64, u64)> {
    parts.iter().map(|&(first, last)| (first, last + 1)).collect()
}

/// The parts of `known` that `frame` lays out, whether its body is in segments or not.
pub(super) fn parts(exchange: &mut Exchange, known: &Rc<Known>, frame: Multipart) -> Body {
    if known.sparse().is_none() {
        return Body::made_by(Parts::new(known, frame));
    }
    opened(exchange, known, spans(frame.parts()))
        .map_or(Body::Empty, |reader| Body::made_by(Parts::of_pieces(reader, frame)))
}

/// The reader that was opened, if it reads these ranges, else a new one.
fn opened(exchange: &mut Exchange, known: &Rc<Known>, ranges: Vec<(u64, u64)>) -> Option<Box<Reader>> {
    let opened = exchange.sparse.take().filter(|reader| reader.is_for(known, &ranges));
    opened.or_else(|| reader(exchange, known, ranges))
}

/// The bytes `from..end` of `known`, whether its body is in segments or not.
pub(super) fn body(exchange: &mut Exchange, known: &Rc<Known>, from: u64, end: u64) -> Body {
    let Some(layout) = known.sparse() else { return Body::object(known, from, end) };
    let ranges = vec![(from, end.min(layout.total))];
    opened(exchange, known, ranges).map_or(Body::Empty, |reader| Body::Source(reader))
}
