//! `gzip`: a body compressed.
//!
//! [`Compressor`] is the compressor by itself, with the flushes that ESI needs; [`Gzip`] the filter around it.

use super::gunzip::Side;
use super::scan::Scan;
use super::{Failure, Filter, Notes, STEP, Took};
use copal_observe as observe;
use observe::Tag;
use zlib_rs::{Deflate, DeflateConfig, DeflateFlush, Status};

/// How many bytes of output are made at once.
const PIECE: usize = 16 << 10;

/// A compressor that appends to a buffer, and what it did.
pub struct Compressor {
    deflate: Deflate,
    scan: Option<Scan>,
    piece: Box<[u8]>,
}

impl Compressor {
    /// `level` 0 to 9 is the parameter `gzip_level`, `memory` 1 to 9 `gzip_memlevel`. `logged`: its record is wanted.
    pub fn new(level: u8, memory: u8, logged: bool) -> Self {
        let config = DeflateConfig {
            // With a gzip head and trailer, and the largest window.
            window_bits: 16 + 15,
            mem_level: i32::from(memory.clamp(1, 9)),
            ..DeflateConfig::new(i32::from(level.min(9)))
        };
        Self {
            deflate: Deflate::new_with_config(config),
            scan: logged.then(Scan::new),
            piece: vec![0; PIECE].into_boxed_slice(),
        }
    }

    /// Compressed bytes so far.
    pub fn total_out(&self) -> u64 {
        self.deflate.total_out()
    }

    /// Takes all of `input`. What was flushed is in `out`; it is never much longer than the input.
    pub fn write(&mut self, input: &[u8], flush: DeflateFlush, out: &mut Vec<u8>) -> Result<(), Failure> {
        let mut used = 0;
        loop {
            let (before_in, before_out) = (self.deflate.total_in(), self.deflate.total_out());
            let status = self.deflate.compress(&input[used..], &mut self.piece, flush);
            let status = status.map_err(|_| Failure::Compressor)?;
            used += (self.deflate.total_in() - before_in) as usize;
            let written = &self.piece[..(self.deflate.total_out() - before_out) as usize];
            if let Some(scan) = &mut self.scan {
                scan.feed(written);
            }
            out.extend_from_slice(written);
            // Room left in the piece: it had nothing more to give.
            if status == Status::StreamEnd || status == Status::BufError || written.len() < self.piece.len() {
                return if used == input.len() { Ok(()) } else { Err(Failure::Compressor) };
            }
        }
    }

    /// The record of what it did; `kind` is `E` for ESI, `-` for others.
    pub fn log(&mut self, kind: char, notes: &mut dyn Notes) {
        let bits = self.scan.take().map(|scan| scan.bits()).unwrap_or_default();
        notes.record(
            Tag::Gzip,
            format_args!(
                "G {} {kind} {} {} {} {} {}",
                Side::Fetch.letter(),
                self.deflate.total_in(),
                self.deflate.total_out(),
                bits.start,
                bits.last,
                bits.stop
            ),
        );
    }
}

/// See the module.
pub struct Gzip {
    compressor: Compressor,
    closed: bool,
}

impl Gzip {
    /// See [`Compressor::new`].
    pub fn new(level: u8, memory: u8, logged: bool) -> Self {
        Self { compressor: Compressor::new(level, memory, logged), closed: false }
    }
}

impl Filter for Gzip {
    fn step(
        &mut self,
        input: &[u8],
        end: bool,
        out: &mut Vec<u8>,
        _: &mut dyn Notes,
    ) -> Result<Took, Failure> {
        let part = &input[..input.len().min(STEP)];
        let done = end && part.len() == input.len();
        let flush = if done { DeflateFlush::Finish } else { DeflateFlush::NoFlush };
        self.compressor.write(part, flush, out)?;
        Ok(Took { bytes: part.len(), done })
    }

    fn close(&mut self, notes: &mut dyn Notes) {
        if !std::mem::replace(&mut self.closed, true) {
            self.compressor.log('-', notes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Chain;
    use super::super::testing::{Heard, gunzip, noise, run};
    use super::*;

    fn check(plain: &[u8], level: u8, memory: u8) -> Vec<String> {
        let mut chain = Chain::default();
        chain.push(Box::new(Gzip::new(level, memory, true)));
        let mut heard = Heard::default();
        let out = run(&mut chain, plain, 777, &mut heard).expect("everything can be compressed");
        assert!(gunzip(&out) == plain, "{} bytes at {level}, {memory}", plain.len());
        heard.records
    }

    #[test]
    fn all_levels() {
        for level in 0..=9 {
            for memory in 1..=9 {
                check(&noise(50_000), level, memory);
                check(&b"hello ".repeat(20_000), level, memory);
            }
        }
    }

    #[test]
    fn the_record_is_as_varnish_writes_it() {
        assert_eq!(check(b"bar", 6, 8), ["Gzip G F - 3 23 80 80 114"]);
    }
}
