//! The record of why a request or a fetch came as it did: `explain: <reason>`, or
//! `explain: <reason> <subroutine> <file>:<line>` where VCL decided. A fresh hit leaves none.

use catalog::reason::Reason;
use copal_catalog as catalog;
use copal_observe as observe;
use copal_vcl as vcl;
use observe::{Records, Tag};
use vcl::places::Place;

/// The record of a reason, with the place in VCL that decided, if one did.
pub(crate) fn log_reason(records: &mut Records, reason: Reason, place: Option<Place<'_>>) {
    let name = reason.name();
    match place {
        Some(Place { subroutine, file, line, .. }) => {
            records.fmt(Tag::Notice, format_args!("explain: {name} {subroutine} {file}:{line}"));
        }
        None => records.fmt(Tag::Notice, format_args!("explain: {name}")),
    }
}
