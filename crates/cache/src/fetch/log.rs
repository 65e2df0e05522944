//! The log of one fetch: its records and accounts. They are complete only when the body has come to its end, which may be in
//! another task than the fetch's steps.

use crate::local::Local;
use crate::trouble::Trouble;
use base::Time;
use copal_base as base;
use copal_observe as observe;
use copal_origin::{Backend, Connection, Error};
use observe::{Line, Records, Tag};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

/// The reason given for closing a connection whose answer was not wanted, or that the origin does not keep open.
pub(crate) const VCL_CLOSED: &str = "Backend/VCL requested close";

/// See the module. When it is dropped, it writes the last records.
pub(crate) struct FetchLog {
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
    /// What failed last.
    pub(crate) trouble: Option<Arc<Trouble>>,
    /// The status of the answer whose head came last.
    pub(crate) received_status: Option<u16>,
    /// The connection in use: its descriptor and its backend.
    open: Option<(i32, Arc<Backend>)>,
    ended: bool,
}

impl std::fmt::Debug for FetchLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FetchLog").field("received_body", &self.received_body).finish_non_exhaustive()
    }
}

impl FetchLog {
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
            trouble: None,
            received_status: None,
            open: None,
            ended: false,
        }
    }

    /// Moves the log out, to the task that stores or relays the body. What stays behind writes nothing more.
    pub(crate) fn hand_over(&mut self) -> Self {
        let mut left = Self::new(&self.local, self.start);
        left.ended = true;
        std::mem::replace(self, left)
    }

    /// Notes why there is no usable answer.
    pub(crate) fn blame(&mut self, mut trouble: Trouble) {
        trouble.set_received(self.received_status);
        self.trouble = Some(Arc::new(trouble));
    }

    /// Counts an answer that exceeded one of our limits.
    pub(crate) fn count_bound(&self, error: &Error) {
        match error {
            Error::Overtime => self.local.counters.fetch_overtime.inc(),
            Error::Oversize => self.local.counters.fetch_oversize.inc(),
            _ => {}
        }
    }

    pub(crate) fn timestamp(&mut self, label: &str, now: Time) {
        self.records.timestamp(label, now, self.start, self.previous);
        self.previous = now;
    }

    /// A connection is used from now on.
    pub(crate) fn opened(&mut self, connection: &Connection, peer: SocketAddr, local: SocketAddr) {
        let (descriptor, backend) = (connection.descriptor(), Arc::clone(connection.backend()));
        self.log_backend(Tag::BackendOpen, descriptor, &backend, |line| {
            for address in [peer, local] {
                line.ip(address.ip());
                line.text(b" ");
                line.integer(address.port().into());
                line.text(b" ");
            }
            line.text(if connection.reused() { b"reuse" } else { b"connect" });
        });
        self.open = Some((descriptor, backend));
    }

    /// A record of a connection to `backend`, which `rest` completes.
    fn log_backend(
        &mut self,
        tag: Tag,
        descriptor: i32,
        backend: &Backend,
        rest: impl FnOnce(&mut Line<'_>),
    ) {
        self.records.line(tag, |line| {
            line.integer(u64::try_from(descriptor).unwrap_or_default());
            line.text(b" ");
            line.text(backend.definition().name.as_bytes());
            line.text(b" ");
            rest(line);
        });
    }

    /// The connection in use, if there is one, is closed; why, in Varnish's words.
    pub(crate) fn closed(&mut self, why: &str) {
        if let Some((descriptor, backend)) = self.open.take() {
            self.log_backend(Tag::BackendClose, descriptor, &backend, |line| {
                line.text(b"close ");
                line.text(why.as_bytes());
            });
        }
    }

    /// Gives a connection back whose answer was read to its end.
    pub(crate) fn release(&mut self, connection: Box<Connection>) {
        if !connection.release() {
            return self.closed(VCL_CLOSED);
        }
        self.local.counters.backend_recycle.inc();
        if let Some((descriptor, backend)) = self.open.take() {
            self.log_backend(Tag::BackendClose, descriptor, &backend, |line| line.text(b"recycle"));
        }
    }

    /// The body is at its end: the last records.
    pub(crate) fn end_body(&mut self) {
        let now = self.local.now();
        self.timestamp("BerespBody", now);
        let received = self.stored_body.unwrap_or(self.received_body);
        self.records.numbers(Tag::Length, &[received]);
        self.end();
    }

    /// The last record of a fetch.
    pub(crate) fn end(&mut self) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        self.closed(VCL_CLOSED);
        let (head, body) = self.sent;
        let (received_head, received_body) = (self.received_head, self.received_body);
        self.records.numbers(
            Tag::BereqAcct,
            &[head, body, head + body, received_head, received_body, received_head + received_body],
        );
        self.records.end();
    }
}

impl Drop for FetchLog {
    fn drop(&mut self) {
        self.end();
    }
}
