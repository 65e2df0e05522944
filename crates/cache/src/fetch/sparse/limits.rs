//! How far jobs and readers go ahead, and how much they ask for at once.

use crate::shared::Stores;

/// The most bytes that a job may be ahead of its reader.
const AHEAD_BYTES: u64 = 8 << 20;

/// The most segments that a job may be ahead of its reader.
const AHEAD_MAX: u64 = 64;

/// What is ahead of a reader cannot be evicted until it was read: it may take at most one part in so many of the smallest
/// store.
const AHEAD_PART: u64 = 16;

/// The most segments that one request to an origin asks for.
pub(crate) const RUN_MAX: u64 = 256;

/// The most requests to the origin that one reader has under way.
const JOBS_MAX: usize = 4;

/// The factor by which a reader of several ranges looks further ahead and has more requests under way: each of them brings
/// little, and it would wait hundreds of times for an origin that is far away.
const MANY_RANGES: usize = 4;

/// The most requests to the origin that a reader of so many ranges has under way.
pub(crate) fn jobs_max(ranges: usize) -> usize {
    if ranges > 1 { JOBS_MAX * MANY_RANGES } else { JOBS_MAX }
}

/// The most segments of `size` bytes that a job may be ahead of its reader; 0 if it is to wait for it.
pub(crate) fn ahead_max(size: u64, stores: &Stores) -> u64 {
    within(AHEAD_BYTES, size, stores)
}

/// The most segments of `size` bytes that a reader of so many ranges looks ahead.
pub(crate) fn lookahead_max(ranges: usize, size: u64, stores: &Stores) -> u64 {
    within(if ranges > 1 { AHEAD_BYTES * MANY_RANGES as u64 } else { AHEAD_BYTES }, size, stores)
}

fn within(bytes: u64, size: u64, stores: &Stores) -> u64 {
    let bytes = stores.smallest().map_or(bytes, |store| bytes.min(store / AHEAD_PART));
    (bytes / size.max(1)).min(AHEAD_MAX)
}
