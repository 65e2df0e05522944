//! What became of a request, as `Cache-Status` tells it: answered from the cache, or sent on, and why.
//!
//! Noted by the steps as they decide, in a few bytes that cost nothing to note; made into a field only where that is
//! wanted (`cache_status`).
//!
//! Source: RFC 9211, section 2.

use super::prepared::BY_RFC;
use crate::exchange::{Exchange, Source};
use crate::settings::CacheStatus;
use base::Seconds;
use catalog::index::lookup::ttl_for;
use catalog::reason::Reason;
use copal_base as base;
use copal_catalog as catalog;
use copal_rules as rules;
use copal_store as store;
use rules::cache_status::{Entry, Forward, Forwarded, Handling};
use store::Object;

/// What became of a request so far.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Handled {
    /// Why it was sent on; `None` if it was not.
    forward: Option<Forward>,
    /// What came of that.
    arrived: Option<Arrived>,
    /// The answer was stored.
    stored: bool,
    /// It shared another request's fetch.
    collapsed: bool,
}

/// The answer to a request that was sent on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Arrived {
    /// Its status as it came.
    pub(crate) status: u16,
    /// What is delivered was made, or confirmed, by the origin for this request: no cache had it before, and it is not a
    /// stale object in the place of a failure.
    pub(crate) direct: bool,
}

impl Handled {
    /// It is sent on, for this reason.
    pub(crate) fn forward(&mut self, why: Forward) {
        self.forward = Some(why);
    }

    /// It is answered from what is stored in part, and sent on for the rest.
    pub(crate) fn partial(&mut self) {
        (self.forward, self.stored) = (Some(Forward::Partial), true);
    }

    /// It is sent on, since the cache has nothing for it.
    pub(crate) fn missed(&mut self, missed: Reason) {
        self.forward = Some(match missed {
            Reason::Absent | Reason::Banned => Forward::UriMiss,
            Reason::Variant => Forward::VaryMiss,
            Reason::OtherPart => Forward::Partial,
            Reason::Expired => Forward::Stale,
            Reason::RequestNoCache | Reason::RequestMaxAge | Reason::MinFresh | Reason::Precondition => {
                Forward::Request
            }
            Reason::AlwaysMiss => Forward::Bypass,
            _ => Forward::Miss,
        });
    }

    /// It waited for another's fetch, and is answered by what that brought.
    pub(crate) fn collapsed(&mut self, missed: Reason) {
        self.missed(missed);
        self.collapsed = true;
    }

    /// It goes by the cache, unless it is known already why.
    pub(crate) fn passed(&mut self, method: &[u8]) {
        let why = if matches!(method, b"GET" | b"HEAD") { Forward::Bypass } else { Forward::Method };
        self.forward = self.forward.or(Some(why));
    }

    /// What came of sending it on.
    pub(crate) fn arrived(&mut self, arrived: Option<Arrived>, stored: bool) {
        (self.arrived, self.stored) = (arrived, stored);
    }

    /// Whether the response comes from the origin, now and by no cache on the way.
    pub(crate) fn is_direct(&self) -> bool {
        self.arrived.is_some_and(|arrived| arrived.direct)
    }
}

/// What is left of an object's freshness by whole seconds, as [`Age`](wire::Known::Age) counts them: it changes when that
/// does, and is negative once it is stale.
pub(crate) fn ttl_left(object: &Object, ttl_max: Option<Seconds>, age: u64) -> i64 {
    (ttl_for(object, ttl_max) as i64).saturating_sub_unsigned(age)
}

impl Exchange {
    /// Whether the response has a `Cache-Status` of ours.
    #[inline]
    pub(crate) fn shows_status(&self) -> bool {
        match self.current.settings.cache_status {
            CacheStatus::Off => false,
            CacheStatus::Auto => self.rfc,
            CacheStatus::On | CacheStatus::Detail => true,
        }
    }

    /// Appends our member to the response's `Cache-Status`; `age` is the response's.
    pub(crate) fn append_status(&mut self, age: u64) {
        let Handled { forward, arrived, stored, collapsed } = self.handled;
        let ttl = match &self.source {
            Source::Stored(known) if forward.is_none() || stored || collapsed => {
                Some(ttl_left(known, self.ttl_max, age))
            }
            Source::Stored(_) | Source::Private(_) | Source::None => None,
        };
        let in_detail = self.current.settings.cache_status == CacheStatus::Detail;
        let key = in_detail.then(|| readable(&self.hash_input));
        let handling = match forward {
            None => Handling::Hit,
            Some(why) => {
                // The status of the answer is that of the response unless said; conditions and ranges may yet change it.
                let may_change = self.request.fields.has_any(BY_RFC);
                let other = |status: &u16| may_change || *status != self.response.status;
                let status = arrived.map(|arrived| arrived.status).filter(other);
                Handling::Forwarded(Forwarded { why, status, stored, collapsed })
            }
        };
        let entry = Entry {
            cache: &self.current.settings.identity,
            handling,
            ttl: ttl.map(|seconds| seconds as Seconds),
            key: key.as_deref(),
            detail: in_detail.then(|| self.reason().name()),
        };
        entry.append_to(&mut self.response.fields);
    }
}

/// What `hash_data` was given, with blanks between.
fn readable(hash_input: &[u8]) -> Vec<u8> {
    let parts = hash_input.split(|byte| *byte == super::hash::SEPARATOR).filter(|part| !part.is_empty());
    parts.collect::<Vec<_>>().join(&b' ')
}
