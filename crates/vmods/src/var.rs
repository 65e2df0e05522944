//! The module `var` of varnish-modules: variables that VCL names itself.
//!
//! A variable lives as long as the request or fetch and has the type it was last set with; read as another type it is
//! empty, zero or none. Global ones are strings, shared by all requests and programs, and live as long as the process.
//! Both kinds are bounded: setting one more is a fault.

use crate::arguments::{Arguments, functions, required};
use crate::task;
use copal_vcl as vcl;
use parking_lot::RwLock;
use std::collections::HashMap;
use std::sync::LazyLock;
use vcl::host::{Fault, Result};
use vcl::value::{Text, Value};
use vcl::vmod::{Call, Type, Vmod};

/// The most variables of one request, and of the process.
const TASK_MAX: usize = 1024;
const GLOBAL_MAX: usize = 64 * 1024;
/// The most bytes of the names and values of one request, and of the process.
const TASK_BYTES_MAX: usize = 4 << 20;
const GLOBAL_BYTES_MAX: usize = 64 << 20;

const KEY: Type = Type::String;

/// The module's table. Source: `vmod_var(3)` of varnish-modules.
pub(crate) static VMOD: Vmod = Vmod {
    name: "var",
    functions: functions! {
        "set"(required("key", KEY), required("value", Type::String)) -> Void, set_string;
        "get"(required("", KEY)) -> String, get_string;
        "global_set"(required("", KEY), required("", Type::String)) -> Void, global_set;
        "global_get"(required("", KEY)) -> String, global_get;
        "set_int"(required("key", KEY), required("value", Type::Int)) -> Void, set;
        "get_int"(required("key", KEY)) -> Int, get_int;
        "set_string"(required("key", KEY), required("value", Type::String)) -> Void, set_string;
        "get_string"(required("key", KEY)) -> String, get_string;
        "set_real"(required("key", KEY), required("value", Type::Real)) -> Void, set;
        "get_real"(required("key", KEY)) -> Real, get_real;
        "set_duration"(required("key", KEY), required("value", Type::Duration)) -> Void, set;
        "get_duration"(required("key", KEY)) -> Duration, get_duration;
        "set_ip"(required("key", KEY), required("value", Type::Ip)) -> Void, set;
        "get_ip"(required("key", KEY)) -> Ip, get_ip;
        "set_backend"(required("key", KEY), required("value", Type::Backend)) -> Void, set;
        "get_backend"(required("key", KEY)) -> Backend, get_backend;
        "clear"() -> Void, clear;
    },
    objects: &[],
};

fn weight(name: &[u8], value: &Value) -> usize {
    name.len()
        + match value {
            Value::String(Some(text)) => text.len(),
            _ => size_of::<Value>(),
        }
}

/// The variables of a task.
#[derive(Default)]
struct Variables {
    all: HashMap<Text, Value>,
    bytes: usize,
}

fn variables<'task>(call: &'task mut Call<'_>) -> Result<&'task mut Variables> {
    static OWNER: u8 = 3;
    task::data(call, &OWNER)
}

/// Sets a variable of any type but strings: the signature has chosen it.
fn set(call: &mut Call<'_>) -> Result<Value> {
    let value = call.arguments.get(1).cloned().unwrap_or_default();
    put(call, value)
}

/// Sets a string; the unset one is kept as an empty one.
fn set_string(call: &mut Call<'_>) -> Result<Value> {
    let value = Arguments(call.arguments).text(1)?.cloned().unwrap_or_default();
    put(call, Value::String(Some(value)))
}

/// Without a name nothing happens.
fn put(call: &mut Call<'_>, value: Value) -> Result<Value> {
    let Some(name) = Arguments(call.arguments).text(0)? else { return Ok(Value::Void) };
    let variables = variables(call)?;
    let new = weight(name, &value);
    let old = variables.all.get(name).map(|old| weight(name, old));
    let bytes = variables.bytes - old.unwrap_or(0) + new;
    if bytes > TASK_BYTES_MAX || (old.is_none() && variables.all.len() >= TASK_MAX) {
        return Err(Fault(format!("var: more than {TASK_MAX} variables or {TASK_BYTES_MAX} bytes of them")));
    }
    variables.bytes = bytes;
    variables.all.insert(name.clone(), value);
    Ok(Value::Void)
}

/// The variable of that name if `wanted` takes it, else `empty`.
fn get(call: &mut Call<'_>, wanted: fn(&Value) -> bool, empty: Value) -> Result<Value> {
    let Some(name) = Arguments(call.arguments).text(0)? else { return Ok(empty) };
    let found = variables(call)?.all.get(name).filter(|value| wanted(value));
    Ok(found.cloned().unwrap_or(empty))
}

fn get_string(call: &mut Call<'_>) -> Result<Value> {
    get(call, |value| matches!(value, Value::String(_)), Value::String(None))
}

fn get_int(call: &mut Call<'_>) -> Result<Value> {
    get(call, |value| matches!(value, Value::Int(_)), Value::Int(0))
}

fn get_real(call: &mut Call<'_>) -> Result<Value> {
    get(call, |value| matches!(value, Value::Real(_)), Value::Real(0.0))
}

fn get_duration(call: &mut Call<'_>) -> Result<Value> {
    get(call, |value| matches!(value, Value::Duration(_)), Value::Duration(0.0))
}

fn get_ip(call: &mut Call<'_>) -> Result<Value> {
    get(call, |value| matches!(value, Value::Ip(_)), Value::Ip(None))
}

fn get_backend(call: &mut Call<'_>) -> Result<Value> {
    get(call, |value| matches!(value, Value::Backend(_)), Value::Backend(None))
}

fn clear(call: &mut Call<'_>) -> Result<Value> {
    *variables(call)? = Variables::default();
    Ok(Value::Void)
}

/// The variables of the process.
#[derive(Default)]
struct Globals {
    all: HashMap<Text, Text>,
    bytes: usize,
}

static GLOBALS: LazyLock<RwLock<Globals>> = LazyLock::new(RwLock::default);

impl Globals {
    /// Sets or, with no value, forgets one.
    fn set(&mut self, name: &[u8], value: Option<&[u8]>) -> Result<()> {
        let old = self.all.get(name).map(|old| name.len() + old.len());
        let new = value.map_or(0, |value| name.len() + value.len());
        let bytes = self.bytes - old.unwrap_or(0) + new;
        if value.is_some() && (bytes > GLOBAL_BYTES_MAX || (old.is_none() && self.all.len() >= GLOBAL_MAX)) {
            let words =
                format!("more than {GLOBAL_MAX} global variables or {GLOBAL_BYTES_MAX} bytes of them");
            return Err(Fault(format!("var: {words}")));
        }
        self.bytes = bytes;
        match value {
            // Copies, since the argument may be a slice of a whole request.
            Some(value) => {
                self.all.insert(Text::copy_from_slice(name), Text::copy_from_slice(value));
            }
            None => {
                self.all.remove(name);
            }
        }
        Ok(())
    }
}

fn global_set(call: &mut Call<'_>) -> Result<Value> {
    let arguments = Arguments(call.arguments);
    if let Some(name) = arguments.text(0)? {
        GLOBALS.write().set(name, arguments.text(1)?.map(|value| &value[..]))?;
    }
    Ok(Value::Void)
}

fn global_get(call: &mut Call<'_>) -> Result<Value> {
    let Some(name) = Arguments(call.arguments).text(0)? else { return Ok(Value::String(None)) };
    Ok(Value::String(GLOBALS.read().all.get(name).cloned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{FakeHost, call_in_module, fakes, text};
    use vcl::host::Sub;

    fn call(host: &mut FakeHost, name: &str, arguments: &[Value]) -> String {
        format!("{:?}", call_in_module(&VMOD, host, Sub::Recv, name, arguments).unwrap())
    }

    #[test]
    fn each_type_and_what_is_absent() {
        let backend = Value::Backend(Some(fakes(1).remove(0)));
        for (kind, value, shown, empty) in [
            ("string", text("v"), "String(Some(b\"v\"))", "String(None)"),
            ("int", Value::Int(7), "Int(7)", "Int(0)"),
            ("real", Value::Real(0.5), "Real(0.5)", "Real(0.0)"),
            ("duration", Value::Duration(60.0), "Duration(60.0)", "Duration(0.0)"),
            ("ip", Value::Ip(Some("1.2.3.4:5".parse().unwrap())), "Ip(Some(1.2.3.4:5))", "Ip(None)"),
            ("backend", backend.clone(), "Backend(Some(Backend(b1)))", "Backend(None)"),
        ] {
            let host = &mut FakeHost::default();
            let (set, get) = (format!("set_{kind}"), format!("get_{kind}"));
            assert_eq!(call(host, &get, &[text("x")]), empty);
            call(host, &set, &[text("x"), value]);
            assert_eq!(call(host, &get, &[text("x")]), shown);
            let other = if kind == "int" { "set_real" } else { "set_int" };
            call(host, other, &[text("x"), if kind == "int" { Value::Real(1.0) } else { Value::Int(1) }]);
            assert_eq!(call(host, &get, &[text("x")]), empty, "of another type now");
            assert_eq!(call(host, &get, &[Value::String(None)]), empty);
        }
        let host = &mut FakeHost::default();
        call(host, "set", &[text("x"), Value::String(None)]);
        assert_eq!(call(host, "get", &[text("x")]), "String(Some(b\"\"))", "set to what is unset");
    }

    #[test]
    fn clearing_and_the_end_of_the_task() {
        let host = &mut FakeHost::default();
        for end in [true, false] {
            call(host, "set", &[text("x"), text("1")]);
            if end {
                host.end_task();
            } else {
                call(host, "clear", &[]);
            }
            assert_eq!(call(host, "get", &[text("x")]), "String(None)");
        }
    }

    #[test]
    fn globals_outlive_the_task() {
        let host = &mut FakeHost::default();
        call(host, "global_set", &[text("test of globals"), text("open")]);
        let other = &mut FakeHost::default();
        assert_eq!(call(other, "global_get", &[text("test of globals")]), "String(Some(b\"open\"))");
        call(host, "global_set", &[text("test of globals"), Value::String(None)]);
        assert_eq!(call(other, "global_get", &[text("test of globals")]), "String(None)");
    }

    #[test]
    fn variables_have_an_end() {
        let mut host = FakeHost::default();
        let mut set = |name: String, value: Value| {
            call_in_module(&VMOD, &mut host, Sub::Recv, "set", &[Value::text(name), value])
        };
        for number in 0..TASK_MAX {
            set(format!("v{number}"), text("x")).unwrap();
        }
        assert!(set("one more".into(), text("x")).is_err());
        assert!(set("v1".into(), text("again")).is_ok());
        assert!(set("v1".into(), Value::text(vec![b'x'; TASK_BYTES_MAX])).is_err());
        let mut globals = Globals::default();
        assert!(globals.set(b"x", Some(&vec![b'x'; GLOBAL_BYTES_MAX])).is_err());
        assert!(globals.set(b"x", Some(b"y")).is_ok() && globals.set(b"x", None).is_ok());
        assert_eq!(globals.bytes, 0);
    }
}
