//! The language of `mse.conf`: that of libconfig, as far as such a file needs it.
//!
//! ```text
//! settings = { name (":" | "=") value [";" | ","] }
//! value    = group | list | text | number | "true" | "false"
//! group    = "{" settings "}"          list = ("(" | "[") [ value { "," value } [","] ] (")" | "]")
//! ```
//! Comments are `# ..`, `// ..` and `/* .. */`; texts that follow each other are one. Files are not included.
//!
//! Source: the manual of libconfig 1.7, chapter "Configuration Files".

/// Groups and lists within each other.
const DEPTH_MAX: u32 = 32;

/// A named value.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Setting {
    /// Its name.
    pub(super) name: String,
    /// Its value.
    pub(super) value: Value,
    /// The line that its name stands in, from 1.
    pub(super) line: u32,
}

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    /// `true` or `false`.
    Switch(bool),
    /// A number.
    Number(f64),
    /// A text.
    Text(String),
    /// A list or an array.
    List(Vec<Value>),
    /// A group.
    Group(Vec<Setting>),
}

/// What is wrong, and the line that it is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wrong {
    /// From 1.
    pub(super) line: u32,
    /// In words.
    pub(super) why: String,
}

/// Reads a whole file.
///
/// # Errors
/// The first thing that is wrong.
pub(super) fn parse(text: &str) -> Result<Vec<Setting>, Wrong> {
    let mut parser = Parser { rest: text, line: 1, depth: 0 };
    let settings = parser.settings()?;
    match parser.peek()? {
        None => Ok(settings),
        Some(other) => Err(parser.wrong(format!("'{other}' where a name was expected"))),
    }
}

struct Parser<'a> {
    rest: &'a str,
    line: u32,
    depth: u32,
}

impl<'a> Parser<'a> {
    fn wrong(&self, why: impl Into<String>) -> Wrong {
        Wrong { line: self.line, why: why.into() }
    }

    /// Goes `count` bytes on.
    fn skip(&mut self, count: usize) -> &'a str {
        let (skipped, rest) = self.rest.split_at(count);
        let lines = skipped.bytes().filter(|byte| *byte == b'\n').count();
        self.line = self.line.saturating_add(u32::try_from(lines).unwrap_or(u32::MAX));
        self.rest = rest;
        skipped
    }

    /// The next character that counts; none at the end.
    fn peek(&mut self) -> Result<Option<char>, Wrong> {
        loop {
            self.skip(self.rest.len() - self.rest.trim_start().len());
            let length = match () {
                () if self.rest.starts_with('#') || self.rest.starts_with("//") => {
                    self.rest.find('\n').unwrap_or(self.rest.len())
                }
                () if self.rest.starts_with("/*") => match self.rest.find("*/") {
                    Some(end) => end + 2,
                    None => return Err(self.wrong("a comment without an end")),
                },
                () => return Ok(self.rest.chars().next()),
            };
            self.skip(length);
        }
    }

    /// Goes over `expected` if it comes next.
    fn take(&mut self, expected: &[char]) -> Result<bool, Wrong> {
        let found = self.peek()?.filter(|found| expected.contains(found));
        self.skip(found.map_or(0, char::len_utf8));
        Ok(found.is_some())
    }

    fn found(&mut self) -> Result<String, Wrong> {
        Ok(self.peek()?.map_or("the end of the file".to_owned(), |found| format!("'{found}'")))
    }

    fn settings(&mut self) -> Result<Vec<Setting>, Wrong> {
        let mut settings: Vec<Setting> = Vec::new();
        while let Some(first) = self.peek()? {
            let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '*');
            if first == '@' {
                return Err(self.wrong("other files cannot be included: write all into this one"));
            }
            if !first.is_ascii_alphabetic() && first != '*' {
                break;
            }
            let line = self.line;
            let name = self.skip(self.rest.find(|c| !is_name(c)).unwrap_or(self.rest.len())).to_owned();
            if settings.iter().any(|other| other.name == name) {
                return Err(self.wrong(format!("{name} is there twice")));
            }
            if !self.take(&[':', '='])? {
                let found = self.found()?;
                return Err(self.wrong(format!("{found} where '=' or ':' was expected behind {name}")));
            }
            let value = self.value()?;
            self.take(&[';', ','])?;
            settings.push(Setting { name, value, line });
        }
        Ok(settings)
    }

    fn value(&mut self) -> Result<Value, Wrong> {
        let value = match self.peek()? {
            Some('{') => self.nested('}', |parser| parser.settings().map(Value::Group))?,
            Some('(') => self.nested(')', |parser| parser.items(')').map(Value::List))?,
            Some('[') => self.nested(']', |parser| parser.items(']').map(Value::List))?,
            Some('"') => Value::Text(self.text()?),
            _ => self.scalar()?,
        };
        Ok(value)
    }

    /// What stands between a bracket, which comes next, and `end`.
    fn nested(
        &mut self,
        end: char,
        inner: impl FnOnce(&mut Self) -> Result<Value, Wrong>,
    ) -> Result<Value, Wrong> {
        if self.depth == DEPTH_MAX {
            return Err(self.wrong(format!("more than {DEPTH_MAX} groups and lists within each other")));
        }
        let began = self.line;
        self.depth += 1;
        self.skip(1);
        let value = inner(self)?;
        self.depth -= 1;
        if !self.take(&[end])? {
            let found = self.found()?;
            return Err(
                self.wrong(format!("{found} where '{end}' was expected, for what began in line {began}"))
            );
        }
        Ok(value)
    }

    fn items(&mut self, end: char) -> Result<Vec<Value>, Wrong> {
        let mut items = Vec::new();
        while self.peek()?.is_some_and(|next| next != end) {
            items.push(self.value()?);
            if !self.take(&[','])? {
                break;
            }
        }
        Ok(items)
    }

    /// Texts that follow each other.
    fn text(&mut self) -> Result<String, Wrong> {
        let mut text = String::new();
        while self.take(&['"'])? {
            loop {
                let plain = self.rest.find(['"', '\\']).ok_or_else(|| self.wrong("a text without an end"))?;
                text.push_str(self.skip(plain));
                if self.skip(1) == "\"" {
                    break;
                }
                text.push(self.escape()?);
            }
        }
        Ok(text)
    }

    /// What a backslash makes of what follows.
    fn escape(&mut self) -> Result<char, Wrong> {
        let escaped = self.rest.chars().next();
        let character = match escaped {
            Some(c @ ('"' | '\\')) => c,
            Some('n') => '\n',
            Some('r') => '\r',
            Some('t') => '\t',
            Some('f') => '\x0c',
            Some('x') => {
                let code = self.rest.get(1..3).and_then(|code| u8::from_str_radix(code, 16).ok());
                let code =
                    code.filter(u8::is_ascii).ok_or_else(|| self.wrong("\\x without two digits below 80"))?;
                self.skip(3);
                return Ok(char::from(code));
            }
            _ => return Err(self.wrong("a backslash before what it does not change")),
        };
        self.skip(1);
        Ok(character)
    }

    /// A number or a switch.
    fn scalar(&mut self) -> Result<Value, Wrong> {
        let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
        let end = self.rest.find(|c| !is_part(c)).unwrap_or(self.rest.len());
        let (word, _) = self.rest.split_at(end);
        if word.is_empty() {
            let found = self.found()?;
            return Err(self.wrong(format!("{found} where a value was expected")));
        }
        let lower = word.to_ascii_lowercase();
        let digits = lower.trim_end_matches('l');
        let number = match digits.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok().map(|number| number as f64),
            None => digits.parse().ok().filter(|number: &f64| number.is_finite()),
        };
        let value = match (lower.as_str(), number) {
            ("true", _) => Value::Switch(true),
            ("false", _) => Value::Switch(false),
            (_, Some(number)) => Value::Number(number),
            _ => return Err(self.wrong(format!("{word} is no value: texts stand in quotes"))),
        };
        self.skip(end);
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One line for all that was read.
    fn print(value: &Value) -> String {
        match value {
            Value::Switch(on) => on.to_string(),
            Value::Number(number) => number.to_string(),
            Value::Text(text) => format!("{text:?}"),
            Value::List(items) => format!("({})", items.iter().map(print).collect::<Vec<_>>().join(" ")),
            Value::Group(settings) => format!("{{{}}}", print_all(settings)),
        }
    }

    fn print_all(settings: &[Setting]) -> String {
        let one = |setting: &Setting| format!("{}@{}={}", setting.name, setting.line, print(&setting.value));
        settings.iter().map(one).collect::<Vec<_>>().join(" ")
    }

    fn check(text: &str, expected: Result<&str, (u32, &str)>) {
        let found = parse(text).map(|settings| print_all(&settings));
        let expected = expected.map(str::to_owned).map_err(|(line, why)| Wrong { line, why: why.to_owned() });
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn values() {
        check("", Ok(""));
        check("a=1;b:2.5,c = -3 d=0x1F; e=10L;", Ok("a@1=1 b@1=2.5 c@1=-3 d@1=31 e@1=10"));
        check("a=TRUE; b=false", Ok("a@1=true b@1=false"));
        check(r#"a="x" "y"; b="q\"\\\n\x41";"#, Ok(r#"a@1="xy" b@1="q\"\\\nA""#));
        check("# one\n// two\n/* three\n four */ a=(1,2,);b=[];c=();", Ok("a@4=(1 2) b@4=() c@4=()"));
        check("a:{b={c=1}\nd=2};", Ok("a@1={b@1={c@1=1} d@2=2}"));
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        check("a=1;\na=2;", Err((2, "a is there twice")));
        check("\n\nx", Err((3, "the end of the file where '=' or ':' was expected behind x")));
        check("x=yes;", Err((1, "yes is no value: texts stand in quotes")));
        check("x=;", Err((1, "';' where a value was expected")));
        check(
            "x={\ny=1;\n",
            Err((3, "the end of the file where '}' was expected, for what began in line 1")),
        );
        check("x=(1 2)", Err((1, "'2' where ')' was expected, for what began in line 1")));
        check("x=\"abc", Err((1, "a text without an end")));
        check("/* x", Err((1, "a comment without an end")));
        check("x=\"\\q\"", Err((1, "a backslash before what it does not change")));
        check("x=\"\\xff\"", Err((1, "\\x without two digits below 80")));
        check("@include \"y\"", Err((1, "other files cannot be included: write all into this one")));
        check("a=1; }", Err((1, "'}' where a name was expected")));
        check("x=1e999", Err((1, "1e999 is no value: texts stand in quotes")));
        check("é=1", Err((1, "'é' where a name was expected")));
        check("a=(a=(", Err((1, "a is no value: texts stand in quotes")));
        check(&format!("a={}", "(".repeat(40)), Err((1, "more than 32 groups and lists within each other")));
    }

    #[test]
    fn no_text_makes_it_fall() {
        let text = "env: { id = \"é\\x41\"; /* c */ books = ( { a = [1, 0x2, true]; } ); };";
        let ends: Vec<usize> = text.char_indices().map(|(index, _)| index).collect();
        for &end in &ends {
            let _ = parse(&text[..end]);
            let _ = parse(&text[end..]);
            let _ = parse(&format!("{}\"{}", &text[..end], &text[end..]));
        }
    }
}
