//! Why a request was answered as it was: one name for the log, for `Cache-Status` and for `copal explain`.
//!
//! The table below is the one list of them; the manual's (`docs/explain.md`) is held against it by a test. A reason that a
//! request meets is noted as a number and costs nothing; names and sentences are for who asks.

use copal_rules as rules;
use copal_wire::{Known, RequestHead};
use rules::reuse::{self, Allowed};
use rules::storable::Why;

/// The outcome that a reason explains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A stored response answers.
    Hit,
    /// The backend is asked, for the cache.
    Miss,
    /// The request waits for another one's fetch.
    Wait,
    /// The backend is asked, for this client alone.
    Pass,
    /// Client and backend are joined.
    Pipe,
    /// Neither the cache nor, to any use, a backend answers.
    Other,
    /// The response does not stay in the cache.
    NotStored,
}

impl Kind {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hit => "hit",
            Self::Miss => "miss",
            Self::Wait => "wait",
            Self::Pass => "pass",
            Self::Pipe => "pipe",
            Self::Other => "other",
            Self::NotStored => "not stored",
        }
    }
}

macro_rules! reasons {
    ($($variant:ident $kind:ident $name:literal $sentence:literal;)*) => {
        /// Why. See the module.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Reason {
            $(#[doc = $sentence] $variant,)*
        }

        impl Reason {
            /// All of them, in the order of the manual.
            pub const ALL: &'static [Reason] = &[$(Reason::$variant,)*];
        }

        const ROWS: &[(Kind, &str, &str)] = &[$((Kind::$kind, $name, $sentence),)*];
    };
}

reasons! {
    Hit Hit "hit" "A stored response is fresh.";
    Grace Hit "grace" "A stored response is stale but in its grace, in which it serves while a new one is fetched.";
    MaxStale Hit "max-stale" "A stored response is stale, and the client takes it (max-stale).";
    StaleIfError Hit "stale-if-error" "A stored response is stale, and may be used since the backend fails (stale-if-error).";
    Load Hit "load" "A stored response is on a device, and not in memory: it is loaded, and looked at then.";
    Partial Hit "partial" "Some of the bytes that the request wants are stored; the rest is fetched.";

    Absent Miss "absent" "Nothing is stored for the request.";
    Expired Miss "expired" "What is stored is stale and beyond its grace.";
    Variant Miss "variant" "What is stored answers requests with other fields: Vary names one that is different.";
    OtherPart Miss "other-part" "What is stored is a part that is kept by itself, and not what the client wants.";
    Banned Miss "banned" "What was stored is banned.";
    RequestNoCache Miss "request-no-cache" "The client wants the backend asked (no-cache).";
    RequestMaxAge Miss "request-max-age" "What is stored is older than the client wants (max-age).";
    MinFresh Miss "min-fresh" "What is stored will not be fresh for as long as the client wants (min-fresh).";
    Precondition Miss "precondition" "What is stored does not meet If-Match or If-Unmodified-Since of the client; the backend may have what does.";
    AlwaysMiss Miss "always-miss" "VCL set req.hash_always_miss.";
    HitForMiss Miss "hit-for-miss" "The last response was not stored, and left a marker so that requests do not wait for one another.";
    NoPieces Miss "no-pieces" "What is stored lacks what the request wants first, and the backend did not give it as a piece of that version.";
    LoadGone Miss "load-gone" "What was stored on a device was evicted or replaced while it was loaded.";
    LoadDamaged Miss "load-damaged" "What was stored on a device is damaged.";
    LoadUnreadable Miss "load-unreadable" "The device on which it is stored could not be read.";
    LoadNoRoom Miss "load-no-room" "What is stored on a device finds no room in memory.";
    Waited Miss "waited-too-long" "The fetch of another request, which this one waited for, took longer than waiting_list_timeout.";

    Busy Wait "busy" "Another request fetches it, and this one waits for that.";

    VclPass Pass "vcl-pass" "VCL returned pass.";
    Method Pass "method" "The method is not GET or HEAD (built-in VCL).";
    Authorization Pass "authorization" "The request has Authorization (built-in VCL).";
    Cookie Pass "cookie" "The request has Cookie (built-in VCL).";
    HitForPass Pass "hit-for-pass" "VCL made the last response hit-for-pass, and the marker of it is there.";
    NoTransform Pass "no-transform" "What is stored is compressed, the client takes no gzip, and the backend forbids to change it (no-transform).";
    NoPipe Pass "no-pipe" "VCL returned pipe, which is not to be had in HTTP/2 and in an include.";

    VclPipe Pipe "vcl-pipe" "VCL returned pipe.";
    UnknownMethod Pipe "unknown-method" "The method is not known (built-in VCL).";

    VclSynth Other "vcl-synth" "VCL answers by itself: it returned synth.";
    NoHost Other "no-host" "An HTTP/1.1 request has no Host (built-in VCL).";
    Purge Other "purge" "VCL returned purge.";
    OnlyIfCached Other "only-if-cached" "The client wants nothing but what is stored (only-if-cached), and that does not do.";
    Restart Other "restart" "VCL returned restart: the request begins anew.";
    TooManyRestarts Other "too-many-restarts" "VCL returned restart more often than max_restarts.";
    VclFailed Other "vcl-failed" "VCL failed, or returned fail.";

    ZeroTtl NotStored "zero-ttl" "Its ttl is zero or less.";
    SetCookie NotStored "set-cookie" "It sets a cookie.";
    SurrogateControl NotStored "surrogate-control" "Its Surrogate-Control has no-store.";
    CacheControl NotStored "cache-control" "Its Cache-Control has no-cache, no-store or private.";
    VaryStar NotStored "vary-star" "Its Vary has *.";
    VaryUnusable NotStored "vary-unusable" "Its Vary is no list of field names, or too long.";
    UnstorableMethod NotStored "unstorable-method" "The method is not GET.";
    UnstorableStatus NotStored "unstorable-status" "Its status is not that of a response by itself.";
    MustUnderstand NotStored "must-understand" "It has must-understand, and a status that is not understood.";
    NoStore NotStored "no-store" "It has no-store.";
    RequestNoStore NotStored "request-no-store" "The request has no-store.";
    Private NotStored "private" "It has private.";
    NotShared NotStored "not-shared" "The request has Authorization, and the response does not allow others to have it.";
    NoFreshness NotStored "no-freshness" "It says nothing of its freshness, and has a status without a default.";
    VclUncacheable NotStored "vcl-uncacheable" "VCL set beresp.uncacheable.";
    VclHitForPass NotStored "vcl-hit-for-pass" "VCL returned pass in vcl_backend_response.";
    NoRoom NotStored "no-room" "The store has no room for it.";
    FetchFailed NotStored "fetch-failed" "The backend gave no answer of use, or VCL abandoned it.";
}

impl Reason {
    /// Its name, which does not change: kebab case.
    pub fn name(self) -> &'static str {
        ROWS[self as usize].1
    }

    /// Its text, as a sentence.
    pub fn sentence(self) -> &'static str {
        ROWS[self as usize].2
    }

    /// The outcome that it explains.
    pub fn kind(self) -> Kind {
        ROWS[self as usize].0
    }

    /// Whether it says that what is stored would do for other requests.
    pub fn is_own_wish(self) -> bool {
        matches!(self, Self::RequestNoCache | Self::RequestMaxAge | Self::MinFresh | Self::Precondition)
    }

    /// The reason of that name.
    pub fn from_name(name: &[u8]) -> Option<Self> {
        Self::ALL.iter().copied().find(|reason| reason.name().as_bytes() == name)
    }

    /// Why the built-in `vcl_recv` passes the request.
    pub fn of_builtin_pass(request: &RequestHead) -> Self {
        match request.method.as_slice() {
            b"GET" | b"HEAD" if request.fields.has_known(Known::Authorization) => Self::Authorization,
            b"GET" | b"HEAD" => Self::Cookie,
            _ => Self::Method,
        }
    }
}

impl From<Why> for Reason {
    fn from(why: Why) -> Self {
        match why {
            Why::Expired => Self::ZeroTtl,
            Why::SetCookie => Self::SetCookie,
            Why::SurrogateControl => Self::SurrogateControl,
            Why::CacheControl => Self::CacheControl,
            Why::VaryStar => Self::VaryStar,
            Why::VaryUnusable => Self::VaryUnusable,
            Why::Method => Self::UnstorableMethod,
            Why::Status => Self::UnstorableStatus,
            Why::NotUnderstood => Self::MustUnderstand,
            Why::NoStore => Self::NoStore,
            Why::RequestNoStore => Self::RequestNoStore,
            Why::Private => Self::Private,
            Why::Authorization => Self::NotShared,
            Why::NotCacheable => Self::NoFreshness,
        }
    }
}

impl From<reuse::Why> for Reason {
    fn from(why: reuse::Why) -> Self {
        match why {
            reuse::Why::Stale => Self::Expired,
            reuse::Why::NoCache => Self::RequestNoCache,
            reuse::Why::MaxAge => Self::RequestMaxAge,
            reuse::Why::MinFresh => Self::MinFresh,
        }
    }
}

impl From<Allowed> for Reason {
    fn from(allowed: Allowed) -> Self {
        match allowed {
            Allowed::Grace => Self::Grace,
            Allowed::MaxStale => Self::MaxStale,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_kebab_case_and_lead_back() {
        for reason in Reason::ALL {
            let name = reason.name();
            assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-'), "{name}");
            assert_eq!(Reason::from_name(name.as_bytes()), Some(*reason));
            assert!(reason.sentence().ends_with('.'), "{name}");
        }
        assert_eq!(size_of::<Option<Reason>>(), 1);
    }

    /// The manual has each reason in a row of its own, and no other.
    #[test]
    fn the_manual_lists_them() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/explain.md");
        let manual = std::fs::read_to_string(path).unwrap();
        let (_, manual) = manual.split_once("## The reasons").unwrap();
        let rows: Vec<&str> = manual.lines().filter(|line| line.starts_with("| `")).collect();
        let wanted: Vec<String> = Reason::ALL
            .iter()
            .map(|reason| {
                format!("| `{}` | {} | {} |", reason.name(), reason.kind().name(), reason.sentence())
            })
            .collect();
        assert_eq!(rows, wanted, "docs/explain.md is to have these rows:\n{}", wanted.join("\n"));
    }
}
