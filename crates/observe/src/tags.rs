//! The log's tags: one row each with Varnish 7.1's number, so that its own tools name our records right.
//!
//! The row order is the wire format; a tag that Varnish keeps without writing it stands here too, for its number.

/// Nothing particular about the content.
pub const PLAIN: u8 = 0;
/// The tag is kept for its number only and never written.
pub const UNUSED: u8 = 1;
/// The content is bytes from outside and is printed escaped.
pub const UNSAFE: u8 = 2;
/// The content is binary and has no NUL at its end.
pub const BINARY: u8 = 4;

macro_rules! tags {
    ($($name:ident = $number:literal, $flags:ident, $text:literal;)*) => {
        /// What a log record is about. The discriminant is the number in the record.
        #[allow(non_camel_case_types)]
        #[repr(u8)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Tag {
            $(#[doc = $text] $name = $number,)*
        }

        impl Tag {
            /// All tags, by number.
            pub const ALL: &'static [Tag] = &[$(Tag::$name,)*];
        }

        const ROWS: &[(&str, u8, &str)] = &[$((stringify!($name), $flags, $text),)*];
    };
}

tags! {
    Debug = 1, UNSAFE, "Messages for developers";
    Error = 2, PLAIN, "Something went wrong";
    CLI = 3, PLAIN, "A command on the control connection, or its reply";
    SessOpen = 4, PLAIN, "A client connection begins";
    SessClose = 5, PLAIN, "A client connection ends";
    BackendOpen = 6, PLAIN, "A backend connection was made or taken from the pool";
    BackendReuse = 7, UNUSED, "A backend connection went back to the pool (no longer written)";
    BackendClose = 8, PLAIN, "A backend connection is done with";
    HttpGarbage = 9, UNSAFE, "Bytes that are no HTTP request";
    Proxy = 10, PLAIN, "What the PROXY header said";
    ProxyGarbage = 11, PLAIN, "Bytes that are no PROXY header";
    Backend = 12, UNUSED, "The backend chosen (no longer written)";
    Length = 13, PLAIN, "The length of the object's body";
    FetchError = 14, PLAIN, "Why a fetch failed";
    ReqMethod = 15, PLAIN, "Client request: method";
    ReqURL = 16, PLAIN, "Client request: URL";
    ReqProtocol = 17, PLAIN, "Client request: protocol version";
    ReqStatus = 18, UNUSED, "Client request: status (never written)";
    ReqReason = 19, UNUSED, "Client request: reason (never written)";
    ReqHeader = 20, PLAIN, "Client request: a header field";
    ReqUnset = 21, PLAIN, "Client request: a header field was removed";
    ReqLost = 22, UNUSED, "Client request: a header field did not fit";
    RespMethod = 23, UNUSED, "Client response: method (never written)";
    RespURL = 24, UNUSED, "Client response: URL (never written)";
    RespProtocol = 25, PLAIN, "Client response: protocol version";
    RespStatus = 26, PLAIN, "Client response: status";
    RespReason = 27, PLAIN, "Client response: reason";
    RespHeader = 28, PLAIN, "Client response: a header field";
    RespUnset = 29, PLAIN, "Client response: a header field was removed";
    RespLost = 30, UNUSED, "Client response: a header field did not fit";
    BereqMethod = 31, PLAIN, "Backend request: method";
    BereqURL = 32, PLAIN, "Backend request: URL";
    BereqProtocol = 33, PLAIN, "Backend request: protocol version";
    BereqStatus = 34, UNUSED, "Backend request: status (never written)";
    BereqReason = 35, UNUSED, "Backend request: reason (never written)";
    BereqHeader = 36, PLAIN, "Backend request: a header field";
    BereqUnset = 37, PLAIN, "Backend request: a header field was removed";
    BereqLost = 38, UNUSED, "Backend request: a header field did not fit";
    BerespMethod = 39, UNUSED, "Backend response: method (never written)";
    BerespURL = 40, UNUSED, "Backend response: URL (never written)";
    BerespProtocol = 41, PLAIN, "Backend response: protocol version";
    BerespStatus = 42, PLAIN, "Backend response: status";
    BerespReason = 43, PLAIN, "Backend response: reason";
    BerespHeader = 44, PLAIN, "Backend response: a header field";
    BerespUnset = 45, PLAIN, "Backend response: a header field was removed";
    BerespLost = 46, UNUSED, "Backend response: a header field did not fit";
    ObjMethod = 47, UNUSED, "Stored object: method (never written)";
    ObjURL = 48, UNUSED, "Stored object: URL (never written)";
    ObjProtocol = 49, PLAIN, "Stored object: protocol version";
    ObjStatus = 50, PLAIN, "Stored object: status";
    ObjReason = 51, PLAIN, "Stored object: reason";
    ObjHeader = 52, PLAIN, "Stored object: a header field";
    ObjUnset = 53, PLAIN, "Stored object: a header field was removed";
    ObjLost = 54, UNUSED, "Stored object: a header field did not fit";
    BogoHeader = 55, PLAIN, "A header field was malformed";
    LostHeader = 56, PLAIN, "A header field could not be set for want of room";
    TTL = 57, PLAIN, "How long the object lives, and who said so";
    Fetch_Body = 58, PLAIN, "How the body comes from the backend";
    VCL_acl = 59, PLAIN, "What an ACL said of an address";
    VCL_call = 60, PLAIN, "A VCL subroutine begins";
    VCL_trace = 61, PLAIN, "A place passed in VCL";
    VCL_return = 62, PLAIN, "How a VCL subroutine ended";
    ReqStart = 63, PLAIN, "The client's address, port and listener";
    Hit = 64, PLAIN, "An object in cache matched";
    HitPass = 65, PLAIN, "A hit-for-pass marker matched";
    ExpBan = 66, PLAIN, "A ban removed an object";
    ExpKill = 67, PLAIN, "Expiry removed an object";
    WorkThread = 68, PLAIN, "A worker thread began or ended";
    ESI_xmlerror = 69, PLAIN, "A fault or oddity in ESI markup";
    Hash = 70, UNSAFE, "A value that went into the cache key";
    Backend_health = 71, PLAIN, "The outcome of a health probe";
    VCL_Log = 72, PLAIN, "What VCL logged";
    VCL_Error = 73, PLAIN, "A fault while VCL ran";
    Gzip = 74, PLAIN, "What compressing or expanding did";
    Link = 75, PLAIN, "A transaction that this one started";
    Begin = 76, PLAIN, "A transaction begins";
    End = 77, PLAIN, "A transaction ends";
    VSL = 78, PLAIN, "A remark by the log's reader";
    Storage = 79, PLAIN, "Which store holds the object";
    Timestamp = 80, PLAIN, "When a step was reached";
    ReqAcct = 81, PLAIN, "Bytes received and sent for a client request";
    PipeAcct = 82, PLAIN, "Bytes moved through a pipe";
    BereqAcct = 83, PLAIN, "Bytes sent and received for a backend request";
    VfpAcct = 84, PLAIN, "Bytes through a fetch filter";
    Witness = 85, PLAIN, "Order in which locks were taken";
    BackendStart = 86, UNUSED, "The address a backend request goes to";
    H2RxHdr = 87, BINARY, "HTTP/2 frame head received";
    H2RxBody = 88, BINARY, "HTTP/2 frame body received";
    H2TxHdr = 89, BINARY, "HTTP/2 frame head sent";
    H2TxBody = 90, BINARY, "HTTP/2 frame body sent";
    HitMiss = 91, PLAIN, "A hit-for-miss marker matched";
    Filters = 92, PLAIN, "The body filters in use";
    SessError = 93, PLAIN, "A client connection could not be accepted";
    VCL_use = 94, PLAIN, "The VCL that serves this request";
    Notice = 95, PLAIN, "A remark about how a request was handled";
    VdpAcct = 96, PLAIN, "Bytes through a delivery filter";
}

impl Tag {
    /// The tag with this number, if there is one.
    pub fn from_number(number: u8) -> Option<Tag> {
        Self::ALL.get(usize::from(number).checked_sub(1)?).copied()
    }

    /// The tag of this name, in any case.
    pub fn from_name(name: &str) -> Option<Tag> {
        Self::ALL.iter().copied().find(|tag| tag.name().eq_ignore_ascii_case(name))
    }

    /// The number in a record.
    #[inline]
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The name that tools print.
    pub fn name(self) -> &'static str {
        ROWS[self as usize - 1].0
    }

    /// What the tag says, in a line.
    pub fn description(self) -> &'static str {
        ROWS[self as usize - 1].2
    }

    /// The content is binary: no NUL at its end, printed in hexadecimal.
    pub fn is_binary(self) -> bool {
        ROWS[self as usize - 1].1 & BINARY != 0
    }

    /// The content may hold anything and is printed escaped.
    pub fn is_unsafe(self) -> bool {
        ROWS[self as usize - 1].1 & UNSAFE != 0
    }

    /// The tag is never written.
    pub fn is_unused(self) -> bool {
        ROWS[self as usize - 1].1 & UNUSED != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_dense_and_names_lead_back() {
        assert_eq!(Tag::ALL.len(), 96);
        for (at, tag) in Tag::ALL.iter().enumerate() {
            assert_eq!(tag.number() as usize, at + 1);
            assert_eq!(Tag::from_number(tag.number()), Some(*tag));
            assert_eq!(Tag::from_name(tag.name()), Some(*tag));
        }
        assert_eq!(Tag::from_number(0), None);
        assert_eq!(Tag::from_number(97), None);
        assert_eq!(Tag::from_name("vcl_CALL"), Some(Tag::VCL_call));
    }
}
