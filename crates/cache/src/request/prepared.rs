//! The response of an object that is asked for again and again: made once, sent many times.
//!
//! ```text
//! head      HTTP/1.1 200 OK ... X-Varnish: | 32770 3 | Age: 7 ... Connection: keep-alive
//! records   RespProtocol ... RespHeader    | X-Varnish | RespHeader Age ... VCL_return | Process | RespHeader ...
//!             `before`                                      `middle`                                  `after`
//! ```
//! Only what stands between the bars differs from one response to the next, until `Age` counts on. This is a shortcut past
//! [`super::deliver`] for plain GETs under a built-in `vcl_deliver`; what it sends and logs is taken from a response that
//! the long way made, so the two cannot come to differ.

use super::cache_status::ttl_left;
use crate::body::Body;
use crate::exchange::{Exchange, Obj};
use crate::known::Known;
use crate::repeats::{BY_RFC, BY_VARNISH, Basis, Prepared, Repeats, Status};
use base::Time;
use base::units::push_integer;
use copal_base as base;
use copal_observe as observe;
use copal_store as store;
use copal_vcl as vcl;
use copal_wire as wire;
use observe::{Mark, Tag};
use std::rc::Rc;
use std::sync::Arc;
use store::State;
use vcl::host::Sub;
use wire::Version;
use wire::h1::RequestFraming;

/// The number of equal responses that the long way makes before one is kept.
const WORTH: u8 = 3;

fn status(exchange: &Exchange, known: &Known, age: u64) -> Option<Status> {
    exchange.shows_status().then(|| Status {
        ttl: ttl_left(known, exchange.ttl_max, age),
        handled: exchange.handled,
        reason: exchange.reason,
    })
}

/// The places in the records of one response that [`learn`] needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Marks {
    /// Before the response's first record.
    pub(crate) start: Mark,
    /// Before the `Process` time stamp.
    pub(crate) shaping: Mark,
    /// Behind it.
    pub(crate) shaped: Mark,
}

/// The object, if the response to this request is its plain one.
#[inline]
pub(crate) fn plain(exchange: &Exchange) -> Option<Rc<Known>> {
    let Obj::Stored(known) = &exchange.obj else { return None };
    let request = &exchange.request;
    let is_plain = exchange.hit
        && !exchange.close
        && exchange.trouble.is_none()
        && exchange.framing == RequestFraming::None
        && request.version == Version::Http11
        && request.method == b"GET"
        && known.status() == 200
        && known.state() == State::Stored
        && exchange.esi_level == 0
        && super::filters::goes_as_stored(exchange, known)
        && !request.fields.has_any(if exchange.rfc { BY_RFC } else { BY_VARNISH })
        && !exchange.client_wants_close()
        && exchange.is_builtin(Sub::Deliver);
    is_plain.then(|| Rc::clone(known))
}

fn age(known: &Known, now: Time) -> u64 {
    (now - known.origin_time()).max(0.0) as u64
}

/// Delivers a [plain](plain) response as it was prepared; false if it is not, and then nothing has happened.
pub(crate) fn deliver(exchange: &mut Exchange, known: &Rc<Known>) -> bool {
    let repeats = known.beside().borrow();
    let (Some(prepared), Some(basis)) = (&repeats.prepared, &repeats.basis) else { return false };
    let now = exchange.local.now();
    let age = age(known, now);
    if !basis.is(&exchange.current.settings, age, status(exchange, known, age))
        || !exchange.records.accepts(&prepared.before)
    {
        return false;
    }
    exchange.now = now;
    let head = &mut exchange.head;
    head.clear();
    head.extend_from_slice(&prepared.head_before);
    push_integer(head, u64::from(exchange.vxid));
    head.push(b' ');
    push_integer(head, u64::from(known.vxid()));
    let records = &mut exchange.records;
    records.replay(&prepared.before);
    records.header(Tag::RespHeader, b"X-Varnish", &head[prepared.head_before.len()..]);
    head.extend_from_slice(&prepared.head_after);
    records.replay(&prepared.middle);
    exchange.timestamp("Process", now);
    exchange.records.replay(&prepared.after);
    exchange.body = Body::object(known, 0, u64::MAX);
    true
}

/// Takes note of a [plain](plain) response that the long way has made, and keeps it if it is one of several alike.
pub(crate) fn learn(exchange: &Exchange, known: &Known, marks: Marks) {
    let mut repeats = known.beside().borrow_mut();
    let (settings, age) = (&exchange.current.settings, age(known, exchange.now));
    let status = status(exchange, known, age);
    if !repeats.basis.as_ref().is_some_and(|basis| basis.is(settings, age, status)) {
        let basis = Basis { settings: Arc::clone(settings), age, status };
        *repeats = Repeats { basis: Some(basis), count: 0, prepared: None };
    }
    repeats.count = repeats.count.saturating_add(1);
    if repeats.count >= WORTH {
        repeats.prepared = prepare(exchange, marks).map(Box::new);
    }
}

fn prepare(exchange: &Exchange, marks: Marks) -> Option<Prepared> {
    const NAME: &[u8] = b"\r\nX-Varnish: ";
    if exchange.close {
        return None;
    }
    let mut head = Vec::new();
    wire::h1::write_response_head(&exchange.response, &mut head);
    let start = head.windows(NAME.len()).position(|window| window == NAME)? + NAME.len();
    let length = head[start..].iter().position(|byte| *byte == b'\r')?;
    let records = &exchange.records;
    let first = records.block(marks.start, marks.shaping)?;
    // Where the mask leaves the record out, nothing varies, and what is left out behind the last one is nothing.
    let varying = first.contents().position(|content| content.starts_with(&NAME[2..]));
    let (before, middle) = first.without(varying.unwrap_or(usize::MAX));
    Some(Prepared {
        head_before: head[..start].into(),
        head_after: head[start + length..].into(),
        before,
        middle,
        after: records.block(marks.shaped, records.mark())?,
    })
}
