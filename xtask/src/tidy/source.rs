//! The checks of one Rust file: its head, its length, where `unsafe` stands, what a pure crate may not name.

use super::Finding;
use super::code::{blank, find_word, line_of};
use super::layers::crate_of;
use super::picture::Picture;

/// All faults of the Rust file `path` with the text `source`.
pub(crate) fn check(picture: &Picture, path: &str, source: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    check_head(path, source, &mut findings);
    let Some(name) = crate_of(path) else { return findings };
    check_length(picture, path, source, &mut findings);
    let code = blank(source);
    check_unsafe(picture, name, path, source, &code, &mut findings);
    if picture.is_pure(name) {
        check_purity(picture, name, path, &code, &mut findings);
    }
    findings
}

fn check_head(path: &str, source: &str, findings: &mut Vec<Finding>) {
    if !source.trim_start().starts_with("//!") {
        findings.push(Finding::new(path, 1, "the file must begin with `//!`: what it is and what it is not"));
    }
}

fn check_length(picture: &Picture, path: &str, source: &str, findings: &mut Vec<Finding>) {
    let lines = source.lines().count();
    if lines > picture.most_lines && !picture.may_be_long(path) {
        let text = format!(
            "{lines} lines, more than {}: split it, or name the reason in layers.toml",
            picture.most_lines
        );
        findings.push(Finding::new(path, 0, text));
    }
}

fn check_unsafe(
    picture: &Picture,
    name: &str,
    path: &str,
    source: &str,
    code: &str,
    findings: &mut Vec<Finding>,
) {
    let lines: Vec<&str> = source.lines().collect();
    for at in find_word(code, "unsafe") {
        let line = line_of(code, at);
        if !picture.may_be_unsafe(name) {
            findings.push(Finding::new(
                path,
                line,
                format!("`unsafe` in {name}: layers.toml does not allow it there"),
            ));
        } else if needs_reason(&code[at + "unsafe".len()..]) && !has_reason(&lines, line) {
            findings.push(Finding::new(
                path,
                line,
                "`unsafe` without a `SAFETY:` line above it that names the invariant",
            ));
        }
    }
}

/// Whether what follows the word `unsafe` is a block or an implementation. A function states its contract under
/// `# Safety` instead, which clippy checks.
fn needs_reason(after: &str) -> bool {
    let after = after.trim_start();
    after.starts_with('{') || after.starts_with("impl")
}

/// Whether a `SAFETY:` comment belongs to `line` (from 1): on the line itself, or above it before another statement ends.
fn has_reason(lines: &[&str], line: usize) -> bool {
    if lines[line - 1].contains("SAFETY:") {
        return true;
    }
    for above in lines[..line - 1].iter().rev().map(|above| above.trim()) {
        if above.starts_with("//") {
            if above.contains("SAFETY:") {
                return true;
            }
        } else if above.is_empty() || above.ends_with([';', '{', '}']) {
            return false;
        }
    }
    false
}

fn check_purity(picture: &Picture, name: &str, path: &str, code: &str, findings: &mut Vec<Finding>) {
    for forbidden in &picture.impure {
        for at in find_word(code, forbidden) {
            let text = format!(
                "`{forbidden}` in {name}, which does no io and reads no clock: take it as an argument"
            );
            findings.push(Finding::new(path, line_of(code, at), text));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::picture::tests::sample;

    fn check(path: &str, source: &str, expected: &[(usize, &str)]) {
        let found = super::check(&sample(), path, source);
        assert_eq!(found.len(), expected.len(), "{source:?}: {found:?}");
        for (finding, (line, part)) in found.iter().zip(expected) {
            assert_eq!(finding.line, *line, "{finding}");
            assert!(finding.text.contains(part), "{finding}");
        }
    }

    #[test]
    fn a_file_begins_by_saying_what_it_is() {
        check("crates/base/src/a.rs", "//! What it is.\n", &[]);
        check("crates/base/src/a.rs", "use std::fmt;\n", &[(1, "must begin")]);
        check("bench/null/src/a.rs", "use std::fmt;\n", &[(1, "must begin")]);
    }

    #[test]
    fn long_files_need_a_reason() {
        let source = format!("//! A.\n{}", "\n".repeat(5));
        check("crates/wire/src/a.rs", &source, &[(0, "6 lines")]);
        check("crates/wire/src/table.rs", &source, &[]);
    }

    #[test]
    fn unsafe_stands_where_it_is_allowed() {
        check("crates/wire/src/a.rs", "//! A.\nfn f() { unsafe { g() } }\n", &[(2, "layers.toml")]);
        check("crates/wire/src/a.rs", "//! A.\n// unsafe\nconst A: &str = \"unsafe\";\n", &[]);
        check("crates/net/src/a.rs", "//! A.\n#![allow(unsafe_code)]\n", &[]);
    }

    #[test]
    fn unsafe_blocks_name_their_invariant() {
        let path = "crates/net/src/a.rs";
        check(path, "//! A.\n// SAFETY: g has no preconditions.\nlet x =\n    unsafe { g() };\n", &[]);
        check(path, "//! A.\nlet x = 1;\nlet y = unsafe { g() };\n", &[(3, "SAFETY")]);
        check(path, "//! A.\n// SAFETY: for z.\nlet z = 1;\nlet y = unsafe { g() };\n", &[(4, "SAFETY")]);
        check(path, "//! A.\nunsafe impl Send for A {}\n", &[(2, "SAFETY")]);
        check(path, "//! A.\npub unsafe fn f() {}\n", &[]);
    }

    #[test]
    fn pure_crates_name_no_socket_and_no_clock() {
        check("crates/wire/src/a.rs", "//! A.\nuse std::net::SocketAddr;\n", &[]);
        check("crates/wire/src/a.rs", "//! A.\nuse tokio::net;\n", &[(2, "tokio")]);
        check("crates/vcl/src/a.rs", "//! A.\nlet now = SystemTime::now();\n", &[(2, "SystemTime")]);
        check("crates/net/src/a.rs", "//! A.\nuse tokio::net;\n", &[]);
    }
}
