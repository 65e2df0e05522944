//! The bundled VMODs: the modules that `import` finds.
//!
//! `std` and `directors` are those of Varnish 7.1, whole; `dynamic` is accepted and empty, because deployed VCL imports
//! it and uses nothing of it. `goto`, `kvstore`, `urlplus` and `utils` are after Varnish Enterprise's, `querystring` after the
//! open module of that name. Each module is one static table of signatures ([`copal_vcl::vmod::Vmod`]) with a Rust
//! function behind each row; the compiler checks calls against the table.
//!
//! Nothing here knows the cache: what a function needs of the request comes through [`copal_vcl::host::Host`].

mod arguments;
mod directors;
mod dynamic;
mod goto;
mod kvstore;
mod querystring;
mod standard;
#[cfg(test)]
mod testing;
mod urlplus;
mod utils;

pub use directors::director_of;

use copal_vcl as vcl;
use vcl::vmod::{Registry, Vmod};

/// The modules of this crate, for the compiler.
pub fn registry() -> &'static dyn Registry {
    &Bundled
}

struct Bundled;

impl Registry for Bundled {
    fn find(&self, name: &str) -> Option<&'static Vmod> {
        MODULES.iter().copied().find(|module| module.name == name)
    }
}

static MODULES: &[&Vmod] = &[
    &standard::VMOD,
    &directors::VMOD,
    &dynamic::VMOD,
    &goto::VMOD,
    &kvstore::VMOD,
    &querystring::VMOD,
    &urlplus::VMOD,
    &utils::VMOD,
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use vcl::vmod::{Default, Function, Parameter, Type};

    #[test]
    fn the_registry_finds_what_it_has_and_nothing_else() {
        for name in ["std", "directors", "dynamic"] {
            assert_eq!(registry().find(name).map(|module| module.name), Some(name));
        }
        assert!(registry().find("nosuch").is_none());
        assert!(
            registry()
                .find("dynamic")
                .is_some_and(|module| module.functions.is_empty() && module.objects.is_empty())
        );
    }

    /// Every row is one that the compiler can use: names are unique, defaults are of their type, and a parameter that
    /// must be given does not follow one that need not.
    #[test]
    fn every_signature_is_sound() {
        for module in MODULES {
            check_functions(module.name, module.functions);
            for object in module.objects {
                check_parameters(object.name, object.parameters);
                check_functions(object.name, object.methods);
            }
        }
    }

    fn check_functions(place: &str, functions: &[Function]) {
        let mut names = HashSet::new();
        for function in functions {
            assert!(names.insert(function.name), "{place}.{} occurs twice", function.name);
            check_parameters(function.name, function.parameters);
        }
    }

    fn check_parameters(place: &str, parameters: &[Parameter]) {
        let mut names = HashSet::new();
        let mut optional = false;
        for parameter in parameters {
            assert!(
                parameter.name.is_empty() || names.insert(parameter.name),
                "{place}: {} twice",
                parameter.name
            );
            match parameter.default {
                Default::Required => assert!(!optional, "{place}: {} must not be required", parameter.name),
                Default::Optional => optional = true,
                Default::Literal(text) => {
                    optional = true;
                    check_literal(place, parameter.kind, text);
                }
            }
        }
    }

    fn check_literal(place: &str, kind: Type, text: &str) {
        let sound = match kind {
            Type::Bool => matches!(text, "true" | "false"),
            Type::Int => text.parse::<i64>().is_ok(),
            Type::Real => text.contains('.') && text.parse::<f64>().is_ok(),
            Type::Duration => text.ends_with('s'),
            Type::String => text.starts_with('"') && text.ends_with('"') && text.len() >= 2,
            Type::Enum(words) => words.contains(&text),
            _ => false,
        };
        assert!(sound, "{place}: {text} is no {kind:?}");
    }
}
