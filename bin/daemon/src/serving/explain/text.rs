//! An explanation as a page for people: the verdict in the first line, then the facts.

use super::{shown, word};
use cache::explain::{Explanation, Looked, Seen, Spot};
use catalog::reason::{Kind, Reason};
use copal_cache as cache;
use copal_catalog as catalog;
use copal_wire as wire;
use std::fmt::{Display, Write as _};

/// The page.
pub(super) fn print(it: &Explanation) -> String {
    let mut page = Page(verdict(it));
    page.0.push('\n');
    let (method, target, host) = &it.request;
    let host = host.as_ref().map_or("without Host".to_owned(), |host| format!("Host: {}", shown(host)));
    page.row("Request", format_args!("{} {}, {host}", shown(method), shown(target)));
    page.row("VCL", format_args!("{}{}", it.vcl, if it.rfc { ", req.rfc" } else { "" }));
    for ran in &it.ran {
        let spot = ran.spot.as_ref().map_or(String::new(), |spot| format!(" at {}", place(spot)));
        page.more(format_args!("{} returned {}{spot}", ran.subroutine, ran.action));
    }
    if it.restarts > 0 {
        page.more(format_args!("began anew {} times", it.restarts));
    }
    if let Some(key) = &it.key {
        page.row("Key", key.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}")));
        let hashed: Vec<String> = it.hashed.iter().map(|part| format!("\"{}\"", shown(part))).collect();
        page.more(format_args!("of {}", hashed.join(", ")));
    }
    if let Some(found) = &it.found {
        look(found, it.now, &mut page);
        page.row("Bans", format_args!("{} in the list", it.bans));
    }
    for (index, (tag, text)) in it.said.iter().enumerate() {
        let line = format!("{tag} {}", shown(text));
        if index == 0 { page.row("Log", line) } else { page.more(line) }
    }
    page.0
}

/// The first lines: what becomes of it, and why.
fn verdict(it: &Explanation) -> String {
    let mut text = format!("{} ({}): {}", it.outcome, it.reason.name(), it.reason.sentence());
    let served = it.found.iter().flat_map(|found| &found.objects).find(|object| object.decides);
    match (it.reason.kind(), served) {
        (Kind::Hit, Some(object)) if object.ttl_left > 0.0 && it.reason == Reason::Hit => {
            let _ = write!(text, " It is so for another {:.1} s.", object.ttl_left);
        }
        (Kind::Hit, Some(object)) if it.reason == Reason::Grace => {
            let _ = write!(text, " Its grace lasts another {:.1} s.", object.grace_left);
        }
        (Kind::Miss, Some(object)) if object.marker.is_none() && object.has_validator() => {
            text.push_str(" It would be validated, by a condition.");
        }
        (_, Some(object)) => {
            if let Some(marked) = &object.marked {
                let reason = marked.reason;
                let _ = write!(text, " Why it was not stored ({}): {}", reason.name(), reason.sentence());
            }
        }
        (_, None) => {}
    }
    if let Some((status, reason)) = &it.answer {
        let reason = reason.as_ref().map_or(String::new(), |reason| format!(" {}", shown(reason)));
        let _ = write!(text, " The answer is {status}{reason}.");
    }
    if it.reason == Reason::Purge {
        let objects = it.found.as_ref().map_or(0, |found| found.objects.len());
        let _ = write!(text, " Objects that would go: {objects}.");
    }
    if let Some(spot) = &it.decided {
        let _ = write!(text, " Decided at {}.", line(spot));
    }
    text.push('\n');
    text
}

/// A line of VCL.
fn line(spot: &Spot) -> String {
    let of = if spot.is_builtin { "built-in VCL" } else { spot.file.as_str() };
    format!("{of} line {} ({})", spot.line, spot.subroutine)
}

/// A line of VCL, with what stands there; of a long one, the beginning.
fn place(spot: &Spot) -> String {
    const SHOWN: usize = 100;
    let end = spot.text.char_indices().nth(SHOWN);
    let (text, more) = end.map_or((&spot.text[..], ""), |(end, _)| (&spot.text[..end], "..."));
    format!("{}: {text}{more}", line(spot))
}

fn look(found: &Looked, now: f64, page: &mut Page) {
    let count = found.objects.len();
    if count == 0 && found.entries == 0 {
        page.row("Stored", "nothing");
    }
    for (index, object) in found.objects.iter().enumerate() {
        let kind = object.marker.unwrap_or("object");
        let decides = if object.decides { ", decides" } else { "" };
        page.row(
            "Stored",
            format_args!("{} of {count}: {kind}, {}{decides}", index + 1, word(object.judged)),
        );
        facts(object, now, page);
    }
    if found.entries > 0 {
        page.row("On devices", format_args!("{}, not in memory: loaded when it is asked for", found.entries));
    }
    let fetches = match (found.fetches, found.fetched) {
        (0, _) => "none runs".to_owned(),
        (running, true) => format!("{running} under the key, one of them for requests like this"),
        (running, false) => format!("{running} under the key, none for requests like this"),
    };
    let waiting =
        if found.waiting > 0 { format!("; {} requests wait", found.waiting) } else { String::new() };
    page.row("Fetches", fetches + &waiting);
}

fn facts(object: &Seen, now: f64, page: &mut Page) {
    if object.marker.is_none() {
        let length = match (object.is_filling, object.length) {
            (false, _) => format!("{} bytes", object.bytes),
            (true, Some(length)) => format!("{} of {length} bytes, still arriving", object.bytes),
            (true, None) => format!("{} bytes so far, still arriving", object.bytes),
        };
        let gzip = if object.is_gzip { ", gzip" } else { "" };
        page.more(format_args!("status {}, {length}{gzip}, in {}", object.status, object.store));
    }
    page.more(format_args!("fetched by transaction {}", object.vxid));
    page.more(format_args!(
        "age {:.1} s; ttl {:.1} s, grace {:.1} s, keep {:.1} s; left: {:.1} s, {:.1} s, {:.1} s",
        object.age,
        object.ttl,
        object.grace,
        object.keep,
        object.ttl_left,
        object.grace_left,
        object.keep_left
    ));
    if let Some(it) = &object.segments {
        let known =
            |count: Option<u64>| count.map_or("an unknown number".to_owned(), |count| count.to_string());
        page.more(format_args!(
            "in {} segments of {} bytes, {} there; the request wants {}, {} there",
            it.count,
            it.size,
            known(it.there),
            it.wanted,
            known(it.wanted_there)
        ));
    }
    for varying in &object.vary {
        let value = |value: &Option<Vec<u8>>| {
            value.as_ref().map_or("absent".into(), |it| format!("\"{}\"", shown(it)))
        };
        let name = shown(&varying.name);
        page.more(format_args!(
            "varies by {name}: there {}, here {}",
            value(&varying.stored),
            value(&varying.asked)
        ));
    }
    for (name, value) in [("ETag", &object.validators.0), ("Last-Modified", &object.validators.1)] {
        if let Some(value) = value {
            page.more(format_args!("{name}: {}", shown(value)));
        }
    }
    if let Some(hits) = object.hits {
        page.more(format_args!("{hits} hits"));
    }
    if let Some(last) = object.last_use {
        page.more(format_args!("last used {:.0} s ago", (now - last).max(0.0)));
    }
    if let Some(marked) = &object.marked {
        let reason = marked.reason;
        page.more(format_args!("not stored ({}): {}", reason.name(), reason.sentence()));
        if let Some(place) = &marked.place {
            let (file, line, subroutine) = (&place.file, place.line, &place.subroutine);
            page.more(format_args!("decided by VCL {} at {file} line {line} ({subroutine})", marked.vcl));
        }
    }
    if let Some(ban) = &object.ban {
        let since = wire::date::format(ban.time);
        page.more(format_args!("banned since {}: {}", shown(&since), shown(&ban.text)));
    }
}

/// Rows of a name and what is said under it.
struct Page(String);

/// The width of a name.
const NAME: usize = 10;

impl Page {
    fn row(&mut self, name: &str, text: impl Display) {
        let _ = writeln!(self.0, "{name:<NAME$}{text}");
    }

    fn more(&mut self, text: impl Display) {
        self.row("", text);
    }
}
