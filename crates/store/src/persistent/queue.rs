//! A queue between threads that serve, which never wait, and one that works off what they put there.

use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::time::Duration;

/// See the module. What bounds its length is what its entries hold: memory of the store, or a request that waits.
#[derive(Debug)]
pub(super) struct Queue<T> {
    state: Mutex<State<T>>,
    news: Condvar,
}

#[derive(Debug)]
struct State<T> {
    waiting: VecDeque<T>,
    closed: bool,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        let state = State { waiting: VecDeque::new(), closed: false };
        Self { state: Mutex::new(state), news: Condvar::new() }
    }
}

/// What [`Queue::take`] found.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Taken<T> {
    /// The oldest.
    One(T),
    /// Nothing came for as long as was waited.
    Nothing,
    /// Nothing is left, and nothing will come.
    Closed,
}

impl<T> Queue<T> {
    /// Puts `item` at the end; gives it back if the queue is closed.
    pub(super) fn push(&self, item: T) -> Option<T> {
        let mut state = self.state.lock();
        if state.closed {
            return Some(item);
        }
        state.waiting.push_back(item);
        drop(state);
        self.news.notify_one();
        None
    }

    /// Takes the oldest, waiting for one no longer than `limit`.
    pub(super) fn take(&self, limit: Duration) -> Taken<T> {
        let mut state = self.state.lock();
        if state.waiting.is_empty() && !state.closed {
            self.news.wait_for(&mut state, limit);
        }
        match state.waiting.pop_front() {
            Some(item) => Taken::One(item),
            None if state.closed => Taken::Closed,
            None => Taken::Nothing,
        }
    }

    /// From now on nothing comes in.
    pub(super) fn close(&self) {
        self.state.lock().closed = true;
        self.news.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_first_and_what_is_left_after_the_end() {
        let queue = Queue::default();
        let soon = Duration::from_millis(1);
        assert_eq!(queue.take(soon), Taken::Nothing);
        assert_eq!((queue.push(1), queue.push(2)), (None, None));
        assert_eq!(queue.take(soon), Taken::One(1));
        queue.close();
        assert_eq!(queue.push(3), Some(3));
        assert_eq!((queue.take(soon), queue.take(soon)), (Taken::One(2), Taken::Closed));
    }
}
