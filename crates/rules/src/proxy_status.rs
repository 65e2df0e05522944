//! `Proxy-Status`: how this proxy fared with the server behind it, for whoever reads the response.
//!
//! ```text
//! Proxy-Status: copal;error=connection_refused;next-hop="192.0.2.7:80"
//! ```
//! Each proxy on the way appends one member. CVMFS clients tell by `error` a fault behind the proxy from one of the proxy.
//!
//! Source: RFC 9209.

use crate::structured;
use copal_wire::{Fields, Known};
use sfv::{ListSerializer, ParameterSerializer, key_ref};

macro_rules! errors {
    ($($(#[$doc:meta])* $variant:ident, $name:literal, $status:literal, $ours:literal;)*) => {
        /// What went wrong between the proxy and the server, or in the proxy.
        ///
        /// Source: RFC 9209, section 2.3.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Error {
            $($(#[$doc])* $variant,)*
        }

        impl Error {
            /// All of them, in the RFC's order.
            pub const ALL: &[Error] = &[$(Error::$variant,)*];

            /// As written in the field and in the log.
            pub const fn as_str(self) -> &'static str {
                match self { $(Error::$variant => $name,)* }
            }

            /// The status that a response made for this error has; `None` where the error does not say it.
            pub const fn status(self) -> Option<u16> {
                match self { $(Error::$variant => if $status == 0 { None } else { Some($status) },)* }
            }

            /// Whether only a proxy makes a response with this error; else the server's own, perhaps cut short, may have it.
            pub const fn is_made_by_proxy(self) -> bool {
                match self { $(Error::$variant => $ours,)* }
            }
        }
    };
}

errors! {
    /// No answer to a question for the server's name in time.
    DnsTimeout, "dns_timeout", 504, true;
    /// An error instead of the server's address.
    DnsError, "dns_error", 502, true;
    /// No server is known for the request.
    DestinationNotFound, "destination_not_found", 500, true;
    /// The server is known to be unusable: sick, or too many wait for it.
    DestinationUnavailable, "destination_unavailable", 503, true;
    /// The server's address may not be used.
    DestinationIpProhibited, "destination_ip_prohibited", 502, true;
    /// There is no way to the server's address.
    DestinationIpUnroutable, "destination_ip_unroutable", 502, true;
    /// The server refused the connection.
    ConnectionRefused, "connection_refused", 502, true;
    /// The connection ended before there was a response.
    ConnectionTerminated, "connection_terminated", 502, false;
    /// There was no connection in time.
    ConnectionTimeout, "connection_timeout", 504, true;
    /// The server sent nothing for too long.
    ConnectionReadTimeout, "connection_read_timeout", 504, false;
    /// The server took nothing for too long.
    ConnectionWriteTimeout, "connection_write_timeout", 504, false;
    /// There are as many connections as are allowed.
    ConnectionLimitReached, "connection_limit_reached", 503, true;
    /// TLS failed.
    TlsProtocolError, "tls_protocol_error", 502, true;
    /// The server's certificate is not good.
    TlsCertificateError, "tls_certificate_error", 502, true;
    /// The server sent a TLS alert.
    TlsAlertReceived, "tls_alert_received", 502, false;
    /// The client's request is at fault.
    HttpRequestError, "http_request_error", 0, true;
    /// The proxy may not forward the request.
    HttpRequestDenied, "http_request_denied", 403, true;
    /// The response ended too early.
    HttpResponseIncomplete, "http_response_incomplete", 502, false;
    /// All fields of the response are too large.
    HttpResponseHeaderSectionSize, "http_response_header_section_size", 502, false;
    /// A field of the response is too large.
    HttpResponseHeaderSize, "http_response_header_size", 502, false;
    /// The body of the response is too large.
    HttpResponseBodySize, "http_response_body_size", 502, false;
    /// All trailers of the response are too large.
    HttpResponseTrailerSectionSize, "http_response_trailer_section_size", 502, false;
    /// A trailer of the response is too large.
    HttpResponseTrailerSize, "http_response_trailer_size", 502, false;
    /// The transfer coding of the response cannot be undone.
    HttpResponseTransferCoding, "http_response_transfer_coding", 502, false;
    /// The content coding of the response cannot be undone.
    HttpResponseContentCoding, "http_response_content_coding", 502, false;
    /// The whole response did not come in time.
    HttpResponseTimeout, "http_response_timeout", 504, false;
    /// The change of protocol failed.
    HttpUpgradeFailed, "http_upgrade_failed", 502, true;
    /// The response is not HTTP as it should be.
    HttpProtocolError, "http_protocol_error", 502, false;
    /// The proxy made the response without asking the server.
    ProxyInternalResponse, "proxy_internal_response", 0, true;
    /// A fault in the proxy.
    ProxyInternalError, "proxy_internal_error", 500, true;
    /// The configuration of the proxy is at fault.
    ProxyConfigurationError, "proxy_configuration_error", 500, true;
    /// The request has been here before.
    ProxyLoopDetected, "proxy_loop_detected", 502, true;
}

/// What one proxy says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The name of this proxy.
    pub proxy: &'a str,
    /// What went wrong.
    pub error: Option<Error>,
    /// Where the request went: a name or an address, perhaps with a port.
    pub next_hop: Option<&'a str>,
    /// The protocol spoken there, as ALPN names it (`h2`, `http/1.1`).
    pub next_protocol: Option<&'a str>,
    /// The status that came from there, if the response has another.
    pub received_status: Option<u16>,
    /// More, in words.
    pub details: Option<&'a str>,
    /// What some errors have to say besides.
    pub extra: Option<Extra<'a>>,
}

/// What some errors have to say besides.
///
/// Source: RFC 9209, section 2.3.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extra<'a> {
    /// Of [`Error::DnsError`]: the code of the answer, as `NXDOMAIN`.
    Rcode(&'a str),
    /// Of [`Error::TlsAlertReceived`]: the number of the alert.
    AlertId(u8),
    /// Of [`Error::HttpRequestError`]: the status.
    StatusCode(u16),
    /// Of [`Error::HttpResponseHeaderSectionSize`]: bytes that came.
    HeaderSectionSize(u64),
    /// Of [`Error::HttpResponseBodySize`]: bytes that came.
    BodySize(u64),
    /// Of [`Error::HttpResponseTransferCoding`] and [`Error::HttpResponseContentCoding`]: its name.
    Coding(&'a str),
}

impl<'a> Entry<'a> {
    /// The proxy of this name, without anything to say.
    pub const fn of(proxy: &'a str) -> Self {
        Entry {
            proxy,
            error: None,
            next_hop: None,
            next_protocol: None,
            received_status: None,
            details: None,
            extra: None,
        }
    }

    /// The member as it is written.
    pub fn value(&self) -> String {
        let mut list = ListSerializer::new();
        let mut member = list.bare_item(structured::name(&structured::printable(self.proxy)));
        if let Some(error) = self.error {
            member = member.parameter(key_ref("error"), structured::name(error.as_str()));
        }
        if let Some(hop) = self.next_hop {
            member = member.parameter(key_ref("next-hop"), structured::string(&structured::printable(hop)));
        }
        if let Some(protocol) = self.next_protocol {
            let protocol = structured::printable(protocol);
            member = member.parameter(key_ref("next-protocol"), structured::name(&protocol));
        }
        if let Some(status) = self.received_status {
            member = member.parameter(key_ref("received-status"), sfv::Integer::from(status));
        }
        if let Some(details) = self.details {
            let details = structured::printable(details);
            member = member.parameter(key_ref("details"), structured::string(&details));
        }
        if let Some(extra) = self.extra {
            member = extra.add(member);
        }
        let _ = member.finish();
        list.finish().unwrap_or_default()
    }

    /// Appends the member to what proxies before this one said.
    pub fn append_to(&self, response: &mut Fields) {
        structured::append(response, Known::ProxyStatus, &self.value());
    }
}

impl Extra<'_> {
    fn add(self, member: ParameterSerializer<&mut String>) -> ParameterSerializer<&mut String> {
        let size = |bytes: u64| structured::whole_seconds(bytes as f64);
        match self {
            Extra::Rcode(code) => {
                member.parameter(key_ref("rcode"), structured::string(&structured::printable(code)))
            }
            Extra::AlertId(alert) => member.parameter(key_ref("alert-id"), sfv::Integer::from(alert)),
            Extra::StatusCode(status) => member.parameter(key_ref("status-code"), sfv::Integer::from(status)),
            Extra::HeaderSectionSize(bytes) => member.parameter(key_ref("header-section-size"), size(bytes)),
            Extra::BodySize(bytes) => member.parameter(key_ref("body-size"), size(bytes)),
            Extra::Coding(name) => {
                member.parameter(key_ref("coding"), structured::name(&structured::printable(name)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(entry: Entry<'_>, expected: &str) {
        assert_eq!(entry.value(), expected);
        assert!(structured::is_list(expected.as_bytes()), "{expected}");
    }

    #[test]
    fn rfc9209_2_1_parameters() {
        let plain = Entry::of("copal");
        check(plain, "copal");
        let refused = Entry { error: Some(Error::ConnectionRefused), ..plain };
        check(refused, "copal;error=connection_refused");
        check(
            Entry {
                next_hop: Some("192.0.2.7:80"),
                next_protocol: Some("http/1.1"),
                received_status: Some(503),
                details: Some("said \"no\"\r\n"),
                ..plain
            },
            "copal;next-hop=\"192.0.2.7:80\";next-protocol=http/1.1;received-status=503;details=\"said \\\"no\\\"??\"",
        );
    }

    #[test]
    fn rfc9209_2_3_errors_and_their_parameters() {
        let plain = Entry::of("a b");
        let of = |error, extra| Entry { error: Some(error), extra: Some(extra), ..plain };
        check(of(Error::DnsError, Extra::Rcode("NXDOMAIN")), "\"a b\";error=dns_error;rcode=\"NXDOMAIN\"");
        check(
            of(Error::TlsAlertReceived, Extra::AlertId(40)),
            "\"a b\";error=tls_alert_received;alert-id=40",
        );
        check(
            of(Error::HttpResponseBodySize, Extra::BodySize(5)),
            "\"a b\";error=http_response_body_size;body-size=5",
        );
        check(
            of(Error::HttpResponseContentCoding, Extra::Coding("gzip")),
            "\"a b\";error=http_response_content_coding;coding=gzip",
        );
        for &error in Error::ALL {
            check(Entry { error: Some(error), ..Entry::of("p") }, &format!("p;error={}", error.as_str()));
            assert!(error.status().is_none_or(|status| (400..600).contains(&status)));
        }
        assert_eq!(Error::ALL.len(), 32);
    }

    #[test]
    fn rfc9209_2_members_are_appended() {
        let mut fields = Fields::new();
        fields.push(b"Proxy-Status", b"r34.example.net; error=http_protocol_error");
        Entry::of("copal").append_to(&mut fields);
        let value = fields.get_known(Known::ProxyStatus);
        assert_eq!(value, Some(&b"r34.example.net; error=http_protocol_error, copal"[..]));
    }
}
