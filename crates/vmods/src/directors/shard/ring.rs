//! The ring: the members' points on a circle of 2^32 numbers.
//!
//! A member has `replicas` points, the hashes of its identification followed by 0, 1, 2 ... A key belongs to the first
//! point that is not below it; the members that follow on the ring are its alternatives, in that order. So a member that
//! goes takes only its own keys along, and they are spread over all others.

use crate::directors::hash_of;
use copal_vcl as vcl;
use vcl::value::BackendRef;

/// The most points of a ring, 32 MiB: Varnish would go on to 2^32. Beyond it each member gets an equal part.
const POINTS_MAX: usize = 4 << 20;

/// A backend, as often as it was added under another identification.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) backend: BackendRef,
    /// Instead of the backend's name.
    pub(super) ident: Option<String>,
    /// Its slow start in seconds, instead of the director's.
    pub(super) rampup: Option<f64>,
    /// Its count of points.
    pub(super) replicas: u32,
}

impl Member {
    /// What its points are hashed from.
    pub(super) fn ident(&self) -> &str {
        self.ident.as_deref().unwrap_or_else(|| self.backend.name())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Point {
    hash: u32,
    /// An index of [`Ring::members`].
    member: u32,
}

/// A ring; it never changes.
#[derive(Debug, Default)]
pub(super) struct Ring {
    pub(super) members: Vec<Member>,
    /// Sorted; empty exactly if there are no members.
    points: Vec<Point>,
}

impl Ring {
    /// The ring of these members, each with at least one point.
    pub(super) fn build(members: Vec<Member>) -> Self {
        let most = (POINTS_MAX / members.len().max(1)).max(1);
        let mut points = Vec::new();
        for (index, member) in members.iter().enumerate() {
            let replicas = (member.replicas as usize).clamp(1, most);
            points.extend((0..replicas).map(|number| {
                let hash = hash_of(&[member.ident().as_bytes(), number.to_string().as_bytes()]);
                Point { hash, member: index as u32 }
            }));
        }
        points.sort_unstable();
        Self { members, points }
    }

    /// The point of a key, and its member, on a ring that has any.
    ///
    /// A key above all points belongs to the last one, not, as Varnish's manual has it, to the first: that is what
    /// varnishd 7.1.1 does, and nodes of both kinds must agree.
    pub(super) fn lookup(&self, key: u32) -> (usize, usize) {
        let at =
            self.points.partition_point(|point| point.hash < key).min(self.points.len().saturating_sub(1));
        (at, self.points.get(at).map_or(0, |point| point.member as usize))
    }

    /// The members in a key's order, each once.
    pub(super) fn walk(&self, key: u32) -> Walk<'_> {
        Walk {
            ring: self,
            at: self.lookup(key).0,
            seen: vec![false; self.members.len()],
            left: self.members.len(),
        }
    }

    /// A line for each point.
    pub(super) fn describe(&self, tell: &mut dyn FnMut(&str)) {
        for (index, Point { hash, member }) in self.points.iter().enumerate() {
            tell(&format!(
                "vmod_directors: shard: hashcircle[{index:5}] = {{point = {hash:8x}, host = {member:2}}}"
            ));
        }
    }
}

/// See [`Ring::walk`].
pub(super) struct Walk<'ring> {
    ring: &'ring Ring,
    at: usize,
    seen: Vec<bool>,
    left: usize,
}

impl Iterator for Walk<'_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        // Every member has a point, so while one is left the search ends.
        while self.left > 0 {
            let member = self.ring.points[self.at].member as usize;
            self.at = (self.at + 1) % self.ring.points.len();
            if !std::mem::replace(&mut self.seen[member], true) {
                self.left -= 1;
                return Some(member);
            }
        }
        None
    }
}
