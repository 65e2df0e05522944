//! Requests that are refused before they become one: badly framed, too large, too slow.

use base::vxid::Vxid;
use copal_base as base;
use copal_cache as cache;
use copal_observe as observe;
use copal_wire as wire;
use observe::{Counter, Counters, Kind, Records, Tag};
use std::fmt::Write as _;
use wire::Reject;

/// The answer to a request refused for `reject`; the connection is closed after it.
pub(crate) fn answer(reject: wire::Reject) -> String {
    let status = reject.status();
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write!(
        text,
        "HTTP/1.1 {status} {}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
        wire::standard_reason(status)
    );
    text
}

/// The counter of requests refused for such a reason.
fn reason(counters: &Counters, reject: Reject) -> &Counter {
    match reject {
        Reject::Http2Preface | Reject::Version => &counters.refused_version,
        Reject::LeadingEmptyLines
        | Reject::RequestLine
        | Reject::Target
        | Reject::Scheme
        | Reject::ControlByte
        | Reject::LineEnd
        | Reject::FieldSpace
        | Reject::FieldName
        | Reject::FieldValue
        | Reject::StatusLine
        | Reject::Expectation => &counters.refused_syntax,
        Reject::Method | Reject::MethodTooLong => &counters.refused_method,
        Reject::TargetTooLong | Reject::HeadTooLarge | Reject::LineTooLong | Reject::TooManyFields => {
            &counters.refused_head_size
        }
        Reject::Authority | Reject::RepeatedHost | Reject::Host => &counters.refused_host,
        Reject::LengthAndEncoding
        | Reject::RepeatedLength
        | Reject::Length
        | Reject::RepeatedEncoding
        | Reject::EncodingInHttp10
        | Reject::Connection => &counters.refused_framing,
        Reject::UnknownEncoding => &counters.refused_coding,
        Reject::ChunkSize
        | Reject::ChunkExtension
        | Reject::ChunkEnd
        | Reject::Trailer
        | Reject::TrailerTooLarge => &counters.refused_body,
    }
}

/// Counts as varnishd does: a request is one whose head it could take apart, and a head that is too long as a whole was never
/// looked at.
fn count(counters: &Counters, reject: Reject) {
    if matches!(reject, Reject::Expectation | Reject::RepeatedHost) {
        counters.client_req.inc();
    }
    match reject {
        Reject::Expectation => counters.client_req_417.inc(),
        Reject::HeadTooLarge | Reject::TargetTooLong | Reject::MethodTooLong => {}
        _ => counters.client_req_400.inc(),
    }
}

/// Logs and counts the refusal as a transaction of its own.
pub(crate) fn log(local: &cache::Local, session: Vxid, reject: wire::Reject, head: &[u8], sent: usize) {
    let counters = &local.counters;
    count(counters, reject);
    reason(counters, reject).inc();
    let now = local.now();
    let number = local.vxid();
    let mut records = Records::new(&local.log);
    records.begin(session, Kind::Session);
    records.link(Tag::Link, "req", number, "rxreq");
    records.begin(number, Kind::Client);
    records.link(Tag::Begin, "req", session, "rxreq");
    records.arrival(now);
    match reject {
        Reject::Expectation => {}
        Reject::RepeatedHost => records.text(Tag::BogoHeader, b"Multiple Host: headers"),
        Reject::FieldSpace | Reject::FieldName | Reject::FieldValue | Reject::LineEnd => {
            records.fmt(Tag::BogoHeader, format_args!("{reject}"));
        }
        _ => records.fmt(Tag::Debug, format_args!("{reject}")),
    }
    if reject != Reject::Expectation {
        records.text(Tag::HttpGarbage, head);
    }
    records.text(Tag::RespProtocol, b"HTTP/1.1");
    records.fmt(Tag::RespStatus, format_args!("{}", reject.status()));
    records.text(Tag::RespReason, wire::standard_reason(reject.status()).as_bytes());
    records.numbers(Tag::ReqAcct, &[head.len() as u64, 0, head.len() as u64, sent as u64, 0, sent as u64]);
    records.end();
}

/// What `SessClose` says of a connection that ended so. The words are Varnish's.
pub(crate) fn close_reason(reject: Reject) -> &'static str {
    match reject {
        Reject::HeadTooLarge | Reject::TargetTooLong | Reject::MethodTooLong => "RX_OVERFLOW",
        Reject::RepeatedHost | Reject::Host | Reject::Authority => "RX_BAD",
        _ => "RX_JUNK",
    }
}
