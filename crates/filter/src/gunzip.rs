//! `gunzip` and `testgunzip`: a gzip stream expanded, or only tested and passed on as it is.
//!
//! One member only, as all clients understand it: what follows its end is a fault. The trailer's checksum and length
//! are verified.

use super::scan::Scan;
use super::{Failure, Filter, Notes, STEP, Took};
use copal_observe as observe;
use observe::Tag;
use zlib_rs::{Inflate, InflateError, InflateFlush, Status};

/// How many bytes of output are made at once.
const PIECE: usize = 16 << 10;

/// How many bytes of output one step makes that only tests: a small input may expand a thousand times, and others wait.
const TEST_MAX: usize = 256 << 10;

/// On delivery output waits until there is so much of it, in bytes, or no more comes (varnishd waits for `gzip_buffer`).
const HOLD_MAX: usize = 4 << 10;

/// For whom a gzip filter works, as the log names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// For the store.
    Fetch,
    /// For a client.
    Deliver,
}

impl Side {
    /// Its letter in `Gzip` records.
    pub fn letter(self) -> char {
        match self {
            Self::Fetch => 'F',
            Self::Deliver => 'D',
        }
    }
}

/// See the module.
pub struct Gunzip {
    inflate: Inflate,
    /// For the positions that the log shows; none where nobody reads them.
    scan: Option<Scan>,
    piece: Box<[u8]>,
    tests_only: bool,
    side: Side,
    ended: bool,
    /// On delivery: output that waits, for a piece of some size, or at the stream's end for the body's: who got the whole of
    /// it would take it for good, junk or no junk behind it. At most a step's and [`HOLD_MAX`].
    held: Vec<u8>,
    closed: bool,
}

impl Gunzip {
    /// Expands on fetch. `logged` says whether its record is wanted.
    pub fn new(logged: bool) -> Self {
        Self::made(false, Side::Fetch, logged)
    }

    /// Passes on what it finds to be a whole gzip stream.
    pub fn test(logged: bool) -> Self {
        Self::made(true, Side::Fetch, logged)
    }

    /// Expands on delivery.
    pub fn deliver(logged: bool) -> Self {
        Self::made(false, Side::Deliver, logged)
    }

    fn made(tests_only: bool, side: Side, logged: bool) -> Self {
        Self {
            // A gzip head, and the largest window.
            inflate: Inflate::new(true, 16 + 15),
            scan: logged.then(Scan::new),
            piece: vec![0; PIECE].into_boxed_slice(),
            tests_only,
            side,
            ended: false,
            held: Vec::new(),
            closed: false,
        }
    }

    /// Why the stream is none; and the record that goes with it.
    fn invalid(&self, error: InflateError, notes: &mut dyn Notes) -> Failure {
        let why = self.inflate.error_message().unwrap_or(error.as_str());
        let (code, what) = match error {
            InflateError::NeedDict { .. } => (2, "need dictionary"),
            InflateError::StreamError => (-2, why),
            InflateError::DataError => (-3, why),
            InflateError::MemError => (-4, why),
        };
        notes.record(Tag::Gzip, format_args!("Gunzip error: {code} ({what})"));
        Failure::Invalid(what.to_owned())
    }

    fn junk(&self, notes: &mut dyn Notes) -> Failure {
        if self.side == Side::Deliver {
            notes.record(Tag::Gzip, format_args!("G(un)zip error: 1 (junk after VGZ_END)"));
        }
        Failure::Junk
    }

    /// Expands some of `input`; returns how much of it was used, and whether there may be more to come of that.
    fn expand(
        &mut self,
        input: &[u8],
        out: &mut Vec<u8>,
        notes: &mut dyn Notes,
    ) -> Result<(usize, bool), Failure> {
        let limit = if self.tests_only { TEST_MAX } else { STEP };
        let (mut used, mut made) = (0, 0);
        loop {
            let (before_in, before_out) = (self.inflate.total_in(), self.inflate.total_out());
            let status = self.inflate.decompress(&input[used..], &mut self.piece, InflateFlush::NoFlush);
            let status = status.map_err(|error| self.invalid(error, notes))?;
            let (read, written) = (
                (self.inflate.total_in() - before_in) as usize,
                (self.inflate.total_out() - before_out) as usize,
            );
            used += read;
            made += written;
            if !self.tests_only {
                out.extend_from_slice(&self.piece[..written]);
            }
            self.ended = status == Status::StreamEnd;
            let stands = read == 0 && written == 0;
            let is_full = made >= limit;
            if self.ended || stands || is_full {
                return Ok((used, is_full && !self.ended));
            }
        }
    }
}

impl Filter for Gunzip {
    fn step(
        &mut self,
        input: &[u8],
        end: bool,
        out: &mut Vec<u8>,
        notes: &mut dyn Notes,
    ) -> Result<Took, Failure> {
        let input_limited = if self.tests_only { &input[..input.len().min(STEP)] } else { input };
        let (start, mut used, mut is_full) = (out.len(), 0, false);
        if !self.ended {
            (used, is_full) = self.expand(input_limited, out, notes)?;
            if let Some(scan) = &mut self.scan {
                scan.feed(&input_limited[..used]);
            }
        }
        if self.ended && used < input.len() {
            return Err(self.junk(notes));
        }
        if self.tests_only {
            out.extend_from_slice(&input[..used]);
        }
        if self.side == Side::Deliver {
            self.held.extend(out.drain(start..));
            if end || !self.ended && self.held.len() >= HOLD_MAX {
                out.append(&mut self.held);
            }
        }
        if end && used == input.len() && !self.ended && !is_full {
            return Err(if self.tests_only { Failure::TestTruncated } else { Failure::Truncated });
        }
        Ok(Took { bytes: used, done: end && self.ended && used == input.len() })
    }

    fn close(&mut self, notes: &mut dyn Notes) {
        if std::mem::replace(&mut self.closed, true) {
            return;
        }
        let bits = self.scan.take().map(|scan| scan.bits()).unwrap_or_default();
        let letter = if self.tests_only { 'u' } else { 'U' };
        notes.record(
            Tag::Gzip,
            format_args!(
                "{letter} {} - {} {} {} {} {}",
                self.side.letter(),
                self.inflate.total_in(),
                self.inflate.total_out(),
                bits.start,
                bits.last,
                bits.stop
            ),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Heard, gzip, run};
    use super::super::{Chain, Failure};
    use super::*;

    fn through(filter: Gunzip, stream: &[u8]) -> (Result<Vec<u8>, Failure>, Vec<String>) {
        let mut chain = Chain::default();
        chain.push(Box::new(filter));
        let mut heard = Heard::default();
        let result = run(&mut chain, stream, 5, &mut heard);
        chain.close(&mut heard);
        (result, heard.records)
    }

    fn check(stream: &[u8], expected: &Failure, tested: &Failure) {
        assert_eq!(&through(Gunzip::new(true), stream).0.unwrap_err(), expected);
        assert_eq!(&through(Gunzip::test(true), stream).0.unwrap_err(), tested);
    }

    #[test]
    fn what_is_not_one_whole_member_is_refused() {
        let good = gzip(b"bar bar bar bar", 6);
        check(&good[..good.len() - 1], &Failure::Truncated, &Failure::TestTruncated);
        check(&good[..12], &Failure::Truncated, &Failure::TestTruncated);
        check(&[&good[..], b"x"].concat(), &Failure::Junk, &Failure::Junk);
        check(&[&good[..], &good].concat(), &Failure::Junk, &Failure::Junk);
        let mut wrong = good.clone();
        let crc = wrong.len() - 8;
        wrong[crc] ^= 1;
        let invalid = Failure::Invalid("incorrect data check".to_owned());
        check(&wrong, &invalid, &invalid);
        let invalid = Failure::Invalid("incorrect header check".to_owned());
        check(b"hello hello", &invalid, &invalid);
        check(b"", &Failure::Truncated, &Failure::TestTruncated);
    }

    #[test]
    fn on_delivery_the_end_of_a_stream_waits_for_the_end_of_the_body() {
        let (stream, mut heard) = (gzip(b"bar bar", 6), Heard::default());
        let mut step = |filter: &mut Gunzip, input: &[u8], end: bool| {
            let mut out = Vec::new();
            filter.step(input, end, &mut out, &mut heard).map(|took| (took.bytes, took.done, out))
        };
        let mut filter = Gunzip::deliver(false);
        assert_eq!(step(&mut filter, &stream, false), Ok((stream.len(), false, Vec::new())));
        assert_eq!(step(&mut filter, b"", true), Ok((0, true, b"bar bar".to_vec())));
        let mut filter = Gunzip::deliver(false);
        assert_eq!(step(&mut filter, &stream, false), Ok((stream.len(), false, Vec::new())));
        assert_eq!(step(&mut filter, b"x", true), Err(Failure::Junk));
    }

    #[test]
    fn a_test_of_a_stream_that_expands_a_thousand_times_takes_many_steps() {
        let size = 4 << 20;
        let bomb = gzip(&vec![0; size], 9);
        let (mut filter, mut heard) = (Gunzip::test(false), Heard::default());
        let (mut at, mut steps, mut out) = (0, 0, Vec::new());
        loop {
            let before = filter.inflate.total_out();
            let took = filter.step(&bomb[at..], true, &mut out, &mut heard).expect("it is whole");
            assert!(filter.inflate.total_out() - before <= (TEST_MAX + PIECE) as u64);
            (at, steps) = (at + took.bytes, steps + 1);
            if took.done {
                break;
            }
        }
        assert_eq!(out, bomb);
        assert!(steps >= size / (TEST_MAX + PIECE), "{steps}");
    }

    #[test]
    fn the_record_is_as_varnish_writes_it() {
        let stream = gzip(b"bar", 6);
        assert_eq!(through(Gunzip::test(true), &stream).1, ["Gzip u F - 23 3 80 80 114"]);
        assert_eq!(through(Gunzip::new(true), &stream).1, ["Gzip U F - 23 3 80 80 114"]);
        assert_eq!(through(Gunzip::deliver(true), &stream).1, ["Gzip U D - 23 3 80 80 114"]);
        let junk = [&stream[..], b"x"].concat();
        assert_eq!(through(Gunzip::deliver(true), &junk).1[0], "Gzip G(un)zip error: 1 (junk after VGZ_END)");
    }
}
