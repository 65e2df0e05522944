//! What a tool asks of the kernel for its own process: to be told of signals, and to go to the background.
//!
//! A handler only adds one to a counter of its signal; the tool looks at the counters when it comes round. Nothing here
//! is for a process with threads.

#![allow(unsafe_code)]

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};

/// A signal that a tool acts on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// The terminal went, or a log is to be rotated.
    Hangup,
    /// Control-C.
    Interrupt,
    /// End.
    Terminate,
    /// Varnish's tools flush what is incomplete.
    User1,
    /// The terminal has another size.
    Resized,
}

const ALL: [(Signal, libc::c_int); 5] = [
    (Signal::Hangup, libc::SIGHUP),
    (Signal::Interrupt, libc::SIGINT),
    (Signal::Terminate, libc::SIGTERM),
    (Signal::User1, libc::SIGUSR1),
    (Signal::Resized, libc::SIGWINCH),
];

static SEEN: [AtomicU32; ALL.len()] = [const { AtomicU32::new(0) }; ALL.len()];

extern "C" fn note(number: libc::c_int) {
    // Only atomics: what a handler may do at any moment.
    for (at, (_, signal)) in ALL.iter().enumerate() {
        if *signal == number {
            SEEN[at].fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Counts these signals from now on, instead of what they do by default. Calls that wait are interrupted.
///
/// # Errors
/// What the kernel says.
pub fn watch(signals: &[Signal]) -> io::Result<()> {
    for (_, number) in ALL.iter().filter(|(signal, _)| signals.contains(signal)) {
        // SAFETY: all zeroes are a valid `sigaction` (no flags, an empty mask); `note` is a function of the type that a
        // handler without SA_SIGINFO has and does only what a handler may; the pointers are valid for the call.
        let failed = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = note as *const () as libc::sighandler_t;
            libc::sigaction(*number, &raw const action, std::ptr::null_mut())
        };
        if failed != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Whether the signal came since the last call.
pub fn take(signal: Signal) -> bool {
    ALL.iter().zip(&SEEN).any(|((other, _), seen)| *other == signal && seen.swap(0, Ordering::Relaxed) != 0)
}

/// Whether this process goes on, or has handed over to the one that does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The one that was started: it ends now, with success.
    Front,
    /// The one that goes on, in a session of its own.
    Back,
}

/// Goes to the background: to be called while the process has one thread, with nothing unwritten in buffers.
///
/// # Errors
/// What the kernel says; `Unsupported` if there are other threads, of which the child would have no more than their locks.
pub fn detach() -> io::Result<Side> {
    if std::fs::read_dir("/proc/self/task")?.nth(1).is_some() {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "the process has several threads"));
    }
    // SAFETY: with one thread (seen above) the child's memory is as whole as the parent's.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            // SAFETY: takes and touches no memory. It fails only for the leader of a group, which a child is not.
            unsafe { libc::setsid() };
            Ok(Side::Back)
        }
        _ => Ok(Side::Front),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_of_several_threads_stays_where_it_is() {
        let (end, wait) = std::sync::mpsc::channel::<()>();
        let other = std::thread::spawn(move || wait.recv());
        assert_eq!(detach().unwrap_err().kind(), io::ErrorKind::Unsupported);
        drop(end);
        assert!(other.join().unwrap().is_err());
    }

    #[test]
    fn a_signal_is_seen_once() {
        watch(&[Signal::Resized]).unwrap();
        assert!(!take(Signal::Resized));
        // SAFETY: raises a signal that has a handler.
        unsafe { libc::raise(libc::SIGWINCH) };
        assert!(take(Signal::Resized));
        assert!(!take(Signal::Resized));
    }
}
