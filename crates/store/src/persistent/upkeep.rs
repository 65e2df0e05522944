//! What a persistent engine does in time: the journal, checkpoints, the search for damage.

use super::{Core, Station};
use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How often an engine does what; may be changed while it runs.
#[derive(Debug)]
pub struct Pace {
    /// Microseconds between two writes of the journal; 0 is as for 100 ms, and who waits for a reply asks for a write.
    journal_sync_us: AtomicU64,
    /// Bytes a second that are read to find damage; 0 for none.
    scrub_rate: AtomicU64,
    lock: Mutex<()>,
    news: Condvar,
}

/// What `journal_sync` is unless told otherwise.
const JOURNAL_SYNC: Duration = Duration::from_millis(100);

impl Default for Pace {
    fn default() -> Self {
        Self {
            journal_sync_us: AtomicU64::new(JOURNAL_SYNC.as_micros() as u64),
            scrub_rate: AtomicU64::new(0),
            lock: Mutex::new(()),
            news: Condvar::new(),
        }
    }
}

impl Pace {
    /// How long a purge or a change of times may take until it is durable (parameter `journal_sync`); zero: it is before the
    /// reply.
    pub fn set_journal_sync(&self, time: Duration) {
        self.journal_sync_us.store(u64::try_from(time.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
        self.wake();
    }

    /// Whether a purge is to be durable before the reply to it.
    pub fn syncs_before_reply(&self) -> bool {
        self.journal_sync_us.load(Ordering::Relaxed) == 0
    }

    /// How many bytes a second of each device are read to find damage (parameter `scrub_rate`); 0: none.
    pub fn set_scrub_rate(&self, bytes: u64) {
        self.scrub_rate.store(bytes, Ordering::Relaxed);
    }

    fn journal_sync(&self) -> Duration {
        match self.journal_sync_us.load(Ordering::Relaxed) {
            0 => JOURNAL_SYNC,
            micros => Duration::from_micros(micros).clamp(Duration::from_millis(1), Duration::from_secs(60)),
        }
    }

    /// Ends a rest early.
    pub(super) fn wake(&self) {
        let _guard = self.lock.lock();
        self.news.notify_all();
    }
}

/// Does it until the engine ends.
pub(super) fn run(core: &Core) {
    // What the rate allows and was not used yet, a device.
    let mut allowed = 0.0;
    let (mut last_look, mut last_flush) = (Instant::now(), Instant::now());
    // Records that stood on each device at the last flush.
    let mut flushed = vec![0; core.stations.len()];
    while !core.ends.load(Ordering::Acquire) {
        let rest = core.pace.journal_sync();
        {
            let mut guard = core.pace.lock.lock();
            if !core.ends.load(Ordering::Acquire) {
                core.pace.news.wait_for(&mut guard, rest);
            }
        }
        let rate = core.pace.scrub_rate.load(Ordering::Relaxed);
        allowed = if rate == 0 { 0.0 } else { allowed + rate as f64 * rest.as_secs_f64() };
        let scrubs = allowed >= SCRUB_STEP as f64;
        // A device that cannot take one has failed, and says so by its health.
        let _ = core.keep_bans();
        for station in &core.stations {
            // A volume that fails says so by its health.
            let _ = station.volume.tick();
            if scrubs {
                station.volume.scrub(SCRUB_STEP);
            }
        }
        if last_flush.elapsed() >= FLUSH_EVERY {
            last_flush = Instant::now();
            core.stations.iter().zip(&mut flushed).for_each(|(station, flushed)| flush(station, flushed));
        }
        if last_look.elapsed() >= FORGET_EVERY {
            last_look = Instant::now();
            core.forget_bans();
        }
        if scrubs {
            allowed -= SCRUB_STEP as f64;
        }
    }
}

/// Writes out what a device's log has collected, if anything came since the last time.
fn flush(station: &Station, flushed: &mut u64) {
    let written = station.volume.statistics().written;
    if written != *flushed && station.volume.flush_data().is_ok() {
        *flushed = written;
    }
}

/// How long a record may wait in a log's buffer: what is lost by a crash is not older.
const FLUSH_EVERY: Duration = Duration::from_secs(1);

/// How often it is looked for bans that devices may forget: that looks at every entry.
const FORGET_EVERY: Duration = Duration::from_secs(60);

/// How many bytes are read at one time to find damage.
const SCRUB_STEP: u64 = 1 << 20;
