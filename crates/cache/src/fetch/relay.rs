//! A body on its way from an origin to the one client it is for: nothing is stored, and the client's pace is the origin's.

use super::filters::Filters;
use super::log::FetchLog;
use crate::body::{Aborted, Cut, Ready, Source};
use crate::trouble::Trouble;
use copal_filter as filter;
use copal_observe::Tag;
use copal_origin as origin;
use copal_store as store;
use filter::{Chain, Pace, STEP};
use std::io::IoSlice;

/// The size of the buffer, in bytes.
const RELAY: usize = 64 << 10;

/// See the module.
#[derive(Debug)]
pub(crate) struct Relay {
    connection: Option<Box<origin::Connection>>,
    buffer: Vec<u8>,
    from: usize,
    to: usize,
    /// What happens to it on the way; `input` is what comes from the origin then, and `buffer` what goes to the client.
    chain: Chain,
    input: Vec<u8>,
    input_at: usize,
    pace: Pace,
    log: FetchLog,
    passing: Passing,
    /// How long the whole is, if that is known.
    length: Option<u64>,
    /// The part that the client wants.
    cut: Cut,
}

/// The memory that a response for one client is accounted for in `Transient` while it passes.
#[derive(Debug)]
pub(crate) struct Passing {
    /// Held for as long as the body is read.
    _head: store::Charge,
    /// The bytes that were read last.
    body: store::Charge,
}

impl Passing {
    /// Counts a head in `engine`, and prepares to count the body.
    pub(crate) fn new(engine: &dyn store::Engine, head: store::Charge) -> Self {
        Self { _head: head, body: engine.count(0) }
    }
}

impl Relay {
    /// Relays `first`, and then what is left to read of the response on `connection`, through `filters`. `length` is that of
    /// what comes out, where it is known.
    pub(crate) fn new(
        connection: Box<origin::Connection>,
        length: Option<u64>,
        first: Vec<u8>,
        filters: Filters,
        mut log: FetchLog,
        mut passing: Passing,
    ) -> Self {
        log.received_body = first.len() as u64;
        passing.body.replace(log.received_body);
        let chain = filters.chain;
        let (input, buffer) = if chain.is_empty() { (Vec::new(), first) } else { (first, Vec::new()) };
        Self {
            connection: Some(connection),
            from: 0,
            to: buffer.len(),
            buffer,
            chain,
            input,
            input_at: 0,
            pace: Pace::default(),
            log,
            passing,
            length,
            cut: Cut::default(),
        }
    }

    /// Cuts the bytes that were read last to the part that is wanted.
    fn trim(&mut self) {
        let wanted = self.cut.take(self.to - self.from);
        (self.from, self.to) = (self.from + wanted.start, self.from + wanted.end);
    }

    /// The bytes that can be written now.
    fn bytes(&self) -> &[u8] {
        &self.buffer[self.from..self.to]
    }

    /// Reads the whole body, if it is not longer than `limit`; else `None`, and what was read is relayed first.
    pub(crate) async fn collect(&mut self, limit: usize) -> Result<Option<Vec<u8>>, Aborted> {
        let mut whole = Vec::new();
        while self.fill().await? {
            whole.extend_from_slice(self.bytes());
            if whole.len() > limit {
                (self.from, self.to) = (0, whole.len());
                self.buffer = whole;
                return Ok(None);
            }
            self.from = self.to;
        }
        Ok(Some(whole))
    }

    /// Reads until there are bytes to write; false at the end.
    async fn fill(&mut self) -> Result<bool, Aborted> {
        loop {
            if self.from < self.to {
                return Ok(true);
            }
            // Behind the last byte of all, the connection is given back.
            if self.cut.is_over() && self.length != Some(self.log.received_body) {
                return Ok(false);
            }
            if self.chain.is_empty() {
                let count = self.read_into_buffer().await?;
                (self.from, self.to) = (0, count);
                if count == 0 {
                    return Ok(false);
                }
                self.trim();
                if self.from < self.to {
                    return Ok(true);
                }
            } else if !self.filter().await? {
                return Ok(false);
            }
            self.pace.step().await;
        }
    }

    /// One step of the chain; false at its end.
    async fn filter(&mut self) -> Result<bool, Aborted> {
        if self.input_at == self.input.len() && self.connection.is_some() {
            if self.input.len() < STEP {
                self.input.resize(STEP, 0);
            }
            // Nothing is lost if this is dropped while it waits: the buffer then is taken for one to be filled again.
            self.input_at = self.input.len();
            let count = read(&mut self.connection, &mut self.log, &mut self.input).await?;
            self.passing.body.replace(count as u64);
            self.input.truncate(count);
            self.input_at = 0;
        }
        self.buffer.clear();
        let end = self.connection.is_none();
        let stepped = self.chain.step(&self.input[self.input_at..], end, &mut self.buffer, &mut self.log);
        match stepped {
            Ok(took) => {
                self.input_at += took.bytes;
                (self.from, self.to) = (0, self.buffer.len());
                if took.done && end && self.buffer.is_empty() {
                    self.finish();
                    return Ok(false);
                }
                if took.done && end {
                    self.finish();
                    self.chain = Chain::default();
                }
                Ok(true)
            }
            Err(failure) => {
                self.log.records.fmt(Tag::FetchError, format_args!("{failure}"));
                self.log.closed("Failure receiving req.body");
                self.log.local.counters.fetch_failed.inc();
                self.chain.close(&mut self.log);
                self.connection = None;
                Err(Aborted)
            }
        }
    }

    /// The log, for the fetch that goes on after this failed.
    pub(crate) fn into_log(self) -> FetchLog {
        self.log
    }

    fn finish(&mut self) {
        self.chain.close(&mut self.log);
        self.log.end_body();
    }

    async fn read_into_buffer(&mut self) -> Result<usize, Aborted> {
        if self.connection.is_none() {
            return Ok(0);
        }
        if self.buffer.len() < RELAY {
            self.buffer.resize(RELAY, 0);
        }
        let count = read(&mut self.connection, &mut self.log, &mut self.buffer).await?;
        self.passing.body.replace(count as u64);
        if count == 0 {
            self.log.end_body();
        }
        Ok(count)
    }
}

impl Source for Relay {
    fn ready(&mut self) -> Ready<'_> {
        Box::pin(self.fill())
    }

    fn slices<'body>(&'body self, out: &mut Vec<IoSlice<'body>>) {
        out.push(IoSlice::new(self.bytes()));
    }

    fn consume(&mut self, count: usize) {
        self.from += count;
    }

    fn length(&self) -> Option<u64> {
        self.length
    }

    fn cut(&mut self, from: u64, end: u64) -> bool {
        self.cut = Cut::new(from, end);
        self.trim();
        true
    }

    fn is_relayed(&self) -> bool {
        true
    }
}

/// Reads some of a body. At its end the connection is given back.
async fn read(
    slot: &mut Option<Box<origin::Connection>>,
    log: &mut FetchLog,
    buffer: &mut [u8],
) -> Result<usize, Aborted> {
    let Some(connection) = slot.as_mut() else { return Ok(0) };
    match connection.read_body(buffer).await {
        Ok(0) => {
            if let Some(connection) = slot.take() {
                log.release(connection);
            }
            Ok(0)
        }
        Ok(count) => {
            log.received_body += count as u64;
            Ok(count)
        }
        Err(error) => {
            log.records.fmt(Tag::FetchError, format_args!("{error}"));
            log.count_bound(&error);
            log.blame(Trouble::of_origin(&error));
            log.closed(error.close_reason());
            log.local.counters.fetch_failed.inc();
            *slot = None;
            Err(Aborted)
        }
    }
}
