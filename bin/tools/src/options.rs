//! Options of one letter, as Varnish's tools take them: `-d`, `-n name`, `-nname`, `-dn name`, `--` ends them.

use std::ffi::OsString;

/// One option of a tool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opt {
    pub(crate) letter: char,
    /// The name of its value, for the usage text; empty if it takes none.
    pub(crate) value: &'static str,
    pub(crate) text: &'static str,
}

impl Opt {
    pub(crate) const fn flag(letter: char, text: &'static str) -> Opt {
        Opt { letter, value: "", text }
    }

    pub(crate) const fn value(letter: char, value: &'static str, text: &'static str) -> Opt {
        Opt { letter, value, text }
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

fn text(argument: OsString) -> Result<String, String> {
    argument.into_string().map_err(|argument| format!("{argument:?} is not UTF-8"))
}

/// The usage text; `tool` is as it was called.
pub(crate) fn usage(tool: &str, operands: &str, table: &[Opt]) -> String {
    let mut text = format!("Usage: {tool} <options>{operands}\n\nOptions:\n");
    for option in table {
        let form = match option.value {
            "" => format!("[-{}]", option.letter),
            // Words that are values themselves, as the names of profiles.
            value if value.starts_with('=') => format!("[-{} {}]", option.letter, &value[1..]),
            value => format!("[-{} <{value}>]", option.letter),
        };
        text += &format!(" {form:<25} {}\n", option.text);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[Opt] = &[Opt::flag('d', ""), Opt::value('n', "dir", "")];

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
    }
}
