//! `vcl_backend_error`: no answer, or none that VCL takes: an answer of our own in its place.

use super::{Fetch, Fetched, Purpose, Step, conclude};
use crate::reason::Reason;
use copal_observe as observe;
use copal_vcl as vcl;
use copal_wire as wire;
use observe::Tag;
use vcl::host::{Action, Sub};
use vcl::value::Text;
use wire::{Known, Version};

pub(super) async fn step(fetch: &mut Fetch, status: u16, reason: Option<Text>) -> Step {
    fetch.now = fetch.local.now();
    fetch.local.counters.fetch_failed.inc();
    fetch.synthetic.clear();
    fetch.stale = None;
    fetch.reset_response();
    (fetch.reason, fetch.decided_at) = (Some(Reason::FetchFailed), None);
    conclude::choose_storage(fetch);
    let response = &mut fetch.response;
    response.version = Version::Http11;
    let standard = wire::standard_reason(status % 1000).as_bytes();
    response.set_status(status, reason.as_deref().unwrap_or(standard));
    response.fields.clear();
    response.fields.push_known(Known::Date, &wire::date::format(fetch.now));
    response.fields.push_known(Known::Server, fetch.current.settings.identity_product());
    fetch.origin_time = fetch.now;
    (fetch.ttl, fetch.grace, fetch.keep) = (0.0, 0.0, 0.0);
    // Those who wait would each try in turn; for a moment they get this answer instead.
    let waited_for = fetch.busy.as_ref().is_some_and(crate::index::busy::Busy::has_waiters);
    if waited_for && fetch.purpose != Purpose::Background {
        fetch.ttl = 1.0;
    }
    let now = fetch.now;
    fetch.trail.timestamp("Error", now);
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
    let Fetch { trail, response, .. } = fetch;
    let records = &mut trail.records;
    records.text(Tag::BerespProtocol, b"HTTP/1.1");
    records.fmt(Tag::BerespStatus, format_args!("{}", response.status));
    records.text(Tag::BerespReason, &response.reason);
    for field in response.fields.iter() {
        records.text(Tag::BerespHeader, field.line);
    }
}
