//! The job that stores a body while it arrives.

use super::failure::Failure;
use super::filters::Filters;
use super::log::FetchLog;
use super::patience::Patience;
use super::state::Fetch;
use crate::local::Local;
use crate::trouble::Trouble;
use base::Seconds;
use copal_base as base;
use copal_filter as filter;
use copal_observe as observe;
use copal_origin as origin;
use copal_store as store;
use filter::{Chain, Pace};
use observe::Tag;
use origin::Connection;
use std::rc::Rc;
use store::Fill;

/// A body on its way into a store.
pub(super) struct Job {
    fill: Option<Fill>,
    connection: Option<Box<Connection>>,
    /// The body's length, if it was announced.
    known: Option<u64>,
    received: u64,
    stored: u64,
    /// Bytes that were read and are not stored yet.
    first: Vec<u8>,
    chain: Chain,
    /// Others may read while it is filled.
    streamed: bool,
    local: Rc<Local>,
    patience: Patience,
    /// `slow_reader_patience`
    patience_max: Seconds,
    /// Readers that were too slow for it.
    left_behind: usize,
}

/// Why a fill ended early.
#[derive(Debug)]
pub(super) enum Broken {
    Origin(origin::Error),
    TooLong,
    Unwanted,
    /// There is no room, and the body is not streamed, so that a window would not do.
    Full,
    Filter(filter::Failure),
}

impl From<filter::Failure> for Broken {
    fn from(failure: filter::Failure) -> Self {
        Self::Filter(failure)
    }
}

impl Job {
    #[allow(clippy::too_many_arguments)]
    pub(super) fn new(
        fetch: &Fetch,
        fill: Fill,
        connection: Box<Connection>,
        known: Option<u64>,
        first: Vec<u8>,
        filters: Filters,
        streamed: bool,
    ) -> Self {
        let received = first.len() as u64;
        let (fill, connection) = (Some(fill), Some(connection));
        Self {
            fill,
            connection,
            known,
            received,
            stored: 0,
            first,
            chain: filters.chain,
            streamed,
            local: Rc::clone(&fetch.local),
            patience: Patience::default(),
            patience_max: fetch.current.settings.slow_reader_patience,
            left_behind: 0,
        }
    }

    /// Stores all of it while the fetch waits; false if that failed, which is logged then.
    pub(super) async fn complete(&mut self, log: &mut FetchLog) -> bool {
        match self.run(log).await {
            Err(why) => {
                // No client has seen the head: VCL may still answer in its place, or retry.
                log.received_body = self.received;
                broken(log, &why);
                self.chain.close(log);
                false
            }
            result => {
                self.finish(&mut log.hand_over(), result);
                true
            }
        }
    }

    pub(super) async fn run(&mut self, log: &mut FetchLog) -> Result<Box<Connection>, Broken> {
        let (Some(mut fill), Some(mut connection)) = (self.fill.take(), self.connection.take()) else {
            return Err(Broken::Unwanted);
        };
        if self.chain.is_empty() {
            let first = std::mem::take(&mut self.first);
            self.put(&mut fill, &first).await?;
            self.after_piece(&connection).await;
            self.fill_plainly(&mut fill, &mut connection).await?;
        } else {
            self.fill_filtered(&mut fill, &mut connection, log).await?;
            if let Some(plan) = self.chain.take_plan() {
                fill.set_plan(plan).map_err(|store::Full| Broken::Full)?;
            }
            self.chain.close(log);
        }
        self.stored = fill.filled();
        fill.commit();
        Ok(connection)
    }

    /// From the connection straight into the store.
    async fn fill_plainly(&mut self, fill: &mut Fill, connection: &mut Connection) -> Result<(), Broken> {
        loop {
            if self.known == Some(fill.filled()) {
                // All bytes are there. Reading on makes sure that the origin ends the body here, too.
                let mut nothing = [0; 1];
                match connection.read_body(&mut nothing).await {
                    Ok(0) => return Ok(()),
                    Ok(_) => return Err(Broken::TooLong),
                    Err(error) => return Err(Broken::Origin(error)),
                }
            }
            let room = self.room(fill).await?;
            match connection.read_body(room).await {
                Ok(0) => return Ok(()),
                Ok(count) => {
                    fill.advance(count);
                    self.received += count as u64;
                }
                Err(error) => return Err(Broken::Origin(error)),
            }
            self.after_piece(connection).await;
        }
    }

    /// Where the body is to come in small pieces, readers see each by itself.
    async fn after_piece(&self, connection: &Connection) {
        if self.streamed && connection.piece_max().is_some() {
            filter::give_way().await;
        }
    }

    /// Through the chain.
    async fn fill_filtered(
        &mut self,
        fill: &mut Fill,
        connection: &mut Connection,
        log: &mut FetchLog,
    ) -> Result<(), Broken> {
        let mut input = std::mem::take(&mut self.first);
        let (mut at, mut end) = (0, false);
        let mut out = Vec::with_capacity(filter::STEP);
        let mut pace = Pace::default();
        loop {
            if at == input.len() && !end {
                input.resize(filter::STEP, 0);
                let count = connection.read_body(&mut input).await.map_err(Broken::Origin)?;
                input.truncate(count);
                self.received += count as u64;
                (at, end) = (0, count == 0);
            }
            out.clear();
            let took = self.chain.step(&input[at..], end, &mut out, log)?;
            at += took.bytes;
            self.put(fill, &out).await?;
            pace.step().await;
            self.after_piece(connection).await;
            if took.done && end {
                return Ok(());
            }
        }
    }

    /// Room for the next bytes.
    async fn room<'fill>(&mut self, fill: &'fill mut Fill) -> Result<&'fill mut [u8], Broken> {
        if fill.is_windowed() {
            let waited = self.patience.wait(fill, self.patience_max, &self.local).await;
            self.left_behind += waited.map_err(|store::fill::NoReaders| Broken::Unwanted)?;
        } else {
            self.patience.wait_for_devices(fill).await;
        }
        if fill.room().is_err() {
            if !self.streamed {
                return Err(Broken::Full);
            }
            fill.keep_window();
        }
        // A window always has room.
        fill.room().map_err(|store::Full| Broken::Full)
    }

    /// Stores `bytes`.
    async fn put(&mut self, fill: &mut Fill, mut bytes: &[u8]) -> Result<(), Broken> {
        while !bytes.is_empty() {
            let room = self.room(fill).await?;
            let count = room.len().min(bytes.len());
            if count == 0 {
                return Err(Broken::TooLong);
            }
            room[..count].copy_from_slice(&bytes[..count]);
            fill.advance(count);
            bytes = &bytes[count..];
        }
        Ok(())
    }

    /// The last records and counts of a fill.
    pub(super) fn finish(&mut self, log: &mut FetchLog, result: Result<Box<Connection>, Broken>) {
        log.received_body = self.received;
        log.stored_body = Some(self.stored);
        if self.left_behind > 0 {
            log.records.fmt(Tag::Error, format_args!("{} slow clients left behind", self.left_behind));
        }
        match result {
            Ok(connection) => log.release(connection),
            Err(why) => {
                broken(log, &why);
                self.chain.close(log);
                if !matches!(why, Broken::Unwanted) {
                    log.local.counters.fetch_failed.inc();
                }
                return log.end();
            }
        }
        log.end_body();
    }
}

/// Logs why a body has no end, and that its connection is closed.
pub(super) fn broken(log: &mut FetchLog, why: &Broken) {
    match why {
        Broken::Origin(error) => {
            log.count_bound(error);
            log.blame(Trouble::of_origin(error));
        }
        Broken::TooLong => log.blame(Trouble::bad_answer()),
        Broken::Filter(_) => log.blame(Trouble::bad_coding()),
        Broken::Unwanted | Broken::Full => {}
    }
    let records = &mut log.records;
    match why {
        Broken::Origin(error) => records.fmt(Tag::FetchError, format_args!("{error}")),
        Broken::TooLong => records.fmt(Tag::FetchError, format_args!("{}", Failure::TooLong)),
        Broken::Unwanted => {
            records.text(Tag::FetchError, b"no client is left for a body that is not stored");
        }
        Broken::Full => records.text(Tag::FetchError, b"Could not get storage"),
        Broken::Filter(failure) => records.fmt(Tag::FetchError, format_args!("{failure}")),
    }
    log.closed("Failure receiving req.body");
}
