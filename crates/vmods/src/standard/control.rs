//! What acts on the request or asks about the program: bodies, bans, rollback, the connection, the environment.

use crate::arguments::Arguments;
use copal_vcl as vcl;
use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use vcl::exec::Wait;
use vcl::host::{Fault, Result, Side, Sub};
use vcl::value::Value;
use vcl::vmod::Call;

/// `std.healthy(be)`: whether a request sent to it could be served; false for `none`.
pub(super) fn healthy(call: &mut Call<'_>) -> Result<Value> {
    let backend = Arguments(call.arguments).backend(0)?;
    Ok(Value::Bool(backend.is_some_and(|backend| backend.health(&call.host.ask()).healthy)))
}

/// `std.syntax(version)`: whether the program's language is at least that.
pub(super) fn syntax(call: &mut Call<'_>) -> Result<Value> {
    // Scaled and rounded, since 4.1 has no exact binary form.
    let wanted = (Arguments(call.arguments).real(0)? * 10.0).round();
    Ok(Value::Bool(wanted <= f64::from(call.host.syntax())))
}

/// `std.getenv(name)`: unset where the environment has no such variable.
pub(super) fn getenv(call: &mut Call<'_>) -> Result<Value> {
    let name = Arguments(call.arguments).text_or_empty(0)?;
    // The standard library's own check would panic on some systems.
    if name.is_empty() || name.contains(&b'=') || name.contains(&0) {
        return Ok(Value::String(None));
    }
    Ok(Value::String(std::env::var_os(OsStr::from_bytes(name)).map(|value| value.into_vec().into())))
}

/// `std.cache_req_body(size)`: the caller reads the body and puts its answer in place of ours.
pub(super) fn cache_req_body(call: &mut Call<'_>) -> Result<Value> {
    let limit = Arguments(call.arguments).bytes(0)?;
    if call.subroutine == Sub::Recv {
        call.wait = Some(Wait::CacheBody { limit });
    } else {
        call.host.log("VCL_Error", b"req.body can only be cached in vcl_recv{}");
    }
    Ok(Value::Bool(false))
}

/// `std.late_100_continue(late)`: in `vcl_recv`; elsewhere a `VCL_Error` record and nothing else.
pub(super) fn late_100_continue(call: &mut Call<'_>) -> Result<Value> {
    let late = Arguments(call.arguments).boolean(0)?;
    if call.subroutine == Sub::Recv {
        call.host.late_100_continue(late);
    } else {
        call.host.log("VCL_Error", b"std.late_100_continue() only valid in vcl_recv{}");
    }
    Ok(Value::Void)
}

/// `std.set_ip_tos(tos)`
pub(super) fn set_ip_tos(call: &mut Call<'_>) -> Result<Value> {
    let tos = Arguments(call.arguments).integer(0)?;
    let byte =
        u8::try_from(tos).map_err(|_| Fault(format!("std.set_ip_tos: {tos} is not between 0 and 255")))?;
    call.host.set_ip_tos(byte)?;
    Ok(Value::Void)
}

/// `std.rollback(req | bereq)`
pub(super) fn rollback(call: &mut Call<'_>) -> Result<Value> {
    let side = match Arguments(call.arguments).word(0)? {
        "req" => Side::Req,
        "bereq" => Side::Bereq,
        other => return Err(Fault(format!("std.rollback({other}): only req and bereq can be put back"))),
    };
    call.host.rollback(side)?;
    Ok(Value::Void)
}

/// Where a task keeps the sentence of its last failed ban.
static BAN_ERROR: u8 = 0;

fn last_ban<'host>(call: &'host mut Call<'_>) -> Option<&'host mut String> {
    let key = std::ptr::addr_of!(BAN_ERROR) as usize;
    call.host.task_data(key, &mut || Box::new(String::new())).downcast_mut()
}

/// `std.ban(expression)`: whether the ban was taken; an error clears with the next call that has none.
pub(super) fn ban(call: &mut Call<'_>) -> Result<Value> {
    let outcome = match &call.arguments[0] {
        Value::String(None) => Err(vcl::exec::NULL_ARGUMENT.to_owned()),
        _ => call.host.ban(Arguments(call.arguments).text_or_empty(0)?),
    };
    let taken = outcome.is_ok();
    if let Err(why) = &outcome {
        call.host.log("VCL_Error", format!("ban(): {why}").as_bytes());
    }
    if let Some(sentence) = last_ban(call) {
        *sentence = outcome.err().unwrap_or_default();
    }
    Ok(Value::Bool(taken))
}

/// `std.ban_error()`: why the last `std.ban` of this task failed; empty if it did not.
pub(super) fn ban_error(call: &mut Call<'_>) -> Result<Value> {
    Ok(Value::text(last_ban(call).cloned().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{FakeBackend, FakeHost, call_std, call_std_in, call_std_on, text};
    use vcl::value::BackendRef;

    fn shown(value: Result<Value>) -> String {
        value.map_or_else(|fault| fault.0, |value| format!("{value:?}"))
    }

    #[test]
    fn health_of_a_backend() {
        let backend = FakeBackend::new("b", true);
        let argument = [Value::Backend(Some(backend.clone() as BackendRef))];
        assert_eq!(shown(call_std("healthy", &argument)), "Bool(true)");
        backend.set(false, 1.0);
        assert_eq!(shown(call_std("healthy", &argument)), "Bool(false)");
        assert_eq!(shown(call_std("healthy", &[Value::Backend(None)])), "Bool(false)");
    }

    #[test]
    fn language_version() {
        for (version, answer) in [(4.0, "Bool(true)"), (4.1, "Bool(true)"), (4.2, "Bool(false)")] {
            assert_eq!(shown(call_std("syntax", &[Value::Real(version)])), answer);
        }
    }

    #[test]
    fn environment() {
        assert_eq!(shown(call_std("getenv", &[text("COPAL_NO_SUCH")])), "String(None)");
        assert_eq!(shown(call_std("getenv", &[text("A=B")])), "String(None)");
        assert_eq!(shown(call_std("getenv", &[Value::String(None)])), "String(None)");
        assert!(shown(call_std("getenv", &[text("PATH")])).starts_with("String(Some("));
    }

    #[test]
    fn caching_the_body_waits_in_recv_only() {
        let mut host = FakeHost::default();
        let (value, wait) = call_std_in(&mut host, Sub::Recv, "cache_req_body", &[Value::Bytes(1024)]);
        assert!(value.is_ok() && matches!(wait, Some(Wait::CacheBody { limit: 1024 })));
        let (value, wait) = call_std_in(&mut host, Sub::Miss, "cache_req_body", &[Value::Bytes(1024)]);
        assert_eq!((shown(value), wait.is_none()), ("Bool(false)".into(), true));
        assert_eq!(host.logged, ["VCL_Error req.body can only be cached in vcl_recv{}"]);
    }

    #[test]
    fn late_100_continue_in_recv_only() {
        let mut host = FakeHost::default();
        call_std_in(&mut host, Sub::Recv, "late_100_continue", &[Value::Bool(true)]).0.unwrap();
        call_std_in(&mut host, Sub::Hit, "late_100_continue", &[Value::Bool(true)]).0.unwrap();
        assert_eq!(host.logged, ["late true", "VCL_Error std.late_100_continue() only valid in vcl_recv{}"]);
    }

    #[test]
    fn connection_and_rollback() {
        let mut host = FakeHost::default();
        call_std_on(&mut host, "set_ip_tos", &[Value::Int(0x10)]).unwrap();
        call_std_on(&mut host, "rollback", &[Value::Enum("req")]).unwrap();
        call_std_on(&mut host, "rollback", &[Value::Enum("bereq")]).unwrap();
        assert_eq!(host.logged, ["tos 16", "rollback Req", "rollback Bereq"]);
        assert!(call_std_on(&mut host, "rollback", &[Value::Enum("beresp")]).is_err());
        for tos in [-1, 256, i64::MAX] {
            assert!(call_std("set_ip_tos", &[Value::Int(tos)]).is_err());
        }
    }

    #[test]
    fn a_failed_ban_leaves_its_sentence_for_the_task() {
        let mut host = FakeHost::default();
        assert_eq!(shown(call_std_on(&mut host, "ban_error", &[])), "String(Some(b\"\"))");
        assert_eq!(shown(call_std_on(&mut host, "ban", &[text("bad")])), "Bool(false)");
        assert_eq!(shown(call_std_on(&mut host, "ban_error", &[])), "String(Some(b\"bad is no ban\"))");
        assert_eq!(shown(call_std_on(&mut host, "ban", &[text("req.url ~ x")])), "Bool(true)");
        assert_eq!(shown(call_std_on(&mut host, "ban_error", &[])), "String(Some(b\"\"))");
    }
}
