//! What a transaction's records say, gathered in one pass.

use super::Style;
use super::parse::Watches;
use crate::read::group::Transaction;
use crate::tags::Tag;
use copal_base::Time;

/// The facts of one transaction. Texts are those of the first record that says so, unless stated otherwise.
#[derive(Debug, Default)]
pub(super) struct Facts<'a> {
    pub(super) number: u32,
    pub(super) peer: Option<&'a [u8]>,
    pub(super) method: Option<&'a [u8]>,
    pub(super) url: Option<&'a [u8]>,
    pub(super) query: Option<&'a [u8]>,
    pub(super) protocol: Option<&'a [u8]>,
    pub(super) host: Option<&'a [u8]>,
    /// What follows `Basic`.
    pub(super) authorization: Option<&'a [u8]>,
    /// Of the last status.
    pub(super) status: Option<&'a [u8]>,
    pub(super) bytes_in: Option<&'a [u8]>,
    pub(super) body_bytes: Option<&'a [u8]>,
    pub(super) bytes_out: Option<&'a [u8]>,
    pub(super) began: Option<Time>,
    pub(super) ended: Option<Time>,
    pub(super) first_byte: Option<&'a [u8]>,
    pub(super) hit_miss: &'static str,
    pub(super) handling: &'static str,
    /// Of the last field of each watched name.
    pub(super) request_headers: Vec<Option<&'a [u8]>>,
    /// Of the last field of each watched name.
    pub(super) response_headers: Vec<Option<&'a [u8]>>,
    pub(super) logged: Vec<Option<&'a [u8]>>,
    pub(super) records: Vec<Option<&'a [u8]>>,
}

impl<'a> Facts<'a> {
    /// Reads the records; `None` if the request was restarted, so that its last round speaks for it, and in JSON if it
    /// was no HTTP.
    pub(super) fn gather(transaction: &'a Transaction, watches: &Watches, style: Style) -> Option<Facts<'a>> {
        let mut facts = Facts {
            number: transaction.number,
            hit_miss: "-",
            handling: "-",
            request_headers: vec![None; watches.request_headers.len()],
            response_headers: vec![None; watches.response_headers.len()],
            logged: vec![None; watches.logged.len()],
            records: vec![None; watches.records.len()],
            ..Facts::default()
        };
        for (tag, data) in transaction.records() {
            if tag == Tag::HttpGarbage && style == Style::Json {
                return None;
            }
            if tag.is_binary() || tag.is_unsafe() && style == Style::Text {
                continue;
            }
            if tag == Tag::VCL_return && data.eq_ignore_ascii_case(b"restart") {
                return None;
            }
            facts.take(tag, data, watches);
            for (watch, found) in watches.records.iter().zip(&mut facts.records) {
                if watch.tag == tag && found.is_none() {
                    let data =
                        watch.prefix.as_ref().map_or(Some(data), |prefix| after_key(data, prefix, true));
                    *found =
                        data.and_then(
                            |data| if watch.field == 0 { Some(data) } else { field(data, watch.field) },
                        );
                }
            }
        }
        Some(facts)
    }

    fn take(&mut self, tag: Tag, data: &'a [u8], watches: &Watches) {
        match tag {
            Tag::ReqStart => first(&mut self.peer, field(data, 1)),
            Tag::BackendOpen => self.peer = field(data, 3),
            Tag::ReqMethod | Tag::BereqMethod => first(&mut self.method, Some(data)),
            Tag::ReqProtocol | Tag::BereqProtocol => first(&mut self.protocol, Some(data)),
            Tag::RespStatus | Tag::BerespStatus => self.status = Some(data),
            Tag::ReqURL | Tag::BereqURL => {
                let (url, query) =
                    data.split_at(data.iter().position(|byte| *byte == b'?').unwrap_or(data.len()));
                first(&mut self.url, Some(url));
                first(&mut self.query, Some(query));
            }
            Tag::ReqAcct | Tag::BereqAcct => {
                first(&mut self.bytes_in, field(data, 3));
                first(&mut self.body_bytes, field(data, 5));
                first(&mut self.bytes_out, field(data, 6));
            }
            Tag::PipeAcct => {
                first(&mut self.bytes_in, field(data, 3));
                first(&mut self.bytes_out, field(data, 4));
            }
            Tag::Timestamp => self.take_timestamp(data),
            Tag::ReqHeader | Tag::BereqHeader => {
                watched(data, &watches.request_headers, &mut self.request_headers);
                if let Some(value) = after_key(data, b"Authorization", true) {
                    first(&mut self.authorization, strip_word(value, b"basic "));
                }
                first(&mut self.host, after_key(data, b"Host", true));
            }
            Tag::RespHeader | Tag::BerespHeader => {
                watched(data, &watches.response_headers, &mut self.response_headers);
            }
            Tag::VCL_call => self.take_call(data),
            Tag::VCL_return if data.eq_ignore_ascii_case(b"pipe") => {
                (self.hit_miss, self.handling) = ("miss", "pipe");
            }
            Tag::VCL_Log => {
                for (key, found) in watches.logged.iter().zip(&mut self.logged) {
                    first(found, after_key(data, key, false));
                }
            }
            _ => {}
        }
    }

    fn take_timestamp(&mut self, data: &'a [u8]) {
        let Some(colon) = data.iter().position(|byte| *byte == b':') else { return };
        let (label, rest) = (&data[..colon], &data[colon + 1..]);
        let moment =
            || std::str::from_utf8(field(rest, 1)?).ok()?.parse::<f64>().ok().filter(|time| time.is_finite());
        if label.eq_ignore_ascii_case(b"Start") {
            first(&mut self.began, moment());
        } else if [&b"Resp"[..], b"PipeSess", b"BerespBody"].iter().any(|end| label.eq_ignore_ascii_case(end))
        {
            first(&mut self.ended, moment());
        } else if [&b"Process"[..], b"Pipe", b"Beresp"].iter().any(|end| label.eq_ignore_ascii_case(end)) {
            first(&mut self.first_byte, field(rest, 2));
        }
    }

    fn take_call(&mut self, name: &[u8]) {
        (self.hit_miss, self.handling) = match name.to_ascii_lowercase().as_slice() {
            b"recv" => ("-", "-"),
            b"hit" => ("hit", "hit"),
            b"miss" => ("miss", "miss"),
            b"pass" => ("miss", "pass"),
            // A synthetic answer is neither, but nearer to a miss.
            b"synth" => ("miss", "synth"),
            _ => return,
        };
    }
}

fn first<T>(place: &mut Option<T>, found: Option<T>) {
    if place.is_none() {
        *place = found;
    }
}

fn watched<'a>(data: &'a [u8], names: &[Vec<u8>], found: &mut [Option<&'a [u8]>]) {
    for (name, place) in names.iter().zip(found) {
        if let Some(value) = after_key(data, name, true) {
            *place = Some(value);
        }
    }
}

/// What follows `key`, a colon and blanks.
fn after_key<'a>(data: &'a [u8], key: &[u8], any_case: bool) -> Option<&'a [u8]> {
    let (head, rest) = data.split_at_checked(key.len())?;
    let same = if any_case { head.eq_ignore_ascii_case(key) } else { head == key };
    same.then_some(rest)?.strip_prefix(b":").map(<[u8]>::trim_ascii)
}

fn strip_word<'a>(data: &'a [u8], word: &[u8]) -> Option<&'a [u8]> {
    let (head, rest) = data.split_at_checked(word.len())?;
    head.eq_ignore_ascii_case(word).then_some(rest)
}

/// The `number`th of the words, from 1.
fn field(data: &[u8], number: usize) -> Option<&[u8]> {
    data.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).nth(number - 1)
}
