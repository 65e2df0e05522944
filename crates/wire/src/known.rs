//! The field names that caching and proxying need, found by length and bytes.
//!
//! One table gives the variant, the name as written and whether the field belongs to one connection only. A name is
//! found by a hash that the compiler proves to be free of collisions, then one comparison.

macro_rules! known {
    ($($variant:ident, $name:literal, $hop:literal;)*) => {
        /// A field name that the proxy itself acts upon. The number is stable only within one process.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Known {
            $(#[doc = concat!("`", $name, "`")] $variant,)*
        }

        impl Known {
            /// All of them, in the order of their numbers.
            pub const ALL: &[Known] = &[$(Known::$variant,)*];
            const NAMES: &[&str] = &[$($name,)*];
            const HOP: &[bool] = &[$($hop,)*];
        }
    };
}

known! {
    Accept, "Accept", false;
    AcceptCharset, "Accept-Charset", false;
    AcceptEncoding, "Accept-Encoding", false;
    AcceptLanguage, "Accept-Language", false;
    AcceptRanges, "Accept-Ranges", false;
    Age, "Age", false;
    Allow, "Allow", false;
    Authorization, "Authorization", false;
    CacheControl, "Cache-Control", false;
    CacheStatus, "Cache-Status", false;
    CdnCacheControl, "CDN-Cache-Control", false;
    Connection, "Connection", true;
    ContentDisposition, "Content-Disposition", false;
    ContentEncoding, "Content-Encoding", false;
    ContentLanguage, "Content-Language", false;
    ContentLength, "Content-Length", false;
    ContentLocation, "Content-Location", false;
    ContentMd5, "Content-MD5", false;
    ContentRange, "Content-Range", false;
    ContentType, "Content-Type", false;
    Cookie, "Cookie", false;
    Date, "Date", false;
    Etag, "ETag", false;
    Expect, "Expect", false;
    Expires, "Expires", false;
    Forwarded, "Forwarded", false;
    From, "From", false;
    Host, "Host", false;
    Http2Settings, "HTTP2-Settings", true;
    IfMatch, "If-Match", false;
    IfModifiedSince, "If-Modified-Since", false;
    IfNoneMatch, "If-None-Match", false;
    IfRange, "If-Range", false;
    IfUnmodifiedSince, "If-Unmodified-Since", false;
    KeepAlive, "Keep-Alive", true;
    LastModified, "Last-Modified", false;
    Location, "Location", false;
    MaxForwards, "Max-Forwards", false;
    Origin, "Origin", false;
    Pragma, "Pragma", false;
    ProxyAuthenticate, "Proxy-Authenticate", true;
    ProxyAuthorization, "Proxy-Authorization", true;
    ProxyConnection, "Proxy-Connection", true;
    ProxyStatus, "Proxy-Status", false;
    Range, "Range", false;
    Referer, "Referer", false;
    RetryAfter, "Retry-After", false;
    Server, "Server", false;
    SetCookie, "Set-Cookie", false;
    StrictTransportSecurity, "Strict-Transport-Security", false;
    SurrogateControl, "Surrogate-Control", false;
    SurrogateKey, "Surrogate-Key", false;
    Te, "TE", true;
    Trailer, "Trailer", true;
    TransferEncoding, "Transfer-Encoding", true;
    Upgrade, "Upgrade", true;
    UserAgent, "User-Agent", false;
    Vary, "Vary", false;
    Via, "Via", false;
    Warning, "Warning", false;
    WwwAuthenticate, "WWW-Authenticate", false;
    XCache, "X-Cache", false;
    XForwardedFor, "X-Forwarded-For", false;
    XForwardedHost, "X-Forwarded-Host", false;
    XForwardedProto, "X-Forwarded-Proto", false;
    XRequestId, "X-Request-Id", false;
    XVarnish, "X-Varnish", false;
}

const SLOTS: usize = 512;
const EMPTY: u8 = u8::MAX;

/// Mixes the length with the first, the middle and the last byte, letters taken without case.
const fn slot(name: &[u8], seed: u32) -> usize {
    let length = name.len();
    let first = (name[0] | 0x20) as u32;
    let middle = (name[length / 2] | 0x20) as u32;
    let last = (name[length - 1] | 0x20) as u32;
    let key = (length as u32) | first << 8 | middle << 16 | last << 24;
    (key.wrapping_mul(seed) >> 23) as usize
}

/// The table for `seed`, or `None` if two names fall into one slot.
const fn table(seed: u32) -> Option<[u8; SLOTS]> {
    let mut slots = [EMPTY; SLOTS];
    let mut index = 0;
    while index < Known::NAMES.len() {
        let at = slot(Known::NAMES[index].as_bytes(), seed);
        if slots[at] != EMPTY {
            return None;
        }
        slots[at] = index as u8;
        index += 1;
    }
    Some(slots)
}

/// The first odd multiplier of a fixed sequence that gives every name its own slot; searched while compiling.
const FOUND: (u32, [u8; SLOTS]) = {
    let mut seed = 0x9e37_79b1u32;
    loop {
        if let Some(slots) = table(seed) {
            break (seed, slots);
        }
        seed = seed.wrapping_mul(0x85eb_ca6b).wrapping_add(2) | 1;
    }
};
static SLOT: [u8; SLOTS] = FOUND.1;

// `Fields` keeps the set of names it has as bits of one u128.
const _: () = assert!(Known::ALL.len() <= 128);

impl Known {
    /// The known name equal to `name` without regard to case.
    #[inline]
    pub fn find(name: &[u8]) -> Option<Known> {
        if name.is_empty() {
            return None;
        }
        let index = SLOT[slot(name, FOUND.0)];
        if index == EMPTY {
            return None;
        }
        let known = Known::ALL[index as usize];
        let canonical = known.name().as_bytes();
        (name == canonical || name.eq_ignore_ascii_case(canonical)).then_some(known)
    }

    /// The name as the RFCs write it.
    #[inline]
    pub const fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    /// Whether the field speaks about one connection only and is never forwarded as it came.
    ///
    /// Source: RFC 9110, section 7.6.1; RFC 9113, section 8.2.2.
    #[inline]
    pub const fn is_hop_by_hop(self) -> bool {
        Self::HOP[self as usize]
    }

    /// The name with number `index`, as `known as u8` gives it.
    #[inline]
    pub(crate) fn from_index(index: u8) -> Option<Known> {
        Self::ALL.get(index as usize).copied()
    }

    #[inline]
    pub(crate) const fn bit(self) -> u128 {
        1 << self as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_found_in_any_case() {
        for (index, &known) in Known::ALL.iter().enumerate() {
            assert_eq!(known as usize, index);
            let name = known.name();
            assert_eq!(Known::find(name.as_bytes()), Some(known));
            assert_eq!(Known::find(name.to_ascii_lowercase().as_bytes()), Some(known));
            assert_eq!(Known::find(name.to_ascii_uppercase().as_bytes()), Some(known));
            assert_eq!(Known::find(format!("{name}x").as_bytes()), None);
            assert_eq!(Known::find(&name.as_bytes()[1..]), None);
        }
        assert_eq!(Known::find(b""), None);
        assert_eq!(Known::find(b"X-Anything"), None);
        assert_eq!(Known::find(b"\0"), None);
    }
}
