//! The PROXY protocol, versions 1 and 2: who the client is, told by a load balancer before the first request.
//!
//! Version 1 is a line of at most 107 bytes:
//! ```text
//! PROXY TCP4 192.0.2.1 192.0.2.2 56324 443\r\n      or TCP6, or: PROXY UNKNOWN ...\r\n
//! ```
//! Version 2, numbers big-endian:
//!
//! | offset | size | what |
//! |---|---|---|
//! | 0 | 12 | signature |
//! | 12 | 1 | version (high half, 2) and command (0 LOCAL, 1 PROXY) |
//! | 13 | 1 | family (high half: 0 none, 1 IPv4, 2 IPv6, 3 Unix) and transport (0 none, 1 stream, 2 datagram) |
//! | 14 | 2 | length of what follows |
//! | 16 | 0, 12, 36 or 216 | source and destination address, source and destination port |
//! | | rest | TLVs: type (1), length (2), value |
//!
//! Source: the PROXY protocol specification of HAProxy, versions 1 and 2.

use crate::{Reject, syntax};
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Longest version 1 line with its CRLF.
pub const V1_MAX: usize = 107;
/// Longest version 2 header that is accepted; the address part takes at most 232, the rest are TLVs.
pub const V2_MAX: usize = 4096;

const V1_START: &[u8] = b"PROXY";
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
const V2_FIXED: usize = SIGNATURE.len() + 4;

/// What a PROXY header says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Header {
    /// The client; `None` if the sender does not know or it is no IP address.
    pub source: Option<SocketAddr>,
    /// What the client connected to; `None` as with `source`.
    pub destination: Option<SocketAddr>,
    /// The sender speaks for itself (a health check): the connection's own addresses hold.
    pub local: bool,
}

/// Reads the header at the start of `buf`: its length and what it says, or `None` if more bytes are needed (never once
/// [`V2_MAX`] bytes are there).
///
/// # Errors
/// [`Reject::ProxyHeader`] as soon as the bytes cannot become a header. A connection that must begin with a header and
/// does not is closed: guessing would let clients choose their own address.
pub fn parse(buf: &[u8]) -> Result<Option<(usize, Header)>, Reject> {
    if starts_like(buf, V1_START) {
        parse_v1(buf)
    } else if starts_like(buf, SIGNATURE) {
        parse_v2(buf)
    } else {
        Err(Reject::ProxyHeader)
    }
}

/// Whether `buf` begins with `start` or could still come to.
fn starts_like(buf: &[u8], start: &[u8]) -> bool {
    let shared = buf.len().min(start.len());
    buf[..shared] == start[..shared]
}

fn parse_v1(buf: &[u8]) -> Result<Option<(usize, Header)>, Reject> {
    let seen = &buf[..buf.len().min(V1_MAX)];
    let Some(end) = seen.iter().position(|&byte| byte == b'\n') else {
        return if seen.len() == V1_MAX { Err(Reject::ProxyHeader) } else { Ok(None) };
    };
    let line = seen[..end].strip_suffix(b"\r").ok_or(Reject::ProxyHeader)?;
    Ok(Some((end + 1, v1_line(line).ok_or(Reject::ProxyHeader)?)))
}

fn v1_line(line: &[u8]) -> Option<Header> {
    let text = std::str::from_utf8(line).ok()?.strip_prefix("PROXY ")?;
    if text == "UNKNOWN" || text.starts_with("UNKNOWN ") {
        return Some(Header::default());
    }
    let mut words = text.split(' ');
    let is_v4 = match words.next()? {
        "TCP4" => true,
        "TCP6" => false,
        _ => return None,
    };
    let address = |word: Option<&str>| -> Option<IpAddr> {
        let address: IpAddr = word?.parse().ok()?;
        (address.is_ipv4() == is_v4).then_some(address)
    };
    let port = |word: Option<&str>| u16::try_from(syntax::parse_digits(word?.as_bytes())?).ok();
    let (source, destination) = (address(words.next())?, address(words.next())?);
    let (source_port, destination_port) = (port(words.next())?, port(words.next())?);
    if words.next().is_some() {
        return None;
    }
    Some(Header {
        source: Some(SocketAddr::new(source, source_port)),
        destination: Some(SocketAddr::new(destination, destination_port)),
        local: false,
    })
}

fn parse_v2(buf: &[u8]) -> Result<Option<(usize, Header)>, Reject> {
    // What can be told to be wrong is refused before the rest is waited for.
    if buf.get(12).is_some_and(|&byte| byte != 0x20 && byte != 0x21) {
        return Err(Reject::ProxyHeader);
    }
    let Some(&[command, family, high, low]) = buf.get(SIGNATURE.len()..V2_FIXED) else { return Ok(None) };
    let size = V2_FIXED + usize::from(u16::from_be_bytes([high, low]));
    if size > V2_MAX {
        return Err(Reject::ProxyHeader);
    }
    let Some(rest) = buf.get(V2_FIXED..size) else { return Ok(None) };
    let header = v2_body(command, family, rest).ok_or(Reject::ProxyHeader)?;
    Ok(Some((size, header)))
}

fn v2_body(command: u8, family: u8, rest: &[u8]) -> Option<Header> {
    if command == 0x20 {
        // LOCAL: the specification has the rest ignored, whatever it is.
        return Some(Header { local: true, ..Header::default() });
    }
    let (header, tlvs) = match family {
        0x00 => (Header::default(), rest),
        0x11 => {
            let (block, tlvs) = rest.split_first_chunk::<12>()?;
            (addresses(block, |bytes: [u8; 4]| Ipv4Addr::from(bytes).into()), tlvs)
        }
        0x21 => {
            let (block, tlvs) = rest.split_first_chunk::<36>()?;
            (addresses(block, |bytes: [u8; 16]| Ipv6Addr::from(bytes).into()), tlvs)
        }
        0x31 => (Header::default(), rest.get(216..)?),
        // Datagrams do not arrive here, and nothing else is defined.
        _ => return None,
    };
    tlvs_are_whole(tlvs).then_some(header)
}

/// Source address, destination address, source port, destination port. `block` holds two addresses of `N` bytes and two
/// ports.
fn addresses<const N: usize>(block: &[u8], address: impl Fn([u8; N]) -> IpAddr) -> Header {
    let at = |index: usize| -> Option<SocketAddr> {
        let ip = block.get(index * N..)?.first_chunk::<N>()?;
        let port = block.get(2 * N + 2 * index..)?.first_chunk::<2>()?;
        Some(SocketAddr::new(address(*ip), u16::from_be_bytes(*port)))
    };
    Header { source: at(0), destination: at(1), local: false }
}

/// Whether the TLVs fill their space exactly.
fn tlvs_are_whole(mut rest: &[u8]) -> bool {
    while let Some((&[_, high, low], after)) = rest.split_first_chunk::<3>() {
        let Some(next) = after.get(usize::from(u16::from_be_bytes([high, low]))..) else { return false };
        rest = next;
    }
    rest.is_empty()
}

/// Appends a version 1 header. Addresses of different families are both written as IPv6; an unknown pair as `UNKNOWN`.
pub fn write_v1(addresses: Option<(SocketAddr, SocketAddr)>, out: &mut Vec<u8>) {
    // Writing to a Vec cannot fail.
    let _ = match addresses.map(same_family) {
        None => write!(out, "PROXY UNKNOWN\r\n"),
        Some((source, destination)) => {
            let family = if source.is_ipv4() { "TCP4" } else { "TCP6" };
            let (from, to) = (source.ip(), destination.ip());
            write!(out, "PROXY {family} {from} {to} {} {}\r\n", source.port(), destination.port())
        }
    };
}

/// Appends a version 2 header without TLVs; an unknown pair as command LOCAL.
pub fn write_v2(addresses: Option<(SocketAddr, SocketAddr)>, out: &mut Vec<u8>) {
    out.extend_from_slice(SIGNATURE);
    let Some((source, destination)) = addresses.map(same_family) else {
        out.extend_from_slice(&[0x20, 0x00, 0, 0]);
        return;
    };
    out.extend_from_slice(if source.is_ipv4() { &[0x21, 0x11, 0, 12] } else { &[0x21, 0x21, 0, 36] });
    for address in [source.ip(), destination.ip()] {
        match address {
            IpAddr::V4(v4) => out.extend_from_slice(&v4.octets()),
            IpAddr::V6(v6) => out.extend_from_slice(&v6.octets()),
        }
    }
    out.extend_from_slice(&source.port().to_be_bytes());
    out.extend_from_slice(&destination.port().to_be_bytes());
}

/// Both as they are, or both as IPv6.
fn same_family((source, destination): (SocketAddr, SocketAddr)) -> (SocketAddr, SocketAddr) {
    if source.is_ipv4() == destination.is_ipv4() {
        return (source, destination);
    }
    let mapped = |address: SocketAddr| match address.ip() {
        IpAddr::V4(v4) => SocketAddr::new(v4.to_ipv6_mapped().into(), address.port()),
        IpAddr::V6(_) => address,
    };
    (mapped(source), mapped(destination))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header(source: &str, destination: &str) -> Header {
        Header {
            source: Some(source.parse().unwrap()),
            destination: Some(destination.parse().unwrap()),
            local: false,
        }
    }

    /// The whole gives `expected` and every shorter prefix asks for more; bytes that follow are left alone.
    fn check(bytes: &[u8], expected: Header) {
        for end in 0..bytes.len() {
            assert_eq!(parse(&bytes[..end]), Ok(None), "{end} of {bytes:?}");
        }
        let more = [bytes, b"GET / HTTP/1.1\r\n"].concat();
        assert_eq!(parse(&more), Ok(Some((bytes.len(), expected))), "{bytes:?}");
    }

    fn v2(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        [SIGNATURE, &[command, family][..], &(rest.len() as u16).to_be_bytes(), rest].concat()
    }

    #[test]
    fn version_1() {
        check(b"PROXY TCP4 192.0.2.1 192.0.2.2 56324 443\r\n", header("192.0.2.1:56324", "192.0.2.2:443"));
        check(b"PROXY TCP6 2001:db8::1 ::1 1 65535\r\n", header("[2001:db8::1]:1", "[::1]:65535"));
        check(b"PROXY UNKNOWN\r\n", Header::default());
        check(b"PROXY UNKNOWN what ever\r\n", Header::default());
    }

    #[test]
    fn version_1_refused() {
        for line in [
            "PROXY TCP4 192.0.2.1 192.0.2.2 1 2\n",
            "PROXY TCP4 ::1 ::2 1 2\r\n",
            "PROXY TCP4 1.2.3.4 1.2.3.4 1\r\n",
            "PROXY TCP4 1.2.3.4 1.2.3.4 1 65536\r\n",
            "PROXY TCP4 1.2.3.4 1.2.3.4 +1 2\r\n",
            "PROXY  TCP4 1.2.3.4 1.2.3.4 1 2\r\n",
            "PROXY TCP4 1.2.3.4 1.2.3.4 1 2 3\r\n",
            "PROXY UDP4 1.2.3.4 1.2.3.4 1 2\r\n",
            "PROXYTCP4\r\n",
            "GET / HTTP/1.1\r\n",
            "PROXY UNKNOWNX\r\n",
            "PROXY TCP4 1.2.3.4\r 1.2.3.4 1 2\r\n",
            "PROXY TCP4 01.2.3.4 1.2.3.4 1 2\r\n",
            "\r\n\r\n\r\n",
        ] {
            assert_eq!(parse(line.as_bytes()), Err(Reject::ProxyHeader), "{line:?}");
        }
        assert_eq!(parse(format!("PROXY UNKNOWN {}", "x".repeat(200)).as_bytes()), Err(Reject::ProxyHeader));
    }

    #[test]
    fn version_2() {
        let v4 = [192, 0, 2, 1, 192, 0, 2, 2, 0xdc, 4, 1, 0xbb];
        check(&v2(0x21, 0x11, &v4), header("192.0.2.1:56324", "192.0.2.2:443"));
        check(
            &v2(0x21, 0x11, &[&v4[..], &[4, 0, 2, 9, 9, 1, 0, 0]].concat()),
            header("192.0.2.1:56324", "192.0.2.2:443"),
        );
        let mut v6 = [0; 36];
        v6[15] = 1;
        v6[31] = 2;
        v6[33] = 80;
        check(&v2(0x21, 0x21, &v6), header("[::1]:80", "[::2]:0"));
        check(&v2(0x20, 0x11, &[1, 2, 3]), Header { local: true, ..Header::default() });
        check(&v2(0x21, 0x00, &[]), Header::default());
        check(&v2(0x21, 0x31, &[0; 216]), Header::default());
    }

    #[test]
    fn version_2_refused() {
        for bytes in [
            v2(0x11, 0x11, &[0; 12]),
            v2(0x22, 0x11, &[0; 12]),
            v2(0x21, 0x12, &[0; 12]),
            v2(0x21, 0x41, &[0; 12]),
            v2(0x21, 0x11, &[0; 11]),
            v2(0x21, 0x21, &[0; 35]),
            v2(0x21, 0x31, &[0; 215]),
            v2(0x21, 0x11, &[0; 14]),
            v2(0x21, 0x11, &[&[0; 12][..], &[4, 0, 9, 1]].concat()),
            v2(0x21, 0x11, &[0; 5000]),
        ] {
            assert_eq!(parse(&bytes), Err(Reject::ProxyHeader), "{:?}", &bytes[12..16]);
        }
    }

    #[test]
    fn mixed_families_and_unknown_are_written() {
        let (a, b) = ("1.2.3.4:5".parse().unwrap(), "[::1]:6".parse().unwrap());
        for write in [write_v1, write_v2] {
            let mut out = Vec::new();
            write(Some((a, b)), &mut out);
            assert_eq!(parse(&out).unwrap().unwrap().1, header("[::ffff:1.2.3.4]:5", "[::1]:6"));
            out.clear();
            write(None, &mut out);
            assert_eq!(parse(&out).unwrap().unwrap().1.source, None);
        }
    }

    fn address() -> impl Strategy<Value = SocketAddr> {
        (any::<[u8; 16]>(), any::<bool>(), any::<u16>()).prop_map(|(bytes, v4, port)| match v4 {
            true => SocketAddr::new(Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3]).into(), port),
            false => SocketAddr::new(Ipv6Addr::from(bytes).into(), port),
        })
    }

    proptest! {
        #[test]
        fn what_is_written_parses_back(a in address(), b in address()) {
            for write in [write_v1, write_v2] {
                let mut out = Vec::new();
                write(Some((a, b)), &mut out);
                let (source, destination) = same_family((a, b));
                let expected = Header { source: Some(source), destination: Some(destination), local: false };
                prop_assert_eq!(parse(&out), Ok(Some((out.len(), expected))));
            }
        }

        #[test]
        fn any_bytes_parse_without_a_panic(
            start in prop::sample::select(vec![&b""[..], b"PROXY ", SIGNATURE]),
            rest in prop::collection::vec(any::<u8>(), 0..300),
        ) {
            let _ = parse(&[start, &rest].concat());
        }
    }
}
