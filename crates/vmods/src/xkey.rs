//! The module `xkey`: surrogate keys. A response names them in its `xkey` field, and all objects that name one go, or turn
//! stale, by one call.

use crate::arguments::Arguments;
use copal_vcl as vcl;
use vcl::host::Result;
use vcl::value::Value;
use vcl::vmod::{Call, Default, Function, Parameter, Type, Vmod};

const KEYS: &[Parameter] = &[Parameter { name: "keys", kind: Type::String, default: Default::Required }];

/// The module's table.
pub(crate) static VMOD: Vmod = Vmod {
    name: "xkey",
    functions: &[
        Function { name: "purge", returns: Type::Int, parameters: KEYS, scope: &[], body: purge },
        Function { name: "softpurge", returns: Type::Int, parameters: KEYS, scope: &[], body: softpurge },
    ],
    objects: &[],
};

/// `xkey.purge(keys)`: the objects go; how many there were, each counted once for every one of the keys that names it.
fn purge(call: &mut Call<'_>) -> Result<Value> {
    by_keys(call, false)
}

/// `xkey.softpurge(keys)`: the objects are stale from now, with their grace and keep; how many were fresh.
fn softpurge(call: &mut Call<'_>) -> Result<Value> {
    by_keys(call, true)
}

fn by_keys(call: &mut Call<'_>, soft: bool) -> Result<Value> {
    let keys = Arguments(call.arguments).text_or_empty(0)?;
    let purged = call.host.purge_keys(keys, soft)?;
    Ok(Value::Int(i64::try_from(purged).unwrap_or(i64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{FakeHost, call_function, text};
    use vcl::host::Sub;

    #[test]
    fn the_cache_is_told_the_keys() {
        let mut host = FakeHost::default();
        for (function, expected) in VMOD.functions.iter().zip(["keys a b soft false", "keys a b soft true"]) {
            let (value, _) = call_function(&mut host, Sub::Recv, function, None, &[text("a b")]);
            assert!(matches!(value, Ok(Value::Int(7))));
            assert_eq!(host.logged.pop().unwrap(), expected);
        }
    }
}
