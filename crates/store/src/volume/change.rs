//! Changes to entries and regions, as the journal has them.
//!
//! The table is in `docs/storage-format.md`, section "Journal". Each says what is then, so that it may be applied again.

use super::LINKS_MAX;
use super::bytes::{Parser, Put};
use super::entry::{Known, Location};
use super::facts::EntryId;
use super::superblock::ENTRY;

/// Which record is meant: no two ever have the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RecordName {
    pub(super) location: Location,
    pub(super) generation: u32,
}

/// New times of an entry.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Times {
    pub(super) origin_time: f64,
    pub(super) ttl: f32,
    pub(super) grace: f32,
    pub(super) keep: f32,
}

/// One change.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Change<'a> {
    Add { id: EntryId, generation: u32, known: Known, links: &'a [u8] },
    Move { id: EntryId, from: RecordName, to: RecordName },
    Remove { id: EntryId, record: RecordName },
    Times { id: EntryId, record: RecordName, times: Times },
    Ban { id: EntryId, record: RecordName, ban: u32 },
    Open { region: u32, generation: u32 },
    Free { region: u32, generation: u32 },
}

/// The longest a change can be, in bytes.
pub(super) const CHANGE_MAX: usize = 1 + 4 + 4 + ENTRY + 4 + LINKS_MAX;

/// What stands at the beginning of a stream.
#[derive(Debug, PartialEq)]
pub(super) enum Decoded<'a> {
    /// A change.
    Change(Change<'a>),
    /// The beginning of one.
    Partial,
    /// No change.
    Wrong,
}

impl<'a> Change<'a> {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let name = |out: &mut Vec<u8>, record: &RecordName| {
            out.u64(record.location.pack());
            out.u32(record.generation);
        };
        let begin = |out: &mut Vec<u8>, kind: u8, number: u32| {
            out.u8(kind);
            out.u32(number);
        };
        match self {
            Self::Add { id, generation, known, links } => {
                begin(out, 1, id.0);
                out.u32(*generation);
                Known::encode(Some(known), out);
                out.u32(links.len() as u32);
                out.bytes(links);
            }
            Self::Move { id, from, to } => {
                begin(out, 2, id.0);
                name(out, from);
                name(out, to);
            }
            Self::Remove { id, record } => {
                begin(out, 3, id.0);
                name(out, record);
            }
            Self::Times { id, record, times } => {
                begin(out, 4, id.0);
                name(out, record);
                out.f64(times.origin_time);
                out.f32(times.ttl);
                out.f32(times.grace);
                out.f32(times.keep);
            }
            Self::Ban { id, record, ban } => {
                begin(out, 5, id.0);
                name(out, record);
                out.u32(*ban);
            }
            Self::Open { region, generation } => {
                begin(out, 6, *region);
                out.u32(*generation);
            }
            Self::Free { region, generation } => {
                begin(out, 7, *region);
                out.u32(*generation);
            }
        }
    }

    /// Takes the next change from the stream, which stays as it is if there is none.
    pub(super) fn decode(stream: &mut &'a [u8]) -> Decoded<'a> {
        let mut parser = Parser::new(stream);
        match Self::parse(&mut parser) {
            Ok(Some(change)) => {
                *stream = &stream[stream.len() - parser.left()..];
                Decoded::Change(change)
            }
            Ok(None) => Decoded::Partial,
            Err(Wrong) => Decoded::Wrong,
        }
    }

    fn parse(parser: &mut Parser<'a>) -> Result<Option<Self>, Wrong> {
        let Some(kind) = parser.u8() else { return Ok(None) };
        Ok(match kind {
            1 => return Self::parse_add(parser),
            2 => parse_move(parser),
            3 => parse_entry(parser).map(|(id, record)| Self::Remove { id, record }),
            4 => parse_times(parser),
            5 => parse_ban(parser),
            6 => parse_region(parser).map(|(region, generation)| Self::Open { region, generation }),
            7 => parse_region(parser).map(|(region, generation)| Self::Free { region, generation }),
            _ => return Err(Wrong),
        })
    }

    fn parse_add(parser: &mut Parser<'a>) -> Result<Option<Self>, Wrong> {
        let (Some(id), Some(generation), Some(entry), Some(length)) =
            (parser.u32(), parser.u32(), parser.take(ENTRY), parser.u32())
        else {
            return Ok(None);
        };
        let known = Known::decode(entry).ok_or(Wrong)?;
        if length as usize > LINKS_MAX
            || known.generation != generation as u16
            || known.has_links != (length > 0)
        {
            return Err(Wrong);
        }
        let links = parser.take(length as usize);
        Ok(links.map(|links| Self::Add { id: EntryId(id), generation, known, links }))
    }
}

/// What cannot be a change.
struct Wrong;

fn parse_name(parser: &mut Parser<'_>) -> Option<RecordName> {
    Some(RecordName { location: Location::unpack(parser.u64()?), generation: parser.u32()? })
}

fn parse_entry(parser: &mut Parser<'_>) -> Option<(EntryId, RecordName)> {
    Some((EntryId(parser.u32()?), parse_name(parser)?))
}

fn parse_move<'a>(parser: &mut Parser<'_>) -> Option<Change<'a>> {
    let (id, from) = parse_entry(parser)?;
    Some(Change::Move { id, from, to: parse_name(parser)? })
}

fn parse_times<'a>(parser: &mut Parser<'_>) -> Option<Change<'a>> {
    let (id, record) = parse_entry(parser)?;
    let origin_time = parser.f64()?;
    let times = Times { origin_time, ttl: parser.f32()?, grace: parser.f32()?, keep: parser.f32()? };
    Some(Change::Times { id, record, times })
}

fn parse_ban<'a>(parser: &mut Parser<'_>) -> Option<Change<'a>> {
    let (id, record) = parse_entry(parser)?;
    Some(Change::Ban { id, record, ban: parser.u32()? })
}

fn parse_region(parser: &mut Parser<'_>) -> Option<(u32, u32)> {
    Some((parser.u32()?, parser.u32()?))
}

#[cfg(test)]
mod tests {
    use super::super::entry::tests::known;
    use super::*;

    fn record(generation: u32) -> RecordName {
        RecordName { location: known().location, generation }
    }

    fn check(change: Change<'_>) {
        let mut bytes = Vec::new();
        change.encode(&mut bytes);
        assert!(bytes.len() <= CHANGE_MAX);
        for cut in 0..bytes.len() {
            let mut stream = &bytes[..cut];
            assert_eq!(Change::decode(&mut stream), Decoded::Partial, "{cut} bytes of {change:?}");
            assert_eq!(stream.len(), cut);
        }
        bytes.push(77);
        let mut stream = bytes.as_slice();
        assert_eq!(Change::decode(&mut stream), Decoded::Change(change));
        assert_eq!(stream, [77]);
        assert_eq!(Change::decode(&mut stream), Decoded::Wrong);
    }

    #[test]
    fn changes_come_back() {
        let id = EntryId(7);
        let times = Times { origin_time: 1.5, ttl: 2.5, grace: 3.5, keep: 4.5 };
        let bare = Known { has_links: false, ..known() };
        check(Change::Add { id, generation: 0x1_beef, known: bare, links: b"" });
        check(Change::Add { id, generation: 0x1_beef, known: known(), links: b"links" });
        check(Change::Add { id, generation: 0xbeef, known: known(), links: &[1; LINKS_MAX] });
        check(Change::Move { id, from: record(3), to: record(4) });
        check(Change::Remove { id, record: record(3) });
        check(Change::Times { id, record: record(3), times });
        check(Change::Ban { id, record: record(3), ban: 5 });
        check(Change::Open { region: 1, generation: 2 });
        check(Change::Free { region: 1, generation: 2 });
    }
}
