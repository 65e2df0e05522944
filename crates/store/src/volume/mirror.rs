//! Pages that are kept twice: the journal's and the bans'.

use super::buffer::Buffer;
use super::page::{Header, Kind, PAGE};
use crate::device::Device;
use std::io;

/// Pages beyond the end that are looked at for proof that something is missing: more than are ever written at once.
pub(super) const LOOK_AHEAD: u64 = 128;

/// Pages read at once.
const RUN: u64 = 64;

/// Two copies of a row of pages.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mirror {
    pub(super) kind: Kind,
    pub(super) volume: u64,
    /// Where the copies begin.
    pub(super) offsets: [u64; 2],
    /// Pages of a copy.
    pub(super) pages: u64,
}

/// A page found in one of the copies.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) header: Header,
    pub(super) payload: Box<[u8]>,
    /// The copy in which it is not good, or not the same.
    pub(super) bad_copy: Option<usize>,
}

impl Mirror {
    /// Writes whole pages from place `place` on into one copy. They end before the row does.
    pub(super) fn write_copy(
        &self,
        device: &dyn Device,
        copy: usize,
        place: u64,
        bytes: &[u8],
    ) -> io::Result<()> {
        debug_assert!(place * PAGE as u64 + bytes.len() as u64 <= self.pages * PAGE as u64);
        let mut buffer = Buffer::new(bytes.len());
        buffer.copy_from_slice(bytes);
        device.write_at(&buffer, self.offsets[copy] + place * PAGE as u64)
    }

    /// A reader of this row.
    pub(super) fn reader<'a>(&self, device: &'a dyn Device) -> Reader<'a> {
        Reader { mirror: *self, device, copies: [Run::default(), Run::default()] }
    }
}

/// Pages of one copy that were read together.
#[derive(Default)]
struct Run {
    first: u64,
    bytes: Option<Buffer>,
    /// Pages of it that could be read.
    readable: Vec<bool>,
}

/// Reads pages in either copy, many at once.
pub(super) struct Reader<'a> {
    mirror: Mirror,
    device: &'a dyn Device,
    copies: [Run; 2],
}

impl Reader<'_> {
    /// The page at `place` that satisfies `wanted`, from where it is good.
    pub(super) fn page(&mut self, place: u64, wanted: impl Fn(&Header) -> bool) -> Option<Page> {
        let mut found: Option<Page> = None;
        for copy in 0..2 {
            let (kind, volume) = (self.mirror.kind, self.mirror.volume);
            let bytes = self.bytes(copy, place);
            let Some((header, payload)) = bytes
                .and_then(|bytes| Header::decode(bytes, kind, volume))
                .filter(|(header, _)| wanted(header))
            else {
                continue;
            };
            match &mut found {
                Some(first) if first.header == header && *first.payload == *payload => first.bad_copy = None,
                Some(_) => {}
                None => found = Some(Page { header, payload: payload.into(), bad_copy: Some(1 - copy) }),
            }
        }
        found
    }

    /// The page at `place` in one copy, if the device gives it.
    fn bytes(&mut self, copy: usize, place: u64) -> Option<&[u8]> {
        if place >= self.mirror.pages {
            return None;
        }
        let run = &mut self.copies[copy];
        let held = run.bytes.as_ref().map_or(0, |bytes| (bytes.len() / PAGE) as u64);
        if !(run.first..run.first + held).contains(&place) {
            let count = RUN.min(self.mirror.pages - place) as usize;
            let mut buffer = Buffer::new(count * PAGE);
            let offset = self.mirror.offsets[copy] + place * PAGE as u64;
            run.readable = match self.device.read_at(&mut buffer, offset) {
                Ok(()) => vec![true; count],
                // One bad page should cost no more than itself.
                Err(_) => buffer
                    .chunks_mut(PAGE)
                    .zip(0..)
                    .map(|(page, at)| self.device.read_at(page, offset + at * PAGE as u64).is_ok())
                    .collect(),
            };
            run.first = place;
            run.bytes = Some(buffer);
        }
        let at = (place - run.first) as usize;
        let bytes = run.bytes.as_deref()?;
        run.readable.get(at).filter(|readable| **readable)?;
        bytes.get(at * PAGE..(at + 1) * PAGE)
    }
}
