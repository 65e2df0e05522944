//! Where to connect to, and connecting.

use crate::stream::Stream;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// An address to connect to. Two that are equal lead to the same peer, so connections are pooled by it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Endpoint {
    /// TCP over IPv4 or IPv6.
    Tcp(SocketAddr),
    /// A Unix socket: a path, or `@name` in the abstract name space.
    Unix(PathBuf),
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => path.display().fmt(f),
        }
    }
}

impl Endpoint {
    /// The kernel's form of it.
    pub(crate) fn socket_address(&self) -> io::Result<SockAddr> {
        match self {
            Self::Tcp(address) => Ok(SockAddr::from(*address)),
            Self::Unix(path) => unix_address(path),
        }
    }
}

/// The kernel's form of a Unix socket's name: `@name` is abstract, which it knows by a leading NUL.
pub(crate) fn unix_address(path: &Path) -> io::Result<SockAddr> {
    match path.as_os_str().as_bytes().split_first() {
        Some((b'@', name)) => {
            let mut bytes = vec![0];
            bytes.extend_from_slice(name);
            SockAddr::unix(OsStr::from_bytes(&bytes))
        }
        Some(_) => SockAddr::unix(path),
        None => Err(io::Error::new(io::ErrorKind::InvalidInput, "empty socket path")),
    }
}

/// How often a Unix socket whose queue is full is tried again, 10 ms apart. The caller's deadline usually ends it.
const UNIX_TRIES: u32 = 1_000;

/// Connects. There is no time limit but the kernel's: put a deadline around it.
///
/// # Errors
/// As `connect(2)`.
pub async fn connect(endpoint: &Endpoint) -> io::Result<Stream> {
    let address = endpoint.socket_address()?;
    match endpoint {
        Endpoint::Tcp(peer) => {
            let socket = Socket::new(Domain::for_address(*peer), kind(), Some(Protocol::TCP))?;
            socket.set_tcp_nodelay(true)?;
            match socket.connect(&address) {
                Ok(()) => Stream::new(socket, Some(*peer)),
                Err(error) if in_progress(&error) => {
                    let mut stream = Stream::new(socket, Some(*peer))?;
                    stream.connected().await?;
                    Ok(stream)
                }
                Err(error) => Err(error),
            }
        }
        Endpoint::Unix(_) => connect_unix(&address).await,
    }
}

fn kind() -> Type {
    Type::STREAM.nonblocking().cloexec()
}

fn in_progress(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EINPROGRESS) || error.kind() == io::ErrorKind::WouldBlock
}

/// A Unix socket connects at once, or says `EAGAIN` while the listener's queue is full and tells nobody when it is not.
async fn connect_unix(address: &SockAddr) -> io::Result<Stream> {
    let socket = Socket::new(Domain::UNIX, kind(), None)?;
    for _ in 0..UNIX_TRIES {
        match socket.connect(address) {
            Ok(()) => return Stream::new(socket, None),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            Err(error) => return Err(error),
        }
    }
    Err(io::ErrorKind::TimedOut.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker;

    #[test]
    fn tcp_connects_and_is_refused() {
        worker::block_on(async {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            let stream = connect(&Endpoint::Tcp(address)).await.unwrap();
            assert_eq!(stream.peer(), Some(address));
            assert_eq!(stream.local(), Some(listener.accept().unwrap().1));
            assert!(!stream.is_unix());
            drop(listener);
            let error = connect(&Endpoint::Tcp(address)).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        });
    }

    #[test]
    fn unix_errors_are_told() {
        worker::block_on(async {
            let absent = connect(&Endpoint::Unix("/no/such/socket".into())).await.unwrap_err();
            assert_eq!(absent.kind(), io::ErrorKind::NotFound);
            let long = Endpoint::Unix("/x".repeat(200).into());
            assert!(connect(&long).await.is_err());
            assert!(connect(&Endpoint::Unix(PathBuf::new())).await.is_err());
        });
    }
}
