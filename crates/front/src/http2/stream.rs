//! One stream: a request and its response.

use super::body::StreamBody;
use super::room::{Piece, Room};
use crate::respond::{Limits, Sent};
use crate::serve::Front;
use crate::{reject, settings::Settings};
use bytes::{Bytes, BytesMut};
use cache::{Exchange, Outcome, Session};
use copal_cache as cache;
use copal_net as net;
use copal_wire as wire;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use net::Deadline;
use std::future::poll_fn;
use std::io::IoSlice;
use std::rc::Rc;
use std::time::Instant;
use wire::h1::RequestFraming;
use wire::{Fields, Reject};

/// A request as it arrived.
struct Arrived {
    body: RecvStream,
    framing: RequestFraming,
    /// Bytes of its head.
    head: usize,
}

/// Answers one request.
pub(super) async fn serve(
    front: Rc<Front>,
    session: Rc<Session>,
    room: &Room,
    request: http::Request<RecvStream>,
    mut respond: SendResponse<Piece>,
) {
    let settings = front.settings();
    let mut work = front.work(&session);
    let (parts, body) = request.into_parts();
    match accept(&parts, body.is_end_stream(), &settings, &mut work.exchange) {
        Ok((framing, head)) => {
            let arrived = Arrived { body, framing, head };
            answer(&front, &session, &mut work.exchange, room, arrived, &mut respond).await;
        }
        Err(reason) => refuse(&front, &session, reason, &parts, &mut respond),
    }
    front.rest(work);
}

/// Takes the request's head over; how its body is framed and the size of the head.
fn accept(
    parts: &http::request::Parts,
    ended: bool,
    settings: &Settings,
    exchange: &mut Exchange,
) -> Result<(RequestFraming, usize), Reject> {
    if parts.method == http::Method::CONNECT {
        return Err(Reject::Method);
    }
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    let pseudo = wire::h2::Pseudo {
        method: parts.method.as_str().as_bytes(),
        path: path.as_bytes(),
        authority: parts.uri.authority().map(|authority| authority.as_str().as_bytes()),
    };
    let fields = parts.headers.iter().map(|(name, value)| (name.as_str().as_bytes(), value.as_bytes()));
    wire::h2::request_head(&pseudo, fields, &settings.limits, &mut exchange.request)?;
    let framing = wire::h2::request_framing(&exchange.request, ended)?;
    let request = &exchange.request;
    Ok((framing, request.method.len() + request.target.len() + request.fields.byte_len()))
}

/// Too large a head is answered, what is no request at all ends the stream (RFC 9113, section 8.1.1).
fn refuse(
    front: &Front,
    session: &Session,
    reason: Reject,
    parts: &http::request::Parts,
    respond: &mut SendResponse<Piece>,
) {
    reject::log(&front.local, session.vxid, reason, parts.uri.to_string().as_bytes(), 0);
    let mut response = http::Response::new(());
    match StatusCode::from_u16(reason.status()) {
        Ok(status) if status != StatusCode::BAD_REQUEST => {
            *response.status_mut() = status;
            // A connection that is gone needs no answer.
            let _ = respond.send_response(response, true);
        }
        _ => respond.send_reset(Reason::PROTOCOL_ERROR),
    }
}

async fn answer(
    front: &Front,
    session: &Session,
    exchange: &mut Exchange,
    room: &Room,
    arrived: Arrived,
    respond: &mut SendResponse<Piece>,
) {
    let settings = front.settings();
    let expectation = exchange.request.fields.get_known(wire::Known::Expect);
    let waits = expectation.is_some_and(|value| value.eq_ignore_ascii_case(b"100-continue"));
    exchange.request.fields.remove_known(wire::Known::Expect);
    exchange.close_after = false;
    let mut body =
        StreamBody::new(arrived.body, arrived.framing, &mut *respond, waits, settings.timeout_body);
    let outcome = exchange.run(&mut body, arrived.head, front.local.now()).await;
    let received = body.received;
    let sent = match outcome {
        Outcome::Deliver => deliver(exchange, respond, room, Limits::of(&settings, session)).await,
        // The cache makes no pipe of a stream.
        Outcome::Close | Outcome::Pipe(_) => Sent::default(),
    };
    if !sent.complete {
        respond.send_reset(Reason::INTERNAL_ERROR);
    }
    exchange.finish(sent.head, sent.body, received);
}

/// Writes the response.
async fn deliver(
    exchange: &mut Exchange,
    respond: &mut SendResponse<Piece>,
    room: &Room,
    limits: Limits,
) -> Sent {
    let mut response = http::Response::new(());
    *response.status_mut() =
        StatusCode::from_u16(exchange.response.status).unwrap_or(StatusCode::BAD_GATEWAY);
    let Some(fields) = map(&exchange.response.fields) else { return Sent::default() };
    *response.headers_mut() = fields;
    let ended = exchange.body.is_empty();
    let mut sent = Sent { head: exchange.response.fields.byte_len() as u64, ..Sent::default() };
    match respond.send_response(response, ended) {
        Ok(stream) if !ended => send_body(exchange, stream, room, limits, &mut sent).await,
        Ok(_) => sent.complete = true,
        Err(_) => {}
    }
    sent
}

/// A response's fields but for those of a connection of HTTP/1 (RFC 9113, section 8.2.2). `None` if there are more than the
/// library's table takes: 24,576 names, which `http_max_hdr` may allow an origin.
pub(super) fn map(fields: &Fields) -> Option<HeaderMap> {
    let mut map = HeaderMap::try_with_capacity(fields.len()).ok()?;
    for field in fields.iter() {
        if field.known.is_some_and(wire::Known::is_hop_by_hop) {
            continue;
        }
        if let (Ok(name), Ok(value)) =
            (HeaderName::from_bytes(field.name), HeaderValue::from_bytes(field.value))
        {
            map.try_append(name, value).ok()?;
        }
    }
    Some(map)
}

async fn send_body(
    exchange: &mut Exchange,
    mut stream: SendStream<Piece>,
    room: &Room,
    limits: Limits,
    sent: &mut Sent,
) {
    let deadline = Deadline::new();
    let begun = Instant::now();
    while begun.elapsed().as_secs_f64() < limits.total {
        match exchange.body.ready().await {
            Ok(true) => {}
            Ok(false) => {
                sent.complete = stream.send_data(Piece::default(), true).is_ok();
                return;
            }
            Err(cache::body::Aborted) => return,
        }
        let mut slices = Vec::new();
        exchange.body.slices(&mut slices);
        let size = slices.iter().map(|slice| slice.len()).sum::<usize>().min(room.piece_max());
        stream.reserve_capacity(size);
        deadline.set(limits.idle);
        let window = match net::within(&deadline, poll_fn(|context| stream.poll_capacity(context))).await {
            Ok(Some(Ok(window))) => window,
            _ => return,
        };
        // Only what the client's windows let through takes room: who waits for a window holds up no other.
        let count = window.min(size);
        deadline.set(limits.idle);
        let Ok(Some(taken)) = net::within(&deadline, room.take(count)).await else { return };
        let piece = Piece::new(copy(&slices, count), taken);
        drop(slices);
        exchange.body.consume(count);
        let last = exchange.body.is_at_end();
        if stream.send_data(piece, last).is_err() {
            return;
        }
        sent.body += count as u64;
        if last {
            sent.complete = true;
            return;
        }
    }
}

/// The first `most` bytes of `slices`.
fn copy(slices: &[IoSlice<'_>], most: usize) -> Bytes {
    let mut piece = BytesMut::with_capacity(most);
    for slice in slices {
        let left = most - piece.len();
        piece.extend_from_slice(&slice[..slice.len().min(left)]);
    }
    piece.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapped(count: usize) -> Option<usize> {
        let mut fields = Fields::new();
        (0..count).for_each(|number| assert!(fields.push(format!("x-{number}").as_bytes(), b"v")));
        map(&fields).map(|map| map.len())
    }

    #[test]
    fn more_fields_than_the_table_takes_are_no_panic() {
        assert_eq!((mapped(100), mapped(24_000), mapped(65_535)), (Some(100), Some(24_000), None));
    }
}
