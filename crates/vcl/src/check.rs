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
use crate::syntax::{
    Argument, Block, Declaration, Expression, ExpressionKind, Name, Part, Statement, StatementKind,
};
use crate::typed::{Act, Arithmetic, Node, Plain, Type, Typed, Verdict};
use crate::value::{AclValue, BackendDefinition, ProbeDefinition, Text};
use crate::variables::{Kind, Subs, TABLE, Var};
use crate::vmod::{Function, Object, Vmod};
use std::collections::HashMap;
use std::sync::Arc;

/// How many different regular expressions one program may have; each takes some KB and some 20 us to compile.
const REGEXES_MAX: usize = 20_000;

/// Something the user named, and whether anything refers to it.
pub(crate) struct Defined<T> {
    pub(crate) name: String,
    pub(crate) span: Span,
    pub(crate) used: bool,
    pub(crate) value: T,
}

/// Definitions of one kind, by name and by index.
pub(crate) struct Table<T> {
    pub(crate) rows: Vec<Defined<T>>,
    by_name: HashMap<String, u32>,
}

impl<T> Table<T> {
    fn new() -> Self {
        Self { rows: Vec::new(), by_name: HashMap::new() }
    }

    pub(crate) fn find(&self, name: &str) -> Option<u32> {
        self.by_name.get(name).copied()
    }

    /// Adds a definition; `what` is its kind in the message if there is one of that name already.
    pub(crate) fn add(&mut self, what: &str, name: &Part, value: T) -> Checked<u32> {
        if let Some(first) = self.find(&name.text) {
            return Err(Problem::at(name.span, format!("{what} '{}' redefined.", name.text))
                .words("First definition:")
                .token(self.rows[first as usize].span)
                .into());
        }
        let index = self.rows.len() as u32;
        self.by_name.insert(name.text.clone(), index);
        self.rows.push(Defined { name: name.text.clone(), span: name.span, used: false, value });
        Ok(index)
    }

    /// The index of a definition that is now referred to.
    pub(crate) fn refer(&mut self, what: &str, name: &Part) -> Checked<u32> {
        match self.find(&name.text) {
            Some(index) => {
                self.rows[index as usize].used = true;
                Ok(index)
            }
            None => {
                let words = format!("Undefined {what} {}, first reference:", name.text);
                Err(Problem::at(name.span, words).into())
            }
        }
    }
}

/// A subroutine: its bodies, the user's first, in the order of the source.
pub(crate) struct Routine {
    pub(crate) bodies: Vec<Vec<Act>>,
    /// A body of the user's that does anything.
    pub(crate) user: bool,
    /// Which built-in subroutine it is, if one.
    pub(crate) entry: Option<Sub>,
}

/// What the checker knows, and at the end what it hands to lowering.
pub(crate) struct Checker<'a> {
    pub(crate) sources: &'a Sources,
    pub(crate) options: &'a Options<'a>,
    pub(crate) backends: Table<BackendDefinition>,
    pub(crate) acls: Table<Arc<AclValue>>,
    pub(crate) probes: Table<Arc<ProbeDefinition>>,
    pub(crate) objects: Table<&'static Object>,
    pub(crate) routines: Table<Routine>,
    pub(crate) modules: HashMap<String, &'static Vmod>,
    pub(crate) functions: Vec<&'static Function>,
    pub(crate) regexes: Vec<Regex>,
    regex_index: HashMap<String, u32>,
    pub(crate) used: Vec<bool>,
    pub(crate) flow: Flow,
    /// The subroutine that is being checked.
    pub(crate) current: usize,
    pub(crate) default_backend: Option<u32>,
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
        backends: Table::new(),
        acls: Table::new(),
        probes: Table::new(),
        objects: Table::new(),
        routines: Table::new(),
        modules: HashMap::new(),
        functions: Vec::new(),
        regexes: Vec::new(),
        regex_index: HashMap::new(),
        used: vec![false; TABLE.len()],
        flow: Flow::default(),
        current: 0,
        default_backend: None,
        builtin_file,
    };
    checker.declare(builtin_file, declarations)?;
    for declaration in declarations {
        if let Declaration::Sub { name, body } = declaration {
            let index = checker.routines.find(&name.text).expect("declared above");
            checker.current = index as usize;
            let acts = checker.block(body)?;
            checker.routines.rows[index as usize].value.bodies.push(acts);
        }
    }
    checker.flow.check(&checker)?;
    checker.unreferenced()?;
    Ok(checker)
}

impl Checker<'_> {
    /// All names first, so that the order of definitions does not matter, probes before the backends that have them.
    fn declare(&mut self, builtin_file: u16, declarations: &[Declaration]) -> Checked<()> {
        let builtin_names: Vec<&str> = declarations
            .iter()
            .filter_map(|declaration| match declaration {
                Declaration::Sub { name, .. } if name.span.file == builtin_file => Some(name.text.as_str()),
                _ => None,
            })
            .collect();
        for declaration in declarations {
            match declaration {
                Declaration::Import { module, alias } => self.import(module, alias)?,
                Declaration::Probe { name, keyword, fields } => {
                    self.reserved(name)?;
                    let probe = declare::probe(self.sources, &name.text, *keyword, fields)?;
                    self.probes.add("Probe", name, Arc::new(probe))?;
                }
                Declaration::Acl { name, flags, entries } => {
                    self.reserved(name)?;
                    let acl = declare::acl(self.options, name, flags, entries)?;
                    self.acls.add("ACL", name, Arc::new(acl))?;
                }
                Declaration::Sub { name, body } => self.routine(name, body, builtin_file, &builtin_names)?,
                Declaration::Backend { .. } => {}
            }
        }
        for declaration in declarations {
            if let Declaration::Backend { name, keyword, none, fields } = declaration {
                self.reserved(name)?;
                let definition = declare::backend(self, name, *keyword, *none, fields)?;
                let index = self.backends.add("Backend", name, definition)?;
                if name.text == "default" || self.default_backend.is_none() {
                    self.default_backend = Some(index);
                }
            }
        }
        for declaration in declarations {
            if let Declaration::Sub { body, .. } = declaration {
                self.objects_in(body)?;
            }
        }
        Ok(())
    }

    fn reserved(&self, name: &Part) -> Checked<()> {
        if name.text.starts_with("vcl_") {
            return Err(Problem::new()
                .words("Symbols named 'vcl_*' are reserved.")
                .words("At: ")
                .token(name.span)
                .into());
        }
        Ok(())
    }

    fn import(&mut self, module: &Part, alias: &Part) -> Checked<()> {
        match self.options.registry.find(&module.text) {
            Some(found) => {
                self.modules.insert(alias.text.clone(), found);
                Ok(())
            }
            None => Err(Problem::at(module.span, format!("Could not find VMOD {}", module.text)).into()),
        }
    }

    fn routine(
        &mut self,
        name: &Part,
        body: &Block,
        builtin_file: u16,
        builtin_names: &[&str],
    ) -> Checked<()> {
        let is_user = name.span.file != builtin_file;
        if name.text.starts_with("vcl_") && !builtin_names.contains(&name.text.as_str()) {
            let mut words = String::from("Valid vcl_* subroutines are:");
            let mut names = builtin_names.to_vec();
            names.sort_unstable();
            for name in names {
                words.push_str("\n\t");
                words.push_str(name);
            }
            return Err(Problem::at(name.span, "The names 'vcl_*' are reserved for subroutines.")
                .words(words)
                .into());
        }
        if name.text == "default" {
            return Err(Problem::at(name.span, "Symbol 'default' is a reserved word.").into());
        }
        let does = is_user && !body.is_empty();
        match self.routines.find(&name.text) {
            Some(index) if name.text.starts_with("vcl_") => {
                self.routines.rows[index as usize].value.user |= does;
            }
            _ => {
                let entry =
                    Sub::EVERY.into_iter().find(|sub| name.text.strip_prefix("vcl_") == Some(sub.name()));
                let routine = Routine { bodies: Vec::new(), user: does, entry };
                let index = self.routines.add("Subroutine", name, routine)?;
                self.flow.add_routine();
                // The built-in subroutines are called by the program, their helpers by the built-in VCL.
                self.routines.rows[index as usize].used = name.text.starts_with("vcl_");
            }
        }
        Ok(())
    }

    /// The objects that `new` makes anywhere in a block.
    fn objects_in(&mut self, block: &Block) -> Checked<()> {
        for statement in block {
            match &statement.kind {
                StatementKind::New(name, class, _, _) => {
                    let object = match class.parts.as_slice() {
                        [module, class] => self.modules.get(&module.text).and_then(|module| {
                            module.objects.iter().find(|object| object.name == class.text)
                        }),
                        _ => None,
                    };
                    let object = object.ok_or_else(|| not_found(class))?;
                    self.reserved(name)?;
                    let index = self.objects.add("Instance", name, object)?;
                    // An object that nothing calls is no error: its maker may have had an effect.
                    self.objects.rows[index as usize].used = true;
                }
                StatementKind::Block(inner) => self.objects_in(inner)?,
                StatementKind::If(arms, otherwise) => {
                    for (_, arm) in arms {
                        self.objects_in(arm)?;
                    }
                    if let Some(otherwise) = otherwise {
                        self.objects_in(otherwise)?;
                    }
                }
                StatementKind::Set(..)
                | StatementKind::Unset(_)
                | StatementKind::Call(_)
                | StatementKind::Return(_)
                | StatementKind::Do(_) => {}
            }
        }
        Ok(())
    }

    fn unreferenced(&self) -> Checked<()> {
        if !self.options.unreferenced_is_error {
            return Ok(());
        }
        fn first<T>(what: &str, table: &Table<T>, spared: Option<u32>) -> Checked<()> {
            for (index, row) in table.rows.iter().enumerate() {
                if !row.used && spared != Some(index as u32) {
                    let words = format!("Unused {what} {}, defined:", row.name);
                    return Err(Problem::at(row.span, words).into());
                }
            }
            Ok(())
        }
        first("backend", &self.backends, self.default_backend)?;
        first("acl", &self.acls, None)?;
        first("probe", &self.probes, self.probes.find("default"))?;
        first("sub", &self.routines, None)
    }

    fn block(&mut self, block: &Block) -> Checked<Vec<Act>> {
        let mut acts = Vec::with_capacity(block.len());
        for statement in block {
            self.statement(statement, &mut acts)?;
        }
        Ok(acts)
    }

    fn statement(&mut self, statement: &Statement, acts: &mut Vec<Act>) -> Checked<()> {
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
                    checked.push((self.expression(condition, Type::Bool)?.node, self.block(arm)?));
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
            StatementKind::New(name, class, arguments, open) => self.make(name, class, arguments, *open)?,
            StatementKind::Do(expression) => self.perform(expression)?,
        };
        acts.push(act);
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
        match Var::find(&name.text(), self.sources.version(name.span())) {
            Some(variable) => Ok(Target::Var(variable)),
            None => Err(not_found(name)),
        }
    }

    fn set(&mut self, name: &Name, sign: &'static str, sign_span: Span, value: &Expression) -> Checked<Act> {
        let span = name.span();
        let wrong =
            || -> Box<Problem> { Problem::at(sign_span, format!("Expected '=' got '{sign}', at")).into() };
        let variable = match self.target(name)? {
            Target::Field(side, field) => {
                self.writable(span, side.row().writable, side.row().readable)?;
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
        self.writable(span, writable, row.readable)?;
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
            (Kind::Body, None | Some(Arithmetic::Add)) => {
                let value = self.expression(value, Type::String)?.node;
                Ok(Act::SetBody(value, arithmetic.is_some()))
            }
            (Kind::String, None) => Ok(Act::SetText(variable, self.expression(value, Type::String)?.node)),
            (Kind::String, Some(Arithmetic::Add)) => {
                let value = self.expression(value, Type::String)?.node;
                Ok(Act::SetText(variable, Node::Concat(vec![Node::Var(variable), value])))
            }
            (_, None) => Ok(Act::SetVar(variable, self.expression(value, kind)?.node)),
            (Kind::Int | Kind::Duration | Kind::Time, Some(operator)) => {
                let want = match (row.kind, operator) {
                    (Kind::Int, _) => Type::Int,
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

    fn writable(&mut self, span: Span, writable: Subs, readable: Subs) -> Checked<()> {
        if !writable.is_empty() {
            self.flow.uses(self.current, Use { span, allowed: writable, wrong: Wrong::Set });
            return Ok(());
        }
        let entry = self.routines.rows[self.current].value.entry;
        let words = match entry {
            Some(sub) if !readable.contains(sub) => {
                format!("Not available in subroutine 'vcl_{}'.", sub.name())
            }
            _ => "Variable is read only.".to_owned(),
        };
        Err(Problem::new().stretch(span).words(words).into())
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
        if name.parts.len() > 1 {
            let words = format!("Name of subroutine, '{}', contains illegal character '.'", name.text());
            return Err(Problem::over(name.span(), words).into());
        }
        if name.parts[0].text == "default" {
            return Err(Problem::at(name.span(), "Symbol 'default' is a reserved word.").into());
        }
        let index = self.routines.refer("sub", &name.parts[0])?;
        self.flow.calls(self.current, index as usize, name.span());
        Ok(Act::Call(index))
    }

    fn verdict(&mut self, verdict: &Option<(Part, Option<Vec<Expression>>)>, span: Span) -> Checked<Act> {
        let Some((action, arguments)) = verdict else {
            if self.routines.rows[self.current].value.entry.is_some() {
                return Err(Problem::over(span, "Expected '(' got ';', at").into());
            }
            return Ok(Act::Leave);
        };
        let Some(mut allowed) = crate::flow::allowed(&action.text) else {
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
            ("pass", Some([duration])) => {
                allowed = Subs::of(&[Sub::BackendResponse]);
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
        let Some([part]) = label.as_name().map(|name| name.parts.as_slice()) else {
            return Err(Problem::over(label.span, "Expected a VCL label").into());
        };
        match self.options.labels {
            Some(exists) if !exists(&part.text) => Err(not_found(&Name { parts: vec![part.clone()] })),
            _ => Ok(Text::from(part.text.clone())),
        }
    }

    fn make(&mut self, name: &Part, class: &Name, arguments: &[Argument], open: Span) -> Checked<Act> {
        let span = name.span;
        self.flow.uses(self.current, Use { span, allowed: Subs::of(&[Sub::Init]), wrong: Wrong::Action });
        let object = self.objects.find(&name.text).expect("collected before");
        let parameters = self.objects.rows[object as usize].value.parameters;
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
