//! The counters of a worker, MAIN.* and COPAL.*: one table, one stripe for each thread.
//!
//! MAIN has the names, the kinds and the order of Varnish 7.1; the few without meaning here stay zero, so that what is
//! built on the names finds them. COPAL has what Varnish does not count. A thread's stripe is in shared memory and has
//! one writer, so counting is a plain load and store; whoever reads adds the stripes up.

use crate::point::{Format, Kind, Level, Point, SectionKind};
use std::sync::atomic::{AtomicU64, Ordering};

/// One counter or gauge of a stripe. Arithmetic wraps: a gauge raised by one thread and lowered by another is right in
/// the sum.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds one. Only the stripe's thread may.
    #[inline]
    pub fn inc(&self) {
        self.add(1);
    }

    /// Takes one away. Only the stripe's thread may.
    #[inline]
    pub fn dec(&self) {
        self.sub(1);
    }

    /// Adds `amount`. Only the stripe's thread may.
    #[inline]
    pub fn add(&self, amount: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
    }

    /// Takes `amount` away. Only the stripe's thread may.
    #[inline]
    pub fn sub(&self, amount: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_sub(amount), Ordering::Relaxed);
    }

    /// Replaces the value. Only the stripe's thread may.
    #[inline]
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Adds `amount` from any thread: for the control stripe.
    pub fn add_shared(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    /// Takes `amount` away from any thread: for the control stripe.
    pub fn sub_shared(&self, amount: u64) {
        self.0.fetch_sub(amount, Ordering::Relaxed);
    }

    /// The value of this stripe alone.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

macro_rules! counters {
    (main { $($name:ident: $kind:ident $format:ident $level:ident $text:literal;)* }
     copal { $($own:ident: $own_kind:ident $own_format:ident $own_level:ident $own_text:literal;)* }) => {
        /// One thread's counters: MAIN.* in Varnish's order, then COPAL.*.
        #[derive(Debug, Default)]
        #[repr(C)]
        pub struct Counters {
            $(#[doc = $text] pub $name: Counter,)*
            $(#[doc = $own_text] pub $own: Counter,)*
        }

        /// The rows of MAIN.
        pub static MAIN: SectionKind = SectionKind {
            id: 1, name: "main", label: "MAIN", text: "What the worker did", order: 10,
            points: &[$(Point {
                name: stringify!($name), kind: Kind::$kind, format: Format::$format, level: Level::$level, text: $text,
            },)*],
        };

        /// The rows of COPAL.
        pub static COPAL: SectionKind = SectionKind {
            id: 2, name: "copal", label: "COPAL", text: "What Varnish does not count", order: 15,
            points: &[$(Point {
                name: stringify!($own), kind: Kind::$own_kind, format: Format::$own_format, level: Level::$own_level,
                text: $own_text,
            },)*],
        };
    };
}

counters! {
    main {
        summs: Counter Integer Debug "Times the stripes were merged";
        uptime: Counter Duration Info "Seconds since the worker began";
        sess_conn: Counter Integer Info "Connections accepted";
        sess_fail: Counter Integer Info "Connections that could not be accepted";
        sess_fail_econnaborted: Counter Integer Info "Accept failed: the peer was gone already";
        sess_fail_eintr: Counter Integer Info "Accept failed: interrupted by a signal";
        sess_fail_emfile: Counter Integer Info "Accept failed: no file descriptor free";
        sess_fail_ebadf: Counter Integer Info "Accept failed: the listening socket is bad";
        sess_fail_enomem: Counter Integer Info "Accept failed: out of memory";
        sess_fail_other: Counter Integer Info "Accept failed: another reason";
        client_req_400: Counter Integer Info "Client requests answered 400 before VCL saw them";
        client_req_417: Counter Integer Info "Client requests answered 417 for their Expect field";
        client_req: Counter Integer Info "Client requests taken up";
        esi_req: Counter Integer Info "ESI subrequests";
        cache_hit: Counter Integer Info "Hits";
        cache_hit_grace: Counter Integer Info "Hits on objects in grace";
        cache_hitpass: Counter Integer Info "Lookups that met a hit-for-pass marker";
        cache_hitmiss: Counter Integer Info "Lookups that met a hit-for-miss marker";
        cache_miss: Counter Integer Info "Misses";
        beresp_uncacheable: Counter Integer Info "Backend responses that may not be cached";
        beresp_shortlived: Counter Integer Info "Objects too short-lived for the main store";
        backend_conn: Counter Integer Info "Backend connections made";
        backend_unhealthy: Counter Integer Info "Backend not tried: unhealthy";
        backend_busy: Counter Integer Info "Backend not tried: at its limit of connections";
        backend_fail: Counter Integer Info "Backend connections that failed";
        backend_reuse: Counter Integer Info "Backend connections taken from the pool";
        backend_recycle: Counter Integer Info "Backend connections put into the pool";
        backend_retry: Counter Integer Info "Requests sent anew because a pooled connection was stale";
        fetch_head: Counter Integer Info "Fetches of HEAD, without body";
        fetch_length: Counter Integer Info "Fetches with Content-Length";
        fetch_chunked: Counter Integer Info "Fetches in chunks";
        fetch_eof: Counter Integer Info "Fetches whose body ended with the connection";
        fetch_bad: Counter Integer Info "Fetches with framing that cannot be trusted";
        fetch_none: Counter Integer Info "Fetches with an empty body";
        fetch_1xx: Counter Integer Info "Fetches without body (1xx)";
        fetch_204: Counter Integer Info "Fetches without body (204)";
        fetch_304: Counter Integer Info "Fetches without body (304)";
        fetch_failed: Counter Integer Info "Fetches that failed, for any reason";
        fetch_no_thread: Counter Integer Info "Fetches that failed for want of a task";
        pools: Gauge Integer Info "Worker groups";
        threads: Gauge Integer Info "Worker threads";
        threads_limited: Counter Integer Info "Times no further thread was allowed";
        threads_created: Counter Integer Info "Threads made";
        threads_destroyed: Counter Integer Info "Threads ended";
        threads_failed: Counter Integer Info "Threads that could not be made";
        thread_queue_len: Gauge Integer Info "Work waiting for a thread";
        busy_sleep: Counter Integer Info "Requests that began to wait for another's fetch";
        busy_wakeup: Counter Integer Info "Requests woken after such a wait";
        busy_killed: Counter Integer Info "Requests given up after such a wait";
        sess_queued: Counter Integer Info "Connections that waited for a thread";
        sess_dropped: Counter Integer Info "Connections dropped for want of a thread";
        req_dropped: Counter Integer Info "Requests dropped for want of a thread";
        n_object: Gauge Integer Info "Objects stored";
        n_vampireobject: Gauge Integer Diag "Objects on disk not yet read back";
        n_objectcore: Gauge Integer Info "Object entries in the index";
        n_objecthead: Gauge Integer Info "Keys in the index";
        n_backend: Gauge Integer Info "Backends";
        n_expired: Counter Integer Info "Objects that expired";
        n_lru_nuked: Counter Integer Info "Objects evicted to make room";
        n_lru_moved: Counter Integer Diag "Objects moved to the front of the eviction order";
        n_lru_limited: Counter Integer Info "Times nuke_limit ended an eviction";
        losthdr: Counter Integer Info "Header fields that did not fit";
        s_sess: Counter Integer Info "Sessions";
        n_pipe: Gauge Integer Info "Pipes open now";
        pipe_limited: Counter Integer Info "Pipes refused by pipe_sess_max";
        s_pipe: Counter Integer Info "Pipes";
        s_pass: Counter Integer Info "Passed requests";
        s_fetch: Counter Integer Info "Fetches begun";
        s_bgfetch: Counter Integer Info "Background fetches begun";
        s_synth: Counter Integer Info "Synthetic responses";
        s_req_hdrbytes: Counter Bytes Info "Request bytes: heads";
        s_req_bodybytes: Counter Bytes Info "Request bytes: bodies";
        s_resp_hdrbytes: Counter Bytes Info "Response bytes: heads";
        s_resp_bodybytes: Counter Bytes Info "Response bytes: bodies";
        s_pipe_hdrbytes: Counter Bytes Info "Pipe bytes: request heads";
        s_pipe_in: Counter Bytes Info "Pipe bytes from clients";
        s_pipe_out: Counter Bytes Info "Pipe bytes to clients";
        sess_closed: Counter Integer Info "Sessions closed";
        sess_closed_err: Counter Integer Info "Sessions closed on an error";
        sess_readahead: Counter Integer Info "Requests found already read (pipelining)";
        sess_herd: Counter Integer Diag "Sessions that became idle";
        sc_rem_close: Counter Integer Diag "Sessions ended: client closed";
        sc_req_close: Counter Integer Diag "Sessions ended: client asked for it";
        sc_req_http10: Counter Integer Diag "Sessions ended: HTTP/1.0 without keep-alive";
        sc_rx_bad: Counter Integer Diag "Sessions ended: request not understood";
        sc_rx_body: Counter Integer Diag "Sessions ended: request body failed";
        sc_rx_junk: Counter Integer Diag "Sessions ended: bytes that are no request";
        sc_rx_overflow: Counter Integer Diag "Sessions ended: request head too large";
        sc_rx_timeout: Counter Integer Diag "Sessions ended: request head too slow";
        sc_rx_close_idle: Counter Integer Diag "Sessions ended: idle too long";
        sc_tx_pipe: Counter Integer Diag "Sessions ended: piped";
        sc_tx_error: Counter Integer Diag "Sessions ended: sending failed";
        sc_tx_eof: Counter Integer Diag "Sessions ended: the body ends with the connection";
        sc_resp_close: Counter Integer Diag "Sessions ended: the response asked for it";
        sc_overload: Counter Integer Diag "Sessions ended: out of some resource";
        sc_pipe_overflow: Counter Integer Diag "Sessions ended: too many pipes";
        sc_range_short: Counter Integer Diag "Sessions ended: the body was shorter than promised";
        sc_req_http20: Counter Integer Diag "Sessions ended: HTTP/2 not accepted";
        sc_vcl_failure: Counter Integer Diag "Sessions ended: VCL failed";
        client_resp_500: Counter Integer Diag "Responses replaced by 500 for want of room";
        ws_backend_overflow: Counter Integer Diag "Backend workspace overflows";
        ws_client_overflow: Counter Integer Diag "Client workspace overflows";
        ws_thread_overflow: Counter Integer Diag "Thread workspace overflows";
        ws_session_overflow: Counter Integer Diag "Session workspace overflows";
        shm_records: Counter Integer Diag "Log records written";
        shm_writes: Counter Integer Diag "Log batches written";
        shm_flushes: Counter Integer Diag "Log batches cut short by a full buffer";
        shm_cont: Counter Integer Diag "Log writers that met another one";
        shm_cycles: Counter Integer Diag "Laps of the log";
        backend_req: Counter Integer Info "Backend requests sent";
        n_vcl: Gauge Integer Info "VCLs loaded";
        n_vcl_avail: Gauge Integer Diag "VCLs that can be used";
        n_vcl_discard: Gauge Integer Diag "VCLs discarded, still in use";
        vcl_fail: Counter Integer Info "VCL failures";
        bans: Gauge Integer Info "Bans in the list";
        bans_completed: Gauge Integer Diag "Bans that need no more testing";
        bans_obj: Gauge Integer Diag "Bans that look at the object only";
        bans_req: Gauge Integer Diag "Bans that look at the request";
        bans_added: Counter Integer Diag "Bans added";
        bans_deleted: Counter Integer Diag "Bans deleted";
        bans_tested: Counter Integer Diag "Bans tested at lookup";
        bans_obj_killed: Counter Integer Diag "Objects banned at lookup";
        bans_lurker_tested: Counter Integer Diag "Bans tested by the lurker";
        bans_tests_tested: Counter Integer Diag "Ban conditions tested at lookup";
        bans_lurker_tests_tested: Counter Integer Diag "Ban conditions tested by the lurker";
        bans_lurker_obj_killed: Counter Integer Diag "Objects banned by the lurker";
        bans_lurker_obj_killed_cutoff: Counter Integer Diag "Objects removed unseen by the lurker, past ban_cutoff";
        bans_dups: Counter Integer Diag "Bans made needless by a newer one";
        bans_lurker_contention: Counter Integer Diag "Times the lurker gave way to a lookup";
        bans_persisted_bytes: Gauge Bytes Diag "Bytes of the stored ban lists";
        bans_persisted_fragmentation: Gauge Bytes Diag "Bytes lost in the stored ban lists";
        n_purges: Counter Integer Info "Purges";
        n_obj_purged: Counter Integer Info "Objects purged";
        exp_mailed: Counter Integer Diag "Objects handed to expiry";
        exp_received: Counter Integer Diag "Objects that expiry took up";
        hcb_nolock: Counter Integer Debug "Lookups without a lock";
        hcb_lock: Counter Integer Debug "Lookups under a lock";
        hcb_insert: Counter Integer Debug "Keys put into the index";
        esi_errors: Counter Integer Diag "ESI faults";
        esi_warnings: Counter Integer Diag "ESI oddities";
        vmods: Gauge Integer Info "VMODs loaded";
        n_gzip: Counter Integer Info "Bodies compressed";
        n_gunzip: Counter Integer Info "Bodies expanded";
        n_test_gunzip: Counter Integer Info "Compressed bodies checked";
    }
    copal {
        refused_syntax: Counter Integer Info "Requests refused: the head breaks HTTP's grammar";
        refused_framing: Counter Integer Info "Requests refused: where the body ends is ambiguous";
        refused_host: Counter Integer Info "Requests refused: Host missing, repeated or malformed";
        refused_version: Counter Integer Info "Requests refused: HTTP version not served";
        refused_head_size: Counter Integer Info "Requests refused: head, line or field count over the limit";
        refused_method: Counter Integer Info "Requests refused: method not served";
        refused_coding: Counter Integer Info "Requests refused: transfer coding not served";
        refused_body: Counter Integer Info "Requests refused: body malformed or over the limit";
        refused_proxy: Counter Integer Info "Connections refused: PROXY header missing or malformed";
        refused_overload: Counter Integer Info "Connections refused: at a limit of ours";
        not_stored_uncacheable: Counter Integer Info "Responses not stored: the response or VCL said so";
        not_stored_too_big: Counter Integer Info "Responses not stored: no room could be made";
        origin_malformed: Counter Integer Info "Backend responses dropped: malformed head or framing";
        origin_truncated: Counter Integer Info "Backend responses dropped: shorter than promised";
        segments_fetched: Counter Integer Info "Segments of objects kept in pieces: stored from an origin";
        segment_fetches: Counter Integer Info "Segments: requests to origins for missing ones";
        segment_refusals: Counter Integer Info "Segments: requests to origins that brought another answer, or none";
        segment_hits: Counter Integer Info "Segments: found when they were wanted";
        segment_bytes: Counter Bytes Info "Segments: bytes from origins";
        sparse_changed: Counter Integer Info "Objects kept in pieces: dropped, the origin has another version";
        invalidated: Counter Integer Info "Objects ended by requests that changed something (rfc)";
        stale_if_error: Counter Integer Info "Stale objects delivered in place of an error";
        fetch_elsewhere: Counter Integer Info "Fetches that went to another backend, nothing being sent to the first";
        fetch_overtime: Counter Integer Info "Backend responses given up: longer than fetch_time_max";
        fetch_oversize: Counter Integer Info "Backend responses given up: longer than fetch_bytes_max";
        readers_cut: Counter Integer Info "Clients cut off that kept others waiting";
        memory_resident: Gauge Bytes Info "Memory that the worker holds, pages of files left out";
        memory_shrinks: Counter Integer Info "Times the stores were made smaller because of memory_max";
        memory_shrunk: Counter Bytes Info "Bytes of objects that were evicted because of memory_max";
        log_lost: Counter Integer Diag "Log batches given up because the log lapped their writer";
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gauge_lowered_by_another_stripe_is_right_in_the_sum() {
        let (raised, lowered) = (Counters::default(), Counters::default());
        raised.n_object.add(3);
        lowered.n_object.dec();
        assert_eq!(raised.n_object.get().wrapping_add(lowered.n_object.get()), 2);
    }

    #[test]
    fn main_has_the_points_of_varnish_7_1() {
        assert_eq!(MAIN.points.len(), 144);
        assert_eq!(MAIN.points[14].name, "cache_hit");
        assert_eq!(size_of::<Counters>(), 8 * (MAIN.points.len() + COPAL.points.len()));
    }
}
