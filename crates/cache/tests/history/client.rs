//! One client: writes its request, takes its answer as a connection would, and says what it got.

use crate::content::Form;
use crate::origin::http_date;
use crate::plan::{Ask, Condition, Manner, Method, Span, Which, Wishes};
use crate::state::State;
use base::Time;
use cache::{BodyError, Exchange, Outcome, RequestBody};
use copal_base as base;
use copal_cache as cache;
use copal_wire as wire;
use std::fmt::Write as _;
use std::io::IoSlice;
use std::task::{Context, Poll};
use wire::h1::{Limits, Parse, RequestFraming};

/// Where the body ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// The cache says that it is whole.
    Clean,
    /// The cache broke it off.
    Cut,
    /// The client did not want the rest.
    Left,
}

/// What a client got.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) id: usize,
    pub(crate) began: u64,
    pub(crate) began_at: Time,
    pub(crate) status: u16,
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) end: End,
    /// The request's own fields.
    pub(crate) request: Vec<(String, String)>,
}

impl Seen {
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        find(&self.fields, name)
    }

    pub(crate) fn asked(&self, name: &str) -> Option<&str> {
        find(&self.request, name)
    }
}

fn find<'a>(fields: &'a [(String, String)], name: &str) -> Option<&'a str> {
    fields.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
}

/// The body of a request.
struct Upload<'a>(&'a [u8], bool);

impl RequestBody for Upload<'_> {
    fn framing(&self) -> RequestFraming {
        if self.0.is_empty() && !self.1 {
            RequestFraming::None
        } else {
            RequestFraming::Length(UPLOAD.len() as u64)
        }
    }

    fn is_begun(&self) -> bool {
        self.1
    }

    fn poll_read(&mut self, _: &mut Context<'_>, buffer: &mut [u8]) -> Poll<Result<usize, BodyError>> {
        let count = self.0.len().min(buffer.len());
        buffer[..count].copy_from_slice(&self.0[..count]);
        self.0 = &self.0[count..];
        self.1 = true;
        Poll::Ready(Ok(count))
    }
}

const UPLOAD: &[u8] = b"upload";

/// The fields of a request, as the resource is now.
pub(crate) fn fields(state: &State, ask: &Ask, id: usize) -> Vec<(String, String)> {
    let resources = state.resources.borrow();
    let resource = &resources[ask.site];
    let mut fields =
        vec![("host".to_owned(), "example.org".to_owned()), ("x-request".to_owned(), id.to_string())];
    let mut add = |name: &str, value: String| fields.push((name.to_owned(), value));
    add("x-variant", format!("v{}", ask.variant));
    if ask.authorized {
        add("authorization", "Basic eDp5".to_owned());
    }
    let variant = if resource.site.vary { ask.variant } else { 0 };
    let form = |back: u32| Form { site: ask.site, variant, version: resource.back(back) };
    let tag = |back: u32| resource.tag(form(back)).unwrap_or_else(|| "\"none\"".to_owned());
    let date = |back: u32| http_date(resource.modified[resource.back(back) as usize]);
    let which = |which: Which| match which {
        Which::Back(back) => tag(back),
        Which::Star => "*".to_owned(),
    };
    match ask.condition {
        Condition::None => {}
        Condition::NoneMatch(of) => add("if-none-match", which(of)),
        Condition::Match(of) => add("if-match", which(of)),
        Condition::ModifiedSince(back) => add("if-modified-since", date(back)),
        Condition::UnmodifiedSince(back) => add("if-unmodified-since", date(back)),
    }
    if !ask.spans.is_empty() {
        let scale = 2 * form(0).length(resource.site.size) as u64;
        let specs: Vec<String> = ask.spans.iter().map(|&span| spec(span, scale)).collect();
        add("range", format!("bytes={}", specs.join(",")));
        if let Some(back) = ask.if_range {
            add("if-range", tag(back));
        }
    }
    let wishes = wishes(&ask.wishes);
    if !wishes.is_empty() {
        add("cache-control", wishes);
    }
    if ask.method.is_unsafe() {
        add("content-length", UPLOAD.len().to_string());
    }
    fields
}

fn spec(span: Span, scale: u64) -> String {
    let at = |part: u32| u64::from(part) * scale / 1000;
    match span {
        Span::FromTo(first, last) => format!("{}-{}", at(first), at(last)),
        Span::From(first) => format!("{}-", at(first)),
        Span::Last(count) => format!("-{}", at(count)),
    }
}

fn wishes(wishes: &Wishes) -> String {
    let flags = [
        (wishes.no_cache, "no-cache"),
        (wishes.no_store, "no-store"),
        (wishes.only_if_cached, "only-if-cached"),
    ];
    let numbers = [
        (wishes.max_age, "max-age"),
        (wishes.max_stale, "max-stale"),
        (wishes.min_fresh, "min-fresh"),
        (wishes.sie, "stale-if-error"),
    ];
    let flags = flags.into_iter().filter(|(set, _)| *set).map(|(_, name)| name.to_owned());
    let numbers = numbers.into_iter().filter_map(|(value, name)| Some(format!("{name}={}", value?)));
    flags.chain(numbers).collect::<Vec<_>>().join(", ")
}

/// Puts a request into the exchange as a connection does; gives the length of its head.
pub(crate) fn write(
    exchange: &mut Exchange,
    method: &str,
    target: &str,
    fields: &[(String, String)],
) -> usize {
    let mut head = format!("{method} {target} HTTP/1.1\r\n");
    for (name, value) in fields {
        let _ = write!(head, "{name}: {value}\r\n");
    }
    head.push_str("\r\n");
    match wire::h1::parse_request(head.as_bytes(), &Limits::default(), &mut exchange.request) {
        Ok(Parse::Done(length)) => length,
        other => panic!("a request of this test does not parse: {other:?}\n{head}"),
    }
}

/// Asks and takes the answer; `None` if the client vanished before the answer's head.
pub(crate) async fn ask(state: &State, exchange: &mut Exchange, ask: &Ask, id: usize) -> Option<Seen> {
    let request = fields(state, ask, id);
    let (began, began_at) = (state.event(), state.now());
    let length = write(exchange, ask.method.name(), &format!("/s{}", ask.site), &request);
    let upload = if ask.method.is_unsafe() { UPLOAD } else { &[] };
    let mut body = Upload(upload, false);
    let vanishes = ask.manner == Manner::Vanishes;
    let outcome = tokio::select! {
        biased;
        outcome = exchange.run(&mut body, length, began_at) => outcome,
        () = state.gate(), if vanishes => return None,
    };
    let (status, fields) = match outcome {
        Outcome::Deliver => head(exchange),
        other => {
            state.fail(format!("#{id} ended as {other:?}"));
            return None;
        }
    };
    let mut seen = Seen { id, began, began_at, status, fields, body: Vec::new(), end: End::Clean, request };
    // What a client has of it counts from here on.
    crate::model::delivered(state, &seen);
    seen.end = take(state, exchange, ask, &mut seen.body).await?;
    exchange.finish(0, seen.body.len() as u64, upload.len() as u64);
    Some(seen)
}

/// The head that goes out.
fn head(exchange: &mut Exchange) -> (u16, Vec<(String, String)>) {
    let mut bytes = std::mem::take(&mut exchange.head);
    if bytes.is_empty() {
        wire::h1::write_response_head(&exchange.response, &mut bytes);
    }
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let mut lines = text.trim_end().split("\r\n");
    let first = lines.next().unwrap_or_default();
    let status = first.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    let fields = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    (status, fields)
}

/// Reads the body; `None` if the client vanished.
async fn take(state: &State, exchange: &mut Exchange, ask: &Ask, body: &mut Vec<u8>) -> Option<End> {
    let mut slow = ask.manner == Manner::Slow;
    loop {
        let most = match ask.manner {
            Manner::Leaves(after) if body.len() >= after as usize => return Some(End::Left),
            Manner::Leaves(after) => after as usize - body.len(),
            Manner::Slow => 5_000,
            Manner::Alone | Manner::Along | Manner::Vanishes => usize::MAX,
        };
        let ready = tokio::select! {
            biased;
            ready = exchange.body.ready() => ready,
            () = state.gate(), if ask.manner == Manner::Vanishes => return None,
        };
        match ready {
            Ok(true) => {}
            Ok(false) => return Some(End::Clean),
            Err(cache::body::Aborted) => return Some(End::Cut),
        }
        let mut slices: Vec<IoSlice<'_>> = Vec::new();
        exchange.body.slices(&mut slices);
        let before = body.len();
        for slice in &slices {
            let room = most - (body.len() - before);
            body.extend_from_slice(&slice[..slice.len().min(room)]);
        }
        let count = body.len() - before;
        drop(slices);
        exchange.body.consume(count);
        if count == 0 {
            state.fail(format!("a body that is ready has no byte: {ask:?}"));
            return Some(End::Left);
        }
        if std::mem::replace(&mut slow, false) {
            state.gate().await;
        }
        tokio::task::yield_now().await;
    }
}

/// Whether the method's answer has no body.
pub(crate) fn is_head(ask: &Ask) -> bool {
    ask.method == Method::Head
}
