//! `explain`: a dry run on the upkeep thread, with counters that stand aside, and its answer as text or JSON.

mod json;
mod text;

use super::running::Running;
use super::threads::Parts;
use crate::server::Question;
use cache::explain::{Explanation, NoVcl};
use copal_cache as cache;
use copal_catalog as catalog;
use copal_net as net;
use copal_origin as origin;
use net::Endpoint;
use net::listen::Listening;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

/// How long VCL may take, which may wait for what its modules do. Less than the manager waits for an answer.
const PATIENCE: Duration = Duration::from_secs(3);

/// What would become of the request.
///
/// # Errors
/// Why that cannot be said.
pub(super) fn explain(
    running: &Running,
    addresses: &[Listening],
    question: &Question,
) -> Result<String, String> {
    let json = question.json;
    let asked = asked(addresses, question);
    let work = move |parts: Parts| async move { ask(&parts, &asked).await };
    let explanation = running.ask_upkeep(PATIENCE, work)??;
    Ok(if json { json::print(&explanation) } else { text::print(&explanation) })
}

/// The request as it comes in by the first address.
fn asked(addresses: &[Listening], question: &Question) -> cache::explain::Question {
    let listening = addresses.first();
    let server = match listening.map(|listening| &listening.endpoint) {
        Some(Endpoint::Tcp(address)) => *address,
        Some(Endpoint::Unix(_)) | None => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
    };
    let bytes = |text: &String| text.clone().into_bytes();
    cache::explain::Question {
        method: bytes(&question.method),
        target: bytes(&question.target),
        fields: question.fields.iter().map(|(name, value)| (bytes(name), bytes(value))).collect(),
        client: SocketAddr::from((question.client, 0)),
        server,
        listener: listening.map_or_else(String::new, |listening| listening.name.clone()),
        endpoint: listening.map_or_else(String::new, |listening| listening.endpoint.to_string()),
    }
}

async fn ask(parts: &Parts, question: &cache::explain::Question) -> Result<Explanation, String> {
    let aside = parts.counters.aside().map_err(|error| format!("counters: {error}"))?;
    let pools = origin::Pools::among(&parts.origin, &parts.shelves);
    let local = Rc::new(cache::Local::new(&parts.shared, aside, parts.log.clone(), pools, 1));
    cache::explain::explain(&local, question).await.map_err(|NoVcl| "no VCL is active".to_owned())
}

/// Bytes as text; what is no UTF-8 is replaced.
fn shown(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What an object is to the request, in a word.
fn word(judged: catalog::index::lookup::Judged) -> &'static str {
    use catalog::index::lookup::Judged::{
        Banned, Dead, Fresh, HitForMiss, HitForPass, Lapsed, OtherPart, OtherVariant, Refused, Stale,
    };
    match judged {
        Dead => "dead",
        OtherVariant => "other variant",
        OtherPart => "other part",
        Banned => "banned",
        Fresh => "fresh",
        Refused(_) => "refused",
        HitForPass | HitForMiss => "in force",
        Lapsed => "lapsed",
        Stale => "stale",
    }
}
