//! One client request: all that its steps share. Data; what is done with it stands in `request/`.
//!
//! A connection keeps one `Exchange` and uses its buffers again for each request.

use crate::body::Body;
use crate::demand::Demand;
use crate::fetch::Private;
use crate::fetch::sparse::Reader;
use crate::fetch::sparse::channel::JobHandle;
use crate::handled::Handled;
use crate::known::Known;
use crate::local::{Current, Local};
use crate::session::Session;
use crate::top::Top;
use crate::trouble::Trouble;
use base::vxid::Vxid;
use base::{Seconds, Time};
use catalog::index::Key;
use catalog::index::cold::Loads;
use catalog::index::confirmation::PendingConfirmation;
use catalog::reason::Reason;
use copal_base as base;
use copal_catalog as catalog;
use copal_filter::stitch::Stitch;
use copal_observe::Records;
use copal_store as store;
use copal_vcl as vcl;
use copal_wire as wire;
use std::any::Any;
use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use vcl::exec::Machine;
use vcl::host::Sub;
use vcl::places::At;
use vcl::value::{BackendRef, Text};
use wire::h1::RequestFraming;
use wire::{Fields, Known as Field, RequestHead, ResponseHead};

/// The gzip stream that a tree of includes makes.
pub(crate) type SharedStitch = Rc<RefCell<Stitch>>;

/// The request's `obj`.
#[derive(Debug, Default)]
pub(crate) enum Obj {
    /// There is none.
    #[default]
    None,
    /// In a store.
    Stored(Rc<Known>),
    /// A response for this client alone: its times and status.
    Private(Private),
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
    /// Its accounting in the store.
    pub(crate) cached_body_charge: Option<store::Charge>,
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
    pub(crate) obj: Obj,
    pub(crate) hit: bool,
    /// Why it hits, misses, passes ...
    pub(crate) reason: Reason,
    /// Where VCL decided that, if it did; a place in `current`'s.
    pub(crate) decided_at: Option<At>,
    /// The reader of an object in segments, opened before the response's head is made.
    pub(crate) sparse: Option<Box<Reader>>,
    /// The job that brings the first segments of the object that this request fetched.
    pub(crate) segment_job: Option<JobHandle>,
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
    /// Its demands on a stored response besides freshness, as lookup found.
    pub(crate) demand: Option<Demand>,
    /// What a request that needs the confirmation of the origin waits for.
    pub(crate) pending_confirmation: Option<Arc<PendingConfirmation>>,
    /// Its findings about stored responses on devices; none before it looks for any.
    pub(crate) loads: Option<Arc<Loads>>,
    /// Its course, for `Cache-Status`.
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
    pub(crate) stitch: Option<SharedStitch>,
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
    pub(crate) vcl_failed: bool,
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
            cached_body_charge: None,
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
            obj: Obj::None,
            hit: false,
            reason: Reason::Hit,
            decided_at: None,
            sparse: None,
            segment_job: None,
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
            pending_confirmation: None,
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

    /// Whether `subroutine` is as built in, so that its effect may be had natively.
    pub(crate) fn is_builtin(&self, subroutine: Sub) -> bool {
        self.current.vcl.as_ref().is_some_and(|vcl| vcl.instance.program.is_builtin(subroutine))
    }

    pub(crate) fn timestamp(&mut self, label: &str, now: Time) {
        self.records.timestamp(label, now, self.times.start, self.times.previous);
        self.times.previous = now;
    }

    /// `HTTP/1.0` clients and those who asked for it get their connection closed.
    pub(crate) fn client_wants_close(&self) -> bool {
        !wire::h1::keep_alive(self.request.version, &self.request.fields)
    }

    /// Whether the request has a body that was not read yet.
    pub(crate) fn has_unread_body(&self) -> bool {
        self.framing != RequestFraming::None && self.cached_body.is_none()
    }

    /// Whether the request's method is HEAD.
    pub(crate) fn is_head(&self) -> bool {
        self.request.method == b"HEAD"
    }

    /// The backend to ask, if there is one.
    pub(crate) fn hint(&self) -> Option<BackendRef> {
        match &self.backend_hint {
            Hint::Default => self.current.vcl.as_ref()?.instance.default_backend().cloned(),
            Hint::Chosen(backend) => backend.clone(),
        }
    }

    /// Drops the reader and the job of an object in segments.
    #[inline]
    pub(crate) fn close_segments(&mut self) {
        (self.sparse, self.segment_job) = (None, None);
    }

    /// The request's `Host` field.
    pub(crate) fn host(&self) -> Option<&[u8]> {
        self.request.fields.get_known(Field::Host)
    }
}
