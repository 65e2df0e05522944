//! Reading the response's body.

use super::{Body, Connection};
use crate::error::{Error, gone};
use copal_net::within;

impl Connection {
    /// Reads the next bytes of the body into `target`, decoded; 0 is its end, seen and not assumed. Plain bodies are read
    /// straight into `target`. With a `piece_max`, no more than that at once. No single wait is longer than the between-bytes timeout.
    ///
    /// # Errors
    /// [`Error::Truncated`], [`Error::Malformed`] (chunks), [`Error::BetweenBytesTimeout`], [`Error::Receive`],
    /// [`Error::Overtime`] or [`Error::Oversize`]; what was read before is then not to be taken for a whole body.
    ///
    /// # Panics
    /// If `target` is empty.
    pub async fn read_body(&mut self, target: &mut [u8]) -> Result<usize, Error> {
        assert!(!target.is_empty(), "no room to read a body into");
        let most = target.len().min(self.piece_max);
        let target = &mut target[..most];
        let result = match self.body {
            Body::Ended => return Ok(0),
            Body::Before | Body::Broken => return Err(Error::Truncated),
            Body::Length(left) => self.read_length(left, target).await,
            Body::Chunked(_) => self.read_chunked(target).await,
            Body::UntilClose => self.read_until_close(target).await,
        };
        if let Ok(count) = result {
            self.account.traffic.received_body_bytes += count as u64;
        }
        let result = match result {
            Ok(_) if self.account.traffic.received_body_bytes > self.body_max => Err(Error::Oversize),
            result => result,
        };
        if result.is_err() {
            self.body = Body::Broken;
        }
        result
    }

    /// How many bytes of the body are still to come, where its length was said.
    pub fn body_left(&self) -> Option<u64> {
        match self.body {
            Body::Length(left) => Some(left),
            Body::Ended => Some(0),
            Body::Before | Body::Chunked(_) | Body::UntilClose | Body::Broken => None,
        }
    }

    /// Whether the body's end was seen.
    pub fn body_ended(&self) -> bool {
        matches!(self.body, Body::Ended)
    }

    async fn read_length(&mut self, left: u64, target: &mut [u8]) -> Result<usize, Error> {
        let most = usize::try_from(left).unwrap_or(usize::MAX).min(target.len());
        let count = self.receive(&mut target[..most]).await?;
        if count == 0 {
            return Err(Error::Truncated);
        }
        let left = left - count as u64;
        self.body = if left == 0 { Body::Ended } else { Body::Length(left) };
        Ok(count)
    }

    async fn read_until_close(&mut self, target: &mut [u8]) -> Result<usize, Error> {
        let count = self.receive(target).await?;
        if count == 0 {
            self.body = Body::Ended;
        }
        Ok(count)
    }

    /// Reads into `target` and takes the framing out where it stands, so that data is moved once at most.
    async fn read_chunked(&mut self, target: &mut [u8]) -> Result<usize, Error> {
        loop {
            let count = self.receive(target).await?;
            if count == 0 {
                return Err(Error::Truncated);
            }
            let Body::Chunked(decoder) = &mut self.body else {
                unreachable!("only called for chunked bodies, and the body changes only below");
            };
            let (mut at, mut data) = (0, 0);
            while at < count {
                let step = decoder.decode(&target[at..count]).map_err(Error::Malformed)?;
                target.copy_within(at + step.data.start..at + step.data.end, data);
                data += step.data.len();
                at += step.consumed;
                if step.done {
                    // Bytes behind the end belong to nobody.
                    self.keep &= at == count;
                    self.body = Body::Ended;
                    return Ok(data);
                }
            }
            if data > 0 {
                return Ok(data);
            }
        }
    }

    /// What is there: first from the buffer, then from the stream; 0 is the end of the stream.
    async fn receive(&mut self, target: &mut [u8]) -> Result<usize, Error> {
        if let Some(buffer) = &mut self.buffer {
            let count = buffer.take_into(target);
            if count > 0 {
                self.spare_buffer();
                return Ok(count);
            }
        }
        self.wait_at_most(self.timeouts.between_bytes);
        if self.is_overtime() {
            // It comes, but it never ends.
            return Err(Error::Overtime);
        }
        match within(&self.deadline, self.stream.read(target)).await {
            Err(_) => Err(self.timed_out(Error::BetweenBytesTimeout)),
            Ok(Ok(count)) => Ok(count),
            Ok(Err(error)) if gone(&error) => Err(Error::Truncated),
            Ok(Err(error)) => Err(Error::Receive(error)),
        }
    }
}
