//! Options of one letter, as Varnish's tools take them: `-d`, `-n name`, `-nname`, `-dn name`, `--` ends them. Options of our
//! own may have a name besides: `--name value`, `--name=value`.

use std::ffi::OsString;

/// One option of a tool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opt {
    pub(crate) letter: char,
    /// Its name after `--`; empty if it has none.
    pub(crate) long: &'static str,
    /// The name of its value, for the usage text; empty if it takes none.
    pub(crate) value: &'static str,
    pub(crate) text: &'static str,
}

impl Opt {
    pub(crate) const fn flag(letter: char, text: &'static str) -> Opt {
        Opt { letter, long: "", value: "", text }
    }

    pub(crate) const fn value(letter: char, value: &'static str, text: &'static str) -> Opt {
        Opt { letter, long: "", value, text }
    }

    /// The same option, with a name.
    pub(crate) const fn named(self, long: &'static str) -> Opt {
        Opt { long, ..self }
    }
}

/// What stood on the command line.
#[derive(Debug, Default)]
pub(crate) struct Given {
    /// Options with their values, in order.
    pub(crate) options: Vec<(char, String)>,
    /// What is no option.
    pub(crate) operands: Vec<String>,
}

impl Given {
    pub(crate) fn has(&self, letter: char) -> bool {
        self.options.iter().any(|(other, _)| *other == letter)
    }

    /// The last value given for `letter`.
    pub(crate) fn get(&self, letter: char) -> Option<&str> {
        self.options.iter().rev().find(|(other, _)| *other == letter).map(|(_, value)| value.as_str())
    }
}

/// Reads a command line.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn parse(table: &[Opt], arguments: Vec<OsString>) -> Result<Given, String> {
    let mut given = Given::default();
    let mut arguments = arguments.into_iter();
    while let Some(argument) = arguments.next() {
        let argument = text(argument)?;
        if argument == "--" {
            break;
        }
        let Some(letters) = argument.strip_prefix('-').filter(|letters| !letters.is_empty()) else {
            given.operands.push(argument);
            break;
        };
        if let Some((option, value)) = find_named(table, letters) {
            let value = match (option.value, value) {
                ("", None) => String::new(),
                ("", Some(_)) => return Err(format!("option '--{}' doesn't allow an argument", option.long)),
                (_, Some(value)) => value.to_owned(),
                (_, None) => text(
                    arguments
                        .next()
                        .ok_or_else(|| format!("option '--{}' requires an argument", option.long))?,
                )?,
            };
            given.options.push((option.letter, value));
            continue;
        }
        let mut rest = letters.chars();
        while let Some(letter) = rest.next() {
            let option = table
                .iter()
                .find(|option| option.letter == letter)
                .ok_or_else(|| format!("invalid option -- '{letter}'"))?;
            if option.value.is_empty() {
                given.options.push((letter, String::new()));
                continue;
            }
            let value = match rest.as_str() {
                "" => text(
                    arguments.next().ok_or_else(|| format!("option requires an argument -- '{letter}'"))?,
                )?,
                joined => joined.to_owned(),
            };
            given.options.push((letter, value));
            break;
        }
    }
    for argument in arguments {
        given.operands.push(text(argument)?);
    }
    Ok(given)
}

/// Reads the options that stand behind operands, too.
///
/// # Errors
/// What is wrong with them.
pub(crate) fn anywhere(table: &[Opt], given: &Given) -> Result<Given, String> {
    let mut whole = Given { options: given.options.clone(), operands: Vec::new() };
    let mut rest = given.operands.clone();
    while !rest.is_empty() {
        whole.operands.push(rest.remove(0));
        let more = parse(table, rest.into_iter().map(Into::into).collect())?;
        whole.options.extend(more.options);
        rest = more.operands;
    }
    Ok(whole)
}

/// The option that `argument`, without its first dash, names, and the value behind `=`.
fn find_named<'a>(table: &[Opt], argument: &'a str) -> Option<(Opt, Option<&'a str>)> {
    let argument = argument.strip_prefix('-')?;
    let (name, value) = match argument.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (argument, None),
    };
    let option = table.iter().find(|option| !option.long.is_empty() && option.long == name)?;
    Some((*option, value))
}

fn text(argument: OsString) -> Result<String, String> {
    argument.into_string().map_err(|argument| format!("{argument:?} is not UTF-8"))
}

/// The usage text; `tool` is as it was called.
pub(crate) fn usage(tool: &str, operands: &str, table: &[Opt]) -> String {
    let mut text = format!("Usage: {tool} <options>{operands}\n\nOptions:\n");
    for option in table {
        let name = match option.long {
            "" => format!("-{}", option.letter),
            long => format!("-{}|--{long}", option.letter),
        };
        let form = match option.value {
            "" => format!("[{name}]"),
            // Words that are values themselves, as the names of profiles.
            value if value.starts_with('=') => format!("[{name} {}]", &value[1..]),
            value => format!("[{name} <{value}>]"),
        };
        text += &format!(" {form:<25} {}\n", option.text);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[Opt] =
        &[Opt::flag('d', ""), Opt::value('n', "dir", ""), Opt::value('s', "size", "").named("size")];

    type Parts<'a> = (&'a [(char, &'a str)], &'a [&'a str]);

    fn check(line: &str, expected: Result<Parts<'_>, &str>) {
        let arguments = line.split(' ').filter(|word| !word.is_empty()).map(OsString::from).collect();
        let given = parse(TABLE, arguments).map(|given| (given.options, given.operands));
        let expected = expected
            .map(|(options, operands)| {
                let options: Vec<_> =
                    options.iter().map(|(letter, value)| (*letter, (*value).to_owned())).collect();
                (options, operands.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
            })
            .map_err(str::to_owned);
        assert_eq!(given, expected, "{line}");
    }

    #[test]
    fn lines() {
        check("", Ok((&[], &[])));
        check("-d -n x", Ok((&[('d', ""), ('n', "x")], &[])));
        check("-dnx", Ok((&[('d', ""), ('n', "x")], &[])));
        check("-n x vcl.list -j", Ok((&[('n', "x")], &["vcl.list", "-j"])));
        check("-- -d", Ok((&[], &["-d"])));
        check("-z", Err("invalid option -- 'z'"));
        check("-n", Err("option requires an argument -- 'n'"));
        check("--size 1G -s 2G --size=a=b x", Ok((&[('s', "1G"), ('s', "2G"), ('s', "a=b")], &["x"])));
        check("--size", Err("option '--size' requires an argument"));
        check("--dir x", Err("invalid option -- '-'"));
    }

    #[test]
    fn options_behind_operands() {
        let line = ["x", "-d", "y", "-n", "z", "--size=1"].map(Into::into).to_vec();
        let given = anywhere(TABLE, &parse(TABLE, line).unwrap()).unwrap();
        assert_eq!(given.operands, ["x", "y"]);
        let options: Vec<(char, &str)> =
            given.options.iter().map(|(l, value)| (*l, value.as_str())).collect();
        assert_eq!(options, [('d', ""), ('n', "z"), ('s', "1")]);
    }
}
