//! The check of dependency edges: every in-workspace dependency of every `Cargo.toml` against the picture.

use toml::{Table, Value};

use super::Finding;
use super::picture::Picture;
use super::tree::File;

/// What in-workspace packages are called: this prefix and the name of their folder.
const PREFIX: &str = "copal-";

/// Faults of all manifests among `files` that stand under `crates/`, `bin/` or `xtask/`.
///
/// # Errors
/// A sentence that names the manifest that is not TOML.
pub(crate) fn check(picture: &Picture, files: &[File]) -> Result<Vec<Finding>, String> {
    let mut findings = Vec::new();
    for file in files {
        if let Some(name) = crate_of_manifest(&file.path) {
            findings.extend(check_manifest(picture, name, &file.path, &file.text)?);
        }
    }
    Ok(findings)
}

/// The crate a path belongs to, by its folder: `crates/wire/src/x.rs` gives `wire`.
pub(crate) fn crate_of(path: &str) -> Option<&str> {
    let mut parts = path.split('/');
    match parts.next()? {
        "crates" | "bin" => parts.next(),
        "xtask" => Some("xtask"),
        _ => None,
    }
}

fn crate_of_manifest(path: &str) -> Option<&str> {
    let name = crate_of(path)?;
    let depth = if name == "xtask" { 1 } else { 2 };
    (path.ends_with("/Cargo.toml") && path.matches('/').count() == depth).then_some(name)
}

fn check_manifest(picture: &Picture, name: &str, path: &str, text: &str) -> Result<Vec<Finding>, String> {
    let manifest: Table = text.parse().map_err(|error| format!("{path}: {error}"))?;
    let mut findings = Vec::new();
    if !picture.knows(name) {
        findings.push(Finding::new(path, 0, format!("{name} has no place in layers.toml")));
    }
    let package = manifest.get("package").and_then(|package| package.get("name")).and_then(Value::as_str);
    if package != Some(name) && package != Some(&format!("{PREFIX}{name}")) {
        findings.push(Finding::new(path, 0, format!("the package must be called {PREFIX}{name}")));
    }
    for to in dependencies(&manifest) {
        if let Some(fault) = picture.edge_fault(name, &to) {
            let line = text.lines().position(|line| line.trim_start().starts_with(&format!("{PREFIX}{to}")));
            findings.push(Finding::new(path, line.map_or(0, |line| line + 1), fault));
        }
    }
    Ok(findings)
}

/// In-workspace dependencies of any kind (normal, build, dev, and those of `[target.*]`), by folder name.
fn dependencies(manifest: &Table) -> Vec<String> {
    let mut names = Vec::new();
    let targets = manifest.get("target").and_then(Value::as_table);
    let tables = targets.into_iter().flat_map(Table::values).filter_map(Value::as_table);
    for table in std::iter::once(manifest).chain(tables) {
        for kind in ["dependencies", "dev-dependencies", "build-dependencies"] {
            let Some(entries) = table.get(kind).and_then(Value::as_table) else { continue };
            for (key, value) in entries {
                // `alias = { package = "copal-x", ... }` is the same edge under another name.
                let package = value.get("package").and_then(Value::as_str).unwrap_or(key);
                names.extend(package.strip_prefix(PREFIX).map(str::to_owned));
            }
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::super::picture::tests::sample;
    use super::*;

    fn check(name: &str, body: &str, expected: &[&str]) {
        let file = File {
            path: format!("crates/{name}/Cargo.toml"),
            text: format!("[package]\nname = \"copal-{name}\"\n{body}"),
        };
        let found = super::check(&sample(), &[file]).expect("the manifest is TOML");
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (finding, part) in found.iter().zip(expected) {
            assert!(finding.text.contains(part), "{finding}");
        }
    }

    #[test]
    fn downward_edges_pass() {
        check(
            "cache",
            "[dependencies]\ncopal-base.workspace = true\ncopal-net = { path = \"../net\" }\ntokio = \"1\"",
            &[],
        );
    }

    #[test]
    fn upward_and_sideways_edges_fail() {
        check("wire", "[dependencies]\ncopal-vcl.workspace = true", &["beside"]);
        check("base", "[dependencies]\ncopal-cache.workspace = true", &["above"]);
    }

    #[test]
    fn no_kind_of_dependency_is_a_way_around() {
        check("wire", "[dev-dependencies]\ncopal-net.workspace = true", &["above"]);
        check("wire", "[build-dependencies]\ncopal-net.workspace = true", &["above"]);
        check("wire", "[dependencies]\nother = { package = \"copal-net\", path = \"../net\" }", &["above"]);
        check("wire", "[target.'cfg(unix)'.dependencies]\ncopal-net.workspace = true", &["above"]);
    }

    #[test]
    fn a_crate_without_a_place_fails() {
        check("stranger", "", &["no place"]);
    }

    #[test]
    fn a_package_with_another_name_fails() {
        let file =
            File { path: "crates/wire/Cargo.toml".to_owned(), text: "[package]\nname = \"x\"".to_owned() };
        assert_eq!(super::check(&sample(), &[file]).expect("TOML").len(), 1);
    }

    #[test]
    fn the_line_of_the_edge_is_named() {
        let text =
            "[package]\nname = \"copal-wire\"\n[dependencies]\ncopal-net.workspace = true\n".to_owned();
        let found = super::check(&sample(), &[File { path: "crates/wire/Cargo.toml".to_owned(), text }]);
        assert_eq!(found.expect("TOML")[0].line, 4);
    }

    #[test]
    fn a_path_names_its_crate() {
        assert_eq!(crate_of("crates/wire/src/h1.rs"), Some("wire"));
        assert_eq!(crate_of("bin/daemon/src/main.rs"), Some("daemon"));
        assert_eq!(crate_of("xtask/src/main.rs"), Some("xtask"));
        assert_eq!(crate_of("bench/null/src/lib.rs"), None);
    }
}
