//! The stores that `-s` asks for.

use copal_store as store;
use std::fmt;
use store::FileOptions;
use store::file::{Advice, FileSize};

/// The name of the store for what is short-lived or not cacheable. It is there also if nobody asks for it.
pub(crate) const TRANSIENT: &str = "Transient";

/// The smallest size: less is a forgotten unit.
const SIZE_MIN: u64 = 1 << 20;

/// One store.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Spec {
    /// The name: given, or `s0`, `s1` ... in the order of the command line.
    pub(crate) name: String,
    /// The kind, for `storage.list`: `malloc`, or `debug`, which is the same, or `file`.
    pub(crate) kind: &'static str,
    /// Bytes of payload in memory; `None` is unlimited.
    pub(crate) size: Option<u64>,
    /// The file of `-s file`.
    pub(crate) file: Option<FileOptions>,
}

/// Why an `-s` is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Error(String);

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

/// Reads all `-s` arguments. Without any but `Transient`, there is one unlimited store `s0`; `Transient` is unlimited
/// unless given, and comes last.
///
/// # Errors
/// [`Error`] with the argument and what is wrong.
pub(crate) fn parse_all(arguments: &[String]) -> Result<Vec<Spec>, Error> {
    let mut specs: Vec<Spec> = Vec::new();
    let mut unnamed = 0;
    for argument in arguments {
        let spec = parse(argument, &mut unnamed)?;
        if specs.iter().any(|other| other.name == spec.name) {
            return Err(Error(format!("(-s {argument}) '{}' is already defined", spec.name)));
        }
        specs.push(spec);
    }
    let unlimited = |name: &str| Spec { name: name.to_owned(), kind: "malloc", size: None, file: None };
    let transient = match specs.iter().position(|spec| spec.name == TRANSIENT) {
        Some(index) => specs.remove(index),
        None => unlimited(TRANSIENT),
    };
    if specs.is_empty() {
        specs.push(unlimited("s0"));
    }
    specs.push(transient);
    Ok(specs)
}

/// The names of the stores, as VCL knows them.
pub(crate) fn names(specs: &[Spec]) -> Vec<String> {
    specs.iter().map(|spec| spec.name.clone()).collect()
}

fn parse(argument: &str, unnamed: &mut usize) -> Result<Spec, Error> {
    let head = argument.split(',').next().unwrap_or_default();
    let (name, rest) = match head.split_once('=') {
        Some((name, _)) => (Some(name), &argument[name.len() + 1..]),
        None => (None, argument),
    };
    if let Some(name) = name
        && !is_name(name)
    {
        return Err(Error(format!("(-s {argument}) invalid name \"{name}\"")));
    }
    let mut parts = rest.split(',');
    match parts.next().unwrap_or_default() {
        "malloc" | "default" => {}
        // Varnish's variant for its own tests, which hands out more or less room than it was asked for. Here room is never
        // more or less than that.
        "debug" => return parse_debug(argument, &parts.collect::<Vec<_>>(), named(name, unnamed)),
        "file" => {
            let file = parse_file(argument, &parts.collect::<Vec<_>>())?;
            return Ok(Spec { name: named(name, unnamed), kind: "file", size: None, file: Some(file) });
        }
        kind @ ("persistent" | "deprecated_persistent" | "umem" | "mse" | "mse4" | "tier") => {
            return Err(Error(format!(
                "(-s {argument}) storage method \"{kind}\" is not in this version of copald"
            )));
        }
        kind => return Err(Error(format!("Unknown storage method \"{kind}\""))),
    }
    let size = parts.next().filter(|size| !size.is_empty());
    if let Some(extra) = parts.next() {
        return Err(Error(format!("(-s {argument}) too many arguments ({extra})")));
    }
    let size = size.map(|size| parse_size(argument, size)).transpose()?;
    Ok(Spec { name: named(name, unnamed), kind: "malloc", size, file: None })
}

fn named(name: Option<&str>, unnamed: &mut usize) -> String {
    name.map_or_else(
        || {
            *unnamed += 1;
            format!("s{}", *unnamed - 1)
        },
        str::to_owned,
    )
}

fn parse_debug(argument: &str, options: &[&str], name: String) -> Result<Spec, Error> {
    match options {
        [] | ["lessspace" | "maxspace"] => Ok(Spec { name, kind: "debug", size: None, file: None }),
        _ => Err(Error(format!("(-s {argument}) the options of \"debug\" are lessspace and maxspace"))),
    }
}

/// `path[,size[,granularity[,advice]]]`. Empty ones are as not given, but for the path.
fn parse_file(argument: &str, options: &[&str]) -> Result<FileOptions, Error> {
    let error = |text: String| Error(format!("(-s {argument}) {text}"));
    if let Some(extra) = options.get(4) {
        return Err(error(format!("too many arguments ({extra})")));
    }
    let option = |index: usize| options.get(index).copied().filter(|option| !option.is_empty());
    let path = option(0).ok_or_else(|| error("path is mandatory".into()))?.into();
    let size = option(1).map(|size| parse_file_size(argument, size)).transpose()?;
    let bytes = |text| {
        copal_base::units::parse_bytes(text).map_err(|why| error(format!("granularity \"{text}\": {why}")))
    };
    let granularity = option(2).map(bytes).transpose()?;
    let known = |name| {
        let advice = Advice::parse(name);
        advice.ok_or_else(|| error(format!("invalid advice: \"{name}\"; give normal, random or sequential")))
    };
    let advice = option(3).map_or(Ok(Advice::default()), known)?;
    Ok(FileOptions { path, size, granularity, advice })
}

/// Bytes, or a share of what is free.
fn parse_file_size(argument: &str, size: &str) -> Result<FileSize, Error> {
    let Some(percent) = size.strip_suffix('%') else {
        return Ok(FileSize::Bytes(parse_size(argument, size)?));
    };
    let parsed = percent.parse().ok().filter(|percent| (0.0..=100.0).contains(percent) && *percent > 0.0);
    parsed
        .map(FileSize::Percent)
        .ok_or_else(|| Error(format!("(-s {argument}) size \"{size}\": give more than 0% and at most 100%")))
}

fn parse_size(argument: &str, size: &str) -> Result<u64, Error> {
    let bytes = copal_base::units::parse_bytes(size)
        .map_err(|why| Error(format!("(-s {argument}) size \"{size}\": {why}")))?;
    if bytes < SIZE_MIN {
        return Err(Error(format!(
            "(-s {argument}) size \"{size}\": too small, did you forget to specify M or G?"
        )));
    }
    Ok(bytes)
}

/// A name that VCL can write after `storage.`.
fn is_name(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_alphabetic())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(arguments: &[&str], expected: Result<&[(&str, Option<u64>)], &str>) {
        let arguments: Vec<String> = arguments.iter().map(|&argument| argument.to_owned()).collect();
        let found = parse_all(&arguments).map_err(|error| error.to_string());
        let expected = expected
            .map(|specs| {
                specs
                    .iter()
                    .map(|&(name, size)| Spec { name: name.to_owned(), kind: "malloc", size, file: None })
                    .collect::<Vec<_>>()
            })
            .map_err(str::to_owned);
        assert_eq!(found, expected, "{arguments:?}");
    }

    #[test]
    fn stores() {
        check(&[], Ok(&[("s0", None), ("Transient", None)]));
        check(&["malloc"], Ok(&[("s0", None), ("Transient", None)]));
        check(
            &["malloc,6000m", "Transient=malloc,2000m"],
            Ok(&[("s0", Some(6000 << 20)), ("Transient", Some(2000 << 20))]),
        );
        assert_eq!(parse_all(&["debug,lessspace".to_owned()]).unwrap()[0].kind, "debug");
        check(&["Transient=malloc,1g"], Ok(&[("s0", None), ("Transient", Some(1 << 30))]));
        check(
            &["a=malloc,1G", "default,2G", "malloc"],
            Ok(&[("a", Some(1 << 30)), ("s0", Some(2 << 30)), ("s1", None), ("Transient", None)]),
        );
    }

    fn check_file(argument: &str, expected: Result<(Option<FileSize>, Option<u64>, Advice), &str>) {
        let parsed = parse_all(&[argument.to_owned()]).map_err(|error| error.to_string());
        let found = parsed.map(|specs| {
            let file = specs[0].file.clone().expect("it is a file");
            assert_eq!((specs[0].kind, file.path.to_str()), ("file", Some("/x")));
            (file.size, file.granularity, file.advice)
        });
        assert_eq!(found, expected.map_err(|why| format!("(-s {argument}) {why}")));
    }

    #[test]
    fn files() {
        let bytes = |bytes| Some(FileSize::Bytes(bytes));
        check_file("file,/x", Ok((None, None, Advice::Random)));
        check_file("disk=file,/x,50G", Ok((bytes(50 << 30), None, Advice::Random)));
        check_file("file,/x,90%,64k", Ok((Some(FileSize::Percent(90.0)), Some(64 << 10), Advice::Random)));
        check_file("file,/x,1g,,normal", Ok((bytes(1 << 30), None, Advice::Normal)));
        check_file("file", Err("path is mandatory"));
        check_file("file,/x,100k", Err("size \"100k\": too small, did you forget to specify M or G?"));
        check_file("file,/x,0%", Err("size \"0%\": give more than 0% and at most 100%"));
        check_file("file,/x,1g,4k,mad", Err("invalid advice: \"mad\"; give normal, random or sequential"));
        check_file("file,/x,1g,4k,random,y", Err("too many arguments (y)"));
    }

    #[test]
    fn refusals() {
        check(&["debug,1g"], Err("(-s debug,1g) the options of \"debug\" are lessspace and maxspace"));
        check(&["foo"], Err("Unknown storage method \"foo\""));
        check(
            &["disk=persistent,/x,50G"],
            Err("(-s disk=persistent,/x,50G) storage method \"persistent\" is not in this version of copald"),
        );
        check(
            &["malloc,100k"],
            Err("(-s malloc,100k) size \"100k\": too small, did you forget to specify M or G?"),
        );
        check(&["malloc,1g,x"], Err("(-s malloc,1g,x) too many arguments (x)"));
        check(&["x=malloc", "x=malloc"], Err("(-s x=malloc) 'x' is already defined"));
        check(&["1x=malloc"], Err("(-s 1x=malloc) invalid name \"1x\""));
    }
}
