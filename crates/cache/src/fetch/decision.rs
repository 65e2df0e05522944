//! Noting why the answer to a fetch is not stored.

use super::state::Fetch;
use crate::decision::log_reason;
use catalog::reason::Reason;
use copal_catalog as catalog;
use copal_vcl as vcl;
use vcl::places::{At, Place};

impl Fetch {
    /// Notes and logs why the answer is not stored, and where VCL decided that, if it did.
    pub(crate) fn refuse(&mut self, reason: Reason, decided_at: Option<At>) {
        (self.reason, self.decided_at) = (Some(reason), decided_at);
        let place = decided_at.and_then(|at| self.current.vcl.as_ref()?.instance.program.place(at));
        log_reason(&mut self.log.records, reason, place);
    }

    /// Where VCL decided what `reason` says, if it did.
    pub(crate) fn decision(&self) -> Option<Place<'_>> {
        self.current.vcl.as_ref()?.instance.program.place(self.decided_at?)
    }
}
