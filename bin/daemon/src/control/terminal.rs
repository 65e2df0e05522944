//! The session of `-d`: commands on standard input, replies on standard output. Its end is the program's end.

use super::{Control, session};
use crate::log;
use crate::outlet::Outlet;
use crate::server::Server;
use std::io::{self, Read as _};
use std::time::Duration;
use tokio::sync::mpsc::{Receiver, channel};

/// Pieces of input that wait to be looked at.
const PIECES_MAX: usize = 4;

/// Bytes of replies that may wait for somebody to read them; with more, no further command is taken until then.
const UNREAD_MAX: usize = 1 << 20;
/// How often it is looked whether they are being read. Standard output may be a file, which cannot be waited for.
const LOOK: Duration = Duration::from_millis(50);
/// How long the last replies may wait for that.
const LAST_PATIENCE: Duration = Duration::from_secs(1);

/// Whoever is at the terminal. Trusted, since the terminal started us.
pub(crate) struct Terminal {
    input: Receiver<Vec<u8>>,
}

impl Terminal {
    /// Reads standard input on a thread of its own: it may be a file, a pipe or a terminal, of which some cannot be
    /// waited for, and the thread may be left waiting when the program ends.
    ///
    /// # Errors
    /// The thread cannot be made.
    pub(crate) fn open() -> io::Result<Self> {
        let (sender, input) = channel(PIECES_MAX);
        std::thread::Builder::new().name("terminal".to_owned()).spawn(move || {
            let mut buffer = vec![0; session::CHUNK];
            loop {
                match io::stdin().lock().read(&mut buffer) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Ok(0) | Err(_) => return,
                    Ok(count) => {
                        if sender.blocking_send(buffer[..count].to_vec()).is_err() {
                            return;
                        }
                    }
                }
            }
        })?;
        Ok(Self { input })
    }
}

/// Serves the terminal until its input ends or it says `quit`.
pub(super) async fn serve<P: Server>(control: &Control<P>, mut terminal: Terminal) {
    let mut out = Vec::new();
    let mut session = match session::begin(control, None, &mut out) {
        Ok(session) => session,
        Err(error) => return log::error("terminal session", &[("error", &error)]),
    };
    let mut outlet = Outlet::new(io::stdout(), usize::MAX);
    loop {
        outlet.write(&out);
        out.clear();
        if session.closed() {
            break;
        }
        match next(&mut terminal.input, &mut outlet).await {
            Some(bytes) => session::feed(control, &mut session, &bytes, &mut out),
            None => break,
        }
    }
    outlet.finish(LAST_PATIENCE);
}

/// The next piece of input; none at its end. Replies go out meanwhile, and hold up nobody but this session.
async fn next(input: &mut Receiver<Vec<u8>>, outlet: &mut Outlet<io::Stdout>) -> Option<Vec<u8>> {
    loop {
        outlet.advance();
        match outlet.waiting() {
            0 => return input.recv().await,
            // With too much unread, no input is taken, but its end still is ours.
            waiting if waiting >= UNREAD_MAX && !input.is_closed() => tokio::time::sleep(LOOK).await,
            _ => {
                if let Ok(bytes) = tokio::time::timeout(LOOK, input.recv()).await {
                    return bytes;
                }
            }
        }
    }
}
