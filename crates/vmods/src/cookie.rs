//! The module `cookie` of Varnish 7.1: the fields of a `Cookie` header, by name, for the length of a request or fetch.
//!
//! What a header is taken apart into follows varnishd: blanks before a name are skipped, a name ends at `=`, a value at
//! `;`, and what has no name or no value is dropped. Names compare with case. [`COOKIES_MAX`] cookies of at most
//! [`BYTES_MAX`] bytes in all are kept; what goes beyond is a fault.

use crate::arguments::{Arguments, functions, required};
use crate::task;
use copal_vcl as vcl;
use vcl::host::{Fault, Result};
use vcl::value::{Text, Value};
use vcl::vmod::{Call, Type, Vmod};

/// The most cookies of one request.
const COOKIES_MAX: usize = 4096;
/// The most bytes of names and values of one request.
const BYTES_MAX: usize = 1 << 20;

/// The module's table. Source: `vmod_cookie(3)` of Varnish 7.1.
pub(crate) static VMOD: Vmod = Vmod {
    name: "cookie",
    functions: functions! {
        "clean"() -> Void, clean;
        "delete"(required("cookiename", Type::String)) -> Void, delete;
        "filter"(required("filterstring", Type::String)) -> Void, filter;
        "filter_re"(required("expression", Type::Regex)) -> Void, filter_re;
        "keep"(required("filterstring", Type::String)) -> Void, keep;
        "keep_re"(required("expression", Type::Regex)) -> Void, keep_re;
        "format_date"(required("now", Type::Time), required("timedelta", Type::Duration)) -> String, format_date;
        "format_rfc1123"(required("now", Type::Time), required("timedelta", Type::Duration)) -> String, format_date;
        "get"(required("cookiename", Type::String)) -> String, get;
        "get_re"(required("expression", Type::Regex)) -> String, get_re;
        "get_string"() -> String, get_string;
        "isset"(required("cookiename", Type::String)) -> Bool, isset;
        "parse"(required("cookieheader", Type::String)) -> Void, parse;
        "set"(required("cookiename", Type::String), required("value", Type::String)) -> Void, set;
    },
    objects: &[],
};

/// The cookies of a task, in the order in which they came.
#[derive(Debug, Default)]
struct Cookies {
    list: Vec<(Text, Text)>,
    bytes: usize,
}

impl Cookies {
    fn find(&self, name: &[u8]) -> Option<usize> {
        self.list.iter().position(|(known, _)| known == name)
    }

    fn add(&mut self, name: &[u8], value: &[u8]) -> Result<()> {
        self.bytes += name.len() + value.len();
        if self.list.len() >= COOKIES_MAX || self.bytes > BYTES_MAX {
            return Err(Fault(format!(
                "cookie: more than {COOKIES_MAX} cookies or {BYTES_MAX} bytes of them"
            )));
        }
        self.list.push((Text::copy_from_slice(name), Text::copy_from_slice(value)));
        Ok(())
    }

    /// Changes a cookie in its place, or appends one. An empty name or value is no cookie.
    fn set(&mut self, name: &[u8], value: &[u8]) -> Result<()> {
        if name.is_empty() || value.is_empty() {
            return Ok(());
        }
        match self.find(name) {
            Some(at) => {
                let old = std::mem::replace(&mut self.list[at].1, Text::copy_from_slice(value));
                self.bytes = self.bytes - old.len() + value.len();
                Ok(())
            }
            None => self.add(name, value),
        }
    }

    fn parse(&mut self, header: &[u8]) -> Result<()> {
        *self = Self::default();
        let mut rest = header;
        loop {
            rest = rest.trim_ascii_start();
            let Some(equals) = rest.iter().position(|byte| *byte == b'=') else { return Ok(()) };
            let (name, after) = (&rest[..equals], &rest[equals + 1..]);
            let end = after.iter().position(|byte| *byte == b';').unwrap_or(after.len());
            if !name.is_empty() && end > 0 {
                self.add(name, &after[..end])?;
            }
            rest = after.get(end + 1..).unwrap_or_default();
        }
    }

    /// As a `Cookie` header has them, with a `;` behind each, as varnishd writes it.
    fn print(&self) -> Text {
        let mut out = Vec::with_capacity(self.bytes + 3 * self.list.len());
        for (name, value) in &self.list {
            if !out.is_empty() {
                out.push(b' ');
            }
            out.extend_from_slice(name);
            out.push(b'=');
            out.extend_from_slice(value);
            out.push(b';');
        }
        out.into()
    }

    fn retain(&mut self, mut keep: impl FnMut(&[u8]) -> bool) {
        self.list.retain(|(name, _)| keep(name));
        self.bytes = self.list.iter().map(|(name, value)| name.len() + value.len()).sum();
    }
}

/// The names of a list with commas; blanks before a name do not count.
fn names(list: &[u8]) -> Vec<&[u8]> {
    list.split(|byte| *byte == b',').map(<[u8]>::trim_ascii_start).filter(|name| !name.is_empty()).collect()
}

fn cookies<'task>(call: &'task mut Call<'_>) -> Result<&'task mut Cookies> {
    static KEY: u8 = 1;
    task::data(call, &KEY)
}

fn clean(call: &mut Call<'_>) -> Result<Value> {
    *cookies(call)? = Cookies::default();
    Ok(Value::Void)
}

fn delete(call: &mut Call<'_>) -> Result<Value> {
    let name = Arguments(call.arguments).text_or_empty(0)?;
    cookies(call)?.retain(|known| known != name);
    Ok(Value::Void)
}

fn filter(call: &mut Call<'_>) -> Result<Value> {
    let names = names(Arguments(call.arguments).text_or_empty(0)?);
    cookies(call)?.retain(|known| !names.contains(&known));
    Ok(Value::Void)
}

fn keep(call: &mut Call<'_>) -> Result<Value> {
    let names = names(Arguments(call.arguments).text_or_empty(0)?);
    cookies(call)?.retain(|known| names.contains(&known));
    Ok(Value::Void)
}

fn filter_re(call: &mut Call<'_>) -> Result<Value> {
    retain_by_regex(call, false)
}

fn keep_re(call: &mut Call<'_>) -> Result<Value> {
    retain_by_regex(call, true)
}

fn retain_by_regex(call: &mut Call<'_>, wanted: bool) -> Result<Value> {
    let regex = Arguments(call.arguments).regex(0, call.regexes)?;
    let cookies = cookies(call)?;
    let mut fault = None;
    cookies.retain(|name| match regex.is_match(name) {
        Ok(matches) => matches == wanted,
        Err(why) => {
            fault = Some(why);
            true
        }
    });
    fault.map_or(Ok(Value::Void), Err)
}

fn get(call: &mut Call<'_>) -> Result<Value> {
    let name = Arguments(call.arguments).text_or_empty(0)?;
    let cookies = cookies(call)?;
    Ok(Value::String(cookies.find(name).map(|at| cookies.list[at].1.clone())))
}

fn get_re(call: &mut Call<'_>) -> Result<Value> {
    let regex = Arguments(call.arguments).regex(0, call.regexes)?;
    for (name, value) in &cookies(call)?.list {
        if regex.is_match(name)? {
            return Ok(Value::String(Some(value.clone())));
        }
    }
    Ok(Value::String(None))
}

fn get_string(call: &mut Call<'_>) -> Result<Value> {
    Ok(Value::text(cookies(call)?.print()))
}

fn isset(call: &mut Call<'_>) -> Result<Value> {
    let name = Arguments(call.arguments).text_or_empty(0)?;
    Ok(Value::Bool(cookies(call)?.find(name).is_some()))
}

/// An empty header leaves what is there, as in varnishd.
fn parse(call: &mut Call<'_>) -> Result<Value> {
    let header = Arguments(call.arguments).text_or_empty(0)?;
    if header.is_empty() {
        call.host.log("Debug", b"cookie: nothing to parse");
        return Ok(Value::Void);
    }
    cookies(call)?.parse(header)?;
    Ok(Value::Void)
}

fn set(call: &mut Call<'_>) -> Result<Value> {
    let arguments = Arguments(call.arguments);
    let (name, value) = (arguments.text_or_empty(0)?, arguments.text_or_empty(1)?);
    if name.is_empty() {
        call.host.log("VCL_Log", b"cookie.set(): empty name");
    }
    cookies(call)?.set(name, value)?;
    Ok(Value::Void)
}

/// The sum as an HTTP date, whole seconds.
fn format_date(call: &mut Call<'_>) -> Result<Value> {
    let arguments = Arguments(call.arguments);
    let time = arguments.time(0)? + arguments.duration(1)?;
    let mut out = Vec::with_capacity(29);
    vcl::convert::append(&mut out, &Value::Time(time));
    Ok(Value::text(out))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{FakeHost, call_with, text};
    use vcl::host::Sub;
    use vcl::regex::Regex;

    fn call(host: &mut FakeHost, name: &str, arguments: &[Value]) -> String {
        let regexes = [Regex::new("^b|d$").unwrap()];
        match call_with(&VMOD, host, Sub::Recv, name, arguments, &regexes).unwrap() {
            Value::String(Some(text)) => String::from_utf8_lossy(&text).into_owned(),
            Value::Bool(answer) => answer.to_string(),
            _ => "-".into(),
        }
    }

    fn parsed(header: &str) -> FakeHost {
        let mut host = FakeHost::default();
        call(&mut host, "parse", &[text(header)]);
        host
    }

    #[test]
    fn headers_are_taken_apart_as_in_varnish() {
        for (header, printed) in [
            ("a=1; b=2;c=3 ; d = 4", "a=1; b=2; c=3 ; d = 4;"),
            ("e;=5; f=; g=\"quo;ted\"; a=again", "e;=5; g=\"quo; ted\"; a=again;"),
            ("h=x=y;;  i=1 2; A=cap;j=1,k=2", "h=x=y; ;  i=1 2; A=cap; j=1,k=2;"),
            ("    a=1", "a=1;"),
            ("no value", ""),
            ("=x; b=2", "b=2;"),
            (";", ""),
        ] {
            assert_eq!(call(&mut parsed(header), "get_string", &[]), printed, "{header:?}");
        }
    }

    #[test]
    fn what_remains() {
        let header = "a=1; b=2; c=3; bd=4; d=5";
        for (function, argument, printed) in [
            ("filter", text("b, a,,zz"), "c=3; bd=4; d=5;"),
            ("filter", text("a ,b"), "a=1; c=3; bd=4; d=5;"),
            ("keep", text("d,c"), "c=3; d=5;"),
            ("keep", text("d c"), ""),
            ("filter_re", Value::Code(0), "a=1; c=3;"),
            ("keep_re", Value::Code(0), "b=2; bd=4; d=5;"),
            ("delete", text("b"), "a=1; c=3; bd=4; d=5;"),
        ] {
            let mut host = parsed(header);
            call(&mut host, function, &[argument]);
            assert_eq!(call(&mut host, "get_string", &[]), printed, "{function}");
        }
    }

    #[test]
    fn single_cookies() {
        let mut host = parsed("a=1; a=2; bx=3");
        assert_eq!(call(&mut host, "get", &[text("a")]), "1");
        assert_eq!(call(&mut host, "get", &[text("A")]), "-");
        assert_eq!(call(&mut host, "get_re", &[Value::Code(0)]), "3");
        assert_eq!(call(&mut host, "isset", &[text("bx")]), "true");
        assert_eq!(call(&mut host, "isset", &[Value::String(None)]), "false");
        for (name, value) in [("a", "new"), ("", "x"), ("bx", ""), ("y", "4")] {
            call(&mut host, "set", &[text(name), text(value)]);
        }
        assert_eq!(call(&mut host, "get_string", &[]), "a=new; a=2; bx=3; y=4;");
        call(&mut host, "parse", &[text("")]);
        assert_eq!(call(&mut host, "get", &[text("y")]), "4");
        call(&mut host, "clean", &[]);
        assert_eq!(call(&mut host, "get_string", &[]), "");
        call(&mut host, "set", &[text("a"), text("1")]);
        host.end_task();
        assert_eq!(call(&mut host, "get_string", &[]), "");
    }

    #[test]
    fn dates() {
        let arguments = [Value::Time(1_451_606_400.0), Value::Duration(1.5)];
        for name in ["format_date", "format_rfc1123"] {
            assert_eq!(call(&mut FakeHost::default(), name, &arguments), "Fri, 01 Jan 2016 00:00:01 GMT");
        }
    }

    #[test]
    fn cookies_have_an_end() {
        let mut cookies = Cookies::default();
        let many: String = (0..=COOKIES_MAX).map(|number| format!("c{number}=1;")).collect();
        assert!(cookies.parse(many.as_bytes()).is_err());
        assert!(cookies.set(b"a", &vec![b'x'; BYTES_MAX + 1]).is_err());
    }
}
