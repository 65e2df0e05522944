//! How long a fetch waits for slow clients, and for devices.
//!
//! A body that is stored whole waits for nobody. Of one that outgrew its store only a window is kept, and then the
//! slowest of its readers sets the pace of all: who takes more than the parameter `slow_reader_patience` for a stretch
//! of the body, while another has nothing left to read, is left behind, and its connection is cut.
//!
//! A store that writes to devices lets fills wait while these are behind. What takes too long is fetched all the same, and
//! is not kept if there is no room for it.

use crate::local::Local;
use base::Seconds;
use copal_base as base;
use copal_net as net;
use copal_store as store;
use net::{Deadline, within};
use std::future::poll_fn;
use std::task::Poll;
use std::time::Instant;
use store::Fill;
use store::fill::NoReaders;

/// The stretch, in bytes: a window's worth.
const STRETCH: u64 = 1 << 20;

/// How long one fetch waits for devices, in seconds.
const DEVICES_MAX: Seconds = 5.0;

/// The waits of one fetch for its readers and for devices.
#[derive(Debug, Default)]
pub(crate) struct Patience {
    deadline: Option<Deadline>,
    /// Where the present stretch began.
    since: u64,
    /// How long readers were waited for since then.
    waited: Seconds,
    /// How long devices were waited for.
    devices: Seconds,
}

impl Patience {
    /// Waits while the devices of the store are behind with what is to be written to them, [`DEVICES_MAX`] in all.
    pub(crate) async fn wait_for_devices(&mut self, fill: &mut Fill) {
        let behind = poll_fn(|context| Poll::Ready(fill.poll_room(context).is_pending())).await;
        if !behind || self.devices >= DEVICES_MAX {
            return;
        }
        let deadline = self.deadline.get_or_insert_with(Deadline::new);
        deadline.set(DEVICES_MAX - self.devices);
        let begun = Instant::now();
        // Whoever was patient for too long takes what room there is.
        let _ = within(deadline, poll_fn(|context| fill.poll_room(context).map(|_| ()))).await;
        self.devices += begun.elapsed().as_secs_f64();
    }

    /// Waits until the window of `fill` has room, for a slow reader at most `limit` seconds a stretch; 0 or less is for
    /// ever. How many readers were left behind.
    ///
    /// # Errors
    /// [`NoReaders`] when no reader is left.
    pub(crate) async fn wait(
        &mut self,
        fill: &mut Fill,
        limit: Seconds,
        local: &Local,
    ) -> Result<usize, NoReaders> {
        if limit <= 0.0 {
            return poll_fn(|context| fill.poll_window(context)).await.map(|()| 0);
        }
        let mut left_behind = 0;
        loop {
            if fill.filled() - self.since >= STRETCH {
                (self.since, self.waited) = (fill.filled(), 0.0);
            }
            let deadline = self.deadline.get_or_insert_with(Deadline::new);
            deadline.set(limit - self.waited);
            let begun = Instant::now();
            let waited = within(deadline, poll_fn(|context| fill.poll_window(context))).await;
            self.waited += begun.elapsed().as_secs_f64();
            match waited {
                Ok(result) => return result.map(|()| left_behind),
                Err(net::Elapsed) => {
                    let count = fill.leave_behind();
                    local.counters.readers_cut.add(count as u64);
                    left_behind += count;
                    self.waited = 0.0;
                }
            }
        }
    }
}
