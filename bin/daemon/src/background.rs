//! Going to the background, before there is any thread to lose.
//!
//! ```text
//! shell -> copald (front)  starts itself anew, waits -> exits 0 once the other says "ready", else 255
//!               \-> copald (back)  its own session, does everything, says "ready" when clients can connect
//! ```
//! A program that starts itself anew has nothing of the first one's state to be careful about, as a fork would. Errors
//! before "ready" reach the terminal, since standard error is the same.

use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};

/// Tells a copald that it is the one in the back: its parent's process number.
const MARK: &str = "COPALD_BACKGROUND_OF";
/// The exit code of the one in front where the one in the back did not come up. Source: Varnish 7.1, observed.
const FAILED: u8 = 255;
const READY: &[u8] = b"ready\n";

/// Whether this process is the one in the back.
pub(crate) fn is_back() -> bool {
    // The mark holds only for the child itself: what that one starts in turn has another parent.
    let parent = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().to_string());
    parent.is_some() && std::env::var(MARK).ok() == parent
}

/// Starts the one in the back and waits until it is ready or has failed.
///
/// # Errors
/// It cannot be started.
pub(crate) fn front() -> io::Result<ExitCode> {
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_else(|| "copald".into());
    let mut child = Command::new("/proc/self/exe")
        .arg0(name)
        .args(arguments)
        .env(MARK, std::process::id().to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut said = Vec::new();
    if let Some(output) = child.stdout.take() {
        // The pipe ends when the child closes it: after "ready", or when it exits.
        output.take(READY.len() as u64).read_to_end(&mut said)?;
    }
    if said == READY {
        return Ok(ExitCode::SUCCESS);
    }
    child.wait()?;
    Ok(ExitCode::from(FAILED))
}

/// Leaves the shell's session, so that its end is not ours. For the one in the back, at its start.
pub(crate) fn leave_session() {
    // Fails only for the leader of a group, which a process just started is not.
    let _ = rustix::process::setsid();
}

/// Tells the one in front that clients can connect, and lets go of the terminal. For the one in the back.
///
/// # Errors
/// The terminal cannot be let go.
pub(crate) fn ready() -> io::Result<()> {
    // If the one in front is gone, nobody needs to be told.
    let _ = io::stdout().write_all(READY).and_then(|()| io::stdout().flush());
    let null = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    Ok(())
}
