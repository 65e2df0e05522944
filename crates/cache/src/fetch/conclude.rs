//! From an accepted answer to an object in a store, or to a response for one client.

use super::filters::Filters;
use super::relay::{Passing, Relay};
use super::sparse::Reader;
use super::sparse::requester::Requester;
use super::{Answer, Fetch, Fetched, Purpose, Step, fill, part, update};
use crate::body::Body;
use crate::known::Known;
use bytes::Bytes;
use catalog::index::busy::Admit;
use catalog::reason::Reason;
use copal_catalog as catalog;
use copal_observe as observe;
use copal_rules as rules;
use copal_store as store;
use copal_wire as wire;
use observe::Tag;
use rules::hop::Copy;
use std::rc::Rc;
use std::sync::Arc;
use store::{Attributes, Creation, Engine, Fill, Flags};
use wire::Known as Field;
use wire::h1::ResponseFraming;

/// Stores the answer, or hands it to the asking client. `hit_for_pass` is the life of such a marker, if one is wanted.
pub(super) async fn step(fetch: &mut Fetch, answer: Answer, hit_for_pass: Option<f64>) -> Step {
    if fetch.part.is_some() && (hit_for_pass.is_some() || !part::fits(fetch)) {
        return part::whole_instead(fetch, answer);
    }
    if (fetch.uncacheable || variant(fetch).is_err()) && part::is_too_much(fetch, &answer) {
        return part::whole_instead(fetch, answer);
    }
    if let Some(ttl) = hit_for_pass {
        let since = fetch.origin_time;
        fetch.log.records.fmt(Tag::TTL, format_args!("HFP {ttl:.0} 0 0 {since:.0} uncacheable"));
    }
    let now = fetch.local.now();
    fetch.log.timestamp("Process", now);
    let is_part = fetch.arrived.as_ref().is_none_or(|arrived| arrived.status == 206);
    let copy = match fetch.uncacheable {
        true => Copy::PassResponse,
        false if fetch.rfc && (fetch.is_standalone || !is_part) => Copy::StoreWhole,
        false => Copy::StoreResponse,
    };
    rules::hop::drop_fields(copy, &mut fetch.response.fields);
    let filters = match filters(fetch, &answer) {
        Ok(filters) => filters,
        Err(why) => {
            fetch.log.records.text(Tag::FetchError, why.as_bytes());
            return Step::failed();
        }
    };
    // VCL may say more in a status than a client sees.
    fetch.response.status %= 1000;
    if fetch.uncacheable {
        mark(fetch, hit_for_pass);
        return Box::pin(private(fetch, answer, Vec::new(), filters)).await;
    }
    if fetch.was_304
        && fetch.in_place
        && let Some(object) = refresh(fetch)
    {
        return Step::Done(Fetched::Stored(object));
    }
    if fetch.storage.is_none() {
        // VCL chose none.
        fetch.log.records.text(Tag::FetchError, b"Could not get storage");
        return Step::failed();
    }
    let Ok(variant) = variant(fetch) else {
        fetch.log.records.text(Tag::Error, b"Vary cannot be satisfied: not stored");
        fetch.refuse(Reason::VaryUnusable, None);
        release(fetch);
        return Box::pin(private(fetch, answer, Vec::new(), filters)).await;
    };
    leave_out(fetch);
    check_length(fetch, &answer);
    if update::is_unchanged(fetch, &variant)
        && let Some(object) = refresh(fetch)
    {
        if let Some(date) = fetch.response.fields.get_known(Field::Date) {
            fetch.for_asker.push_known(Field::Date, date);
        }
        return Step::Done(Fetched::Stored(object));
    }
    if fetch.was_304 {
        return Box::pin(fill::from_stale(fetch, &variant)).await;
    }
    if let Some(part) = fetch.part {
        return match part::store(fetch, answer, &variant, part).await {
            Ok(step) => step,
            Err(answer) => part::whole_instead(fetch, answer),
        };
    }
    let length = match answer.framing {
        ResponseFraming::None => Some(0),
        ResponseFraming::Length(length) => Some(length),
        ResponseFraming::Chunked | ResponseFraming::UntilClose => None,
    };
    fill::from_origin(fetch, answer, &variant, length, filters).await
}

/// The filters for the answer's body, if it has one.
fn filters(fetch: &mut Fetch, answer: &Answer) -> Result<Filters, String> {
    match answer.framing {
        _ if fetch.was_304 => Ok(Filters::default()),
        ResponseFraming::None => {
            fetch.log.records.text(Tag::Filters, b"");
            Ok(Filters::default())
        }
        ResponseFraming::Length(0) => {
            // No byte is no gzip stream.
            fetch.response.fields.remove_known(Field::ContentEncoding);
            fetch.log.records.text(Tag::Filters, b"");
            Ok(Filters::default())
        }
        ResponseFraming::Length(_) | ResponseFraming::Chunked | ResponseFraming::UntilClose => {
            fetch.open_filters()
        }
    }
}

/// The request fields that select this response (its Vary key). Where we do the gzip, one object serves clients of both
/// kinds.
pub(super) fn variant(fetch: &Fetch) -> Result<Vec<u8>, rules::vary::Unusable> {
    let fields = &fetch.response.fields;
    let ours = fetch.current.settings.http_gzip_support.then_some(Field::AcceptEncoding);
    rules::vary::build_without(fields, &fetch.request.fields, ours)
}

/// Takes the fields out of the response that its `private` and `no-cache` name (RFC 9111, section 5.2.2): they are for
/// the client that asked, and not stored.
fn leave_out(fetch: &mut Fetch) {
    if fetch.rfc {
        // It concerns the client and the proxies on its way (section 3.1); the others of this kind are known by name.
        fetch.response.fields.remove(b"Proxy-Authentication-Info");
    }
    let Fetch { response, left_out, for_asker, .. } = fetch;
    for name in left_out.iter() {
        for value in response.fields.all(name) {
            for_asker.push(name, value);
        }
        response.fields.remove(name);
    }
}

/// Takes `Content-Length` out of the head that is to be stored, unless it is the origin's word on the body that is stored:
/// VCL sees what the origin said (`obj.http.Content-Length`), what is delivered has a length of its own.
fn check_length(fetch: &mut Fetch, answer: &Answer) {
    let length = match answer.framing {
        // A 304 confirms the stored body, whose length is that of the stored head.
        _ if fetch.was_304 => {
            let stored =
                fetch.stale.as_ref().and_then(|stale| stale.fields().get_known(Field::ContentLength));
            if stored == fetch.response.fields.get_known(Field::ContentLength) {
                return;
            }
            None
        }
        _ if crate::message::is_bodiless(fetch.response.status) => None,
        _ if fetch.part.is_some() => fetch.part.map(|part| part.total),
        ResponseFraming::None => Some(0),
        ResponseFraming::Length(length) => Some(length),
        ResponseFraming::Chunked | ResponseFraming::UntilClose => None,
    };
    let fields = &mut fetch.response.fields;
    let is_word = {
        let mut said = fields.all_known(Field::ContentLength);
        let first = said.next().and_then(wire::syntax::parse_digits);
        // A repeated Content-Length is not passed on.
        first.is_some() && first == length && said.next().is_none()
    };
    if !is_word {
        fields.remove_known(Field::ContentLength);
    }
}

/// Logs how the body comes, and whether it is delivered as it comes.
pub(super) fn log_body(fetch: &mut Fetch, framing: ResponseFraming, streams: bool) {
    let kind = match framing {
        ResponseFraming::None | ResponseFraming::Length(0) => "0 none",
        ResponseFraming::Chunked => "2 chunked",
        ResponseFraming::Length(_) => "3 length",
        ResponseFraming::UntilClose => "4 eof",
    };
    let how = if streams && kind != "0 none" { "stream" } else { "-" };
    fetch.log.records.parts(Tag::Fetch_Body, &[kind.as_bytes(), b" ", how.as_bytes()]);
}

/// The object that a 304 confirmed, which stays as it is and gets its new times: nothing is copied, and the head is not
/// that of the 304. `None` if it was purged, banned or evicted meanwhile: what is gone does not come back by this.
fn refresh(fetch: &mut Fetch) -> Option<Arc<store::Object>> {
    let object = Arc::clone(fetch.stale.as_ref()?.object());
    if object.is_gone() {
        return None;
    }
    object.set_times(fetch.origin_time, fetch.ttl, fetch.grace, fetch.keep);
    if let Some(busy) = fetch.busy.take() {
        busy.confirm(&object);
    }
    Some(object)
}

/// Begins to store the response with a body of `length`, if there is room.
pub(super) fn begin(fetch: &mut Fetch, variant: &[u8], length: Option<u64>, coding: u8) -> Option<Fill> {
    let engine = engine(fetch);
    begin_in(fetch, &*engine, variant, length, coding)
}

/// As [`begin`], in a store that is given. `coding` are the flags that say how the body is coded.
pub(super) fn begin_in(
    fetch: &mut Fetch,
    engine: &dyn Engine,
    variant: &[u8],
    length: Option<u64>,
    coding: u8,
) -> Option<Fill> {
    let begun = try_begin(fetch, engine, variant, length, coding);
    if begun.is_none() {
        no_room(fetch, engine);
    }
    begun
}

/// Begins to store the master of an object in pieces, and tells whether in its own store. Where that has no room, it goes to
/// `Transient`: it takes next to nothing, and without it a small part would cost the whole.
pub(super) fn begin_master(fetch: &mut Fetch, variant: &[u8]) -> Option<(Fill, bool)> {
    let engine = engine(fetch);
    if let Some(fill) = try_begin(fetch, &*engine, variant, Some(0), Flags::SPARSE) {
        return Some((fill, true));
    }
    let transient = Arc::clone(fetch.local.shared.stores.transient());
    let fill = try_begin(fetch, &*transient, variant, Some(0), Flags::SPARSE);
    if fill.is_none() {
        no_room(fetch, &*engine);
    }
    fill.map(|fill| (fill, false))
}

fn try_begin(
    fetch: &mut Fetch,
    engine: &dyn Engine,
    variant: &[u8],
    length: Option<u64>,
    coding: u8,
) -> Option<Fill> {
    fetch.response.fields.remove_known(Field::TransferEncoding);
    let mut head = Vec::new();
    catalog::head::join(&fetch.response, &mut head);
    let validator =
        fetch.response.fields.has_known(Field::Etag) || fetch.response.fields.has_known(Field::LastModified);
    let mut flags = coding | if validator { Flags::VALIDATOR } else { 0 };
    if fetch.local.shared.index.tags.are_in(&fetch.response.fields) {
        flags |= Flags::TAGGED;
    }
    let attributes = attributes(fetch, fetch.ttl, flags);
    let creation = Creation { key: fetch.key, attributes, variant, head: &head, length };
    let begun = engine.begin(&creation).or_else(|store::Full| {
        // This thread's hot table may hold on to objects that were evicted.
        fetch.local.forget_dead();
        engine.begin(&creation)
    });
    let fill = begun.ok()?;
    log_storage(fetch, engine);
    Some(fill)
}

fn no_room(fetch: &mut Fetch, engine: &dyn Engine) {
    fetch.log.records.fmt(Tag::Error, format_args!("store {} is full: passed through", engine.name()));
    fetch.refuse(Reason::NoRoom, None);
    fetch.local.counters.not_stored_too_big.inc();
}

fn attributes(fetch: &Fetch, ttl: f64, flags: u8) -> Attributes {
    Attributes {
        origin_time: fetch.origin_time,
        ttl,
        grace: fetch.grace,
        keep: fetch.keep,
        status: fetch.response.status,
        flags: Flags(flags),
        ban: fetch.local.shared.bans.newest(),
        vxid: fetch.vxid,
    }
}

/// `Transient` for what is short-lived, else the store that VCL chose or whose turn it was.
fn engine(fetch: &Fetch) -> Arc<dyn Engine> {
    let stores = &fetch.local.shared.stores;
    let shortlived = fetch.ttl + fetch.grace + fetch.keep < fetch.current.settings.shortlived;
    if shortlived {
        fetch.local.counters.beresp_shortlived.inc();
        return Arc::clone(stores.transient());
    }
    Arc::clone(fetch.storage.as_ref().unwrap_or(stores.transient()))
}

/// What `beresp.storage` begins with: `Transient` for a response for one client, else the store whose turn it is.
pub(super) fn choose_storage(fetch: &mut Fetch) {
    let stores = &fetch.local.shared.stores;
    let engine = if fetch.uncacheable { stores.transient() } else { stores.next() };
    fetch.storage = Some(Arc::clone(engine));
}

/// Puts the object under its key, where all find it.
pub(super) fn publish(fetch: &mut Fetch, fill: &Fill) {
    insert(fetch, fill.object());
}

/// As [`publish`], of an object that is complete.
pub(super) fn insert(fetch: &mut Fetch, object: &Arc<store::Object>) {
    // By the RFCs what must be validated each time is stored, too; Varnish takes only what is fresh.
    let admit = if fetch.rfc { Admit::Alive } else { Admit::Fresh };
    let Some(busy) = fetch.busy.take() else { return };
    if fetch.keeps_stored && fetch.response.status >= 500 {
        // RFC 9111, section 4.3.3: it is passed on, and what is stored stays.
        object.unlink();
        return busy.release();
    }
    busy.admit(Arc::clone(object), admit);
}

/// Leaves a marker under the key, so that the next requests do not wait for each other.
fn mark(fetch: &mut Fetch, hit_for_pass: Option<f64>) {
    fetch.local.counters.beresp_uncacheable.inc();
    let Some(busy) = fetch.busy.take() else { return };
    if fetch.keeps_stored && fetch.response.status >= 400 {
        return busy.release();
    }
    let (ttl, flag) = match hit_for_pass {
        Some(ttl) => (ttl, Flags::HIT_FOR_PASS),
        None => (fetch.ttl, Flags::HIT_FOR_MISS),
    };
    let mut attributes = attributes(fetch, ttl, flag);
    // During its grace a hit-for-miss marker still says that requests need not wait for each other.
    attributes.grace = if hit_for_pass.is_none() { fetch.grace } else { 0.0 };
    attributes.keep = 0.0;
    attributes.origin_time = fetch.now;
    let variant = variant(fetch).unwrap_or_default();
    let head = marker_head(fetch);
    let creation = Creation { key: fetch.key, attributes, variant: &variant, head: &head, length: Some(0) };
    match fetch.local.shared.stores.transient().begin(&creation) {
        Ok(fill) => {
            busy.insert(Arc::clone(fill.object()));
            fill.commit();
        }
        Err(store::Full) => busy.release(),
    }
}

/// The head of a marker: why the answer was not stored, and where VCL decided that.
fn marker_head(fetch: &Fetch) -> Vec<u8> {
    let vcl = fetch.current.vcl.as_ref().map_or("", |vcl| vcl.name.as_str());
    let place = fetch.decision();
    catalog::marker::head(fetch.reason.unwrap_or(Reason::VclUncacheable), vcl, place.as_ref())
}

/// Gives the right to fetch up without an object: the requests that wait look again.
pub(super) fn release(fetch: &mut Fetch) {
    if let Some(busy) = fetch.busy.take() {
        busy.release();
    }
}

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
                log_transient(fetch);
            }
            log_body(fetch, framing, fetch.do_stream && !filters.parses);
            let body = match filters.parses {
                true => Box::pin(fill::aside(fetch, connection, first, filters)).await,
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

/// Logs a store for every body; for a body of one client the name is Varnish's.
fn log_transient(fetch: &mut Fetch) {
    let shared = Arc::clone(&fetch.local.shared);
    log_storage(fetch, &**shared.stores.transient());
}

fn log_storage(fetch: &mut Fetch, engine: &dyn Engine) {
    let (kind, name) = (engine.kind(), engine.name());
    fetch.log.records.parts(Tag::Storage, &[kind.as_bytes(), b" ", name.as_bytes()]);
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

/// A response that VCL made in `vcl_backend_error`.
pub(super) fn synthetic(fetch: &mut Fetch, body: Vec<u8>) -> Fetched {
    fetch.response.status %= 1000;
    rules::hop::drop_fields(Copy::StoreResponse, &mut fetch.response.fields);
    fetch.response.fields.remove_known(Field::ContentLength);
    let total = fetch.ttl + fetch.grace + fetch.keep;
    let variant = variant(fetch);
    if fetch.busy.is_some()
        && !fetch.keeps_stored
        && !fetch.uncacheable
        && total > 0.0
        && let Ok(variant) = variant
        && let Some(mut fill) = begin(fetch, &variant, Some(body.len() as u64), 0)
        && fill.append(&body).is_ok()
    {
        let object = Arc::clone(fill.object());
        publish(fetch, &fill);
        fill.commit();
        fetch.log.records.numbers(Tag::Length, &[body.len() as u64]);
        return Fetched::Stored(object);
    }
    release(fetch);
    log_transient(fetch);
    let counters = &fetch.local.counters;
    if fetch.uncacheable {
        counters.beresp_uncacheable.inc()
    } else {
        counters.beresp_shortlived.inc()
    }
    fetch.log.records.numbers(Tag::Length, &[body.len() as u64]);
    let mut head = Box::new(wire::ResponseHead::default());
    head.copy_from(&fetch.response);
    Fetched::Private { head, body: Body::bytes(Bytes::from(body)), private: fetch.private() }
}

/// For a 304 whose old object is known.
pub(super) fn stale_of(fetch: &Fetch) -> Option<Rc<Known>> {
    fetch.stale.clone()
}
