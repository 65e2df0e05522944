//! From an accepted answer to an object in a store, or to a response for one client.

use super::filters::Filters;
use super::state::{Answer, Fetch, Fetched, Step};
use super::{fill, part, private, storing, update};
use crate::body::Body;
use bytes::Bytes;
use catalog::reason::Reason;
use copal_catalog as catalog;
use copal_observe as observe;
use copal_rules as rules;
use copal_store as store;
use copal_wire as wire;
use observe::Tag;
use rules::hop::Copy;
use std::sync::Arc;
use wire::Known as Field;
use wire::h1::ResponseFraming;

/// Stores the answer, or hands it to the asking client. `hit_for_pass` is the life of such a marker, if one is wanted.
pub(super) async fn step(fetch: &mut Fetch, answer: Answer, hit_for_pass: Option<f64>) -> Step {
    if fetch.part.is_some() && (hit_for_pass.is_some() || !part::fits(fetch)) {
        return part::whole_instead(fetch, answer);
    }
    if (fetch.uncacheable || storing::variant(fetch).is_err()) && part::is_too_much(fetch, &answer) {
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
        storing::mark(fetch, hit_for_pass);
        return Box::pin(private::private(fetch, answer, Vec::new(), filters)).await;
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
    let Ok(variant) = storing::variant(fetch) else {
        fetch.log.records.text(Tag::Error, b"Vary cannot be satisfied: not stored");
        fetch.refuse(Reason::VaryUnusable, None);
        fetch.release();
        return Box::pin(private::private(fetch, answer, Vec::new(), filters)).await;
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

/// A response that VCL made in `vcl_backend_error`.
pub(super) fn synthetic(fetch: &mut Fetch, body: Vec<u8>) -> Fetched {
    fetch.response.status %= 1000;
    rules::hop::drop_fields(Copy::StoreResponse, &mut fetch.response.fields);
    fetch.response.fields.remove_known(Field::ContentLength);
    let total = fetch.ttl + fetch.grace + fetch.keep;
    let variant = storing::variant(fetch);
    if fetch.busy.is_some()
        && !fetch.keeps_stored
        && !fetch.uncacheable
        && total > 0.0
        && let Ok(variant) = variant
        && let Some(mut fill) = storing::begin(fetch, &variant, Some(body.len() as u64), 0)
        && fill.append(&body).is_ok()
    {
        let object = Arc::clone(fill.object());
        storing::publish(fetch, &fill);
        fill.commit();
        fetch.log.records.numbers(Tag::Length, &[body.len() as u64]);
        return Fetched::Stored(object);
    }
    fetch.release();
    storing::log_transient(fetch);
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
