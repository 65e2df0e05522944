//! A `multipart/byteranges` body: several ranges of an object, as many of them with one call as there is room for.
//!
//! The frame was laid out before ([`Multipart`]). Of an object that is stored whole, heads and bytes of many parts are
//! handed out together; of one that is still arriving, the part that is read, and its head.
//!
//! Source: RFC 9110, section 14.6.

use crate::body::Aborted;
use crate::index::hot::Known;
use copal_store as store;
use copal_wire as wire;
use std::future::poll_fn;
use std::io::IoSlice;
use std::rc::Rc;
use store::cursor::stored_slices;
use store::{Cursor, State};
use wire::range::Multipart;

/// How many pieces are written with one call; a part of a few KiB takes two, its head and its bytes.
const PIECES: usize = 256;

/// How many of those the bytes of one part may take: about 2 MiB, as of other bodies.
const PART_PIECES: usize = 16;

/// After so many bytes no further part is added, so that other connections are not kept waiting for long.
const TURN: usize = 2 << 20;

/// Several parts of one object. See the module.
#[derive(Debug)]
pub struct Parts {
    known: Rc<Known>,
    frame: Multipart,
    /// The part whose head or bytes are being written; one beyond the last for the tail.
    index: usize,
    /// How much of its head, or of the tail, is written.
    delimiter_at: usize,
    /// The place in its bytes.
    cursor: Cursor,
}

impl Parts {
    /// The parts of `known` that `frame` lays out.
    pub fn new(known: &Rc<Known>, frame: Multipart) -> Self {
        let cursor = part_cursor(known, &frame, 0);
        Self { known: Rc::clone(known), frame, index: 0, delimiter_at: 0, cursor }
    }

    /// Whether all was consumed.
    pub fn is_at_end(&self) -> bool {
        self.is_tail() && self.delimiter_left().is_empty()
    }

    fn is_tail(&self) -> bool {
        self.index == self.frame.parts().len()
    }

    fn delimiter_left(&self) -> &[u8] {
        &self.frame.delimiter(self.index)[self.delimiter_at..]
    }

    /// Waits until there are bytes to write; `false` at the end.
    ///
    /// # Errors
    /// [`Aborted`] if the rest will never come.
    pub(crate) async fn ready(&mut self) -> Result<bool, Aborted> {
        if !self.delimiter_left().is_empty() {
            return Ok(true);
        }
        if self.is_tail() {
            return Ok(false);
        }
        let (known, cursor) = (&self.known, &mut self.cursor);
        let ready = poll_fn(|context| cursor.poll_ready(known, context)).await;
        // Parts lie within the length that the object was announced with: one that ends before was cut.
        match ready {
            Ok(true) => Ok(true),
            Ok(false) | Err(store::cursor::Cut) => Err(Aborted),
        }
    }

    /// Appends the pieces that can be written now.
    pub(crate) fn slices<'body>(&'body self, out: &mut Vec<IoSlice<'body>>) {
        let most = out.len() + PIECES;
        if !self.delimiter_left().is_empty() {
            out.push(IoSlice::new(self.delimiter_left()));
        }
        if self.is_tail() {
            return;
        }
        let mut before = out.len();
        self.cursor.slices(&self.known, PART_PIECES, out);
        let (first, last) = self.frame.parts()[self.index];
        let mut wanted = last + 1 - self.cursor.position().max(first);
        let mut turn = 0;
        for (index, &(first, last)) in (self.index + 1..).zip(&self.frame.parts()[self.index + 1..]) {
            let got: usize = out[before..].iter().map(|slice| slice.len()).sum();
            turn += got;
            if got as u64 != wanted
                || turn >= TURN
                || out.len() + 2 > most
                || self.known.state() != State::Stored
            {
                return;
            }
            out.push(IoSlice::new(self.frame.delimiter(index)));
            before = out.len();
            wanted = last - first + 1;
            stored_slices(&self.known, first, last + 1, PART_PIECES.min(most - before), out);
        }
        let got: usize = out[before..].iter().map(|slice| slice.len()).sum();
        if got as u64 == wanted && out.len() < most {
            out.push(IoSlice::new(self.frame.delimiter(self.frame.parts().len())));
        }
    }

    /// Moves on by `count` bytes, which were written.
    pub(crate) fn consume(&mut self, mut count: usize) {
        loop {
            let from_delimiter = count.min(self.delimiter_left().len());
            self.delimiter_at += from_delimiter;
            count -= from_delimiter;
            let Some(&(_, last)) = self.frame.parts().get(self.index) else {
                debug_assert_eq!(count, 0, "nothing comes after the tail");
                return;
            };
            let left = last + 1 - self.cursor.position();
            let from_part = left.min(count as u64);
            if from_part < left {
                self.cursor.consume(&self.known, from_part);
                return;
            }
            count -= from_part as usize;
            self.index += 1;
            self.delimiter_at = 0;
            self.next_part(last + 1);
        }
    }

    /// Puts the cursor, which stands before `end`, at the part that `index` names.
    fn next_part(&mut self, end: u64) {
        match self.frame.parts().get(self.index) {
            Some(&(first, last)) if first >= end => self.cursor.move_to(&self.known, first, last + 1),
            _ => {
                self.cursor.close(&self.known);
                self.cursor = part_cursor(&self.known, &self.frame, self.index);
            }
        }
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        self.cursor.close(&self.known);
    }
}

/// A reader of part `index`; of nothing beyond the last.
fn part_cursor(known: &Known, frame: &Multipart, index: usize) -> Cursor {
    let (from, end) = frame.parts().get(index).map_or((0, 0), |(first, last)| (*first, last + 1));
    Cursor::new(known, from, end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::sync::Arc;
    use std::task::{Context, Poll, Waker};
    use store::{Attributes, Creation, Engine, Evictions, Fill, Flags, Memory, Object};
    use wire::range::boundary;

    struct Nobody;

    impl Evictions for Nobody {
        fn evicted(&self, _object: &Arc<Object>) {}
    }

    fn bytes(count: usize) -> Vec<u8> {
        (0..count).map(|place| (place / 251 + place) as u8).collect()
    }

    fn begin(length: Option<u64>) -> Fill {
        let attributes = Attributes {
            origin_time: 1.0,
            ttl: 10.0,
            grace: 0.0,
            keep: 0.0,
            status: 200,
            flags: Flags(0),
            ban: 0,
            vxid: 1,
        };
        let creation = Creation { key: [0; 32], attributes, variant: b"", head: b"OK\r\n", length };
        Memory::new("s0", None, Arc::new(Nobody)).begin(&creation).expect("there is room")
    }

    fn parts_of(fill: &Fill, ranges: &[(u64, u64)], length: u64) -> Parts {
        let frame = Multipart::new(ranges.to_vec(), length, Some(b"a/b"), boundary(1, 2));
        Parts::new(&Rc::new(Known::new(Arc::clone(fill.object()))), frame)
    }

    fn wanted(body: &[u8], ranges: &[(u64, u64)]) -> Vec<u8> {
        let frame = Multipart::new(ranges.to_vec(), body.len() as u64, Some(b"a/b"), boundary(1, 2));
        let mut out = Vec::new();
        for (index, &(first, last)) in ranges.iter().enumerate() {
            out.extend_from_slice(frame.delimiter(index));
            out.extend_from_slice(&body[first as usize..=last as usize]);
        }
        out.extend_from_slice(frame.delimiter(ranges.len()));
        assert_eq!(out.len() as u64, frame.content_length());
        out
    }

    fn ready(parts: &mut Parts) -> Poll<Result<bool, Aborted>> {
        pin!(parts.ready()).poll(&mut Context::from_waker(Waker::noop()))
    }

    /// Reads what is there, at most `most` bytes a step: what came, and in how many steps.
    fn read(parts: &mut Parts, most: usize) -> (Vec<u8>, usize) {
        let (mut out, mut steps) = (Vec::new(), 0);
        while ready(parts) == Poll::Ready(Ok(true)) {
            let mut slices = Vec::new();
            parts.slices(&mut slices);
            let count = slices.iter().map(|slice| slice.len()).sum::<usize>().min(most);
            assert!(count > 0, "ready without a byte");
            out.extend(slices.iter().flat_map(|slice| slice.iter()).take(count));
            drop(slices);
            parts.consume(count);
            steps += 1;
        }
        (out, steps)
    }

    #[test]
    fn many_parts_of_a_stored_object_go_out_in_few_steps() {
        let body = bytes(1 << 20);
        let ranges: Vec<_> = (0..500u64).map(|n| n * 7919 % 500 * 2000).map(|at| (at, at + 900)).collect();
        for length in [Some(body.len() as u64), None] {
            let mut fill = begin(length);
            fill.append(&body).unwrap();
            let mut parts = parts_of(&fill, &ranges, body.len() as u64);
            let mut small = parts_of(&fill, &ranges, body.len() as u64);
            fill.commit();
            let (out, steps) = read(&mut parts, usize::MAX);
            assert!(out == wanted(&body, &ranges) && parts.is_at_end());
            assert!(steps <= 6, "{steps} steps");
            assert!(read(&mut small, 333).0 == wanted(&body, &ranges));
        }
    }

    #[test]
    fn parts_larger_than_a_turn() {
        let body = bytes(9 << 20);
        let size = body.len() as u64;
        let ranges = [(5, 3 << 20), ((3 << 20) + 9, size - 9), (0, 0), (size - 4, size - 1)];
        let mut fill = begin(Some(size));
        fill.append(&body).unwrap();
        let mut parts = parts_of(&fill, &ranges, size);
        fill.commit();
        let (out, steps) = read(&mut parts, usize::MAX);
        assert!(out == wanted(&body, &ranges));
        assert!(steps > 3, "other connections have their turn");
    }

    #[test]
    fn parts_of_an_object_that_arrives() {
        let body = bytes(300_000);
        let ranges = [(250_000, 250_009), (0, 99), (100_000, 200_000), (200_100, 299_999)];
        let mut fill = begin(Some(300_000));
        let mut parts = parts_of(&fill, &ranges, 300_000);
        let mut out = Vec::new();
        for piece in body.chunks(10_000) {
            out.extend(read(&mut parts, 7_000).0);
            assert!(ready(&mut parts).is_pending());
            fill.append(piece).unwrap();
        }
        fill.commit();
        out.extend(read(&mut parts, usize::MAX).0);
        assert!(out == wanted(&body, &ranges) && parts.is_at_end());
    }

    #[test]
    fn an_object_that_fails_has_no_end() {
        let mut fill = begin(Some(1000));
        fill.append(&bytes(500)).unwrap();
        let mut parts = parts_of(&fill, &[(0, 9), (490, 510)], 1000);
        assert!(read(&mut parts, usize::MAX).0.len() > 100);
        drop(fill);
        assert_eq!(ready(&mut parts), Poll::Ready(Err(Aborted)));
    }
}
