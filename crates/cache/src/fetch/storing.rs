//! Beginning to store an answer, and putting the object or a marker under its key.

use super::state::Fetch;
use catalog::index::busy::Admit;
use catalog::reason::Reason;
use copal_catalog as catalog;
use copal_observe as observe;
use copal_rules as rules;
use copal_store as store;
use copal_wire as wire;
use observe::Tag;
use std::sync::Arc;
use store::{Attributes, Creation, Engine, Fill, Flags};
use wire::Known as Field;
use wire::h1::ResponseFraming;

/// The request fields that select this response (its Vary key). Where we do the gzip, one object serves clients of both
/// kinds.
pub(super) fn variant(fetch: &Fetch) -> Result<Vec<u8>, rules::vary::Unusable> {
    let fields = &fetch.response.fields;
    let ours = fetch.current.settings.http_gzip_support.then_some(Field::AcceptEncoding);
    rules::vary::build_without(fields, &fetch.request.fields, ours)
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

pub(super) fn try_begin(
    fetch: &mut Fetch,
    engine: &dyn Engine,
    variant: &[u8],
    length: Option<u64>,
    coding: u8,
) -> Option<Fill> {
    fetch.response.fields.remove_known(Field::TransferEncoding);
    let mut head = Vec::new();
    catalog::head::join(&fetch.response, &mut head);
    let attributes = stored_attributes(fetch, coding);
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

/// Begins to store the response with the body of `stale`, which stays where it is. `None` where the store would copy it.
pub(super) fn begin_sharing(
    fetch: &mut Fetch,
    variant: &[u8],
    coding: u8,
    stale: &Arc<store::Object>,
) -> Option<Fill> {
    let engine = engine(fetch);
    fetch.response.fields.remove_known(Field::TransferEncoding);
    let mut head = Vec::new();
    catalog::head::join(&fetch.response, &mut head);
    let attributes = stored_attributes(fetch, coding);
    let creation = Creation { key: fetch.key, attributes, variant, head: &head, length: stale.length() };
    let fill = engine.begin_sharing(&creation, stale).ok().flatten()?;
    log_storage(fetch, &*engine);
    Some(fill)
}

/// The attributes of the response as it is stored.
fn stored_attributes(fetch: &Fetch, coding: u8) -> Attributes {
    let validator =
        fetch.response.fields.has_known(Field::Etag) || fetch.response.fields.has_known(Field::LastModified);
    let mut flags = coding | if validator { Flags::VALIDATOR } else { 0 };
    if fetch.local.shared.index.tags.are_in(&fetch.response.fields) {
        flags |= Flags::TAGGED;
    }
    attributes(fetch, fetch.ttl, flags)
}

pub(super) fn no_room(fetch: &mut Fetch, engine: &dyn Engine) {
    fetch.log.records.fmt(Tag::Error, format_args!("store {} is full: passed through", engine.name()));
    fetch.refuse(Reason::NoRoom, None);
    fetch.local.counters.not_stored_too_big.inc();
}

pub(super) fn attributes(fetch: &Fetch, ttl: f64, flags: u8) -> Attributes {
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
pub(super) fn engine(fetch: &Fetch) -> Arc<dyn Engine> {
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
pub(super) fn mark(fetch: &mut Fetch, hit_for_pass: Option<f64>) {
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
pub(super) fn marker_head(fetch: &Fetch) -> Vec<u8> {
    let vcl = fetch.current.vcl.as_ref().map_or("", |vcl| vcl.name.as_str());
    let place = fetch.decision();
    catalog::marker::head(fetch.reason.unwrap_or(Reason::VclUncacheable), vcl, place.as_ref())
}

/// Logs a store for every body; for a body of one client the name is Varnish's.
pub(super) fn log_transient(fetch: &mut Fetch) {
    let shared = Arc::clone(&fetch.local.shared);
    log_storage(fetch, &**shared.stores.transient());
}

pub(super) fn log_storage(fetch: &mut Fetch, engine: &dyn Engine) {
    let (kind, name) = (engine.kind(), engine.name());
    fetch.log.records.parts(Tag::Storage, &[kind.as_bytes(), b" ", name.as_bytes()]);
}
