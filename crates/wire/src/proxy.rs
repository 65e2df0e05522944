//! The PROXY protocol, versions 1 and 2: who the client is, told by a load balancer before the first request.
//!
//! Version 1 is a line of at most 108 bytes:
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

use crate::syntax;
use std::fmt;
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Longest version 1 line with its CRLF. The specification says 107, which leaves out one byte of its own longest line;
/// varnishd takes it.
pub const V1_MAX: usize = 108;
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

/// What is wrong with a header; prints as the `ProxyGarbage` record names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wrong {
    /// It begins as neither version does. Nothing is logged of that.
    NoHeader,
    /// Version 1: the line does not end by [`V1_MAX`] bytes, or not with CRLF.
    Line,
    /// Version 1: less than six words.
    TooFewFields,
    /// Version 1: more than six words.
    TooManyFields,
    /// Version 1: the second word is neither `TCP4` nor `TCP6`.
    Family,
    /// Version 1: the source's address or port is none of that family.
    Source,
    /// Version 1: the destination's address or port is none of that family.
    Destination,
    /// Version 2: the version is not 2 or the command is unknown.
    Command,
    /// Version 2: longer than [`V2_MAX`].
    Length,
    /// Version 2: a family or transport that no connection of ours can have.
    Protocol,
    /// Version 2: no room for the addresses.
    Addresses,
    /// Version 2: the attributes do not fill their space.
    Attributes,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoHeader => "no PROXY header",
            Self::Line => "PROXY1: No line end",
            Self::TooFewFields => "PROXY1: Too few fields",
            Self::TooManyFields => "PROXY1: Too many fields",
            Self::Family => "PROXY1: Wrong TCP[46] field",
            Self::Source => "PROXY1: Cannot resolve source address",
            Self::Destination => "PROXY1: Cannot resolve destination address",
            Self::Command => "PROXY2: bad command",
            Self::Length => "PROXY2: Header too long",
            Self::Protocol => "PROXY2: unsupported protocol",
            Self::Addresses => "PROXY2: Ignoring short addresses",
            Self::Attributes => "PROXY2: TLV Dribble bytes",
        })
    }
}

/// Reads the header at the start of `buf`: its length and what it says, or `None` if more bytes are needed (never once
/// [`V2_MAX`] bytes are there).
///
/// # Errors
/// As soon as the bytes cannot become a header. A connection that must begin with a header and does not is closed:
/// guessing would let clients choose their own address.
pub fn parse(buf: &[u8]) -> Result<Option<(usize, Header)>, Wrong> {
    if starts_like(buf, V1_START) {
        parse_v1(buf)
    } else if starts_like(buf, SIGNATURE) {
        parse_v2(buf)
    } else {
        Err(Wrong::NoHeader)
    }
}

/// Which version a whole header that [`parse`] took is of: 1 or 2.
pub fn version(header: &[u8]) -> u8 {
    if header.starts_with(SIGNATURE) { 2 } else { 1 }
}

/// The attributes (TLVs) of a whole header that [`parse`] took; empty if it has none or is of version 1.
pub fn attributes(header: &[u8]) -> &[u8] {
    let Some(&[command, family, ..]) = header.get(SIGNATURE.len()..V2_FIXED) else { return &[] };
    if command != 0x21 || !header.starts_with(SIGNATURE) {
        return &[];
    }
    let addresses = match family {
        0x11 => 12,
        0x21 => 36,
        0x31 => 216,
        _ => 0,
    };
    header.get(V2_FIXED + addresses..).unwrap_or_default()
}

/// The value of the first attribute of type `kind` among `attributes`.
pub fn attribute(attributes: &[u8], kind: u8) -> Option<&[u8]> {
    let mut rest = attributes;
    while let Some((&[found, high, low], after)) = rest.split_first_chunk::<3>() {
        let (value, next) = after.split_at_checked(usize::from(u16::from_be_bytes([high, low])))?;
        if found == kind {
            return Some(value);
        }
        rest = next;
    }
    None
}

/// Whether `buf` begins with `start` or could still come to.
fn starts_like(buf: &[u8], start: &[u8]) -> bool {
    let shared = buf.len().min(start.len());
    buf[..shared] == start[..shared]
}

fn parse_v1(buf: &[u8]) -> Result<Option<(usize, Header)>, Wrong> {
    let seen = &buf[..buf.len().min(V1_MAX)];
    let Some(end) = seen.iter().position(|&byte| byte == b'\n') else {
        return if seen.len() == V1_MAX { Err(Wrong::Line) } else { Ok(None) };
    };
    let line = seen[..end].strip_suffix(b"\r").ok_or(Wrong::Line)?;
    Ok(Some((end + 1, v1_line(line)?)))
}

fn v1_line(line: &[u8]) -> Result<Header, Wrong> {
    let text = std::str::from_utf8(line).map_err(|_| Wrong::Line)?;
    let Some(text) = text.strip_prefix("PROXY ") else {
        return Err(if text == "PROXY" { Wrong::TooFewFields } else { Wrong::NoHeader });
    };
    if text == "UNKNOWN" || text.starts_with("UNKNOWN ") {
        return Ok(Header::default());
    }
    let mut words = [""; 5];
    let mut count = 0;
    for word in text.split(' ') {
        *words.get_mut(count).ok_or(Wrong::TooManyFields)? = word;
        count += 1;
    }
    let [family, source, destination, source_port, destination_port] = words;
    if count < words.len() {
        return Err(Wrong::TooFewFields);
    }
    let is_v4 = match family {
        "TCP4" => true,
        "TCP6" => false,
        _ => return Err(Wrong::Family),
    };
    let end = |address: &str, port: &str| -> Option<SocketAddr> {
        let address: IpAddr = address.parse().ok()?;
        let port = u16::try_from(syntax::parse_digits(port.as_bytes())?).ok()?;
        (address.is_ipv4() == is_v4).then_some(SocketAddr::new(address, port))
    };
    Ok(Header {
        source: Some(end(source, source_port).ok_or(Wrong::Source)?),
        destination: Some(end(destination, destination_port).ok_or(Wrong::Destination)?),
        local: false,
    })
}

fn parse_v2(buf: &[u8]) -> Result<Option<(usize, Header)>, Wrong> {
    // What can be told to be wrong is refused before the rest is waited for.
    if buf.get(12).is_some_and(|&byte| byte != 0x20 && byte != 0x21) {
        return Err(Wrong::Command);
    }
    let Some(&[command, family, high, low]) = buf.get(SIGNATURE.len()..V2_FIXED) else { return Ok(None) };
    let size = V2_FIXED + usize::from(u16::from_be_bytes([high, low]));
    if size > V2_MAX {
        return Err(Wrong::Length);
    }
    let Some(rest) = buf.get(V2_FIXED..size) else { return Ok(None) };
    Ok(Some((size, v2_body(command, family, rest)?)))
}

fn v2_body(command: u8, family: u8, rest: &[u8]) -> Result<Header, Wrong> {
    if command == 0x20 {
        // LOCAL: the specification has the rest ignored, whatever it is.
        return Ok(Header { local: true, ..Header::default() });
    }
    let (header, tlvs) = match family {
        0x00 => (Header::default(), rest),
        0x11 => {
            let (block, tlvs) = rest.split_first_chunk::<12>().ok_or(Wrong::Addresses)?;
            (addresses(block, |bytes: [u8; 4]| Ipv4Addr::from(bytes).into()), tlvs)
        }
        0x21 => {
            let (block, tlvs) = rest.split_first_chunk::<36>().ok_or(Wrong::Addresses)?;
            (addresses(block, |bytes: [u8; 16]| Ipv6Addr::from(bytes).into()), tlvs)
        }
        0x31 => (Header::default(), rest.get(216..).ok_or(Wrong::Addresses)?),
        // Datagrams do not arrive here, and nothing else is defined.
        _ => return Err(Wrong::Protocol),
    };
    if tlvs_are_whole(tlvs) { Ok(header) } else { Err(Wrong::Attributes) }
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

/// The attribute that tells the host name a client asked for in TLS.
pub const AUTHORITY: u8 = 0x02;

/// Appends a version 2 header with one attribute, [`AUTHORITY`]. An unknown pair or a longer name than 255 bytes (the
/// longest there is) leaves it out.
pub fn write_v2_with_authority(
    addresses: Option<(SocketAddr, SocketAddr)>,
    authority: &[u8],
    out: &mut Vec<u8>,
) {
    let start = out.len();
    write_v2(addresses, out);
    let Ok(length) = u8::try_from(authority.len()) else { return };
    if addresses.is_none() {
        return;
    }
    out.extend_from_slice(&[AUTHORITY, 0, length]);
    out.extend_from_slice(authority);
    let size = (out.len() - start - V2_FIXED) as u16;
    out[start + V2_FIXED - 2..start + V2_FIXED].copy_from_slice(&size.to_be_bytes());
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
        for (line, wrong) in [
            ("PROXY TCP4 192.0.2.1 192.0.2.2 1 2\n", Wrong::Line),
            ("PROXY TCP4 ::1 ::2 1 2\r\n", Wrong::Source),
            ("PROXY TCP4 1.2.3.4 1.2.3.4 1\r\n", Wrong::TooFewFields),
            ("PROXY TCP4 1.2.3.4 1.2.3.4 1 65536\r\n", Wrong::Destination),
            ("PROXY TCP4 1.2.3.4 1.2.3.4 +1 2\r\n", Wrong::Source),
            ("PROXY  TCP4 1.2.3.4 1.2.3.4 1 2\r\n", Wrong::TooManyFields),
            ("PROXY TCP4 1.2.3.4 1.2.3.4 1 2 3\r\n", Wrong::TooManyFields),
            ("PROXY TCP4 1.2.3.4 1.2.3.4 1 2  \r\n", Wrong::TooManyFields),
            ("PROXY UDP4 1.2.3.4 1.2.3.4 1 2\r\n", Wrong::Family),
            ("PROXY A B C D\r\n", Wrong::TooFewFields),
            ("PROXY\r\n", Wrong::TooFewFields),
            ("PROXYTCP4\r\n", Wrong::NoHeader),
            ("GET / HTTP/1.1\r\n", Wrong::NoHeader),
            ("PROXY UNKNOWNX\r\n", Wrong::TooFewFields),
            ("PROXY TCP4 1.2.3.4\r 1.2.3.4 1 2\r\n", Wrong::Source),
            ("PROXY TCP4 01.2.3.4 1.2.3.4 1 2\r\n", Wrong::Source),
            ("PROXY TCP4 1.2.3.4 D 1 2\r\n", Wrong::Destination),
            ("\r\n\r\n\r\n", Wrong::NoHeader),
        ] {
            assert_eq!(parse(line.as_bytes()), Err(wrong), "{line:?}");
        }
        let long = format!("PROXY UNKNOWN {}", "x".repeat(200));
        assert_eq!(parse(long.as_bytes()), Err(Wrong::Line));
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
        for (bytes, wrong) in [
            (v2(0x11, 0x11, &[0; 12]), Wrong::Command),
            (v2(0x22, 0x11, &[0; 12]), Wrong::Command),
            (v2(0x21, 0x12, &[0; 12]), Wrong::Protocol),
            (v2(0x21, 0x41, &[0; 12]), Wrong::Protocol),
            (v2(0x21, 0x11, &[0; 11]), Wrong::Addresses),
            (v2(0x21, 0x21, &[0; 35]), Wrong::Addresses),
            (v2(0x21, 0x31, &[0; 215]), Wrong::Addresses),
            (v2(0x21, 0x11, &[0; 14]), Wrong::Attributes),
            (v2(0x21, 0x11, &[&[0; 12][..], &[4, 0, 9, 1]].concat()), Wrong::Attributes),
            (v2(0x21, 0x11, &[0; 5000]), Wrong::Length),
        ] {
            assert_eq!(parse(&bytes), Err(wrong), "{:?}", &bytes[12..16]);
        }
    }

    #[test]
    fn attributes_are_found_by_type() {
        let with = |family, size, rest: &[u8]| v2(0x21, family, &[&vec![0; size], rest].concat());
        let rest = [1, 0, 2, b'h', b'2', 2, 0, 0, 1, 0, 1, b'x'];
        for (family, size) in [(0x00, 0), (0x11, 12), (0x21, 36), (0x31, 216)] {
            let header = with(family, size, &rest);
            let found = attributes(&header);
            assert_eq!((version(&header), found), (2, &rest[..]));
            assert_eq!(attribute(found, 1), Some(&b"h2"[..]), "the first of two");
            assert_eq!((attribute(found, 2), attribute(found, 3)), (Some(&b""[..]), None));
        }
        assert_eq!(attributes(&v2(0x20, 0x11, &[1; 20])), b"");
        let v1 = b"PROXY TCP4 192.0.2.1 192.0.2.2 56324 443\r\n";
        assert_eq!((version(v1), attributes(v1)), (1, &b""[..]));
        assert_eq!(attribute(&[1, 0, 9, 9], 1), None);
    }

    #[test]
    fn an_authority_is_written() {
        let pair = Some(("1.2.3.4:5".parse().unwrap(), "5.6.7.8:9".parse().unwrap()));
        let mut out = b"before".to_vec();
        write_v2_with_authority(pair, b"example.org", &mut out);
        assert_eq!(parse(&out[6..]), Ok(Some((out.len() - 6, header("1.2.3.4:5", "5.6.7.8:9")))));
        assert_eq!(attribute(attributes(&out[6..]), AUTHORITY), Some(&b"example.org"[..]));
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
