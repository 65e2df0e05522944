//! One command-line session over a stream, from the greeting to its end.

use super::Control;
use crate::server::Server;
use crate::{log, workdir};
use admin::{Commands, Reply, Session, Status};
use copal_admin as admin;
use std::cell::Cell;
use std::fmt::Display;
use std::io;
use std::path::Path;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Command-line sessions at a time; one more is told to come again.
pub(super) const SESSIONS_MAX: usize = 64;
/// How long a peer may take to answer the challenge, and to take a reply.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes read from a session at once.
pub(super) const CHUNK: usize = 16 << 10;

/// Counts a session while it lives.
struct Counted<'a>(&'a Cell<usize>);

impl<'a> Counted<'a> {
    fn new(count: &'a Cell<usize>) -> Option<Self> {
        if count.get() >= SESSIONS_MAX {
            return None;
        }
        count.set(count.get() + 1);
        Some(Self(count))
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// Serves one connection to its end.
pub(super) async fn serve<P: Server>(control: &Control<P>, mut stream: TcpStream, peer: impl Display) {
    let Some(_counted) = Counted::new(&control.sessions) else {
        let mut out = Vec::new();
        Reply::new(Status::Close, "Too many CLI sessions").write(usize::MAX, &mut out);
        let _ = tokio::time::timeout(PATIENCE, stream.write_all(&out)).await;
        log::warning("cli refused", &[("peer", &peer), ("sessions", &SESSIONS_MAX)]);
        return;
    };
    match converse(control, &mut stream).await {
        Ok(true) => {}
        Ok(false) => log::warning("cli session ended without authentication", &[("peer", &peer)]),
        Err(error) => log::warning("cli session", &[("peer", &peer), ("error", &error)]),
    }
}

/// Begins a session that asks for the secret, if there is one; what greets the peer is appended to `out`.
///
/// # Errors
/// The secret cannot be read, or there is no randomness.
pub(super) fn begin<P: Server>(
    control: &Control<P>,
    secret: Option<&Path>,
    out: &mut Vec<u8>,
) -> io::Result<Session> {
    let secret = match secret {
        // Read for each session, so that a new secret holds at once.
        Some(path) => Some(workdir::read_secret(path).map_err(io::Error::other)?),
        None => None,
    };
    Ok(Session::begin(secret, workdir::random()?, &*control.management.borrow(), out))
}

/// Gives bytes of the peer to the session; replies are appended to `out`.
pub(super) fn feed<P: Server>(control: &Control<P>, session: &mut Session, bytes: &[u8], out: &mut Vec<u8>) {
    let mut management = control.management.borrow_mut();
    let commands: &mut dyn Commands = &mut *management;
    session.feed(bytes, commands, out);
}

/// Says false where it was us who ended it, and the peer had not shown that it knows the secret.
async fn converse<P: Server>(control: &Control<P>, stream: &mut TcpStream) -> io::Result<bool> {
    let mut out = Vec::new();
    let mut session = begin(control, control.secret.as_deref(), &mut out)?;
    let mut buffer = vec![0; CHUNK];
    let too_slow = |_| io::Error::from(io::ErrorKind::TimedOut);
    loop {
        tokio::time::timeout(PATIENCE, stream.write_all(&out)).await.map_err(too_slow)??;
        out.clear();
        if session.closed() {
            stream.shutdown().await?;
            return Ok(session.trusted());
        }
        // A command may come in two pieces, of which the peer's kernel keeps the second until the first is acknowledged.
        let _ = rustix::net::sockopt::set_tcp_quickack(&*stream, true);
        let read = stream.read(&mut buffer);
        let count = match session.trusted() {
            true => read.await?,
            false => tokio::time::timeout(PATIENCE, read).await.map_err(too_slow)??,
        };
        if count == 0 {
            return Ok(true);
        }
        feed(control, &mut session, &buffer[..count], &mut out);
    }
}
