//! What a record numbered `n` consists of: all of it follows from the number, so that a wrong byte is seen.

use copal_store::device::sim::Chance;
use copal_store::volume::{EntryId, Facts, NewRecord, ReadError, RecordReader, Volume};

/// A record that can be made again from its number.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Content {
    pub(crate) key: [u8; 32],
    pub(crate) facts: Facts,
    pub(crate) vxid: u32,
    pub(crate) variant: Vec<u8>,
    pub(crate) head: Vec<u8>,
    pub(crate) plan: Option<Vec<u8>>,
    pub(crate) links: Vec<u8>,
    pub(crate) body: Vec<u8>,
}

/// What records of a history are like.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Style {
    /// About the size of the largest.
    pub(crate) most: u64,
    /// All are of one size and of few keys, so that one lies where another of the same key lay.
    pub(crate) alike: bool,
    /// The longest links. Long ones fill many pages of the journal.
    pub(crate) links: u64,
}

impl Style {
    /// Few keys, so that the same is written again and again.
    fn keys(self) -> u32 {
        if self.alike { 2 } else { 40 }
    }
}

fn bytes(chance: &mut Chance, length: u64) -> Vec<u8> {
    (0..length.div_ceil(8)).flat_map(|_| chance.bits().to_le_bytes()).take(length as usize).collect()
}

impl Content {
    /// The record with that number.
    pub(crate) fn new(number: u32, style: Style) -> Self {
        let mut chance = Chance::new(u64::from(number));
        let mut key = [0; 32];
        let mut of_key = Chance::new(u64::from(number % style.keys()));
        key.copy_from_slice(&bytes(&mut of_key, 32));
        let is_piece = !style.alike && chance.one_in(5);
        let most = style.most;
        let length = match chance.below(8) {
            _ if style.alike => 2500,
            0 => 0,
            1..=4 => chance.below(most / 20),
            5 | 6 => chance.below(most / 6),
            _ => chance.below(most - 1000),
        };
        let has_links = style.links > 0 && chance.one_in(3);
        Self {
            key,
            facts: Facts {
                key: [0; 16],
                origin_time: f64::from(number),
                ttl: 10.0,
                grace: 20.0,
                keep: 30.0,
                ban: 0,
                last_use: 0,
                hits: 0,
                status: if is_piece { 206 } else { 200 },
                flags: if is_piece { 128 } else { 4 },
                // Tells the record from all others.
                variant: number,
                size: 0,
            },
            vxid: number,
            variant: {
                let length = if style.alike { 8 } else { chance.below(30) };
                bytes(&mut chance, length)
            },
            head: {
                let length = if style.alike { 8 } else { chance.below(400) };
                bytes(&mut chance, length)
            },
            plan: (!style.alike && chance.one_in(4)).then(|| bytes(&mut chance, 50)),
            links: if has_links {
                let length = 1 + chance.below(style.links);
                bytes(&mut chance, length)
            } else {
                Vec::new()
            },
            body: bytes(&mut chance, length),
        }
    }

    /// Writes it.
    pub(crate) fn write(&self, volume: &Volume) -> Result<EntryId, copal_store::volume::WriteError> {
        let slices: Vec<&[u8]> = self.body.chunks(1700).collect();
        volume.write(&NewRecord {
            key: self.key,
            facts: self.facts,
            vxid: self.vxid,
            variant: &self.variant,
            head: &self.head,
            plan: self.plan.as_deref(),
            links: &self.links,
            body: &slices,
        })
    }

    /// Reads the record of an entry whole, and checks every byte.
    pub(crate) fn check(&self, volume: &Volume, id: EntryId, chance: &mut Chance) -> Result<(), ReadError> {
        let mut reader = volume.open_record(id, chance.below(20_000) as usize)?;
        self.check_parts(&reader);
        let mut body = Vec::new();
        let mut out = vec![0; 1 + chance.below(100_000) as usize];
        loop {
            let count = reader.next(&mut out)?;
            if count == 0 {
                break;
            }
            body.extend_from_slice(&out[..count]);
            assert!(self.body.starts_with(&body), "the body of {id:?} has a wrong byte");
        }
        assert_eq!(body.len(), self.body.len(), "the body of {id:?} ends early");
        Ok(())
    }

    fn check_parts(&self, reader: &RecordReader) {
        assert_eq!(reader.vxid(), self.vxid);
        assert_eq!(*reader.key(), self.key);
        assert_eq!(reader.variant(), self.variant);
        assert_eq!(reader.head(), self.head);
        assert_eq!(reader.plan(), self.plan.as_deref());
        assert_eq!(reader.links(), self.links);
        assert_eq!(reader.body_length(), self.body.len() as u64);
    }
}
