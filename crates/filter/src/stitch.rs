//! One gzip stream made of pieces: deflate blocks that were stored apart, whole gzip streams, and plain bytes.
//!
//! ```text
//! header | blocks of a piece | stored block of plain bytes | blocks of a stream, its mark of the last taken off | ... | last block, empty | CRC, length
//! ```
//!
//! Each part ends at a whole byte: an empty stored block brings it there. The checksum of the whole is made from those of the
//! parts, so nothing is expanded.
//!
//! Source: RFC 1951 (blocks), RFC 1952 (header and trailer).

use super::Failure;
use super::scan::Scan;
use zlib_rs::crc32::{crc32, crc32_combine};

/// A header without time, name and system.
const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];

/// An empty stored block that is the last, and one that is not; without their first three bits and what fills up the byte.
const LAST: [u8; 5] = [1, 0, 0, 0xff, 0xff];
const EMPTY: [u8; 4] = [0, 0, 0xff, 0xff];

/// The most bytes in a stored block.
const STORED_MAX: usize = 0xffff;

/// Bytes after the last block: CRC and length.
const TRAILER: usize = 8;

/// The stream that is being made.
#[derive(Debug, Default)]
pub struct Stitch {
    crc: u32,
    length: u64,
}

impl Stitch {
    /// Appends what the stream begins with.
    pub fn begin(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(&HEADER);
    }

    /// Counts a part that the caller writes: what it expands to.
    pub fn count(&mut self, crc: u32, length: u64) {
        self.crc = crc32_combine(self.crc, crc, length);
        self.length = self.length.wrapping_add(length);
    }

    /// Appends plain bytes as they are.
    pub fn plain(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        for part in bytes.chunks(STORED_MAX) {
            let length = part.len() as u16;
            out.push(0);
            out.extend_from_slice(&length.to_le_bytes());
            out.extend_from_slice(&(!length).to_le_bytes());
            out.extend_from_slice(part);
            self.count(crc32(0, part), part.len() as u64);
        }
    }

    /// Appends what the stream ends with.
    pub fn end(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(&LAST);
        out.extend_from_slice(&self.crc.to_le_bytes());
        out.extend_from_slice(&(self.length as u32).to_le_bytes());
    }
}

/// A whole gzip stream on its way into another.
pub struct Member {
    scan: Scan,
    /// Bytes of it that were taken, up to the end of its last block.
    taken: u64,
    unmarked: bool,
    trailer: Vec<u8>,
}

impl std::fmt::Debug for Member {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Member").field("taken", &self.taken).finish_non_exhaustive()
    }
}

impl Default for Member {
    fn default() -> Self {
        Self::new()
    }
}

impl Member {
    /// A stream of which nothing has come.
    pub fn new() -> Self {
        Self { scan: Scan::new(), taken: 0, unmarked: false, trailer: Vec::with_capacity(TRAILER) }
    }

    /// Appends what `input` brings to the stream: no more than its length and five bytes.
    ///
    /// # Errors
    /// It is no gzip stream, or something follows it.
    pub fn feed(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(), Failure> {
        let mut rest = input;
        if !self.scan.is_at_end() {
            let used = self.scan.feed(input);
            if self.scan.is_broken() {
                return Err(Failure::Invalid("not a deflate stream".to_owned()));
            }
            self.blocks(&input[..used], out);
            rest = &input[used..];
        }
        self.trailer.extend_from_slice(&rest[..rest.len().min(TRAILER + 1 - self.trailer.len())]);
        if self.trailer.len() > TRAILER { Err(Failure::Junk) } else { Ok(()) }
    }

    /// Appends the next bytes of the stream as far as they are blocks.
    fn blocks(&mut self, input: &[u8], out: &mut Vec<u8>) {
        let from = self.taken;
        self.taken += input.len() as u64;
        let bits = self.scan.bits();
        // Zero while the header is not at its end: it has ten bytes.
        if bits.start == 0 {
            return;
        }
        let header = (bits.start / 8).saturating_sub(from).min(input.len() as u64) as usize;
        let first = out.len();
        out.extend_from_slice(&input[header..]);
        let begin = from + header as u64;
        if self.scan.in_last_block() && !self.unmarked {
            // The bit lies in this piece: the scanner looks at it as soon as it has its byte.
            self.unmarked = true;
            if let Some(byte) =
                (bits.last / 8).checked_sub(begin).and_then(|at| out.get_mut(first + at as usize))
            {
                *byte &= !(1 << (bits.last % 8));
            }
        }
        if self.scan.is_at_end() {
            let residue = bits.stop % 8;
            match out.last_mut() {
                Some(last) if residue > 0 => *last &= (1 << residue) - 1,
                _ => {}
            }
            // The head of the empty block has three bits.
            if residue == 0 || residue > 5 {
                out.push(0);
            }
            out.extend_from_slice(&EMPTY);
        }
    }

    /// The stream is at its end: counts it.
    ///
    /// # Errors
    /// It is not at its own.
    pub fn finish(&self, stitch: &mut Stitch) -> Result<(), Failure> {
        if self.taken == 0 && self.trailer.is_empty() {
            // A body without a byte, whatever its head says.
            return Ok(());
        }
        let Ok(trailer) = <[u8; TRAILER]>::try_from(self.trailer.as_slice()) else {
            return Err(Failure::Truncated);
        };
        let [a, b, c, d, length @ ..] = trailer;
        if u32::from_le_bytes(length) != self.scan.expanded() as u32 {
            return Err(Failure::Invalid("incorrect length check".to_owned()));
        }
        stitch.count(u32::from_le_bytes([a, b, c, d]), self.scan.expanded());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{gunzip, gzip, noise};
    use super::*;
    use proptest::prelude::*;

    fn member(stream: &[u8], chop: usize, stitch: &mut Stitch, out: &mut Vec<u8>) -> Result<(), Failure> {
        let mut member = Member::new();
        for piece in stream.chunks(chop.max(1)) {
            member.feed(piece, out)?;
        }
        member.finish(stitch)
    }

    fn check(parts: &[(&[u8], Option<i32>)], chop: usize) {
        let (mut stitch, mut out, mut expected) = (Stitch::default(), Vec::new(), Vec::new());
        stitch.begin(&mut out);
        for (plain, level) in parts {
            expected.extend_from_slice(plain);
            match level {
                Some(level) => member(&gzip(plain, *level), chop, &mut stitch, &mut out).unwrap(),
                None => stitch.plain(plain, &mut out),
            }
        }
        stitch.end(&mut out);
        assert!(gunzip(&out) == expected, "in pieces of {chop}");
    }

    #[test]
    fn streams_and_plain_bytes_join() {
        let large = noise(150_000);
        for chop in [1, 2, 3, 100, usize::MAX] {
            check(&[], chop);
            check(&[(b"", Some(6)), (b"", None), (b"", Some(0))], chop);
            check(
                &[(b"a", Some(6)), (b"bc", None), (&large, Some(6)), (&large, None), (b"d", Some(9))],
                chop,
            );
            check(&[(&large, Some(1)), (&b"abc".repeat(50_000), Some(9)), (&large, Some(0))], chop);
        }
    }

    #[test]
    fn every_residue_occurs() {
        let mut seen = [false; 8];
        for length in 0..200 {
            let plain = noise(length);
            let stream = gzip(&plain, 9);
            let mut scan = Scan::new();
            scan.feed(&stream);
            seen[(scan.bits().stop % 8) as usize] = true;
            check(&[(&plain, Some(9)), (b"x", Some(9))], 7);
        }
        assert_eq!(seen, [true; 8]);
    }

    #[test]
    fn what_is_no_whole_stream_is_refused() {
        let good = gzip(b"bar bar", 6);
        let mut wrong = good.clone();
        wrong[good.len() - 1] ^= 1;
        let mut out = Vec::new();
        for (stream, expected) in [
            (&good[..good.len() - 1], Failure::Truncated),
            (&good[..11], Failure::Truncated),
            (&[&good[..], b"x"].concat(), Failure::Junk),
            (&b"hello world"[..], Failure::Invalid("not a deflate stream".to_owned())),
            (&wrong, Failure::Invalid("incorrect length check".to_owned())),
        ] {
            assert_eq!(member(stream, 3, &mut Stitch::default(), &mut out), Err(expected));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_taken_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), chop in 1usize..30) {
            let stream = [&gzip(b"", 6)[..10], &bytes].concat();
            let mut out = Vec::new();
            let _ = member(&stream, chop, &mut Stitch::default(), &mut out);
            prop_assert!(out.len() <= stream.len() + 5);
        }
    }
}
