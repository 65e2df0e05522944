//! What went wrong on the way to an origin, as clients and operators are told: in the words of RFC 9209
//! (`Proxy-Status`), and of Squid (`X-Squid-Error`), by which clients of CVMFS tell a fault of the proxy from one of the
//! server behind it.

use crate::settings::Settings;
use copal_net as net;
use copal_origin as origin;
use copal_rules as rules;
use copal_wire as wire;
use net::tls::Fault;
use origin::Error;
use rules::proxy_status::{Entry, Error as Kind};
use std::io;
use wire::{Fields, Reject};

/// Why there is no answer of the origin's, or that the one there was is an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Trouble {
    /// `None` where the origin itself answered with an error.
    kind: Option<Kind>,
    /// The status of the answer that came, if one did.
    received: Option<u16>,
    /// The backend's name in VCL.
    hop: Option<Box<str>>,
    /// Squid's name for it, and the system's error number or 0.
    squid: (&'static str, i32),
}

impl Trouble {
    /// No backend is fit to be asked.
    pub(crate) fn no_backend(director: &str) -> Self {
        Self::new(Kind::DestinationUnavailable, ("ERR_CANNOT_FORWARD", 0)).at(director)
    }

    /// The origin's answer is against HTTP, or nothing that was asked for.
    pub(crate) fn bad_answer() -> Self {
        Self::new(Kind::HttpProtocolError, ("ERR_INVALID_RESP", 0))
    }

    /// The answer's body is not what its coding says.
    pub(crate) fn bad_coding() -> Self {
        Self::new(Kind::HttpResponseContentCoding, ("ERR_INVALID_RESP", 0))
    }

    /// The fault is ours: no memory, a VCL that asks for what cannot be done.
    pub(crate) fn internal() -> Self {
        Self::new(Kind::ProxyInternalError, ("ERR_CANNOT_FORWARD", 0))
    }

    /// The origin answered with an error of that status.
    pub(crate) fn answered(status: u16, backend: Option<&str>) -> Self {
        let hop = backend.map(Into::into);
        Self { kind: None, received: Some(status), hop, squid: ("ERR_NONE", 0) }
    }

    /// What VCL made, or chose, leads to no origin.
    pub(crate) fn misconfigured() -> Self {
        Self::new(Kind::ProxyConfigurationError, ("ERR_CANNOT_FORWARD", 0))
    }

    /// The client's body broke off.
    pub(crate) fn request_cut() -> Self {
        Self::new(Kind::HttpRequestError, ("ERR_READ_ERROR", 0))
    }

    fn new(kind: Kind, squid: (&'static str, i32)) -> Self {
        Self { kind: Some(kind), received: None, hop: None, squid }
    }

    /// Names the backend.
    pub(crate) fn at(mut self, backend: &str) -> Self {
        self.hop = Some(backend.into());
        self
    }

    /// Notes the status of an answer whose head came.
    pub(crate) fn set_received(&mut self, status: Option<u16>) {
        self.received = status;
    }

    /// What failed between an origin and us.
    pub(crate) fn of_origin(error: &Error) -> Self {
        let number = |error: &io::Error| error.raw_os_error().unwrap_or(0);
        let (kind, squid) = match error {
            Error::Unhealthy => (Kind::DestinationUnavailable, ("ERR_CANNOT_FORWARD", 0)),
            Error::Busy => (Kind::ConnectionLimitReached, ("ERR_CANNOT_FORWARD", 0)),
            Error::HeldDown(_) => (Kind::DestinationUnavailable, ("ERR_CONNECT_FAIL", 0)),
            Error::Connect { source, .. } => (of_connect(source), ("ERR_CONNECT_FAIL", number(source))),
            Error::ConnectTimeout => (Kind::ConnectionTimeout, ("ERR_CONNECT_FAIL", TIMED_OUT)),
            Error::Tls(fault) => (of_tls(fault), ("ERR_SECURE_CONNECT_FAIL", 0)),
            Error::StaleReuse | Error::Closed { begun: false } => {
                (Kind::ConnectionTerminated, ("ERR_ZERO_SIZE_OBJECT", 0))
            }
            Error::Closed { begun: true } | Error::Truncated => {
                (Kind::HttpResponseIncomplete, ("ERR_READ_ERROR", 0))
            }
            Error::Send(source) => (Kind::ConnectionTerminated, ("ERR_WRITE_ERROR", number(source))),
            Error::SendTimeout => (Kind::ConnectionWriteTimeout, ("ERR_WRITE_ERROR", TIMED_OUT)),
            Error::Receive(source) => (Kind::ConnectionTerminated, ("ERR_READ_ERROR", number(source))),
            Error::FirstByteTimeout | Error::Overtime => (Kind::HttpResponseTimeout, ("ERR_READ_TIMEOUT", 0)),
            Error::BetweenBytesTimeout => (Kind::ConnectionReadTimeout, ("ERR_READ_TIMEOUT", 0)),
            Error::Malformed(reject) => (of_reject(*reject), ("ERR_INVALID_RESP", 0)),
            Error::InterimFlood | Error::Switching => (Kind::HttpProtocolError, ("ERR_INVALID_RESP", 0)),
            Error::Oversize => (Kind::HttpResponseBodySize, ("ERR_TOO_BIG", 0)),
        };
        Self::new(kind, squid)
    }

    /// The status of an answer in the origin's place (RFC 9110, section 15.6): the one that RFC 9209 recommends, but 503 for
    /// faults of our own, since trying again later may well help.
    pub(crate) fn status(&self) -> u16 {
        match self.kind {
            Some(Kind::HttpRequestError) => 400,
            Some(Kind::ProxyInternalError | Kind::ProxyConfigurationError) | None => 503,
            Some(kind) => kind.status().unwrap_or(503),
        }
    }

    /// Whether no answer came, so that nothing is known of what the origin holds.
    pub(crate) fn is_silence(&self) -> bool {
        self.received.is_none()
    }

    /// Says in the head of a response what became of asking the origin, behind what other proxies said.
    pub(crate) fn tell(&self, settings: &Settings, fields: &mut Fields) {
        if settings.proxy_status {
            let next_hop = self.hop.as_deref().filter(|_| settings.proxy_status_next_hop);
            let entry = Entry::of(&settings.identity);
            Entry { error: self.kind, received_status: self.received, next_hop, ..entry }.append_to(fields);
        }
    }

    /// As [`Trouble::tell`], in an answer made here for want of one.
    pub(crate) fn announce(&self, settings: &Settings, fields: &mut Fields) {
        self.tell(settings, fields);
        if settings.squid_error && self.kind.is_some() {
            let (name, number) = self.squid;
            fields.push(b"X-Squid-Error", format!("{name} {number}").as_bytes());
        }
    }
}

/// Linux's number for it.
const TIMED_OUT: i32 = 110;

fn of_connect(error: &io::Error) -> Kind {
    match error.kind() {
        io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => Kind::ConnectionRefused,
        io::ErrorKind::NetworkUnreachable | io::ErrorKind::HostUnreachable => Kind::DestinationIpUnroutable,
        io::ErrorKind::TimedOut => Kind::ConnectionTimeout,
        io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionAborted => Kind::ConnectionTerminated,
        io::ErrorKind::PermissionDenied | io::ErrorKind::AddrNotAvailable | io::ErrorKind::AddrInUse => {
            Kind::ProxyInternalError
        }
        _ => Kind::DestinationUnavailable,
    }
}

fn of_tls(fault: &Fault) -> Kind {
    match fault {
        Fault::Certificate(_) => Kind::TlsCertificateError,
        Fault::Name(_) | Fault::NoRoots(_) => Kind::ProxyConfigurationError,
        Fault::Protocol(_) => Kind::TlsProtocolError,
        Fault::Io(_) => Kind::ConnectionTerminated,
    }
}

fn of_reject(reject: Reject) -> Kind {
    match reject {
        Reject::HeadTooLarge | Reject::TooManyFields => Kind::HttpResponseHeaderSectionSize,
        Reject::LineTooLong => Kind::HttpResponseHeaderSize,
        Reject::UnknownEncoding | Reject::RepeatedEncoding => Kind::HttpResponseTransferCoding,
        // Whatever else breaks HTTP's grammar is one to those who read this.
        _ => Kind::HttpProtocolError,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(trouble: &Trouble, settings: &Settings, expected: &[(&str, &str)]) {
        let mut fields = Fields::new();
        trouble.announce(settings, &mut fields);
        let got: Vec<(&str, &str)> = fields
            .iter()
            .map(|field| {
                (std::str::from_utf8(field.name).unwrap(), std::str::from_utf8(field.value).unwrap())
            })
            .collect();
        assert_eq!(got, expected);
    }

    fn refused() -> Trouble {
        let endpoint = net::Endpoint::Unix("/x".into());
        let error = Error::Connect { endpoint, source: io::Error::from_raw_os_error(111) };
        Trouble::of_origin(&error).at("default")
    }

    #[test]
    fn rfc9209_2_the_error_and_what_else_is_known() {
        let settings = Settings { identity: "edge1.example".into(), ..Settings::default() };
        check(&refused(), &settings, &[("Proxy-Status", "edge1.example;error=connection_refused")]);
        let mut cut = Trouble::of_origin(&Error::Truncated);
        cut.set_received(Some(200));
        let expected = "edge1.example;error=http_response_incomplete;received-status=200";
        check(&cut, &settings, &[("Proxy-Status", expected)]);
        let all = Settings { proxy_status_next_hop: true, squid_error: true, ..settings.clone() };
        let expected = "edge1.example;error=connection_refused;next-hop=\"default\"";
        check(&refused(), &all, &[("Proxy-Status", expected), ("X-Squid-Error", "ERR_CONNECT_FAIL 111")]);
        let answered = Trouble::answered(503, Some("a b"));
        check(&answered, &all, &[("Proxy-Status", "edge1.example;next-hop=\"a b\";received-status=503")]);
        check(&refused(), &Settings { proxy_status: false, ..settings }, &[]);
    }

    #[test]
    fn rfc9110_15_6_time_outs_are_504_bad_answers_502_the_rest_503() {
        for (error, status) in [
            (Error::FirstByteTimeout, 504),
            (Error::ConnectTimeout, 504),
            (Error::BetweenBytesTimeout, 504),
            (Error::Overtime, 504),
            (Error::Malformed(Reject::StatusLine), 502),
            (Error::Closed { begun: true }, 502),
            (Error::Oversize, 502),
            (Error::Unhealthy, 503),
            (Error::Busy, 503),
        ] {
            assert_eq!(Trouble::of_origin(&error).status(), status, "{error}");
        }
        assert_eq!(refused().status(), 502);
    }
}
