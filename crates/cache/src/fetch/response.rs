//! The origin's answer: its lifetime by the rules, a 304 merged with what we have, `vcl_backend_response`.

use super::purpose::Purpose;
use super::state::{Answer, Fetch, Fetched, Step};
use super::update::{self, Heard};
use super::{change, conclude, error, part, send, storing, times};
use crate::handled::Arrived;
use crate::trouble::Trouble;
use base::units::push_integer;
use catalog::reason::Reason;
use copal_base as base;
use copal_catalog as catalog;
use copal_observe as observe;
use copal_rules as rules;
use copal_vcl as vcl;
use copal_wire as wire;
use observe::Tag;
use rules::storable::{Storable, Why};
use rules::vary::Unusable;
use vcl::host::{Action, Sub};
use vcl::value::Text;
use wire::h1::ResponseFraming;

/// Takes in the head of an answer: removes hop-by-hop fields, adds a missing Date and reason, and logs it.
pub(super) fn receive(fetch: &mut Fetch, framing: ResponseFraming) {
    fetch.now = fetch.local.now();
    rules::hop::strip_nominated(&mut fetch.response.fields);
    fetch.response.fields.collect_known(wire::Known::CacheControl, b", ");
    fetch.response.fields.collect_known(wire::Known::Vary, b", ");
    if !fetch.response.fields.has_known(wire::Known::Date) {
        // A recipient of a response without Date adds the time of reception (RFC 9110, section 6.6.1).
        fetch.response.fields.push_known(wire::Known::Date, &wire::date::format(fetch.now));
    }
    if fetch.response.reason.is_empty() {
        let standard = wire::standard_reason(fetch.response.status).as_bytes();
        fetch.response.reason.extend_from_slice(standard);
    }
    log_response(fetch);
    change::note(fetch);
    let direct = !fetch.response.fields.has_known(wire::Known::Age);
    fetch.arrived = Some(Arrived { status: fetch.response.status, direct });
    count(fetch, framing);
}

pub(super) async fn step(fetch: &mut Fetch, answer: Answer) -> Step {
    receive(fetch, answer.framing);
    received(fetch, answer).await
}

/// The next step for an answer whose head was taken in.
pub(super) async fn received(fetch: &mut Fetch, answer: Answer) -> Step {
    if fetch.response.status == 204 && says_body(&fetch.response.fields) {
        // The body could not be told from the next response.
        fetch.log.records.text(Tag::FetchError, b"204 with a body");
        fetch.log.blame(Trouble::bad_answer());
        return Step::failed();
    }
    if !part::judge(fetch, &answer) {
        return part::again(fetch, answer);
    }
    let mut answer = answer;
    let mut merged = None;
    match update::hear(fetch) {
        Heard::New => {}
        Heard::Again => return fetch.give_up(answer, Step::Send),
        Heard::Unexpected => {
            fetch.log.blame(Trouble::bad_answer());
            return fetch.give_up(answer, Step::Error(503, Some(Text::from_static(b"Unexpected 304"))));
        }
        Heard::Confirmed(newer) => {
            merged = Some(newer);
            if let Some(connection) = answer.connection.take() {
                fetch.log.release(connection);
            }
            answer.framing = ResponseFraming::None;
        }
    }
    if change::serves_get(fetch) {
        times::compute_for_get(fetch);
    } else {
        times::compute(fetch);
    }
    if let Some(confirmed) = merged {
        log_merged(fetch, &confirmed);
    }
    storing::choose_storage(fetch);
    fetch.rolled_back = false;
    let action = if fetch.is_builtin(Sub::BackendResponse) {
        builtin(fetch)
    } else {
        let action = fetch.decide(Sub::BackendResponse).await;
        note(fetch, &action);
        action
    };
    if let Some(connection) = &mut answer.connection
        && send::asks_close(&fetch.response.fields)
    {
        connection.close_after();
    }
    match action {
        Action::Deliver | Action::Pass(_) if fetch.rolled_back => fetch.give_up(answer, Step::error()),
        Action::Deliver => match error::in_place(fetch) {
            Some(stale) => fetch.give_up(answer, Step::Done(stale)),
            None => conclude::step(fetch, answer, None).await,
        },
        Action::Pass(duration) => {
            fetch.uncacheable = true;
            let hit_for_pass = duration.unwrap_or(fetch.current.settings.default_ttl);
            conclude::step(fetch, answer, Some(hit_for_pass)).await
        }
        Action::Retry => {
            let next = fetch.retry().unwrap_or_else(|why| Step::Error(503, Some(why)));
            fetch.give_up(answer, next)
        }
        Action::Abandon => fetch.give_up(answer, Step::Done(Fetched::Failed)),
        Action::Error(Some((status, reason))) => fetch.give_up(answer, Step::Error(status, reason)),
        Action::Error(None) => fetch.give_up(answer, Step::error()),
        _ => fetch.give_up(answer, Step::Done(Fetched::Failed)),
    }
}

/// Notes why VCL, or the built-in VCL behind it, wants the answer not stored.
fn note(fetch: &mut Fetch, action: &Action) {
    if fetch.purpose == Purpose::Pass {
        return;
    }
    if matches!(action, Action::Pass(_)) {
        return fetch.refuse(Reason::VclHitForPass, Some(fetch.machine.ended_at()));
    }
    let Some(at) = fetch.machine.uncacheable_at().filter(|_| fetch.uncacheable) else { return };
    let place = fetch.current.vcl.as_ref().and_then(|vcl| vcl.instance.program.place(at));
    let objection = fetch.objection.filter(|_| place.is_some_and(|place| place.is_builtin));
    fetch.refuse(objection.unwrap_or(Reason::VclUncacheable), Some(at));
}

/// Whether a head announces a body. A length of 0 does not.
fn says_body(fields: &wire::Fields) -> bool {
    fields.has_known(wire::Known::TransferEncoding)
        || fields.get_known(wire::Known::ContentLength).is_some_and(|length| length != b"0")
}

fn count(fetch: &Fetch, framing: ResponseFraming) {
    let counters = &fetch.local.counters;
    match (framing, fetch.response.status) {
        _ if fetch.request.method == b"HEAD" => counters.fetch_head.inc(),
        (_, 204) => counters.fetch_204.inc(),
        (_, 304) => counters.fetch_304.inc(),
        (ResponseFraming::None | ResponseFraming::Length(0), _) => counters.fetch_none.inc(),
        (ResponseFraming::Length(_), _) => counters.fetch_length.inc(),
        (ResponseFraming::Chunked, _) => counters.fetch_chunked.inc(),
        (ResponseFraming::UntilClose, _) => counters.fetch_eof.inc(),
    }
}

fn log_response(fetch: &mut Fetch) {
    let Fetch { log, response, .. } = fetch;
    let records = &mut log.records;
    records.text(Tag::BerespProtocol, crate::message::protocol(response.version));
    let mut status = Vec::with_capacity(3);
    push_integer(&mut status, u64::from(response.status));
    records.text(Tag::BerespStatus, &status);
    records.text(Tag::BerespReason, &response.reason);
    for field in response.fields.iter() {
        records.text(Tag::BerespHeader, field.line);
    }
}

/// Logs the fields that a merged response has from the stored one, without those of the 304.
fn log_merged(fetch: &mut Fetch, confirmed: &wire::Fields) {
    let Fetch { log, response, .. } = fetch;
    let records = &mut log.records;
    records.text(Tag::BerespProtocol, crate::message::protocol(response.version));
    records.fmt(Tag::BerespStatus, format_args!("{}", response.status));
    records.text(Tag::BerespReason, &response.reason);
    for line in response.fields.lines().filter(|line| !confirmed.lines().any(|other| other == *line)) {
        records.text(Tag::BerespHeader, line);
    }
}

/// The effect of the built-in `vcl_backend_response`: an answer that must not be shared becomes a hit-for-miss marker.
fn builtin(fetch: &mut Fetch) -> Action {
    fetch.log.records.text(Tag::VCL_call, b"BACKEND_RESPONSE");
    if !fetch.uncacheable
        && let Storable::No(why) = storable(fetch)
    {
        fetch.refuse(why.into(), None);
        fetch.ttl = fetch.current.settings.uncacheable_ttl;
        fetch.log_ttl();
        fetch.uncacheable = true;
    }
    fetch.log.records.text(Tag::VCL_return, b"deliver");
    Action::Deliver
}

/// Whether the built-in VCL stores the answer. With `rfc` the rules have judged it before, and left no lifetime to what
/// they forbid.
pub(super) fn storable(fetch: &Fetch) -> Storable {
    let fields = &fetch.response.fields;
    if !fetch.rfc {
        return rules::storable::storable(fetch.ttl, fields);
    }
    let left = fetch.origin_time + fetch.ttl + fetch.grace + fetch.keep - fetch.now;
    match rules::vary::check(fields) {
        _ if left.is_nan() || left <= 0.0 => Storable::No(fetch.obstacle.unwrap_or(Why::Expired)),
        Ok(()) => Storable::Yes,
        Err(Unusable::Star) => Storable::No(Why::VaryStar),
        Err(Unusable::Malformed | Unusable::TooLong) => Storable::No(Why::VaryUnusable),
    }
}

impl Fetch {
    /// Logs times that VCL changed.
    pub(crate) fn log_ttl(&mut self) {
        self.log_times("VCL", &[self.ttl, self.grace, self.keep, self.origin_time]);
    }

    /// A `TTL` record: the source, the times in seconds, and whether the answer is cacheable.
    pub(super) fn log_times(&mut self, source: &str, times: &[f64]) {
        let marker = if self.uncacheable { "uncacheable" } else { "cacheable" };
        self.log.records.line(Tag::TTL, |line| {
            line.text(source.as_bytes());
            for time in times {
                line.text(b" ");
                line.seconds(*time);
            }
            line.text(b" ");
            line.text(marker.as_bytes());
        });
    }
}
