//! `-x`: what the tables of this program say, for manuals and scripts. In reStructuredText, as Varnish prints it.

use crate::{args, parameters};
use copal_admin as admin;
use copal_observe as observe;
use copal_vcl as vcl;
use std::fmt::Write as _;

/// The text about `topic`, if there is such a topic.
pub(crate) fn about(topic: &str) -> Option<String> {
    match topic {
        "parameter" => Some(all_parameters()),
        "vsl" => Some(tags()),
        "cli" => Some(commands()),
        "builtin" => Some(vcl::compile::BUILTIN.to_owned()),
        "optstring" => Some(format!("{}\n", args::OPTIONS)),
        _ => None,
    }
}

/// A heading.
fn head(name: &str, line: char, out: &mut String) {
    let _ = writeln!(out, "{name}\n{}", line.to_string().repeat(name.chars().count()));
}

fn all_parameters() -> String {
    let mut text = "\n.. The following is made from copald -x parameter\n\n".to_owned();
    for row in parameters::rows() {
        parameters::manual(row, &mut text);
    }
    text
}

fn tags() -> String {
    let mut text = "\n.. The following is made from copald -x vsl\n\n".to_owned();
    for tag in observe::Tag::ALL.iter().filter(|tag| !tag.is_unused()) {
        head(tag.name(), '-', &mut text);
        let _ = write!(text, "\n{}.\n\n", tag.description());
        if !observe::Mask::default().has(*tag) {
            text.push_str("NB: vsl_mask leaves this record out unless told otherwise.\n\n");
        }
    }
    text
}

fn commands() -> String {
    let mut text = String::new();
    for command in admin::COMMANDS.iter().filter(|command| !command.hidden()) {
        let _ = write!(text, "\n.. _ref_cli_{}:\n\n", command.name.replace('.', "_"));
        head(command.syntax, '~', &mut text);
        let _ = writeln!(text, "  {}", command.help);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(topic: &str, parts: &[&str]) {
        let text = about(topic).unwrap();
        for part in parts {
            assert!(text.contains(part), "{topic} lacks {part:?}:\n{text}");
        }
    }

    #[test]
    fn topics() {
        check(
            "parameter",
            &[
                ".. _ref_param_default_ttl:\n\ndefault_ttl\n~~~~~~~~~~~\n\t* Units: seconds\n\t* Default: 120.000\n",
            ],
        );
        check("vsl", &["\nReqURL\n------\n\n", "\nDebug\n-----\n"]);
        check("cli", &["\n.. _ref_cli_vcl_use:\n\nvcl.use ", "\n~~~~"]);
        check("builtin", &["sub vcl_builtin_recv {"]);
        check("optstring", &["?a:b:C"]);
        assert_eq!(about("nope"), None);
    }

    /// Each letter that the arguments know is in the list, and no other.
    #[test]
    fn option_letters() {
        let letters: String = args::OPTIONS.chars().filter(|letter| *letter != ':').collect();
        for letter in ('a'..='z').chain('A'..='Z') {
            let refused = args::parse(&[format!("-{letter}"), "x".into()]);
            let unknown = refused.is_err_and(|error| error.to_string().starts_with("invalid option"));
            // -E is known only to be refused with a reason.
            assert_eq!(letters.contains(letter) || letter == 'E', !unknown, "{letter}");
        }
    }
}
