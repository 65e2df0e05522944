//! Replies and their frame.
//!
//! ```text
//! offset  size  meaning
//! 0       3     status, decimal, padded to the right with blanks
//! 3       1     blank
//! 4       8     length of the body in bytes, decimal, padded to the right with blanks
//! 12      1     line feed
//! 13      n     body
//! 13+n    1     line feed, not counted
//! ```

use std::fmt;

/// Bytes of a reply before its body.
pub const HEAD: usize = 13;

/// The longest body the frame can say: eight digits.
pub const BODY_MAX: usize = 99_999_999;

/// What became of a command. Source: Varnish 7.1, `varnish-cli(7)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Status {
    /// The line could not be split into words.
    Syntax = 100,
    /// No such command.
    Unknown = 101,
    /// The command is known but not made.
    Unimplemented = 102,
    /// Arguments are missing.
    TooFew = 104,
    /// More arguments than the command takes.
    TooMany = 105,
    /// An argument is wrong.
    Parameter = 106,
    /// The answer to a challenge is wanted.
    Auth = 107,
    /// Done.
    Ok = 200,
    /// Done; the body was cut at the limit for replies.
    Truncated = 201,
    /// Not possible in this state.
    Cant = 300,
    /// The connection failed.
    Comms = 400,
    /// The connection is being closed.
    Close = 500,
}

impl Status {
    /// The number on the wire.
    pub fn code(self) -> u16 {
        self as u16
    }

    /// The status with that number.
    pub fn from_code(code: u16) -> Option<Self> {
        use Status::*;
        [Syntax, Unknown, Unimplemented, TooFew, TooMany, Parameter, Auth, Ok, Truncated, Cant, Comms, Close]
            .into_iter()
            .find(|status| status.code() == code)
    }
}

/// What a command answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// What became of it.
    pub status: Status,
    /// Text for people or scripts; usually ends in a line feed.
    pub body: String,
}

impl Reply {
    /// A reply of any status.
    pub fn new(status: Status, body: impl Into<String>) -> Self {
        Self { status, body: body.into() }
    }

    /// Done, with something to say.
    pub fn ok(body: impl Into<String>) -> Self {
        Self::new(Status::Ok, body)
    }

    /// Done, with nothing to say.
    pub fn done() -> Self {
        Self::ok("")
    }

    /// An argument is wrong.
    pub fn wrong(body: impl Into<String>) -> Self {
        Self::new(Status::Parameter, body)
    }

    /// Not possible in this state.
    pub fn cant(body: impl Into<String>) -> Self {
        Self::new(Status::Cant, body)
    }

    /// Appends the framed reply to `out`. Of a body over `limit` bytes, what fits goes out, and an OK becomes
    /// [`Status::Truncated`].
    pub fn write(&self, limit: usize, out: &mut Vec<u8>) {
        let limit = limit.min(BODY_MAX);
        if self.body.len() <= limit {
            push_frame(self.status, self.body.as_bytes(), out);
            return;
        }
        let mut cut = limit.saturating_sub(1);
        while !self.body.is_char_boundary(cut) {
            cut -= 1;
        }
        let status = if self.status == Status::Ok { Status::Truncated } else { self.status };
        push_frame(status, &self.body.as_bytes()[..cut], out);
    }
}

fn push_frame(status: Status, body: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(format!("{:<3} {:<8}\n", status.code(), body.len()).as_bytes());
    out.extend_from_slice(body);
    out.push(b'\n');
}

/// Why the head of a reply could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadHead(String);

impl fmt::Display for BadHead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\" is not the head of a reply", self.0)
    }
}

impl std::error::Error for BadHead {}

/// Reads the head of a reply: its status number, which may be one we do not know, and the length of its body.
///
/// # Errors
/// [`BadHead`] if the bytes do not follow the frame.
pub fn parse_head(head: &[u8; HEAD]) -> Result<(u16, usize), BadHead> {
    let bad = || BadHead(head.escape_ascii().to_string());
    let number = |bytes: &[u8]| -> Option<usize> {
        let text = std::str::from_utf8(bytes).ok()?.trim_end_matches(' ');
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        text.parse().ok()
    };
    if head[3] != b' ' || head[12] != b'\n' {
        return Err(bad());
    }
    match (number(&head[..3]), number(&head[4..12])) {
        (Some(status), Some(length)) => Ok((status as u16, length)),
        _ => Err(bad()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(reply: Reply, limit: usize, wire: &str) {
        let mut out = Vec::new();
        reply.write(limit, &mut out);
        assert_eq!(String::from_utf8(out.clone()).unwrap(), wire);
        let (code, length) = parse_head(out[..HEAD].try_into().unwrap()).unwrap();
        assert_eq!(out.len(), HEAD + length + 1);
        assert!(Status::from_code(code).is_some());
    }

    #[test]
    fn frames_as_varnishadm_reads_them() {
        check(Reply::ok("PONG 1795237756 1.0"), 1000, "200 19      \nPONG 1795237756 1.0\n");
        check(Reply::done(), 1000, "200 0       \n\n");
        check(
            Reply::new(Status::TooFew, "Too few parameters\n"),
            1000,
            "104 19      \nToo few parameters\n\n",
        );
    }

    #[test]
    fn long_replies_are_cut_and_say_so() {
        let body = "ä".repeat(100);
        check(Reply::ok(body.clone()), 16, &format!("201 14      \n{}\n", "ä".repeat(7)));
        check(Reply::wrong(body), 0, "106 0       \n\n");
    }

    #[test]
    fn bad_heads_are_refused() {
        for head in
            [b"200 19     x\n", b"2x0 19      \n", b"200x19      \n", b"200         \n", b"200 19       "]
        {
            assert!(parse_head(head).is_err(), "{}", head.escape_ascii());
        }
    }
}
