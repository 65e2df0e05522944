//! The times of a response as VCL finds them: by Varnish's rules, or by RFC 9111.

use super::purpose::Purpose;
use super::state::Fetch;
use copal_rules as rules;
use copal_wire as wire;
use rules::judge::Verdict;
use rules::storable::{Storable, Why};
use rules::ttl::Lifetime;
use wire::Known;

/// How long a response without a validator is kept after its use, in seconds, at most: it may serve who takes it stale,
/// and a HEAD may bring it back to life.
const KEEP_PLAIN: f64 = 600.0;

/// Computes and logs how long the response that stands in `fetch` may be used.
pub(super) fn compute(fetch: &mut Fetch) {
    let lifetime = if fetch.rfc { judge(fetch) } else { by_varnish(fetch) };
    take(fetch, &lifetime);
    if fetch.purpose != Purpose::Pass {
        // A passed response has no lifetime.
        log(fetch, &lifetime);
    }
}

fn take(fetch: &mut Fetch, lifetime: &Lifetime) {
    // VCL sees no negative times.
    (fetch.ttl, fetch.grace, fetch.keep) = (lifetime.ttl.max(0.0), lifetime.grace, lifetime.keep);
    fetch.origin_time = lifetime.t_origin;
}

fn log(fetch: &mut Fetch, lifetime: &Lifetime) {
    let times = [
        lifetime.ttl,
        lifetime.grace,
        lifetime.keep,
        fetch.now,
        lifetime.t_origin,
        lifetime.date,
        lifetime.expires,
        lifetime.max_age.into(),
    ];
    fetch.log_times("RFC", &times);
}

/// As [`compute`], for the answer to a POST that says that it is what a GET gets: if it says, too, for how long, it is
/// stored for those.
///
/// Source: RFC 9110, section 9.3.3.
pub(super) fn compute_for_get(fetch: &mut Fetch) {
    let (verdict, lifetime) = verdict(fetch, b"GET");
    let is_explicit = verdict.storable == Storable::Yes && !verdict.heuristic;
    let Some(change) =
        fetch.change.as_deref().filter(|_| is_explicit && lifetime.t_origin + lifetime.ttl > fetch.now)
    else {
        return compute(fetch);
    };
    fetch.key = change.keys[0];
    fetch.busy = Some(fetch.local.shared.index.begin(&fetch.key));
    fetch.uncacheable = false;
    fetch.left_out = verdict.left_out;
    take(fetch, &lifetime);
    log(fetch, &lifetime);
}

fn by_varnish(fetch: &Fetch) -> Lifetime {
    let settings = &fetch.current.settings;
    let defaults = rules::ttl::Defaults {
        ttl: settings.default_ttl,
        grace: settings.default_grace,
        keep: settings.default_keep,
        clock_skew: settings.clock_skew,
        rfc: false,
    };
    rules::ttl::lifetime(fetch.response.status, &fetch.response.fields, fetch.now, &defaults)
}

fn judge(fetch: &mut Fetch) -> Lifetime {
    // A response confirmed by a HEAD is the answer to a GET.
    let (verdict, mut lifetime) = verdict(fetch, if fetch.was_304 { b"GET" } else { &fetch.request.method });
    fetch.obstacle = match verdict.storable {
        // A part is no answer to a request for the whole or for another part.
        Storable::Yes if fetch.response.status == 206 && !fetch.is_standalone => Some(Why::Status),
        Storable::Yes => None,
        Storable::No(why) => Some(why),
    };
    if fetch.obstacle.is_some() {
        (lifetime.ttl, lifetime.grace, lifetime.keep) = (0.0, 0.0, 0.0);
    }
    fetch.left_out = verdict.left_out;
    lifetime
}

/// The verdict of the rules on the response as the answer to a request with `method`, and the times that follow.
///
/// Source: RFC 9111, sections 3 and 4.2; `default_grace` is no permission to serve what is stale (section 4.2.4).
fn verdict(fetch: &Fetch, method: &[u8]) -> (Verdict, Lifetime) {
    let settings = &fetch.current.settings;
    let defaults = rules::judge::Defaults {
        ttl: settings.default_ttl,
        keep: settings.default_keep,
        keep_validated: settings.keep_validated,
        heuristic_max: settings.heuristic_max,
        negative_max: settings.negative_max,
        targets: &settings.targeted_fields,
    };
    let asked = rules::judge::Asked {
        method,
        fields: &fetch.request.fields,
        // A response that was asked for without them is the same for all, whatever the client showed us.
        authorized: fetch.authorized && fetch.request.fields.has_known(Known::Authorization),
        no_store: false,
        requested: fetch.requested,
    };
    let (status, fields) = (fetch.response.status, &fetch.response.fields);
    let answer = rules::judge::Answer { status, fields, received: fetch.now };
    let verdict = rules::judge::judge(&asked, &answer, &defaults);
    let mut lifetime = verdict.lifetime;
    if lifetime.t_origin + lifetime.ttl > fetch.now {
        lifetime.keep = lifetime.keep.max(KEEP_PLAIN.min(settings.keep_validated));
    }
    if verdict.storable == Storable::Yes && settings.default_stale_if_error > 0.0 {
        // A response that may stand in for an error is kept long enough for that.
        let policy = rules::policy::Policy::of(fields, &settings.targeted_fields);
        let granted = rules::stale_if_error::granted(&policy, settings.default_stale_if_error);
        lifetime.keep = lifetime.keep.max(granted - lifetime.grace);
    }
    (verdict, lifetime)
}
