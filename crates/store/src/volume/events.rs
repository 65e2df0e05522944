//! What a volume asks and tells whoever keeps the index.

use super::facts::{EntryId, Facts};

/// What is to become of a record whose region is emptied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It goes.
    Drop,
    /// It is hot: written again, if there is room for it. It keeps its number.
    Keep,
}

/// Whoever keeps the index.
///
/// These are called from within [`Volume::write`](super::Volume::write), `open_record`, `RecordReader::next` and `scrub`,
/// and `write` holds the lock of its own kind meanwhile: they may call `facts`, `links`, `remove`, `set_times`, `set_ban`
/// and `note_use`, but not `write`, `write_collected`, `flush_data`, `scrub` or `close`; and no thread calls those with a lock held that
/// these take.
pub trait Events: Send + Sync {
    /// Asks about a record whose region is to be emptied. At most a quarter of a region is kept, the most used first.
    fn fate(&self, id: EntryId, facts: &Facts) -> Fate;

    /// Tells that an entry is gone because its region was emptied, or because its record could not be read.
    fn dropped(&self, id: EntryId, facts: &Facts, links: &[u8]);
}
