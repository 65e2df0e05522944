//! Varnish 7.1's parameters that have no effect here: accepted, so that command lines work, and said to be idle wherever
//! they are shown or set. Each with its reason.

use super::value::Kind::{self, Bits, Bytes, Count, Pool, Real, Seconds, Switch, Text, Unavailable};
use super::{Access, Row};

const fn idle(
    name: &'static str,
    kind: Kind,
    unit: &'static str,
    default: &'static str,
    why: &'static str,
) -> Row {
    Row { name, kind, unit, flags: &[], text: "", access: Access::Idle { default, why } }
}

const NO_POOLS: &str = "there is one thread for each processor, and no thread waits for a connection";
const NO_WORKSPACE: &str = "memory of a request grows as needed, within limits of its own";
const NO_POOL: &str = "memory is not kept in pools";
const NO_C: &str = "VCL is not compiled to C";
const NO_GZIP: &str = "responses are stored and sent in the coding that the backend chose";
const NO_ESI: &str = "ESI is not processed";
const NO_HTTP2: &str = "HTTP/2 is refused";
const ACCEPTOR: &str = "a thread that cannot accept waits a fixed short time";

/// The bits of `feature`.
const FEATURES: &[&str] = &[
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
];

/// The bits of `debug`.
const DEBUG: &[&str] = &[
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
];

pub(super) static IDLE: &[Row] = &[
    idle("accept_filter", Unavailable, "", "", "Linux has no accept filters"),
    idle("acceptor_sleep_decay", Real(0.0, 1.0), "", "0.9", ACCEPTOR),
    idle("acceptor_sleep_incr", Seconds(0.0, Some(1.0)), "seconds", "0.000", ACCEPTOR),
    idle("acceptor_sleep_max", Seconds(0.0, Some(10.0)), "seconds", "0.050", ACCEPTOR),
    idle("cc_command", Text, "", "", NO_C),
    idle("cc_warnings", Text, "", "", NO_C),
    idle("clock_step", Seconds(0.0, None), "seconds", "1.000", "steps of the clock are not looked for"),
    idle("critbit_cooloff", Seconds(60.0, Some(254.0)), "seconds", "180.000", "the index is not a tree"),
    idle("debug", Bits(DEBUG), "", "none", "the bits name internals of Varnish"),
    idle("experimental", Text, "", "none", "the bits name internals of Varnish"),
    idle(
        "feature",
        Bits(FEATURES),
        "",
        "+validate_headers",
        "HTTP/2 is refused, ESI is not processed, header values are always validated",
    ),
    idle("fetch_chunksize", Bytes(4 << 10, None), "bytes", "16k", "pieces of a body are sized by its length"),
    idle(
        "fetch_maxchunksize",
        Bytes(64 << 10, None),
        "bytes",
        "0.25G",
        "pieces of a body are sized by its length",
    ),
    idle("gzip_buffer", Bytes(2 << 10, None), "bytes", "32k", NO_GZIP),
    idle("gzip_level", Count(0, Some(9)), "", "6", NO_GZIP),
    idle("gzip_memlevel", Count(1, Some(9)), "", "8", NO_GZIP),
    idle("h2_header_table_size", Bytes(0, None), "bytes", "4k", NO_HTTP2),
    idle("h2_initial_window_size", Bytes(65_535, Some(2_147_483_647)), "bytes", "65535b", NO_HTTP2),
    idle("h2_max_concurrent_streams", Count(0, None), "streams", "100", NO_HTTP2),
    idle("h2_max_frame_size", Bytes(16 << 10, Some(16_777_215)), "bytes", "16k", NO_HTTP2),
    idle("h2_max_header_list_size", Bytes(0, None), "bytes", "2147483647b", NO_HTTP2),
    idle("h2_rx_window_increment", Bytes(1 << 20, Some(1 << 30)), "bytes", "1M", NO_HTTP2),
    idle("h2_rx_window_low_water", Bytes(65_535, Some(1 << 30)), "bytes", "10M", NO_HTTP2),
    idle("h2_rxbuf_storage", Text, "", "Transient", NO_HTTP2),
    idle(
        "http1_iovs",
        Count(5, Some(1024)),
        "struct iovec (=16 bytes)",
        "64",
        "a response is sent in as few calls as it fits",
    ),
    idle("http_gzip_support", Switch, "bool", "on", NO_GZIP),
    idle("max_esi_depth", Count(0, None), "levels", "5", NO_ESI),
    idle("pcre2_depth_limit", Count(1, None), "", "20", "the limit on matching steps bounds the depth too"),
    idle(
        "pcre2_jit_compilation",
        Switch,
        "bool",
        "on",
        "regular expressions are always compiled to machine code",
    ),
    idle("pcre2_match_limit", Count(1, None), "", "10000", "the limit on matching steps is fixed"),
    idle("pipe_sess_max", Count(0, None), "connections", "0", "a pipe holds no thread"),
    idle("pool_req", Pool, "", "10,100,10", NO_POOL),
    idle("pool_sess", Pool, "", "10,100,10", NO_POOL),
    idle("pool_vbo", Pool, "", "10,100,10", NO_POOL),
    idle(
        "rush_exponent",
        Count(2, None),
        "requests per request",
        "3",
        "who waits for an object reads it as it comes",
    ),
    idle("sigsegv_handler", Switch, "bool", "on", "the manager reports the signals that a worker dies of"),
    idle("tcp_fastopen", Switch, "bool", "off", "listening sockets do not offer TCP Fast Open"),
    idle("thread_pool_add_delay", Seconds(0.0, None), "seconds", "0.000", NO_POOLS),
    idle("thread_pool_destroy_delay", Seconds(0.01, None), "seconds", "1.000", NO_POOLS),
    idle("thread_pool_fail_delay", Seconds(0.01, None), "seconds", "0.200", NO_POOLS),
    idle("thread_pool_max", Count(100, None), "threads", "5000", NO_POOLS),
    idle("thread_pool_min", Count(5, Some(5000)), "threads", "100", NO_POOLS),
    idle("thread_pool_reserve", Count(0, Some(95)), "threads", "0", NO_POOLS),
    idle("thread_pool_stack", Bytes(16 << 10, None), "bytes", "80k", NO_POOLS),
    idle("thread_pool_timeout", Seconds(10.0, None), "seconds", "300.000", NO_POOLS),
    idle("thread_pool_watchdog", Seconds(0.1, None), "seconds", "60.000", NO_POOLS),
    idle("thread_pools", Count(1, Some(32)), "pools", "2", NO_POOLS),
    idle("thread_queue_limit", Count(0, None), "requests", "20", NO_POOLS),
    idle("thread_stats_rate", Count(0, None), "requests", "10", "counters are read where they are counted"),
    idle(
        "timeout_linger",
        Seconds(0.0, None),
        "seconds",
        "0.050",
        "no thread waits for a connection, so none lingers",
    ),
    idle("vary_notice", Count(1, None), "variants", "10", "many variants are not reported"),
    idle("vcc_allow_inline_c", Switch, "bool", "off", NO_C),
    idle("vcc_unsafe_path", Switch, "bool", "on", "VCL files are read with the rights of the daemon"),
    idle("vmod_path", Text, "", "", "modules are part of the program"),
    idle(
        "vsm_free_cooldown",
        Seconds(10.0, Some(600.0)),
        "seconds",
        "60.000",
        "freed shared memory goes at once",
    ),
    idle("workspace_backend", Bytes(1 << 10, None), "bytes", "96k", NO_WORKSPACE),
    idle("workspace_session", Bytes(384, None), "bytes", "0.75k", NO_WORKSPACE),
    idle("workspace_thread", Bytes(256, Some(8 << 10)), "bytes", "2k", NO_WORKSPACE),
];
