//! The module `accept` of varnish-modules: one of a few known values in the place of an `Accept`-like header.
//!
//! The header is a list of items with parameters; the first item that is among the choices and not refused with `q=0` is
//! the answer, whatever its quality. A list that stops being well formed ends there. Choices compare without case.

use crate::arguments::{Arguments, functions, required};
use copal_vcl as vcl;
use copal_wire::syntax::valid_name;
use parking_lot::RwLock;
use std::sync::Arc;
use vcl::host::{Fault, Result};
use vcl::value::{Text, Value};
use vcl::vmod::{Call, Object, ObjectRef, Type, Vmod};

/// The most choices of one rule.
const CHOICES_MAX: usize = 1024;

/// The module's table. Source: `vmod_accept(3)` of varnish-modules.
pub(crate) static VMOD: Vmod = Vmod {
    name: "accept",
    functions: &[],
    objects: &[Object {
        name: "rule",
        parameters: &[required("string", Type::String)],
        make,
        methods: functions! {
            "add"(required("string", Type::String)) -> Void, add;
            "remove"(required("string", Type::String)) -> Void, remove;
            "filter"(required("string", Type::String)) -> String, filter;
        },
    }],
};

/// What is answered where nothing fits, and what may fit.
#[derive(Debug)]
struct Rule {
    fallback: Option<Text>,
    choices: RwLock<Vec<Text>>,
}

fn make(_: &str, call: &mut Call<'_>) -> Result<ObjectRef> {
    let fallback = Arguments(call.arguments).text(0)?.cloned();
    Ok(Arc::new(Rule { fallback, choices: RwLock::default() }))
}

fn rule<'call>(call: &Call<'call>) -> Result<&'call Rule> {
    call.object
        .and_then(|object| object.downcast_ref())
        .ok_or_else(|| Fault("accept: a method was called on something else".into()))
}

fn add(call: &mut Call<'_>) -> Result<Value> {
    let rule = rule(call)?;
    let Some(choice) = Arguments(call.arguments).text(0)? else { return Ok(Value::Void) };
    let mut choices = rule.choices.write();
    if !choices.contains(choice) {
        if choices.len() >= CHOICES_MAX {
            return Err(Fault(format!("accept: more than {CHOICES_MAX} choices")));
        }
        choices.push(Text::copy_from_slice(choice));
    }
    Ok(Value::Void)
}

fn remove(call: &mut Call<'_>) -> Result<Value> {
    let rule = rule(call)?;
    let choice = Arguments(call.arguments).text_or_empty(0)?;
    rule.choices.write().retain(|known| known != choice);
    Ok(Value::Void)
}

fn filter(call: &mut Call<'_>) -> Result<Value> {
    let rule = rule(call)?;
    let header = Arguments(call.arguments).text_or_empty(0)?;
    let choices = rule.choices.read();
    let found = choose(header, &choices).cloned();
    Ok(Value::String(found.or_else(|| rule.fallback.clone())))
}

fn choose<'rule>(header: &[u8], choices: &'rule [Text]) -> Option<&'rule Text> {
    for item in header.split(|byte| *byte == b',') {
        let mut parts = item.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
        let name = parts.next()?;
        let mut refused = false;
        for parameter in parts {
            let equals = parameter.iter().position(|byte| *byte == b'=')?;
            let (key, value) = (&parameter[..equals], &parameter[equals + 1..]);
            if !valid_name(key) || value.is_empty() || value.contains(&b' ') {
                return None;
            }
            refused |= key.eq_ignore_ascii_case(b"q") && is_zero(value);
        }
        // A type and its subtype are two names.
        if !name.split(|byte| *byte == b'/').all(valid_name) {
            return None;
        }
        if let Some(choice) = choices.iter().find(|choice| !refused && choice.eq_ignore_ascii_case(name)) {
            return Some(choice);
        }
    }
    None
}

/// Whether a quality is none at all: `0`, `0.0` and so on.
fn is_zero(quality: &[u8]) -> bool {
    quality.starts_with(b"0") && quality.iter().all(|byte| matches!(byte, b'0' | b'.'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{FakeHost, call_function, make_object, text};
    use vcl::host::Sub;

    fn method(object: &ObjectRef, index: usize, argument: &str) -> String {
        let method = &VMOD.objects[0].methods[index];
        let value =
            call_function(&mut FakeHost::default(), Sub::Recv, method, Some(object), &[text(argument)]);
        match value.0.unwrap() {
            Value::String(Some(text)) => String::from_utf8_lossy(&text).into_owned(),
            _ => "-".into(),
        }
    }

    #[test]
    fn the_first_choice_that_fits() {
        let rule = make_object(&VMOD.objects[0], "rule", &[text("foo")]).unwrap();
        for choice in ["bar", "baz", "bar", "text/html"] {
            method(&rule, 0, choice);
        }
        for (header, answer) in [
            ("foo", "foo"),
            ("", "foo"),
            ("BaR", "bar"),
            ("baz", "baz"),
            ("qux;q=1 ; level=15,bar;baz=no", "bar"),
            ("baza; baz=0.2    ,  bar, baz", "bar"),
            ("this , is; a=tricky/one , but,   bar  , is)what$we; want=!", "bar"),
            ("bar; q = 1", "foo"),
            ("bar; q= 0.5", "foo"),
            ("bar; quick=0.2, baz; q=0.3", "bar"),
            ("bar; q=0", "foo"),
            ("bar; q=0.000, baz", "baz"),
            ("bar; level=1; q=0.3, baz;q=0.5", "bar"),
            ("*/*;q=0.1, text/html", "text/html"),
            ("a b, bar", "foo"),
        ] {
            assert_eq!(method(&rule, 2, header), answer, "{header:?}");
        }
        method(&rule, 1, "bar");
        assert_eq!(method(&rule, 2, "bar, baz"), "baz");
    }

    #[test]
    fn choices_have_an_end() {
        let rule = make_object(&VMOD.objects[0], "rule", &[text("foo")]).unwrap();
        let add = |choice: String| {
            let method = &VMOD.objects[0].methods[0];
            call_function(&mut FakeHost::default(), Sub::Init, method, Some(&rule), &[Value::text(choice)]).0
        };
        for number in 0..CHOICES_MAX {
            add(format!("c{number}")).unwrap();
        }
        assert!(add("one more".into()).is_err());
    }
}
