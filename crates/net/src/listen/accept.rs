//! Taking connections from a listening socket, on one worker thread.

use super::bind::Listener;
use crate::stream::Stream;
use crate::sys;
use socket2::Socket;
use std::future::poll_fn;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// How many connections are taken before other tasks get their turn.
const BATCH_MAX: u32 = 16;
/// The first pause after descriptors or memory ran out; it doubles up to [`PAUSE_MAX`].
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// What happened on listening sockets; shared by threads.
#[derive(Debug, Default)]
pub struct Statistics {
    /// Connections that ended before they were taken, and other harmless failures (`sess_fail_econnaborted` ...).
    pub aborted: AtomicU64,
    /// Refusals for want of descriptors (`sess_fail_emfile`).
    pub no_descriptors: AtomicU64,
    /// Refusals for want of memory (`sess_fail_enomem`).
    pub no_memory: AtomicU64,
    /// Anything else (`sess_fail_other`).
    pub other: AtomicU64,
}

/// Why no connection was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    /// This connection is gone; the next may be fine.
    Connection,
    /// We are short of something; a pause helps.
    Resources,
}

/// Takes connections from one socket on this thread.
#[derive(Debug)]
pub struct Acceptor {
    io: AsyncFd<Socket>,
    pause: Duration,
    batch: u32,
}

impl Acceptor {
    /// Takes the socket to this thread.
    ///
    /// # Errors
    /// The runtime cannot watch another descriptor.
    pub fn new(listener: Listener) -> io::Result<Self> {
        let io = sys::watch(listener.socket, Interest::READABLE)?;
        Ok(Self { io, pause: Duration::ZERO, batch: 0 })
    }

    /// The next connection. Failures are counted in `statistics` and waited out; they never end the accepting.
    pub async fn accept(&mut self, statistics: &Statistics) -> Stream {
        loop {
            if self.batch >= BATCH_MAX {
                self.batch = 0;
                tokio::task::yield_now().await;
            }
            self.batch += 1;
            let io = &self.io;
            match poll_fn(|context| poll_accept(io, context)).await {
                Ok(stream) => {
                    self.pause = Duration::ZERO;
                    return stream;
                }
                Err(error) => match count(statistics, &error) {
                    Refusal::Connection => {}
                    Refusal::Resources => {
                        self.pause = (self.pause * 2).clamp(PAUSE_MIN, PAUSE_MAX);
                        tokio::time::sleep(self.pause).await;
                    }
                },
            }
        }
    }

    /// A connection that waits already; `None` if there is none. For emptying the queue before the socket is closed.
    pub fn accept_waiting(&mut self) -> Option<Stream> {
        accept_now(self.io.get_ref()).ok()
    }
}

fn poll_accept(io: &AsyncFd<Socket>, context: &mut Context<'_>) -> Poll<io::Result<Stream>> {
    loop {
        let mut guard = ready!(io.poll_read_ready(context))?;
        match accept_now(io.get_ref()) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => guard.clear_ready(),
            other => return Poll::Ready(other),
        }
    }
}

fn accept_now(socket: &Socket) -> io::Result<Stream> {
    let (socket, peer) = socket.accept4(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC)?;
    Stream::new(socket, peer.as_socket())
}

fn count(statistics: &Statistics, error: &io::Error) -> Refusal {
    let (counter, refusal) = match error.raw_os_error() {
        Some(libc::EMFILE | libc::ENFILE) => (&statistics.no_descriptors, Refusal::Resources),
        Some(libc::ENOMEM | libc::ENOBUFS | libc::ENOSPC) => (&statistics.no_memory, Refusal::Resources),
        Some(libc::ECONNABORTED | libc::EINTR | libc::EPERM | libc::EPROTO | libc::ECONNRESET) => {
            (&statistics.aborted, Refusal::Connection)
        }
        // Network errors of the connection to be, which Linux reports here.
        Some(
            libc::ENETDOWN
            | libc::ENOPROTOOPT
            | libc::EHOSTDOWN
            | libc::ENONET
            | libc::EHOSTUNREACH
            | libc::ENETUNREACH
            | libc::ETIMEDOUT,
        ) => (&statistics.aborted, Refusal::Connection),
        _ => (&statistics.other, Refusal::Resources),
    };
    counter.fetch_add(1, Ordering::Relaxed);
    refusal
}

#[cfg(test)]
mod tests {
    use super::super::{Settings, Spec, bind};
    use super::*;
    use crate::endpoint::connect;
    use crate::worker;

    #[test]
    fn connections_come_with_their_addresses() {
        worker::block_on(async {
            let settings = Settings { defer_accept: false, ..Settings::default() };
            let mut all = bind(&Spec::parse("127.0.0.1:0", 0).unwrap(), 1, &settings).unwrap();
            let listening = all.remove(0);
            let listener = listening.listeners.into_iter().next().unwrap();
            let mut acceptor = Acceptor::new(listener).unwrap();
            let statistics = Statistics::default();
            for _ in 0..40 {
                let client = connect(&listening.endpoint).await.unwrap();
                let server = acceptor.accept(&statistics).await;
                assert_eq!(server.peer(), client.local());
                assert_eq!(server.local(), client.peer());
            }
            assert!(acceptor.accept_waiting().is_none());
        });
    }

    #[test]
    fn failures_are_counted_and_told_apart() {
        let statistics = Statistics::default();
        let check = |errno, refusal| {
            assert_eq!(count(&statistics, &io::Error::from_raw_os_error(errno)), refusal, "{errno}");
        };
        check(libc::EMFILE, Refusal::Resources);
        check(libc::ENFILE, Refusal::Resources);
        check(libc::ENOMEM, Refusal::Resources);
        check(libc::ECONNABORTED, Refusal::Connection);
        check(libc::EINVAL, Refusal::Resources);
        assert_eq!(statistics.no_descriptors.load(Ordering::Relaxed), 2);
        assert_eq!(statistics.other.load(Ordering::Relaxed), 1);
    }
}
