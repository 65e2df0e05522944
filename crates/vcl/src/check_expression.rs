//! The checker: expressions.
//!
//! What an expression is wanted for is known before it is looked at, as in Varnish: `"1.2.3.4"` is an address where an
//! address is wanted, `10KB` a size where a size is.

use crate::check::{Checker, not_found};
use crate::convert;
use crate::diagnostics::{Checked, Problem};
use crate::flow::{Use, Wrong};
use crate::host::Side;
use crate::source::Span;
use crate::symbols::Kind as SymbolKind;
use crate::syntax::{Argument, Expression, ExpressionKind, Name, Number, Part};
use crate::typed::{Arithmetic, Comparison, Node, Type, Typed};
use crate::value::{Text, Value};
use crate::variables::{Kind, SIDES, StorageVar, Subs, Var};
use crate::vmod::Vmod;
use copal_base::units;
use std::net::SocketAddr;
use std::sync::Arc;

/// How many arithmetic operators one chain may have: each nests the tree a level deeper.
const CHAIN_MAX: usize = 200;

/// The type of a variable of that kind.
pub(crate) fn variable_type(kind: Kind) -> Type {
    match kind {
        Kind::Bool => Type::Bool,
        Kind::Int => Type::Int,
        Kind::Duration => Type::Duration,
        Kind::Time => Type::Time,
        Kind::Bytes => Type::Bytes,
        Kind::String => Type::String,
        Kind::Ip => Type::Ip,
        Kind::Backend => Type::Backend,
        Kind::Storage => Type::Storage,
        Kind::Blob => Type::Blob,
        Kind::Body => Type::Body,
    }
}

impl Checker<'_> {
    /// An expression of exactly the type `want`, converted where VCL converts.
    pub(crate) fn expression(&mut self, expression: &Expression, want: Type) -> Checked<Typed> {
        if want == Type::Regex {
            return self.regex_literal(expression);
        }
        let found = self.infer(expression, want)?;
        if found.kind == want {
            return Ok(found);
        }
        match want {
            Type::String => self.printable(found),
            Type::Bool => match truth(found) {
                Ok(condition) => Ok(condition),
                Err(found) => Err(self.mismatch(found.kind, found.span, want)),
            },
            _ => Err(self.mismatch(found.kind, found.span, want)),
        }
    }

    pub(crate) fn mismatch(&self, found: Type, span: Span, want: Type) -> Box<Problem> {
        let words = format!("Expression has type {}, expected {}", self.type_name(found), want.name());
        Problem::over(span, words).into()
    }

    pub(crate) fn type_name(&self, kind: Type) -> String {
        match kind {
            Type::Object(index) => {
                let Some(class) = self.objects.value(index) else { return kind.name().to_owned() };
                let holds = |module: &Vmod| module.objects.iter().any(|object| std::ptr::eq(object, *class));
                let module = self.modules.rows.iter().find(|row| row.value.is_some_and(holds));
                match module {
                    Some(row) => format!("{}.{}", row.name, class.name),
                    None => class.name.to_owned(),
                }
            }
            other => other.name().to_owned(),
        }
    }

    /// A value that prints as a string. The node stays what it is: text is made when it is run.
    fn printable(&self, found: Typed) -> Checked<Typed> {
        let words = match found.kind {
            Type::Bool
            | Type::Int
            | Type::Real
            | Type::Duration
            | Type::Time
            | Type::Bytes
            | Type::String
            | Type::Ip
            | Type::Backend
            | Type::Acl
            | Type::Probe
            | Type::Header
            | Type::Storage
            | Type::Enum(_) => return Ok(Typed { kind: Type::String, ..found }),
            Type::Blob => return Ok(Typed { kind: Type::String, ..found }),
            Type::Void => "Function returns VOID:".to_owned(),
            Type::Regex | Type::Sub | Type::Object(_) | Type::Http | Type::Body => {
                let kind = self.type_name(found.kind);
                let words = format!("Cannot convert {kind} to STRING.");
                return Err(Problem::at(found.span, words)
                    .words(format!("Expression has type {kind}, expected STRING"))
                    .stretch(found.span)
                    .into());
            }
        };
        Err(Problem::over(found.span, words).into())
    }

    /// An expression of whatever type it is; `want` decides only what is open.
    pub(crate) fn infer(&mut self, expression: &Expression, want: Type) -> Checked<Typed> {
        let span = expression.span;
        let (node, kind) = match &expression.kind {
            ExpressionKind::Number(number) => self.number_value(number, span, want)?,
            ExpressionKind::String(text) if want == Type::Ip => (self.address(text, span)?, Type::Ip),
            ExpressionKind::String(text) => (Node::Text(Text::from(text.clone())), Type::String),
            ExpressionKind::Blob(bytes) => (Node::Const(Value::Blob(Some(bytes.clone().into()))), Type::Blob),
            ExpressionKind::Name(name) => return self.name(name, None, span, want),
            ExpressionKind::Call(name, arguments) => return self.name(name, Some(arguments), span, want),
            ExpressionKind::Property(subject, property, arguments) => {
                let subject = self.infer(subject, Type::String)?;
                return self.property(subject, property, arguments.as_deref(), span);
            }
            ExpressionKind::Negative(inner) => {
                let inner = self.infer(inner, want)?;
                match inner.kind {
                    Type::Int | Type::Real | Type::Duration => {
                        (Node::Negate(Box::new(inner.node)), inner.kind)
                    }
                    other => {
                        let words = format!("Operator - not possible on type {}.", self.type_name(other));
                        return Err(Problem::over(span, words).into());
                    }
                }
            }
            ExpressionKind::Not(inner) => {
                let inner = self.infer(inner, Type::Bool)?;
                let condition = truth(inner).map_err(|found| {
                    let kind = self.type_name(found.kind);
                    Problem::over(span, format!("'!' must be followed by BOOL, found {kind}."))
                })?;
                (Node::Not(Box::new(condition.node)), Type::Bool)
            }
            ExpressionKind::And(list) => (Node::And(self.conditions(list, "&&")?), Type::Bool),
            ExpressionKind::Or(list) => (Node::Or(self.conditions(list, "||")?), Type::Bool),
            ExpressionKind::Compare(left, sign, at, right) => {
                (self.comparison(left, sign, *at, right)?, Type::Bool)
            }
            ExpressionKind::Sum(first, rest) => return self.sum(first, rest, span, want),
            ExpressionKind::Product(first, rest) => return self.product(first, rest, span, want),
        };
        Ok(Typed { node, kind, span })
    }

    fn conditions(&mut self, list: &[Expression], sign: &str) -> Checked<Vec<Node>> {
        let mut nodes = Vec::with_capacity(list.len());
        for (index, expression) in list.iter().enumerate() {
            let found = self.infer(expression, Type::Bool)?;
            match truth(found) {
                Ok(condition) => nodes.push(condition.node),
                Err(found) => {
                    let where_ = if index == 0 { "preceded" } else { "followed" };
                    let kind = self.type_name(found.kind);
                    let words = format!("'{sign}' must be {where_} by BOOL, found {kind}.");
                    return Err(Problem::over(found.span, words).into());
                }
            }
        }
        Ok(nodes)
    }

    /// `+` and `-`, left to right: arithmetic while the types allow it, then strings.
    fn sum(
        &mut self,
        first: &Expression,
        rest: &[(&'static str, Span, Expression)],
        span: Span,
        want: Type,
    ) -> Checked<Typed> {
        let text_wanted = matches!(want, Type::String | Type::Void);
        let mut left = self.infer(first, want)?;
        // The pieces before `left`, once the sum is known to be a text.
        let mut pieces: Option<Vec<Node>> = None;
        for (sign, at, expression) in rest {
            let hint = if left.kind == Type::String { Type::String } else { left.kind };
            let right =
                self.infer(expression, if has_sum(left.kind, sign) { hint } else { want_text(hint) })?;
            if pieces.is_none()
                && let Some(kind) = sum_type(left.kind, sign, right.kind)
            {
                // A chain of texts may be as long as it likes; this one is numbers.
                self.bounded(rest, span)?;
                let operator = if *sign == "+" { Arithmetic::Add } else { Arithmetic::Subtract };
                let node = Node::Arithmetic(operator, Box::new(left.node), Box::new(right.node));
                left = Typed { node, kind, span: left.span.to(right.span) };
                continue;
            }
            let joins = *sign != "-" && (left.kind == Type::String || text_wanted);
            if !joins {
                let words = format!(
                    "{} {} {} not possible.",
                    self.type_name(left.kind),
                    if sign.is_empty() { "+" } else { sign },
                    self.type_name(right.kind)
                );
                return Err(Problem::over(at.to(right.span), words).into());
            }
            let whole = left.span.to(right.span);
            let list = match pieces.as_mut() {
                Some(list) => list,
                None => {
                    let start = self.printable(left)?;
                    pieces.insert(flatten(start.node))
                }
            };
            list.extend(flatten(self.printable(right)?.node));
            // What follows continues a text.
            left = Typed { node: Node::Concat(Vec::new()), kind: Type::String, span: whole };
        }
        match pieces {
            Some(list) => Ok(Typed { node: Node::Concat(join_constants(list)), kind: Type::String, span }),
            None => Ok(Typed { span, ..left }),
        }
    }

    fn bounded(&self, rest: &[(&'static str, Span, Expression)], span: Span) -> Checked<()> {
        match rest.len() {
            0..=CHAIN_MAX => Ok(()),
            _ => Err(Problem::over(span, format!("More than {CHAIN_MAX} operators in a row")).into()),
        }
    }

    fn product(
        &mut self,
        first: &Expression,
        rest: &[(&'static str, Span, Expression)],
        span: Span,
        want: Type,
    ) -> Checked<Typed> {
        self.bounded(rest, span)?;
        let mut left = self.infer(first, want)?;
        for (sign, at, expression) in rest {
            let operator = match *sign {
                "*" => Arithmetic::Multiply,
                "/" => Arithmetic::Divide,
                _ => Arithmetic::Remainder,
            };
            if !matches!(left.kind, Type::Int | Type::Real | Type::Duration | Type::Bytes) {
                let words = format!("Operator {sign} not possible on type {}.", self.type_name(left.kind));
                return Err(Problem::at(*at, words).into());
            }
            if operator == Arithmetic::Remainder && left.kind != Type::Int {
                return Err(Problem::at(*at, "Operator % only possible on INT.").into());
            }
            let right = self.infer(expression, Type::Void)?;
            let kind = match (left.kind, operator, right.kind) {
                (Type::Int, _, Type::Int) => Type::Int,
                (_, Arithmetic::Remainder, _) => Type::Void,
                (Type::Real, _, Type::Real | Type::Int) => Type::Real,
                (Type::Duration | Type::Bytes, _, Type::Int | Type::Real) => left.kind,
                _ => Type::Void,
            };
            if kind == Type::Void {
                let words = format!(
                    "{} {sign} {} not possible.",
                    self.type_name(left.kind),
                    self.type_name(right.kind)
                );
                return Err(Problem::at(*at, words).into());
            }
            let node = Node::Arithmetic(operator, Box::new(left.node), Box::new(right.node));
            left = Typed { node, kind, span: left.span.to(right.span) };
        }
        Ok(Typed { span, ..left })
    }

    fn comparison(
        &mut self,
        left: &Expression,
        sign: &'static str,
        at: Span,
        right: &Expression,
    ) -> Checked<Node> {
        let left = self.infer(left, Type::Void)?;
        let negated = sign == "!~";
        match (left.kind, sign) {
            (Type::String, "~" | "!~") => {
                let regex = match self.regex_literal(right)?.node {
                    Node::Const(Value::Code(regex)) => regex,
                    _ => unreachable!("a regex literal is a code"),
                };
                return Ok(Node::Match { subject: Box::new(left.node), regex, negated });
            }
            (Type::Ip, "~" | "!~") => {
                let acl = self.acl_operand(right)?;
                return Ok(Node::InAcl { address: Box::new(left.node), acl, negated });
            }
            _ => {}
        }
        let comparison = match sign {
            "==" => Comparison::Equal,
            "!=" => Comparison::Unequal,
            "<" => Comparison::Less,
            "<=" => Comparison::LessOrEqual,
            ">" => Comparison::Greater,
            ">=" => Comparison::GreaterOrEqual,
            _ => return Err(self.no_operator(sign, left.kind, at)),
        };
        let ordered = !matches!(comparison, Comparison::Equal | Comparison::Unequal);
        let possible = match left.kind {
            Type::Int | Type::Duration | Type::Bytes | Type::Real | Type::Time | Type::String => true,
            Type::Backend | Type::Acl | Type::Probe | Type::Storage | Type::Sub | Type::Bool | Type::Ip => {
                !ordered
            }
            Type::Void
            | Type::Body
            | Type::Header
            | Type::Http
            | Type::Blob
            | Type::Regex
            | Type::Enum(_)
            | Type::Object(_) => false,
        };
        if !possible {
            return Err(self.no_operator(sign, left.kind, at));
        }
        let right = self.infer(right, left.kind)?;
        if right.kind != left.kind {
            let words = format!(
                "Comparison of different types: {} '{sign}' {}",
                self.type_name(left.kind),
                self.type_name(right.kind)
            );
            return Err(Problem::at(at, words).into());
        }
        let (left, right, kind) = (Box::new(left.node), Box::new(right.node), left.kind);
        Ok(match kind {
            Type::String => Node::CompareText(comparison, left, right),
            _ => Node::Compare(comparison, left, right),
        })
    }

    /// The list that an address is matched with.
    fn acl_operand(&mut self, right: &Expression) -> Checked<u32> {
        match self.expression(right, Type::Acl)?.node {
            Node::Acl(index) => Ok(index),
            _ => Err(Problem::over(right.span, "Expected the name of an ACL").into()),
        }
    }

    fn no_operator(&self, sign: &str, kind: Type, at: Span) -> Box<Problem> {
        Problem::at(at, format!("Operator {sign} not possible on {}", self.type_name(kind))).into()
    }

    fn regex_literal(&mut self, expression: &Expression) -> Checked<Typed> {
        let span = expression.span;
        match literal(expression) {
            Some(pattern) => {
                let index = self.regex(&pattern, span)?;
                Ok(Typed { node: Node::Const(Value::Code(index)), kind: Type::Regex, span })
            }
            None => {
                let found = self.infer(expression, Type::String)?;
                Err(self.mismatch(found.kind, span, Type::Regex))
            }
        }
    }

    /// The field that a name begins with: its message, its name, and how many parts that takes.
    pub(crate) fn field_name(&self, name: &Name) -> Option<(Side, Text, usize)> {
        let [side, http, field, ..] = name.parts.as_slice() else { return None };
        let row = SIDES.iter().find(|row| row.name == side.text)?;
        (http.text == "http").then(|| (row.side, Text::from(field.text.clone()), 3))
    }

    fn read(&mut self, span: Span, allowed: Subs) {
        self.flow.uses(self.current, Use { span, allowed, wrong: Wrong::Read });
    }

    /// A name, with the arguments of a call if one follows: a variable, a field, a symbol, a function; and what is
    /// left of it are properties.
    fn name(
        &mut self,
        name: &Name,
        arguments: Option<&[Argument]>,
        span: Span,
        want: Type,
    ) -> Checked<Typed> {
        let first = &name.parts[0];
        if let [_, second] = name.parts.as_slice() {
            if let Some(module) = self.module(&first.text) {
                return self.function(module, name, second, arguments, span);
            }
            if let Some((SymbolKind::Instance, object)) = self.names.find(&first.text) {
                return self.method(object, second, arguments, span);
            }
        }
        if let ([Part { text: word, .. }], Some(arguments)) = (name.parts.as_slice(), arguments) {
            return match word.as_str() {
                "regsub" | "regsuball" => self.regsub(word == "regsuball", arguments, span),
                _ => Err(not_found(name)),
            };
        }
        let (base, length) = self.base(name, want)?;
        let mut value = base;
        let rest = &name.parts[length..];
        if rest.is_empty() && arguments.is_some() {
            return Err(Problem::over(span, format!("'{}' is not a function", name.text())).into());
        }
        for (index, part) in rest.iter().enumerate() {
            let arguments = if index + 1 == rest.len() { arguments } else { None };
            value = self.property(value, part, arguments, span)?;
        }
        Ok(value)
    }

    /// The value that a name begins with, and how many of its parts that takes.
    fn base(&mut self, name: &Name, want: Type) -> Checked<(Typed, usize)> {
        if let Some((side, field, length)) = self.field_name(name) {
            let span = name.parts[0].span.to(name.parts[length - 1].span);
            self.read(span, side.row().readable);
            let typed = if want == Type::Header && name.parts.len() == length {
                Typed { node: Node::Const(Value::Header(side, field)), kind: Type::Header, span }
            } else {
                Typed { node: Node::Field(side, field), kind: Type::String, span }
            };
            return Ok((typed, length));
        }
        let version = self.sources.version(name.span());
        for length in (1..=name.parts.len().min(3)).rev() {
            let head = Name { parts: name.parts[..length].to_vec() };
            if let Some(variable) = Var::find(&head.text(), version) {
                let kind = variable_type(variable.row().kind);
                self.mention(variable, head.span());
                // A body has no value; where it stands says so better than that it cannot be read.
                if kind != Type::Body {
                    self.read(head.span(), variable.row().readable);
                }
                return Ok((Typed { node: Node::Var(variable), kind, span: head.span() }, length));
            }
        }
        let first = &name.parts[0];
        if first.text == "storage" && name.parts.len() > 1 {
            let word = &name.parts[1].text;
            let head = Name { parts: name.parts[..2].to_vec() };
            // The case of letters does not matter here.
            let storage = match self.options.storages {
                Some(known) => {
                    let found = known.iter().find(|known| known.eq_ignore_ascii_case(word));
                    found.ok_or_else(|| not_found(name))?
                }
                None => word,
            };
            let node = Node::Const(Value::Storage(Some(Text::from(storage.clone()))));
            return Ok((Typed { node, kind: Type::Storage, span: head.span() }, 2));
        }
        if let Some(row) = SIDES.iter().find(|row| row.name == first.text && is_http(row.side)) {
            self.read(first.span, row.readable);
            let node = Node::Const(Value::Enum(row.name));
            return Ok((Typed { node, kind: Type::Http, span: first.span }, 1));
        }
        Ok((self.symbol(name, first, want)?, 1))
    }

    fn symbol(&mut self, name: &Name, first: &Part, want: Type) -> Checked<Typed> {
        let span = first.span;
        let alone = name.parts.len() == 1;
        let typed = |node, kind| Ok(Typed { node, kind, span });
        match (first.text.as_str(), want) {
            (word, _) if word.eq_ignore_ascii_case("true") => {
                return typed(Node::Const(Value::Bool(true)), Type::Bool);
            }
            (word, _) if word.eq_ignore_ascii_case("false") => {
                return typed(Node::Const(Value::Bool(false)), Type::Bool);
            }
            ("default", Type::Backend) => return typed(Node::DefaultBackend, Type::Backend),
            ("default", Type::Probe) => {
                return match &self.default_probe {
                    Some((probe, _)) => {
                        typed(Node::Const(Value::Probe(Some(Arc::clone(probe)))), Type::Probe)
                    }
                    None => Err(Problem::at(span, "No default probe defined").into()),
                };
            }
            ("default", _) => {
                return Err(Problem::at(span, "Symbol 'default' is a reserved word.").into());
            }
            _ => {}
        }
        match self.names.find(&first.text) {
            Some((SymbolKind::Backend, index)) => {
                self.names.refer(&mut self.backends, first)?;
                typed(Node::Backend(index), Type::Backend)
            }
            Some((SymbolKind::Acl, index)) => {
                self.names.refer(&mut self.acls, first)?;
                typed(Node::Acl(index), Type::Acl)
            }
            Some((SymbolKind::Instance, index)) => typed(Node::Const(Value::Void), Type::Object(index)),
            Some((SymbolKind::Probe, index)) => {
                self.names.refer(&mut self.probes, first)?;
                let probe = self.probes.value(index).cloned();
                typed(Node::Const(Value::Probe(probe)), Type::Probe)
            }
            Some((SymbolKind::Sub, index)) if want == Type::Sub => {
                self.names.refer(&mut self.routines, first)?;
                self.flow.room_for(index as usize);
                typed(Node::Const(Value::Code(index)), Type::Sub)
            }
            Some((SymbolKind::Sub, _)) => {
                let words = format!("Symbol '{}' can only be used as a SUB expression", first.text);
                Err(Problem::at(span, words).into())
            }
            Some((SymbolKind::Vmod, index)) => {
                let words = format!("Symbol '{}' type (vmod) can not be used in expression.", first.text);
                Err(Problem::at(span, words)
                    .words("That symbol was defined here:")
                    .token(self.modules.rows[index as usize].span)
                    .into())
            }
            None if first.text.starts_with("vcl_") => Err(crate::check::reserved_name(first)),
            // What is defined later.
            None if alone && want == Type::Backend => {
                let index = self.names.refer(&mut self.backends, first)?;
                typed(Node::Backend(index), Type::Backend)
            }
            None if alone && want == Type::Acl => {
                let index = self.names.refer(&mut self.acls, first)?;
                typed(Node::Acl(index), Type::Acl)
            }
            None if alone && want == Type::Sub => {
                let index = self.names.refer(&mut self.routines, first)?;
                self.flow.room_for(index as usize);
                typed(Node::Const(Value::Code(index)), Type::Sub)
            }
            None => Err(not_found(name)),
        }
    }

    /// The module of that name.
    pub(crate) fn module(&self, name: &str) -> Option<&'static Vmod> {
        match self.names.find(name) {
            Some((SymbolKind::Vmod, index)) => self.modules.value(index).copied(),
            _ => None,
        }
    }

    fn regsub(&mut self, all: bool, arguments: &[Argument], span: Span) -> Checked<Typed> {
        let [
            Argument { name: None, value: subject },
            Argument { name: None, value: regex },
            Argument { name: None, value: replacement },
        ] = arguments
        else {
            return Err(Problem::over(span, "regsub() and regsuball() take three arguments").into());
        };
        let subject = Box::new(self.expression(subject, Type::String)?.node);
        let regex = match self.regex_literal(regex) {
            Ok(Typed { node: Node::Const(Value::Code(regex)), .. }) => regex,
            Ok(_) => unreachable!("a regex literal is a code"),
            Err(problem) => {
                return Err(problem.words("While compiling function call:").stretch(span).into());
            }
        };
        let replacement = Box::new(self.expression(replacement, Type::String)?.node);
        Ok(Typed { node: Node::Regsub { all, subject, regex, replacement }, kind: Type::String, span })
    }

    fn property(
        &mut self,
        subject: Typed,
        property: &Part,
        arguments: Option<&[Argument]>,
        span: Span,
    ) -> Checked<Typed> {
        let (node, kind) = match (subject.kind, property.text.as_str(), arguments) {
            (Type::String, "lower", Some([])) => (Node::Lower(Box::new(subject.node)), Type::String),
            (Type::String, "upper", Some([])) => (Node::Upper(Box::new(subject.node)), Type::String),
            (Type::Backend, "resolve", Some([])) => (Node::Resolve(Box::new(subject.node)), Type::Backend),
            (Type::Storage, word, None) if StorageVar::find(word).is_some() => {
                let property = StorageVar::find(word).expect("found by the guard");
                (Node::StorageProperty(Box::new(subject.node), property), variable_type(property.kind()))
            }
            (Type::Object(object), _, _) => return self.method(object, property, arguments, span),
            (kind, word, _) => {
                let kind = if kind == Type::String { "STRINGS".to_owned() } else { self.type_name(kind) };
                let words = format!("Unknown property '{word}' for type {kind}");
                return Err(Problem::at(property.span, words).into());
            }
        };
        Ok(Typed { node, kind, span })
    }
}

/// As a condition; what is none comes back.
fn truth(found: Typed) -> Result<Typed, Typed> {
    match found.kind {
        Type::Bool => Ok(found),
        Type::Backend | Type::Int | Type::Duration | Type::String => {
            let node = Node::Truth(Box::new(found.node), found.kind);
            Ok(Typed { node, kind: Type::Bool, span: found.span })
        }
        // Of a REAL none: comparing with zero is seldom exact, so the user shall say what is meant.
        _ => Err(found),
    }
}

fn sum_type(left: Type, sign: &str, right: Type) -> Option<Type> {
    match (left, sign, right) {
        (_, "", _) => None,
        (Type::Bytes, _, Type::Bytes) => Some(Type::Bytes),
        (Type::Duration, _, Type::Duration) => Some(Type::Duration),
        (Type::Int, _, Type::Int) => Some(Type::Int),
        (Type::Int | Type::Real, _, Type::Int | Type::Real) => Some(Type::Real),
        (Type::Time, "-", Type::Time) => Some(Type::Duration),
        (Type::Time, _, Type::Duration) => Some(Type::Time),
        _ => None,
    }
}

fn has_sum(kind: Type, sign: &str) -> bool {
    !sign.is_empty() && matches!(kind, Type::Bytes | Type::Duration | Type::Int | Type::Real | Type::Time)
}

/// What the right side of a joining `+` is wanted for.
fn want_text(hint: Type) -> Type {
    match hint {
        Type::Bytes => Type::Bytes,
        _ => Type::String,
    }
}

/// The parts of a text, so that texts of texts stay flat.
fn flatten(node: Node) -> Vec<Node> {
    match node {
        Node::Concat(list) => list,
        other => vec![other],
    }
}

fn join_constants(list: Vec<Node>) -> Vec<Node> {
    let mut joined: Vec<Node> = Vec::with_capacity(list.len());
    let mut run: Vec<u8> = Vec::new();
    let mut running = false;
    for node in list {
        if let Node::Text(text) = node {
            run.extend_from_slice(&text);
            running = true;
            continue;
        }
        if std::mem::take(&mut running) {
            joined.push(Node::Text(Text::from(std::mem::take(&mut run))));
        }
        joined.push(node);
    }
    if running {
        joined.push(Node::Text(Text::from(run)));
    }
    joined
}

/// A string literal, perhaps put together from several.
fn literal(expression: &Expression) -> Option<Vec<u8>> {
    match &expression.kind {
        ExpressionKind::String(text) => Some(text.clone()),
        ExpressionKind::Sum(first, rest) => {
            let mut text = literal(first)?;
            for (sign, _, more) in rest {
                if *sign == "-" {
                    return None;
                }
                text.extend(literal(more)?);
            }
            Some(text)
        }
        _ => None,
    }
}

impl Checker<'_> {
    /// A number as a value: a size where one is wanted, a duration with a unit, else what its digits say.
    fn number_value(&self, number: &Number, span: Span, want: Type) -> Checked<(Node, Type)> {
        let sign = if number.negative { -1.0 } else { 1.0 };
        if want == Type::Bytes {
            return Ok((Node::Const(Value::Bytes(self.byte_count(number, span)?)), Type::Bytes));
        }
        if let Some(unit) = &number.unit {
            let Some(scale) = units::unit_seconds(&unit.text) else {
                let words = format!(
                    "Unknown duration unit '{}'\nLegal duration units are 'ms', 's', 'm', 'h', 'd', 'w' and 'y'",
                    unit.text
                );
                return Err(Problem::at(unit.span, words).into());
            };
            return Ok((Node::Const(Value::Duration(sign * number.real * scale)), Type::Duration));
        }
        match number.integer {
            Some(integer) if want != Type::Real => {
                let integer = if number.negative { -integer } else { integer };
                Ok((Node::Const(Value::Int(integer)), Type::Int))
            }
            _ => Ok((Node::Const(Value::Real(sign * number.real)), Type::Real)),
        }
    }

    fn byte_count(&self, number: &Number, span: Span) -> Checked<u64> {
        let Some(unit) = &number.unit else {
            let words =
                format!("Expected BYTES unit (B, KB, MB...) got '{}'", self.sources.quote(number.next));
            return Err(Problem::at(number.next, words).into());
        };
        let text = unit.text.to_ascii_uppercase();
        let scale = match text.strip_suffix('B').unwrap_or(&text) {
            "" => 1u64,
            "K" => 1 << 10,
            "M" => 1 << 20,
            "G" => 1 << 30,
            "T" => 1 << 40,
            "P" => 1 << 50,
            _ => {
                let words = "Unknown BYTES unit of measurement ([KMGTP][B])";
                return Err(Problem::at(unit.span, words).into());
            }
        };
        if number.negative {
            return Err(Problem::over(span, "A number of bytes cannot be negative").into());
        }
        Ok((number.real * scale as f64) as u64)
    }

    /// An address as Varnish takes it in a string, perhaps with a port: `1.2.3.4`, `1.2.3.4:80`, `1.2.3.4 80`, `::1`,
    /// `[::1]:80`, or a name that resolves.
    fn address(&self, text: &[u8], span: Span) -> Checked<Node> {
        let text = String::from_utf8_lossy(text);
        if text.starts_with('/') {
            let words = format!("Cannot convert to an IP address: '\"{text}\"'");
            return Err(Problem::at(span, words).into());
        }
        let failed = |why: &str| -> Box<Problem> {
            let words = format!("IP constant '\"{text}\"' could not be resolved to an IP address:\n\t{why}");
            Problem::at(span, words).into()
        };
        if let Some(address) = convert::literal_endpoint(&text) {
            return Ok(Node::Const(Value::Ip(Some(address))));
        }
        let (host, port) = convert::split_endpoint(&text);
        let port = match port.map(str::parse::<u16>) {
            None => convert::DEFAULT_PORT,
            Some(Ok(port)) => port,
            Some(Err(_)) => return Err(failed("Servname not supported for ai_socktype")),
        };
        let addresses = (self.options.resolve)(host).map_err(|why| failed(&why))?;
        match addresses.first() {
            Some(address) => Ok(Node::Const(Value::Ip(Some(SocketAddr::new(*address, port))))),
            None => Err(failed("Name or service not known")),
        }
    }
}

/// Whether VCL has the message as a whole.
fn is_http(side: Side) -> bool {
    matches!(side, Side::Req | Side::Bereq | Side::Beresp | Side::Resp)
}
