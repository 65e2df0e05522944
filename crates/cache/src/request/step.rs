//! The steps of a request, as values.

use crate::known::Known;
use crate::pipe::Pipe;
use catalog::index::busy::Busy;
use copal_catalog as catalog;
use copal_store as store;
use copal_vcl as vcl;
use std::rc::Rc;
use std::sync::Arc;
use store::Object;
use vcl::value::Text;

/// What the connection does next.
#[derive(Debug)]
pub enum Outcome {
    /// Write `response` and `body`, then call `finish`.
    Deliver,
    /// Join the client with this backend connection, then call `finish_pipe`.
    Pipe(Box<Pipe>),
    /// Close without an answer.
    Close,
}

/// The next step of a request.
#[derive(Debug)]
pub(crate) enum Step {
    Recv,
    /// Compute the key, then go on with what `vcl_recv` decided.
    Hash(AfterHash),
    Lookup,
    /// What may answer is on a device.
    Load,
    /// An object that may be delivered; with a busy one if it is stale and a background fetch is due.
    Hit(Rc<Known>, Option<Busy>, Freshness),
    Miss(Busy, Option<Arc<Object>>),
    Pass,
    Pipe,
    Purge,
    Synth(u16, Option<Text>),
    /// Deliver what stands in `obj` and `body`.
    Deliver,
    Restart,
    Done(Outcome),
}

/// The decision of `vcl_recv`, carried out once the key is known.
#[derive(Debug, Clone)]
pub(crate) enum AfterHash {
    Lookup,
    Pass,
    Pipe,
    Purge,
    Restart,
    Synth(u16, Option<Text>),
}

/// Whether a hit is fresh.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Freshness {
    Fresh,
    Grace,
}

/// The step that every subroutine's `fail`, and every fault, leads to.
pub(crate) fn fail() -> Step {
    Step::Synth(503, Some(Text::from_static(b"VCL failed")))
}
