//! A connected socket, TCP or Unix, as the worker's runtime sees it.
//!
//! The kernel tells once when a socket becomes readable or writable; we remember that and forget it when a call came
//! back short, which on a stream socket means that there was no more. So a `recv` or `writev` is only made when it has
//! something to do, and a request on a kept connection costs exactly one of each.
//!
//! A stream may be sealed ([`crate::tls`]): the same calls then give and take plain bytes.

use crate::sys;
use crate::tls::Session;
use socket2::{SockRef, Socket, TcpKeepalive};
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::OnceLock;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Whether a call failed because memory that it was to read or write is not there (`EFAULT`): a page of a mapped file that
/// its device does not give.
pub fn is_fault(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EFAULT)
}

/// How many slices one `writev` is given at most.
pub const SLICES_MAX: usize = 256;

/// A connected, non-blocking stream socket. It belongs to the runtime it was made on.
///
/// One reader and one writer at a time may wait: each direction remembers the last waiter only.
#[derive(Debug)]
pub struct Stream {
    io: AsyncFd<Inner>,
    /// The TLS side, if it is sealed.
    seal: Option<Box<Session>>,
    peer: Option<SocketAddr>,
    local: OnceLock<Option<SocketAddr>>,
}

#[derive(Debug)]
enum Inner {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// What a connection that nobody reads from has been up to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idle {
    /// Nothing has arrived, as far as this process has been told.
    Quiet,
    /// Bytes wait to be read.
    Data,
    /// The peer closed or reset it.
    Closed,
}

impl Stream {
    /// Takes over a connected, non-blocking socket. `peer` is its address, if it is TCP.
    ///
    /// # Errors
    /// The runtime's refusal to watch one more descriptor.
    ///
    /// # Panics
    /// Outside a runtime with input and output enabled.
    pub fn new(socket: Socket, peer: Option<SocketAddr>) -> io::Result<Self> {
        let inner = match peer {
            Some(_) => Inner::Tcp(OwnedFd::from(socket).into()),
            None => Inner::Unix(OwnedFd::from(socket).into()),
        };
        let io = sys::watch(inner, Interest::READABLE | Interest::WRITABLE)?;
        Ok(Self { io, seal: None, peer, local: OnceLock::new() })
    }

    /// The same connection, sealed by `session`, whose handshake is over.
    pub(crate) fn sealed(mut self, session: Session) -> Self {
        self.seal = Some(Box::new(session));
        self
    }

    /// Whether it is sealed by TLS.
    pub fn is_sealed(&self) -> bool {
        self.seal.is_some()
    }

    /// Reads what is there, up to `buffer`'s length; 0 is the peer's end of stream. Waits if nothing is there.
    ///
    /// # Errors
    /// As `recv(2)`. On a sealed stream also [`io::ErrorKind::UnexpectedEof`] if it was cut off without a farewell, and
    /// [`io::ErrorKind::InvalidData`] if what came is no TLS of this connection.
    #[inline]
    pub async fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let this = &*self;
        poll_fn(|context| this.poll_read(context, buffer)).await
    }

    /// As [`Stream::read`], for hand-written futures.
    #[inline]
    pub fn poll_read(&self, context: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        match &self.seal {
            None => self.poll_receive(context, buffer),
            Some(session) => session.poll_read(self, context, buffer),
        }
    }

    /// Reads from the socket itself.
    pub(crate) fn poll_receive(
        &self,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            let mut guard = ready!(self.io.poll_read_ready(context))?;
            match self.io.get_ref().read(buffer) {
                Ok(count) => {
                    // A short read emptied the socket. A zero means the end, which stays ready.
                    if count > 0 && count < buffer.len() {
                        guard.clear_ready();
                    }
                    return Poll::Ready(Ok(count));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => guard.clear_ready(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    /// Reads only if the kernel has said that something is there; `None` otherwise.
    ///
    /// # Errors
    /// As `recv(2)`.
    pub fn try_read(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        if let Some(session) = &self.seal {
            return session.try_read(self, buffer);
        }
        match self.receive_present(buffer) {
            Ok(count) => Ok(Some(count)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads from the socket itself what the kernel has said to be there.
    pub(crate) fn receive_present(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.io.try_io(Interest::READABLE, |inner| inner.read(buffer))
    }

    /// Waits until there is something to read (or the end), without a buffer in hand and without a system call. On a
    /// sealed stream it may turn out to be nothing that is for the reader.
    ///
    /// # Errors
    /// The runtime is shutting down.
    pub async fn readable(&mut self) -> io::Result<()> {
        if self.seal.as_ref().is_some_and(|session| session.has_plain()) {
            return Ok(());
        }
        let this = &*self;
        poll_fn(|context| this.io.poll_read_ready(context).map_ok(|_| ())).await
    }

    /// Waits until the peer has closed or reset the connection. While unread bytes stand before the end, the end cannot
    /// be seen, and this waits on; it reads nothing. For noticing that a client went away during a long fetch.
    pub async fn hung_up(&mut self) {
        let this = &*self;
        poll_fn(|context| {
            loop {
                let mut guard = match ready!(this.io.poll_read_ready(context)) {
                    Ok(guard) => guard,
                    Err(_) => return Poll::Ready(()),
                };
                match this.io.get_ref().peek() {
                    Ok(0) => return Poll::Ready(()),
                    // More bytes will raise a new event; these are left for the reader, whose next read must not wait
                    // for one. Nothing but the peer can end this wait, and an outer deadline does.
                    Ok(_) => return Poll::Pending,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => guard.clear_ready(),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(_) => return Poll::Ready(()),
                }
            }
        })
        .await;
    }

    /// What has happened on a connection nobody reads from. Costs no system call while nothing has.
    pub fn idle(&self) -> Idle {
        if let Some(session) = &self.seal {
            return session.idle(|room| self.receive_present(room));
        }
        idle_of(self.io.try_io(Interest::READABLE, Inner::peek))
    }

    /// As [`Stream::idle`], but asks the kernel itself.
    pub fn look(&self) -> Idle {
        match &self.seal {
            None => idle_of(self.io.get_ref().peek()),
            Some(session) => session.idle(|room| self.io.get_ref().read(room)),
        }
    }

    /// Has the calling thread's runtime watch the socket, whichever did so before.
    ///
    /// # Errors
    /// The runtime's refusal to watch one more descriptor.
    ///
    /// # Panics
    /// Outside a runtime with input and output enabled.
    pub fn adopt(self) -> io::Result<Self> {
        let Self { io, seal, peer, local } = self;
        let io = sys::watch(io.into_inner(), Interest::READABLE | Interest::WRITABLE)?;
        Ok(Self { io, seal, peer, local })
    }

    /// Writes some of `slices` (the first [`SLICES_MAX`] at most), at once if there is room, else when there is.
    ///
    /// # Errors
    /// As `writev(2)`; [`io::ErrorKind::WriteZero`] never: an empty write returns 0.
    #[inline]
    pub async fn write_vectored_some(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let this = &*self;
        poll_fn(|context| this.poll_write_vectored(context, slices)).await
    }

    /// As [`Stream::write_vectored_some`], for hand-written futures.
    ///
    /// On a sealed stream, one that was not ready must be called again with the same bytes before any others.
    #[inline]
    pub fn poll_write_vectored(
        &self,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &self.seal {
            None => self.poll_send(context, slices),
            Some(session) => session.poll_write(self, context, slices),
        }
    }

    /// Writes some of `slices` if the kernel takes them now, whether or not it has said that it would: after a short write
    /// this tells a socket that is full ([`io::ErrorKind::WouldBlock`]) from a page that cannot be read ([`is_fault`]).
    ///
    /// # Errors
    /// As `writev(2)`.
    ///
    /// # Panics
    /// If the stream is sealed.
    pub fn write_again(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        assert!(self.seal.is_none(), "what is sealed was looked at before");
        self.io.get_ref().write_vectored(&slices[..slices.len().min(SLICES_MAX)])
    }

    /// Writes to the socket itself.
    pub(crate) fn poll_send(
        &self,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let slices = &slices[..slices.len().min(SLICES_MAX)];
        let total: usize = slices.iter().map(|slice| slice.len()).sum();
        if total == 0 {
            return Poll::Ready(Ok(0));
        }
        loop {
            let mut guard = ready!(self.io.poll_write_ready(context))?;
            match self.io.get_ref().write_vectored(slices) {
                Ok(count) => {
                    // A short write filled the socket's buffer.
                    if count < total {
                        guard.clear_ready();
                    }
                    return Poll::Ready(Ok(count));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => guard.clear_ready(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    /// Writes to the socket itself what there is room for.
    pub(crate) fn send_present(&self, bytes: &[u8]) -> io::Result<usize> {
        self.io.try_io(Interest::WRITABLE, |inner| inner.write_vectored(&[IoSlice::new(bytes)]))
    }

    /// Writes all of `slices`, in as few calls as the socket's buffer allows. The slices are advanced as they go out, so
    /// after an error they show what was left.
    ///
    /// # Errors
    /// As `writev(2)`; [`io::ErrorKind::WriteZero`] if the kernel takes nothing.
    pub async fn write_all_vectored(&mut self, mut slices: &mut [IoSlice<'_>]) -> io::Result<()> {
        // Leading empty slices are dropped here, so that "nothing written" below means the socket.
        IoSlice::advance_slices(&mut slices, 0);
        while !slices.is_empty() {
            let count = self.write_vectored_some(slices).await?;
            if count == 0 {
                let window = &slices[..slices.len().min(SLICES_MAX)];
                if window.iter().any(|slice| !slice.is_empty()) {
                    return Err(io::ErrorKind::WriteZero.into());
                }
            }
            IoSlice::advance_slices(&mut slices, count);
        }
        Ok(())
    }

    /// Writes all of `bytes`.
    ///
    /// # Errors
    /// As [`Stream::write_all_vectored`].
    pub async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all_vectored(&mut [IoSlice::new(bytes)]).await
    }

    /// Waits until a connection that was begun stands.
    ///
    /// # Errors
    /// Why it does not.
    pub(crate) async fn connected(&mut self) -> io::Result<()> {
        let this = &*self;
        poll_fn(|context| this.io.poll_write_ready(context).map_ok(|_| ())).await?;
        SockRef::from(&this.io).take_error()?.map_or(Ok(()), Err)
    }

    /// Says that no more will be written; the peer reads an end of stream.
    ///
    /// # Errors
    /// As `shutdown(2)`.
    pub fn shutdown_write(&self) -> io::Result<()> {
        if let Some(session) = &self.seal {
            session.farewell(self);
        }
        match self.io.get_ref() {
            Inner::Tcp(socket) => socket.shutdown(Shutdown::Write),
            Inner::Unix(socket) => socket.shutdown(Shutdown::Write),
        }
    }

    /// The peer's address; `None` for a Unix socket.
    pub fn peer(&self) -> Option<SocketAddr> {
        self.peer
    }

    /// Our own address; `None` for a Unix socket. Asked of the kernel once.
    pub fn local(&self) -> Option<SocketAddr> {
        *self.local.get_or_init(|| match self.io.get_ref() {
            Inner::Tcp(socket) => socket.local_addr().ok(),
            Inner::Unix(_) => None,
        })
    }

    /// Whether it is a Unix socket.
    pub fn is_unix(&self) -> bool {
        matches!(self.io.get_ref(), Inner::Unix(_))
    }

    /// Turns Nagle's algorithm off (`true`) or on. Nothing happens on a Unix socket.
    ///
    /// # Errors
    /// As `setsockopt(2)`.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        match self.io.get_ref() {
            Inner::Tcp(socket) => socket.set_nodelay(nodelay),
            Inner::Unix(_) => Ok(()),
        }
    }

    /// Has the kernel probe a silent peer. Nothing happens on a Unix socket.
    ///
    /// # Errors
    /// As `setsockopt(2)`.
    pub fn set_keepalive(&self, keepalive: &Keepalive) -> io::Result<()> {
        match self.io.get_ref() {
            Inner::Tcp(socket) => keepalive.apply(&SockRef::from(socket)),
            Inner::Unix(_) => Ok(()),
        }
    }

    /// Sets the type of service (IPv4) or traffic class (IPv6) of what is sent. Nothing happens on a Unix socket.
    ///
    /// # Errors
    /// As `setsockopt(2)`.
    pub fn set_tos(&self, tos: u8) -> io::Result<()> {
        let socket = SockRef::from(&self.io);
        match self.peer {
            Some(SocketAddr::V4(_)) => socket.set_tos_v4(u32::from(tos)),
            Some(SocketAddr::V6(_)) => socket.set_tclass_v6(u32::from(tos)),
            None => Ok(()),
        }
    }

    /// User and group id of the process at the other end of a Unix socket, as they were when it connected; `None` for
    /// TCP, or if the kernel does not say.
    pub fn credentials(&self) -> Option<(u32, u32)> {
        match self.io.get_ref() {
            Inner::Unix(socket) => sys::credentials(socket),
            Inner::Tcp(_) => None,
        }
    }

    /// Makes closing the connection a reset: the peer cannot take what it got for the whole. Used where a body was cut.
    pub fn reset_on_close(&self) {
        let _ = SockRef::from(&self.io).set_linger(Some(Duration::ZERO));
    }
}

impl AsRawFd for Stream {
    fn as_raw_fd(&self) -> RawFd {
        self.io.as_raw_fd()
    }
}

impl AsRawFd for Inner {
    fn as_raw_fd(&self) -> RawFd {
        match self {
            Self::Tcp(socket) => socket.as_raw_fd(),
            Self::Unix(socket) => socket.as_raw_fd(),
        }
    }
}

impl sys::Descriptor for Inner {}

impl Inner {
    #[inline]
    fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        sys::receive(self.as_raw_fd(), buffer)
    }

    #[inline]
    fn write_vectored(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        sys::send(self.as_raw_fd(), slices)
    }

    /// How many of the next bytes (at most one) are there; 0 is the end.
    fn peek(&self) -> io::Result<usize> {
        let mut byte = [MaybeUninit::uninit()];
        match self {
            Self::Tcp(socket) => SockRef::from(socket).peek(&mut byte),
            Self::Unix(socket) => SockRef::from(socket).peek(&mut byte),
        }
    }
}

/// What a peek says.
fn idle_of(peeked: io::Result<usize>) -> Idle {
    match peeked {
        Ok(0) => Idle::Closed,
        Ok(_) => Idle::Data,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Idle::Quiet,
        Err(_) => Idle::Closed,
    }
}

/// When the kernel probes a silent TCP peer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Keepalive {
    /// Silence before the first probe, whole seconds.
    pub time_s: u64,
    /// Between probes, whole seconds.
    pub interval_s: u64,
    /// Unanswered probes until the connection counts as dead.
    pub probes: u32,
}

impl Default for Keepalive {
    /// Varnish's, which are Linux's: 7200 s, 75 s, 9.
    fn default() -> Self {
        Self { time_s: 7200, interval_s: 75, probes: 9 }
    }
}

impl Keepalive {
    /// Sets it on a TCP socket; an accepted socket inherits it from its listener.
    pub(crate) fn apply(&self, socket: &Socket) -> io::Result<()> {
        let parameters = TcpKeepalive::new()
            .with_time(Duration::from_secs(self.time_s.max(1)))
            .with_interval(Duration::from_secs(self.interval_s.max(1)))
            .with_retries(self.probes.max(1));
        socket.set_tcp_keepalive(&parameters)
    }
}

/// Has the kernel report a connection only when its first bytes are there, or a second has passed.
pub(crate) fn defer_accept(socket: &Socket) -> io::Result<()> {
    sys::set_option(socket, libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker;
    use socket2::{Domain, Type};

    fn pair() -> (Stream, Stream) {
        let (a, b) = Socket::pair(Domain::UNIX, Type::STREAM, None).unwrap();
        a.set_nonblocking(true).unwrap();
        b.set_nonblocking(true).unwrap();
        (Stream::new(a, None).unwrap(), Stream::new(b, None).unwrap())
    }

    #[test]
    fn bytes_arrive_and_the_end_is_seen() {
        worker::block_on(async {
            let (mut a, mut b) = pair();
            assert_eq!(b.try_read(&mut [0; 8]).unwrap(), None);
            a.write_all_vectored(&mut [IoSlice::new(b""), IoSlice::new(b"ab"), IoSlice::new(b"c")])
                .await
                .unwrap();
            let mut buffer = [0; 8];
            assert_eq!(b.read(&mut buffer).await.unwrap(), 3);
            assert_eq!(&buffer[..3], b"abc");
            a.shutdown_write().unwrap();
            assert_eq!(b.read(&mut buffer).await.unwrap(), 0);
            assert_eq!(b.read(&mut buffer).await.unwrap(), 0);
        });
    }

    #[test]
    fn more_slices_than_a_call_takes_all_go_out() {
        worker::block_on(async {
            let (mut a, mut b) = pair();
            let piece = vec![7u8; 3001];
            let mut slices: Vec<_> = (0..200).map(|index| IoSlice::new(&piece[..index * 15])).collect();
            let total: usize = slices.iter().map(|slice| slice.len()).sum();
            let writer = async {
                a.write_all_vectored(&mut slices).await.unwrap();
                a.shutdown_write().unwrap();
            };
            let reader = async {
                let mut buffer = vec![0; 64 << 10];
                let mut seen = 0;
                loop {
                    match b.read(&mut buffer).await.unwrap() {
                        0 => return seen,
                        count => seen += count,
                    }
                }
            };
            let ((), seen) = tokio::join!(writer, reader);
            assert_eq!(seen, total);
        });
    }

    #[test]
    fn only_empty_slices_are_no_error() {
        worker::block_on(async {
            let (mut a, _b) = pair();
            let mut slices = vec![IoSlice::new(b""); 150];
            a.write_all_vectored(&mut slices).await.unwrap();
            assert_eq!(a.write_vectored_some(&[]).await.unwrap(), 0);
        });
    }

    #[test]
    fn idle_tells_stray_bytes_and_close_apart() {
        worker::block_on(async {
            let (mut a, b) = pair();
            tokio::task::yield_now().await;
            assert_eq!(b.idle(), Idle::Quiet);
            a.write_all(b"x").await.unwrap();
            let mut b = b;
            b.readable().await.unwrap();
            assert_eq!(b.idle(), Idle::Data);
            assert_eq!(b.read(&mut [0; 4]).await.unwrap(), 1);
            assert_eq!(b.idle(), Idle::Quiet);
            drop(a);
            b.hung_up().await;
            assert_eq!(b.idle(), Idle::Closed);
        });
    }
}
