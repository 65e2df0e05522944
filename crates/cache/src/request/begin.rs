//! How a request begins: all that an earlier one, or an earlier pass through the steps, has left is forgotten.

use super::recv;
use super::step::Outcome;
use crate::body::Body;
use crate::exchange::{Exchange, Hint, Obj, Times, Transfer};
use crate::handled::Handled;
use crate::message::protocol;
use crate::request_body::RequestBody;
use base::Time;
use catalog::reason::Reason;
use copal_base as base;
use copal_catalog as catalog;
use copal_observe as observe;
use copal_rules as rules;
use copal_vcl as vcl;
use copal_wire as wire;
use observe::{Kind, Tag};
use vcl::host::Sub;
use wire::h1::RequestFraming;
use wire::{Known as Field, Version};

impl Exchange {
    /// Answers the request that stands in `self.request`, a head of `head_bytes` which arrived at `arrival`.
    pub async fn run(&mut self, body: &mut dyn RequestBody, head_bytes: usize, arrival: Time) -> Outcome {
        self.begin(body.framing(), head_bytes, arrival);
        super::run(self, body).await
    }

    fn begin(&mut self, framing: RequestFraming, head_bytes: usize, arrival: Time) {
        self.local.forget_many_dead();
        self.current = self.local.current();
        self.began_with = None;
        self.vxid = self.local.vxid();
        self.now = arrival;
        self.times = Times { start: arrival, arrival, previous: arrival };
        self.restarts = 0;
        self.hit = false;
        self.framing = framing;
        self.late_continue = false;
        self.proto = None;
        self.close = self.close_after;
        self.vcl_failed = false;
        self.client_ip = self.session.client;
        self.identity = None;
        self.cached_body = None;
        self.cached_body_charge = None;
        self.task_data.clear();
        self.transfer = Transfer { request_head: head_bytes as u64, ..Transfer::default() };
        self.begun = true;
        self.reset_for_recv();
        self.local.counters.client_req.inc();
        let parent = (self.session.vxid, Kind::Session);
        self.records.begin_linked(parent, "req", (self.vxid, Kind::Client), "rxreq");
        self.records.text(Tag::Begin, &self.session.begin);
        self.records.arrival(arrival);
        if let Some(vcl) = &self.current.vcl {
            self.records.text(Tag::VCL_use, vcl.name.as_bytes());
        }
        if let Some(expect) = self.request.fields.get_known(Field::Expect) {
            self.records.header(Tag::ReqUnset, b"Expect", expect);
            self.request.fields.remove_known(Field::Expect);
        }
        self.log_request_start();
        rules::hop::strip_nominated(&mut self.request.fields);
        if self.request.version == Version::Http20 {
            // A stream's cookies come in pieces (RFC 9113, section 8.2.3).
            self.request.fields.collect_known(Field::Cookie, b"; ");
        }
        self.request.fields.collect_known(Field::CacheControl, b", ");
        recv::add_forwarded_for(self);
        if self.current.vcl.as_ref().is_some_and(|vcl| !vcl.instance.program.is_builtin(Sub::Recv)) {
            self.original.copy_from(&self.request);
        }
    }

    /// Forgets all that VCL decided: of another request, or where another VCL begins with this one.
    pub(crate) fn reset_for_recv(&mut self) {
        self.identity = None;
        self.backend_hint = Hint::Default;
        self.storage_hint = None;
        self.ttl_max = None;
        self.grace_max = None;
        self.always_miss = false;
        self.ignore_busy = false;
        self.ignore_vary = false;
        self.rfc = self.current.settings.rfc;
        self.esi = true;
        self.reset_for_restart();
    }

    /// Forgets what an earlier pass through the steps came to. What VCL set of `req` and `client` stays, as in Varnish.
    pub(crate) fn reset_for_restart(&mut self) {
        self.head.clear();
        self.body = Body::Empty;
        self.obj = Obj::None;
        self.promised = None;
        self.hit = false;
        self.reason = Reason::Hit;
        self.decided_at = None;
        self.looked_again = 0;
        self.close_segments();
        self.demand = None;
        self.pending_confirmation = None;
        self.loads = None;
        self.handled = Handled::default();
        self.own_fields = None;
        self.trouble = None;
        self.marker = None;
        self.do_esi = None;
        self.filters = None;
        self.hash_input.clear();
        self.synthetic.clear();
    }

    /// Logs the request as VCL left it, in the transaction that a restart began.
    pub(crate) fn log_request_again(&mut self) {
        self.log_request_start();
    }

    pub(super) fn log_request_start(&mut self) {
        let records = &mut self.records;
        records.text(Tag::ReqStart, &self.session.req_start);
        records.text(Tag::ReqMethod, &self.request.method);
        records.text(Tag::ReqURL, &self.request.target);
        records.text(Tag::ReqProtocol, protocol(self.request.version));
        for line in self.request.fields.lines() {
            records.text(Tag::ReqHeader, line);
        }
    }
}
