//! The addresses that a backend definition stands for.

use copal_net::Endpoint;
use copal_vcl::value::BackendDefinition;
use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};

/// How many addresses of one host name are kept.
const ADDRESSES_MAX: usize = 8;

/// A backend's address could not be found.
#[derive(Debug)]
pub struct ResolveError {
    /// The backend's name in VCL.
    pub backend: String,
    /// The host, with its port.
    pub host: String,
    /// What the resolver said.
    pub source: io::Error,
}

impl fmt::Display for ResolveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "backend {}: cannot resolve host \"{}\": {}", self.backend, self.host, self.source)
    }
}

impl std::error::Error for ResolveError {}

/// The addresses of a definition, preferred family first, otherwise in the resolver's order: those that were found when the
/// VCL was compiled. Where none were, asks the system's resolver and blocks meanwhile; VCL is loaded on a control thread.
///
/// # Errors
/// The host does not resolve.
pub(crate) fn resolve(
    definition: &BackendDefinition,
    prefer_ipv6: bool,
) -> Result<Vec<Endpoint>, ResolveError> {
    if definition.none {
        return Ok(Vec::new());
    }
    if let Some(path) = &definition.path {
        return Ok(vec![Endpoint::Unix(path.into())]);
    }
    let (host, port) = match port_of(&definition.host) {
        Some((host, port)) => (host, port),
        None => (definition.host.as_str(), definition.port()),
    };
    let fail =
        |source| ResolveError { backend: definition.name.clone(), host: format!("{host}:{port}"), source };
    let mut addresses = match definition.addresses.as_slice() {
        [] => look_up(host, port).map_err(fail)?,
        known => {
            let port = port_number(port).map_err(fail)?;
            known.iter().map(|&address| SocketAddr::new(address, port)).collect()
        }
    };
    addresses.sort_by_key(|address| address.is_ipv6() != prefer_ipv6);
    addresses.truncate(ADDRESSES_MAX);
    if addresses.is_empty() {
        return Err(fail(io::Error::new(io::ErrorKind::NotFound, "no address")));
    }
    Ok(addresses.into_iter().map(Endpoint::Tcp).collect())
}

/// Host and port where the host bears one: `host:port` or `[v6]:port`. Source: Varnish 7.1, observed.
fn port_of(host: &str) -> Option<(&str, &str)> {
    let (bare, port) = host.rsplit_once(':')?;
    let alone = bare.starts_with('[') && bare.ends_with(']') || !bare.contains(':');
    (alone && !bare.is_empty() && !port.is_empty()).then_some((bare, port))
}

fn port_number(port: &str) -> io::Result<u16> {
    match port {
        // An empty one can be defined, but not be connected to.
        "" => Ok(0),
        "http" => Ok(80),
        "https" => Ok(443),
        _ => port
            .parse()
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, format!("\"{port}\" is not a port"))),
    }
}

pub(crate) fn look_up(host: &str, port: &str) -> io::Result<Vec<SocketAddr>> {
    let number = port_number(port)?;
    let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    let mut addresses: Vec<SocketAddr> = Vec::new();
    for address in (bare, number).to_socket_addrs()? {
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    Ok(addresses)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_with_ports() {
        for (host, expected) in [
            ("127.0.0.1:81", Some(("127.0.0.1", "81"))),
            ("[::1]:81", Some(("[::1]", "81"))),
            ("[::1]", None),
            ("::1", None),
            ("example.org", None),
            (":81", None),
            ("a:", None),
        ] {
            assert_eq!(port_of(host), expected, "{host}");
        }
        let known = BackendDefinition {
            addresses: vec!["192.0.2.1".parse().unwrap(), "::2".parse().unwrap()],
            ..definition("no.such.host.invalid", Some("83"))
        };
        let endpoints = ["[::2]:83", "192.0.2.1:83"].map(|address| Endpoint::Tcp(address.parse().unwrap()));
        assert_eq!(resolve(&known, true).unwrap(), endpoints);
        let endpoints = resolve(&definition("127.0.0.1:81", Some("82")), false).unwrap();
        assert_eq!(endpoints, [Endpoint::Tcp("127.0.0.1:81".parse().unwrap())]);
    }

    fn definition(host: &str, port: Option<&str>) -> BackendDefinition {
        BackendDefinition {
            name: "b".into(),
            host: host.into(),
            port: port.map(str::to_owned),
            ..BackendDefinition::default()
        }
    }

    #[test]
    fn literals_and_ports() {
        let check = |host, port, expected: &str| {
            let found = resolve(&definition(host, port), false).unwrap();
            assert_eq!(found, [Endpoint::Tcp(expected.parse().unwrap())], "{host}");
        };
        check("127.0.0.1", None, "127.0.0.1:80");
        check("127.0.0.1", Some("http"), "127.0.0.1:80");
        check("::1", Some("81"), "[::1]:81");
        check("[::1]", Some("81"), "[::1]:81");
    }

    #[test]
    fn failures_name_backend_and_host() {
        for (host, port) in [("no.such.host.invalid", None), ("127.0.0.1", Some("many"))] {
            let error = resolve(&definition(host, port), false).unwrap_err().to_string();
            assert!(error.contains("backend b") && error.contains(host), "{error}");
        }
    }

    #[test]
    fn paths_and_none() {
        let unix = BackendDefinition { path: Some("@x".into()), ..BackendDefinition::default() };
        assert_eq!(resolve(&unix, false).unwrap(), [Endpoint::Unix("@x".into())]);
        let none = BackendDefinition { none: true, ..BackendDefinition::default() };
        assert!(resolve(&none, false).unwrap().is_empty());
    }
}
