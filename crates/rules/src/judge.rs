//! Whether a response may be stored and for how long it may be used, by RFC 9111: what `rfc=on` does in place of [`crate::ttl`]
//! and [`crate::storable`].
//!
//! ```text
//! the origin made it    received             + ttl            + grace               + keep
//!        t_origin ─────────┼────── fresh ──────┼── while a new ──┼── to be validated ──┼ gone
//!                                                one is fetched
//! ```
//! Nothing is stale without permission: grace is what `stale-while-revalidate` gives, and 0 without it. What has to be
//! validated before each use has neither ttl nor grace, but is kept.
//!
//! Source: RFC 9111, sections 3, 4.2 and 5.2.2; RFC 5861; RFC 9213.

use crate::policy::Policy;
use crate::storable::{Storable, Why};
use crate::targeted::Names;
use crate::ttl::Lifetime;
use crate::{age, heuristics, vary};
use copal_base::{Seconds, Time};
use copal_wire::{Fields, Known, date};

/// The request as it was sent to the origin.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// Its method.
    pub method: &'a [u8],
    /// Its fields.
    pub fields: &'a Fields,
    /// The client's request had Authorization.
    pub authorized: bool,
    /// The client's request had `Cache-Control: no-store`; one in `fields` counts as well.
    pub no_store: bool,
    /// When it was sent.
    pub requested: Time,
}

/// The response as it came, or after a 304 the stored one with what the 304 changed.
#[derive(Debug, Clone, Copy)]
pub struct Answer<'a> {
    /// Its status.
    pub status: u16,
    /// Its fields.
    pub fields: &'a Fields,
    /// When it came.
    pub received: Time,
}

/// The settings that take part, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Defaults<'a> {
    /// The longest guessed freshness of an error (`default_ttl`). A response that neither says how long it is fresh nor has
    /// Last-Modified is not, whatever stands here.
    pub ttl: Seconds,
    /// How long any response is kept after it was usable (`default_keep`).
    pub keep: Seconds,
    /// The least that a response is kept which can be validated.
    pub keep_validated: Seconds,
    /// The longest freshness by Last-Modified.
    pub heuristic_max: Seconds,
    /// The longest freshness of an error (a status of 400 or more), whatever it says.
    pub negative_max: Seconds,
    /// The targeted fields to obey.
    pub targets: &'a Names,
}

impl Default for Defaults<'static> {
    fn default() -> Self {
        Self {
            ttl: 120.0,
            keep: 0.0,
            keep_validated: 86_400.0,
            heuristic_max: 86_400.0,
            negative_max: 3_600.0,
            targets: Names::standard(),
        }
    }
}

/// What the rules say of a response.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// Whether it may be stored. It is not, too, if it could never be used.
    pub storable: Storable,
    /// Its times; ttl, grace and keep are 0 if it may not be stored, ttl and grace if it must be validated before each use.
    pub lifetime: Lifetime,
    /// Seconds after its freshness that it may be used when the origin fails (`stale-if-error`); within grace and keep.
    pub stale_if_error: Seconds,
    /// Its freshness is a guess: a client may be told so.
    pub heuristic: bool,
    /// Names of fields, in lower case, that must not be stored with it (`private="..."`, `no-cache="..."`): they go to
    /// the client whose request it answers, to no other.
    pub left_out: Vec<Vec<u8>>,
}

/// Judges the response `answer` to the request `asked`.
///
/// A 206 is judged like others; whether it can be kept is for the caller to see. A time that is too large for the format
/// counts as the largest one.
///
/// Source: RFC 9111, sections 3 and 4.2.
pub fn judge(asked: &Asked<'_>, answer: &Answer<'_>, defaults: &Defaults<'_>) -> Verdict {
    let policy = Policy::of(answer.fields, defaults.targets);
    let freshness = freshness(answer, &policy, defaults);
    let age = age::initial(answer.fields, asked.requested, answer.received);
    let mut verdict = Verdict {
        storable: Storable::Yes,
        lifetime: Lifetime {
            ttl: freshness.seconds,
            grace: 0.0,
            keep: 0.0,
            t_origin: answer.received - age,
            age: age::of(answer.fields).unwrap_or(0),
            date: age::date(answer.fields).unwrap_or(0.0),
            expires: answer.fields.get_known(Known::Expires).and_then(date::parse).unwrap_or(0.0),
            max_age: freshness.max_age,
        },
        stale_if_error: 0.0,
        heuristic: freshness.heuristic,
        left_out: Vec::new(),
    };
    add_staleness(&mut verdict, answer.fields, &policy, defaults);
    let Lifetime { ttl, grace, keep, .. } = verdict.lifetime;
    verdict.storable = match obstacle(asked, answer, &policy, &freshness) {
        Some(why) => Storable::No(why),
        None if ttl + grace + keep > age => Storable::Yes,
        None => Storable::No(Why::Expired),
    };
    if verdict.storable == Storable::Yes {
        verdict.left_out = policy.left_out;
    } else {
        (verdict.lifetime.ttl, verdict.lifetime.grace, verdict.lifetime.keep) = (0.0, 0.0, 0.0);
        verdict.stale_if_error = 0.0;
    }
    verdict
}

/// Whether the `response` to a POST is what a GET of `target` would bring: its Content-Location names that very target.
/// The caller then judges it as if it had been asked for with GET, and stores it only if the verdict is not heuristic.
/// `target`, `host` and `scheme` are as in [`crate::invalidate::targets`].
///
/// Source: RFC 9110, section 9.3.3.
pub fn answers_get(response: &Fields, target: &[u8], host: &[u8], scheme: &[u8]) -> bool {
    let mut named = response.all_known(Known::ContentLocation);
    let (Some(location), None) = (named.next(), named.next()) else { return false };
    crate::invalidate::resolve(location, target, host, scheme).is_some_and(|named| named == target)
}

/// How long a response is fresh, and how that is known.
struct Freshness {
    seconds: Seconds,
    /// The `s-maxage` or `max-age` that decided, else 0.
    max_age: u32,
    /// It is not from the response.
    heuristic: bool,
    /// Neither the response nor its status allow a guess.
    unknown: bool,
}

/// Source: RFC 9111, sections 4.2.1 and 4.2.2.
fn freshness(answer: &Answer<'_>, policy: &Policy, defaults: &Defaults<'_>) -> Freshness {
    let mut found = Freshness { seconds: 0.0, max_age: 0, heuristic: false, unknown: false };
    if let Some(seconds) = policy.s_maxage.or(policy.max_age) {
        found.max_age = seconds;
        found.seconds = f64::from(seconds);
    } else if !policy.targeted && answer.fields.has_known(Known::Expires) {
        found.seconds = by_expires(answer);
    } else if policy.public || heuristics::is_heuristically_cacheable(answer.status) {
        found.heuristic = true;
        found.seconds = heuristics::freshness(
            answer.status,
            answer.fields,
            answer.received,
            defaults.ttl,
            defaults.heuristic_max,
        );
    } else {
        found.unknown = true;
    }
    if answer.status >= 400 {
        found.seconds = found.seconds.min(defaults.negative_max.max(0.0));
    }
    if policy.no_cache {
        found.seconds = 0.0;
    }
    found
}

/// Expires against Date, or against the time of reception without one. The earliest of several counts; what is no date is
/// in the past.
///
/// Source: RFC 9111, sections 4.2.1 and 5.3.
fn by_expires(answer: &Answer<'_>) -> Seconds {
    let made = age::date(answer.fields).unwrap_or(answer.received);
    let earliest = answer
        .fields
        .all_known(Known::Expires)
        .map(|value| date::parse(value).unwrap_or(Time::NEG_INFINITY))
        .fold(Time::INFINITY, Time::min);
    (earliest - made).clamp(0.0, f64::from(crate::cache_control::DELTA_MAX))
}

/// Grace, keep and stale-if-error.
///
/// Source: RFC 5861, sections 3 and 4; RFC 9111, section 4.2.4.
fn add_staleness(verdict: &mut Verdict, response: &Fields, policy: &Policy, defaults: &Defaults<'_>) {
    let lifetime = &mut verdict.lifetime;
    lifetime.keep = defaults.keep.max(0.0);
    if has_validator(response) {
        lifetime.keep = lifetime.keep.max(defaults.keep_validated);
    }
    if policy.forbids_stale() {
        return;
    }
    lifetime.grace = policy.stale_while_revalidate.map_or(0.0, f64::from);
    verdict.stale_if_error = policy.stale_if_error.map_or(0.0, f64::from);
    lifetime.keep = lifetime.keep.max(verdict.stale_if_error - lifetime.grace);
}

/// Whether the origin can be asked if the response is still good.
fn has_validator(response: &Fields) -> bool {
    response.get_known(Known::Etag).is_some_and(|tag| !tag.is_empty())
        || response.get_known(Known::LastModified).and_then(date::parse).is_some()
}

/// Why a response may not be stored, if so.
///
/// Source: RFC 9111, sections 3, 3.5, 4.1 and 5.2.2.
fn obstacle(asked: &Asked<'_>, answer: &Answer<'_>, policy: &Policy, freshness: &Freshness) -> Option<Why> {
    let understood = heuristics::is_understood(answer.status);
    let fields = answer.fields;
    if asked.method != b"GET" {
        return Some(Why::Method);
    }
    if answer.status < 200 || answer.status == 304 {
        return Some(Why::Status);
    }
    if policy.must_understand && !understood {
        return Some(Why::NotUnderstood);
    }
    if policy.no_store && !policy.must_understand {
        return Some(Why::NoStore);
    }
    if asked.no_store || crate::request::Directives::of(asked.fields).no_store {
        return Some(Why::RequestNoStore);
    }
    if policy.private {
        return Some(Why::Private);
    }
    if asked.authorized && !policy.allows_authorized() {
        return Some(Why::Authorization);
    }
    if surrogates_may_not(fields) {
        return Some(Why::SurrogateControl);
    }
    match vary::check(fields) {
        Ok(()) => {}
        Err(vary::Unusable::Star) => return Some(Why::VaryStar),
        Err(vary::Unusable::Malformed | vary::Unusable::TooLong) => return Some(Why::VaryUnusable),
    }
    if freshness.unknown {
        return Some(Why::NotCacheable);
    }
    // Storing it is our guess, not the origin's word, and a guess must not give one client's cookie to another.
    (freshness.heuristic && !policy.public && fields.has_known(Known::SetCookie)).then_some(Why::SetCookie)
}

/// Whether `Surrogate-Control` has `no-store`: no RFC's, but the origin means caches like this one.
fn surrogates_may_not(response: &Fields) -> bool {
    response
        .all_known(Known::SurrogateControl)
        .flat_map(crate::directive::directives)
        .any(|directive| directive.name.eq_ignore_ascii_case(b"no-store"))
}

#[cfg(test)]
mod tests;
