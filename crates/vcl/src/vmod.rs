//! The contract between the language and its modules (VMODs).
//!
//! A module is a static table: functions and objects with their signatures, each with the Rust function behind it. The
//! compiler checks calls against the table and fills in defaults, so a function sees exactly its parameters, in order,
//! each of its type; an optional one that was not given is [`Value::Void`].

use crate::host::{Host, Result, Sub};
use crate::value::Value;
use std::any::Any;
use std::sync::Arc;

/// The static type of a parameter or result, in the words of a `.vcc` file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Type {
    Void,
    Bool,
    Int,
    Real,
    Duration,
    Time,
    Bytes,
    String,
    /// A list of strings that the call joins; the function gets one STRING.
    Strands,
    /// A list of strings that the call does not join; the function gets a [`Value::Strands`].
    StrandList,
    Ip,
    Backend,
    Acl,
    Probe,
    Header,
    /// A whole message; the function gets [`Value::Enum`] with its name: `req`, `bereq`, `beresp` or `resp`.
    Http,
    Storage,
    Blob,
    /// A regular expression written as a literal.
    Regex,
    /// One of these words.
    Enum(&'static [&'static str]),
    Sub,
}

/// What a parameter is when the call leaves it out.
#[derive(Clone, Copy, Debug)]
pub enum Default {
    /// It must be given.
    Required,
    /// `[TYPE name]`: [`Value::Void`].
    Optional,
    /// A literal of its type, as VCL source text (`"1.0"`, `\"x\"`, `10s`, `LAZY`).
    Literal(&'static str),
}

/// One parameter.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// The name, for calls by name. Empty if it has none.
    pub name: &'static str,
    /// Its type.
    pub kind: Type,
    /// What it is when left out.
    pub default: Default,
}

/// The signature and body of a function or method.
#[derive(Clone, Copy)]
pub struct Function {
    /// The name after the dot.
    pub name: &'static str,
    /// What it returns.
    pub returns: Type,
    /// What it takes.
    pub parameters: &'static [Parameter],
    /// The subroutines it may be called from; empty for all.
    pub scope: &'static [Sub],
    /// The body.
    pub body: fn(&mut Call<'_>) -> Result<Value>,
}

/// An object type: `new x = module.type(...)` in `vcl_init`.
#[derive(Clone, Copy)]
pub struct Object {
    /// The type's name.
    pub name: &'static str,
    /// The constructor's parameters.
    pub parameters: &'static [Parameter],
    /// Makes the object; `name` is the variable's name in VCL.
    pub make: fn(name: &str, &mut Call<'_>) -> Result<ObjectRef>,
    /// Its methods.
    pub methods: &'static [Function],
}

/// A module.
#[derive(Clone, Copy)]
pub struct Vmod {
    /// The name that `import` takes.
    pub name: &'static str,
    /// Plain functions.
    pub functions: &'static [Function],
    /// Object types.
    pub objects: &'static [Object],
}

/// A live object, owned by the VCL instance that made it.
pub type ObjectRef = Arc<dyn Any + Send + Sync>;

/// The modules a compiler knows.
pub trait Registry: Sync {
    /// The module of that name.
    fn find(&self, name: &str) -> Option<&'static Vmod>;
}

/// One call as its function sees it.
pub struct Call<'call> {
    /// The request, or the load for `vcl_init` and `vcl_fini`.
    pub host: &'call mut dyn Host,
    /// The arguments, complete and of their types.
    pub arguments: &'call [Value],
    /// The object, for a method.
    pub object: Option<&'call ObjectRef>,
    /// The subroutine that runs.
    pub subroutine: Sub,
    /// The instance's regular expressions, by the index in [`Value::Code`].
    pub regexes: &'call [crate::regex::Regex],
    /// Set by a function that must wait for something only the caller can do; see [`crate::exec::Wait`].
    pub wait: Option<crate::exec::Wait>,
}
