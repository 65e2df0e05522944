//! The first fetch of an object of which a client wants a part: what is asked for, and what is made of the answer.
//!
//! ```text
//! 206 of all ............ the whole: an ordinary object
//! 206 of a part ......... to VCL a 200 with the length of the whole; then a master and its first segments, or
//!                         the whole is asked for in its place (VCL wants to change it, it may not be stored ...)
//! 206 of no use ......... kept by itself (with `rfc`, see `sparse::standalone`), or the whole is asked for
//! 416 ................... the beginning is asked for, to learn how long the whole is; then the whole
//! anything else ......... as without Range
//! ```

use super::purpose::Purpose;
use super::sparse::answer::{Part, strong_validator};
use super::sparse::ask::Ask;
use super::sparse::channel::JobHandle;
use super::sparse::job::Job;
use super::sparse::requester::Requester;
use super::sparse::standalone::{self, StandalonePart};
use super::state::{Answer, Fetch, Fetched, Step};
use super::{prepare, storing, update};
use base::vxid::Vxid;
use catalog::sparse::layout::{Layout, Validator};
use copal_base as base;
use copal_catalog as catalog;
use copal_filter as filter;
use copal_net as net;
use copal_observe as observe;
use copal_rules as rules;
use copal_store as store;
use copal_wire as wire;
use filter::Chain;
use observe::Tag;
use rules::hop::Copy;
use sha2::{Digest, Sha256};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use wire::range::ContentRange;
use wire::{Known, RequestHead, Version};

use wire::h1::ResponseFraming;

/// The request for bytes `first..=last` of what `layout` describes.
pub(super) fn segment_request(
    requester: &Requester,
    vxid: Vxid,
    layout: &Layout,
    (first, last): (u64, u64),
) -> RequestHead {
    let mut request = RequestHead::default();
    request.copy_from(&requester.request);
    request.version = Version::Http11;
    request.method.clear();
    request.method.extend_from_slice(b"GET");
    let fields = &mut request.fields;
    rules::hop::drop_fields(Copy::FetchRequest, fields);
    fields.set_known(Known::AcceptEncoding, b"identity");
    fields.set_known(Known::Range, &Ask::From(first, Some(last)).value());
    match &layout.validator {
        Validator::Tag(tag) => fields.set_known(Known::IfMatch, tag),
        Validator::Modified(date) => fields.set_known(Known::IfUnmodifiedSince, date),
    };
    prepare::name_us(&mut request, requester.current.settings.via(), vxid);
    request
}

/// Judges the answer to a fetch that may have asked for a part. False if the fetch is to ask for something else, by
/// [`again`].
pub(super) fn judge(fetch: &mut Fetch, answer: &Answer) -> bool {
    (fetch.part, fetch.is_standalone) = (None, false);
    if fetch.response.status == 200 {
        note_whole(fetch, answer);
        if is_large(fetch, answer) {
            fetch.part_request.ask = fetch.part_request.if_large.take();
            return false;
        }
    }
    let Some(ask) = fetch.part_request.ask else { return true };
    if fetch.request.fields.get_known(Known::Range) != Some(ask.value().as_slice()) {
        // VCL asks for what it wants itself.
        return true;
    }
    if matches!(fetch.response.status, 200 | 206)
        && let Some(name) = fetch.part_request.name.take()
    {
        fetch.local.shared.range_support.note(name, fetch.response.status == 206);
    }
    if !matches!(fetch.response.status, 206 | 416) {
        return true;
    }
    if fetch.response.status == 416 {
        let unsatisfied = fetch.response.fields.get_known(Known::ContentRange);
        let is_empty =
            unsatisfied.and_then(wire::range::parse_content_range) == Some(ContentRange::Unsatisfied(0));
        let settings = &fetch.current.settings;
        fetch.part_request.ask =
            (!ask.is_head() && !is_empty).then(|| Ask::head(settings.segment_size, settings.sparse_min_size));
        return false;
    }
    let validator = strong_validator(&fetch.response.fields);
    let min = fetch.current.settings.sparse_min_size;
    let usable = Part::of(&fetch.response.fields).filter(|part| {
        let fits = match answer.framing {
            ResponseFraming::Length(length) => length == part.length(),
            ResponseFraming::Chunked | ResponseFraming::UntilClose => !part.is_whole(),
            ResponseFraming::None => false,
        };
        fits && ask.is_met_by(*part, fetch.current.settings.segment_size)
            && (part.is_whole() || part.total >= min && validator.is_some() && !is_short_tail(fetch, ask))
    });
    let Some(part) = usable else {
        if stands_alone(fetch, answer, ask) {
            fetch.is_standalone = true;
            return true;
        }
        fetch.part_request.ask = None;
        return false;
    };
    fetch.validator = validator;
    fetch.part = (!part.is_whole()).then_some(part);
    show_whole(fetch, part);
    true
}

/// Whether a short tail was asked for, which is stored by itself.
fn is_short_tail(fetch: &Fetch, ask: Ask) -> bool {
    fetch.part_request.range.is_some() && matches!(ask, Ask::Last(count) if count <= standalone::TAIL_MAX)
}

/// Whether a 206 that cannot be combined with others is stored by itself: it has what the client wants, and it replaces
/// nothing better.
fn stands_alone(fetch: &Fetch, answer: &Answer, ask: Ask) -> bool {
    let (Some(range), ResponseFraming::Length(length)) = (&fetch.part_request.range, answer.framing) else {
        return false;
    };
    let fields = &fetch.response.fields;
    fetch.response.status == 206
        && fetch.stale.is_none()
        && (is_short_tail(fetch, ask) || strong_validator(fields).is_none())
        && StandalonePart::of(fields, length).is_some_and(|part| part.answer(range).is_some())
}

/// Whether the answer is a standalone part that has more than the client asked for: it can be cut only once it is stored.
pub(super) fn is_too_much(fetch: &Fetch, answer: &Answer) -> bool {
    let (true, Some(range), ResponseFraming::Length(length)) =
        (fetch.is_standalone, &fetch.part_request.range, answer.framing)
    else {
        return fetch.is_standalone;
    };
    let part = StandalonePart::of(&fetch.response.fields, length);
    !part.is_some_and(|part| part.answer(range).is_some_and(|(first, last)| part.is_all(first, last)))
}

/// Whether this answer, the whole, is so large that a part is asked for in its place.
fn is_large(fetch: &Fetch, answer: &Answer) -> bool {
    let Some(Ask::From(_, Some(last))) = fetch.part_request.if_large else { return false };
    let settings = &fetch.current.settings;
    let enough = last.saturating_add(1).max(settings.sparse_min_size).saturating_add(settings.segment_size);
    let fields = &fetch.response.fields;
    matches!(answer.framing, ResponseFraming::Length(length) if length >= enough)
        && !fetch.request.fields.has_known(Known::Range)
        && !fields.has_known(Known::ContentEncoding)
        && fields.get_known(Known::AcceptRanges).is_none_or(|unit| !unit.eq_ignore_ascii_case(b"none"))
        && strong_validator(fields).is_some()
}

/// Notes whether a whole answer can be stored in segments, should it be too large for one object.
fn note_whole(fetch: &mut Fetch, answer: &Answer) {
    let fields = &fetch.response.fields;
    let is_large = matches!(answer.framing, ResponseFraming::Length(length)
        if length > 0 && length >= fetch.current.settings.sparse_min_size);
    fetch.serves_ranges = is_large
        && fields.get_known(Known::AcceptRanges).is_some_and(|unit| unit.eq_ignore_ascii_case(b"bytes"));
    if fetch.serves_ranges {
        fetch.validator = strong_validator(fields);
    }
}

/// Turns the head of a 206 into the head that a 200 would have.
fn show_whole(fetch: &mut Fetch, part: Part) {
    let Fetch { log, response, .. } = fetch;
    let records = &mut log.records;
    response.set_status(200, b"OK");
    records.text(Tag::BerespStatus, b"200");
    records.text(Tag::BerespReason, b"OK");
    for name in [Known::ContentRange, Known::ContentLength] {
        if let Some(value) = response.fields.get_known(name) {
            records.header(Tag::BerespUnset, name.name().as_bytes(), value);
            response.fields.remove_known(name);
        }
    }
    let total = part.total.to_string();
    response.fields.set_known(Known::ContentLength, total.as_bytes());
    records.header(Tag::BerespHeader, b"Content-Length", total.as_bytes());
}

/// Leaves the answer and asks for what `fetch.part_request.ask` says now.
pub(super) fn again(fetch: &mut Fetch, answer: Answer) -> Step {
    fetch.reset_response();
    fetch.uncacheable = fetch.purpose == Purpose::Pass;
    (fetch.reason, fetch.decided_at, fetch.objection) = (None, None, None);
    let Fetch { log, request, .. } = &mut *fetch;
    if let Some(range) = request.fields.get_known(Known::Range) {
        log.records.header(Tag::BereqUnset, b"Range", range);
        request.fields.remove_known(Known::Range);
    }
    match fetch.part_request.ask {
        Some(ask) => {
            prepare::set_range(fetch);
            fetch.log.records.header(Tag::BereqHeader, b"Range", &ask.value());
        }
        None if fetch.current.settings.http_gzip_support => {
            fetch.request.fields.set_known(Known::AcceptEncoding, b"gzip");
        }
        None => {}
    }
    fetch.give_up(answer, Step::Send)
}

/// Asks for the whole in place of a part that cannot be stored.
pub(super) fn whole_instead(fetch: &mut Fetch, answer: Answer) -> Step {
    if fetch.was_304 {
        update::forget_stored(fetch);
    }
    fetch.part_request.ask = None;
    again(fetch, answer)
}

/// Whether VCL and the response allow storing it in segments.
fn may_be_sparse(fetch: &Fetch) -> bool {
    fetch.do_stream
        && !fetch.uncacheable
        && (fetch.ttl > 0.0 || fetch.rfc && fetch.ttl + fetch.grace + fetch.keep > 0.0)
        && fetch.response.status == 200
        && !(fetch.do_esi || fetch.do_gzip || fetch.do_gunzip)
        && fetch.filters.as_deref().is_none_or(<[u8]>::is_empty)
        && !fetch.response.fields.has_known(Known::ContentEncoding)
        && fetch.storage.is_some()
        && fetch.busy.is_some()
        && fetch.validator.is_some()
}

/// Whether the part that came can be stored.
pub(super) fn fits(fetch: &Fetch) -> bool {
    fetch.do_sparse != Some(false) && may_be_sparse(fetch) && storing::variant(fetch).is_ok()
}

/// A whole answer as one part, if it can be stored in segments.
pub(super) fn of_whole(fetch: &Fetch, length: Option<u64>, chain: &Chain) -> Option<Part> {
    let total = length.filter(|total| *total > 0)?;
    let may = fetch.serves_ranges
        && fetch.do_sparse != Some(false)
        && fetch.current.settings.segment_size > 0
        && chain.is_empty()
        && may_be_sparse(fetch);
    may.then_some(Part { first: 0, last: total - 1, total })
}

/// Stores a master for the answer, and begins to store what came of it.
///
/// # Errors
/// The answer, if there is no room for the master.
pub(super) async fn store(
    fetch: &mut Fetch,
    answer: Answer,
    variant: &[u8],
    part: Part,
) -> Result<Step, Answer> {
    let Answer { connection: Some(connection), framing } = answer else { return Err(answer) };
    let begun = begin(fetch, variant, part);
    let Some((master, layout)) = begun else { return Err(Answer { connection: Some(connection), framing }) };
    let job = Job::first(fetch, &master, layout, part);
    let handle = JobHandle::new(job.channel());
    storing::log_body(fetch, framing, true);
    storing::insert(fetch, &master);
    let log = fetch.log.hand_over();
    let mut filling: Pin<Box<dyn Future<Output = ()>>> = Box::pin(job.run(connection, log));
    // What has arrived is stored at once, the rest in a task of its own.
    let done = poll_fn(|context| Poll::Ready(filling.as_mut().poll(context).is_ready())).await;
    if !done {
        net::worker::task(filling);
    }
    Ok(Step::Done(Fetched::Sparse(master, handle)))
}

fn begin(fetch: &mut Fetch, variant: &[u8], part: Part) -> Option<(Arc<store::Object>, Layout)> {
    let validator = fetch.validator.take()?;
    let (mut fill, in_its_store) = storing::begin_master(fetch, variant)?;
    let master = Arc::clone(fill.object());
    let layout = Layout {
        total: part.total,
        segment: fetch.current.settings.segment_size,
        generation: generation(fetch),
        // Segments of a short-lived object do not stay in Transient, which may be unbounded.
        stays: fetch.storage_is_set && in_its_store,
        validator,
    };
    fill.set_plan(layout.to_bytes()).ok()?;
    // Committed before it is published: without its layout it would be taken for empty.
    fill.commit();
    Some((master, layout))
}

/// A name for this version, unlike that of any other.
fn generation(fetch: &Fetch) -> [u8; 16] {
    let local = &fetch.local;
    let digest = Sha256::new()
        .chain_update(local.random().to_ne_bytes())
        .chain_update(local.random().to_ne_bytes())
        .chain_update(fetch.now.to_ne_bytes())
        .chain_update(fetch.vxid.to_ne_bytes())
        .finalize();
    let mut generation = [0; 16];
    generation.copy_from_slice(&digest[..16]);
    generation
}
