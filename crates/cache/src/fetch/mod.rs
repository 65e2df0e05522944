//! One fetch from an origin: the backend side of a miss, a pass or a background refresh.
//!
//! ```text
//! backend_fetch > send > (304: merge) > backend_response > conclude: stored | private
//!      |           |                          |
//!      |           +> backend_error           +> retry > backend_fetch
//!      |           +> stale (stale-if-error)  +> stale
//!      +> backend_error > conclude | retry    +> abandon, fail > failed
//! ```
//!
//! It runs in the task of the request that wants it up to the end of the head; a body to be stored then fills by
//! itself, and the request reads it like everybody else. A background fetch is a task of its own.

mod begin;
mod change;
mod conclude;
mod decision;
mod error;
mod failure;
mod fill;
mod filling;
pub(crate) mod filters;
mod host;
pub(crate) mod log;
mod part;
mod part_request;
pub(crate) mod patience;
pub(crate) mod prepare;
mod private;
mod purpose;
mod relay;
mod response;
mod send;
pub(crate) mod sparse;
mod state;
mod storing;
mod subroutine;
mod times;
pub(crate) mod update;
pub(crate) mod wanted;

pub(crate) use purpose::Purpose;
pub(crate) use state::{Change, Fetch, Fetched, Private, Refusal};

use crate::request_body::{NoBody, RequestBody};
use catalog::index::busy::Busy;
use catalog::reason::Reason;
use catalog::sparse::layout::Layout;
use copal_catalog as catalog;
use copal_net as net;
use copal_observe as observe;
use copal_store as store;
use copal_vcl as vcl;
use copal_wire as wire;
use observe::{Kind, Tag};
use sparse::answer::{self, Judged};
use state::{Brought, Step, Upload};
use std::sync::Arc;
use store::Object;
use vcl::value::Text;
use wire::ResponseHead;

impl Fetch {
    /// Asks for segments: bytes `span` (first and last) of what `layout` describes. VCL is asked about what it is for the
    /// asking client to have in their place.
    pub(crate) async fn run_segments(&mut self, layout: &Layout, span: (u64, u64)) -> Brought {
        let mut step = Step::Fetch;
        loop {
            step = match step {
                Step::Response(answer) => {
                    response::receive(self, answer.framing);
                    let ResponseHead { status, fields, .. } = &self.response;
                    match answer::judge(layout, span, *status, fields) {
                        Judged::Good(last) => return Brought::Part(answer, last),
                        Judged::Changed => return Brought::Changed,
                        Judged::Useless => return Brought::Useless,
                        Judged::Refused => response::received(self, answer).await,
                    }
                }
                Step::Done(fetched) => return Brought::Refused(self.or_lost(fetched)),
                step => self.next(step, &mut NoBody).await,
            };
        }
    }

    /// Runs it to the end of the response's head (or of the body, where it is not streamed).
    pub(crate) async fn run(&mut self, body: &mut dyn RequestBody) -> Fetched {
        let mut step = Step::Fetch;
        loop {
            step = match step {
                Step::Done(fetched) => return self.or_lost(fetched),
                step => self.next(step, body).await,
            };
        }
    }

    /// Runs it in a task of its own, for a new object while `stale` is served.
    pub(crate) fn run_in_background(mut self, busy: Busy, stale: Option<Arc<Object>>) {
        self.busy = Some(busy);
        self.set_stale(stale);
        self.local.counters.s_bgfetch.inc();
        net::worker::task(async move {
            let fetched = self.run(&mut NoBody).await;
            drop(fetched);
        });
    }

    async fn next(&mut self, step: Step, body: &mut dyn RequestBody) -> Step {
        match step {
            Step::Fetch => prepare::step(self).await,
            Step::Send => send::step(self, body).await,
            Step::Response(answer) => response::step(self, answer).await,
            Step::Broken => error::no_answer(self).await,
            Step::Error(status, reason) => error::step(self, status, reason).await,
            Step::Done(_) => step,
        }
    }

    /// Adds the reason to a failed result, if it is known.
    fn or_lost(&mut self, fetched: Fetched) -> Fetched {
        match fetched {
            Fetched::Failed => self.log.trouble.take().map_or(Fetched::Failed, Fetched::Lost),
            fetched => fetched,
        }
    }

    /// `retry`: the fetch goes through its steps again, as VCL left it.
    ///
    /// # Errors
    /// The reason why it may not. After `vcl_backend_error` that must end the fetch: asking VCL again would have no end.
    pub(super) fn retry(&mut self) -> Result<Step, Text> {
        self.retries = self.retries.saturating_add(1);
        if self.retries > self.current.settings.max_retries {
            self.log.records.text(Tag::VCL_Error, b"Too many retries");
            return Err(Text::from_static(b"Too many retries"));
        }
        if self.upload == Upload::Spent {
            self.log
                .records
                .text(Tag::VCL_Error, b"the request body was sent already and cannot be sent again");
            return Err(Text::from_static(b"Request body was sent already"));
        }
        let now = self.local.now();
        self.log.timestamp("Retry", now);
        let (old, new) = (self.vxid, self.local.vxid());
        self.log.records.link(Tag::Link, "bereq", new, "retry");
        self.log.records.end();
        self.vxid = new;
        self.log.records.begin(new, Kind::Backend);
        self.log.records.link(Tag::Begin, "bereq", old, "retry");
        self.log.records.timestamp("Start", now, now, now);
        (self.log.start, self.log.previous) = (now, now);
        self.chosen = None;
        // VCL's reason for an earlier answer holds for all tries, as `uncacheable` does.
        self.reason = self.reason.filter(|reason| *reason != Reason::FetchFailed);
        self.log.trouble = None;
        self.reset_response();
        self.synthetic.clear();
        Ok(Step::Fetch)
    }
}
