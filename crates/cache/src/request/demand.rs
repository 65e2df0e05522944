//! What a request asks of a stored response besides that it fit and be fresh: directives in Cache-Control or Pragma, and
//! conditions that only the present representation can answer. With `req.rfc` alone; all others ask for nothing.
//!
//! A 412 is a statement about what the origin has now. So a stored response that fails If-Match or If-Unmodified-Since is
//! first validated; only then the condition is answered, at delivery.
//!
//! Source: RFC 9110, section 13; RFC 9111, sections 4, 4.3.2 and 5.2.1.

use crate::exchange::Exchange;
use base::Time;
use catalog::index::insist::Insists;
use catalog::index::lookup::{Suits, ttl_for};
use catalog::reason::Reason;
use copal_base as base;
use copal_catalog as catalog;
use copal_rules as rules;
use copal_store as store;
use copal_wire as wire;
use rules::conditional::{Held, Precondition, precondition};
use rules::request::Directives;
use rules::reuse::{Allowed, Reuse, Stored};
use store::Object;
use wire::{Fields, Known, KnownSet};

/// Without any of these a request asks for nothing.
const ASKING: KnownSet =
    KnownSet::of(&[Known::CacheControl, Known::Pragma, Known::IfMatch, Known::IfUnmodifiedSince]);

/// The conditions that speak of what the origin has.
pub(crate) const OF_THE_ORIGIN: KnownSet = KnownSet::of(&[Known::IfMatch, Known::IfUnmodifiedSince]);

/// What a request asks for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Demand {
    /// Its directives.
    pub(crate) directives: Directives,
    /// Both `Cache-Control: no-cache` and `Pragma: no-cache`: who says so distrusts the bytes (a reload by force in
    /// browsers, a CVMFS client whose checksum failed), and a 304 would bring the same ones again.
    pub(crate) reload: bool,
    /// It has If-Match or If-Unmodified-Since.
    has_conditions: bool,
}

impl Demand {
    /// What the request asks for; `None` if nothing special.
    #[inline]
    pub(crate) fn of(exchange: &Exchange) -> Option<Self> {
        let fields = &exchange.request.fields;
        if exchange.rfc && fields.has_any(ASKING) { Self::read(fields) } else { None }
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

    /// How much of the origin's word it wants.
    pub(crate) fn insists(&self) -> Insists {
        match () {
            () if self.reload => Insists::Reload,
            () if self.has_conditions || self.says_validation() => Insists::Validation,
            () => Insists::Not,
        }
    }

    fn says_validation(&self) -> bool {
        self.directives.no_cache || self.directives.max_age == Some(0)
    }

    /// It has a condition that only the origin can answer, and no directive that makes caches ask it.
    pub(crate) fn implies_validation(&self) -> bool {
        self.has_conditions && !self.says_validation()
    }

    /// What the request makes of `object`, which fits it.
    pub(crate) fn suits(&self, exchange: &Exchange, object: &Object, now: Time) -> Suits {
        let mut fields = Fields::new();
        // Else nobody looks at them.
        if self.has_conditions || self.directives.max_stale.is_some() {
            catalog::head::load(object.head(), &mut fields);
        }
        self.suits_with(exchange, object, &fields, now)
    }

    /// As [`Demand::suits`], of what a fetch has brought for requests that insist as this one does: it cannot be had any newer,
    /// but its age and its freshness may be another's, as they come from a cache on the way.
    pub(crate) fn suits_brought(&self, exchange: &Exchange, object: &Object, now: Time) -> Suits {
        let mut rest = *self;
        rest.has_conditions = false;
        rest.directives.no_cache = false;
        rest.directives.max_age = rest.directives.max_age.filter(|most| *most > 0);
        if rest.directives.max_age.is_none() && rest.directives.min_fresh.is_none() {
            return Suits::Yes;
        }
        rest.suits(exchange, object, now)
    }

    /// As [`Demand::suits`], where the object's fields are at hand.
    pub(crate) fn suits_with(
        &self,
        exchange: &Exchange,
        object: &Object,
        fields: &Fields,
        now: Time,
    ) -> Suits {
        if self.has_conditions {
            let held = Held { status: object.status(), fields, received: object.origin_time() };
            let request = &exchange.request;
            if precondition(&request.method, &request.fields, &held) == Precondition::Failed {
                return Suits::No(Reason::Precondition);
            }
        }
        let grace = exchange.grace_max.map_or(object.grace(), |max| object.grace().min(max));
        let stored = Stored {
            age: (now - object.origin_time()).max(0.0),
            ttl: ttl_for(object, exchange.ttl_max),
            grace,
            fields,
            targets: &exchange.current.settings.targeted_fields,
        };
        match rules::reuse::reuse(&self.directives, &stored) {
            Reuse::Fresh | Reuse::Stale(Allowed::Grace) => Suits::Yes,
            Reuse::Stale(Allowed::MaxStale) => Suits::Stale,
            Reuse::Validate(why) => Suits::No(why.into()),
        }
    }
}
