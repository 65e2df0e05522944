//! Sending the request to the origin and reading the head of its answer.

use super::failure::Failure;
use super::prepare;
use super::state::{Answer, Fetch, Step, Upload};
use crate::request_body::{BodyError, RequestBody};
use crate::session::UNIX_PEER;
use crate::trouble::Trouble;
use bytes::Bytes;
use copal_observe as observe;
use copal_origin as origin;
use copal_rules as rules;
use copal_wire as wire;
use observe::Tag;
use origin::{Backend, Connection, Error, Next, Retry, Reuse, Sent, Want};
use std::future::poll_fn;
use std::io::IoSlice;
use std::sync::Arc;
use vcl::value::BackendRef;
use wire::h1::{RequestFraming, ResponseFraming};
use wire::{Fields, Known, Version};

use copal_vcl as vcl;

/// How much of a client's body is read at once.
const UPLOAD: usize = 32 << 10;

pub(super) async fn step(fetch: &mut Fetch, body: &mut dyn RequestBody) -> Step {
    fetch.now = fetch.local.now();
    fetch.log.received_status = None;
    let Some(mut backend) = resolve(fetch) else {
        let name = fetch.backend.as_ref().map_or("none", |backend| backend.name()).to_owned();
        fetch.log.records.fmt(Tag::FetchError, format_args!("Director {name} returned no backend"));
        fetch.log.blame(Trouble::no_backend(&name));
        return gave_up(fetch);
    };
    loop {
        fetch.chosen = Some(BackendRef::clone(&backend));
        let failure = match attempt(fetch, body, BackendRef::clone(&backend)).await {
            Ok(answer) => {
                fetch.tried.clear();
                fetch.log.received_status = Some(fetch.response.status);
                return Step::Response(answer);
            }
            Err(failure) => failure,
        };
        log_failure(fetch, &failure);
        match elsewhere(fetch, &failure, backend) {
            Some(other) => backend = other,
            None => return gave_up(fetch),
        }
    }
}

/// The backend to ask now, which the request's director chooses if it names one.
fn resolve(fetch: &mut Fetch) -> Option<BackendRef> {
    fetch.backend.clone().and_then(|backend| vcl::exec::resolve(backend, fetch))
}

/// Another backend to ask in the place of the one that `failed`, if nothing is lost by that: nothing of the request had been
/// sent; or it may be sent twice, has no body that is gone, and its connection ended without a byte of an answer. The one
/// that failed stays as healthy as it was.
fn elsewhere(fetch: &mut Fetch, failure: &Failure, failed: BackendRef) -> Option<BackendRef> {
    let Failure::Origin(error, _) = failure else { return None };
    let is_safe = error.sent_nothing() || (error.unanswered() && is_idempotent(&fetch.request.method));
    if !is_safe
        || fetch.upload == Upload::Spent
        || fetch.tried.len() >= fetch.current.settings.fetch_elsewhere_max
    {
        return None;
    }
    fetch.tried.push(failed);
    let other = resolve(fetch).filter(|other| !fetch.ask_data().has_tried(&**other))?;
    fetch.local.counters.fetch_elsewhere.inc();
    Some(other)
}

/// Whether a request may be sent twice (RFC 9110, section 9.2.2; RFC 4918).
fn is_idempotent(method: &[u8]) -> bool {
    matches!(method, b"GET" | b"HEAD" | b"PUT" | b"DELETE" | b"OPTIONS" | b"TRACE" | b"PROPFIND")
}

fn log_failure(fetch: &mut Fetch, failure: &Failure) {
    match failure {
        Failure::Origin(Error::Malformed(reject), _) if is_framing(*reject) => {
            fetch.local.counters.fetch_bad.inc();
            fetch.log.records.text(Tag::Error, b"Body cannot be fetched");
        }
        _ => fetch.log.records.fmt(Tag::FetchError, format_args!("{failure}")),
    }
    if let Failure::Origin(error, _) = failure {
        fetch.log.count_bound(error);
        fetch.log.closed(error.close_reason());
    } else {
        fetch.log.closed("Error transaction");
    }
    fetch.log.blame(failure.trouble());
}

/// Whether a head was refused because it is not clear where its body ends.
fn is_framing(reject: wire::Reject) -> bool {
    use wire::Reject;
    matches!(
        reject,
        Reject::LengthAndEncoding
            | Reject::RepeatedLength
            | Reject::Length
            | Reject::RepeatedEncoding
            | Reject::UnknownEncoding
    )
}

/// There is no answer; when that was known.
fn gave_up(fetch: &mut Fetch) -> Step {
    fetch.tried.clear();
    let now = fetch.local.now();
    fetch.log.timestamp("Beresp", now);
    Step::failed()
}

/// One request, and a second on a fresh connection if a reused one turned out to be closed before anything of the
/// client's body was taken from it.
async fn attempt(
    fetch: &mut Fetch,
    body: &mut dyn RequestBody,
    backend: BackendRef,
) -> Result<Answer, Failure> {
    let leaf = prepare::leaf(backend).ok_or(Failure::NotABackend)?;
    // A request that cannot be repeated takes a kept connection only if the kernel, asked now, says that it is good.
    let reuse = if matches!(fetch.upload, Upload::Stream(_)) { Reuse::Sure } else { Reuse::Likely };
    match exchange(fetch, body, &leaf, reuse).await {
        Err(Failure::Origin(error, name))
            if error.retry() == Retry::Same && fetch.upload != Upload::Spent =>
        {
            fetch.local.counters.backend_retry.inc();
            fetch.log.records.fmt(Tag::FetchError, format_args!("{}", error.fetch_error(&name)));
            fetch.log.closed(error.close_reason());
            exchange(fetch, body, &leaf, Reuse::No).await
        }
        result => result,
    }
}

async fn exchange(
    fetch: &mut Fetch,
    body: &mut dyn RequestBody,
    leaf: &Arc<Backend>,
    reuse: Reuse,
) -> Result<Answer, Failure> {
    let failed = |error| Failure::Origin(error, leaf.definition().name.to_string());
    if matches!(fetch.upload, Upload::Stream(_)) && body.is_malformed() {
        // No origin is to hear of it.
        return Err(Failure::RequestBody);
    }
    let want = want(fetch, leaf, reuse);
    let mut connection = match leaf.connect(&fetch.local.pools, &want).await {
        Ok(connection) => Box::new(connection),
        Err(error) => {
            count_refusal(fetch, &error);
            return Err(failed(error));
        }
    };
    opened(fetch, &connection);
    if asks_close(&fetch.request.fields) {
        connection.close_after();
    }
    if fetch.rfc {
        connection.take_any_coding();
    }
    fetch.requested = fetch.local.now();
    let head = head(fetch, leaf.host_header())?;
    let cached = if let Upload::Cached(text) = &fetch.upload { Bytes::clone(text) } else { Bytes::new() };
    let sent = connection.write_head(&head, &cached).await.map_err(failed)?;
    fetch.log.sent = (head.len() as u64, cached.len() as u64);
    let streams = matches!(fetch.upload, Upload::Stream(_));
    let uploaded = upload(fetch, body, &mut connection, sent).await;
    let now = fetch.local.now();
    if streams {
        fetch.uploaded = Some(now);
    }
    uploaded?;
    fetch.local.counters.backend_req.inc();
    fetch.log.timestamp("Bereq", now);
    let read = read_head(fetch, body, &mut connection).await;
    fetch.log.received_head = connection.traffic().received_head_bytes;
    let framing = read.map_err(failed)?;
    let now = fetch.local.now();
    fetch.log.timestamp("Beresp", now);
    Ok(Answer { connection: Some(connection), framing })
}

/// Reads the answer's head. By the RFCs the client gets the interim ones before it, too; 100 says only that the body is
/// to come, and that is between the origin and us.
async fn read_head(
    fetch: &mut Fetch,
    body: &mut dyn RequestBody,
    connection: &mut Connection,
) -> Result<ResponseFraming, Error> {
    loop {
        match connection.next_head(&fetch.request.method, &mut fetch.response).await? {
            Next::Final(framing) => return Ok(framing),
            Next::Interim if fetch.rfc && fetch.response.status != 100 => pass_on(fetch, body),
            Next::Interim => {}
        }
    }
}

fn pass_on(fetch: &mut Fetch, body: &mut dyn RequestBody) {
    let head = &mut fetch.response;
    head.version = Version::Http11;
    rules::hop::strip_nominated(&mut head.fields);
    rules::hop::drop_fields(rules::hop::Copy::PassResponse, &mut head.fields);
    head.fields.remove_known(Known::ContentLength);
    if head.reason.is_empty() {
        head.reason.extend_from_slice(wire::standard_reason(head.status).as_bytes());
    }
    fetch.log.records.fmt(Tag::Debug, format_args!("interim response {} passed on", head.status));
    body.interim(head);
}

/// Whether Connection, which VCL may have set, says that the connection ends with this message.
pub(super) fn asks_close(fields: &Fields) -> bool {
    !wire::h1::keep_alive(Version::Http11, fields)
}

fn want(fetch: &Fetch, leaf: &Backend, reuse: Reuse) -> Want {
    let timeouts = fetch.timeouts.over(leaf.timeouts(&fetch.local.pools.settings()));
    let addresses = Some((fetch.session.client, fetch.session.server));
    Want { timeouts, reuse, addresses, now: fetch.now }
}

fn count_refusal(fetch: &Fetch, error: &Error) {
    let counters = &fetch.local.counters;
    match error {
        Error::Unhealthy => counters.backend_unhealthy.inc(),
        Error::Busy => counters.backend_busy.inc(),
        _ => counters.backend_fail.inc(),
    }
}

/// Logs and counts the connection that is used.
fn opened(fetch: &mut Fetch, connection: &Connection) {
    let counters = &fetch.local.counters;
    if connection.reused() {
        counters.backend_reuse.inc();
    } else {
        counters.backend_conn.inc();
    }
    fetch.backend_address = connection.peer();
    let peer = connection.peer().unwrap_or(UNIX_PEER);
    let local = connection.local().unwrap_or(UNIX_PEER);
    let now = fetch.local.now();
    fetch.log.timestamp("Connected", now);
    fetch.log.opened(connection, peer, local);
}

/// The head on the wire: VCL's `bereq`, with a host and the framing of the body.
fn head(fetch: &mut Fetch, default_host: &str) -> Result<Vec<u8>, Failure> {
    let had_host = fetch.request.fields.has_known(Known::Host);
    prepare::default_host(&mut fetch.request, default_host);
    if !had_host && !default_host.is_empty() {
        fetch.log.records.header(Tag::BereqHeader, b"Host", default_host.as_bytes());
    }
    let fields = &mut fetch.request.fields;
    fields.remove_known(Known::ContentLength);
    fields.remove_known(Known::TransferEncoding);
    match &fetch.upload {
        Upload::None | Upload::Spent => {}
        Upload::Cached(text) => {
            fields.push_known(Known::ContentLength, text.len().to_string().as_bytes());
        }
        Upload::Stream(RequestFraming::Length(length)) => {
            fields.push_known(Known::ContentLength, length.to_string().as_bytes());
        }
        Upload::Stream(_) => {
            fields.push_known(Known::TransferEncoding, b"chunked");
        }
    }
    let mut head = Vec::with_capacity(512);
    wire::h1::write_request_head(&fetch.request, &mut head).map_err(Failure::Request)?;
    Ok(head)
}

/// Sends the client's body as it arrives, unless the origin answers before it has all of it.
async fn upload(
    fetch: &mut Fetch,
    body: &mut dyn RequestBody,
    connection: &mut Connection,
    sent: Sent,
) -> Result<(), Failure> {
    let framing = match &fetch.upload {
        Upload::Stream(framing) => *framing,
        Upload::None | Upload::Cached(_) | Upload::Spent => {
            if sent == Sent::All {
                connection.end_request();
            }
            return Ok(());
        }
    };
    fetch.upload = Upload::Spent;
    let name = connection.backend().definition().name.to_string();
    let failed = |error| Failure::Origin(error, name.clone());
    let mut sent = sent;
    let mut buffer = vec![0; UPLOAD];
    let mut frame = Vec::new();
    while sent == Sent::All {
        let count = poll_fn(|context| body.poll_read(context, &mut buffer)).await;
        // On a failure the connection is dropped: the origin sees its request cut off.
        let count = count.map_err(|BodyError| Failure::RequestBody)?;
        let piece = &buffer[..count];
        fetch.log.sent.1 += count as u64;
        frame.clear();
        let chunked = framing == RequestFraming::Chunked;
        let mut slices = match (chunked, count) {
            (true, 0) => vec![IoSlice::new(wire::chunked::LAST)],
            (true, _) => {
                wire::chunked::head(count, &mut frame);
                vec![IoSlice::new(&frame), IoSlice::new(piece), IoSlice::new(wire::chunked::END)]
            }
            (false, _) => vec![IoSlice::new(piece)],
        };
        sent = connection.write_body(&mut slices).await.map_err(failed)?;
        if count == 0 {
            if sent == Sent::All {
                connection.end_request();
            }
            break;
        }
    }
    Ok(())
}
