//! Tokens into an expression, one function a rule of the grammar (see the module above).

use super::fault::Fault;
use super::lex::{Kind, Token, tokens};
use super::number::{float_operand, integer_operand};
use super::{Expression, Level, Relation, Selection, Test};
use crate::mask::Mask;
use crate::taglist::{self, WhyNot};
use pcre2::bytes::{Regex, RegexBuilder};

/// How deep parentheses may stand in each other.
const DEPTH_MAX: usize = 100;

/// Reads all lines.
pub(super) fn parse(text: &str, any_case: bool) -> Result<Expression, Fault> {
    let mut parser = Parser { text, any_case, tokens: tokens(text)?, at: 0, depth: 0 };
    let mut lines = Vec::new();
    while parser.at < parser.tokens.len() {
        if parser.peek() == Kind::End {
            parser.at += 1;
            continue;
        }
        lines.push(parser.either()?);
        if parser.peek() != Kind::End {
            return Err(parser.expected("EOI"));
        }
    }
    match lines.len() {
        0 => Err(Fault::empty()),
        1 => Ok(lines.remove(0)),
        _ => Ok(Expression::Any(lines)),
    }
}

struct Parser<'a> {
    text: &'a str,
    any_case: bool,
    /// The last is an end.
    tokens: Vec<Token>,
    at: usize,
    depth: usize,
}

impl Parser<'_> {
    fn token(&self) -> &Token {
        &self.tokens[self.at.min(self.tokens.len() - 1)]
    }

    fn peek(&self) -> Kind {
        self.token().kind
    }

    /// Takes the token if it is one of this kind.
    fn takes(&mut self, kind: Kind) -> bool {
        let is = self.peek() == kind;
        // An end is left for the line's own loop.
        self.at += usize::from(is && kind != Kind::End);
        is
    }

    fn fault(&self, message: String) -> Fault {
        Fault::at(self.text, self.token().place.clone(), message)
    }

    fn expected(&self, what: &str) -> Fault {
        let got = &self.text[self.token().place.clone()];
        self.fault(format!("Expected {what} got '{got}'"))
    }

    /// Takes a closing sign.
    fn closes(&mut self, sign: u8) -> Result<(), Fault> {
        if self.takes(Kind::Sign(sign)) {
            return Ok(());
        }
        let sign = char::from(sign);
        Err(match self.peek() {
            Kind::End => self.fault(format!("Expected '{sign}' got end of input")),
            _ => self.expected(&format!("'{sign}'")),
        })
    }

    fn either(&mut self) -> Result<Expression, Fault> {
        let mut parts = vec![self.all()?];
        while self.takes(Kind::Or) {
            parts.push(self.all()?);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Expression::Any(parts) })
    }

    fn all(&mut self) -> Result<Expression, Fault> {
        let mut parts = vec![self.factor()?];
        while self.takes(Kind::And) {
            parts.push(self.factor()?);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Expression::All(parts) })
    }

    fn factor(&mut self) -> Result<Expression, Fault> {
        if self.takes(Kind::Not) {
            return Ok(Expression::Not(Box::new(self.primary()?)));
        }
        self.primary()
    }

    fn primary(&mut self) -> Result<Expression, Fault> {
        if self.peek() != Kind::Sign(b'(') {
            return self.condition();
        }
        if self.depth == DEPTH_MAX {
            return Err(self.fault("Too many parentheses".to_owned()));
        }
        self.at += 1;
        self.depth += 1;
        let inner = self.either()?;
        self.depth -= 1;
        self.closes(b')')?;
        Ok(inner)
    }

    fn condition(&mut self) -> Result<Expression, Fault> {
        let selection = self.selection()?;
        if selection.tags.is_none() {
            return self.number(&selection);
        }
        let operator = self.peek();
        let test = match operator {
            Kind::End | Kind::And | Kind::Or | Kind::Sign(b')') => {
                return Ok(Expression::Record(selection, Test::Exists));
            }
            Kind::SameText | Kind::OtherText => {
                self.at += 1;
                let text = self.operand("string")?.into_bytes();
                Test::Text { equal: operator == Kind::SameText, text, any_case: self.any_case }
            }
            Kind::Match | Kind::NoMatch => {
                self.at += 1;
                Test::Regex { matches: operator == Kind::Match, regex: self.regex()? }
            }
            _ => match relation(operator) {
                Some(relation) => {
                    self.at += 1;
                    self.comparison(relation)?
                }
                None => return Err(self.expected("operator")),
            },
        };
        Ok(Expression::Record(selection, test))
    }

    /// `vxid` and what it is compared with.
    fn number(&mut self, selection: &Selection) -> Result<Expression, Fault> {
        let relation = match relation(self.peek()) {
            Some(relation) => relation,
            None if self.peek() == Kind::Sign(b'[') => return Err(self.unwanted()),
            None => return Err(self.expected("vxid operator")),
        };
        if selection.level.is_some() || selection.prefix.is_some() || selection.field.is_some() {
            return Err(self.unwanted());
        }
        self.at += 1;
        self.is_operand("number")?;
        let token = self.token();
        if token.text.contains('.') {
            let message = format!("Expected integer got '{}'", &self.text[token.place.clone()]);
            return Err(Fault::within(self.text, token.place.clone(), token.place.start, message));
        }
        let wanted = self.integer()?;
        Ok(Expression::Number(relation, u64::try_from(wanted).unwrap_or(0)))
    }

    fn unwanted(&self) -> Fault {
        self.fault("Unexpected taglist selection for vxid".to_owned())
    }

    /// The part before the operator; without tags it is `vxid`.
    fn selection(&mut self) -> Result<Selection, Fault> {
        let mut selection = Selection::default();
        if self.takes(Kind::Sign(b'{')) {
            selection.level = Some(self.level()?);
            self.closes(b'}')?;
        }
        if self.peek() == Kind::Word && self.token().text == "vxid" {
            self.at += 1;
        } else {
            selection.tags = Some(self.tags()?);
        }
        if self.takes(Kind::Sign(b':')) {
            selection.prefix = Some(self.operand("string")?.into_bytes());
        }
        if selection.tags.is_some() && self.takes(Kind::Sign(b'[')) {
            selection.field = Some(self.field()?);
            self.closes(b']')?;
        }
        Ok(selection)
    }

    fn level(&mut self) -> Result<Level, Fault> {
        self.is_word("integer")?;
        let text = self.token().text.trim_start_matches('+');
        if text.starts_with('-') {
            return Err(self.fault("Expected positive integer".to_owned()));
        }
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let number = text[..digits].parse().unwrap_or(usize::MAX);
        let level = match &text[digits..] {
            _ if digits == 0 => return Err(self.fault("Expected positive integer".to_owned())),
            "" => Level::Is(number),
            "+" => Level::AtLeast(number),
            "-" => Level::AtMost(number),
            _ => return Err(self.fault("Syntax error in level limit".to_owned())),
        };
        self.at += 1;
        Ok(level)
    }

    fn tags(&mut self) -> Result<Mask, Fault> {
        let mut tags = Mask::NONE;
        loop {
            self.is_word("VSL tag name")?;
            let found = taglist::one(&self.token().text).map_err(|why| {
                self.fault(match why {
                    WhyNot::None => "Tag name matches zero tags".to_owned(),
                    WhyNot::Ambiguous => "Tag name is ambiguous".to_owned(),
                    WhyNot::Syntax => "Syntax error in tag name".to_owned(),
                })
            })?;
            tags = tags.union(found);
            self.at += 1;
            if !self.takes(Kind::Sign(b',')) {
                return Ok(tags);
            }
        }
    }

    fn field(&mut self) -> Result<usize, Fault> {
        self.is_word("integer")?;
        let text = &self.token().text;
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let number = if is_number { text.parse().unwrap_or(usize::MAX) } else { 0 };
        if number == 0 {
            return Err(self.fault("Expected positive integer".to_owned()));
        }
        self.at += 1;
        Ok(number)
    }

    fn comparison(&mut self, relation: Relation) -> Result<Test, Fault> {
        self.is_operand("number")?;
        let text = self.token().text.clone();
        if text.contains('.') {
            let value = float_operand(&text);
            let value = value.ok_or_else(|| self.fault("Floating point parse error".to_owned()))?;
            self.at += 1;
            return Ok(Test::Float(relation, value));
        }
        if let (None, Some(value)) = (integer_operand(&text), float_operand(&text)) {
            self.at += 1;
            return Ok(Test::Float(relation, value));
        }
        Ok(Test::Integer(relation, self.integer()?))
    }

    fn integer(&mut self) -> Result<i64, Fault> {
        let value = integer_operand(&self.token().text);
        let value = value.ok_or_else(|| self.fault("Integer parse error".to_owned()))?;
        self.at += 1;
        Ok(value)
    }

    fn regex(&mut self) -> Result<Regex, Fault> {
        self.is_operand("regular expression")?;
        let token = self.token();
        let built = RegexBuilder::new().caseless(self.any_case).build(&token.text);
        let regex = built.map_err(|error| {
            // As Varnish counts: the quote is not left out.
            let spot = (token.place.start + error.offset().unwrap_or(0)).min(token.place.end - 1);
            Fault::within(
                self.text,
                token.place.clone(),
                spot,
                format!("Regular expression error: {}", reason(&error)),
            )
        })?;
        self.at += 1;
        Ok(regex)
    }

    fn is_word(&self, what: &str) -> Result<(), Fault> {
        if self.peek() == Kind::Word { Ok(()) } else { Err(self.expected(what)) }
    }

    fn is_operand(&self, what: &str) -> Result<(), Fault> {
        if matches!(self.peek(), Kind::Word | Kind::Quoted) { Ok(()) } else { Err(self.expected(what)) }
    }

    fn operand(&mut self, what: &str) -> Result<String, Fault> {
        self.is_operand(what)?;
        let text = self.token().text.clone();
        self.at += 1;
        Ok(text)
    }
}

fn relation(kind: Kind) -> Option<Relation> {
    Some(match kind {
        Kind::Equal => Relation::Equal,
        Kind::Unequal => Relation::Unequal,
        Kind::Less => Relation::Less,
        Kind::LessOrEqual => Relation::LessOrEqual,
        Kind::Greater => Relation::Greater,
        Kind::GreaterOrEqual => Relation::GreaterOrEqual,
        _ => return None,
    })
}

/// What the regular expression engine says, without where.
fn reason(error: &pcre2::Error) -> String {
    let text = error.to_string();
    text.rsplit_once(": ").map_or(text.clone(), |(_, reason)| reason.to_owned())
}
