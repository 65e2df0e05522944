//! The session of `-d`: commands on standard input, replies on standard output. Its end is the program's end.

use super::{Control, session};
use crate::log;
use crate::plant::Plant;
use std::io::{self, Read as _, Write as _};
use tokio::sync::mpsc::{Receiver, channel};

/// Pieces of input that wait to be looked at.
const PIECES_MAX: usize = 4;

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
pub(super) async fn serve<P: Plant>(control: &Control<P>, mut terminal: Terminal) {
    let mut out = Vec::new();
    let mut session = match session::begin(control, None, &mut out) {
        Ok(session) => session,
        Err(error) => return log::error("terminal session", &[("error", &error)]),
    };
    loop {
        // Nobody may be reading; what counts is the input.
        let _ = io::stdout().write_all(&out).and_then(|()| io::stdout().flush());
        out.clear();
        if session.closed() {
            return;
        }
        let Some(bytes) = terminal.input.recv().await else { return };
        session::feed(control, &mut session, &bytes, &mut out);
    }
}
