//! No answer, or none that VCL takes: a stale object in its place, or `vcl_backend_error`, which makes one of our own.
//!
//! Where the RFCs rule (`rfc`), a stale object comes first ([RFC 5861](rules::stale_if_error)): VCL hears nothing of a
//! failed exchange then. An error that the origin answered with goes through `vcl_backend_response` first, and VCL that
//! does anything but deliver it has its way.

use super::purpose::Purpose;
use super::state::{Fetch, Fetched, Step};
use super::{conclude, storing};
use crate::known::Known as KnownObject;
use crate::outages::Outage;
use crate::trouble::Trouble;
use catalog::reason::Reason;
use copal_catalog as catalog;
use copal_observe as observe;
use copal_rules as rules;
use copal_store as store;
use copal_vcl as vcl;
use copal_wire as wire;
use observe::Tag;
use rules::policy::Policy;
use rules::stale_if_error;
use std::sync::Arc;
use vcl::host::{Action, Sub};
use vcl::value::Text;
use wire::{Known, Version};

/// There is no usable answer.
pub(super) async fn no_answer(fetch: &mut Fetch) -> Step {
    if fetch.log.trouble.is_none() {
        fetch.log.blame(Trouble::internal());
    }
    let trouble = fetch.log.trouble.clone().expect("set above where there was none");
    if let Some(stale) = stale(fetch, &trouble) {
        return Step::Done(stale);
    }
    // An error that VCL asks for is no failure.
    fetch.local.counters.fetch_failed.inc();
    match status(fetch, &trouble) {
        503 => step(fetch, 503, Some(Text::from_static(b"Backend fetch failed"))).await,
        status => step(fetch, status, None).await,
    }
}

/// The status of an answer in the origin's place: Varnish knows one, the RFCs several.
fn status(fetch: &Fetch, trouble: &Trouble) -> u16 {
    if !fetch.rfc {
        return 503;
    }
    if fetch.fallback.is_some() && trouble.is_silence() {
        // There is something, but it must not be used without the origin's word (RFC 9111, section 5.2.2.2).
        return 504;
    }
    trouble.status()
}

/// The stale object to deliver in place of an error that the origin answered with, if there is one.
pub(super) fn in_place(fetch: &mut Fetch) -> Option<Fetched> {
    if fetch.fallback.is_none() || fetch.was_304 || !stale_if_error::is_error(fetch.response.status) {
        return None;
    }
    let backend = fetch.chosen.as_ref().map(|backend| backend.name());
    let trouble = Trouble::answered(fetch.response.status, backend);
    stale(fetch, &Arc::new(trouble))
}

/// The stale object that may stand in for an answer. Whoever waited for that gets it, too, and the origin has a rest.
fn stale(fetch: &mut Fetch, trouble: &Arc<Trouble>) -> Option<Fetched> {
    let object = fetch.fallback.clone().filter(|_| fetch.rfc)?;
    if object.is_gone() || object.state() == store::State::Failed {
        return None;
    }
    let settings = &fetch.current.settings;
    let known = KnownObject::new(Arc::clone(&object));
    let policy = Policy::of(known.fields(), &settings.targeted_fields);
    // An error that the origin gives by its own mouth counts as one only where it said so before: it is not out of reach.
    let default = if trouble.is_silence() { settings.default_stale_if_error } else { 0.0 };
    let now = fetch.local.now();
    // An object that this request found too old may be fresh, or in its grace, for others.
    let until = |granted: f64| object.origin_time() + object.ttl().max(0.0) + granted.max(object.grace());
    let for_all = until(stale_if_error::granted(&policy, default));
    let for_this = stale_if_error::granted_to(&fetch.directives, &policy, default).map(until);
    let may_stand_in = for_this.is_some_and(|until| now < until);
    if now < for_all || may_stand_in {
        let outage = Outage {
            vxid: object.vxid(),
            until: now + settings.stale_if_error_pause,
            stale_until: for_all,
            may_be_stale: !policy.forbids_stale(),
            trouble: Arc::clone(trouble),
        };
        fetch.local.shared.outages.note(&object, now, outage);
        fetch.release();
    }
    if !may_stand_in {
        return None;
    }
    fetch.log.records.fmt(Tag::Error, format_args!("stale-if-error: {} stands in", object.vxid()));
    if fetch.purpose == Purpose::Background {
        // The client of a background fetch has the object already.
        return Some(Fetched::Failed);
    }
    if let Some(arrived) = &mut fetch.arrived {
        arrived.direct = false;
    }
    Some(Fetched::Stale(object, Arc::clone(trouble)))
}

/// `vcl_backend_error`.
pub(super) async fn step(fetch: &mut Fetch, status: u16, reason: Option<Text>) -> Step {
    fetch.now = fetch.local.now();
    fetch.synthetic.clear();
    fetch.stale = None;
    fetch.reset_response();
    (fetch.reason, fetch.decided_at) = (Some(Reason::FetchFailed), None);
    storing::choose_storage(fetch);
    let response = &mut fetch.response;
    response.version = Version::Http11;
    let standard = wire::standard_reason(status % 1000).as_bytes();
    response.set_status(status, reason.as_deref().unwrap_or(standard));
    response.fields.clear();
    response.fields.push_known(Known::Date, &wire::date::format(fetch.now));
    response.fields.push_known(Known::Server, fetch.current.settings.server());
    if let Some(trouble) = &fetch.log.trouble {
        trouble.announce(&fetch.current.settings, &mut response.fields);
    }
    fetch.origin_time = fetch.now;
    (fetch.ttl, fetch.grace, fetch.keep) = (0.0, 0.0, 0.0);
    // The requests that wait would each try in turn; for a moment they get this answer instead.
    let waited_for = fetch.busy.as_ref().is_some_and(catalog::index::busy::Busy::has_waiters);
    if waited_for && fetch.purpose != Purpose::Background {
        fetch.ttl = 1.0;
    }
    let now = fetch.now;
    fetch.log.timestamp("Error", now);
    log_error_response(fetch);
    match fetch.decide(Sub::BackendError).await {
        Action::Deliver => {
            let body = std::mem::take(&mut fetch.synthetic);
            Step::Done(conclude::synthetic(fetch, body))
        }
        Action::Retry => fetch.retry().unwrap_or(Step::Done(Fetched::Failed)),
        _ => Step::Done(Fetched::Failed),
    }
}

fn log_error_response(fetch: &mut Fetch) {
    let Fetch { log, response, .. } = fetch;
    let records = &mut log.records;
    records.text(Tag::BerespProtocol, b"HTTP/1.1");
    records.fmt(Tag::BerespStatus, format_args!("{}", response.status));
    records.text(Tag::BerespReason, &response.reason);
    for field in response.fields.iter() {
        records.text(Tag::BerespHeader, field.line);
    }
}
