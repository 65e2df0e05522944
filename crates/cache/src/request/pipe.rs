//! `vcl_pipe`: give up understanding, join client and backend.

use super::step::{Outcome, Step, fail};
use crate::exchange::Exchange;
use crate::fetch::log::FetchLog;
use crate::fetch::prepare;
use crate::pipe::{Pipe, PipeLog, Slot};
use crate::session::UNIX_PEER;
use copal_observe as observe;
use copal_origin as origin;
use copal_vcl as vcl;
use copal_wire as wire;
use observe::{Kind, Native, Tag};
use std::sync::Arc;
use vcl::host::{Action, Sub};

pub(crate) async fn step(exchange: &mut Exchange) -> Step {
    exchange.local.counters.s_pipe.inc();
    exchange.close = true;
    exchange.pipe_connect_timeout = None;
    exchange.pipe_request = Some(Box::new(exchange.pipe_head()));
    let mut log = begin(exchange);
    let action = if exchange.is_builtin(Sub::Pipe) {
        exchange.records.native(const { &Native::new("PIPE", "pipe") });
        Action::Pipe
    } else {
        exchange.decide(Sub::Pipe).await
    };
    let request = exchange.pipe_request.take();
    let now = exchange.local.now();
    exchange.timestamp("Process", now);
    log.0.timestamp("Process", now);
    match (action, request) {
        (Action::Pipe, Some(request)) => connect(exchange, &request, log).await,
        (Action::Synth(status, reason), _) => Step::Synth(status, reason),
        _ => fail(),
    }
}

/// The backend's side is a transaction of its own.
fn begin(exchange: &mut Exchange) -> PipeLog {
    let (vxid, now) = (exchange.local.vxid(), exchange.local.now());
    exchange.records.link(Tag::Link, "bereq", vxid, "pipe");
    let mut log = FetchLog::new(&exchange.local, now);
    let records = &mut log.records;
    records.begin(vxid, Kind::Backend);
    records.link(Tag::Begin, "bereq", exchange.vxid, "pipe");
    if let Some(vcl) = &exchange.current.vcl {
        records.text(Tag::VCL_use, vcl.name.as_bytes());
    }
    records.timestamp("Start", now, now, now);
    if let Some(request) = &exchange.pipe_request {
        prepare::log_request(records, request);
    }
    PipeLog(log)
}

async fn connect(exchange: &mut Exchange, request: &wire::RequestHead, mut log: PipeLog) -> Step {
    let leaf = exchange.hint().and_then(|backend| vcl::exec::resolve(backend, exchange));
    let Some(leaf) = leaf.and_then(prepare::leaf) else {
        exchange.records.text(Tag::FetchError, b"no backend");
        return Step::Synth(503, None);
    };
    let Some(slot) = Slot::take(&exchange.local, exchange.current.settings.pipe_sess_max) else {
        exchange.records.text(Tag::Error, b"too many pipes (pipe_sess_max)");
        return Step::Synth(503, None);
    };
    let mut head = Vec::new();
    let mut request = request.clone();
    prepare::default_host(&mut request, leaf.host_header());
    if let Some(body) = &exchange.cached_body {
        request.fields.remove_known(wire::Known::TransferEncoding);
        request.fields.set_known(wire::Known::ContentLength, body.len().to_string().as_bytes());
    }
    if let Err(reject) = wire::h1::write_request_head(&request, &mut head) {
        exchange.records.fmt(Tag::FetchError, format_args!("request cannot be sent: {reject}"));
        return Step::Synth(503, None);
    }
    let cached = exchange.cached_body.clone().unwrap_or_default();
    match open(exchange, &leaf, (&head, &cached), &mut log.0).await {
        Ok(connection) => {
            let now = exchange.local.now();
            exchange.timestamp("Pipe", now);
            exchange.transfer.pipe_head = head.len() as u64;
            Step::Done(Outcome::Pipe(Box::new(Pipe { connection, _slot: slot, _log: log })))
        }
        Err(error) => {
            exchange
                .records
                .fmt(Tag::FetchError, format_args!("{}", error.fetch_error(&leaf.definition().name)));
            // As Varnish: whoever asked for a pipe gets its end, not an answer in HTTP.
            Step::Done(Outcome::Close)
        }
    }
}

async fn open(
    exchange: &Exchange,
    leaf: &Arc<origin::Backend>,
    (head, body): (&[u8], &[u8]),
    log: &mut FetchLog,
) -> Result<origin::Connection, origin::Error> {
    let pools = &exchange.local.pools;
    let mut timeouts = leaf.timeouts(&pools.settings());
    timeouts.connect = exchange.pipe_connect_timeout.unwrap_or(timeouts.connect);
    let want = origin::Want {
        timeouts,
        reuse: origin::Reuse::Sure,
        addresses: Some((exchange.session.client, exchange.session.server)),
        now: exchange.now,
    };
    let mut connection = leaf.connect(pools, &want).await?;
    log.timestamp("Connected", exchange.local.now());
    let (peer, local) = (connection.peer().unwrap_or(UNIX_PEER), connection.local().unwrap_or(UNIX_PEER));
    log.opened(&connection, peer, local);
    connection.write_head(head, body).await?;
    log.timestamp("Bereq", exchange.local.now());
    Ok(connection)
}
