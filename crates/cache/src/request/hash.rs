//! `vcl_hash`: the key. It runs whatever `vcl_recv` decided, as in Varnish.

use super::step::{AfterHash, Step, fail};
use crate::exchange::Exchange;
use crate::request::recv::push_ip;
use catalog::index::Key;
use copal_catalog as catalog;
use copal_observe as observe;
use copal_rules as rules;
use copal_vcl as vcl;
use copal_wire::Known;
use observe::{Native, Tag};
use sha2::{Digest, Sha256};
use vcl::host::{Action, Sub};

pub(crate) async fn step(exchange: &mut Exchange, after: AfterHash) -> Step {
    if !matches!(after, AfterHash::Pass | AfterHash::Pipe) {
        normalize_coding(exchange);
    }
    let Some(key) = key(exchange).await else { return fail() };
    exchange.key = key;
    match after {
        AfterHash::Lookup => Step::Lookup,
        AfterHash::Pass => Step::Pass,
        AfterHash::Pipe => Step::Pipe,
        AfterHash::Purge => Step::Purge,
        AfterHash::Restart => Step::Restart,
        AfterHash::Synth(status, reason) => Step::Synth(status, reason),
    }
}

/// Runs `vcl_hash`; `None` if it fails.
async fn key(exchange: &mut Exchange) -> Option<Key> {
    exchange.hash_input.clear();
    if exchange.is_builtin(Sub::Hash) {
        builtin(exchange);
    } else if !matches!(exchange.decide(Sub::Hash).await, Action::Lookup) {
        return None;
    }
    Some(Sha256::digest(&exchange.hash_input).into())
}

/// The key that a GET of `target` would have which is otherwise like this request; `None` if VCL fails.
pub(crate) async fn of_target(exchange: &mut Exchange, target: &[u8]) -> Option<Key> {
    let method = std::mem::replace(&mut exchange.request.method, b"GET".to_vec());
    let own = std::mem::replace(&mut exchange.request.target, target.to_vec());
    let found = key(exchange).await;
    (exchange.request.method, exchange.request.target) = (method, own);
    found
}

/// One form of the codings that a client takes: gzip or none, so that one fetch serves all of them.
fn normalize_coding(exchange: &mut Exchange) {
    let Exchange { request, records, .. } = exchange;
    let Some(value) = request.fields.get_known(Known::AcceptEncoding) else { return };
    if value == b"gzip" || !exchange.current.settings.http_gzip_support {
        return;
    }
    records.header(Tag::ReqUnset, b"Accept-Encoding", value);
    if rules::coding::accepts_gzip(&request.fields) {
        request.fields.set_known(Known::AcceptEncoding, b"gzip");
        records.text(Tag::ReqHeader, b"Accept-Encoding: gzip");
    } else {
        request.fields.remove_known(Known::AcceptEncoding);
    }
}

/// URL, then host or the server's address; each part ends so that no two lists of parts look alike.
fn builtin(exchange: &mut Exchange) {
    let Exchange { request, hash_input, records, session, .. } = exchange;
    // What is hashed is logged between the two, if at all.
    let together = !records.wants(Tag::Hash);
    if together {
        records.native(const { &Native::new("HASH", "lookup") });
    } else {
        records.text(Tag::VCL_call, b"HASH");
    }
    add(hash_input, records, &request.target);
    match request.fields.get_known(Known::Host) {
        Some(host) => add(hash_input, records, host),
        None => {
            let mut address = Vec::with_capacity(48);
            push_ip(&mut address, session.server.ip());
            add(hash_input, records, &address);
        }
    }
    if !together {
        records.text(Tag::VCL_return, b"lookup");
    }
}

/// What ends the text of each `hash_data`; no text holds it.
pub(crate) const SEPARATOR: u8 = 0;

/// One `hash_data`: the text and its end.
pub(crate) fn add(input: &mut Vec<u8>, records: &mut observe::Records, text: &[u8]) {
    input.extend_from_slice(text);
    input.push(SEPARATOR);
    records.text(Tag::Hash, text);
}
