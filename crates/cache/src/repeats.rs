//! The responses that one thread has made of one object, and the one that it sends again. `request/prepared.rs` makes and
//! sends it.

use crate::handled::Handled;
use crate::settings::Settings;
use catalog::reason::Reason;
use copal_catalog as catalog;
use copal_observe::Block;
use copal_wire as wire;
use std::sync::Arc;
use wire::{Known as Field, KnownSet};

/// Fields of requests that may change the response.
pub(crate) const BY_VARNISH: KnownSet =
    KnownSet::of(&[Field::IfNoneMatch, Field::IfModifiedSince, Field::Range]);
/// As [`BY_VARNISH`], with `rfc`.
pub(crate) const BY_RFC: KnownSet = KnownSet::of(&[
    Field::IfNoneMatch,
    Field::IfModifiedSince,
    Field::Range,
    Field::IfMatch,
    Field::IfUnmodifiedSince,
]);

/// The values on which a response depends, besides its object and the request's being plain.
#[derive(Debug, Clone)]
pub(crate) struct Basis {
    pub(crate) settings: Arc<Settings>,
    pub(crate) age: u64,
    pub(crate) status: Option<Status>,
}

/// The content of `Cache-Status`, where there is one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Status {
    pub(crate) ttl: i64,
    pub(crate) handled: Handled,
    pub(crate) reason: Reason,
}

impl Basis {
    /// Whether a response that depends on these is the same.
    pub(crate) fn is(&self, settings: &Arc<Settings>, age: u64, status: Option<Status>) -> bool {
        self.age == age && self.status == status && Arc::ptr_eq(&self.settings, settings)
    }
}

/// The responses of one object in one thread.
#[derive(Debug, Default)]
pub struct Repeats {
    pub(crate) basis: Option<Basis>,
    /// How many responses in a row had that basis.
    pub(crate) count: u8,
    pub(crate) prepared: Option<Box<Prepared>>,
}

/// A response and its records, in the pieces between which something varies.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) head_before: Box<[u8]>,
    pub(crate) head_after: Box<[u8]>,
    pub(crate) before: Block,
    pub(crate) middle: Block,
    pub(crate) after: Block,
}
