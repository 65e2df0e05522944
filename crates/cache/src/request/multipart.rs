//! A `multipart/byteranges` body: several ranges of an object, as many of them with one call as there is room for.
//!
//! The frame was laid out before ([`Multipart`]). Heads and bytes of many parts are handed out together: of an object that
//! is stored whole any, of one in pieces those whose segments are at hand, which are held until they are written. Of what is
//! still arriving, the part that is read, and its head.
//!
//! Source: RFC 9110, section 14.6.

use crate::body::{Aborted, Ready, Source, log_cut};
use crate::fetch::sparse::Reader;
use crate::known::Known;
use copal_observe as observe;
use copal_store as store;
use copal_wire as wire;
use observe::Records;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::IoSlice;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use store::cursor::stored_slices;
use store::{Cursor, Object, State};
use wire::range::Multipart;

/// How many pieces are written with one call; a part of a few KiB takes two, its head and its bytes.
const PIECES: usize = 256;

/// How many of those the bytes of one part may take: about 2 MiB, as of other bodies.
const PART_PIECES: usize = 16;

/// After so many bytes no further part is added, so that other connections are not kept waiting for long.
const TURN: usize = 2 << 20;

/// How many pieces of segments are held to be written together, and how many bytes these segments may take: what is held is
/// not evicted.
const HELD_MAX: usize = 64;

/// See there; also no more than the reader looks ahead, which small stores bound.
const HELD_BYTES: u64 = 8 << 20;

/// Several parts of one object. See the module.
#[derive(Debug)]
pub(crate) struct Parts {
    pieces: Pieces,
    frame: Multipart,
    /// The part whose head or bytes are being written; one beyond the last for the tail.
    index: usize,
    /// How much of its head, or of the tail, is written.
    delimiter_at: usize,
    /// How many of its bytes are not written yet.
    left: u64,
}

/// The place where a part's bytes are stored.
#[derive(Debug)]
enum Pieces {
    /// In one object, which may still be arriving. The cursor stands in the part that is being written.
    Stored(Rc<Known>, Cursor),
    /// In segments. The reader stands behind what is held.
    Segments(Box<Reader>, VecDeque<Held>),
}

/// Bytes of one part that lie in one segment, which is stored.
#[derive(Debug)]
struct Held {
    part: usize,
    segment: Arc<Object>,
    from: u64,
    end: u64,
}

impl Parts {
    /// The parts of `known` that `frame` lays out.
    pub(crate) fn new(known: &Rc<Known>, frame: Multipart) -> Self {
        let (from, end) = span(&frame, 0);
        let cursor = Cursor::new(known, from, end);
        Self::of(Pieces::Stored(Rc::clone(known), cursor), frame)
    }

    /// The parts that `frame` lays out, whose ranges `reader` reads in this order.
    pub(crate) fn of_pieces(reader: Box<Reader>, frame: Multipart) -> Self {
        Self::of(Pieces::Segments(reader, VecDeque::new()), frame)
    }

    fn of(pieces: Pieces, frame: Multipart) -> Self {
        let (from, end) = span(&frame, 0);
        Self { pieces, frame, index: 0, delimiter_at: 0, left: end - from }
    }

    fn is_tail(&self) -> bool {
        self.index == self.frame.parts().len()
    }

    fn delimiter_left(&self) -> &[u8] {
        &self.frame.delimiter(self.index)[self.delimiter_at..]
    }

    /// Waits until there are bytes to write; false at the end.
    async fn wait(&mut self) -> Result<bool, Aborted> {
        if self.is_tail() {
            return Ok(!self.delimiter_left().is_empty());
        }
        let has_head = !self.delimiter_left().is_empty();
        let index = self.index;
        let ready = match &mut self.pieces {
            Pieces::Stored(..) if has_head => return Ok(true),
            Pieces::Stored(known, cursor) => {
                poll_fn(|context| cursor.poll_ready(known, context)).await.map_err(|_| Aborted)
            }
            Pieces::Segments(_, held) if !held.is_empty() => return Ok(true),
            Pieces::Segments(reader, held) => {
                poll_fn(|context| poll_pieces(reader, held, index, context)).await
            }
        };
        // Parts lie within the length that the object was announced with: one that ends before was cut.
        match ready {
            Ok(true) => Ok(true),
            Ok(false) | Err(Aborted) => Err(Aborted),
        }
    }

    /// Appends the parts behind the present one; false if not all.
    fn whole_parts<'body>(&'body self, known: &'body Known, batch: &mut Batch<'_, 'body>) -> bool {
        for index in self.index + 1..self.frame.parts().len() {
            // What lies in a file can be read with a cursor only.
            if batch.is_full() || known.state() != State::Stored || known.is_in_file() {
                return false;
            }
            let (from, end) = span(&self.frame, index);
            batch.begin_part(self.frame.delimiter(index));
            stored_slices(known, from, end, PART_PIECES, batch.out);
            if !batch.ends_part(end - from) {
                return false;
            }
        }
        true
    }

    /// Appends what is held, the first of it of the present part; false if that is not all that there is.
    fn held_parts<'body>(&'body self, held: &'body VecDeque<Held>, batch: &mut Batch<'_, 'body>) -> bool {
        let (mut part, mut left) = (self.index, self.left);
        for piece in held {
            if piece.part != part {
                if batch.is_full() {
                    return false;
                }
                let (from, end) = span(&self.frame, piece.part);
                (part, left) = (piece.part, end - from);
                batch.begin_part(self.frame.delimiter(part));
            }
            let wanted = piece.end - piece.from;
            batch.before = batch.out.len();
            stored_slices(&piece.segment, piece.from, piece.end, PART_PIECES, batch.out);
            left -= wanted;
            if !batch.ends_part(wanted) || batch.out.len() + 2 > batch.most {
                return false;
            }
        }
        left == 0 && part + 1 == self.frame.parts().len()
    }

    /// Moves on by `count` bytes of the present part, which then is over or not.
    fn consume_bytes(&mut self, mut count: u64, is_over: bool) {
        match &mut self.pieces {
            Pieces::Stored(known, cursor) if !is_over => cursor.consume(known, count),
            Pieces::Stored(known, cursor) => {
                let (_, behind) = span(&self.frame, self.index);
                let (from, end) = span(&self.frame, self.index + 1);
                if from >= behind && from < end {
                    cursor.move_to(known, from, end);
                } else {
                    cursor.close(known);
                    *cursor = Cursor::new(known, from, end);
                }
            }
            Pieces::Segments(reader, held) if held.is_empty() => {
                reader.consume(count as usize);
                if is_over {
                    reader.next_range();
                }
            }
            Pieces::Segments(_, held) => {
                while let Some(piece) = held.front_mut() {
                    let taken = count.min(piece.end - piece.from);
                    (piece.from, count) = (piece.from + taken, count - taken);
                    if piece.from < piece.end {
                        break;
                    }
                    held.pop_front();
                    if count == 0 {
                        break;
                    }
                }
            }
        }
    }
}

impl Source for Parts {
    fn ready(&mut self) -> Ready<'_> {
        Box::pin(self.wait())
    }

    fn slices<'body>(&'body self, out: &mut Vec<IoSlice<'body>>) {
        let mut batch = Batch { most: out.len() + PIECES, before: 0, turn: 0, out };
        if !self.delimiter_left().is_empty() {
            batch.out.push(IoSlice::new(self.delimiter_left()));
        }
        if self.is_tail() {
            return;
        }
        batch.before = batch.out.len();
        let is_whole = match &self.pieces {
            Pieces::Stored(known, cursor) => {
                cursor.slices(known, PART_PIECES, batch.out);
                batch.ends_part(self.left) && self.whole_parts(known, &mut batch)
            }
            Pieces::Segments(reader, held) if held.is_empty() => {
                reader.slices(batch.out);
                false
            }
            Pieces::Segments(_, held) => self.held_parts(held, &mut batch),
        };
        if is_whole && batch.out.len() < batch.most {
            batch.out.push(IoSlice::new(self.frame.delimiter(self.frame.parts().len())));
        }
    }

    fn consume(&mut self, mut count: usize) {
        loop {
            let from_delimiter = count.min(self.delimiter_left().len());
            self.delimiter_at += from_delimiter;
            count -= from_delimiter;
            if self.is_tail() {
                debug_assert_eq!(count, 0, "nothing comes after the tail");
                return;
            }
            let from_part = self.left.min(count as u64);
            self.left -= from_part;
            count -= from_part as usize;
            let is_over = self.left == 0;
            self.consume_bytes(from_part, is_over);
            if !is_over {
                return;
            }
            self.index += 1;
            self.delimiter_at = 0;
            let (from, end) = span(&self.frame, self.index);
            self.left = end - from;
        }
    }

    fn close(&mut self, records: &mut Records) {
        match &mut self.pieces {
            Pieces::Stored(_, cursor) => log_cut(cursor.cut(), records),
            Pieces::Segments(reader, _) => reader.close(records),
        }
    }

    fn is_at_end(&self) -> bool {
        self.is_tail() && self.delimiter_left().is_empty()
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        if let Pieces::Stored(known, cursor) = &mut self.pieces {
            cursor.close(known);
        }
    }
}

/// Waits for the reader's bytes, and takes hold of all that is at hand; it stands in part `index`. What is still arriving is
/// not held: then there are bytes, but nothing is in `held`.
fn poll_pieces(
    reader: &mut Reader,
    held: &mut VecDeque<Held>,
    mut index: usize,
    context: &mut Context<'_>,
) -> Poll<Result<bool, Aborted>> {
    let most = HELD_BYTES.min(reader.lookahead_bytes());
    let mut segments = 0;
    loop {
        match reader.poll_ready(context) {
            Poll::Ready(Ok(true)) => {}
            // A fault, too, is met again by the next wait.
            _ if !held.is_empty() => return Poll::Ready(Ok(true)),
            poll => return poll,
        }
        let Some((segment, from, end)) = reader.at_hand() else { return Poll::Ready(Ok(true)) };
        let is_another = held.back().is_none_or(|last| !Arc::ptr_eq(&last.segment, &segment));
        segments += if is_another { segment.filled() } else { 0 };
        held.push_back(Held { part: index, segment, from, end });
        reader.consume((end - from) as usize);
        if reader.is_range_over() {
            index += 1;
            if !reader.next_range() {
                return Poll::Ready(Ok(true));
            }
        }
        if held.len() >= HELD_MAX || segments >= most {
            return Poll::Ready(Ok(true));
        }
    }
}

/// What goes out with one call.
struct Batch<'out, 'body> {
    out: &'out mut Vec<IoSlice<'body>>,
    /// How many pieces there may be.
    most: usize,
    /// Where the bytes of the last part begin.
    before: usize,
    turn: usize,
}

impl<'body> Batch<'_, 'body> {
    fn begin_part(&mut self, delimiter: &'body [u8]) {
        self.out.push(IoSlice::new(delimiter));
        self.before = self.out.len();
    }

    /// Whether the `wanted` bytes of a part have all been added.
    fn ends_part(&mut self, wanted: u64) -> bool {
        let got: usize = self.out[self.before..].iter().map(|slice| slice.len()).sum();
        self.turn += got;
        got as u64 == wanted
    }

    /// Whether there is no room for another part.
    fn is_full(&self) -> bool {
        self.turn >= TURN || self.out.len() + 1 + PART_PIECES > self.most
    }
}

/// Where part `index` begins and ends (the first byte behind it); empty beyond the last.
fn span(frame: &Multipart, index: usize) -> (u64, u64) {
    frame.parts().get(index).map_or((0, 0), |(first, last)| (*first, last + 1))
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
