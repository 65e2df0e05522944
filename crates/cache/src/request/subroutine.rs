//! Running the VCL's subroutines for a request.

use crate::exchange::Exchange;
use catalog::reason::Reason;
use copal_catalog as catalog;
use copal_vcl as vcl;
use std::rc::Rc;
use vcl::exec::{Step as VclStep, Wait};
use vcl::host::{Action, Fault, Sub};
use vcl::value::Value;

impl Exchange {
    /// Runs a subroutine. Built-in ones that have a native form do not come here.
    pub(crate) fn call(&mut self, subroutine: Sub) -> VclStep {
        // Counted within the thread: the VCL's own count is shared by all cores.
        let current = Rc::clone(&self.current);
        let Some(vcl) = &current.vcl else { return VclStep::Done(Action::Fail) };
        let mut machine = std::mem::take(&mut self.machine);
        let step = machine.run(&vcl.instance, subroutine, self);
        self.machine = machine;
        step
    }

    /// Runs a subroutine, waiting for what it waits for; for the request body only `vcl_recv` can.
    pub(crate) async fn decide(&mut self, subroutine: Sub) -> Action {
        self.now = self.local.now();
        let action = match self.call(subroutine) {
            VclStep::Done(action) => action,
            VclStep::Wait(wait) => Box::pin(self.wait_for(wait)).await,
        };
        self.count_failure(&action);
        action
    }

    async fn wait_for(&mut self, wait: Wait) -> Action {
        let mut wait = wait;
        loop {
            let value = match wait {
                Wait::Work(work) => (work.await)(self),
                Wait::CacheBody { .. } => Err(Fault("only vcl_recv can wait for the request body".into())),
            };
            match self.resume(value) {
                VclStep::Done(action) => return action,
                VclStep::Wait(next) => wait = next,
            }
        }
    }

    /// Goes on with a subroutine that waited.
    pub(crate) fn resume(&mut self, value: Result<Value, Fault>) -> VclStep {
        let current = Rc::clone(&self.current);
        let Some(vcl) = &current.vcl else { return VclStep::Done(Action::Fail) };
        let mut machine = std::mem::take(&mut self.machine);
        let step = machine.resume(&vcl.instance, value, self);
        self.machine = machine;
        step
    }

    /// Takes note of a VCL that failed, or wants another answer or another go.
    pub(crate) fn count_failure(&mut self, action: &Action) {
        match action {
            Action::Synth(..) => self.decided(Reason::VclSynth),
            Action::Restart => self.decided(Reason::Restart),
            Action::Fail => self.decided(Reason::VclFailed),
            _ => {}
        }
        if matches!(action, Action::Fail) {
            self.local.counters.vcl_fail.inc();
            self.vcl_failed = true;
            self.close = true;
        }
    }
}
