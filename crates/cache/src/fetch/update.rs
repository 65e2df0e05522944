//! What the origin's answer says of a stored response: a 304 confirms one, the answer to a HEAD updates or ends one.
//!
//! With the RFCs on, a fetch for a variant that is not there names the tags of those that are: an origin that would send one
//! of them says which, and its body is not sent again.
//!
//! Source: RFC 9111, sections 3.2, 4.1 and 4.3.

use super::purpose::Purpose;
use super::state::Fetch;
use crate::known::Known;
use copal_rules as rules;
use copal_store as store;
use copal_wire as wire;
use rules::conditional;
use rules::storable::Why;
use std::rc::Rc;
use std::sync::Arc;
use store::{Flags, Object, State};
use wire::{Fields, Known as Field};

/// The most other variants that one request asks about.
pub(crate) const OTHERS_MAX: usize = 8;

/// The meaning of an answer for what is stored.
pub(super) enum Heard {
    /// A response of its own.
    New,
    /// It confirms a stored response, which now stands in the answer's place. The fields are those of the answer as it came.
    Confirmed(Fields),
    /// It confirms something that is not stored here: the whole must be asked for.
    Again,
    /// A 304, although the request had no condition of ours.
    Unexpected,
}

/// Reads the answer in `fetch`, and applies what it says about stored responses.
pub(super) fn hear(fetch: &mut Fetch) -> Heard {
    if fetch.response.status == 304 && fetch.purpose != Purpose::Pass {
        if fetch.stale.is_none() && fetch.others.is_empty() {
            return Heard::Unexpected;
        }
        // An object that has outgrown its store meanwhile has lost its beginning.
        let Some(selected) = selected(fetch).filter(|stored| !stored.is_windowed()) else {
            return again(fetch);
        };
        return Heard::Confirmed(merge(fetch, &selected));
    }
    if !fetch.asks_head() {
        return Heard::New;
    }
    if fetch.response.status == 200
        && let Some(stale) = fetch.stale.clone()
    {
        // A body that we coded has another length than the origin's.
        let length = if stale.flags().has(Flags::RECODED) { None } else { stale.length() };
        if conditional::head_agrees(stale.fields(), length, &fetch.response.fields) {
            return Heard::Confirmed(merge(fetch, &stale));
        }
        fetch.local.shared.index.unlink(stale.object());
    }
    // A head alone is nothing to store.
    fetch.stale = None;
    fetch.uncacheable = true;
    fetch.refuse(Why::Method.into(), None);
    fetch.release();
    Heard::New
}

/// The stored response that a 304 speaks of.
fn selected(fetch: &mut Fetch) -> Option<Rc<Known>> {
    let newer = &fetch.response.fields;
    let confirms = |stored: &Known| {
        // A tag that we made weak says nothing about the origin's.
        stored.flags().has(Flags::RECODED)
            || if fetch.rfc {
                conditional::selects(stored.fields(), newer)
            } else {
                conditional::confirms(stored.fields(), newer)
            }
    };
    if fetch.others.is_empty() {
        return fetch.stale.clone().filter(|stale| confirms(stale));
    }
    // Of several without a name, it could be any.
    let tag = newer.get_known(Field::Etag)?;
    if let Some(stale) = fetch.stale.clone().filter(|stale| confirms(stale)) {
        return Some(stale);
    }
    let other = fetch.others.iter().find(|other| other.fields().get_known(Field::Etag) == Some(tag))?;
    fetch.stale = Some(Rc::clone(other));
    fetch.by_other = true;
    fetch.stale.clone()
}

fn again(fetch: &mut Fetch) -> Heard {
    forget_stored(fetch);
    Heard::Again
}

/// Asks for the response itself from now on, whatever is stored.
pub(super) fn forget_stored(fetch: &mut Fetch) {
    fetch.stale = None;
    fetch.others.clear();
    fetch.request.fields.remove_known(Field::IfNoneMatch);
    fetch.request.fields.remove_known(Field::IfModifiedSince);
}

/// The stored response with the news of the answer, in its place (RFC 9111, section 4.3.4); the answer's fields.
fn merge(fetch: &mut Fetch, stored: &Known) -> Fields {
    fetch.was_304 = true;
    let newer = std::mem::take(&mut fetch.response.fields);
    let merged = if fetch.rfc {
        conditional::update(stored.fields(), &newer)
    } else {
        conditional::merge_304(stored.fields(), &newer)
    };
    fetch.response.fields = merged;
    if stored.flags().has(Flags::RECODED) {
        copal_filter::head::weaken(&mut fetch.response.fields);
    }
    // A part that is kept by itself is one still.
    fetch.is_standalone = fetch.rfc && stored.status() == 206;
    fetch.response.status = stored.status();
    fetch.response.reason.clear();
    fetch.response.reason.extend_from_slice(stored.reason());
    newer
}

/// Whether what was confirmed can stay as it is: it is validated before each use, so nobody reads the time in its Date but
/// who asked, and all else is unchanged. Then its body need not be copied for each who asks.
pub(super) fn is_unchanged(fetch: &Fetch, variant: &[u8]) -> bool {
    let Some(stored) = fetch.stale.as_deref() else { return false };
    fetch.rfc
        && fetch.was_304
        && !fetch.by_other
        && fetch.ttl <= 0.0
        && fetch.grace <= 0.0
        && stored.variant() == variant
        && stored.status() == fetch.response.status
        && alike(stored.fields(), &fetch.response.fields)
}

/// Whether two heads have the same fields but for Date and the length of the body.
fn alike(one: &Fields, other: &Fields) -> bool {
    let counts = |known: Option<Field>| !matches!(known, Some(Field::Date | Field::ContentLength));
    let count = |fields: &Fields| fields.iter().filter(|field| counts(field.known)).count();
    count(one) == count(other)
        && one
            .iter()
            .filter(|field| counts(field.known))
            .all(|field| one.all(field.name).eq(other.all(field.name)))
}

/// Whether `object` is a response 200, with a head that an answer can update.
pub(crate) fn is_response(object: &Object) -> bool {
    object.status() == 200
        && object.state() != State::Failed
        && !object.is_windowed()
        && object.flags().0 & (Flags::HIT_FOR_MISS | Flags::HIT_FOR_PASS) == 0
}

/// Of `objects`, the likeliest first, those whose strong tags the origin may be asked about for a request that none of them
/// fits; `stale` is the one that does, if there is one.
pub(crate) fn others(objects: Vec<Arc<Object>>, stale: Option<&Known>) -> Vec<Rc<Known>> {
    // Dates of one variant say nothing about another, and a tag would hide them.
    if stale.is_some_and(|stale| !stale.fields().has_known(Field::Etag)) {
        return Vec::new();
    }
    let of_use = |object: &Arc<Object>| {
        is_response(object)
            && object.state() == State::Stored
            && object.flags().0 & (Flags::VALIDATOR | Flags::RECODED | Flags::SPARSE) == Flags::VALIDATOR
            && !object.is_gone()
            && stale.is_none_or(|stale| !Arc::ptr_eq(stale.object(), object))
    };
    let known = objects.into_iter().filter(of_use).map(|object| Rc::new(Known::new(object)));
    let mut others: Vec<Rc<Known>> = Vec::new();
    for one in known.filter(|known| strong_tag(known).is_some()) {
        if others.len() < OTHERS_MAX && others.iter().all(|other| strong_tag(other) != strong_tag(&one)) {
            others.push(one);
        }
    }
    others
}

fn strong_tag(known: &Known) -> Option<&[u8]> {
    known
        .fields()
        .get_known(Field::Etag)
        .filter(|tag| tag.len() > 2 && tag.starts_with(b"\"") && tag.ends_with(b"\""))
}

/// Adds the tags of other variants to the request's condition.
pub(super) fn add_tags(fetch: &mut Fetch) {
    let mut tags = fetch.request.fields.get_known(Field::IfNoneMatch).unwrap_or_default().to_vec();
    for tag in fetch.others.iter().filter_map(|other| strong_tag(other)) {
        if !tags.is_empty() {
            tags.extend_from_slice(b", ");
        }
        tags.extend_from_slice(tag);
    }
    fetch.request.fields.set_known(Field::IfNoneMatch, &tags);
}
