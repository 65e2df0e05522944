//! The value of one `-a` argument.
//!
//! `[name=][address][:port][,PROTO][,user=u][,group=g][,mode=octal]`, where the address is IPv4, `[IPv6]`, a host name,
//! nothing (all addresses), `/path` or `@abstract`, and the port a number, a range `80-85` or a service name.
//! Source: Varnish 7.1, `varnishd(1)`.

use std::fmt;

/// One `-a` argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// The name, given or `a0`, `a1` ...: `local.socket` in VCL.
    pub name: String,
    /// Where to listen.
    pub address: Address,
    /// What clients speak first.
    pub protocol: Protocol,
    /// Owner of a Unix socket's file.
    pub user: Option<String>,
    /// Group of a Unix socket's file.
    pub group: Option<String>,
    /// Permissions of a Unix socket's file.
    pub mode: Option<u32>,
}

/// Where to listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// TCP: a host or all addresses, and the first and last port of a range (inclusive).
    Tcp {
        /// An address or host name without brackets; `None` is every address.
        host: Option<String>,
        /// The first port; 0 lets the system pick.
        first: u16,
        /// The last port.
        last: u16,
    },
    /// A Unix socket: a path, or `@name` in the abstract name space.
    Unix(String),
}

/// What clients speak first on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP at once.
    Http,
    /// A PROXY header (version 1 or 2), then HTTP.
    Proxy,
}

impl Protocol {
    /// Its name in arguments and listings.
    pub fn name(self) -> &'static str {
        match self {
            Self::Http => "HTTP",
            Self::Proxy => "PROXY",
        }
    }
}

/// Why an `-a` argument is no good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecError {
    argument: String,
    reason: String,
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "listen address \"{}\": {}", self.argument, self.reason)
    }
}

impl std::error::Error for SpecError {}

/// The port where none is given.
const DEFAULT_PORT: u16 = 80;

impl Spec {
    /// Reads the `index`th argument (from 0), which names it if it does not name itself.
    ///
    /// # Errors
    /// What is wrong, with the argument.
    pub fn parse(argument: &str, index: usize) -> Result<Self, SpecError> {
        let fail = |reason: String| SpecError { argument: argument.to_owned(), reason };
        let mut parts = argument.split(',');
        let first = parts.next().unwrap_or_default();
        let (name, address) = split_name(first).map_err(fail)?;
        let mut spec = Self {
            name: name.map_or_else(|| format!("a{index}"), str::to_owned),
            address: parse_address(address).map_err(fail)?,
            protocol: Protocol::Http,
            user: None,
            group: None,
            mode: None,
        };
        let mut protocol_given = false;
        for part in parts {
            spec.option(part, &mut protocol_given).map_err(fail)?;
        }
        Ok(spec)
    }

    fn option(&mut self, part: &str, protocol_given: &mut bool) -> Result<(), String> {
        let Some((key, value)) = part.split_once('=') else {
            let protocol = match part {
                _ if part.eq_ignore_ascii_case("HTTP") => Protocol::Http,
                _ if part.eq_ignore_ascii_case("PROXY") => Protocol::Proxy,
                _ => return Err(format!("Unknown protocol '{part}' (HTTP or PROXY)")),
            };
            if std::mem::replace(protocol_given, true) {
                return Err("more than one protocol".into());
            }
            self.protocol = protocol;
            return Ok(());
        };
        if !matches!(key, "user" | "group" | "mode") {
            return Err(format!("unknown option \"{key}\" (user, group or mode)"));
        }
        match &self.address {
            Address::Unix(path) if path.starts_with('/') => {}
            _ => return Err(format!("\"{key}\" is for Unix sockets with a path only")),
        }
        if value.is_empty() && key != "mode" {
            return Err(format!("Unknown {key} {value} in -a"));
        }
        let repeated = match key {
            "user" => self.user.replace(value.to_owned()).is_some(),
            "group" => self.group.replace(value.to_owned()).is_some(),
            _ => self.mode.replace(parse_mode(value)?).is_some(),
        };
        if repeated { Err(format!("Too many {key} sub-args in -a ({part})")) } else { Ok(()) }
    }
}

fn parse_mode(value: &str) -> Result<u32, String> {
    match u32::from_str_radix(value, 8) {
        Ok(mode) if mode <= 0o777 => Ok(mode),
        _ => Err(format!("Invalid mode sub-arg {value} in -a (octal, up to 777)")),
    }
}

/// Splits `name=` off. An address never has `=` before its `/`.
fn split_name(text: &str) -> Result<(Option<&str>, &str), String> {
    match text.split_once('=') {
        Some((name, address)) if !name.starts_with(['/', '@']) => {
            let starts = name.starts_with(|c: char| c.is_ascii_alphabetic());
            let plain = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
            if !starts || !plain {
                return Err(format!("\"{name}\" is not a name (a letter, then letters, digits, _ or -)"));
            }
            Ok((Some(name), address))
        }
        _ => Ok((None, text)),
    }
}

fn parse_address(text: &str) -> Result<Address, String> {
    if text.starts_with('/') || text.starts_with('@') {
        if text.len() < 2 {
            return Err("empty socket name".into());
        }
        return Ok(Address::Unix(text.to_owned()));
    }
    let (host, port) = split_port(text)?;
    let (first, last) = port.map_or(Ok((DEFAULT_PORT, DEFAULT_PORT)), parse_ports)?;
    let host = (!host.is_empty()).then(|| host.to_owned());
    Ok(Address::Tcp { host, first, last })
}

fn split_port(text: &str) -> Result<(&str, Option<&str>), String> {
    if let Some(rest) = text.strip_prefix('[') {
        let (host, rest) = rest.split_once(']').ok_or("\"[\" without \"]\"")?;
        if host.parse::<std::net::Ipv6Addr>().is_err() {
            return Err(format!("\"{host}\" is not an IPv6 address"));
        }
        return match rest.strip_prefix(':') {
            Some(port) => Ok((host, Some(port))),
            None if rest.is_empty() => Ok((host, None)),
            None => Err(format!("\"{rest}\" after \"]\"")),
        };
    }
    match text.split_once(':') {
        // An IPv6 address without brackets leaves no place for a port.
        Some(_) if text.parse::<std::net::Ipv6Addr>().is_ok() => Ok((text, None)),
        Some((_, port)) if port.contains(':') => Err("an IPv6 address needs brackets".into()),
        Some((host, port)) => Ok((host, Some(port))),
        None => Ok((text, None)),
    }
}

fn parse_ports(text: &str) -> Result<(u16, u16), String> {
    if text.eq_ignore_ascii_case("http") {
        return Ok((80, 80));
    }
    let number = |part: &str| part.parse::<u16>().map_err(|_| format!("\"{part}\" is not a port"));
    let Some((first, last)) = text.split_once('-') else {
        let port = number(text)?;
        return Ok((port, port));
    };
    let (first, last) = (number(first)?, number(last)?);
    if first == 0 || first > last {
        return Err(format!("\"{text}\" is not a range of ports"));
    }
    Ok((first, last))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(argument: &str, name: &str, host: Option<&str>, ports: (u16, u16), protocol: Protocol) {
        let spec = Spec::parse(argument, 3).unwrap_or_else(|error| panic!("{error}"));
        let address = Address::Tcp { host: host.map(str::to_owned), first: ports.0, last: ports.1 };
        assert_eq!(
            (spec.name.as_str(), &spec.address, spec.protocol),
            (name, &address, protocol),
            "{argument}"
        );
    }

    #[test]
    fn tcp_forms() {
        use Protocol::{Http, Proxy};
        check("", "a3", None, (80, 80), Http);
        check(":8080", "a3", None, (8080, 8080), Http);
        check("http=:0,HTTP", "http", None, (0, 0), Http);
        check("proxy=:8443,PROXY", "proxy", None, (8443, 8443), Proxy);
        check("127.0.0.1:81", "a3", Some("127.0.0.1"), (81, 81), Http);
        check("127.0.0.1", "a3", Some("127.0.0.1"), (80, 80), Http);
        check("x-1=localhost:http,proxy", "x-1", Some("localhost"), (80, 80), Proxy);
        check("[::1]:81", "a3", Some("::1"), (81, 81), Http);
        check("[::1]", "a3", Some("::1"), (80, 80), Http);
        check("::1", "a3", Some("::1"), (80, 80), Http);
        check("10.0.0.1:80-85", "a3", Some("10.0.0.1"), (80, 85), Http);
    }

    #[test]
    fn unix_forms() {
        let spec = Spec::parse("u=/run/c=1.sock,PROXY,user=root,group=root,mode=660", 0).unwrap();
        assert_eq!(spec.name, "u");
        assert_eq!(spec.address, Address::Unix("/run/c=1.sock".into()));
        assert_eq!(spec.protocol, Protocol::Proxy);
        assert_eq!(
            (spec.user.as_deref(), spec.group.as_deref(), spec.mode),
            (Some("root"), Some("root"), Some(0o660))
        );
        assert_eq!(Spec::parse("/run/c=1.sock", 0).unwrap().address, Address::Unix("/run/c=1.sock".into()));
        assert_eq!(Spec::parse("@copal", 0).unwrap().address, Address::Unix("@copal".into()));
    }

    #[test]
    fn mistakes_are_named() {
        for (argument, word) in [
            (":80,HTTP/2", "HTTP/2"),
            (":80,h2", "h2"),
            (":80,HTTP,PROXY", "more than one"),
            (":70000", "70000"),
            (":85-80", "85-80"),
            (":0-5", "0-5"),
            (":", "not a port"),
            ("[::1", "without"),
            ("[1.2.3.4]:80", "IPv6"),
            ("[::1]80", "after"),
            ("1:2:3", "brackets"),
            (":80,user=root", "Unix"),
            ("@x,mode=600", "Unix"),
            ("/x,mode=999", "octal"),
            ("/x,mode=600,mode=600", "Too many mode sub-args"),
            ("/x,user=", "Unknown user "),
            ("/x,mode=", "Invalid mode"),
            ("/x,colour=red", "colour"),
            ("9x=:80", "9x"),
            ("=:80", "not a name"),
            ("@", "empty"),
            (":80,", "protocol"),
        ] {
            let error = Spec::parse(argument, 0).expect_err(argument).to_string();
            assert!(error.contains(word) && error.contains(argument), "{argument}: {error}");
        }
    }
}
