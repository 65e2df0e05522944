//! What became of a request, as `Cache-Status` tells it: answered from the cache, or sent on, and why.
//!
//! Noted by the steps as they decide, in a few bytes that cost nothing to note; made into a field only where that is
//! wanted (`cache_status`).
//!
//! Source: RFC 9211, section 2.

use catalog::reason::Reason;
use copal_catalog as catalog;
use copal_rules as rules;
use rules::cache_status::Forward;

/// The course of a request so far, for `Cache-Status`.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Handled {
    /// Why it was forwarded; `None` if it was not.
    pub(crate) forward: Option<Forward>,
    /// The answer to the forwarded request.
    pub(crate) arrived: Option<Arrived>,
    /// The answer was stored.
    pub(crate) stored: bool,
    /// It was collapsed with another request's fetch.
    pub(crate) collapsed: bool,
}

/// The answer to a forwarded request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Arrived {
    /// Its status as it came.
    pub(crate) status: u16,
    /// What is delivered was made, or confirmed, by the origin for this request: no cache had it before, and it is not a
    /// stale object in the place of a failure.
    pub(crate) direct: bool,
}

impl Handled {
    /// It is forwarded, for this reason.
    pub(crate) fn forward(&mut self, why: Forward) {
        self.forward = Some(why);
    }

    /// It is answered from the segments that are stored, and forwarded for the rest.
    pub(crate) fn partial(&mut self) {
        (self.forward, self.stored) = (Some(Forward::Partial), true);
    }

    /// It is forwarded, since lookup found nothing for it.
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

    /// It passes the cache; the reason stays if one is noted already.
    pub(crate) fn passed(&mut self, method: &[u8]) {
        let why = if matches!(method, b"GET" | b"HEAD") { Forward::Bypass } else { Forward::Method };
        self.forward = self.forward.or(Some(why));
    }

    /// The answer has arrived.
    pub(crate) fn arrived(&mut self, arrived: Option<Arrived>, stored: bool) {
        (self.arrived, self.stored) = (arrived, stored);
    }

    /// Whether the response comes from the origin, now and by no cache on the way.
    pub(crate) fn is_direct(&self) -> bool {
        self.arrived.is_some_and(|arrived| arrived.direct)
    }
}
