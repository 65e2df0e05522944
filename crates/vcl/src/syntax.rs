//! The tree that the parser makes: what the user wrote, nothing decided yet.

use crate::source::Span;

/// A name with its points: `req.http.host` has three parts.
#[derive(Clone, Debug)]
pub(crate) struct Name {
    pub(crate) parts: Vec<Part>,
}

/// One part of a name. A quoted header name is one part, whatever is in it.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) text: String,
    pub(crate) span: Span,
}

impl Name {
    pub(crate) fn span(&self) -> Span {
        self.parts[0].span.to(self.parts[self.parts.len() - 1].span)
    }

    pub(crate) fn text(&self) -> String {
        self.parts.iter().map(|part| part.text.as_str()).collect::<Vec<_>>().join(".")
    }
}

/// An expression and where it stands.
#[derive(Clone, Debug)]
pub(crate) struct Expression {
    pub(crate) kind: ExpressionKind,
    pub(crate) span: Span,
}

#[derive(Clone, Debug)]
pub(crate) enum ExpressionKind {
    Number(Number),
    String(Vec<u8>),
    Blob(Vec<u8>),
    Name(Name),
    /// `name(arguments)`
    Call(Name, Vec<Argument>),
    /// `subject.name` or `subject.name(arguments)`, where the subject is more than a name.
    Property(Box<Expression>, Part, Option<Vec<Argument>>),
    Negative(Box<Expression>),
    Not(Box<Expression>),
    And(Vec<Expression>),
    Or(Vec<Expression>),
    Compare(Box<Expression>, &'static str, Span, Box<Expression>),
    /// A chain of `+`, `-` and adjacency (an empty sign), left to right; never nested for its length alone.
    Sum(Box<Expression>, Vec<(&'static str, Span, Expression)>),
    /// A chain of `*`, `/` and `%`.
    Product(Box<Expression>, Vec<(&'static str, Span, Expression)>),
}

/// A number as written; what it is depends on where it stands.
#[derive(Clone, Debug)]
pub(crate) struct Number {
    pub(crate) negative: bool,
    /// Absent if it has a point.
    pub(crate) integer: Option<i64>,
    pub(crate) real: f64,
    pub(crate) unit: Option<Part>,
    /// What stands behind it, for messages.
    pub(crate) next: Span,
}

/// An argument of a call, perhaps by name.
#[derive(Clone, Debug)]
pub(crate) struct Argument {
    pub(crate) name: Option<Part>,
    pub(crate) value: Expression,
}

/// A statement and where it stands.
#[derive(Clone, Debug)]
pub(crate) struct Statement {
    pub(crate) kind: StatementKind,
    pub(crate) span: Span,
}

pub(crate) type Block = Vec<Statement>;

#[derive(Clone, Debug)]
pub(crate) enum StatementKind {
    /// The arms in order, then what is done if none holds.
    If(Vec<(Expression, Block)>, Option<Block>),
    Block(Block),
    Set(Name, &'static str, Span, Expression),
    Unset(Name),
    Call(Name),
    /// `return` with its action; none is a bare `return`.
    Return(Option<(Part, Option<Vec<Expression>>)>),
    /// The object, its class, the arguments (none if there are no parentheses), and where those begin.
    New(Part, Name, Option<Vec<Argument>>, Span),
    /// A call for its effect: a VMOD's, or one of the built-in actions.
    Do(Expression),
}

/// What stands at the top of a file.
#[derive(Clone, Debug)]
pub(crate) enum Declaration {
    Sub {
        name: Part,
        body: Block,
    },
    Backend {
        name: Part,
        keyword: Span,
        none: bool,
        fields: Vec<Field>,
    },
    Probe {
        name: Part,
        keyword: Span,
        fields: Vec<Field>,
    },
    Acl {
        name: Part,
        flags: Vec<(bool, Part)>,
        entries: Vec<Entry>,
    },
    Import {
        module: Part,
        alias: Part,
        keyword: Span,
    },
    /// A version line that is not the first thing in its file.
    Version,
}

/// `.name = value;`
#[derive(Clone, Debug)]
pub(crate) struct Field {
    pub(crate) name: Part,
    pub(crate) value: FieldValue,
    pub(crate) value_span: Span,
}

#[derive(Clone, Debug)]
pub(crate) enum FieldValue {
    Number(Number),
    /// One or more strings after another.
    Strings(Vec<Vec<u8>>),
    Blob(Vec<u8>),
    Word(Part),
    Inline(Vec<Field>),
}

/// One line of an access list.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) negated: bool,
    /// In parentheses: ignored if the name does not resolve.
    pub(crate) optional: bool,
    pub(crate) address: String,
    pub(crate) address_span: Span,
    pub(crate) mask: Option<(i64, Span)>,
}
