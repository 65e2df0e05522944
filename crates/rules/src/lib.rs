//! HTTP caching rules as pure functions on messages: no input or output, no clock, no VCL. Time is an argument.
//!
//! Where Varnish and the RFCs differ, each function says which it follows; a drop-in must decide as Varnish does unless
//! that would be unsafe.
//!
//! Begin with [`ttl`] (how long) and [`storable`] (whether), then [`vary`] (for whom) and [`conditional`] (is it still so).

pub mod cache_control;
pub mod coding;
pub mod conditional;
pub mod hop;
pub mod storable;
pub mod ttl;
pub mod vary;
