//! The module `str` of varnish-modules: strings by their bytes.

use crate::arguments::{Arguments, functions, optional, or, required};
use copal_vcl as vcl;
use vcl::host::Result;
use vcl::value::{Text, Value};
use vcl::vmod::{Call, Type, Vmod};

/// The module's table. Source: `vmod_str(3)` of varnish-modules.
pub(crate) static VMOD: Vmod = Vmod {
    name: "str",
    functions: functions! {
        "count"(required("s", Type::String)) -> Int, count;
        "startswith"(required("s1", Type::String), required("s2", Type::String)) -> Bool, startswith;
        "endswith"(required("s1", Type::String), required("s2", Type::String)) -> Bool, endswith;
        "contains"(required("s1", Type::String), required("s2", Type::String)) -> Bool, contains;
        "take"(required("s", Type::String), required("n", Type::Int), or("offset", Type::Int, "0")) -> String, take;
        "reverse"(required("s", Type::String)) -> String, reverse;
        "split"(required("S", Type::String), required("n", Type::Int), or("sep", Type::String, "\" \t\""))
            -> String, split;
        "token_intersect"(
            required("str1", Type::String),
            required("str2", Type::String),
            optional("separators", Type::String)
        ) -> Bool, token_intersect;
    },
    objects: &[],
};

fn count(call: &mut Call<'_>) -> Result<Value> {
    Ok(Value::Int(Arguments(call.arguments).text(0)?.map_or(-1, |text| text.len() as i64)))
}

/// Whether both strings are set and `test` holds.
fn compare(call: &Call<'_>, test: impl FnOnce(&[u8], &[u8]) -> bool) -> Result<Value> {
    let arguments = Arguments(call.arguments);
    let both = arguments.text(0)?.zip(arguments.text(1)?);
    Ok(Value::Bool(both.is_some_and(|(one, two)| test(one, two))))
}

fn startswith(call: &mut Call<'_>) -> Result<Value> {
    compare(call, |text, start| text.starts_with(start))
}

fn endswith(call: &mut Call<'_>) -> Result<Value> {
    compare(call, |text, end| text.ends_with(end))
}

fn contains(call: &mut Call<'_>) -> Result<Value> {
    compare(call, |text, part| {
        part.is_empty() || (part.len() <= text.len() && text.windows(part.len()).any(|window| window == part))
    })
}

/// Of a string of `length` bytes, the `n` after `offset`, or before it if `n` is negative; what lies outside is not there. An
/// offset below 0, and the offset 0 of what lies before it, are counted from the end.
fn window(length: usize, n: i64, offset: i64) -> std::ops::Range<usize> {
    let length = i128::try_from(length).expect("a string is shorter than that");
    let (n, offset) = (i128::from(n), i128::from(offset));
    let from_end = offset < 0 || (offset == 0 && n < 0);
    let place = if from_end { offset + length } else { offset };
    let inside = |at: i128| at.clamp(0, length) as usize;
    inside(place.min(place + n))..inside(place.max(place + n))
}

fn take(call: &mut Call<'_>) -> Result<Value> {
    let arguments = Arguments(call.arguments);
    let (n, offset) = (arguments.integer(1)?, arguments.integer(2)?);
    Ok(Value::String(arguments.text(0)?.map(|text| text.slice(window(text.len(), n, offset)))))
}

fn reverse(call: &mut Call<'_>) -> Result<Value> {
    let text = Arguments(call.arguments).text(0)?;
    Ok(Value::String(text.map(|text| text.iter().rev().copied().collect::<Vec<u8>>().into())))
}

/// The parts of `text` between runs of bytes of `separators`.
fn tokens<'text>(text: &'text [u8], separators: &[u8]) -> impl DoubleEndedIterator<Item = &'text [u8]> {
    text.split(move |byte| separators.contains(byte)).filter(|token| !token.is_empty())
}

/// The first token is 1, the last -1; there is none of number 0.
fn split(call: &mut Call<'_>) -> Result<Value> {
    let arguments = Arguments(call.arguments);
    let (text, n, separators) =
        (arguments.text_or_empty(0)?, arguments.integer(1)?, arguments.text_or_empty(2)?);
    let index = usize::try_from(n.unsigned_abs()).ok().and_then(|count| count.checked_sub(1));
    let mut tokens = tokens(text, separators);
    let found = index.and_then(|index| if n > 0 { tokens.nth(index) } else { tokens.nth_back(index) });
    Ok(Value::String(found.map(Text::copy_from_slice)))
}

fn token_intersect(call: &mut Call<'_>) -> Result<Value> {
    let arguments = Arguments(call.arguments);
    let separators = arguments.maybe(2, Arguments::text_or_empty)?.unwrap_or(b" ,");
    let (one, two) = (arguments.text_or_empty(0)?, arguments.text_or_empty(1)?);
    // Sorted, since both strings may come from a client and be long.
    let mut known: Vec<&[u8]> = tokens(two, separators).collect();
    known.sort_unstable();
    Ok(Value::Bool(tokens(one, separators).any(|token| known.binary_search(&token).is_ok())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{FakeHost, call_in_module, text};
    use vcl::host::Sub;

    fn check(name: &str, arguments: &[Value], answer: &str) {
        let value = call_in_module(&VMOD, &mut FakeHost::default(), Sub::Recv, name, arguments).unwrap();
        let shown = match value {
            Value::String(None) => "unset".into(),
            Value::String(Some(text)) => String::from_utf8_lossy(&text).into_owned(),
            Value::Bool(answer) => answer.to_string(),
            Value::Int(number) => number.to_string(),
            other => format!("{other:?}"),
        };
        assert_eq!(shown, answer, "{name} {arguments:?}");
    }

    #[test]
    fn comparing_and_counting() {
        check("count", &[text("")], "0");
        check("count", &[text("abc")], "3");
        check("count", &[Value::String(None)], "-1");
        for (name, part, answer) in [
            ("startswith", "ab", "true"),
            ("startswith", "bc", "false"),
            ("startswith", "", "true"),
            ("endswith", "bc", "true"),
            ("endswith", "abcd", "false"),
            ("contains", "b", "true"),
            ("contains", "", "true"),
            ("contains", "abcd", "false"),
            ("contains", "cb", "false"),
        ] {
            check(name, &[text("abc"), text(part)], answer);
            check(name, &[Value::String(None), text(part)], "false");
            check(name, &[text("abc"), Value::String(None)], "false");
        }
    }

    #[test]
    fn taking() {
        for (n, offset, answer) in [
            (3, 0, "abc"),
            (7, 0, "abcde"),
            (0, 0, ""),
            (2, 4, "e"),
            (2, 9, ""),
            (-3, 0, "cde"),
            (-7, 0, "abcde"),
            (-2, 3, "bc"),
            (3, -4, "bcd"),
            (5, -3, "cde"),
            (5, -7, "abc"),
            (5, -15, ""),
            (i64::MAX, i64::MAX, ""),
            (i64::MIN, i64::MIN, ""),
            (i64::MAX, i64::MIN, "abcd"),
            (-4, 1, "a"),
            (-7, 3, "abc"),
            (-4, -3, "ab"),
        ] {
            check("take", &[text("abcde"), Value::Int(n), Value::Int(offset)], answer);
        }
        check("take", &[Value::String(None), Value::Int(3)], "unset");
    }

    #[test]
    fn splitting_and_reversing() {
        for (n, answer) in [(1, "abc"), (3, "ghi"), (7, "unset"), (-3, "abc"), (-4, "unset"), (0, "unset")] {
            check("split", &[text(".-.abc..def.-ghi.."), Value::Int(n), text(".-")], answer);
        }
        check("split", &[text("a b\tc"), Value::Int(i64::MIN)], "unset");
        check("split", &[text("a b\tc"), Value::Int(-1)], "c");
        check("split", &[Value::String(None), Value::Int(1)], "unset");
        check("reverse", &[text("abc")], "cba");
        check("reverse", &[Value::String(None)], "unset");
    }

    #[test]
    fn common_tokens() {
        for (one, two, answer) in
            [("a, b", "c b", "true"), ("a,,b", ",,", "false"), ("", "", "false"), ("ab", "a", "false")]
        {
            check("token_intersect", &[text(one), text(two)], answer);
        }
        check("token_intersect", &[text("a b;c"), text("a;c"), text(";")], "true");
        check("token_intersect", &[text("a b"), text("a"), text(";")], "false");
    }
}
