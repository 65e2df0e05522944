//! `directors.random`: a healthy member, as often as its weight says.

use super::hash_of;
use super::members::{Listed, Members, mix, unit};
use copal_vcl as vcl;
use std::any::Any;
use std::sync::Arc;
use vcl::host::Result;
use vcl::value::{Ask, Backend, Health, ListForm, Operator, Resolved};
use vcl::vmod::{Call, ObjectRef};

/// The director.
pub(super) struct Random {
    pub(super) members: Members,
    /// Its own, so that a random director inside another does not repeat the outer one's choice.
    seed: u64,
}

impl Random {
    pub(super) fn new(name: &str) -> Self {
        Self { members: Members::new(name), seed: u64::from(hash_of(&[name.as_bytes()])) << 8 }
    }
}

impl Backend for Random {
    fn name(&self) -> &str {
        &self.members.name
    }

    fn kind(&self) -> &'static str {
        "random"
    }

    fn resolve(&self, ask: &Ask<'_>) -> Resolved {
        self.members.pick(ask, unit(mix(ask.random ^ self.seed ^ u64::from(ask.depth))))
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

impl Listed for Random {
    fn members(&self) -> &Members {
        &self.members
    }
}

/// `new x = directors.random()`
pub(super) fn make(name: &str, _: &mut Call<'_>) -> Result<ObjectRef> {
    Ok(Arc::new(Random::new(name)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{ask_of, fakes};
    use std::collections::HashMap;
    use vcl::value::BackendRef;

    /// How often each leaf is chosen in 20,000 asks, in hundredths.
    fn shares(director: &BackendRef) -> HashMap<String, usize> {
        let mut counts = HashMap::new();
        for seed in 0..20_000 {
            let ask = ask_of(0.0, None, b"", seed);
            let mut at = Arc::clone(director);
            let name = loop {
                at = match at.resolve(&ask) {
                    Resolved::Itself => break at.name().to_owned(),
                    Resolved::Other(next) => next,
                    Resolved::None => break "-".into(),
                };
            };
            *counts.entry(name).or_insert(0) += 1;
        }
        counts.into_iter().map(|(name, count)| (name, (count + 100) / 200)).collect()
    }

    fn filled(name: &str, members: &[(BackendRef, f64)]) -> BackendRef {
        let director = Arc::new(Random::new(name));
        let reference: BackendRef = director.clone();
        for (member, weight) in members {
            director.members.add(&reference, Some(member), *weight).unwrap();
        }
        reference
    }

    #[test]
    fn weights_decide_and_the_sick_get_nothing() {
        let leaves = fakes(3);
        let members: Vec<(BackendRef, f64)> = leaves
            .iter()
            .zip([10.0, 5.0, 0.0])
            .map(|(leaf, weight)| (leaf.clone() as BackendRef, weight))
            .collect();
        let director = filled("r", &members);
        let counts = shares(&director);
        assert!((65..=68).contains(&counts["b1"]) && (32..=35).contains(&counts["b2"]), "{counts:?}");
        assert!(!counts.contains_key("b3"));
        leaves[0].set(false, 0.0);
        assert_eq!(shares(&director), HashMap::from([("b2".into(), 100)]));
        leaves[1].set(false, 0.0);
        assert_eq!(shares(&director), HashMap::from([("-".into(), 100)]));
    }

    #[test]
    fn a_director_inside_another_chooses_on_its_own() {
        let leaves = fakes(4);
        let pair = |name: &str, from: usize| {
            filled(
                name,
                &[(leaves[from].clone() as BackendRef, 1.0), (leaves[from + 1].clone() as BackendRef, 1.0)],
            )
        };
        let counts = shares(&filled("outer", &[(pair("left", 0), 1.0), (pair("right", 2), 1.0)]));
        assert!(counts.len() == 4 && counts.values().all(|share| (23..=27).contains(share)), "{counts:?}");
    }
}
