//! VCL, the Varnish Configuration Language, versions 4.0 and 4.1.
//!
//! Source text becomes a [`program::Program`] in stages that cannot be skipped: lex, parse, check, lower. A program is
//! shared by all threads and never changes; an [`instance::Instance`] adds what a load of it owns (backends, VMOD
//! objects); an [`exec::Machine`] runs a subroutine of it against a [`host::Host`], which stands for the request.
//!
//! [`compile::compile`] is the way in. This crate reads no clock, opens no file and knows no cache: whatever VCL can touch comes through `Host`.

mod acl;
mod check;
mod check_call;
mod check_expression;
mod code;
mod compare;
pub mod compile;
pub mod convert;
mod declare;
pub mod diagnostics;
pub mod exec;
mod flow;
pub mod host;
pub mod instance;
mod lex;
mod lower;
mod parse;
mod parse_expression;
pub mod places;
pub mod program;
pub mod regex;
mod source;
mod symbols;
mod syntax;
mod typed;
pub mod value;
pub mod variables;
pub mod vmod;

pub use compile::{Options, compile};
pub use diagnostics::Diagnostics;
