//! The module `dynamic`: empty. Deployed VCL imports it and calls nothing of it, so the import must succeed; a call of
//! anything in it is a compile error, as of any unknown function.

use copal_vcl::vmod::Vmod;

/// The module's table.
pub(crate) static VMOD: Vmod = Vmod { name: "dynamic", functions: &[], objects: &[] };
