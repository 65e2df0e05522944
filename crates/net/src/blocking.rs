//! Work that would block a worker thread, done on helper threads instead: host names, files, accounts.
//!
//! A worker thread serves all its connections by itself, so a call of it that waits for a disk or a name server stops
//! them all. [`run`] hands such a call to one of at most [`THREADS_MAX`] helpers and lets the task wait. Helpers start
//! when there is work and end when there was none for [`IDLE`]. They are not joined: a name server that never answers
//! must not keep the process from ending.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;

/// The most helper threads of the process.
pub const THREADS_MAX: usize = 16;
/// The most jobs that wait for a helper.
pub const WAITING_MAX: usize = 1024;
/// How long a helper without work stays.
const IDLE: Duration = Duration::from_secs(10);

/// Why a job was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotDone {
    /// [`WAITING_MAX`] others wait already, or no thread could be made.
    Busy,
    /// It panicked.
    Broken,
}

impl fmt::Display for NotDone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Busy => "too much other work is waiting",
            Self::Broken => "the work broke off",
        })
    }
}

impl std::error::Error for NotDone {}

type Job = Box<dyn FnOnce() + Send>;

/// The helpers and what waits for them.
struct Helpers {
    waiting: VecDeque<Job>,
    threads: usize,
    idle: usize,
}

static HELPERS: Mutex<Helpers> = Mutex::new(Helpers { waiting: VecDeque::new(), threads: 0, idle: 0 });
static WORK: Condvar = Condvar::new();

/// Does `job` on a helper thread. Dropping the future does not stop a job that has begun; its result is then lost.
///
/// # Errors
/// [`NotDone::Busy`] at once if too much waits; [`NotDone::Broken`] if the job panicked.
pub async fn run<T: Send + 'static>(job: impl FnOnce() -> T + Send + 'static) -> Result<T, NotDone> {
    let (sender, receiver) = oneshot::channel();
    submit(Box::new(move || {
        // Nobody may wait for it any more.
        let _ = sender.send(job());
    }))?;
    receiver.await.map_err(|_| NotDone::Broken)
}

fn submit(job: Job) -> Result<(), NotDone> {
    let mut helpers = lock();
    if helpers.waiting.len() >= WAITING_MAX {
        return Err(NotDone::Busy);
    }
    helpers.waiting.push_back(job);
    if helpers.idle >= helpers.waiting.len() {
        WORK.notify_one();
    } else if helpers.threads < THREADS_MAX {
        helpers.threads += 1;
        let started = std::thread::Builder::new().name("copal-helper".into()).spawn(help);
        if started.is_err() {
            helpers.threads -= 1;
            if helpers.threads == 0 {
                helpers.waiting.pop_back();
                return Err(NotDone::Busy);
            }
        }
    }
    Ok(())
}

/// A helper's life.
fn help() {
    loop {
        let Some(job) = next() else { return };
        // A job that panics has reported itself; the helper and its place in the count stay.
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job));
    }
}

/// The next job, or nothing when the helper is to end; it is then no longer counted.
fn next() -> Option<Job> {
    let mut helpers = lock();
    loop {
        if let Some(job) = helpers.waiting.pop_front() {
            return Some(job);
        }
        helpers.idle += 1;
        let (guard, timeout) = WORK.wait_timeout(helpers, IDLE).unwrap_or_else(PoisonError::into_inner);
        helpers = guard;
        helpers.idle -= 1;
        if timeout.timed_out() && helpers.waiting.is_empty() {
            helpers.threads -= 1;
            return None;
        }
    }
}

/// Nothing panics while the lock is held, so its poison means nothing.
fn lock() -> MutexGuard<'static, Helpers> {
    HELPERS.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    fn wait<F: Future>(future: F) -> F::Output {
        tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(future)
    }

    #[test]
    fn work_is_done_elsewhere() {
        let here = std::thread::current().id();
        assert_ne!(wait(run(move || std::thread::current().id())), Ok(here));
    }

    #[test]
    fn work_that_panics_is_an_error_and_helpers_go_on() {
        assert_eq!(wait(run(|| -> u8 { panic!("as the test wants") })), Err(NotDone::Broken));
        assert_eq!(wait(run(|| 7)), Ok(7));
    }

    #[test]
    fn a_slow_job_does_not_hold_up_the_next() {
        let (release, held) = mpsc::channel::<()>();
        let slow = wait(async {
            let slow = tokio::task::LocalSet::new();
            let waiting = slow.spawn_local(run(move || held.recv().is_ok()));
            slow.run_until(async {
                assert_eq!(run(|| 1).await, Ok(1));
                release.send(()).expect("it waits");
                waiting.await
            })
            .await
        });
        assert_eq!(slow.expect("it ran"), Ok(true));
    }
}
