//! The module `directors` of Varnish 7.1: backends that choose among backends.
//!
//! A director is an object in VCL and a [`Backend`] to the rest of the program. It is shared by all worker threads: the
//! list of members sits under a read lock that only adding and removing take for writing, what moves with each choice is
//! an atomic. Directors may contain each other, but never themselves: a member that would close a circle is refused.
//!
//! | director    | chooses                                              | is healthy if |
//! |-------------|------------------------------------------------------|---------------|
//! | round_robin | the next healthy member                              | any member is |
//! | fallback    | the first healthy member, or sticks to one           | any member is |
//! | random      | a healthy member, as often as its weight says        | any member is |
//! | hash        | by a string, among the healthy, at the call          | any member is |
//! | shard       | by a key, on a ring of hashes                        | any member is |
//!
//! Where no member is healthy, none is chosen.

mod fallback;
mod hash;
mod members;
mod random;
mod round_robin;
mod shard;

#[cfg(test)]
pub(crate) use members::mix;
pub(crate) use members::unit;

use crate::arguments::{Arguments, functions, optional, or, required};
use copal_origin::Group;
use copal_vcl as vcl;
use fallback::Fallback;
use hash::Hash;
use random::Random;
use round_robin::RoundRobin;
use sha2::{Digest, Sha256};
use shard::Shard;
use std::any::Any;
use std::sync::Arc;
use vcl::host::{Fault, Result, Sub};
use vcl::value::{BackendRef, Value};
use vcl::vmod::{Call, Object, ObjectRef, Type, Vmod};

const BY: Type = Type::Enum(&["HASH", "URL", "KEY", "BLOB"]);
const HEALTHY: Type = Type::Enum(&["CHOSEN", "IGNORE", "ALL"]);
const RESOLVE: Type = Type::Enum(&["NOW", "LAZY"]);

/// The module's table. Source: `vmod_directors(3)` of Varnish 7.1.
pub(crate) static VMOD: Vmod = Vmod {
    name: "directors",
    functions: functions! {
        "lookup"(required("", Type::String)) -> Backend, lookup, in &[Sub::Init, Sub::Fini];
    },
    objects: &[
        Object {
            name: "round_robin",
            parameters: &[],
            make: round_robin::make,
            methods: functions! {
                "add_backend"(required("", Type::Backend)) -> Void, members::add_backend::<RoundRobin>;
                "remove_backend"(required("", Type::Backend)) -> Void, members::remove_backend::<RoundRobin>;
                "backend"() -> Backend, members::itself::<RoundRobin>;
            },
        },
        Object {
            name: "fallback",
            parameters: &[or("sticky", Type::Bool, "false")],
            make: fallback::make,
            methods: functions! {
                "add_backend"(required("", Type::Backend)) -> Void, members::add_backend::<Fallback>;
                "remove_backend"(required("", Type::Backend)) -> Void, members::remove_backend::<Fallback>;
                "backend"() -> Backend, members::itself::<Fallback>;
            },
        },
        Object {
            name: "random",
            parameters: &[],
            make: random::make,
            methods: functions! {
                "add_backend"(required("", Type::Backend), required("", Type::Real)) -> Void, members::add_backend::<Random>;
                "remove_backend"(required("", Type::Backend)) -> Void, members::remove_backend::<Random>;
                "backend"() -> Backend, members::itself::<Random>;
            },
        },
        Object {
            name: "hash",
            parameters: &[],
            make: hash::make,
            methods: functions! {
                "add_backend"(required("", Type::Backend), or("weight", Type::Real, "1.0")) -> Void, members::add_backend::<Hash>;
                "remove_backend"(required("", Type::Backend)) -> Void, members::remove_backend::<Hash>;
                "backend"(required("", Type::Strands)) -> Backend, hash::backend;
            },
        },
        Object {
            name: "shard",
            parameters: &[],
            make: shard::make,
            methods: functions! {
                "set_warmup"(or("probability", Type::Real, "0.0")) -> Void, shard::set_warmup;
                "set_rampup"(or("duration", Type::Duration, "0s")) -> Void, shard::set_rampup;
                "associate"(optional("param", Type::Blob)) -> Void, shard::associate;
                "add_backend"(
                    required("backend", Type::Backend),
                    optional("ident", Type::String),
                    optional("rampup", Type::Duration),
                    optional("weight", Type::Real)
                ) -> Bool, shard::add_backend;
                "remove_backend"(optional("backend", Type::Backend), optional("ident", Type::String))
                    -> Bool, shard::remove_backend;
                "clear"() -> Bool, shard::clear;
                "reconfigure"(or("replicas", Type::Int, "67")) -> Bool, shard::reconfigure;
                "key"(required("", Type::Strands)) -> Int, shard::key;
                "backend"(
                    optional("by", BY),
                    optional("key", Type::Int),
                    optional("key_blob", Type::Blob),
                    optional("alt", Type::Int),
                    optional("warmup", Type::Real),
                    optional("rampup", Type::Bool),
                    optional("healthy", HEALTHY),
                    optional("param", Type::Blob),
                    optional("resolve", RESOLVE)
                ) -> Backend, shard::backend;
                "debug"(required("", Type::Int)) -> Void, shard::debug;
            },
        },
        Object {
            name: "shard_param",
            parameters: &[],
            make: shard::parameters::make,
            methods: functions! {
                "clear"() -> Void, shard::parameters::clear;
                "set"(
                    optional("by", BY),
                    optional("key", Type::Int),
                    optional("key_blob", Type::Blob),
                    optional("alt", Type::Int),
                    optional("warmup", Type::Real),
                    optional("rampup", Type::Bool),
                    optional("healthy", HEALTHY)
                ) -> Void, shard::parameters::set;
                "get_by"() -> String, shard::parameters::get_by;
                "get_key"() -> Int, shard::parameters::get_key;
                "get_alt"() -> Int, shard::parameters::get_alt;
                "get_warmup"() -> Real, shard::parameters::get_warmup;
                "get_rampup"() -> Bool, shard::parameters::get_rampup;
                "get_healthy"() -> String, shard::parameters::get_healthy;
                "use"() -> Blob, shard::parameters::use_;
            },
        },
    ],
};

/// `directors.lookup(name)`: a backend or director of this VCL, in `vcl_init` and `vcl_fini`.
fn lookup(call: &mut Call<'_>) -> Result<Value> {
    let Some(name) = Arguments(call.arguments).text(0)? else { return Ok(Value::Backend(None)) };
    let found = std::str::from_utf8(name).ok().and_then(|name| call.host.find_backend(name));
    Ok(Value::Backend(found))
}

/// The director behind a VCL object, for `backend.list` and for [`vcl::host::Host::find_backend`]; `None` if the object
/// is none.
pub fn director_of(object: &ObjectRef) -> Option<BackendRef> {
    fn as_backend<T: vcl::value::Backend>(object: &ObjectRef) -> Option<BackendRef> {
        let director: Arc<T> = Arc::clone(object).downcast().ok()?;
        Some(director)
    }
    as_backend::<RoundRobin>(object)
        .or_else(|| as_backend::<Fallback>(object))
        .or_else(|| as_backend::<Random>(object))
        .or_else(|| as_backend::<Hash>(object))
        .or_else(|| as_backend::<Shard>(object))
        .or_else(|| as_backend::<Group>(object))
        .or_else(|| as_backend::<crate::saintmode::Saint>(object))
}

/// The object that a method was called on.
fn object<T: Any + Send + Sync>(call: &Call<'_>) -> Result<Arc<T>> {
    call.object
        .and_then(|object| Arc::clone(object).downcast().ok())
        .ok_or_else(|| Fault("a director's method was called on something else".into()))
}

/// The number that Varnish hashes a string to: the last four bytes of its SHA-256, the first of them the lowest.
fn hash_of(parts: &[&[u8]]) -> u32 {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update(part);
    }
    let digest: [u8; 32] = hasher.finalize().into();
    u32::from_le_bytes([digest[28], digest[29], digest[30], digest[31]])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{FakeHost, call_function, fakes, text};

    #[test]
    fn strings_hash_as_in_varnish() {
        for (string, hash) in
            [("", 1_438_143_096), ("5", 2_648_944_484), ("5s", 3_081_988_664), ("inf", 613_213_058)]
        {
            assert_eq!(hash_of(&[string.as_bytes()]), hash, "{string}");
        }
        assert_eq!(hash_of(&[b"in", b"", b"f"]), 613_213_058);
    }

    #[test]
    fn lookup_by_name() {
        let mut host = FakeHost::default();
        host.backends.insert("b1".into(), fakes(1).remove(0));
        for (name, found) in [(text("b1"), true), (text("b2"), false), (Value::String(None), false)] {
            let value = call_function(&mut host, Sub::Init, &VMOD.functions[0], None, &[name]).0.unwrap();
            assert!(matches!(value, Value::Backend(backend) if backend.is_some() == found));
        }
    }

    #[test]
    fn objects_are_directors_but_for_parameter_sets() {
        for object in VMOD.objects {
            let mut host = FakeHost::default();
            let arguments = crate::testing::complete(object.parameters, &[]);
            let mut call = Call {
                host: &mut host,
                arguments: &arguments,
                object: None,
                subroutine: Sub::Init,
                regexes: &[],
                wait: None,
            };
            let made = (object.make)("d", &mut call).unwrap();
            let director = director_of(&made);
            assert_eq!(director.is_some(), object.name != "shard_param", "{}", object.name);
            if let Some(director) = director {
                assert_eq!(director.name(), "d");
                assert_eq!(director.kind(), object.name.replace('_', "-"));
            }
        }
    }
}
