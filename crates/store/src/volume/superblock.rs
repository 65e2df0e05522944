//! The superblock: what the volume is, and the session. And where everything lies, which follows from it.
//!
//! The tables are in `docs/storage-format.md`, sections "Layout" and "Superblock".

use super::bytes::{Parser, Put};
use super::error::OpenError;
use super::options::Options;
use super::page::{PAGE, PAYLOAD};
use super::{UNIT, VERSION};

const MAGIC: &[u8; 8] = b"CopalVol";
/// Bytes that are used of its page.
const SIZE: usize = 512;
/// Bytes of an entry on the device.
pub(super) const ENTRY: usize = 64;
/// Entries in a page of a checkpoint.
pub(super) const ENTRIES_PER_PAGE: u32 = (PAYLOAD / ENTRY) as u32;
/// Regions in a page of a checkpoint.
pub(super) const REGIONS_PER_PAGE: u32 = (PAYLOAD / 8) as u32;
/// The smallest and the largest region.
const REGION_SIZES: (u32, u32) = (64 << 10, 1 << 30);
/// One to fill, one free, two to choose from.
pub(super) const REGIONS_MIN: u32 = 4;
const REGIONS_MAX: u32 = 1 << 22;
const _: () = assert!(ENTRIES_PER_PAGE == 63 && REGIONS_PER_PAGE == 504);

/// What the superblock says. All places follow from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Superblock {
    pub(super) uuid: [u8; 16],
    /// Rounded down to a page.
    pub(super) device_size: u64,
    pub(super) region_size: u32,
    pub(super) region_count: u32,
    pub(super) entries_max: u32,
    pub(super) session: u32,
    pub(super) journal_pages: u32,
    pub(super) ban_pages: u32,
    pub(super) checkpoint_pages: u32,
}

/// What was found where a superblock should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// Zeros.
    Empty,
    /// A superblock.
    Good(Superblock),
    /// A superblock of another version.
    Version(u32),
    /// Ours by its first bytes, and damaged.
    Damaged,
    /// Something else.
    Foreign,
}

/// Rounds down to a page.
fn whole_pages(size: u64) -> u64 {
    size & !(PAGE as u64 - 1)
}

impl Superblock {
    /// The geometry for a new volume on a device of `size` bytes.
    pub(super) fn for_device(size: u64, options: &Options) -> Result<Self, OpenError> {
        if options.entry_bytes < UNIT as u32 {
            return Err(OpenError::Option { name: "entry_bytes", bounds: "at least 512" });
        }
        let device_size = whole_pages(size);
        let region_size = match options.region_size {
            Some(chosen) if !is_region_size(chosen) => {
                return Err(OpenError::Option {
                    name: "region_size",
                    bounds: "a multiple of 4096 from 64 KiB to 1 GiB",
                });
            }
            Some(chosen) => chosen,
            None => default_region_size(device_size),
        };
        let entries_max =
            (device_size / u64::from(options.entry_bytes)).clamp(64, u64::from(u32::MAX - 1)) as u32;
        let entry_pages = entries_max.div_ceil(ENTRIES_PER_PAGE);
        let most_regions = device_size / u64::from(region_size);
        let mut superblock = Self {
            uuid: options.uuid,
            device_size,
            region_size,
            region_count: most_regions.min(u64::from(REGIONS_MAX - 1)) as u32,
            entries_max,
            session: 0,
            journal_pages: (entry_pages / 4).clamp(64, 262_144),
            ban_pages: (device_size / (2 << 20)).clamp(16, 1024) as u32,
            checkpoint_pages: 0,
        };
        superblock.checkpoint_pages = superblock.checkpoint_pages_needed();
        let around = superblock.regions_offset() + PAGE as u64;
        let room = device_size.saturating_sub(around) / u64::from(region_size);
        if room < u64::from(REGIONS_MIN) {
            let least = around + u64::from(REGIONS_MIN) * u64::from(region_size);
            return Err(OpenError::TooSmall { least, found: size });
        }
        superblock.region_count = room.min(u64::from(REGIONS_MAX - 1)) as u32;
        Ok(superblock)
    }

    fn checkpoint_pages_needed(&self) -> u32 {
        1 + self.region_count.div_ceil(REGIONS_PER_PAGE) + self.entry_pages() + self.link_pages()
    }

    /// The bytes of its page.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(PAGE);
        out.bytes(MAGIC);
        out.u32(VERSION);
        out.u32(0);
        out.bytes(&self.uuid);
        out.u64(self.device_size);
        out.u32(self.region_size);
        out.u32(self.region_count);
        out.u32(self.entries_max);
        out.u32(self.session);
        out.u32(self.journal_pages);
        out.u32(self.ban_pages);
        out.u32(self.checkpoint_pages);
        out.resize(PAGE, 0);
        let checksum = checksum(&out);
        out[12..16].copy_from_slice(&checksum.to_le_bytes());
        out
    }

    /// Reads a page that should be one. The sizes it says fit together then, whoever wrote it.
    pub(super) fn decode(page: &[u8]) -> Found {
        if page.iter().all(|byte| *byte == 0) {
            return Found::Empty;
        }
        if !page.starts_with(MAGIC) || page.len() < SIZE {
            return Found::Foreign;
        }
        let mut parser = Parser::new(&page[8..SIZE]);
        let (version, found) = (parser.u32(), parser.u32());
        match (version, found) {
            (_, found) if found != Some(checksum(page)) => Found::Damaged,
            (Some(VERSION), _) => Self::decode_sizes(parser).map_or(Found::Damaged, Found::Good),
            (Some(other), _) => Found::Version(other),
            (None, _) => Found::Damaged,
        }
    }

    fn decode_sizes(mut parser: Parser<'_>) -> Option<Self> {
        let superblock = Self {
            uuid: parser.array()?,
            device_size: parser.u64()?,
            region_size: parser.u32()?,
            region_count: parser.u32()?,
            entries_max: parser.u32()?,
            session: parser.u32()?,
            journal_pages: parser.u32()?,
            ban_pages: parser.u32()?,
            checkpoint_pages: parser.u32()?,
        };
        superblock.is_possible().then_some(superblock)
    }

    fn is_possible(&self) -> bool {
        let regions = u64::from(self.region_count) * u64::from(self.region_size);
        is_region_size(self.region_size)
            && (REGIONS_MIN..REGIONS_MAX).contains(&self.region_count)
            && (1..u32::MAX).contains(&self.entries_max)
            && self.journal_pages >= 64
            && self.ban_pages >= 2
            && self.checkpoint_pages >= self.checkpoint_pages_needed()
            && self.device_size == whole_pages(self.device_size)
            && self.regions_offset().saturating_add(regions).saturating_add(PAGE as u64) <= self.device_size
    }

    /// What all other structures carry.
    pub(super) fn volume(&self) -> u64 {
        let [a, b, c, d, e, f, g, h, ..] = self.uuid;
        u64::from_le_bytes([a, b, c, d, e, f, g, h])
    }

    fn ban_bytes(&self) -> u64 {
        u64::from(self.ban_pages) * PAGE as u64
    }

    fn journal_bytes(&self) -> u64 {
        u64::from(self.journal_pages) * PAGE as u64
    }

    fn checkpoint_bytes(&self) -> u64 {
        u64::from(self.checkpoint_pages) * PAGE as u64
    }

    /// Where the superblocks lie.
    pub(super) fn own_offsets(device_size: u64) -> [u64; 2] {
        [0, whole_pages(device_size).saturating_sub(PAGE as u64)]
    }

    /// Where the copies of the bans lie.
    pub(super) fn ban_offsets(&self) -> [u64; 2] {
        [PAGE as u64, self.journal_offsets()[1] + self.journal_bytes()]
    }

    /// Where the copies of the journal lie.
    pub(super) fn journal_offsets(&self) -> [u64; 2] {
        [PAGE as u64 + self.ban_bytes(), self.checkpoint_offsets()[1] + self.checkpoint_bytes()]
    }

    /// Where the slots of checkpoints lie.
    pub(super) fn checkpoint_offsets(&self) -> [u64; 2] {
        let first = PAGE as u64 + self.ban_bytes() + self.journal_bytes();
        [first, first + self.checkpoint_bytes()]
    }

    fn regions_offset(&self) -> u64 {
        PAGE as u64 + 2 * (self.ban_bytes() + self.journal_bytes() + self.checkpoint_bytes())
    }

    /// Where a region lies.
    pub(super) fn region_offset(&self, region: u32) -> u64 {
        self.regions_offset() + u64::from(region) * u64::from(self.region_size)
    }

    /// Units of a region.
    pub(super) fn region_units(&self) -> u32 {
        self.region_size / UNIT as u32
    }

    /// Pages of entries in a checkpoint, at most.
    pub(super) fn entry_pages(&self) -> u32 {
        self.entries_max.div_ceil(ENTRIES_PER_PAGE)
    }

    /// Pages of links in a checkpoint, at most.
    pub(super) fn link_pages(&self) -> u32 {
        (self.entry_pages() / 2).max(16)
    }

    /// Bytes of links that may be held, so that a checkpoint has room for them even if all change while it is written.
    pub(super) fn links_bytes_max(&self) -> u64 {
        u64::from(self.link_pages()) * PAYLOAD as u64 / 2
    }
}

fn is_region_size(size: u32) -> bool {
    (REGION_SIZES.0..=REGION_SIZES.1).contains(&size) && (size as usize).is_multiple_of(PAGE)
}

fn default_region_size(device_size: u64) -> u32 {
    let mut size = 64 << 20;
    while size > REGION_SIZES.0 && device_size / u64::from(size) < 16 {
        size /= 2;
    }
    size
}

fn checksum(page: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&page[..12]), &page[16..SIZE])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn superblock(size: u64) -> Superblock {
        Superblock::for_device(size, &Options::default()).expect("it is large enough")
    }

    #[test]
    fn sizes_fit_together() {
        for size in [4 << 20, 100 << 20, 1 << 30, 100 << 30, (10 << 40) + 12345] {
            let superblock = superblock(size);
            assert!(superblock.is_possible(), "{superblock:?}");
            assert_eq!(Superblock::decode(&superblock.encode()), Found::Good(superblock));
            let places = [
                0,
                superblock.ban_offsets()[0],
                superblock.journal_offsets()[0],
                superblock.checkpoint_offsets()[0],
                superblock.checkpoint_offsets()[1],
                superblock.journal_offsets()[1],
                superblock.ban_offsets()[1],
                superblock.region_offset(0),
                superblock.region_offset(superblock.region_count),
            ];
            assert!(places.is_sorted(), "{places:?}");
            assert!(places[8] <= Superblock::own_offsets(size)[1]);
        }
        assert_eq!(superblock(10 << 40).region_size, 64 << 20);
        assert_eq!(superblock(8 << 20).region_size, 512 << 10);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let refuse = |size, region_size, entry_bytes| {
            let options = Options { region_size, entry_bytes, ..Options::default() };
            Superblock::for_device(size, &options).expect_err("it cannot be")
        };
        let OpenError::TooSmall { least, .. } = refuse(1 << 20, None, 16 << 10) else { panic!("too small") };
        assert!(Superblock::for_device(least, &Options::default()).is_ok());
        assert!(matches!(refuse(0, None, 16 << 10), OpenError::TooSmall { .. }));
        assert!(matches!(refuse(1 << 30, Some(5000), 16 << 10), OpenError::Option { .. }));
        assert!(matches!(refuse(1 << 30, Some(2 << 30), 16 << 10), OpenError::Option { .. }));
        assert!(matches!(refuse(1 << 30, None, 1), OpenError::Option { .. }));
    }

    #[test]
    fn every_bit_counts() {
        let mut page = superblock(100 << 20).encode();
        for bit in 0..SIZE * 8 {
            page[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(Superblock::decode(&page), Found::Damaged | Found::Foreign), "bit {bit}");
            page[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn other_pages_are_told_apart() {
        assert_eq!(Superblock::decode(&[0; PAGE]), Found::Empty);
        assert_eq!(Superblock::decode(&[1; PAGE]), Found::Foreign);
        let mut page = superblock(100 << 20).encode();
        page[8] = 2;
        let checksum = checksum(&page);
        page[12..16].copy_from_slice(&checksum.to_le_bytes());
        assert_eq!(Superblock::decode(&page), Found::Version(2));
    }
}
