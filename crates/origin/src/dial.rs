//! Getting a connection to a backend: a kept one, or a fresh one to the first of its addresses that answers.

use crate::backend::{Backend, Place, Slot};
use crate::connection::Connection;
use crate::error::{Error, local_fault};
use crate::pool::Pools;
use crate::settings::{Settings, Timeouts};
use base::Time;
use copal_base as base;
use copal_net::{Deadline, Endpoint, Idle, Stream, connect, tls, within};
use copal_wire::proxy;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

/// Whether a kept connection will do. That the other side has closed it may show only when the request is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reuse {
    /// A fresh one must be made: after [`Error::StaleReuse`].
    No,
    /// One that the kernel, asked now, has heard nothing about: for a request that cannot be sent twice.
    Sure,
    /// One that nothing was heard about.
    Likely,
}

/// What an exchange asks of its connection.
#[derive(Clone, Copy, Debug)]
pub struct Want {
    /// Time limits of the exchange.
    pub timeouts: Timeouts,
    /// Whether a kept connection will do.
    pub reuse: Reuse,
    /// The client's address and the one it connected to, told to backends with `.proxy_header`.
    pub addresses: Option<(SocketAddr, SocketAddr)>,
    /// The present moment.
    pub now: Time,
}

/// Why a connection to one address does not come about.
#[derive(Debug)]
pub(crate) enum OpenError {
    Connect(io::Error),
    Tls(tls::Fault),
}

impl Backend {
    /// A connection for one exchange. It counts against `max_connections` until it is released or dropped.
    ///
    /// # Errors
    /// [`Error::Unhealthy`], [`Error::Busy`], [`Error::HeldDown`], [`Error::Connect`], [`Error::ConnectTimeout`] or
    /// [`Error::Tls`].
    pub async fn connect(self: &Arc<Self>, pools: &Rc<Pools>, want: &Want) -> Result<Connection, Error> {
        if !self.healthy() {
            self.counters().unhealthy.inc();
            return Err(Error::Unhealthy);
        }
        let Some(slot) = Slot::take(self) else {
            self.counters().busy.inc();
            return Err(Error::Busy);
        };
        let settings = pools.settings();
        let proxied = self.definition().proxy_header;
        let kept = if proxied.is_none() { self.kept(pools, want.reuse) } else { None };
        let reused = kept.is_some();
        let mut prefix = match &self.definition().preamble {
            Some(preamble) if !reused => preamble.to_vec(),
            _ => Vec::new(),
        };
        prefix.extend(proxied.map_or_else(Vec::new, |version| proxy_header(version, want.addresses)));
        let (index, stream) = match kept {
            Some(kept) => kept,
            None => Box::pin(self.dial(&settings, want, &prefix)).await?,
        };
        self.set_favourite(index);
        self.counters().req.inc();
        if stream.is_sealed() {
            // It stands before the handshake and has been sent.
            prefix.clear();
        }
        let mut connection =
            Connection::new(slot, index, stream, Rc::clone(pools), want.timeouts, reused, prefix);
        if proxied.is_some() {
            connection.no_reuse();
        }
        Ok(connection)
    }

    fn kept(&self, pools: &Pools, reuse: Reuse) -> Option<(usize, Stream)> {
        self.places().find_map(|(index, place)| {
            loop {
                let stream = match reuse {
                    Reuse::No => return None,
                    Reuse::Sure | Reuse::Likely => pools.take(&place.peer)?,
                };
                if reuse == Reuse::Likely || stream.look() == Idle::Quiet {
                    return Some((index, stream));
                }
            }
        })
    }

    /// Connects to one address and seals the connection if TLS is spoken; `prefix` then goes before the handshake.
    pub(crate) async fn open(&self, endpoint: &Endpoint, prefix: &[u8]) -> Result<Stream, OpenError> {
        let mut stream = connect(endpoint).await.map_err(OpenError::Connect)?;
        let Some(client) = self.tls() else { return Ok(stream) };
        stream.write_all(prefix).await.map_err(OpenError::Connect)?;
        client.handshake(stream).await.map_err(OpenError::Tls)
    }

    /// Tries the addresses in turn. Each gets its share of the time that is left, so that a silent one does not use up
    /// the time of the others.
    async fn dial(&self, settings: &Settings, want: &Want, prefix: &[u8]) -> Result<(usize, Stream), Error> {
        let begun = Instant::now();
        let deadline = Deadline::new();
        let count = self.places().count();
        let mut failure = Error::Unhealthy;
        for (tried, (index, place)) in self.places().enumerate() {
            if let Some(error) = place.held(want.now) {
                self.counters().helddown.inc();
                failure = Error::HeldDown(error.kind());
                continue;
            }
            if want.timeouts.connect > 0.0 {
                let left = want.timeouts.connect - begun.elapsed().as_secs_f64();
                deadline.set(left.max(0.0) / (count - tried) as f64);
            }
            match within(&deadline, self.open(&place.peer.endpoint, prefix)).await {
                Ok(Ok(stream)) => return Ok((index, stream)),
                Ok(Err(OpenError::Connect(error))) => {
                    failure = self.connect_failed(place, error, settings, want.now);
                }
                Ok(Err(OpenError::Tls(fault))) => {
                    self.counters().fail.inc();
                    self.counters().fail_other.inc();
                    failure = Error::Tls(fault);
                }
                Err(_) => {
                    self.counters().fail.inc();
                    self.counters().fail_etimedout.inc();
                    failure = Error::ConnectTimeout;
                }
            }
        }
        Err(failure)
    }

    fn connect_failed(&self, place: &Place, error: io::Error, settings: &Settings, now: Time) -> Error {
        let counters = self.counters();
        counters.fail.inc();
        let kind = match error.kind() {
            io::ErrorKind::PermissionDenied => &counters.fail_eacces,
            io::ErrorKind::AddrNotAvailable => &counters.fail_eaddrnotavail,
            io::ErrorKind::ConnectionRefused => &counters.fail_econnrefused,
            io::ErrorKind::NetworkUnreachable => &counters.fail_enetunreach,
            io::ErrorKind::TimedOut => &counters.fail_etimedout,
            _ => &counters.fail_other,
        };
        kind.inc();
        let refused =
            matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NetworkUnreachable);
        let holddown = match (local_fault(&error), refused) {
            (true, _) => settings.local_error_holddown,
            (false, true) => settings.remote_error_holddown,
            (false, false) => 0.0,
        };
        if holddown > 0.0 {
            place.hold(now + holddown, &error);
        }
        Error::Connect { endpoint: place.peer.endpoint.clone(), source: error }
    }
}

/// The PROXY header of the version that VCL names.
pub(crate) fn proxy_header(version: u8, addresses: Option<(SocketAddr, SocketAddr)>) -> Vec<u8> {
    let mut header = Vec::with_capacity(proxy::V1_MAX);
    match version {
        1 => proxy::write_v1(addresses, &mut header),
        _ => proxy::write_v2(addresses, &mut header),
    }
    header
}
