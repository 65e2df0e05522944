//! Whether a request accepts a stored response that fits it, by its [demands](Demand).

use crate::demand::Demand;
use crate::exchange::Exchange;
use base::Time;
use catalog::index::lookup::{Acceptance, ttl_for};
use catalog::reason::Reason;
use copal_base as base;
use copal_catalog as catalog;
use copal_rules as rules;
use copal_store as store;
use copal_wire as wire;
use rules::conditional::{Held, Precondition, precondition};
use rules::reuse::{Allowed, Reuse, Stored};
use store::Object;
use wire::Fields;

impl Demand {
    /// Whether the request accepts `object`, which fits it.
    pub(crate) fn permits(&self, exchange: &Exchange, object: &Object, now: Time) -> Acceptance {
        let mut fields = Fields::new();
        // The fields are needed for these alone.
        if self.has_conditions || self.directives.max_stale.is_some() {
            catalog::head::load(object.head(), &mut fields);
        }
        self.permits_with(exchange, object, &fields, now)
    }

    /// As [`Demand::permits`], of what a fetch has brought for requests that need as much confirmation as this one: it cannot be had any
    /// newer, but its age and its freshness may be another's, as they come from a cache on the way.
    pub(crate) fn permits_fetched(&self, exchange: &Exchange, object: &Object, now: Time) -> Acceptance {
        let mut rest = *self;
        rest.has_conditions = false;
        rest.directives.no_cache = false;
        rest.directives.max_age = rest.directives.max_age.filter(|most| *most > 0);
        if rest.directives.max_age.is_none() && rest.directives.min_fresh.is_none() {
            return Acceptance::Yes;
        }
        rest.permits(exchange, object, now)
    }

    /// As [`Demand::permits`], where the object's fields are at hand.
    pub(crate) fn permits_with(
        &self,
        exchange: &Exchange,
        object: &Object,
        fields: &Fields,
        now: Time,
    ) -> Acceptance {
        if self.has_conditions {
            let held = Held { status: object.status(), fields, received: object.origin_time() };
            let request = &exchange.request;
            if precondition(&request.method, &request.fields, &held) == Precondition::Failed {
                return Acceptance::No(Reason::Precondition);
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
            Reuse::Fresh | Reuse::Stale(Allowed::Grace) => Acceptance::Yes,
            Reuse::Stale(Allowed::MaxStale) => Acceptance::Stale,
            Reuse::Validate(why) => Acceptance::No(why.into()),
        }
    }
}
