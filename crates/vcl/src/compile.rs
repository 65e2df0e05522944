//! From source text to a program: the stages in order.

use crate::check::{self, Checker};
use crate::diagnostics::{Checked, Diagnostics, Problem};
use crate::host::Sub;
use crate::lex::{self, Kind, Token};
use crate::lower::lower;
use crate::parse;
use crate::program::Program;
use crate::source::{File, Sources, Span};
use crate::vmod::Registry;
use std::net::IpAddr;

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
    /// Whether a backend, ACL, probe or subroutine that nothing refers to is an error (`vcc_err_unref`).
    pub unreferenced_is_error: bool,
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
    let mut declarations = parse::parse(sources, tokens)?;
    builtin_tokens.push(end);
    // The built-in VCL's own version line is of no interest.
    declarations.extend(parse::parse(sources, builtin_tokens)?);
    if !declarations
        .iter()
        .any(|declaration| matches!(declaration, crate::syntax::Declaration::Backend { .. }))
    {
        let span = Span { file: 0, start: 0, end: 0 };
        let words = "No default director found\n\
            A VCL needs at least one backend; \"backend default none;\" will do if none is to be used.";
        return Err(Problem::at(span, words).into());
    }
    let checker = check::check(sources, options, builtin_file, &declarations)?;
    Ok(finish(checker, version))
}

fn finish(checker: Checker, version: u32) -> Program {
    let code = lower(&checker);
    let builtin = builtin_only(&checker);
    let sources = checker
        .sources
        .files
        .iter()
        .map(|file| (file.name.clone(), String::from_utf8_lossy(&file.text).into_owned()))
        .collect();
    Program {
        version,
        backends: checker.backends.rows.into_iter().map(|row| row.value).collect(),
        default_backend: checker.default_backend.map(|index| index as usize),
        acls: checker.acls.rows.into_iter().map(|row| row.value).collect(),
        probes: checker.probes.rows.into_iter().map(|row| row.value).collect(),
        regexes: checker.regexes,
        sources,
        objects: checker.objects.rows.into_iter().map(|row| (row.name, row.value)).collect(),
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
        let Some(entry) = row.value.entry else { continue };
        let user =
            checker.flow.reach(index).into_iter().any(|routine| checker.routines.rows[routine].value.user);
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
        tokens.pop();
        let declared = version_line(sources, &tokens)?;
        let skip = if declared.is_some() { 3 } else { 0 };
        sources.files[file as usize].version = self.version(sources, file, declared, &tokens)?;
        let mut out = Vec::with_capacity(tokens.len());
        let mut rest = tokens.into_iter().skip(skip).peekable();
        while let Some(token) = rest.next() {
            let at_statement = match out.last() {
                None => true,
                Some(Token { kind: Kind::Sign(sign), .. }) => matches!(*sign, ";" | "{" | "}"),
                Some(_) => false,
            };
            if !at_statement || token.kind != Kind::Id || sources.quote(token.span) != "include" {
                out.push(token);
                continue;
            }
            let mut taken = Vec::new();
            while let Some(next) = rest.next_if(|next| next.kind != Kind::Sign(";") && taken.len() < 4) {
                taken.push(next);
            }
            if rest.next().is_none_or(|next| next.kind != Kind::Sign(";")) {
                return Err(Problem::at(token.span, "include needs a file name and a ';'").into());
            }
            out.extend(self.include(sources, &token, &taken)?);
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
            (Some(version), _) if version > sources.files[0].version => {
                let words = format!(
                    "VCL version {:.1} higher than the top level version {:.1}",
                    f64::from(version) / 10.0,
                    f64::from(sources.files[0].version) / 10.0
                );
                Err(Problem::at(at, words).into())
            }
            (Some(version), _) => Ok(version),
        }
    }

    fn include(&mut self, sources: &mut Sources, keyword: &Token, words: &[Token]) -> Checked<Vec<Token>> {
        let (glob, name) = match words {
            [name] => (false, name),
            [plus, glob, name] if plus.kind == Kind::Sign("+") && sources.quote(glob.span) == "glob" => {
                (true, name)
            }
            _ => return Err(Problem::at(keyword.span, "include needs a file name and a ';'").into()),
        };
        let Kind::String(text) = &name.kind else {
            let words = "include not followed by string constant.";
            return Err(Problem::at(name.span, words).into());
        };
        let Ok(text) = std::str::from_utf8(text) else {
            return Err(Problem::at(name.span, "A file name must be UTF-8").into());
        };
        if self.depth == INCLUDE_DEPTH_MAX {
            let words = format!("Files include one another deeper than {INCLUDE_DEPTH_MAX} levels");
            return Err(Problem::at(name.span, words).into());
        }
        let including = sources.name(keyword.span).to_owned();
        let names = if glob {
            (self.options.glob)(text, &including)
                .map_err(|why| Problem::at(name.span, format!("Cannot expand '{text}' ({why})")))?
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

/// The version that `vcl 4.1;` at the beginning of a file declares.
fn version_line(sources: &Sources, tokens: &[Token]) -> Checked<Option<u32>> {
    let [keyword, version, rest @ ..] = tokens else { return Ok(None) };
    if keyword.kind != Kind::Id || sources.quote(keyword.span) != "vcl" {
        return Ok(None);
    }
    let found = sources.quote(version.span);
    let number = match (&version.kind, found.as_str()) {
        (Kind::Real, "4.0") => 40,
        (Kind::Real, "4.1") => 41,
        (Kind::Real, _) => {
            return Err(Problem::at(version.span, format!("VCL version {found} not supported.")).into());
        }
        _ => return Err(Problem::at(version.span, "Expected a version, as in 'vcl 4.1;'").into()),
    };
    match rest.first() {
        Some(Token { kind: Kind::Sign(";"), .. }) => Ok(Some(number)),
        _ => Err(Problem::at(version.span, "Expected ';' after the version").into()),
    }
}
