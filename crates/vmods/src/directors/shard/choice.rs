//! The choice among a key's members: health, alternatives, slow start, warming the next one up.

use super::parameters::Healthy;
use super::ring::Ring;
use crate::directors::members::{health_of, is_healthy, mix, unit};
use copal_vcl as vcl;
use vcl::value::{Ask, Health};

/// A choice to make, with all its parameters.
pub(super) struct Choice<'call> {
    pub(super) ring: &'call Ring,
    pub(super) ask: &'call Ask<'call>,
    /// How many members of the key's order to pass over; at most all but one are.
    pub(super) alternative: usize,
    /// The probability that the next healthy member gets the request.
    pub(super) warmup: f64,
    /// The director's slow start in seconds, unless slow start is off.
    pub(super) rampup: Option<f64>,
    /// What health means for the choice.
    pub(super) healthy: Healthy,
    /// A random number.
    pub(super) dice: u64,
}

impl Choice<'_> {
    /// The index of the chosen member.
    ///
    /// Where no further member is fit, the last healthy one of those passed over is chosen, as Varnish's manual says;
    /// varnishd 7.1.1 itself gives none in some of these cases.
    pub(super) fn member(&self, key: u32) -> Option<usize> {
        let mut walk = self.ring.walk(key);
        let mut spare = None;
        let mut pass = self.alternative.min(self.ring.members.len().saturating_sub(1));
        while pass > 0 {
            let Some(member) = walk.next() else { return spare };
            let healthy = self.is_healthy(member);
            if healthy {
                spare = Some(member);
            }
            if healthy || self.healthy != Healthy::All {
                pass -= 1;
            }
        }
        if self.healthy == Healthy::Ignore {
            return walk.next();
        }
        let Some(chosen) = walk.find(|&member| self.is_healthy(member)) else { return spare };
        if self.alternative > 0 || (self.rampup.is_none() && self.warmup == 0.0) {
            return Some(chosen);
        }
        match walk.find(|&member| self.is_healthy(member)) {
            Some(next) if self.prefers_next(chosen, next) => Some(next),
            Some(_) | None => Some(chosen),
        }
    }

    /// Whether the next member gets the request: because the chosen one starts slowly and the next one does not, or to
    /// keep the next one warm.
    fn prefers_next(&self, chosen: usize, next: usize) -> bool {
        let (chosen_s, chosen_rampup_s) = self.since_healthy(chosen);
        let (next_s, next_rampup_s) = self.since_healthy(next);
        if chosen_s < chosen_rampup_s {
            self.rampup.is_some() && next_s >= next_rampup_s && unit(self.dice) * chosen_rampup_s >= chosen_s
        } else {
            self.warmup > 0.0 && unit(mix(self.dice)) < self.warmup
        }
    }

    /// For how long a member has been healthy, and its slow start, both in seconds.
    fn since_healthy(&self, member: usize) -> (f64, f64) {
        let rampup = self.ring.members[member].rampup.or(self.rampup).unwrap_or(0.0);
        (self.ask.now - self.health(member).changed, rampup)
    }

    fn is_healthy(&self, member: usize) -> bool {
        is_healthy(&self.ring.members[member].backend, self.ask)
    }

    fn health(&self, member: usize) -> Health {
        health_of(&self.ring.members[member].backend, self.ask)
    }
}
