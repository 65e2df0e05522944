//! VCL text to a program: files, modules, and the one-backend VCL of `-b`.
//!
//! The manager compiles to say what is wrong and to note all that went into it ([`compile`]); the worker compiles again
//! from what was noted ([`again`]).

mod captured;

use crate::jail::Jail;
use crate::parameters::{self, Parameters};
use crate::server::{Compiled, Label, Source};
pub(crate) use captured::Captured;
use captured::{Recording, World};
use copal_observe as observe;
use copal_vcl as vcl;
use copal_vmods as vmods;
use std::io::Read as _;
use std::net::{IpAddr, ToSocketAddrs as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vcl::program::Program;

/// The most bytes of one VCL file that are read.
const FILE_MAX: u64 = 16 << 20;
/// The most files that one pattern of `include +glob` may match.
const GLOB_MAX: usize = 1_000;

/// Compiles `source` with the built-in VCL behind it. Relative names in `include` are looked for as `vcl_path` says;
/// `labels` are those that `return (vcl(..))` may name, `stores` those that `storage.x` may; `jail` is the worker's, which
/// must reach sockets.
///
/// # Errors
/// The compiler's message: what is wrong, where, the line, a mark under it.
pub(crate) fn compile(
    source: &Source,
    labels: &[Label],
    stores: &[String],
    parameters: &Parameters,
    jail: Jail,
) -> Result<Compiled<Arc<Captured>>, String> {
    let settings = parameters::settings(parameters);
    let world = Recording::new(Files { path: &parameters.vcl_path }, source, settings, stores);
    let is_label = |name: &str| labels.iter().any(|label| label.name == name);
    let socket = |path: &str| socket(path, jail);
    let first = First { labels: &is_label, socket: &socket };
    let program = make(source, Some(&first), stores, parameters, &world)?;
    let sources = program
        .sources
        .iter()
        .map(|(name, text)| Source { name: name.clone(), text: text.clone().into() })
        .collect();
    let modules = program.modules.iter().map(|&name| name.to_owned()).collect();
    let (labels, warnings) = (program.labels(), program.warnings);
    Ok(Compiled { program: Arc::new(world.finish()), sources, modules, labels, warnings })
}

/// Compiles once more what was compiled before.
///
/// # Errors
/// The compiler's message, though the same was accepted before.
pub(crate) fn again(captured: &Captured) -> Result<Arc<Program>, String> {
    let parameters = parameters::from_settings(&captured.settings);
    make(&captured.source, None, &captured.stores, &parameters, captured).map(Arc::new)
}

/// What is looked at the first time only. The second time a VCL is known to compile, and to look again could only
/// disagree.
struct First<'a> {
    /// Whether there is such a label.
    labels: &'a dyn Fn(&str) -> bool,
    /// Whether a backend can be behind that path.
    socket: &'a dyn Fn(&str) -> Result<(), vcl::compile::Socket>,
}

fn make(
    source: &Source,
    first: Option<&First<'_>>,
    stores: &[String],
    parameters: &Parameters,
    world: &dyn World,
) -> Result<Program, String> {
    let limit = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
    vcl::regex::configure(
        limit(parameters.pcre2_match_limit),
        limit(parameters.pcre2_depth_limit),
        parameters.pcre2_jit_compilation,
    );
    let options = vcl::Options {
        include: &|name, from| world.include(name, from).map(|source| (source.name, source.text)),
        glob: &|pattern, from| world.glob(pattern, from),
        resolve: &|host| world.resolve(host),
        labels: first.map(|first| first.labels),
        storages: Some(stores),
        socket: first.map(|first| first.socket),
        unreferenced_is_error: parameters.vcc_err_unref,
        unsafe_path: first.is_none() || parameters.vcc_unsafe_path,
        ..vcl::Options::new(vmods::registry())
    };
    vcl::compile(&source.name, &source.text, &options).map_err(|problems| problems.to_string())
}

/// The files of this machine, relative names as `vcl_path` says, and its resolver.
struct Files<'a> {
    path: &'a str,
}

impl World for Files<'_> {
    fn include(&self, name: &str, from: &str) -> Result<Source, String> {
        read(&beside(name, from), self.path)
    }

    fn glob(&self, pattern: &str, from: &str) -> Result<Vec<String>, String> {
        Ok(expand(&beside(pattern, from), self.path))
    }

    fn resolve(&self, host: &str) -> Result<Vec<IpAddr>, String> {
        resolve(host)
    }
}

/// Whether a backend of the worker can be behind that path.
fn socket(path: &str, jail: Jail) -> Result<(), vcl::compile::Socket> {
    use std::os::unix::fs::FileTypeExt as _;
    if !jail.worker_reaches(Path::new(path)) {
        return Err(vcl::compile::Socket::Missing("Permission denied".to_owned()));
    }
    match std::fs::metadata(path) {
        Ok(found) if found.file_type().is_socket() => Ok(()),
        Ok(_) => Err(vcl::compile::Socket::NotASocket),
        Err(error) => Err(vcl::compile::Socket::Missing(describe(&error))),
    }
}

/// The compiler's message as Varnish frames it.
pub(crate) fn failure(message: &str) -> String {
    let end = if message.ends_with('\n') { "" } else { "\n" };
    format!("Message from VCC-compiler:\n{message}{end}Running VCC-compiler failed, exited with 2\n")
}

/// Reads a VCL file; a relative name is looked for in the directories of `path`, or where we are if it
/// begins with `./`.
///
/// # Errors
/// The compiler's message.
pub(crate) fn read_file(name: &str, path: &str) -> Result<Source, String> {
    read(name, path).map_err(|why| format!("Cannot read file '{name}' ({why})"))
}

/// As [`read_file`]; the error is the reason alone.
fn read(name: &str, path: &str) -> Result<Source, String> {
    let candidates = places(name, path);
    let found = candidates.iter().find(|file| file.is_file()).unwrap_or(&candidates[candidates.len() - 1]);
    let file = std::fs::File::open(found).map_err(|error| describe(&error))?;
    let mut text = Vec::new();
    file.take(FILE_MAX + 1).read_to_end(&mut text).map_err(|error| describe(&error))?;
    if text.len() as u64 > FILE_MAX {
        return Err(format!("longer than {FILE_MAX} bytes"));
    }
    Ok(Source { name: found.to_string_lossy().into_owned(), text })
}

/// Where a file may be; at least one place.
fn places(name: &str, path: &str) -> Vec<PathBuf> {
    if Path::new(name).is_absolute() || name.starts_with("./") {
        return vec![PathBuf::from(name)];
    }
    let directories = path.split(':').filter(|directory| !directory.is_empty());
    let places: Vec<PathBuf> = directories.map(|directory| Path::new(directory).join(name)).collect();
    if places.is_empty() { vec![PathBuf::from(name)] } else { places }
}

/// A name that begins with `./` is meant beside the file that includes it.
fn beside(name: &str, including: &str) -> String {
    let Some(rest) = name.strip_prefix("./") else { return name.to_owned() };
    let directory = Path::new(including).parent().unwrap_or(Path::new(""));
    let beside = directory.join(rest);
    match beside.is_absolute() {
        true => beside.to_string_lossy().into_owned(),
        false => format!("./{}", beside.display()),
    }
}

/// The files that a pattern matches, in alphabetical order; of the places where a relative one may be, the first that
/// has any.
fn expand(pattern: &str, path: &str) -> Vec<String> {
    let found = places(pattern, path).into_iter().map(|place| expand_at(&place));
    let names = found.into_iter().find(|names| !names.is_empty()).unwrap_or_default();
    names.into_iter().map(|name| name.to_string_lossy().into_owned()).collect()
}

fn expand_at(pattern: &Path) -> Vec<PathBuf> {
    let mut found = vec![PathBuf::new()];
    for part in pattern.components() {
        let text = part.as_os_str().to_string_lossy();
        if !text.contains(['*', '?', '[']) {
            found.iter_mut().for_each(|place| place.push(part));
            continue;
        }
        found = found.iter().flat_map(|directory| entries(directory, &text)).take(GLOB_MAX).collect();
    }
    found.retain(|file| file.is_file());
    found.sort();
    found
}

fn entries(directory: &Path, pattern: &str) -> Vec<PathBuf> {
    let here = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    let entries = std::fs::read_dir(here).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let visible = |name: &String| !name.starts_with('.') || pattern.starts_with('.');
    names
        .filter(|name| visible(name) && observe::glob::matches(pattern, name))
        .map(|name| directory.join(name))
        .collect()
}

fn resolve(host: &str) -> Result<Vec<IpAddr>, String> {
    let found = (host, 0).to_socket_addrs().map_err(|error| describe(&error))?;
    let mut addresses: Vec<IpAddr> = Vec::new();
    for address in found.map(|address| address.ip()) {
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    Ok(addresses)
}

/// What the system says, without what Rust adds.
fn describe(error: &std::io::Error) -> String {
    let text = copal_base::reason(error);
    text.strip_prefix("failed to lookup address information: ").unwrap_or(&text).to_owned()
}

/// The VCL that `-b` stands for: `none`, an absolute path of a socket, or `[host][:port]`.
///
/// # Errors
/// The argument is none of these.
pub(crate) fn one_backend(argument: &str) -> Result<String, String> {
    if argument.eq_ignore_ascii_case("none") {
        return Ok("vcl 4.1;\n\nbackend default none;\n".to_owned());
    }
    if argument.contains(['"', '\n', '\r']) {
        return Err(format!("-b {argument}: not an address"));
    }
    if argument.starts_with('/') {
        return Ok(format!("vcl 4.1;\n\nbackend default {{\n    .path = \"{argument}\";\n}}\n"));
    }
    let (host, port) = split_port(argument).ok_or_else(|| format!("-b {argument}: not an address"))?;
    let host = if host.is_empty() { "localhost" } else { host };
    let port = port.map_or(String::new(), |port| format!("    .port = \"{port}\";\n"));
    Ok(format!("vcl 4.1;\n\nbackend default {{\n    .host = \"{host}\";\n{port}}}\n"))
}

/// Host and port of `host`, `host:port`, `[v6]:port`, `v6` or `:port`.
fn split_port(argument: &str) -> Option<(&str, Option<&str>)> {
    if let Some(rest) = argument.strip_prefix('[') {
        let (host, rest) = rest.split_once(']')?;
        return match rest {
            "" => Some((host, None)),
            rest => rest.strip_prefix(':').map(|port| (host, Some(port))),
        };
    }
    match argument.matches(':').count() {
        0 => Some((argument, None)),
        1 => argument.split_once(':').map(|(host, port)| (host, Some(port))),
        _ => Some((argument, None)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A number of this run alone: one that was killed leaves its files.
    fn unique() -> u64 {
        use std::hash::{BuildHasher as _, RandomState};
        RandomState::new().hash_one(())
    }

    #[test]
    fn backends_of_arguments() {
        for (argument, lines) in [
            ("none", "backend default none;"),
            ("None", "backend default none;"),
            ("/run/x.sock", "backend default {\n    .path = \"/run/x.sock\";\n}"),
            ("example.org", "backend default {\n    .host = \"example.org\";\n}"),
            ("example.org:8080", "backend default {\n    .host = \"example.org\";\n    .port = \"8080\";\n}"),
            (":8080", "backend default {\n    .host = \"localhost\";\n    .port = \"8080\";\n}"),
            ("[::1]:80", "backend default {\n    .host = \"::1\";\n    .port = \"80\";\n}"),
            ("::1", "backend default {\n    .host = \"::1\";\n}"),
        ] {
            assert_eq!(one_backend(argument).unwrap(), format!("vcl 4.1;\n\n{lines}\n"));
        }
        for wrong in ["a\"b", "[::1", "[::1]x"] {
            assert!(one_backend(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn names_beside_the_including_file() {
        for (name, from, expected) in [
            ("x.vcl", "/etc/a.vcl", "x.vcl"),
            ("./x.vcl", "/etc/a.vcl", "/etc/x.vcl"),
            ("./x.vcl", "a.vcl", "./x.vcl"),
            ("./x.vcl", "d/a.vcl", "./d/x.vcl"),
            ("/x.vcl", "/etc/a.vcl", "/x.vcl"),
        ] {
            assert_eq!(beside(name, from), expected);
        }
    }

    #[test]
    fn patterns_of_files() {
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/src");
        let found = expand("manage*/b?n.rs", &format!("/nonexistent:{directory}"));
        assert_eq!(found, [format!("{directory}/management/ban.rs")]);
        assert_eq!(expand("no*such", directory), Vec::<String>::new());
    }

    #[test]
    fn what_was_compiled_compiles_again_without_its_files() {
        let file = std::env::temp_dir().join(format!("copald-captured-{}.vcl", unique()));
        std::fs::write(&file, "sub vcl_recv { return (synth(200, \"included\")); }\n").unwrap();
        let text = format!(
            "vcl 4.1; backend none none; include \"{}\"; acl a {{ \"localhost\"; }} sub vcl_hit {{ if (client.ip ~ a) {{}} }}",
            file.display()
        );
        let source = Source { name: "<vcl.inline>".into(), text: text.into_bytes() };
        let stores = ["s0".to_owned()];
        let compiled = compile(&source, &[], &stores, &Parameters::default(), Jail::None).unwrap();
        std::fs::remove_file(&file).unwrap();
        assert!(compile(&source, &[], &stores, &Parameters::default(), Jail::None).is_err());
        let sent = serde_json::to_string(&*compiled.program).unwrap();
        let captured: Captured = serde_json::from_str(&sent).unwrap();
        assert_eq!(captured, *compiled.program);
        let program = again(&captured).unwrap();
        assert_eq!(program.sources.len(), compiled.sources.len());
    }

    #[test]
    fn stores_are_those_of_the_command_line() {
        let compile = |name: &str| {
            let text = format!(
                "vcl 4.1; import std; backend none none; sub vcl_backend_response {{ set beresp.storage = storage.{name}; }}"
            );
            let source = Source { name: "<vcl.inline>".into(), text: text.into_bytes() };
            let stores = ["Big".to_owned(), "Transient".to_owned()];
            compile(&source, &[], &stores, &Parameters::default(), Jail::None)
        };
        for known in ["Big", "big", "transient"] {
            let compiled = compile(known).unwrap();
            assert_eq!(compiled.modules, ["std"]);
            assert!(again(&compiled.program).is_ok(), "{known}");
        }
        assert!(compile("s0").unwrap_err().starts_with("Symbol not found: 'storage.s0'\n"));
    }

    #[test]
    fn files_that_are_not_there() {
        assert_eq!(
            read_file("/nonexistent.vcl", "/etc"),
            Err("Cannot read file '/nonexistent.vcl' (No such file or directory)".to_owned())
        );
    }
}
