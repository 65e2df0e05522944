//! Small facts about HTTP messages.

use copal_wire::Version;

/// `HTTP/1.1` and so on.
pub(crate) fn protocol(version: Version) -> &'static [u8] {
    match version {
        Version::Http10 => b"HTTP/1.0",
        Version::Http11 => b"HTTP/1.1",
        Version::Http20 => b"HTTP/2.0",
    }
}

/// Whether a response of that status never has a body (RFC 9110, section 6.4.1).
pub(crate) fn is_bodiless(status: u16) -> bool {
    matches!(status, 100..=199 | 204 | 304)
}
