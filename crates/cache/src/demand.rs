//! What a request asks of a stored response besides that it fit and be fresh: directives in Cache-Control or Pragma, and
//! conditions that only the present representation can answer. With `req.rfc` alone; all others ask for nothing.
//!
//! A 412 is a statement about what the origin has now. So a stored response that fails If-Match or If-Unmodified-Since is
//! first validated; only then the condition is answered, at delivery.
//!
//! Source: RFC 9110, section 13; RFC 9111, sections 4, 4.3.2 and 5.2.1.

use catalog::index::confirmation::Confirmation;
use copal_catalog as catalog;
use copal_rules as rules;
use copal_wire as wire;
use rules::request::Directives;
use wire::{Fields, Known, KnownSet};

/// The fields that can make a demand.
const ASKING: KnownSet =
    KnownSet::of(&[Known::CacheControl, Known::Pragma, Known::IfMatch, Known::IfUnmodifiedSince]);

/// The conditions about what the origin has now.
pub(crate) const OF_THE_ORIGIN: KnownSet = KnownSet::of(&[Known::IfMatch, Known::IfUnmodifiedSince]);

/// A request's demands on a stored response.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Demand {
    /// The cache directives.
    pub(crate) directives: Directives,
    /// Both `Cache-Control: no-cache` and `Pragma: no-cache`: who says so distrusts the bytes (a reload by force in
    /// browsers, a CVMFS client whose checksum failed), and a 304 would bring the same ones again.
    pub(crate) reload: bool,
    /// It has If-Match or If-Unmodified-Since.
    pub(crate) has_conditions: bool,
}

impl Demand {
    /// What a request with these fields asks for; `None` if nothing special.
    #[inline]
    pub(crate) fn of(fields: &Fields) -> Option<Self> {
        if fields.has_any(ASKING) { Self::read(fields) } else { None }
    }

    fn read(fields: &Fields) -> Option<Self> {
        let directives = Directives::of(fields);
        let pragma = fields.all_known(Known::Pragma).flat_map(wire::syntax::tokens);
        let reload = directives.no_cache
            && fields.has_known(Known::CacheControl)
            && pragma.into_iter().any(|token| token.eq_ignore_ascii_case(b"no-cache"));
        let has_conditions = fields.has_any(OF_THE_ORIGIN);
        (has_conditions || !directives.is_plain()).then_some(Self { directives, reload, has_conditions })
    }

    /// How strongly it wants the origin's confirmation.
    pub(crate) fn confirmation(&self) -> Confirmation {
        match () {
            () if self.reload => Confirmation::Reload,
            () if self.has_conditions || self.says_validation() => Confirmation::Validation,
            () => Confirmation::Unneeded,
        }
    }

    fn says_validation(&self) -> bool {
        self.directives.no_cache || self.directives.max_age == Some(0)
    }

    /// It has a condition that only the origin can answer, and no directive that makes caches ask it.
    pub(crate) fn implies_validation(&self) -> bool {
        self.has_conditions && !self.says_validation()
    }
}
