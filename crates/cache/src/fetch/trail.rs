//! The records of one fetch, which outlive its steps: they are complete only when the body has come to its end, in
//! whatever task that is.

use crate::local::Local;
use base::Time;
use copal_base as base;
use copal_observe as observe;
use copal_origin::Connection;
use observe::{Records, Tag};
use std::rc::Rc;

/// A fetch's records and accounts. Dropped, it writes the last of them.
pub(crate) struct Trail {
    pub(crate) local: Rc<Local>,
    pub(crate) records: Records,
    pub(crate) start: Time,
    pub(crate) previous: Time,
    /// Bytes sent to the origin: head, body.
    pub(crate) sent: (u64, u64),
    pub(crate) received_head: u64,
    pub(crate) received_body: u64,
    /// Bytes that were stored, where these are not the same.
    pub(crate) stored_body: Option<u64>,
    ended: bool,
}

impl std::fmt::Debug for Trail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Trail").field("received_body", &self.received_body).finish_non_exhaustive()
    }
}

impl Trail {
    pub(crate) fn new(local: &Rc<Local>, start: Time) -> Self {
        Self {
            local: Rc::clone(local),
            records: Records::new(&local.log),
            start,
            previous: start,
            sent: (0, 0),
            received_head: 0,
            received_body: 0,
            stored_body: None,
            ended: false,
        }
    }

    /// The trail, for who goes on with it; what stays behind is at its end.
    pub(crate) fn hand_over(&mut self) -> Self {
        let mut left = Self::new(&self.local, self.start);
        left.ended = true;
        std::mem::replace(self, left)
    }

    pub(crate) fn timestamp(&mut self, label: &str, now: Time) {
        self.records.timestamp(label, now, self.start, self.previous);
        self.previous = now;
    }

    /// Gives a connection back whose answer was read to its end.
    pub(crate) fn release(&mut self, connection: Connection) {
        let backend = connection.backend().display().to_owned();
        let kept = connection.release();
        if kept {
            self.local.counters.backend_recycle.inc();
        }
        let how = if kept { "recycle" } else { "close" };
        self.records.fmt(Tag::BackendClose, format_args!("0 {backend} {how}"));
    }

    /// The body is at its end: the last records.
    pub(crate) fn end_body(&mut self) {
        let now = self.local.now();
        self.timestamp("BerespBody", now);
        let received = self.stored_body.unwrap_or(self.received_body);
        self.records.fmt(Tag::Length, format_args!("{received}"));
        self.end();
    }

    fn end(&mut self) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        let (head, body) = self.sent;
        let (received_head, received_body) = (self.received_head, self.received_body);
        self.records.numbers(
            Tag::BereqAcct,
            &[head, body, head + body, received_head, received_body, received_head + received_body],
        );
        self.records.end();
    }
}

impl Drop for Trail {
    fn drop(&mut self) {
        self.end();
    }
}
