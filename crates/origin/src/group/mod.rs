//! The backends that one host name stands for, which change while the program runs.
//!
//! ```text
//!   name --- looked up every ttl ---> addresses ---> a backend each (kept while its address stays)
//!                                                     | probe: health
//!   request > Group (a director) > next healthy one <-'
//! ```
//! The system's resolver is asked (`/etc/hosts`, DNS, whatever `nsswitch.conf` says), on a helper thread. What it last
//! said stays in use while it cannot say anything.

mod list;
mod run;
mod target;
#[cfg(test)]
mod tests;

use crate::backend::{Backend, MakeError, tls_client};
use crate::endpoints::look_up;
use crate::maker::Maker;
use base::{Seconds, Time};
use copal_base as base;
use copal_net::{Endpoint, tls};
use copal_vcl::value::{self, Ask, BackendDefinition, Health, ListForm, Resolved};
use parking_lot::{Mutex, RwLock};
use std::any::Any;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use tokio::sync::Notify;

pub use run::{run, run_passing};
pub use target::{BadTarget, Target};

/// How many addresses of a name are used.
const MEMBERS_MAX: usize = 64;

/// Which addresses of a name are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// All.
    Any,
    /// Those of IPv4.
    Ipv4,
    /// Those of IPv6.
    Ipv6,
}

/// How a group goes about its name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// How long an answer stands before the name is looked up again; at least [`TTL_MIN`].
    pub ttl: Seconds,
    /// Which addresses are used.
    pub family: Family,
    /// An answer without addresses changes nothing; otherwise it leaves the group empty.
    pub keep_if_empty: bool,
}

/// No name is looked up more often than this, seconds.
pub const TTL_MIN: Seconds = 0.1;

/// The backends of one name. To VCL it is a director.
#[derive(Debug)]
pub struct Group {
    /// The name in VCL, and that of the VCL.
    name: String,
    vcl: String,
    /// What each member is made from, but for its name. Its host and port are what is looked up.
    template: BackendDefinition,
    options: Options,
    tls: Option<tls::Client>,
    maker: Arc<Maker>,
    members: RwLock<Vec<Arc<Backend>>>,
    next: AtomicUsize,
    /// When the name was last looked up, whatever came of it: a [`Time`]'s bits; 0 before the first time.
    looked_up: AtomicU64,
    first_answer: Notify,
    /// When the set of members last changed: a [`Time`]'s bits.
    changed: AtomicU64,
    /// When a request last asked for it: a [`Time`]'s bits. Of meaning for passing groups only.
    used: AtomicU64,
    /// Why the last lookup brought nothing.
    failure: Mutex<Option<String>>,
}

impl Group {
    /// A group without members: `name` is its name in VCL, `vcl` that of the VCL. `template` holds host and port, and
    /// whatever else is to be so for all members.
    ///
    /// # Errors
    /// TLS is wanted and cannot be spoken.
    pub fn new(
        name: &str,
        vcl: &str,
        template: BackendDefinition,
        options: Options,
        maker: &Arc<Maker>,
    ) -> Result<Arc<Self>, MakeError> {
        let template = BackendDefinition { name: name.to_owned(), ..template };
        let tls = tls_client(&template)?;
        let now = maker.clock.now();
        Ok(Arc::new(Self {
            name: name.to_owned(),
            vcl: vcl.to_owned(),
            template,
            options: Options { ttl: options.ttl.max(TTL_MIN), ..options },
            tls,
            maker: Arc::clone(maker),
            members: RwLock::default(),
            next: AtomicUsize::new(0),
            looked_up: AtomicU64::new(0),
            first_answer: Notify::new(),
            changed: AtomicU64::new(now.to_bits()),
            used: AtomicU64::new(now.to_bits()),
            failure: Mutex::default(),
        }))
    }

    /// Its members at this moment.
    pub fn members(&self) -> Vec<Arc<Backend>> {
        self.members.read().clone()
    }

    /// The name of the VCL it belongs to.
    pub fn vcl(&self) -> &str {
        &self.vcl
    }

    /// Why the last lookup brought nothing, if so.
    pub fn failure(&self) -> Option<String> {
        self.failure.lock().clone()
    }

    /// Looks the name up and takes the answer in. Blocks; for a VCL's load.
    pub fn look_up_now(&self) {
        let answer = look_up(&self.template.host, self.template.port());
        self.take(answer);
    }

    /// Whether the name was looked up at least once, whatever came of it.
    pub fn is_looked_up(&self) -> bool {
        self.looked_up.load(Ordering::Acquire) != 0
    }

    /// Whether the last answer has stood for its time, or there is none.
    pub(crate) fn is_due(&self) -> bool {
        let last = Time::from_bits(self.looked_up.load(Ordering::Acquire));
        self.maker.clock.now() - last >= self.options.ttl
    }

    /// Waits until the name was looked up for the first time, for `limit` seconds at most.
    pub async fn first_lookup(&self, limit: Seconds) {
        let waiting = async {
            loop {
                let told = self.first_answer.notified();
                if self.is_looked_up() {
                    return;
                }
                told.await;
            }
        };
        let limit = std::time::Duration::try_from_secs_f64(limit.clamp(0.001, 3600.0));
        let _ = tokio::time::timeout(limit.expect("between bounds"), waiting).await;
    }

    /// Takes in what the resolver said.
    pub(crate) fn take(&self, answer: io::Result<Vec<SocketAddr>>) {
        match answer {
            Ok(addresses) => self.set_members(&self.wanted(addresses)),
            Err(error) if is_empty(&error) => {
                if !self.options.keep_if_empty {
                    self.set_members(&[]);
                }
                *self.failure.lock() = Some(error.to_string());
            }
            Err(error) => *self.failure.lock() = Some(error.to_string()),
        }
        self.looked_up.store(self.maker.clock.now().to_bits(), Ordering::Release);
        self.first_answer.notify_waiters();
    }

    fn wanted(&self, mut addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
        addresses.retain(|address| match self.options.family {
            Family::Any => true,
            Family::Ipv4 => address.is_ipv4(),
            Family::Ipv6 => address.is_ipv6(),
        });
        addresses.truncate(MEMBERS_MAX);
        addresses
    }

    fn set_members(&self, addresses: &[SocketAddr]) {
        let now = self.maker.clock.now();
        let old = self.members();
        let mut failure = None;
        let mut new = Vec::with_capacity(addresses.len());
        for address in addresses {
            let endpoint = Endpoint::Tcp(*address);
            let known = old.iter().find(|member| member.endpoints().any(|known| *known == endpoint));
            match known.map_or_else(|| self.member(*address, now), |known| Ok(Arc::clone(known))) {
                Ok(member) => new.push(member),
                Err(why) => failure = Some(why),
            }
        }
        let same =
            old.len() == new.len() && new.iter().all(|member| old.iter().any(|o| Arc::ptr_eq(o, member)));
        if !same {
            *self.members.write() = new;
            self.changed.store(now.to_bits(), Ordering::Relaxed);
        }
        if addresses.is_empty() {
            failure.get_or_insert_with(|| "no address".to_owned());
        }
        *self.failure.lock() = failure;
    }

    fn member(&self, address: SocketAddr, now: Time) -> Result<Arc<Backend>, String> {
        let name = format!("{}({address})", self.name);
        let definition = BackendDefinition { name: name.clone(), ..self.template.clone() };
        let counters = (self.maker.counters)(&self.vcl, &name)?;
        let endpoints = vec![Endpoint::Tcp(address)];
        Ok(Backend::at(&definition, &self.vcl, endpoints, self.tls.clone(), counters, now))
    }

    pub(crate) fn note_use(&self) {
        self.used.store(self.maker.clock.now().to_bits(), Ordering::Relaxed);
    }
}

/// Whether the resolver said that there is no such name or address, rather than nothing. The standard library keeps the
/// resolver's code to itself, so its words must do.
fn is_empty(error: &io::Error) -> bool {
    let text = error.to_string();
    text.contains("Name or service not known") || text.contains("No address associated with hostname")
}

impl value::Backend for Group {
    fn name(&self) -> &str {
        &self.name
    }

    fn kind(&self) -> &'static str {
        "dns_director"
    }

    fn resolve(&self, ask: &Ask<'_>) -> Resolved {
        let members = self.members.read();
        let count = members.len();
        if count == 0 {
            return Resolved::None;
        }
        let first = self.next.fetch_add(1, Ordering::Relaxed);
        let fit = |member: &&Arc<Backend>| member.healthy() && !ask.has_tried(&***member);
        let healthy = || (0..count).map(|step| &members[(first % count + step) % count]).filter(fit);
        // One that has just refused connections is passed over while there is another.
        let chosen = healthy().find(|member| !member.is_held(ask.now)).or_else(|| healthy().next());
        chosen.map_or(Resolved::None, |member| Resolved::Other(Arc::clone(member) as value::BackendRef))
    }

    fn health(&self, ask: &Ask<'_>) -> Health {
        let members = self.members.read();
        let changed = Time::from_bits(self.changed.load(Ordering::Relaxed));
        let changed = members.iter().map(|member| member.changed()).fold(changed, Time::max);
        let fit = |member: &Arc<Backend>| member.healthy() && !ask.has_tried(&**member);
        Health { healthy: members.iter().any(fit), changed }
    }

    fn list(&self, _: &Ask<'_>, form: ListForm, out: &mut String) {
        list::write(&self.members.read(), form, out);
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
