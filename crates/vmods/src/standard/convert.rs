//! Conversions between types: `std.duration`, `bytes`, `integer`, `real`, `time`, `round` and the four old ones.
//!
//! Each of the first five takes exactly one source and an optional fallback. What cannot be converted is the fallback,
//! or a fault where none was given.

use super::calendar::iso_time;
use super::number::{self, EXACT_MAX};
use crate::arguments::Arguments;
use copal_base::Time;
use copal_vcl as vcl;
use copal_wire as wire;
use vcl::host::{Fault, Result};
use vcl::value::Value;
use vcl::vmod::Call;

/// `std.duration([s], [fallback], [real], [integer])`
pub(super) fn duration(call: &mut Call<'_>) -> Result<Value> {
    let arguments = Arguments(call.arguments);
    let value = match source("duration", arguments, &[0, 2, 3])? {
        2 => Some(arguments.real(2)?),
        3 => Some(arguments.integer(3)? as f64),
        _ => number::duration(arguments.text_or_empty(0)?),
    };
    settle("duration", value.map(Value::Duration), arguments)
}

/// `std.bytes([s], [fallback], [real], [integer])`
pub(super) fn bytes(call: &mut Call<'_>) -> Result<Value> {
    let arguments = Arguments(call.arguments);
    let value = match source("bytes", arguments, &[0, 2, 3])? {
        2 => integral(arguments.real(2)?).and_then(|value| u64::try_from(value).ok()),
        3 => u64::try_from(arguments.integer(3)?).ok(),
        _ => number::bytes(arguments.text_or_empty(0)?),
    };
    settle("bytes", value.map(Value::Bytes), arguments)
}

/// `std.integer([s], [fallback], [bool], [bytes], [duration], [real], [time])`
pub(super) fn integer(call: &mut Call<'_>) -> Result<Value> {
    let arguments = Arguments(call.arguments);
    let value = match source("integer", arguments, &[0, 2, 3, 4, 5, 6])? {
        2 => Some(i64::from(arguments.boolean(2)?)),
        3 => i64::try_from(arguments.bytes(3)?).ok(),
        4 => integral(arguments.duration(4)?),
        5 => integral(arguments.real(5)?),
        6 => integral(arguments.time(6)?),
        _ => number::whole(arguments.text_or_empty(0)?),
    };
    settle("integer", value.map(Value::Int), arguments)
}

/// `std.real([s], [fallback], [integer], [bool], [bytes], [duration], [time])`
pub(super) fn real(call: &mut Call<'_>) -> Result<Value> {
    let arguments = Arguments(call.arguments);
    let value = match source("real", arguments, &[0, 2, 3, 4, 5, 6])? {
        2 => Some(arguments.integer(2)? as f64),
        3 => Some(f64::from(u8::from(arguments.boolean(3)?))),
        4 => Some(arguments.bytes(4)? as f64),
        5 => Some(arguments.duration(5)?),
        6 => Some(arguments.time(6)?),
        _ => number::number(arguments.text_or_empty(0)?),
    };
    settle("real", value.map(Value::Real), arguments)
}

/// `std.time([s], [fallback], [real], [integer])`
pub(super) fn time(call: &mut Call<'_>) -> Result<Value> {
    let arguments = Arguments(call.arguments);
    let value = match source("time", arguments, &[0, 2, 3])? {
        2 => Some(arguments.real(2)?).filter(|seconds| *seconds >= 0.0),
        3 => Some(arguments.integer(3)? as f64).filter(|seconds| *seconds >= 0.0),
        _ => time_of(arguments.text_or_empty(0)?),
    };
    settle("time", value.map(Value::Time), arguments)
}

/// A time as text: the three forms of HTTP, ISO 8601 without a zone, or a positive number of seconds.
fn time_of(text: &[u8]) -> Option<Time> {
    let text = text.trim_ascii();
    wire::date::parse(text)
        .filter(|seconds| *seconds != 0.0)
        .or_else(|| iso_time(text))
        .or_else(|| number::number(text).filter(|seconds| *seconds > 0.0))
}

/// `std.round(r)`: half goes away from zero.
pub(super) fn round(call: &mut Call<'_>) -> Result<Value> {
    Ok(Value::Real(Arguments(call.arguments).real(0)?.round()))
}

/// `std.real2integer(r, fallback)`: rounds; at most 15 digits.
pub(super) fn real2integer(call: &mut Call<'_>) -> Result<Value> {
    let arguments = Arguments(call.arguments);
    let rounded = arguments.real(0)?.round();
    let value = if rounded.abs() <= 999_999_999_999_999.0 { rounded as i64 } else { arguments.integer(1)? };
    Ok(Value::Int(value))
}

/// `std.real2time(r, fallback)`: seconds since the epoch, not rounded, as varnishd does in spite of its manual.
pub(super) fn real2time(call: &mut Call<'_>) -> Result<Value> {
    let arguments = Arguments(call.arguments);
    let seconds = arguments.real(0)?;
    Ok(Value::Time(if seconds.is_finite() { seconds } else { arguments.time(1)? }))
}

/// `std.time2integer(t, fallback)`: rounds.
pub(super) fn time2integer(call: &mut Call<'_>) -> Result<Value> {
    let arguments = Arguments(call.arguments);
    Ok(Value::Int(integral(arguments.time(0)?.round()).map_or_else(|| arguments.integer(1), Ok)?))
}

/// `std.time2real(t, fallback)`
pub(super) fn time2real(call: &mut Call<'_>) -> Result<Value> {
    let arguments = Arguments(call.arguments);
    let seconds = arguments.time(0)?;
    Ok(Value::Real(if seconds.is_finite() { seconds } else { arguments.real(1)? }))
}

/// The whole part, if a REAL can tell it from its neighbours.
fn integral(value: f64) -> Option<i64> {
    let whole = value.trunc();
    (whole.abs() <= EXACT_MAX as f64).then_some(whole as i64)
}

/// The one of `candidates` that the call gave.
fn source(function: &str, arguments: Arguments<'_>, candidates: &[usize]) -> Result<usize> {
    let mut given = candidates.iter().copied().filter(|&index| arguments.given(index));
    match (given.next(), given.next()) {
        (Some(index), None) => Ok(index),
        (None, _) => Err(Fault(format!("std.{function}: not enough arguments"))),
        (Some(_), Some(_)) => Err(Fault(format!("std.{function}: too many arguments"))),
    }
}

/// The converted value, or the fallback, which is the second parameter of all five.
fn settle(function: &str, value: Option<Value>, arguments: Arguments<'_>) -> Result<Value> {
    match value {
        Some(value) => Ok(value),
        None if arguments.given(1) => Ok(arguments.0[1].clone()),
        None => Err(Fault(format!("std.{function}: conversion failed"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{call_std, text};

    const VOID: Value = Value::Void;

    /// `show` is the debug form of the value, or the sentence of the fault.
    fn check(name: &str, arguments: &[Value], show: &str) {
        let shown = match call_std(name, arguments) {
            Ok(value) => format!("{value:?}"),
            Err(fault) => fault.0,
        };
        assert_eq!(shown, show, "std.{name}{arguments:?}");
    }

    #[test]
    fn exactly_one_source() {
        check("duration", &[VOID, VOID, VOID, VOID], "std.duration: not enough arguments");
        check("duration", &[text("1s"), VOID, Value::Real(1.0), VOID], "std.duration: too many arguments");
        check(
            "integer",
            &[VOID, Value::Int(3), VOID, VOID, VOID, VOID, VOID],
            "std.integer: not enough arguments",
        );
    }

    #[test]
    fn the_fallback_stands_in_and_its_absence_is_a_fault() {
        check("duration", &[text("x"), Value::Duration(9.0), VOID, VOID], "Duration(9.0)");
        check("duration", &[text("x"), VOID, VOID, VOID], "std.duration: conversion failed");
        check("bytes", &[text("x"), Value::Bytes(1), VOID, VOID], "Bytes(1)");
        check("bytes", &[VOID, Value::Bytes(1), Value::Real(-1.0), VOID], "Bytes(1)");
        check("bytes", &[VOID, Value::Bytes(1), VOID, Value::Int(-1)], "Bytes(1)");
        check("bytes", &[VOID, VOID, Value::Real(f64::NAN), VOID], "std.bytes: conversion failed");
        check("integer", &[Value::String(None), Value::Int(7), VOID, VOID, VOID, VOID, VOID], "Int(7)");
        check(
            "integer",
            &[VOID, VOID, VOID, VOID, VOID, Value::Real(1e300), VOID],
            "std.integer: conversion failed",
        );
        check(
            "real",
            &[Value::String(None), VOID, VOID, VOID, VOID, VOID, VOID],
            "std.real: conversion failed",
        );
        check("time", &[VOID, Value::Time(1.0), Value::Real(-5.0), VOID], "Time(1.0)");
        check("time", &[VOID, VOID, VOID, Value::Int(-5)], "std.time: conversion failed");
    }

    #[test]
    fn named_sources() {
        check("duration", &[VOID, VOID, Value::Real(1.5), VOID], "Duration(1.5)");
        check("duration", &[VOID, VOID, VOID, Value::Int(3)], "Duration(3.0)");
        check("bytes", &[VOID, VOID, Value::Real(10.9), VOID], "Bytes(10)");
        check("bytes", &[VOID, VOID, VOID, Value::Int(77)], "Bytes(77)");
        check("integer", &[VOID, VOID, Value::Bool(true), VOID, VOID, VOID, VOID], "Int(1)");
        check("integer", &[VOID, VOID, VOID, Value::Bytes(1024), VOID, VOID, VOID], "Int(1024)");
        check("integer", &[VOID, VOID, VOID, VOID, Value::Duration(-1.5), VOID, VOID], "Int(-1)");
        check("integer", &[VOID, VOID, VOID, VOID, VOID, Value::Real(-5.9), VOID], "Int(-5)");
        check("integer", &[VOID, VOID, VOID, VOID, VOID, VOID, Value::Time(1.6)], "Int(1)");
        check("real", &[VOID, VOID, Value::Int(-2), VOID, VOID, VOID, VOID], "Real(-2.0)");
        check("real", &[VOID, VOID, VOID, Value::Bool(false), VOID, VOID, VOID], "Real(0.0)");
        check("real", &[VOID, VOID, VOID, VOID, Value::Bytes(5), VOID, VOID], "Real(5.0)");
        check("real", &[VOID, VOID, VOID, VOID, VOID, Value::Duration(0.5), VOID], "Real(0.5)");
        check("real", &[VOID, VOID, VOID, VOID, VOID, VOID, Value::Time(1.5)], "Real(1.5)");
        check("time", &[VOID, VOID, Value::Real(5.5), VOID], "Time(5.5)");
        check("time", &[VOID, VOID, VOID, Value::Int(5)], "Time(5.0)");
    }

    #[test]
    fn times_from_text() {
        for (source, show) in [
            ("Sun, 06 Nov 1994 08:49:37 GMT", "Time(784111777.0)"),
            (" Sun, 06 Nov 1994 08:49:37 GMT ", "Time(784111777.0)"),
            ("Sunday, 06-Nov-94 08:49:37 GMT", "Time(784111777.0)"),
            ("Sun Nov  6 08:49:37 1994", "Time(784111777.0)"),
            ("1994-11-06T08:49:37", "Time(784111777.0)"),
            ("1960-01-01T00:00:00", "Time(-315619200.0)"),
            ("784111777.25", "Time(784111777.25)"),
            ("784111777", "Time(784111777.0)"),
        ] {
            check("time", &[text(source), VOID, VOID, VOID], show);
        }
        for source in [
            "",
            "0",
            "-5",
            "0.0009",
            "1994-11-06",
            "1994-11-06T08:49:37Z",
            "Xxx, 06 Nov 1994 08:49:37 GMT",
            "1994-13-06T08:49:37",
        ] {
            check("time", &[text(source), VOID, VOID, VOID], "std.time: conversion failed");
        }
    }

    #[test]
    fn the_deprecated_four_and_round() {
        check("round", &[Value::Real(-2.5)], "Real(-3.0)");
        check("real2integer", &[Value::Real(2.5), Value::Int(0)], "Int(3)");
        check("real2integer", &[Value::Real(-0.5), Value::Int(0)], "Int(-1)");
        check("real2integer", &[Value::Real(f64::NAN), Value::Int(4)], "Int(4)");
        check("real2integer", &[Value::Real(1e15), Value::Int(4)], "Int(4)");
        check("real2time", &[Value::Real(1.6), Value::Time(0.0)], "Time(1.6)");
        check("real2time", &[Value::Real(f64::INFINITY), Value::Time(2.0)], "Time(2.0)");
        check("time2integer", &[Value::Time(1.6), Value::Int(0)], "Int(2)");
        check("time2integer", &[Value::Time(f64::NAN), Value::Int(9)], "Int(9)");
        check("time2real", &[Value::Time(1.5), Value::Real(0.0)], "Real(1.5)");
    }
}
