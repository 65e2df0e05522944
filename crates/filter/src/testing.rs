//! What the tests of filters share.

use super::{Chain, Failure, Notes};
use observe::Tag;
use std::fmt;
use zlib_rs::{Deflate, DeflateConfig, DeflateFlush, Inflate, InflateFlush, Status};

use copal_observe as observe;

/// Keeps what filters say.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    pub(crate) records: Vec<String>,
    pub(crate) errors: usize,
    pub(crate) warnings: usize,
}

impl Notes for Heard {
    fn record(&mut self, tag: Tag, text: fmt::Arguments<'_>) {
        self.records.push(format!("{} {text}", tag.name()));
    }

    fn esi_error(&mut self) {
        self.errors += 1;
    }

    fn esi_warning(&mut self) {
        self.warnings += 1;
    }
}

/// All that comes out of `chain` for `input`, given in pieces of `chop` bytes.
pub(crate) fn run(
    chain: &mut Chain,
    input: &[u8],
    chop: usize,
    heard: &mut Heard,
) -> Result<Vec<u8>, Failure> {
    let mut out = Vec::new();
    let mut pieces = input.chunks(chop).peekable();
    let mut done = false;
    loop {
        let piece = pieces.next().unwrap_or_default();
        let end = pieces.peek().is_none();
        let mut at = 0;
        while !done {
            let before = (at, out.len());
            let took = chain.step(&piece[at..], end, &mut out, heard)?;
            at += took.bytes;
            done = took.done;
            if (at, out.len()) == before && !done {
                assert!(!end && at == piece.len(), "a filter stands still");
                break;
            }
        }
        if end {
            chain.close(heard);
            assert!(done, "the chain ends with its input");
            return Ok(out);
        }
    }
}

/// `plain` compressed by the library alone.
pub(crate) fn gzip(plain: &[u8], level: i32) -> Vec<u8> {
    let mut deflate =
        Deflate::new_with_config(DeflateConfig { window_bits: 31, ..DeflateConfig::new(level) });
    let mut out = vec![0; plain.len() * 2 + 1000];
    let status = deflate.compress(plain, &mut out, DeflateFlush::Finish).expect("it can be compressed");
    assert_eq!(status, Status::StreamEnd);
    out.truncate(deflate.total_out() as usize);
    out
}

/// What `stream` expands to, which must be one whole gzip member.
pub(crate) fn gunzip(stream: &[u8]) -> Vec<u8> {
    let mut inflate = Inflate::new(true, 31);
    let mut out = vec![0; 8 << 20];
    let status = inflate.decompress(stream, &mut out, InflateFlush::Finish).expect("it is gzip");
    assert_eq!((status, inflate.total_in()), (Status::StreamEnd, stream.len() as u64));
    out.truncate(inflate.total_out() as usize);
    out
}

/// Bytes that hardly compress.
pub(crate) fn noise(count: usize) -> Vec<u8> {
    let mut x = 88_172_645_463_325_252u64;
    (0..count)
        .map(|_| {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            (x >> 32) as u8
        })
        .collect()
}
