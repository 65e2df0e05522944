//! One client request from its head to its response: all that its steps share.
//!
//! ```text
//! recv > hash > lookup > hit  > deliver > done
//!    |      |      |      |        |
//!    |      |      |      +> miss, pass, synth, restart
//!    |      |      +> miss > fetch > deliver | synth
//!    |      |      +> pass > fetch > deliver | synth
//!    |      +> purge > synth | restart
//!    |      +> pipe > done
//!    +> synth > done
//! deliver, synth > restart > recv          any > fail > synth(503)
//! ```
//!
//! A connection keeps one `Exchange` and uses its buffers again for each request. `run` drives the steps, one file each
//! in `request/`; the front writes what `response` and `body` say, and then calls `finish`.

use crate::assemble::Shared;
use crate::body::Body;
use crate::include::{Include, NoBody, Place};
use crate::known::Known;
use crate::local::{Current, Local};
use crate::request;
use crate::request::demand::Demand;
use crate::request::handled::Handled;
use crate::session::Session;
use crate::sparse::Reader;
use crate::sparse::lane::Link;
use crate::top::Top;
use crate::trouble::Trouble;
use base::vxid::Vxid;
use base::{Seconds, Time};
use catalog::index::Key;
use catalog::index::cold::Loads;
use catalog::index::insist::Insistent;
use catalog::reason::Reason;
use copal_base as base;
use copal_catalog as catalog;
use copal_observe as observe;
use copal_rules as rules;
use copal_store as store;
use copal_vcl as vcl;
use copal_wire as wire;
use observe::{Kind, Records, Tag};
use std::any::Any;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use vcl::exec::{Machine, Step as VclStep, Wait};
use vcl::host::{Action, Fault, Sub};
use vcl::places::At;
use vcl::value::{BackendRef, Text, Value};
use wire::h1::RequestFraming;
use wire::{Fields, Known as Field, RequestHead, ResponseHead, Version};

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

/// What the connection does next.
#[derive(Debug)]
pub enum Outcome {
    /// Write `response` and `body`, then call `finish`.
    Deliver,
    /// Join the client with this backend connection, then call `finish_pipe`.
    Pipe(Box<request::pipe::Pipe>),
    /// Close without an answer.
    Close,
}

/// Where the request's `obj` is.
#[derive(Debug, Default)]
pub(crate) enum Source {
    /// There is none.
    #[default]
    None,
    /// In a store.
    Stored(Rc<Known>),
    /// A response for this client alone: its times and status.
    Private(Private),
}

/// What VCL may ask of a response that is not stored.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Private {
    /// The transaction that fetched it.
    pub(crate) vxid: Vxid,
    pub(crate) origin_time: Time,
    pub(crate) ttl: Seconds,
    pub(crate) grace: Seconds,
    pub(crate) keep: Seconds,
    /// Whether the rules or VCL made it so; false for an error that VCL made in the answer's place.
    pub(crate) uncacheable: bool,
    /// Why it is not stored, if that is not the request's doing.
    pub(crate) reason: Option<Reason>,
    /// The request went by the cache: the origin saw it whole.
    pub(crate) passed: bool,
    /// Its body is a gzip stream.
    pub(crate) sends_gzip: bool,
}

/// The backend that VCL wants for a request.
#[derive(Debug, Clone, Default)]
pub(crate) enum Hint {
    /// The program's default.
    #[default]
    Default,
    /// This one; `None` is VCL's `none`.
    Chosen(Option<BackendRef>),
}

/// How many bytes went each way, for the log and counters.
#[derive(Debug, Clone, Copy, Default)]
pub struct Transfer {
    /// Bytes of the request's head.
    pub request_head: u64,
    /// Bytes of the request's body, without chunk framing.
    pub request_body: u64,
    /// Bytes of the response's head.
    pub response_head: u64,
    /// Bytes of the response's body, without chunk framing.
    pub response_body: u64,
    /// Bytes of the head that a pipe sent to the backend.
    pub pipe_head: u64,
}

/// The times of a request.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Times {
    pub(crate) start: Time,
    pub(crate) arrival: Time,
    pub(crate) previous: Time,
}

/// One client request. See the module.
pub struct Exchange {
    /// The request: filled by the connection, changed by VCL (`req`).
    pub request: RequestHead,
    /// The response as it goes out (`resp`).
    pub response: ResponseHead,
    /// The response's head as it goes out, if it is at hand in that form; else empty, and `response` says what it is. The
    /// length of the body is known then, and the connection stays open.
    pub head: Vec<u8>,
    /// The response's body.
    pub body: Body,
    /// Whether the connection is to be closed after the response.
    pub close: bool,
    /// Set by the connection before `run` if this is to be its last request.
    pub close_after: bool,
    /// The request body as far as VCL had it read.
    pub(crate) cached_body: Option<Text>,
    /// What it counts for in its store.
    pub(crate) cached_body_hold: Option<store::Hold>,
    pub(crate) local: Rc<Local>,
    pub(crate) session: Rc<Session>,
    pub(crate) current: Rc<Current>,
    /// What the request began with, once a label's VCL has taken its place in `current`.
    pub(crate) began_with: Option<Rc<Current>>,
    pub(crate) machine: Machine,
    pub(crate) records: Records,
    pub(crate) original: RequestHead,
    pub(crate) vxid: Vxid,
    pub(crate) times: Times,
    /// VCL's `now`.
    pub(crate) now: Time,
    pub(crate) restarts: u32,
    pub(crate) key: Key,
    pub(crate) hash_input: Vec<u8>,
    pub(crate) source: Source,
    pub(crate) hit: bool,
    /// Why it hits, misses, passes ...
    pub(crate) reason: Reason,
    /// Where VCL decided that, if it did; a place in `current`'s.
    pub(crate) decided_at: Option<At>,
    /// The body of an object in pieces, opened before the response's head is made.
    pub(crate) sparse: Option<Box<Reader>>,
    /// The way to the first pieces of an object that this request fetched.
    pub(crate) lane: Option<Link>,
    /// How often the lookup was begun again because the origin had another version.
    pub(crate) looked_again: u32,
    /// The length of a body that was still growing when it was found: if it breaks off, this is what was promised.
    pub(crate) promised: Option<u64>,
    pub(crate) client_ip: SocketAddr,
    pub(crate) identity: Option<Text>,
    pub(crate) backend_hint: Hint,
    pub(crate) storage_hint: Option<Text>,
    pub(crate) ttl_max: Option<Seconds>,
    pub(crate) grace_max: Option<Seconds>,
    pub(crate) always_miss: bool,
    pub(crate) ignore_busy: bool,
    pub(crate) ignore_vary: bool,
    /// `req.rfc`: the RFCs decide where Varnish has ways of its own.
    pub(crate) rfc: bool,
    /// What it asks of a stored response besides freshness, as lookup found.
    pub(crate) demand: Option<Demand>,
    /// How it waits, if it insists on the origin's word.
    pub(crate) insistent: Option<Arc<Insistent>>,
    /// What it learnt of stored responses that were on devices; none before it looks for any.
    pub(crate) loads: Option<Arc<Loads>>,
    /// What became of it, for `Cache-Status`.
    pub(crate) handled: Handled,
    /// Fields of the answer it caused to be fetched, which are not stored with that; Date in the place of the stored one.
    pub(crate) own_fields: Option<Fields>,
    /// What VCL says that `req.proto` is, where that is no version that is spoken: for VCL alone.
    pub(crate) proto: Option<Text>,
    /// Why there is no answer of the origin's, or a stale one in its place.
    pub(crate) trouble: Option<Arc<Trouble>>,
    /// The marker found in this pass through lookup, as the variable that tells of it.
    pub(crate) marker: Option<vcl::variables::Var>,
    /// `req.esi`: whether includes are processed, in VCL 4.0.
    pub(crate) esi: bool,
    /// `req.esi_level`: how many includes this request is below the client's.
    pub(crate) esi_level: u32,
    /// `req_top` of a request that an include made; of the client's own request it is that itself.
    pub(crate) top: Option<Rc<Top>>,
    /// In a request that an include made: the gzip stream that its body becomes a part of.
    pub(crate) stitch: Option<Shared>,
    /// In such a request: whether the rest goes on without it if it fails.
    pub(crate) may_fail: bool,
    /// The body goes out as a gzip stream.
    pub(crate) sends_gzip: bool,
    /// `resp.do_esi` as VCL set it; the object decides where it did not.
    pub(crate) do_esi: Option<bool>,
    /// `resp.filters` as VCL set it.
    pub(crate) filters: Option<Text>,
    pub(crate) framing: RequestFraming,
    /// `std.late_100_continue`: a client that waits for `100 Continue` gets it when its body is first read.
    pub(crate) late_continue: bool,
    pub(crate) synthetic: Vec<u8>,
    /// Memory for short texts.
    pub(crate) scratch: Vec<u8>,
    pub(crate) task_data: Vec<(usize, Box<dyn Any>)>,
    pub(crate) pipe_request: Option<Box<RequestHead>>,
    /// `bereq.connect_timeout` as `vcl_pipe` set it, in seconds.
    pub(crate) pipe_connect_timeout: Option<Seconds>,
    /// VCL failed: the connection ends after the answer.
    vcl_failed: bool,
    /// It is only asked what would come of the request: what VCL bans and purges stays.
    pub(crate) dry: bool,
    pub(crate) transfer: Transfer,
    pub(crate) begun: bool,
}

impl Exchange {
    /// The exchange of a new connection.
    pub fn new(local: &Rc<Local>, session: &Rc<Session>) -> Self {
        let current = Rc::clone(local.idle());
        Self {
            request: RequestHead::default(),
            response: ResponseHead::default(),
            head: Vec::new(),
            body: Body::Empty,
            close: false,
            close_after: false,
            cached_body: None,
            cached_body_hold: None,
            local: Rc::clone(local),
            session: Rc::clone(session),
            current,
            began_with: None,
            machine: Machine::default(),
            records: Records::new(&local.log),
            original: RequestHead::default(),
            vxid: 0,
            times: Times::default(),
            now: 0.0,
            restarts: 0,
            key: [0; 32],
            hash_input: Vec::new(),
            source: Source::None,
            hit: false,
            reason: Reason::Hit,
            decided_at: None,
            sparse: None,
            lane: None,
            looked_again: 0,
            promised: None,
            client_ip: session.client,
            identity: None,
            backend_hint: Hint::Default,
            storage_hint: None,
            ttl_max: None,
            grace_max: None,
            always_miss: false,
            ignore_busy: false,
            ignore_vary: false,
            rfc: false,
            demand: None,
            insistent: None,
            loads: None,
            handled: Handled::default(),
            own_fields: None,
            proto: None,
            trouble: None,
            marker: None,
            esi: true,
            esi_level: 0,
            top: None,
            stitch: None,
            may_fail: false,
            sends_gzip: false,
            do_esi: None,
            filters: None,
            framing: RequestFraming::None,
            late_continue: false,
            synthetic: Vec::new(),
            scratch: Vec::new(),
            task_data: Vec::new(),
            pipe_request: None,
            pipe_connect_timeout: None,
            vcl_failed: false,
            dry: false,
            transfer: Transfer::default(),
            begun: false,
        }
    }

    /// Turns to the requests of another connection.
    pub fn attach(&mut self, session: &Rc<Session>) {
        self.session = Rc::clone(session);
    }

    /// Answers the request that stands in `self.request`, a head of `head_bytes` which arrived at `arrival`.
    pub async fn run(&mut self, body: &mut dyn RequestBody, head_bytes: usize, arrival: Time) -> Outcome {
        self.begin(body.framing(), head_bytes, arrival);
        request::run(self, body).await
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
        self.cached_body_hold = None;
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
        request::recv::add_forwarded_for(self);
        if self.current.vcl.as_ref().is_some_and(|vcl| !vcl.instance.program.is_builtin(Sub::Recv)) {
            self.original.copy_from(&self.request);
        }
    }

    /// Begins a request that an include makes: `self.request` is made already, from that of `place`.
    pub(crate) fn begin_include(&mut self, place: &Place, include: &Include) {
        let now = self.local.now();
        self.current = Rc::clone(&place.current);
        self.vxid = self.local.vxid();
        self.now = now;
        self.times = Times { start: now, arrival: now, previous: now };
        self.esi_level = place.level + 1;
        self.top = Some(Rc::clone(&place.top));
        self.stitch = place.stitch.clone();
        self.may_fail = include.may_fail;
        self.proto = None;
        self.begun = true;
        self.reset_for_recv();
        self.local.counters.esi_req.inc();
        self.records.begin(self.vxid, Kind::Client);
        self.records.link(Tag::Begin, "req", place.vxid, "esi");
        self.records.timestamp("Start", now, now, now);
        self.records.text(Tag::ReqURL, &self.request.target);
        self.log_request_start();
        self.original.copy_from(&self.request);
    }

    /// Answers the request that [`Exchange::begin_include`] began.
    pub(crate) async fn run_include(&mut self) -> Outcome {
        request::run(self, &mut NoBody).await
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
        self.source = Source::None;
        self.promised = None;
        self.hit = false;
        self.reason = Reason::Hit;
        self.decided_at = None;
        self.looked_again = 0;
        self.let_pieces_go();
        self.demand = None;
        self.insistent = None;
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

    /// Lets go of what was opened of an object in pieces.
    #[inline]
    pub(crate) fn let_pieces_go(&mut self) {
        (self.sparse, self.lane) = (None, None);
    }

    /// Logs the request as VCL left it, in the transaction that a restart began.
    pub(crate) fn log_request_again(&mut self) {
        self.log_request_start();
    }

    fn log_request_start(&mut self) {
        let records = &mut self.records;
        records.text(Tag::ReqStart, &self.session.req_start);
        records.text(Tag::ReqMethod, &self.request.method);
        records.text(Tag::ReqURL, &self.request.target);
        records.text(Tag::ReqProtocol, protocol(self.request.version));
        for line in self.request.fields.lines() {
            records.text(Tag::ReqHeader, line);
        }
    }

    /// Runs a subroutine. Built-in ones that have a native form do not come here.
    pub(crate) fn call(&mut self, subroutine: Sub) -> VclStep {
        // Counted within the thread: the VCL's own count is shared by all cores.
        let current = Rc::clone(&self.current);
        let Some(vcl) = &current.vcl else { return VclStep::Done(Action::Fail) };
        let mut machine = std::mem::take(&mut self.machine);
        let step = machine.run(&vcl.instance, subroutine, self);
        self.machine = machine;
        step
    }

    /// Runs a subroutine, waiting for what it waits for; for the request body only `vcl_recv` can.
    pub(crate) async fn decide(&mut self, subroutine: Sub) -> Action {
        self.now = self.local.now();
        let action = match self.call(subroutine) {
            VclStep::Done(action) => action,
            VclStep::Wait(wait) => Box::pin(self.wait_for(wait)).await,
        };
        self.count_failure(&action);
        action
    }

    async fn wait_for(&mut self, wait: Wait) -> Action {
        let mut wait = wait;
        loop {
            let value = match wait {
                Wait::Work(work) => (work.await)(self),
                Wait::CacheBody { .. } => Err(Fault("only vcl_recv can wait for the request body".into())),
            };
            match self.resume(value) {
                VclStep::Done(action) => return action,
                VclStep::Wait(next) => wait = next,
            }
        }
    }

    /// Goes on with a subroutine that waited.
    pub(crate) fn resume(&mut self, value: Result<Value, Fault>) -> VclStep {
        let current = Rc::clone(&self.current);
        let Some(vcl) = &current.vcl else { return VclStep::Done(Action::Fail) };
        let mut machine = std::mem::take(&mut self.machine);
        let step = machine.resume(&vcl.instance, value, self);
        self.machine = machine;
        step
    }

    /// Takes note of a VCL that failed, or wants another answer or another go.
    pub(crate) fn count_failure(&mut self, action: &Action) {
        match action {
            Action::Synth(..) => self.decided(Reason::VclSynth),
            Action::Restart => self.decided(Reason::Restart),
            Action::Fail => self.decided(Reason::VclFailed),
            _ => {}
        }
        if matches!(action, Action::Fail) {
            self.local.counters.vcl_fail.inc();
            self.vcl_failed = true;
            self.close = true;
        }
    }

    /// Whether `subroutine` is as built in, so that its effect may be had natively.
    pub(crate) fn is_builtin(&self, subroutine: Sub) -> bool {
        self.current.vcl.as_ref().is_some_and(|vcl| vcl.instance.program.is_builtin(subroutine))
    }

    pub(crate) fn timestamp(&mut self, label: &str, now: Time) {
        self.records.timestamp(label, now, self.times.start, self.times.previous);
        self.times.previous = now;
    }

    /// Logs and counts a request whose response was written (or cut): the last step of each request.
    pub fn finish(&mut self, response_head: u64, response_body: u64, request_body: u64) {
        self.transfer.response_head += response_head;
        self.transfer.response_body += response_body;
        self.transfer.request_body = request_body;
        self.body.close(&mut self.records);
        self.log_reason();
        let now = self.local.now();
        self.timestamp("Resp", now);
        let transfer = self.transfer;
        if self.esi_level == 0 {
            self.count_transfer();
        }
        self.records.numbers(
            Tag::ReqAcct,
            &[
                transfer.request_head,
                transfer.request_body,
                transfer.request_head + transfer.request_body,
                transfer.response_head,
                transfer.response_body,
                transfer.response_head + transfer.response_body,
            ],
        );
        self.end();
    }

    /// Counts what went over the client's connection; what includes bring is a part of that.
    fn count_transfer(&self) {
        let (counters, transfer) = (&self.local.counters, &self.transfer);
        counters.s_req_hdrbytes.add(transfer.request_head);
        counters.s_req_bodybytes.add(transfer.request_body);
        counters.s_resp_hdrbytes.add(transfer.response_head);
        counters.s_resp_bodybytes.add(transfer.response_body);
    }

    /// Logs and counts a request that was piped: bytes from the client and to it, after the heads.
    pub fn finish_pipe(&mut self, backend: &copal_origin::Backend, from_client: u64, to_client: u64) {
        self.log_reason();
        let now = self.local.now();
        self.timestamp("PipeSess", now);
        let counters = &self.local.counters;
        counters.s_pipe_hdrbytes.add(self.transfer.request_head);
        counters.s_pipe_in.add(from_client);
        counters.s_pipe_out.add(to_client);
        let Transfer { request_head, pipe_head, .. } = self.transfer;
        let counters = backend.counters();
        counters.pipe_hdrbytes.add(pipe_head);
        counters.pipe_out.add(from_client);
        counters.pipe_in.add(to_client);
        self.records.numbers(Tag::PipeAcct, &[request_head, pipe_head, from_client, to_client]);
        self.end();
    }

    fn end(&mut self) {
        self.begun = false;
        self.body = Body::Empty;
        self.source = Source::None;
        self.let_pieces_go();
        // What waits for its next request keeps no VCL.
        self.began_with = None;
        self.current = Rc::clone(self.local.idle());
        self.records.end();
    }

    /// `HTTP/1.0` clients and those who asked for it get their connection closed.
    pub(crate) fn client_wants_close(&self) -> bool {
        !wire::h1::keep_alive(self.request.version, &self.request.fields)
    }

    /// Why the connection ends after this response, in Varnish's words of `SessClose`.
    pub fn close_reason(&self) -> &'static str {
        match () {
            () if self.vcl_failed => "VCL_FAILURE",
            () if !self.client_wants_close() => "RESP_CLOSE",
            () if self.request.version == Version::Http10
                && !self.request.fields.has_known(Field::Connection) =>
            {
                "REQ_HTTP10"
            }
            () => "REQ_CLOSE",
        }
    }

    /// Whether the request has a body that nobody read yet.
    pub(crate) fn has_unread_body(&self) -> bool {
        self.framing != RequestFraming::None && self.cached_body.is_none()
    }

    /// Whether the request's method is HEAD.
    pub(crate) fn is_head(&self) -> bool {
        self.request.method == b"HEAD"
    }

    /// The connection must close after this response, which was not known when the response was made.
    pub fn must_close(&mut self) {
        debug_assert!(self.head.is_empty(), "a request with a body has no prepared response");
        if !std::mem::replace(&mut self.close, true) {
            self.response.fields.set_known(Field::Connection, b"close");
        }
    }

    /// The backend to ask, if there is one.
    pub(crate) fn hint(&self) -> Option<BackendRef> {
        match &self.backend_hint {
            Hint::Default => self.current.vcl.as_ref()?.instance.default_backend().cloned(),
            Hint::Chosen(backend) => backend.clone(),
        }
    }

    /// The request's `Host` field.
    pub(crate) fn host(&self) -> Option<&[u8]> {
        self.request.fields.get_known(Field::Host)
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        // A connection torn down in the middle of a request still leaves its records.
        if self.begun {
            self.end();
        }
    }
}

/// `HTTP/1.1` and so on.
pub(crate) fn protocol(version: Version) -> &'static [u8] {
    match version {
        Version::Http10 => b"HTTP/1.0",
        Version::Http11 => b"HTTP/1.1",
        Version::Http20 => b"HTTP/2.0",
    }
}

/// Whether a response of that status never has a body (RFC 9110, section 6.4.1).
pub(crate) fn is_bodiless(status: u16) -> bool {
    matches!(status, 100..=199 | 204 | 304)
}
