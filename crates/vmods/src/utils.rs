//! The module `utils`, after Varnish Enterprise's: what has no module of its own.

use crate::arguments::{Arguments, functions, optional, or, required};
use crate::standard;
use copal_observe::format::local_time;
use copal_vcl as vcl;
use vcl::host::{Fault, Result, Sub};
use vcl::value::Value;
use vcl::vmod::{Call, Type, Vmod};

/// The module's table.
pub(crate) static VMOD: Vmod = Vmod {
    name: "utils",
    functions: functions! {
        "newline"() -> String, newline;
        "time_format"(required("format", Type::String), or("local_time", Type::Bool, "false"), optional("time", Type::Time))
            -> String, time_format;
        "fast_304"() -> Void, fast_304, in &[Sub::BackendResponse];
        "is_fast_304"() -> Bool, is_fast_304, in &[Sub::BackendResponse];
        "fast_random_int"(required("max", Type::Int)) -> Int, fast_random_int;
    },
    objects: &[],
};

/// `utils.newline()`
fn newline(_: &mut Call<'_>) -> Result<Value> {
    Ok(Value::text("\n"))
}

/// `utils.time_format(format, local_time=false, [time])`: as strftime(3), of the present moment by default.
fn time_format(call: &mut Call<'_>) -> Result<Value> {
    let arguments = Arguments(call.arguments);
    let format = arguments.text_or_empty(0)?;
    let time = arguments.maybe(2, Arguments::time)?.unwrap_or_else(|| call.host.now());
    if !arguments.boolean(1)? {
        return Ok(Value::text(standard::utc_time(time, format)));
    }
    let mut text = Vec::new();
    local_time::format(&String::from_utf8_lossy(format), time, &mut text);
    Ok(Value::text(text))
}

/// `utils.fast_304()`: if this is a 304, the object that is there stays as it is and only gets its new times.
fn fast_304(call: &mut Call<'_>) -> Result<Value> {
    call.host.refresh_in_place();
    Ok(Value::Void)
}

/// `utils.is_fast_304()`: whether that is what will happen.
fn is_fast_304(call: &mut Call<'_>) -> Result<Value> {
    Ok(Value::Bool(call.host.refreshes_in_place()))
}

/// `utils.fast_random_int(max)`: a number from 0 to below `max`, not fit for secrets.
fn fast_random_int(call: &mut Call<'_>) -> Result<Value> {
    let most = Arguments(call.arguments).integer(0)?;
    if most < 1 {
        return Err(Fault("utils.fast_random_int(): max must be at least 1".into()));
    }
    let share = u128::from(call.host.ask().random) * most as u128;
    Ok(Value::Int((share >> 64) as i64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{FakeHost, call_function, text};

    fn run(host: &mut FakeHost, name: &str, arguments: &[Value]) -> Value {
        let function = VMOD.functions.iter().find(|function| function.name == name).unwrap();
        call_function(host, Sub::BackendResponse, function, None, arguments).0.unwrap()
    }

    #[test]
    fn texts() {
        let mut host = FakeHost { now: 0.0, ..FakeHost::default() };
        let shown = |value| match value {
            Value::String(Some(text)) => String::from_utf8(text.to_vec()).unwrap(),
            other => panic!("{other:?}"),
        };
        assert_eq!(shown(run(&mut host, "newline", &[])), "\n");
        assert_eq!(shown(run(&mut host, "time_format", &[text("%Y-%m-%d %H")])), "1970-01-01 00");
        let later = [text("%Y"), Value::Bool(false), Value::Time(40_000_000.0)];
        assert_eq!(shown(run(&mut host, "time_format", &later)), "1971");
        let local = [text("%Y"), Value::Bool(true), Value::Time(40_000_000.0)];
        assert_eq!(shown(run(&mut host, "time_format", &local)), "1971");
    }

    #[test]
    fn random_numbers_stay_below_their_bound() {
        let mut host = FakeHost::default();
        let mut seen = [false; 3];
        for _ in 0..100 {
            let Value::Int(number) = run(&mut host, "fast_random_int", &[Value::Int(3)]) else { panic!() };
            seen[number as usize] = true;
        }
        assert_eq!(seen, [true; 3]);
    }

    #[test]
    fn fast_304_is_asked_of_the_fetch() {
        let mut host = FakeHost::default();
        assert!(matches!(run(&mut host, "is_fast_304", &[]), Value::Bool(false)));
        run(&mut host, "fast_304", &[]);
        assert!(matches!(run(&mut host, "is_fast_304", &[]), Value::Bool(true)));
    }
}
