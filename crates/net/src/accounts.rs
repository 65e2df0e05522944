//! The names of users and groups. Looking one up may ask a directory service and block: see [`crate::blocking`].

use crate::sys;
use std::io;

/// The name of a user; `None` if there is none of that id.
///
/// # Errors
/// The look-up failed.
pub fn user_name(id: u32) -> io::Result<Option<String>> {
    sys::user_name(id)
}

/// The name of a group; `None` if there is none of that id.
///
/// # Errors
/// The look-up failed.
pub fn group_name(id: u32) -> io::Result<Option<String>> {
    sys::group_name(id)
}
