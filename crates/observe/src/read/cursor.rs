//! A cursor over the log of another process.
//!
//! The ring has eight parts. A cursor that the writer comes nearer to than two parts may be reading what is being
//! overwritten: it stops with [`Next::Overrun`] and is placed anew by its owner. Each record is copied out first and
//! only then is the distance tested, so what is handed out was whole.

use crate::map::Foreign;
use crate::query::Source;
use crate::tags::Tag;
use crate::vsl::{
    BACKEND, BATCH, CLIENT, END, HEAD_BYTES, LENGTH_MASK, MAGIC, NUMBER_MASK, OFFSETS_AT, PART_AT,
    PART_WORDS_AT, PARTS, RECORD_HEAD, RING_AT, WRAP, words,
};
use crate::vsm::{self, Index, WORKER};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{Ordering, fence};

/// Where a cursor begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// The oldest records that are safe to read.
    Oldest,
    /// After the newest record.
    Newest,
}

/// What a step of the cursor found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// A record, see [`Cursor::record`].
    Record,
    /// Nothing newer yet.
    End,
    /// The writer has lapped the cursor: place it anew with [`Cursor::reset`].
    Overrun,
}

/// One record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// What it is about.
    pub tag: Tag,
    /// The transaction's number; 0 for none.
    pub number: u32,
    /// Of a client's session or request.
    pub client: bool,
    /// Of a backend request.
    pub backend: bool,
    /// The content, without the NUL at its end.
    pub data: &'a [u8],
}

impl Record<'_> {
    /// `c`, `b` or `-`.
    pub fn side(&self) -> char {
        match (self.client, self.backend) {
            (true, _) => 'c',
            (_, true) => 'b',
            _ => '-',
        }
    }
}

/// A record on its own, as grouped `raw`: it has no level.
impl Source for Record<'_> {
    fn level(&self) -> usize {
        0
    }

    fn number(&self) -> u32 {
        self.number
    }

    fn any(&self, test: &mut dyn FnMut(Tag, &[u8]) -> bool) -> bool {
        test(self.tag, self.data)
    }
}

/// Reads the log of one run of a worker.
#[derive(Debug)]
pub struct Cursor {
    mapping: Foreign,
    /// Byte offset of the log within the mapping.
    base: usize,
    work_directory: PathBuf,
    identity: (u32, u64),
    part_words: u32,
    at: u32,
    part: u32,
    tag: Tag,
    identity_word: u32,
    data: Vec<u8>,
}

impl Cursor {
    /// Opens the log of the worker in `work_directory`.
    ///
    /// # Errors
    /// `NotFound` if no worker runs there; `InvalidData` if its log is not of the known layout.
    pub fn attach(work_directory: &Path, position: Position) -> io::Result<Cursor> {
        let index = Index::read(work_directory, WORKER)?;
        let text = |text: &str| format!("{}: {text}", work_directory.display());
        if !index.is_alive() {
            return Err(io::Error::new(io::ErrorKind::NotFound, text("its worker does not run")));
        }
        let entry = index
            .find("Log")
            .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, text("it has no log")))?;
        let mapping = vsm::open_segment(work_directory, WORKER, entry)?;
        let bad = || io::Error::new(io::ErrorKind::InvalidData, text("its log has an unknown layout"));
        if entry.offset % 8 != 0 || entry.size < HEAD_BYTES + 4 * PARTS as usize {
            return Err(bad());
        }
        let long = |index: usize| mapping.long_word(entry.offset / 8 + index).unwrap_or(0);
        let magic = long(0);
        let part_words = long(PART_WORDS_AT);
        let room = ((entry.size - HEAD_BYTES) / 4) as u64;
        if magic.to_ne_bytes() != *MAGIC
            || part_words == 0
            || part_words.checked_mul(u64::from(PARTS)).is_none_or(|words| words > room.min(u32::MAX.into()))
        {
            return Err(bad());
        }
        let mut cursor = Cursor {
            base: entry.offset,
            mapping,
            work_directory: work_directory.to_owned(),
            identity: (index.process, index.birth),
            part_words: part_words as u32,
            at: 0,
            part: 0,
            tag: Tag::Debug,
            identity_word: 0,
            data: Vec::new(),
        };
        cursor.reset(position);
        Ok(cursor)
    }

    /// Places the cursor anew.
    pub fn reset(&mut self, position: Position) {
        let newest = self.newest_part();
        // One part more than what an overrun tests for, so that there is room to begin in.
        let back = match position {
            Position::Oldest => PARTS - 3,
            Position::Newest => 0,
        };
        let part = newest.wrapping_sub(back);
        let offset = self.mapping.long_word(self.base / 8 + OFFSETS_AT + (part % PARTS) as usize);
        match offset.map(u32::try_from) {
            Some(Ok(offset)) if offset < self.end() => (self.part, self.at) = (part, offset),
            // Not yet written: the log is young and begins at its beginning.
            _ => (self.part, self.at) = (newest - newest % PARTS, 0),
        }
        if position == Position::Newest {
            while self.step() == Next::Record {}
        }
    }

    /// The next record.
    ///
    /// Named for the iterator it cannot be, as what it hands out is borrowed: see [`Cursor::record`].
    pub fn step(&mut self) -> Next {
        // One lap at most: a damaged ring cannot keep us here.
        let mut wraps = 0;
        loop {
            if self.is_lapped() {
                return Next::Overrun;
            }
            let first = self.word(self.at);
            match first {
                END => return Next::End,
                WRAP if wraps == 0 && self.at > 0 => {
                    wraps += 1;
                    self.at = 0;
                    self.part = self.part.wrapping_add(PARTS - self.part % PARTS);
                    continue;
                }
                _ => {}
            }
            let (number, length) = ((first >> 24) as u8, (first & LENGTH_MASK) as usize);
            // A batch's head is stepped over; its records follow.
            let length = if number == BATCH { 0 } else { length };
            let next = self.at as usize + RECORD_HEAD / 4 + words(length);
            if next >= self.end() as usize {
                return Next::Overrun;
            }
            let start = self.base + HEAD_BYTES + 4 * self.at as usize;
            self.identity_word = self.word(self.at + 1);
            self.data.clear();
            self.mapping.copy_out(start + RECORD_HEAD, length, &mut self.data);
            fence(Ordering::Acquire);
            if self.is_lapped() {
                return Next::Overrun;
            }
            self.at = next as u32;
            while self.at / self.part_words > self.part % PARTS {
                self.part = self.part.wrapping_add(1);
            }
            if let Some(tag) = Tag::from_number(number) {
                self.tag = tag;
                if !tag.is_binary() && self.data.last() == Some(&0) {
                    self.data.pop();
                }
                return Next::Record;
            }
        }
    }

    /// The record that the last [`Cursor::step`] found.
    pub fn record(&self) -> Record<'_> {
        Record {
            tag: self.tag,
            number: self.identity_word & NUMBER_MASK,
            client: self.identity_word & CLIENT != 0,
            backend: self.identity_word & BACKEND != 0,
            data: &self.data,
        }
    }

    /// Whether the worker whose log this is still runs; a new one has a log of its own.
    pub fn is_current(&self) -> bool {
        Index::read(&self.work_directory, WORKER)
            .is_ok_and(|index| (index.process, index.birth) == self.identity && index.is_alive())
    }

    fn end(&self) -> u32 {
        self.part_words * PARTS
    }

    fn word(&self, at: u32) -> u32 {
        let word = self.mapping.word(self.base / 4 + RING_AT + at as usize);
        word.expect("the ring was seen to lie within the mapping, and the place within the ring")
    }

    fn newest_part(&self) -> u32 {
        let word = self.mapping.word(self.base / 4 + PART_AT);
        word.expect("the log's head was seen to lie within the mapping")
    }

    fn is_lapped(&self) -> bool {
        self.newest_part().wrapping_sub(self.part) >= PARTS - 2
    }
}
