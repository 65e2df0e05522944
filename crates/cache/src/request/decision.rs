//! Noting, while a request goes through its steps, why it came as it did; and logging that at its end.

use crate::decision::log_reason;
use crate::exchange::{Exchange, Obj};
use catalog::reason::Reason;
use copal_catalog as catalog;
use copal_vcl as vcl;
use vcl::places::Place;

impl Exchange {
    /// Notes that VCL decided, just now, and with what reason.
    pub(crate) fn decided(&mut self, reason: Reason) {
        self.reason = reason;
        self.decided_at = Some(self.machine.ended_at());
    }

    /// Where VCL decided what [`Exchange::reason`] says, if it did.
    pub(crate) fn decision(&self) -> Option<Place<'_>> {
        self.current.vcl.as_ref()?.instance.program.place(self.decided_at?)
    }

    /// Why the request was answered as it was, or why its response is not stored. Before the request's end, as far as it
    /// has come.
    #[inline]
    pub fn reason(&self) -> Reason {
        match &self.obj {
            Obj::Private(private) => private.reason.unwrap_or(self.reason),
            Obj::Stored(_) | Obj::None => self.reason,
        }
    }

    /// Logs the reason, unless it is a fresh hit, with the place in VCL where that decided.
    #[inline]
    pub(crate) fn log_reason(&mut self) {
        let reason = self.reason();
        if reason != Reason::Hit {
            self.log(reason);
        }
    }

    fn log(&mut self, reason: Reason) {
        let at = self.decided_at.filter(|_| reason == self.reason);
        let place = at.and_then(|at| self.current.vcl.as_ref()?.instance.program.place(at));
        log_reason(&mut self.records, reason, place);
    }
}
