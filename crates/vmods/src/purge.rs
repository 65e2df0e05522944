//! The module `purge`: what `return (purge)` does, from `vcl_hit` and `vcl_miss`, and softer.

use crate::arguments::Arguments;
use copal_vcl as vcl;
use vcl::host::{Result, Sub};
use vcl::value::Value;
use vcl::vmod::{Call, Default, Function, Parameter, Type, Vmod};

const SCOPE: &[Sub] = &[Sub::Hit, Sub::Miss];

const fn seconds(name: &'static str, default: &'static str) -> Parameter {
    Parameter { name, kind: Type::Duration, default: Default::Literal(default) }
}

/// The module's table.
pub(crate) static VMOD: Vmod = Vmod {
    name: "purge",
    functions: &[
        Function { name: "hard", returns: Type::Int, parameters: &[], scope: SCOPE, body: hard },
        Function {
            name: "soft",
            returns: Type::Int,
            parameters: &[seconds("ttl", "0s"), seconds("grace", "-1s"), seconds("keep", "-1s")],
            scope: SCOPE,
            body: soft,
        },
    ],
    objects: &[],
};

fn count(purged: u64) -> Value {
    Value::Int(i64::try_from(purged).unwrap_or(i64::MAX))
}

/// `purge.hard()`: all variants go; how many there were.
fn hard(call: &mut Call<'_>) -> Result<Value> {
    call.host.purge(None).map(count)
}

/// `purge.soft(ttl, grace, keep)`: all variants live shorter; how many there are.
fn soft(call: &mut Call<'_>) -> Result<Value> {
    let arguments = Arguments(call.arguments);
    let times = (arguments.duration(0)?, arguments.duration(1)?, arguments.duration(2)?);
    call.host.purge(Some(times)).map(count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{FakeHost, call_function};

    #[test]
    fn the_request_is_told_what_to_purge() {
        let mut host = FakeHost::default();
        let mut check = |index: usize, arguments: &[Value], expected: &str| {
            let function = &VMOD.functions[index];
            let (value, _) = call_function(&mut host, Sub::Hit, function, None, arguments);
            assert!(matches!(value, Ok(Value::Int(7))));
            assert_eq!(host.logged.pop().unwrap(), expected);
        };
        check(0, &[], "purge None");
        check(1, &[], "purge Some((0.0, -1.0, -1.0))");
        check(1, &[Value::Duration(2.0), Value::Duration(3.0)], "purge Some((2.0, 3.0, -1.0))");
    }
}
