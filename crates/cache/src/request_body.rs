//! The body of a client's request on its way in.

use copal_wire as wire;
use std::task::{Context, Poll};
use wire::ResponseHead;
use wire::h1::RequestFraming;

/// A client's request body, as the connection offers it.
pub trait RequestBody {
    /// How it is framed; `None` if there is none.
    fn framing(&self) -> RequestFraming;

    /// Whether some of it has been read, so that it cannot be sent to an origin from its beginning.
    fn is_begun(&self) -> bool;

    /// Whether the client still waits for `100 Continue` before it sends it.
    fn waits(&self) -> bool {
        false
    }

    /// Has the client send it, if it still waits for `100 Continue`. This takes no time.
    fn go_on(&mut self) {}

    /// The interim responses that went to the client since the last call, the oldest first; for the log.
    fn told(&mut self) -> Vec<ResponseHead> {
        Vec::new()
    }

    /// Whether what has come of it so far is known to be framed badly. This takes no time and reads nothing.
    fn is_malformed(&self) -> bool {
        false
    }

    /// Reads some of it: the count, 0 at its end. The first call does what [`RequestBody::go_on`] does.
    fn poll_read(&mut self, context: &mut Context<'_>, buffer: &mut [u8]) -> Poll<Result<usize, BodyError>>;

    /// Sends an interim response (RFC 9110, section 15.2) to the client ahead of the response, if it understands such.
    /// This never waits, and what does not go out is no error.
    fn interim(&mut self, _head: &ResponseHead) {}
}

/// The request body cannot be read to its end: the client left, was too slow, or framed it badly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BodyError;

/// A request without a body.
pub(crate) struct NoBody;

impl RequestBody for NoBody {
    fn framing(&self) -> RequestFraming {
        RequestFraming::None
    }

    fn is_begun(&self) -> bool {
        false
    }

    fn poll_read(&mut self, _: &mut Context<'_>, _: &mut [u8]) -> Poll<Result<usize, BodyError>> {
        Poll::Ready(Ok(0))
    }
}
