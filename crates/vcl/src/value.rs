//! The values that VCL computes with.

use bytes::Bytes;
use std::any::Any;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use base::{Seconds, Time};
use copal_base as base;

/// A VCL string: bytes as they came, usually but not always UTF-8. Cheap to clone; a constant costs no allocation.
pub type Text = Bytes;

/// A value of any VCL type.
#[derive(Clone, Debug, Default)]
pub enum Value {
    /// No value: what a procedure returns, and an optional argument that was not given.
    #[default]
    Void,
    /// BOOL.
    Bool(bool),
    /// INT, 64 bits.
    Int(i64),
    /// REAL.
    Real(f64),
    /// DURATION.
    Duration(Seconds),
    /// TIME.
    Time(Time),
    /// BYTES.
    Bytes(u64),
    /// STRING; `None` is the unset string (an absent header), which prints as nothing and is false.
    String(Option<Text>),
    /// IP, with its port. A Unix-domain peer is `0.0.0.0:0`, as in Varnish.
    Ip(Option<SocketAddr>),
    /// BACKEND: a backend or a director; `None` is VCL's `none`.
    Backend(Option<BackendRef>),
    /// ACL.
    Acl(Arc<crate::value::AclValue>),
    /// PROBE; `None` where an optional probe is absent.
    Probe(Option<Arc<ProbeDefinition>>),
    /// HEADER: a field of one of the messages, by name.
    Header(crate::host::Side, Text),
    /// STEVEDORE: a storage by name; `None` is the default.
    Storage(Option<Text>),
    /// ENUM: one of the words a VMOD's signature lists.
    Enum(&'static str),
    /// BLOB.
    Blob(Option<Bytes>),
    /// STRANDS that were not joined, each set or not.
    Strands(Arc<[Option<Text>]>),
    /// REGEX or SUB: the index in the program.
    Code(u32),
}

impl Value {
    /// A string value of `text`.
    pub fn text(text: impl Into<Text>) -> Self {
        Self::String(Some(text.into()))
    }
}

/// An access list, ready to match. `matches` is the only thing a VMOD needs of it; made by `AclValue::new`, which sorts.
#[derive(Debug)]
pub struct AclValue {
    /// `+log`: matches are logged as `VCL_acl`.
    pub log: bool,
    /// The name in VCL.
    pub name: String,
    /// The entries, most specific first.
    pub entries: Vec<AclEntry>,
}

/// One entry of an access list.
#[derive(Debug, Clone)]
pub struct AclEntry {
    /// The network's address.
    pub address: std::net::IpAddr,
    /// How many leading bits count.
    pub mask: u8,
    /// `!` before the entry: an address in it does not match.
    pub negated: bool,
    /// The entry as written, for the log.
    pub source: String,
}

/// A backend or director as VCL and VMODs see it. `origin` and the directors VMOD implement it.
pub trait Backend: Any + Send + Sync {
    /// The name in VCL (`default`, or the object's name for a director).
    fn name(&self) -> &str;
    /// The type as `backend.list` shows it (`probe`, `round-robin` ...).
    fn kind(&self) -> &'static str;
    /// Which backend serves this request: itself, another (a director's choice, itself perhaps a director), or none.
    fn resolve(&self, ask: &Ask<'_>) -> Resolved;
    /// Whether a request sent here could be served, and when that last changed.
    fn health(&self, ask: &Ask<'_>) -> Health;
    /// For whoever knows the concrete type.
    fn as_any(&self) -> &dyn Any;
    /// Where a director keeps what an operator said of it; it heeds that in [`Backend::health`].
    fn operator(&self) -> Option<&Operator> {
        None
    }
    /// As [`Backend::resolve`], for a caller that has the task at hand: a shard director whose parameters were changed
    /// for this task (`shard_param.set()` in `vcl_backend_fetch`) sees the change. The default looks at `ask` only.
    fn resolve_in_task(&self, ask: &Ask<'_>, host: &mut dyn crate::host::Host) -> Resolved {
        let _ = host;
        self.resolve(ask)
    }
    /// What `backend.list` shows of a director, appended to `out`; a leaf appends nothing.
    fn list(&self, ask: &Ask<'_>, form: ListForm, out: &mut String) {
        let _ = (ask, form, out);
    }
}

/// How [`Backend::list`] writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ListForm {
    /// `-p`: a line a member instead of the count.
    pub members: bool,
    /// `-j`: JSON.
    pub json: bool,
}

/// A shared backend or director. Two are the same backend if they are the same allocation.
pub type BackendRef = Arc<dyn Backend>;

impl fmt::Debug for dyn Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Backend({})", self.name())
    }
}

/// A director's answer.
#[derive(Debug, Clone)]
pub enum Resolved {
    /// The backend that was asked.
    Itself,
    /// Another one, to be asked in turn.
    Other(BackendRef),
    /// None is healthy.
    None,
}

/// What a director may look at when it chooses.
#[derive(Debug, Clone, Copy)]
pub struct Ask<'request> {
    /// The present moment.
    pub now: Time,
    /// The request's hash digest, where it has been computed.
    pub digest: Option<&'request [u8; 32]>,
    /// Whether it is a fetch that asks, which is about to use what is chosen.
    pub is_fetch: bool,
    /// `bereq.url` or `req.url`; empty outside requests.
    pub url: &'request [u8],
    /// A number to choose by, uniform over 64 bits and different for each ask.
    pub random: u64,
    /// How many resolutions led here; a chain of more than 32 resolves to none.
    pub depth: u8,
    /// Backends that have failed this request already: to it they are not healthy. Mostly none.
    pub tried: &'request [BackendRef],
}

impl Ask<'_> {
    /// Whether `backend` has failed this request already.
    pub fn has_tried(&self, backend: &dyn Backend) -> bool {
        self.tried.iter().any(|tried| std::ptr::addr_eq(Arc::as_ptr(tried), std::ptr::from_ref(backend)))
    }
}

/// Health of a backend or director.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Health {
    /// Would serve a request.
    pub healthy: bool,
    /// When `healthy` last changed.
    pub changed: Time,
}

/// What an operator said of a director's health (`backend.set_health`), which comes before its own opinion. It counts
/// where the director is asked how it is: by `std.healthy`, and as a member of another director.
#[derive(Debug, Default)]
pub struct Operator {
    /// 0: nothing, 1: healthy, 2: sick.
    word: AtomicU8,
    /// The bits of the [`Time`] at which that was said.
    since: AtomicU64,
}

impl Operator {
    /// What was said: whether it is healthy, and when; `None` if it is to decide for itself.
    pub fn word(&self) -> Option<Health> {
        let healthy = match self.word.load(Ordering::Relaxed) {
            0 => return None,
            word => word == 1,
        };
        Some(Health { healthy, changed: Time::from_bits(self.since.load(Ordering::Relaxed)) })
    }

    /// Takes the operator's word; `None` leaves it to the director.
    pub fn set(&self, healthy: Option<bool>, now: Time) {
        self.since.store(now.to_bits(), Ordering::Relaxed);
        let word = healthy.map_or(0, |healthy| if healthy { 1 } else { 2 });
        self.word.store(word, Ordering::Relaxed);
    }

    /// The operator's word, else what `own` says.
    pub fn over(&self, own: impl FnOnce() -> Health) -> Health {
        self.word().unwrap_or_else(own)
    }
}

/// A `backend` definition, attributes checked but nothing resolved or opened. Times in seconds; `None` means the
/// parameter of that name.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct BackendDefinition {
    /// The name in VCL.
    pub name: String,
    /// `.host`; empty with `.path`, or for `backend x none`.
    pub host: String,
    /// What `host` resolved to when the VCL was compiled; none if it is an address, or was not asked for.
    pub addresses: Vec<std::net::IpAddr>,
    /// `.port`; 80 if absent.
    pub port: Option<String>,
    /// `.path`: a Unix-domain socket.
    pub path: Option<String>,
    /// `backend x none;`: always unhealthy.
    pub none: bool,
    /// `.host_header`.
    pub host_header: Option<String>,
    /// `.connect_timeout`.
    pub connect_timeout: Option<Seconds>,
    /// `.first_byte_timeout`.
    pub first_byte_timeout: Option<Seconds>,
    /// `.between_bytes_timeout`.
    pub between_bytes_timeout: Option<Seconds>,
    /// `.max_connections`; `None` is unlimited.
    pub max_connections: Option<u32>,
    /// `.proxy_header`: 1 or 2.
    pub proxy_header: Option<u8>,
    /// `.authority`.
    pub authority: Option<String>,
    /// `.preamble`: what is sent first on each new connection.
    pub preamble: Option<Bytes>,
    /// `.probe`, named or inline.
    pub probe: Option<Arc<ProbeDefinition>>,
    /// `.ssl = 1` and the fields about it.
    pub tls: Option<TlsDefinition>,
}

/// How TLS is spoken to a backend. The fields are those of Varnish Enterprise; the defaults check everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TlsDefinition {
    /// `.ssl_sni`: the server is told which name is meant.
    pub sni: bool,
    /// `.ssl_verify_peer`: its certificate must be signed by an authority that the system trusts.
    pub verify_peer: bool,
    /// `.ssl_verify_host`: its certificate must be for the name.
    pub verify_host: bool,
}

impl Default for TlsDefinition {
    fn default() -> Self {
        Self { sni: true, verify_peer: true, verify_host: true }
    }
}

impl BackendDefinition {
    /// The name that TLS is spoken to: `.authority`, else `.host_header`, else `.host`; without a port.
    pub fn tls_name(&self) -> &str {
        let name = self.authority.as_deref().or(self.host_header.as_deref()).unwrap_or(&self.host);
        if let Some((bare, _)) = name.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            return bare;
        }
        match name.rsplit_once(':') {
            // A bare IPv6 address has more than one colon.
            Some((bare, _)) if !bare.contains(':') => bare,
            _ => name,
        }
    }

    /// The port, by number or service; by default that of the scheme.
    pub fn port(&self) -> &str {
        self.port.as_deref().unwrap_or(if self.tls.is_some() { "443" } else { "80" })
    }
}

/// A `probe` definition with Varnish's defaults filled in.
#[derive(Debug, Clone, PartialEq)]
pub struct ProbeDefinition {
    /// The name in VCL; empty for an inline one.
    pub name: String,
    /// `.url`, default `/`.
    pub url: String,
    /// `.request`: the lines as given, joined by CRLF; replaces what `.url` would make.
    pub request: Option<String>,
    /// `.expected_response`, default 200.
    pub expected_response: u16,
    /// `.timeout`, default 2 s.
    pub timeout: Seconds,
    /// `.interval`, default 5 s.
    pub interval: Seconds,
    /// `.window`, default 8; at most 64.
    pub window: u32,
    /// `.threshold`, default 3.
    pub threshold: u32,
    /// `.initial`, default one less than the threshold.
    pub initial: Option<u32>,
    /// `.expect_close`, default true.
    pub expect_close: bool,
}

impl Default for ProbeDefinition {
    fn default() -> Self {
        Self {
            name: String::new(),
            url: "/".into(),
            request: None,
            expected_response: 200,
            timeout: 2.0,
            interval: 5.0,
            window: 8,
            threshold: 3,
            initial: None,
            expect_close: true,
        }
    }
}
