//! Errors of the system in words for people.

use std::io;

/// What the system says, without the number that Rust adds: `No space left on device`.
pub fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    text.split_once(" (os error").map_or(text.clone(), |(reason, _)| reason.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_left_out() {
        assert_eq!(reason(&io::Error::from_raw_os_error(2)), "No such file or directory");
        assert_eq!(reason(&io::Error::other("as it is")), "as it is");
    }
}
