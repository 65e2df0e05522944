//! Tokens to a tree: expressions, one function a level of precedence.

use crate::diagnostics::{Checked, Problem};
use crate::lex::Kind;
use crate::parse::Parser;
use crate::syntax::{Argument, Expression, ExpressionKind, Name, Number};

impl Parser<'_> {
    /// `and { || and }`
    pub(crate) fn expression(&mut self) -> Checked<Expression> {
        self.deeper()?;
        let start = self.peek().span;
        let mut list = vec![self.conjunction()?];
        while self.take("||") {
            list.push(self.conjunction()?);
        }
        self.depth -= 1;
        if list.len() == 1 {
            return Ok(list.pop().expect("one element"));
        }
        Ok(Expression { kind: ExpressionKind::Or(list), span: start.to(self.last_span()) })
    }

    fn conjunction(&mut self) -> Checked<Expression> {
        let start = self.peek().span;
        let mut list = vec![self.negation()?];
        while self.take("&&") {
            list.push(self.negation()?);
        }
        if list.len() == 1 {
            return Ok(list.pop().expect("one element"));
        }
        Ok(Expression { kind: ExpressionKind::And(list), span: start.to(self.last_span()) })
    }

    /// `!` binds weaker than a comparison: `!req.url == "x"` negates the whole.
    fn negation(&mut self) -> Checked<Expression> {
        let start = self.peek().span;
        if !self.take("!") {
            return self.comparison();
        }
        let inner = self.comparison()?;
        Ok(Expression { kind: ExpressionKind::Not(Box::new(inner)), span: start.to(self.last_span()) })
    }

    fn comparison(&mut self) -> Checked<Expression> {
        let start = self.peek().span;
        let left = self.sum()?;
        let Kind::Sign(sign @ ("==" | "!=" | "<" | "<=" | ">" | ">=" | "~" | "!~")) = self.peek().kind else {
            return Ok(left);
        };
        let sign_span = self.advance().span;
        let right = if matches!(sign, "~" | "!~") { self.pattern()? } else { self.sum()? };
        let kind = ExpressionKind::Compare(Box::new(left), sign, sign_span, Box::new(right));
        Ok(Expression { kind, span: start.to(self.last_span()) })
    }

    /// What stands behind `~`: strings that make one pattern, or a name.
    fn pattern(&mut self) -> Checked<Expression> {
        let start = self.peek().span;
        if !matches!(self.peek().kind, Kind::String(_)) {
            let before = std::mem::replace(&mut self.looking_for, "REGEX");
            let right = self.sum()?;
            self.looking_for = before;
            return Ok(right);
        }
        let mut pattern = self.string()?.0;
        while self.take("+") || matches!(self.peek().kind, Kind::String(_)) {
            pattern.extend(self.string()?.0);
        }
        Ok(Expression { kind: ExpressionKind::String(pattern), span: start.to(self.last_span()) })
    }

    fn sum(&mut self) -> Checked<Expression> {
        let start = self.peek().span;
        let first = self.product()?;
        let mut rest = Vec::new();
        loop {
            let token = self.peek();
            let (sign, span) = match token.kind {
                Kind::Sign(sign @ ("+" | "-")) => (sign, token.span),
                _ if self.is_adjacent_text() => ("", token.span),
                _ => break,
            };
            if !sign.is_empty() {
                self.advance();
            }
            rest.push((sign, span, self.product()?));
        }
        if rest.is_empty() {
            return Ok(first);
        }
        let kind = ExpressionKind::Sum(Box::new(first), rest);
        Ok(Expression { kind, span: start.to(self.last_span()) })
    }

    /// Strings side by side are joined, as Varnish up to 6 had it: a string, or a name with a point or a call.
    fn is_adjacent_text(&self) -> bool {
        match self.peek().kind {
            Kind::String(_) => true,
            Kind::Id => matches!(self.peek_second().kind, Kind::Sign("." | "(")),
            _ => false,
        }
    }

    fn product(&mut self) -> Checked<Expression> {
        let start = self.peek().span;
        let first = self.postfix()?;
        let mut rest = Vec::new();
        while let Kind::Sign(sign @ ("*" | "/" | "%")) = self.peek().kind {
            let span = self.advance().span;
            rest.push((sign, span, self.postfix()?));
        }
        if rest.is_empty() {
            return Ok(first);
        }
        let kind = ExpressionKind::Product(Box::new(first), rest);
        Ok(Expression { kind, span: start.to(self.last_span()) })
    }

    /// `primary { .property [ ( arguments ) ] }`
    pub(crate) fn postfix(&mut self) -> Checked<Expression> {
        let start = self.peek().span;
        let mut subject = self.primary()?;
        let mut length = 0;
        while self.take(".") {
            // Each one nests the tree a level deeper.
            length += 1;
            if length > crate::parse::DEPTH_MAX {
                return Err(Problem::at(self.peek().span, "Too many properties in a row").into());
            }
            let name = self.id()?;
            let arguments = if self.is("(") { Some(self.arguments()?) } else { None };
            let kind = ExpressionKind::Property(Box::new(subject), name, arguments);
            subject = Expression { kind, span: start.to(self.last_span()) };
        }
        Ok(subject)
    }

    fn primary(&mut self) -> Checked<Expression> {
        let start = self.peek().span;
        let kind = match &self.peek().kind {
            Kind::Sign("(") => {
                self.advance();
                let inner = self.expression()?;
                self.expect(")")?;
                return Ok(Expression { span: start.to(self.last_span()), ..inner });
            }
            Kind::Id => {
                let name = self.name()?;
                if self.is("(") {
                    ExpressionKind::Call(name, self.arguments()?)
                } else {
                    ExpressionKind::Name(name)
                }
            }
            Kind::Int | Kind::Real => ExpressionKind::Number(self.number(false)?),
            Kind::Sign("-") => {
                self.advance();
                if matches!(self.peek().kind, Kind::Int | Kind::Real) {
                    ExpressionKind::Number(self.number(true)?)
                } else {
                    self.deeper()?;
                    let inner = self.postfix()?;
                    self.depth -= 1;
                    ExpressionKind::Negative(Box::new(inner))
                }
            }
            Kind::String(_) => ExpressionKind::String(self.string()?.0),
            Kind::Blob(bytes) => {
                let bytes = bytes.clone();
                self.advance();
                ExpressionKind::Blob(bytes)
            }
            _ => {
                let shown = self.shown(self.peek());
                let words = format!("Unknown token {shown} when looking for {}", self.looking_for);
                return Err(Problem::at(start, words).into());
            }
        };
        Ok(Expression { kind, span: start.to(self.last_span()) })
    }

    /// A number and its unit, which may stand apart.
    pub(crate) fn number(&mut self, negative: bool) -> Checked<Number> {
        let token = self.advance();
        let text = self.sources.quote(token.span);
        let integer = if token.kind == Kind::Int { text.parse().ok() } else { None };
        // The lexer has bounded the digits, so the text is a number.
        let real = text.parse().unwrap_or(0.0);
        let apart = matches!(self.peek_second().kind, Kind::Sign("." | "("));
        let unit = if self.peek().kind == Kind::Id && !apart { Some(self.id()?) } else { None };
        Ok(Number { negative, integer, real, unit, next: self.peek().span })
    }

    /// `( [name =] value { , [name =] value } )`
    pub(crate) fn arguments(&mut self) -> Checked<Vec<Argument>> {
        self.expect("(")?;
        let mut arguments = Vec::new();
        while !self.is(")") {
            let named = self.peek().kind == Kind::Id && matches!(self.peek_second().kind, Kind::Sign("="));
            let name = if named {
                let name = self.id()?;
                self.expect("=")?;
                Some(name)
            } else {
                None
            };
            arguments.push(Argument { name, value: self.expression()? });
            if !self.take(",") {
                break;
            }
        }
        self.expect(")")?;
        Ok(arguments)
    }
}

impl Expression {
    /// The name this is, if it is no more than a name.
    pub(crate) fn as_name(&self) -> Option<&Name> {
        match &self.kind {
            ExpressionKind::Name(name) => Some(name),
            _ => None,
        }
    }
}
