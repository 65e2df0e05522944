//! Running a subroutine.

use crate::host::{Action, Host, Sub};
use crate::instance::Instance;
use crate::value::Value;

/// What execution waits for when only the caller can provide it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// `std.cache_req_body(limit)`: read the request body, up to `limit` bytes, and resume with a BOOL: whether it
    /// was read whole.
    CacheBody {
        /// In bytes.
        limit: u64,
    },
}

/// What came of running.
#[derive(Debug)]
pub enum Step {
    /// The subroutine decided.
    Done(Action),
    /// Do what is asked and call [`Machine::resume`] with the result.
    Wait(Wait),
}

/// The state of one execution, reused from one to the next so that its buffers stay allocated.
#[derive(Default)]
pub struct Machine {
    _private: (),
}

impl Machine {
    /// A machine with empty buffers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Runs `subroutine` from its beginning. A fault has been logged as `VCL_Error` and is [`Action::Fail`].
    pub fn run(&mut self, instance: &Instance, subroutine: Sub, host: &mut dyn Host) -> Step {
        let _ = (instance, subroutine, host);
        Step::Done(Action::Fail)
    }

    /// Goes on after a [`Step::Wait`], on the same instance, with what was waited for.
    pub fn resume(&mut self, instance: &Instance, value: Value, host: &mut dyn Host) -> Step {
        let _ = (instance, value, host);
        Step::Done(Action::Fail)
    }
}
