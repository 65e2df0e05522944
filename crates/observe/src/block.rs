//! Records that are made once and put into many transactions.

use crate::mask::Mask;
use crate::records::Records;
use crate::tags::Tag;
use crate::vsl::{self, RECORD_HEAD};

/// A place in a transaction's records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    pub(crate) used: usize,
    pub(crate) count: u32,
    /// How often the buffer had been emptied.
    pub(crate) emptied: u32,
}

/// Some records of a transaction, in the form that the ring has them. They fit other transactions, as long as the
/// settings of the log stay what they were.
#[derive(Clone, Debug)]
pub struct Block {
    bytes: Box<[u8]>,
    /// Where in `bytes` each record begins.
    starts: Box<[u32]>,
    mask: Mask,
    record_bytes: usize,
}

impl Block {
    fn new(bytes: &[u8], mask: Mask, record_bytes: usize) -> Block {
        let (mut starts, mut at) = (Vec::new(), 0);
        while let Some((size, _)) = measure(&bytes[at..]) {
            starts.push(at as u32);
            at += size;
        }
        Block { bytes: bytes.into(), starts: starts.into(), mask, record_bytes }
    }

    /// What the records say, in order: the content of each, without its NUL.
    pub fn contents(&self) -> impl Iterator<Item = &[u8]> {
        self.records().map(|(_, content)| content)
    }

    /// The records with their tags, in order: the content of each, without its NUL.
    pub fn records(&self) -> impl Iterator<Item = (Option<Tag>, &[u8])> {
        let mut rest = &self.bytes[..];
        std::iter::from_fn(move || {
            let (size, length) = measure(rest)?;
            let content = &rest[RECORD_HEAD..RECORD_HEAD + length];
            let tag = Tag::from_number((u32::from_ne_bytes(*rest.first_chunk::<4>()?) >> 24) as u8);
            rest = &rest[size..];
            Some((tag, content.strip_suffix(b"\0").unwrap_or(content)))
        })
    }

    /// The block as two, with the record `index` left out: what comes before it and what comes after it. Beyond the last
    /// record, all comes before it.
    pub fn without(&self, index: usize) -> (Block, Block) {
        let start_of =
            |index: usize| self.starts.get(index).map_or(self.bytes.len(), |start| *start as usize);
        let part = |bytes: &[u8]| Block::new(bytes, self.mask, self.record_bytes);
        let after = start_of(index.saturating_add(1));
        (part(&self.bytes[..start_of(index)]), part(&self.bytes[after..]))
    }

    /// Bytes of memory behind it.
    pub fn size(&self) -> usize {
        self.bytes.len() + size_of_val(&*self.starts)
    }
}

/// Size of the first record of `bytes` and the length of its content.
fn measure(bytes: &[u8]) -> Option<(usize, usize)> {
    let length = (u32::from_ne_bytes(*bytes.first_chunk::<4>()?) & vsl::LENGTH_MASK) as usize;
    Some((RECORD_HEAD + vsl::words(length) * 4, length))
}

impl Records {
    /// The place behind the newest record.
    #[inline]
    pub fn mark(&self) -> Mark {
        Mark { used: self.used, count: self.count, emptied: self.emptied }
    }

    /// The records from `mark` on up to `end`. `None` if the buffer was written out since `mark`.
    pub fn block(&self, mark: Mark, end: Mark) -> Option<Block> {
        let stands = |mark: Mark| mark.emptied == self.emptied && mark.used <= self.used;
        (stands(mark) && stands(end) && mark.used <= end.used)
            .then(|| Block::new(&self.buffer[mark.used..end.used], self.mask, self.record_bytes))
    }

    /// Whether this transaction would have made the records of `block` as they are.
    #[inline]
    pub fn accepts(&self, block: &Block) -> bool {
        self.mask == block.mask && self.record_bytes == block.record_bytes
    }

    /// Puts the records of `block`, which this transaction [accepts](Records::accepts), behind those that are there.
    #[inline]
    pub fn replay(&mut self, block: &Block) {
        debug_assert!(self.accepts(block));
        let size = block.bytes.len();
        self.make_room(size);
        let to = &mut self.buffer[self.used..self.used + size];
        to.copy_from_slice(&block.bytes);
        let identity = self.identity.to_ne_bytes();
        for start in &block.starts {
            let start = *start as usize;
            to[start + 4..start + 8].copy_from_slice(&identity);
        }
        self.used += size;
        self.count += block.starts.len() as u32;
        self.written();
    }
}

#[cfg(test)]
mod tests {
    use crate::records::{Kind, Records};
    use crate::shm::Worker;
    use crate::tags::Tag;
    use crate::vsl::Settings;
    use std::path::PathBuf;

    /// A number of this run alone: one that was killed leaves its files.
    fn unique() -> u64 {
        use std::hash::{BuildHasher as _, RandomState};
        RandomState::new().hash_one(())
    }

    struct Scratch(PathBuf);

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn log(name: &str) -> (Scratch, Worker) {
        let path = std::env::temp_dir().join(format!("copal-block-{}-{name}", unique()));
        std::fs::create_dir(&path).unwrap();
        let worker = Worker::create(&path, &Settings { space: 1 << 20, ..Settings::default() }, 0.0).unwrap();
        (Scratch(path), worker)
    }

    /// A block made in one transaction reads in another as if its records had been made there.
    #[test]
    fn replayed_records_are_the_same_as_made_ones() {
        let (_directory, worker) = log("replay");
        let writer = worker.log();
        let texts: [&[u8]; 4] = [b"a: 1", b"X-Varnish: 12", b"b: a longer one", b""];
        let mut first = Records::new(writer);
        first.begin(7, Kind::Client);
        first.text(Tag::ReqURL, b"/");
        let mark = first.mark();
        for text in texts {
            first.text(Tag::RespHeader, text);
        }
        let block = first.block(mark, first.mark()).unwrap();
        assert_eq!(block.contents().collect::<Vec<_>>(), texts);
        let (before, after) = block.without(1);
        let mut made = Records::new(writer);
        let mut replayed = Records::new(writer);
        made.begin(8, Kind::Client);
        replayed.begin(8, Kind::Client);
        for text in texts {
            made.text(Tag::RespHeader, text);
        }
        assert!(replayed.accepts(&before));
        replayed.replay(&before);
        replayed.text(Tag::RespHeader, texts[1]);
        replayed.replay(&after);
        assert_eq!(made.bytes(), replayed.bytes());
        assert_eq!(made.mark(), replayed.mark());
    }

    #[test]
    fn records_that_stand_aside_are_seen_and_not_written() {
        let (_directory, worker) = log("aside");
        let mut records = Records::aside(worker.log());
        records.begin(0, Kind::Client);
        let start = records.mark();
        records.text(Tag::VCL_Log, b"seen");
        records.end();
        let block = records.block(start, records.mark()).unwrap();
        let seen: Vec<_> = block.records().collect();
        assert_eq!(seen, [(Some(Tag::VCL_Log), &b"seen"[..]), (Some(Tag::End), b"")]);
        // It has a bound: then it begins anew.
        for _ in 0..10_000 {
            records.text(Tag::VCL_Log, b"more");
        }
        assert!(records.bytes().len() <= 64 << 10);
        drop(records);
        assert_eq!(worker.log().statistics().records, 0);
    }

    #[test]
    fn no_block_of_what_was_written_out() {
        let (_directory, worker) = log("flushed");
        let writer = worker.log();
        let mut records = Records::new(writer);
        records.begin(7, Kind::Client);
        let mark = records.mark();
        records.text(Tag::ReqURL, b"/");
        records.flush();
        records.text(Tag::ReqURL, b"/");
        assert!(records.block(mark, records.mark()).is_none());
    }
}
