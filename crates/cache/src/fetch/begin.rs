//! How a fetch begins.

use super::log::FetchLog;
use super::part;
use super::part_request::{PartRequest, part_request};
use super::prepare;
use super::purpose::Purpose;
use super::sparse::requester::Requester;
use super::state::{Fetch, Timeouts, Upload};
use super::wanted::Wanted;
use crate::local::{Current, Local};
use crate::session::Session;
use base::Time;
use base::vxid::Vxid;
use catalog::index::Key;
use catalog::sparse::layout::Layout;
use copal_base as base;
use copal_catalog as catalog;
use copal_observe as observe;
use copal_rules as rules;
use copal_vcl as vcl;
use copal_wire as wire;
use observe::{Kind, Tag};
use rules::request::Directives;
use std::net::SocketAddr;
use std::rc::Rc;
use vcl::exec::Machine;
use wire::{Fields, Known as Field, RequestHead, ResponseHead};

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
        fetch.part_request = part_request(wanted);
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
            part_request: PartRequest::default(),
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
}
