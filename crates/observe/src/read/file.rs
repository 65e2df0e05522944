//! Log files: what `log -w` writes and `-r` reads, the format of Varnish 7.1's tools.
//!
//! | offset | size | meaning |
//! |---|---|---|
//! | 0 | 4 | `VSL` and a NUL |
//! | 4 | ... | records, one behind the other |
//!
//! A record is as in shared memory: `tag << 24 | length`, `marker << 30 | number`, both 32 bits in the machine's byte
//! order, then `length` bytes padded to a multiple of four; all but binary records count a NUL at their end.

use super::cursor::Record;
use crate::tags::Tag;
use crate::vsl::{BACKEND, CLIENT, LENGTH_MASK, NUMBER_MASK, RECORD_HEAD, first_word, words};
use std::io::{self, BufReader, ErrorKind, Read};

/// What a file begins with.
pub const MAGIC: &[u8; 4] = b"VSL\0";

/// Appends `record` to `out` in the file's form. A content of more than 65,535 bytes is cut: there is none in a log.
pub fn append(record: &Record<'_>, out: &mut Vec<u8>) {
    let nul = usize::from(!record.tag.is_binary());
    let data = &record.data[..record.data.len().min(LENGTH_MASK as usize - nul)];
    let length = data.len() + nul;
    let marker = if record.client { CLIENT } else { 0 } | if record.backend { BACKEND } else { 0 };
    out.extend_from_slice(&first_word(record.tag, length).to_ne_bytes());
    out.extend_from_slice(&(record.number & NUMBER_MASK | marker).to_ne_bytes());
    out.extend_from_slice(data);
    out.resize(out.len() + words(length) * 4 - data.len(), 0);
}

/// Reads a log file, or a pipe with one.
pub struct LogFile {
    input: BufReader<Box<dyn Read>>,
    tag: Tag,
    identity: u32,
    data: Vec<u8>,
}

impl LogFile {
    /// Reads the file's first bytes.
    ///
    /// # Errors
    /// `UnexpectedEof` if it is shorter; `InvalidData` if it is no log file; else what the kernel says.
    pub fn open(input: Box<dyn Read>) -> io::Result<LogFile> {
        let mut input = BufReader::with_capacity(64 << 10, input);
        let mut magic = [0; MAGIC.len()];
        input.read_exact(&mut magic)?;
        if magic != *MAGIC {
            return Err(io::Error::new(ErrorKind::InvalidData, "not a log file"));
        }
        Ok(LogFile { input, tag: Tag::Debug, identity: 0, data: Vec::new() })
    }

    /// Reads the next record; false at the end. Records with an unknown tag are passed over.
    ///
    /// # Errors
    /// `UnexpectedEof` if the file ends within a record; else what the kernel says.
    pub fn step(&mut self) -> io::Result<bool> {
        loop {
            let mut head = [0; RECORD_HEAD];
            if !self.fill(&mut head)? {
                return Ok(false);
            }
            let [a, b, c, d, e, f, g, h] = head;
            let first = u32::from_ne_bytes([a, b, c, d]);
            self.identity = u32::from_ne_bytes([e, f, g, h]);
            let length = (first & LENGTH_MASK) as usize;
            self.data.resize(words(length) * 4, 0);
            self.input.read_exact(&mut self.data)?;
            self.data.truncate(length);
            if let Some(tag) = Tag::from_number((first >> 24) as u8) {
                self.tag = tag;
                if !tag.is_binary() && self.data.last() == Some(&0) {
                    self.data.pop();
                }
                return Ok(true);
            }
        }
    }

    /// Fills `out`; false if the file ended before its first byte.
    fn fill(&mut self, out: &mut [u8]) -> io::Result<bool> {
        let mut got = 0;
        while got < out.len() {
            match self.input.read(&mut out[got..]) {
                Ok(0) if got == 0 => return Ok(false),
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(length) => got += length,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// The record that the last [`LogFile::step`] read.
    pub fn record(&self) -> Record<'_> {
        Record {
            tag: self.tag,
            number: self.identity & NUMBER_MASK,
            client: self.identity & CLIENT != 0,
            backend: self.identity & BACKEND != 0,
            data: &self.data,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(tag: Tag, number: u32, data: &[u8]) -> Record<'_> {
        Record { tag, number, client: number % 2 == 1, backend: number == 2, data }
    }

    #[test]
    fn what_is_written_is_read() {
        let records = [
            record(Tag::Begin, 1, b"req 0 rxreq"),
            record(Tag::End, 1, b""),
            record(Tag::H2RxHdr, 3, &[0, 1, 0]),
            record(Tag::BereqURL, 2, b"/abc"),
            record(Tag::CLI, 0, b"Rd ping"),
        ];
        let mut bytes = MAGIC.to_vec();
        records.iter().for_each(|record| append(record, &mut bytes));
        assert_eq!(bytes.len() % 4, 0);
        let mut file = LogFile::open(Box::new(io::Cursor::new(bytes.clone()))).unwrap();
        for expected in &records {
            assert!(file.step().unwrap());
            assert_eq!(file.record(), *expected);
        }
        assert!(!file.step().unwrap());

        bytes.truncate(bytes.len() - 3);
        let mut file = LogFile::open(Box::new(io::Cursor::new(bytes))).unwrap();
        let mut outcome = file.step();
        while matches!(outcome, Ok(true)) {
            outcome = file.step();
        }
        assert_eq!(outcome.unwrap_err().kind(), ErrorKind::UnexpectedEof);
    }

    #[test]
    fn what_is_no_log_file_is_refused() {
        for (bytes, kind) in [
            (&b"foobar"[..], ErrorKind::InvalidData),
            (b"", ErrorKind::UnexpectedEof),
            (b"VS", ErrorKind::UnexpectedEof),
        ] {
            let Err(error) = LogFile::open(Box::new(bytes)) else { panic!("accepted {bytes:?}") };
            assert_eq!(error.kind(), kind, "{bytes:?}");
        }
    }
}
