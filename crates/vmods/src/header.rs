//! The module `header` of varnish-modules: fields that occur more than once.
//!
//! Expressions look at values that are not empty, but for `regsub`, whose subject is the whole line, name and all. A line
//! that is no field after a substitution is a fault.

use crate::arguments::{Arguments, functions, or, required};
use copal_vcl as vcl;
use vcl::host::{Fault, Result, Side};
use vcl::value::{Text, Value};
use vcl::vmod::{Call, Type, Vmod};

/// The module's table. Source: `vmod_header(3)` of varnish-modules.
pub(crate) static VMOD: Vmod = Vmod {
    name: "header",
    functions: functions! {
        "append"(required("", Type::Header), required("", Type::Strands)) -> Void, append;
        "copy"(required("", Type::Header), required("", Type::Header)) -> Void, copy;
        "get"(required("header", Type::Header), required("regex", Type::Regex)) -> String, get;
        "remove"(required("header", Type::Header), required("regex", Type::Regex)) -> Void, remove;
        "regsub"(
            required("", Type::Http),
            required("regex", Type::Regex),
            required("sub", Type::String),
            or("all", Type::Bool, "false")
        ) -> Void, regsub;
        "dyn"(required("", Type::Http), required("", Type::String)) -> Header, dynamic;
    },
    objects: &[],
};

fn side(arguments: Arguments<'_>, index: usize) -> Result<Side> {
    Ok(match arguments.word(index)? {
        "resp" => Side::Resp,
        "bereq" => Side::Bereq,
        "beresp" => Side::Beresp,
        _ => Side::Req,
    })
}

fn append(call: &mut Call<'_>) -> Result<Value> {
    let arguments = Arguments(call.arguments);
    let (side, name) = arguments.header(0)?;
    call.host.add_header(side, name, arguments.text_or_empty(1)?)?;
    Ok(Value::Void)
}

/// All values of the first field become values of the second, beside those it has.
fn copy(call: &mut Call<'_>) -> Result<Value> {
    let arguments = Arguments(call.arguments);
    let ((from, source), (to, target)) = (arguments.header(0)?, arguments.header(1)?);
    for value in call.host.headers(from, source) {
        call.host.add_header(to, target, &value)?;
    }
    Ok(Value::Void)
}

fn get(call: &mut Call<'_>) -> Result<Value> {
    let arguments = Arguments(call.arguments);
    let (side, name) = arguments.header(0)?;
    let regex = arguments.regex(1, call.regexes)?;
    for value in call.host.headers(side, name) {
        if !value.is_empty() && regex.is_match(&value)? {
            return Ok(Value::String(Some(value)));
        }
    }
    Ok(Value::String(None))
}

fn remove(call: &mut Call<'_>) -> Result<Value> {
    let arguments = Arguments(call.arguments);
    let (side, name) = arguments.header(0)?;
    let regex = arguments.regex(1, call.regexes)?;
    let mut changes = Vec::new();
    for (number, (known, value)) in call.host.all_headers(side).iter().enumerate() {
        if known.eq_ignore_ascii_case(name) && !value.is_empty() && regex.is_match(value)? {
            changes.push((number, None));
        }
    }
    change(call, side, &changes)
}

fn change(call: &mut Call<'_>, side: Side, changes: &[(usize, Option<(Text, Text)>)]) -> Result<Value> {
    if !changes.is_empty() {
        call.host.change_headers(side, changes)?;
    }
    Ok(Value::Void)
}

/// Lines that become another stay where they are; one of which nothing is left goes.
fn regsub(call: &mut Call<'_>) -> Result<Value> {
    let arguments = Arguments(call.arguments);
    let side = side(arguments, 0)?;
    let regex = arguments.regex(1, call.regexes)?;
    let replacement = arguments.text_or_empty(2)?;
    let all = arguments.boolean(3)?;
    let mut changes = Vec::new();
    for (number, (name, value)) in call.host.all_headers(side).iter().enumerate() {
        // A line that came without a value has no blank at its end.
        let colon = if value.is_empty() { &b":"[..] } else { b": " };
        let line = [&name[..], colon, &value[..]].concat();
        if !regex.is_match(&line)? {
            continue;
        }
        let mut out = Vec::new();
        regex.substitute(&line, replacement, all, &mut out)?;
        if out != line {
            changes.push((number, if out.is_empty() { None } else { Some(field(&out)?) }));
        }
    }
    change(call, side, &changes)
}

/// A line as a field.
fn field(line: &[u8]) -> Result<(Text, Text)> {
    let broken = || Fault(format!("header.regsub: \"{}\" is no field", String::from_utf8_lossy(line)));
    let colon = line.iter().position(|byte| *byte == b':').ok_or_else(broken)?;
    let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
    if name.is_empty() {
        return Err(broken());
    }
    Ok((Text::copy_from_slice(name), Text::copy_from_slice(value)))
}

/// A field by a name that is computed. A colon at its end, which the module's example writes, does not belong to it.
fn dynamic(call: &mut Call<'_>) -> Result<Value> {
    let arguments = Arguments(call.arguments);
    let name = arguments.text_or_empty(1)?;
    let name = name.strip_suffix(b":").unwrap_or(name);
    if !copal_wire::syntax::valid_name(name) {
        let shown = String::from_utf8_lossy(name);
        return Err(Fault(format!("header.dyn: \"{shown}\" is no name of a field")));
    }
    Ok(Value::Header(side(arguments, 0)?, Text::copy_from_slice(name)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{FakeHost, call_with, text};
    use vcl::host::{Host, Sub};
    use vcl::regex::Regex;

    fn host(fields: &[(&str, &str)]) -> FakeHost {
        let mut host = FakeHost::default();
        for (name, value) in fields {
            host.add_header(Side::Beresp, name.as_bytes(), value.as_bytes()).unwrap();
        }
        host
    }

    fn call(host: &mut FakeHost, name: &str, arguments: &[Value], regex: &str) -> Result<Value> {
        call_with(&VMOD, host, Sub::BackendResponse, name, arguments, &[Regex::new(regex).unwrap()])
    }

    fn lines(host: &FakeHost) -> String {
        let fields = host.all_headers(Side::Beresp);
        let lines = fields.iter().map(|(name, value)| {
            format!("{}: {}", String::from_utf8_lossy(name), String::from_utf8_lossy(value))
        });
        lines.collect::<Vec<_>>().join("|")
    }

    fn header(name: &'static str) -> Value {
        Value::Header(Side::Beresp, Text::from_static(name.as_bytes()))
    }

    #[test]
    fn appending_copying_getting_and_removing() {
        let mut host = host(&[("Set-Cookie", "a=1"), ("X", "y"), ("set-cookie", "b=2")]);
        call(&mut host, "append", &[header("Set-Cookie"), text("c=3")], "").unwrap();
        let found = call(&mut host, "get", &[header("set-cookie"), Value::Code(0)], "^[bc]=").unwrap();
        assert_eq!(format!("{found:?}"), "String(Some(b\"b=2\"))");
        let none = call(&mut host, "get", &[header("set-cookie"), Value::Code(0)], "^z").unwrap();
        assert_eq!(format!("{none:?}"), "String(None)");
        call(&mut host, "copy", &[header("Set-Cookie"), header("Old")], "").unwrap();
        call(&mut host, "remove", &[header("Set-Cookie"), Value::Code(0)], "^(?!b=)").unwrap();
        assert_eq!(lines(&host), "X: y|set-cookie: b=2|Old: a=1|Old: b=2|Old: c=3");
        call(&mut host, "remove", &[header("Old"), Value::Code(0)], "nothing").unwrap();
        assert_eq!(lines(&host), "X: y|set-cookie: b=2|Old: a=1|Old: b=2|Old: c=3");
    }

    #[test]
    fn substitution_is_of_whole_lines() {
        for (regex, replacement, all, after) in [
            ("^Foo: (b)(a)(r)", "Bar: \\3\\2\\1", false, "Bar: raba|v1: val=foo|V2: aa"),
            ("^(?i)V(\\d): (?-i)val=(.*)$", "Val\\1: \\2", false, "Foo: bara|Val1: foo|V2: aa"),
            ("a$", "A", false, "Foo: barA|v1: val=foo|V2: aA"),
            ("a", "A", true, "Foo: bArA|v1: vAl=foo|V2: AA"),
            ("none", "x", false, "Foo: bara|v1: val=foo|V2: aa"),
            ("^v1: .*$", "", false, "Foo: bara|V2: aa"),
        ] {
            let mut host = host(&[("Foo", "bara"), ("v1", "val=foo"), ("V2", "aa")]);
            let arguments = [Value::Enum("beresp"), Value::Code(0), text(replacement), Value::Bool(all)];
            call(&mut host, "regsub", &arguments, regex).unwrap();
            assert_eq!(lines(&host), after, "{regex}");
        }
        let arguments = [Value::Enum("beresp"), Value::Code(0), text("no field")];
        assert!(call(&mut host(&[("Foo", "x")]), "regsub", &arguments, "^.*$").is_err());
    }

    #[test]
    fn names_that_are_computed() {
        let found = call(&mut host(&[]), "dyn", &[Value::Enum("resp"), text("42:")], "").unwrap();
        assert!(matches!(found, Value::Header(Side::Resp, name) if name == "42"));
        for bad in ["", ":", "a b", "a\r\n"] {
            assert!(call(&mut host(&[]), "dyn", &[Value::Enum("resp"), text(bad)], "").is_err(), "{bad:?}");
        }
    }
}
