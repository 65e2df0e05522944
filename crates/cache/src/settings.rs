//! What the cache can be told, with Varnish's parameter names and defaults.

use base::Seconds;
use catalog::ban::Pace;
use copal_base as base;
use copal_catalog as catalog;
use copal_rules as rules;
use rules::targeted::Names;
use std::sync::Arc;

/// Parameters in effect. Replaced as a whole while running; a request sees one state of it from start to end.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Freshness lifetime where the response says nothing.
    pub default_ttl: Seconds,
    /// Grace where VCL says nothing.
    pub default_grace: Seconds,
    /// Keep where VCL says nothing.
    pub default_keep: Seconds,
    /// With `rfc`: the least that a response is kept which can be validated.
    pub keep_validated: Seconds,
    /// With `rfc`: the longest freshness that is guessed from Last-Modified.
    pub heuristic_max: Seconds,
    /// With `rfc`: the longest freshness of an error, whatever it says.
    pub negative_max: Seconds,
    /// With `rfc`: the fields that stand in place of Cache-Control for caches like this one (RFC 9213).
    pub targeted_fields: Arc<Names>,
    /// How long a hit-for-miss marker made by the built-in VCL stands.
    pub uncacheable_ttl: Seconds,
    /// Objects with a shorter life than this go to `Transient`.
    pub shortlived: Seconds,
    /// How far an origin's clock may be off.
    pub clock_skew: Seconds,
    /// Restarts of a request.
    pub max_restarts: u32,
    /// Retries of a fetch.
    pub max_retries: u32,
    /// Whether `Range` is answered from cache.
    pub http_range_support: bool,
    /// The most ranges of one request that are served; with more, the whole object is.
    pub http_range_max: usize,
    /// How large the pieces are in which parts of an object are fetched and kept; 0: only wholes are.
    pub segment_size: u64,
    /// What is smaller is fetched and kept whole.
    pub sparse_min_size: u64,
    /// How often the eviction order is told of an object's use, at most.
    pub lru_interval: Seconds,
    /// Whether a purge is durable before the reply to it, where a store has devices (`journal_sync` is 0).
    pub sync_purges: bool,
    /// How many objects one request for memory may evict.
    pub nuke_limit: u64,
    /// How bans without `req.*` are tested in the background.
    pub ban_lurker: Pace,
    /// The largest request body that `std.cache_req_body` may ask for.
    pub cache_req_body_max: u64,
    /// The most bytes a VCL may make of one synthetic body.
    pub synthetic_max: usize,
    /// Whether requests are answered by the RFCs where Varnish has ways of its own, unless VCL chooses.
    pub rfc: bool,
    /// What `Cache-Status` says.
    pub cache_status: CacheStatus,
    /// How long beyond its freshness an object stands in for an origin's error where it does not say.
    pub default_stale_if_error: Seconds,
    /// How long the origin is not asked again for an object that stands in for its error.
    pub stale_if_error_pause: Seconds,
    /// Whether answers of our own in an origin's place, and stale ones, say why in `Proxy-Status`.
    pub proxy_status: bool,
    /// Whether that names the backend, too.
    pub proxy_status_next_hop: bool,
    /// Whether answers of our own in an origin's place say why in `X-Squid-Error`.
    pub squid_error: bool,
    /// How many further backends a director is asked for when one failed and nothing had been sent to it.
    pub fetch_elsewhere_max: usize,
    /// How long a reader of a body that is not stored whole may keep others waiting, for each MiB.
    pub slow_reader_patience: Seconds,
    /// Wait for a busy object at most this long, then fetch without it.
    pub waiting_list_timeout: Seconds,
    /// `server.identity` (`-i`).
    pub identity: String,
    /// `server.hostname`.
    pub hostname: String,
    /// What `Via` says of us; made by [`Settings::set_identity`].
    pub via: Vec<u8>,
    /// The most bytes of a response for one client that are collected where VCL forbids streaming.
    pub relay_max: usize,
    /// How many pipes there may be at a time; 0 is no limit.
    pub pipe_sess_max: u64,
    /// Whether bodies are asked for, stored and sent compressed.
    pub http_gzip_support: bool,
    /// How hard gzip tries: 0 to 9.
    pub gzip_level: u32,
    /// How much memory gzip may use: 1 to 9.
    pub gzip_memlevel: u32,
    /// Bytes that are compressed or expanded at once.
    pub gzip_buffer: usize,
    /// How deep ESI includes may be nested.
    pub max_esi_depth: u32,
    /// Bits of `feature`.
    pub features: Features,
    /// Limits of a message that VCL builds: bytes of its head.
    pub head_max: usize,
    /// And fields of its head.
    pub fields_max: usize,
    /// What `sess.*` time-outs are where VCL set none.
    pub session_timeouts: SessionTimeouts,
}

/// The parameter `cache_status`: what responses say of how they came about (RFC 9211).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CacheStatus {
    /// What follows the RFCs otherwise says this, too: as `On` with `req.rfc`, else as `Off`.
    #[default]
    Auto,
    /// Nothing is added.
    Off,
    /// Whether it was a hit, why the request was sent on, what is left of its freshness.
    On,
    /// The key and the reason, too.
    Detail,
}

impl CacheStatus {
    /// The words of the parameter.
    pub const WORDS: &[&str] = &["auto", "off", "on", "detail"];

    /// What the word stands for; [`CacheStatus::Auto`] for one that is none.
    pub fn of(word: &str) -> Self {
        match word {
            "off" => Self::Off,
            "on" => Self::On,
            "detail" => Self::Detail,
            _ => Self::Auto,
        }
    }
}

/// The parameters behind the `sess.*` time-outs, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SessionTimeouts {
    /// `timeout_idle`
    pub timeout_idle: Seconds,
    /// `timeout_linger`
    pub timeout_linger: Seconds,
    /// `idle_send_timeout`
    pub idle_send_timeout: Seconds,
    /// `send_timeout`
    pub send_timeout: Seconds,
}

impl Default for SessionTimeouts {
    fn default() -> Self {
        Self { timeout_idle: 5.0, timeout_linger: 0.05, idle_send_timeout: 60.0, send_timeout: 600.0 }
    }
}

/// The bits of the parameter `feature` that mean something to the cache, all off at first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools)]
pub struct Features {
    /// ESI: an `https:` address of an include is taken as `http:`.
    pub esi_ignore_https: bool,
    /// ESI: bodies are processed that do not look like XML.
    pub esi_disable_xml_check: bool,
    /// ESI: elements other than those of ESI are not looked into.
    pub esi_ignore_other_elements: bool,
    /// ESI: a byte-order mark at the start of a body is taken off.
    pub esi_remove_bom: bool,
    /// ESI: the parser is fed small pieces (a bit of `debug`).
    pub esi_chop: bool,
    /// ESI: a failed include breaks off the page, except for `onerror="continue"`.
    pub esi_include_onerror: bool,
    /// Dates in the forms that RFC 9110 does not allow are understood.
    pub http_date_postel: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            default_ttl: 120.0,
            default_grace: 10.0,
            default_keep: 0.0,
            keep_validated: 86_400.0,
            heuristic_max: 86_400.0,
            negative_max: 3_600.0,
            targeted_fields: Arc::default(),
            uncacheable_ttl: 120.0,
            shortlived: 10.0,
            clock_skew: 10.0,
            max_restarts: 4,
            max_retries: 4,
            http_range_support: true,
            http_range_max: 1000,
            segment_size: 1 << 20,
            sparse_min_size: 1 << 20,
            lru_interval: 2.0,
            sync_purges: false,
            nuke_limit: 50,
            ban_lurker: Pace::default(),
            cache_req_body_max: 64 << 20,
            synthetic_max: 1 << 20,
            rfc: false,
            cache_status: CacheStatus::Auto,
            default_stale_if_error: 600.0,
            stale_if_error_pause: 5.0,
            proxy_status: true,
            proxy_status_next_hop: false,
            squid_error: false,
            fetch_elsewhere_max: 1,
            slow_reader_patience: 5.0,
            waiting_list_timeout: 60.0,
            identity: "copal".to_owned(),
            hostname: "localhost".to_owned(),
            via: via_of("copal"),
            relay_max: 16 << 20,
            head_max: 96 << 10,
            pipe_sess_max: 0,
            http_gzip_support: true,
            gzip_level: 6,
            gzip_memlevel: 8,
            gzip_buffer: 32 << 10,
            max_esi_depth: 5,
            features: Features::default(),
            fields_max: 59,
            session_timeouts: SessionTimeouts::default(),
        }
    }
}

/// The product token in `Via`.
const PRODUCT: &str = concat!("Copal/", env!("CARGO_PKG_VERSION"));

fn via_of(identity: &str) -> Vec<u8> {
    format!("1.1 {identity} ({PRODUCT})").into_bytes()
}

impl Settings {
    /// Names this instance in `Via` and `server.identity`. Characters that RFC 9110 does not allow in a pseudonym
    /// become `_`.
    pub fn set_identity(&mut self, identity: &str) {
        let token: String = identity
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() || "-._".contains(c) { c } else { '_' })
            .collect();
        self.via = via_of(&token);
        identity.clone_into(&mut self.identity);
    }

    /// The value of our `Via` field (RFC 9110, section 7.6.3).
    pub fn via(&self) -> &[u8] {
        &self.via
    }

    /// The value of `Server` in answers of our own, before VCL has its say: the one that VCL, checks and rules in front of a
    /// Varnish know.
    pub fn server(&self) -> &'static [u8] {
        b"Varnish"
    }
}
