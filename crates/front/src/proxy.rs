//! The PROXY header with which a connection to a PROXY listener begins.

use crate::buffer::ReadBuffer;
use copal_net as net;
use copal_wire as wire;
use net::{Deadline, Stream};
use std::future::poll_fn;
use wire::proxy::{Header, V2_MAX};

/// Reads the header; `None` if the peer sent none, a bad one, or not in time: then the connection is closed, since
/// guessing would let clients choose their address.
pub(crate) async fn read(
    stream: &mut Stream,
    buffer: &mut ReadBuffer,
    deadline: &Deadline,
    timeout: f64,
) -> Option<Header> {
    deadline.set(timeout);
    loop {
        match wire::proxy::parse(buffer.unused()) {
            Ok(Some((length, header))) => {
                buffer.consume(length);
                deadline.clear();
                return Some(header);
            }
            Ok(None) => {}
            Err(_) => return None,
        }
        let filled =
            net::within(deadline, poll_fn(|context| buffer.poll_fill(stream, context, V2_MAX))).await;
        if !matches!(filled, Ok(Ok(1..))) {
            return None;
        }
    }
}
