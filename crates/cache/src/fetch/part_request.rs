//! The part of an object that a fetch asks for in place of the whole, where the client wants a part.

use super::purpose::Purpose;
use super::sparse::ask::Ask;
use super::sparse::standalone;
use super::wanted::Wanted;
use copal_wire as wire;
use wire::{Fields, Known};

/// The part to ask for in place of the whole, if any.
#[derive(Debug, Default)]
pub(crate) struct PartRequest {
    /// This part, at once.
    pub(super) ask: Option<Ask>,
    /// This part, should the whole turn out to be large. Used for ranges near the start, which are mostly of small
    /// responses, while it is not known whether the backend or director serves ranges.
    pub(super) if_large: Option<Ask>,
    /// The backend or director whose support for ranges is noted from the answer.
    pub(super) name: Option<Box<str>>,
    /// The client has not asked for a part, so that a coded answer may be taken, whole.
    pub(super) takes_coded: bool,
    /// The client's fields that ask for a part, where one may be stored by itself
    /// ([`StandalonePart`](standalone::StandalonePart)).
    pub(super) range: Option<Box<Fields>>,
}

/// What to ask for in place of the whole of what is `wanted`.
pub(super) fn part_request(wanted: &Wanted<'_>) -> PartRequest {
    let Some(ask) = ask(wanted) else { return PartRequest::default() };
    let name: Option<Box<str>> = wanted.backend.as_ref().map(|backend| backend.name().into());
    let known = name.as_deref().and_then(|name| wanted.local.shared.range_support.of(name));
    let may_stand_alone = wanted.rfc && wanted.purpose == Purpose::Miss && !wanted.is_head();
    let range = may_stand_alone.then(|| asked(&wanted.request.fields));
    let plan = PartRequest { name, takes_coded: wanted.is_head(), range, ..PartRequest::default() };
    match known {
        _ if !ask.is_head() => PartRequest { ask: Some(ask), ..plan },
        Some(true) => PartRequest { ask: Some(ask), ..plan },
        Some(false) => PartRequest::default(),
        None => PartRequest { if_large: Some(ask), ..plan },
    }
}

/// The fields of a client's request that say which part it wants.
fn asked(request: &Fields) -> Box<Fields> {
    let mut asked = Box::new(Fields::new());
    for name in [Known::Range, Known::IfRange] {
        for value in request.all_known(name) {
            asked.push_known(name, value);
        }
    }
    asked
}

/// The part that the client wants, in whole segments (a short tail as it is, where that may be stored by itself); `None` if
/// it wants the whole. A HEAD asks for the first segments, which tell the length of the whole.
fn ask(wanted: &Wanted<'_>) -> Option<Ask> {
    let settings = &wanted.current.settings;
    let fields = &wanted.request.fields;
    let wants_head = wanted.is_head();
    if !wants_head && !fields.has_known(Known::Range) {
        return None;
    }
    let may = matches!(wanted.purpose, Purpose::Miss | Purpose::Background)
        && settings.segment_size > 0
        && settings.http_range_support
        // A response that could not be stored lately is fetched for this client alone.
        && wanted.marker.is_none();
    if !may {
        return None;
    }
    let (segment, min) = (settings.segment_size, settings.sparse_min_size);
    if wants_head {
        return Some(Ask::head(segment, min));
    }
    let mut values = fields.all_known(Known::Range);
    let (value, more) = (values.next()?, values.next());
    if more.is_some() || wanted.request.method != b"GET" {
        return None;
    }
    let tail = if wanted.rfc { Ask::tail(value, standalone::TAIL_MAX) } else { None };
    tail.or_else(|| Ask::of(value, segment, min))
}
