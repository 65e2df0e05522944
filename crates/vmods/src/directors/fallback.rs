//! `directors.fallback`: the first healthy member, or with `sticky` the current one as long as it is healthy.

use super::members::{Cell, Column, Listed, Members, is_healthy};
use crate::arguments::Arguments;
use copal_vcl as vcl;
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use vcl::host::Result;
use vcl::value::{Ask, Backend, Health, ListForm, Operator, Resolved};
use vcl::vmod::{Call, ObjectRef};

/// The director.
pub(super) struct Fallback {
    pub(super) members: Members,
    sticky: bool,
    /// The index of the member chosen last.
    current: AtomicUsize,
}

impl Fallback {
    pub(super) fn new(name: &str, sticky: bool) -> Self {
        Self { members: Members::new(name), sticky, current: AtomicUsize::new(0) }
    }
}

impl Backend for Fallback {
    fn name(&self) -> &str {
        &self.members.name
    }

    fn kind(&self) -> &'static str {
        "fallback"
    }

    fn resolve(&self, ask: &Ask<'_>) -> Resolved {
        let list = self.members.read();
        let count = list.len();
        let current = self.current.load(Ordering::Relaxed);
        let first = if self.sticky { current } else { 0 };
        let healthy =
            (0..count).map(|step| (first + step) % count).find(|&at| is_healthy(&list[at].backend, ask));
        let Some(at) = healthy else { return Resolved::None };
        // What is chosen for one request that failed elsewhere is no change of course.
        if at != current && ask.tried.is_empty() {
            self.current.store(at, Ordering::Relaxed);
        }
        Resolved::Other(Arc::clone(&list[at].backend))
    }

    fn health(&self, ask: &Ask<'_>) -> Health {
        self.members.operator.over(|| self.members.health(ask))
    }

    fn operator(&self) -> Option<&Operator> {
        Some(&self.members.operator)
    }

    fn list(&self, ask: &Ask<'_>, form: ListForm, out: &mut String) {
        let current = self.current.load(Ordering::Relaxed);
        let cell = |index: usize, _: bool| Cell {
            text: if index == current { "*" } else { "" }.into(),
            json: (index == current).to_string(),
        };
        let before = format!("  \"sticky\": {},\n", self.sticky);
        self.members.list(
            ask,
            form,
            &before,
            Some(Column { heading: "Current", key: "current", cell: &cell }),
            out,
        );
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Listed for Fallback {
    fn members(&self) -> &Members {
        &self.members
    }

    /// The current member stays the current one; its successor takes over if it was the one.
    fn removed(&self, at: usize, left: usize) {
        let current = self.current.load(Ordering::Relaxed);
        if at < current {
            self.current.store(current - 1, Ordering::Relaxed);
        } else if current >= left {
            self.current.store(0, Ordering::Relaxed);
        }
    }
}

/// `new x = directors.fallback(sticky=false)`
pub(super) fn make(name: &str, call: &mut Call<'_>) -> Result<ObjectRef> {
    Ok(Arc::new(Fallback::new(name, Arguments(call.arguments).boolean(0)?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{FakeBackend, ask_of, fakes};
    use vcl::value::BackendRef;

    fn remove(director: &Fallback, member: &Arc<FakeBackend>) {
        let reference: BackendRef = member.clone();
        let (at, left) = director.members.remove(Some(&reference)).unwrap().unwrap();
        director.removed(at, left);
    }

    fn director(sticky: bool, members: &[Arc<FakeBackend>]) -> Fallback {
        let director = Fallback::new("fb", sticky);
        let other: BackendRef = Arc::new(Fallback::new("other", false));
        for member in members {
            director.members.add(&other, Some(&(member.clone() as BackendRef)), 0.0).unwrap();
        }
        director
    }

    fn choice(director: &Fallback) -> String {
        match director.resolve(&ask_of(0.0, None, b"", 0)) {
            Resolved::Other(backend) => backend.name().to_owned(),
            Resolved::Itself | Resolved::None => "-".into(),
        }
    }

    #[test]
    fn the_first_healthy_one() {
        let members = fakes(3);
        let director = director(false, &members);
        assert_eq!(choice(&director), "b1");
        members[0].set(false, 0.0);
        assert_eq!(choice(&director), "b2");
        members[1].set(false, 0.0);
        assert_eq!(choice(&director), "b3");
        members[0].set(true, 0.0);
        assert_eq!(choice(&director), "b1");
        members.iter().for_each(|member| member.set(false, 0.0));
        assert_eq!(choice(&director), "-");
    }

    #[test]
    fn sticky_stays_and_starts_over_at_the_end() {
        let members = fakes(3);
        let director = director(true, &members);
        members[0].set(false, 0.0);
        assert_eq!(choice(&director), "b2");
        members[0].set(true, 0.0);
        assert_eq!(choice(&director), "b2");
        members[1].set(false, 0.0);
        assert_eq!(choice(&director), "b3");
        members[2].set(false, 0.0);
        assert_eq!(choice(&director), "b1");
    }

    #[test]
    fn removal_keeps_the_current_one() {
        let members = fakes(3);
        let director = director(true, &members);
        members[0].set(false, 0.0);
        assert_eq!(choice(&director), "b2");
        remove(&director, &members[0]);
        assert_eq!(choice(&director), "b2");
        remove(&director, &members[1]);
        assert_eq!(choice(&director), "b3");
        remove(&director, &members[2]);
        assert_eq!(choice(&director), "-");
    }

    #[test]
    fn the_list_marks_the_current_one() {
        let members = fakes(2);
        let director = director(false, &members);
        members[0].set(false, 0.0);
        choice(&director);
        let mut out = String::new();
        director.list(&ask_of(0.0, None, b"", 0), ListForm { members: true, json: false }, &mut out);
        assert_eq!(out, "\n\n\tBackend\tCurrent\tHealth\n\tb1\t\tsick\n\tb2\t*\thealthy\n");
    }
}
