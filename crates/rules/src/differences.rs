//! Where Varnish's ways and the RFCs' differ: what `rfc=on` changes, as one list.
//!
//! The manual's table (`docs/rfc.md`) is made from this file by `cargo xtask gen`, which reads the four texts of each entry;
//! `cargo xtask tidy` fails if the two do not agree.

/// One thing that is done in two ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Difference {
    /// What it is about.
    pub what: &'static str,
    /// What Varnish 7.1 does, and `rfc=off`.
    pub varnish: &'static str,
    /// What `rfc=on` does.
    pub rfc: &'static str,
    /// Where that stands.
    pub section: &'static str,
}

/// All of them, in the order of a request's way.
pub const DIFFERENCES: &[Difference] = &[
    Difference {
        what: "`Cache-Control` of a request, `Pragma` without it",
        varnish: "not looked at",
        rfc: "`no-cache`, `no-store`, `max-age`, `max-stale`, `min-fresh`, `only-if-cached` and `stale-if-error` hold",
        section: "RFC 9111, 5.2.1, 5.4",
    },
    Difference {
        what: "requests with `Authorization`",
        varnish: "passed",
        rfc: "looked up; a response is stored for others if it says `public`, `must-revalidate` or `s-maxage`",
        section: "RFC 9111, 3.5",
    },
    Difference {
        what: "requests with `Cookie`",
        varnish: "passed",
        rfc: "looked up: the response says whether it may be shared",
        section: "RFC 9111, 3",
    },
    Difference {
        what: "fields that `Vary` names",
        varnish: "equal byte by byte once joined",
        rfc: "white space around commas does not count; case, order and the writing of weights do not in `Accept` \
              and its kin",
        section: "RFC 9111, 4.1",
    },
    Difference {
        what: "unsafe methods (`POST`, `PUT`, `DELETE`, unknown ones) that succeed",
        varnish: "leave what is stored",
        rfc: "what is stored for their target goes, and for `Location` and `Content-Location` of the same origin",
        section: "RFC 9111, 4.4",
    },
    Difference {
        what: "methods that are not known",
        varnish: "piped",
        rfc: "passed, so that what they change is seen; `CONNECT` is piped",
        section: "RFC 9111, 4.4",
    },
    Difference {
        what: "a `HEAD` that finds nothing, or what is stale",
        varnish: "fetched by `GET`",
        rfc: "sent as it is; without anything stored its answer is for the client alone",
        section: "RFC 9110, 9.3.2",
    },
    Difference {
        what: "a request that no stored variant fits",
        varnish: "fetched",
        rfc: "names the strong tags of up to 8 other variants; a 304 that names one of them saves its body",
        section: "RFC 9111, 4.1, 4.3",
    },
    Difference {
        what: "a `HEAD` that goes to the origin",
        varnish: "leaves what is stored",
        rfc: "updates the stored response it agrees with in `ETag`, `Last-Modified` and length; another is stale",
        section: "RFC 9111, 4.3.5",
    },
    Difference {
        what: "statuses that may be stored",
        varnish: "200, 203, 204, 300, 301, 302, 304, 307, 404, 410, 414",
        rfc: "any final one with explicit freshness; 200, 203, 204, 300, 301, 308, 404, 405, 410, 414 and 501 without",
        section: "RFC 9111, 3; RFC 9110, 15.1",
    },
    Difference {
        what: "freshness that the response does not state",
        varnish: "`default_ttl`",
        rfc: "a tenth of the time since `Last-Modified`, at most `heuristic_max`; without that field none",
        section: "RFC 9111, 4.2.2",
    },
    Difference {
        what: "freshness of errors (status 400 and more)",
        varnish: "as stated",
        rfc: "as stated, at most `negative_max`; where it is not stated at most `default_ttl`",
        section: "RFC 9111, 4.2.2",
    },
    Difference {
        what: "`Expires`",
        varnish: "against our clock if `Date` is within `clock_skew` of it; what is no date is as if absent",
        rfc: "against `Date`; what is no date is in the past",
        section: "RFC 9111, 4.2.1, 5.3",
    },
    Difference {
        what: "`Age` of a response that comes",
        varnish: "its number; what does not parse is 0",
        rfc: "the larger of the time since `Date` and of `Age` with the time the answer took; what does not parse is ignored",
        section: "RFC 9111, 4.2.3, 5.1",
    },
    Difference {
        what: "numbers of seconds",
        varnish: "read as far as they go; a fraction is cut off",
        rfc: "digits alone; what is anything else is stale",
        section: "RFC 9111, 1.2.2, 4.2.1",
    },
    Difference {
        what: "`no-cache`",
        varnish: "a hit-for-miss",
        rfc: "stored if it has a validator, and validated for each request",
        section: "RFC 9111, 5.2.2.4",
    },
    Difference {
        what: "`private=\"...\"`, `no-cache=\"...\"`",
        varnish: "as without names",
        rfc: "stored without the fields that are named",
        section: "RFC 9111, 5.2.2.4, 5.2.2.7",
    },
    Difference {
        what: "`must-understand`",
        varnish: "not looked at",
        rfc: "stored, even with `no-store`, if the status is understood; else not stored",
        section: "RFC 9111, 5.2.2.3",
    },
    Difference {
        what: "`CDN-Cache-Control`, or what `targeted_fields` names",
        varnish: "not looked at",
        rfc: "alone decides if it is valid and not empty: `Cache-Control` and `Expires` say nothing then",
        section: "RFC 9213, 2",
    },
    Difference {
        what: "`Set-Cookie`",
        varnish: "a hit-for-miss",
        rfc: "stored if freshness is stated or with `public`; never by heuristics",
        section: "RFC 9111, 7.3",
    },
    Difference {
        what: "grace",
        varnish: "`default_grace`, or `stale-while-revalidate`",
        rfc: "`stale-while-revalidate`; none without it",
        section: "RFC 9111, 4.2.4; RFC 5861, 3",
    },
    Difference {
        what: "`must-revalidate`, `proxy-revalidate`, `s-maxage`",
        varnish: "grace all the same",
        rfc: "no grace, no `stale-if-error`, no `max-stale`",
        section: "RFC 9111, 4.2.4, 5.2.2.10",
    },
    Difference {
        what: "`stale-if-error`",
        varnish: "not looked at",
        rfc: "what is stale serves while the origin fails, for so long",
        section: "RFC 5861, 4",
    },
    Difference {
        what: "an origin that gives no answer",
        varnish: "503 once grace is over",
        rfc: "what is stale serves for `default_stale_if_error` (600 s) where it does not say for how long, and nothing forbids it",
        section: "RFC 9111, 4.2.4",
    },
    Difference {
        what: "the answer in place of an origin's that did not come",
        varnish: "503",
        rfc: "504 for time-outs and where a stored response must not be used, 502 for refused connections and bad answers, else 503",
        section: "RFC 9110, 15.6; RFC 9209, 2.3",
    },
    Difference {
        what: "a stale response with `ETag` or `Last-Modified`",
        varnish: "kept for `default_keep` (0) to be validated",
        rfc: "kept for `keep_validated` (a day), or `default_keep` if that is longer",
        section: "RFC 9111, 4.3",
    },
    Difference {
        what: "a 304",
        varnish: "updates what was asked about",
        rfc: "updates what it names: its `ETag`, or without one its `Last-Modified`, must be the stored one",
        section: "RFC 9111, 4.3.4",
    },
    Difference {
        what: "digests and `Content-Encoding` of a 304",
        varnish: "digests are taken",
        rfc: "`Content-Digest`, `Repr-Digest`, `Digest`, `Content-MD5`, `Content-Encoding` and `Content-Range` stay those of the stored body",
        section: "RFC 9111, 3.2",
    },
    Difference {
        what: "`Content-Range` of a whole response",
        varnish: "not stored",
        rfc: "stored, like all fields that mean nothing to a cache",
        section: "RFC 9111, 3.1",
    },
    Difference {
        what: "a response to `POST` with explicit freshness whose `Content-Location` is the target itself",
        varnish: "passed",
        rfc: "stored for `GET` and `HEAD`",
        section: "RFC 9110, 9.3.3",
    },
    Difference {
        what: "`If-Match`, `If-Unmodified-Since`",
        varnish: "not looked at",
        rfc: "first of all conditions; what is stored and fails them is validated before the answer is 412",
        section: "RFC 9110, 13.2.2",
    },
    Difference {
        what: "conditions of a request that is passed",
        varnish: "judged by us as well as by the origin",
        rfc: "the origin's to judge",
        section: "RFC 9110, 13.2.1",
    },
    Difference {
        what: "`If-None-Match` with `Range`",
        varnish: "strong comparison",
        rfc: "weak comparison, as always",
        section: "RFC 9110, 13.1.2",
    },
    Difference {
        what: "`If-Modified-Since`",
        varnish: "ignored if it is later than now; without `Last-Modified` compared with the time of reception",
        rfc: "a later date counts, too; without `Last-Modified` compared with `Date`",
        section: "RFC 9110, 13.1.3; RFC 9111, 4.3.2",
    },
    Difference {
        what: "`Range` of a `HEAD`",
        varnish: "answered as that of a `GET`",
        rfc: "means nothing",
        section: "RFC 9110, 14.2",
    },
    Difference {
        what: "`Cache-Control` of a request that is not passed, on its way to the origin",
        varnish: "left out",
        rfc: "goes on; a condition of the origin's adds `max-age=0`",
        section: "RFC 9111, 5.2",
    },
    Difference {
        what: "`Age` of a response that goes out",
        varnish: "always there",
        rfc: "not where the origin itself has just made or confirmed the response",
        section: "RFC 9111, 5.1",
    },
    Difference {
        what: "`Cache-Status` (with `cache_status=auto`)",
        varnish: "none",
        rfc: "says what became of the request",
        section: "RFC 9211",
    },
    Difference {
        what: "interim answers (103) of an origin",
        varnish: "503; with `rfc=off` here skipped",
        rfc: "passed on to the client that waits",
        section: "RFC 9110, 15.2",
    },
    Difference {
        what: "an answer whose `Transfer-Encoding` is one word that names no registered coding (`identity`)",
        varnish: "503",
        rfc: "its body is what comes until the connection ends",
        section: "RFC 9112, 6.3",
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_fit_into_a_table() {
        for (index, entry) in DIFFERENCES.iter().enumerate() {
            for text in [entry.what, entry.varnish, entry.rfc, entry.section] {
                assert!(!text.is_empty() && !text.contains(['|', '\n']) && !text.contains("  "), "{text}");
            }
            assert!(entry.section.starts_with("RFC "), "{}", entry.section);
            assert!(DIFFERENCES[..index].iter().all(|other| other.what != entry.what), "{}", entry.what);
        }
    }
}
