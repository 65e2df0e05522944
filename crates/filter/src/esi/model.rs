//! ESI once more, for the tests: on the whole document at once, without states, as slow as it likes.

/// What of `document` is sent, with `[URL]` in place of each include; options as they are by default, relative URLs below
/// `/d/`.
pub(crate) fn deliver(document: &[u8]) -> Vec<u8> {
    let first = document.iter().find(|byte| !byte.is_ascii_whitespace());
    if first != Some(&b'<') {
        return document.to_vec();
    }
    let mut out = Vec::new();
    let (mut at, mut removing, mut commented, mut found) = (0, false, false, false);
    while at < document.len() {
        let rest = &document[at..];
        let (count, sent) = match () {
            () if commented && rest.starts_with(b"-->") => {
                commented = false;
                (3, None)
            }
            () if rest == b"<!--esi" => plain(7),
            () if rest.starts_with(b"<!--esi") && !removing => {
                commented = true;
                (7, None)
            }
            () if rest.starts_with(b"<!--esi") => plain(7),
            () if rest.starts_with(b"<!--") => plain(through(rest, 4, b"-->")),
            () if rest.starts_with(b"<![CDATA[") => plain(through(rest, 9, b"]]>")),
            () if rest.starts_with(b"<esi:") => element(rest, 5, &mut removing),
            () if rest.starts_with(b"</esi:") => element(rest, 6, &mut removing),
            () if rest[0] == b'<' => plain(through(rest, 1, b">")),
            () => plain(1),
        };
        let is_markup = !matches!(sent, Some(Sent::Stored)) && !rest.starts_with(b"<!--esi");
        match sent {
            Some(Sent::Stored) if !removing => out.extend_from_slice(&rest[..count]),
            Some(Sent::Include(body)) => out.extend_from_slice(&body),
            Some(Sent::Stored) | None => {}
        }
        found |= is_markup;
        at += count;
    }
    if found { out } else { document.to_vec() }
}

enum Sent {
    Stored,
    Include(Vec<u8>),
}

fn plain(count: usize) -> (usize, Option<Sent>) {
    (count, Some(Sent::Stored))
}

/// How long `rest` is through the first `end` behind `from`.
fn through(rest: &[u8], from: usize, end: &[u8]) -> usize {
    let found = rest[from..].windows(end.len()).position(|window| window == end);
    found.map_or(rest.len(), |found| from + found + end.len())
}

fn element(rest: &[u8], prefix: usize, removing: &mut bool) -> (usize, Option<Sent>) {
    let names = [&b"include"[..], b"remove", b"comment"];
    let tail = &rest[prefix..];
    let Some(name) = names.into_iter().find(|name| tail.starts_with(name)) else {
        // Cut off in a name that may have become one, it is no element at all.
        if names.into_iter().any(|name| name.starts_with(tail)) {
            return plain(rest.len());
        }
        let same =
            names.into_iter().map(|name| name.iter().zip(tail).take_while(|(a, b)| a == b).count()).max();
        return (through(rest, prefix + same.unwrap_or(0), b">"), None);
    };
    let at = prefix + name.len();
    if at == rest.len() {
        return (at, None);
    }
    let ends = prefix == 6;
    let misplaced = name != b"remove" && (ends || *removing);
    if misplaced || !matches!(rest[at], b' ' | b'\t' | b'\r' | b'\n' | b'/' | b'>') {
        return (through(rest, at, b">"), None);
    }
    let Some((end, closed, sources)) = attributes(rest, at) else { return (rest.len(), None) };
    let Ok(closed) = closed else { return (end, None) };
    match name {
        b"remove" if !closed && *removing == ends => *removing = !ends,
        b"include" => {
            if let [source] = sources.as_slice() {
                return (end, include(source).map(Sent::Include));
            }
        }
        _ => {}
    }
    (end, None)
}

/// Where the element ends, whether it closes itself (or is faulty), and the values of `src`; `None` if it has no end.
#[allow(clippy::type_complexity)]
fn attributes(rest: &[u8], from: usize) -> Option<(usize, Result<bool, ()>, Vec<Vec<u8>>)> {
    let mut sources = Vec::new();
    let mut at = from;
    let faulty = |at: usize, sources| {
        rest[at..].iter().position(|byte| *byte == b'>').map(|found| (at + found + 1, Err(()), sources))
    };
    loop {
        while rest.get(at)?.is_ascii_whitespace() {
            at += 1;
        }
        match rest[at] {
            b'>' => return Some((at + 1, Ok(false), sources)),
            b'/' if *rest.get(at + 1)? == b'>' => return Some((at + 2, Ok(true), sources)),
            b'/' => return faulty(at + 1, sources),
            byte if byte.is_ascii_alphabetic() || byte == b'_' || byte == b':' => {}
            _ => return faulty(at, sources),
        }
        let name_length =
            rest[at..].iter().position(|byte| !(byte.is_ascii_alphanumeric() || b"_:-.".contains(byte)))?;
        let name = &rest[at..at + name_length];
        at += name_length;
        match rest[at] {
            b'=' => at += 1,
            b'/' | b'>' => continue,
            byte if byte.is_ascii_whitespace() => continue,
            _ => return faulty(at, sources),
        }
        let value = match *rest.get(at)? {
            byte if byte.is_ascii_whitespace() || byte == b'>' => return faulty(at, sources),
            quote @ (b'"' | b'\'') => {
                let length = rest[at + 1..].iter().position(|byte| *byte == quote || *byte == b'>')?;
                let end = at + 1 + length;
                if rest[end] != quote {
                    return faulty(end, sources);
                }
                let value = &rest[at + 1..end];
                at = end + 1;
                value
            }
            _ => {
                let length =
                    rest[at..].iter().position(|byte| byte.is_ascii_whitespace() || *byte == b'>')?;
                let value = &rest[at..at + length];
                at += length;
                if rest[at] == b'>' {
                    return faulty(at, sources);
                }
                value
            }
        };
        if name == b"src" {
            sources.push(value.to_vec());
        }
    }
}

fn include(source: &[u8]) -> Option<Vec<u8>> {
    let text = String::from_utf8_lossy(source).replace("&amp;", "&");
    if text.contains([' ', '\t', '\r', '\n']) || text.starts_with("https://") {
        return None;
    }
    if let Some(rest) = text.strip_prefix("http://") {
        return rest.contains('/').then(|| format!("[{rest}]").into_bytes());
    }
    let base = if text.starts_with('/') { "" } else { "/d/" };
    Some(format!("[{base}{text}]").into_bytes())
}
