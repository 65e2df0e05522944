//! Running the VCL's subroutines for a fetch.

use super::state::Fetch;
use copal_vcl as vcl;
use std::rc::Rc;
use vcl::exec::{Step as VclStep, Wait};
use vcl::host::{Action, Fault, Sub};

impl Fetch {
    /// Runs a subroutine to its end, also if it has to wait.
    pub(crate) async fn decide(&mut self, subroutine: Sub) -> Action {
        if subroutine == Sub::BackendFetch {
            // The others judge an answer, and by the moment at which it came.
            self.now = self.local.now();
        }
        let current = Rc::clone(&self.current);
        let Some(vcl) = &current.vcl else { return Action::Fail };
        let mut machine = std::mem::take(&mut self.machine);
        let step = machine.run(&vcl.instance, subroutine, self);
        self.machine = machine;
        let action = match step {
            VclStep::Done(action) => action,
            VclStep::Wait(wait) => Box::pin(self.wait_for(&vcl.instance, wait)).await,
        };
        if matches!(action, Action::Fail) {
            self.local.counters.vcl_fail.inc();
        }
        action
    }

    async fn wait_for(&mut self, instance: &vcl::instance::Instance, wait: Wait) -> Action {
        let mut wait = wait;
        loop {
            let value = match wait {
                Wait::Work(work) => (work.await)(self),
                Wait::CacheBody { .. } => Err(Fault("only vcl_recv can wait for the request body".into())),
            };
            let mut machine = std::mem::take(&mut self.machine);
            let step = machine.resume(instance, value, self);
            self.machine = machine;
            match step {
                VclStep::Done(action) => return action,
                VclStep::Wait(next) => wait = next,
            }
        }
    }
}
