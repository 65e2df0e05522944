//! Sections of counters that come and go while the worker runs: one for each backend, one for each store, the manager's.
//!
//! Each is a shared-memory segment of its own that Varnish's tools read directly, counted into by all threads.

use crate::point::{Format, Kind, Level, Point, SectionKind};
use std::sync::atomic::{AtomicU64, Ordering};

/// One value that all threads count into.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct SharedCounter(AtomicU64);

impl SharedCounter {
    /// Adds one.
    #[inline]
    pub fn inc(&self) {
        self.add(1);
    }

    /// Takes one away.
    #[inline]
    pub fn dec(&self) {
        self.sub(1);
    }

    /// Adds `amount`.
    #[inline]
    pub fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    /// Takes `amount` away.
    #[inline]
    pub fn sub(&self, amount: u64) {
        self.0.fetch_sub(amount, Ordering::Relaxed);
    }

    /// Replaces the value.
    #[inline]
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// The value.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

macro_rules! sections {
    ($(#[$doc:meta])* $section:ident(id: $id:literal, name: $label_name:literal, label: $label:literal,
        text: $about:literal, order: $order:literal)
     { $($name:ident: $kind:ident $format:ident $level:ident $text:literal;)* }) => {
        $(#[$doc])*
        #[derive(Debug, Default)]
        #[repr(C)]
        pub struct $section {
            $(#[doc = $text] pub $name: SharedCounter,)*
        }

        impl $section {
            /// The rows of this section.
            pub const KIND: &'static SectionKind = {
                static KIND: SectionKind = SectionKind {
                    id: $id, name: $label_name, label: $label, text: $about, order: $order,
                    points: &[$(Point {
                        name: stringify!($name), kind: Kind::$kind, format: Format::$format, level: Level::$level,
                        text: $text,
                    },)*],
                };
                &KIND
            };
        }
    };
}

sections! {
    /// MGT: the manager.
    Mgt(id: 3, name: "mgt", label: "MGT", text: "What the manager did", order: 20) {
        uptime: Counter Duration Info "Seconds since the manager began";
        child_start: Counter Integer Diag "Workers started";
        child_exit: Counter Integer Diag "Workers that ended as told";
        child_stop: Counter Integer Diag "Workers that ended untold";
        child_died: Counter Integer Diag "Workers killed by a signal";
        child_dump: Counter Integer Diag "Workers that left a core";
        child_panic: Counter Integer Diag "Workers that panicked";
    }
}

sections! {
    /// SMA.<store>: a store in memory.
    Sma(id: 4, name: "sma", label: "SMA", text: "A memory store", order: 40) {
        c_req: Counter Integer Info "Requests for room";
        c_fail: Counter Integer Info "Requests for room that failed";
        c_bytes: Counter Bytes Info "Bytes handed out";
        c_freed: Counter Bytes Info "Bytes given back";
        g_alloc: Gauge Integer Info "Pieces in use";
        g_bytes: Gauge Bytes Info "Bytes in use";
        g_space: Gauge Bytes Info "Bytes free";
    }
}

sections! {
    /// SMF.<store>: a store in a file.
    Smf(id: 9, name: "smf", label: "SMF", text: "A file store", order: 50) {
        c_req: Counter Integer Info "Requests for room";
        c_fail: Counter Integer Info "Requests for room that failed";
        c_bytes: Counter Bytes Info "Bytes handed out";
        c_freed: Counter Bytes Info "Bytes given back";
        g_alloc: Gauge Integer Info "Pieces in use";
        g_bytes: Gauge Bytes Info "Bytes in use";
        g_space: Gauge Bytes Info "Bytes free";
        g_smf: Gauge Integer Info "Pieces in use, and free ones";
        g_smf_frag: Gauge Integer Info "Free pieces of fewer than 128 granules";
        g_smf_large: Gauge Integer Info "Free pieces of more";
    }
}

sections! {
    /// DEV.<store>.<number>: a device of a store that outlives a start.
    Dev(id: 10, name: "dev", label: "DEV", text: "A device of a store", order: 55) {
        tier: Gauge Integer Info "Its tier: 0 is the fastest";
        healthy: Gauge Integer Info "1 while it takes objects";
        g_entries: Gauge Integer Info "Objects on it";
        g_bytes: Gauge Bytes Info "Bytes of these";
        g_space: Gauge Bytes Info "Bytes that could be filled besides";
        g_unwritten: Gauge Bytes Info "Bytes that wait to be written";
        c_written: Counter Integer Info "Records written";
        c_written_bytes: Counter Bytes Info "Bytes of these";
        c_device_bytes: Counter Bytes Info "Bytes written in all: records, written again ones, journal, checkpoints";
        c_reinserted: Counter Integer Info "Records written again, as they were in use when their region was evicted";
        c_evicted: Counter Integer Info "Objects evicted with their region";
        c_regions: Counter Integer Info "Regions evicted";
        c_read: Counter Integer Info "Records read";
        c_read_bytes: Counter Bytes Info "Bytes read";
        c_read_fail: Counter Integer Info "Reads that failed";
        c_damaged: Counter Integer Info "Records that were not as they were written";
        c_scrubbed: Counter Integer Info "Records looked through for damage";
        c_journal: Counter Integer Info "Times the journal was made durable";
        c_checkpoint: Counter Integer Info "Checkpoints written";
        g_bans: Gauge Integer Info "Bans kept";
    }
}

sections! {
    /// VBE.<vcl>.<backend>: a backend.
    Vbe(id: 5, name: "vbe", label: "VBE", text: "A backend", order: 60) {
        happy: Bitmap Bitmap Info "Outcomes of the last probes, newest in the lowest bit";
        bereq_hdrbytes: Counter Bytes Info "Bytes sent: request heads";
        bereq_bodybytes: Counter Bytes Info "Bytes sent: request bodies";
        beresp_hdrbytes: Counter Bytes Info "Bytes received: response heads";
        beresp_bodybytes: Counter Bytes Info "Bytes received: response bodies";
        pipe_hdrbytes: Counter Bytes Info "Pipe bytes: request heads";
        pipe_out: Counter Bytes Info "Pipe bytes to the backend";
        pipe_in: Counter Bytes Info "Pipe bytes from the backend";
        conn: Gauge Integer Info "Connections in use";
        req: Counter Integer Info "Requests sent";
        unhealthy: Counter Integer Info "Fetches not tried: unhealthy";
        busy: Counter Integer Info "Fetches not tried: at the limit of connections";
        fail: Counter Integer Info "Connections that failed";
        fail_eacces: Counter Integer Diag "Connections that failed: not permitted";
        fail_eaddrnotavail: Counter Integer Diag "Connections that failed: no local address";
        fail_econnrefused: Counter Integer Diag "Connections that failed: refused";
        fail_enetunreach: Counter Integer Diag "Connections that failed: network unreachable";
        fail_etimedout: Counter Integer Diag "Connections that failed: timed out";
        fail_other: Counter Integer Diag "Connections that failed: another reason";
        helddown: Counter Integer Diag "Connections not tried: failed a moment ago";
    }
}

sections! {
    /// LCK.<name>: one kind of varnishd's locks. See [`LOCKS`].
    Lck(id: 6, name: "lck", label: "LCK", text: "A kind of lock of varnishd, which is not here", order: 70) {
        creat: Counter Integer Debug "Locks made";
        destroy: Counter Integer Debug "Locks ended";
        locks: Counter Integer Debug "Times locked";
        dbg_busy: Counter Integer Debug "Times another had it";
        dbg_try_fail: Counter Integer Debug "Times another had it, and nobody waited";
    }
}

sections! {
    /// MEMPOOL.<name>: one of varnishd's pools of structs. See [`POOLS`].
    Mempool(id: 7, name: "mempool", label: "MEMPOOL", text: "A pool of varnishd, which is not here", order: 80) {
        live: Gauge Integer Debug "In use";
        pool: Gauge Integer Debug "Waiting for use";
        sz_wanted: Gauge Bytes Debug "Size of one as asked for";
        sz_actual: Gauge Bytes Debug "Size of one as it is";
        allocs: Counter Integer Debug "Times one was asked for";
        frees: Counter Integer Debug "Times one was given back";
        recycle: Counter Integer Debug "Taken from the pool";
        timeout: Counter Integer Debug "Freed after a time without use";
        toosmall: Counter Integer Debug "Freed for being too small";
        surplus: Counter Integer Debug "Freed for being too many";
        randry: Counter Integer Debug "Times the pool was empty";
    }
}

sections! {
    /// XKEY: surrogate keys, while a VCL has the VMOD; the names are those of varnish-modules.
    Xkey(id: 8, name: "xkey", label: "XKEY", text: "Surrogate keys", order: 70) {
        g_keys: Gauge Integer Info "Keys";
        g_hashhead_bytes: Gauge Integer Debug "Bytes of the table of keys";
        g_ochead_bytes: Gauge Integer Debug "Bytes kept for each object: none, its head has its keys";
        g_oc_bytes: Gauge Integer Debug "Bytes of the links from keys to objects";
        g_bytes: Gauge Integer Info "Bytes in all";
    }
}

/// The locks that varnishd 7.1 counts. There are no such locks here, so all of them stay at zero: the sections are there
/// because dashboards, exporters and scripts know them by name.
pub const LOCKS: [&str; 22] = [
    "ban",
    "busyobj",
    "cli",
    "conn_pool",
    "director",
    "exp",
    "hcb",
    "lru",
    "mempool",
    "objhdr",
    "perpool",
    "pipestat",
    "probe",
    "sess",
    "sma",
    "vbe",
    "vcapace",
    "vcl",
    "vxid",
    "waiter",
    "wq",
    "wstat",
];

/// The pools of structs that varnishd 7.1 has with its two thread pools; zero for the same reason as [`LOCKS`].
pub const POOLS: [&str; 5] = ["busyobj", "req0", "req1", "sess0", "sess1"];

/// A struct of [`SharedCounter`]s that stands for a section: `repr(C)`, nothing but counters in the order of the rows.
pub trait Section: crate::map::Plain {
    /// The rows.
    fn kind() -> &'static SectionKind;
}

macro_rules! is_section {
    ($($section:ident)*) => {
        $(impl Section for $section {
            fn kind() -> &'static SectionKind {
                Self::KIND
            }
        })*
    };
}

is_section! { Mgt Sma Smf Dev Vbe Lck Mempool Xkey }

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_are_as_large_as_their_rows() {
        assert_eq!(size_of::<Vbe>(), 8 * Vbe::KIND.points.len());
        assert_eq!(size_of::<Sma>(), 8 * Sma::KIND.points.len());
        assert_eq!(size_of::<Smf>(), 8 * Smf::KIND.points.len());
        assert_eq!(size_of::<Dev>(), 8 * Dev::KIND.points.len());
        assert_eq!(size_of::<Mgt>(), 8 * Mgt::KIND.points.len());
        assert_eq!(size_of::<Lck>(), 8 * Lck::KIND.points.len());
        assert_eq!(size_of::<Mempool>(), 8 * Mempool::KIND.points.len());
        assert_eq!(size_of::<Xkey>(), 8 * Xkey::KIND.points.len());
    }
}
