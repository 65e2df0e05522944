//! The origin: a server of HTTP/1.1 that knows conditions and ranges, is moody, and writes down all that it says.

use crate::content::Form;
use crate::plan::{Framing, Mood, Policy};
use crate::state::{Record, Resource, State};
use copal_wire::date;
use std::fmt::Write as _;
use std::ops::Range;
use std::rc::Rc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A request as it came.
struct Request {
    method: String,
    site: usize,
    fields: Vec<(String, String)>,
}

impl Request {
    fn get(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// What is to be sent.
struct Reply {
    head: String,
    body: Vec<u8>,
    chunked: bool,
    closes: bool,
    serial: usize,
}

/// Serves connections for ever.
pub(crate) async fn run(listener: TcpListener, state: Rc<State>) {
    while let Ok((stream, _)) = listener.accept().await {
        let _ = stream.set_nodelay(true);
        tokio::task::spawn_local(serve(stream, Rc::clone(&state)));
    }
}

/// Counts an exchange while it lives.
struct Serving<'a>(&'a State);

impl Drop for Serving<'_> {
    fn drop(&mut self) {
        self.0.serving.set(self.0.serving.get() - 1);
    }
}

async fn serve(mut stream: TcpStream, state: Rc<State>) {
    let mut buffer = Vec::new();
    loop {
        let Some(request) = read(&mut stream, &mut buffer).await else { return };
        state.serving.set(state.serving.get() + 1);
        let serving = Serving(&state);
        if !answer(&mut stream, &state, &request).await {
            return;
        }
        drop(serving);
    }
}

async fn read(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<Request> {
    let end = loop {
        if let Some(at) = buffer.windows(4).position(|window| window == b"\r\n\r\n") {
            break at;
        }
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    };
    let text = String::from_utf8_lossy(&buffer[..end]).into_owned();
    let mut lines = text.split("\r\n");
    let mut first = lines.next()?.split(' ');
    let (method, target) = (first.next()?.to_owned(), first.next()?);
    let site = target.strip_prefix("/s")?.parse().ok()?;
    let fields: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let request = Request { method, site, fields };
    let length: usize = request.get("content-length").and_then(|text| text.parse().ok()).unwrap_or(0);
    assert!(request.get("transfer-encoding").is_none(), "requests here have a length");
    while buffer.len() < end + 4 + length {
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    }
    buffer.drain(..end + 4 + length);
    Some(request)
}

/// Answers; false if the connection is over.
async fn answer(stream: &mut TcpStream, state: &State, request: &Request) -> bool {
    let id: usize =
        request.get("x-request").and_then(|text| text.parse().ok()).expect("the cache passes it on");
    state.contacts.borrow_mut().push(id);
    let mood = state.resources.borrow()[request.site].mood;
    let reply = decide(state, request, id, mood);
    let cuts = mood == Mood::Cut;
    let refuses = mood == Mood::Refuse || cuts && (reply.body.is_empty() || reply.closes);
    if refuses || cuts || mood == Mood::Error {
        state.faults.borrow_mut().push((request.site, state.epoch.get(), state.now()));
    }
    state.note(|| origin_line(request, id, mood, refuses, &reply));
    if refuses {
        return false;
    }
    if mood == Mood::SlowHead {
        state.gate().await;
    }
    {
        let mut records = state.records.borrow_mut();
        let record = &mut records[reply.serial];
        (record.sent, record.sent_at, record.epoch) = (state.event(), state.now(), state.epoch.get());
    }
    let half = if cuts || mood == Mood::SlowBody { reply.body.len() / 2 } else { reply.body.len() };
    let mut out = reply.head.clone().into_bytes();
    push(&mut out, &reply.body[..half], reply.chunked);
    if stream.write_all(&out).await.is_err() || cuts {
        return false;
    }
    if half < reply.body.len() {
        state.gate().await;
    }
    out.clear();
    push(&mut out, &reply.body[half..], reply.chunked);
    if reply.chunked {
        out.extend_from_slice(b"0\r\n\r\n");
    }
    stream.write_all(&out).await.is_ok() && !reply.closes
}

fn origin_line(request: &Request, id: usize, mood: Mood, refuses: bool, reply: &Reply) -> String {
    let asked: Vec<String> = request
        .fields
        .iter()
        .filter(|(name, _)| name == "range" || name.starts_with("if-") || name == "x-variant")
        .map(|(name, value)| format!("{name}: {value}"))
        .collect();
    let (method, site) = (&request.method, request.site);
    let said = if refuses { "nothing".to_owned() } else { reply.head.trim_end().replace("\r\n", " | ") };
    format!("    origin: #{id} {method} /s{site} [{}] {mood:?} -> {said}", asked.join(", "))
}

fn push(out: &mut Vec<u8>, bytes: &[u8], chunked: bool) {
    if chunked && !bytes.is_empty() {
        out.extend_from_slice(format!("{:x}\r\n", bytes.len()).as_bytes());
        out.extend_from_slice(bytes);
        out.extend_from_slice(b"\r\n");
    } else {
        out.extend_from_slice(bytes);
    }
}

/// The answer, by RFC 9110, sections 13.2.2 and 14.2, and its record.
fn decide(state: &State, request: &Request, id: usize, mood: Mood) -> Reply {
    let is_unsafe = !matches!(request.method.as_str(), "GET" | "HEAD");
    if is_unsafe && !matches!(mood, Mood::Error | Mood::Refuse) {
        state.change(request.site);
    }
    let resources = state.resources.borrow();
    let resource = &resources[request.site];
    let variant = if resource.site.vary { request.get("x-variant").map_or(0, variant) } else { 0 };
    let form = Form { site: request.site, variant, version: resource.version() };
    let whole = state.bodies.borrow_mut().get(form, resource.site.size);
    let (status, range) = match () {
        () if mood == Mood::Error => (500, None),
        () if is_unsafe => (200, None),
        () => judge(resource, form, request, whole.len()),
    };
    let serial = state.records.borrow().len();
    let now = state.now();
    let policy = resource.policy.clone();
    let date = now.floor() as i64 - i64::from(policy.age);
    state.records.borrow_mut().push(Record {
        request: id,
        form,
        status,
        policy: policy.clone(),
        arrived_at: now,
        sent_at: now,
        sent: u64::MAX,
        epoch: state.epoch.get(),
        date,
        delivered: None,
        delivered_at: f64::INFINITY,
        answers: false,
        head: request.method == "HEAD",
    });
    let body = match (status, &range) {
        (500, _) => format!("error {serial}\n").into_bytes(),
        (200, _) if is_unsafe => format!("done {serial}\n").into_bytes(),
        (200, _) => whole.to_vec(),
        (206, Some(range)) => whole[range.clone()].to_vec(),
        _ => Vec::new(),
    };
    drop_in(resource, form, request, Parts { status, range, total: whole.len(), body, serial, date, policy })
}

/// What an answer is made of.
struct Parts {
    status: u16,
    range: Option<Range<usize>>,
    total: usize,
    body: Vec<u8>,
    serial: usize,
    date: i64,
    policy: Policy,
}

/// The answer in its form on the wire.
fn drop_in(resource: &Resource, form: Form, request: &Request, parts: Parts) -> Reply {
    let Parts { status, range, total, mut body, serial, date, policy } = parts;
    let is_read = matches!(request.method.as_str(), "GET" | "HEAD");
    let plain = status == 200 && is_read;
    let mut head = format!("HTTP/1.1 {status} Whatever\r\nX-Serial: {serial}\r\nX-Site: {}\r\n", form.site);
    let _ = write!(head, "Date: {}\r\n", http_date(date));
    let _ = write!(head, "Cache-Control: {}\r\n", cache_control(&policy));
    if resource.site.expires {
        let _ = write!(head, "Expires: {}\r\n", http_date(date + i64::from(policy.expires)));
    }
    if policy.age > 0 {
        let _ = write!(head, "Age: {}\r\n", policy.age);
    }
    if resource.site.vary {
        head.push_str("Vary: X-Variant\r\n");
    }
    if is_read && matches!(status, 200 | 206 | 304) {
        if let Some(tag) = resource.tag(form) {
            let _ = write!(head, "ETag: {tag}\r\n");
        }
        if let Some(modified) = resource.modified(form.version) {
            let _ = write!(head, "Last-Modified: {}\r\n", http_date(modified));
        }
        if resource.site.ranges {
            head.push_str("Accept-Ranges: bytes\r\n");
        }
    }
    match &range {
        Some(range) => {
            let _ = write!(head, "Content-Range: bytes {}-{}/{total}\r\n", range.start, range.end - 1);
        }
        None if status == 416 => {
            let _ = write!(head, "Content-Range: bytes */{total}\r\n");
        }
        None => {}
    }
    let framing = if plain { resource.site.framing } else { Framing::Length };
    match framing {
        _ if status == 304 => {}
        Framing::Length => {
            let _ = write!(head, "Content-Length: {}\r\n", body.len());
        }
        Framing::Chunked => head.push_str("Transfer-Encoding: chunked\r\n"),
        Framing::Close => head.push_str("Connection: close\r\n"),
    }
    head.push_str("\r\n");
    let is_head = request.method == "HEAD";
    if is_head {
        body.clear();
    }
    let chunked = framing == Framing::Chunked && !is_head && status != 304;
    Reply { head, body, chunked, closes: framing == Framing::Close && status != 304, serial }
}

pub(crate) fn http_date(seconds: i64) -> String {
    String::from_utf8_lossy(&date::format(seconds as f64)).into_owned()
}

fn http_seconds(text: &str) -> Option<i64> {
    date::parse(text.as_bytes()).map(|time| time as i64)
}

/// The number in a value of `X-Variant`.
pub(crate) fn variant(text: &str) -> u8 {
    text.trim_start_matches('v').parse().unwrap_or(0)
}

fn cache_control(policy: &Policy) -> String {
    // Never absent: a 304 is to say all that there is to say.
    let mut words = vec!["x-model".to_owned()];
    let mut number = |name: &str, value: Option<u32>| {
        if let Some(value) = value {
            words.push(format!("{name}={value}"));
        }
    };
    number("max-age", policy.max_age);
    number("s-maxage", policy.s_maxage);
    number("stale-while-revalidate", policy.swr);
    number("stale-if-error", policy.sie);
    let flags = [
        (policy.no_store, "no-store"),
        (policy.no_cache, "no-cache"),
        (policy.private, "private"),
        (policy.public, "public"),
        (policy.must_revalidate, "must-revalidate"),
    ];
    words.extend(flags.into_iter().filter(|(set, _)| *set).map(|(_, word)| word.to_owned()));
    words.join(", ")
}

/// Status and range of the answer to GET or HEAD.
fn judge(resource: &Resource, form: Form, request: &Request, total: usize) -> (u16, Option<Range<usize>>) {
    let tag = resource.tag(form);
    let modified = resource.modified(form.version);
    let since = |name: &str| request.get(name).and_then(http_seconds);
    if let Some(list) = request.get("if-match") {
        if !lists(list, tag.as_deref(), true) {
            return (412, None);
        }
    } else if let (Some(modified), Some(since)) = (modified, since("if-unmodified-since"))
        && modified > since
    {
        return (412, None);
    }
    if let Some(list) = request.get("if-none-match") {
        if lists(list, tag.as_deref(), false) {
            return (304, None);
        }
    } else if let (Some(modified), Some(since)) = (modified, since("if-modified-since"))
        && modified <= since
    {
        return (304, None);
    }
    let (Some(range), "GET", true) = (request.get("range"), request.method.as_str(), resource.site.ranges)
    else {
        return (200, None);
    };
    if let Some(validator) = request.get("if-range") {
        let strong = tag.as_deref().is_some_and(|tag| tag == validator && !tag.starts_with("W/"));
        let same_date = modified.is_some() && http_seconds(validator) == modified;
        if !strong && !same_date {
            return (200, None);
        }
    }
    match one_range(range, total) {
        Some(Some(range)) => (206, Some(range)),
        Some(None) => (416, None),
        None => (200, None),
    }
}

/// Whether the condition's list has the tag.
pub(crate) fn lists(list: &str, tag: Option<&str>, strongly: bool) -> bool {
    if list.trim() == "*" {
        return true;
    }
    let Some(tag) = tag else { return false };
    list.split(',').map(str::trim).any(|one| match strongly {
        true => one == tag && !tag.starts_with("W/"),
        false => one.trim_start_matches("W/") == tag.trim_start_matches("W/"),
    })
}

/// The one range that the field asks for: `None` if it asks for several, `Some(None)` if there is no such part.
fn one_range(field: &str, total: usize) -> Option<Option<Range<usize>>> {
    let spec = field.strip_prefix("bytes=")?;
    if spec.contains(',') {
        return None;
    }
    Some(resolve(spec, total))
}

/// What `first-last`, `first-` or `-count` means for a body of `total` bytes (RFC 9110, section 14.1.2).
pub(crate) fn resolve(spec: &str, total: usize) -> Option<Range<usize>> {
    let (first, last) = spec.trim().split_once('-')?;
    if first.is_empty() {
        let count = last.parse::<usize>().ok()?.min(total);
        return (count > 0).then(|| total - count..total);
    }
    let first: usize = first.parse().ok()?;
    let end = if last.is_empty() { total } else { (last.parse::<usize>().ok()? + 1).min(total) };
    (first < end).then_some(first..end)
}
