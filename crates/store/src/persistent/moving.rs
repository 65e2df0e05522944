//! From one device to another of the same engine: what is evicted from a tier goes down, what is drained goes elsewhere.
//!
//! ```text
//! record copied, every block verified > the index knows the new entry > the old entry ends
//! ```
//! A crash in between leaves both records: the next start takes both in, and whatever ends one ends the other.

use super::{Core, Station};
use crate::entry::Entry;
use crate::volume::{EntryId, NewRecord, ReadError, WriteError};

/// How much of a record is read with its head.
const FIRST_READ: usize = 1 << 20;

/// Why a record was not copied.
#[derive(Debug)]
pub(super) enum NotCopied {
    /// It has ended.
    Gone,
    /// It cannot be read, or is not as it was written.
    Unreadable,
    /// There it does not fit.
    DoesNotFit,
    /// The device to which it was to go takes no more.
    Refused,
}

impl From<ReadError> for NotCopied {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Gone => Self::Gone,
            ReadError::Damaged | ReadError::Io(_) => Self::Unreadable,
        }
    }
}

impl From<WriteError> for NotCopied {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::TooLong { .. } | WriteError::Full => Self::DoesNotFit,
            WriteError::Draining | WriteError::Failed | WriteError::Io(_) => Self::Refused,
        }
    }
}

/// Copies a record from one device to another. Nobody knows of the copy yet.
pub(super) fn copy(from: &Station, slot: EntryId, to: &Station) -> Result<EntryId, NotCopied> {
    let mut reader = from.volume.open_record(slot, FIRST_READ)?;
    let length = usize::try_from(reader.body_length()).map_err(|_| NotCopied::DoesNotFit)?;
    if reader.body_length() > to.volume.record_max() {
        return Err(NotCopied::DoesNotFit);
    }
    let mut body = vec![0; length];
    let mut filled = 0;
    while filled < body.len() {
        match reader.next(&mut body[filled..])? {
            0 => return Err(NotCopied::Unreadable),
            count => filled += count,
        }
    }
    let record = NewRecord {
        key: *reader.key(),
        // Those of a piece have its own times again, in place of the end of its key.
        facts: *reader.facts(),
        vxid: reader.vxid(),
        variant: reader.variant(),
        head: reader.head(),
        plan: reader.plan(),
        links: reader.links(),
        body: &[&body],
    };
    Ok(to.volume.write(&record)?)
}

impl Core {
    /// The copy `new` on `to` stands for what `entry` stood for. Where nobody wants that any more, the copy goes.
    pub(super) fn hand_over(&self, entry: Entry, to: &Station, new: EntryId) -> bool {
        let copied = Entry::new(to.number, new.0);
        let Some(facts) = to.volume.facts(new) else { return false };
        let links = to.volume.links(new).unwrap_or_default();
        let wanted = self.evictions.moved(entry, copied);
        if !wanted {
            to.volume.remove(new);
        } else if to.volume.facts(new).is_none_or(|now| now.key != facts.key) {
            // Its region was evicted before the index knew it, so that nobody was told.
            self.evictions.entry_ended(copied, &facts, &links);
        }
        wanted
    }
}
