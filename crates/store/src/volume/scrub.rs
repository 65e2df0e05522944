//! Verifying records while nothing asks for them, region by region.

use super::error::ReadError;
use super::inner::Inner;
use super::options::ScrubReport;
use super::record::BLOCK;
use std::sync::Arc;

impl Inner {
    /// See [`Volume::scrub`](super::Volume::scrub).
    pub(super) fn scrub(self: &Arc<Self>, bytes_max: u64) -> ScrubReport {
        let mut report = ScrubReport::default();
        let mut scratch = vec![0; BLOCK];
        let mut next = self.scrub_next.lock();
        while report.bytes < bytes_max {
            let (region, unit) = *next;
            if region >= self.superblock.region_count {
                *next = (0, 0);
                report.finished = true;
                break;
            }
            let entries = self.core.lock().entries_of(&self.table, region);
            for (id, known) in entries.into_iter().filter(|(_, known)| known.location.offset >= unit) {
                if report.bytes >= bytes_max {
                    return report;
                }
                next.1 = known.location.offset + 1;
                match self.verify(id, &mut scratch) {
                    Ok(bytes) => {
                        report.records += 1;
                        report.bytes += bytes;
                        self.counters.scrubbed.add(1);
                    }
                    // Since it was listed it went.
                    Err(ReadError::Gone) => {}
                    Err(ReadError::Io(_) | ReadError::Damaged) => {
                        report.bytes += known.location.bytes();
                        report.damaged += 1;
                    }
                }
            }
            *next = (region + 1, 0);
        }
        report
    }
}
