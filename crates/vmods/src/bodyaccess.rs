//! The module `bodyaccess` of varnish-modules: the request body, once `std.cache_req_body` keeps it.
//!
//! Without a kept body, or in another subroutine than the original allows, results are -1, nothing is hashed or logged, and
//! a `VCL_Error` record says why.

use crate::arguments::{Arguments, functions, or, required};
use copal_vcl as vcl;
use vcl::host::{Result, Sub};
use vcl::value::{Text, Value};
use vcl::vmod::{Call, Type, Vmod};

/// How much of a body is logged at most, in bytes; the log is a ring that others need, too.
const LOGGED_MAX: usize = 64 << 10;

/// The module's table. Source: `vmod_bodyaccess(3)` of varnish-modules.
pub(crate) static VMOD: Vmod = Vmod {
    name: "bodyaccess",
    functions: functions! {
        "rematch_req_body"(required("re", Type::Regex)) -> Int, rematch_req_body;
        "hash_req_body"() -> Void, hash_req_body;
        "len_req_body"() -> Int, len_req_body;
        "log_req_body"(or("prefix", Type::String, "\"\""), or("length", Type::Int, "200")) -> Void, log_req_body;
    },
    objects: &[],
};

fn body(call: &mut Call<'_>) -> Option<Text> {
    // A request without a body has none to keep.
    let body = call.host.kept_body().filter(|body| !body.is_empty());
    if body.is_none() {
        call.host.log("VCL_Error", b"Unbuffered req.body");
    }
    body
}

/// The body if this is the one subroutine where it may be asked for; `words` are for the others.
fn body_in(call: &mut Call<'_>, subroutine: Sub, words: &str) -> Option<Text> {
    let body = body(call)?;
    if call.subroutine == subroutine {
        return Some(body);
    }
    call.host.log("VCL_Error", words.as_bytes());
    None
}

/// 1 if it matches, 0 if not, -1 without a body.
fn rematch_req_body(call: &mut Call<'_>) -> Result<Value> {
    let regex = Arguments(call.arguments).regex(0, call.regexes)?;
    let body = body_in(call, Sub::Recv, "rematch_req_body can be used only in vcl_recv{}");
    let Some(body) = body else { return Ok(Value::Int(-1)) };
    Ok(Value::Int(i64::from(regex.is_match(&body)?)))
}

fn hash_req_body(call: &mut Call<'_>) -> Result<Value> {
    if let Some(body) = body_in(call, Sub::Hash, "hash_req_body can only be used in vcl_hash{}") {
        call.host.hash_data(&body)?;
    }
    Ok(Value::Void)
}

fn len_req_body(call: &mut Call<'_>) -> Result<Value> {
    let body = body_in(call, Sub::Recv, "len_req_body can only be used in vcl_recv{}");
    Ok(Value::Int(body.map_or(-1, |body| body.len() as i64)))
}

/// In `Debug` records of `length` bytes of it each, or all in one if that is not above 0; the prefix before each.
fn log_req_body(call: &mut Call<'_>) -> Result<Value> {
    let arguments = Arguments(call.arguments);
    let prefix = arguments.text_or_empty(0)?;
    let length =
        usize::try_from(arguments.integer(1)?).ok().filter(|&length| length > 0).unwrap_or(LOGGED_MAX);
    let Some(body) = body(call) else { return Ok(Value::Void) };
    for part in body[..body.len().min(LOGGED_MAX)].chunks(length) {
        call.host.log("Debug", &[prefix, part].concat());
    }
    Ok(Value::Void)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{FakeHost, call_with, text};
    use vcl::regex::Regex;

    fn call(host: &mut FakeHost, name: &str, arguments: &[Value]) -> String {
        let place = if name == "hash_req_body" { Sub::Hash } else { Sub::Recv };
        call_in(host, place, name, arguments)
    }

    fn call_in(host: &mut FakeHost, place: Sub, name: &str, arguments: &[Value]) -> String {
        let regexes = [Regex::new("B+").unwrap(), Regex::new("z").unwrap()];
        format!("{:?}", call_with(&VMOD, host, place, name, arguments, &regexes).unwrap())
    }

    #[test]
    fn elsewhere() {
        let mut host = FakeHost { body: Some("aBBcd".into()), ..FakeHost::default() };
        assert_eq!(call_in(&mut host, Sub::Deliver, "len_req_body", &[]), "Int(-1)");
        assert_eq!(call_in(&mut host, Sub::Hash, "rematch_req_body", &[Value::Code(0)]), "Int(-1)");
        call_in(&mut host, Sub::Recv, "hash_req_body", &[]);
        let records = [
            "VCL_Error len_req_body can only be used in vcl_recv{}",
            "VCL_Error rematch_req_body can be used only in vcl_recv{}",
            "VCL_Error hash_req_body can only be used in vcl_hash{}",
        ];
        assert_eq!(host.logged, records);
    }

    #[test]
    fn a_kept_body() {
        let mut host = FakeHost { body: Some("aBBcd".into()), ..FakeHost::default() };
        assert_eq!(call(&mut host, "len_req_body", &[]), "Int(5)");
        assert_eq!(call(&mut host, "rematch_req_body", &[Value::Code(0)]), "Int(1)");
        assert_eq!(call(&mut host, "rematch_req_body", &[Value::Code(1)]), "Int(0)");
        call(&mut host, "hash_req_body", &[]);
        call(&mut host, "log_req_body", &[text("P:"), Value::Int(3)]);
        call(&mut host, "log_req_body", &[text(""), Value::Int(-3)]);
        let records = ["hash_data aBBcd", "Debug P:aBB", "Debug P:cd", "Debug aBBcd"];
        assert_eq!(host.logged, records);
    }

    #[test]
    fn without_one() {
        let mut host = FakeHost::default();
        assert_eq!(call(&mut host, "len_req_body", &[]), "Int(-1)");
        assert_eq!(call(&mut host, "rematch_req_body", &[Value::Code(0)]), "Int(-1)");
        call(&mut host, "hash_req_body", &[]);
        call(&mut host, "log_req_body", &[]);
        assert_eq!(host.logged, vec!["VCL_Error Unbuffered req.body"; 4]);
    }
}
