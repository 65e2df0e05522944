//! Users and groups, by name and by number. Looking one up may ask a directory service and block: see [`crate::blocking`].

use crate::sys;
use std::io;

/// A user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct User {
    /// Its number.
    pub id: u32,
    /// The number of its login group.
    pub group: u32,
}

/// The user of that name, if there is one.
///
/// # Errors
/// The system cannot say, or the name cannot be one.
pub fn user(name: &str) -> io::Result<Option<User>> {
    let found = sys::user_ids(name)?;
    Ok(found.map(|(id, group)| User { id, group }))
}

/// The number of the group of that name, if there is one.
///
/// # Errors
/// The system cannot say, or the name cannot be one.
pub fn group(name: &str) -> io::Result<Option<u32>> {
    sys::group_id(name)
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_everywhere() {
        assert_eq!(user("root").unwrap(), Some(User { id: 0, group: 0 }));
        assert_eq!(group("root").unwrap(), Some(0));
        assert_eq!(user("///").unwrap(), None);
        assert_eq!(group("").unwrap(), None);
    }
}
