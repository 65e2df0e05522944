//! Heads that are not written as RFC 9112 wants them but can be read in one way only, brought into its form.
//!
//! | what | in requests | in responses |
//! |---|---|---|
//! | LF for every line end | taken | taken |
//! | LF for some line ends | refused: another reader may take the line and the next for one | taken |
//! | a field value that goes on in the next line | refused | its line ends become spaces |
//!
//! Only a head that the strict parser refused comes here. The result goes through the strict parser like any other.
//!
//! Source: RFC 9112, sections 2.2 and 5.2.

/// A head in the strict form, and how many bytes of the input it was.
pub(super) struct Mended {
    pub(super) head: Vec<u8>,
    pub(super) size: usize,
}

/// What came of it.
pub(super) enum Mend {
    /// The head was not whole: more must be read to tell.
    Partial,
    Done(Mended),
    /// It is beyond help.
    No,
}

/// Mends a request head whose lines all end with a bare LF.
pub(super) fn request(buf: &[u8], limit: usize) -> Mend {
    let seen = &buf[..buf.len().min(limit)];
    let size = seen.windows(2).position(|pair| pair == b"\n\n").map(|at| at + 2);
    let Some(size) = size else {
        return if seen.contains(&b'\r') || buf.len() >= limit { Mend::No } else { Mend::Partial };
    };
    if seen[..size].contains(&b'\r') {
        return Mend::No;
    }
    let mut head = Vec::with_capacity(size + 64);
    for line in seen[..size - 1].split(|byte| *byte == b'\n') {
        head.extend_from_slice(line);
        head.extend_from_slice(b"\r\n");
    }
    Mend::Done(Mended { head, size })
}

/// Mends a response head: bare LF, and folded lines.
pub(super) fn response(buf: &[u8], limit: usize) -> Mend {
    let mut head = Vec::with_capacity(buf.len().min(limit) + 64);
    let mut at = 0;
    loop {
        let rest = &buf[at..buf.len().min(limit)];
        let Some(length) = rest.iter().position(|byte| *byte == b'\n') else {
            return if buf.len() >= limit { Mend::No } else { Mend::Partial };
        };
        let line = &rest[..length];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let first = at == 0;
        at += length + 1;
        if line.is_empty() {
            if first {
                return Mend::No;
            }
            head.extend_from_slice(b"\r\n");
            return Mend::Done(Mended { head, size: at });
        }
        if line.contains(&b'\r') {
            return Mend::No;
        }
        match line[0] {
            // A fold right after the status line goes on from nothing.
            b' ' | b'\t' if !has_field(&head) => return Mend::No,
            b' ' | b'\t' => {
                head.truncate(head.len() - 2);
                head.push(b' ');
                let text = line.iter().position(|byte| !matches!(byte, b' ' | b'\t')).unwrap_or(line.len());
                head.extend(std::iter::repeat_n(b' ', text));
                head.extend_from_slice(&line[text..]);
            }
            _ => head.extend_from_slice(line),
        }
        head.extend_from_slice(b"\r\n");
    }
}

/// Whether the head so far has more than its first line.
fn has_field(head: &[u8]) -> bool {
    let mut ends = head.iter().filter(|byte| **byte == b'\n');
    ends.next().is_some() && ends.next().is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(mend: Mend, expected: Option<(&str, usize)>) {
        let got = match &mend {
            Mend::Done(mended) => Some((str::from_utf8(&mended.head).unwrap(), mended.size)),
            Mend::No | Mend::Partial => None,
        };
        assert_eq!(got, expected);
    }

    #[test]
    fn rfc9112_2_2_requests_with_bare_line_feeds_throughout() {
        check(
            request(b"GET / HTTP/1.1\nHost: h\n\nbody", 99),
            Some(("GET / HTTP/1.1\r\nHost: h\r\n\r\n", 24)),
        );
        check(request(b"GET / HTTP/1.1\nHost: h\r\n\r\n", 99), None);
        check(request(b"GET / HTTP/1.1\r\nHost: h\n\n", 99), None);
        assert!(matches!(request(b"GET / HTTP/1.1\nHost: h\n", 99), Mend::Partial));
        assert!(matches!(request(b"GET / HTTP/1.1\nHost: h\n", 10), Mend::No));
    }

    #[test]
    fn rfc9112_5_2_folded_responses() {
        check(
            response(b"HTTP/1.1 200 OK\r\nA: b,\n\tc\r\nD: e\n\nbody", 99),
            Some(("HTTP/1.1 200 OK\r\nA: b,  c\r\nD: e\r\n\r\n", 33)),
        );
        check(response(b"HTTP/1.1 200 OK\n A: b\n\n", 99), None);
        check(response(b"HTTP/1.1 200 OK\nA\r: b\n\n", 99), None);
        assert!(matches!(response(b"HTTP/1.1 200 OK\nA: b\n", 99), Mend::Partial));
        check(response(b"\nHTTP/1.1 200 OK\n\n", 99), None);
    }
}
