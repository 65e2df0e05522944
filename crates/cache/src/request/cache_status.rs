//! Our member of a response's `Cache-Status`: what became of the request, from what the steps have [noted](Handled).
//!
//! Source: RFC 9211, section 2.

use crate::exchange::{Exchange, Obj};
use crate::handled::Handled;
use crate::repeats::BY_RFC;
use crate::settings::CacheStatus;
use base::Seconds;
use catalog::index::lookup::ttl_for;
use copal_base as base;
use copal_catalog as catalog;
use copal_rules as rules;
use copal_store as store;
use rules::cache_status::{Entry, Forwarded, Handling};
use store::Object;

/// What is left of an object's freshness by whole seconds, as `Age` counts them: it changes when that
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
        let ttl = match &self.obj {
            Obj::Stored(known) if forward.is_none() || stored || collapsed => {
                Some(ttl_left(known, self.ttl_max, age))
            }
            Obj::Stored(_) | Obj::Private(_) | Obj::None => None,
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
