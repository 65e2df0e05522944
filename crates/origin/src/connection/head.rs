//! Reading the response's head, past interim responses.

use super::{Body, Connection};
use crate::error::{Error, gone};
use copal_net::{Buffer, within};
use copal_wire::ResponseHead;
use copal_wire::chunked;
use copal_wire::h1::{self, Limits, Parse, ResponseFraming};

/// How many interim (1xx) responses are taken.
const INTERIM_MAX: u32 = 16;

/// What the next head is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// An interim response: another head follows.
    Interim,
    /// The response, whose body is delimited so.
    Final(ResponseFraming),
}

impl Connection {
    /// Reads the head of the response to `method` into `head`, past interim responses, and says how its body is
    /// delimited.
    ///
    /// # Errors
    /// See [`Connection::next_head`].
    pub async fn read_head(
        &mut self,
        method: &[u8],
        head: &mut ResponseHead,
    ) -> Result<ResponseFraming, Error> {
        loop {
            if let Next::Final(framing) = self.next_head(method, head).await? {
                return Ok(framing);
            }
        }
    }

    /// Reads the next head of the response to `method` into `head`: an interim one (RFC 9110, section 15.2), of which
    /// there may be 16, or the last. Its first byte may take the first-byte timeout, each later pause the between-bytes
    /// timeout: who says that it is still at work may go on with it.
    ///
    /// # Errors
    /// [`Error::StaleReuse`] if a kept connection ended without a byte; a timeout; [`Error::Closed`],
    /// [`Error::Receive`]; [`Error::Malformed`] for bad syntax, framing or size; [`Error::InterimFlood`],
    /// [`Error::Switching`]; [`Error::Overtime`], [`Error::Oversize`]. The connection is of no further use then.
    pub async fn next_head(&mut self, method: &[u8], head: &mut ResponseHead) -> Result<Next, Error> {
        let settings = self.pools.settings();
        let limits = settings.limits;
        if self.interim == 0 {
            self.bound_answer(&settings);
        }
        self.wait_at_most(self.timeouts.first_byte);
        self.read_one_head(&limits, head).await?;
        match head.status {
            101 => return Err(Error::Switching),
            100..=199 => {
                self.interim += 1;
                if self.interim > INTERIM_MAX {
                    return Err(Error::InterimFlood);
                }
                return Ok(Next::Interim);
            }
            _ => {}
        }
        let framing = match self.takes_any_coding {
            false => h1::response_framing(method, head),
            true => h1::response_framing_by_close(method, head),
        };
        let framing = framing.map_err(Error::Malformed)?;
        if matches!(framing, ResponseFraming::Length(length) if length > self.body_max) {
            return Err(Error::Oversize);
        }
        self.keep &= h1::keep_alive(head.version, &head.fields);
        self.body = match framing {
            ResponseFraming::None | ResponseFraming::Length(0) => Body::Ended,
            ResponseFraming::Length(length) => Body::Length(length),
            ResponseFraming::Chunked => Body::Chunked(chunked::Decoder::new()),
            ResponseFraming::UntilClose => {
                self.keep = false;
                Body::UntilClose
            }
        };
        self.spare_buffer();
        Ok(Next::Final(framing))
    }

    async fn read_one_head(&mut self, limits: &Limits, head: &mut ResponseHead) -> Result<(), Error> {
        let mut parsed = 0;
        loop {
            let unread = self.buffer.as_ref().map_or(&[][..], Buffer::unread);
            // A head can only be complete, or a line be judged, where a line ends; so a head that comes byte by byte is
            // not parsed for every byte.
            let judge = unread[parsed..].contains(&b'\n') || unread.len() >= limits.head_bytes;
            parsed = unread.len();
            if judge
                && let Parse::Done(size) =
                    h1::parse_response(unread, limits, head).map_err(Error::Malformed)?
            {
                self.account.traffic.received_head_bytes += size as u64;
                self.buffer.as_mut().expect("a head was parsed from it").consume(size);
                return Ok(());
            }
            self.read_more(limits).await?;
        }
    }

    async fn read_more(&mut self, limits: &Limits) -> Result<(), Error> {
        let buffer = self.buffer.get_or_insert_with(Buffer::new);
        if buffer.room().is_empty() {
            // Parsing fails before a head of `head_bytes` is exceeded, so this ends.
            let capacity = (buffer.capacity() * 2).min(limits.head_bytes.max(buffer.capacity() + 1));
            buffer.grow(capacity);
        }
        let begun = !buffer.is_empty();
        match within(&self.deadline, buffer.read_from(&mut self.stream)).await {
            Err(_) if begun => Err(self.timed_out(Error::BetweenBytesTimeout)),
            Err(_) => Err(self.timed_out(Error::FirstByteTimeout)),
            Ok(Ok(0)) => Err(self.ended(begun)),
            Ok(Ok(_)) => {
                self.wait_at_most(self.timeouts.between_bytes);
                Ok(())
            }
            Ok(Err(error)) if gone(&error) => Err(self.ended(begun)),
            Ok(Err(error)) => Err(Error::Receive(error)),
        }
    }

    fn ended(&self, begun: bool) -> Error {
        let begun = begun || self.account.traffic.received_head_bytes > 0;
        if self.reused && !begun { Error::StaleReuse } else { Error::Closed { begun } }
    }
}
