//! The tree that the checker makes: every name is resolved, every conversion stands in it, nothing can be wrong any
//! more. Lowering only writes it down in another form.

use crate::host::Side;
use crate::source::Span;
use crate::value::{Text, Value};
use crate::variables::{StorageVar, Var};

/// A static type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Type {
    Void,
    Body,
    Bool,
    Int,
    Real,
    Duration,
    Time,
    Bytes,
    String,
    Ip,
    Backend,
    Acl,
    Probe,
    Header,
    /// A whole message: the word that names it.
    Http,
    Storage,
    Blob,
    Regex,
    Sub,
    Enum(&'static [&'static str]),
    /// An object by its index: no value, but messages name it.
    Object(u32),
}

impl Type {
    /// The name in messages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Type::Void => "VOID",
            Type::Body => "BODY",
            Type::Bool => "BOOL",
            Type::Int => "INT",
            Type::Real => "REAL",
            Type::Duration => "DURATION",
            Type::Time => "TIME",
            Type::Bytes => "BYTES",
            Type::String => "STRING",
            Type::Ip => "IP",
            Type::Backend => "BACKEND",
            Type::Acl => "ACL",
            Type::Probe => "PROBE",
            Type::Header => "HEADER",
            Type::Http => "HTTP",
            Type::Storage => "STEVEDORE",
            Type::Blob => "BLOB",
            Type::Regex => "REGEX",
            Type::Sub => "SUB",
            Type::Enum(_) => "ENUM",
            Type::Object(_) => "INSTANCE",
        }
    }
}

/// An expression with its type and place.
#[derive(Debug)]
pub(crate) struct Typed {
    pub(crate) node: Node,
    pub(crate) kind: Type,
    pub(crate) span: Span,
}

/// A resolved expression.
#[derive(Debug)]
pub(crate) enum Node {
    /// Anything but a string.
    Const(Value),
    Text(Text),
    Var(Var),
    /// A field's value, as a string.
    Field(Side, Text),
    StorageProperty(Box<Node>, StorageVar),
    Backend(u32),
    Acl(u32),
    DefaultBackend,
    /// Strings, and values that print as strings.
    Concat(Vec<Node>),
    /// The same, not joined: an argument of a VMOD's.
    Strands(Vec<Node>),
    Negate(Box<Node>),
    Arithmetic(Arithmetic, Box<Node>, Box<Node>),
    /// A value as a condition; of a string, whether it is set.
    Truth(Box<Node>, Type),
    Not(Box<Node>),
    And(Vec<Node>),
    Or(Vec<Node>),
    Compare(Comparison, Box<Node>, Box<Node>),
    CompareText(Comparison, Box<Node>, Box<Node>),
    Match {
        subject: Box<Node>,
        regex: u32,
        negated: bool,
    },
    InAcl {
        address: Box<Node>,
        acl: u32,
        negated: bool,
    },
    Regsub {
        all: bool,
        subject: Box<Node>,
        regex: u32,
        replacement: Box<Node>,
    },
    Lower(Box<Node>),
    Upper(Box<Node>),
    Resolve(Box<Node>),
    /// A VMOD's function, or the method of an object. The arguments are complete.
    Vmod {
        function: u32,
        object: Option<u32>,
        arguments: Vec<(Node, Type)>,
    },
}

/// What `+ - * / %` do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arithmetic {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

/// How two values are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Comparison {
    Equal,
    Unequal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// A resolved statement and where it stands.
#[derive(Debug)]
pub(crate) struct Placed {
    pub(crate) act: Act,
    pub(crate) span: Span,
}

/// A condition, where it stands, and what is done if it holds.
#[derive(Debug)]
pub(crate) struct Arm {
    pub(crate) condition: Node,
    pub(crate) span: Span,
    pub(crate) block: Vec<Placed>,
}

/// A resolved statement.
#[derive(Debug)]
pub(crate) enum Act {
    If(Vec<Arm>, Vec<Placed>),
    SetVar(Var, Node),
    SetText(Var, Node),
    SetField(Side, Text, Node),
    /// The body of a synthetic answer, replaced or appended to.
    SetBody(Node, bool),
    UnsetVar(Var),
    UnsetField(Side, Text),
    Call(u32),
    /// A bare `return`.
    Leave,
    Finish(Verdict),
    /// A call for its effect.
    Do(Node),
    HashData(Node),
    Ban(Node),
    Rollback(Side),
    New {
        object: u32,
        arguments: Vec<(Node, Type)>,
    },
}

/// A `return (action)` with its arguments.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// An action without arguments.
    Plain(Plain),
    Fail(Option<Node>),
    Synth(Node, Option<Node>),
    Error(Option<(Node, Option<Node>)>),
    HitForPass(Node),
    Vcl(Text),
}

/// The actions that take no argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plain {
    Restart,
    Pass,
    Pipe,
    Hash,
    Purge,
    Lookup,
    Fetch,
    Deliver,
    Abandon,
    Retry,
    Ok,
}
