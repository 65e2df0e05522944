//! A request that an ESI include makes.
//!
//! It goes through all steps as a client's does, under the same VCL, with a transaction of its own. What it takes over from
//! the request that includes it: the head as VCL left it (but for what makes a response partial or conditional), the
//! client. It is a GET without a body.

use crate::exchange::{Exchange, SharedStitch, Times};
use crate::local::{Current, Local};
use crate::request::step::Outcome;
use crate::request_body::NoBody;
use crate::session::Session;
use crate::top::Top;
use base::vxid::Vxid;
use copal_base as base;
use copal_filter as filter;
use copal_observe as observe;
use copal_wire as wire;
use filter::esi::script;
use observe::{Kind, Tag};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use wire::{Known, RequestHead};

/// However high `max_esi_depth` is set, includes do not go deeper: each level takes some of the stack.
const DEPTH_MAX: u32 = 64;

/// The maker of one body's includes: what they have in common.
pub(crate) struct Includer {
    pub(crate) local: Rc<Local>,
    pub(crate) session: Rc<Session>,
    pub(crate) current: Rc<Current>,
    /// The request whose response includes.
    pub(crate) request: RequestHead,
    pub(crate) vxid: Vxid,
    pub(crate) level: u32,
    pub(crate) top: Rc<Top>,
    /// The gzip stream that the bodies become a part of.
    pub(crate) stitch: Option<SharedStitch>,
    /// `max_esi_depth`.
    pub(crate) depth_max: u32,
    /// The feature `esi_include_onerror`: an include that fails ends the whole unless it says `onerror="continue"`.
    pub(crate) heeds_errors: bool,
}

/// The request that an include asks for.
#[derive(Debug)]
pub(crate) struct Include {
    host: Vec<u8>,
    url: Vec<u8>,
    pub(crate) may_fail: bool,
}

impl Include {
    pub(crate) fn new(include: &script::Include<'_>) -> Self {
        Self { host: include.host.to_vec(), url: include.url.to_vec(), may_fail: include.may_fail }
    }
}

/// A request on its way to its response.
pub(crate) struct Started {
    pub(crate) vxid: Vxid,
    pub(crate) running: Pin<Box<dyn Future<Output = (Box<Exchange>, Outcome)>>>,
}

/// Why an include is not requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Includes already go as deep as they may: so deep.
    TooDeep(u32),
    /// Host or URL cannot be sent.
    NoRequest,
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TooDeep(max) => write!(f, "ESI depth limit reach (param max_esi_depth = {max})"),
            Self::NoRequest => f.write_str("ESI include cannot be requested: host or URL is malformed"),
        }
    }
}

impl Includer {
    /// Makes the request.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) fn request(&self, include: &Include) -> Result<Started, Refused> {
        let is_request = wire::syntax::sendable_target(&include.url)
            && (include.host.is_empty() || wire::syntax::valid_authority(&include.host));
        if self.level >= self.depth_max.min(DEPTH_MAX) {
            return Err(Refused::TooDeep(self.depth_max.min(DEPTH_MAX)));
        }
        if !is_request {
            return Err(Refused::NoRequest);
        }
        let mut exchange = Box::new(Exchange::new(&self.local, &self.session));
        self.head(include, &mut exchange.request);
        exchange.begin_include(self, include);
        let vxid = exchange.vxid;
        let running = Box::pin(async move {
            let outcome = exchange.run_include().await;
            (exchange, outcome)
        });
        Ok(Started { vxid, running })
    }

    fn head(&self, include: &Include, head: &mut RequestHead) {
        head.copy_from(&self.request);
        head.method.clear();
        head.method.extend_from_slice(b"GET");
        head.target.clear();
        head.target.extend_from_slice(&include.url);
        let fields = &mut head.fields;
        if !include.host.is_empty() {
            fields.set_known(Known::Host, &include.host);
        }
        for name in [
            Known::IfMatch,
            Known::IfModifiedSince,
            Known::IfNoneMatch,
            Known::IfRange,
            Known::IfUnmodifiedSince,
            Known::Range,
            Known::ContentLength,
            Known::TransferEncoding,
        ] {
            fields.remove_known(name);
        }
        if self.stitch.is_none() {
            fields.remove_known(Known::AcceptEncoding);
        }
    }
}

impl Exchange {
    /// Begins a request that an include makes: `self.request` is made already, from that of `includer`.
    fn begin_include(&mut self, includer: &Includer, include: &Include) {
        let now = self.local.now();
        self.current = Rc::clone(&includer.current);
        self.vxid = self.local.vxid();
        self.now = now;
        self.times = Times { start: now, arrival: now, previous: now };
        self.esi_level = includer.level + 1;
        self.top = Some(Rc::clone(&includer.top));
        self.stitch = includer.stitch.clone();
        self.may_fail = include.may_fail;
        self.proto = None;
        self.begun = true;
        self.reset_for_recv();
        self.local.counters.esi_req.inc();
        self.records.begin(self.vxid, Kind::Client);
        self.records.link(Tag::Begin, "req", includer.vxid, "esi");
        self.records.timestamp("Start", now, now, now);
        self.records.text(Tag::ReqURL, &self.request.target);
        self.log_request_start();
        self.original.copy_from(&self.request);
    }

    /// Answers the request that [`Exchange::begin_include`] began.
    async fn run_include(&mut self) -> Outcome {
        super::super::run(self, &mut NoBody).await
    }
}
