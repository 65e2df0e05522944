//! The request's body on its way in: when the client is told to send it, its copy in memory, and what the log says of it.

use super::step::{AfterHash, Step};
use crate::exchange::Exchange;
use crate::request_body::RequestBody;
use base::Time;
use bytes::Bytes;
use copal_base as base;
use copal_observe as observe;
use copal_wire as wire;
use observe::Tag;
use std::future::poll_fn;

/// How much is read at once.
const PIECE: usize = 16 << 10;

/// Has a client that waits for `100 Continue` send its body, once `vcl_recv` has decided.
///
/// What is passed will be read, so that nothing is won by waiting longer, unless VCL says so. A pipe reads nothing here,
/// and the backend does not see the client's `Expect`. All else may be answered without the body; where it is read after
/// all, the client is told then.
pub(crate) fn go_on(exchange: &mut Exchange, body: &mut dyn RequestBody, step: &Step) {
    let now = match step {
        Step::Hash(AfterHash::Pass) => !exchange.late_continue,
        Step::Hash(AfterHash::Pipe) => true,
        _ => false,
    };
    if now {
        tell(exchange, body);
    }
}

/// Has a client that waits for `100 Continue` send its body.
pub(crate) fn tell(exchange: &mut Exchange, body: &mut dyn RequestBody) {
    body.go_on();
    log_told(exchange, body);
}

/// Logs the interim responses that the client was sent.
fn log_told(exchange: &mut Exchange, body: &mut dyn RequestBody) {
    for head in body.told() {
        exchange.log_interim(&head);
    }
}

/// Logs the request's body after a fetch; `ended` is when it ended, if the fetch sent it on as it came.
pub(crate) fn fetched(exchange: &mut Exchange, body: &mut dyn RequestBody, ended: Option<Time>) {
    if ended.is_some() {
        // Varnish reads it into a piece of this store on its way.
        exchange.records.text(Tag::Storage, b"malloc Transient");
    }
    log_told(exchange, body);
    if let Some(ended) = ended {
        exchange.timestamp("ReqBody", ended);
    }
}

/// Reads the request body into memory for a fetch that outlives the request; without it, if it is too large.
pub(crate) async fn keep(exchange: &mut Exchange, body: &mut dyn RequestBody) {
    let limit = exchange.current.settings.cache_req_body_max;
    read(exchange, body, limit).await;
}

/// Reads the request body up to `limit` bytes for `std.cache_req_body`. A larger body is a `false` to VCL; what was read
/// of it is lost, so the connection closes after the answer.
pub(crate) async fn read(exchange: &mut Exchange, body: &mut dyn RequestBody, limit: u64) -> bool {
    let store = store(exchange);
    exchange.records.fmt(Tag::Storage, format_args!("{} {}", store.kind(), store.name()));
    tell(exchange, body);
    let read = read_pieces(body, limit).await;
    let now = exchange.local.now();
    exchange.timestamp("ReqBody", now);
    let held = read.and_then(|read| Some((store.reserve(read.len() as u64).ok()?, read)));
    let Some((charge, read)) = held else {
        exchange.close = true;
        exchange.framing = wire::h1::RequestFraming::None;
        return false;
    };
    exchange.cached_body = Some(Bytes::from(read));
    exchange.cached_body_charge = Some(charge);
    true
}

/// The store for a request's body: `req.storage`, else `Transient`.
fn store(exchange: &Exchange) -> std::sync::Arc<dyn copal_store::Engine> {
    let stores = &exchange.local.shared.stores;
    let wanted = exchange.storage_hint.as_ref().and_then(|name| stores.find(name));
    std::sync::Arc::clone(wanted.unwrap_or(stores.transient()))
}

/// All of it; `None` if it breaks off or is longer than `limit`.
async fn read_pieces(body: &mut dyn RequestBody, limit: u64) -> Option<Vec<u8>> {
    let mut kept = Vec::new();
    let mut buffer = vec![0; PIECE];
    loop {
        match poll_fn(|context| body.poll_read(context, &mut buffer)).await {
            Ok(0) => return Some(kept),
            Ok(count) if kept.len() as u64 + count as u64 <= limit => {
                kept.extend_from_slice(&buffer[..count]);
            }
            Ok(_) | Err(_) => return None,
        }
    }
}
