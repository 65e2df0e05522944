//! The PROXY header with which a connection to a PROXY listener begins.

use crate::buffer::ReadBuffer;
use copal_net as net;
use copal_wire as wire;
use net::{Deadline, Stream};
use std::future::poll_fn;
use wire::proxy::{Header, V2_MAX, Wrong};

/// What a PROXY header said.
#[derive(Debug)]
pub(crate) struct Introduction {
    pub(crate) header: Header,
    /// The header's version, 1 or 2.
    pub(crate) version: u8,
    /// Its attributes as they came, at most [`V2_MAX`] bytes; most balancers send none.
    pub(crate) attributes: Option<Box<[u8]>>,
}

/// Reads the header. Without one, with a bad one or after `timeout` seconds the connection is to be closed, since
/// guessing would let clients choose their address.
///
/// # Errors
/// What was wrong with the header, if enough of it came to tell.
pub(crate) async fn read(
    stream: &mut Stream,
    buffer: &mut ReadBuffer,
    deadline: &Deadline,
    timeout: f64,
) -> Result<Introduction, Option<Wrong>> {
    deadline.set(timeout);
    loop {
        let unused = buffer.unused();
        match wire::proxy::parse(unused) {
            Ok(Some((length, header))) => {
                let whole = &unused[..length];
                let attributes = wire::proxy::attributes(whole);
                let attributes = (!attributes.is_empty()).then(|| attributes.into());
                let version = wire::proxy::version(whole);
                buffer.consume(length);
                deadline.clear();
                return Ok(Introduction { header, version, attributes });
            }
            Ok(None) => {}
            Err(wrong) => return Err(Some(wrong)),
        }
        let filled =
            net::within(deadline, poll_fn(|context| buffer.poll_fill(stream, context, V2_MAX))).await;
        if !matches!(filled, Ok(Ok(1..))) {
            return Err(None);
        }
    }
}
