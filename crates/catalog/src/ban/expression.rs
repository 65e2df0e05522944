//! What a ban says: `<field> <operator> <argument> [&& ...]`, read from text or from words, tested against an object.
//!
//! | field | of | operators |
//! |---|---|---|
//! | `req.url`, `req.http.<name>` | the request that looks the object up | `== != ~ !~` |
//! | `obj.status`, `obj.http.<name>` | the object; the status as text | `== != ~ !~` |
//! | `obj.ttl`, `obj.age`, `obj.grace`, `obj.keep` | the object, in seconds | `== != > >= < <=` with a duration |
//!
//! A header that is not there equals nothing, so `!=` holds for it; neither `~` nor `!~` does, as in Varnish 7.1. `obj.ttl` and
//! `obj.age` are what they were when the ban was made. Field names, operators and the words of errors are Varnish's.

use base::{Seconds, Time};
use copal_base as base;
use copal_store::{Facts, Object};
use copal_vcl::regex::Regex;
use copal_wire::Fields;
use std::cell::OnceCell;
use std::cmp::Ordering;
use std::fmt::Write as _;

/// The longest header name that a ban may look at.
const NAME_MAX: usize = 126;

/// What a ban looks at.
#[derive(Debug, Clone, PartialEq)]
enum Field {
    Url,
    RequestHeader(Vec<u8>),
    Status,
    ObjectHeader(Vec<u8>),
    Ttl,
    Age,
    Grace,
    Keep,
}

/// How it compares text.
#[derive(Debug)]
enum TextTest {
    Equals(Vec<u8>),
    Matches(Regex),
}

#[derive(Debug)]
enum Condition {
    /// The test, and the answer that makes the condition hold.
    Text(TextTest, bool),
    /// The orders of the field to the argument that make the condition hold.
    Number(&'static [Ordering], bool, Seconds),
}

#[derive(Debug)]
struct Test {
    field: Field,
    condition: Condition,
}

/// All conditions of a ban; it bans what meets each.
#[derive(Debug)]
pub(super) struct Expression {
    tests: Vec<Test>,
    /// As it is listed, in one spelling: equal texts are equal bans.
    pub(super) text: Vec<u8>,
}

/// What of a request bans can look at.
pub type Request<'request> = (&'request [u8], &'request Fields);

/// What a ban is tested against.
pub(super) struct Subject<'a> {
    response: Response<'a>,
    request: Option<Request<'a>>,
    /// The head, taken apart once a ban asks for a field of it.
    fields: OnceCell<Fields>,
}

/// A stored response, in memory or on a device.
enum Response<'a> {
    Object(&'a Object),
    Entry(&'a Facts, &'a [u8]),
}

impl<'a> Subject<'a> {
    /// `object` as `request` meets it, or by itself.
    pub(super) fn new(object: &'a Object, request: Option<Request<'a>>) -> Self {
        Self { response: Response::Object(object), request, fields: OnceCell::new() }
    }

    /// What stands on a device, with its head.
    pub(super) fn on_device(facts: &'a Facts, head: &'a [u8]) -> Self {
        Self { response: Response::Entry(facts, head), request: None, fields: OnceCell::new() }
    }

    fn fields(&self) -> &Fields {
        self.fields.get_or_init(|| {
            let mut fields = Fields::new();
            let head = match self.response {
                Response::Object(object) => object.head(),
                Response::Entry(_, head) => head,
            };
            crate::head::load(head, &mut fields);
            fields
        })
    }

    fn status(&self) -> u16 {
        match self.response {
            Response::Object(object) => object.status(),
            Response::Entry(facts, _) => facts.status,
        }
    }

    /// Origin time, ttl, grace and keep.
    fn times(&self) -> (Time, Seconds, Seconds, Seconds) {
        match self.response {
            Response::Object(object) => (object.origin_time(), object.ttl(), object.grace(), object.keep()),
            Response::Entry(facts, _) => {
                (facts.origin_time, facts.ttl.into(), facts.grace.into(), facts.keep.into())
            }
        }
    }
}

/// Whether a ban hits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hit {
    Yes,
    No,
    /// It does if the request is right, which is not known.
    Depends,
}

/// The operators that each kind of field takes, in the order in which errors list them.
const TEXT_OPERATORS: &str = "==, !=, ~ or !~";
const NUMBER_OPERATORS: &str = "==, !=, >, >=, < or <=";

impl Expression {
    /// Reads what VCL's `ban()` takes: words between blanks, without quoting.
    ///
    /// # Errors
    /// What is wrong, in Varnish's words.
    pub(super) fn parse(text: &[u8]) -> Result<Self, String> {
        let mut words = text.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        let mut expression = Self { tests: Vec::new(), text: Vec::new() };
        loop {
            let field = words.next().ok_or("No ban conditions found.")?;
            let operator = words.next().ok_or("Expected comparison operator.")?;
            let argument = words.next().ok_or("Expected second operand.")?;
            expression.add(field, operator, argument)?;
            match words.next() {
                None => return Ok(expression),
                Some(b"&&") => {}
                Some(other) => {
                    return Err(format!(
                        "Expected && between conditions, found \"{}\"",
                        other.escape_ascii()
                    ));
                }
            }
        }
    }

    /// Reads what the command line takes: words that were split and unquoted already.
    ///
    /// # Errors
    /// What is wrong, in Varnish's words.
    pub(super) fn from_words<W: AsRef<[u8]>>(words: &[W]) -> Result<Self, String> {
        if words.len() % 4 != 3 {
            return Err("Wrong number of arguments".into());
        }
        if let Some(other) = words.iter().map(W::as_ref).skip(3).step_by(4).find(|word| *word != b"&&") {
            return Err(format!("Found \"{}\" expected &&", other.escape_ascii()));
        }
        let mut expression = Self { tests: Vec::new(), text: Vec::new() };
        for test in words.chunks(4) {
            expression.add(test[0].as_ref(), test[1].as_ref(), test[2].as_ref())?;
        }
        Ok(expression)
    }

    /// The one that bans nothing.
    pub(super) fn empty() -> Self {
        Self { tests: Vec::new(), text: Vec::new() }
    }

    /// One that bans every object.
    pub(super) fn everything() -> Self {
        Self::from_words(&[b"obj.status", &b"!="[..], b"none"]).unwrap_or_else(|_| Self::empty())
    }

    /// Whether it looks at the request.
    pub(super) fn looks_at_request(&self) -> bool {
        self.tests.iter().any(|test| matches!(test.field, Field::Url | Field::RequestHeader(_)))
    }

    /// Whether it looks at the object.
    pub(super) fn looks_at_object(&self) -> bool {
        self.tests.iter().any(|test| !matches!(test.field, Field::Url | Field::RequestHeader(_)))
    }

    /// Whether an equal ban that comes later says all that this one does: not so where it asks for times, which the two
    /// reckon from different moments.
    pub(super) fn is_repeatable(&self) -> bool {
        !self.tests.iter().any(|test| matches!(test.field, Field::Ttl | Field::Age))
    }

    /// Whether the object is hit by a ban made at `time`. Adds the conditions tested to `tested`.
    pub(super) fn hits(&self, subject: &Subject<'_>, time: Time, tested: &mut u64) -> Hit {
        let mut hit = if self.tests.is_empty() { Hit::No } else { Hit::Yes };
        for test in &self.tests {
            *tested += 1;
            match test.holds(subject, time) {
                Some(true) => {}
                Some(false) => return Hit::No,
                None => hit = Hit::Depends,
            }
        }
        hit
    }

    fn add(&mut self, name: &[u8], operator: &[u8], argument: &[u8]) -> Result<(), String> {
        let field = field(name)?;
        let numeric = matches!(field, Field::Ttl | Field::Age | Field::Grace | Field::Keep);
        if !self.text.is_empty() {
            self.text.extend_from_slice(b" && ");
        }
        self.text.extend([name, b" ", operator, b" "].concat());
        let condition = if numeric {
            let (orders, holds) =
                number_operator(operator).ok_or_else(|| unexpected(NUMBER_OPERATORS, operator))?;
            let seconds = duration(argument).ok_or_else(|| {
                format!("expected duration <n.nn>[ms|s|m|h|d|w|y] got \"{}\"", argument.escape_ascii())
            })?;
            push_duration(&mut self.text, seconds);
            Condition::Number(orders, holds, as_kept(&field, seconds))
        } else {
            self.text.extend_from_slice(argument);
            text_condition(operator, argument)?
        };
        self.tests.push(Test { field, condition });
        Ok(())
    }
}

fn unexpected(operators: &str, got: &[u8]) -> String {
    format!("expected conditional ({operators}) got \"{}\"", got.escape_ascii())
}

fn field(name: &[u8]) -> Result<Field, String> {
    let header = |prefix: &[u8], of: fn(Vec<u8>) -> Field| {
        let rest = name.strip_prefix(prefix)?;
        Some(match rest.len() {
            0 => Err(format!("Missing header name: \"{}\"", prefix.escape_ascii())),
            1..=NAME_MAX => Ok(of(rest.to_vec())),
            _ => Err(format!("Header name longer than {NAME_MAX} bytes")),
        })
    };
    Ok(match name {
        b"req.url" => Field::Url,
        b"obj.status" => Field::Status,
        b"obj.ttl" => Field::Ttl,
        b"obj.age" => Field::Age,
        b"obj.grace" => Field::Grace,
        b"obj.keep" => Field::Keep,
        _ => header(b"req.http.", Field::RequestHeader)
            .or_else(|| header(b"obj.http.", Field::ObjectHeader))
            .unwrap_or_else(|| Err(format!("Unknown or unsupported field \"{}\"", name.escape_ascii())))?,
    })
}

fn number_operator(operator: &[u8]) -> Option<(&'static [Ordering], bool)> {
    Some(match operator {
        b"==" => (&[Ordering::Equal], true),
        b"!=" => (&[Ordering::Equal], false),
        b">" => (&[Ordering::Greater], true),
        b">=" => (&[Ordering::Greater, Ordering::Equal], true),
        b"<" => (&[Ordering::Less], true),
        b"<=" => (&[Ordering::Less, Ordering::Equal], true),
        _ => return None,
    })
}

fn text_condition(operator: &[u8], argument: &[u8]) -> Result<Condition, String> {
    let equals = || TextTest::Equals(argument.to_vec());
    let matches = || {
        let pattern = str::from_utf8(argument).map_err(|_| "Regex compile error: not in UTF-8")?;
        let regex = Regex::new(pattern).map(TextTest::Matches);
        // As in Varnish, where it was wrong is only said of patterns in VCL.
        let words = |error: &str| error.split(" (at offset").next().unwrap_or_default().to_owned();
        regex.map_err(|error| format!("Regex compile error: {}", words(&error)))
    };
    Ok(match operator {
        b"==" => Condition::Text(equals(), true),
        b"!=" => Condition::Text(equals(), false),
        b"~" => Condition::Text(matches()?, true),
        b"!~" => Condition::Text(matches()?, false),
        _ => return Err(unexpected(TEXT_OPERATORS, operator)),
    })
}

/// A number with a unit; unlike elsewhere the unit must be there.
fn duration(text: &[u8]) -> Option<Seconds> {
    let text = str::from_utf8(text).ok()?;
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit() || matches!(c, '.' | '-' | '+'));
    let number: Seconds = text[..text.len() - unit.len()].parse().ok()?;
    let scale = base::units::unit_seconds(unit).filter(|_| !unit.is_empty())?;
    Some(number * scale).filter(|seconds| seconds.is_finite())
}

/// Objects keep these with the precision of an `f32`: `==` must compare what was meant.
fn as_kept(field: &Field, seconds: Seconds) -> Seconds {
    match field {
        Field::Grace | Field::Keep => f64::from(seconds as f32),
        _ => seconds,
    }
}

/// Appends a duration in the largest unit that divides it.
fn push_duration(out: &mut Vec<u8>, seconds: Seconds) {
    const UNITS: [(u64, &str); 6] =
        [(31_536_000, "y"), (604_800, "w"), (86_400, "d"), (3_600, "h"), (60, "m"), (1, "s")];
    let mut text = String::new();
    let milliseconds = (seconds.abs() * 1e3).round() as u64;
    let (whole, fraction) = (milliseconds / 1_000, milliseconds % 1_000);
    if seconds < 0.0 {
        text.push('-');
    }
    // Writing to a string cannot fail.
    let _ = match (whole, fraction) {
        (0, 0) => write!(text, "0s"),
        (0, fraction) => write!(text, "{fraction}ms"),
        (whole, 0) => {
            let (size, unit) = UNITS.iter().find(|(size, _)| whole % size == 0).unwrap_or(&UNITS[5]);
            write!(text, "{}{unit}", whole / size)
        }
        (whole, fraction) => write!(text, "{whole}.{fraction:03}s"),
    };
    out.extend_from_slice(text.as_bytes());
}

impl Test {
    /// `None` if that depends on the request, which is not there.
    fn holds(&self, subject: &Subject<'_>, time: Time) -> Option<bool> {
        let (origin_time, ttl, grace, keep) = subject.times();
        Some(match &self.field {
            Field::Url => self.condition.holds_for_text(Some(subject.request?.0)),
            Field::RequestHeader(name) => self.condition.holds_for_text(subject.request?.1.get(name)),
            Field::ObjectHeader(name) => self.condition.holds_for_text(subject.fields().get(name)),
            Field::Status => self.condition.holds_for_text(Some(subject.status().to_string().as_bytes())),
            Field::Ttl => self.condition.holds_for_number(origin_time + ttl - time),
            Field::Grace => self.condition.holds_for_number(grace),
            Field::Keep => self.condition.holds_for_number(keep),
            Field::Age => self.condition.holds_for_number(time - origin_time),
        })
    }
}

impl Condition {
    fn holds_for_text(&self, text: Option<&[u8]>) -> bool {
        let Self::Text(test, wanted) = self else { return false };
        let answer = match (test, text) {
            (TextTest::Equals(argument), text) => text == Some(argument),
            // A match that goes over its limits is none, as in Varnish.
            (TextTest::Matches(regex), Some(text)) => regex.is_match(text).unwrap_or(false),
            (TextTest::Matches(_), None) => return false,
        };
        answer == *wanted
    }

    fn holds_for_number(&self, number: Seconds) -> bool {
        let Self::Number(orders, wanted, argument) = self else { return false };
        number.partial_cmp(argument).is_some_and(|order| orders.contains(&order)) == *wanted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Result<&str, &str>) {
        let got =
            Expression::parse(text.as_bytes()).map(|expression| String::from_utf8(expression.text).unwrap());
        assert_eq!(got.as_deref().map_err(String::as_str), expected, "{text}");
    }

    #[test]
    fn reads_text_as_ban_in_vcl_does() {
        check("req.url ~ ^/a", Ok("req.url ~ ^/a"));
        check("  req.url\t==  /a ", Ok("req.url == /a"));
        check("req.http.host == a && obj.http.x !~ b", Ok("req.http.host == a && obj.http.x !~ b"));
        check("obj.status != 200", Ok("obj.status != 200"));
        check("obj.age > 3600s && obj.ttl <= 1.5s", Ok("obj.age > 1h && obj.ttl <= 1.500s"));
        check("obj.grace == 20ms && obj.keep >= 0s", Ok("obj.grace == 20ms && obj.keep >= 0s"));
        check("req.url == \"a", Ok("req.url == \"a"));
        check("", Err("No ban conditions found."));
        check("req.url", Err("Expected comparison operator."));
        check("req.url ==", Err("Expected second operand."));
        check("req.url == a b", Err("Expected && between conditions, found \"b\""));
        check("req.url == a &&", Err("No ban conditions found."));
        check("req.url == a && obj.ttl", Err("Expected comparison operator."));
        check("req.urlx == a", Err("Unknown or unsupported field \"req.urlx\""));
        check("foo == a", Err("Unknown or unsupported field \"foo\""));
        check("req.http. == a", Err("Missing header name: \"req.http.\""));
        check("obj.http. == a", Err("Missing header name: \"obj.http.\""));
        check("req.url > a", Err("expected conditional (==, !=, ~ or !~) got \">\""));
        check("obj.age ~ 1s", Err("expected conditional (==, !=, >, >=, < or <=) got \"~\""));
        for duration in ["1", "s", "1x", "1e3s", "-", ""] {
            let text = format!("obj.age > \"{duration}\"").replace('"', "");
            assert!(Expression::parse(text.as_bytes()).is_err(), "{text}");
        }
        check("obj.age > 1", Err("expected duration <n.nn>[ms|s|m|h|d|w|y] got \"1\""));
        let long = format!("req.http.{} == a", "x".repeat(127));
        check(&long, Err("Header name longer than 126 bytes"));
    }

    #[test]
    fn a_bad_regex_is_refused_where_it_stands() {
        let error = Expression::parse(b"req.url ~ a(").unwrap_err();
        assert!(error.starts_with("Regex compile error: ") && error.len() > 25, "{error}");
        assert!(Expression::parse(b"req.url ~ \xff").is_err());
        assert!(Expression::parse(b"req.url == \xff").is_ok());
    }

    #[test]
    fn reads_words_as_the_command_line_does() {
        let check = |words: &[&str], expected: Result<&str, &str>| {
            let got =
                Expression::from_words(words).map(|expression| String::from_utf8(expression.text).unwrap());
            assert_eq!(got.as_deref().map_err(String::as_str), expected, "{words:?}");
        };
        check(&["req.url", "==", "/a b"], Ok("req.url == /a b"));
        check(&["req.url", "==", "a", "&&", "obj.status", "==", "1"], Ok("req.url == a && obj.status == 1"));
        check(&[], Err("Wrong number of arguments"));
        check(&["req.url", "=="], Err("Wrong number of arguments"));
        check(&["req.url", "==", "a", "&&"], Err("Wrong number of arguments"));
        check(&["req.url", "==", "a", "||", "obj.status", "==", "1"], Err("Found \"||\" expected &&"));
        check(&["req.uri", "==", "a"], Err("Unknown or unsupported field \"req.uri\""));
    }

    #[test]
    fn durations_are_listed_in_the_largest_unit_that_fits() {
        let check = |text: &str, expected: &str| {
            let mut out = Vec::new();
            push_duration(&mut out, duration(text.as_bytes()).unwrap());
            assert_eq!(out, expected.as_bytes(), "{text}");
        };
        check("60s", "1m");
        check("90s", "90s");
        check("120m", "2h");
        check("7d", "1w");
        check("365d", "1y");
        check("0.5s", "500ms");
        check("1.25s", "1.250s");
        check("0d", "0s");
        check("-10s", "-10s");
    }
}
