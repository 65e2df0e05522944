//! `memory_max`: what the process may hold in all.
//!
//! Measured is what the kernel cannot take back by itself: anonymous memory and memory of `tmpfs`, not pages of files. A few
//! times a second each store is told how much it may grow by until the next look, so that they cannot go over the limit
//! together in between; at the limit that is nothing, and what comes takes the place of what goes. Where the process is above
//! it all the same (connections, the index, blocks of other sizes), pages without use go back to the system first, and then
//! all stores evict in proportion to what they hold.

use super::threads::Parts;
use crate::log;
use copal_store as store;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use store::{Engine, Pooled};

/// Keeps the limit.
#[derive(Debug, Default)]
pub(super) struct Budget {
    /// The stores have a limit because of this one.
    limits: bool,
    /// It was said that what is resident cannot be told, or that the limit is too low.
    complained: bool,
}

impl Budget {
    /// Looks at what is held, and sees to it that it is not too much.
    pub(super) fn keep(&mut self, parts: &Parts) {
        let stores: Vec<&Arc<dyn Engine>> = parts.shared.stores.all().collect();
        let limit = parts.memory_max.load(Ordering::Relaxed);
        let counters = parts.counters.control();
        let measured = resident();
        counters.memory_resident.set(measured.unwrap_or(0));
        if limit == 0 {
            self.complained = false;
            if std::mem::take(&mut self.limits) {
                stores.iter().for_each(|store| store.set_memory_max(u64::MAX));
            }
            return;
        }
        self.limits = true;
        let Some(mut held) = measured else {
            return self.complain("memory_max has no effect: /proc/self/status cannot be read", limit);
        };
        if held > limit {
            store::return_idle();
            held = resident().unwrap_or(held);
        }
        if held > limit {
            // Nothing grows while this one shrinks.
            stores.iter().for_each(|store| store.set_memory_max(store.memory()));
            let shrunk = shrink(&stores, held - limit);
            counters.memory_shrinks.add_shared(1);
            counters.memory_shrunk.add_shared(shrunk);
            store::return_idle();
            held = resident().unwrap_or(held);
            if held > limit && shrunk == 0 {
                self.complain("memory_max is less than what is needed without objects", limit);
            }
        }
        let more = growth(limit, held, store::pooled()) / stores.len() as u64;
        for store in &stores {
            store.set_memory_max(store.memory().saturating_add(more));
        }
    }

    fn complain(&mut self, text: &str, limit: u64) {
        if !std::mem::replace(&mut self.complained, true) {
            log::error(text, &[("memory_max", &limit)]);
        }
    }
}

/// Has the stores evict `excess` bytes, each in proportion to what it holds. How many bytes went.
fn shrink(stores: &[&Arc<dyn Engine>], excess: u64) -> u64 {
    let held: Vec<u64> = stores.iter().map(|store| store.memory()).collect();
    let all = u128::from(held.iter().sum::<u64>().max(1));
    let shares = held.iter().map(|held| (u128::from(excess) * u128::from(*held)).div_ceil(all) as u64);
    stores.iter().zip(shares).map(|(store, share)| if share > 0 { store.shrink(share) } else { 0 }).sum()
}

/// By how much the stores may grow together. Blocks that are free count as room, but those in slabs that are in part in use
/// only by half: they serve blocks of their own size alone.
fn growth(limit: u64, held: u64, pooled: Pooled) -> u64 {
    if held > limit {
        return 0;
    }
    let in_part = pooled.slabs.saturating_sub(pooled.idle).saturating_sub(pooled.blocks);
    limit - held + (pooled.idle - pooled.returned) + in_part / 2
}

/// What the process holds of memory, pages of files left out; `None` if the kernel does not say.
fn resident() -> Option<u64> {
    sum(&std::fs::read_to_string("/proc/self/status").ok()?)
}

/// The sum of the two lines of `/proc/self/status` that count, in bytes.
fn sum(status: &str) -> Option<u64> {
    let line = |name: &str| {
        let rest = status.lines().find_map(|line| line.strip_prefix(name))?;
        let kibibytes: u64 = rest.trim().strip_suffix(" kB")?.trim().parse().ok()?;
        kibibytes.checked_mul(1024)
    };
    line("RssAnon:")?.checked_add(line("RssShmem:")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_files_do_not_count() {
        let status =
            "VmRSS:\t  900 kB\nRssAnon:\t     100 kB\nRssFile:\t     500 kB\nRssShmem:\t     300 kB\n";
        assert_eq!(sum(status), Some(400 << 10));
        for odd in ["", "RssAnon:\t1 kB\n", "RssAnon:\tx kB\nRssShmem:\t1 kB\n", "RssAnon: 1\nRssShmem: 1\n"]
        {
            assert_eq!(sum(odd), None, "{odd:?}");
        }
        assert!(resident().is_some_and(|bytes| bytes > 0));
    }

    #[test]
    fn free_blocks_are_room_to_grow() {
        let pooled = |slabs, idle, returned, blocks| Pooled { slabs, idle, returned, blocks };
        for (limit, held, pools, expected) in [
            (100, 60, pooled(0, 0, 0, 0), 40),
            (100, 100, pooled(50, 0, 0, 50), 0),
            (100, 101, pooled(50, 50, 0, 0), 0),
            (100, 100, pooled(50, 50, 0, 0), 50),
            (100, 100, pooled(50, 50, 30, 0), 20),
            (100, 100, pooled(50, 20, 0, 10), 30),
            (100, 0, pooled(0, 0, 0, 0), 100),
        ] {
            assert_eq!(growth(limit, held, pools), expected, "{limit} {held} {pools:?}");
        }
    }
}
