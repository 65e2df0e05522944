//! What is known of a record without reading it, and what a caller gives to have one written.

use super::bytes::Parser;

/// The number of an entry within one volume. Stable over restarts, until the entry is gone; then it may be given to
/// another record.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug, PartialOrd, Ord)]
pub struct EntryId(pub u32);

/// The bit of [`Facts::flags`] that stands for an object kept in pieces, or for one of the pieces.
/// The same as [`Flags::SPARSE`](crate::Flags::SPARSE).
pub(crate) const SPARSE: u8 = crate::Flags::SPARSE;

/// The status of a piece.
const PARTIAL_CONTENT: u16 = 206;

/// What is known of a record without reading it.
#[derive(Copy, Clone, Debug, PartialEq, Default)]
pub struct Facts {
    /// The first half of the key.
    pub key: [u8; 16],
    /// Seconds since 1970 from which the lifetime counts. Of a piece see [`key_tail`](Self::key_tail).
    pub origin_time: f64,
    /// Freshness lifetime in seconds. Of a piece see [`key_tail`](Self::key_tail).
    pub ttl: f32,
    /// How long after that it may be served while a new one is fetched. Of a piece see [`key_tail`](Self::key_tail).
    pub grace: f32,
    /// How long after that it may be revalidated.
    pub keep: f32,
    /// The newest ban it has been tested against.
    pub ban: u32,
    /// When it was last used, in the caller's unit.
    pub last_use: u32,
    /// How often it was used.
    pub hits: u16,
    /// HTTP status.
    pub status: u16,
    /// The bits of [`Flags`](crate::Flags).
    pub flags: u8,
    /// A hash of the variant, made by the caller; 0 for no variant.
    pub variant: u32,
    /// The record's size in units of 512 bytes. Not read when a record is written.
    pub size: u32,
}

impl Facts {
    /// Whether it is of a piece of an object that is kept in pieces.
    pub fn is_piece(&self) -> bool {
        self.flags & SPARSE != 0 && self.status == PARTIAL_CONTENT
    }

    /// The second half of the key, which a piece has in place of its times (they are those of the object that it is a
    /// piece of): the bits of `origin_time`, `ttl` and `grace`. `None` for all others.
    pub fn key_tail(&self) -> Option<[u8; 16]> {
        self.is_piece().then(|| {
            let mut tail = [0; 16];
            tail[..8].copy_from_slice(&self.origin_time.to_bits().to_le_bytes());
            tail[8..12].copy_from_slice(&self.ttl.to_bits().to_le_bytes());
            tail[12..].copy_from_slice(&self.grace.to_bits().to_le_bytes());
            tail
        })
    }

    /// As an entry has them: the key's first half, and of a piece its second half, too.
    pub(super) fn for_entry(mut self, key: &[u8; 32], size: u32) -> Self {
        let mut parser = Parser::new(key);
        self.key = parser.array().unwrap_or_default();
        self.size = size;
        if self.is_piece() {
            self.origin_time = parser.f64().unwrap_or_default();
            self.ttl = parser.f32().unwrap_or_default();
            self.grace = parser.f32().unwrap_or_default();
        }
        self
    }
}

/// A record to be written.
#[derive(Debug, Clone, Copy)]
pub struct NewRecord<'a> {
    /// The whole key.
    pub key: [u8; 32],
    /// What the entry will say; `key` and `size` in it are not read.
    pub facts: Facts,
    /// The transaction that fetched it.
    pub vxid: u32,
    /// What tells the variant from others. At most [`VARIANT_MAX`](super::VARIANT_MAX) bytes.
    pub variant: &'a [u8],
    /// The head, in whatever form the caller wants it back. At most [`HEAD_MAX`](super::HEAD_MAX) bytes.
    pub head: &'a [u8],
    /// The caller's plan of the body. At most [`PLAN_MAX`](super::PLAN_MAX) bytes.
    pub plan: Option<&'a [u8]>,
    /// What ties the entry to others, the caller's; kept in memory too. At most [`LINKS_MAX`](super::LINKS_MAX) bytes.
    pub links: &'a [u8],
    /// The body, in slices. Their sum is its length.
    pub body: &'a [&'a [u8]],
}

impl NewRecord<'_> {
    /// The length of the body.
    pub fn body_length(&self) -> u64 {
        self.body.iter().map(|slice| slice.len() as u64).sum()
    }
}
