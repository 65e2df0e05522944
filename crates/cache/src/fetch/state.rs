//! One fetch: all that its steps share, as data.

use super::log::{FetchLog, VCL_CLOSED};
use super::part_request::PartRequest;
use super::purpose::Purpose;
use super::sparse::answer::Part;
use super::sparse::ask::Ask;
use super::sparse::channel::JobHandle;
use crate::body::Body;
use crate::handled::Arrived;
use crate::known::Known;
use crate::local::{Current, Local};
use crate::session::Session;
use crate::trouble::Trouble;
use base::vxid::Vxid;
use base::{Seconds, Time};
use catalog::index::Key;
use catalog::index::busy::Busy;
use catalog::reason::Reason;
use catalog::sparse::layout::Validator;
use copal_base as base;
use copal_catalog as catalog;
use copal_origin as origin;
use copal_rules as rules;
use copal_store as store;
use copal_vcl as vcl;
use copal_wire as wire;
use rules::request::Directives;
use std::any::Any;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use store::Object;
use vcl::exec::Machine;
use vcl::host::Sub;
use vcl::places::At;
use vcl::value::{BackendRef, Text};
use wire::h1::{RequestFraming, ResponseFraming};
use wire::{Fields, RequestHead, ResponseHead};

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
pub(crate) enum Step {
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
    pub(super) fn failed() -> Self {
        Self::Broken
    }

    /// The status and reason with which `vcl_backend_error` begins if VCL gives none; the words are Varnish's.
    pub(super) fn error() -> Self {
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
    pub(super) fn over(self, backend: origin::Timeouts) -> origin::Timeouts {
        origin::Timeouts {
            connect: self.connect.unwrap_or(backend.connect),
            first_byte: self.first_byte.unwrap_or(backend.first_byte),
            between_bytes: self.between_bytes.unwrap_or(backend.between_bytes),
        }
    }
}

/// The targets that a request may change.
#[derive(Debug)]
pub(crate) struct Change {
    /// The keys of its own target: that of a GET, and that of the request itself.
    pub(crate) keys: [Key; 2],
    /// Its target as the cache knows it.
    pub(crate) target: Vec<u8>,
    /// Its host as the client named it.
    pub(crate) host: Vec<u8>,
    /// Other targets, once there is an answer: path and query.
    pub(crate) others: Vec<Vec<u8>>,
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
    pub(crate) change: Option<Box<Change>>,
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
    pub(crate) part_request: PartRequest,
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
    /// Leaves the answer unread. Its connection can be used again only if there was nothing to read.
    pub(super) fn give_up(&mut self, answer: Answer, next: Step) -> Step {
        if let (ResponseFraming::None | ResponseFraming::Length(0), Some(connection)) =
            (answer.framing, answer.connection)
        {
            self.log.release(connection);
        } else {
            self.log.closed(VCL_CLOSED);
        }
        next
    }

    /// Gives the right to fetch up without an object: the requests that wait look again.
    pub(super) fn release(&mut self) {
        if let Some(busy) = self.busy.take() {
            busy.release();
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

    /// Has the origin asked by HEAD whether `stale` is still good: the answer updates that, or ends it.
    pub(crate) fn ask_head(&mut self, stale: Arc<Object>) {
        self.stale = Some(Rc::new(Known::new(stale)));
        self.part_request = PartRequest::default();
        for request in [&mut self.request, &mut self.original] {
            request.method.clear();
            request.method.extend_from_slice(b"HEAD");
        }
    }

    /// Whether the request was a HEAD about a stored response.
    pub(crate) fn asks_head(&self) -> bool {
        self.rfc && self.purpose == Purpose::Miss && self.request.method == b"HEAD"
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
            self.release();
        }
    }

    pub(crate) fn is_builtin(&self, subroutine: Sub) -> bool {
        self.current.vcl.as_ref().is_some_and(|vcl| vcl.instance.program.is_builtin(subroutine))
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
