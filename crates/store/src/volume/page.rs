//! A page of the journal, of the bans or of a checkpoint: a header with a checksum, and a payload.
//!
//! The table of offsets is in `docs/storage-format.md`, section "Page".

use super::bytes::{Parser, Put};

/// Bytes of a page.
pub(super) const PAGE: usize = 4096;
/// Bytes of its header.
const HEADER: usize = 64;
/// Bytes of its payload.
pub(super) const PAYLOAD: usize = PAGE - HEADER;

const RESERVED: usize = 8;
const _: () = assert!(4 + 4 + 8 + 8 + 8 + 8 + 4 + 4 + 4 + 4 + RESERVED == HEADER);

/// What a page is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Kind {
    Journal = u32::from_le_bytes(*b"CpJl"),
    Bans = u32::from_le_bytes(*b"CpBn"),
    Checkpoint = u32::from_le_bytes(*b"CpCk"),
}

/// The header of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) kind: Kind,
    pub(super) volume: u64,
    pub(super) series: u64,
    pub(super) sequence: u64,
    /// Pages with a lower sequence were durable.
    pub(super) synced: u64,
    pub(super) session: u32,
    /// The payload begins with a new item.
    pub(super) begins: bool,
    pub(super) base: u32,
}

impl Header {
    /// Appends the page with `payload`, which has at most [`PAYLOAD`] bytes.
    pub(super) fn encode(&self, payload: &[u8], out: &mut Vec<u8>) {
        debug_assert!(payload.len() <= PAYLOAD);
        let start = out.len();
        out.u32(0);
        out.u32(self.kind as u32);
        out.u64(self.volume);
        out.u64(self.series);
        out.u64(self.sequence);
        out.u64(self.synced);
        out.u32(self.session);
        out.u32(payload.len() as u32);
        out.u32(u32::from(self.begins));
        out.u32(self.base);
        out.bytes(&[0; RESERVED]);
        out.bytes(payload);
        out.resize(start + PAGE, 0);
        let checksum = crc32c::crc32c(&out[start + 4..]);
        out[start..start + 4].copy_from_slice(&checksum.to_le_bytes());
    }

    /// Reads a page of that kind and volume; `None` if it is none, or damaged.
    pub(super) fn decode(page: &[u8], kind: Kind, volume: u64) -> Option<(Self, &[u8])> {
        if page.len() != PAGE {
            return None;
        }
        let mut parser = Parser::new(page);
        let checksum = parser.u32()?;
        if parser.u32()? != kind as u32 || parser.u64()? != volume || crc32c::crc32c(&page[4..]) != checksum {
            return None;
        }
        let (series, sequence, synced) = (parser.u64()?, parser.u64()?, parser.u64()?);
        let (session, length) = (parser.u32()?, parser.u32()? as usize);
        let (begins, base) = (parser.u32()? == 1, parser.u32()?);
        let payload = page[HEADER..].get(..length)?;
        Some((Self { kind, volume, series, sequence, synced, session, begins, base }, payload))
    }
}

/// How many pages `length` bytes of payload fill.
pub(super) fn pages(length: usize) -> u64 {
    length.div_ceil(PAYLOAD) as u64
}

/// Appends the pages for `stream`, beginning with a new item. `header` is of the first one.
pub(super) fn encode_stream(mut header: Header, stream: &[u8], out: &mut Vec<u8>) -> u64 {
    header.begins = true;
    for payload in stream.chunks(PAYLOAD) {
        header.encode(payload, out);
        header.sequence += 1;
        header.begins = false;
        header.base = 0;
    }
    header.sequence
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        Header {
            kind: Kind::Journal,
            volume: 0x0123_4567_89ab_cdef,
            series: 3,
            sequence: 77,
            synced: 70,
            session: 5,
            begins: true,
            base: 2,
        }
    }

    #[test]
    fn a_page_comes_back() {
        for length in [0, 1, 100, PAYLOAD] {
            let payload: Vec<u8> = (0..length).map(|i| i as u8).collect();
            let mut page = Vec::new();
            header().encode(&payload, &mut page);
            assert_eq!(page.len(), PAGE);
            let (read, bytes) = Header::decode(&page, Kind::Journal, header().volume).expect("it is whole");
            assert_eq!((read, bytes), (header(), payload.as_slice()));
            assert!(Header::decode(&page, Kind::Bans, header().volume).is_none());
            assert!(Header::decode(&page, Kind::Journal, 1).is_none());
        }
    }

    #[test]
    fn every_bit_counts() {
        let mut page = Vec::new();
        header().encode(b"payload", &mut page);
        for bit in 0..PAGE * 8 {
            page[bit / 8] ^= 1 << (bit % 8);
            assert!(Header::decode(&page, Kind::Journal, header().volume).is_none(), "bit {bit}");
            page[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn a_stream_is_cut_into_pages() {
        let stream = vec![9; PAYLOAD * 2 + 1];
        let mut out = Vec::new();
        assert_eq!(encode_stream(header(), &stream, &mut out), 80);
        assert_eq!(pages(stream.len()), 3);
        let read: Vec<_> = out
            .chunks(PAGE)
            .map(|page| Header::decode(page, Kind::Journal, header().volume).expect("it is whole"))
            .collect();
        assert_eq!(read.iter().map(|(header, _)| header.sequence).collect::<Vec<_>>(), [77, 78, 79]);
        assert_eq!(read.iter().map(|(header, _)| header.begins).collect::<Vec<_>>(), [true, false, false]);
        assert_eq!(read.iter().map(|(_, bytes)| bytes.len()).sum::<usize>(), stream.len());
    }
}
