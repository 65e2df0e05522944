//! `Cache-Status`: what this cache did with a request, for whoever reads the response.
//!
//! ```text
//! Cache-Status: origin-shield;hit;ttl=30, copal;fwd=stale;fwd-status=304;stored
//! ```
//! Each cache on the way appends one member, so the last one is nearest to the client.
//!
//! Source: RFC 9211; RFC 9651.

use crate::structured;
use copal_base::Seconds;
use copal_wire::{Fields, Known};
use sfv::{KeyRef, ListSerializer, key_ref, token_ref};

/// Longest key that is shown, in bytes.
const KEY_MAX: usize = 1024;

/// What one cache says.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Entry<'a> {
    /// The name of this cache.
    pub cache: &'a str,
    /// Where the response came from.
    pub handling: Handling,
    /// Seconds that the response stays fresh; negative if it is stale.
    pub ttl: Option<Seconds>,
    /// The key of the cache for the request, as bytes.
    pub key: Option<&'a [u8]>,
    /// More, in this cache's own words.
    pub detail: Option<&'a str>,
}

/// Where a response came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Handling {
    /// From the cache, without asking.
    Hit,
    /// The request went on.
    Forwarded(Forwarded),
    /// The cache made it itself.
    Own,
}

/// A request that went on towards the origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forwarded {
    /// Why.
    pub why: Forward,
    /// The status of the answer, if there was one and it is not that of the response.
    pub status: Option<u16>,
    /// The answer was stored.
    pub stored: bool,
    /// It was one with other requests.
    pub collapsed: bool,
}

/// Why a request went on.
///
/// Source: RFC 9211, section 2.2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Forward {
    /// The cache was told not to handle it (pass, pipe).
    Bypass,
    /// Its method.
    Method,
    /// Nothing is stored for its URI.
    UriMiss,
    /// Something is stored, nothing that its fields select.
    VaryMiss,
    /// Nothing fits, and it is not known which of the two.
    Miss,
    /// Something fresh is stored, the request's directives do not take it.
    Request,
    /// Something stale is stored.
    Stale,
    /// Parts are stored, not all that it asks for.
    Partial,
}

impl Forward {
    /// As written in the field and in the log.
    pub const fn as_str(self) -> &'static str {
        match self {
            Forward::Bypass => "bypass",
            Forward::Method => "method",
            Forward::UriMiss => "uri-miss",
            Forward::VaryMiss => "vary-miss",
            Forward::Miss => "miss",
            Forward::Request => "request",
            Forward::Stale => "stale",
            Forward::Partial => "partial",
        }
    }
}

impl Entry<'_> {
    /// The member as it is written.
    pub fn value(&self) -> String {
        let mut list = ListSerializer::new();
        let mut member = list.bare_item(structured::name(&structured::printable(self.cache)));
        match self.handling {
            Handling::Hit => member = member.parameter(key_ref("hit"), true),
            Handling::Forwarded(forwarded) => {
                member = member.parameter(key_ref("fwd"), token_ref(forwarded.why.as_str()));
                if let Some(status) = forwarded.status {
                    member = member.parameter(key_ref("fwd-status"), sfv::Integer::from(status));
                }
                for (key, is) in [("stored", forwarded.stored), ("collapsed", forwarded.collapsed)] {
                    if is {
                        member = member.parameter(KeyRef::constant(key), true);
                    }
                }
            }
            Handling::Own => {}
        }
        if let Some(ttl) = self.ttl {
            member = member.parameter(key_ref("ttl"), structured::whole_seconds(ttl));
        }
        if let Some(key) = self.key {
            let text = structured::escaped(&key[..key.len().min(KEY_MAX)]);
            member = member.parameter(key_ref("key"), structured::string(&text));
        }
        if let Some(detail) = self.detail {
            member = member.parameter(key_ref("detail"), structured::name(&structured::printable(detail)));
        }
        let _ = member.finish();
        list.finish().unwrap_or_default()
    }

    /// Appends the member to what caches before this one said.
    pub fn append_to(&self, response: &mut Fields) {
        structured::append(response, Known::CacheStatus, &self.value());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HIT: Entry<'static> =
        Entry { cache: "copal", handling: Handling::Hit, ttl: None, key: None, detail: None };
    const MISS: Forwarded =
        Forwarded { why: Forward::UriMiss, status: None, stored: false, collapsed: false };

    fn check(entry: &Entry<'_>, expected: &str) {
        assert_eq!(entry.value(), expected);
    }

    #[test]
    fn rfc9211_2_1_and_2_4_hits() {
        check(&HIT, "copal;hit");
        check(&Entry { ttl: Some(30.9), ..HIT }, "copal;hit;ttl=30");
        check(&Entry { ttl: Some(-412.5), ..HIT }, "copal;hit;ttl=-413");
        check(&Entry { ttl: Some(f64::NAN), ..HIT }, "copal;hit;ttl=0");
        check(&Entry { ttl: Some(1e300), ..HIT }, "copal;hit;ttl=999999999999999");
        check(&Entry { cache: "cache 1.example", ..HIT }, "\"cache 1.example\";hit");
        check(&Entry { cache: "cache1.example:80", ..HIT }, "cache1.example:80;hit");
        check(&Entry { cache: "1\u{e9}\"\n", ..HIT }, "\"1??\\\"?\";hit");
    }

    #[test]
    fn rfc9211_2_2_to_2_6_forwarded() {
        let forwarded = |forwarded| Entry { handling: Handling::Forwarded(forwarded), ..HIT };
        check(&forwarded(MISS), "copal;fwd=uri-miss");
        check(
            &forwarded(Forwarded { why: Forward::Stale, status: Some(304), stored: true, collapsed: true }),
            "copal;fwd=stale;fwd-status=304;stored;collapsed",
        );
    }

    #[test]
    fn rfc9211_2_7_and_2_8_key_and_detail() {
        let own = Entry { handling: Handling::Own, detail: Some("synth"), ..HIT };
        check(&own, "copal;detail=synth");
        check(
            &Entry { detail: Some("no-store in the response"), ..own },
            "copal;detail=\"no-store in the response\"",
        );
        check(&Entry { key: Some(b"/a\"b\\c\x01\xff"), ..HIT }, "copal;hit;key=\"/a\\\"b\\\\c%01%FF\"");
        assert!(Entry { key: Some(&[0; 100_000]), ..HIT }.value().len() < 4000);
    }

    #[test]
    fn rfc9211_2_members_are_appended() {
        let mut fields = Fields::new();
        HIT.append_to(&mut fields);
        assert_eq!(fields.get_known(Known::CacheStatus), Some(&b"copal;hit"[..]));
        fields.push(b"cache-status", b"other;fwd=miss");
        HIT.append_to(&mut fields);
        assert_eq!(fields.get_known(Known::CacheStatus), Some(&b"copal;hit, other;fwd=miss, copal;hit"[..]));
        // What nobody can read would make ours unreadable.
        fields.set_known(Known::CacheStatus, b"HIT from cache (1)");
        HIT.append_to(&mut fields);
        assert_eq!(fields.get_known(Known::CacheStatus), Some(&b"copal;hit"[..]));
    }

    proptest! {
        #[test]
        fn what_is_written_is_a_list_of_one(
            cache in ".{0,20}", key in prop::collection::vec(any::<u8>(), 0..40), detail in ".{0,20}", ttl in any::<f64>(),
        ) {
            let entry = Entry { cache: &cache, ttl: Some(ttl), key: Some(&key), detail: Some(&detail), ..HIT };
            let value = entry.value();
            let mut fields = Fields::new();
            prop_assert!(fields.push_known(Known::CacheStatus, value.as_bytes()));
            prop_assert!(structured::is_list(value.as_bytes()), "{}", value);
        }
    }
}
