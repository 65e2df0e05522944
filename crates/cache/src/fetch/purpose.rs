//! The purpose of a fetch.

/// The purpose of a fetch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// For the cache.
    Miss,
    /// For the cache, while a stale object is served.
    Background,
    /// For one client alone.
    Pass,
    /// Missing segments of an object that is there in part.
    Segment,
}

impl Purpose {
    /// The name that links to such a fetch have in the log.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Miss => "fetch",
            Self::Background => "bgfetch",
            Self::Pass => "pass",
            Self::Segment => "segment",
        }
    }
}
