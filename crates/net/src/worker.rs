//! Worker threads: one a CPU, pinned, each with a runtime of its own whose tasks never leave it.
//!
//! ```text
//!  spawn > main future (accepts, starts tasks) > Stop requested > main returns > tasks end, or the drain limit passes
//! ```
//! Tasks need not be `Send`. What a thread keeps for itself it keeps in `Rc` and `Cell`.

use crate::{deadline, sys};
use base::Seconds;
use copal_base as base;
use pin_project_lite::pin_project;
use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::runtime::{Builder, LocalOptions, LocalRuntime};
use tokio::sync::watch;

/// How a worker's runtime behaves.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// How many tasks run between two looks at the kernel's events while there are tasks to run. A small number serves
    /// few busy connections evenly, a large one spends fewer system calls on many. tokio's own default is 61; at 256
    /// connections the difference is one `epoll_wait` in 61 requests, so fairness may decide.
    pub event_interval: u32,
    /// How many events one look takes in at most.
    pub events_max: usize,
    /// How long after the stop signal connections may go on, seconds.
    pub drain_limit: Seconds,
}

impl Default for Settings {
    fn default() -> Self {
        Self { event_interval: 256, events_max: 1024, drain_limit: 10.0 }
    }
}

/// The CPUs this process may run on, by its affinity mask; if the kernel does not say, as many as there are.
pub fn cpus() -> Vec<usize> {
    let cpus = sys::affinity();
    if cpus.is_empty() { vec![0] } else { cpus }
}

/// The signal to end, shared by all workers.
#[derive(Clone, Debug)]
pub struct Stop(watch::Sender<bool>);

impl Default for Stop {
    fn default() -> Self {
        Self::new()
    }
}

impl Stop {
    /// Not requested yet.
    pub fn new() -> Self {
        Self(watch::Sender::new(false))
    }

    /// Asks for the end. Stays asked.
    pub fn request(&self) {
        self.0.send_replace(true);
    }

    /// Whether the end was asked for.
    pub fn requested(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until it is.
    pub async fn wait(&self) {
        // The sender lives as long as `self`, so this cannot fail.
        let _ = self.0.subscribe().wait_for(|requested| *requested).await;
    }
}

/// A running worker thread.
#[derive(Debug)]
pub struct Worker {
    thread: JoinHandle<()>,
}

impl Worker {
    /// Waits for its end; `false` if it panicked.
    pub fn join(self) -> bool {
        self.thread.join().is_ok()
    }

    /// Whether it has ended.
    pub fn ended(&self) -> bool {
        self.thread.is_finished()
    }
}

/// Starts a worker thread on `cpu` (`None`: anywhere) that runs the future `main` makes there. When `stop` is requested,
/// idle deadlines pass ([`crate::Deadline::set_idle`]); `main` is expected to return soon. Then the tasks it started
/// may end by themselves until the drain limit, after which they are dropped.
///
/// A CPU that cannot be had is no error: the thread runs anywhere.
///
/// # Errors
/// A thread or its runtime could not be made.
pub fn spawn<F, M>(
    name: &str,
    cpu: Option<usize>,
    settings: &Settings,
    stop: &Stop,
    main: M,
) -> io::Result<Worker>
where
    M: FnOnce() -> F + Send + 'static,
    F: Future<Output = ()> + 'static,
{
    let (settings, stop) = (settings.clone(), stop.clone());
    let (ready, made) = std::sync::mpsc::sync_channel(1);
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
        if let Some(cpu) = cpu {
            let _ = sys::pin(cpu);
        }
        let runtime = match runtime(&settings) {
            Ok(runtime) => runtime,
            Err(error) => {
                let _ = ready.send(Err(error));
                return;
            }
        };
        let _ = ready.send(Ok(()));
        runtime.block_on(serve(settings.drain_limit, stop, main));
    })?;
    match made.recv() {
        Ok(Ok(())) => Ok(Worker { thread }),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(io::Error::other("worker thread ended while starting")),
    }
}

fn runtime(settings: &Settings) -> io::Result<LocalRuntime> {
    Builder::new_current_thread()
        .enable_all()
        .event_interval(settings.event_interval.max(1))
        .max_io_events_per_tick(settings.events_max.max(1))
        .build_local(LocalOptions::default())
}

async fn serve<F: Future<Output = ()>>(drain_limit: Seconds, stop: Stop, main: impl FnOnce() -> F) {
    tokio::task::spawn_local(deadline::sweeper());
    let watcher = stop.clone();
    tokio::task::spawn_local(async move {
        watcher.wait().await;
        deadline::end_idle();
    });
    main().await;
    // A main that returns unasked ends its idle connections too.
    deadline::end_idle();
    let limit = if drain_limit.is_finite() { drain_limit.clamp(0.0, 1e9) } else { 1e9 };
    let _ = tokio::time::timeout(Duration::from_secs_f64(limit), no_tasks()).await;
}

thread_local! {
    static TASKS: Cell<usize> = const { Cell::new(0) };
    static LAST_TASK: RefCell<Option<Waker>> = const { RefCell::new(None) };
}

/// Counts one task of this thread while it lives.
struct Counted;

impl Counted {
    fn new() -> Self {
        TASKS.set(TASKS.get() + 1);
        Self
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let left = TASKS.get() - 1;
        TASKS.set(left);
        if left == 0
            && let Some(waker) = LAST_TASK.take()
        {
            waker.wake();
        }
    }
}

/// Starts a task on this thread. The worker waits for it when it ends.
///
/// # Panics
/// Outside a worker or [`block_on`].
pub fn task(future: impl Future<Output = ()> + 'static) {
    tokio::task::spawn_local(Task { future, _counted: Counted::new() });
}

pin_project! {
    /// A task, counted. An async block would hold `future` twice: as it was given, and as it is polled.
    struct Task<F> {
        #[pin]
        future: F,
        _counted: Counted,
    }
}

impl<F: Future<Output = ()>> Future for Task<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.project().future.poll(context)
    }
}

/// How many tasks started by [`task`] are alive on this thread.
pub fn tasks() -> usize {
    TASKS.get()
}

/// Waits until no task started by [`task`] is alive on this thread.
pub async fn no_tasks() {
    poll_fn(|context| {
        if tasks() == 0 {
            return Poll::Ready(());
        }
        LAST_TASK.set(Some(context.waker().clone()));
        Poll::Pending
    })
    .await;
}

/// Runs `future` on this thread with all that a worker has: for tests and small tools. Tasks alive at its end are dropped.
///
/// # Panics
/// If no runtime can be made, or this thread runs one already.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let runtime = runtime(&Settings::default()).expect("the kernel gives a runtime its descriptors");
    runtime.block_on(async {
        tokio::task::spawn_local(deadline::sweeper());
        future.await
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Deadline, within};
    use std::future::pending;
    use std::rc::Rc;
    use std::sync::mpsc::channel;

    #[test]
    fn stop_ends_idle_waits_and_waits_for_tasks() {
        let (stop, (sender, receiver)) = (Stop::new(), channel());
        let inner = stop.clone();
        let worker =
            spawn("test", cpus().first().copied(), &Settings::default(), &stop, move || async move {
                let ended = Rc::new(Cell::new(false));
                let seen = Rc::clone(&ended);
                let idle = sender.clone();
                task(async move {
                    let deadline = Deadline::new();
                    deadline.set_idle(1000.0);
                    let _ = within(&deadline, pending::<()>()).await;
                    seen.set(true);
                    idle.send(1).unwrap();
                });
                sender.send(0).unwrap();
                inner.wait().await;
            })
            .unwrap();
        assert_eq!(receiver.recv(), Ok(0));
        assert!(!stop.requested());
        stop.request();
        assert!(worker.join());
        assert_eq!(receiver.recv(), Ok(1));
    }

    #[test]
    fn stubborn_tasks_are_dropped_at_the_drain_limit() {
        let stop = Stop::new();
        stop.request();
        let settings = Settings { drain_limit: 0.01, ..Settings::default() };
        let worker = spawn("test", None, &settings, &stop, || async {
            task(pending());
            assert_eq!(tasks(), 1);
        })
        .unwrap();
        assert!(worker.join());
    }
}
