//! What a task does to a director's members, kept until a reconfiguration puts it into a new ring.
//!
//! The task's data holds it; when the task ends and drops it, what is left is applied with the usual count of replicas.

use super::Shard;
use super::ring::{Member, Ring};
use crate::directors::members::{adding, refuse_circle};
use copal_vcl as vcl;
use std::sync::Arc;
use vcl::host::{Fault, Result};
use vcl::value::BackendRef;

/// The most changes a task may make before they take effect, and the most members of a director.
const CHANGES_MAX: usize = 16 * 1024;
/// The replicas of a reconfiguration that nobody asked for.
const REPLICAS: u32 = 67;

/// One change.
#[derive(Debug)]
pub(super) enum Change {
    /// All members go.
    Clear,
    /// A member comes, unless its identification is there already.
    Add {
        /// The backend.
        backend: BackendRef,
        /// Instead of its name.
        ident: Option<String>,
        /// Instead of the director's, in seconds.
        rampup: Option<f64>,
        /// At least 1; the count of replicas is multiplied by it.
        weight: f64,
    },
    /// The member of that identification goes, or all members that are the backend.
    Remove {
        /// The backend; needed where there is no identification.
        backend: Option<BackendRef>,
        /// The identification.
        ident: Option<String>,
    },
}

/// What came of a reconfiguration.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// There is a new ring.
    pub(super) changed: bool,
    /// It left no member.
    pub(super) empty: bool,
    /// What the log should tell.
    pub(super) notices: Vec<String>,
}

/// A task's changes to one director.
pub(super) struct Changes {
    director: Arc<Shard>,
    list: Vec<Change>,
}

impl Changes {
    pub(super) fn new(director: Arc<Shard>) -> Self {
        Self { director, list: Vec::new() }
    }

    /// Notes a change.
    ///
    /// # Errors
    /// A fault after [`CHANGES_MAX`] of them.
    pub(super) fn push(&mut self, change: Change) -> Result<()> {
        if self.list.len() >= CHANGES_MAX {
            return Err(self
                .director
                .fault(&format!("more than {CHANGES_MAX} changes without .reconfigure()")));
        }
        if matches!(change, Change::Clear) {
            // Of what came before it nothing is left to tell.
            self.list.clear();
        }
        self.list.push(change);
        Ok(())
    }

    /// Makes the changes and the new ring. Without a change nothing happens, whatever the count of replicas.
    pub(super) fn apply(&mut self, replicas: u32) -> Outcome {
        let mut outcome = Outcome::default();
        if self.list.is_empty() {
            return outcome;
        }
        let changes = std::mem::take(&mut self.list);
        // One reconfiguration at a time, so that two tasks' changes add up and no circle closes. Nothing else is locked
        // while members are looked at: they may be directors with locks of their own.
        let _adding = adding();
        let mut members: Vec<Option<Member>> =
            self.director.ring().members.iter().cloned().map(Some).collect();
        for change in changes {
            if let Some(notice) = self.make(change, replicas, &mut members) {
                outcome.notices.push(notice);
            }
        }
        let members = close_gaps(members);
        outcome.changed = true;
        outcome.empty = members.is_empty();
        let ring = Arc::new(Ring::build(members));
        *self.director.ring.write() = ring;
        outcome
    }

    fn make(&self, change: Change, replicas: u32, members: &mut Vec<Option<Member>>) -> Option<String> {
        match change {
            Change::Clear => members.clear(),
            Change::Remove { backend, ident } => {
                let meant = |member: &Member| is_meant(member, backend.as_ref(), ident.as_deref());
                for place in members.iter_mut().filter(|place| place.as_ref().is_some_and(meant)) {
                    *place = None;
                }
            }
            Change::Add { backend, ident, rampup, weight } => {
                // The product may go beyond what 32 bits hold; the conversion stops at their end.
                let member =
                    Member { backend, ident, rampup, replicas: (f64::from(replicas) * weight) as u32 };
                if let Some(known) = members.iter().flatten().find(|known| is_same(known, &member)) {
                    let ident = known.ident.as_ref().map(|ident| format!("/{ident}")).unwrap_or_default();
                    return Some(format!(
                        "backend {}{ident} already exists - skipping",
                        known.backend.name()
                    ));
                }
                let director: BackendRef = self.director.clone();
                if let Err(Fault(sentence)) = refuse_circle(&director, &member.backend) {
                    return Some(sentence);
                }
                if members.len() >= CHANGES_MAX {
                    return Some(format!("more than {CHANGES_MAX} backends - skipping {}", member.ident()));
                }
                match members.iter_mut().find(|place| place.is_none()) {
                    Some(gap) => *gap = Some(member),
                    None => members.push(Some(member)),
                }
            }
        }
        None
    }
}

impl Drop for Changes {
    fn drop(&mut self) {
        self.apply(REPLICAS);
    }
}

/// The members without the gaps that removed ones left, which the last ones fill: places are told in the log.
fn close_gaps(mut members: Vec<Option<Member>>) -> Vec<Member> {
    let mut at = 0;
    while at < members.len() {
        if members[at].is_none() {
            members.swap_remove(at);
        } else {
            at += 1;
        }
    }
    members.into_iter().flatten().collect()
}

/// Two members without identifications are the same if they are one backend; otherwise the identifications decide.
fn is_same(one: &Member, other: &Member) -> bool {
    if one.ident.is_none() && other.ident.is_none() {
        return Arc::ptr_eq(&one.backend, &other.backend);
    }
    one.ident() == other.ident()
}

/// Whether a removal means this member.
fn is_meant(member: &Member, backend: Option<&BackendRef>, ident: Option<&str>) -> bool {
    match (ident, backend) {
        (Some(ident), _) => member.ident() == ident,
        (None, Some(backend)) => Arc::ptr_eq(&member.backend, backend),
        (None, None) => false,
    }
}
