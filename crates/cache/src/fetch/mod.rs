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

pub(crate) mod change;
mod conclude;
mod error;
mod fill;
pub(crate) mod filters;
mod host;
pub(crate) mod log;
mod part;
pub(crate) mod patience;
pub(crate) mod prepare;
mod relay;
mod response;
mod send;
pub(crate) mod sparse;
mod times;
pub(crate) mod update;
pub(crate) mod wanted;

use crate::body::Body;
use crate::handled::Arrived;
use crate::known::Known;
use crate::local::{Current, Local};
use crate::request_body::{NoBody, RequestBody};
use crate::session::Session;
use crate::trouble::Trouble;
use base::vxid::Vxid;
use base::{Seconds, Time};
use catalog::index::Key;
use catalog::index::busy::Busy;
use catalog::reason::Reason;
use catalog::sparse::layout::{Layout, Validator};
use copal_base as base;
use copal_catalog as catalog;
use copal_net as net;
use copal_observe as observe;
use copal_origin as origin;
use copal_rules as rules;
use copal_store as store;
use copal_vcl as vcl;
use copal_wire as wire;
use log::FetchLog;
use observe::{Kind, Tag};
use rules::request::Directives;
use sparse::answer::{self, Judged, Part};
use sparse::ask::Ask;
use sparse::channel::JobHandle;
use sparse::requester::Requester;
use std::any::Any;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use store::Object;
use vcl::exec::{Machine, Step as VclStep, Wait};
use vcl::host::{Action, Fault, Sub};
use vcl::places::At;
use vcl::value::{BackendRef, Text};
use wanted::Wanted;
use wire::h1::{RequestFraming, ResponseFraming};
use wire::{Fields, Known as Field, RequestHead, ResponseHead};

/// The purpose of a fetch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// For the cache.
    Miss,
    /// For the cache, while a stale object is served.
    Background,
    /// For one client alone.
    Pass,
    /// Missing segments of an object that is there in part.
    Segment,
}

/// The result of a fetch.
#[derive(Debug)]
pub(crate) enum Fetched {
    /// An object in a store, perhaps still filling.
    Stored(Arc<Object>),
    /// A new object in segments, and the job that brings the first of them.
    Sparse(Arc<Object>, JobHandle),
    /// A response for the asking client alone.
    Private { head: Box<ResponseHead>, body: Body, private: Private },
    /// A stale object in place of the origin's error.
    Stale(Arc<Object>, Arc<Trouble>),
    /// Nothing: the origin failed or could not be reached, and VCL made no answer.
    Lost(Arc<Trouble>),
    /// Nothing: abandoned or failed beyond `vcl_backend_error`.
    Failed,
}

/// What VCL sees of a response that is not stored.
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

/// An answer of another kind to a request for segments, for the client that wanted them.
pub(crate) struct Refusal {
    pub(crate) fetch: Fetch,
    pub(crate) fetched: Fetched,
}

impl std::fmt::Debug for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Refusal").field("fetched", &self.fetched).finish_non_exhaustive()
    }
}

/// The result of asking for segments. Moved once a request to an origin.
#[allow(clippy::large_enum_variant)]
pub(crate) enum Brought {
    /// The segments, up to this byte.
    Part(Answer, u64),
    /// The origin has another version.
    Changed,
    /// The right version, but another part of it.
    Useless,
    /// Another answer, or the one that VCL made for want of any.
    Refused(Fetched),
}

/// The next step. Moved a few times in a fetch, which costs less than a box.
#[allow(clippy::large_enum_variant)]
enum Step {
    Fetch,
    Send,
    Response(Answer),
    /// There is no usable answer.
    Broken,
    /// VCL wants no answer but `vcl_backend_error`.
    Error(u16, Option<Text>),
    Done(Fetched),
}

impl Step {
    /// There is no usable answer.
    fn failed() -> Self {
        Self::Broken
    }

    /// The status and reason with which `vcl_backend_error` begins if VCL gives none; the words are Varnish's.
    fn error() -> Self {
        Self::Error(503, Some(Text::from_static(b"Backend fetch failed")))
    }
}

/// A response whose head is read.
pub(crate) struct Answer {
    pub(crate) connection: Option<Box<origin::Connection>>,
    pub(crate) framing: ResponseFraming,
}

/// Time limits that VCL sets for one fetch, in seconds; `None` is the backend's.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Timeouts {
    pub(crate) connect: Option<Seconds>,
    pub(crate) first_byte: Option<Seconds>,
    pub(crate) between_bytes: Option<Seconds>,
}

impl Timeouts {
    fn over(self, backend: origin::Timeouts) -> origin::Timeouts {
        origin::Timeouts {
            connect: self.connect.unwrap_or(backend.connect),
            first_byte: self.first_byte.unwrap_or(backend.first_byte),
            between_bytes: self.between_bytes.unwrap_or(backend.between_bytes),
        }
    }
}

/// Why a fetch got no usable answer.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The origin, or the way to it.
    Origin(origin::Error, String),
    /// The backend that VCL chose leads to no origin.
    NotABackend,
    /// The client's body broke off. The origin must not take the part that it has for the whole.
    RequestBody,
    /// VCL made a request that cannot be sent.
    Request(wire::Reject),
    /// The body goes on beyond its announced length.
    TooLong,
}

impl Failure {
    /// The failure in the words of `Proxy-Status`.
    fn trouble(&self) -> Trouble {
        match self {
            Self::Origin(error, backend) => Trouble::of_origin(error).at(backend),
            Self::NotABackend | Self::Request(_) => Trouble::misconfigured(),
            Self::RequestBody => Trouble::request_cut(),
            Self::TooLong => Trouble::bad_answer(),
        }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Origin(error, backend) => f.write_str(&error.fetch_error(backend)),
            Self::NotABackend => f.write_str("no backend"),
            Self::RequestBody => f.write_str("request body failed"),
            Self::Request(reject) => write!(f, "request cannot be sent: {reject}"),
            Self::TooLong => f.write_str("body longer than announced"),
        }
    }
}

/// The body that is sent to the origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Upload {
    None,
    /// A body in memory: it can be sent again.
    Cached(Text),
    /// The client's body as it arrives: it can be sent once.
    Stream(RequestFraming),
    /// Such a body, sent.
    Spent,
}

impl Purpose {
    /// The name that links to such a fetch have in the log.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Miss => "fetch",
            Self::Background => "bgfetch",
            Self::Pass => "pass",
            Self::Segment => "segment",
        }
    }
}

/// The values with which a fetch begins.
struct Facts {
    vxid: Vxid,
    purpose: Purpose,
    key: Key,
    client_ip: SocketAddr,
    rfc: bool,
    now: Time,
}

/// The records of a new fetch, on behalf of the first of `vxids`; the second is its own.
fn open_log(
    local: &Rc<Local>,
    current: &Current,
    (parent, vxid): (Vxid, Vxid),
    label: &str,
    now: Time,
) -> FetchLog {
    local.counters.s_fetch.inc();
    let mut log = FetchLog::new(local, now);
    let records = &mut log.records;
    records.begin(vxid, Kind::Backend);
    records.link(Tag::Begin, "bereq", parent, label);
    if let Some(vcl) = &current.vcl {
        records.text(Tag::VCL_use, vcl.name.as_bytes());
    }
    records.timestamp("Start", now, now, now);
    log
}

/// One fetch. See the module.
pub(crate) struct Fetch {
    pub(crate) local: Rc<Local>,
    pub(crate) session: Rc<Session>,
    pub(crate) current: Rc<Current>,
    pub(crate) request: RequestHead,
    pub(crate) original: RequestHead,
    /// The client's method and protocol, until they are logged with `bereq`.
    pub(crate) asked: Option<(Vec<u8>, wire::Version)>,
    pub(crate) response: ResponseHead,
    pub(crate) machine: Machine,
    pub(crate) log: FetchLog,
    pub(crate) vxid: Vxid,
    /// When the first try began (`bereq.time`).
    pub(crate) begun: Time,
    pub(crate) purpose: Purpose,
    pub(crate) key: Key,
    pub(crate) busy: Option<Busy>,
    pub(crate) stale: Option<Rc<Known>>,
    /// Other variants that the origin is asked about.
    pub(crate) others: Vec<Rc<Known>>,
    /// The origin confirmed one of those, which stays beside the new object.
    pub(crate) by_other: bool,
    /// The client's cache directives.
    pub(crate) directives: Directives,
    /// The stale object to fall back on if the origin fails.
    pub(crate) fallback: Option<Arc<Object>>,
    pub(crate) backend: Option<BackendRef>,
    /// Backends that failed this try before anything was sent to them.
    pub(crate) tried: Vec<BackendRef>,
    /// The backend that was asked (`beresp.backend`).
    pub(crate) chosen: Option<BackendRef>,
    pub(crate) timeouts: Timeouts,
    pub(crate) upload: Upload,
    /// When the client's body ended, or broke off, if it was sent on as it came.
    pub(crate) uploaded: Option<Time>,
    pub(crate) client_ip: SocketAddr,
    pub(crate) identity: Option<Text>,
    /// The stored response is still good for others: an error does not replace it.
    pub(crate) keeps_stored: bool,
    /// The origin's answer, once its head was read.
    pub(crate) arrived: Option<Arrived>,
    /// `bereq.rfc`: the RFCs decide where Varnish has ways of its own.
    pub(crate) rfc: bool,
    /// The client's request had Authorization.
    pub(crate) authorized: bool,
    /// When the request was sent to the origin.
    pub(crate) requested: Time,
    /// Why the RFCs forbid to store the answer, if so.
    pub(crate) obstacle: Option<rules::storable::Why>,
    /// Names of fields that are not stored with the answer.
    pub(crate) left_out: Vec<Vec<u8>>,
    /// The targets that the request may change.
    pub(crate) change: Option<Box<change::Change>>,
    /// Fields of the answer that are for the asking client alone.
    pub(crate) for_asker: Fields,
    pub(crate) uncacheable: bool,
    /// Why the answer is not stored, if that is so and not the request's doing.
    pub(crate) reason: Option<Reason>,
    /// Where VCL decided that, if it did.
    pub(crate) decided_at: Option<At>,
    /// The built-in VCL's objection to storing the answer when VCL set `beresp.uncacheable`.
    pub(crate) objection: Option<Reason>,
    pub(crate) was_304: bool,
    /// `std.rollback(bereq)` was called: a response that is there goes, too.
    pub(crate) rolled_back: bool,
    /// `utils.fast_304()`: a 304 changes nothing but the times of the object.
    pub(crate) in_place: bool,
    pub(crate) do_stream: bool,
    /// The part that is asked for in place of the whole, if any.
    pub(crate) part_request: part::PartRequest,
    /// The part that came, where it is not the whole.
    pub(crate) part: Option<Part>,
    /// The answer is a part that is stored by itself.
    pub(crate) is_standalone: bool,
    /// The origin says that it serves ranges.
    pub(crate) serves_ranges: bool,
    /// The origin's validator of this version.
    pub(crate) validator: Option<Validator>,
    /// `beresp.do_sparse` as VCL set it.
    pub(crate) do_sparse: Option<bool>,
    /// VCL chose the store.
    pub(crate) storage_is_set: bool,
    /// `beresp.do_esi`
    pub(crate) do_esi: bool,
    /// `beresp.do_gzip`
    pub(crate) do_gzip: bool,
    /// `beresp.do_gunzip`
    pub(crate) do_gunzip: bool,
    /// `beresp.storage`: the store whose turn it is, or the one that VCL chose; none goes to `Transient`.
    pub(crate) storage: Option<Arc<dyn store::Engine>>,
    pub(crate) origin_time: Time,
    pub(crate) ttl: Seconds,
    pub(crate) grace: Seconds,
    pub(crate) keep: Seconds,
    /// `beresp.filters` as VCL set it.
    pub(crate) filters: Option<Text>,
    /// `bereq.is_hitmiss` or `bereq.is_hitpass`.
    pub(crate) marker: Option<vcl::variables::Var>,
    /// The address of the connection that was used.
    pub(crate) backend_address: Option<SocketAddr>,
    pub(crate) retries: u32,
    pub(crate) synthetic: Vec<u8>,
    pub(crate) task_data: Vec<(usize, Box<dyn Any>)>,
    pub(crate) now: Time,
}

impl Fetch {
    /// A fetch of what is `wanted`, as transaction `vxid`.
    pub(crate) fn of(wanted: &Wanted<'_>, vxid: Vxid) -> Self {
        let Wanted { purpose, local, session, current, key, client_ip, rfc, .. } = *wanted;
        let now = local.now();
        let log = open_log(local, current, (wanted.vxid, vxid), purpose.label(), now);
        let request = prepare::request(wanted, vxid);
        let facts = Facts { vxid, purpose, key, client_ip, rfc, now };
        let mut fetch = Self::new(log, request, (session, current), facts);
        fetch.asked = Some((wanted.request.method.clone(), wanted.request.version));
        fetch.backend.clone_from(&wanted.backend);
        fetch.upload = prepare::upload(wanted);
        fetch.identity = wanted.identity.cloned();
        fetch.directives = wanted.demand.map_or_else(Directives::default, |demand| demand.directives);
        fetch.authorized = wanted.request.fields.has_known(Field::Authorization);
        fetch.marker = wanted.marker.map(|marker| match marker {
            vcl::variables::Var::ReqIsHitpass => vcl::variables::Var::BereqIsHitpass,
            _ => vcl::variables::Var::BereqIsHitmiss,
        });
        fetch.keeps_stored = wanted.keeps_stored;
        fetch.part_request = part::part_request(wanted);
        fetch
    }

    /// A fetch of bytes `first..=last` of the object under `key` that `layout` describes, for `requester`.
    pub(crate) fn segments(requester: &Requester, key: &Key, layout: &Layout, span: (u64, u64)) -> Self {
        let vxid = requester.local.vxid();
        let now = requester.local.now();
        let purpose = Purpose::Segment;
        let log =
            open_log(&requester.local, &requester.current, (requester.vxid, vxid), purpose.label(), now);
        let request = part::segment_request(requester, vxid, layout, span);
        let mut fetch = Self::new(
            log,
            request,
            (&requester.session, &requester.current),
            Facts { vxid, purpose, key: *key, client_ip: requester.client_ip, rfc: requester.rfc, now },
        );
        fetch.backend.clone_from(&requester.backend);
        fetch.identity.clone_from(&requester.identity);
        fetch
    }

    fn new(
        log: FetchLog,
        request: RequestHead,
        (session, current): (&Rc<Session>, &Rc<Current>),
        facts: Facts,
    ) -> Self {
        let Facts { vxid, purpose, key, client_ip, rfc, now } = facts;
        let settings = &current.settings;
        let (default_ttl, default_grace, default_keep) =
            (settings.default_ttl, settings.default_grace, settings.default_keep);
        let mut original = RequestHead::default();
        original.copy_from(&request);
        Self {
            local: Rc::clone(&log.local),
            session: Rc::clone(session),
            current: Rc::clone(current),
            request,
            original,
            asked: None,
            response: ResponseHead::default(),
            machine: Machine::default(),
            log,
            vxid,
            begun: now,
            purpose,
            key,
            busy: None,
            stale: None,
            others: Vec::new(),
            by_other: false,
            directives: Directives::default(),
            fallback: None,
            backend: None,
            tried: Vec::new(),
            chosen: None,
            timeouts: Timeouts::default(),
            upload: Upload::None,
            uploaded: None,
            client_ip,
            identity: None,
            keeps_stored: false,
            arrived: None,
            rfc,
            authorized: false,
            requested: now,
            obstacle: None,
            left_out: Vec::new(),
            change: None,
            for_asker: Fields::new(),
            uncacheable: matches!(purpose, Purpose::Pass | Purpose::Segment),
            reason: None,
            decided_at: None,
            objection: None,
            was_304: false,
            rolled_back: false,
            in_place: false,
            do_stream: true,
            part_request: part::PartRequest::default(),
            part: None,
            is_standalone: false,
            serves_ranges: false,
            validator: None,
            do_sparse: None,
            storage_is_set: false,
            do_esi: false,
            do_gzip: false,
            do_gunzip: false,
            storage: None,
            origin_time: now,
            ttl: default_ttl,
            grace: default_grace,
            keep: default_keep,
            filters: None,
            marker: None,
            backend_address: None,
            retries: 0,
            synthetic: Vec::new(),
            task_data: Vec::new(),
            now,
        }
    }

    /// Lets the fetch revalidate `stale`, if that has a validator. It may still be filling: a 304 then saves the origin the
    /// second of two transfers.
    pub(crate) fn set_stale(&mut self, stale: Option<Arc<Object>>) {
        let Some(stale) = stale else { return };
        let of_use = stale.state() != store::State::Failed && !stale.is_windowed();
        if of_use && self.rfc && stale.status() < 500 {
            // An error, our own among them, is no better than the next.
            self.fallback = Some(Arc::clone(&stale));
        }
        if of_use && stale.flags().has(store::Flags::VALIDATOR) {
            let stale = Rc::new(Known::new(stale));
            if stale.sparse().is_some() && self.purpose == Purpose::Background {
                // If it has changed, no client has asked for the whole of the new version yet.
                let settings = &self.current.settings;
                let head = Ask::head(settings.segment_size.max(1), settings.sparse_min_size);
                self.part_request.ask.get_or_insert(head);
            }
            self.stale = Some(stale);
        }
    }

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

    /// Has the origin asked by HEAD whether `stale` is still good: the answer updates that, or ends it.
    pub(crate) fn ask_head(&mut self, stale: Arc<Object>) {
        self.stale = Some(Rc::new(Known::new(stale)));
        self.part_request = part::PartRequest::default();
        for request in [&mut self.request, &mut self.original] {
            request.method.clear();
            request.method.extend_from_slice(b"HEAD");
        }
    }

    /// Whether the request was a HEAD about a stored response.
    pub(crate) fn asks_head(&self) -> bool {
        self.rfc && self.purpose == Purpose::Miss && self.request.method == b"HEAD"
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
    fn retry(&mut self) -> Result<Step, Text> {
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

    /// Forgets VCL's decisions about an answer that is not used.
    pub(crate) fn reset_response(&mut self) {
        (self.was_304, self.in_place) = (false, false);
        (self.do_esi, self.do_gzip, self.do_gunzip, self.do_stream) = (false, false, false, true);
        (self.part, self.validator, self.serves_ranges) = (None, None, false);
        (self.do_sparse, self.storage_is_set) = (None, false);
        self.filters = None;
        self.storage = None;
        self.obstacle = None;
        self.left_out.clear();
        self.for_asker.clear();
        if self.purpose == Purpose::Pass && !std::mem::replace(&mut self.uncacheable, true) {
            // An answer that was to serve others.
            conclude::release(self);
        }
    }

    pub(crate) fn is_builtin(&self, subroutine: Sub) -> bool {
        self.current.vcl.as_ref().is_some_and(|vcl| vcl.instance.program.is_builtin(subroutine))
    }

    /// Runs a subroutine to its end, also if it has to wait.
    pub(crate) async fn decide(&mut self, subroutine: Sub) -> Action {
        if subroutine == Sub::BackendFetch {
            // The others judge an answer, and by the moment at which it came.
            self.now = self.local.now();
        }
        let current = Rc::clone(&self.current);
        let Some(vcl) = &current.vcl else { return Action::Fail };
        let mut machine = std::mem::take(&mut self.machine);
        let step = machine.run(&vcl.instance, subroutine, self);
        self.machine = machine;
        let action = match step {
            VclStep::Done(action) => action,
            VclStep::Wait(wait) => Box::pin(self.wait_for(&vcl.instance, wait)).await,
        };
        if matches!(action, Action::Fail) {
            self.local.counters.vcl_fail.inc();
        }
        action
    }

    async fn wait_for(&mut self, instance: &vcl::instance::Instance, wait: Wait) -> Action {
        let mut wait = wait;
        loop {
            let value = match wait {
                Wait::Work(work) => (work.await)(self),
                Wait::CacheBody { .. } => Err(Fault("only vcl_recv can wait for the request body".into())),
            };
            let mut machine = std::mem::take(&mut self.machine);
            let step = machine.resume(instance, value, self);
            self.machine = machine;
            match step {
                VclStep::Done(action) => return action,
                VclStep::Wait(next) => wait = next,
            }
        }
    }

    /// The response's times, for a client that alone gets it.
    pub(crate) fn private(&self) -> Private {
        // A passed response has no lifetime.
        let (ttl, grace, keep) = match self.purpose {
            Purpose::Pass => (0.0, 0.0, 0.0),
            Purpose::Miss | Purpose::Background | Purpose::Segment => (self.ttl, self.grace, self.keep),
        };
        let (origin_time, uncacheable, reason) = (self.origin_time, self.uncacheable, self.reason);
        let passed = self.purpose == Purpose::Pass;
        Private {
            vxid: self.vxid,
            origin_time,
            ttl,
            grace,
            keep,
            uncacheable,
            reason,
            passed,
            sends_gzip: false,
        }
    }
}
