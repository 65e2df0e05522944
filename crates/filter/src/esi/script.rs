//! How a stored body is delivered: a list of steps in a compact form, kept beside the object.
//!
//! | bytes | meaning |
//! |---|---|
//! | 1 | [`PLAIN`] or [`GZIPPED`]: how the stored body is coded |
//! | | steps, each a letter and what belongs to it: |
//! | `s` n | the next n bytes of the stored body are left out |
//! | `v` n | the next n bytes are sent (plain) |
//! | `v` n crc p | the next n bytes are sent (gzipped): whole deflate blocks, which refer to nothing before them; they expand to p bytes with that CRC-32 |
//! | `i` flags h host u url | a request is made: its host (empty: as in the request that includes), its URL |
//!
//! Numbers are LEB128, lowest seven bits first; the CRC is four bytes, little-endian. What stands after the last step is
//! not sent.

/// The stored body is as it came.
const PLAIN: u8 = b'P';
/// The stored body is a gzip stream.
const GZIPPED: u8 = b'Z';

/// Flags of an include.
const CONTINUE: u8 = 1;

/// The most bytes of a script.
const SCRIPT_MAX: usize = 8 << 20;

/// One step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step<'script> {
    /// Leave out so many bytes of the stored body.
    Skip(u64),
    /// Send so many.
    Send(Piece),
    /// Include a body.
    Include(Include<'script>),
}

/// A part of the stored body that is sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Piece {
    /// Stored bytes.
    pub stored: u64,
    /// What they expand to, if the body is gzipped.
    pub plain: u64,
    /// CRC-32 of that.
    pub crc: u32,
}

/// What is included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Include<'script> {
    /// Empty: the same as of the request that includes.
    pub host: &'script [u8],
    /// As the request line is to have it.
    pub url: &'script [u8],
    /// `onerror="continue"`.
    pub may_fail: bool,
}

/// Writes a script.
#[derive(Debug)]
pub struct Writer {
    bytes: Vec<u8>,
    gzipped: bool,
    /// A skip that may still grow.
    skip: u64,
    /// A plain piece that may still grow.
    piece: u64,
}

impl Writer {
    /// A script without a step, for a body that is stored as a gzip stream or as it came.
    pub fn new(gzipped: bool) -> Self {
        Self { bytes: vec![if gzipped { GZIPPED } else { PLAIN }], gzipped, skip: 0, piece: 0 }
    }

    fn number(&mut self, mut number: u64) {
        loop {
            let low = (number & 0x7f) as u8;
            number >>= 7;
            if number == 0 {
                return self.bytes.push(low);
            }
            self.bytes.push(low | 0x80);
        }
    }

    fn flush(&mut self) {
        for (letter, count) in
            [(b's', std::mem::take(&mut self.skip)), (b'v', std::mem::take(&mut self.piece))]
        {
            if count > 0 {
                self.bytes.push(letter);
                self.number(count);
            }
        }
    }

    /// The next `count` stored bytes are left out.
    pub fn skip(&mut self, count: u64) {
        if self.piece > 0 {
            self.flush();
        }
        self.skip += count;
    }

    /// The next stored bytes are sent.
    pub fn send(&mut self, piece: Piece) {
        if self.skip > 0 {
            self.flush();
        }
        if !self.gzipped {
            self.piece += piece.stored;
        } else if piece.stored > 0 {
            self.bytes.push(b'v');
            self.number(piece.stored);
            self.bytes.extend_from_slice(&piece.crc.to_le_bytes());
            self.number(piece.plain);
        }
    }

    /// A body is put here.
    pub fn include(&mut self, include: &Include<'_>) {
        self.flush();
        self.bytes.extend_from_slice(&[b'i', if include.may_fail { CONTINUE } else { 0 }]);
        for text in [include.host, include.url] {
            self.number(text.len() as u64);
            self.bytes.extend_from_slice(text);
        }
    }

    /// Whether it has become longer than is kept.
    pub fn is_too_long(&self) -> bool {
        self.bytes.len() > SCRIPT_MAX
    }

    /// The script's bytes.
    pub fn finish(mut self) -> Box<[u8]> {
        self.flush();
        self.bytes.into_boxed_slice()
    }
}

/// Whether the body that goes with `script` is a gzip stream.
pub fn is_gzipped(script: &[u8]) -> bool {
    script.first() == Some(&GZIPPED)
}

/// Reads a script step by step; keeps how far it came.
#[derive(Debug, Clone, Copy)]
pub struct ScriptReader(usize);

impl ScriptReader {
    /// Before the first step.
    pub fn first() -> Self {
        Self(1)
    }

    /// The next step of `script`; `None` at the end, or where it is no script.
    pub fn next<'script>(&mut self, script: &'script [u8]) -> Option<Step<'script>> {
        let gzipped = is_gzipped(script);
        let mut rest = script.get(self.0..)?;
        let step = match take(&mut rest, 1)?[0] {
            b's' => Step::Skip(number(&mut rest)?),
            b'v' => {
                let mut piece = Piece { stored: number(&mut rest)?, ..Piece::default() };
                if gzipped {
                    piece.crc = u32::from_le_bytes(take(&mut rest, 4)?.try_into().ok()?);
                    piece.plain = number(&mut rest)?;
                }
                Step::Send(piece)
            }
            b'i' => {
                let flags = take(&mut rest, 1)?[0];
                let host_length = number(&mut rest)?;
                let host = take(&mut rest, usize::try_from(host_length).ok()?)?;
                let url_length = number(&mut rest)?;
                let url = take(&mut rest, usize::try_from(url_length).ok()?)?;
                Step::Include(Include { host, url, may_fail: flags & CONTINUE != 0 })
            }
            _ => return None,
        };
        self.0 = script.len() - rest.len();
        Some(step)
    }
}

fn take<'script>(rest: &mut &'script [u8], count: usize) -> Option<&'script [u8]> {
    let (taken, more) = rest.split_at_checked(count)?;
    *rest = more;
    Some(taken)
}

fn number(rest: &mut &[u8]) -> Option<u64> {
    let mut number = 0u64;
    for shift in (0..64).step_by(7) {
        let byte = take(rest, 1)?[0];
        number |= u64::from(byte & 0x7f).checked_shl(shift)?;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn steps(script: &[u8]) -> Vec<Step<'_>> {
        let mut reader = ScriptReader::first();
        std::iter::from_fn(|| reader.next(script)).collect()
    }

    #[test]
    fn steps_come_back_as_they_were_written() {
        for gzipped in [false, true] {
            let mut writer = Writer::new(gzipped);
            let piece =
                Piece { stored: 300, plain: u64::from(gzipped) * 70_000, crc: u32::from(gzipped) * 77 };
            let include = Include { host: b"", url: b"/x", may_fail: true };
            let other = Include { host: b"h", url: &[b'u'; 500], may_fail: false };
            writer.skip(10);
            writer.skip(1);
            writer.send(piece);
            writer.include(&include);
            writer.include(&other);
            writer.skip(u64::MAX >> 1);
            let script = writer.finish();
            assert_eq!(is_gzipped(&script), gzipped);
            let expected = [
                Step::Skip(11),
                Step::Send(piece),
                Step::Include(include),
                Step::Include(other),
                Step::Skip(u64::MAX >> 1),
            ];
            assert_eq!(steps(&script), expected);
        }
    }

    #[test]
    fn plain_pieces_join() {
        let mut writer = Writer::new(false);
        writer.send(Piece { stored: 1, ..Piece::default() });
        writer.send(Piece { stored: 2, ..Piece::default() });
        assert_eq!(steps(&writer.finish()), [Step::Send(Piece { stored: 3, ..Piece::default() })]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(script in prop::collection::vec(any::<u8>(), 0..100)) {
            prop_assert!(steps(&script).len() <= script.len());
        }
    }
}
