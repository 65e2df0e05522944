//! The module `accept` of varnish-modules: one of a few known values in the place of an `Accept`-like header.
//!
//! The header is a list of items with parameters; of those that are among the choices, the answer is the one of the highest
//! quality (`q`, which counts where it is the first parameter). A list that is not well formed has none. Choices compare
//! without case.

use crate::arguments::{Arguments, functions, required};
use copal_vcl as vcl;
use parking_lot::RwLock;
use std::sync::Arc;
use vcl::host::{Fault, Result};
use vcl::value::{Text, Value};
use vcl::vmod::{Call, Object, ObjectRef, Type, Vmod};

/// The most choices of one rule.
const CHOICES_MAX: usize = 1024;

/// The module's table. Source: `vmod_accept(3)` of varnish-modules.
pub(crate) static VMOD: Vmod = Vmod {
    name: "accept",
    functions: &[],
    objects: &[Object {
        name: "rule",
        parameters: &[required("string", Type::String)],
        make,
        methods: functions! {
            "add"(required("string", Type::String)) -> Void, add;
            "remove"(required("string", Type::String)) -> Void, remove;
            "filter"(required("string", Type::String)) -> String, filter;
        },
    }],
};

/// What is answered where nothing fits, and what may fit.
#[derive(Debug)]
struct Rule {
    fallback: Text,
    choices: RwLock<Vec<Text>>,
}

fn make(_: &str, call: &mut Call<'_>) -> Result<ObjectRef> {
    let fallback = Text::copy_from_slice(Arguments(call.arguments).text_or_empty(0)?);
    Ok(Arc::new(Rule { fallback, choices: RwLock::default() }))
}

fn rule<'call>(call: &Call<'call>) -> Result<&'call Rule> {
    call.object
        .and_then(|object| object.downcast_ref())
        .ok_or_else(|| Fault("accept: a method was called on something else".into()))
}

fn add(call: &mut Call<'_>) -> Result<Value> {
    let rule = rule(call)?;
    let Some(choice) = Arguments(call.arguments).text(0)? else { return Ok(Value::Void) };
    let mut choices = rule.choices.write();
    if !choices.iter().any(|known| known.eq_ignore_ascii_case(choice)) {
        if choices.len() >= CHOICES_MAX {
            return Err(Fault(format!("accept: more than {CHOICES_MAX} choices")));
        }
        choices.push(Text::copy_from_slice(choice));
    }
    Ok(Value::Void)
}

fn remove(call: &mut Call<'_>) -> Result<Value> {
    let rule = rule(call)?;
    let choice = Arguments(call.arguments).text_or_empty(0)?;
    rule.choices.write().retain(|known| !known.eq_ignore_ascii_case(choice));
    Ok(Value::Void)
}

fn filter(call: &mut Call<'_>) -> Result<Value> {
    let rule = rule(call)?;
    let header = Arguments(call.arguments).text_or_empty(0)?;
    let choices = rule.choices.read();
    Ok(Value::String(Some(choose(header, &choices).unwrap_or(&rule.fallback).clone())))
}

/// The choice of the highest quality, of equals the first; none if there is none or the list is not well formed.
fn choose<'rule>(header: &[u8], choices: &'rule [Text]) -> Option<&'rule Text> {
    let mut scanner = Scanner(header);
    let (mut best, mut highest) = (None, 0.0);
    while let Some((name, quality)) = scanner.item().ok()? {
        let choice = choices.iter().find(|choice| choice.eq_ignore_ascii_case(name));
        if choice.is_some() && quality > highest {
            (best, highest) = (choice, quality);
        }
    }
    best
}

/// What is left of a list.
struct Scanner<'list>(&'list [u8]);

/// A list that is not well formed.
struct Malformed;

#[derive(PartialEq)]
enum Token<'list> {
    Word(&'list [u8]),
    Mark(u8),
    Blank,
    End,
}

impl<'list> Scanner<'list> {
    fn token(&mut self) -> Token<'list> {
        let is_blank = |byte: &u8| byte.is_ascii_whitespace() || *byte == 0x0b;
        let is_mark = |byte: &u8| matches!(byte, b',' | b';' | b'=');
        let length = match self.0.first() {
            None => return Token::End,
            Some(mark) if is_mark(mark) => {
                self.0 = &self.0[1..];
                return Token::Mark(*mark);
            }
            Some(first) => {
                let kind = is_blank(first);
                self.0.iter().take_while(|byte| is_blank(byte) == kind && !is_mark(byte)).count()
            }
        };
        let (token, rest) = self.0.split_at(length);
        self.0 = rest;
        if token.first().is_some_and(is_blank) { Token::Blank } else { Token::Word(token) }
    }

    fn after_blanks(&mut self) -> Token<'list> {
        match self.token() {
            Token::Blank => self.token(),
            other => other,
        }
    }

    fn word(token: Token<'list>) -> std::result::Result<&'list [u8], Malformed> {
        if let Token::Word(word) = token { Ok(word) } else { Err(Malformed) }
    }

    /// The next item and its quality; none at the end. Only a first parameter `q` says the quality.
    fn item(&mut self) -> std::result::Result<Option<(&'list [u8], f64)>, Malformed> {
        let name = match self.after_blanks() {
            Token::End => return Ok(None),
            token => Self::word(token)?,
        };
        let (mut quality, mut is_first) = (1.0, true);
        loop {
            match self.after_blanks() {
                Token::End | Token::Mark(b',') => return Ok(Some((name, quality))),
                Token::Mark(b';') => {}
                _ => return Err(Malformed),
            }
            let parameter = Self::word(self.after_blanks())?;
            if self.token() != Token::Mark(b'=') {
                return Err(Malformed);
            }
            let value = Self::word(self.token())?;
            if is_first && parameter == b"q" {
                quality = number(value)?;
            }
            is_first = false;
        }
    }
}

/// A quality: a number from 0 to 1 that begins with a digit.
fn number(word: &[u8]) -> std::result::Result<f64, Malformed> {
    let text = std::str::from_utf8(word).map_err(|_| Malformed)?;
    let quality: f64 = text.parse().map_err(|_| Malformed)?;
    let begins = text.starts_with(['0', '1']);
    if begins && (0.0..=1.0).contains(&quality) { Ok(quality) } else { Err(Malformed) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{FakeHost, call_function, make_object, text};
    use vcl::host::Sub;

    fn method(object: &ObjectRef, index: usize, argument: &str) -> String {
        let method = &VMOD.objects[0].methods[index];
        let value =
            call_function(&mut FakeHost::default(), Sub::Recv, method, Some(object), &[text(argument)]);
        match value.0.unwrap() {
            Value::String(Some(text)) => String::from_utf8_lossy(&text).into_owned(),
            _ => "-".into(),
        }
    }

    #[test]
    fn the_first_choice_that_fits() {
        let rule = make_object(&VMOD.objects[0], "rule", &[text("foo")]).unwrap();
        for choice in ["bar", "baz", "bar", "text/html"] {
            method(&rule, 0, choice);
        }
        for (header, answer) in [
            ("foo", "foo"),
            ("", "foo"),
            ("BaR", "bar"),
            ("baz", "baz"),
            ("qux;q=1 ; level=15,bar;baz=no", "bar"),
            ("baza; baz=0.2    ,  bar, baz", "bar"),
            ("this , is; a=tricky/one , but,   bar  , is)what$we; want=!", "bar"),
            ("bar; q = 1", "foo"),
            ("bar; q= 0.5", "foo"),
            ("bar; quick=0.2, baz; q=0.3", "bar"),
            ("bar; q=0", "foo"),
            ("bar; q=0.000, baz", "baz"),
            ("bar; level=1; q=0.3, baz;q=0.5", "bar"),
            ("*/*;q=0.1, text/html", "text/html"),
            ("a b, bar", "foo"),
            ("bar;q=0.2, baz;q=0.5", "baz"),
            ("bar;q=0.5, baz;q=0.5", "bar"),
            ("bar;level=1;q=0, baz", "bar"),
            ("bar;Q=0", "bar"),
            ("bar, ,baz", "foo"),
            ("bar,", "bar"),
            ("bar, baz;q=2", "foo"),
            ("bar, baz;q=-0", "foo"),
            ("bar, baz;q=0.0x", "foo"),
            ("x;a=\"b,baz\", bar", "bar"),
        ] {
            assert_eq!(method(&rule, 2, header), answer, "{header:?}");
        }
        method(&rule, 1, "bar");
        assert_eq!(method(&rule, 2, "bar, baz"), "baz");
    }

    #[test]
    fn choices_have_an_end() {
        let rule = make_object(&VMOD.objects[0], "rule", &[text("foo")]).unwrap();
        let add = |choice: String| {
            let method = &VMOD.objects[0].methods[0];
            call_function(&mut FakeHost::default(), Sub::Init, method, Some(&rule), &[Value::text(choice)]).0
        };
        for number in 0..CHOICES_MAX {
            add(format!("c{number}")).unwrap();
        }
        assert!(add("one more".into()).is_err());
    }
}
