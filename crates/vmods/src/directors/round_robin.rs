//! `directors.round_robin`: each healthy member in its turn.

use super::members::{Listed, Members, is_healthy};
use copal_vcl as vcl;
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use vcl::host::Result;
use vcl::value::{Ask, Backend, Health, ListForm, Operator, Resolved};
use vcl::vmod::{Call, ObjectRef};

/// How often a choice is made anew because another thread took that turn meanwhile.
const TRIES: usize = 4;

/// The director.
pub(super) struct RoundRobin {
    pub(super) members: Members,
    /// The index of the member whose turn it is; taken modulo their count.
    next: AtomicUsize,
}

impl RoundRobin {
    pub(super) fn new(name: &str) -> Self {
        Self { members: Members::new(name), next: AtomicUsize::new(0) }
    }
}

impl Backend for RoundRobin {
    fn name(&self) -> &str {
        &self.members.name
    }

    fn kind(&self) -> &'static str {
        "round-robin"
    }

    fn resolve(&self, ask: &Ask<'_>) -> Resolved {
        let list = self.members.read();
        let count = list.len();
        let mut chosen = Resolved::None;
        for _ in 0..TRIES {
            let turn = self.next.load(Ordering::Relaxed);
            let healthy = (0..count)
                .map(|step| (turn % count + step) % count)
                .find(|&at| is_healthy(&list[at].backend, ask));
            let Some(at) = healthy else { return Resolved::None };
            chosen = Resolved::Other(Arc::clone(&list[at].backend));
            // The turn goes on behind the chosen one, so a sick member's turns are spread over the others.
            let moved =
                self.next.compare_exchange(turn, (at + 1) % count, Ordering::Relaxed, Ordering::Relaxed);
            if moved.is_ok() {
                break;
            }
        }
        chosen
    }

    fn health(&self, ask: &Ask<'_>) -> Health {
        self.members.operator.over(|| self.members.health(ask))
    }

    fn operator(&self) -> Option<&Operator> {
        Some(&self.members.operator)
    }

    fn list(&self, ask: &Ask<'_>, form: ListForm, out: &mut String) {
        self.members.list(ask, form, "", None, out);
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Listed for RoundRobin {
    fn members(&self) -> &Members {
        &self.members
    }
}

/// `new x = directors.round_robin()`
pub(super) fn make(name: &str, _: &mut Call<'_>) -> Result<ObjectRef> {
    Ok(Arc::new(RoundRobin::new(name)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{FakeBackend, ask_of, fakes};
    use vcl::value::BackendRef;

    fn director(members: &[Arc<FakeBackend>]) -> RoundRobin {
        let director = RoundRobin::new("rr");
        let other: BackendRef = Arc::new(RoundRobin::new("other"));
        for member in members {
            director.members.add(&other, Some(&(member.clone() as BackendRef)), 0.0).unwrap();
        }
        director
    }

    fn turns(director: &RoundRobin, count: usize) -> String {
        let names = (0..count).map(|_| match director.resolve(&ask_of(0.0, None, b"", 0)) {
            Resolved::Other(backend) => backend.name().to_owned(),
            Resolved::Itself | Resolved::None => "-".into(),
        });
        names.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn each_in_its_turn() {
        assert_eq!(turns(&director(&fakes(3)), 7), "b1 b2 b3 b1 b2 b3 b1");
        assert_eq!(turns(&director(&[]), 2), "- -");
    }

    #[test]
    fn the_sick_are_passed_over_evenly() {
        let members = fakes(3);
        let director = director(&members);
        members[1].set(false, 0.0);
        assert_eq!(turns(&director, 5), "b1 b3 b1 b3 b1");
        members[0].set(false, 0.0);
        members[2].set(false, 0.0);
        assert_eq!(turns(&director, 2), "- -");
        members[1].set(true, 0.0);
        assert_eq!(turns(&director, 2), "b2 b2");
    }

    #[test]
    fn removal_while_in_use() {
        let members = fakes(3);
        let director = director(&members);
        assert_eq!(turns(&director, 2), "b1 b2");
        director.members.remove(Some(&(members[2].clone() as BackendRef))).unwrap();
        assert_eq!(turns(&director, 3), "b1 b2 b1");
        director.members.remove(Some(&(members[0].clone() as BackendRef))).unwrap();
        assert_eq!(turns(&director, 2), "b2 b2");
    }

    #[test]
    fn threads_share_the_turns() {
        let director = director(&fakes(4));
        let counts: Vec<AtomicUsize> = (0..4).map(|_| AtomicUsize::new(0)).collect();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        let Resolved::Other(backend) = director.resolve(&ask_of(0.0, None, b"", 0)) else {
                            continue;
                        };
                        let index: usize = backend.name()[1..].parse().unwrap();
                        counts[index - 1].fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        let counts: Vec<usize> = counts.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        assert_eq!(counts.iter().sum::<usize>(), 4000);
        assert!(counts.iter().all(|count| (700..1300).contains(count)), "{counts:?}");
    }
}
