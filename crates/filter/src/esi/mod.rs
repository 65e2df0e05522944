//! Edge Side Includes: markup in a body that takes parts out of it and puts the bodies of other requests in.
//!
//! On fetch, [`parse`] reads the markup as it streams by. [`fetch`] hands the body on as it is (or compressed, so that it can
//! be taken apart without being expanded), and beside it a [`script`]: which bytes are sent, which are left out, and where
//! the includes are. Delivery follows the script ([`script::ScriptReader`]) and puts the included bodies in; that takes
//! requests, and is not done here. A body without markup gets no script.
//!
//! Source: W3C Note "ESI Language Specification 1.0" for the elements; Varnish for what it makes of them.

pub(crate) mod attributes;
pub mod fetch;
#[cfg(test)]
mod model;
pub mod parse;
pub mod script;
