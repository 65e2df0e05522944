//! How `backend.list` shows a group, in the form of the directors of Varnish.

use crate::backend::Backend;
use copal_vcl::value::ListForm;
use std::fmt::Write as _;
use std::sync::Arc;

fn word(healthy: bool) -> &'static str {
    if healthy { "healthy" } else { "sick" }
}

/// Appends a group's members, or their count.
pub(super) fn write(members: &[Arc<Backend>], form: ListForm, out: &mut String) {
    let total = members.len();
    let good = members.iter().filter(|member| member.healthy()).count();
    // Writing to a String cannot fail.
    let _ = match (form.members, form.json) {
        (false, false) => write!(out, "{good}/{total}\t{}", word(good > 0)),
        (false, true) => write!(out, "[{good}, {total}, \"{}\"]", word(good > 0)),
        (true, false) => {
            out.push_str("\n\n\tBackend\tHealth\n");
            members.iter().try_for_each(|member| {
                writeln!(out, "\t{}\t{}", member.definition().name, word(member.healthy()))
            })
        }
        (true, true) => {
            let row = |member: &Arc<Backend>| {
                let name = &member.definition().name;
                format!("    \"{name}\": {{\n      \"health\": \"{}\"\n    }}", word(member.healthy()))
            };
            let rows: Vec<String> = members.iter().map(row).collect();
            write!(out, "{{\n  \"backends\": {{\n{}\n  }}\n}},\n", rows.join(",\n"))
        }
    };
}
