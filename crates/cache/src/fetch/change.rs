//! What a request with an unsafe method changes at the origin, and so ends in the cache: what is stored under its own
//! target, and under those that Location and Content-Location of the answer name.
//!
//! The first goes as soon as the answer's head is there, whatever VCL makes of that; the others when the fetch is done,
//! since their keys are for `vcl_hash` to say.
//!
//! Source: RFC 9111, section 4.4; RFC 9110, section 9.3.3 (an answer to POST that can serve a GET).

use super::state::Fetch;
use copal_observe as observe;
use copal_rules as rules;
use copal_wire as wire;
use observe::Tag;
use rules::invalidate;
use wire::Known;

/// The most targets besides its own that one answer can name.
const OTHERS_MAX: usize = 4;

/// Takes note of the answer in `fetch`, as it came.
pub(super) fn note(fetch: &mut Fetch) {
    let Some(change) = &mut fetch.change else { return };
    if !invalidate::is_unsafe(&fetch.request.method) {
        // VCL made another request of it.
        return;
    }
    let (status, answer) = (fetch.response.status, &fetch.response.fields);
    let sent_to = fetch.request.fields.get_known(Known::Host).unwrap_or_default();
    // The origin may know itself by another name, and only the TLS terminator knows the client's scheme: all are tried.
    let mut is_error = true;
    for host in [&change.host[..], sent_to] {
        for scheme in [&b"http"[..], b"https"] {
            let targets = invalidate::targets(&change.target, host, scheme, status, answer);
            is_error &= targets.is_empty();
            for found in targets {
                let known = found.target == change.target || change.others.contains(&found.target);
                if !known && change.others.len() < OTHERS_MAX {
                    change.others.push(found.target);
                }
            }
        }
    }
    if is_error {
        return;
    }
    let count: usize = change.keys.iter().map(|key| crate::purge::changed(&fetch.local, key)).sum();
    fetch
        .log
        .records
        .fmt(Tag::Debug, format_args!("{} objects ended by a change (RFC 9111, section 4.4)", count));
}

/// Whether the answer in `fetch`, to a POST, is what a GET of its target would get.
pub(super) fn serves_get(fetch: &Fetch) -> bool {
    let Some(change) = &fetch.change else { return false };
    let answer = &fetch.response.fields;
    fetch.request.method == b"POST"
        && fetch.response.status == 200
        // The client's own codings were asked for, not ours.
        && !answer.has_known(Known::ContentEncoding)
        && [&b"http"[..], b"https"]
            .into_iter()
            .any(|scheme| rules::judge::answers_get(answer, &change.target, &change.host, scheme))
}
