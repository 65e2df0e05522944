//! The facts of what stands under a key, for one request.

use crate::exchange::Exchange;
use crate::known::Known;
use crate::request::{lookup, sparse};
use base::{Seconds, Time};
use catalog::ban::Listed;
use catalog::index::lookup::{Judged, Peeked, ttl_for};
use catalog::marker::Marked;
use catalog::reason::Reason;
use catalog::sparse::claim::is_there;
use catalog::sparse::layout::Pieces;
use copal_base as base;
use copal_catalog as catalog;
use copal_rules as rules;
use copal_store as store;
use copal_vcl::variables::Var;
use copal_wire::{Fields, Known as Field};
use std::sync::Arc;
use store::{Flags, Object, State};

/// What stands under the request's key.
#[derive(Clone, Debug)]
pub struct Looked {
    /// The objects, the newest first.
    pub objects: Vec<Seen>,
    /// How many further ones stand on devices, and are not in memory.
    pub entries: usize,
    /// Fetches that run under the key.
    pub fetches: usize,
    /// Requests that wait for one of them.
    pub waiting: usize,
    /// Whether one of the fetches is for requests like this.
    pub fetched: bool,
}

/// A field that a response varies by.
#[derive(Clone, Debug)]
pub struct Varying {
    /// In lower case.
    pub name: Vec<u8>,
    /// What it was in the request that fetched the response; `None` if it was absent.
    pub stored: Option<Vec<u8>>,
    /// What it is in the request asked about.
    pub asked: Option<Vec<u8>>,
}

/// An object or a marker. Times are in seconds; those that are left may be negative.
#[derive(Clone, Debug)]
pub struct Seen {
    /// What it is to the request.
    pub judged: Judged,
    /// Whether it is what decides: what would be served, validated, or the marker in force.
    pub decides: bool,
    /// `hit-for-miss` or `hit-for-pass` if it is a marker.
    pub marker: Option<&'static str>,
    /// Why the response was not stored that left this marker.
    pub marked: Option<Marked>,
    /// The transaction that fetched it.
    pub vxid: u32,
    /// HTTP status.
    pub status: u16,
    /// Since its origin time.
    pub age: Seconds,
    /// Its lifetime, for this request: `req.ttl` may shorten it.
    pub ttl: Seconds,
    /// What is left of it.
    pub ttl_left: Seconds,
    /// How long after that it serves while a new one is fetched, for this request.
    pub grace: Seconds,
    /// What is left of that.
    pub grace_left: Seconds,
    /// How long after that it can be validated.
    pub keep: Seconds,
    /// What is left of that.
    pub keep_left: Seconds,
    /// What it varies by.
    pub vary: Vec<Varying>,
    /// The store that it is in.
    pub store: String,
    /// Hits, if the VCL uses `obj.hits` and they are counted.
    pub hits: Option<u32>,
    /// When it was last used, in whole seconds; `None` if it has not been.
    pub last_use: Option<Time>,
    /// Body bytes that are there.
    pub bytes: u64,
    /// Body bytes that there will be, if known.
    pub length: Option<u64>,
    /// Whether its body is still arriving.
    pub is_filling: bool,
    /// Whether its body is stored as a gzip stream.
    pub is_gzip: bool,
    /// `ETag` and `Last-Modified`.
    pub validators: (Option<Vec<u8>>, Option<Vec<u8>>),
    /// The ban that has hit it.
    pub ban: Option<Listed>,
    /// The segments of its body, if it is kept in pieces.
    pub segments: Option<Segments>,
}

/// The segments of an object that is kept in pieces.
#[derive(Clone, Copy, Debug)]
pub struct Segments {
    /// The size of each but the last, in bytes.
    pub size: u64,
    /// How many there are.
    pub count: u64,
    /// How many of them are stored or arriving; of very many it is not counted.
    pub there: Option<u64>,
    /// How many the request wants.
    pub wanted: u64,
    /// How many of these are stored or arriving.
    pub wanted_there: Option<u64>,
}

/// Of more segments it is not counted which are there.
const SEGMENTS_MAX: u64 = 1 << 16;

impl Seen {
    /// Whether it can be validated.
    pub fn has_validator(&self) -> bool {
        self.validators.0.is_some() || self.validators.1.is_some()
    }
}

/// The facts of what was found.
pub(super) fn look(exchange: &Exchange, peeked: &Peeked) -> Looked {
    let decides = |object: &Arc<Object>| peeked.object.as_ref().is_some_and(|it| Arc::ptr_eq(it, object));
    let facts = |(object, judged): &(Arc<Object>, Judged)| see(exchange, object, *judged, decides(object));
    Looked {
        objects: peeked.objects.iter().map(facts).collect(),
        entries: peeked.entries,
        fetches: peeked.fetches,
        waiting: peeked.waiting,
        fetched: peeked.fetched,
    }
}

fn see(exchange: &Exchange, object: &Arc<Object>, judged: Judged, decides: bool) -> Seen {
    let known = Known::new(Arc::clone(object));
    let marker = match object.flags() {
        flags if flags.has(Flags::HIT_FOR_PASS) => Some(Reason::HitForPass.name()),
        flags if flags.has(Flags::HIT_FOR_MISS) => Some(Reason::HitForMiss.name()),
        _ => None,
    };
    let now = exchange.now;
    let ttl = ttl_for(object, exchange.ttl_max);
    let grace = exchange.grace_max.map_or(object.grace(), |max| object.grace().min(max));
    let stale_at = object.origin_time() + ttl;
    let field = |name| known.fields().get_known(name).map(<[u8]>::to_vec);
    let counted = exchange.current.vcl.as_ref().is_some_and(|vcl| vcl.instance.program.uses(Var::ObjHits));
    Seen {
        judged,
        decides,
        marker,
        marked: marker.and_then(|_| Marked::of(object.head())),
        vxid: object.vxid(),
        status: object.status(),
        age: now - object.origin_time(),
        ttl,
        ttl_left: stale_at - now,
        grace,
        grace_left: stale_at + grace - now,
        keep: object.keep(),
        keep_left: stale_at + object.grace() + object.keep() - now,
        vary: vary(object.variant(), &exchange.request.fields),
        store: object.engine().to_owned(),
        hits: counted.then(|| object.hits()),
        last_use: Some(object.last_use()).filter(|second| *second > 0).map(Time::from),
        bytes: object.filled(),
        length: object.length(),
        is_filling: object.state() == State::Filling,
        is_gzip: object.flags().has(Flags::GZIPPED),
        validators: (field(Field::Etag), field(Field::LastModified)),
        ban: lookup::ban_of(exchange, object),
        segments: segments(exchange, &known),
    }
}

/// The segments of an object, and what the request wants of them.
pub(super) fn segments(exchange: &Exchange, known: &Known) -> Option<Segments> {
    let pieces = Pieces::of(known.object())?;
    let (layout, index) = (&pieces.layout, &exchange.local.shared.index);
    let count = layout.count();
    let there = |number: u64| is_there(index, &pieces.base, number);
    let counted =
        |numbers: &mut dyn Iterator<Item = u64>| numbers.filter(|number| there(*number)).count() as u64;
    let ranges = sparse::wanted(exchange, known).unwrap_or_default();
    let numbers = ranges.iter().filter(|(from, end)| from < end);
    let mut wanted: Vec<(u64, u64)> =
        numbers.map(|(from, end)| (layout.number(*from), layout.number(end - 1) + 1)).collect();
    wanted.sort_unstable();
    // Each segment once, in whatever many ranges it is.
    let mut next = 0;
    for (from, end) in &mut wanted {
        *from = (*from).max(next);
        *end = (*end).max(*from);
        next = *end;
    }
    let few = count <= SEGMENTS_MAX;
    Some(Segments {
        size: layout.segment,
        count,
        there: few.then(|| counted(&mut (0..count))),
        wanted: wanted.iter().map(|(from, end)| end - from).sum(),
        wanted_there: few.then(|| counted(&mut wanted.iter().flat_map(|(from, end)| *from..*end))),
    })
}

fn vary(variant: &[u8], request: &Fields) -> Vec<Varying> {
    let entries = rules::vary::entries(variant).map(|wanted| Varying {
        name: wanted.name.to_vec(),
        stored: wanted.value.map(<[u8]>::to_vec),
        asked: request
            .has(wanted.name)
            .then(|| request.all(wanted.name).collect::<Vec<_>>().join(&b", "[..])),
    });
    entries.collect()
}
