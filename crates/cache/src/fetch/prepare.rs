//! The request to the origin, `vcl_backend_fetch`, and the choice of a backend.

use super::purpose::Purpose;
use super::state::{Fetch, Fetched, Step, Upload};
use super::wanted::Wanted;
use crate::header::Header;
use crate::message::protocol;
use copal_base as base;
use copal_observe as observe;
use copal_origin as origin;
use copal_rules as rules;
use copal_vcl as vcl;
use copal_wire as wire;
use observe::{Native, Tag};
use rules::hop::Copy;
use std::any::Any;
use std::sync::Arc;
use vcl::host::{Action, Sub};
use vcl::value::{Ask, BackendRef};
use wire::h1::RequestFraming;
use wire::{Known, RequestHead, Version};

/// `bereq` of a new fetch: the client's request without what concerns only the connection, and for the cache without
/// what would make the answer partial or conditional.
pub(super) fn request(wanted: &Wanted<'_>, vxid: base::vxid::Vxid) -> RequestHead {
    let mut request = RequestHead::default();
    request.copy_from(wanted.request);
    request.version = Version::Http11;
    let is_pass = wanted.purpose == Purpose::Pass;
    rules::hop::drop_fields(
        if is_pass { Copy::PassRequest } else { Copy::FetchRequest },
        &mut request.fields,
    );
    if !is_pass {
        if wanted.purpose == Purpose::Miss && wanted.rfc {
            // A client's directives are for all caches on the way (RFC 9111, section 5.2).
            for directives in wanted.request.fields.all_known(Known::CacheControl) {
                request.fields.push_known(Known::CacheControl, directives);
            }
            if wanted.demand.is_some_and(|demand| demand.implies_validation()) {
                // A condition is put to the origin, not to a cache on the way.
                request.fields.append_to_list(Known::CacheControl, b"max-age=0");
            }
        }
        request.method.clear();
        request.method.extend_from_slice(b"GET");
        if wanted.current.settings.http_gzip_support {
            request.fields.set_known(Known::AcceptEncoding, b"gzip");
        }
    }
    name_us(&mut request, wanted.current.settings.via(), vxid);
    request
}

/// The request that starts a pipe: `asked` as the client sent it, and the connection closes after it.
pub(crate) fn pipe_request(asked: &RequestHead, via: &[u8], vxid: base::vxid::Vxid) -> RequestHead {
    let mut request = RequestHead::default();
    request.copy_from(asked);
    if !request.fields.has_known(Known::Upgrade) {
        request.fields.set_known(Known::Connection, b"close");
    }
    name_us(&mut request, via, vxid);
    request
}

/// Adds the fields that tell of us.
pub(super) fn name_us(request: &mut RequestHead, via: &[u8], vxid: base::vxid::Vxid) {
    let mut text = Vec::with_capacity(10);
    base::units::push_integer(&mut text, u64::from(vxid));
    request.fields.set_known(Known::XVarnish, &text);
    request.fields.push_known(Known::Via, via);
}

/// The body to send after the head, unless VCL unsets it, as the built-in VCL does for a GET.
pub(super) fn upload(wanted: &Wanted<'_>) -> Upload {
    if let Some(body) = wanted.cached_body {
        return if body.is_empty() { Upload::None } else { Upload::Cached(body.clone()) };
    }
    match (wanted.purpose, wanted.framing) {
        // A background fetch outlives its request; the body was kept for it, if there is one.
        (Purpose::Background, _) | (_, RequestFraming::None) => Upload::None,
        (_, framing @ (RequestFraming::Length(_) | RequestFraming::Chunked)) => Upload::Stream(framing),
    }
}

/// Logs `bereq`, adds the condition of a revalidation, runs `vcl_backend_fetch`.
pub(super) async fn step(fetch: &mut Fetch) -> Step {
    if let Some(stale) = &fetch.stale {
        rules::conditional::add_conditions(stale.fields(), &mut fetch.request.fields);
    }
    if !fetch.others.is_empty() {
        super::update::add_tags(fetch);
    }
    set_range(fetch);
    log_bereq(fetch);
    if fetch.retries > 0 {
        // Each try is a transaction of its own.
        let number = fetch.vxid.to_string();
        let Fetch { request, log, .. } = &mut *fetch;
        let records = &mut log.records;
        let mut header =
            Header { fields: &mut request.fields, set: Tag::BereqHeader, unset: Tag::BereqUnset, records };
        header.replace(Known::XVarnish, number.as_bytes());
    }
    let action = if fetch.is_builtin(Sub::BackendFetch) {
        fetch.log.records.native(const { &Native::new("BACKEND_FETCH", "fetch") });
        if fetch.request.method == b"GET" {
            fetch.upload = Upload::None;
        }
        Action::Fetch
    } else {
        fetch.decide(Sub::BackendFetch).await
    };
    match action {
        Action::Fetch => {
            let now = fetch.local.now();
            fetch.log.timestamp("Fetch", now);
            Step::Send
        }
        Action::Abandon => Step::Done(Fetched::Failed),
        Action::Error(Some((status, reason))) => Step::Error(status, reason),
        Action::Error(None) => Step::error(),
        _ => Step::Done(Fetched::Failed),
    }
}

/// Sets the fields that ask for a part.
pub(super) fn set_range(fetch: &mut Fetch) {
    let Some(ask) = fetch.part_request.ask else { return };
    let fields = &mut fetch.request.fields;
    fields.set_known(Known::Range, &ask.value());
    if fetch.current.settings.http_gzip_support && !fetch.part_request.takes_coded {
        // Ranges of a response that is coded on the way do not fit together.
        fields.set_known(Known::AcceptEncoding, b"identity");
    }
}

/// Logs `bereq`: first with the client's method and version, then the ones that differ.
fn log_bereq(fetch: &mut Fetch) {
    let Fetch { log, request, asked, .. } = fetch;
    let Some((method, version)) = asked.take() else { return log_request(&mut log.records, request) };
    let method = std::mem::replace(&mut request.method, method);
    let version = std::mem::replace(&mut request.version, version);
    log_request(&mut log.records, request);
    if method != request.method {
        log.records.text(Tag::BereqMethod, &method);
    }
    if version != request.version {
        log.records.text(Tag::BereqProtocol, protocol(version));
    }
    (request.method, request.version) = (method, version);
}

/// Logs a request to a backend.
pub(crate) fn log_request(records: &mut observe::Records, request: &RequestHead) {
    records.text(Tag::BereqMethod, &request.method);
    records.text(Tag::BereqURL, &request.target);
    records.text(Tag::BereqProtocol, protocol(request.version));
    for field in request.fields.iter() {
        records.text(Tag::BereqHeader, field.line);
    }
}

/// The origin behind a resolved backend.
pub(crate) fn leaf(backend: BackendRef) -> Option<Arc<origin::Backend>> {
    let any: Arc<dyn Any + Send + Sync> = backend;
    any.downcast().ok()
}

/// Names the backend's host where the request names none.
pub(crate) fn default_host(request: &mut RequestHead, host: &str) {
    if !request.fields.has_known(Known::Host) && !host.is_empty() {
        request.fields.push_known(Known::Host, host.as_bytes());
    }
}

impl Fetch {
    pub(crate) fn ask_data(&self) -> Ask<'_> {
        Ask {
            now: self.now,
            digest: Some(&self.key),
            is_fetch: true,
            url: &self.request.target,
            random: self.local.random(),
            depth: 0,
            tried: &self.tried,
        }
    }
}
