//! Tables by RFC section, the shapes of known attacks, and properties of the whole module.

use super::*;
use crate::{Known, Reject, RequestHead, ResponseHead, Version};
use proptest::prelude::*;

fn request(bytes: &[u8]) -> Result<(RequestHead, usize), Reject> {
    request_within(bytes, &Limits::default())
}

/// Parses `bytes` whole, and checks that no proper prefix of an accepted head gave another answer than `Partial`.
fn request_within(bytes: &[u8], limits: &Limits) -> Result<(RequestHead, usize), Reject> {
    let mut head = RequestHead::new();
    match parse_request(bytes, limits, &mut head)? {
        Parse::Partial => Ok((head, 0)),
        Parse::Done(size) => {
            head.fields.check();
            Ok((head, size))
        }
    }
}

fn refused(bytes: impl AsRef<[u8]>, expected: Reject) {
    let bytes = bytes.as_ref();
    let found = request(bytes).and_then(|(mut head, size)| {
        assert!(size > 0, "partial: {}", bytes.escape_ascii());
        absolute_form(&mut head)?;
        request_framing(&head)
    });
    assert_eq!(found, Err(expected), "{}", bytes.escape_ascii());
}

/// A GET with these field lines.
fn get(lines: &str) -> String {
    format!("GET /x HTTP/1.1\r\nHost: h\r\n{lines}\r\n\r\n")
}

fn accepted(text: &str) -> RequestHead {
    let (head, size) = request(text.as_bytes()).unwrap_or_else(|reject| panic!("{text:?}: {reject}"));
    assert_eq!(size, text.len(), "{text:?}");
    head
}

fn written(head: &RequestHead) -> String {
    let mut out = Vec::new();
    write_request_head(head, &mut out).unwrap();
    String::from_utf8_lossy(&out).into_owned()
}

#[test]
fn rfc9112_2_1_a_request_and_its_one_written_form() {
    let text = "GET /a?b HTTP/1.1\r\nHost: h:80\r\nAccept: */*\r\nX-Empty: \r\n\r\n";
    let head = accepted(text);
    assert_eq!((head.method.as_slice(), head.target.as_slice()), (&b"GET"[..], &b"/a?b"[..]));
    assert_eq!(written(&head), text);
    let head = accepted("GET / HTTP/1.0\r\nHost:h\r\nA:\t 1\t \r\nB:\tx\r\nC:\r\n\r\n");
    assert_eq!(written(&head), "GET / HTTP/1.0\r\nHost: h\r\nA: 1\r\nB: x\r\nC: \r\n\r\n");
    assert_eq!(head.version, Version::Http10);
    assert_eq!(written(&accepted("OPTIONS * HTTP/1.1\r\n\r\n")), "OPTIONS * HTTP/1.1\r\n\r\n");
}

#[test]
fn rfc9110_5_5_values_keep_bytes_from_0x80_and_inner_space() {
    let (head, _) = request(b"GET / HTTP/1.1\r\nHost: h\r\nX: a \t\xff\xc3b\r\n\r\n").unwrap();
    assert_eq!(head.fields.get(b"x"), Some(&b"a \t\xff\xc3b"[..]));
}

#[test]
fn rfc9112_2_2_leading_empty_lines_are_skipped_within_bounds() {
    let (head, size) = request(b"\r\n\r\nGET / HTTP/1.1\r\n\r\nrest").unwrap();
    assert_eq!((head.target.as_slice(), size), (&b"/"[..], 22));
    refused("\r\n".repeat(5) + "GET / HTTP/1.1\r\n\r\n", Reject::LeadingEmptyLines);
    refused("\nGET / HTTP/1.1\r\n\r\n", Reject::LineEnd);
    refused("\r\n\nGET / HTTP/1.1\r\n\r\n", Reject::LineEnd);
    refused("\rGET / HTTP/1.1\r\n\r\n", Reject::LineEnd);
}

#[test]
fn rfc9112_2_2_line_ends_are_crlf_only() {
    refused("GET / HTTP/1.1\nHost: h\r\n\r\n", Reject::LineEnd);
    refused("GET / HTTP/1.1\r\nHost: h\n\r\n", Reject::LineEnd);
    refused("GET / HTTP/1.1\r\nHost: h\r\n\n", Reject::LineEnd);
    refused("GET / HTTP/1.1\r\nHost: h\n\n", Reject::LineEnd);
    refused("GET / HTTP/1.1\r\nA:\nHost: h\r\n\r\n", Reject::LineEnd);
    refused("GET / HTTP/1.1\r\r\nHost: h\r\n\r\n", Reject::LineEnd);
    refused("GET / HTTP/1.1\rHost: h\r\n\r\n", Reject::LineEnd);
    refused(get("A: a\rb"), Reject::FieldValue);
    refused(get("A: a\r"), Reject::FieldValue);
    refused(get("A: a\rTransfer-Encoding: chunked"), Reject::FieldValue);
}

#[test]
fn rfc9112_3_request_lines() {
    refused("GET  / HTTP/1.1\r\n\r\n", Reject::Target);
    refused("GET /  HTTP/1.1\r\n\r\n", Reject::RequestLine);
    refused(" GET / HTTP/1.1\r\n\r\n", Reject::Method);
    refused("GET\t/ HTTP/1.1\r\n\r\n", Reject::Method);
    refused("G(T / HTTP/1.1\r\n\r\n", Reject::Method);
    refused("GET /\r\n", Reject::Target);
    refused("GET\r\n", Reject::Method);
    refused("GET / HTTP/1.1 \r\n\r\n", Reject::LineEnd);
    refused("GET / HTTP/1.1 junk\r\n\r\n", Reject::LineEnd);
    refused("GET /a b HTTP/1.1\r\n\r\n", Reject::RequestLine);
    refused(b"\x16\x03\x01\0.\x01\0\0*\x03\x03AAAA", Reject::Method);
    refused([0xff; 64], Reject::Method);
    refused("A".repeat(65) + " / HTTP/1.1\r\n\r\n", Reject::MethodTooLong);
    assert_eq!(accepted("get / HTTP/1.1\r\n\r\n").method, b"get");
}

#[test]
fn rfc9112_2_3_versions() {
    for version in ["HTTP/0.9", "HTTP/1.2", "HTTP/3.0", "HTTP/2.0", "HTTP/01.1", "HTTP/1,1"] {
        refused(format!("GET / {version}\r\n\r\n"), Reject::Version);
    }
    for version in ["http/1.1", "ICY/1.1", "HTTP/", "HTTP/x.1", "HTTPS/1.1"] {
        refused(format!("GET / {version}\r\n\r\n"), Reject::RequestLine);
    }
    refused("GET / HTTP/1.11\r\n\r\n", Reject::LineEnd);
    refused("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", Reject::Http2Preface);
    assert_eq!(Reject::Version.status(), 400, "as Varnish");
    assert_eq!(Reject::Http2Preface.status(), 505);
}

#[test]
fn rfc9112_3_2_targets() {
    for target in ["/a%zz%2", "/%0d%0aX:%201", "/a;x=1", "//a", "/{|}\"<>^`\\", "/?"] {
        assert_eq!(accepted(&format!("GET {target} HTTP/1.1\r\n\r\n")).target, target.as_bytes());
    }
    for target in ["a", "a/b", "a?b:c", "..", "a.b/c:d@e"] {
        assert_eq!(accepted(&format!("GET {target} HTTP/1.1\r\n\r\n")).target, target.as_bytes());
    }
    for target in
        ["*", "a@b", "a\\b/c", ":x", "@evil/x", "?a", "/a#b", "#", "http:", "http:/x", "file:/etc", "h:80"]
    {
        refused(format!("GET {target} HTTP/1.1\r\n\r\n"), Reject::Target);
    }
    for bytes in [&b"/\0x"[..], b"/\x01", b"/\x7f", b"/\xc3(\xff", "/\u{e9}".as_bytes(), b"/\tx", b"/a\r"] {
        refused([b"GET ", bytes, b" HTTP/1.1\r\n\r\n"].concat(), Reject::Target);
    }
    for target in ["file:///etc/passwd", "ftp://h/", "javascript://h/", "ws://h/"] {
        refused(format!("GET {target} HTTP/1.1\r\n\r\n"), Reject::Scheme);
    }
    for target in
        ["http:///x", "http://", "http://u@h/", "http://u:p@h/", "http://h:x/", "http://a,b/", "http://?x"]
    {
        refused(format!("GET {target} HTTP/1.1\r\n\r\n"), Reject::Authority);
    }
    for (target, ok) in [
        ("h:443", true),
        ("[::1]:1", true),
        ("h", false),
        ("h:", false),
        ("/", false),
        ("http://h:1/", false),
    ] {
        let head = request(format!("CONNECT {target} HTTP/1.1\r\n\r\n").as_bytes());
        assert_eq!(head.is_ok(), ok, "{target}");
    }
    assert_eq!(target_form(b"CONNECT", b"h:443"), Ok(TargetForm::Authority));
    assert_eq!(target_form(b"OPTIONS", b"*"), Ok(TargetForm::Asterisk));
}

#[test]
fn rfc9112_3_2_2_absolute_form_replaces_host() {
    for (method, target, host, path) in [
        ("GET", "http://a.b:80/x?y", "a.b:80", "/x?y"),
        ("GET", "HTTPS://a/", "a", "/"),
        ("GET", "http://a", "a", "/"),
        ("GET", "http://a?q", "a", "/?q"),
        ("GET", "http://[::1]:8/@x", "[::1]:8", "/@x"),
        ("OPTIONS", "http://a", "a", "*"),
        ("OPTIONS", "http://a/", "a", "/"),
        ("GET", "/x", "evil", "/x"),
    ] {
        let mut head = accepted(&format!("{method} {target} HTTP/1.1\r\nX: 1\r\nHost: evil\r\n\r\n"));
        absolute_form(&mut head).unwrap();
        assert_eq!(written(&head), format!("{method} {path} HTTP/1.1\r\nX: 1\r\nHost: {host}\r\n\r\n"));
    }
    let mut head = accepted("GET http://a/ HTTP/1.0\r\n\r\n");
    absolute_form(&mut head).unwrap();
    assert_eq!(head.fields.get_known(Known::Host), Some(&b"a"[..]));
}

#[test]
fn rfc9112_3_2_hosts() {
    let with = |lines: &str| format!("GET /x HTTP/1.1\r\n{lines}\r\n\r\n");
    refused(with("Host: h\r\nHost: h"), Reject::RepeatedHost);
    refused(with("Host: h\r\nhOST: evil"), Reject::RepeatedHost);
    refused(with("Host: h\r\nHost : evil"), Reject::FieldSpace);
    for host in ["a b", "a/evil", "", "a,b", "u@h", "a:b", "a\tb", "[::1", "a\\b", "a?b", "a#b"] {
        refused(with(&format!("Host: {host}")), Reject::Host);
    }
    refused(with("Host:\r\n h"), Reject::FieldSpace);
    // Policy answers this one.
    assert!(!accepted("GET /x HTTP/1.1\r\nX: 1\r\n\r\n").fields.has_known(Known::Host));
}

#[test]
fn rfc9112_5_fields() {
    for line in
        ["X : b", "X\t: b", " X: b", "\tX: b", "A: 1\r\n b", "A: 1\r\n\tb", "Transfer-Encoding : chunked"]
    {
        refused(get(line), Reject::FieldSpace);
    }
    for line in
        ["X A: b", "X\u{e9}: b", "NoColon", ": b", "X(: b", "Transfer-Encoding chunked", "\"X\": b", "X\0: b"]
    {
        refused(get(line), Reject::FieldName);
    }
    for line in ["X: a\0b", "X: \x01", "X: a\x7f", "X: \x0cchunked", "X:\x0b"] {
        refused(get(line), Reject::FieldValue);
    }
}

#[test]
fn limits_are_kept() {
    let limits = Limits { head_bytes: 200, line_bytes: 50, fields: 3 };
    let check = |text: String, expected: Reject| {
        assert_eq!(request_within(text.as_bytes(), &limits).map(|_| ()), Err(expected), "{text:?}");
    };
    check(format!("GET /{} HTTP/1.1\r\n\r\n", "u".repeat(300)), Reject::TargetTooLong);
    check(format!("GET /{}", "u".repeat(300)), Reject::TargetTooLong);
    check("A".repeat(300), Reject::MethodTooLong);
    check(format!("GET / HTTP/1.1\r\nX: {}", "u".repeat(300)), Reject::HeadTooLarge);
    check(format!("GET / HTTP/1.1\r\n{}\r\n", "X: 1\r\n".repeat(4)), Reject::TooManyFields);
    check(format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "u".repeat(48)), Reject::LineTooLong);
    let most = format!("GET / HTTP/1.1\r\nX: {}\r\nY: 1\r\nZ: 1\r\n\r\n", "u".repeat(47));
    assert!(request_within(most.as_bytes(), &limits).is_ok());
    // Hundreds of ranges in one field are what it is for.
    let range = |size| format!("GET / HTTP/1.1\r\nrange: {}\r\n\r\n", "u".repeat(size));
    assert!(request_within(range(150).as_bytes(), &limits).is_ok());
    check(range(200), Reject::HeadTooLarge);
    let many = Limits { fields: 1000, ..Limits::default() };
    let text = format!("GET / HTTP/1.1\r\n{}\r\n", "X: 1\r\n".repeat(1000));
    assert_eq!(request_within(text.as_bytes(), &many).unwrap().0.fields.len(), 1000);
    assert_eq!(
        request_within(text.replace("\r\n\r\n", "\r\nX: 1\r\n\r\n").as_bytes(), &many).map(|_| ()),
        Err(Reject::TooManyFields)
    );
}

fn framing(version: &str, lines: &str) -> Result<RequestFraming, Reject> {
    let text = format!("POST /x HTTP/{version}\r\nHost: h\r\n{lines}\r\n\r\n");
    request_framing(&request(text.as_bytes())?.0)
}

#[test]
fn rfc9112_6_3_requests() {
    assert_eq!(framing("1.1", "X: 1"), Ok(RequestFraming::None));
    assert_eq!(framing("1.1", "Content-Length: 0003"), Ok(RequestFraming::Length(3)));
    assert_eq!(framing("1.0", "Content-Length: 0"), Ok(RequestFraming::Length(0)));
    assert_eq!(framing("1.1", "Transfer-Encoding: CHUNKED"), Ok(RequestFraming::Chunked));
    assert_eq!(
        framing("1.1", "Connection: close, Content-Length\r\nContent-Length: 9"),
        Ok(RequestFraming::Length(9))
    );
    let head = accepted(&get("transfer-encoding:chunked"));
    assert_eq!(request_framing(&head), Ok(RequestFraming::Chunked));
    for (lines, expected) in [
        ("Content-Length: 3\r\nTransfer-Encoding: chunked", Reject::LengthAndEncoding),
        (
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\nContent-Length: 3",
            Reject::LengthAndEncoding,
        ),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", Reject::RepeatedEncoding),
        ("Transfer-Encoding: gzip, chunked", Reject::RepeatedEncoding),
        ("Transfer-Encoding: ,chunked", Reject::RepeatedEncoding),
        ("Transfer-Encoding: chunked,", Reject::RepeatedEncoding),
        ("Transfer-Encoding: xchunked", Reject::UnknownEncoding),
        ("Transfer-Encoding: gzip", Reject::UnknownEncoding),
        ("Transfer-Encoding: identity", Reject::UnknownEncoding),
        ("Transfer-Encoding: \u{ff}chunked", Reject::UnknownEncoding),
        ("Transfer-Encoding: \"chunked\"", Reject::UnknownEncoding),
        ("Transfer-Encoding: chunked;q=1", Reject::UnknownEncoding),
        ("Transfer-Encoding:", Reject::UnknownEncoding),
        ("Content-Length: 3\r\nContent-Length: 30", Reject::RepeatedLength),
        ("Content-Length: 3\r\nContent-Length: 3", Reject::RepeatedLength),
        ("Content-Length: 3, 30", Reject::Length),
        ("Content-Length: 3, 3", Reject::Length),
        ("Content-Length: +3", Reject::Length),
        ("Content-Length: -1", Reject::Length),
        ("Content-Length: 0x3", Reject::Length),
        ("Content-Length: 3e0", Reject::Length),
        ("Content-Length: 3 3", Reject::Length),
        ("Content-Length: 1_0", Reject::Length),
        ("Content-Length: \"3\"", Reject::Length),
        ("Content-Length:", Reject::Length),
        ("Content-Length: 9223372036854775808", Reject::Length),
        ("Content-Length: 18446744073709551619", Reject::Length),
        ("Transfer-Encoding:\r\n chunked\r\nContent-Length: 3", Reject::FieldSpace),
        (" Transfer-Encoding: chunked\r\nContent-Length: 3", Reject::FieldSpace),
        ("Transfer-Encoding: \x0cchunked\r\nContent-Length: 3", Reject::FieldValue),
    ] {
        assert_eq!(framing("1.1", lines), Err(expected), "{lines:?}");
    }
    assert_eq!(framing("1.0", "Transfer-Encoding: chunked"), Err(Reject::EncodingInHttp10));
    assert_eq!(Reject::UnknownEncoding.status(), 400, "as Varnish");
}

fn response(text: &str) -> Result<ResponseHead, Reject> {
    let mut head = ResponseHead::new();
    match parse_response(text.as_bytes(), &Limits::default(), &mut head)? {
        Parse::Done(size) => assert_eq!(size, text.len()),
        Parse::Partial => panic!("partial: {text:?}"),
    }
    head.fields.check();
    Ok(head)
}

#[test]
fn rfc9112_4_status_lines() {
    for (text, status, reason) in [
        ("HTTP/1.1 200 OK\r\n\r\n", 200, "OK"),
        ("HTTP/1.0 404 Not \u{e9} Found\r\nA: 1\r\n\r\n", 404, "Not \u{e9} Found"),
        ("HTTP/1.1 999 \r\n\r\n", 999, ""),
        ("HTTP/1.1 204\r\nA: 1\r\n\r\n", 204, ""),
        ("HTTP/1.1 100 \r\n\r\n", 100, ""),
    ] {
        let head = response(text).unwrap();
        assert_eq!((head.status, head.reason.as_slice()), (status, reason.as_bytes()), "{text:?}");
        let mut out = Vec::new();
        write_response_head(&head, &mut out);
        assert_eq!(response(std::str::from_utf8(&out).unwrap()).unwrap().fields, head.fields);
    }
    for (text, expected) in [
        ("HTTP/1.1 2000 OK\r\n\r\n", Reject::StatusLine),
        ("HTTP/1.1 099 OK\r\n\r\n", Reject::StatusLine),
        ("HTTP/1.1 20 OK\r\n\r\n", Reject::StatusLine),
        ("HTTP/1.1 2x0 OK\r\n\r\n", Reject::StatusLine),
        ("HTTP/1.1 200 a\0\r\n\r\n", Reject::StatusLine),
        ("\r\nHTTP/1.1 200 OK\r\n\r\n", Reject::StatusLine),
        ("HTTP/3.7 200 OK\r\n\r\n", Reject::Version),
        ("HTTP/1.2 200 OK\r\n\r\n", Reject::Version),
        ("ICY 200 OK\r\n\r\n", Reject::Version),
        ("HTTP/1.1  200 OK\r\n\r\n", Reject::StatusLine),
        ("HTTP/1.1 200 OK\r\nA: a\rB: b\r\n\r\n", Reject::FieldValue),
        ("HTTP/1.1 200 OK\r\nA: a\0b\r\n\r\n", Reject::FieldValue),
        ("HTTP/1.1 200 OK\r\nA : a\r\n\r\n", Reject::FieldSpace),
    ] {
        assert_eq!(response(text).map(|_| ()), Err(expected), "{text:?}");
    }
    for text in ["HTTP/1.1 200 OK\nA: a   b\nB: b\n\n", "HTTP/1.1 200 OK\r\nA: a\r\n  b\nB: b\r\n\r\n"] {
        let fields = response(text).unwrap().fields;
        assert_eq!((fields.get(b"a"), fields.get(b"b")), (Some(&b"a   b"[..]), Some(&b"b"[..])), "{text:?}");
    }
    let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "X: 1\r\n".repeat(65));
    assert_eq!(response(&many).map(|_| ()), Err(Reject::TooManyFields));
    let long = format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "a".repeat(40_000));
    assert_eq!(response(&long).map(|_| ()), Err(Reject::HeadTooLarge));
}

#[test]
fn rfc9112_6_3_responses() {
    let check = |method: &str, status: u16, lines: &str, expected: Result<ResponseFraming, Reject>| {
        let head = response(&format!("HTTP/1.1 {status} X\r\nA: b\r\n{lines}\r\n")).unwrap();
        assert_eq!(response_framing(method.as_bytes(), &head), expected, "{method} {status} {lines:?}");
    };
    check("GET", 200, "", Ok(ResponseFraming::UntilClose));
    check("GET", 200, "Content-Length: 5\r\n", Ok(ResponseFraming::Length(5)));
    check("GET", 200, "Transfer-Encoding: chunked\r\n", Ok(ResponseFraming::Chunked));
    for (method, status) in
        [("HEAD", 200), ("GET", 204), ("GET", 304), ("GET", 100), ("GET", 103), ("CONNECT", 200)]
    {
        check(method, status, "", Ok(ResponseFraming::None));
        check(method, status, "Content-Length: 5\r\n", Ok(ResponseFraming::None));
        check(method, status, "Transfer-Encoding: chunked\r\n", Ok(ResponseFraming::None));
        check(method, status, "Content-Length: x\r\n", Err(Reject::Length));
    }
    check("CONNECT", 403, "Content-Length: 5\r\n", Ok(ResponseFraming::Length(5)));
    check("GET", 200, "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n", Err(Reject::LengthAndEncoding));
    check("GET", 200, "Content-Length: -1\r\n", Err(Reject::Length));
    check("GET", 200, "Content-Length: 3\r\nContent-Length: 3\r\n", Err(Reject::RepeatedLength));
    check("GET", 200, "Transfer-Encoding: cow\r\n", Err(Reject::UnknownEncoding));
    check("GET", 200, "Transfer-Encoding: gzip, chunked\r\n", Err(Reject::RepeatedEncoding));
    let old = response("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").unwrap();
    assert_eq!(response_framing(b"GET", &old), Err(Reject::EncodingInHttp10));
}

#[test]
fn rfc9112_6_3_a_coding_without_a_meaning_ends_with_the_connection() {
    let check = |method: &str, status: u16, lines: &str, expected: Result<ResponseFraming, Reject>| {
        let head = response(&format!("HTTP/1.1 {status} X\r\n{lines}\r\n")).unwrap();
        assert_eq!(
            response_framing_by_close(method.as_bytes(), &head),
            expected,
            "{method} {status} {lines:?}"
        );
    };
    for coding in ["cow", "identity", "IDENTITY", "xchunked"] {
        let line = format!("Transfer-Encoding: {coding}\r\n");
        check("GET", 200, &line, Ok(ResponseFraming::UntilClose));
        check("HEAD", 200, &line, Ok(ResponseFraming::None));
        check("GET", 304, &line, Ok(ResponseFraming::None));
    }
    for coding in ["gzip", "X-GZip", "deflate", "compress", "\"cow\"", "cow;q=1", ""] {
        check("GET", 200, &format!("Transfer-Encoding: {coding}\r\n"), Err(Reject::UnknownEncoding));
    }
    check("GET", 200, "Transfer-Encoding: cow, chunked\r\n", Err(Reject::RepeatedEncoding));
    check("GET", 200, "Transfer-Encoding: cow\r\nTransfer-Encoding: cow\r\n", Err(Reject::RepeatedEncoding));
    check("GET", 200, "Content-Length: 3\r\nTransfer-Encoding: cow\r\n", Err(Reject::LengthAndEncoding));
    check("GET", 200, "Transfer-Encoding: chunked\r\n", Ok(ResponseFraming::Chunked));
    check("GET", 200, "Content-Length: 5\r\n", Ok(ResponseFraming::Length(5)));
}

#[test]
fn rfc9112_11_1_vcl_cannot_split_a_head() {
    let mut head = RequestHead::new();
    for (method, target, expected) in [
        ("GET", "/ HTTP/1.1\r\nX: 1\r\n\r\n", Err(Reject::Target)),
        ("GET", "", Err(Reject::Target)),
        ("GET", "/a b", Err(Reject::Target)),
        ("GET", "/\x7f", Err(Reject::Target)),
        ("GET /", "/", Err(Reject::Method)),
        ("", "/", Err(Reject::Method)),
        ("GET", "/\u{e9}#x", Ok(())),
    ] {
        (head.method, head.target) = (method.into(), target.into());
        let mut out = Vec::new();
        assert_eq!(write_request_head(&head, &mut out), expected, "{target:?}");
        assert_eq!(out.is_empty(), expected.is_err());
    }
    let mut head = ResponseHead::new();
    for (status, reason, line) in [
        (404, "a\r\nX: 1", "404 Not Found"),
        (404, "Gone fishing", "404 Gone fishing"),
        (0, "", "503 "),
        (1000, "\n", "503 Service Unavailable"),
    ] {
        (head.status, head.reason) = (status, reason.into());
        let mut out = Vec::new();
        write_response_head(&head, &mut out);
        assert_eq!(String::from_utf8_lossy(&out), format!("HTTP/1.1 {line}\r\n\r\n"));
    }
}

#[test]
fn rfc9112_9_3_persistence() {
    for (version, lines, keep) in [
        (Version::Http11, &[][..], true),
        (Version::Http10, &[], false),
        (Version::Http11, &["close"], false),
        (Version::Http11, &["x, CLOSE ,y"], false),
        (Version::Http11, &["x", "close"], false),
        (Version::Http11, &["closed"], true),
        (Version::Http10, &["Keep-Alive"], true),
        (Version::Http10, &["keep-alive, close"], false),
    ] {
        let mut head = RequestHead::new();
        for line in lines {
            head.fields.push_known(Known::Connection, line.as_bytes());
        }
        assert_eq!(keep_alive(version, &head.fields), keep, "{version:?} {lines:?}");
    }
}

/// What a head says that the reader after us acts on.
fn meaning(head: &RequestHead) -> (Result<RequestFraming, Reject>, Option<Vec<u8>>, usize) {
    let host = head.fields.get_known(Known::Host).map(<[u8]>::to_vec);
    (request_framing(head), host, head.fields.len())
}

/// Accepted heads survive being written and read again with the same meaning; prefixes are partial.
fn holds_together(bytes: &[u8]) -> Result<(), TestCaseError> {
    let Ok((head, size)) = request(bytes) else { return Ok(()) };
    if size == 0 {
        return Ok(());
    }
    for end in 0..size {
        let mut other = RequestHead::new();
        prop_assert_eq!(parse_request(&bytes[..end], &Limits::default(), &mut other), Ok(Parse::Partial));
    }
    let mut out = Vec::new();
    write_request_head(&head, &mut out).unwrap();
    let text = out.escape_ascii().to_string();
    prop_assert!(out.windows(2).all(|pair| (pair[0] == b'\r') == (pair[1] == b'\n')), "{}", text);
    let (again, size) = request(&out).map_err(|reject| TestCaseError::fail(format!("{reject}: {text}")))?;
    prop_assert_eq!(size, out.len());
    prop_assert_eq!(meaning(&again), meaning(&head));
    prop_assert_eq!(&again.fields, &head.fields);
    prop_assert_eq!((again.method, again.target, again.version), (head.method, head.target, head.version));
    Ok(())
}

fn near_head() -> impl Strategy<Value = Vec<u8>> {
    let line = prop::sample::select(vec![
        "Host: h",
        "Host:h",
        "host: \tx:80 ",
        "Content-Length: 3",
        "Content-Length:3",
        "content-length: 03 ",
        "A:  x",
        "A:",
        "A: ",
        "Transfer-Encoding: chunked",
        "Transfer-Encoding:\tchunked",
        "X-\u{7f}: 1",
        "X: \u{e9}",
        "B:\t:\t",
        "C: : ",
        " D: 1",
        "E : 1",
        "F",
        "Connection: close",
        ": ",
        "X: a\rb",
        "Y: a\nb",
        "G:\t",
    ]);
    let start = prop::sample::select(vec![
        "GET / HTTP/1.1",
        "POST http://a.b/c HTTP/1.0",
        "CONNECT a:1 HTTP/1.1",
        "OPTIONS * HTTP/1.1",
        "GET /\u{e9} HTTP/1.1",
        "\r\nGET / HTTP/1.1",
        "GET  / HTTP/1.1",
    ]);
    (
        start,
        prop::collection::vec(line, 0..6),
        prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
    )
        .prop_map(|(start, lines, flips)| {
            let mut bytes =
                format!("{start}\r\n{}\r\n", lines.iter().map(|l| format!("{l}\r\n")).collect::<String>())
                    .into_bytes();
            for (index, byte) in flips {
                let at = index.index(bytes.len());
                bytes[at] = byte;
            }
            bytes
        })
}

proptest! {
    #[test]
    fn what_is_accepted_means_the_same_to_the_next_reader(bytes in near_head()) {
        holds_together(&bytes)?;
    }

    #[test]
    fn any_bytes_parse_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        holds_together(&bytes)?;
        let _ = parse_response(&bytes, &Limits::default(), &mut ResponseHead::new());
    }

    #[test]
    fn any_near_response_parses_without_a_panic(lines in "(HTTP/1\\.[01] [0-9]{2,4} ?[a-z]{0,3}\r?\n)([A-C]: ?[a-z\t ]{0,4}\r?\n){0,3}\r\n") {
        let mut head = ResponseHead::new();
        if let Ok(Parse::Done(_)) = parse_response(lines.as_bytes(), &Limits::default(), &mut head) {
            head.fields.check();
            let mut out = Vec::new();
            write_response_head(&head, &mut out);
            let mut again = ResponseHead::new();
            prop_assert_eq!(parse_response(&out, &Limits::default(), &mut again), Ok(Parse::Done(out.len())));
            prop_assert_eq!((again.status, again.fields), (head.status, head.fields));
        }
    }

    #[test]
    fn written_fields_parse_back(
        fields in prop::collection::vec(("[A-Za-z][A-Za-z0-9-]{0,12}", "[ -~\t]{0,20}"), 0..10),
    ) {
        let mut head = RequestHead::new();
        head.method.extend_from_slice(b"GET");
        head.target.extend_from_slice(b"/");
        for (name, value) in &fields {
            // White space behind a value means nothing, and is gone when it is read.
            prop_assert!(head.fields.push(name.as_bytes(), value.trim_end().as_bytes()));
        }
        head.fields.remove_known(Known::Host);
        head.fields.remove_known(Known::Connection);
        let mut out = Vec::new();
        write_request_head(&head, &mut out).unwrap();
        let (again, _) = request(&out).map_err(|reject| TestCaseError::fail(reject.to_string()))?;
        prop_assert_eq!(&again.fields, &head.fields);
        let mut block = Vec::new();
        head.fields.write_to(&mut block);
        let mut loaded = crate::Fields::new();
        loaded.load_block(&block);
        prop_assert_eq!(loaded, again.fields);
    }
}
