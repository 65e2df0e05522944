//! A value that is replaced while it is in use: settings, the active VCL.
//!
//! Writers are rare and take a lock. A reader keeps the last value it saw and looks at one shared counter, which stays
//! in every core's cache until somebody writes, so reading costs a load and no reference count is moved.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The shared side: holds the newest value.
#[derive(Debug)]
pub struct Live<T> {
    version: AtomicU64,
    value: Mutex<Arc<T>>,
}

impl<T> Live<T> {
    /// Starts with `value`.
    pub fn new(value: T) -> Self {
        Self { version: AtomicU64::new(1), value: Mutex::new(Arc::new(value)) }
    }

    /// The newest value.
    pub fn get(&self) -> Arc<T> {
        Arc::clone(&self.value.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the value; readers see it at their next look.
    pub fn set(&self, value: T) {
        let mut slot = self.value.lock().unwrap_or_else(PoisonError::into_inner);
        *slot = Arc::new(value);
        self.version.fetch_add(1, Ordering::Release);
    }

    /// Changes a copy of the value and puts it in place, as one step among writers.
    pub fn update(&self, change: impl FnOnce(&mut T))
    where
        T: Clone,
    {
        let mut slot = self.value.lock().unwrap_or_else(PoisonError::into_inner);
        let mut next = T::clone(&slot);
        change(&mut next);
        *slot = Arc::new(next);
        self.version.fetch_add(1, Ordering::Release);
    }

    /// A reader of its own for one thread.
    pub fn reader(self: &Arc<Self>) -> LiveReader<T> {
        let version = self.version.load(Ordering::Acquire);
        LiveReader { live: Arc::clone(self), version, value: self.get() }
    }
}

/// One thread's view of a [`Live`] value.
#[derive(Debug)]
pub struct LiveReader<T> {
    live: Arc<Live<T>>,
    version: u64,
    value: Arc<T>,
}

impl<T: Default> Default for Live<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> LiveReader<T> {
    /// The newest value; one load where nothing changed.
    #[inline]
    pub fn current(&mut self) -> &Arc<T> {
        let version = self.live.version.load(Ordering::Acquire);
        if version != self.version {
            // The version is read before the value: a change in between is seen again next time.
            self.version = version;
            self.value = self.live.get();
        }
        &self.value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reader_sees_each_change() {
        let live = Arc::new(Live::new(1));
        let mut reader = live.reader();
        assert_eq!(**reader.current(), 1);
        live.set(2);
        assert_eq!(**reader.current(), 2);
        live.update(|value| *value += 5);
        assert_eq!(**reader.current(), 7);
    }
}
