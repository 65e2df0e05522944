//! `directors.hash`: a healthy member by a string, chosen when `.backend()` is called.
//!
//! The same string gives the same member as long as members, weights and health do not change; when one does, most
//! strings move. The shard director is the one that keeps them.

use super::members::{Listed, Members};
use super::{hash_of, object};
use crate::arguments::Arguments;
use copal_vcl as vcl;
use std::any::Any;
use std::sync::Arc;
use vcl::host::Result;
use vcl::value::{Ask, Backend, BackendRef, Health, ListForm, Operator, Resolved, Value};
use vcl::vmod::{Call, ObjectRef};

/// The director.
pub(super) struct Hash {
    pub(super) members: Members,
}

impl Hash {
    fn pick(&self, ask: &Ask<'_>, string: &[u8]) -> Option<BackendRef> {
        // 2^32 values on the line from 0 to 1.
        let share = f64::from(hash_of(&[string])) / 4_294_967_296.0;
        match self.members.pick(ask, share) {
            Resolved::Other(backend) => Some(backend),
            Resolved::Itself | Resolved::None => None,
        }
    }
}

/// It never stands in VCL as a backend, since `.backend()` gives a member; it is one for `backend.list` only.
impl Backend for Hash {
    fn name(&self) -> &str {
        &self.members.name
    }

    fn kind(&self) -> &'static str {
        "hash"
    }

    fn resolve(&self, ask: &Ask<'_>) -> Resolved {
        self.pick(ask, ask.url).map_or(Resolved::None, Resolved::Other)
    }

    fn health(&self, ask: &Ask<'_>) -> Health {
        self.members.operator.over(|| self.members.health(ask))
    }

    fn operator(&self) -> Option<&Operator> {
        Some(&self.members.operator)
    }

    fn list(&self, ask: &Ask<'_>, form: ListForm, out: &mut String) {
        self.members.list_with_weights(ask, form, out);
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Listed for Hash {
    fn members(&self) -> &Members {
        &self.members
    }
}

/// `new x = directors.hash()`
pub(super) fn make(name: &str, _: &mut Call<'_>) -> Result<ObjectRef> {
    Ok(Arc::new(Hash { members: Members::new(name) }))
}

/// `x.backend(string)`: a member, or `none`.
pub(super) fn backend(call: &mut Call<'_>) -> Result<Value> {
    let director = object::<Hash>(call)?;
    let string = Arguments(call.arguments).text_or_empty(0)?;
    Ok(Value::Backend(director.pick(&call.host.ask(), string)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{FakeHost, call_function, fakes, text};
    use vcl::host::Sub;

    #[test]
    fn strings_choose_as_in_varnish() {
        // Weights 1.0, 2.0 and 0.5, as varnishd 7.1.1 answers.
        let leaves = fakes(3);
        let director = Arc::new(Hash { members: Members::new("h") });
        let reference: BackendRef = director.clone();
        for (leaf, weight) in leaves.iter().zip([1.0, 2.0, 0.5]) {
            director.members.add(&reference, Some(&(leaf.clone() as BackendRef)), weight).unwrap();
        }
        let object: ObjectRef = director;
        let methods =
            crate::directors::VMOD.objects.iter().find(|object| object.name == "hash").unwrap().methods;
        let method = methods.iter().find(|method| method.name == "backend").unwrap();
        let chosen = |string: &str| {
            let mut host = FakeHost::default();
            let value =
                call_function(&mut host, Sub::Recv, method, Some(&object), &[text(string)]).0.unwrap();
            format!("{value:?}")
        };
        for (string, name) in [
            ("5", "b2"),
            ("5.5", "b2"),
            ("-5", "b1"),
            ("+5", "b1"),
            ("1e3", "b3"),
            ("1 w", "b3"),
            ("nan", "b3"),
            ("", "b2"),
        ] {
            assert_eq!(chosen(string), format!("Backend(Some(Backend({name})))"), "{string}");
        }
        leaves[1].set(false, 0.0);
        assert_ne!(chosen("5"), "Backend(Some(Backend(b2)))");
        leaves.iter().for_each(|leaf| leaf.set(false, 0.0));
        assert_eq!(chosen("5"), "Backend(None)");
    }
}
