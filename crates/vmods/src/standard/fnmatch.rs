//! `std.fnmatch`: shell patterns, as glibc's fnmatch(3) in the C locale.
//!
//! The matcher remembers only the last `*`. That is enough: an earlier one taking more could only push the later ones to
//! the right (and with `pathname` none crosses a `/`), so time is bounded by pattern length times subject length.

use crate::arguments::Arguments;
use copal_vcl as vcl;
use vcl::host::{Fault, Result};
use vcl::value::Value;
use vcl::vmod::Call;

/// `std.fnmatch(pattern, subject, pathname=true, noescape=false, period=false)`
pub(super) fn fnmatch(call: &mut Call<'_>) -> Result<Value> {
    let arguments = Arguments(call.arguments);
    let unset = |which: &str| Fault(format!("std.fnmatch(): {which} is NULL"));
    let pattern = arguments.text(0)?.ok_or_else(|| unset("pattern"))?;
    let subject = arguments.text(1)?.ok_or_else(|| unset("subject"))?;
    let options = Options {
        pathname: arguments.boolean(2)?,
        noescape: arguments.boolean(3)?,
        period: arguments.boolean(4)?,
    };
    Ok(Value::Bool(matches(pattern, subject, options)))
}

/// Whether `subject` matches the shell pattern, in which `*` and `?` stand for anything.
pub(crate) fn glob(pattern: &[u8], subject: &[u8]) -> bool {
    matches(pattern, subject, Options { pathname: false, noescape: false, period: false })
}

/// How a pattern is read; each field is a parameter of `std.fnmatch`.
#[derive(Clone, Copy, Debug)]
struct Options {
    /// Only a `/` matches a `/`.
    pathname: bool,
    /// `\` is an ordinary character.
    noescape: bool,
    /// Only a `.` matches a leading `.`.
    period: bool,
}

fn matches(pattern: &[u8], subject: &[u8], options: Options) -> bool {
    let (mut at, mut position) = (0, 0);
    // After the last `*`: where the pattern goes on, and where in the subject it was last tried.
    let mut star: Option<(usize, usize)> = None;
    loop {
        let leading = options.leading_period(subject, position);
        let step = match pattern.get(at) {
            None if position == subject.len() => return true,
            None => None,
            Some(b'*') if leading => return false,
            Some(b'*') => {
                at += 1;
                star = Some((at, position));
                continue;
            }
            Some(_) => match subject.get(position) {
                Some(&byte) => options.one(pattern, at, byte, leading),
                None => None,
            },
        };
        if let Some(next) = step {
            (at, position) = (next, position + 1);
            continue;
        }
        let Some((resume, tried)) = star else { return false };
        match subject.get(tried) {
            None => return false,
            Some(b'/') if options.pathname => return false,
            Some(_) => {
                star = Some((resume, tried + 1));
                (at, position) = (resume, tried + 1);
            }
        }
    }
}

/// What a bracket expression says of one character.
enum Bracket {
    /// It has no end: the `[` is an ordinary character.
    Open,
    /// It matches nothing, whatever the character.
    Never,
    /// The answer, and where the pattern goes on.
    Answer(bool, usize),
}

impl Options {
    /// Whether the subject has at `position` a period that only a period may match.
    fn leading_period(self, subject: &[u8], position: usize) -> bool {
        let begins = position == 0 || (self.pathname && subject[position - 1] == b'/');
        self.period && begins && subject.get(position) == Some(&b'.')
    }

    /// Where the pattern goes on if the element at `at` (no `*`) matches `byte`.
    fn one(self, pattern: &[u8], at: usize, byte: u8, leading: bool) -> Option<usize> {
        let barred = leading || (self.pathname && byte == b'/');
        match pattern[at] {
            b'?' => (!barred).then_some(at + 1),
            b'[' => match self.bracket(pattern, at + 1, byte) {
                Bracket::Open => (byte == b'[').then_some(at + 1),
                Bracket::Never => None,
                Bracket::Answer(matched, next) => (matched && !barred).then_some(next),
            },
            b'\\' if !self.noescape => (pattern.get(at + 1) == Some(&byte)).then_some(at + 2),
            literal => (literal == byte).then_some(at + 1),
        }
    }

    /// The bracket expression whose first character is at `at`.
    fn bracket(self, pattern: &[u8], mut at: usize, byte: u8) -> Bracket {
        let negated = matches!(pattern.get(at), Some(b'!' | b'^'));
        at += usize::from(negated);
        let first = at;
        let mut found = false;
        loop {
            match pattern.get(at) {
                None => return Bracket::Open,
                Some(b']') if at > first => return Bracket::Answer(found != negated, at + 1),
                Some(b'/') if self.pathname => return Bracket::Never,
                Some(b'[') if pattern.get(at + 1) == Some(&b':') => {
                    let Some((name, next)) = delimited(pattern, at, b':') else { return Bracket::Open };
                    let Some(member) = in_class(name, byte) else { return Bracket::Never };
                    found |= member;
                    at = next;
                }
                Some(_) => {
                    let Some((low, next)) = self.endpoint(pattern, at) else { return Bracket::Never };
                    let range = pattern.get(next) == Some(&b'-')
                        && !matches!(pattern.get(next + 1), None | Some(b']'));
                    let (high, next) = if range {
                        let Some(end) = self.endpoint(pattern, next + 1) else { return Bracket::Never };
                        end
                    } else {
                        (low, next)
                    };
                    found |= (low..=high).contains(&byte);
                    at = next;
                }
            }
        }
    }

    /// One end of a range: a character, escaped or not, or `[.x.]`, or `[=x=]`.
    fn endpoint(self, pattern: &[u8], at: usize) -> Option<(u8, usize)> {
        match *pattern.get(at)? {
            b'\\' if !self.noescape => Some((*pattern.get(at + 1)?, at + 2)),
            b'[' if matches!(pattern.get(at + 1), Some(b'.' | b'=')) => {
                match delimited(pattern, at, pattern[at + 1])? {
                    ([byte], next) => Some((*byte, next)),
                    _ => None,
                }
            }
            byte => Some((byte, at + 1)),
        }
    }
}

/// The text between `[:` and `:]` (or another mark) at `at`, and what follows.
fn delimited(pattern: &[u8], at: usize, mark: u8) -> Option<(&[u8], usize)> {
    let begin = at + 2;
    let length = pattern.get(begin..)?.windows(2).position(|pair| pair == [mark, b']'])?;
    Some((&pattern[begin..begin + length], begin + length + 2))
}

/// Whether `byte` is in a named class; `None` for a class that does not exist.
fn in_class(name: &[u8], byte: u8) -> Option<bool> {
    Some(match name {
        b"alnum" => byte.is_ascii_alphanumeric(),
        b"alpha" => byte.is_ascii_alphabetic(),
        b"blank" => matches!(byte, b' ' | b'\t'),
        b"cntrl" => byte.is_ascii_control(),
        b"digit" => byte.is_ascii_digit(),
        b"graph" => byte.is_ascii_graphic(),
        b"lower" => byte.is_ascii_lowercase(),
        b"print" => byte.is_ascii_graphic() || byte == b' ',
        b"punct" => byte.is_ascii_punctuation(),
        b"space" => byte.is_ascii_whitespace() || byte == 0x0b,
        b"upper" => byte.is_ascii_uppercase(),
        b"xdigit" => byte.is_ascii_hexdigit(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::call_std;

    const DEFAULT: Options = Options { pathname: true, noescape: false, period: false };
    const LOOSE: Options = Options { pathname: false, noescape: true, period: true };

    #[test]
    fn as_varnish_answers() {
        // Pattern, subject, the answer by default, and with pathname=false, noescape=true, period=true.
        for (pattern, subject, default, loose) in [
            ("/foo/*", "/foo/bar", true, true),
            ("/foo/*", "/foo/bar/baz", false, true),
            ("/*/?", "/a/b", true, true),
            ("[!0-9]x", "ax", true, true),
            ("[!0-9]x", "1x", false, false),
            ("[^0-9]x", "ax", true, true),
            (r"a\*", "a*", true, false),
            (r"a\*", "ab", false, false),
            (r"a\*", r"a\b", false, true),
            ("[a/]b", "/b", false, true),
            ("[]a]b", "]b", true, true),
            ("[a", "[a", true, true),
            ("*", ".x", true, false),
            ("/*", "/.x", true, true),
            ("[[:digit:]]", "5", true, true),
            ("[a-c]", "b", true, true),
            ("[z-a]", "b", false, false),
            ("**", "a", true, true),
            ("?", "", false, false),
            ("a[b/c]d", "a[b/c]d", false, false),
            ("[[.a.]]", "a", true, true),
            (r"\", r"\", false, true),
            (r"a\", "a", false, false),
            (r"[\]]", "]", true, false),
            ("[a-]", "-", true, true),
            ("[--0]", ".", true, false),
            ("b", "abc", false, false),
            ("bc", "bc", true, true),
            ("*[b]*", "a[b]c", true, true),
            ("[[:foo:]]", "f", false, false),
            ("[!a]", "/", false, true),
            ("[[=a=]]", "a", true, true),
        ] {
            let both =
                [DEFAULT, LOOSE].map(|options| matches(pattern.as_bytes(), subject.as_bytes(), options));
            assert_eq!(both, [default, loose], "{pattern} ~ {subject}");
        }
    }

    #[test]
    fn periods_after_a_slash_lead_too() {
        let options = Options { period: true, ..DEFAULT };
        for (pattern, subject, answer) in [
            ("/*", "/.x", false),
            ("/.*", "/.x", true),
            ("/?x", "/.x", false),
            ("/[.]x", "/.x", false),
            ("/a*", "/a.x", true),
        ] {
            assert_eq!(
                matches(pattern.as_bytes(), subject.as_bytes(), options),
                answer,
                "{pattern} ~ {subject}"
            );
        }
    }

    #[test]
    fn many_stars_take_no_exponential_time() {
        let pattern = b"*a".repeat(1000);
        let subject = [b"a".repeat(3000), b"b".to_vec()].concat();
        assert!(!matches(&pattern, &subject, DEFAULT));
    }

    #[test]
    fn an_unset_string_is_a_fault() {
        let fault = call_std("fnmatch", &[Value::String(None)]).unwrap_err();
        assert_eq!(fault.0, "std.fnmatch(): pattern is NULL");
        let fault = call_std("fnmatch", &[Value::text("a"), Value::String(None)]).unwrap_err();
        assert_eq!(fault.0, "std.fnmatch(): subject is NULL");
    }
}
