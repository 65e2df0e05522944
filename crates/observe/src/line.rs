//! Records of words and numbers, put together in place.

use crate::digits::{self, LENGTH_MAX, Moments, STAMP};
use crate::records::Records;
use crate::tags::Tag;
use crate::vsl::RECORD_HEAD;
use copal_base::{Seconds, Time};
use std::io::Write as _;
use std::net::IpAddr;

/// One word or number of a record.
#[derive(Clone, Copy, Debug)]
pub enum Field<'a> {
    /// Bytes as they are.
    Text(&'a [u8]),
    /// A whole number.
    Integer(u64),
    /// Seconds with six decimals.
    Micros(Seconds),
}

/// The content of a record that is being put together. What does not fit into it is cut: texts to the byte, while of
/// numbers, and what stands behind the end, nothing is printed.
pub struct Line<'r> {
    /// Room for `most` bytes and a number.
    out: &'r mut [u8],
    at: usize,
    most: usize,
    moments: &'r mut Moments,
}

impl Line<'_> {
    /// Bytes as they are.
    #[inline]
    pub fn text(&mut self, text: &[u8]) {
        // With a text known to the compiler, a copy of known size.
        if text.len() <= self.most.saturating_sub(self.at) {
            self.out[self.at..self.at + text.len()].copy_from_slice(text);
            self.at += text.len();
        } else {
            self.cut(text);
        }
    }

    #[cold]
    fn cut(&mut self, text: &[u8]) {
        let length = self.most.saturating_sub(self.at);
        self.out[self.at..self.at + length].copy_from_slice(&text[..length]);
        self.at += length;
    }

    /// Room for a number, if the line is not full.
    #[inline]
    fn room(&mut self) -> Option<&mut [u8; LENGTH_MAX]> {
        if self.at >= self.most {
            return None;
        }
        self.out[self.at..].first_chunk_mut()
    }

    /// A whole number.
    #[inline]
    pub fn integer(&mut self, number: u64) {
        if let Some(room) = self.room() {
            self.at += digits::integer(room, number);
        }
    }

    /// Seconds with six decimals.
    #[inline]
    pub fn micros(&mut self, number: Seconds) {
        let Some(room) = self.room() else { return };
        match digits::micros(room, number) {
            Some(length) => self.at += length,
            None => self.general(format_args!("{number:.6}")),
        }
    }

    /// Seconds without decimals, half to even.
    pub fn seconds(&mut self, number: Seconds) {
        let Some(room) = self.room() else { return };
        match digits::seconds(room, number) {
            Some(length) => self.at += length,
            None => self.general(format_args!("{number:.0}")),
        }
    }

    /// An address.
    pub fn ip(&mut self, ip: IpAddr) {
        let IpAddr::V4(ip) = ip else { return self.general(format_args!("{ip}")) };
        let [first, rest @ ..] = ip.octets();
        self.integer(first.into());
        for octet in rest {
            self.text(b".");
            self.integer(octet.into());
        }
    }

    /// What is seldom, by the general printer.
    #[cold]
    fn general(&mut self, text: std::fmt::Arguments<'_>) {
        let mut rest = &mut self.out[self.at.min(self.most)..self.most];
        // An error says that it is longer than there is room: it is cut.
        let _ = rest.write_fmt(text);
        self.at = self.most - rest.len();
    }

    /// What a time stamp has behind its label, if that is of usual size and there is room for it.
    #[inline]
    fn stamp(&mut self, now: Time, start: Time, previous: Time) -> bool {
        let fits = self.at + STAMP <= self.most;
        let room = self.out[self.at.min(self.most)..].first_chunk_mut().filter(|_| fits);
        let done = room.is_some_and(|room| self.moments.stamp(room, now, start, previous));
        self.at += if done { STAMP } else { 0 };
        done
    }

    /// A moment, with six decimals.
    fn moment(&mut self, moment: Time) {
        if self.at >= self.most {
            return;
        }
        let room = self.out[self.at..].first_chunk_mut();
        match room.and_then(|room| self.moments.print(room, moment)) {
            Some(length) => self.at += length,
            None => self.general(format_args!("{moment:.6}")),
        }
    }

    /// A piece of any kind.
    #[inline]
    pub fn field(&mut self, field: Field<'_>) {
        match field {
            Field::Text(text) => self.text(text),
            Field::Integer(number) => self.integer(number),
            Field::Micros(number) => self.micros(number),
        }
    }
}

impl Records {
    /// A record that `fill` puts together, unless the mask leaves it out.
    #[inline]
    pub fn line(&mut self, tag: Tag, fill: impl FnOnce(&mut Line<'_>)) {
        if !self.mask.has(tag) {
            return;
        }
        self.make_room(self.record_bytes + LENGTH_MAX);
        let most = self.record_bytes - 1;
        let start = self.used + RECORD_HEAD;
        let out = &mut self.buffer[start..start + most + LENGTH_MAX];
        let mut line = Line { out, at: 0, most, moments: &mut self.moments };
        fill(&mut line);
        let length = line.at.min(most);
        self.close(tag, length + 1);
    }

    /// A record of numbers with blanks between: `ReqAcct`, `BereqAcct`, `PipeAcct`.
    #[inline]
    pub fn numbers(&mut self, tag: Tag, numbers: &[u64]) {
        self.line(tag, |line| {
            for (index, number) in numbers.iter().enumerate() {
                if index > 0 {
                    line.text(b" ");
                }
                line.integer(*number);
            }
        });
    }

    /// A record of words and numbers with blanks between, as `Hit` and `TTL` have them.
    pub fn fields(&mut self, tag: Tag, fields: &[Field<'_>]) {
        self.line(tag, |line| {
            for (index, field) in fields.iter().enumerate() {
                if index > 0 {
                    line.text(b" ");
                }
                line.field(*field);
            }
        });
    }

    /// A `Begin` or `Link` record: `what number why`, as in `req 3 rxreq`. In a Begin the number is the parent's, in a
    /// Link the child's.
    #[inline]
    pub fn link(&mut self, tag: Tag, what: &str, number: u32, why: &str) {
        self.line(tag, |line| {
            line.text(what.as_bytes());
            line.text(b" ");
            line.integer(number.into());
            line.text(b" ");
            line.text(why.as_bytes());
        });
    }

    /// A `Timestamp` record: `label: now since-start since-previous`, each with six decimals.
    pub fn timestamp(&mut self, label: &str, now: Time, start: Time, previous: Time) {
        self.line(Tag::Timestamp, |line| {
            line.text(label.as_bytes());
            if line.stamp(now, start, previous) {
                return;
            }
            line.text(b": ");
            line.moment(now);
            line.text(b" ");
            line.micros(now - start);
            line.text(b" ");
            line.micros(now - previous);
        });
    }

    /// The two `Timestamp` records that every request begins with, both at `now`: its number is printed once.
    pub fn arrival(&mut self, now: Time) {
        let mut stamp = [0; STAMP];
        if !self.moments.stamp(&mut stamp, now, now, now) {
            self.timestamp("Start", now, now, now);
            return self.timestamp("Req", now, now, now);
        }
        self.line(Tag::Timestamp, |line| {
            line.text(b"Start");
            line.text(&stamp);
        });
        self.line(Tag::Timestamp, |line| {
            line.text(b"Req");
            line.text(&stamp);
        });
    }
}
