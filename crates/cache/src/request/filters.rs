//! The filters of one delivery: which they are, and the response that comes of them.

use super::esi::Assembly;
use super::esi::include::Includer;
use crate::body::Body;
use crate::body::filtered::Filtered;
use crate::exchange::{Exchange, Obj};
use crate::known::Known as Stored;
use crate::top::Top;
use copal_filter as filter;
use copal_observe as observe;
use copal_rules as rules;
use copal_store as store;
use copal_vcl as vcl;
use copal_wire as wire;
use filter::esi::script::is_gzipped;
use filter::gunzip::Gunzip;
use filter::names::{self, Delivering, Unknown};
use filter::{Chain, Filter, head};
use observe::Tag;
use rules::cache_control::CacheControl;
use std::io::IoSlice;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use store::{Cursor, Flags, State};
use vcl::value::Text;
use wire::Known;

/// The most that deflate expands by is less than this.
const RATIO_MAX: u64 = 1040;

/// The changes to be made to a body.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Changes {
    esi: bool,
    /// How often it is expanded: VCL may ask for more than once.
    gunzip: usize,
    /// Whether a part of it may be sent.
    pub(super) range: bool,
}

impl Changes {
    /// Whether the body goes out otherwise than it is stored.
    pub(super) fn changes_body(self) -> bool {
        self.esi || self.gunzip > 0
    }
}

/// Whether the client gets the body of `known` as it is stored, if VCL does not say otherwise.
#[inline]
pub(super) fn goes_as_stored(exchange: &Exchange, known: &Stored) -> bool {
    !known.is_special() || known.plan().is_none() && !must_expand(exchange, known.flags().has(Flags::GZIPPED))
}

fn must_expand(exchange: &Exchange, is_gzip: bool) -> bool {
    is_gzip
        && exchange.current.settings.http_gzip_support
        && !rules::coding::accepts_gzip(&exchange.request.fields)
}

/// Whether the client must be given the origin's own answer: what there is of it came as gzip, since that is what we ask
/// for on behalf of all clients, this one takes none, and the origin forbids to change it.
///
/// Source: RFC 9110, section 7.7; RFC 9111, section 5.2.2.6.
pub(crate) fn must_not_expand(exchange: &Exchange) -> bool {
    let forbids = || match &exchange.obj {
        Obj::Stored(known) => forbids_change(known.fields()),
        Obj::Private(private) => !private.passed && forbids_change(&exchange.response.fields),
        Obj::None => false,
    };
    exchange.rfc
        && exchange.esi_level == 0
        && matches!(exchange.request.method.as_slice(), b"GET" | b"HEAD")
        && must_expand(exchange, exchange.has_gzip())
        && forbids()
}

fn forbids_change(fields: &wire::Fields) -> bool {
    CacheControl::of(fields).no_transform
}

impl Exchange {
    /// The object whose ESI script the body follows, if it has one.
    fn scripted(&self) -> Option<&Rc<Stored>> {
        let known = match &self.obj {
            Obj::Stored(known) => known,
            Obj::Private(_) => self.body.stored()?,
            Obj::None => return None,
        };
        (known.is_special() && known.esi_script().is_some()).then_some(known)
    }

    /// Whether the response's body can be processed for ESI.
    pub(crate) fn can_esi(&self) -> bool {
        self.scripted().is_some()
    }

    /// Whether the body, as we have it, is a gzip stream.
    fn has_gzip(&self) -> bool {
        match &self.obj {
            Obj::Stored(known) => known.flags().has(Flags::GZIPPED),
            Obj::Private(private) => private.sends_gzip,
            Obj::None => false,
        }
    }

    fn default_filters(&self) -> &'static [u8] {
        let can_esi = self.can_esi();
        let esi = can_esi && self.do_esi.unwrap_or(self.esi);
        let range = self.current.settings.http_range_support
            && self.response.status == 200
            && self.request.fields.has_known(Known::Range);
        // What was passed is the origin's answer to this client's own request.
        let is_its_own = matches!(&self.obj, Obj::Private(private) if private.passed);
        let stays = self.rfc && is_its_own && forbids_change(&self.response.fields);
        names::of_delivery(esi, !stays && must_expand(self, self.has_gzip()), range)
    }

    /// `resp.filters`: as VCL set it, else what is done without.
    pub(crate) fn filter_list(&self) -> Text {
        self.filters.clone().unwrap_or_else(|| names::text(self.default_filters()))
    }
}

/// The changes to be made to this response's body; logs the list of filters.
///
/// # Errors
/// VCL names a filter that is none.
pub(super) fn wanted(exchange: &mut Exchange) -> Result<Changes, Unknown> {
    let list = exchange.filter_list();
    exchange.records.text(Tag::Filters, &list);
    if exchange.filters.is_none() && list.is_empty() {
        return Ok(Changes { range: true, ..Changes::default() });
    }
    let names = names::delivering(&list)?;
    let has_gzip = exchange.has_gzip();
    Ok(Changes {
        esi: names.contains(&Delivering::Esi) && exchange.can_esi(),
        gunzip: names.iter().filter(|name| **name == Delivering::Gunzip && has_gzip).count(),
        range: exchange.filters.is_none() || names.contains(&Delivering::Range),
    })
}

/// Whether a part of a body of our own may be sent, which nothing else is done to.
pub(super) fn may_cut(exchange: &Exchange) -> bool {
    exchange
        .filters
        .as_deref()
        .is_none_or(|list| names::delivering(list).is_ok_and(|names| names.contains(&Delivering::Range)))
}

/// Puts the body together and edits the head. Returns its length, if that is known.
pub(super) fn apply(exchange: &mut Exchange, wanted: Changes) -> Option<u64> {
    let mut length = None;
    if let Obj::Stored(known) = &exchange.obj {
        let known = Rc::clone(known);
        exchange.body = super::sparse::body(exchange, &known, 0, u64::MAX);
        if wanted.gunzip == 1 && !wanted.esi {
            length = expanded_length(&known);
        }
    }
    exchange.sends_gzip = exchange.has_gzip() && wanted.gunzip == 0;
    if let Some(known) = exchange.scripted().filter(|_| wanted.esi) {
        let known = Rc::clone(known);
        let joins = exchange.sends_gzip && known.esi_script().is_some_and(is_gzipped);
        let above = exchange.stitch.clone().filter(|_| joins);
        weaken(exchange);
        exchange.response.fields.remove_known(Known::ContentLength);
        let includer = includer(exchange);
        exchange.body = Body::made_by(Assembly::new(&known, includer, above));
    }
    if wanted.gunzip > 0 {
        expand(exchange, wanted.gunzip);
    }
    length
}

fn expand(exchange: &mut Exchange, times: usize) {
    let logged = exchange.records.wants(Tag::Gzip);
    let mut chain = Chain::default();
    for _ in 0..times {
        exchange.local.counters.n_gunzip.inc();
        let filter: Box<dyn Filter> = Box::new(Gunzip::deliver(logged));
        chain.push(filter);
    }
    let fields = &mut exchange.response.fields;
    if let Some(coding) = fields.get_known(Known::ContentEncoding) {
        exchange.records.header(Tag::RespUnset, b"Content-Encoding", coding);
        fields.remove_known(Known::ContentEncoding);
    }
    fields.remove_known(Known::ContentLength);
    weaken(exchange);
    let source = std::mem::take(&mut exchange.body);
    exchange.body = Body::made_by(Filtered::new(source, chain));
}

fn weaken(exchange: &mut Exchange) {
    let fields = &mut exchange.response.fields;
    if let Some(strong) = head::weaken(fields) {
        exchange.records.header(Tag::RespUnset, b"ETag", &strong);
        let weak = fields.get_known(Known::Etag).unwrap_or_default();
        exchange.records.header(Tag::RespHeader, b"ETag", weak);
    }
}

/// The maker of the response's includes.
fn includer(exchange: &Exchange) -> Includer {
    let top = exchange.top.clone().unwrap_or_else(|| {
        let mut top = Top { arrival: exchange.times.arrival, ..Top::default() };
        top.request.copy_from(&exchange.request);
        Rc::new(top)
    });
    let mut request = wire::RequestHead::default();
    request.copy_from(&exchange.request);
    let settings = &exchange.current.settings;
    Includer {
        local: Rc::clone(&exchange.local),
        session: Rc::clone(&exchange.session),
        current: Rc::clone(&exchange.current),
        request,
        vxid: exchange.vxid,
        level: exchange.esi_level,
        top,
        stitch: None,
        depth_max: settings.max_esi_depth,
        heeds_errors: settings.features.esi_include_onerror,
    }
}

/// The length to which a stored gzip stream expands. Its last bytes tell it modulo 2^32; they count where the stream was
/// verified and is too short to expand further.
fn expanded_length(known: &Stored) -> Option<u64> {
    let length = known.length()?;
    let is_exact = length.checked_mul(RATIO_MAX).is_some_and(|most| most < 1 << 32);
    if known.state() != State::Stored || !known.flags().has(Flags::CHECKED) || !is_exact || length < 4 {
        return None;
    }
    let mut cursor = Cursor::new(known, length - 4, length);
    let mut last = Vec::with_capacity(4);
    // A stored object has its bytes at hand; the four may lie in two places.
    while let Poll::Ready(Ok(true)) = cursor.poll_ready(known, &mut Context::from_waker(Waker::noop())) {
        let mut slices: Vec<IoSlice<'_>> = Vec::new();
        cursor.slices(known, 2, &mut slices);
        let before = last.len();
        last.extend(slices.iter().flat_map(|slice| slice.iter()));
        let count = last.len() - before;
        drop(slices);
        cursor.consume(known, count as u64);
    }
    Some(u64::from(u32::from_le_bytes(last.try_into().ok()?)))
}
