//! `std.ip` and `std.port`.
//!
//! ```text
//! address[:port] | address port | [address] | [address]:port | [address] port
//! ```
//! A numeric address is IPv6, or IPv4 with one to four parts in decimal, octal (`010`) or hexadecimal (`0x10`), as
//! getaddrinfo(3) reads it. An IPv4 address mapped into IPv6 counts as IPv4. Unlike varnishd, an empty address and `*`
//! are no addresses (it makes `::1` of both), and a port above 65535 is no port.

use crate::arguments::Arguments;
use crate::task;
use copal_base::Time;
use copal_vcl as vcl;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::sync::{LazyLock, OnceLock};
use vcl::host::{Fault, Result};
use vcl::value::Value;
use vcl::vmod::Call;

/// The longest host name: RFC 1035, section 2.3.4.
const NAME_MAX: usize = 253;
/// How long a lookup's answer, found or not, is kept, in seconds.
const KEPT_S: f64 = 10.0;
/// How many answers are kept; when full, all are dropped.
const KEPT_MAX: usize = 1024;

/// Until when an answer is good, and the answer.
type Answer = (Time, Option<IpAddr>);

/// `std.ip(s, [fallback], resolve=true, [p])`
///
/// A name that has to be looked up is, on a helper thread: name servers may take long.
pub(super) fn ip(call: &mut Call<'_>) -> Result<Value> {
    let arguments = Arguments(call.arguments);
    let default_port: &[u8] = match arguments.maybe(3, Arguments::text)?.flatten() {
        Some(port) => port,
        None => b"80",
    };
    let resolve = arguments.boolean(2)?;
    let parsed = match arguments.text(0)? {
        Some(text) => parse(text, default_port, resolve),
        None => Parsed::Nothing,
    };
    let fallback = arguments.given(1).then(|| call.arguments[1].clone());
    let answer = move |address: Option<SocketAddr>| match (address, fallback) {
        (Some(address), _) => Ok(Value::Ip(Some(address))),
        (None, Some(fallback)) => Ok(fallback),
        (None, None) => Err(Fault("std.ip: conversion failed".into())),
    };
    match parsed {
        Parsed::Address(address) => answer(Some(address)),
        Parsed::Nothing => answer(None),
        Parsed::Name(host, port) => {
            let now = call.host.now();
            if let Some(known) = find(&host, now) {
                return answer(known.map(|address| SocketAddr::new(address, port)));
            }
            task::blocking(call, move || {
                answer(look_up(&host, now).map(|address| SocketAddr::new(address, port)))
            })
        }
    }
}

/// `std.port(ip)`: 0 for a Unix-domain socket.
pub(super) fn port(call: &mut Call<'_>) -> Result<Value> {
    Ok(Value::Int(Arguments(call.arguments).ip(0)?.map_or(0, |address| i64::from(address.port()))))
}

/// What a string says.
#[derive(Clone, Debug, PartialEq)]
enum Parsed {
    Address(SocketAddr),
    /// What may be a host name, and the port.
    Name(String, u16),
    Nothing,
}

/// The address or name in `text`; `names` allows names of hosts and services.
fn parse(text: &[u8], default_port: &[u8], names: bool) -> Parsed {
    address_or_name(text, default_port, names).unwrap_or(Parsed::Nothing)
}

fn address_or_name(text: &[u8], default_port: &[u8], names: bool) -> Option<Parsed> {
    let (host, port) = split(text)?;
    let port = port_of(port.unwrap_or(default_port), names)?;
    let host = std::str::from_utf8(host).ok()?;
    if let Some(address) = numeric(host) {
        return Some(Parsed::Address(SocketAddr::new(address, port)));
    }
    if let Some(scoped) = scoped(host, port) {
        return Some(Parsed::Address(scoped));
    }
    let named = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let is_name = !host.is_empty() && host.len() <= NAME_MAX && host.bytes().all(named);
    (names && is_name).then(|| Parsed::Name(host.to_owned(), port))
}

/// Host and port; the port is absent where nothing separates one from the host.
fn split(text: &[u8]) -> Option<(&[u8], Option<&[u8]>)> {
    if let Some(rest) = text.strip_prefix(b"[") {
        let end = rest.iter().position(|&byte| byte == b']')?;
        return match &rest[end + 1..] {
            [] => Some((&rest[..end], None)),
            [b':' | b' ', port @ ..] => Some((&rest[..end], Some(port.trim_ascii()))),
            _ => None,
        };
    }
    if let Some(space) = text.iter().position(|&byte| byte == b' ') {
        return Some((&text[..space], Some(text[space..].trim_ascii())));
    }
    let mut colons = text.iter().enumerate().filter(|(_, byte)| **byte == b':').map(|(at, _)| at);
    match (colons.next(), colons.next()) {
        (Some(colon), None) => Some((&text[..colon], Some(&text[colon + 1..]))),
        _ => Some((text, None)),
    }
}

/// A port number, 0 for an empty one, or with `names` a service.
fn port_of(text: &[u8], names: bool) -> Option<u16> {
    let text = std::str::from_utf8(text).ok()?;
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        return if text.is_empty() { Some(0) } else { text.parse().ok() };
    }
    if names { services().get(text).copied() } else { None }
}

fn numeric(host: &str) -> Option<IpAddr> {
    if let Ok(address) = host.parse::<Ipv6Addr>() {
        return Some(IpAddr::V6(address).to_canonical());
    }
    ipv4(host).map(IpAddr::V4)
}

/// An IPv4 address in inet_aton(3)'s forms: the last part fills the bytes that the others leave.
fn ipv4(host: &str) -> Option<Ipv4Addr> {
    let mut parts = [0u32; 4];
    let mut count = 0;
    for part in host.split('.') {
        *parts.get_mut(count)? = ipv4_part(part)?;
        count += 1;
    }
    let (last, leading) = parts[..count].split_last()?;
    let room = 8 * (4 - leading.len() as u32);
    if leading.iter().any(|part| *part > 255) || u64::from(*last) >= 1 << room {
        return None;
    }
    let high = leading.iter().fold(0u64, |address, part| address << 8 | u64::from(*part)) << room;
    Some(Ipv4Addr::from(high as u32 | *last))
}

fn ipv4_part(part: &str) -> Option<u32> {
    let (digits, radix) = match part.as_bytes() {
        [b'0', b'x' | b'X', ..] => (&part[2..], 16),
        [b'0', _, ..] => (&part[1..], 8),
        _ => (part, 10),
    };
    // The standard parser would take a sign.
    digits
        .bytes()
        .all(|byte| byte.is_ascii_hexdigit())
        .then(|| u32::from_str_radix(digits, radix).ok())
        .flatten()
}

/// An IPv6 address with a zone (`fe80::1%eth0`). The system's resolver turns the zone into an index; a numeric address
/// never makes it ask the network.
fn scoped(host: &str, port: u16) -> Option<SocketAddr> {
    let (address, _) = host.split_once('%')?;
    address.parse::<Ipv6Addr>().ok()?;
    (host, port).to_socket_addrs().ok()?.next()
}

/// Answers of name servers, for a while.
static KEPT: LazyLock<Mutex<HashMap<String, Answer>>> = LazyLock::new(Mutex::default);

/// A kept answer, which may be that there is no such host.
fn find(host: &str, now: Time) -> Option<Option<IpAddr>> {
    KEPT.lock().get(host).filter(|(until, _)| now < *until).map(|(_, address)| *address)
}

/// The first address of a host name. The system's resolver blocks the thread while it asks.
fn look_up(host: &str, now: Time) -> Option<IpAddr> {
    let address = (host, 0)
        .to_socket_addrs()
        .ok()
        .and_then(|mut all| all.next())
        .map(|found| found.ip().to_canonical());
    let mut kept = KEPT.lock();
    if kept.len() >= KEPT_MAX {
        kept.clear();
    }
    kept.insert(host.to_owned(), (now + KEPT_S, address));
    address
}

/// The TCP services of `/etc/services`, read once, at most 1 MiB of it; without the file, the two of HTTP.
fn services() -> &'static HashMap<String, u16> {
    static SERVICES: OnceLock<HashMap<String, u16>> = OnceLock::new();
    SERVICES.get_or_init(|| {
        let mut text = String::new();
        if let Ok(file) = std::fs::File::open("/etc/services") {
            // A file that is no text leaves what was read before; the defaults stand in for the rest.
            let _ = file.take(1 << 20).read_to_string(&mut text);
        }
        let mut services = services_in(&text);
        services.entry("http".into()).or_insert(80);
        services.entry("https".into()).or_insert(443);
        services
    })
}

/// Lines of `name port/protocol aliases # comment`. Source: services(5).
fn services_in(text: &str) -> HashMap<String, u16> {
    let mut services = HashMap::new();
    for line in text.lines() {
        let mut words = line.split('#').next().unwrap_or_default().split_ascii_whitespace();
        let (Some(name), Some(number)) = (words.next(), words.next()) else { continue };
        let Some(Ok(port)) = number.strip_suffix("/tcp").map(str::parse::<u16>) else { continue };
        for name in std::iter::once(name).chain(words) {
            services.entry(name.to_owned()).or_insert(port);
        }
    }
    services
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{call_std, text};

    fn check(source: &str, numeric: Option<&str>) {
        let wanted = numeric.map_or(Parsed::Nothing, |address| Parsed::Address(address.parse().unwrap()));
        assert_eq!(parse(source.as_bytes(), b"80", false), wanted, "{source:?}");
    }

    #[test]
    fn numeric_addresses() {
        for (source, address) in [
            ("1.2.3.4", "1.2.3.4:80"),
            ("1.2.3.4:8080", "1.2.3.4:8080"),
            ("1.2.3.4 81", "1.2.3.4:81"),
            ("1.2.3.4  80", "1.2.3.4:80"),
            ("1.2.3.4 ", "1.2.3.4:0"),
            ("1.2.3.4:", "1.2.3.4:0"),
            ("[::1]:82", "[::1]:82"),
            ("[::1] 83", "[::1]:83"),
            ("[::1]", "[::1]:80"),
            ("::1", "[::1]:80"),
            ("[1.2.3.4]:80", "1.2.3.4:80"),
            ("::ffff:1.2.3.4", "1.2.3.4:80"),
            ("5", "0.0.0.5:80"),
            ("5.5", "5.0.0.5:80"),
            ("1.2.3", "1.2.0.3:80"),
            ("0x10", "0.0.0.16:80"),
            ("010.1.1.1", "8.1.1.1:80"),
            ("784111777", "46.188.152.161:80"),
            ("0.0.0.0", "0.0.0.0:80"),
        ] {
            check(source, Some(address));
        }
    }

    #[test]
    fn what_is_no_address() {
        for source in [
            "",
            "*",
            ":80",
            " 5",
            "x",
            "1.2.3.4.5",
            "256.1.1.1",
            "1.2.3.4:http",
            "1.2.3.4:8x",
            "1.2.3.4:99999",
            "1..2",
            "+1",
            "99999999999",
            "1.2.3.4:+1",
            "[::1",
            "[::1]x",
            "08",
            "1.16777216",
            "::1%",
        ] {
            check(source, None);
        }
    }

    #[test]
    fn names_only_where_they_are_asked_for() {
        let port = parse(b"1.2.3.4:http", b"81", true);
        assert_eq!(port, Parsed::Address("1.2.3.4:80".parse().unwrap()));
        assert_eq!(parse(b"localhost", b"80", false), Parsed::Nothing);
        assert_eq!(parse(b"localhost", b"81", true), Parsed::Name("localhost".into(), 81));
        assert_eq!(parse(b"no such host", b"80", true), Parsed::Nothing);
        for _ in 0..2 {
            let value = call_std("ip", &[text("localhost:82")]).unwrap();
            let Value::Ip(Some(address)) = value else { panic!("{value:?}") };
            assert!(address.ip().is_loopback() && address.port() == 82);
        }
    }

    #[test]
    fn services_are_read_by_name_and_alias() {
        let services =
            services_in("# c\nhttp 80/tcp www # web\nhttp 80/udp\nntp 123/udp\nbad line\nx 99999/tcp\n");
        assert_eq!((services.get("www"), services.get("http"), services.len()), (Some(&80), Some(&80), 2));
    }

    #[test]
    fn fallback_and_port() {
        let fallback = Value::Ip(Some("9.9.9.9:9".parse().unwrap()));
        let arguments =
            |source: Value, fallback: Value, port: Value| [source, fallback, Value::Bool(false), port];
        let shown = |arguments: [Value; 4]| call_std("ip", &arguments).map(|value| format!("{value:?}"));
        assert_eq!(
            shown(arguments(text("x"), fallback.clone(), Value::Void)).unwrap(),
            "Ip(Some(9.9.9.9:9))"
        );
        assert_eq!(
            shown(arguments(Value::String(None), fallback, Value::Void)).unwrap(),
            "Ip(Some(9.9.9.9:9))"
        );
        assert_eq!(
            shown(arguments(text("1.2.3.4"), Value::Void, text("8080"))).unwrap(),
            "Ip(Some(1.2.3.4:8080))"
        );
        assert_eq!(
            shown(arguments(text("x"), Value::Void, Value::Void)).unwrap_err().0,
            "std.ip: conversion failed"
        );
        let port = call_std("port", &[Value::Ip(Some("1.2.3.4:99".parse().unwrap()))]).unwrap();
        assert!(matches!(port, Value::Int(99)));
        assert!(matches!(call_std("port", &[Value::Ip(None)]).unwrap(), Value::Int(0)));
    }
}
