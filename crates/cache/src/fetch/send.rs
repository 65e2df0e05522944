//! Sending the request to the origin and reading the head of its answer.

use super::{Answer, Fetch, Step, Upload, prepare};
use crate::exchange::RequestBody;
use bytes::Bytes;
use copal_observe as observe;
use copal_origin as origin;
use copal_wire as wire;
use observe::Tag;
use origin::{Connection, Error, Retry};
use std::future::poll_fn;
use vcl::value::BackendRef;
use wire::Known;
use wire::h1::RequestFraming;

use copal_vcl as vcl;

/// How much of a client's body is read at once.
const UPLOAD: usize = 32 << 10;

pub(super) async fn step(fetch: &mut Fetch, body: &mut dyn RequestBody) -> Step {
    fetch.now = fetch.local.now();
    let resolved = fetch.backend.as_ref().and_then(|backend| prepare::resolve(backend, &fetch.ask_data()));
    let Some(backend) = resolved else {
        let name = fetch.backend.as_ref().map_or("none", |backend| backend.name()).to_owned();
        fetch.local.counters.backend_unhealthy.inc();
        fetch.trail.records.fmt(Tag::FetchError, format_args!("Director {name} returned no backend"));
        return Step::Error(503, None);
    };
    fetch.chosen = Some(BackendRef::clone(&backend));
    match attempt(fetch, body, &backend).await {
        Ok(answer) => Step::Response(answer),
        Err(error) => {
            fetch.trail.records.fmt(Tag::FetchError, format_args!("{error}"));
            Step::Error(503, None)
        }
    }
}

/// One request, and a second on a fresh connection if a reused one turned out to be closed.
async fn attempt(fetch: &mut Fetch, body: &mut dyn RequestBody, backend: &BackendRef) -> Result<Answer, Error> {
    let leaf = prepare::leaf(backend).ok_or(Error::NotABackend)?;
    let reuse_allowed = fetch.upload == Upload::None || matches!(fetch.upload, Upload::Cached(_));
    match exchange(fetch, body, leaf, reuse_allowed).await {
        Err(error) if error.retry() == Retry::Same && fetch.upload != Upload::Spent => {
            fetch.trail.records.fmt(Tag::FetchError, format_args!("{error} (trying a fresh connection)"));
            exchange(fetch, body, leaf, false).await
        }
        result => result,
    }
}

async fn exchange(
    fetch: &mut Fetch,
    body: &mut dyn RequestBody,
    leaf: &origin::Backend,
    reuse: bool,
) -> Result<Answer, Error> {
    let mut connection = leaf.connect(&fetch.local.pools, reuse, &fetch.timeouts).await?;
    let counters = &fetch.local.counters;
    if connection.reused() {
        counters.backend_reuse.inc();
    } else {
        counters.backend_conn.inc();
    }
    counters.backend_req.inc();
    fetch.trail.records.fmt(Tag::BackendOpen, format_args!("{}", connection.description()));
    let now = fetch.local.now();
    fetch.trail.timestamp("Connected", now);
    let head = head(fetch, leaf.host_header())?;
    connection.write(&head).await?;
    fetch.trail.sent = (head.len() as u64, 0);
    upload(fetch, body, &mut connection).await?;
    let now = fetch.local.now();
    fetch.trail.timestamp("Bereq", now);
    let framing = connection.read_head(&fetch.request.method, &mut fetch.response).await?;
    fetch.trail.received_head = connection.head_bytes();
    let now = fetch.local.now();
    fetch.trail.timestamp("Beresp", now);
    Ok(Answer { connection: Some(connection), framing })
}

/// The head on the wire: VCL's `bereq`, with a host and the framing of what follows.
fn head(fetch: &mut Fetch, default_host: &str) -> Result<Vec<u8>, Error> {
    let had_host = fetch.request.fields.has_known(Known::Host);
    prepare::default_host(&mut fetch.request, default_host);
    if !had_host && !default_host.is_empty() {
        fetch.trail.records.header(Tag::BereqHeader, b"Host", default_host.as_bytes());
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
    wire::h1::write_request_head(&fetch.request, &mut head).map_err(Error::Request)?;
    Ok(head)
}

async fn upload(fetch: &mut Fetch, body: &mut dyn RequestBody, connection: &mut Connection) -> Result<(), Error> {
    let framing = match &fetch.upload {
        Upload::None | Upload::Spent => return Ok(()),
        Upload::Cached(text) => {
            let text = Bytes::clone(text);
            fetch.trail.sent.1 = text.len() as u64;
            return connection.write_body(&text).await;
        }
        Upload::Stream(framing) => *framing,
    };
    fetch.upload = Upload::Spent;
    let mut buffer = vec![0; UPLOAD];
    let mut framed = Vec::new();
    loop {
        let count = poll_fn(|context| body.poll_read(context, &mut buffer)).await;
        // The client's body broke off: the origin must not take what it has for the whole, so the connection is cut.
        let count = count.map_err(|crate::exchange::BodyError| Error::RequestBody)?;
        if count == 0 {
            break;
        }
        fetch.trail.sent.1 += count as u64;
        let sent = if framing == RequestFraming::Chunked {
            framed.clear();
            wire::chunked::head(count, &mut framed);
            framed.extend_from_slice(&buffer[..count]);
            framed.extend_from_slice(b"\r\n");
            connection.write_body(&framed).await
        } else {
            connection.write_body(&buffer[..count]).await
        };
        if sent.is_err() {
            // The origin may have answered early and closed: its answer is still to be read.
            return Ok(());
        }
    }
    if framing == RequestFraming::Chunked {
        connection.write_body(wire::chunked::LAST).await?;
    }
    Ok(())
}
