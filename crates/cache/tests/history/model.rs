//! What RFC 9111 permits, the slow way: given all that the origin said and when, whether this answer may be given to this
//! request. It permits more than the cache does; what it forbids is wrong.
//!
//! Each response of the origin bears a number that goes where its head goes: with what is stored, and, as a 304 or a HEAD
//! updates what is stored (RFC 9111, sections 3.2, 4.3.4 and 4.3.5), with what was updated. So an answer says which response
//! it rests on, and the rules are asked about that one.

use crate::client::{End, Seen, is_head};
use crate::content::Form;
use crate::origin::{lists, resolve};
use crate::plan::{Ask, Condition, Framing, Policy, Tag};
use crate::state::{Record, State};
use copal_base::{Seconds, Time};

/// `default_ttl` and `default_grace` of the cache under test.
pub(crate) const DEFAULT_TTL: Seconds = 20.0;
pub(crate) const DEFAULT_GRACE: Seconds = 10.0;

/// `default_stale_if_error` of the cache under test.
pub(crate) const DEFAULT_STALE_IF_ERROR: Seconds = 15.0;

/// For so long what was failed to be confirmed serves on an error without the origin being asked again.
const OUTAGE: Seconds = 10.0;

type Verdict = Result<(), String>;

macro_rules! forbid {
    ($when:expr, $($text:tt)*) => { if $when { return Err(format!($($text)*)); } };
}

/// The response that an answer rests on.
fn serial(seen: &Seen) -> Option<usize> {
    seen.get("x-serial")?.parse().ok()
}

/// Notes that a client has the head of an answer.
pub(crate) fn delivered(state: &State, seen: &Seen) {
    let event = state.event();
    if let Some(serial) = serial(seen)
        && let Some(record) = state.records.borrow_mut().get_mut(serial)
    {
        record.delivered.get_or_insert(event);
        record.delivered_at = record.delivered_at.min(state.now());
        record.answers |= record.request == seen.id;
    }
}

/// Whether the answer may be given.
pub(crate) fn judge(state: &State, ask: &Ask, seen: &Seen) -> Verdict {
    let Some(serial) = serial(seen) else {
        // What is there in part and stale may have been revalidated, and yet be of no use.
        let revalidates = |record: &Record| record.form.site == ask.site && record.policy.swr.is_some();
        let revalidates = state.records.borrow().iter().any(revalidates);
        if !revalidates {
            contacts(state, ask, seen)?;
        }
        return unbased(state, ask, seen);
    };
    let record = state.records.borrow().get(serial).cloned();
    let Some(record) = record else { return Err(format!("there is no response {serial}")) };
    forbid!(record.form.site != ask.site, "an answer of /s{}", record.form.site);
    let vary = state.resources.borrow()[ask.site].site.vary;
    forbid!(
        vary && record.form.variant != ask.variant,
        "variant {} was asked for, {:?}",
        ask.variant,
        record.form
    );
    let use_of = Use { state, ask, seen, record: &record };
    if !use_of.revalidates() {
        contacts(state, ask, seen)?;
    }
    use_of.count();
    use_of.ownership()?;
    use_of.barriers()?;
    if use_of.reused() {
        use_of.freshness()?;
    }
    use_of.age()?;
    let mut verdict = use_of.content();
    for form in use_of.unnamed() {
        let other = Record { form, ..record.clone() };
        verdict = verdict.or_else(|why| Use { record: &other, ..use_of }.content().map_err(|_| why));
    }
    verdict
}

/// What never asks the origin.
fn contacts(state: &State, ask: &Ask, seen: &Seen) -> Verdict {
    let asked = state.contacts.borrow().contains(&seen.id);
    let forbidden = state.setup.rfc && ask.wishes.only_if_cached && !ask.method.is_unsafe();
    forbid!(asked && forbidden, "only-if-cached went to the origin (RFC 9111, 5.2.1.7)");
    Ok(())
}

/// An answer of the cache's own making.
fn unbased(state: &State, ask: &Ask, seen: &Seen) -> Verdict {
    let conditional = matches!(ask.condition, Condition::Match(_) | Condition::UnmodifiedSince(_));
    match seen.status {
        504 if state.setup.rfc && ask.wishes.only_if_cached => Ok(()),
        502..=504 => {
            state.tally.borrow_mut().failed += 1;
            // What was made of a failure for those who waited is kept for a second, as Varnish does; there with grace.
            let kept = if state.setup.rfc { 1.0 } else { 6.0 };
            let failed = state.failed_lately(ask.site) || state.failed_since(ask.site, seen.began_at - kept);
            forbid!(!failed, "{} though the origin is well", seen.status);
            Ok(())
        }
        412 if state.setup.rfc && conditional => {
            let tag = seen.get("etag");
            let holds = seen.asked("if-match").is_some_and(|list| lists(list, tag, true));
            forbid!(holds, "412 though If-Match holds");
            Ok(())
        }
        status => Err(format!("an answer {status} out of nothing: {:?}", seen.fields)),
    }
}

/// An answer and what it rests on.
struct Use<'a> {
    state: &'a State,
    ask: &'a Ask,
    seen: &'a Seen,
    record: &'a Record,
}

impl Use<'_> {
    /// The earlier versions that an answer to HEAD updates, too: RFC 9111, section 4.3.5, asks only that what it has of
    /// validators and length be the same, and there are answers that have none.
    fn unnamed(&self) -> Vec<Form> {
        let record = self.record;
        let resources = self.state.resources.borrow();
        let site = &resources[record.form.site].site;
        if !record.head || record.status != 200 || site.tag != Tag::None || site.modified {
            return Vec::new();
        }
        let earlier = (0..record.form.version).map(|version| Form { version, ..record.form });
        let has_length = site.framing == Framing::Length;
        earlier
            .filter(|form| !has_length || form.length(site.size) == record.form.length(site.size))
            .collect()
    }

    /// Whether the response was there before the request.
    fn reused(&self) -> bool {
        self.record.sent < self.seen.began
    }

    /// As [`Use::reused`], unless the response was still on its way to the cache then, for all that is known: who waits for that
    /// does not use what is stored.
    fn was_stored(&self) -> bool {
        let record = self.record;
        let on_its_way = record.epoch == self.state.epoch.get()
            && record.delivered.is_none_or(|delivered| delivered > self.seen.began);
        self.reused() && !on_its_way
    }

    /// Whether the cache may, having answered, ask for itself: RFC 5861, section 3.
    fn revalidates(&self) -> bool {
        let policy = &self.record.policy;
        // How long it is fresh that does not say so, is for the cache to guess.
        let guessed = explicit(policy, None).is_none();
        let stale = guessed || self.age_at(self.seen.began_at) >= self.lifetime();
        self.reused() && policy.swr.is_some() && stale
    }

    fn count(&self) {
        let mut tally = self.state.tally.borrow_mut();
        let part = usize::from(self.seen.status == 206);
        let reused = usize::from(self.reused());
        tally.reused += reused;
        tally.parts += part;
        tally.reused_parts += part * reused;
        tally.not_modified += usize::from(self.seen.status == 304);
        tally.cut += usize::from(self.seen.end == End::Cut);
        tally.shared += usize::from(!self.reused() && self.record.request != self.seen.id);
        tally.confirmed += usize::from(self.record.status == 304 && self.seen.status != 304);
    }

    /// RFC 9111, sections 3, 3.5, 5.2.1.5, 5.2.2: whose response it is.
    fn ownership(&self) -> Verdict {
        let Self { state, record, .. } = *self;
        let policy = &record.policy;
        if record.request == self.seen.id && !self.reused() {
            return Ok(());
        }
        let asks = state.asks.borrow();
        let Some(fetcher) = asks.get(record.request).and_then(Option::as_ref) else { return Ok(()) };
        forbid!(policy.private, "a private response of #{} (5.2.2.7)", record.request);
        forbid!(policy.no_store, "a no-store response of #{} (5.2.2.5)", record.request);
        forbid!(
            fetcher.method.is_unsafe(),
            "the response to the {:?} of #{}",
            fetcher.method,
            record.request
        );
        forbid!(matches!(record.status, 412 | 416), "the {} of #{}", record.status, record.request);
        if state.setup.rfc {
            let permitted = policy.public || policy.must_revalidate || policy.s_maxage.is_some();
            forbid!(
                fetcher.authorized && !permitted,
                "an answer to Authorization of #{} (3.5)",
                record.request
            );
            // What is fetched in the background answers the cache's own request.
            let answers = fetcher.wishes.no_store && record.answers;
            forbid!(answers, "an answer to no-store of #{} (5.2.1.5)", record.request);
            forbid!(policy.no_cache && self.was_stored(), "no-cache, not validated (5.2.2.4)");
        } else {
            forbid!(fetcher.authorized, "an answer to Authorization of #{}", record.request);
            forbid!(policy.no_cache, "a no-cache response of #{}", record.request);
            forbid!(record.status == 500, "the 500 of #{}", record.request);
        }
        Ok(())
    }

    /// RFC 9111, section 4.4, and purges and bans: what came before them is gone.
    fn barriers(&self) -> Verdict {
        let record = self.record;
        for barrier in self.state.barriers.borrow().iter() {
            let after = barrier.site == self.ask.site && barrier.done < self.seen.began;
            let before = record.epoch < barrier.epoch && record.sent < barrier.began
                || record.delivered.is_some_and(|delivered| delivered < barrier.began);
            forbid!(after && before, "it was stored before the {} (4.4)", barrier.what);
        }
        Ok(())
    }

    /// RFC 9111, sections 4.2 and 5.2.1; RFC 5861.
    fn freshness(&self) -> Verdict {
        let Self { state, record, .. } = *self;
        let (policy, wishes) = (&record.policy, &self.ask.wishes);
        let lifetime = self.lifetime();
        let age = self.age_at(self.seen.began_at);
        let stale_for = age - lifetime;
        let fresh = stale_for < 0.0;
        self.state.tally.borrow_mut().stale += usize::from(!fresh);
        if !state.setup.rfc {
            let grace = policy.swr.map_or(DEFAULT_GRACE, f64::from);
            forbid!(stale_for >= grace, "age {age}, lifetime {lifetime}, grace {grace}");
            return Ok(());
        }
        let forbids_stale = policy.must_revalidate || policy.s_maxage.is_some() || policy.no_cache;
        let within = |limit: Option<u32>| limit.is_some_and(|limit| stale_for <= f64::from(limit));
        let failed = state.failed_lately(self.ask.site)
            || state.failed_since(self.ask.site, self.seen.began_at - OUTAGE);
        // Who says no-cache and stale-if-error wants the origin asked, and what is stored if that fails.
        let says_nothing = wishes.no_cache && wishes.sie.is_none();
        // RFC 9111, section 4.2.4, lets a cache that is cut off serve what nothing forbids.
        let by_default = policy.sie.is_none() && stale_for <= DEFAULT_STALE_IF_ERROR;
        let by_response = !says_nothing && (within(policy.sie) || within(policy.swr) || by_default);
        if !forbids_stale && failed && (by_response || within(wishes.sie)) {
            return Ok(());
        }
        // That it be younger is a preference (5.2.1.1), which an origin that fails cannot meet.
        if fresh && failed && !says_nothing {
            return Ok(());
        }
        forbid!(
            wishes.no_cache && self.was_stored(),
            "the request said no-cache, and nobody asked the origin (5.2.1.4)"
        );
        let permitted = !forbids_stale && (within(policy.swr) || within(wishes.max_stale));
        forbid!(!fresh && !permitted, "stale: age {age}, lifetime {lifetime} (4.2.4)");
        if let Some(most) = wishes.max_age {
            forbid!(age > f64::from(most), "age {age} with max-age={most} in the request (5.2.1.1)");
        }
        if let Some(least) = wishes.min_fresh {
            let left = -stale_for;
            forbid!(
                left < f64::from(least),
                "fresh for {left} with min-fresh={least} in the request (5.2.1.3)"
            );
        }
        Ok(())
    }

    /// RFC 9111, sections 4.2.1 and 4.2.2.
    fn lifetime(&self) -> Seconds {
        let record = self.record;
        let policy = &record.policy;
        let resources = self.state.resources.borrow();
        let resource = &resources[record.form.site];
        let expires = resource.site.expires.then_some(policy.expires);
        if let Some(explicit) = explicit(policy, expires) {
            return explicit;
        }
        match resource.modified(record.form.version) {
            _ if record.status == 500 => 0.0,
            Some(modified) if self.state.setup.rfc => ((record.date - modified) as f64 * 0.1).max(0.0),
            _ => DEFAULT_TTL,
        }
    }

    /// The least age that the response has at `now` (RFC 9111, section 4.2.3).
    fn age_at(&self, now: Time) -> Seconds {
        let record = self.record;
        let said = f64::from(record.policy.age);
        if !self.state.setup.rfc {
            return said + now - self.state.had(record);
        }
        // Date leaves out what was of a second.
        (said + now - record.arrived_at).max(now - (record.date + 1) as f64)
    }

    /// RFC 9111, section 5.1.
    fn age(&self) -> Verdict {
        let least = self.age_at(self.seen.began_at).max(0.0).floor();
        let said: Option<f64> = self.seen.get("age").and_then(|text| text.parse().ok());
        match said {
            Some(said) => forbid!(said < least, "Age: {said}, but it is at least {least}"),
            None => {
                let from_cache = self.reused() || self.record.policy.age > 0;
                forbid!(from_cache && self.seen.status != 412, "no Age, but it is at least {least}");
            }
        }
        Ok(())
    }

    /// RFC 9110: the bytes are those of the version that the head names.
    fn content(&self) -> Verdict {
        let (seen, record) = (self.seen, self.record);
        self.cut()?;
        let resources = self.state.resources.borrow();
        let resource = &resources[record.form.site];
        let tag = resource.tag(record.form);
        if matches!(seen.status, 200 | 206 | 304) && matches!(record.status, 200 | 206 | 304) {
            let sent = seen.get("etag");
            let is_read = !self.ask.method.is_unsafe();
            forbid!(is_read && sent != tag.as_deref(), "ETag {sent:?}, but it is {tag:?}");
        }
        let whole = self.state.bodies.borrow_mut().get(record.form, resource.site.size);
        match (seen.status, record.status) {
            (500, 500) => self.bytes(format!("error {}\n", self.serial()).as_bytes()),
            (200, 200) if self.ask.method.is_unsafe() => {
                self.bytes(format!("done {}\n", self.serial()).as_bytes())
            }
            (200, 200 | 206 | 304) => {
                self.condition(tag.as_deref())?;
                self.bytes(&whole)
            }
            (206, 200 | 206 | 304) => {
                self.condition(tag.as_deref())?;
                self.if_range(tag.as_deref())?;
                self.parts(&whole)
            }
            (304, 200 | 206 | 304) => {
                self.not_modified(tag.as_deref(), resource.modified(record.form.version))
            }
            (416, 200 | 206 | 304 | 416) => self.unsatisfiable(whole.len()),
            (412, 412) => Ok(()),
            (status, base) => Err(format!("status {status} of a response with {base}")),
        }
    }

    fn serial(&self) -> usize {
        serial(self.seen).unwrap_or(usize::MAX)
    }

    /// A body is broken off only if the origin failed or has another version.
    fn cut(&self) -> Verdict {
        let present = self.state.resources.borrow()[self.ask.site].version();
        // Nothing is fetched in place of what goes meanwhile.
        let offline = self.state.setup.rfc && self.ask.wishes.only_if_cached;
        let failed = self.state.failed_lately(self.ask.site);
        let reason = offline || failed || present != self.record.form.version;
        forbid!(
            self.seen.end == End::Cut && !reason,
            "cut off after {} bytes for no reason",
            self.seen.body.len()
        );
        Ok(())
    }

    /// The body is `whole`, as far as the client read it.
    fn bytes(&self, whole: &[u8]) -> Verdict {
        let seen = self.seen;
        if let Some(length) = seen.get("content-length") {
            let is_right = length.parse() == Ok(whole.len());
            // Of a HEAD that has no length we know none.
            forbid!(!is_right, "Content-Length {length}, but it is {}", whole.len());
        }
        let whole = if is_head(self.ask) { &[] } else { whole };
        self.prefix(whole)
    }

    fn prefix(&self, whole: &[u8]) -> Verdict {
        let body = &self.seen.body;
        if !whole.starts_with(body) {
            let at = body.iter().zip(whole).position(|(a, b)| a != b).unwrap_or(whole.len());
            let others = self.looks_like(at);
            return Err(format!("byte {at} of {} is not that of {:?}{others}", body.len(), self.record.form));
        }
        let short = body.len() < whole.len();
        forbid!(
            short && self.seen.end == End::Clean,
            "ends cleanly after {} of {} bytes",
            body.len(),
            whole.len()
        );
        Ok(())
    }

    /// Which other version has these bytes there.
    fn looks_like(&self, at: usize) -> String {
        let resources = self.state.resources.borrow();
        let resource = &resources[self.ask.site];
        let body = &self.seen.body;
        let end = (at + 8).min(body.len());
        (0..=resource.version())
            .map(|version| Form { version, ..self.record.form })
            .find(|form| {
                let other = self.state.bodies.borrow_mut().get(*form, resource.site.size);
                other.get(at..end).is_some_and(|bytes| bytes == &body[at..end])
            })
            .map_or_else(String::new, |form| format!(", but of version {}", form.version))
    }

    /// RFC 9110, section 13.2.2: a condition that does not hold is not passed over.
    fn condition(&self, tag: Option<&str>) -> Verdict {
        let fails = self.seen.asked("if-none-match").is_some_and(|list| lists(list, tag, false));
        forbid!(self.state.setup.rfc && fails, "{} though If-None-Match has {tag:?}", self.seen.status);
        let fails = self.seen.asked("if-match").is_some_and(|list| !lists(list, tag, true));
        forbid!(self.state.setup.rfc && fails, "{} though If-Match has not {tag:?}", self.seen.status);
        Ok(())
    }

    fn if_range(&self, tag: Option<&str>) -> Verdict {
        let Some(wanted) = self.seen.asked("if-range") else { return Ok(()) };
        let holds = tag.is_some_and(|tag| tag == wanted && !tag.starts_with("W/"));
        forbid!(!holds, "206 though If-Range {wanted} is not {tag:?}");
        Ok(())
    }

    /// What the client asked for of a body of `total` bytes.
    fn wanted(&self, total: usize) -> Option<Vec<std::ops::Range<usize>>> {
        let list = self.seen.asked("range")?.strip_prefix("bytes=")?;
        Some(list.split(',').filter_map(|spec| resolve(spec, total)).collect())
    }

    /// RFC 9110, sections 14.4, 14.6 and 15.3.7.
    fn parts(&self, whole: &[u8]) -> Verdict {
        let seen = self.seen;
        let Some(wanted) = self.wanted(whole.len()) else { return Err("206 without Range".into()) };
        if let Some(range) = seen.get("content-range") {
            let part = content_range(range, whole.len())?;
            // Several may have become one.
            let hull =
                wanted.iter().map(|range| range.start).min()..wanted.iter().map(|range| range.end).max();
            let is_hull = hull == (Some(part.start)..Some(part.end));
            forbid!(!is_hull, "Content-Range {range} for {wanted:?}");
            return self.bytes(&whole[part]);
        }
        let kind = seen.get("content-type").unwrap_or_default();
        let Some(boundary) = kind.strip_prefix("multipart/byteranges; boundary=") else {
            return Err(format!("206 without Content-Range, of type {kind:?}"));
        };
        if is_head(self.ask) || seen.end != End::Clean {
            return Ok(());
        }
        let length = seen.get("content-length").map(str::parse);
        forbid!(length.is_some_and(|length| length != Ok(seen.body.len())), "a multipart of another length");
        let had = multipart(&seen.body, boundary.trim_matches('"'), whole)?;
        let missing = wanted
            .iter()
            .find(|range| !had.iter().any(|part| part.start <= range.start && range.end <= part.end));
        forbid!(missing.is_some(), "no part has {missing:?}: {had:?}");
        Ok(())
    }

    fn not_modified(&self, tag: Option<&str>, modified: Option<i64>) -> Verdict {
        let seen = self.seen;
        forbid!(!seen.body.is_empty(), "a 304 with a body");
        if let Some(list) = seen.asked("if-none-match") {
            forbid!(!lists(list, tag, false), "304 for If-None-Match {list} of {tag:?}");
            return Ok(());
        }
        let Some(since) = seen.asked("if-modified-since") else {
            return Err("304 without a condition".into());
        };
        let since = copal_wire::date::parse(since.as_bytes()).unwrap_or(0.0) as i64;
        // Without Last-Modified its date stands for it (RFC 9110, section 13.1.3, leaves that to the cache).
        let reference = modified.unwrap_or(self.record.date);
        forbid!(reference > since, "304 for If-Modified-Since {since} of {reference}");
        Ok(())
    }

    fn unsatisfiable(&self, total: usize) -> Verdict {
        let said = self.seen.get("content-range").unwrap_or_default();
        forbid!(said != format!("bytes */{total}"), "416 with {said:?} of {total} bytes");
        let wanted = self.wanted(total);
        forbid!(
            wanted.as_ref().is_none_or(|wanted| !wanted.is_empty()),
            "416 for {wanted:?} of {total} bytes"
        );
        Ok(())
    }
}

fn explicit(policy: &Policy, expires: Option<i32>) -> Option<Seconds> {
    policy
        .s_maxage
        .or(policy.max_age)
        .map(f64::from)
        .or_else(|| expires.map(|seconds| f64::from(seconds.max(0))))
}

/// The bytes that `Content-Range` names.
fn content_range(text: &str, total: usize) -> Result<std::ops::Range<usize>, String> {
    let wrong = || format!("Content-Range {text:?} of {total} bytes");
    let (range, length) =
        text.strip_prefix("bytes ").and_then(|text| text.split_once('/')).ok_or_else(wrong)?;
    let (first, last) = range.split_once('-').ok_or_else(wrong)?;
    let first: usize = first.parse().map_err(|_| wrong())?;
    let end = last.parse::<usize>().map_err(|_| wrong())? + 1;
    if length.parse() != Ok(total) || first >= end || end > total {
        return Err(wrong());
    }
    Ok(first..end)
}

/// The parts of a `multipart/byteranges` body, each of which is as `whole` there (RFC 9110, section 14.6).
fn multipart(body: &[u8], boundary: &str, whole: &[u8]) -> Result<Vec<std::ops::Range<usize>>, String> {
    let delimiter = format!("--{boundary}");
    let mut rest = body;
    let mut parts = Vec::new();
    loop {
        rest = rest.strip_prefix(b"\r\n").unwrap_or(rest);
        rest = rest.strip_prefix(delimiter.as_bytes()).ok_or("a multipart without its boundary")?;
        if rest.starts_with(b"--") {
            return Ok(parts);
        }
        let end = rest.windows(4).position(|window| window == b"\r\n\r\n").ok_or("a part without a head")?;
        let head = String::from_utf8_lossy(&rest[..end]).to_ascii_lowercase();
        let range =
            head.lines().find_map(|line| line.strip_prefix("content-range: ")).ok_or("no Content-Range")?;
        let part = content_range(range.trim(), whole.len())?;
        rest = &rest[end + 4..];
        if rest.len() < part.len() || rest[..part.len()] != whole[part.clone()] {
            return Err(format!("part {part:?} has other bytes"));
        }
        rest = &rest[part.len()..];
        parts.push(part);
    }
}
