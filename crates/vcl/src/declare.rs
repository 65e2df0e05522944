//! The checker: definitions of backends, probes and access lists.

use crate::check::{Checker, not_found};
use crate::compile::{Options, Socket};
use crate::convert::split_endpoint;
use crate::diagnostics::{Checked, Problem};
use crate::source::{Sources, Span};
use crate::symbols::Kind;
use crate::syntax::{Entry, Field, FieldValue, Name, Part};
use crate::value::{AclEntry, AclValue, BackendDefinition, ProbeDefinition, TlsDefinition};
use copal_base::{Seconds, units};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

/// The most results a probe remembers: one bit each in a 64-bit word.
const WINDOW_MAX: i64 = 64;
/// More than any definition has fields.
const FIELDS_MAX: usize = 64;
/// The most addresses one access list may hold, host names resolved.
const ENTRIES_MAX: usize = 100_000;

pub(crate) fn backend(
    checker: &mut Checker,
    name: &Part,
    keyword: Span,
    none: bool,
    fields: &[Field],
) -> Checked<BackendDefinition> {
    let mut definition = BackendDefinition { name: name.text.clone(), none, ..Default::default() };
    if none {
        return Ok(definition);
    }
    let inside = |problem: Box<Problem>| -> Box<Problem> {
        problem.further("In backend specification starting at:").token(keyword).into()
    };
    once(fields).map_err(inside)?;
    for field in fields {
        backend_field(checker, &mut definition, field).map_err(inside)?;
    }
    definition.tls = tls(fields).map_err(inside)?;
    let address = |wanted: &str| fields.iter().find(|field| field.name.text == wanted);
    match (address("host"), address("path")) {
        (None, None) => Err(inside(Problem::at(name.span, "Expected .host or .path.").into())),
        (Some(host), Some(path)) => {
            let (first, second) =
                if host.name.span.start < path.name.span.start { (host, path) } else { (path, host) };
            Err(inside(
                Problem::at(second.name.span, "Address redefinition at:")
                    .words("Previous definition:")
                    .token(first.name.span)
                    .into(),
            ))
        }
        (Some(host), None) => {
            split_host(&mut definition);
            definition.addresses = resolved(checker.options, &definition, host).map_err(inside)?;
            Ok(definition)
        }
        (None, Some(path)) => {
            socket(checker, &definition, path).map_err(inside)?;
            Ok(definition)
        }
    }
}

/// Without a `.port` the host may hold one; it then goes to the origin in `Host` as well. An empty host with a `.port` is
/// this machine, and goes in no `Host`.
fn split_host(definition: &mut BackendDefinition) {
    if definition.host.is_empty() && definition.port.is_some() {
        definition.host_header.get_or_insert_default();
        definition.host = "127.0.0.1".into();
        return;
    }
    let (host, port) = split_endpoint(&definition.host);
    if definition.port.is_some() || host == definition.host {
        return;
    }
    // Without a host it is this machine.
    let host = if host.is_empty() { "localhost" } else { host };
    let (host, port) = (host.to_owned(), port.map(str::to_owned));
    definition.host_header.get_or_insert(definition.host.clone());
    (definition.host, definition.port) = (host, port);
}

/// A host that cannot be resolved now is refused, not when it is first needed.
fn resolved(options: &Options, definition: &BackendDefinition, host: &Field) -> Checked<Vec<IpAddr>> {
    let failed = |why: &str| -> Box<Problem> {
        let name = &definition.host;
        let words = format!("Backend host '\"{name}\"' could not be resolved to an IP address:\n\t{why}");
        Problem::at(host.value_span, words).into()
    };
    if definition.host.parse::<IpAddr>().is_ok() {
        return Ok(Vec::new());
    }
    match (options.resolve)(&definition.host) {
        Ok(addresses) if addresses.is_empty() => Err(failed("Name or service not known")),
        Ok(addresses) => Ok(addresses),
        Err(why) => Err(failed(&why)),
    }
}

fn socket(checker: &mut Checker, definition: &BackendDefinition, path: &Field) -> Checked<()> {
    let span = path.value_span;
    if checker.sources.version(span) < 41 {
        let words = "Unix socket backends only supported in VCL4.1 and higher.";
        return Err(Problem::at(span, words).into());
    }
    let (Some(check), Some(path)) = (checker.options.socket, &definition.path) else { return Ok(()) };
    match check(path) {
        Ok(()) => Ok(()),
        Err(Socket::NotASocket) => Err(Problem::at(span, "Backend path: Not a socket:").into()),
        Err(Socket::Missing(why)) => {
            let problem = Problem::at(span, format!("Backend path: Cannot stat: {why}"));
            checker.warnings.push(problem.words("(That was just a warning)"));
            Ok(())
        }
    }
}

fn backend_field(checker: &mut Checker, definition: &mut BackendDefinition, field: &Field) -> Checked<()> {
    match field.name.text.as_str() {
        "host" => definition.host = text(field)?,
        "port" => definition.port = Some(port(field)?),
        "path" => {
            let path = text(field)?;
            if !path.starts_with('/') {
                return Err(Problem::at(field.value_span, "Backend path: Must be an absolute path:").into());
            }
            definition.path = Some(path);
        }
        "host_header" => definition.host_header = Some(text(field)?),
        "authority" => definition.authority = Some(text(field)?),
        "preamble" => match &field.value {
            FieldValue::Blob(bytes) => definition.preamble = Some(bytes.clone().into()),
            _ => return Err(expected(checker.sources, "CBLOB", field)),
        },
        "connect_timeout" => definition.connect_timeout = Some(duration(field)?),
        "first_byte_timeout" => definition.first_byte_timeout = Some(duration(field)?),
        "between_bytes_timeout" => definition.between_bytes_timeout = Some(duration(field)?),
        "max_connections" => definition.max_connections = Some(whole(field)?.min(i64::from(u32::MAX)) as u32),
        "proxy_header" => match whole(field)? {
            version @ (1 | 2) => definition.proxy_header = Some(version as u8),
            _ => return Err(Problem::at(field.value_span, ".proxy_header must be 1 or 2").into()),
        },
        "probe" => definition.probe = Some(backend_probe(checker, field)?),
        "ssl" | "ssl_sni" | "ssl_verify_peer" | "ssl_verify_host" => {
            switch(field)?;
        }
        _ => return Err(unknown(field)),
    }
    Ok(())
}

/// The fields about TLS, which mean something only together. Those without `.ssl = 1` are accepted, as in the language
/// they come from, and have nothing to act on.
fn tls(fields: &[Field]) -> Checked<Option<TlsDefinition>> {
    let find = |wanted: &str, default: bool| {
        fields.iter().find(|field| field.name.text == wanted).map_or(Ok(default), switch)
    };
    let every = TlsDefinition::default();
    let definition = TlsDefinition {
        sni: find("ssl_sni", every.sni)?,
        verify_peer: find("ssl_verify_peer", every.verify_peer)?,
        verify_host: find("ssl_verify_host", every.verify_host)?,
    };
    Ok(find("ssl", false)?.then_some(definition))
}

/// `0`, `1`, `true` or `false`.
fn switch(field: &Field) -> Checked<bool> {
    match &field.value {
        FieldValue::Word(word) if word.text == "true" => Ok(true),
        FieldValue::Word(word) if word.text == "false" => Ok(false),
        FieldValue::Number(_) if matches!(whole(field), Ok(0 | 1)) => Ok(whole(field)? == 1),
        _ => Err(Problem::at(field.value_span, "Expected 0 or 1").into()),
    }
}

fn backend_probe(checker: &mut Checker, field: &Field) -> Checked<Arc<ProbeDefinition>> {
    match &field.value {
        FieldValue::Inline(fields) => Ok(Arc::new(probe(checker.sources, "", field.value_span, fields)?)),
        FieldValue::Word(word) if word.text == "default" => match &checker.default_probe {
            Some((probe, _)) => Ok(Arc::clone(probe)),
            None => Err(Problem::at(field.value_span, "No default probe defined, at").into()),
        },
        FieldValue::Word(word) => {
            let found = match checker.names.find(&word.text) {
                Some((Kind::Probe, index)) => {
                    checker.names.refer(&mut checker.probes, word)?;
                    checker.probes.value(index).cloned()
                }
                Some(_) => return Err(checker.names.wrong_kind(word, "probe")),
                None => None,
            };
            found.ok_or_else(|| not_found(&Name { parts: vec![word.clone()] }))
        }
        FieldValue::Number(_) | FieldValue::Strings(_) | FieldValue::Blob(_) => {
            let got = checker.sources.quote(field.value_span);
            let words = format!("Expected '{{' or name of probe, got '{got}' at");
            Err(Problem::at(field.value_span, words).into())
        }
    }
}

pub(crate) fn probe(
    sources: &Sources,
    name: &str,
    keyword: Span,
    fields: &[Field],
) -> Checked<ProbeDefinition> {
    let mut probe = ProbeDefinition { name: name.to_owned(), ..Default::default() };
    probe_fields(&mut probe, fields).map_err(|problem| -> Box<Problem> {
        if sources.quote(keyword).starts_with('{') {
            return problem;
        }
        problem.further("In probe specification starting at:").token(keyword).into()
    })?;
    Ok(probe)
}

fn probe_fields(probe: &mut ProbeDefinition, fields: &[Field]) -> Checked<()> {
    once(fields)?;
    let find = |wanted: &str| fields.iter().find(|field| field.name.text == wanted);
    for field in fields {
        match field.name.text.as_str() {
            "url" => probe.url = text(field)?,
            "request" => probe.request = Some(request(field)?),
            "expected_response" => {
                probe.expected_response = match u16::try_from(whole(field)?) {
                    Ok(status @ 100..=999) => status,
                    _ => {
                        let words =
                            "Must specify .expected_response with exactly three digits (100 <= x <= 999)";
                        return Err(Problem::at(field.value_span, words).into());
                    }
                }
            }
            "timeout" => probe.timeout = duration(field)?,
            "interval" => probe.interval = duration(field)?,
            "window" => probe.window = counted(field, "Window")?,
            "threshold" => probe.threshold = counted(field, "Threshold")?,
            "initial" => probe.initial = Some(whole(field)?.clamp(0, WINDOW_MAX) as u32),
            "expect_close" => {
                probe.expect_close = match &field.value {
                    FieldValue::Word(word) if word.text == "true" => true,
                    FieldValue::Word(word) if word.text == "false" => false,
                    _ => return Err(Problem::at(field.value_span, "Expected true or false").into()),
                }
            }
            _ => return Err(unknown(field)),
        }
    }
    if let (Some(url), Some(request)) = (find("url"), find("request")) {
        let (first, second) =
            if url.name.span.start < request.name.span.start { (url, request) } else { (request, url) };
        return Err(Problem::at(second.name.span, "Probe request redefinition at:")
            .words("Previous definition:")
            .token(first.name.span)
            .into());
    }
    match (find("window"), find("threshold")) {
        (Some(window), None) => {
            return Err(Problem::at(window.value_span, "Must specify .threshold with .window").into());
        }
        (window, Some(threshold)) if probe.threshold > probe.window => {
            let mut problem = Problem::at(threshold.value_span, "Threshold can not be greater than window.");
            if let Some(window) = window {
                problem = problem.token(window.value_span);
            }
            return Err(problem.into());
        }
        _ => {}
    }
    zero_is_default(probe);
    probe.initial = probe.initial.map(|initial| initial.min(probe.threshold));
    Ok(())
}

/// Zero stands for the default, as in Varnish.
fn zero_is_default(probe: &mut ProbeDefinition) {
    let default = ProbeDefinition::default();
    for (value, default) in [(&mut probe.timeout, default.timeout), (&mut probe.interval, default.interval)] {
        if *value <= 0.0 {
            *value = default;
        }
    }
    for (value, default) in [(&mut probe.window, default.window), (&mut probe.threshold, default.threshold)] {
        if *value == 0 {
            *value = default;
        }
    }
}

pub(crate) fn acl(
    checker: &mut Checker,
    name: &Part,
    flags: &[(bool, Part)],
    entries: &[Entry],
) -> Checked<AclValue> {
    let (mut log, mut pedantic) = (false, true);
    for (on, flag) in flags {
        match flag.text.as_str() {
            "log" => log = *on,
            "pedantic" => pedantic = *on,
            _ => {}
        }
    }
    let mut list: Vec<(AclEntry, Span)> = Vec::with_capacity(entries.len());
    for entry in entries {
        for (address, mask) in addresses(checker, entry)? {
            list.push((acl_entry(entry, address, mask, pedantic)?, entry.address_span));
        }
        if list.len() > ENTRIES_MAX {
            let words = format!("More than {ENTRIES_MAX} addresses in one ACL");
            return Err(Problem::at(entry.address_span, words).into());
        }
    }
    conflicts(&list)?;
    Ok(AclValue::new(name.text.clone(), log, list.into_iter().map(|(entry, _)| entry).collect()))
}

/// The addresses of an entry, each with the mask that its form implies.
fn addresses(checker: &mut Checker, entry: &Entry) -> Checked<Vec<(IpAddr, Option<u8>)>> {
    if let Ok(address) = entry.address.parse::<IpAddr>() {
        return Ok(vec![(address, None)]);
    }
    if let Some((network, mask)) = short_network(&entry.address) {
        return Ok(vec![(network, Some(mask))]);
    }
    match (checker.options.resolve)(&entry.address) {
        Ok(addresses) => Ok(addresses.into_iter().map(|address| (address, None)).collect()),
        Err(why) if entry.optional => {
            let words = format!("Warning: {} ignored\n  -- {why}", entry.address);
            checker.warnings.push(Problem::new().words(words));
            Ok(Vec::new())
        }
        Err(why) => {
            let words = format!("DNS lookup({}): {why}", entry.address);
            Err(Problem::at(entry.address_span, words).into())
        }
    }
}

/// A network by its first octets alone: `10.1` is `10.1.0.0/16`.
fn short_network(text: &str) -> Option<(IpAddr, u8)> {
    let mut octets = [0; 4];
    let mut count = 0;
    for part in text.split('.') {
        *octets.get_mut(count)? = part.parse().ok()?;
        count += 1;
    }
    (2..4).contains(&count).then(|| (IpAddr::from(octets), 8 * count as u8))
}

fn acl_entry(entry: &Entry, address: IpAddr, implied: Option<u8>, pedantic: bool) -> Checked<AclEntry> {
    let (bits, family) = match address {
        IpAddr::V4(_) => (32, "IPv4"),
        IpAddr::V6(_) => (128, "IPv6"),
    };
    let mask = match entry.mask {
        None => implied.unwrap_or(bits),
        Some((mask, _)) if (0..=i64::from(bits)).contains(&mask) => mask as u8,
        Some((mask, span)) => {
            let words = format!("Too wide mask (/{mask}) for {family} address");
            return Err(Problem::at(span, words).into());
        }
    };
    let network = crate::acl::network(address, mask);
    // The octets that a short network leaves out are for its mask to say.
    let stray = network != address && implied.is_none();
    if stray && pedantic {
        let words = format!("Non-zero bits in masked part, (maybe use {network}/{mask} ?)");
        return Err(Problem::at(entry.address_span, words).into());
    }
    let mut source = match entry.mask {
        Some((mask, _)) => format!("\"{}\"/{mask}", entry.address),
        None => format!("\"{}\"", entry.address),
    };
    if network != address {
        source.push_str(&format!(" fixed: {network}/{mask}"));
    }
    Ok(AclEntry { address: network, mask, negated: entry.negated, source })
}

/// The same network may be listed twice, but not both for and against.
fn conflicts(list: &[(AclEntry, Span)]) -> Checked<()> {
    let mut seen: HashMap<(IpAddr, u8), (bool, Span)> = HashMap::with_capacity(list.len());
    for (entry, span) in list {
        let first = seen.entry((entry.address, entry.mask)).or_insert((entry.negated, *span));
        if first.0 != entry.negated {
            return Err(Problem::at(first.1, "Conflicting ACL entries:").words("vs:").token(*span).into());
        }
    }
    Ok(())
}

fn once(fields: &[Field]) -> Checked<()> {
    // There are fewer fields than this, so of more some repeat or are unknown; the latter is found behind this.
    for (index, field) in fields.iter().enumerate().take(FIELDS_MAX) {
        if let Some(first) = fields[..index].iter().find(|first| first.name.text == field.name.text) {
            return Err(Problem::at(field.name.span, format!("Field '{}' redefined at:", field.name.text))
                .further("First defined at:")
                .token(first.name.span)
                .into());
        }
    }
    Ok(())
}

fn unknown(field: &Field) -> Box<Problem> {
    Problem::at(field.name.span, format!("Unknown field: '{}' at", field.name.text)).into()
}

/// The message for a value of another form than the field needs.
fn expected(sources: &Sources, what: &str, field: &Field) -> Box<Problem> {
    let got = sources.quote(field.value_span);
    Problem::at(field.value_span, format!("Expected {what} got '{got}', at")).into()
}

fn text(field: &Field) -> Checked<String> {
    let FieldValue::Strings(strings) = &field.value else {
        return Err(Problem::at(field.value_span, "Expected a string").into());
    };
    match String::from_utf8(strings.concat()) {
        Ok(text) if !text.bytes().any(|byte| byte.is_ascii_control()) => Ok(text),
        _ => Err(Problem::at(field.value_span, "Expected printable text").into()),
    }
}

/// The lines of a probe's request, each closed by CRLF, and the empty line.
fn request(field: &Field) -> Checked<String> {
    let FieldValue::Strings(strings) = &field.value else {
        return Err(Problem::at(field.value_span, "Expected a string").into());
    };
    let mut request = String::new();
    for line in strings {
        let Ok(line) = std::str::from_utf8(line) else {
            return Err(Problem::at(field.value_span, "Expected text").into());
        };
        request.push_str(line);
        request.push_str("\r\n");
    }
    request.push_str("\r\n");
    Ok(request)
}

/// A port's name or number; Varnish takes both `"80"` and `80`.
fn port(field: &Field) -> Checked<String> {
    match &field.value {
        FieldValue::Number(_) => Ok(whole(field)?.to_string()),
        FieldValue::Strings(_) | FieldValue::Word(_) | FieldValue::Inline(_) | FieldValue::Blob(_) => {
            text(field)
        }
    }
}

fn duration(field: &Field) -> Checked<Seconds> {
    if let FieldValue::Number(number) = &field.value {
        let unit = number.unit.as_ref().map(|unit| unit.text.as_str());
        if let Some(scale) = unit.and_then(units::unit_seconds) {
            return Ok(number.real * scale);
        }
    }
    Err(Problem::at(
        field.value_span,
        "Expected a duration with its unit: 'ms', 's', 'm', 'h', 'd', 'w' or 'y'",
    )
    .into())
}

fn whole(field: &Field) -> Checked<i64> {
    match &field.value {
        FieldValue::Number(number) if number.unit.is_none() => match number.integer {
            Some(integer) => Ok(integer),
            None => Err(Problem::at(field.value_span, "Expected a whole number").into()),
        },
        _ => Err(Problem::at(field.value_span, "Expected a whole number").into()),
    }
}

fn counted(field: &Field, what: &str) -> Checked<u32> {
    match whole(field)? {
        count @ 0..=WINDOW_MAX => Ok(count as u32),
        _ => Err(Problem::at(field.value_span, format!("{what} must be {WINDOW_MAX} or less.")).into()),
    }
}
