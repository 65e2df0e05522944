//! Transactions made of records, and groups made of transactions.
//!
//! A transaction is what stands between its `Begin` and its `End`. Its Begin names its parent, its Links name its
//! children:
//!
//! ```text
//! session 1 --Link req 2 rxreq--> request 2 --Link bereq 3 fetch--> backend request 3
//! ```
//! Grouped by request, a group is a request that came from a client with all that it started, and sessions are left
//! out; by session, a session with all its requests. A group is handed out when everything in it has ended. What stays
//! incomplete too long, or is one too many, is handed out as it is, with a `VSL` record that says why.

use crate::query::Source;
use crate::read::cursor::Record;
use crate::tags::Tag;
use std::collections::{HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

/// How transactions are put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grouping {
    /// Each alone.
    Vxid,
    /// A client's request with what it started.
    Request,
    /// A session with all its requests.
    Session,
}

/// How much that is incomplete is kept.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Transactions kept before the oldest is handed out as it is.
    pub transactions: usize,
    /// How long a group may stay incomplete.
    pub age: Duration,
    /// Bytes of records kept before the oldest is handed out as it is.
    pub bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { transactions: 1000, age: Duration::from_secs(120), bytes: 256 << 20 }
    }
}

/// A transaction keeps at most this many bytes; what comes after is left out, but for its `End`.
const BYTES_MAX: usize = 4 << 20;
/// How deep requests may start requests before the rest is taken as groups of their own.
const DEPTH_MAX: usize = 64;

/// What a transaction is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionKind {
    /// A client's connection.
    Session,
    /// A client's request.
    Request,
    /// A request to a backend.
    Backend,
    /// Something else.
    Unknown,
}

impl TransactionKind {
    /// The word in a transaction's heading.
    pub fn name(self) -> &'static str {
        match self {
            TransactionKind::Session => "Session",
            TransactionKind::Request => "Request",
            TransactionKind::Backend => "BeReq",
            TransactionKind::Unknown => "Unknown",
        }
    }

    fn of(word: &[u8]) -> TransactionKind {
        match word {
            b"sess" => TransactionKind::Session,
            b"req" => TransactionKind::Request,
            b"bereq" => TransactionKind::Backend,
            _ => TransactionKind::Unknown,
        }
    }
}

/// A transaction with its records.
#[derive(Clone, Debug)]
pub struct Transaction {
    /// Its number.
    pub number: u32,
    /// What it is.
    pub kind: TransactionKind,
    /// Why it was started, the last word of its Begin: `rxreq`, `esi`, `fetch`, `pass`...
    pub reason: String,
    /// How deep in its group it stands; the first is at 1.
    pub level: usize,
    parent: u32,
    children: Vec<u32>,
    ended: bool,
    began: Instant,
    bytes: Vec<u8>,
    records: Vec<(Tag, usize)>,
}

impl Transaction {
    fn new(number: u32, begin: &[u8], now: Instant) -> Transaction {
        let mut words = begin.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
        let kind = words.next().map_or(TransactionKind::Unknown, TransactionKind::of);
        let parent = words.next().and_then(parse_number).unwrap_or(0);
        let reason = words.next().map(|word| String::from_utf8_lossy(word).into_owned()).unwrap_or_default();
        Transaction {
            number,
            kind,
            reason,
            level: 1,
            parent,
            children: Vec::new(),
            ended: false,
            began: now,
            bytes: Vec::new(),
            records: Vec::new(),
        }
    }

    /// The bytes taken.
    fn push(&mut self, tag: Tag, data: &[u8]) -> usize {
        if self.bytes.len() + data.len() > BYTES_MAX && tag != Tag::End {
            return 0;
        }
        self.bytes.extend_from_slice(data);
        self.records.push((tag, self.bytes.len()));
        data.len() + size_of::<(Tag, usize)>()
    }

    fn size(&self) -> usize {
        self.bytes.len() + self.records.len() * size_of::<(Tag, usize)>()
    }

    /// The records, oldest first: tag and content.
    pub fn records(&self) -> impl Iterator<Item = (Tag, &[u8])> {
        let mut start = 0;
        self.records.iter().map(move |(tag, end)| {
            let data = &self.bytes[start..*end];
            start = *end;
            (*tag, data)
        })
    }

    /// The same as records of the log.
    pub fn log_records(&self) -> impl Iterator<Item = Record<'_>> {
        let backend = self.kind == TransactionKind::Backend;
        self.records().map(move |(tag, data)| Record {
            tag,
            number: self.number,
            client: !backend,
            backend,
            data,
        })
    }
}

impl Source for Transaction {
    fn level(&self) -> usize {
        self.level
    }

    fn number(&self) -> u32 {
        self.number
    }

    fn any(&self, test: &mut dyn FnMut(Tag, &[u8]) -> bool) -> bool {
        self.records().any(|(tag, data)| test(tag, data))
    }
}

fn parse_number(word: &[u8]) -> Option<u32> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

/// Puts records together.
#[derive(Debug)]
pub struct Grouper {
    grouping: Grouping,
    limits: Limits,
    open: HashMap<u32, Transaction>,
    /// Bytes of the records in `open`.
    bytes: usize,
    /// Numbers in the order they began; some may be gone from `open`.
    order: VecDeque<u32>,
}

impl Grouper {
    /// An empty one.
    pub fn new(grouping: Grouping, limits: Limits) -> Grouper {
        Grouper { grouping, limits, open: HashMap::new(), bytes: 0, order: VecDeque::new() }
    }

    /// Takes a record; what became complete by it is handed to `emit`, parents before children. Records of no
    /// transaction, and of one whose Begin was not seen, are left out.
    pub fn add(&mut self, record: &Record<'_>, now: Instant, emit: &mut dyn FnMut(&[Transaction])) {
        if record.number == 0 {
            return;
        }
        if record.tag == Tag::Begin && !self.open.contains_key(&record.number) {
            self.open.insert(record.number, Transaction::new(record.number, record.data, now));
            self.order.push_back(record.number);
        }
        let Some(transaction) = self.open.get_mut(&record.number) else { return };
        self.bytes += transaction.push(record.tag, record.data);
        match record.tag {
            Tag::Link => {
                let child = record.data.split(|byte| *byte == b' ').nth(1).and_then(parse_number);
                transaction.children.extend(child.filter(|child| *child != record.number));
            }
            Tag::End => {
                transaction.ended = true;
                // Grouped by request, sessions belong to no group and are left out.
                if self.grouping == Grouping::Request && transaction.kind == TransactionKind::Session {
                    self.remove(record.number);
                } else {
                    self.finish(record.number, emit);
                }
            }
            _ => {}
        }
        if record.tag == Tag::Begin || self.bytes > self.limits.bytes {
            self.enforce(now, emit);
        }
    }

    /// Hands out what has become too old.
    pub fn expire(&mut self, now: Instant, emit: &mut dyn FnMut(&[Transaction])) {
        while let Some(number) = self.oldest() {
            if now.duration_since(self.open[&number].began) <= self.limits.age {
                break;
            }
            self.force(number, "timeout", emit);
        }
    }

    /// Hands out everything, as it is.
    pub fn flush(&mut self, emit: &mut dyn FnMut(&[Transaction])) {
        while let Some(number) = self.oldest() {
            self.force(number, "flush", emit);
        }
    }

    fn enforce(&mut self, now: Instant, emit: &mut dyn FnMut(&[Transaction])) {
        while self.open.len() > self.limits.transactions || self.bytes > self.limits.bytes {
            let Some(number) = self.oldest() else { return };
            self.force(number, "store overflow", emit);
        }
        self.expire(now, emit);
    }

    fn oldest(&mut self) -> Option<u32> {
        while let Some(number) = self.order.front() {
            if self.open.contains_key(number) {
                return Some(*number);
            }
            self.order.pop_front();
        }
        None
    }

    /// Whether a transaction stands below its parent in this grouping.
    fn has_parent(&self, transaction: &Transaction) -> bool {
        match self.grouping {
            Grouping::Vxid => false,
            Grouping::Request => transaction.reason != "rxreq" && transaction.parent != 0,
            Grouping::Session => transaction.parent != 0,
        }
    }

    fn root(&self, number: u32) -> u32 {
        let mut number = number;
        for _ in 0..DEPTH_MAX {
            match self.open.get(&number) {
                Some(transaction)
                    if self.has_parent(transaction) && self.open.contains_key(&transaction.parent) =>
                {
                    number = transaction.parent;
                }
                _ => break,
            }
        }
        number
    }

    /// Hands out the group of `number` if all of it has ended.
    fn finish(&mut self, number: u32, emit: &mut dyn FnMut(&[Transaction])) {
        let root = self.root(number);
        // A child may end before its parent's first record comes: it waits.
        if self.open.get(&root).is_some_and(|transaction| self.has_parent(transaction)) {
            return;
        }
        // A long session's requests end one by one: all is only looked through when the session itself has ended.
        if self.open.get(&root).is_none_or(|transaction| !transaction.ended) {
            return;
        }
        let (members, complete) = self.members(root);
        if complete {
            self.hand_out(&members, emit);
        }
    }

    /// The numbers and levels of a group, parents before children, and whether all are there and have ended.
    fn members(&self, root: u32) -> (Vec<(u32, usize)>, bool) {
        let mut complete = true;
        let mut members: Vec<(u32, usize)> = Vec::new();
        let mut seen = HashSet::new();
        // By levels, as Varnish's tools print a group.
        let mut waiting = VecDeque::from([(root, 1)]);
        while let Some((number, level)) = waiting.pop_front() {
            let Some(transaction) = self.open.get(&number) else {
                complete = false;
                continue;
            };
            if level > DEPTH_MAX || !seen.insert(number) {
                continue;
            }
            complete &= transaction.ended;
            // A restart stands beside the request that it goes on with.
            let level = if transaction.reason == "restart" && level > 1 { level - 1 } else { level };
            members.push((number, level));
            let below = self.grouping != Grouping::Vxid
                && (self.grouping == Grouping::Session || transaction.kind != TransactionKind::Session);
            if below {
                waiting.extend(transaction.children.iter().map(|child| (*child, level + 1)));
            }
        }
        (members, complete)
    }

    fn force(&mut self, number: u32, why: &str, emit: &mut dyn FnMut(&[Transaction])) {
        let root = self.root(number);
        let (mut members, _) = self.members(root);
        if members.iter().all(|(other, _)| *other != number) {
            // Its parent does not know it: it goes alone.
            members = vec![(number, 1)];
        }
        if self.grouping == Grouping::Request {
            members.retain(|(number, _)| self.open[number].kind != TransactionKind::Session);
            if self.open.get(&number).is_some_and(|one| one.kind == TransactionKind::Session) {
                self.remove(number);
            }
            if members.is_empty() {
                return;
            }
        }
        for (number, _) in &members {
            if let Some(transaction) = self.open.get_mut(number).filter(|transaction| !transaction.ended) {
                self.bytes += transaction.push(Tag::VSL, why.as_bytes());
                self.bytes += transaction.push(Tag::End, b"synth");
                transaction.ended = true;
            }
        }
        self.hand_out(&members, emit);
    }

    fn remove(&mut self, number: u32) -> Option<Transaction> {
        let transaction = self.open.remove(&number)?;
        self.bytes -= transaction.size();
        Some(transaction)
    }

    fn hand_out(&mut self, members: &[(u32, usize)], emit: &mut dyn FnMut(&[Transaction])) {
        let group: Vec<Transaction> = members
            .iter()
            .filter_map(|(number, level)| {
                let mut transaction = self.remove(*number)?;
                transaction.level = *level;
                Some(transaction)
            })
            .collect();
        emit(&group);
        if self.order.len() > 2 * self.open.len() + 64 {
            self.order.retain(|number| self.open.contains_key(number));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(grouping: Grouping, records: &[(u32, Tag, &str)], expected: &[&[(u32, usize)]]) {
        let mut grouper = Grouper::new(grouping, Limits { transactions: 4, ..Limits::default() });
        let mut groups: Vec<Vec<(u32, usize)>> = Vec::new();
        let mut emit =
            |group: &[Transaction]| groups.push(group.iter().map(|t| (t.number, t.level)).collect());
        let now = Instant::now();
        for (number, tag, text) in records {
            let record =
                Record { tag: *tag, number: *number, client: true, backend: false, data: text.as_bytes() };
            grouper.add(&record, now, &mut emit);
        }
        assert_eq!(groups, expected);
    }

    const MISS: &[(u32, Tag, &str)] = &[
        (1, Tag::Begin, "sess 0 HTTP/1"),
        (2, Tag::Begin, "req 1 rxreq"),
        (1, Tag::Link, "req 2 rxreq"),
        (2, Tag::Link, "bereq 3 fetch"),
        (2, Tag::End, ""),
        (3, Tag::Begin, "bereq 2 fetch"),
        (3, Tag::End, ""),
        (1, Tag::End, ""),
    ];

    #[test]
    fn a_miss_in_each_grouping() {
        check(Grouping::Vxid, MISS, &[&[(2, 1)], &[(3, 1)], &[(1, 1)]]);
        check(Grouping::Request, MISS, &[&[(2, 1), (3, 2)]]);
        check(Grouping::Session, MISS, &[&[(1, 1), (2, 2), (3, 3)]]);
    }

    #[test]
    fn a_child_that_ends_first_waits_for_its_parent() {
        let records = [
            (3, Tag::Begin, "bereq 2 fetch"),
            (3, Tag::End, ""),
            (2, Tag::Begin, "req 1 rxreq"),
            (2, Tag::Link, "bereq 3 fetch"),
            (2, Tag::End, ""),
        ];
        check(Grouping::Request, &records, &[&[(2, 1), (3, 2)]]);
        check(Grouping::Session, &records, &[]);
    }

    #[test]
    fn what_never_ends_is_bounded() {
        let records: Vec<_> = (1..=6).map(|number| (number, Tag::Begin, "req 0 rxreq")).collect();
        check(Grouping::Request, &records, &[&[(1, 1)], &[(2, 1)]]);
    }

    #[test]
    fn links_in_a_circle_end() {
        let records = [
            (1, Tag::Begin, "req 2 esi"),
            (2, Tag::Begin, "req 1 esi"),
            (1, Tag::Link, "req 2 esi"),
            (2, Tag::Link, "req 1 esi"),
            (1, Tag::End, ""),
            (2, Tag::End, ""),
        ];
        let mut seen = 0;
        let mut grouper = Grouper::new(Grouping::Request, Limits::default());
        for (number, tag, text) in records {
            let record = Record { tag, number, client: true, backend: false, data: text.as_bytes() };
            grouper.add(&record, Instant::now(), &mut |group| seen += group.len());
        }
        grouper.flush(&mut |group| seen += group.len());
        assert_eq!(seen, 2);
    }

    #[test]
    fn an_incomplete_transaction_says_why() {
        let mut grouper = Grouper::new(Grouping::Vxid, Limits::default());
        let record =
            Record { tag: Tag::Begin, number: 7, client: true, backend: false, data: b"req 1 rxreq" };
        grouper.add(&record, Instant::now(), &mut |_| panic!("not complete"));
        let mut records = Vec::new();
        grouper.flush(&mut |group| records.extend(group[0].records().map(|(tag, _)| tag)));
        assert_eq!(records, [Tag::Begin, Tag::VSL, Tag::End]);
    }
}
