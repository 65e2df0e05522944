//! The checker: calls of VMOD functions and methods, their arguments bound to the signature.

use crate::check::{Checker, not_found};
use crate::diagnostics::{Checked, Problem};
use crate::flow::{Use, Wrong};
use crate::source::Span;
use crate::syntax::{Argument, Expression, Name, Part};
use crate::typed::{Node, Type, Typed};
use crate::value::{Text, Value};
use crate::variables::Subs;
use crate::vmod::{self, Default, Function, Parameter, Vmod};
use copal_base::units;

/// The checker's type for a signature's.
fn parameter_type(kind: vmod::Type) -> Type {
    match kind {
        vmod::Type::Void => Type::Void,
        vmod::Type::Bool => Type::Bool,
        vmod::Type::Int => Type::Int,
        vmod::Type::Real => Type::Real,
        vmod::Type::Duration => Type::Duration,
        vmod::Type::Time => Type::Time,
        vmod::Type::Bytes => Type::Bytes,
        vmod::Type::String | vmod::Type::Strands | vmod::Type::StrandList => Type::String,
        vmod::Type::Ip => Type::Ip,
        vmod::Type::Backend => Type::Backend,
        vmod::Type::Acl => Type::Acl,
        vmod::Type::Probe => Type::Probe,
        vmod::Type::Header => Type::Header,
        vmod::Type::Http => Type::Http,
        vmod::Type::Storage => Type::Storage,
        vmod::Type::Blob => Type::Blob,
        vmod::Type::Regex => Type::Regex,
        vmod::Type::Enum(words) => Type::Enum(words),
        vmod::Type::Sub => Type::Sub,
    }
}

impl Checker<'_> {
    /// `module.function(arguments)`
    pub(crate) fn function(
        &mut self,
        module: &'static Vmod,
        name: &Name,
        word: &Part,
        arguments: Option<&[Argument]>,
        span: Span,
    ) -> Checked<Typed> {
        match module.functions.iter().find(|function| function.name == word.text) {
            Some(function) => self.invoke(function, None, arguments, word.span, span),
            None => Err(not_found(name)),
        }
    }

    /// `object.method(arguments)`
    pub(crate) fn method(
        &mut self,
        object: u32,
        word: &Part,
        arguments: Option<&[Argument]>,
        span: Span,
    ) -> Checked<Typed> {
        let methods = self.objects.value(object).map_or(&[][..], |class| class.methods);
        match methods.iter().find(|method| method.name == word.text) {
            Some(method) => self.invoke(method, Some(object), arguments, word.span, span),
            None => {
                let class = self.type_name(Type::Object(object));
                let words = format!("Unknown property '{}' for type {class}", word.text);
                Err(Problem::at(word.span, words).into())
            }
        }
    }

    fn invoke(
        &mut self,
        function: &'static Function,
        object: Option<u32>,
        arguments: Option<&[Argument]>,
        word: Span,
        span: Span,
    ) -> Checked<Typed> {
        let Some(arguments) = arguments else {
            return Err(Problem::at(word, format!("Expected '(' after '{}'", function.name)).into());
        };
        if !function.scope.is_empty() {
            let allowed = Subs::of(function.scope);
            self.flow.uses(self.current, Use { span: word, allowed, wrong: Wrong::Read });
        }
        let arguments = self.arguments(span, word, function.parameters, arguments)?;
        let index = match self.functions.iter().position(|known| std::ptr::eq(*known, function)) {
            Some(index) => index,
            None => {
                self.functions.push(function);
                self.functions.len() - 1
            }
        };
        let returns = parameter_type(function.returns);
        let node = Node::Vmod { function: index as u32, object, arguments };
        Ok(Typed { node, kind: returns, span })
    }

    /// Binds what is given to the parameters, by place until the first name, then by name; fills in the rest.
    pub(crate) fn arguments(
        &mut self,
        span: Span,
        word: Span,
        parameters: &'static [Parameter],
        given: &[Argument],
    ) -> Checked<Vec<(Node, Type)>> {
        let mut bound: Vec<Option<(Node, Type)>> = parameters.iter().map(|_| None).collect();
        let mut by_name = false;
        for (place, argument) in given.iter().enumerate() {
            by_name |= argument.name.is_some();
            let index = match &argument.name {
                Some(name) => {
                    parameters.iter().position(|parameter| parameter.name == name.text).ok_or_else(|| {
                        failed(Problem::at(name.span, format!("Unknown argument '{}'", name.text)), span)
                    })?
                }
                None if by_name || place >= parameters.len() => {
                    let words = format!("Expected ')' got '{}', at", self.sources.quote(argument.value.span));
                    return Err(failed(Problem::at(argument.value.span, words), span));
                }
                None => place,
            };
            let parameter = &parameters[index];
            if bound[index].is_some() {
                let words = format!("Argument '{}' already used", parameter.name);
                let at = argument.name.as_ref().map_or(argument.value.span, |name| name.span);
                return Err(failed(Problem::at(at, words), span));
            }
            bound[index] = Some(self.argument(parameter, &argument.value, span)?);
        }
        let mut complete = Vec::with_capacity(parameters.len());
        for (place, (parameter, argument)) in parameters.iter().zip(bound).enumerate() {
            complete.push(match argument {
                Some(argument) => argument,
                None => match parameter.default {
                    Default::Optional => (Node::Const(Value::Void), Type::Void),
                    Default::Literal(text) => default_value(parameter.kind, text),
                    Default::Required => {
                        let words = if parameter.name.is_empty() {
                            format!("Argument {} missing", place + 1)
                        } else {
                            format!("Argument '{}' missing", parameter.name)
                        };
                        return Err(failed(Problem::at(word, words), span));
                    }
                },
            });
        }
        Ok(complete)
    }

    fn argument(&mut self, parameter: &Parameter, value: &Expression, span: Span) -> Checked<(Node, Type)> {
        let kind = parameter_type(parameter.kind);
        if let Type::Enum(words) = kind {
            let name =
                value.as_name().filter(|name| name.parts.len() == 1).map(|name| name.parts[0].text.as_str());
            if let Some(word) = words.iter().find(|word| Some(**word) == name) {
                return Ok((Node::Const(Value::Enum(word)), kind));
            }
            let list: String = words.iter().map(|word| format!("\n\t{word}")).collect();
            let words = format!("Wrong enum value.  Expected one of:{list}");
            return Err(failed(Problem::over(value.span, words), span));
        }
        match self.expression(value, kind) {
            Ok(typed) if parameter.kind == vmod::Type::StrandList => {
                let parts = match typed.node {
                    Node::Concat(parts) => parts,
                    single => vec![single],
                };
                Ok((Node::Strands(parts), Type::Void))
            }
            Ok(typed) => Ok((typed.node, kind)),
            Err(problem) => {
                let name = if parameter.name.is_empty() { "(unnamed argument)" } else { parameter.name };
                Err(failed(problem.words(format!("Expected argument: {} {name}\n", kind.name())), span))
            }
        }
    }
}

fn failed(problem: Problem, span: Span) -> Box<Problem> {
    problem.words("While compiling function call:\n").stretch(span).into()
}

/// A signature's default. The tables are ours; a literal that does not fit its type is taken as absent.
fn default_value(kind: vmod::Type, text: &'static str) -> (Node, Type) {
    let value = match kind {
        vmod::Type::Bool => Some(Value::Bool(text == "true")),
        vmod::Type::Int => text.parse().ok().map(Value::Int),
        vmod::Type::Real => text.parse().ok().map(Value::Real),
        vmod::Type::Duration => units::parse_duration(text).ok().map(Value::Duration),
        vmod::Type::Bytes => units::parse_bytes(text).ok().map(Value::Bytes),
        vmod::Type::String | vmod::Type::Strands => {
            let inner = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text);
            return (Node::Text(Text::from_static(inner.as_bytes())), Type::String);
        }
        vmod::Type::Enum(words) => words.iter().find(|word| **word == text).map(|word| Value::Enum(word)),
        vmod::Type::StrandList
        | vmod::Type::Void
        | vmod::Type::Time
        | vmod::Type::Ip
        | vmod::Type::Backend
        | vmod::Type::Acl
        | vmod::Type::Probe
        | vmod::Type::Header
        | vmod::Type::Http
        | vmod::Type::Storage
        | vmod::Type::Blob
        | vmod::Type::Regex
        | vmod::Type::Sub => None,
    };
    debug_assert!(value.is_some(), "default {text} does not fit {kind:?}");
    (Node::Const(value.unwrap_or_default()), parameter_type(kind))
}
