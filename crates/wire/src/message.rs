//! The two kinds of message head.

use crate::Fields;

/// The version a message was sent with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Version {
    /// `HTTP/1.0`
    Http10,
    /// `HTTP/1.1`
    #[default]
    Http11,
    /// `HTTP/2.0`: on a stream of its own, which frames the body; origins are never spoken to so.
    Http20,
}

impl Version {
    /// As on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Version::Http10 => "HTTP/1.0",
            Version::Http11 => "HTTP/1.1",
            Version::Http20 => "HTTP/2.0",
        }
    }

    /// As on the wire.
    pub const fn as_bytes(self) -> &'static [u8] {
        self.as_str().as_bytes()
    }
}

/// A request without its body. Made once and reused: [`RequestHead::clear`] keeps all capacity.
#[derive(Debug, Clone, Default)]
pub struct RequestHead {
    /// A token, case-sensitive.
    pub method: Vec<u8>,
    /// As received: origin-form, absolute-form, `*` or, with CONNECT, an authority.
    pub target: Vec<u8>,
    /// As received.
    pub version: Version,
    /// As received, in order.
    pub fields: Fields,
}

impl RequestHead {
    /// An empty head.
    pub fn new() -> Self {
        Self::default()
    }

    /// Empties everything and keeps the memory.
    pub fn clear(&mut self) {
        self.method.clear();
        self.target.clear();
        self.version = Version::Http11;
        self.fields.clear();
    }

    /// Makes `self` equal to `other`, in the memory `self` already has.
    pub fn copy_from(&mut self, other: &RequestHead) {
        self.method.clear();
        self.method.extend_from_slice(&other.method);
        self.target.clear();
        self.target.extend_from_slice(&other.target);
        self.version = other.version;
        self.fields.copy_from(&other.fields);
    }
}

/// A response without its body. Made once and reused: [`ResponseHead::clear`] keeps all capacity.
#[derive(Debug, Clone, Default)]
pub struct ResponseHead {
    /// As received.
    pub version: Version,
    /// 100 to 999.
    pub status: u16,
    /// May be empty.
    pub reason: Vec<u8>,
    /// As received, in order.
    pub fields: Fields,
}

impl ResponseHead {
    /// An empty head with status 0, which is never written.
    pub fn new() -> Self {
        Self::default()
    }

    /// Empties everything and keeps the memory.
    pub fn clear(&mut self) {
        self.version = Version::Http11;
        self.status = 0;
        self.reason.clear();
        self.fields.clear();
    }

    /// Makes `self` equal to `other`, in the memory `self` already has.
    pub fn copy_from(&mut self, other: &ResponseHead) {
        self.version = other.version;
        self.status = other.status;
        self.reason.clear();
        self.reason.extend_from_slice(&other.reason);
        self.fields.copy_from(&other.fields);
    }

    /// Sets status and reason; an empty `reason` takes the registered one.
    pub fn set_status(&mut self, status: u16, reason: &[u8]) {
        self.status = status;
        self.reason.clear();
        let reason = if reason.is_empty() { standard_reason(status).as_bytes() } else { reason };
        self.reason.extend_from_slice(reason);
    }
}

/// The reason phrase registered for `status`, or `Unknown HTTP Status`.
///
/// Source: RFC 9110, section 15, and the IANA status code registry.
pub fn standard_reason(status: u16) -> &'static str {
    match status {
        100 => "Continue",
        101 => "Switching Protocols",
        102 => "Processing",
        103 => "Early Hints",
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        203 => "Non-Authoritative Information",
        204 => "No Content",
        205 => "Reset Content",
        206 => "Partial Content",
        207 => "Multi-Status",
        208 => "Already Reported",
        226 => "IM Used",
        300 => "Multiple Choices",
        301 => "Moved Permanently",
        302 => "Found",
        303 => "See Other",
        304 => "Not Modified",
        305 => "Use Proxy",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        402 => "Payment Required",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        407 => "Proxy Authentication Required",
        408 => "Request Timeout",
        409 => "Conflict",
        410 => "Gone",
        411 => "Length Required",
        412 => "Precondition Failed",
        413 => "Content Too Large",
        414 => "URI Too Long",
        415 => "Unsupported Media Type",
        416 => "Requested Range Not Satisfiable",
        417 => "Expectation Failed",
        418 => "I'm a teapot",
        421 => "Misdirected Request",
        422 => "Unprocessable Entity",
        423 => "Locked",
        424 => "Failed Dependency",
        425 => "Too Early",
        426 => "Upgrade Required",
        428 => "Precondition Required",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        451 => "Unavailable For Legal Reasons",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        506 => "Variant Also Negotiates",
        507 => "Insufficient Storage",
        508 => "Loop Detected",
        510 => "Not Extended",
        511 => "Network Authentication Required",
        _ => "Unknown HTTP Status",
    }
}
