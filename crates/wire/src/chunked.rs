//! The chunked transfer coding: a strict decoder that never copies, and the few bytes an encoder needs.
//!
//! ```text
//! Start -digit-> Size -CR-> SizeLf -LF-> Data -last byte-> DataCr -CR-> DataLf -LF-> Start
//!                Size -;--> Extension -CR-> SizeLf
//!                Size -SP-> Space -;-> Extension
//! size 0:                   SizeLf -LF-> TrailerStart -CR-> EndLf -LF-> Done
//! TrailerStart -token-> TrailerName -:-> TrailerValue -CR-> TrailerLf -LF-> TrailerStart
//! ```
//! Strict means: CRLF is CR LF and nothing else, a size is 1 to 16 hexadecimal digits and nothing else, data is followed
//! by CRLF. Chunk extensions and trailers are checked, bounded and dropped: a trailer never becomes a field.
//!
//! Source: RFC 9112, section 7.1.

use crate::{Reject, syntax};
use std::ops::Range;

/// The last chunk, without trailers.
pub const LAST: &[u8] = b"0\r\n\r\n";
/// What follows the data of every chunk but the last.
pub const END: &[u8] = b"\r\n";

/// Digits of a chunk size: 16 hexadecimal digits are 64 bits.
const DIGITS_MAX: u8 = 16;
/// Bytes of chunk extensions in one body. Nobody uses them but to hide something or to make us work.
const EXTENSION_BYTES_MAX: u32 = 8 << 10;
/// Bytes of all trailer lines of one body.
const TRAILER_BYTES_MAX: u32 = 8 << 10;
/// Trailer lines of one body.
const TRAILER_LINES_MAX: u32 = 64;

/// Appends the line before a chunk's data; [`END`] follows the data. A chunk of no bytes would end the body, so for
/// `len` 0 nothing is written: leave the chunk out.
pub fn head(len: usize, out: &mut Vec<u8>) {
    if len == 0 {
        return;
    }
    let digits = (usize::BITS - len.leading_zeros()).div_ceil(4);
    for place in (0..digits).rev() {
        out.push(b"0123456789abcdef"[len >> (4 * place) & 15]);
    }
    out.extend_from_slice(END);
}

/// What one call of [`Decoder::decode`] found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Bytes of the input that are used up, data included. Call again with the rest.
    pub consumed: usize,
    /// Where in the input body bytes stand; may be empty.
    pub data: Range<usize>,
    /// The body is complete; what follows `consumed` belongs to the next message.
    pub done: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Start,
    Size {
        digits: u8,
    },
    /// White space after the size, which only an extension may follow.
    Space,
    Extension,
    SizeLf,
    Data,
    DataCr,
    DataLf,
    TrailerStart,
    TrailerName,
    TrailerValue,
    TrailerLf,
    EndLf,
    Done,
}

/// Decodes one body, given in pieces of any size. After an error every further call gives the same error.
#[derive(Debug, Clone)]
pub struct Decoder {
    state: State,
    /// Bytes left of the present chunk, or its size while that is being read.
    left: u64,
    extension_bytes: u32,
    trailer_bytes: u32,
    trailer_lines: u32,
    failed: Option<Reject>,
}

impl Default for Decoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Decoder {
    /// At the start of a body.
    pub const fn new() -> Self {
        Self {
            state: State::Start,
            left: 0,
            extension_bytes: 0,
            trailer_bytes: 0,
            trailer_lines: 0,
            failed: None,
        }
    }

    /// Whether the body is complete.
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Decodes up to the end of the next piece of data, of `input`, or of the body, whichever is first. An empty `data`
    /// without `done` means that all of `input` is consumed and more is needed.
    ///
    /// # Errors
    /// What is malformed or too long. The body is then broken off: nothing of it may be taken as complete.
    pub fn decode(&mut self, input: &[u8]) -> Result<Step, Reject> {
        if let Some(reject) = self.failed {
            return Err(reject);
        }
        self.advance(input).inspect_err(|&reject| self.failed = Some(reject))
    }

    fn advance(&mut self, input: &[u8]) -> Result<Step, Reject> {
        let mut at = 0;
        while at < input.len() && self.state != State::Done {
            if self.state == State::Data {
                let available = (input.len() - at) as u64;
                let taken = available.min(self.left) as usize;
                self.left -= taken as u64;
                if self.left == 0 {
                    self.state = State::DataCr;
                }
                return Ok(Step { consumed: at + taken, data: at..at + taken, done: false });
            }
            self.state = self.step(input[at])?;
            at += 1;
        }
        Ok(Step { consumed: at, data: at..at, done: self.is_done() })
    }

    /// The edges of the diagram, all but Data's.
    fn step(&mut self, byte: u8) -> Result<State, Reject> {
        match self.state {
            State::Start => {
                self.left = hex_digit(byte)?;
                Ok(State::Size { digits: 1 })
            }
            State::Size { digits } => match byte {
                // Beyond what peers can count, nothing will ever be whole.
                _ if self.left > i64::MAX as u64 => Err(Reject::ChunkSize),
                b'\r' => Ok(State::SizeLf),
                b';' => self.extension(byte),
                b' ' | b'\t' => {
                    self.extension(byte)?;
                    Ok(State::Space)
                }
                _ if digits == DIGITS_MAX => Err(Reject::ChunkSize),
                _ => {
                    self.left = self.left << 4 | hex_digit(byte)?;
                    Ok(State::Size { digits: digits + 1 })
                }
            },
            State::Space => match byte {
                b' ' | b'\t' => {
                    self.extension(byte)?;
                    Ok(State::Space)
                }
                b';' => self.extension(byte),
                _ => Err(Reject::ChunkSize),
            },
            State::Extension if byte == b'\r' => Ok(State::SizeLf),
            State::Extension => self.extension(byte),
            State::SizeLf if byte != b'\n' => Err(Reject::LineEnd),
            State::SizeLf if self.left == 0 => Ok(State::TrailerStart),
            State::SizeLf => Ok(State::Data),
            State::DataCr if byte == b'\r' => Ok(State::DataLf),
            State::DataLf if byte == b'\n' => Ok(State::Start),
            State::DataCr | State::DataLf => Err(Reject::ChunkEnd),
            State::TrailerStart | State::TrailerName | State::TrailerValue | State::TrailerLf => {
                self.trailer(byte)
            }
            State::EndLf if byte == b'\n' => Ok(State::Done),
            State::EndLf => Err(Reject::LineEnd),
            // `advance` takes these two itself.
            State::Data | State::Done => Ok(self.state),
        }
    }

    fn extension(&mut self, byte: u8) -> Result<State, Reject> {
        self.extension_bytes += 1;
        if self.extension_bytes > EXTENSION_BYTES_MAX || !syntax::is_value_byte(byte) {
            return Err(Reject::ChunkExtension);
        }
        Ok(State::Extension)
    }

    fn trailer(&mut self, byte: u8) -> Result<State, Reject> {
        if self.state == State::TrailerStart && byte == b'\r' {
            return Ok(State::EndLf);
        }
        self.trailer_bytes += 1;
        if self.trailer_bytes > TRAILER_BYTES_MAX {
            return Err(Reject::TrailerTooLarge);
        }
        match self.state {
            State::TrailerStart => {
                self.trailer_lines += 1;
                if self.trailer_lines > TRAILER_LINES_MAX {
                    return Err(Reject::TrailerTooLarge);
                }
                if syntax::is_token_byte(byte) { Ok(State::TrailerName) } else { Err(Reject::Trailer) }
            }
            State::TrailerName if byte == b':' => Ok(State::TrailerValue),
            State::TrailerName if syntax::is_token_byte(byte) => Ok(State::TrailerName),
            State::TrailerValue if byte == b'\r' => Ok(State::TrailerLf),
            State::TrailerValue if syntax::is_value_byte(byte) => Ok(State::TrailerValue),
            State::TrailerLf if byte == b'\n' => Ok(State::TrailerStart),
            _ => Err(Reject::Trailer),
        }
    }
}

fn hex_digit(byte: u8) -> Result<u64, Reject> {
    char::from(byte).to_digit(16).map(u64::from).ok_or(Reject::ChunkSize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Decodes `input` given in pieces of `piece` bytes: the body, how much was used, whether it ended.
    fn decode(input: &[u8], piece: usize) -> Result<(Vec<u8>, usize, bool), Reject> {
        let mut decoder = Decoder::new();
        let (mut body, mut at) = (Vec::new(), 0);
        for part in input.chunks(piece.max(1)) {
            let mut used = 0;
            while used < part.len() && !decoder.is_done() {
                let step = decoder.decode(&part[used..])?;
                body.extend_from_slice(&part[used..][step.data]);
                used += step.consumed;
                assert!(step.consumed > 0);
                assert_eq!(step.done, decoder.is_done());
            }
            at += used;
        }
        Ok((body, at, decoder.is_done()))
    }

    fn check(input: &str, expected: Result<&str, Reject>) {
        for piece in [1, 2, 3, 7, input.len()] {
            let found = decode(input.as_bytes(), piece);
            match expected {
                Ok(body) => {
                    assert_eq!(
                        found,
                        Ok((body.as_bytes().to_vec(), input.len(), true)),
                        "{input:?} by {piece}"
                    );
                }
                Err(reject) => assert_eq!(found.map(|_| ()), Err(reject), "{input:?} by {piece}"),
            }
        }
    }

    #[test]
    fn rfc9112_7_1_bodies() {
        check("0\r\n\r\n", Ok(""));
        check("3\r\nabc\r\n0\r\n\r\n", Ok("abc"));
        check("000000000000000a\r\n0123456789\r\n00\r\n\r\n", Ok("0123456789"));
        check("3;a=b;c=\"d e\"\r\nabc\r\n2 ;x\r\nde\r\n0;last\r\n\r\n", Ok("abcde"));
    }

    #[test]
    fn rfc9112_7_1_2_trailers_are_checked_and_dropped() {
        check("3\r\nabc\r\n0\r\nContent-Length: 30\r\nHost: evil\r\nX:\r\n\r\n", Ok("abc"));
        for bad in ["X : a", "X", " X: a", "X: a\r\n b", ": a", "X\u{e9}: a", "X: a\x00", "X: \rb"] {
            check(&format!("0\r\n{bad}\r\n\r\n"), Err(Reject::Trailer));
        }
        check(&format!("0\r\nX: {}\r\n\r\n", "t".repeat(9000)), Err(Reject::TrailerTooLarge));
        check(&format!("0\r\n{}\r\n", "X: t\r\n".repeat(65)), Err(Reject::TrailerTooLarge));
        check("0\r\nX: a\n\r\n", Err(Reject::Trailer));
    }

    #[test]
    fn rfc9112_7_1_sizes_that_are_none() {
        for bad in [
            "+3",
            "-3",
            " 3",
            "\t3",
            "g",
            "0x3",
            "3_0",
            "3\0",
            "3 ",
            "3\t\r",
            "",
            "3\u{e9}",
            "3,3",
            "10000000000000003",
        ] {
            check(&format!("{bad}\r\nabc\r\n0\r\n\r\n"), Err(Reject::ChunkSize));
        }
    }

    #[test]
    fn rfc9112_7_1_line_ends_are_crlf_only() {
        check("3\nabc\r\n0\r\n\r\n", Err(Reject::ChunkSize));
        check("3\rabc\r\n0\r\n\r\n", Err(Reject::LineEnd));
        check("2;\nxx\r\n5\r\n0\r\n\r\n", Err(Reject::ChunkExtension));
        check("2;\rxx\r\n5\r\n0\r\n\r\n", Err(Reject::LineEnd));
        check("2;\x01\r\nxx\r\n0\r\n\r\n", Err(Reject::ChunkExtension));
        check("3\r\nabcdef\r\n0\r\n\r\n", Err(Reject::ChunkEnd));
        check("3\r\nabc\n0\r\n\r\n", Err(Reject::ChunkEnd));
        check("3\r\nabc\r0\r\n\r\n", Err(Reject::ChunkEnd));
        check("0\r\n\n", Err(Reject::Trailer));
        check("0\r\n\rX", Err(Reject::LineEnd));
    }

    #[test]
    fn extensions_are_bounded_over_the_whole_body() {
        check(&format!("3;{}\r\nabc\r\n0\r\n\r\n", "a".repeat(9000)), Err(Reject::ChunkExtension));
        check(
            &format!("{}0\r\n\r\n", "1;aaaaaaaaaaaaaaaaaaaaaaaa\r\nx\r\n".repeat(2000)),
            Err(Reject::ChunkExtension),
        );
    }

    #[test]
    fn what_follows_the_body_is_left_alone_and_errors_stay() {
        let input = b"1\r\nx\r\n0\r\n\r\nGET / HTTP/1.1\r\n";
        assert_eq!(decode(input, input.len()), Ok((b"x".to_vec(), 11, true)));
        assert_eq!(decode(b"10\r\nabc", 2), Ok((b"abc".to_vec(), 7, false)));
        let mut decoder = Decoder::new();
        assert_eq!(decoder.decode(b"x"), Err(Reject::ChunkSize));
        assert_eq!(decoder.decode(b"0\r\n\r\n"), Err(Reject::ChunkSize));
    }

    #[test]
    fn heads() {
        for (len, text) in [(0, ""), (1, "1\r\n"), (15, "f\r\n"), (16, "10\r\n"), (0xabcdef, "abcdef\r\n")] {
            let mut out = Vec::new();
            head(len, &mut out);
            assert_eq!(out, text.as_bytes());
        }
        let mut out = Vec::new();
        head(usize::MAX, &mut out);
        assert_eq!(out, b"ffffffffffffffff\r\n");
    }

    proptest! {
        #[test]
        fn decoding_what_was_encoded_gives_it_back(
            parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..50), 0..10),
            piece in 1usize..40,
        ) {
            let mut wire = Vec::new();
            for part in parts.iter().filter(|part| !part.is_empty()) {
                head(part.len(), &mut wire);
                wire.extend_from_slice(part);
                wire.extend_from_slice(END);
            }
            wire.extend_from_slice(LAST);
            prop_assert_eq!(decode(&wire, piece), Ok((parts.concat(), wire.len(), true)));
        }

        #[test]
        fn pieces_make_no_difference(input in "[0-9a-f;:X \r\n]{0,40}", piece in 1usize..10) {
            prop_assert_eq!(decode(input.as_bytes(), piece), decode(input.as_bytes(), 1000));
        }

        #[test]
        fn any_bytes_decode_without_a_panic(input in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(&input, 64);
        }
    }
}
