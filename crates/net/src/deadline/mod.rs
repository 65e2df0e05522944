//! Deadlines that cost next to nothing to move.
//!
//! A connection sets a new deadline for every step of every request and almost none comes true. So [`Deadline::set`]
//! writes one number; the thread's timer wheel looks at a deadline only when the *earliest* moment it was ever set to
//! comes round, and then moves it on to where it stands by now. One task a thread sweeps the wheel and sleeps until the
//! next slot that holds anything.
//!
//! Deadlines fire late, never early: by up to 16 ms within four seconds, and by up to 26 ms (the clock's lag added)
//! beyond. They live on a worker thread (see [`crate::worker`]), whose runtime has the sweeping task.

mod wheel;

use base::Seconds;
use copal_base as base;
use pin_project_lite::pin_project;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use wheel::{Key, NEVER, Wheel};

use crate::sys;

/// A deadline passed before the work was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elapsed;

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("timed out")
    }
}

impl std::error::Error for Elapsed {}

/// One thread's wheel with its sweeper.
struct Timers {
    wheel: RefCell<Wheel>,
    /// The clock's reading at the wheel's zero, ms.
    zero_ms: u64,
    /// Whether a sweeper runs on this thread now.
    sweeping: Cell<bool>,
    /// The sweeper, while it sleeps.
    sleeper: RefCell<Option<Waker>>,
}

thread_local! {
    static TIMERS: Rc<Timers> = Rc::new(Timers {
        wheel: RefCell::new(Wheel::default()),
        zero_ms: sys::coarse_ms(),
        sweeping: Cell::new(false),
        sleeper: RefCell::new(None),
    });
}

/// A moment by which something must be done. Starts unset.
pub struct Deadline {
    timers: Rc<Timers>,
    key: Key,
}

impl fmt::Debug for Deadline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deadline").field("key", &self.key).finish()
    }
}

impl Default for Deadline {
    fn default() -> Self {
        Self::new()
    }
}

impl Deadline {
    /// An unset deadline on this thread.
    pub fn new() -> Self {
        let timers = TIMERS.with(Rc::clone);
        let key = timers.wheel.borrow_mut().add();
        Self { timers, key }
    }

    /// Sets it to `seconds` from now, in place of what it was. Nothing or less is at once; infinity is never.
    #[inline]
    pub fn set(&self, seconds: Seconds) {
        self.set_kind(seconds, false);
    }

    /// As [`Deadline::set`], for a wait that is better given up when the thread is told to end: between two requests.
    /// It fires at once if it has been told, and when it is.
    #[inline]
    pub fn set_idle(&self, seconds: Seconds) {
        self.set_kind(seconds, true);
    }

    #[inline]
    fn set_kind(&self, seconds: Seconds, idle: bool) {
        let due = due_ms(sys::coarse_ms() - self.timers.zero_ms, seconds);
        let sooner = self.timers.wheel.borrow_mut().set(self.key, due, idle);
        if sooner {
            self.timers.wake_sweeper();
        }
    }

    /// Unsets it.
    pub fn clear(&self) {
        self.timers.wheel.borrow_mut().set(self.key, NEVER, false);
    }

    /// Whether it has passed since it was last set.
    pub fn passed(&self) -> bool {
        self.timers.wheel.borrow().fired(self.key)
    }

    /// Ready once it has passed; otherwise `context` is woken when it does.
    #[inline]
    pub fn poll_passed(&self, context: &mut Context<'_>) -> Poll<()> {
        debug_assert!(self.timers.sweeping.get(), "a deadline is waited for on a thread without a sweeper");
        let replaced = {
            let mut wheel = self.timers.wheel.borrow_mut();
            if wheel.fired(self.key) {
                return Poll::Ready(());
            }
            wheel.watch(self.key, context.waker())
        };
        // Dropping a waker may run code that has deadlines of its own, so it happens with the wheel released.
        drop(replaced);
        Poll::Pending
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        let waker = self.timers.wheel.borrow_mut().remove(self.key);
        drop(waker);
    }
}

/// `seconds` after the coarse reading `now_ms`, made up for the coarse clock's lag.
fn due_ms(now_ms: u64, seconds: Seconds) -> u64 {
    if seconds > 1e9 {
        return NEVER;
    }
    // NaN and negative numbers become zero.
    let wait = (seconds.max(0.0) * 1000.0).ceil() as u64;
    if wait == 0 { now_ms } else { now_ms + wait + sys::COARSE_LAG_MS }
}

/// Runs `future` until it is done or `deadline` has passed. Work that is done wins over a deadline that has passed.
///
/// # Errors
/// [`Elapsed`]; the future is dropped where it stood.
pub fn within<F: Future>(deadline: &Deadline, future: F) -> Within<'_, F> {
    Within { deadline, future }
}

pin_project! {
    /// What [`within`] returns. An async function would hold `future` twice: as it was given, and as it is polled.
    #[derive(Debug)]
    pub struct Within<'deadline, F> {
        deadline: &'deadline Deadline,
        #[pin]
        future: F,
    }
}

impl<F: Future> Future for Within<'_, F> {
    type Output = Result<F::Output, Elapsed>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let within = self.project();
        if let Poll::Ready(output) = within.future.poll(context) {
            return Poll::Ready(Ok(output));
        }
        within.deadline.poll_passed(context).map(|()| Err(Elapsed))
    }
}

/// Lets every deadline set by [`Deadline::set_idle`] on this thread pass now, and later ones as they are set.
pub(crate) fn end_idle() {
    TIMERS.with(|timers| {
        timers.wheel.borrow_mut().end_idle();
        timers.wake_fired();
    });
}

/// Sweeps this thread's wheel until dropped. The worker starts one a thread.
pub(crate) fn sweeper() -> Sweeper {
    let timers = TIMERS.with(Rc::clone);
    timers.sweeping.set(true);
    timers.wheel.borrow_mut().restart();
    Sweeper { timers, sleep: Box::pin(tokio::time::sleep(Duration::ZERO)) }
}

/// The sweeping task; see [`sweeper`].
pub(crate) struct Sweeper {
    timers: Rc<Timers>,
    sleep: Pin<Box<tokio::time::Sleep>>,
}

impl Timers {
    fn wake_sweeper(&self) {
        if let Some(waker) = self.sleeper.borrow_mut().take() {
            waker.wake();
        }
    }

    /// Wakes what the last sweep found due, with the wheel released.
    fn wake_fired(&self) {
        let mut wakers = std::mem::take(&mut self.wheel.borrow_mut().woken);
        for waker in wakers.drain(..) {
            waker.wake();
        }
        let mut wheel = self.wheel.borrow_mut();
        if wheel.woken.is_empty() {
            wheel.woken = wakers;
        }
    }
}

impl Future for Sweeper {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        loop {
            let now_ms = sys::monotonic_ms() - this.timers.zero_ms;
            let next_ms = this.timers.wheel.borrow_mut().sweep(now_ms);
            this.timers.wake_fired();
            *this.timers.sleeper.borrow_mut() = Some(context.waker().clone());
            let Some(next_ms) = next_ms else { return Poll::Pending };
            let wait = Duration::from_millis(next_ms.saturating_sub(now_ms).max(1));
            this.sleep.as_mut().reset(tokio::time::Instant::now() + wait);
            if this.sleep.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
        }
    }
}

impl Drop for Sweeper {
    fn drop(&mut self) {
        self.timers.sweeping.set(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker;
    use std::future::pending;
    use std::time::Instant;

    #[test]
    fn passes_late_but_never_early() {
        worker::block_on(async {
            let deadline = Deadline::new();
            for wait in [0.0, 0.001, 0.03] {
                let start = Instant::now();
                deadline.set(wait);
                assert_eq!(within(&deadline, pending::<()>()).await, Err(Elapsed));
                let took = start.elapsed().as_secs_f64();
                assert!(took >= wait, "{took} after {wait}");
                assert!(took < wait + 30.0, "{took} after {wait}");
            }
        });
    }

    #[test]
    fn sooner_ones_are_not_kept_waiting_by_later_ones() {
        worker::block_on(async {
            let deadline = Deadline::new();
            deadline.set(1000.0);
            tokio::task::yield_now().await;
            let start = Instant::now();
            deadline.set(0.02);
            assert_eq!(within(&deadline, pending::<()>()).await, Err(Elapsed));
            assert!(start.elapsed() < Duration::from_secs(100));
        });
    }

    #[test]
    fn moved_or_cleared_deadlines_do_not_pass() {
        worker::block_on(async {
            let (moved, cleared, witness) = (Deadline::new(), Deadline::new(), Deadline::new());
            moved.set(0.01);
            cleared.set(0.01);
            moved.set(100.0);
            cleared.clear();
            witness.set(0.06);
            assert!(within(&witness, pending::<()>()).await.is_err());
            assert!(!moved.passed() && !cleared.passed());
            assert_eq!(within(&moved, async { 5 }).await, Ok(5));
        });
    }

    #[test]
    fn done_work_wins_over_a_passed_deadline() {
        worker::block_on(async {
            let deadline = Deadline::new();
            deadline.set(0.0);
            assert!(within(&deadline, pending::<()>()).await.is_err());
            assert!(deadline.passed());
            assert_eq!(within(&deadline, async { 1 }).await, Ok(1));
            deadline.set(5.0);
            assert!(!deadline.passed());
        });
    }

    #[test]
    fn odd_lengths_are_clamped() {
        assert_eq!(due_ms(7, f64::NAN), 7);
        assert_eq!(due_ms(7, -3.0), 7);
        assert_eq!(due_ms(7, f64::INFINITY), NEVER);
        assert_eq!(due_ms(7, 1.0), 1017);
    }
}
