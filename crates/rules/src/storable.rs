//! Whether a response may serve others: what Varnish's built-in `vcl_backend_response` decides.
//!
//! A "no" makes a hit-for-miss object: the response goes to the client that caused it, and for a while requests for the
//! same thing are not queued behind each other.

use crate::vary;
use copal_base::Seconds;
use copal_wire::{Fields, Known};
use std::fmt;

/// How long a hit-for-miss object stands, in seconds.
pub const HIT_FOR_MISS_TTL: Seconds = 120.0;

/// Whether a response may be stored for others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Storable {
    /// It may.
    Yes,
    /// It may not, for this reason.
    No(Why),
}

/// Why a response may not be stored for others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Why {
    /// Its lifetime is zero or less.
    Expired,
    /// It sets a cookie.
    SetCookie,
    /// `Surrogate-Control` has `no-store`.
    SurrogateControl,
    /// `Cache-Control` has `no-cache`, `no-store` or `private`, and there is no `Surrogate-Control`.
    CacheControl,
    /// `Vary` has `*`.
    VaryStar,
    /// `Vary` is no list of field names, or too long to be kept.
    VaryUnusable,
    /// The request has another method than GET (only [`crate::judge`] says this and what follows).
    Method,
    /// The status is not final, or 304, which is no response of its own.
    Status,
    /// `must-understand`, and the status is not understood.
    NotUnderstood,
    /// `no-store` in the response.
    NoStore,
    /// `no-store` in the request.
    RequestNoStore,
    /// `private` in the response.
    Private,
    /// The request has Authorization and the response does not allow others to have it.
    Authorization,
    /// The status is not one that may be stored without saying so, and the response does not say so.
    NotCacheable,
}

impl Why {
    /// In words, for the log.
    pub const fn as_str(self) -> &'static str {
        match self {
            Why::Expired => "ttl not positive",
            Why::SetCookie => "Set-Cookie",
            Why::SurrogateControl => "Surrogate-Control: no-store",
            Why::CacheControl => "Cache-Control: no-cache, no-store or private",
            Why::VaryStar => "Vary: *",
            Why::VaryUnusable => "Vary unusable",
            Why::Method => "method is not GET",
            Why::Status => "status is not of a response that can be stored",
            Why::NotUnderstood => "must-understand and a status that is not understood",
            Why::NoStore => "no-store",
            Why::RequestNoStore => "no-store in the request",
            Why::Private => "private",
            Why::Authorization => "Authorization and nothing that allows sharing",
            Why::NotCacheable => "no explicit freshness and a status without a default one",
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Whether a response whose lifetime is `ttl` seconds may be stored for others.
///
/// As in the built-in VCL the words are looked for anywhere in the value, so `private="x"` and `no-cache="Set-Cookie"`
/// count too. Stricter than it in two points: all fields of a name are looked at, and `*` is found anywhere in Vary.
pub fn storable(ttl: Seconds, response: &Fields) -> Storable {
    // NaN is not positive either.
    if ttl.is_nan() || ttl <= 0.0 {
        return Storable::No(Why::Expired);
    }
    if response.has_known(Known::SetCookie) {
        return Storable::No(Why::SetCookie);
    }
    if response.has_known(Known::SurrogateControl) {
        if says(response, Known::SurrogateControl, &[b"no-store"]) {
            return Storable::No(Why::SurrogateControl);
        }
    } else if says(response, Known::CacheControl, &[b"no-cache", b"no-store", b"private"]) {
        return Storable::No(Why::CacheControl);
    }
    match vary::check(response) {
        Ok(()) => Storable::Yes,
        Err(vary::Unusable::Star) => Storable::No(Why::VaryStar),
        Err(vary::Unusable::Malformed | vary::Unusable::TooLong) => Storable::No(Why::VaryUnusable),
    }
}

/// Whether a field of this name contains one of `words`, in any case.
fn says(response: &Fields, name: Known, words: &[&[u8]]) -> bool {
    response.all_known(name).any(|value| {
        words.iter().any(|word| value.windows(word.len()).any(|window| window.eq_ignore_ascii_case(word)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(ttl: Seconds, lines: &[(&str, &str)], expected: Storable) {
        let mut fields = Fields::new();
        for (name, value) in lines {
            assert!(fields.push(name.as_bytes(), value.as_bytes()));
        }
        assert_eq!(storable(ttl, &fields), expected, "{ttl} {lines:?}");
    }

    #[test]
    fn built_in_backend_response() {
        let no = Storable::No;
        check(1e-6, &[("Cache-Control", "max-age=60, public"), ("Vary", "Accept")], Storable::Yes);
        check(0.0, &[], no(Why::Expired));
        check(-1.0, &[("Set-Cookie", "a")], no(Why::Expired));
        check(f64::NAN, &[], no(Why::Expired));
        check(1.0, &[("set-cookie", "")], no(Why::SetCookie));
        check(1.0, &[("Surrogate-Control", "x, No-Store")], no(Why::SurrogateControl));
        check(1.0, &[("Surrogate-Control", "max-age=1"), ("Cache-Control", "private")], Storable::Yes);
        for value in
            ["no-cache", "NO-STORE", "max-age=9, private", "private=\"x\"", "no-cache=\"Set-Cookie\""]
        {
            check(1.0, &[("Cache-Control", value)], no(Why::CacheControl));
            check(1.0, &[("Cache-Control", "max-age=60"), ("cache-control", value)], no(Why::CacheControl));
        }
        check(1.0, &[("Vary", "*")], no(Why::VaryStar));
        check(1.0, &[("Vary", "Accept, *")], no(Why::VaryStar));
        check(1.0, &[("Vary", "Accept"), ("Vary", "*")], no(Why::VaryStar));
        check(1.0, &[("Vary", "a b")], no(Why::VaryUnusable));
    }
}
