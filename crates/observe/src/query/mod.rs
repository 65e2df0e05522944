//! The query language of Varnish's log tools: which groups of transactions are wanted.
//!
//! ```text
//! text --lex--> tokens --parse--> Query (a tree for each line) --eval--> does this group match?
//! ```
//! ```text
//! queries     line*                          one line that holds is enough; empty lines and # comments count for nothing
//! line        all ("or" all)*
//! all         factor ("and" factor)*
//! factor      "not" primary | primary
//! primary     "(" line ")" | "vxid" number-operator integer | selection [operator operand]
//! selection   ["{" level ["+"|"-"] "}"] tag ("," tag)* [":" prefix] ["[" field "]"]
//! operator    == != < <= > >=  eq ne  ~ !~
//! ```
//! A condition holds for a group if it holds for any of the group's records; so `!=` and `not ==` differ. A selection
//! alone asks whether there is such a record. Pure: no clock, no files; a regular expression that runs into a limit of
//! its engine does not match.

mod eval;
mod fault;
mod lex;
mod number;
mod parse;

use crate::mask::Mask;
use crate::tags::Tag;
use pcre2::bytes::Regex;
use std::cmp::Ordering;

pub use fault::Fault;

/// What a query is asked about: a transaction, or a single record.
pub trait Source {
    /// How deep in its group it stands: from 1; 0 for a record on its own.
    fn level(&self) -> usize;
    /// The transaction's number, 0 for none.
    fn number(&self) -> u32;
    /// Whether `test` holds for any of its records.
    fn any(&self, test: &mut dyn FnMut(Tag, &[u8]) -> bool) -> bool;
}

/// Queries, ready for use.
#[derive(Clone, Debug)]
pub struct Query {
    /// Of the lines, any is enough.
    expression: Expression,
}

/// A tree of conditions.
#[derive(Clone, Debug)]
enum Expression {
    Any(Vec<Expression>),
    All(Vec<Expression>),
    Not(Box<Expression>),
    Record(Selection, Test),
    Number(Relation, u64),
}

/// Which part of which records.
#[derive(Clone, Debug, Default)]
struct Selection {
    level: Option<Level>,
    tags: Option<Mask>,
    /// Without its colon.
    prefix: Option<Vec<u8>>,
    /// From 1.
    field: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    Is(usize),
    AtLeast(usize),
    AtMost(usize),
}

/// What must hold for the part.
#[derive(Clone, Debug)]
enum Test {
    Exists,
    Integer(Relation, i64),
    Float(Relation, f64),
    Text { equal: bool, text: Vec<u8>, any_case: bool },
    Regex { matches: bool, regex: Regex },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Relation {
    Equal,
    Unequal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Relation {
    fn holds(self, found: Ordering) -> bool {
        match self {
            Relation::Equal => found == Ordering::Equal,
            Relation::Unequal => found != Ordering::Equal,
            Relation::Less => found == Ordering::Less,
            Relation::LessOrEqual => found != Ordering::Greater,
            Relation::Greater => found == Ordering::Greater,
            Relation::GreaterOrEqual => found != Ordering::Less,
        }
    }
}

impl Query {
    /// Reads queries, one a line. With `any_case`, texts and regular expressions are compared in any case; prefixes and
    /// tags always are.
    ///
    /// # Errors
    /// What is wrong and where, as Varnish's tools show it; also if there is no query at all.
    pub fn parse(text: &str, any_case: bool) -> Result<Query, Fault> {
        parse::parse(text, any_case).map(|expression| Query { expression })
    }

    /// Whether the group is wanted.
    pub fn matches<S: Source>(&self, group: &[S]) -> bool {
        self.expression.holds(group)
    }
}

#[cfg(test)]
mod tests;
