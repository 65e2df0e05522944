//! Tokens to a tree: declarations and statements. Expressions are in `parse_expression`.

use crate::diagnostics::{Checked, Problem};
use crate::lex::{Kind, Token};
use crate::source::{Sources, Span};
use crate::syntax::{Block, Declaration, Entry, Field, FieldValue, Name, Part, Statement, StatementKind};

/// How deep blocks, and expressions in parentheses, may nest: far beyond what people write, and safe for the stack.
pub(crate) const DEPTH_MAX: usize = 64;

/// How long the name of a header may be.
const HEADER_NAME_MAX: usize = 126;

pub(crate) struct Parser<'source> {
    pub(crate) sources: &'source Sources,
    tokens: Vec<Token>,
    at: usize,
    pub(crate) depth: usize,
    /// The type that a value is wanted of, for messages.
    pub(crate) looking_for: &'static str,
    /// `vcc_unsafe_path`: whether `import` may name a file.
    unsafe_path: bool,
}

/// Parses all declarations. `tokens` have their includes in place and end with [`Kind::End`].
pub(crate) fn parse(sources: &Sources, tokens: Vec<Token>, unsafe_path: bool) -> Checked<Vec<Declaration>> {
    let mut parser = Parser { sources, tokens, at: 0, depth: 0, looking_for: "a value", unsafe_path };
    let mut declarations = Vec::new();
    while parser.peek().kind != Kind::End {
        declarations.push(parser.declaration()?);
    }
    Ok(declarations)
}

impl Parser<'_> {
    pub(crate) fn peek(&self) -> &Token {
        &self.tokens[self.at]
    }

    pub(crate) fn peek_second(&self) -> &Token {
        &self.tokens[(self.at + 1).min(self.tokens.len() - 1)]
    }

    pub(crate) fn advance(&mut self) -> Token {
        let token = self.tokens[self.at].clone();
        self.at = (self.at + 1).min(self.tokens.len() - 1);
        token
    }

    pub(crate) fn last_span(&self) -> Span {
        self.tokens[self.at.saturating_sub(1)].span
    }

    pub(crate) fn is(&self, sign: &str) -> bool {
        matches!(self.peek().kind, Kind::Sign(found) if found == sign)
    }

    pub(crate) fn take(&mut self, sign: &str) -> bool {
        let found = self.is(sign);
        if found {
            self.advance();
        }
        found
    }

    pub(crate) fn word(&self) -> Option<String> {
        (self.peek().kind == Kind::Id).then(|| self.sources.quote(self.peek().span))
    }

    pub(crate) fn is_word(&self, word: &str) -> bool {
        self.word().is_some_and(|found| found == word)
    }

    /// The token as messages show it.
    pub(crate) fn shown(&self, token: &Token) -> String {
        match token.kind {
            Kind::End => "'end of input'".into(),
            _ => format!("'{}'", self.sources.quote(token.span)),
        }
    }

    pub(crate) fn unexpected<T>(&self, wanted: &str) -> Checked<T> {
        let token = self.peek();
        Err(Problem::at(token.span, format!("Expected {wanted} got {}, at", self.shown(token))).into())
    }

    pub(crate) fn expect(&mut self, sign: &str) -> Checked<Span> {
        if self.is(sign) { Ok(self.advance().span) } else { self.unexpected(&format!("'{sign}'")) }
    }

    pub(crate) fn id(&mut self) -> Checked<Part> {
        match self.word() {
            Some(text) => Ok(Part { text, span: self.advance().span }),
            None => self.unexpected("ID"),
        }
    }

    pub(crate) fn string(&mut self) -> Checked<(Vec<u8>, Span)> {
        if let Kind::String(_) = self.peek().kind {
            let token = self.advance();
            if let Kind::String(text) = token.kind {
                return Ok((text, token.span));
            }
        }
        self.unexpected("CSTR")
    }

    /// A name with points. A string after `req.http.` and its like is a quoted header name.
    pub(crate) fn name(&mut self) -> Checked<Name> {
        let mut parts = vec![self.id()?];
        while self.is(".") {
            match &self.peek_second().kind {
                Kind::Id => {
                    self.advance();
                    parts.push(self.id()?);
                }
                Kind::String(_) if parts.len() == 2 && parts[1].text == "http" => {
                    self.advance();
                    let (text, span) = self.string()?;
                    if self.sources.version(span) < 41 {
                        let words = "Quoted headers are available for VCL >= 4.1.";
                        return Err(Problem::at(span, words).into());
                    }
                    parts.push(Part { text: header_name(text, span)?, span });
                }
                _ => break,
            }
        }
        match parts.as_slice() {
            [_, http, field, ..] if http.text == "http" && field.text.len() > HEADER_NAME_MAX => {
                let start: String = field.text.chars().take(20).collect();
                let words = format!("HTTP header ({start}..) is too long.");
                Err(Problem::at(field.span, words).into())
            }
            _ => Ok(Name { parts }),
        }
    }

    pub(crate) fn deeper(&mut self) -> Checked<()> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            let words = format!("Nested deeper than {DEPTH_MAX} levels");
            return Err(Problem::at(self.peek().span, words).into());
        }
        Ok(())
    }

    /// The name of something that is being declared: one plain word.
    fn declared(&mut self, what: &str) -> Checked<Part> {
        let name = self.name()?;
        if name.parts.len() > 1 || self.is(".") {
            let span = if self.is(".") { name.span().to(self.peek().span) } else { name.span() };
            let text = self.sources.quote(span);
            let words = format!("Name of {what}, '{text}', contains illegal character '.'");
            return Err(Problem::over(span, words).into());
        }
        Ok(name.parts.into_iter().next().expect("a name has a part"))
    }

    fn declaration(&mut self) -> Checked<Declaration> {
        let keyword = self.peek().clone();
        match self.word().as_deref() {
            Some("sub") => {
                self.advance();
                let name = self.declared("subroutine")?;
                Ok(Declaration::Sub { name, body: self.block()? })
            }
            Some("backend") => {
                self.advance();
                let name = self.declared("backend")?;
                if self.is_word("none") || self.is_word("None") {
                    self.advance();
                    self.expect(";")?;
                    return Ok(Declaration::Backend {
                        name,
                        keyword: keyword.span,
                        none: true,
                        fields: vec![],
                    });
                }
                let fields = self.fields().map_err(|problem| -> Box<Problem> {
                    problem.further("In backend specification starting at:").token(keyword.span).into()
                })?;
                Ok(Declaration::Backend { name, keyword: keyword.span, none: false, fields })
            }
            Some("probe") => {
                self.advance();
                let name = self.declared("probe")?;
                Ok(Declaration::Probe { name, keyword: keyword.span, fields: self.fields()? })
            }
            Some("acl") => {
                self.advance();
                self.acl()
            }
            Some("import") => {
                self.advance();
                self.import(keyword.span)
            }
            Some("vcl") => {
                // A version may be stated again; it must be one.
                let at = self.at;
                let top = self.sources.files[0].version;
                if let Some(version) = crate::compile::version_line(self.sources, &self.tokens[at..])? {
                    let span = keyword.span.to(self.tokens[at + 2].span);
                    crate::compile::not_above(version, top, span)?;
                }
                self.advance();
                self.advance();
                self.expect(";")?;
                Ok(Declaration::Version)
            }
            _ => {
                let words = format!(
                    "Expected one of\n\t'acl', 'sub', 'backend', 'probe', 'import',  or 'vcl'\nFound: {} at",
                    self.shown(&keyword)
                );
                Err(Problem::at(keyword.span, words).into())
            }
        }
    }

    fn import(&mut self, keyword: Span) -> Checked<Declaration> {
        let module = self.id()?;
        let mut alias = module.clone();
        if self.is_word("as") {
            self.advance();
            alias = self.id()?;
        }
        if self.is_word("from") {
            // Modules are part of the program; where a file would be plays no role.
            self.advance();
            let (_, span) = self.string()?;
            if !self.unsafe_path {
                let words = "'import ... from path ...' is unsafe.";
                return Err(Problem::new().words(words).words("At: ").token(span).into());
            }
        } else if !self.is(";") {
            let words = format!("Expected 'from path ...' or ';', found {}", self.shown(self.peek()));
            return Err(Problem::at(self.peek().span, words).into());
        }
        self.expect(";")?;
        Ok(Declaration::Import { module, alias, keyword })
    }

    fn acl(&mut self) -> Checked<Declaration> {
        let name = self.declared("ACL")?;
        let mut flags = Vec::new();
        while self.is("+") || self.is("-") {
            let on = self.is("+");
            let sign = self.advance().span;
            if self.peek().kind != Kind::Id || self.peek().span.start != sign.end {
                return Err(Problem::at(sign, "Expected a flag at:").into());
            }
            let flag = self.id()?;
            // Our lists are tables, and hold no entry that another makes needless, in any case.
            if !matches!(flag.text.as_str(), "log" | "pedantic" | "table" | "fold") {
                return Err(Problem::at(flag.span, "Unknown ACL flag:").into());
            }
            flags.push((on, flag));
        }
        self.expect("{")?;
        let mut entries = Vec::new();
        while !self.take("}") {
            entries.push(self.entry()?);
        }
        Ok(Declaration::Acl { name, flags, entries })
    }

    fn entry(&mut self) -> Checked<Entry> {
        let mut negated = self.take("!");
        let optional = self.take("(");
        // Varnish takes the mark inside the parentheses as well.
        negated |= optional && !negated && self.take("!");
        let (text, address_span) = self.string()?;
        let Ok(address) = String::from_utf8(text) else {
            return Err(Problem::at(address_span, "An address must be text").into());
        };
        // Varnish takes a mask inside the quotes as well as behind them.
        let (address, inner) = match address.split_once('/') {
            Some((network, bits)) if !bits.is_empty() && bits.bytes().all(|byte| byte.is_ascii_digit()) => {
                (network.to_owned(), Some((bits.parse().unwrap_or(i64::MAX), address_span)))
            }
            Some(_) => return Err(Problem::at(address_span, ".../mask is not numeric.").into()),
            None => (address, None),
        };
        let mut mask = inner;
        if mask.is_some() && self.is("/") {
            return Err(Problem::at(self.peek().span, "/mask only allowed once.").into());
        }
        if self.take("/") {
            let token = self.peek().clone();
            if token.kind != Kind::Int {
                return self.unexpected("CNUM");
            }
            self.advance();
            mask = Some((self.sources.quote(token.span).parse().unwrap_or(i64::MAX), token.span));
        }
        if optional {
            self.expect(")")?;
        }
        self.expect(";")?;
        Ok(Entry { negated, optional, address, address_span, mask })
    }

    fn fields(&mut self) -> Checked<Vec<Field>> {
        self.deeper()?;
        self.expect("{")?;
        let mut fields = Vec::new();
        while !self.take("}") {
            self.expect(".")?;
            let name = self.id()?;
            self.expect("=")?;
            let start = self.peek().span;
            let value = self.field_value()?;
            let value_span = start.to(self.last_span());
            if !matches!(value, FieldValue::Inline(_)) {
                self.expect(";")?;
            }
            fields.push(Field { name, value, value_span });
        }
        self.depth -= 1;
        Ok(fields)
    }

    fn field_value(&mut self) -> Checked<FieldValue> {
        match &self.peek().kind {
            Kind::Sign("{") => Ok(FieldValue::Inline(self.fields()?)),
            Kind::Id => Ok(FieldValue::Word(self.id()?)),
            Kind::Blob(bytes) => {
                let bytes = bytes.clone();
                self.advance();
                Ok(FieldValue::Blob(bytes))
            }
            Kind::Int | Kind::Real => Ok(FieldValue::Number(self.number(false)?)),
            Kind::String(_) => {
                let mut strings = Vec::new();
                while let Kind::String(_) = self.peek().kind {
                    strings.push(self.string()?.0);
                }
                Ok(FieldValue::Strings(strings))
            }
            _ => self.unexpected("a value"),
        }
    }

    fn block(&mut self) -> Checked<Block> {
        self.deeper()?;
        self.expect("{")?;
        let mut statements = Vec::new();
        while !self.take("}") {
            statements.push(self.statement()?);
        }
        self.depth -= 1;
        Ok(statements)
    }

    fn statement(&mut self) -> Checked<Statement> {
        let start = self.peek().span;
        let kind = match (&self.peek().kind, self.word().as_deref()) {
            (Kind::Sign("{"), _) => StatementKind::Block(self.block()?),
            (_, Some("if")) => self.conditional()?,
            (_, Some(word @ ("set" | "unset" | "call" | "new" | "return"))) => {
                self.advance();
                let kind = match word {
                    "set" => self.assignment()?,
                    "unset" => StatementKind::Unset(self.name()?),
                    "call" => StatementKind::Call(self.name()?),
                    "new" => self.object()?,
                    _ => self.verdict()?,
                };
                self.expect(";")?;
                kind
            }
            (Kind::Id, _) => {
                self.looking_for = "STRING";
                let expression = self.postfix()?;
                self.expect(";")?;
                StatementKind::Do(expression)
            }
            _ => {
                let words =
                    format!("Expected an action, 'if', '{{' or '}}'\nFound: {} at", self.shown(self.peek()));
                return Err(Problem::at(start, words).into());
            }
        };
        Ok(Statement { kind, span: start.to(self.last_span()) })
    }

    fn conditional(&mut self) -> Checked<StatementKind> {
        let mut arms = Vec::new();
        let mut otherwise = None;
        self.advance();
        loop {
            self.expect("(")?;
            self.looking_for = "BOOL";
            let condition = self.expression()?;
            self.expect(")")?;
            arms.push((condition, self.block()?));
            match self.word().as_deref() {
                Some("elseif" | "elsif" | "elif") => {
                    self.advance();
                }
                Some("else") => {
                    self.advance();
                    if !self.is_word("if") {
                        if !self.is("{") {
                            let words = "'else' must be followed by 'if' or '{'";
                            return Err(Problem::at(self.peek().span, words).into());
                        }
                        otherwise = Some(self.block()?);
                        break;
                    }
                    self.advance();
                }
                _ => break,
            }
        }
        Ok(StatementKind::If(arms, otherwise))
    }

    fn assignment(&mut self) -> Checked<StatementKind> {
        let target = self.name()?;
        let token = self.peek().clone();
        let Kind::Sign(sign @ ("=" | "+=" | "-=" | "*=" | "/=")) = token.kind else {
            return self.unexpected("'='");
        };
        self.advance();
        let version = self.sources.version(token.span);
        let variable = crate::variables::Var::find(&target.text(), version);
        self.looking_for = variable
            .map_or("STRING", |variable| crate::check_expression::variable_type(variable.row().kind).name());
        Ok(StatementKind::Set(target, sign, token.span, self.expression()?))
    }

    fn object(&mut self) -> Checked<StatementKind> {
        let name = self.declared("VCL object")?;
        self.expect("=")?;
        let class = self.name()?;
        let open = self.peek().span;
        // Whether the class exists is of more interest than what is missing behind it.
        let arguments = if self.is(";") { None } else { Some(self.arguments()?) };
        Ok(StatementKind::New(name, class, arguments, open))
    }

    fn verdict(&mut self) -> Checked<StatementKind> {
        if self.is(";") {
            return Ok(StatementKind::Return(None));
        }
        self.expect("(")?;
        let action = self.id()?;
        self.looking_for = match action.text.as_str() {
            "synth" | "error" => "INT",
            "pass" => "DURATION",
            _ => "STRING",
        };
        let mut arguments = None;
        if self.take("(") {
            let mut list = Vec::new();
            list.push(self.expression()?);
            while self.take(",") {
                self.looking_for = "STRING";
                list.push(self.expression()?);
            }
            self.expect(")")?;
            arguments = Some(list);
        }
        self.expect(")")?;
        Ok(StatementKind::Return(Some((action, arguments))))
    }
}

/// A quoted header name must still be one (RFC 9110, section 5.1).
fn header_name(text: Vec<u8>, span: Span) -> Checked<String> {
    let token = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    if let Some(wrong) = text.iter().find(|byte| !token(byte)) {
        let words = format!("Invalid character '{}' in header name.", wrong.escape_ascii());
        return Err(Problem::at(span, words).into());
    }
    match String::from_utf8(text) {
        Ok(text) if !text.is_empty() => Ok(text),
        _ => Err(Problem::at(span, "A header name cannot be empty").into()),
    }
}
