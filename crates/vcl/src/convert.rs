//! Values as VCL prints them.

use crate::value::Value;
use copal_base::{Time, units};
use std::net::{IpAddr, SocketAddr};

const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// Appends a value as Varnish prints it where a string is wanted: a time as an HTTP date, durations and reals with
/// three decimals, an address without its port, a blob in base64 between colons. What has no print (an unset string)
/// appends nothing.
pub fn append(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Void | Value::String(None) | Value::Blob(None) | Value::Code(_) => {}
        Value::Blob(Some(bytes)) => append_blob(out, bytes),
        Value::Bool(true) => out.extend_from_slice(b"true"),
        Value::Bool(false) => out.extend_from_slice(b"false"),
        Value::Int(value) => {
            if *value < 0 {
                out.push(b'-');
            }
            units::push_integer(out, value.unsigned_abs());
        }
        Value::Real(value) | Value::Duration(value) => units::push_fixed(out, *value, 3),
        Value::Time(time) => append_date(out, *time),
        Value::Bytes(value) => units::push_integer(out, *value),
        Value::String(Some(text)) => out.extend_from_slice(text),
        Value::Strands(parts) => parts.iter().flatten().for_each(|part| out.extend_from_slice(part)),
        Value::Ip(address) => append_address(out, *address),
        Value::Backend(Some(backend)) => out.extend_from_slice(backend.name().as_bytes()),
        Value::Backend(None) => {}
        Value::Acl(acl) => out.extend_from_slice(acl.name.as_bytes()),
        Value::Probe(Some(probe)) => out.extend_from_slice(probe.name.as_bytes()),
        Value::Probe(None) => {}
        Value::Header(_, name) => out.extend_from_slice(name),
        Value::Storage(Some(name)) => {
            out.extend_from_slice(b"storage.");
            out.extend_from_slice(name);
        }
        Value::Storage(None) => {}
        Value::Enum(word) => out.extend_from_slice(word.as_bytes()),
    }
}

/// A blob as VCL would have it in its source. RFC 4648, section 4.
fn append_blob(out: &mut Vec<u8>, bytes: &[u8]) {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    out.push(b':');
    for group in bytes.chunks(3) {
        let bits =
            group.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - group.len()));
        for place in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * place) & 63) as usize];
            out.push(if place <= group.len() { digit } else { b'=' });
        }
    }
    out.push(b':');
}

/// The port of an address that names none.
pub const DEFAULT_PORT: u16 = 80;

/// The host and the port of an address as Varnish writes it: `host`, `host:port`, `host port`, `[v6]`, `[v6]:port`. An
/// IPv6 address without brackets has no port.
pub fn split_endpoint(text: &str) -> (&str, Option<&str>) {
    if let Some((host, rest)) = text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        return (host, rest.strip_prefix(':').or_else(|| rest.strip_prefix(' ')));
    }
    if let Some((host, port)) = text.split_once(' ') {
        return (host, Some(port));
    }
    match text.split_once(':') {
        Some((host, port)) if !port.contains(':') => (host, Some(port)),
        _ => (text, None),
    }
}

/// An address that needs no resolving, perhaps with a port.
pub fn literal_endpoint(text: &str) -> Option<SocketAddr> {
    let (host, port) = split_endpoint(text);
    let port = match port {
        Some(port) => port.parse().ok()?,
        None => DEFAULT_PORT,
    };
    Some(SocketAddr::new(host.parse().ok()?, port))
}

fn append_address(out: &mut Vec<u8>, address: Option<SocketAddr>) {
    use std::io::Write as _;
    let written = match address.map(|address| address.ip()) {
        Some(IpAddr::V4(address)) => write!(out, "{address}"),
        Some(IpAddr::V6(address)) => write!(out, "{address}"),
        // What Varnish shows of a Unix-domain peer.
        None => write!(out, "0.0.0.0"),
    };
    written.expect("writing to memory does not fail");
}

/// The date of RFC 9110, section 5.6.7, in its preferred form. Times before 1970 and after 9999 are clamped.
fn append_date(out: &mut Vec<u8>, time: Time) {
    const LAST: f64 = 253_402_300_799.0;
    let seconds = if time.is_finite() { time.clamp(0.0, LAST) as u64 } else { 0 };
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Howard Hinnant's civil-from-days, for days since 1970: years begin in March, eras have 400 of them.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = (month_from_march + 2) % 12;
    let year = era * 400 + year_of_era + u64::from(month < 2);
    let two = |out: &mut Vec<u8>, value: u64| {
        out.push(b'0' + (value / 10 % 10) as u8);
        out.push(b'0' + (value % 10) as u8);
    };
    out.extend_from_slice(DAYS[(days % 7) as usize].as_bytes());
    out.extend_from_slice(b", ");
    two(out, day);
    out.push(b' ');
    out.extend_from_slice(MONTHS[month as usize].as_bytes());
    out.push(b' ');
    two(out, year / 100);
    two(out, year);
    out.push(b' ');
    two(out, second / 3_600);
    out.push(b':');
    two(out, second / 60 % 60);
    out.push(b':');
    two(out, second % 60);
    out.extend_from_slice(b" GMT");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints() {
        for (text, want) in [
            ("1.2.3.4", Some("1.2.3.4:80")),
            ("1.2.3.4:8000", Some("1.2.3.4:8000")),
            ("1.2.3.4 8000", Some("1.2.3.4:8000")),
            ("::1", Some("[::1]:80")),
            ("[::1]", Some("[::1]:80")),
            ("[::1]:8000", Some("[::1]:8000")),
            ("::1::2", None),
            ("1.2.3.4::80", None),
            ("1.2.3.4:x", None),
            ("host:80", None),
        ] {
            assert_eq!(literal_endpoint(text), want.map(|want| want.parse().unwrap()), "{text}");
        }
    }

    #[test]
    fn prints_as_varnish_does() {
        for (value, want) in [
            (Value::Bool(true), "true"),
            (Value::Int(i64::MIN), "-9223372036854775808"),
            (Value::Real(1.0 / 3.0), "0.333"),
            (Value::Duration(-1.5), "-1.500"),
            (Value::Time(784_111_777.0), "Sun, 06 Nov 1994 08:49:37 GMT"),
            (Value::Time(951_782_400.0), "Tue, 29 Feb 2000 00:00:00 GMT"),
            (Value::Time(1_709_251_199.9), "Thu, 29 Feb 2024 23:59:59 GMT"),
            (Value::Time(f64::NAN), "Thu, 01 Jan 1970 00:00:00 GMT"),
            (Value::Bytes(1 << 40), "1099511627776"),
            (Value::Ip(Some("[::1]:80".parse().unwrap())), "::1"),
            (Value::Ip(None), "0.0.0.0"),
            (Value::Backend(None), ""),
            (Value::Blob(Some(b"a"[..].into())), ":YQ==:"),
            (Value::Blob(Some(b"abcd"[..].into())), ":YWJjZA==:"),
            (Value::Blob(Some(b"abc"[..].into())), ":YWJj:"),
            (Value::Storage(Some("s0".into())), "storage.s0"),
        ] {
            let mut out = Vec::new();
            append(&mut out, &value);
            assert_eq!(String::from_utf8(out).unwrap(), want);
        }
    }
}
