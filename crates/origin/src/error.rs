//! Why an exchange with an origin failed.

use copal_net::Endpoint;
use copal_net::tls::Fault;
use copal_wire::Reject;
use std::fmt;
use std::io;

/// Why an exchange with an origin failed.
#[derive(Debug)]
pub enum Error {
    /// The backend is sick, or is `none`.
    Unhealthy,
    /// The backend has `max_connections` requests under way.
    Busy,
    /// A connection failed a moment ago, for this reason; not tried again so soon.
    HeldDown(io::ErrorKind),
    /// No address could be connected to; this is the last one and what it said.
    Connect {
        /// The address.
        endpoint: Endpoint,
        /// What the system said.
        source: io::Error,
    },
    /// Connecting took too long.
    ConnectTimeout,
    /// The connection could not be sealed by TLS.
    Tls(Fault),
    /// A kept connection was closed by the origin before a byte of the answer came: a fresh one may serve, if no part of
    /// a request body is lost.
    StaleReuse,
    /// The request could not be sent, and no answer was there.
    Send(io::Error),
    /// The origin did not take the request.
    SendTimeout,
    /// No byte of the answer came in time.
    FirstByteTimeout,
    /// The answer began and then paused for too long.
    BetweenBytesTimeout,
    /// The connection was closed before the head was complete.
    Closed {
        /// Whether any byte of the answer had come.
        begun: bool,
    },
    /// The connection failed before the head was complete.
    Receive(io::Error),
    /// The answer is no proper HTTP.
    Malformed(Reject),
    /// More interim (1xx) answers than are put up with.
    InterimFlood,
    /// The origin switches to another protocol, which nobody asked for.
    Switching,
    /// The body ended early, by a close or a failure.
    Truncated,
    /// The answer took longer than is put up with, however busily it came (`fetch_time_max`).
    Overtime,
    /// The answer's body is longer than is put up with (`fetch_bytes_max`).
    Oversize,
}

/// Whose fault a failure is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    /// The client's.
    Client,
    /// The origin's or the way's to it.
    Origin,
    /// Ours, or our limits'.
    Us,
}

/// Where trying again may help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Nowhere.
    Never,
    /// At another backend.
    Other,
    /// At the same backend at once, on a fresh connection, if the request can be sent again.
    Same,
}

impl Error {
    /// Whose fault it is.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Busy | Self::HeldDown(_) | Self::Overtime | Self::Oversize => Blame::Us,
            Self::Connect { source, .. } if local_fault(source) => Blame::Us,
            Self::Unhealthy
            | Self::Connect { .. }
            | Self::ConnectTimeout
            | Self::Tls(_)
            | Self::StaleReuse
            | Self::Send(_)
            | Self::SendTimeout
            | Self::FirstByteTimeout
            | Self::BetweenBytesTimeout
            | Self::Closed { .. }
            | Self::Receive(_)
            | Self::Malformed(_)
            | Self::InterimFlood
            | Self::Switching
            | Self::Truncated => Blame::Origin,
        }
    }

    /// Whether it is sure that nothing of the request was sent, so that it may be sent elsewhere whatever it is.
    pub fn sent_nothing(&self) -> bool {
        match self {
            Self::Unhealthy
            | Self::Busy
            | Self::HeldDown(_)
            | Self::Connect { .. }
            | Self::ConnectTimeout
            | Self::Tls(_) => true,
            Self::StaleReuse
            | Self::Send(_)
            | Self::SendTimeout
            | Self::FirstByteTimeout
            | Self::BetweenBytesTimeout
            | Self::Closed { .. }
            | Self::Receive(_)
            | Self::Malformed(_)
            | Self::InterimFlood
            | Self::Switching
            | Self::Truncated
            | Self::Overtime
            | Self::Oversize => false,
        }
    }

    /// Whether the connection ended before a byte of an answer came.
    pub fn unanswered(&self) -> bool {
        matches!(self, Self::StaleReuse | Self::Closed { begun: false })
    }

    /// Where trying again may help.
    pub fn retry(&self) -> Retry {
        match self {
            Self::StaleReuse => Retry::Same,
            Self::Switching | Self::Overtime | Self::Oversize => Retry::Never,
            Self::Unhealthy
            | Self::Busy
            | Self::HeldDown(_)
            | Self::Connect { .. }
            | Self::ConnectTimeout
            | Self::Tls(_)
            | Self::Send(_)
            | Self::SendTimeout
            | Self::FirstByteTimeout
            | Self::BetweenBytesTimeout
            | Self::Closed { .. }
            | Self::Receive(_)
            | Self::Malformed(_)
            | Self::InterimFlood
            | Self::Truncated => Retry::Other,
        }
    }

    /// What `BackendClose` says of a connection that this ended. The words are Varnish's.
    pub fn close_reason(&self) -> &'static str {
        match self {
            Self::Unhealthy
            | Self::Busy
            | Self::HeldDown(_)
            | Self::Connect { .. }
            | Self::ConnectTimeout
            | Self::Tls(_)
            | Self::Send(_)
            | Self::SendTimeout => "Error transaction",
            Self::StaleReuse | Self::Closed { .. } | Self::Receive(_) => "Received bad req/resp",
            Self::FirstByteTimeout | Self::BetweenBytesTimeout | Self::Overtime => "Receive timeout",
            Self::Oversize => "Received bad req/resp",
            Self::Malformed(_) | Self::InterimFlood | Self::Switching => "Received junk data",
            Self::Truncated => "Failure receiving req.body",
        }
    }

    /// The text of the `FetchError` record; `backend` is its name in VCL. The first words are Varnish's.
    pub fn fetch_error(&self, backend: &str) -> String {
        match self {
            Self::Unhealthy => format!("backend {backend}: unhealthy"),
            Self::Busy => format!("backend {backend}: busy"),
            Self::Connect { source, .. } => {
                // The number stands before it already.
                let text = copal_base::reason(source);
                format!("backend {backend}: fail errno {} ({text})", source.raw_os_error().unwrap_or(0))
            }
            // The rest of a broken head is for `Debug`.
            Self::Malformed(_) => "http format error".to_owned(),
            Self::ConnectTimeout | Self::HeldDown(_) | Self::Tls(_) => {
                format!("backend {backend}: {self}")
            }
            _ => self.to_string(),
        }
    }
}

/// Whether a failed `connect` is about us, not about the other side.
pub(crate) fn local_fault(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::PermissionDenied | io::ErrorKind::AddrNotAvailable | io::ErrorKind::AddrInUse
    )
}

/// Whether an error means that the other side is gone.
pub(crate) fn gone(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::NotConnected
            | io::ErrorKind::UnexpectedEof
    )
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unhealthy => f.write_str("backend unhealthy"),
            Self::Busy => f.write_str("backend busy"),
            Self::HeldDown(kind) => write!(f, "held down after: {kind}"),
            Self::Connect { endpoint, .. } => write!(f, "connecting to {endpoint} failed"),
            Self::ConnectTimeout => f.write_str("connect timeout"),
            Self::Tls(fault) => write!(f, "TLS: {fault}"),
            Self::StaleReuse => f.write_str("HTC eof (-1)"),
            Self::Send(error) => write!(f, "sending request failed: {error}"),
            Self::SendTimeout => f.write_str("send timeout"),
            Self::FirstByteTimeout => f.write_str("first byte timeout"),
            Self::BetweenBytesTimeout => f.write_str("between bytes timeout"),
            Self::Closed { begun: false } => f.write_str("HTC eof (-1)"),
            Self::Closed { begun: true } => f.write_str("HTC eof (-1) within a head"),
            Self::Receive(error) => write!(f, "http read error: {error}"),
            Self::Malformed(reject) => write!(f, "http format error: {reject}"),
            Self::InterimFlood => f.write_str("too many interim responses"),
            Self::Switching => f.write_str("unasked switch of protocols"),
            Self::Truncated => f.write_str("straight insufficient bytes"),
            Self::Overtime => f.write_str("fetch_time_max exceeded"),
            Self::Oversize => f.write_str("fetch_bytes_max exceeded"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Connect { source, .. } => Some(source),
            Self::Tls(fault) => Some(fault),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_name_backend_and_reason() {
        let refused = Error::Connect {
            endpoint: Endpoint::Unix("/x".into()),
            source: io::Error::from_raw_os_error(111),
        };
        assert!(refused.fetch_error("boot.a").starts_with("backend boot.a: fail errno 111 ("));
        assert_eq!(Error::Busy.fetch_error("boot.a"), "backend boot.a: busy");
        assert_eq!(Error::FirstByteTimeout.fetch_error("boot.a"), "first byte timeout");
        let expired = Error::Tls(Fault::Certificate("has expired".into()));
        assert_eq!(expired.fetch_error("boot.a"), "backend boot.a: TLS: certificate has expired");
        assert_eq!(Error::Closed { begun: false }.fetch_error("x"), "HTC eof (-1)");
    }

    #[test]
    fn only_a_stale_connection_is_tried_again_at_once() {
        assert_eq!(Error::StaleReuse.retry(), Retry::Same);
        assert_eq!(Error::Closed { begun: false }.retry(), Retry::Other);
        assert_eq!(Error::Truncated.blame(), Blame::Origin);
        assert_eq!(Error::Busy.blame(), Blame::Us);
    }
}
