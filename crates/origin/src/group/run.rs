//! Keeping a group up to date: its name looked up again and again, its members probed.

use super::Group;
use crate::backend::Backend;
use crate::endpoints::look_up;
use crate::probe;
use base::Seconds;
use copal_base as base;
use copal_net::blocking;
use copal_net::worker::{Stop, task};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::sleep;

/// A name that could not be looked up is tried again after this, if its ttl is longer, seconds.
const RETRY: Seconds = 5.0;

/// A passing group ends when it was not asked for in this time and twice its ttl, seconds.
const UNUSED: Seconds = 60.0;

/// Members that are probed, each with what ends its probe.
#[derive(Default)]
struct Probed(Vec<(Arc<Backend>, Stop)>);

impl Probed {
    /// Probes what is new, lets go of what is gone.
    fn follow(&mut self, group: &Group) {
        let members = group.members();
        self.0.retain(|(member, stop)| {
            let stays = members.iter().any(|other| Arc::ptr_eq(other, member));
            if !stays {
                stop.request();
            }
            stays
        });
        for member in members {
            if member.probe().is_none() || self.0.iter().any(|(known, _)| Arc::ptr_eq(known, &member)) {
                continue;
            }
            let stop = Stop::new();
            let report = Arc::clone(&group.maker.report);
            let clock = Arc::clone(&group.maker.clock);
            let room = Arc::clone(&group.maker.room);
            task(probe::run(Arc::clone(&member), clock, room, stop.clone(), move |outcome| report(outcome)));
            self.0.push((member, stop));
        }
    }
}

impl Drop for Probed {
    fn drop(&mut self) {
        self.0.iter().for_each(|(_, stop)| stop.request());
    }
}

/// Keeps `group` up to date until `stop`: while its VCL is warm. Runs on a thread of [`copal_net::worker`].
pub async fn run(group: Arc<Group>, stop: Stop) {
    tokio::select! {
        () = keep(&group, |_| true) => {}
        () = stop.wait() => {}
    }
}

/// Keeps `group` up to date as long as requests ask for it.
pub async fn run_passing(group: &Group) {
    let limit = UNUSED + 2.0 * group.options.ttl;
    keep(group, |group| {
        let used = f64::from_bits(group.used.load(Ordering::Relaxed));
        group.maker.clock.now() - used < limit
    })
    .await;
}

async fn keep(group: &Group, go_on: impl Fn(&Group) -> bool) {
    let mut probed = Probed::default();
    // A load has looked it up a moment ago; a VCL that was cold for a while has not.
    if group.is_due() {
        refresh(group).await;
    }
    while go_on(group) {
        probed.follow(group);
        let failed = group.failure.lock().is_some();
        let wait = if failed { group.options.ttl.min(RETRY) } else { group.options.ttl };
        sleep(Duration::try_from_secs_f64(wait.min(1e8)).unwrap_or(Duration::MAX)).await;
        refresh(group).await;
    }
}

async fn refresh(group: &Group) {
    let (host, port) = (group.template.host.clone(), group.template.port().to_owned());
    let answer = blocking::run(move || look_up(&host, &port)).await;
    group.take(answer.unwrap_or_else(|why| Err(io::Error::other(why))));
}
