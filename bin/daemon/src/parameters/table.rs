//! The parameters that have an effect: one row each, and from the rows the struct that holds their values.
//!
//! Names, defaults, bounds and units are Varnish 7.1's where it has the parameter. The last group is Copal's own.

use super::value::{BitNames, Kind, Value};
use super::{Access, Flag, Row};
use copal_cache::settings::CacheStatus;
use copal_observe as observe;
use copal_store::Policy;
use std::collections::BTreeMap;

/// What a field of [`Parameters`] has in common with [`Value`].
trait Field {
    fn get(&self) -> Value;
    fn set(&mut self, value: Value);
}

macro_rules! field {
    ($type:ty, $variant:ident) => {
        impl Field for $type {
            fn get(&self) -> Value {
                Value::$variant(self.clone())
            }

            fn set(&mut self, value: Value) {
                let Value::$variant(value) = value else {
                    unreachable!("a kind makes values of one variant")
                };
                *self = value;
            }
        }
    };
}

field!(f64, Real);
field!(u64, Whole);
field!(bool, Switch);
field!(String, Text);

macro_rules! parameters {
    ($($name:ident: $type:ty = $default:expr, $kind:expr, $unit:literal, [$($flag:ident)*], $text:literal;)*) => {
        /// The values of all parameters: a field for each that has an effect, and the others by name.
        #[derive(Clone, Debug, PartialEq)]
        pub(crate) struct Parameters {
            $(#[doc = $text] pub(crate) $name: $type,)*
            /// Values set for parameters without effect.
            pub(super) idle: BTreeMap<&'static str, Value>,
        }

        impl Default for Parameters {
            fn default() -> Self {
                Self { $($name: $default,)* idle: BTreeMap::new() }
            }
        }

        pub(super) static EFFECTIVE: &[Row] = &[$(Row {
            name: stringify!($name),
            kind: $kind,
            unit: $unit,
            flags: &[$(Flag::$flag),*],
            text: $text,
            access: Access::Field {
                get: |parameters| Field::get(&parameters.$name),
                set: |parameters, value| Field::set(&mut parameters.$name, value),
            },
        },)*];
    };
}

use Kind::{Bits, Bytes, Count, FieldNames, Seconds, Switch, Text, Word};

/// The bits of `feature`.
const FEATURES: BitNames = BitNames {
    word: "feature bit",
    names: &[
        "http2",
        "short_panic",
        "no_coredump",
        "https_scheme",
        "http_date_postel",
        "esi_ignore_https",
        "esi_disable_xml_check",
        "esi_ignore_other_elements",
        "esi_remove_bom",
        "esi_include_onerror",
        "wait_silo",
        "validate_headers",
        "busy_stats_rate",
    ],
};

/// The bits of `debug`.
const DEBUG: BitNames = BitNames {
    word: "debug bit",
    names: &[
        "req_state",
        "workspace",
        "waitinglist",
        "syncvsl",
        "hashedge",
        "vclrel",
        "lurker",
        "esi_chop",
        "flush_head",
        "vtc_mode",
        "witness",
        "vsm_keep",
        "slow_acceptor",
        "h2_nocheck",
        "vmod_so_keep",
        "processors",
        "protocol",
        "vcl_keep",
        "lck",
    ],
};

parameters! {
    auto_restart: bool = true, Switch, "bool", [],
        "Whether another worker is started when one dies.";
    backend_idle_timeout: f64 = 60.0, Seconds(1.0, None), "seconds", [],
        "How long a connection to a backend is kept for reuse.";
    backend_local_error_holddown: f64 = 10.0, Seconds(0.0, None), "seconds", [Experimental],
        "How long no connection to a backend is tried after one failed for a reason on this machine.";
    backend_remote_error_holddown: f64 = 0.25, Seconds(0.0, None), "seconds", [Experimental],
        "How long no connection to a backend is tried after one was refused or unreachable.";
    ban_cutoff: u64 = 0, Count(0, None), "bans", [Experimental],
        "Objects that were not tested against the newest bans, this many less one, are removed untested, so that the list \
         of bans gets no longer. Zero never does.";
    ban_dups: bool = true, Switch, "bool", [],
        "Whether a new ban completes older ones that equal it.";
    ban_lurker_age: f64 = 60.0, Seconds(0.0, None), "seconds", [],
        "How old a ban must be to be tested in the background: while they come in bursts, lookups test them.";
    ban_lurker_batch: u64 = 1000, Count(1, None), "", [],
        "How many objects are tested in the background between two rests of ban_lurker_sleep.";
    ban_lurker_holdoff: f64 = 0.01, Seconds(0.0, None), "seconds", [Experimental],
        "How long the background test of bans rests when it gets in the way of lookups.";
    ban_lurker_sleep: f64 = 0.01, Seconds(0.0, None), "seconds", [],
        "How long the background test of bans rests after ban_lurker_batch objects. Zero turns it off.";
    between_bytes_timeout: f64 = 60.0, Seconds(0.0, None), "seconds", [],
        "The longest wait between two pieces of a backend's response. VCL and backend definitions come first.";
    cli_limit: u64 = 48 << 10, Bytes(128, Some(99_999_999)), "bytes", [],
        "The longest reply of the command line; of a longer one the rest is left out and the status is 201.";
    cli_timeout: f64 = 60.0, Seconds(0.0, None), "seconds", [],
        "How long the worker may take to answer the manager; one that takes longer is killed.";
    clock_skew: u64 = 10, Count(0, None), "seconds", [],
        "How far a backend's clock may differ from ours before its Date is used to reckon Expires.";
    connect_timeout: f64 = 3.5, Seconds(0.0, None), "seconds", [],
        "The longest wait for a connection to a backend. VCL and backend definitions come first.";
    debug: String = "none".to_owned(), Bits(&DEBUG), "", [],
        "Switches for tests: esi_chop feeds the ESI parser small pieces, syncvsl writes each log record at once. The other bits \
         name internals of Varnish and have no effect.";
    default_grace: f64 = 10.0, Seconds(0.0, None), "seconds", [ObjSticky],
        "How long a stale object may be served while it is fetched anew, where VCL does not say.";
    default_keep: f64 = 0.0, Seconds(0.0, None), "seconds", [ObjSticky],
        "How long after ttl and grace an object is kept for conditional fetches, where VCL does not say.";
    default_ttl: f64 = 120.0, Seconds(0.0, None), "seconds", [ObjSticky],
        "How long an object is fresh, where neither the backend nor VCL says.";
    feature: String = "+validate_headers".to_owned(), Bits(&FEATURES), "", [],
        "Small choices, each on or off. short_panic, no_coredump, wait_silo, validate_headers and busy_stats_rate \
         change nothing here: HTTP/2 is refused, values of header fields are always validated, the others name internals \
         of Varnish.";
    first_byte_timeout: f64 = 60.0, Seconds(0.0, None), "seconds", [],
        "The longest wait for the first byte of a backend's response. VCL and backend definitions come first.";
    gzip_buffer: u64 = 32 << 10, Bytes(2 << 10, None), "bytes", [Experimental],
        "How many bytes are compressed or expanded at once.";
    gzip_level: u64 = 6, Count(0, Some(9)), "", [],
        "How hard gzip tries: 0 not at all, 1 is fast, 9 makes the smallest.";
    gzip_memlevel: u64 = 8, Count(1, Some(9)), "", [],
        "How much memory gzip may use: 1 is little, 9 is most.";
    h2_header_table_size: u64 = 4 << 10, Bytes(0, Some(1 << 20)), "bytes", [],
        "HTTP/2: how large a table of fields a client may have us keep for its compression.";
    h2_initial_window_size: u64 = 65_535, Bytes(65_535, Some(2_147_483_647)), "bytes", [],
        "HTTP/2: how much of a request body a client may send before it is asked for more.";
    h2_max_concurrent_streams: u64 = 100, Count(0, None), "streams", [],
        "HTTP/2: how many requests of one connection are taken at once; further ones are refused.";
    h2_max_frame_size: u64 = 16 << 10, Bytes(16 << 10, Some(16_777_215)), "bytes", [],
        "HTTP/2: the largest frame that is accepted.";
    h2_max_header_list_size: u64 = 2_147_483_647, Bytes(0, None), "bytes", [],
        "HTTP/2: the largest head of a request. The limits of http_req_size and http_max_hdr hold besides.";
    http_gzip_support: bool = true, Switch, "bool", [],
        "Whether bodies are asked for, stored and sent compressed where that helps.";
    http_max_hdr: u64 = 64, Count(32, Some(65_535)), "header lines", [],
        "The most lines in the head of a message, the first line counted.";
    http_range_support: bool = true, Switch, "bool", [],
        "Whether Range is answered from cache.";
    http_req_hdr_len: u64 = 8 << 10, Bytes(40, None), "bytes", [],
        "The longest line in the head of a client's request. A Range field may be longer: only http_req_size bounds it.";
    http_req_size: u64 = 32 << 10, Bytes(256, None), "bytes", [],
        "The longest head of a client's request.";
    http_resp_hdr_len: u64 = 8 << 10, Bytes(40, None), "bytes", [],
        "The longest line in the head of a backend's response.";
    http_resp_size: u64 = 32 << 10, Bytes(256, None), "bytes", [],
        "The longest head of a backend's response.";
    idle_send_timeout: f64 = 60.0, Seconds(0.0, None), "seconds", [DelayedEffect],
        "How long a client may take nothing of what is sent to it before its connection is closed.";
    journal_sync: f64 = 0.1, Seconds(0.0, Some(60.0)), "seconds", [],
        "How long a purge, or another change to what stands on the devices of a store, may take until it survives a crash. \
         Zero: it does before the reply. Bans of the command line always do.";
    listen_depth: u64 = 1024, Count(0, None), "connections", [MustRestart],
        "How many connections may wait to be accepted on a listening socket.";
    lru_interval: f64 = 2.0, Seconds(0.0, None), "seconds", [Experimental],
        "How long after a use an object's further uses do not count in the order of eviction.";
    max_esi_depth: u64 = 5, Count(0, None), "levels", [],
        "How deep ESI includes may be nested.";
    max_restarts: u64 = 4, Count(0, None), "restarts", [],
        "How often a request may be restarted.";
    max_retries: u64 = 4, Count(0, None), "retries", [],
        "How often a fetch may be retried.";
    max_vcl: u64 = 100, Count(0, None), "", [],
        "How many VCLs may be loaded. What happens beyond is said by max_vcl_handling.";
    max_vcl_handling: u64 = 1, Count(0, Some(2)), "", [],
        "Beyond max_vcl: 0 loads, 1 loads with a warning, 2 refuses.";
    nuke_limit: u64 = 50, Count(0, None), "allocations", [Experimental],
        "How many objects may be evicted to make room for one piece of another.";
    pcre2_depth_limit: u64 = 20, Count(1, None), "", [],
        "How deep a match of a regular expression may nest where the pattern is not machine code. For patterns that are \
         compiled from then on, as are the other two.";
    pcre2_jit_compilation: bool = true, Switch, "bool", [],
        "Whether regular expressions are compiled to machine code.";
    pcre2_match_limit: u64 = 10_000, Count(1, None), "", [],
        "How many steps a match of a regular expression may take; a longer one fails the request.";
    ping_interval: u64 = 3, Count(0, None), "seconds", [MustRestart],
        "How often the manager asks whether the worker lives. Zero is never, for debuggers.";
    pipe_sess_max: u64 = 0, Count(0, None), "connections", [],
        "How many pipes there may be at a time; requests for more fail. Zero is no limit.";
    pipe_timeout: f64 = 60.0, Seconds(0.0, None), "seconds", [],
        "How long a pipe may carry nothing either way before it is closed.";
    prefer_ipv6: bool = false, Switch, "bool", [],
        "Whether a backend that has both kinds of addresses is tried by IPv6 first.";
    scrub_rate: u64 = 0, Bytes(0, None), "bytes", [],
        "How many bytes a second are read on each device of a store to find what is damaged before somebody asks for it. \
         Zero is never.";
    send_timeout: f64 = 600.0, Seconds(0.0, None), "seconds", [DelayedEffect],
        "The longest time to send one response to a client.";
    shortlived: f64 = 10.0, Seconds(0.0, None), "seconds", [],
        "Objects whose ttl, grace and keep are less than this together go to the Transient store.";
    syslog_cli_traffic: bool = true, Switch, "bool", [],
        "Whether commands given on the command line are written to the process log.";
    tcp_keepalive_intvl: f64 = 75.0, Seconds(1.0, Some(100.0)), "seconds", [Experimental],
        "Seconds between two keep-alive probes of the kernel on a client's connection.";
    tcp_keepalive_probes: u64 = 9, Count(1, Some(100)), "probes", [Experimental],
        "How many keep-alive probes without an answer end a client's connection.";
    tcp_keepalive_time: f64 = 7200.0, Seconds(1.0, Some(7200.0)), "seconds", [Experimental],
        "How long a client's connection is idle before the kernel begins to probe it.";
    timeout_idle: f64 = 5.0, Seconds(0.0, None), "seconds", [],
        "How long a client's connection may wait for its next request.";
    timeout_linger: f64 = 0.05, Seconds(0.0, None), "seconds", [Experimental],
        "How long a client's connection may wait and still be sure of its thread: of meaning only to debug.reqpool.fail, \
         since no thread waits for a connection.";
    vcc_err_unref: bool = true, Switch, "bool", [],
        "Whether VCL is refused that defines a backend, ACL, probe or subroutine and does not use it.";
    vcc_unsafe_path: bool = true, Switch, "bool", [],
        "Whether names of VCL files, loaded or included, may have a slash.";
    vcl_cooldown: f64 = 600.0, Seconds(1.0, None), "seconds", [],
        "How long a VCL that is no longer used stays warm, if its state is auto.";
    vcl_path: String = "/etc/varnish:/usr/share/varnish/vcl".to_owned(), Text, "", [BuildOptions],
        "Directories, with colons between, in which relative names of VCL files are looked for.";
    vsl_buffer: u64 = 16 << 10, Bytes(128, None), "bytes", [],
        "How much of a transaction's records a thread keeps before it writes them to the request log.";
    vsl_mask: String = observe::mask::Mask::default().to_string(), Kind::Mask, "", [],
        "Which tags are left out of the request log. +Tag and -Tag put one in or out; default is the word for the \
         value at the start.";
    vsl_reclen: u64 = 255, Bytes(16, None), "bytes", [],
        "The longest record of the request log; longer ones are cut.";
    vsl_space: u64 = 80 << 20, Bytes(1 << 20, Some(4 << 30)), "bytes", [MustRestart],
        "The size of the request log's ring in shared memory.";
    workspace_client: u64 = 96 << 10, Bytes(9 << 10, None), "bytes", [DelayedEffect],
        "The longest head that VCL may make of a request or response.";

    cache_req_body_max: u64 = 64 << 20, Bytes(0, None), "bytes", [],
        "The largest request body that std.cache_req_body keeps, whatever VCL asks for. Copal's own.";
    cache_status: String = "auto".to_owned(), Word(CacheStatus::WORDS), "", [],
        "What Cache-Status (RFC 9211) says in responses: nothing (off), how they came about (on), key and reason, too \
         (detail); auto is on for requests that are answered by the RFCs (rfc, req.rfc), off for others. Copal's own.";
    default_stale_if_error: f64 = 600.0, Seconds(0.0, None), "seconds", [ObjSticky],
        "With rfc: how long beyond its freshness an object stands in where its origin cannot be reached or gives no answer \
         (RFC 9111, section 4.2.4), if it says nothing itself (stale-if-error, RFC 5861). Objects are kept for as long. \
         Copal's own.";
    drain_limit: f64 = 10.0, Seconds(0.0, Some(3600.0)), "seconds", [],
        "How long requests under way may go on when the cache is stopped. Copal's own.";
    eviction_policy: String = Policy::default().name().to_owned(), Word(Policy::NAMES), "", [MustRestart],
        "Which objects of a full store go: by their last use (lru, as near as second chance comes to it), by S3-FIFO (s3fifo) \
         or by SIEVE (sieve). What each would hit of an access log, copal sim tells. Copal's own.";
    fetch_bytes_max: u64 = 0, Bytes(0, None), "bytes", [],
        "The longest body that is taken from a backend; a longer one fails, and its readers are cut. Zero is no limit. \
         Copal's own.";
    fetch_elsewhere_max: u64 = 1, Count(0, Some(16)), "backends", [],
        "How many further backends a director is asked for, for one try of a fetch, when one failed before anything was \
         sent to it. Copal's own.";
    fetch_time_max: f64 = 0.0, Seconds(0.0, None), "seconds", [],
        "The longest time from a request sent to a backend to the end of its response, however busily that comes; one that \
         takes longer fails, and its readers are cut. Zero is no limit. Copal's own.";
    heuristic_max: f64 = 86_400.0, Seconds(0.0, None), "seconds", [],
        "With rfc: the longest that a response is fresh which does not say so itself; it is a tenth of the time since its \
         Last-Modified. Copal's own.";
    http_range_max: u64 = 1000, Count(1, Some(10_000)), "ranges", [],
        "The most ranges of one request that are served; with more, the whole object is. Copal's own.";
    keep_validated: f64 = 86_400.0, Seconds(0.0, None), "seconds", [],
        "With rfc: how long, at least, a response is kept after ttl and grace that has a validator, so that the backend can \
         be asked whether it is still good. Copal's own.";
    memory_max: u64 = 0, Bytes(0, None), "bytes", [],
        "How much memory the worker may hold in all, pages of files left out: what it needs itself, connections, the request \
         log in a file system in memory, and objects. At the limit all stores evict for what comes, and become smaller \
         where that does not do; what finds no room passes. Zero is no limit. Copal's own.";
    negative_max: f64 = 3_600.0, Seconds(0.0, None), "seconds", [],
        "With rfc: the longest that an error (a status of 400 or more) is fresh, whatever it says. Copal's own.";
    proxy_status: bool = true, Switch, "bool", [],
        "Whether an answer made here for want of one from a backend says why in Proxy-Status (RFC 9209), as does a stale \
         object in its place. Copal's own.";
    proxy_status_next_hop: bool = false, Switch, "bool", [],
        "Whether Proxy-Status names the backend, as VCL calls it. Copal's own.";
    relay_max: u64 = 16 << 20, Bytes(64 << 10, None), "bytes", [],
        "The most that is collected of a response that is for one client and may not be streamed. Copal's own.";
    rfc: bool = false, Switch, "bool", [],
        "Whether requests are answered by RFC 9111 and RFC 9110 where Varnish has ways of its own; VCL can choose for \
         each request (req.rfc). Copal's own.";
    segment_size: u64 = 1 << 20, Bytes(0, Some(1 << 30)), "bytes", [],
        "How large the pieces are in which parts of large objects are fetched and kept; 0: objects are fetched whole. \
         Those that are kept already stay as they are. Copal's own.";
    sparse_min_size: u64 = 1 << 20, Bytes(0, None), "bytes", [],
        "What is smaller than this is fetched and kept whole, whatever part of it is asked for. Copal's own.";
    slow_reader_patience: f64 = 5.0, Seconds(0.0, None), "seconds", [],
        "Of a body that outgrew its store and has several readers: how long the slowest may keep the others waiting, for \
         each MiB, before it is cut off. Zero is for ever. Copal's own.";
    squid_error: bool = false, Switch, "bool", [],
        "Whether an answer made here for want of one from a backend says why in X-Squid-Error, in Squid's words. Copal's own.";
    stale_if_error_pause: f64 = 5.0, Seconds(0.0, Some(3600.0)), "seconds", [],
        "With rfc: how long an object that stands in for its failed origin is served before that is asked again. Copal's own.";
    synthetic_max: u64 = 1 << 20, Bytes(1 << 10, None), "bytes", [],
        "The longest body that VCL may make. Copal's own.";
    targeted_fields: String = "CDN-Cache-Control".to_owned(), FieldNames, "", [],
        "With rfc: the response fields that stand in place of Cache-Control for this cache, the most specific first, with \
         commas or blanks between (RFC 9213). Copal's own.";
    timeout_body: f64 = 0.0, Seconds(0.0, None), "seconds", [],
        "How long a client may pause within the body of a request; 0 is timeout_idle. Copal's own.";
    timeout_req: f64 = 2.0, Seconds(0.0, None), "seconds", [],
        "How long the head of a request may take from its first byte. Copal's own.";
    uncacheable_ttl: f64 = 120.0, Seconds(0.0, None), "seconds", [ObjSticky],
        "How long it is remembered that a response could not be cached, so that requests do not wait for each other.";
    waiting_list_timeout: f64 = 60.0, Seconds(0.0, None), "seconds", [],
        "How long a request waits for another's fetch of the same object before it fetches by itself. Copal's own.";
    xkey_fields: String = "xkey X-HashTwo".to_owned(), Text, "", [MustRestart],
        "The response fields, with blanks between, that name the surrogate keys of an object for the VMOD xkey: for \
         instance \"xkey X-HashTwo Surrogate-Key\". Copal's own.";
    xkey_max: u64 = 16 << 20, Count(0, None), "links", [],
        "How many links there may be from surrogate keys to objects. An object whose keys go beyond is not stored. \
         Copal's own.";
}

impl Parameters {
    /// Whether that bit of `feature` is on.
    pub(crate) fn feature(&self, name: &str) -> bool {
        FEATURES.is_on(&self.feature, name)
    }

    /// Whether that bit of `debug` is on.
    pub(crate) fn debug(&self, name: &str) -> bool {
        DEBUG.is_on(&self.debug, name)
    }
}
