//! The last panic, kept for `panic.show`, and written to the process log when it happens.

use crate::log;
use copal_base::clock::{Clock, SystemClock};
use copal_wire as wire;
use std::sync::{Mutex, PoisonError};

static LAST: Mutex<Option<String>> = Mutex::new(None);

/// Catches the words of every panic from now on, on any thread.
pub(crate) fn watch() {
    std::panic::set_hook(Box::new(|info| {
        let thread = std::thread::current().name().unwrap_or("unnamed").to_owned();
        let place = info.location().map_or_else(String::new, ToString::to_string);
        let payload = info.payload();
        let message = payload.downcast_ref::<&str>().copied();
        let message = message.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        let message = message.unwrap_or("no message");
        log::error("panic", &[("thread", &thread), ("place", &place), ("message", &message)]);
        let date = wire::date::format(SystemClock.now());
        let date = String::from_utf8_lossy(&date);
        let trace = std::backtrace::Backtrace::force_capture();
        let text = format!("Panic at: {date}\nthread {thread} at {place}: {message}\n{trace}\n");
        *LAST.lock().unwrap_or_else(PoisonError::into_inner) = Some(text);
    }));
}

/// The last panic, unless it was cleared.
pub(crate) fn last() -> Option<String> {
    LAST.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Forgets the last panic; says whether there was one.
pub(crate) fn clear() -> bool {
    LAST.lock().unwrap_or_else(PoisonError::into_inner).take().is_some()
}
