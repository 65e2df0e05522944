//! HTTP caching rules as pure functions on messages: no input or output, no clock, no VCL. Time is an argument.
//!
//! There are two books. With `rfc=off` [`ttl`] (how long) and [`storable`] (whether) decide as Varnish does; with `rfc=on`
//! [`judge`] decides both by RFC 9111, [`request`] reads what the client wants, [`reuse`] whether that fits what is stored,
//! [`invalidate`] what an unsafe request makes unusable. For both there are [`vary`] (for whom), [`conditional`] (is it still
//! so), [`hop`] (which fields end here) and [`coding`]. [`differences`] is the list of
//! where the two books differ.

pub mod age;
pub mod cache_control;
pub mod cache_status;
pub mod coding;
pub mod conditional;
pub mod differences;
pub mod directive;
pub mod heuristics;
pub mod hop;
pub mod invalidate;
pub mod judge;
pub mod policy;
pub mod proxy_status;
pub mod request;
pub mod reuse;
pub mod stale_if_error;
pub mod storable;
mod structured;
pub mod targeted;
pub mod ttl;
pub mod vary;
