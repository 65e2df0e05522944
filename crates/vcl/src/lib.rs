//! VCL, the Varnish Configuration Language, versions 4.0 and 4.1.
//!
//! Source text becomes a [`program::Program`] in stages that cannot be skipped: lex, parse, check, lower. A program is
//! shared by all threads and never changes; an [`instance::Instance`] adds what a load of it owns (backends, VMOD
//! objects); an [`exec::Machine`] runs a subroutine of it against a [`host::Host`], which stands for the request.
//!
//! This crate reads no clock, opens no file and knows no cache: whatever VCL can touch comes through `Host`.

pub mod exec;
pub mod host;
pub mod instance;
pub mod program;
pub mod regex;
pub mod value;
pub mod variables;
pub mod vmod;
