//! Edge Side Includes: markup in a body that takes parts out of it and puts the bodies of other requests in.
//!
//! On fetch, [`parse`] reads the markup as it streams by, [`fetch`] stores the body as it is (or compressed, so that it can
//! be taken apart without being expanded) and beside it a [`plan`]: which bytes are sent, which are left out, and where the
//! includes are. On delivery, [`assemble`] walks the plan. Where the body says nothing to ESI there is no plan.
//!
//! Source: W3C Note "ESI Language Specification 1.0" for the elements; Varnish for what it makes of them.

pub(crate) mod assemble;
pub(crate) mod attributes;
pub(crate) mod fetch;
#[cfg(test)]
mod model;
pub(crate) mod parse;
pub(crate) mod plan;
