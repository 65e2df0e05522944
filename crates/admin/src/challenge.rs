//! Showing that one knows the secret without sending it.
//!
//! The server sends 32 letters. The answer is the SHA-256, in lower-case hexadecimal, of
//! `challenge LF secret challenge LF`, where the secret is the secret file's bytes as they are.

use sha2::{Digest, Sha256};
use std::fmt::Write as _;

/// Letters in a challenge.
pub const LENGTH: usize = 32;

/// One challenge; good for one answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Challenge(String);

impl Challenge {
    /// Makes the letters from random bytes that nobody can foresee.
    pub fn new(random: [u8; LENGTH]) -> Self {
        Self(random.iter().map(|byte| char::from(b'a' + byte % 26)).collect())
    }

    /// Finds the challenge in the body of a reply of status 107: its first line.
    pub fn parse(body: &[u8]) -> Option<Self> {
        let letters = body.get(..LENGTH)?;
        let whole = body.get(LENGTH) == Some(&b'\n') && letters.iter().all(u8::is_ascii_lowercase);
        whole.then(|| Self(letters.iter().map(|&letter| char::from(letter)).collect()))
    }

    /// The body of the reply that puts it to the peer.
    pub fn text(&self) -> String {
        format!("{}\n\nAuthentication required.\n", self.0)
    }

    /// The answer of one who knows `secret`.
    pub fn answer(&self, secret: &[u8]) -> String {
        let mut hash = Sha256::new();
        hash.update(&self.0);
        hash.update(b"\n");
        hash.update(secret);
        hash.update(&self.0);
        hash.update(b"\n");
        hash.finalize().iter().fold(String::with_capacity(64), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
    }

    /// Whether `answer` is right. Takes the same time wherever a wrong one differs.
    pub fn accepts(&self, secret: &[u8], answer: &str) -> bool {
        let right = self.answer(secret);
        let answer = answer.to_ascii_lowercase();
        if answer.len() != right.len() {
            return false;
        }
        let difference = right.bytes().zip(answer.bytes()).fold(0, |sum, (a, b)| sum | (a ^ b));
        std::hint::black_box(difference) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example in Varnish 7.1's `varnish-cli(7)`: secret file `foo` with its line feed.
    #[test]
    fn the_manuals_example() {
        let challenge =
            Challenge::parse(b"ixslvvxrgkjptxmcgnnsdxsvdmvfympg\n\nAuthentication required.\n").unwrap();
        let answer = "455ce847f0073c7ab3b1465f74507b75d3dc064c1e7de3b71e00de9092fdc89a";
        assert_eq!(challenge.answer(b"foo\n"), answer);
        assert!(challenge.accepts(b"foo\n", answer));
        assert!(challenge.accepts(b"foo\n", &answer.to_uppercase()));
        assert!(!challenge.accepts(b"bar\n", answer));
        assert!(!challenge.accepts(b"foo\n", &answer[1..]));
        assert!(!challenge.accepts(b"foo\n", ""));
    }

    #[test]
    fn letters_come_from_the_bytes() {
        let challenge = Challenge::new(std::array::from_fn(|index| index as u8));
        assert_eq!(challenge.text(), "abcdefghijklmnopqrstuvwxyzabcdef\n\nAuthentication required.\n");
        assert_eq!(Challenge::parse(challenge.text().as_bytes()), Some(challenge));
        assert_eq!(Challenge::parse(b"abc\n"), None);
        assert_eq!(Challenge::parse(&[b'a'; 40]), None);
    }
}
