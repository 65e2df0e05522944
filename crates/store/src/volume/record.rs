//! The headers of a region and of a record.
//!
//! The tables are in `docs/storage-format.md`, section "Region and record".

use super::bytes::{Parser, Put, u32_at};
use super::change::RecordName;
use super::entry::Location;
use super::facts::{Facts, NewRecord};
use super::page::PAGE;
use super::{HEAD_MAX, LINKS_MAX, PLAN_MAX, UNIT, VARIANT_MAX};

const REGION_MAGIC: u32 = u32::from_le_bytes(*b"CpRg");
const RECORD_MAGIC: u32 = u32::from_le_bytes(*b"CpRc");
/// Bytes of a region's header that its checksum covers.
const REGION_HEADER: usize = 512;
/// Bytes of a record's header before the block table.
pub(super) const FIXED: usize = 160;
/// Bytes of the body that have one checksum.
pub(super) const BLOCK: usize = 64 << 10;
/// The length that says that there is no plan.
const NO_PLAN: u32 = u32::MAX;

const _: () = assert!(4 + 4 + 8 + 4 * 4 + 8 + 32 + 8 + 12 + 12 + 4 + 1 + 3 + 6 * 4 + 8 + 16 == FIXED);

/// The first page of a region.
pub(super) fn encode_region_header(volume: u64, region: u32, generation: u32) -> Vec<u8> {
    let mut out = Vec::with_capacity(PAGE);
    out.u32(REGION_MAGIC);
    out.u32(0);
    out.u64(volume);
    out.u32(region);
    out.u32(generation);
    out.resize(PAGE, 0);
    let checksum = crc32c::crc32c(&out[8..REGION_HEADER]);
    out[4..8].copy_from_slice(&checksum.to_le_bytes());
    out
}

/// The generation that the first page of a region says; `None` if it is damaged or another's.
pub(super) fn decode_region_header(page: &[u8], volume: u64, region: u32) -> Option<u32> {
    let mut parser = Parser::new(page.get(..REGION_HEADER)?);
    let (magic, checksum) = (parser.u32()?, parser.u32()?);
    let right = magic == REGION_MAGIC
        && parser.u64()? == volume
        && parser.u32()? == region
        && crc32c::crc32c(&page[8..REGION_HEADER]) == checksum;
    if right { parser.u32() } else { None }
}

/// The header of a record.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RecordHeader {
    pub(super) name: RecordName,
    pub(super) sequence: u64,
    pub(super) key: [u8; 32],
    /// As the record was written. `key` and `size` are filled in.
    pub(super) facts: Facts,
    pub(super) vxid: u32,
    pub(super) variant_length: u32,
    pub(super) head_length: u32,
    pub(super) plan_length: Option<u32>,
    pub(super) links_length: u32,
    /// Of variant, head, plan and links.
    pub(super) parts_checksum: u32,
    pub(super) body_length: u64,
    pub(super) blocks: Box<[u32]>,
}

/// How many blocks a body has.
pub(super) fn block_count(body_length: u64) -> u64 {
    body_length.div_ceil(BLOCK as u64)
}

impl RecordHeader {
    /// The header for a new record, without its place.
    pub(super) fn for_record(record: &NewRecord<'_>) -> Self {
        let parts = [record.variant, record.head, record.plan.unwrap_or_default(), record.links];
        let mut key = [0; 16];
        key.copy_from_slice(&record.key[..16]);
        let mut header = Self {
            name: RecordName { location: Location { region: 0, offset: 0, size: 0 }, generation: 0 },
            sequence: 0,
            key: record.key,
            facts: Facts { key, ..record.facts },
            vxid: record.vxid,
            variant_length: record.variant.len() as u32,
            head_length: record.head.len() as u32,
            plan_length: record.plan.map(|plan| plan.len() as u32),
            links_length: record.links.len() as u32,
            parts_checksum: parts.iter().fold(0, |sum, part| crc32c::crc32c_append(sum, part)),
            body_length: record.body_length(),
            blocks: block_checksums(record.body),
        };
        header.name.location.size = header.size().div_ceil(UNIT) as u32;
        header
    }

    /// Bytes before variant, head, plan, links.
    pub(super) fn length(&self) -> u64 {
        header_length(self.body_length)
    }

    /// Bytes of variant, head, plan and links.
    pub(super) fn parts_length(&self) -> u64 {
        u64::from(self.variant_length)
            + u64::from(self.head_length)
            + u64::from(self.plan_length.unwrap_or(0))
            + u64::from(self.links_length)
    }

    /// Where the body begins in the record.
    pub(super) fn body_start(&self) -> u64 {
        self.length() + self.parts_length()
    }

    /// Bytes up to the end of the body.
    pub(super) fn size(&self) -> u64 {
        self.body_start() + self.body_length
    }

    /// The bytes of the header, block table and all.
    pub(super) fn encode(&self, volume: u64) -> Vec<u8> {
        let facts = &self.facts;
        let mut out = Vec::with_capacity(self.length() as usize);
        out.u32(RECORD_MAGIC);
        out.u32(0);
        out.u64(volume);
        out.u32(self.name.location.region);
        out.u32(self.name.generation);
        out.u32(self.name.location.offset);
        out.u32(self.name.location.size);
        out.u64(self.sequence);
        out.bytes(&self.key);
        out.f64(facts.origin_time);
        out.f32(facts.ttl);
        out.f32(facts.grace);
        out.f32(facts.keep);
        out.u32(facts.ban);
        out.u32(facts.last_use);
        out.u32(facts.variant);
        out.u16(facts.hits);
        out.u16(facts.status);
        out.u8(facts.flags);
        out.bytes(&[0; 3]);
        out.u32(self.vxid);
        out.u32(self.variant_length);
        out.u32(self.head_length);
        out.u32(self.plan_length.unwrap_or(NO_PLAN));
        out.u32(self.links_length);
        out.u32(self.parts_checksum);
        out.u64(self.body_length);
        out.bytes(&[0; 16]);
        debug_assert_eq!(out.len(), FIXED);
        for block in &self.blocks {
            out.u32(*block);
        }
        let checksum = crc32c::crc32c(&out[8..]);
        out[4..8].copy_from_slice(&checksum.to_le_bytes());
        out
    }

    /// How many bytes the header has that `fixed` begins; `None` if it begins none, or one longer than `record_bytes`.
    pub(super) fn peek(fixed: &[u8], volume: u64, record_bytes: u64) -> Option<usize> {
        let mut parser = Parser::new(fixed.get(..FIXED)?);
        let magic = parser.u32()?;
        parser.u32()?;
        if magic != RECORD_MAGIC || parser.u64()? != volume {
            return None;
        }
        let body_length = Parser::new(&fixed[136..]).u64()?;
        if body_length > record_bytes {
            return None;
        }
        let length = header_length(body_length);
        (length <= record_bytes).then_some(length as usize)
    }

    /// Reads a header: all of its bytes, as [`peek`](Self::peek) told their number. `None` if it is damaged; all lengths
    /// in it fit together then.
    pub(super) fn decode(bytes: &[u8], volume: u64) -> Option<Self> {
        let checksum = u32_at(bytes, 4);
        if Self::peek(bytes, volume, u64::MAX >> 8)? != bytes.len() || crc32c::crc32c(&bytes[8..]) != checksum
        {
            return None;
        }
        let mut parser = Parser::new(&bytes[16..]);
        let (region, generation) = (parser.u32()?, parser.u32()?);
        let location = Location { region, offset: parser.u32()?, size: parser.u32()? };
        let sequence = parser.u64()?;
        let key: [u8; 32] = parser.array()?;
        let facts = decode_facts(&mut parser, &key, location.size)?;
        let header = Self {
            name: RecordName { location, generation },
            sequence,
            key,
            facts,
            vxid: parser.u32()?,
            variant_length: parser.u32()?,
            head_length: parser.u32()?,
            plan_length: parser.u32().map(|length| (length != NO_PLAN).then_some(length))?,
            links_length: parser.u32()?,
            parts_checksum: parser.u32()?,
            body_length: parser.u64()?,
            blocks: bytes[FIXED..].chunks_exact(4).map(|block| u32_at(block, 0)).collect(),
        };
        header.is_possible().then_some(header)
    }

    fn is_possible(&self) -> bool {
        self.variant_length as usize <= VARIANT_MAX
            && self.head_length as usize <= HEAD_MAX
            && self.plan_length.unwrap_or(0) as usize <= PLAN_MAX
            && self.links_length as usize <= LINKS_MAX
            && self.blocks.len() as u64 == block_count(self.body_length)
            && self.size().div_ceil(UNIT) == u64::from(self.name.location.size)
    }

    /// The length of a block of the body.
    pub(super) fn block_length(&self, block: u64) -> usize {
        self.body_length.saturating_sub(block * BLOCK as u64).min(BLOCK as u64) as usize
    }
}

fn decode_facts(parser: &mut Parser<'_>, key: &[u8; 32], size: u32) -> Option<Facts> {
    let mut first = [0; 16];
    first.copy_from_slice(&key[..16]);
    let facts = Facts {
        key: first,
        origin_time: parser.f64()?,
        ttl: parser.f32()?,
        grace: parser.f32()?,
        keep: parser.f32()?,
        ban: parser.u32()?,
        last_use: parser.u32()?,
        variant: parser.u32()?,
        hits: parser.u16()?,
        status: parser.u16()?,
        flags: parser.u8()?,
        size,
    };
    parser.take(3)?;
    Some(facts)
}

fn header_length(body_length: u64) -> u64 {
    FIXED as u64 + 4 * block_count(body_length)
}

/// The checksums of the blocks of a body that comes in slices of any length.
fn block_checksums(body: &[&[u8]]) -> Box<[u32]> {
    let mut checksums = Vec::new();
    let (mut checksum, mut filled) = (0, 0);
    for slice in body {
        let mut rest = *slice;
        while !rest.is_empty() {
            let (part, after) = rest.split_at(rest.len().min(BLOCK - filled));
            checksum = crc32c::crc32c_append(checksum, part);
            filled += part.len();
            rest = after;
            if filled == BLOCK {
                checksums.push(checksum);
                (checksum, filled) = (0, 0);
            }
        }
    }
    if filled > 0 {
        checksums.push(checksum);
    }
    checksums.into()
}

#[cfg(test)]
mod tests {
    use super::super::entry::tests::known;
    use super::*;

    const VOLUME: u64 = 42;

    fn header(body: &[&[u8]]) -> RecordHeader {
        let record = NewRecord {
            key: *b"0123456789abcdefghijklmnopqrstuv",
            facts: known().facts,
            vxid: 1001,
            variant: b"gzip",
            head: b"HTTP/1.1 200 OK",
            plan: Some(b"plan"),
            links: b"links",
            body,
        };
        let mut header = RecordHeader::for_record(&record);
        header.name.generation = 3;
        header.name.location.region = 4;
        header.name.location.offset = 8;
        header.sequence = 99;
        header.facts.size = header.name.location.size;
        header
    }

    #[test]
    fn headers_come_back() {
        let long = vec![7; BLOCK + 1];
        let bodies: [&[&[u8]]; 3] = [&[], &[b"ab", b"", b"c"], &[&long, b"x", &long]];
        for body in bodies {
            let header = header(body);
            let bytes = header.encode(VOLUME);
            assert_eq!(RecordHeader::peek(&bytes, VOLUME, 1 << 20), Some(bytes.len()));
            assert_eq!(RecordHeader::decode(&bytes, VOLUME), Some(header));
            assert_eq!(RecordHeader::decode(&bytes, 1), None);
            assert_eq!(RecordHeader::peek(&bytes, VOLUME, 10), None);
        }
    }

    #[test]
    fn every_bit_of_a_header_counts() {
        let mut bytes = header(&[b"body"]).encode(VOLUME);
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(RecordHeader::decode(&bytes, VOLUME), None, "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        let mut page = encode_region_header(VOLUME, 1, 2);
        assert_eq!(decode_region_header(&page, VOLUME, 1), Some(2));
        assert_eq!(decode_region_header(&page, VOLUME, 2), None);
        for bit in 0..REGION_HEADER * 8 {
            page[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode_region_header(&page, VOLUME, 1), None, "bit {bit}");
            page[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn blocks_do_not_depend_on_slices() {
        let body: Vec<u8> = (0..3 * BLOCK + 5).map(|i| (i % 251) as u8).collect();
        let whole = block_checksums(&[&body]);
        assert_eq!(whole.len(), 4);
        let pieces: Vec<&[u8]> = body.chunks(1000).collect();
        assert_eq!(block_checksums(&pieces), whole);
        assert_eq!(whole[3], crc32c::crc32c(&body[3 * BLOCK..]));
    }
}
