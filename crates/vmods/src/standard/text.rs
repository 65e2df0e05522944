//! Strings: case, length, search, the query string, repeated fields.

use crate::arguments::Arguments;
use copal_vcl as vcl;
use vcl::host::{Fault, Result, Side};
use vcl::value::{Text, Value};
use vcl::vmod::Call;

/// `std.toupper(s)`: ASCII letters only.
pub(super) fn toupper(call: &mut Call<'_>) -> Result<Value> {
    Ok(Value::text(Arguments(call.arguments).text_or_empty(0)?.to_ascii_uppercase()))
}

/// `std.tolower(s)`: ASCII letters only.
pub(super) fn tolower(call: &mut Call<'_>) -> Result<Value> {
    Ok(Value::text(Arguments(call.arguments).text_or_empty(0)?.to_ascii_lowercase()))
}

/// `std.strlen(s)`: bytes; an unset string has none. Varnish 7.1 lacks it, its commercial sister has it.
pub(super) fn strlen(call: &mut Call<'_>) -> Result<Value> {
    Ok(Value::Int(Arguments(call.arguments).text_or_empty(0)?.len() as i64))
}

/// `std.strstr(s1, s2)`: `s1` from the first `s2` on; unset, and so false, if there is none or either is unset.
pub(super) fn strstr(call: &mut Call<'_>) -> Result<Value> {
    let arguments = Arguments(call.arguments);
    let (Some(haystack), Some(needle)) = (arguments.text(0)?, arguments.text(1)?) else {
        return Ok(Value::String(None));
    };
    Ok(Value::String(find(haystack, needle).map(|at| haystack.slice(at..))))
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    if needle.is_empty() {
        return Some(0);
    }
    haystack.windows(needle.len()).position(|window| window == needle)
}

/// `std.querysort(s)`: the parameters after the first `?` in the order of their bytes, empty ones dropped.
pub(super) fn querysort(call: &mut Call<'_>) -> Result<Value> {
    Ok(Value::String(Arguments(call.arguments).text(0)?.map(sorted)))
}

/// Of two parameters of which one begins with the other the shorter goes first, so that any order of the same
/// parameters gives the same text; Varnish leaves those two as they came.
fn sorted(url: &Text) -> Text {
    let Some(mark) = url.iter().position(|&byte| byte == b'?') else { return url.clone() };
    let (path, query) = url.split_at(mark + 1);
    if !query.contains(&b'&') {
        return url.clone();
    }
    let mut parameters: Vec<&[u8]> =
        query.split(|&byte| byte == b'&').filter(|one| !one.is_empty()).collect();
    parameters.sort_unstable();
    let mut out = Vec::with_capacity(url.len());
    out.extend_from_slice(path);
    out.extend_from_slice(&parameters.join(&b'&'));
    out.into()
}

/// `std.collect(hdr, sep=", ")`: all fields of a name as one.
pub(super) fn collect(call: &mut Call<'_>) -> Result<Value> {
    let arguments = Arguments(call.arguments);
    let (side, name) = arguments.header(0)?;
    if side == Side::Obj {
        return Err(Fault("std.collect(): header argument can not be used here".into()));
    }
    let separator = match arguments.text_or_empty(1)? {
        [] => b", ",
        given => given,
    };
    let values = call.host.headers(side, name);
    if values.len() > 1 {
        call.host.set_header(side, name, &values.join(separator))?;
    }
    Ok(Value::Void)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{FakeHost, call_std, call_std_on, text};
    use vcl::host::Host;

    fn check(name: &str, arguments: &[Value], expected: Value) {
        assert_eq!(
            format!("{:?}", call_std(name, arguments).unwrap()),
            format!("{expected:?}"),
            "std.{name}{arguments:?}"
        );
    }

    #[test]
    fn case_length_and_search() {
        check("toupper", &[text("yes! é")], text("YES! é"));
        check("tolower", &[text("VerY")], text("very"));
        check("tolower", &[Value::String(None)], text(""));
        check("strlen", &[text("abc")], Value::Int(3));
        check("strlen", &[Value::String(None)], Value::Int(0));
        check("strstr", &[text("/path/x"), text("th")], text("th/x"));
        check("strstr", &[text("/path/x"), text("")], text("/path/x"));
        check("strstr", &[text("/path/x"), text("TH")], Value::String(None));
        check("strstr", &[Value::String(None), text("x")], Value::String(None));
    }

    #[test]
    fn query_strings() {
        for (url, sorted) in [
            ("/a?b=2&a=1", "/a?a=1&b=2"),
            ("/a?b&&a&", "/a?a&b"),
            ("/?&b&a", "/?a&b"),
            ("/x?a=1", "/x?a=1"),
            ("/x?", "/x?"),
            ("/x?&&", "/x?"),
            ("/x?a&", "/x?a"),
            ("/x?b&a?c&a", "/x?a&a?c&b"),
            ("/x?z&a&z&a&", "/x?a&a&z&z"),
            ("/?b=1&b=0&a=&&&c", "/?a=&b=0&b=1&c"),
            ("/?abc&a&ab", "/?a&ab&abc"),
            ("b&a?d&c", "b&a?c&d"),
            ("/plain", "/plain"),
        ] {
            check("querysort", &[text(url)], text(sorted));
        }
        check("querysort", &[Value::String(None)], Value::String(None));
    }

    #[test]
    fn fields_collapse_into_the_first() {
        let mut host = FakeHost::default();
        for value in ["a", "b", "c"] {
            host.fields.push((Side::Req, "accept".into(), value.into()));
        }
        let arguments = [Value::Header(Side::Req, "Accept".into()), text("; ")];
        call_std_on(&mut host, "collect", &arguments).unwrap();
        assert_eq!(host.headers(Side::Req, b"accept"), ["a; b; c"]);
        let arguments = [Value::Header(Side::Obj, "Accept".into()), text(", ")];
        assert!(call_std_on(&mut host, "collect", &arguments).is_err());
    }
}
