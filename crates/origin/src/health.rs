//! Whether a backend is to be used: what the operator ordered, what the probe found, since when.

use base::Time;
use copal_base as base;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

/// What the operator ordered (`backend.set_health`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Admin {
    /// The probe decides; without one the backend is healthy.
    Auto,
    /// Healthy, whatever the probe finds.
    Healthy,
    /// Sick, whatever the probe finds.
    Sick,
}

impl Admin {
    /// Reads the word of the command.
    pub fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "auto" | "probe" => Self::Auto,
            "healthy" => Self::Healthy,
            "sick" => Self::Sick,
            _ => return None,
        })
    }

    /// The word in `backend.list`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "probe",
            Self::Healthy => "healthy",
            Self::Sick => "sick",
        }
    }
}

/// The state; written by the operator and the probe, read by every request.
#[derive(Debug)]
pub(crate) struct Health {
    admin: AtomicU8,
    /// What the probe says; stays true without one.
    probed: AtomicBool,
    /// When the answer last changed: a [`Time`]'s bits.
    changed: AtomicU64,
}

impl Health {
    pub(crate) fn new(probed: bool, now: Time) -> Self {
        Self {
            admin: AtomicU8::new(Admin::Auto as u8),
            probed: AtomicBool::new(probed),
            changed: AtomicU64::new(now.to_bits()),
        }
    }

    pub(crate) fn admin(&self) -> Admin {
        match self.admin.load(Ordering::Relaxed) {
            1 => Admin::Healthy,
            2 => Admin::Sick,
            _ => Admin::Auto,
        }
    }

    pub(crate) fn healthy(&self) -> bool {
        match self.admin() {
            Admin::Auto => self.probed.load(Ordering::Relaxed),
            Admin::Healthy => true,
            Admin::Sick => false,
        }
    }

    pub(crate) fn changed(&self) -> Time {
        Time::from_bits(self.changed.load(Ordering::Relaxed))
    }

    pub(crate) fn set_admin(&self, admin: Admin, now: Time) {
        self.change(now, || self.admin.store(admin as u8, Ordering::Relaxed));
    }

    /// Takes the probe's word; says whether the word is new.
    pub(crate) fn set_probed(&self, healthy: bool, now: Time) -> bool {
        let mut before = healthy;
        self.change(now, || before = self.probed.swap(healthy, Ordering::Relaxed));
        before != healthy
    }

    fn change(&self, now: Time, change: impl FnOnce()) {
        let before = self.healthy();
        change();
        if self.healthy() != before {
            self.changed.store(now.to_bits(), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operator_overrules_probe_and_the_moment_of_change_is_kept() {
        let health = Health::new(true, 1.0);
        assert!(health.healthy());
        assert!(health.set_probed(false, 2.0));
        assert!(!health.set_probed(false, 3.0));
        assert_eq!((health.healthy(), health.changed()), (false, 2.0));
        health.set_admin(Admin::Healthy, 4.0);
        assert_eq!((health.healthy(), health.changed()), (true, 4.0));
        health.set_probed(true, 5.0);
        health.set_admin(Admin::Auto, 6.0);
        assert_eq!((health.healthy(), health.changed()), (true, 4.0));
        health.set_admin(Admin::Sick, 7.0);
        assert_eq!((health.healthy(), health.changed()), (false, 7.0));
    }

    #[test]
    fn words() {
        for admin in [Admin::Auto, Admin::Healthy, Admin::Sick] {
            assert_eq!(Admin::parse(admin.name()), Some(admin));
        }
        assert_eq!(Admin::parse("auto"), Some(Admin::Auto));
        assert_eq!(Admin::parse("ill"), None);
    }
}
