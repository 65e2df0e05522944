//! Sockets bound to what a [`Spec`] says: for TCP one a worker thread, all on one port, for Unix one that all share.

use super::spec::{Address, Protocol, Spec};
use crate::endpoint::{Endpoint, unix_address};
use crate::stream::{Keepalive, defer_accept};
use crate::sys;
use socket2::{Domain, SockAddr, Socket, Type};
use std::fmt;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt, chown};
use std::path::Path;

/// How listening sockets are set up.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// How many finished handshakes wait for us at most (`listen_depth`).
    pub depth: u32,
    /// Probing of silent peers.
    pub keepalive: Keepalive,
    /// Whether a connection is reported only with its first bytes (or a second later).
    pub defer_accept: bool,
    /// The kernel's send buffer of each connection, bytes; `None` leaves its size to the kernel. A fixed 256 KiB makes
    /// bulk transfers cheaper where the congestion control (bbr on loopback) keeps the automatic one too small.
    pub send_buffer_bytes: Option<usize>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { depth: 1024, keepalive: Keepalive::default(), defer_accept: true, send_buffer_bytes: None }
    }
}

/// One address that is listened on.
#[derive(Debug)]
pub struct Listening {
    /// The argument's name.
    pub name: String,
    /// What clients speak first.
    pub protocol: Protocol,
    /// The address really bound, with the real port.
    pub endpoint: Endpoint,
    /// One socket for each worker thread.
    pub listeners: Vec<Listener>,
}

/// A listening socket, on its way to the thread that accepts from it.
#[derive(Debug)]
pub struct Listener {
    pub(crate) socket: Socket,
}

impl Listener {
    /// Another handle on the same socket, to keep it open while the thread that used it is gone.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn duplicate(&self) -> io::Result<Self> {
        Ok(Self { socket: self.socket.try_clone()? })
    }
}

/// To send it to another process.
impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// As it came from the process that bound it.
impl From<OwnedFd> for Listener {
    fn from(descriptor: OwnedFd) -> Self {
        Self { socket: descriptor.into() }
    }
}

/// Why an address could not be listened on.
#[derive(Debug)]
pub struct BindError {
    /// The argument's name.
    pub name: String,
    /// What was being done, with the address.
    pub doing: String,
    /// What the system said.
    pub source: io::Error,
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "listen address {}: cannot {}", self.name, self.doing)
    }
}

impl std::error::Error for BindError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// Binds and listens on everything `spec` names, with `threads` sockets for each address. Host names are resolved now,
/// with the system's resolver (this blocks). Of "all addresses", IPv4 or IPv6 may be missing on this machine, not both.
///
/// # Errors
/// The first address that cannot be had; what was bound before is closed again.
pub fn bind(spec: &Spec, threads: usize, settings: &Settings) -> Result<Vec<Listening>, BindError> {
    let threads = threads.max(1);
    match &spec.address {
        Address::Unix(path) => Ok(vec![bind_unix(spec, path, threads, settings)?]),
        Address::Tcp { host, first, last } => {
            let mut all = Vec::new();
            for port in *first..=*last {
                match host {
                    Some(host) => {
                        for address in resolve(spec, host, port)? {
                            all.push(bind_tcp(spec, address, threads, settings)?);
                        }
                    }
                    None => all.extend(bind_everywhere(spec, port, threads, settings)?),
                }
            }
            Ok(all)
        }
    }
}

/// Makes the error of what was being done for `spec`.
fn failed(spec: &Spec, doing: String) -> impl FnOnce(io::Error) -> BindError {
    move |source| BindError { name: spec.name.clone(), doing, source }
}

fn resolve(spec: &Spec, host: &str, port: u16) -> Result<Vec<SocketAddr>, BindError> {
    let found = (host, port).to_socket_addrs().map_err(failed(spec, format!("resolve host \"{host}\"")))?;
    let mut addresses: Vec<SocketAddr> = Vec::new();
    for address in found {
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    if addresses.is_empty() {
        let nothing = io::Error::new(io::ErrorKind::NotFound, "no address");
        return Err(failed(spec, format!("resolve host \"{host}\""))(nothing));
    }
    Ok(addresses)
}

/// IPv4 and IPv6; for port 0 both get the same port if it is free.
fn bind_everywhere(
    spec: &Spec,
    port: u16,
    threads: usize,
    settings: &Settings,
) -> Result<Vec<Listening>, BindError> {
    let four = bind_tcp(spec, (Ipv4Addr::UNSPECIFIED, port).into(), threads, settings);
    let chosen = match &four {
        Ok(Listening { endpoint: Endpoint::Tcp(address), .. }) => address.port(),
        _ => port,
    };
    let mut six = bind_tcp(spec, (Ipv6Addr::UNSPECIFIED, chosen).into(), threads, settings);
    if port == 0 && matches!(&six, Err(error) if error.source.kind() == io::ErrorKind::AddrInUse) {
        six = bind_tcp(spec, (Ipv6Addr::UNSPECIFIED, 0).into(), threads, settings);
    }
    match (four, six) {
        (Ok(four), Ok(six)) => Ok(vec![four, six]),
        (Ok(four), Err(error)) if absent(&error) => Ok(vec![four]),
        (Err(error), Ok(six)) if absent(&error) => Ok(vec![six]),
        (Err(error), _) | (_, Err(error)) => Err(error),
    }
}

/// Whether this machine lacks the address family.
fn absent(error: &BindError) -> bool {
    matches!(error.source.raw_os_error(), Some(libc::EAFNOSUPPORT | libc::EADDRNOTAVAIL))
}

fn bind_tcp(
    spec: &Spec,
    address: SocketAddr,
    threads: usize,
    settings: &Settings,
) -> Result<Listening, BindError> {
    let fail = |doing: &'static str| failed(spec, format!("{doing} {address}"));
    if address.port() != 0 {
        // Sockets that share a port by SO_REUSEPORT would share it with another server of this user, too, and halve
        // its traffic. A socket that does not share finds out first.
        tcp_socket(address, false, settings).map_err(fail("bind to"))?;
    }
    let mut real = address;
    let mut listeners = Vec::with_capacity(threads);
    for _ in 0..threads {
        let socket = tcp_socket(real, true, settings).map_err(fail("bind to"))?;
        let bound = socket.local_addr().map_err(fail("ask for the port of"))?;
        real = bound.as_socket().unwrap_or(real);
        listeners.push(Listener { socket });
    }
    // Only now: with fewer sockets listening, connections would gather on them.
    for listener in &listeners {
        listener.socket.listen(depth(settings)).map_err(fail("listen on"))?;
    }
    Ok(Listening {
        name: spec.name.clone(),
        protocol: spec.protocol,
        endpoint: Endpoint::Tcp(real),
        listeners,
    })
}

fn depth(settings: &Settings) -> i32 {
    i32::try_from(settings.depth).unwrap_or(i32::MAX)
}

/// A bound TCP socket, with all options that accepted sockets inherit.
fn tcp_socket(address: SocketAddr, share: bool, settings: &Settings) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM.nonblocking().cloexec(), None)?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    if share {
        socket.set_reuse_port(true)?;
        socket.set_tcp_nodelay(true)?;
        settings.keepalive.apply(&socket)?;
        if let Some(bytes) = settings.send_buffer_bytes {
            socket.set_send_buffer_size(bytes)?;
        }
        if settings.defer_accept {
            defer_accept(&socket)?;
        }
    }
    socket.bind(&SockAddr::from(address))?;
    Ok(socket)
}

fn bind_unix(spec: &Spec, path: &str, threads: usize, settings: &Settings) -> Result<Listening, BindError> {
    let fail = |doing: &'static str| failed(spec, format!("{doing} {path}"));
    let address = unix_address(Path::new(path)).map_err(fail("make an address of"))?;
    if path.starts_with('/') {
        remove_stale(path).map_err(fail("replace"))?;
    }
    let kind = Type::STREAM.nonblocking().cloexec();
    let socket = Socket::new(Domain::UNIX, kind, None).map_err(fail("make a socket for"))?;
    socket.bind(&address).map_err(fail("bind to"))?;
    if path.starts_with('/') {
        set_owner(spec, path)?;
        if let Some(mode) = spec.mode {
            let permissions = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(path, permissions).map_err(fail("set the mode of"))?;
        }
    }
    socket.listen(depth(settings)).map_err(fail("listen on"))?;
    let mut listeners = Vec::with_capacity(threads);
    for _ in 1..threads {
        listeners.push(Listener { socket: socket.try_clone().map_err(fail("share"))? });
    }
    listeners.push(Listener { socket });
    let endpoint = Endpoint::Unix(path.into());
    Ok(Listening { name: spec.name.clone(), protocol: spec.protocol, endpoint, listeners })
}

/// Removes a socket file that a former run left. One that somebody listens on, or another kind of file, stays.
fn remove_stale(path: &str) -> io::Result<()> {
    let metadata = match std::fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if !metadata.file_type().is_socket() {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "it is not a socket"));
    }
    if std::os::unix::net::UnixStream::connect(path).is_ok() {
        return Err(io::ErrorKind::AddrInUse.into());
    }
    std::fs::remove_file(path)
}

fn set_owner(spec: &Spec, path: &str) -> Result<(), BindError> {
    if spec.user.is_none() && spec.group.is_none() {
        return Ok(());
    }
    let user = look_up(spec, spec.user.as_deref(), "user", sys::user_id)?;
    let group = look_up(spec, spec.group.as_deref(), "group", sys::group_id)?;
    chown(path, user, group).map_err(failed(spec, format!("set the owner of {path}")))
}

fn look_up(
    spec: &Spec,
    name: Option<&str>,
    kind: &str,
    find: fn(&str) -> io::Result<Option<u32>>,
) -> Result<Option<u32>, BindError> {
    let Some(name) = name else { return Ok(None) };
    let found = find(name).and_then(|id| id.ok_or_else(|| io::ErrorKind::NotFound.into()));
    found.map(Some).map_err(failed(spec, format!("find {kind} \"{name}\"")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A number of this run alone: one that was killed leaves its files.
    fn unique() -> u64 {
        use std::hash::{BuildHasher as _, RandomState};
        RandomState::new().hash_one(())
    }

    fn bound(argument: &str, threads: usize) -> Result<Vec<Listening>, BindError> {
        bind(&Spec::parse(argument, 0).unwrap(), threads, &Settings::default())
    }

    fn port(listening: &Listening) -> u16 {
        match &listening.endpoint {
            Endpoint::Tcp(address) => address.port(),
            Endpoint::Unix(_) => panic!("not TCP"),
        }
    }

    #[test]
    fn threads_share_the_port_the_system_picked() {
        let all = bound("127.0.0.1:0", 3).unwrap();
        assert_eq!(all.len(), 1);
        assert_ne!(port(&all[0]), 0);
        for listener in &all[0].listeners {
            let address = listener.socket.local_addr().unwrap().as_socket().unwrap();
            assert_eq!(address.port(), port(&all[0]));
        }
        assert_eq!(all[0].listeners.len(), 3);
    }

    #[test]
    fn a_port_in_use_is_refused_though_ports_are_shared() {
        let all = bound("127.0.0.1:0", 1).unwrap();
        let again = bound(&format!("127.0.0.1:{}", port(&all[0])), 1).unwrap_err();
        assert_eq!(again.source.kind(), io::ErrorKind::AddrInUse);
        assert!(again.to_string().contains("a0"), "{again}");
    }

    #[test]
    fn all_addresses_and_unknown_hosts() {
        let all = bound("x=:0", 1).unwrap();
        assert!(!all.is_empty() && all.len() <= 2);
        assert!(all.iter().all(|listening| listening.name == "x"));
        assert!(bound("no.such.host.invalid:0", 1).unwrap_err().to_string().contains("no.such.host.invalid"));
    }

    #[test]
    fn unix_sockets_replace_stale_files_only() {
        let directory = std::env::temp_dir().join(format!("copal-net-bind-{}", unique()));
        std::fs::create_dir_all(&directory).unwrap();
        let path = directory.join("socket").display().to_string();
        let first = bound(&format!("{path},mode=600"), 2).unwrap();
        assert_eq!(first[0].listeners.len(), 2);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(bound(&path, 1).unwrap_err().source.kind(), io::ErrorKind::AddrInUse);
        drop(first);
        drop(bound(&path, 1).unwrap());
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "precious").unwrap();
        assert!(bound(&path, 1).is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
        assert!(
            bound(&format!("{path}2,user=no-such-user"), 1).unwrap_err().to_string().contains("no-such-user")
        );
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
