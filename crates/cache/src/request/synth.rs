//! `vcl_synth`: an answer of our own.

use super::step::{Outcome, Step};
use super::{filters, framing, range};
use crate::body::Body;
use crate::exchange::{Exchange, Obj};
use crate::message::is_bodiless;
use bytes::Bytes;
use catalog::reason::Reason;
use copal_catalog as catalog;
use copal_observe as observe;
use copal_vcl as vcl;
use copal_wire as wire;
use observe::Tag;
use vcl::host::{Action, Sub};
use vcl::value::Text;
use wire::standard_reason;
use wire::{Known, Version};

/// `waits` says that the client sends its body only if it is told to, which an answer without it does not do. The
/// connection ends with that answer then; VCL may take that back.
pub(crate) async fn step(exchange: &mut Exchange, status: u16, reason: Option<Text>, waits: bool) -> Step {
    exchange.local.counters.s_synth.inc();
    exchange.body = Body::Empty;
    exchange.obj = Obj::None;
    exchange.synthetic.clear();
    prepare(exchange, status, reason, waits);
    match exchange.decide(Sub::Synth).await {
        Action::Deliver => {}
        Action::Restart if exchange.restarts <= exchange.current.settings.max_restarts => {
            return Step::Restart;
        }
        // There were too many: that is what this answer says.
        Action::Restart => exchange.reason = Reason::TooManyRestarts,
        _ => {
            // VCL failed while making the answer: a fixed answer goes out, and the connection ends.
            exchange.close = true;
            exchange.synthetic.clear();
            prepare(exchange, 503, Some(Text::from("VCL failed")), waits);
        }
    }
    finish(exchange);
    Step::Done(Outcome::Deliver)
}

fn prepare(exchange: &mut Exchange, status: u16, reason: Option<Text>, waits: bool) {
    let now = exchange.local.now();
    let response = &mut exchange.response;
    response.version = Version::Http11;
    // VCL may give a status above 999 to itself; the client sees its last three digits.
    response.set_status(status, reason.as_deref().unwrap_or(standard_reason(status % 1000).as_bytes()));
    response.fields.clear();
    response.fields.push_known(Known::Date, &wire::date::format(now));
    response.fields.push_known(Known::Server, exchange.current.settings.server());
    let mut vxid = Vec::with_capacity(10);
    copal_base::units::push_integer(&mut vxid, u64::from(exchange.vxid));
    response.fields.push_known(Known::XVarnish, &vxid);
    if waits && exchange.request.version != Version::Http20 {
        response.fields.push_known(Known::Connection, b"close");
    }
    if let Some(trouble) = &exchange.trouble {
        trouble.announce(&exchange.current.settings, &mut response.fields);
    }
    exchange.log_response_head();
}

fn finish(exchange: &mut Exchange) {
    let now = exchange.local.now();
    exchange.timestamp("Process", now);
    exchange.response.status %= 1000;
    exchange.response.fields.remove_known(Known::TransferEncoding);
    let body = std::mem::take(&mut exchange.synthetic);
    exchange.records.text(Tag::Storage, b"malloc Transient");
    let list = exchange.filter_list();
    exchange.records.text(Tag::Filters, &list);
    let length = body.len() as u64;
    framing::set_length(exchange, length);
    if !is_bodiless(exchange.response.status) && !exchange.is_head() {
        exchange.body = Body::bytes(Bytes::from(body));
    }
    if exchange.esi_level == 0 && framing::may_want_part(exchange) && filters::may_cut(exchange) {
        range::cut(exchange);
    }
    framing::set_connection(exchange);
}
