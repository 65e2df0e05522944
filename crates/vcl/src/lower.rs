//! The checked tree to instructions.

use crate::check::Checker;
use crate::code::{Op, TextIndex};
use crate::convert;
use crate::host::Sub;
use crate::places::{Lines, Places};
use crate::source::Span;
use crate::typed::{Act, Arm, Comparison, Node, Placed, Type, Verdict};
use crate::value::{Text, Value};
use crate::variables::{Kind, Var};
use std::collections::HashMap;

/// The instructions of a program and what they refer to.
#[derive(Default)]
pub(crate) struct Code {
    pub(crate) ops: Vec<Op>,
    pub(crate) constants: Vec<Value>,
    pub(crate) texts: Vec<Text>,
    /// Where each built-in subroutine begins.
    pub(crate) entries: [u32; Sub::COUNT],
    /// Which line of the source each instruction comes from.
    pub(crate) places: Places,
    lines: Lines,
    /// The place of each symbol among the definitions of its kind.
    backends: Vec<u32>,
    acls: Vec<u32>,
    text_index: HashMap<Text, TextIndex>,
    /// The calls whose targets are not known yet: instruction, subroutine.
    calls: Vec<(usize, u32)>,
}

/// Lowers all subroutines.
pub(crate) fn lower(checker: &Checker) -> Code {
    let mut code = Code {
        backends: checker.backends.numbers(),
        acls: checker.acls.numbers(),
        lines: Lines::new(checker.sources),
        ..Code::default()
    };
    let mut starts = Vec::with_capacity(checker.routines.rows.len());
    for row in &checker.routines.rows {
        let start = code.here();
        starts.push(start);
        code.places.begin(start, &row.name);
        let entry = row.value.as_ref().and_then(|routine| routine.entry);
        if let Some(entry) = entry {
            code.entries[entry as usize] = start;
        }
        for body in row.value.iter().flat_map(|routine| &routine.bodies) {
            code.block(body);
        }
        code.ops.push(if entry.is_some() { Op::FellOff } else { Op::Return });
    }
    for (at, routine) in std::mem::take(&mut code.calls) {
        code.ops[at] = Op::Call(starts[routine as usize]);
    }
    (code.text_index, code.lines) = (HashMap::new(), Lines::default());
    code
}

impl Code {
    fn here(&self) -> u32 {
        self.ops.len() as u32
    }

    fn emit(&mut self, op: Op) {
        self.ops.push(op);
    }

    fn text_of(&mut self, text: &Text) -> TextIndex {
        if let Some(index) = self.text_index.get(text) {
            return *index;
        }
        let index = self.texts.len() as TextIndex;
        self.texts.push(text.clone());
        self.text_index.insert(text.clone(), index);
        index
    }

    fn constant(&mut self, value: &Value) {
        self.constants.push(value.clone());
        self.emit(Op::Const(self.constants.len() as u32 - 1));
    }

    fn land(&mut self, jumps: Vec<usize>) {
        let here = self.here();
        for at in jumps {
            match &mut self.ops[at] {
                Op::Jump(target) | Op::JumpIf(target) | Op::JumpUnless(target) => *target = here,
                other => unreachable!("{other:?} is no jump"),
            }
        }
    }

    /// What follows comes from there.
    fn stand(&mut self, span: Span) {
        self.places.note(self.here(), span.file, self.lines.of(span));
    }

    fn block(&mut self, block: &[Placed]) {
        for Placed { act, span } in block {
            self.stand(*span);
            self.act(act);
        }
    }

    fn act(&mut self, act: &Act) {
        match act {
            Act::If(arms, otherwise) => self.conditional(arms, otherwise),
            Act::SetVar(variable, value) => {
                self.value(value);
                if *variable == Var::BerespUncacheable && !matches!(value, Node::Const(Value::Bool(false))) {
                    self.emit(Op::Remember);
                }
                self.emit(Op::SetVar(*variable));
            }
            Act::SetText(variable, text) => {
                self.text(text);
                self.emit(Op::SetText(*variable));
            }
            Act::SetField(side, name, Node::Text(text)) => {
                let (name, text) = (self.text_of(name), self.text_of(text));
                self.emit(Op::SetFieldText(*side, name, text));
            }
            Act::SetField(side, name, text) => {
                self.text(text);
                let name = self.text_of(name);
                self.emit(Op::SetField(*side, name));
            }
            Act::SetBody(text, append) => {
                self.text(text);
                self.emit(Op::SetBody { append: *append });
            }
            Act::UnsetVar(variable) => self.emit(Op::UnsetVar(*variable)),
            Act::UnsetField(side, name) => {
                let name = self.text_of(name);
                self.emit(Op::UnsetField(*side, name));
            }
            Act::Call(routine) => {
                self.calls.push((self.ops.len(), *routine));
                self.emit(Op::Call(0));
            }
            Act::Leave => self.emit(Op::Return),
            Act::Finish(verdict) => self.verdict(verdict),
            Act::Do(node) => {
                self.value(node);
                self.emit(Op::Drop);
            }
            Act::HashData(text) => self.hash_data(text),
            Act::Ban(text) => {
                self.text(text);
                self.emit(Op::Ban);
            }
            Act::Rollback(side) => self.emit(Op::Rollback(*side)),
            Act::New { object, arguments } => {
                self.arguments(arguments);
                self.emit(Op::New { object: *object, arguments: arguments.len() as u16 });
            }
        }
    }

    fn hash_data(&mut self, text: &Node) {
        let (parts, last) = match text {
            Node::Concat(parts) => match parts.split_last() {
                Some((last, parts)) => (parts, last),
                None => (&[][..], text),
            },
            _ => (&[][..], text),
        };
        for part in parts {
            self.text(part);
            self.emit(Op::HashPart);
        }
        self.text(last);
        self.emit(Op::HashData);
    }

    fn conditional(&mut self, arms: &[Arm], otherwise: &[Placed]) {
        let mut ends = Vec::new();
        for (index, Arm { condition, span, block }) in arms.iter().enumerate() {
            self.stand(*span);
            let next = self.branch(condition, false);
            self.block(block);
            if index + 1 < arms.len() || !otherwise.is_empty() {
                ends.push(self.ops.len());
                self.emit(Op::Jump(0));
            }
            self.land(next);
        }
        self.block(otherwise);
        self.land(ends);
    }

    fn verdict(&mut self, verdict: &Verdict) {
        match verdict {
            Verdict::Plain(action) => self.emit(Op::Finish(*action)),
            Verdict::Fail(reason) => {
                if let Some(reason) = reason {
                    self.text(reason);
                }
                self.emit(Op::FinishFail { reason: reason.is_some() });
            }
            Verdict::Synth(status, reason) => {
                let reason = self.status(status, reason.as_ref());
                self.emit(Op::FinishSynth { reason });
            }
            Verdict::Error(None) => self.emit(Op::FinishError),
            Verdict::Error(Some((status, reason))) => {
                let reason = self.status(status, reason.as_ref());
                self.emit(Op::FinishErrorWith { reason });
            }
            Verdict::HitForPass(duration) => {
                self.value(duration);
                self.emit(Op::FinishHitForPass);
            }
            Verdict::Vcl(label) => {
                let label = self.text_of(label);
                self.emit(Op::FinishVcl(label));
            }
        }
    }

    fn status(&mut self, status: &Node, reason: Option<&Node>) -> bool {
        self.value(status);
        if let Some(reason) = reason {
            self.text(reason);
        }
        reason.is_some()
    }

    fn arguments(&mut self, arguments: &[(Node, Type)]) {
        for (node, kind) in arguments {
            match (kind, node) {
                (Type::String, Node::Text(_)) => self.value(node),
                (Type::String, Node::Var(variable)) if variable.row().kind == Kind::String => {
                    self.value(node)
                }
                (Type::String, _) => {
                    self.text(node);
                    self.emit(Op::End);
                }
                (_, _) => self.value(node),
            }
        }
    }

    /// Leaves the value on the stack.
    fn value(&mut self, node: &Node) {
        match node {
            Node::Const(value) => self.constant(value),
            Node::Text(text) => {
                let text = self.text_of(text);
                self.emit(Op::Text(text));
            }
            Node::Var(variable) => self.emit(Op::Var(*variable)),
            Node::StorageProperty(storage, property) => {
                self.value(storage);
                self.emit(Op::Storage(*property));
            }
            Node::Backend(index) => self.emit(Op::Backend(self.backends[*index as usize])),
            Node::Acl(index) => self.emit(Op::Acl(self.acls[*index as usize])),
            Node::DefaultBackend => self.emit(Op::DefaultBackend),
            Node::Negate(inner) => {
                self.value(inner);
                self.emit(Op::Negate);
            }
            Node::Arithmetic(operator, left, right) => {
                self.value(left);
                self.value(right);
                self.emit(Op::Arithmetic(*operator));
            }
            Node::Resolve(backend) => {
                self.value(backend);
                self.emit(Op::Resolve);
            }
            Node::Vmod { function, object, arguments, .. } => {
                self.arguments(arguments);
                let count = arguments.len() as u16;
                self.emit(Op::Vmod { function: *function, object: *object, arguments: count });
            }
            Node::Strands(parts) => {
                for part in parts {
                    self.text(part);
                    self.emit(Op::End);
                }
                self.emit(Op::Strands(parts.len() as u16));
            }
            Node::Field(..) | Node::Concat(_) | Node::Regsub { .. } | Node::Lower(_) | Node::Upper(_) => {
                self.text(node);
                self.emit(Op::End);
            }
            Node::Truth(..)
            | Node::Not(_)
            | Node::And(_)
            | Node::Or(_)
            | Node::Compare(..)
            | Node::CompareText(..)
            | Node::Match { .. }
            | Node::InAcl { .. } => {
                self.test(node);
                self.emit(Op::PushFlag);
            }
        }
    }

    /// Leaves the text open.
    fn text(&mut self, node: &Node) {
        self.emit(Op::Begin);
        self.append(node);
    }

    fn append(&mut self, node: &Node) {
        match node {
            Node::Text(text) => {
                let text = self.text_of(text);
                self.emit(Op::AppendText(text));
            }
            Node::Const(value) => {
                let mut out = Vec::new();
                convert::append(&mut out, value);
                let text = self.text_of(&Text::from(out));
                self.emit(Op::AppendText(text));
            }
            Node::Field(side, name) => {
                let name = self.text_of(name);
                self.emit(Op::AppendField(*side, name));
            }
            Node::Var(variable) => self.emit(Op::AppendVar(*variable)),
            Node::Concat(list) => {
                for node in list {
                    self.append(node);
                }
            }
            Node::Lower(inner) => {
                self.text(inner);
                self.emit(Op::Lower);
                self.emit(Op::Join);
            }
            Node::Upper(inner) => {
                self.text(inner);
                self.emit(Op::Upper);
                self.emit(Op::Join);
            }
            Node::Regsub { all, subject, regex, replacement } => {
                self.text(subject);
                self.text(replacement);
                self.emit(Op::Regsub { regex: *regex, all: *all });
                self.emit(Op::Join);
            }
            other => {
                self.value(other);
                self.emit(Op::AppendValue);
            }
        }
    }

    /// Leaves the answer in the flag.
    fn test(&mut self, node: &Node) {
        match node {
            Node::Const(Value::Bool(answer)) => self.emit(Op::Flag(*answer)),
            Node::Truth(inner, Type::String) => match inner.as_ref() {
                Node::Field(side, name) => {
                    let name = self.text_of(name);
                    self.emit(Op::Field(*side, name));
                }
                other => {
                    self.text(other);
                    self.emit(Op::TextSet);
                }
            },
            Node::Truth(inner, _) => {
                self.value(inner);
                self.emit(Op::Truth);
            }
            Node::Not(inner) => {
                self.test(inner);
                self.emit(Op::Not);
            }
            Node::And(_) | Node::Or(_) => {
                let no = self.branch(node, false);
                self.emit(Op::Flag(true));
                let end = self.ops.len();
                self.emit(Op::Jump(0));
                self.land(no);
                self.emit(Op::Flag(false));
                self.land(vec![end]);
            }
            Node::Compare(comparison, left, right) => {
                self.value(left);
                self.value(right);
                self.emit(Op::Compare(*comparison));
            }
            Node::CompareText(comparison, left, right) => self.compare_texts(*comparison, left, right),
            Node::Match { subject, regex, negated } => {
                match subject.as_ref() {
                    Node::Field(side, name) => {
                        let name = self.text_of(name);
                        self.emit(Op::FieldMatches(*side, name, *regex));
                    }
                    Node::Var(variable) => self.emit(Op::VarMatches(*variable, *regex)),
                    other => {
                        self.text(other);
                        self.emit(Op::TextMatches(*regex));
                    }
                }
                if *negated {
                    self.emit(Op::Not);
                }
            }
            Node::InAcl { address, acl, negated } => {
                self.value(address);
                self.emit(Op::InAcl(self.acls[*acl as usize]));
                if *negated {
                    self.emit(Op::Not);
                }
            }
            other => {
                self.value(other);
                self.emit(Op::Truth);
            }
        }
    }

    fn compare_texts(&mut self, comparison: Comparison, left: &Node, right: &Node) {
        let equality = matches!(comparison, Comparison::Equal | Comparison::Unequal);
        match (left, right) {
            (Node::Field(side, name), Node::Text(text)) if equality => {
                let (name, text) = (self.text_of(name), self.text_of(text));
                self.emit(Op::FieldIs(*side, name, text));
            }
            (Node::Var(variable), Node::Text(text)) if equality => {
                let text = self.text_of(text);
                self.emit(Op::VarIs(*variable, text));
            }
            _ => {
                self.text(left);
                self.text(right);
                self.emit(Op::CompareTexts(comparison));
                return;
            }
        }
        if comparison == Comparison::Unequal {
            self.emit(Op::Not);
        }
    }

    /// Jumps if the condition is `when`, else goes on; the jumps are to be landed by the caller.
    fn branch(&mut self, node: &Node, when: bool) -> Vec<usize> {
        match (node, when) {
            (Node::Not(inner), _) => self.branch(inner, !when),
            (Node::And(list), false) | (Node::Or(list), true) => {
                list.iter().flat_map(|node| self.branch(node, when)).collect()
            }
            (Node::And(list), true) | (Node::Or(list), false) => {
                let (last, before) = list.split_last().expect("the parser makes no empty list");
                let past: Vec<usize> = before.iter().flat_map(|node| self.branch(node, !when)).collect();
                let jumps = self.branch(last, when);
                self.land(past);
                jumps
            }
            _ => {
                self.test(node);
                // A negation just before a jump is the other jump.
                let negated = matches!(self.ops.last(), Some(Op::Not)) && self.ops.pop().is_some();
                let at = self.ops.len();
                self.emit(if when != negated { Op::JumpIf(0) } else { Op::JumpUnless(0) });
                vec![at]
            }
        }
    }
}
