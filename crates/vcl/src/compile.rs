//! From source text to a program: the stages in order.

use crate::check::{self, Checker};
use crate::diagnostics::{Checked, Diagnostics, Problem};
use crate::host::Sub;
use crate::lex::{self, Kind, Token};
use crate::lower::lower;
use crate::parse;
use crate::program::Program;
use crate::source::{File, Sources, Span};
use crate::value::{BackendDefinition, ProbeDefinition};
use crate::vmod::Registry;
use std::net::IpAddr;
use std::sync::Arc;

/// How much source one VCL may have, includes and all, in bytes.
const SOURCE_MAX: usize = 8 << 20;
/// How many files one VCL may have.
const FILES_MAX: usize = 1_000;
/// How deep files may include one another.
const INCLUDE_DEPTH_MAX: usize = 16;
/// How many instructions one run of a subroutine may take: far beyond any program that people wrote, some
/// milliseconds. Nothing loops, but calls can multiply.
const STEPS_MAX: u32 = 1_000_000;

/// The built-in VCL, which goes behind the user's.
pub const BUILTIN: &str = include_str!("builtin.vcl");
/// What messages call it.
pub const BUILTIN_NAME: &str = "<builtin>";

/// Reads a file: see [`Options::include`].
pub type Include<'a> = dyn Fn(&str, &str) -> Result<(String, Vec<u8>), String> + 'a;
/// Expands a pattern: see [`Options::glob`].
pub type Glob<'a> = dyn Fn(&str, &str) -> Result<Vec<String>, String> + 'a;

/// Looks at the path of a backend: see [`Options::socket`].
pub type LookAtSocket<'a> = dyn Fn(&str) -> Result<(), Socket> + 'a;

/// What the compiler needs of the world outside.
pub struct Options<'a> {
    /// The modules that `import` finds.
    pub registry: &'a dyn Registry,
    /// Reads a file for `include`: the name as written and the file that includes it, to the full name and the text.
    /// The error is the reason, as `No such file or directory`.
    pub include: &'a Include<'a>,
    /// The names that a pattern of `include +glob` matches, each for [`Options::include`], in order.
    pub glob: &'a Glob<'a>,
    /// The addresses of a host name in an ACL.
    pub resolve: &'a dyn Fn(&str) -> Result<Vec<IpAddr>, String>,
    /// Whether a VCL label exists; all do if absent.
    pub labels: Option<&'a dyn Fn(&str) -> bool>,
    /// The names of the storages; all exist if absent.
    pub storages: Option<&'a [String]>,
    /// What is wrong with a Unix-domain socket of a backend; nothing is, if absent.
    pub socket: Option<&'a LookAtSocket<'a>>,
    /// Whether file names of `include` and `import` may hold a `/` (`vcc_unsafe_path`).
    pub unsafe_path: bool,
    /// Whether a backend, ACL, probe or subroutine that nothing refers to is an error (`vcc_err_unref`).
    pub unreferenced_is_error: bool,
}

/// Why a path is no socket to connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Socket {
    /// There is something else.
    NotASocket,
    /// It cannot be looked at: a warning only, it may come to be. The reason, as `No such file or directory`.
    Missing(String),
}

impl<'a> Options<'a> {
    /// Options with these modules and no files to include and no names to resolve.
    pub fn new(registry: &'a dyn Registry) -> Self {
        Options {
            registry,
            include: &|_, _| Err("No such file or directory".into()),
            glob: &|_, _| Ok(Vec::new()),
            resolve: &|_| Err("Name or service not known".into()),
            labels: None,
            storages: None,
            socket: None,
            unsafe_path: true,
            unreferenced_is_error: true,
        }
    }
}

/// Compiles a VCL whose main file is called `name`.
///
/// # Errors
/// The first problem, as Varnish would print it: words, file, line and column, the source line, and marks beneath.
pub fn compile(name: &str, source: impl AsRef<[u8]>, options: &Options) -> Result<Program, Diagnostics> {
    let source = source.as_ref();
    if source.len() > SOURCE_MAX {
        let words = format!("VCL '{name}' is larger than {SOURCE_MAX} bytes\n");
        return Err(Diagnostics::plain(words));
    }
    let mut sources = Sources::default();
    sources.files.push(File { name: name.to_owned(), text: source.to_vec(), version: 0 });
    program(&mut sources, options).map_err(|problem| Diagnostics::new(&sources, &[*problem]))
}

fn program(sources: &mut Sources, options: &Options) -> Checked<Program> {
    let mut tokens = Reader { options, bytes: sources.files[0].text.len(), depth: 0 }.file(sources, 0)?;
    let version = sources.files[0].version;
    let builtin_file = sources.files.len() as u16;
    sources.files.push(File { name: BUILTIN_NAME.into(), text: BUILTIN.into(), version });
    let mut builtin_tokens = lex::lex(sources, builtin_file)?;
    let end = builtin_tokens.pop().expect("the lexer ends with an end");
    // A main file that stops in the middle must be told so at its own end, not in the built-in VCL.
    let last =
        Span { file: 0, start: sources.files[0].text.len() as u32, end: sources.files[0].text.len() as u32 };
    tokens.push(Token { kind: Kind::End, span: last });
    let mut declarations = parse::parse(sources, tokens, options.unsafe_path)?;
    builtin_tokens.push(end);
    // The built-in VCL's own version line is of no interest.
    declarations.extend(parse::parse(sources, builtin_tokens, true)?);
    let checker = check::check(sources, options, builtin_file, &declarations)?;
    Ok(finish(checker, version))
}

/// A backend without a probe of its own has that called `default`, if there is one.
fn with_probe(backend: BackendDefinition, default: Option<&Arc<ProbeDefinition>>) -> BackendDefinition {
    match (&backend.probe, default) {
        (None, Some(probe)) if !backend.none => {
            BackendDefinition { probe: Some(Arc::clone(probe)), ..backend }
        }
        _ => backend,
    }
}

fn finish(checker: Checker, version: u32) -> Program {
    let default_probe = checker.default_probe.as_ref().map(|(probe, _)| Arc::clone(probe));
    let code = lower(&checker);
    let builtin = builtin_only(&checker);
    let sources = checker
        .sources
        .files
        .iter()
        .map(|file| (file.name.clone(), String::from_utf8_lossy(&file.text).into_owned()))
        .collect();
    let warnings = Diagnostics::new(checker.sources, &checker.warnings).to_string();
    Program {
        version,
        backends: checker
            .backends
            .into_values()
            .into_iter()
            .map(|(_, value)| with_probe(value, default_probe.as_ref()))
            .collect(),
        default_backend: checker.default_backend.map(|number| number as usize),
        acls: checker.acls.into_values().into_iter().map(|(_, value)| value).collect(),
        probes: checker.probes.into_values().into_iter().map(|(_, value)| value).collect(),
        regexes: checker.regexes,
        sources,
        warnings,
        modules: checker.modules.into_values().into_iter().map(|(_, module)| module.name).collect(),
        objects: checker.objects.into_values(),
        functions: checker.functions,
        code,
        builtin,
        used: checker.used,
        steps_max: STEPS_MAX,
    }
}

fn builtin_only(checker: &Checker) -> u16 {
    let mut bits = 0;
    for (index, row) in checker.routines.rows.iter().enumerate() {
        let Some(entry) = row.value.as_ref().and_then(|routine| routine.entry) else { continue };
        let is_user =
            |index: usize| checker.routines.rows[index].value.as_ref().is_some_and(|routine| routine.user);
        let user = checker.flow.reach(index).into_iter().any(is_user);
        if !user {
            bits |= 1 << entry as u16;
        }
    }
    debug_assert!(Sub::COUNT <= u16::BITS as usize);
    bits
}

/// Reads files into tokens, includes in their places.
struct Reader<'a> {
    options: &'a Options<'a>,
    bytes: usize,
    depth: usize,
}

impl Reader<'_> {
    /// The tokens of a file, without its version line and its end.
    fn file(&mut self, sources: &mut Sources, file: u16) -> Checked<Vec<Token>> {
        let mut tokens = lex::lex(sources, file)?;
        let end = tokens.pop().expect("the lexer ends with an end");
        let declared = version_line(sources, &tokens)?;
        let skip = if declared.is_some() { 3 } else { 0 };
        sources.files[file as usize].version = self.version(sources, file, declared, &tokens)?;
        let mut out = Vec::with_capacity(tokens.len());
        let mut rest = tokens.into_iter().skip(skip).peekable();
        while let Some(token) = rest.next() {
            if token.kind != Kind::Id || sources.quote(token.span) != "include" {
                out.push(token);
                continue;
            }
            let mut next = || rest.next().unwrap_or_else(|| end.clone());
            let (glob, name) = include_line(sources, &mut next)?;
            out.extend(self.include(sources, token.span, glob, &name)?);
        }
        Ok(out)
    }

    fn version(&self, sources: &Sources, file: u16, declared: Option<u32>, tokens: &[Token]) -> Checked<u32> {
        let start = Span { file, start: 0, end: 0 };
        let at = tokens.first().map_or(start, |token| token.span);
        match (declared, file) {
            (None, 0) => {
                let words = "VCL version declaration missing\n\
                    Update your VCL to Version 4 syntax, and add\n\
                    \tvcl 4.1;\non the first line of the VCL files.";
                Err(Problem::at(at, words).into())
            }
            (None, _) => Ok(sources.files[0].version),
            (Some(version), 0) => Ok(version),
            (Some(version), _) => {
                let span = tokens.get(2).map_or(at, |semicolon| at.to(semicolon.span));
                not_above(version, sources.files[0].version, span)?;
                Ok(version)
            }
        }
    }

    fn include(
        &mut self,
        sources: &mut Sources,
        keyword: Span,
        glob: bool,
        name: &Token,
    ) -> Checked<Vec<Token>> {
        let Kind::String(text) = &name.kind else {
            return Err(Problem::at(name.span, "include not followed by string constant.").into());
        };
        let Ok(text) = std::str::from_utf8(text) else {
            return Err(Problem::at(name.span, "A file name must be UTF-8").into());
        };
        if !self.options.unsafe_path && text.contains('/') {
            return Err(Problem::at(name.span, format!("VCL filename '{text}' is unsafe.")).into());
        }
        let including = sources.name(keyword).to_owned();
        if text.starts_with("./") && including.starts_with('<') {
            let words = "include \"./xxxxx\"; needs absolute filename of including file.";
            return Err(Problem::at(name.span, words).into());
        }
        if self.depth == INCLUDE_DEPTH_MAX {
            let words = format!("Files include one another deeper than {INCLUDE_DEPTH_MAX} levels");
            return Err(Problem::at(name.span, words).into());
        }
        let names = if glob {
            let names = (self.options.glob)(text, &including)
                .map_err(|why| Problem::at(name.span, format!("Cannot expand '{text}' ({why})")))?;
            if names.is_empty() {
                return Err(Problem::at(name.span, "glob pattern matched no files.").into());
            }
            names
        } else {
            vec![text.to_owned()]
        };
        let mut tokens = Vec::new();
        for wanted in names {
            let (full, bytes) = (self.options.include)(&wanted, &including)
                .map_err(|why| Problem::at(name.span, format!("Cannot read file '{wanted}' ({why})")))?;
            self.bytes += bytes.len();
            if self.bytes > SOURCE_MAX || sources.files.len() >= FILES_MAX {
                let words = format!("More than {SOURCE_MAX} bytes or {FILES_MAX} files of VCL");
                return Err(Problem::at(name.span, words).into());
            }
            let file = sources.files.len() as u16;
            sources.files.push(File { name: full, text: bytes, version: 0 });
            self.depth += 1;
            tokens.extend(self.file(sources, file)?);
            self.depth -= 1;
        }
        Ok(tokens)
    }
}

/// What stands between `include` and its semicolon: whether the name is a pattern, and the name.
fn include_line(sources: &Sources, next: &mut dyn FnMut() -> Token) -> Checked<(bool, Token)> {
    let mut glob = false;
    let mut token = next();
    while let Kind::Sign(sign @ ("+" | "-")) = token.kind {
        let flag = next();
        if flag.kind != Kind::Id || flag.span.start != token.span.end {
            return Err(Problem::at(token.span, "Expected a flag at:").into());
        }
        if sources.quote(flag.span) != "glob" {
            return Err(Problem::at(flag.span, "Unknown include flag:").into());
        }
        glob = sign == "+";
        token = next();
    }
    if !matches!(token.kind, Kind::String(_)) {
        return Err(Problem::at(token.span, "include not followed by string constant.").into());
    }
    if next().kind != Kind::Sign(";") {
        return Err(Problem::at(token.span, "include <string> not followed by semicolon.").into());
    }
    Ok((glob, token))
}

/// A file may be of an older version than the main one, not of a newer.
pub(crate) fn not_above(version: u32, top: u32, span: Span) -> Checked<()> {
    if version <= top {
        return Ok(());
    }
    let shown = |version: u32| f64::from(version) / 10.0;
    let words =
        format!("VCL version {:.1} higher than the top level version {:.1}", shown(version), shown(top));
    Err(Problem::over(span, words).into())
}

/// The version that `vcl 4.1;` at the beginning of `tokens` declares.
pub(crate) fn version_line(sources: &Sources, tokens: &[Token]) -> Checked<Option<u32>> {
    let [keyword, version, rest @ ..] = tokens else { return Ok(None) };
    if keyword.kind != Kind::Id || sources.quote(keyword.span) != "vcl" {
        return Ok(None);
    }
    let found = sources.quote(version.span);
    if version.kind != Kind::Real {
        let words = format!("Expected FNUM got '{found}', at");
        return Err(Problem::at(version.span, words).into());
    }
    if found.len() != "4.1".len() {
        let words = "Don't play silly buggers with VCL version numbers";
        return Err(Problem::at(version.span, words).into());
    }
    let span = keyword.span.to(version.span);
    let number = match found.as_str() {
        "4.0" => 40,
        "4.1" => 41,
        _ => return Err(Problem::over(span, format!("VCL version {found} not supported.")).into()),
    };
    match rest.first() {
        Some(Token { kind: Kind::Sign(";"), .. }) => Ok(Some(number)),
        _ => Err(Problem::over(span, "Expected 'vcl N.N;' found no semi-colon").into()),
    }
}
