//! Stored objects as a thread that serves them knows them.

use crate::repeats::Repeats;
use catalog::index::hot;
use copal_catalog as catalog;
use std::cell::RefCell;

/// An object with its head taken apart, and beside it its response, once that has been made a few times.
pub type Known = hot::Known<RefCell<Repeats>>;

/// A thread's table of those it serves most.
pub(crate) type Hot = hot::Hot<RefCell<Repeats>>;
