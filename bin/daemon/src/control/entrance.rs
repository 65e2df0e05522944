//! Where the command line listens: the sockets of `-T`.

use admin::client::{ADDRESS_FILE, Place};
use copal_admin as admin;
use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::path::Path;

/// A `-T` that cannot be had.
#[derive(Debug)]
pub(crate) struct Error {
    argument: String,
    why: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "-T {}: {}", self.argument, self.why)
    }
}

impl std::error::Error for Error {}

/// The sockets on which the command line listens.
#[derive(Debug, Default)]
pub(crate) struct Entrance {
    pub(super) listeners: Vec<TcpListener>,
}

impl Entrance {
    /// Binds what the `-T` arguments say; without any, a port that the system picks on `localhost`. `none` is none.
    ///
    /// # Errors
    /// [`Error`] with the argument: it names no address, or cannot be listened on.
    pub(crate) fn bind(arguments: &[String]) -> Result<Self, Error> {
        let default = ["localhost:0".to_owned()];
        let mut entrance = Self::default();
        for argument in if arguments.is_empty() { &default[..] } else { arguments } {
            if argument == "none" {
                continue;
            }
            let fail = |why: String| Error { argument: argument.clone(), why };
            let mut last = None;
            let before = entrance.listeners.len();
            for address in resolve(argument).map_err(fail)? {
                match listen(address) {
                    Ok(listener) => entrance.listeners.push(listener),
                    Err(error) => last = Some(error),
                }
            }
            // Of a name with several addresses, one is enough: a machine may lack IPv6.
            if entrance.listeners.len() == before {
                return Err(fail(last.map_or("no address".to_owned(), |error| error.to_string())));
            }
        }
        Ok(entrance)
    }

    /// The addresses really bound.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.listeners.iter().filter_map(|listener| listener.local_addr().ok()).collect()
    }

    /// Writes where the command line is to a file in the work directory, for `copal adm`.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn publish(&self, directory: &Path, secret: Option<&Path>) -> io::Result<()> {
        let path = directory.join(ADDRESS_FILE);
        match self.addresses().first() {
            Some(address) => {
                std::fs::write(path, Place::print(&address.ip().to_string(), address.port(), secret))
            }
            None => match std::fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            },
        }
    }
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// `host:port`, `[v6]:port` or `:port`, which is every IPv4 address.
///
/// # Errors
/// In words, why it means no address.
pub(super) fn resolve(argument: &str) -> Result<Vec<SocketAddr>, String> {
    let (host, port) = argument.rsplit_once(':').ok_or("no port given")?;
    let port: u16 = port.parse().map_err(|_| format!("\"{port}\" is not a port"))?;
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    if host.is_empty() || host == "*" {
        return Ok(vec![SocketAddr::from(([0, 0, 0, 0], port))]);
    }
    let found =
        (host, port).to_socket_addrs().map_err(|error| format!("cannot resolve \"{host}\": {error}"))?;
    let mut addresses: Vec<SocketAddr> = Vec::new();
    for address in found {
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
    fn places_to_listen() {
        assert_eq!(resolve("127.0.0.1:6082"), Ok(vec!["127.0.0.1:6082".parse().unwrap()]));
        assert_eq!(resolve(":6082"), Ok(vec!["0.0.0.0:6082".parse().unwrap()]));
        assert_eq!(resolve("[::1]:0"), Ok(vec!["[::1]:0".parse().unwrap()]));
        assert_eq!(resolve("foo"), Err("no port given".into()));
        assert_eq!(resolve("foo:bar"), Err("\"bar\" is not a port".into()));
        assert!(Entrance::bind(&["none".into()]).unwrap().addresses().is_empty());
        let error = Entrance::bind(&["foo".into()]).unwrap_err();
        assert_eq!(error.to_string(), "-T foo: no port given");
    }
}
