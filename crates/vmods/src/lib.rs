//! The bundled VMODs: the modules that `import` finds.
//!
//! `std`, `directors`, `blob`, `cookie`, `proxy`, `unix` and `vtc` are those of Varnish 7.1; `accept`, `bodyaccess`,
//! `header`, `saintmode`, `str`, `tcp`, `var` and `vsthrottle` those of the varnish-modules collection; `goto`, `kvstore`,
//! `urlplus` and `utils` are after Varnish Enterprise's, `querystring` after the open module of that name; `dynamic` is
//! accepted and empty, because deployed VCL imports it and uses nothing of it. Each module is one static table of
//! signatures ([`copal_vcl::vmod::Vmod`]) with a Rust function behind each row; the compiler checks calls against it.
//!
//! Nothing here knows the cache: what a function needs of the request comes through [`copal_vcl::host::Host`].

mod accept;
mod arguments;
mod blob;
mod bodyaccess;
mod cookie;
mod directors;
mod dynamic;
mod goto;
mod header;
mod kvstore;
mod proxy;
mod purge;
mod querystring;
mod saintmode;
mod standard;
mod str;
mod task;
mod tcp;
#[cfg(test)]
mod testing;
mod unix;
mod urlplus;
mod utils;
mod var;
mod vsthrottle;
mod vtc;
mod xkey;

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
    &accept::VMOD,
    &blob::VMOD,
    &bodyaccess::VMOD,
    &cookie::VMOD,
    &directors::VMOD,
    &dynamic::VMOD,
    &goto::VMOD,
    &header::VMOD,
    &kvstore::VMOD,
    &proxy::VMOD,
    &purge::VMOD,
    &querystring::VMOD,
    &saintmode::VMOD,
    &standard::VMOD,
    &str::VMOD,
    &tcp::VMOD,
    &unix::VMOD,
    &urlplus::VMOD,
    &utils::VMOD,
    &var::VMOD,
    &vsthrottle::VMOD,
    &vtc::VMOD,
    &xkey::VMOD,
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use vcl::vmod::{Default, Function, Parameter, Type};

    #[test]
    fn the_registry_finds_what_it_has_and_nothing_else() {
        for name in MODULES.iter().map(|module| module.name) {
            assert_eq!(registry().find(name).map(|module| module.name), Some(name));
        }
        assert!(registry().find("nosuch").is_none());
        assert!(
            registry()
                .find("dynamic")
                .is_some_and(|module| module.functions.is_empty() && module.objects.is_empty())
        );
    }

    /// Every row is one that the compiler can use: names are unique and defaults are of their type.
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

    /// The manual's page has a section for each module and names every function, object and method in it.
    #[test]
    fn the_manual_names_everything() {
        let page = include_str!("../../../docs/vmods.md");
        for module in MODULES {
            let start = page.find(&format!("\n## {}\n", module.name));
            let Some(start) = start else { panic!("no section for {}", module.name) };
            let section = page[start + 1..].split("\n## ").next().unwrap_or_default();
            let methods = module.objects.iter().flat_map(|object| object.methods);
            let objects = module.objects.iter().map(|object| object.name);
            let names = module.functions.iter().chain(methods).map(|function| function.name).chain(objects);
            for name in names {
                assert!(section.contains(name), "{}.{name} is not in docs/vmods.md", module.name);
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
        for parameter in parameters {
            assert!(
                parameter.name.is_empty() || names.insert(parameter.name),
                "{place}: {} twice",
                parameter.name
            );
            match parameter.default {
                Default::Required | Default::Optional => {}
                Default::Literal(text) => check_literal(place, parameter.kind, text),
            }
        }
    }

    fn check_literal(place: &str, kind: Type, text: &str) {
        let sound = match kind {
            Type::Bool => matches!(text, "true" | "false"),
            Type::Int => text.parse::<i64>().is_ok(),
            Type::Real => text.contains('.') && text.parse::<f64>().is_ok(),
            Type::Duration => text.ends_with('s'),
            Type::Bytes => text.ends_with('B'),
            Type::String => text.starts_with('"') && text.ends_with('"') && text.len() >= 2,
            Type::Enum(words) => words.contains(&text),
            _ => false,
        };
        assert!(sound, "{place}: {text} is no {kind:?}");
    }
}
