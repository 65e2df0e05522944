//! Tables of signatures, and typed access to a call's arguments.
//!
//! The compiler has checked a call against its table, so an argument is of its declared type. An access that finds
//! another type is a fault of ours; it fails the request with a sentence that names the argument.

use copal_base::{Seconds, Time};
use copal_vcl as vcl;
use std::net::SocketAddr;
use vcl::host::{Fault, Result, Side};
use vcl::regex::Regex;
use vcl::value::{BackendRef, Text, Value};
use vcl::vmod::{Default, Parameter, Type};

/// A parameter that must be given.
pub(crate) const fn required(name: &'static str, kind: Type) -> Parameter {
    Parameter { name, kind, default: Default::Required }
}

/// A parameter that is [`Value::Void`] where it is not given.
pub(crate) const fn optional(name: &'static str, kind: Type) -> Parameter {
    Parameter { name, kind, default: Default::Optional }
}

/// A parameter with a default, as VCL source text.
pub(crate) const fn or(name: &'static str, kind: Type, literal: &'static str) -> Parameter {
    Parameter { name, kind, default: Default::Literal(literal) }
}

/// A table of functions: `"name"(parameters) -> result, body, scope;` where an empty scope means everywhere.
macro_rules! functions {
    ($( $name:literal ( $($parameter:expr),* ) -> $returns:ident, $body:path $(, in $scope:expr)? ; )*) => {
        &[ $( copal_vcl::vmod::Function {
            name: $name,
            returns: copal_vcl::vmod::Type::$returns,
            parameters: &[ $($parameter),* ],
            scope: functions!(@scope $($scope)?),
            body: $body,
        } ),* ]
    };
    (@scope) => { &[] };
    (@scope $scope:expr) => { $scope };
}
pub(crate) use functions;

/// The arguments of a call, by position.
#[derive(Clone, Copy)]
pub(crate) struct Arguments<'call>(pub(crate) &'call [Value]);

/// One reader for each type that is cheap to copy.
macro_rules! readers {
    ($( $name:ident, $variant:ident, $type:ty; )*) => {
        $( pub(crate) fn $name(self, index: usize) -> Result<$type> {
            match self.0.get(index) {
                Some(Value::$variant(value)) => Ok(*value),
                other => Err(wrong(index, stringify!($variant), other)),
            }
        } )*
    };
}

impl<'call> Arguments<'call> {
    /// Whether the call gave this one, for those without a default.
    pub(crate) fn given(self, index: usize) -> bool {
        !matches!(self.0.get(index), None | Some(Value::Void))
    }

    /// The argument if the call gave it, by one of the readers below.
    pub(crate) fn maybe<T>(
        self,
        index: usize,
        read: impl FnOnce(Self, usize) -> Result<T>,
    ) -> Result<Option<T>> {
        if self.given(index) { read(self, index).map(Some) } else { Ok(None) }
    }

    readers! {
        boolean, Bool, bool;
        integer, Int, i64;
        real, Real, f64;
        duration, Duration, Seconds;
        time, Time, Time;
        bytes, Bytes, u64;
        ip, Ip, Option<SocketAddr>;
        word, Enum, &'static str;
    }

    /// A STRING; `None` is the unset string.
    pub(crate) fn text(self, index: usize) -> Result<Option<&'call Text>> {
        match self.0.get(index) {
            Some(Value::String(text)) => Ok(text.as_ref()),
            other => Err(wrong(index, "String", other)),
        }
    }

    /// A STRING where the unset one counts as empty.
    pub(crate) fn text_or_empty(self, index: usize) -> Result<&'call [u8]> {
        Ok(self.text(index)?.map_or(&[], |text| &text[..]))
    }

    /// A BACKEND; `None` is VCL's `none`.
    pub(crate) fn backend(self, index: usize) -> Result<Option<&'call BackendRef>> {
        match self.0.get(index) {
            Some(Value::Backend(backend)) => Ok(backend.as_ref()),
            other => Err(wrong(index, "Backend", other)),
        }
    }

    /// A BLOB; `None` is the unset one.
    pub(crate) fn blob(self, index: usize) -> Result<Option<&'call bytes::Bytes>> {
        match self.0.get(index) {
            Some(Value::Blob(blob)) => Ok(blob.as_ref()),
            other => Err(wrong(index, "Blob", other)),
        }
    }

    /// STRANDS that were not joined.
    pub(crate) fn strands(self, index: usize) -> Result<&'call [Option<Text>]> {
        match self.0.get(index) {
            Some(Value::Strands(strands)) => Ok(strands),
            other => Err(wrong(index, "Strands", other)),
        }
    }

    /// A REGEX, among those of the call.
    pub(crate) fn regex(self, index: usize, regexes: &'call [Regex]) -> Result<&'call Regex> {
        match self.0.get(index) {
            Some(&Value::Code(code)) => regexes.get(code as usize).ok_or_else(|| {
                Fault(format!("argument {} is regular expression {code} of {}", index + 1, regexes.len()))
            }),
            other => Err(wrong(index, "Code", other)),
        }
    }

    /// A HEADER.
    pub(crate) fn header(self, index: usize) -> Result<(Side, &'call Text)> {
        match self.0.get(index) {
            Some(Value::Header(side, name)) => Ok((*side, name)),
            other => Err(wrong(index, "Header", other)),
        }
    }
}

fn wrong(index: usize, wanted: &str, found: Option<&Value>) -> Fault {
    Fault(format!("argument {} is not the {wanted} its signature says but {found:?}", index + 1))
}
