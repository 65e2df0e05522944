//! Why bytes from the network were refused: one name a reason.

use std::fmt;

/// A reason to refuse a message. After any of these the position of the next message on that connection is unknown or
/// not to be trusted, so the connection is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reject {
    /// The bytes are the beginning of an HTTP/2 connection.
    Http2Preface,
    /// More empty lines before a request than are skipped.
    LeadingEmptyLines,
    /// The request line is not `method SP target SP version CRLF`.
    RequestLine,
    /// The method is not a token.
    Method,
    /// The method is longer than any in use.
    MethodTooLong,
    /// The target has a control byte, a space, a `#`, or a byte that is not ASCII, or has none of the known forms.
    Target,
    /// The request line does not fit in the head's limit.
    TargetTooLong,
    /// An absolute-form target with a scheme other than `http` or `https`.
    Scheme,
    /// An absolute-form or CONNECT target whose authority is empty, has userinfo or is malformed.
    Authority,
    /// The version has the right form but is neither 1.0 nor 1.1.
    Version,
    /// A CR, LF or NUL outside its place, or another control byte in a head.
    ControlByte,
    /// A line end that is not exactly CR LF.
    LineEnd,
    /// A field line begins with white space (obs-fold), or white space stands before the colon.
    FieldSpace,
    /// A field name is empty or no token, or there is no colon.
    FieldName,
    /// A field value has a forbidden byte.
    FieldValue,
    /// The head is longer than the limit.
    HeadTooLarge,
    /// One field line is longer than the limit.
    LineTooLong,
    /// There are more fields than the limit.
    TooManyFields,
    /// There are several Host fields.
    RepeatedHost,
    /// The Host field is no `host [":" port]`.
    Host,
    /// Both Content-Length and Transfer-Encoding are present.
    LengthAndEncoding,
    /// Content-Length is present more than once.
    RepeatedLength,
    /// Content-Length is no plain decimal number below 2^63.
    Length,
    /// Transfer-Encoding is present more than once, or is a list.
    RepeatedEncoding,
    /// The transfer coding is not `chunked`.
    UnknownEncoding,
    /// Transfer-Encoding in an HTTP/1.0 message.
    EncodingInHttp10,
    /// Connection names a field that is not for one connection alone: who forwards the message would lose it.
    Connection,
    /// The status line is not `version SP 3digit [SP reason] CRLF`, or the status is below 100.
    StatusLine,
    /// A chunk size is no hexadecimal number of 1 to 16 digits below 2^63, or its line has anything else before the extensions.
    ChunkSize,
    /// A chunk extension has a control byte, or extensions are longer than the limit.
    ChunkExtension,
    /// A chunk's data is not followed by CR LF.
    ChunkEnd,
    /// A trailer line is malformed.
    Trailer,
    /// The trailers are longer than the limit.
    TrailerTooLarge,
    /// An expectation other than `100-continue` (RFC 9110, section 10.1.1).
    Expectation,
}

impl Reject {
    /// Every reason, for counters and tests.
    pub const ALL: &[Reject] = &[
        Reject::Http2Preface,
        Reject::LeadingEmptyLines,
        Reject::RequestLine,
        Reject::Method,
        Reject::MethodTooLong,
        Reject::Target,
        Reject::TargetTooLong,
        Reject::Scheme,
        Reject::Authority,
        Reject::Version,
        Reject::ControlByte,
        Reject::LineEnd,
        Reject::FieldSpace,
        Reject::FieldName,
        Reject::FieldValue,
        Reject::HeadTooLarge,
        Reject::LineTooLong,
        Reject::TooManyFields,
        Reject::RepeatedHost,
        Reject::Host,
        Reject::LengthAndEncoding,
        Reject::RepeatedLength,
        Reject::Length,
        Reject::RepeatedEncoding,
        Reject::UnknownEncoding,
        Reject::EncodingInHttp10,
        Reject::Connection,
        Reject::StatusLine,
        Reject::ChunkSize,
        Reject::ChunkExtension,
        Reject::ChunkEnd,
        Reject::Trailer,
        Reject::TrailerTooLarge,
        Reject::Expectation,
    ];

    /// The status to answer a client with, when the refused bytes were its request. The connection is closed after it.
    pub const fn status(self) -> u16 {
        match self {
            Reject::TargetTooLong => 414,
            Reject::Expectation => 417,
            Reject::HeadTooLarge => 431,
            Reject::MethodTooLong => 501,
            Reject::Http2Preface => 505,
            _ => 400,
        }
    }

    /// What is wrong, in words.
    pub const fn as_str(self) -> &'static str {
        match self {
            Reject::Http2Preface => "HTTP/2 preface on an HTTP/1 connection",
            Reject::LeadingEmptyLines => "too many empty lines before the request",
            Reject::RequestLine => "malformed request line",
            Reject::Method => "malformed method",
            Reject::MethodTooLong => "method too long",
            Reject::Target => "malformed request target",
            Reject::TargetTooLong => "request target too long",
            Reject::Scheme => "unknown scheme in request target",
            Reject::Authority => "malformed authority in request target",
            Reject::Version => "unsupported version",
            Reject::ControlByte => "control byte in head",
            Reject::LineEnd => "line end is not CR LF",
            Reject::FieldSpace => "white space before field name or colon",
            Reject::FieldName => "malformed field name",
            Reject::FieldValue => "malformed field value",
            Reject::HeadTooLarge => "head too large",
            Reject::LineTooLong => "field line too long",
            Reject::TooManyFields => "too many fields",
            Reject::RepeatedHost => "repeated Host",
            Reject::Host => "malformed Host",
            Reject::LengthAndEncoding => "both Content-Length and Transfer-Encoding",
            Reject::RepeatedLength => "repeated Content-Length",
            Reject::Length => "malformed Content-Length",
            Reject::RepeatedEncoding => "repeated Transfer-Encoding",
            Reject::UnknownEncoding => "unknown transfer coding",
            Reject::EncodingInHttp10 => "Transfer-Encoding in HTTP/1.0",
            Reject::Connection => "Connection names a field that is meant for everybody",
            Reject::StatusLine => "malformed status line",
            Reject::ChunkSize => "malformed chunk size",
            Reject::ChunkExtension => "malformed or too long chunk extension",
            Reject::ChunkEnd => "chunk data not followed by CR LF",
            Reject::Trailer => "malformed trailer",
            Reject::TrailerTooLarge => "trailers too large",
            Reject::Expectation => "unknown expectation",
        }
    }
}

impl fmt::Display for Reject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::error::Error for Reject {}
