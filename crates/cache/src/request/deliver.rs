//! `vcl_deliver`: the response as the client gets it: conditions, ranges, framing.

use super::filters::{self, Changes};
use super::framing::{
    may_want_part, ranges, reads, set_connection, set_length, set_unknown_length, single, status,
    unsatisfiable, unset_length,
};
use super::prepared::{self, Marks};
use super::step::{Outcome, Step, fail};
use super::{range, sparse};
use crate::body::Body;
use crate::exchange::{Exchange, Obj};
use crate::fetch::sparse::standalone::StandalonePart;
use crate::known::Known as KnownObject;
use crate::message::{is_bodiless, protocol};
use base::units::push_integer;
use catalog::reason::Reason;
use copal_base as base;
use copal_catalog as catalog;
use copal_filter as filter;
use copal_observe as observe;
use copal_rules as rules;
use copal_vcl as vcl;
use copal_wire as wire;
use filter::names::Unknown;
use observe::{Native, Tag};
use rules::cache_status::Forward;
use rules::conditional::{Held, Precondition};
use std::rc::Rc;
use vcl::host::{Action, Sub};
use wire::range::{Multipart, Ranges};
use wire::{Known, KnownSet, Version};

pub(crate) async fn step(exchange: &mut Exchange) -> Step {
    let plain = prepared::plain(exchange);
    if let Some(known) = &plain
        && prepared::deliver(exchange, known)
    {
        return Step::Done(Outcome::Deliver);
    }
    exchange.records.announce();
    if let Some(known) = sparse::of(exchange)
        && let Some(step) = Box::pin(sparse::open(exchange, &known)).await
    {
        return step;
    }
    if filters::must_not_expand(exchange) {
        return own_answer(exchange);
    }
    let start = exchange.records.mark();
    prepare(exchange);
    let builtin = exchange.is_builtin(Sub::Deliver);
    let action = if builtin {
        exchange.records.native(const { &Native::new("DELIVER", "deliver") });
        Action::Deliver
    } else {
        exchange.decide(Sub::Deliver).await
    };
    let now = if builtin { exchange.now } else { exchange.local.now() };
    let shaping = exchange.records.mark();
    exchange.timestamp("Process", now);
    match action {
        Action::Deliver => {}
        Action::Restart => {
            exchange.body = Body::Empty;
            return Step::Restart;
        }
        Action::Synth(status, reason) => return Step::Synth(status, reason),
        _ => return fail(),
    }
    exchange.response.status %= 1000;
    let shaped = exchange.records.mark();
    if let Err(unknown) = shape(exchange) {
        return refuse(exchange, &unknown);
    }
    if let Some(known) = plain {
        prepared::learn(exchange, &known, Marks { start, shaping, shaped });
    }
    Step::Done(Outcome::Deliver)
}

/// Drops the response, so that the origin is asked for this client alone.
fn own_answer(exchange: &mut Exchange) -> Step {
    exchange.body = Body::Empty;
    exchange.obj = Obj::None;
    exchange.hit = false;
    exchange.close_segments();
    if exchange.demand.is_some_and(|demand| demand.directives.only_if_cached) {
        exchange.reason = Reason::OnlyIfCached;
        return Step::Synth(504, None);
    }
    exchange.handled.forward(Forward::Request);
    exchange.reason = Reason::NoTransform;
    Step::Pass
}

/// The response's head before VCL sees it: the object's, with `Age`, `Via` and `X-Varnish`.
fn prepare(exchange: &mut Exchange) {
    let now = exchange.local.now();
    exchange.now = now;
    let mut text = std::mem::take(&mut exchange.scratch);
    text.clear();
    let (origin_time, object_vxid) = match &exchange.obj {
        Obj::Stored(known) => {
            let response = &mut exchange.response;
            response.status = known.status();
            response.reason.clear();
            response.reason.extend_from_slice(known.reason());
            response.fields.copy_from(known.fields());
            (known.origin_time(), exchange.hit.then(|| known.vxid()))
        }
        Obj::Private(private) => (private.origin_time, exchange.hit.then_some(private.vxid)),
        Obj::None => (now, None),
    };
    exchange.response.version = Version::Http11;
    let fields = &mut exchange.response.fields;
    if let Some(own) = exchange.own_fields.take() {
        if own.has_known(Known::Date) {
            fields.remove_known(Known::Date);
        }
        for field in own.iter() {
            fields.push(field.name, field.value);
        }
    }
    push_integer(&mut text, u64::from(exchange.vxid));
    if let Some(vxid) = object_vxid {
        text.push(b' ');
        push_integer(&mut text, u64::from(vxid));
    }
    fields.remove_known(Known::XVarnish);
    fields.push_own(Known::XVarnish, &text);
    text.clear();
    let age = (now - origin_time).max(0.0) as u64;
    fields.remove_known(Known::Age);
    // Age says that the origin neither made nor confirmed it for this request (RFC 9111, section 5.1); Varnish always sends
    // it.
    if !(exchange.rfc && !exchange.hit && exchange.handled.is_direct()) {
        push_integer(&mut text, age);
        fields.push_own(Known::Age, &text);
    }
    // Each proxy adds its own Via; the fields of those before stay.
    fields.push_own(Known::Via, exchange.current.settings.via());
    if exchange.current.settings.http_range_support && matches!(exchange.obj, Obj::Stored(_)) {
        fields.remove_known(Known::AcceptRanges);
        fields.push_own(Known::AcceptRanges, b"bytes");
    }
    if let Some(trouble) = &exchange.trouble {
        trouble.tell(&exchange.current.settings, fields);
    }
    exchange.scratch = text;
    if exchange.shows_status() {
        exchange.append_status(age);
    }
    exchange.log_response_head();
}

/// Shapes the response after VCL: a 304, a range, or all; and how it is framed.
fn shape(exchange: &mut Exchange) -> Result<(), Unknown> {
    if exchange.esi_level > 0 {
        return included(exchange);
    }
    let wants_part = may_want_part(exchange);
    if reads(exchange) {
        match precondition(exchange) {
            Precondition::Proceed => {}
            Precondition::NotModified => {
                not_modified(exchange);
                set_connection(exchange);
                return Ok(());
            }
            Precondition::Failed => {
                failed(exchange);
                set_connection(exchange);
                return Ok(());
            }
        }
    }
    let wanted = filters::wanted(exchange)?;
    if wanted.changes_body() {
        changed(exchange, wanted, wants_part);
    } else if let Obj::Stored(known) = &exchange.obj {
        let known = Rc::clone(known);
        let partial = wants_part
            && match exchange.response.status {
                200 => wanted.range && of_stored(exchange, &known),
                206 => part_of_part(exchange, &known),
                _ => false,
            };
        if !partial {
            whole(exchange, &known);
        }
    } else if !(wants_part && wanted.range && range::cut(exchange)) {
        relayed(exchange);
    }
    if exchange.is_head() || is_bodiless(exchange.response.status) {
        exchange.body = Body::Empty;
    }
    set_connection(exchange);
    Ok(())
}

/// VCL names an unknown filter: there is nothing to send.
fn refuse(exchange: &mut Exchange, unknown: &Unknown) -> Step {
    exchange.records.fmt(Tag::Error, format_args!("{unknown}"));
    exchange.records.text(Tag::Error, b"Failure to push processors");
    exchange.body = Body::Empty;
    exchange.close = true;
    Step::Done(Outcome::Close)
}

/// Prepares the body of an include, which has no head and no framing.
fn included(exchange: &mut Exchange) -> Result<(), Unknown> {
    let wanted = filters::wanted(exchange)?;
    filters::apply(exchange, wanted);
    if is_bodiless(exchange.response.status) {
        exchange.body = Body::Empty;
    }
    Ok(())
}

/// Frames a body that goes through filters, or a part of it.
fn changed(exchange: &mut Exchange, wanted: Changes, wants_part: bool) {
    let Some(length) = filters::apply(exchange, wanted) else {
        return set_unknown_length(exchange);
    };
    if wants_part && wanted.range && exchange.response.status == 200 {
        // Several parts would need to go back and forth in it: then it is sent whole.
        match ranges(exchange, length) {
            Ranges::Unsatisfiable => return unsatisfiable(exchange, length),
            Ranges::Parts(parts) if parts.len() == 1 => {
                let (first, last) = parts[0];
                single(exchange, Some(length), (first, last));
                let is_cut = exchange.body.cut(first, last + 1);
                debug_assert!(is_cut, "a body of known length that goes through filters");
                return;
            }
            Ranges::Whole | Ranges::Parts(_) => {}
        }
    }
    set_length(exchange, length);
}

/// The verdict of the request's conditions on a good response.
fn precondition(exchange: &Exchange) -> Precondition {
    let received = match &exchange.obj {
        Obj::Stored(known) => known.origin_time(),
        // What goes by the cache was the origin's to judge; of another answer for one client, it never saw the conditions.
        Obj::Private(private) if exchange.rfc && private.passed => return Precondition::Proceed,
        Obj::Private(private) => private.origin_time,
        Obj::None => return Precondition::Proceed,
    };
    let (status, request, fields) =
        (exchange.response.status, &exchange.request.fields, &exchange.response.fields);
    if exchange.rfc {
        let held = Held { status, fields, received };
        return rules::conditional::precondition(&exchange.request.method, request, &held);
    }
    let is_same = status == 200 && rules::conditional::not_modified(request, fields, exchange.now, received);
    if is_same { Precondition::NotModified } else { Precondition::Proceed }
}

/// If-Match or If-Unmodified-Since does not hold. What the response says of its caching was said of another.
fn failed(exchange: &mut Exchange) {
    const KEPT: KnownSet = KnownSet::of(&[
        Known::CacheStatus,
        Known::Connection,
        Known::Date,
        Known::Etag,
        Known::LastModified,
        Known::Server,
        Known::Via,
        Known::XVarnish,
    ]);
    exchange.body = Body::Empty;
    let Exchange { response, records, .. } = exchange;
    for field in response.fields.iter().filter(|field| !KEPT.has(field.known)) {
        records.text(Tag::RespUnset, field.line);
    }
    response.fields.retain(|field| KEPT.has(field.known));
    status(exchange, 412);
    exchange.records.text(Tag::Filters, b"");
    set_length(exchange, 0);
}

fn not_modified(exchange: &mut Exchange) {
    exchange.body = Body::Empty;
    exchange.response.set_status(304, b"Not Modified");
    exchange.records.text(Tag::RespProtocol, b"HTTP/1.1");
    exchange.records.text(Tag::RespStatus, b"304");
    exchange.records.text(Tag::RespReason, b"Not Modified");
    exchange.records.text(Tag::Filters, b"");
    unset_length(exchange);
    exchange.response.fields.remove_known(Known::TransferEncoding);
}

/// Answers the request's range, if it has one and that can be done.
fn of_stored(exchange: &mut Exchange, known: &Rc<KnownObject>) -> bool {
    // Nothing to cut where the length is not known yet.
    let Some(length) = known.length() else { return false };
    match ranges(exchange, length) {
        Ranges::Whole => false,
        // What goes back finds nothing where only a window of the body is kept.
        Ranges::Parts(parts) if known.is_windowed() && !parts.is_sorted() => false,
        Ranges::Unsatisfiable => {
            unsatisfiable(exchange, length);
            true
        }
        Ranges::Parts(parts) => {
            partial(exchange, known, length, parts);
            true
        }
    }
}

/// Answers the request's range from a standalone part.
fn part_of_part(exchange: &mut Exchange, known: &Rc<KnownObject>) -> bool {
    let Some(part) = StandalonePart::of_object(known).filter(|_| exchange.rfc) else { return false };
    let Some((first, last)) = part.answer(&exchange.request.fields) else { return false };
    if part.is_all(first, last) {
        return false;
    }
    exchange.body = Body::object(known, part.place(first), part.place(last) + 1);
    single(exchange, part.total(), (first, last));
    true
}

fn partial(exchange: &mut Exchange, known: &Rc<KnownObject>, length: u64, parts: Vec<(u64, u64)>) {
    if let [(first, last)] = *parts.as_slice() {
        exchange.body = sparse::body(exchange, known, first, last + 1);
        return single(exchange, Some(length), (first, last));
    }
    status(exchange, 206);
    let kind = exchange.response.fields.get_known(Known::ContentType).map(<[u8]>::to_vec);
    let boundary = wire::range::boundary(exchange.local.random(), exchange.local.random());
    let frame = Multipart::new(parts, length, kind.as_deref(), boundary);
    let mut value = Vec::with_capacity(80);
    frame.content_type(&mut value);
    exchange.response.fields.set_known(Known::ContentType, &value);
    exchange.records.header(Tag::RespHeader, b"Content-Type", &value);
    set_length(exchange, frame.content_length());
    exchange.body = sparse::parts(exchange, known, frame);
}

fn whole(exchange: &mut Exchange, known: &Rc<KnownObject>) {
    exchange.body = sparse::body(exchange, known, 0, u64::MAX);
    match known.length().or(exchange.promised) {
        Some(length) => set_length(exchange, length),
        None => set_unknown_length(exchange),
    }
}

/// A response straight from the origin keeps its length where it had one, unless VCL takes that away.
fn relayed(exchange: &mut Exchange) {
    let says = exchange.response.fields.has_known(Known::ContentLength);
    let body = &exchange.body;
    // What is said then is the length of the body that a HEAD does not bring.
    if body.is_empty() && exchange.is_head() {
        return;
    }
    let length = match body.length() {
        Some(length) if says || !body.is_relayed() => Some(length),
        None if says && !body.is_relayed() => return,
        Some(_) | None => None,
    };
    match length {
        Some(length) => set_length(exchange, length),
        None => set_unknown_length(exchange),
    }
}

impl Exchange {
    /// Logs the response's head as it is now.
    pub(crate) fn log_response_head(&mut self) {
        log_head(&mut self.records, &self.response);
    }

    /// Logs an interim response that the client was sent.
    pub(crate) fn log_interim(&mut self, head: &wire::ResponseHead) {
        log_head(&mut self.records, head);
    }
}

fn log_head(records: &mut observe::Records, head: &wire::ResponseHead) {
    records.text(Tag::RespProtocol, protocol(head.version));
    records.numbers(Tag::RespStatus, &[u64::from(head.status)]);
    records.text(Tag::RespReason, &head.reason);
    for line in head.fields.lines() {
        records.text(Tag::RespHeader, line);
    }
}
