//! Varnish 7.1's parameters that have no effect here: accepted, so that command lines work, and said to be idle wherever
//! they are shown or set. Each with its reason.

use super::value::BitNames;
use super::value::Kind::{self, Bits, Bytes, Count, Pool, Real, Seconds, Switch, Text, Unavailable};
use super::{Access, Flag, Row};
use Flag::{BuildOptions, DelayedEffect, Experimental, MustReload, MustRestart, Wizard};

const fn idle(
    name: &'static str,
    kind: Kind,
    unit: &'static str,
    default: &'static str,
    why: &'static str,
) -> Row {
    Row { name, kind, unit, flags: &[], text: "", access: Access::Idle { default, why } }
}

impl Row {
    const fn flags(mut self, flags: &'static [Flag]) -> Self {
        self.flags = flags;
        self
    }
}

const NO_POOLS: &str = "there is one thread for each processor, and no thread waits for a connection";
const NO_WORKSPACE: &str = "memory of a request grows as needed, within limits of its own";
const NO_POOL: &str = "memory is not kept in pools";
const NO_C: &str = "VCL is not compiled to C";
const OWN_WINDOW: &str = "a window grows by what has been read of it";
const ACCEPTOR: &str = "a thread that cannot accept waits a fixed short time";

/// The bits of `experimental`.
const EXPERIMENTAL: BitNames = BitNames { word: "experimental bit", names: &["drop_pools"] };

pub(super) static IDLE: &[Row] = &[
    idle("accept_filter", Unavailable, "", "", "Linux has no accept filters"),
    idle("acceptor_sleep_decay", Real(0.0, 1.0), "", "0.9", ACCEPTOR).flags(&[Experimental]),
    idle("acceptor_sleep_incr", Seconds(0.0, Some(1.0)), "seconds", "0.000", ACCEPTOR).flags(&[Experimental]),
    idle("acceptor_sleep_max", Seconds(0.0, Some(10.0)), "seconds", "0.050", ACCEPTOR).flags(&[Experimental]),
    idle("cc_command", Text, "", "", NO_C).flags(&[MustReload, BuildOptions]),
    idle("cc_warnings", Text, "", "", NO_C).flags(&[MustReload, BuildOptions]),
    idle("clock_step", Seconds(0.0, None), "seconds", "1.000", "steps of the clock are not looked for"),
    idle("critbit_cooloff", Seconds(60.0, Some(254.0)), "seconds", "180.000", "the index is not a tree")
        .flags(&[Wizard]),
    idle("experimental", Bits(&EXPERIMENTAL), "", "none", "the bits name internals of Varnish"),
    idle("fetch_chunksize", Bytes(4 << 10, None), "bytes", "16k", "pieces of a body are sized by its length")
        .flags(&[Experimental]),
    idle(
        "fetch_maxchunksize",
        Bytes(64 << 10, None),
        "bytes",
        "0.25G",
        "pieces of a body are sized by its length",
    )
    .flags(&[Experimental]),
    idle("h2_rx_window_increment", Bytes(1 << 20, Some(1 << 30)), "bytes", "1M", OWN_WINDOW).flags(&[Wizard]),
    idle("h2_rx_window_low_water", Bytes(65_535, Some(1 << 30)), "bytes", "10M", OWN_WINDOW).flags(&[Wizard]),
    idle("h2_rxbuf_storage", Text, "", "Transient", OWN_WINDOW).flags(&[MustRestart]),
    idle(
        "http1_iovs",
        Count(5, Some(1024)),
        "struct iovec (=16 bytes)",
        "64",
        "a response is sent in as few calls as it fits",
    )
    .flags(&[Wizard]),
    idle("pool_req", Pool, "", "10,100,10", NO_POOL),
    idle("pool_sess", Pool, "", "10,100,10", NO_POOL),
    idle("pool_vbo", Pool, "", "10,100,10", NO_POOL),
    idle(
        "rush_exponent",
        Count(2, None),
        "requests per request",
        "3",
        "who waits for an object reads it as it comes",
    )
    .flags(&[Experimental]),
    idle("sigsegv_handler", Switch, "bool", "on", "the manager reports the signals that a worker dies of")
        .flags(&[MustRestart]),
    idle("tcp_fastopen", Switch, "bool", "off", "listening sockets do not offer TCP Fast Open")
        .flags(&[MustRestart]),
    idle("thread_pool_add_delay", Seconds(0.0, None), "seconds", "0.000", NO_POOLS).flags(&[Experimental]),
    idle("thread_pool_destroy_delay", Seconds(0.01, None), "seconds", "1.000", NO_POOLS)
        .flags(&[DelayedEffect, Experimental]),
    idle("thread_pool_fail_delay", Seconds(0.01, None), "seconds", "0.200", NO_POOLS).flags(&[Experimental]),
    idle("thread_pool_max", Count(0, None), "threads", "5000", NO_POOLS).flags(&[DelayedEffect]),
    idle("thread_pool_min", Count(5, None), "threads", "100", NO_POOLS).flags(&[DelayedEffect]),
    idle("thread_pool_reserve", Count(0, None), "threads", "0", NO_POOLS).flags(&[DelayedEffect]),
    idle("thread_pool_stack", Bytes(16 << 10, None), "bytes", "80k", NO_POOLS).flags(&[DelayedEffect]),
    idle("thread_pool_timeout", Seconds(10.0, None), "seconds", "300.000", NO_POOLS)
        .flags(&[DelayedEffect, Experimental]),
    idle("thread_pool_watchdog", Seconds(0.1, None), "seconds", "60.000", NO_POOLS).flags(&[Experimental]),
    idle("thread_pools", Count(1, Some(32)), "pools", "2", NO_POOLS).flags(&[DelayedEffect, Experimental]),
    idle("thread_queue_limit", Count(0, None), "requests", "20", NO_POOLS).flags(&[Experimental]),
    idle("thread_stats_rate", Count(0, None), "requests", "10", "counters are read where they are counted")
        .flags(&[Experimental]),
    idle("vary_notice", Count(1, None), "variants", "10", "many variants are not reported"),
    idle("vcc_allow_inline_c", Switch, "bool", "off", NO_C),
    idle("vmod_path", Text, "", "", "modules are part of the program").flags(&[BuildOptions]),
    idle(
        "vsm_free_cooldown",
        Seconds(10.0, Some(600.0)),
        "seconds",
        "60.000",
        "freed shared memory goes at once",
    ),
    idle("workspace_backend", Bytes(1 << 10, None), "bytes", "96k", NO_WORKSPACE).flags(&[DelayedEffect]),
    idle("workspace_session", Bytes(384, None), "bytes", "0.75k", NO_WORKSPACE).flags(&[DelayedEffect]),
    idle("workspace_thread", Bytes(256, Some(8 << 10)), "bytes", "2k", NO_WORKSPACE).flags(&[DelayedEffect]),
];
