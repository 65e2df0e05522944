//! The checker: what the symbols are, and what the statements mean.
//!
//! Expressions are in `check_expression`, calls in `check_call`, definitions of backends and lists in `declare`, and
//! what may be done where in `flow`.

use crate::compile::Options;
use crate::declare;
use crate::diagnostics::{Checked, Problem};
use crate::flow::{Flow, Use, Wrong};
use crate::host::{Side, Sub};
use crate::regex::Regex;
use crate::source::{Sources, Span};
use crate::symbols::{Kind, Names, Row, Table};
use crate::syntax::{
    Argument, Block, Declaration, Expression, ExpressionKind, Field, Name, Part, Statement, StatementKind,
};
use crate::typed::{Act, Arithmetic, Arm, Node, Placed, Plain, Type, Typed, Verdict};
use crate::value::{AclValue, BackendDefinition, ProbeDefinition, Text};
use crate::variables::{Kind as VarKind, Subs, TABLE, Var};
use crate::vmod::{Function, Object, Vmod};
use std::collections::HashMap;
use std::sync::Arc;

/// How many different regular expressions one program may have; each takes some KB and some 20 us to compile.
const REGEXES_MAX: usize = 20_000;

/// A subroutine: its bodies, the user's first, in the order of the source.
pub(crate) struct Routine {
    pub(crate) bodies: Vec<Vec<Placed>>,
    /// A body of the user's that does anything.
    pub(crate) user: bool,
    /// Which built-in subroutine it is, if one.
    pub(crate) entry: Option<Sub>,
}

/// What the checker knows, and at the end what it hands to lowering.
pub(crate) struct Checker<'a> {
    pub(crate) sources: &'a Sources,
    pub(crate) options: &'a Options<'a>,
    pub(crate) names: Names,
    pub(crate) backends: Table<BackendDefinition>,
    pub(crate) acls: Table<Arc<AclValue>>,
    pub(crate) probes: Table<Arc<ProbeDefinition>>,
    pub(crate) objects: Table<&'static Object>,
    pub(crate) routines: Table<Routine>,
    pub(crate) modules: Table<&'static Vmod>,
    pub(crate) functions: Vec<&'static Function>,
    pub(crate) regexes: Vec<Regex>,
    regex_index: HashMap<String, u32>,
    pub(crate) used: Vec<bool>,
    pub(crate) warnings: Vec<Problem>,
    pub(crate) flow: Flow,
    /// The subroutine that is being checked.
    pub(crate) current: usize,
    /// The backend called `default`, else the first, by its number.
    pub(crate) default_backend: Option<u32>,
    /// The probe called `default`, which is in no namespace, and its name's place.
    pub(crate) default_probe: Option<(Arc<ProbeDefinition>, Span)>,
    builtin_file: u16,
}

/// Which file is the built-in VCL; its subroutines are not the user's.
pub(crate) fn check<'a>(
    sources: &'a Sources,
    options: &'a Options<'a>,
    builtin_file: u16,
    declarations: &[Declaration],
) -> Checked<Checker<'a>> {
    let mut checker = Checker {
        sources,
        options,
        names: Names::default(),
        backends: Table::new(Kind::Backend),
        acls: Table::new(Kind::Acl),
        probes: Table::new(Kind::Probe),
        objects: Table::new(Kind::Instance),
        routines: Table::new(Kind::Sub),
        modules: Table::new(Kind::Vmod),
        functions: Vec::new(),
        regexes: Vec::new(),
        regex_index: HashMap::new(),
        used: vec![false; TABLE.len()],
        warnings: Vec::new(),
        flow: Flow::default(),
        current: 0,
        default_backend: None,
        default_probe: None,
        builtin_file,
    };
    let builtin_names: Vec<&str> = declarations
        .iter()
        .filter_map(|declaration| match declaration {
            Declaration::Sub { name, .. } if name.span.file == builtin_file => Some(name.text.as_str()),
            _ => None,
        })
        .collect();
    for declaration in declarations {
        checker.declaration(declaration, &builtin_names)?;
    }
    checker.references()?;
    checker.flow.check(&checker)?;
    if checker.default_backend.is_none() {
        let words = "No backends or directors found in VCL program, at least one is necessary.";
        return Err(Problem::new().words(words).into());
    }
    Ok(checker)
}

impl Checker<'_> {
    /// In the order of the source, as Varnish has it: a probe, an object or a module is known from its definition on.
    fn declaration(&mut self, declaration: &Declaration, builtin_names: &[&str]) -> Checked<()> {
        match declaration {
            Declaration::Version => Ok(()),
            Declaration::Import { module, alias, keyword } => self.import(module, alias, *keyword),
            Declaration::Probe { name, keyword, fields } => {
                self.reserved(name)?;
                let probe = Arc::new(declare::probe(self.sources, &name.text, *keyword, fields)?);
                if name.text != "default" {
                    self.names.define(&mut self.probes, name, probe)?;
                } else if let Some((_, first)) = self.default_probe.replace((probe, name.span)) {
                    let problem = Problem::at(name.span, "Probe 'default' redefined.");
                    return Err(problem.words("First definition:").token(first).into());
                }
                Ok(())
            }
            Declaration::Acl { name, flags, entries } => {
                self.reserved(name)?;
                if name.text == "default" {
                    return Err(Problem::at(name.span, "Name default must have type 'func'.").into());
                }
                let acl = declare::acl(self, name, flags, entries)?;
                self.names.define(&mut self.acls, name, Arc::new(acl))?;
                Ok(())
            }
            Declaration::Backend { name, keyword, none, fields } => {
                self.reserved(name)?;
                self.backend(name, *keyword, *none, fields)
            }
            Declaration::Sub { name, body } => self.routine(name, body, builtin_names),
        }
    }

    fn backend(&mut self, name: &Part, keyword: Span, none: bool, fields: &[Field]) -> Checked<()> {
        let definition = declare::backend(self, name, keyword, none, fields)?;
        let index = self.names.define(&mut self.backends, name, definition)?;
        if name.text == "default" || self.default_backend.is_none() {
            self.default_backend = Some(self.backends.rows[index as usize].number);
        }
        Ok(())
    }

    fn reserved(&self, name: &Part) -> Checked<()> {
        if name.text.starts_with("vcl_") {
            return Err(reserved_name(name));
        }
        Ok(())
    }

    fn import(&mut self, module: &Part, alias: &Part, keyword: Span) -> Checked<()> {
        let Some(found) = self.options.registry.find(&module.text) else {
            return Err(Problem::at(module.span, format!("Could not find VMOD {}", module.text)).into());
        };
        // A module may be imported again.
        if let Some((Kind::Vmod, index)) = self.names.find(&alias.text)
            && self.modules.value(index).is_some_and(|known| std::ptr::eq(*known, found))
        {
            return Ok(());
        }
        let index = self.names.define(&mut self.modules, alias, found)?;
        self.modules.rows[index as usize].span = keyword;
        Ok(())
    }

    fn routine(&mut self, name: &Part, body: &Block, builtin_names: &[&str]) -> Checked<()> {
        if name.text.starts_with("vcl_") && !builtin_names.contains(&name.text.as_str()) {
            return Err(not_a_builtin(name, builtin_names));
        }
        if name.text == "default" {
            return Err(Problem::at(name.span, "Symbol 'default' is a reserved word.").into());
        }
        let known = match self.names.find(&name.text) {
            Some((Kind::Sub, index)) if name.text.starts_with("vcl_") => {
                self.routines.value(index).is_some().then_some(index)
            }
            _ => None,
        };
        let index = match known {
            // The bodies of a built-in subroutine follow one another.
            Some(index) => index,
            None => {
                let entry =
                    Sub::EVERY.into_iter().find(|sub| name.text.strip_prefix("vcl_") == Some(sub.name()));
                let routine = Routine { bodies: Vec::new(), user: false, entry };
                let index = self.names.define(&mut self.routines, name, routine)?;
                // The built-in subroutines are called by the program, their helpers by the built-in VCL.
                self.routines.rows[index as usize].used |= name.text.starts_with("vcl_");
                index
            }
        };
        self.current = index as usize;
        self.flow.room_for(self.current);
        let acts = self.block(body)?;
        let does = name.span.file != self.builtin_file && !body.is_empty();
        if let Some(routine) = self.routines.rows[index as usize].value.as_mut() {
            routine.bodies.push(acts);
            routine.user |= does;
        }
        Ok(())
    }

    /// The built-in subroutine that is being checked, if it is one.
    fn entry(&self) -> Option<Sub> {
        self.routines.rows[self.current].value.as_ref().and_then(|routine| routine.entry)
    }

    /// What is referred to must be defined, and what is defined be referred to.
    fn references(&mut self) -> Checked<()> {
        for (kind, index) in self.names.all() {
            let index = index as usize;
            let (name, span, used, defined) = match kind {
                Kind::Backend => seen(&self.backends.rows[index]),
                Kind::Acl => seen(&self.acls.rows[index]),
                Kind::Probe => seen(&self.probes.rows[index]),
                Kind::Sub => seen(&self.routines.rows[index]),
                // Making an object or importing a module may have been meant for its effect.
                Kind::Instance | Kind::Vmod => continue,
            };
            if !defined {
                let words = format!("Undefined {} {name}, first reference:", kind.name());
                return Err(Problem::at(span, words).into());
            }
            // What need not be chosen need not be named.
            let spared = match kind {
                Kind::Backend => self.default_backend == Some(self.backends.rows[index].number),
                Kind::Probe | Kind::Acl | Kind::Sub | Kind::Instance | Kind::Vmod => false,
            };
            if used || spared {
                continue;
            }
            let problem = Problem::at(span, format!("Unused {} {name}, defined:", kind.name()));
            if self.options.unreferenced_is_error {
                return Err(problem.into());
            }
            self.warnings.push(problem.words("(That was just a warning)"));
        }
        Ok(())
    }

    fn block(&mut self, block: &Block) -> Checked<Vec<Placed>> {
        let mut acts = Vec::with_capacity(block.len());
        for statement in block {
            self.statement(statement, &mut acts)?;
        }
        Ok(acts)
    }

    fn statement(&mut self, statement: &Statement, acts: &mut Vec<Placed>) -> Checked<()> {
        let act = match &statement.kind {
            StatementKind::Block(inner) => {
                for statement in inner {
                    self.statement(statement, acts)?;
                }
                return Ok(());
            }
            StatementKind::If(arms, otherwise) => {
                let mut checked = Vec::with_capacity(arms.len());
                for (condition, arm) in arms {
                    let (node, span) = (self.expression(condition, Type::Bool)?.node, condition.span);
                    checked.push(Arm { condition: node, span, block: self.block(arm)? });
                }
                let otherwise = match otherwise {
                    Some(block) => self.block(block)?,
                    None => Vec::new(),
                };
                Act::If(checked, otherwise)
            }
            StatementKind::Set(target, sign, span, value) => self.set(target, sign, *span, value)?,
            StatementKind::Unset(target) => self.unset(target)?,
            StatementKind::Call(name) => self.call(name)?,
            StatementKind::Return(verdict) => self.verdict(verdict, statement.span)?,
            StatementKind::New(name, class, arguments, open) => {
                self.make(name, class, arguments.as_deref(), *open, statement.span)?
            }
            StatementKind::Do(expression) => self.perform(expression)?,
        };
        acts.push(Placed { act, span: statement.span });
        Ok(())
    }

    /// What may be assigned to: a variable or a field, with its place in the language.
    fn target(&mut self, name: &Name) -> Checked<Target> {
        if let Some((side, field, length)) = self.field_name(name) {
            if length == name.parts.len() {
                return Ok(Target::Field(side, field));
            }
            return Err(not_found(name));
        }
        match (Var::find(&name.text(), self.sources.version(name.span())), name.parts.as_slice()) {
            (Some(variable), _) => Ok(Target::Var(variable)),
            (None, [alone]) if self.names.find(&alone.text).is_some() => {
                Err(self.names.wrong_kind(alone, "var"))
            }
            (None, _) => Err(not_found(name)),
        }
    }

    fn set(&mut self, name: &Name, sign: &'static str, sign_span: Span, value: &Expression) -> Checked<Act> {
        let span = name.span();
        let wrong =
            || -> Box<Problem> { Problem::at(sign_span, format!("Expected '=' got '{sign}', at")).into() };
        let variable = match self.target(name)? {
            Target::Field(side, field) => {
                self.writable(span, side.row().writable, side.row().readable);
                let value = self.expression(value, Type::String)?.node;
                return match sign {
                    "=" => Ok(Act::SetField(side, field, value)),
                    "+=" => {
                        let old = Node::Field(side, field.clone());
                        Ok(Act::SetField(side, field, Node::Concat(vec![old, value])))
                    }
                    _ => Err(wrong()),
                };
            }
            Target::Var(variable) => variable,
        };
        let row = variable.row();
        let writable = if row.writable_versions.contains(self.sources.version(span)) {
            row.writable
        } else {
            Subs::NONE
        };
        self.writable(span, writable, row.readable);
        self.mention(variable, span);
        let arithmetic = match sign {
            "+=" => Some(Arithmetic::Add),
            "-=" => Some(Arithmetic::Subtract),
            "*=" => Some(Arithmetic::Multiply),
            "/=" => Some(Arithmetic::Divide),
            _ => None,
        };
        let kind = crate::check_expression::variable_type(row.kind);
        match (row.kind, arithmetic) {
            (VarKind::Body, None | Some(Arithmetic::Add)) => {
                let value = self.expression(value, Type::String)?.node;
                Ok(Act::SetBody(value, arithmetic.is_some()))
            }
            (VarKind::String, None) => Ok(Act::SetText(variable, self.expression(value, Type::String)?.node)),
            (VarKind::String, Some(Arithmetic::Add)) => {
                let value = self.expression(value, Type::String)?.node;
                Ok(Act::SetText(variable, Node::Concat(vec![Node::Var(variable), value])))
            }
            (_, None) => Ok(Act::SetVar(variable, self.expression(value, kind)?.node)),
            (VarKind::Int | VarKind::Duration | VarKind::Time, Some(operator)) => {
                let want = match (row.kind, operator) {
                    (VarKind::Int, _) => Type::Int,
                    (_, Arithmetic::Add | Arithmetic::Subtract) => Type::Duration,
                    (_, Arithmetic::Multiply | Arithmetic::Divide | Arithmetic::Remainder) => Type::Real,
                };
                let value = self.expression(value, want)?.node;
                let old = Box::new(Node::Var(variable));
                Ok(Act::SetVar(variable, Node::Arithmetic(operator, old, Box::new(value))))
            }
            (_, Some(_)) => Err(wrong()),
        }
    }

    fn writable(&mut self, span: Span, writable: Subs, readable: Subs) {
        let usage = if writable.is_empty() {
            Use { span, allowed: readable, wrong: Wrong::ReadOnly }
        } else {
            Use { span, allowed: writable, wrong: Wrong::Set }
        };
        self.flow.uses(self.current, usage);
    }

    fn unset(&mut self, name: &Name) -> Checked<Act> {
        let span = name.span();
        let (allowed, act) = match self.target(name)? {
            Target::Field(side, field) => (side.row().writable, Act::UnsetField(side, field)),
            Target::Var(variable) => {
                self.mention(variable, span);
                (variable.row().unsettable, Act::UnsetVar(variable))
            }
        };
        if allowed.is_empty() {
            return Err(Problem::new().stretch(span).words("Variable cannot be unset.").into());
        }
        self.flow.uses(self.current, Use { span, allowed, wrong: Wrong::Unset });
        Ok(act)
    }

    fn call(&mut self, name: &Name) -> Checked<Act> {
        let span = name.span();
        if name.text() == "default" {
            return Err(Problem::at(span, "Symbol 'default' is a reserved word.").into());
        }
        let [alone] = name.parts.as_slice() else {
            let expression = Expression { kind: ExpressionKind::Name(name.clone()), span };
            let found = self.infer(&expression, Type::Sub)?;
            return Err(self.mismatch(found.kind, span, Type::Sub));
        };
        let index = match self.names.find(&alone.text) {
            Some((kind, _)) if kind != Kind::Sub => {
                let expression = Expression { kind: ExpressionKind::Name(name.clone()), span };
                let found = self.infer(&expression, Type::Sub)?;
                return Err(self.mismatch(found.kind, span, Type::Sub));
            }
            _ => self.names.refer(&mut self.routines, alone)?,
        };
        self.flow.room_for(index as usize);
        self.flow.calls(self.current, index as usize, span);
        Ok(Act::Call(index))
    }

    fn verdict(&mut self, verdict: &Option<(Part, Option<Vec<Expression>>)>, span: Span) -> Checked<Act> {
        let Some((action, arguments)) = verdict else {
            if self.entry().is_some() {
                return Err(Problem::over(span, "Expected '(' got ';', at").into());
            }
            return Ok(Act::Leave);
        };
        let Some(allowed) = crate::flow::allowed(&action.text) else {
            return Err(Problem::at(action.span, "Expected return action name.").into());
        };
        let missing = || -> Box<Problem> { Problem::at(action.span, "Missing argument.").into() };
        let verdict = match (action.text.as_str(), arguments.as_deref()) {
            ("fail", None) => Verdict::Fail(None),
            ("fail", Some([text])) => Verdict::Fail(Some(self.expression(text, Type::String)?.node)),
            ("synth", Some(arguments)) => {
                let (status, reason) = self.status(arguments, action)?;
                Verdict::Synth(status, reason)
            }
            ("synth" | "vcl", None) => return Err(missing()),
            ("error", None) => Verdict::Error(None),
            ("error", Some(arguments)) => Verdict::Error(Some(self.status(arguments, action)?)),
            // On the client's side the duration means nothing.
            ("pass", Some([duration])) => {
                Verdict::HitForPass(self.expression(duration, Type::Duration)?.node)
            }
            ("vcl", Some([label])) => Verdict::Vcl(self.label(label)?),
            (word, None) => Verdict::Plain(plain(word).expect("the other actions are plain")),
            (_, Some(_)) => return Err(Problem::at(action.span, "Arguments not allowed.").into()),
        };
        self.flow.uses(self.current, Use { span: action.span, allowed, wrong: Wrong::Return });
        Ok(Act::Finish(verdict))
    }

    fn status(&mut self, arguments: &[Expression], action: &Part) -> Checked<(Node, Option<Node>)> {
        match arguments {
            [status] => Ok((self.expression(status, Type::Int)?.node, None)),
            [status, reason] => {
                let status = self.expression(status, Type::Int)?.node;
                Ok((status, Some(self.expression(reason, Type::String)?.node)))
            }
            [] => Err(Problem::at(action.span, "Missing argument.").into()),
            [_, _, more, ..] => Err(Problem::over(more.span, "Too many arguments.").into()),
        }
    }

    fn label(&self, label: &Expression) -> Checked<Text> {
        let Some(name) = label.as_name() else {
            return Err(Problem::over(label.span, "Expected ID, the name of a label").into());
        };
        let text = name.text();
        let exists = name.parts.len() == 1 && self.options.labels.is_none_or(|exists| exists(&text));
        if !exists {
            return Err(not_found(name));
        }
        Ok(Text::from(text))
    }

    fn make(
        &mut self,
        name: &Part,
        class: &Name,
        arguments: Option<&[Argument]>,
        open: Span,
        statement: Span,
    ) -> Checked<Act> {
        let span = Span { end: statement.start + "new".len() as u32, ..statement };
        self.flow.uses(self.current, Use { span, allowed: Subs::of(&[Sub::Init]), wrong: Wrong::Action });
        self.reserved(name)?;
        let module = match class.parts.as_slice() {
            [module, _] => self.module(&module.text),
            _ => None,
        };
        let wanted = &class.parts[class.parts.len() - 1];
        let found = module.and_then(|module| module.objects.iter().find(|known| known.name == wanted.text));
        let Some(found) = found else {
            return Err(match class.parts.as_slice() {
                [alone] if matches!(self.names.find(&alone.text), Some((kind, _)) if kind != Kind::Acl) => {
                    self.names.wrong_kind(alone, "object")
                }
                _ => not_found(class),
            });
        };
        let Some(arguments) = arguments else {
            return Err(Problem::at(open, "Expected '(' got ';', at").into());
        };
        let object = self.names.define(&mut self.objects, name, found)?;
        let parameters = found.parameters;
        let arguments = self.arguments(class.span(), open, parameters, arguments)?;
        Ok(Act::New { object, arguments })
    }

    /// A call for its effect.
    fn perform(&mut self, expression: &Expression) -> Checked<Act> {
        if let ExpressionKind::Call(name, arguments) = &expression.kind
            && let [only] = name.parts.as_slice()
            && let Some(act) = self.builtin_action(only, arguments)?
        {
            return Ok(act);
        }
        match &expression.kind {
            ExpressionKind::Call(..) | ExpressionKind::Property(_, _, Some(_)) => {
                let Typed { node, .. } = self.infer(expression, Type::Void)?;
                Ok(Act::Do(node))
            }
            ExpressionKind::Name(name) if name.parts.len() == 1 => Err(Problem::new()
                .words(format!("Symbol not found: '{}'", name.text()))
                .words("At: ")
                .stretch(name.span())
                .words("Expected an action, 'if', '{' or '}'")
                .into()),
            _ => Err(Problem::over(expression.span, "Symbol cannot be used here.").into()),
        }
    }

    fn builtin_action(&mut self, name: &Part, arguments: &[Argument]) -> Checked<Option<Act>> {
        let (allowed, what) = match name.text.as_str() {
            "hash_data" => (Subs::of(&[Sub::Hash]), Type::String),
            "synthetic" => (Subs::of(&[Sub::Synth, Sub::BackendError]), Type::String),
            "ban" => (Subs::ALL, Type::String),
            "rollback" => (Subs::ALL, Type::Void),
            _ => return Ok(None),
        };
        self.flow.uses(self.current, Use { span: name.span, allowed, wrong: Wrong::Action });
        let [Argument { name: None, value }] = arguments else {
            return Err(Problem::at(name.span, format!("'{}' takes one argument", name.text)).into());
        };
        if what == Type::Void {
            let side = match value.as_name().map(Name::text).as_deref() {
                Some("req") => Side::Req,
                Some("bereq") => Side::Bereq,
                _ => return Err(Problem::over(value.span, "Expected 'req' or 'bereq'").into()),
            };
            let allowed = side.row().readable;
            self.flow.uses(self.current, Use { span: value.span, allowed, wrong: Wrong::Read });
            return Ok(Some(Act::Rollback(side)));
        }
        let text = self.expression(value, what)?.node;
        Ok(Some(match name.text.as_str() {
            "hash_data" => Act::HashData(text),
            "synthetic" => Act::SetBody(text, false),
            _ => Act::Ban(text),
        }))
    }

    /// Notes that a variable is used: the user's own mention counts, the built-in VCL's does not.
    pub(crate) fn mention(&mut self, variable: Var, span: Span) {
        self.used[variable as usize] |= span.file != self.builtin_file;
    }

    /// The index of a regular expression, compiled once however often it occurs.
    pub(crate) fn regex(&mut self, pattern: &[u8], span: Span) -> Checked<u32> {
        let Ok(pattern) = std::str::from_utf8(pattern) else {
            return Err(Problem::at(span, "A regular expression must be UTF-8").into());
        };
        if let Some(index) = self.regex_index.get(pattern) {
            return Ok(*index);
        }
        if self.regexes.len() == REGEXES_MAX {
            let words = format!("More than {REGEXES_MAX} regular expressions");
            return Err(Problem::at(span, words).into());
        }
        let regex = Regex::new(pattern)
            .map_err(|why| Problem::new().words("Regexp compilation error:").words(why).stretch(span))?;
        let index = self.regexes.len() as u32;
        self.regexes.push(regex);
        self.regex_index.insert(pattern.to_owned(), index);
        Ok(index)
    }
}

enum Target {
    Var(Var),
    Field(Side, Text),
}

fn plain(word: &str) -> Option<Plain> {
    Some(match word {
        "restart" => Plain::Restart,
        "pass" => Plain::Pass,
        "pipe" => Plain::Pipe,
        "hash" => Plain::Hash,
        "purge" => Plain::Purge,
        "lookup" => Plain::Lookup,
        "fetch" => Plain::Fetch,
        "deliver" => Plain::Deliver,
        "abandon" => Plain::Abandon,
        "retry" => Plain::Retry,
        "ok" => Plain::Ok,
        _ => return None,
    })
}

fn seen<T>(row: &Row<T>) -> (&str, Span, bool, bool) {
    (&row.name, row.span, row.used, row.value.is_some())
}

pub(crate) fn reserved_name(name: &Part) -> Box<Problem> {
    Problem::new().words("Symbols named 'vcl_*' are reserved.").words("At: ").token(name.span).into()
}

fn not_a_builtin(name: &Part, builtin_names: &[&str]) -> Box<Problem> {
    let mut words = String::from("Valid vcl_* subroutines are:");
    let mut names = builtin_names.to_vec();
    names.sort_unstable();
    names.dedup();
    for name in names {
        words.push_str("\n\t");
        words.push_str(name);
    }
    Problem::at(name.span, "The names 'vcl_*' are reserved for subroutines.").words(words).into()
}

/// The message for a name that means nothing.
pub(crate) fn not_found(name: &Name) -> Box<Problem> {
    let text = name.text();
    let elsewhere = crate::variables::other_version(&text).map(|why| format!(" ({why})")).unwrap_or_default();
    Problem::new()
        .words(format!("Symbol not found: '{text}'{elsewhere}"))
        .words("At: ")
        .stretch(name.span())
        .into()
}
